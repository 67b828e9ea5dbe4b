//! IDX files, as MNIST and Fashion-MNIST come in: <http://yann.lecun.com/exdb/mnist/>. They may be compressed.

use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail, ensure};
use flate2::read::GzDecoder;

use super::{Format, Images, Source, file_error};

/// The largest file that is read, in bytes.
const MAX_BYTES: u64 = 1 << 31;
const CLASSES: usize = 10;
/// The classes of Fashion-MNIST, whose files have the same names as those of MNIST.
const FASHION: [&str; CLASSES] = [
    "t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "boot",
];

/// Returns whether a folder has IDX files.
pub fn is_in(folder: &Path) -> bool {
    file(folder, "train-images-idx3-ubyte").is_some()
}

/// Returns the path of a file, which may be compressed.
fn file(folder: &Path, name: &str) -> Option<PathBuf> {
    let plain = folder.join(name);
    let packed = folder.join(format!("{name}.gz"));
    [plain, packed].into_iter().find(|path| path.is_file())
}

/// Reads the four files of a folder.
pub fn read(folder: &Path) -> Result<Source> {
    let (train, format) = read_part(folder, "train")?;
    let (test, of_test) = read_part(folder, "t10k")?;
    ensure!(
        format == of_test,
        "{}: the images for training have {} pixels a side, those for testing {}",
        folder.display(),
        format.side,
        of_test.side
    );
    let is_fashion = folder.to_string_lossy().to_lowercase().contains("fashion");
    let name = |class: usize| if is_fashion { FASHION[class].into() } else { class.to_string() };
    Ok(Source { train, test, format, classes: (0..CLASSES).map(name).collect() })
}

fn read_part(folder: &Path, part: &str) -> Result<(Images, Format)> {
    let read = |name: String, dimensions| {
        let path = file(folder, &name)
            .ok_or_else(|| file_error(&folder.join(&name), "the file is missing"))?;
        let bytes = bytes_of(&path)?;
        let (sizes, data) = parse(&bytes, dimensions).map_err(|error| file_error(&path, error))?;
        anyhow::Ok((path, sizes, data.to_vec()))
    };
    let (images_path, sizes, pixels) = read(format!("{part}-images-idx3-ubyte"), 3)?;
    let (labels_path, count, labels) = read(format!("{part}-labels-idx1-ubyte"), 1)?;
    let [images, height, width] = sizes[..] else { bail!("unreachable: three sizes") };
    ensure!(
        count[0] == images,
        "{} has {} labels, and {} has {images} images",
        labels_path.display(),
        count[0],
        images_path.display()
    );
    ensure!(images > 0, "{} has no images", images_path.display());
    ensure!(
        height == width && height > 0,
        "{}: the images have {height} x {width} pixels; they must be square",
        images_path.display()
    );
    if let Some(at) = labels.iter().position(|&label| usize::from(label) >= CLASSES) {
        let reason = format!("label {at} is {}, and there are {CLASSES} classes", labels[at]);
        return Err(file_error(&labels_path, reason));
    }
    let format = Format { channels: 1, side: height };
    Ok((Images::Memory { pixels, labels, format }, format))
}

/// Returns the contents of a file, which may be compressed.
fn bytes_of(path: &Path) -> Result<Vec<u8>> {
    let opened = std::fs::File::open(path).map_err(|error| file_error(path, error))?;
    let is_packed = path.extension().is_some_and(|extension| extension == "gz");
    let mut bytes = Vec::new();
    let read = match is_packed {
        true => GzDecoder::new(opened).take(MAX_BYTES).read_to_end(&mut bytes),
        false => opened.take(MAX_BYTES).read_to_end(&mut bytes),
    };
    read.map_err(|error| file_error(path, error))?;
    Ok(bytes)
}

/// Returns the sizes and the data of an IDX file of bytes: two zeros, the type 8, the number of dimensions, and the
/// sizes as 32 bits, the highest first.
fn parse(bytes: &[u8], dimensions: usize) -> Result<(Vec<usize>, &[u8])> {
    let header = 4 + 4 * dimensions;
    let has = |len| {
        ensure!(bytes.len() >= len, "the file is cut short: it has {} bytes", bytes.len());
        Ok(())
    };
    has(4)?;
    ensure!(bytes[..3] == [0, 0, 8], "it is no IDX file of bytes");
    let found = usize::from(bytes[3]);
    ensure!(
        found == dimensions,
        "it has {found} dimensions, not {dimensions}: are images and labels swapped?"
    );
    has(header)?;
    let size = |at: usize| {
        let start = 4 + 4 * at;
        bytes[start..start + 4].iter().fold(0, |size, &byte| size << 8 | usize::from(byte))
    };
    let sizes: Vec<usize> = (0..dimensions).map(size).collect();
    let expected = sizes.iter().try_fold(1usize, |len, &size| len.checked_mul(size));
    let data = &bytes[header..];
    ensure!(
        expected == Some(data.len()),
        "it should have {sizes:?} elements, and has {}",
        data.len()
    );
    Ok((sizes, data))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn idx(sizes: &[u32], data: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0, 0, 8, sizes.len() as u8];
        sizes.iter().for_each(|size| bytes.extend(size.to_be_bytes()));
        bytes.extend(data);
        bytes
    }

    fn write(folder: &Path, name: &str, bytes: &[u8]) {
        std::fs::write(folder.join(name), bytes).expect("the folder is writable");
    }

    #[test]
    fn files_are_read_and_errors_name_them() {
        let folder = std::env::temp_dir().join(format!("images-idx-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("the folder is writable");
        let images = idx(&[2, 2, 2], &[1, 2, 3, 4, 5, 6, 7, 8]);
        let labels = idx(&[2], &[3, 9]);
        for part in ["train", "t10k"] {
            write(&folder, &format!("{part}-images-idx3-ubyte"), &images);
            write(&folder, &format!("{part}-labels-idx1-ubyte"), &labels);
        }
        let source = read(&folder).expect("the files are whole");
        assert_eq!(source.format, Format { channels: 1, side: 2 });
        use burn::data::dataset::Dataset;
        let second = source.train.get(1).expect("there are two");
        assert_eq!((second.label, second.pixels), (9, vec![5, 6, 7, 8]));
        assert!(source.train.get(2).is_none());
        let bad: [(&str, Vec<u8>, &str); 6] = [
            ("train-images-idx3-ubyte", images[..20].to_vec(), "should have [2, 2, 2]"),
            ("train-images-idx3-ubyte", images[..9].to_vec(), "cut short"),
            ("train-images-idx3-ubyte", labels.clone(), "swapped"),
            ("t10k-labels-idx1-ubyte", idx(&[3], &[1, 2, 3]), "has 3 labels"),
            ("t10k-labels-idx1-ubyte", idx(&[2], &[1, 10]), "label 1 is 10"),
            ("t10k-labels-idx1-ubyte", b"labels, and more".to_vec(), "no IDX file"),
        ];
        for (name, bytes, reason) in bad {
            let whole = std::fs::read(folder.join(name)).expect("it is there");
            write(&folder, name, &bytes);
            let error = read(&folder).expect_err("the file is damaged").to_string();
            assert!(error.contains(reason) && error.contains("ubyte"), "{error}");
            write(&folder, name, &whole);
        }
        std::fs::remove_dir_all(&folder).expect("it is there");
    }
}
