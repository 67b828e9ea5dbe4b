//! Quantised tensors: integers of 8, 4 or 2 bits, packed into 32-bit words, and their scales.
//!
//! The value of an element is its integer times its scale. The whole tensor has a single scale, or
//! each block of neighbours in row-major order has its own. With a single scale, views need no
//! copy. With blocks, a view that moves elements is dequantised and quantised again, with new
//! scales.

use crate::kernels::matmul_int8::{Int8, matmul_int8};
use crate::kernels::ops::options::QuantFormat;
use crate::kernels::{copy, dequantize, gather, matmul, quantize, views};
use crate::tensor::{Error, Layout, Result, Shape, SliceAxis, Tensor};

/// A quantised tensor on the GPU. Clones share the memory.
#[derive(Debug, Clone)]
pub struct Quantized {
    /// The integers, the first of a word in its lowest bits.
    words: Tensor,
    /// The position of each integer in the words. Packed if the format has blocks.
    layout: Layout,
    /// A single scale, or one per block.
    scales: Tensor,
    format: QuantFormat,
}

impl Quantized {
    /// Creates a tensor of `shape` from words and scales.
    ///
    /// # Errors
    ///
    /// Returns an error if the number of words or scales does not fit the shape.
    pub fn new(
        words: Tensor,
        shape: &[usize],
        scales: Tensor,
        format: QuantFormat,
    ) -> Result<Self> {
        words.same_device(&scales)?;
        views::check_addressable(shape)?;
        let layout = Layout::contiguous(shape);
        let (blocks, _) = format.blocks(shape)?;
        if words.len() != word_count(&layout, format) || scales.len() != blocks {
            return Err(Error::Shape {
                lhs: shape.to_vec(),
                rhs: vec![words.len(), scales.len()],
                rule: "a quantised tensor needs the words that its elements fill, and one scale \
                       per block",
            });
        }
        Ok(Self { words: views::packed(words)?, layout, scales: views::packed(scales)?, format })
    }

    /// Returns the sizes of the axes.
    pub fn shape(&self) -> &[usize] {
        &self.layout.shape
    }

    /// Returns the format.
    pub fn format(&self) -> QuantFormat {
        self.format
    }

    /// Returns the integers and their scale, if they have 8 bits and a single scale.
    fn int8(&self) -> Option<Int8<'_>> {
        let is_int8 = self.format.bits == 8 && self.format.block.is_none();
        is_int8.then_some(Int8 { words: &self.words, layout: &self.layout, scale: &self.scales })
    }

    /// Returns the words of the packed integers `[words]` and the scales `[blocks]`.
    ///
    /// # Errors
    ///
    /// Returns an error if the memory is not available; so do the functions below.
    pub fn into_parts(self) -> Result<(Tensor, Tensor)> {
        let Self { words, layout, scales, format } = packed(self)?;
        Ok((words.view(Layout::contiguous(&[word_count(&layout, format)])), scales))
    }
}

/// Returns the number of words of the elements of `layout` when packed.
fn word_count(layout: &Layout, format: QuantFormat) -> usize {
    layout.len().div_ceil(format.values_per_word())
}

/// Quantises floats with scales computed from them: see [`quantize::quantize_dynamic`].
///
/// # Errors
///
/// Returns an error if the blocks do not divide the tensor.
pub fn quantize_dynamic(tensor: Tensor, format: QuantFormat) -> Result<Quantized> {
    let shape: Shape = tensor.shape().into();
    let (words, scales) = quantize::quantize_dynamic(tensor, format)?;
    Quantized::new(words, &shape, scales, format)
}

/// Quantises floats with the given scales: see [`quantize::quantize`].
///
/// # Errors
///
/// Returns an error if the blocks do not divide the tensor, or the number of scales is not the
/// number of blocks.
pub fn quantize(tensor: Tensor, scales: Tensor, format: QuantFormat) -> Result<Quantized> {
    let shape: Shape = tensor.shape().into();
    let (blocks, _) = format.blocks(&shape)?;
    if scales.len() != blocks {
        return Err(Error::Shape {
            lhs: shape.to_vec(),
            rhs: scales.shape().to_vec(),
            rule: "quantisation needs one scale per tensor, or per block",
        });
    }
    let (words, scales) = quantize::quantize(tensor, scales, format)?;
    Quantized::new(words, &shape, scales, format)
}

/// Returns the elements as floats.
pub fn dequantize(tensor: &Quantized) -> Result<Tensor> {
    dequantize::dequantize(&tensor.words, &tensor.scales, &tensor.layout, tensor.format)
}

