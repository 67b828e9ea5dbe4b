//! Reads and validates the dataset and splits it into training and test samples.

use std::fmt;
use std::io::Read;
use std::path::Path;

use crate::model::{CLASSES, SIDE};

const PIXELS: usize = SIDE * SIDE;
/// The largest pixel value in a file. Pixels are divided by it.
pub const WHITE: u8 = 16;

/// The training and the test samples.
#[derive(Debug)]
pub struct Dataset {
    pub train: Samples,
    pub test: Samples,
}

/// Images and their labels, as flat lists ready for upload.
#[derive(Debug, Default)]
pub struct Samples {
    /// 64 values from 0 to 1 per image, in row-major order.
    pub pixels: Vec<f32>,
    /// One digit from 0 to 9 per image.
    pub labels: Vec<i32>,
}

/// An error in a data file.
#[derive(Debug, PartialEq)]
pub struct DataError {
    file: String,
    line: Option<usize>,
    problem: String,
}

impl fmt::Display for DataError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "data file {}", self.file)?;
        if let Some(line) = self.line {
            write!(f, ", line {line}")?;
        }
        write!(f, ": {}", self.problem)
    }
}

impl std::error::Error for DataError {}

impl Dataset {
    /// Reads the built-in dataset. DATA.md describes its source.
    ///
    /// # Errors
    ///
    /// As [`Self::parse`].
    pub fn built_in() -> Result<Self, DataError> {
        Self::parse("digits.csv.gz", include_bytes!("digits.csv.gz"))
    }

    /// Reads a data file in the format of the built-in dataset, plain or compressed with gzip.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read, and as [`Self::parse`].
    pub fn read(path: &Path) -> Result<Self, DataError> {
        let file = path.display().to_string();
        match read_limited(path) {
            Ok(bytes) => Self::parse(&file, &bytes),
            Err(error) => {
                Err(DataError { file, line: None, problem: format!("cannot be read: {error}") })
            }
        }
    }

    /// Parses the contents of a data file. Errors name the file as `file`.
    ///
    /// # Errors
    ///
    /// Returns an error if the gzip data is damaged, a line is malformed, or there are fewer than
    /// two images.
    pub fn parse(file: &str, bytes: &[u8]) -> Result<Self, DataError> {
        let data_error = |line, problem| DataError { file: file.to_string(), line, problem };
        let (text, gzip_problem) = decompress(bytes, MAX_BYTES);
        let line_breaks = text.iter().filter(|&&byte| byte == b'\n').count();
        if let Some(problem) = gzip_problem {
            return Err(data_error(Some(line_breaks + 1), problem));
        }
        let mut samples = Samples::default();
        // The last line can lack a line break.
        let line_count = line_breaks + usize::from(!text.is_empty() && !text.ends_with(b"\n"));
        for (number, line) in (1..=line_count).zip(text.split(|&byte| byte == b'\n')) {
            parse_line(line, &mut samples).map_err(|problem| data_error(Some(number), problem))?;
        }
        match samples.labels.len() {
            0 => Err(data_error(
                None,
                format!("the file is empty; expected {}", line_format("lines")),
            )),
            1 => Err(data_error(
                Some(1),
                "only one image; expected at least two, one to train and one to test".into(),
            )),
            _ => Ok(Self::split(samples)),
        }
    }

    /// Splits at least two samples: the last fifth is for testing, the rest for training.
    pub fn split(mut samples: Samples) -> Self {
        let count = samples.labels.len();
        let train_count = count - count.div_ceil(5);
        let test = Samples {
            pixels: samples.pixels.split_off(train_count * PIXELS),
            labels: samples.labels.split_off(train_count),
        };
        Self { train: samples, test }
    }
}

/// Describes the format of a line, for error messages. `what` is "lines" or "a line".
fn line_format(what: &str) -> String {
    format!(
        "{what} of {PIXELS} pixels (0 to {WHITE}) and a label (0 to {}), separated by commas",
        CLASSES - 1
    )
}

/// The largest file, and the largest text that a file is unpacked to, in bytes: some 300,000 images.
const MAX_BYTES: u64 = 64 << 20;

/// Reads a file of at most 64 MiB.
///
/// # Errors
///
/// Returns an error if it cannot be read, is larger, or is no file.
pub fn read_limited(path: &Path) -> std::io::Result<Vec<u8>> {
    // Opening a pipe would wait for its writer.
    if !std::fs::metadata(path)?.is_file() {
        return Err(std::io::Error::other("it is not a file"));
    }
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(std::io::Error::other(format!("it has more than {MAX_BYTES} bytes")));
    }
    Ok(bytes)
}

/// Returns the plain text of a file. If its gzip data is damaged or too long, returns the text up to there and
/// the problem.
fn decompress(bytes: &[u8], limit: u64) -> (Vec<u8>, Option<String>) {
    if !bytes.starts_with(&[0x1f, 0x8b]) {
        return (bytes.to_vec(), None);
    }
    let mut text = Vec::new();
    let unpacked = flate2::read::GzDecoder::new(bytes);
    let result = unpacked.take(limit + 1).read_to_end(&mut text);
    let problem = match result {
        Err(error) => Some(format!(
            "the gzip data is truncated or damaged here ({error}); expected a complete file"
        )),
        Ok(_) if text.len() as u64 > limit => {
            Some(format!("the gzip data unpacks to more than {limit} bytes"))
        }
        Ok(_) => None,
    };
    (text, problem)
}

