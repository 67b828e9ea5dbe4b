//! The map from a linear index to element offsets in up to four tensors: the Rust side of
//! `shaders/lib/walk.wgsl`.

use crate::params;
use crate::tensor::{Error, Layout, MAX_RANK, Result, collapse};

params! {
    /// The WGSL `Walk`: a shape, and the offset and strides of up to four tensors of that shape.
    pub(crate) struct Walk {
        /// Sizes of the axes, outermost first; 1 for the axes beyond `rank`.
        shape: [[u32; 4]; MAX_RANK / 4],
        /// Offset of the first element of each tensor.
        offsets: [u32; 4],
        rank: u32,
        pad: [u32; 3],
        /// Strides of the tensors along each axis.
        strides: [[i32; 4]; MAX_RANK],
    }
}

impl Walk {
    /// Creates the walk over tensors of the same shape. Axes are merged where every layout allows
    /// it.
    ///
    /// # Errors
    ///
    /// Returns an error if more than [`MAX_RANK`] axes remain.
    pub fn new(layouts: &[&Layout]) -> Result<Self> {
        let (sizes, strides) = collapse(layouts);
        let mut walk = Self {
            shape: shape_words(&sizes)?,
            rank: sizes.len().max(1) as u32,
            ..bytemuck::Zeroable::zeroed()
        };
        for (tensor, layout) in layouts.iter().enumerate() {
            walk.offsets[tensor] = layout.offset as u32;
            for (axis, &stride) in strides[tensor].iter().enumerate() {
                walk.strides[axis][tensor] = stride as i32;
            }
        }
        Ok(walk)
    }

    /// Returns the size of the innermost axis.
    pub fn innermost(&self) -> usize {
        let axis = self.rank as usize - 1;
        self.shape[axis / 4][axis % 4] as usize
    }
}

/// Returns a shape as the WGSL `array<vec4<u32>, 3>`. Missing axes have size 1.
///
/// # Errors
///
/// Returns an error if there are more than [`MAX_RANK`] axes.
pub(crate) fn shape_words(shape: &[usize]) -> Result<[[u32; 4]; MAX_RANK / 4]> {
    let mut words = [[1; 4]; MAX_RANK / 4];
    if shape.len() > MAX_RANK {
        return Err(Error::TooManyAxes { shape: shape.to_vec() });
    }
    for (axis, &size) in shape.iter().enumerate() {
        words[axis / 4][axis % 4] = size as u32;
    }
    Ok(words)
}
