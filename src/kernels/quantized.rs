//! Tensors of 8-bit integers, four in a word, and the scales that they are multiples of.
//!
//! An integer stands for itself times its scale. One scale serves the whole tensor, or each block of
//! neighbours in row-major order has its own. With one scale a view is free, as it is for other tensors;
//! with blocks a view that moves elements goes through floats and new scales.

use smallvec::SmallVec;

use super::cases::Case;
use super::{Launch, Params, copy, div_up, index, reduce, walk};
use crate::runtime::{Source, Variant};
use crate::tensor::{DType, Error, Layout, Result, SliceAxis, Tensor};

static SCALES: Source =
    Source { name: "scales", text: include_str!("../../shaders/quantized/scales.wgsl") };
static QUANTIZE: Source =
    Source { name: "quantize", text: include_str!("../../shaders/quantized/quantize.wgsl") };
static DEQUANTIZE: Source =
    Source { name: "dequantize", text: include_str!("../../shaders/quantized/dequantize.wgsl") };

/// Integers in a word.
const PER_WORD: usize = 4;

/// Which integers there are, and which of them share a scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Format {
    /// The least integer; the greatest is 127.
    pub low: i8,
    /// How many neighbours in row-major order share a scale; all of them if there are no blocks.
    pub block: Option<usize>,
}