/// Computes `lhs @ rhs` over the last two axes, broadcast over the others, as floats: of integers if both have
/// 8 bits and a single scale, otherwise of dequantised elements.
///
/// # Errors
///
/// Returns an error if the shapes do not fit or the memory is not available.
pub fn matmul(lhs: &Quantized, rhs: &Quantized) -> Result<Tensor> {
    lhs.words.same_device(&rhs.words)?;
    if let (Some(lhs), Some(rhs)) = (lhs.int8(), rhs.int8())
        && let Some(out) = matmul_int8(lhs, rhs)?
    {
        return Ok(out);
    }
    matmul::matmul(dequantize(lhs)?, dequantize(rhs)?)
}

/// Returns the integers, one per word, without their scales.
fn integers(tensor: &Quantized) -> Result<Tensor> {
    dequantize::unpack(&tensor.words, &tensor.layout, tensor.format)
}

/// Returns the tensor with packed integers. Copies them unless they are packed.
fn packed(tensor: Quantized) -> Result<Quantized> {
    if tensor.layout.is_packed() {
        return Ok(tensor);
    }
    with_integers(integers(&tensor)?, tensor)
}

/// Replaces the integers and the shape of a tensor with a single scale by `integers`.
fn with_integers(integers: Tensor, tensor: Quantized) -> Result<Quantized> {
    let integers = views::packed(integers)?;
    let words = quantize::pack(&integers, tensor.format)?;
    Quantized::new(words, integers.shape(), tensor.scales, tensor.format)
}

/// Applies a change of layout, `view`, to the integers or, with blocks, to the floats.
fn map_layout(
    tensor: Quantized,
    view: impl FnOnce(&Layout) -> Result<Layout>,
) -> Result<Quantized> {
    if tensor.format.block.is_none() {
        let layout = view(&tensor.layout)?;
        return Ok(Quantized { layout, ..tensor });
    }
    let floats = dequantize(&tensor)?;
    let layout = view(floats.layout())?;
    quantize_dynamic(floats.view(layout), tensor.format)
}

/// Applies an op that copies elements, `select_elements`, to the integers or, with blocks, to the
/// floats.
fn map_elements(
    tensor: Quantized,
    select_elements: impl FnOnce(Tensor) -> Result<Tensor>,
) -> Result<Quantized> {
    if tensor.format.block.is_none() {
        return with_integers(select_elements(integers(&tensor)?)?, tensor);
    }
    quantize_dynamic(select_elements(dequantize(&tensor)?)?, tensor.format)
}

/// Swaps two axes.
pub fn swap_dims(tensor: Quantized, a: usize, b: usize) -> Result<Quantized> {
    map_layout(tensor, |layout| Ok(layout.swap(a, b)))
}

/// Reorders the axes.
pub fn permute(tensor: Quantized, axes: &[usize]) -> Result<Quantized> {
    map_layout(tensor, |layout| Ok(layout.permute(axes)))
}

/// Reverses axes.
pub fn flip(tensor: Quantized, axes: &[usize]) -> Result<Quantized> {
    map_layout(tensor, |layout| Ok(layout.flip(axes)))
}

/// Slices the leading axes.
pub fn slice(tensor: Quantized, axes: &[SliceAxis]) -> Result<Quantized> {
    map_layout(tensor, |layout| Ok(layout.slice(axes)))
}

/// Broadcasts axes of size 1.
///
/// # Errors
///
/// Returns an error if the tensor does not broadcast to the shape, or the shape has more elements
/// than a 32-bit index can address.
pub fn expand(tensor: Quantized, shape: &[usize]) -> Result<Quantized> {
    views::check_addressable(shape)?;
    map_layout(tensor, |layout| copy::expand_layout(layout, shape))
}

/// Changes the shape. The blocks stay the same, because the row-major order does.
///
/// # Errors
///
/// Returns an error if the shapes have different numbers of elements.
pub fn reshape(tensor: Quantized, shape: &[usize]) -> Result<Quantized> {
    views::check_same_len(tensor.shape(), shape)?;
    if let Some(layout) = tensor.layout.reshape(shape) {
        return Ok(Quantized { layout, ..tensor });
    }
    let tensor = packed(tensor)?;
    Ok(Quantized { layout: Layout::contiguous(shape), ..tensor })
}

/// Returns the slices along `axis` at `indices`: see [`gather::select`].
pub fn select(tensor: Quantized, axis: usize, indices: Tensor) -> Result<Quantized> {
    map_elements(tensor, |elements| gather::select(elements, axis, indices))
}

/// Reads elements along `axis` at `indices`: see [`gather::gather`].
pub fn gather(axis: usize, tensor: Quantized, indices: Tensor) -> Result<Quantized> {
    map_elements(tensor, |elements| gather::gather(axis, elements, indices))
}