/// Parses one line and appends its image to `samples`. The error describes the problem.
fn parse_line(line: &[u8], samples: &mut Samples) -> Result<(), String> {
    let line = std::str::from_utf8(line)
        .map_err(|_| format!("not valid UTF-8; expected {}", line_format("a line")))?
        .trim();
    let field_count = line.split(',').count();
    if line.is_empty() || field_count != PIXELS + 1 {
        let found = if line.is_empty() { 0 } else { field_count };
        return Err(format!("found {found} values; expected {}", line_format("a line")));
    }
    for (column, field) in (1..).zip(line.split(',')) {
        let (name, max) =
            if column <= PIXELS { ("pixel", WHITE) } else { ("label", CLASSES as u8 - 1) };
        let value = field.trim().parse::<u8>().ok().filter(|value| *value <= max);
        let value = value.ok_or_else(|| {
            format!("value {column}, \"{field}\": expected a {name}, an integer from 0 to {max}")
        })?;
        if column <= PIXELS {
            samples.pixels.push(f32::from(value) / f32::from(WHITE));
        } else {
            samples.labels.push(i32::from(value));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// Returns `count` lines of 64 pixels with the value 8. The label is the last digit of the line
    /// index.
    fn csv(count: usize) -> String {
        (0..count).map(|line| format!("{}{}\n", "8,".repeat(PIXELS), line % 10)).collect()
    }

    fn parse_error(bytes: &[u8]) -> String {
        Dataset::parse("some.csv", bytes).unwrap_err().to_string()
    }

    #[test]
    fn built_in_dataset_has_1437_training_and_360_test_images() {
        let dataset = Dataset::built_in().unwrap();
        assert_eq!(dataset.train.labels.len(), 1437);
        assert_eq!(dataset.test.labels.len(), 360);
        assert_eq!(dataset.train.pixels.len(), 1437 * PIXELS);
        assert_eq!(dataset.train.labels[..3], [0, 1, 2]);
        assert_eq!(dataset.train.pixels[2], 5.0 / 16.0);
    }

    #[test]
    fn parse_accepts_plain_gzip_and_windows_line_endings() {
        let plain = csv(10);
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), Default::default());
        encoder.write_all(plain.as_bytes()).unwrap();
        let gzip = encoder.finish().unwrap();
        let windows = plain.trim_end().replace('\n', "\r\n");
        for bytes in [plain.as_bytes(), &gzip, windows.as_bytes()] {
            let dataset = Dataset::parse("some.csv", bytes).unwrap();
            assert_eq!(dataset.train.labels, [0, 1, 2, 3, 4, 5, 6, 7]);
            assert_eq!(dataset.test.labels, [8, 9]);
            assert!(dataset.test.pixels.iter().all(|pixel| *pixel == 0.5));
        }
        let error = parse_error(&gzip[..gzip.len() - 9]);
        assert!(error.contains("line ") && error.contains("truncated"), "{error}");
    }

    #[test]
    fn parse_rejects_too_few_images() {
        let error = parse_error(b"");
        assert!(error.starts_with("data file some.csv: the file is empty; expected lines of 64"));
        assert!(parse_error(b"\n").contains("line 1: found 0 values"));
        assert!(parse_error(csv(1).as_bytes()).contains("only one image"));
    }

    #[test]
    fn parse_rejects_a_truncated_line() {
        let text = csv(3);
        let error = parse_error(&text.as_bytes()[..text.len() - 20]);
        assert!(error.contains("line 3: "), "{error}");
        assert!(error.contains("expected a line of 64 pixels"), "{error}");
        // Truncated after the last comma: the number of fields is correct, but the label is empty.
        let error = parse_error(&text.as_bytes()[..text.len() - 2]);
        assert!(error.contains("line 3: value 65, \"\": expected a label"), "{error}");
    }

    #[test]
    fn gzip_data_is_unpacked_up_to_a_limit() {
        let packed = include_bytes!("digits.csv.gz");
        let (text, problem) = decompress(packed, MAX_BYTES);
        assert_eq!(problem, None);
        let len = text.len() as u64;
        assert_eq!(decompress(packed, len), (text, None));
        let (part, problem) = decompress(packed, len - 1);
        assert_eq!(part.len() as u64, len);
        assert!(problem.is_some_and(|problem| problem.contains("unpacks to more than")));
    }

    #[test]
    fn parse_rejects_an_invalid_pixel() {
        let error = parse_error(csv(4).replacen("8,", "eight,", 1).as_bytes());
        assert!(error.contains("line 1: value 1, \"eight\": expected a pixel"), "{error}");
        let error = parse_error(csv(4).replacen("8,0\n", "17,0\n", 1).as_bytes());
        assert!(error.contains("value 64, \"17\""), "{error}");
        let error = parse_error(&[0xff, 0xfe, 0x00]);
        assert!(error.contains("line 1: not valid UTF-8"), "{error}");
    }

    #[test]
    fn parse_rejects_an_invalid_label() {
        let error = parse_error(csv(4).replace(",2\n", ",10\n").as_bytes());
        assert!(error.contains("line 3: value 65, \"10\": expected a label"), "{error}");
    }
}
