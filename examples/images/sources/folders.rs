//! Folders of PNG and JPEG files, one for each class.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use image::imageops::FilterType;

use super::{Format, Images, Source, file_error, sorted};

/// A file with a picture, and its class.
#[derive(Debug, Clone)]
pub struct Picture {
    path: PathBuf,
    pub label: u32,
}

impl Picture {
    /// Returns the pixels: the centre of the picture, scaled to the format.
    ///
    /// # Errors
    ///
    /// Returns an error that names the file, if it is damaged.
    pub fn decode(&self, format: Format) -> Result<Vec<u8>> {
        let decode = || {
            let picture = image::ImageReader::open(&self.path)?.with_guessed_format()?.decode()?;
            anyhow::Ok(picture.to_rgb8())
        };
        let picture =
            decode().with_context(|| format!("cannot read the picture {}", self.path.display()))?;
        let side = format.side as u32;
        let short = picture.width().min(picture.height());
        let (x, y) = ((picture.width() - short) / 2, (picture.height() - short) / 2);
        let square = image::imageops::crop_imm(&picture, x, y, short, short).to_image();
        let scaled = image::imageops::resize(&square, side, side, FilterType::Triangle);
        // From pixels to channels.
        let pixels = scaled.into_raw();
        let channel = |channel: usize| pixels.iter().skip(channel).step_by(3).copied();
        Ok((0..format.channels).flat_map(channel).collect())
    }
}

/// Returns the pictures of `train` and `test`. Without `test`, each sixth picture is for testing.
pub fn read(folder: &Path, side: usize) -> Result<Source> {
    let format = Format { channels: 3, side };
    let (classes, mut train) = pictures(&folder.join("train"))?;
    let test_folder = folder.join("test");
    let test = if test_folder.is_dir() {
        let (of_test, test) = pictures(&test_folder)?;
        ensure!(
            classes == of_test,
            "{} has the classes {classes:?}, and its test {of_test:?}",
            folder.display()
        );
        test
    } else {
        let (test, rest): (Vec<_>, Vec<_>) =
            train.into_iter().enumerate().partition(|(index, _)| index % 6 == 5);
        train = rest.into_iter().map(|(_, picture)| picture).collect();
        test.into_iter().map(|(_, picture)| picture).collect()
    };
    ensure!(!test.is_empty(), "{} has too few pictures to test with", folder.display());
    let files = |pictures| Images::Files { pictures, format };
    Ok(Source { train: files(train), test: files(test), format, classes })
}

/// Returns the classes of a folder, in the order of their names, and their pictures.
fn pictures(folder: &Path) -> Result<(Vec<String>, Vec<Picture>)> {
    let (mut classes, mut found) = (Vec::new(), Vec::new());
    for class in sorted(folder)?.into_iter().filter(|path| path.is_dir()) {
        let label = classes.len() as u32;
        let is_picture = |path: &PathBuf| {
            let extension = path.extension().unwrap_or_default().to_ascii_lowercase();
            ["png", "jpg", "jpeg"].iter().any(|other| extension == *other)
        };
        let before = found.len();
        let paths = sorted(&class)?.into_iter().filter(is_picture);
        found.extend(paths.map(|path| Picture { path, label }));
        if found.len() == before {
            return Err(file_error(&class, "the folder has no PNG or JPEG files"));
        }
        classes.push(class.file_name().unwrap_or_default().to_string_lossy().into_owned());
    }
    ensure!(
        classes.len() > 1,
        "{} needs a folder for each of two classes or more",
        folder.display()
    );
    Ok((classes, found))
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::data::dataset::Dataset;

    #[test]
    fn pictures_are_cropped_scaled_and_sorted() {
        let folder = std::env::temp_dir().join(format!("images-folders-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        let error = read(&folder, 4).expect_err("there is none").to_string();
        assert!(error.contains("train"), "{error}");
        for (class, colour) in [("red", [255, 0, 0]), ("blue", [0, 0, 255])] {
            let class = folder.join("train").join(class);
            std::fs::create_dir_all(&class).expect("the folder is writable");
            for (name, size) in [("a.png", [8, 8]), ("b.jpg", [12, 6]), ("c.png", [3, 9])] {
                let picture = image::RgbImage::from_pixel(size[0], size[1], image::Rgb(colour));
                picture.save(class.join(name)).expect("the folder is writable");
            }
            std::fs::write(class.join("notes.txt"), "no picture").expect("as above");
        }
        let source = read(&folder, 4).expect("there are pictures");
        assert_eq!(source.classes, ["blue", "red"]);
        assert_eq!((source.train.len(), source.test.len()), (5, 1));
        for index in 0..5 {
            let picture = source.train.get(index).expect("it is there");
            assert_eq!(picture.pixels.len(), 48);
            let strong = if picture.label == 1 { 0..16 } else { 32..48 };
            for (at, &pixel) in picture.pixels.iter().enumerate() {
                let expected = if strong.contains(&at) { 230..=255 } else { 0..=25 };
                assert!(expected.contains(&pixel), "{index}: pixel {at} is {pixel}");
            }
        }
        let damaged = folder.join("train/blue/a.png");
        let bytes = std::fs::read(&damaged).expect("it is there");
        std::fs::write(&damaged, &bytes[..20]).expect("the folder is writable");
        let Images::Files { pictures, format } = &source.train else { panic!("they are files") };
        let error = format!("{:#}", pictures[0].decode(*format).expect_err("it is cut"));
        assert!(error.contains("a.png"), "{error}");
        std::fs::create_dir(folder.join("train/green")).expect("the folder is writable");
        let error = read(&folder, 4).expect_err("a class is empty").to_string();
        assert!(error.contains("green") && error.contains("no PNG"), "{error}");
        std::fs::remove_dir_all(&folder).expect("it is there");
    }
}
