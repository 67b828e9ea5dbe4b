//! Quantisation to integers of 8, 4 or 2 bits, packed into words, and the scales that they are
//! multiples of.

use smallvec::SmallVec;

use crate::kernels::launch::{Launch, variants_of, workgroups_for};
use crate::kernels::ops::cases::{Case, cases};
use crate::kernels::ops::options::QuantFormat;
use crate::kernels::reduce::{self, Reduction};
use crate::kernels::{policy, views};
use crate::params;
use crate::runtime::{Fragment, Kernel, Source, Variant, wgsl};
use crate::tensor::{DType, Error, Layout, Result, Tensor};

/// The fragments of the shaders.
pub(super) const FRAGMENTS: &[Fragment] =
    &[("lib/packed_int", wgsl!("../../shaders/lib/packed_int.wgsl"))];

static QUANTIZE: Source =
    Source::new::<QuantizeParams>("quantize", wgsl!("../../shaders/quantize/quantize.wgsl"))
        .with_fragments(FRAGMENTS);
static QUANTIZE_SCALES: Source = Source::new::<QuantizeScalesParams>(
    "quantize_scales",
    wgsl!("../../shaders/quantize/quantize_scales.wgsl"),
);

params! {
    struct QuantizeParams {
        count: u32,
        len: u32,
        block: u32,
        low: f32,
        high: f32,
        pad0: u32,
        pad1: u32,
        pad2: u32,
    }
}

params! {
    struct QuantizeScalesParams {
        count: u32,
        len: u32,
        block: u32,
        step: u32,
        range: f32,
        pad0: u32,
        pad1: u32,
        pad2: u32,
    }
}

/// Elements that one invocation reduces if the whole tensor has one scale.
const SPLIT_LEN: usize = 256;
/// The maximum number of invocations that reduce a tensor. In larger tensors, each reduces more
/// elements.
const MAX_SPLITS: usize = 1 << 14;

/// What the kernel `quantize_scales` computes for each block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum ScalePass {
    /// The scale that maps the largest magnitude to the largest integer.
    Fit,
    /// The given scale, made a valid divisor.
    Given,
    /// The largest magnitude.
    Maxima,
}

/// The kernel of a pass over the blocks.
#[derive(Debug, Clone, Copy, Hash)]
struct QuantizeScalesKernel {
    /// What the kernel computes for each block.
    pass: ScalePass,
}

impl Kernel for QuantizeScalesKernel {
    type Params = QuantizeScalesParams;

    fn variant(&self) -> Variant {
        Variant::new(&QUANTIZE_SCALES)
            .flag("GIVEN", self.pass == ScalePass::Given)
            .flag("MAXIMA", self.pass == ScalePass::Maxima)
    }
}

/// The kernel that computes the words.
#[derive(Debug, Clone, Copy, Hash)]
struct QuantizeKernel {
    /// The bits of an integer.
    bits: u32,
    /// Whether the input has integers that are only packed.
    integers: bool,
}

impl Kernel for QuantizeKernel {
    type Params = QuantizeParams;

    fn variant(&self) -> Variant {
        let variant = packed_int(Variant::new(&QUANTIZE), self.bits);
        variant.int("VEC4S", 32 / self.bits / 4).flag("INTEGERS", self.integers)
    }
}

/// Specialises a kernel for integers of so many bits.
pub(super) fn packed_int(variant: Variant, bits: u32) -> Variant {
    variant.int("BITS", bits).int("VALUES", 32 / bits)
}

/// The scales of the blocks, and their reciprocals.
struct BlockScales {
    scales: Tensor,
    reciprocals: Tensor,
}

/// Computes the scales of packed `x`, in `blocks` blocks of `block` elements.
fn block_scales(
    x: &Tensor,
    pass: ScalePass,
    blocks: usize,
    block: usize,
    format: QuantFormat,
) -> Result<BlockScales> {
    let empty = || Tensor::empty(x.runtime(), &[blocks], DType::F32);
    let (scales, reciprocals) = (empty()?, empty()?);
    Launch {
        kernel: &QuantizeScalesKernel { pass },
        inputs: &[x],
        outputs: &[&scales, &reciprocals],
        params: &scale_params(blocks, x.len(), block, 1, format),
        workgroups: workgroups_for(blocks),
        work: x.len() as u64,
        rounds: Some(block as u64),
    }
    .run()?;
    Ok(BlockScales { scales, reciprocals })
}

/// Returns the parameters for `blocks` invocations. Each reads every `step`-th element of a block
/// of `block` elements.
fn scale_params(
    blocks: usize,
    len: usize,
    block: usize,
    step: usize,
    format: QuantFormat,
) -> QuantizeScalesParams {
    QuantizeScalesParams {
        count: blocks as u32,
        len: len as u32,
        block: block as u32,
        step: step as u32,
        range: f32::from(format.high) - f32::from(format.low),
        pad0: 0,
        pad1: 0,
        pad2: 0,
    }
}

/// Returns the largest magnitude in packed `x`, without NaN, as a tensor of one element.
fn max_magnitude(x: &Tensor, format: QuantFormat) -> Result<Tensor> {
    let splits = x.len().div_ceil(SPLIT_LEN).min(MAX_SPLITS);
    let splits = splits.max(x.len().div_ceil(policy::max_rounds(x.runtime())));
    let out = Tensor::empty(x.runtime(), &[splits], DType::F32)?;
    Launch {
        kernel: &QuantizeScalesKernel { pass: ScalePass::Maxima },
        inputs: &[x],
        outputs: &[&out],
        params: &scale_params(splits, x.len(), x.len(), splits, format),
        workgroups: workgroups_for(splits),
        work: x.len() as u64,
        rounds: Some(x.len().div_ceil(splits) as u64),
    }
    .run()?;
    reduce::all(Reduction::Max, out)
}

