//! The options of ops, as plain data.

use crate::tensor::{Error, Result};

/// How a convolution's kernel moves over its input: by depth, height and width.
#[derive(Debug, Clone, Copy)]
pub struct ConvOptions {
    /// Distance between neighbouring outputs, in input elements.
    pub stride: [usize; 3],
    /// Zeros on each side of the input.
    pub padding: [usize; 3],
    /// Distance between neighbouring taps of the kernel.
    pub dilation: [usize; 3],
    /// Groups of channels that are convolved separately.
    pub groups: usize,
}

/// The options of a transposed convolution.
#[derive(Debug, Clone, Copy)]
pub struct TransposedOptions {
    /// The convolution that it transposes.
    pub conv: ConvOptions,
    /// Planes, rows and columns added at the far end of the output.
    pub output_padding: [usize; 3],
}

/// The options of a deformable convolution.
#[derive(Debug, Clone, Copy)]
pub struct DeformOptions {
    /// Strides, padding, dilation, and the groups of the weight.
    pub conv: ConvOptions,
    /// Groups of channels with offsets and masks of their own.
    pub offset_groups: usize,
}

/// How a pooling window moves over its input: height, then width.
#[derive(Debug, Clone, Copy)]
pub struct PoolWindow {
    /// Size of the window.
    pub kernel: [usize; 2],
    /// Distance between neighbouring windows.
    pub stride: [usize; 2],
    /// Elements of padding on each side of the input.
    pub padding: [usize; 2],
    /// Distance between neighbouring elements of a window.
    pub dilation: [usize; 2],
    /// Whether the last window may extend past the padded input.
    pub ceil_mode: bool,
    /// Whether an average counts padding elements.
    pub count_include_pad: bool,
}

/// How values between the elements are interpolated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum InterpolateMode {
    /// The input element that contains the start of the output element.
    Nearest,
    /// Linear between two neighbours.
    Bilinear,
    /// Cubic convolution of four neighbours (R. Keys, 1981), with a = -3/4. Interpolation repeats
    /// the edges.
    Bicubic,
    /// A windowed sinc over six neighbours. Weights outside the input are dropped and the rest is
    /// normalised to a sum of one.
    Lanczos3,
}

/// What a sample outside the image reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GridPadding {
    /// Zero.
    Zeros,
    /// The nearest pixel of the border.
    Border,
    /// The image reflected at its edges.
    Reflection,
}

/// How a scatter combines an element with an update.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ScatterOp {
    /// Replaces the element by the last update.
    Assign,
    /// Adds; `or` for booleans.
    Add,
    /// Multiplies.
    Mul,
    /// Takes the minimum; NaN if either value is NaN.
    Min,
    /// Takes the maximum; NaN if either value is NaN.
    Max,
}

/// The options of attention.
#[derive(Debug, Clone, Copy, Default)]
pub struct AttentionOptions {
    /// Factor of the scores; `None` for one over the square root of the key width.
    pub scale: Option<f32>,
    /// Bounds the scores: `softcap * tanh(score / softcap)`.
    pub softcap: Option<f32>,
    /// Whether a query attends only to keys up to its own position. The last query attends to all
    /// keys.
    pub causal: bool,
    /// The score of keys that a mask hides; `None` for minus infinity.
    pub hidden_score: Option<f32>,
}

impl AttentionOptions {
    /// Returns the score of keys that a mask hides.
    pub fn hidden_score(&self) -> f32 {
        self.hidden_score.unwrap_or(f32::NEG_INFINITY)
    }
}

/// The format of a quantised tensor: its integers, and the elements that share a scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuantFormat {
    /// The bits of an integer: 8, 4 or 2.
    pub bits: u32,
    /// The smallest integer.
    pub low: i8,
    /// The largest integer.
    pub high: i8,
    /// The number of neighbours in row-major order that share a scale; `None` if all elements do.
    pub block: Option<usize>,
}

impl QuantFormat {
    /// The bits that integers can have.
    pub(crate) const BITS: [u32; 3] = [8, 4, 2];

    /// Returns the number of integers in a 32-bit word.
    pub(crate) fn values_per_word(self) -> usize {
        32 / self.bits as usize
    }

    /// Returns the number of blocks in a tensor of `shape`, and the number of elements per block.
    ///
    /// # Errors
    ///
    /// Returns an error if the blocks do not divide the tensor.
    pub(crate) fn blocks(self, shape: &[usize]) -> Result<(usize, usize)> {
        let len: usize = shape.iter().product();
        match self.block {
            None => Ok((1, len.max(1))),
            Some(block) if block > 0 && len.is_multiple_of(block) => Ok((len / block, block)),
            Some(block) => Err(Error::Shape {
                lhs: shape.to_vec(),
                rhs: vec![block],
                rule: "a tensor is quantised in whole blocks",
            }),
        }
    }
}
