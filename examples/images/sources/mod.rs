//! Where images come from: IDX files, folders, or a generator.

mod folders;
mod idx;
mod synthetic;

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use burn::data::dataset::Dataset;
use burn_wgsl::train::item_seed;

pub use folders::Picture;

/// An image `[channels, side, side]` of bytes, with its class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Labelled {
    pub pixels: Vec<u8>,
    pub label: u32,
}

/// Images of the same size, for training and for testing.
#[derive(Debug)]
pub struct Source {
    pub train: Images,
    pub test: Images,
    pub format: Format,
    /// The names of the classes.
    pub classes: Vec<String>,
}

/// The size of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Format {
    pub channels: usize,
    pub side: usize,
}

impl Format {
    pub fn len(self) -> usize {
        self.channels * self.side * self.side
    }
}

/// Images in memory, or files that are decoded when they are asked for.
#[derive(Debug, Clone)]
pub enum Images {
    Memory { pixels: Vec<u8>, labels: Vec<u8>, format: Format },
    Files { pictures: Vec<Picture>, format: Format },
}

impl Images {
    /// Keeps the first images only.
    fn limit(&mut self, len: usize) {
        match self {
            Self::Memory { pixels, labels, format } => {
                labels.truncate(len);
                pixels.truncate(len * format.len());
            }
            Self::Files { pictures, .. } => pictures.truncate(len),
        }
    }
}

impl Dataset<Labelled> for Images {
    /// # Panics
    ///
    /// Panics if a file cannot be decoded: a loader makes an error of it, with the message.
    fn get(&self, index: usize) -> Option<Labelled> {
        match self {
            Self::Memory { pixels, labels, format } => {
                let (label, len) = (u32::from(*labels.get(index)?), format.len());
                let pixels = pixels.get(index * len..(index + 1) * len)?.to_vec();
                Some(Labelled { pixels, label })
            }
            Self::Files { pictures, format } => {
                let picture = pictures.get(index)?;
                let pixels = picture.decode(*format).unwrap_or_else(|error| panic!("{error:#}"));
                Some(Labelled { pixels, label: picture.label })
            }
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Memory { labels, .. } => labels.len(),
            Self::Files { pictures, .. } => pictures.len(),
        }
    }
}

/// Returns the images of a folder: IDX files, or a folder of pictures for each class in `train` and `test`.
///
/// # Errors
///
/// Returns an error if the folder has neither, or if a file is damaged.
pub fn read(folder: &Path, side: Option<usize>) -> Result<Source> {
    if idx::is_in(folder) {
        return idx::read(folder);
    }
    if folder.join("train").is_dir() {
        return folders::read(folder, side.unwrap_or(224));
    }
    bail!(
        "{} has neither `train-images-idx3-ubyte` nor a folder `train` with a folder of pictures for each class",
        folder.display()
    )
}

pub use synthetic::generate;

/// Keeps the first images of a source only: those that train, and a sixth as many that test.
pub fn limit(source: &mut Source, len: usize) {
    source.train.limit(len);
    source.test.limit((len / 6).max(1));
}

/// Images that are shifted by up to an eighth of the side and, if told so, mirrored, at random.
pub struct Augmented {
    pub images: Images,
    pub format: Format,
    pub mirrors: bool,
}

impl Dataset<Labelled> for Augmented {
    fn get(&self, index: usize) -> Option<Labelled> {
        let Labelled { pixels, label } = self.images.get(index)?;
        // The same for any number of workers, and another one in each epoch.
        let seed = item_seed();
        let reach = (self.format.side / 14).max(1) as u64;
        let draw = |bits: u32| (seed >> bits) & 0xffff;
        let shift = [0, 16].map(|bits| (draw(bits) % (2 * reach + 1)) as isize - reach as isize);
        let mirrored = self.mirrors && draw(32) % 2 == 1;
        Some(Labelled { pixels: moved(&pixels, self.format, shift, mirrored), label })
    }

    fn len(&self) -> usize {
        self.images.len()
    }
}

/// Returns an image that is shifted to the right and down, with zeros at the edges, and may be mirrored.
fn moved(pixels: &[u8], format: Format, [right, down]: [isize; 2], mirrored: bool) -> Vec<u8> {
    let Format { channels, side } = format;
    let mut out = vec![0; pixels.len()];
    let inside = |at: isize| usize::try_from(at).ok().filter(|&at| at < side);
    for channel in 0..channels {
        for row in 0..side {
            let Some(from_row) = inside(row as isize - down) else { continue };
            for column in 0..side {
                let Some(from) = inside(column as isize - right) else { continue };
                let from = if mirrored { side - 1 - from } else { from };
                let start = (channel * side + from_row) * side;
                out[(channel * side + row) * side + column] = pixels[start + from];
            }
        }
    }
    out
}

/// Names a file in errors.
fn file_error(path: &Path, reason: impl std::fmt::Display) -> anyhow::Error {
    anyhow::anyhow!("{}: {reason}", path.display())
}

/// Returns the entries of a folder in the order of their names.
fn sorted(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder).map_err(|error| file_error(folder, error))?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_move_and_mirror() {
        let format = Format { channels: 1, side: 3 };
        let pixels: Vec<u8> = (1..=9).collect();
        assert_eq!(moved(&pixels, format, [0, 0], false), pixels);
        assert_eq!(moved(&pixels, format, [1, 0], false), [0, 1, 2, 0, 4, 5, 0, 7, 8]);
        assert_eq!(moved(&pixels, format, [0, -1], false), [4, 5, 6, 7, 8, 9, 0, 0, 0]);
        assert_eq!(moved(&pixels, format, [0, 0], true), [3, 2, 1, 6, 5, 4, 9, 8, 7]);
    }
}
