//! The digits: reading them, checking every line, and splitting them into a training and a test part.

use std::fmt;
use std::io::Read;
use std::path::Path;

use crate::model::{CLASSES, SIDE};

const PIXELS: usize = SIDE * SIDE;
/// The largest pixel value in a file; pixels are scaled by it to 0..1.
pub const WHITE: u8 = 16;

/// Images and their labels, both parts as flat lists ready for upload.
#[derive(Debug)]
pub struct Digits {
    pub train: Split,
    pub test: Split,
}

/// One part of the data.
#[derive(Debug, Default)]
pub struct Split {
    /// 64 values between 0 and 1 per image, row by row.
    pub pixels: Vec<f32>,
    pub labels: Vec<i32>,
}

/// What is wrong with a data file, and where.
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

impl Digits {
    /// The data set that comes with the example; see DATA.md for where it is from.
    pub fn built_in() -> Result<Self, DataError> {
        Self::parse("digits.csv.gz", include_bytes!("digits.csv.gz"))
    }

    /// Reads a file of the same form, compressed with gzip or plain.
    pub fn read(path: &Path) -> Result<Self, DataError> {
        let file = path.display().to_string();
        match std::fs::read(path) {
            Ok(bytes) => Self::parse(&file, &bytes),
            Err(error) => {
                Err(DataError { file, line: None, problem: format!("cannot read it: {error}") })
            }
        }
    }

    /// Takes apart the contents of a file; `file` is what errors call it.
    pub fn parse(file: &str, bytes: &[u8]) -> Result<Self, DataError> {
        let fail = |line, problem| DataError { file: file.to_string(), line, problem };
        let (text, cut) = unpack(bytes);
        let breaks = text.iter().filter(|&&byte| byte == b'\n').count();
        if let Some(problem) = cut {
            return Err(fail(Some(breaks + 1), problem));
        }
        let mut all = Split::default();
        // What follows the last line break is a line only if there is something.
        let count = breaks + usize::from(!text.is_empty() && !text.ends_with(b"\n"));
        for (number, line) in (1..=count).zip(text.split(|&byte| byte == b'\n')) {
            parse_line(line, &mut all).map_err(|problem| fail(Some(number), problem))?;
        }
        match all.labels.len() {
            0 => Err(fail(None, format!("it is empty; expected {}", form("lines")))),
            1 => Err(fail(
                Some(1),
                "the only image; expected two or more, to train and to test".into(),
            )),
            _ => Ok(Self::split(all)),
        }
    }

    /// The last fifth of two images or more is for testing.
    pub fn split(mut all: Split) -> Self {
        let count = all.labels.len();
        let train = count - count.div_ceil(5);
        let test = Split {
            pixels: all.pixels.split_off(train * PIXELS),
            labels: all.labels.split_off(train),
        };
        Self { train: all, test }
    }
}

/// What a line must look like, for error messages.
fn form(what: &str) -> String {
    format!(
        "{what} of {PIXELS} pixels (0 to {WHITE}) and a label (0 to {}), separated by commas",
        CLASSES - 1
    )
}

/// The plain text of a file, and what ended it early if something did.
fn unpack(bytes: &[u8]) -> (Vec<u8>, Option<String>) {
    if !bytes.starts_with(&[0x1f, 0x8b]) {
        return (bytes.to_vec(), None);
    }
    let mut text = Vec::new();
    let end = flate2::read::GzDecoder::new(bytes).read_to_end(&mut text);
    let cut = end.err().map(|error| {
        format!("the gzip data is cut or damaged here ({error}); expected a complete archive")
    });
    (text, cut)
}

