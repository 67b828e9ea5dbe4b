//! Pictures of digits.

use std::io::Cursor;

use digits::model::SIDE;
use image::imageops::FilterType;
use image::{ImageReader, Limits};
use thiserror::Error;

/// A picture that is not read.
#[derive(Debug, Error)]
#[error("it is no PNG or JPEG file that can be read: {0}")]
pub struct PictureError(#[from] image::ImageError);

/// Pixels of a digit from 0 (background) to 1, row by row.
pub type Picture = Vec<f32>;

/// The most pixels of a side.
const MAX_SIDE: u32 = 2048;

/// Decodes a PNG or JPEG file: a light digit on a dark background, which fills the picture.
///
/// # Errors
///
/// Returns an error if it is neither, damaged or too large.
pub fn decode(bytes: &[u8]) -> Result<Picture, PictureError> {
    let mut reader = ImageReader::new(Cursor::new(bytes));
    let mut limits = Limits::default();
    limits.max_image_width = Some(MAX_SIDE);
    limits.max_image_height = Some(MAX_SIDE);
    limits.max_alloc = Some(1 << 26);
    reader.limits(limits);
    let reader = reader.with_guessed_format().map_err(image::ImageError::IoError)?;
    let picture = reader.decode()?.to_luma32f();
    let side = SIDE as u32;
    Ok(image::imageops::resize(&picture, side, side, FilterType::Triangle).into_raw())
}