impl Format {
    /// The blocks of a tensor of `shape`: how many, and of how many elements each.
    fn blocks(self, shape: &[usize]) -> Result<(usize, usize)> {
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

/// A quantised tensor on the GPU. Cloning shares the memory.
#[derive(Debug, Clone)]
pub struct Quantized {
    /// Four integers each, the first in the lowest byte.
    words: Tensor,
    /// Where each integer lies, counted in bytes of the words. With blocks: in row-major order.
    layout: Layout,
    /// One, or one for each block.
    scales: Tensor,
    format: Format,
}

impl Quantized {
    /// A tensor of `shape` from words and scales that are there already.
    ///
    /// # Errors
    ///
    /// When they are too few, or too many, for the shape.
    pub fn new(words: Tensor, shape: &[usize], scales: Tensor, format: Format) -> Result<Self> {
        words.same_device(&scales)?;
        let layout = Layout::contiguous(shape);
        let (blocks, _) = format.blocks(shape)?;
        if words.len() != layout.len().div_ceil(PER_WORD) || scales.len() != blocks {
            return Err(Error::Shape {
                lhs: shape.to_vec(),
                rhs: vec![words.len(), scales.len()],
                rule: "there is a word for each four elements, and a scale for each block",
            });
        }
        Ok(Self { words: copy::packed(words)?, layout, scales: copy::packed(scales)?, format })
    }

    /// Sizes of the axes.
    pub fn shape(&self) -> &[usize] {
        &self.layout.shape
    }

    /// The words, in row-major order and no more than there are elements for, and the scales.
    ///
    /// # Errors
    ///
    /// When the memory is not there; so too for the functions below.
    pub fn into_parts(self) -> Result<(Tensor, Tensor)> {
        let Self { words, layout, scales, .. } = packed(self)?;
        let count = layout.len().div_ceil(PER_WORD);
        Ok((words.view(Layout::contiguous(&[count])), scales))
    }

    fn is_packed(&self) -> bool {
        self.layout.offset == 0 && self.layout.is_contiguous()
    }
}

/// The scales of a tensor, and their reciprocals.
struct Scales {
    scales: Tensor,
    reciprocals: Tensor,
}

/// What is found for each block.
#[derive(Clone, Copy, PartialEq)]
enum Find {
    /// The scale that fits its largest magnitude.
    Fitting,
    /// The scale that is given.
    Given,
    /// The largest magnitude itself.
    Largest,
}

use Find::*;

impl Find {
    const EVERY: [Self; 3] = [Fitting, Given, Largest];

    fn variant(self) -> Variant {
        Variant::new(&SCALES).flag("GIVEN", self == Given).flag("PARTS", self == Largest)
    }
}

/// The scales of `blocks` blocks of packed `x`.
fn scales(x: &Tensor, find: Find, blocks: usize, block: usize, format: Format) -> Result<Scales> {
    let empty = || Tensor::empty(x.runtime(), &[blocks], DType::F32, &[x]);
    let (scales, reciprocals) = (empty()?, empty()?);
    Launch {
        variant: &find.variant(),
        inputs: &[x],
        outputs: &[&scales, &reciprocals],
        params: &scale_params(blocks, x.len(), block, 1, format),
        groups: div_up(blocks, 64),
        work: x.len() as u64,
    }
    .run()?;
    Ok(Scales { scales, reciprocals })
}

fn scale_params(blocks: usize, len: usize, block: usize, step: usize, format: Format) -> [u32; 8] {
    let span = 127.0 - f32::from(format.low);
    [blocks as u32, len as u32, block as u32, step as u32, span.to_bits(), 0, 0, 0]
}

/// What one invocation walks alone when a scale is sought for a whole tensor.
const ALONE: usize = 256;
/// The most parts that a whole tensor's largest magnitude is sought in.
const PARTS: usize = 1 << 14;

/// A tensor of one element: the largest magnitude in packed `x`, NaN left out.
fn largest(x: &Tensor, format: Format) -> Result<Tensor> {
    let parts = x.len().div_ceil(ALONE).min(PARTS);
    let out = Tensor::empty(x.runtime(), &[parts], DType::F32, &[x])?;
    Launch {
        variant: &Largest.variant(),
        inputs: &[x],
        outputs: &[&out],
        params: &scale_params(parts, x.len(), x.len(), parts, format),
        groups: div_up(parts, 64),
        work: x.len() as u64,
    }
    .run()?;
    reduce::all(reduce::Reduction::Max, out)
}

/// The floats as multiples of scales that fit them: of each block, the largest magnitude becomes the
/// greatest integer. NaN becomes zero and does not count for the scale.
///
/// # Errors
///
/// When the blocks do not divide the tensor.
pub fn quantize_dynamic(tensor: Tensor, format: Format) -> Result<Quantized> {
    let tensor = copy::packed(tensor)?;
    let (blocks, block) = format.blocks(tensor.shape())?;
    let found = if format.block.is_none() && tensor.len() > ALONE {
        scales(&largest(&tensor, format)?, Fitting, 1, 1, format)?
    } else {
        scales(&tensor, Fitting, blocks, block, format)?
    };
    with_scales(&tensor, found, format)
}

/// The floats as multiples of the given scales; see [`quantize_dynamic`] for scales that fit. A scale that
/// cannot be divided by becomes the smallest normal number.
///
/// # Errors
///
/// When the blocks do not divide the tensor, or there is not a scale for each.
pub fn quantize(tensor: Tensor, given: Tensor, format: Format) -> Result<Quantized> {
    tensor.same_device(&given)?;
    let (tensor, given) = (copy::packed(tensor)?, copy::packed(given)?);
    let (blocks, _) = format.blocks(tensor.shape())?;
    if given.len() < blocks || (format.block.is_some() && given.len() > blocks) {
        return Err(Error::Shape {
            lhs: tensor.shape().to_vec(),
            rhs: given.shape().to_vec(),
            rule: "there is a scale for each block",
        });
    }
    let found = scales(&given, Given, blocks, 1, format)?;
    with_scales(&tensor, found, format)
}

fn quantize_variant(integers: bool) -> Variant {
    Variant::new(&QUANTIZE).flag("INTEGERS", integers)
}

/// Packed floats in words.
fn with_scales(x: &Tensor, found: Scales, format: Format) -> Result<Quantized> {
    let words = words(x, Some(&found.reciprocals), format)?;
    Quantized::new(words, x.shape(), found.scales, format)
}

/// Packed floats, with reciprocals of scales, or integers in words.
fn words(x: &Tensor, reciprocals: Option<&Tensor>, format: Format) -> Result<Tensor> {
    let mut inputs: SmallVec<[&Tensor; 2]> = SmallVec::from_slice(&[x]);
    inputs.extend(reciprocals);
    let (_, block) = format.blocks(x.shape())?;
    let count = x.len().div_ceil(PER_WORD);
    let out = Tensor::empty(x.runtime(), &[count], DType::I32, &inputs)?;
    Launch {
        variant: &quantize_variant(reciprocals.is_none()),
        inputs: &inputs,
        outputs: &[&out],
        params: &[x.len() as u32, block as u32, f32::from(format.low).to_bits(), 0],
        groups: div_up(count, 64),
        work: x.len() as u64 * 4,
    }
    .run()?;
    Ok(out)
}

fn dequantize_variant(out: DType, view: bool) -> Variant {
    Variant::new(&DEQUANTIZE)
        .ty("O", out.wgsl())
        .flag("INTEGERS", out == DType::I32)
        .flag("VIEW", view)
}

/// The floats that the integers stand for.
pub fn dequantize(tensor: &Quantized) -> Result<Tensor> {
    unpacked(tensor, DType::F32)
}

/// The elements, one a word: floats, or the integers as they are.
fn unpacked(tensor: &Quantized, dtype: DType) -> Result<Tensor> {
    let Quantized { words, layout, scales, format } = tensor;
    let inputs: &[&Tensor] = if dtype == DType::I32 { &[words] } else { &[words, scales] };
    let out = Tensor::empty(words.runtime(), &layout.shape, dtype, inputs)?;
    let (_, block) = format.blocks(&layout.shape)?;
    let view = !tensor.is_packed();
    let mut params: Params = SmallVec::from_slice(&[out.len() as u32, block as u32, 0, 0]);
    if view {
        params.extend_from_slice(&walk(&[layout])?.0);
    }
    let invocations = if view { out.len() } else { out.len().div_ceil(PER_WORD) };
    Launch {
        variant: &dequantize_variant(dtype, view),
        inputs,
        outputs: &[&out],
        params: &params,
        groups: div_up(invocations, 64),
        work: out.len() as u64,
    }
    .run()?;
    Ok(out)
}

/// The tensor in row-major order from its memory's start; itself if it already is.
fn packed(tensor: Quantized) -> Result<Quantized> {
    if tensor.is_packed() {
        return Ok(tensor);
    }
    let integers = unpacked(&tensor, DType::I32)?;
    repacked(&integers, tensor)
}

/// Integers in place of those of a tensor with one scale.
fn repacked(integers: &Tensor, tensor: Quantized) -> Result<Quantized> {
    let words = words(integers, None, tensor.format)?;
    Quantized::new(words, integers.shape(), tensor.scales, tensor.format)
}

/// The tensor under a layout made from its own.
fn viewed(tensor: Quantized, view: impl FnOnce(&Layout) -> Result<Layout>) -> Result<Quantized> {
    if tensor.format.block.is_none() {
        let layout = view(&tensor.layout)?;
        return Ok(Quantized { layout, ..tensor });
    }
    let floats = dequantize(&tensor)?;
    let layout = view(floats.layout())?;
    quantize_dynamic(floats.view(layout), tensor.format)
}

/// The tensor whose elements are chosen from its own by `choose`.
fn chosen(tensor: Quantized, choose: impl FnOnce(Tensor) -> Result<Tensor>) -> Result<Quantized> {
    if tensor.format.block.is_none() {
        let integers = choose(unpacked(&tensor, DType::I32)?)?;
        return repacked(&copy::packed(integers)?, tensor);
    }
    quantize_dynamic(choose(dequantize(&tensor)?)?, tensor.format)
}

/// Exchanges two axes.
pub fn swap_dims(tensor: Quantized, a: usize, b: usize) -> Result<Quantized> {
    viewed(tensor, |layout| Ok(layout.swap(a, b)))
}

/// Reorders the axes.
pub fn permute(tensor: Quantized, axes: &[usize]) -> Result<Quantized> {
    viewed(tensor, |layout| Ok(layout.permute(axes)))
}

/// Reverses axes.
pub fn flip(tensor: Quantized, axes: &[usize]) -> Result<Quantized> {
    viewed(tensor, |layout| Ok(layout.flip(axes)))
}

/// A part of the tensor.
pub fn slice(tensor: Quantized, axes: &[SliceAxis]) -> Result<Quantized> {
    viewed(tensor, |layout| Ok(layout.slice(axes)))
}

/// Repeats axes of size one.
///
/// # Errors
///
/// When another axis would have to be repeated.
pub fn expand(tensor: Quantized, shape: &[usize]) -> Result<Quantized> {
    viewed(tensor, |layout| {
        layout.expand(shape).ok_or_else(|| Error::Shape {
            lhs: layout.shape.to_vec(),
            rhs: shape.to_vec(),
            rule: "only axes of size one expand",
        })
    })
}

/// The same elements under another shape. Blocks are neighbours in row-major order, so they stay as they are.
///
/// # Errors
///
/// When the shapes have not as many elements.
pub fn reshape(tensor: Quantized, shape: &[usize]) -> Result<Quantized> {
    if tensor.layout.len() != shape.iter().product::<usize>() {
        return Err(Error::Shape {
            lhs: tensor.shape().to_vec(),
            rhs: shape.to_vec(),
            rule: "both must have as many elements",
        });
    }
    if let Some(layout) = tensor.layout.reshape(shape) {
        return Ok(Quantized { layout, ..tensor });
    }
    let tensor = packed(tensor)?;
    Ok(Quantized { layout: Layout::contiguous(shape), ..tensor })
}

/// See [`index::select`].
pub fn select(tensor: Quantized, axis: usize, indices: Tensor) -> Result<Quantized> {
    chosen(tensor, |elements| index::select(elements, axis, indices))
}

/// See [`index::gather`].
pub fn gather(axis: usize, tensor: Quantized, indices: Tensor) -> Result<Quantized> {
    chosen(tensor, |elements| index::gather(axis, elements, indices))
}

/// Every variant that can be asked for.
pub fn variants() -> Vec<Variant> {
    let mut out: Vec<Variant> = Find::EVERY.map(Find::variant).to_vec();
    out.extend([true, false].map(quantize_variant));
    for view in [true, false] {
        out.extend([DType::F32, DType::I32].map(|dtype| dequantize_variant(dtype, view)));
    }
    out
}

/// Quantised tensors are no argument of a case: tests/quantized.rs has theirs.
pub const CASES: &[Case] = &[];