fn parse_line(line: &[u8], into: &mut Split) -> Result<(), String> {
    let line = std::str::from_utf8(line)
        .map_err(|_| format!("not text; expected {}", form("a line")))?
        .trim();
    let fields = line.split(',').count();
    if line.is_empty() || fields != PIXELS + 1 {
        let found = if line.is_empty() { 0 } else { fields };
        return Err(format!("{found} values; expected {}", form("a line")));
    }
    for (column, field) in (1..).zip(line.split(',')) {
        let (name, most) =
            if column <= PIXELS { ("pixel", WHITE) } else { ("label", CLASSES as u8 - 1) };
        let value = field.trim().parse::<u8>().ok().filter(|value| *value <= most);
        let value = value.ok_or_else(|| {
            format!(
                "value {column}, \"{field}\": expected a {name}, a whole number from 0 to {most}"
            )
        })?;
        if column <= PIXELS {
            into.pixels.push(f32::from(value) / f32::from(WHITE));
        } else {
            into.labels.push(i32::from(value));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// `count` lines of 64 equal pixels; the label is the line's last digit.
    fn file(count: usize) -> String {
        (0..count).map(|line| format!("{}{}\n", "8,".repeat(PIXELS), line % 10)).collect()
    }

    fn error(bytes: &[u8]) -> String {
        Digits::parse("some.csv", bytes).unwrap_err().to_string()
    }

    #[test]
    fn built_in_data_has_the_known_split() {
        let digits = Digits::built_in().unwrap();
        assert_eq!(digits.train.labels.len(), 1437);
        assert_eq!(digits.test.labels.len(), 360);
        assert_eq!(digits.train.pixels.len(), 1437 * PIXELS);
        assert_eq!(digits.train.labels[..3], [0, 1, 2]);
        assert_eq!(digits.train.pixels[2], 5.0 / 16.0);
    }

    #[test]
    fn good_file_plain_or_packed_or_with_windows_line_ends() {
        let plain = file(10);
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), Default::default());
        packer.write_all(plain.as_bytes()).unwrap();
        let packed = packer.finish().unwrap();
        let windows = plain.trim_end().replace('\n', "\r\n");
        for bytes in [plain.as_bytes(), &packed, windows.as_bytes()] {
            let digits = Digits::parse("some.csv", bytes).unwrap();
            assert_eq!(digits.train.labels, [0, 1, 2, 3, 4, 5, 6, 7]);
            assert_eq!(digits.test.labels, [8, 9]);
            assert!(digits.test.pixels.iter().all(|pixel| *pixel == 0.5));
        }
        let cut = error(&packed[..packed.len() - 9]);
        assert!(cut.contains("line ") && cut.contains("cut"), "{cut}");
    }

    #[test]
    fn empty_file() {
        assert!(error(b"").starts_with("data file some.csv: it is empty; expected lines of 64"));
        assert!(error(b"\n").contains("line 1: 0 values"));
        assert!(error(file(1).as_bytes()).contains("the only image"));
    }

    #[test]
    fn cut_line() {
        let text = file(3);
        let cut = error(&text.as_bytes()[..text.len() - 20]);
        assert!(cut.contains("line 3: "), "{cut}");
        assert!(cut.contains("expected a line of 64 pixels"), "{cut}");
        // Cut between the last comma and the label: the count is right, the label is missing.
        let cut = error(&text.as_bytes()[..text.len() - 2]);
        assert!(cut.contains("line 3: value 65, \"\": expected a label"), "{cut}");
    }

    #[test]
    fn bad_number() {
        let word = error(file(4).replacen("8,", "eight,", 1).as_bytes());
        assert!(word.contains("line 1: value 1, \"eight\": expected a pixel"), "{word}");
        let large = error(file(4).replacen("8,0\n", "17,0\n", 1).as_bytes());
        assert!(large.contains("value 64, \"17\""), "{large}");
        let bytes = error(&[0xff, 0xfe, 0x00]);
        assert!(bytes.contains("line 1: not text"), "{bytes}");
    }

    #[test]
    fn wrong_label() {
        let label = error(file(4).replace(",2\n", ",10\n").as_bytes());
        assert!(label.contains("line 3: value 65, \"10\": expected a label"), "{label}");
    }
}