/// Quantises floats with scales computed from them: the largest magnitude of each block becomes the
/// integer of largest magnitude. NaN becomes zero and does not affect the scale. In formats of 2 bits,
/// all elements of a block whose scale is above 2^126 become zero: GPUs have no subnormal
/// reciprocals. If twice the largest magnitude is infinite, the scale is the smallest normal number.
/// Returns the words and the scales.
///
/// # Errors
///
/// Returns an error if the blocks do not divide the tensor or the memory is not available.
pub fn quantize_dynamic(tensor: Tensor, format: QuantFormat) -> Result<(Tensor, Tensor)> {
    let tensor = views::packed(tensor)?;
    let (blocks, block) = format.blocks(tensor.shape())?;
    if tensor.is_oversized() && blocks >= 2 * format.values_per_word() {
        return quantize_halves(&tensor, blocks, format);
    }
    let scales = if format.block.is_none() && tensor.len() > SPLIT_LEN {
        block_scales(&max_magnitude(&tensor, format)?, ScalePass::Fit, 1, 1, format)?
    } else {
        block_scales(&tensor, ScalePass::Fit, blocks, block, format)?
    };
    let words = to_words(&tensor, Some(&scales.reciprocals), format)?;
    Ok((words, scales.scales))
}

/// Quantises both halves of a packed tensor, of at least twice as many blocks as a word has integers.
fn quantize_halves(
    tensor: &Tensor,
    blocks: usize,
    format: QuantFormat,
) -> Result<(Tensor, Tensor)> {
    let block = tensor.len() / blocks;
    // Both halves begin with a word.
    let first = (blocks / 2).next_multiple_of(format.values_per_word()) * block;
    let half = |start: usize, len: usize| {
        let flat = tensor.view(Layout::contiguous(&[tensor.len()]));
        quantize_dynamic(flat.view(flat.layout().narrow(0, start, len)), format)
    };
    let (words, scales) = half(0, first)?;
    let (more_words, more_scales) = half(first, tensor.len() - first)?;
    Ok((views::cat(vec![words, more_words], 0)?, views::cat(vec![scales, more_scales], 0)?))
}

/// Quantises floats with the given scales. Scales that are not valid divisors are replaced by the
/// smallest normal number, and elements with a scale above 2^126 become zero, as in
/// [`quantize_dynamic`]. Returns the words and the scales used.
///
/// # Errors
///
/// Returns an error if the blocks do not divide the tensor, the number of scales is not the number
/// of blocks, or the memory is not available.
pub fn quantize(tensor: Tensor, scales: Tensor, format: QuantFormat) -> Result<(Tensor, Tensor)> {
    tensor.same_device(&scales)?;
    let (tensor, scales) = (views::packed(tensor)?, views::packed(scales)?);
    let (blocks, _) = format.blocks(tensor.shape())?;
    if scales.len() < blocks || (format.block.is_some() && scales.len() > blocks) {
        return Err(Error::Shape {
            lhs: tensor.shape().to_vec(),
            rhs: scales.shape().to_vec(),
            rule: "quantisation needs one scale per block",
        });
    }
    let scales = block_scales(&scales, ScalePass::Given, blocks, 1, format)?;
    let words = to_words(&tensor, Some(&scales.reciprocals), format)?;
    Ok((words, scales.scales))
}

/// Packs integers, one per word in packed `integers`.
///
/// # Errors
///
/// Returns an error if the memory is not available.
pub fn pack(integers: &Tensor, format: QuantFormat) -> Result<Tensor> {
    to_words(integers, None, format)
}

/// Packs the elements of packed `x` into words: floats, given the reciprocals of the scales, or
/// integers.
fn to_words(x: &Tensor, reciprocals: Option<&Tensor>, format: QuantFormat) -> Result<Tensor> {
    let mut inputs: SmallVec<[&Tensor; 2]> = SmallVec::from_slice(&[x]);
    inputs.extend(reciprocals);
    let (_, block) = format.blocks(x.shape())?;
    let count = x.len().div_ceil(format.values_per_word());
    let out = Tensor::empty(x.runtime(), &[count], DType::I32)?;
    Launch {
        kernel: &QuantizeKernel { bits: format.bits, integers: reciprocals.is_none() },
        inputs: &inputs,
        outputs: &[&out],
        params: &QuantizeParams {
            count: count as u32,
            len: x.len() as u32,
            block: block as u32,
            low: f32::from(format.low),
            high: f32::from(format.high),
            pad0: 0,
            pad1: 0,
            pad2: 0,
        },
        workgroups: workgroups_for(count),
        work: x.len() as u64 * 4,
        rounds: None,
    }
    .run()?;
    Ok(out)
}

/// Returns every variant that the family can dispatch.
pub fn variants() -> Vec<Variant> {
    let passes = [ScalePass::Fit, ScalePass::Given, ScalePass::Maxima];
    let scales = variants_of(passes.map(|pass| QuantizeScalesKernel { pass }));
    let kernels = QuantFormat::BITS
        .into_iter()
        .flat_map(|bits| [true, false].map(|integers| QuantizeKernel { bits, integers }));
    [scales, variants_of(kernels)].concat()
}

/// No cases: arguments of a case cannot be quantised tensors. `tests/kernels/quantized.rs` tests them.
pub const CASES: &[Case] = cases! {};
