//! Dequantisation: integers of 8, 4 or 2 bits, packed into words, to floats or to 32-bit integers. Also bytes of the
//! program, such as those of images.
//!
//! It is an elementwise op: a kernel that reads the result of one, such as a product with few rows,
//! unpacks the words in registers. Parts of a tensor, flipped and expanded views, blocks that are not
//! whole words, and programs without fusion have a kernel of their own.

use std::sync::Arc;

use crate::kernels::fusion::program::Access;
use crate::kernels::fusion::switch::is_enabled;
use crate::kernels::fusion::{fused, pending};
use crate::kernels::launch::walk::Walk;
use crate::kernels::launch::{Launch, variants_of, workgroups_for};
use crate::kernels::ops::cases::{Case, cases};
use crate::kernels::ops::map::Map;
use crate::kernels::ops::options::QuantFormat;
use crate::kernels::ops::table::rows;
use crate::kernels::quantize::{self, packed_int};
use crate::params;
use crate::runtime::{Kernel, Runtime, Source, Variant, wgsl};
use crate::tensor::{Arg, DType, Layout, Lazy, Result, Tensor};

static DEQUANTIZE: Source = Source::new::<DequantizeParams>(
    "dequantize",
    wgsl!("../../shaders/dequantize/dequantize.wgsl"),
)
.with_fragments(quantize::FRAGMENTS);

params! {
    struct DequantizeParams {
        count: u32,
        block: u32,
        pad0: u32,
        pad1: u32,
        walk: Walk,
    }
}

/// The kernel for integers of any layout.
#[derive(Debug, Clone, Copy, Hash)]
struct DequantizeKernel {
    /// The bits of an integer.
    bits: u32,
    /// The type of the result: f32, or i32 for integers without scales.
    out: DType,
}

impl Kernel for DequantizeKernel {
    type Params = DequantizeParams;

    fn variant(&self) -> Variant {
        packed_int(Variant::new(&DEQUANTIZE), self.bits)
            .ty("O", self.out.wgsl())
            .flag("INTEGERS", self.out == DType::I32)
    }
}

/// Computes the floats of quantised elements: each integer times the scale of its block.
///
/// `layout` locates the integers in the words. With blocks it must be packed.
///
/// # Errors
///
/// Returns an error if the memory is not available; so does the function below.
pub fn dequantize(
    words: &Tensor,
    scales: &Tensor,
    layout: &Layout,
    format: QuantFormat,
) -> Result<Tensor> {
    convert(words, Some(scales), layout, format)
}

/// Unpacks the integers, one per word, without their scales.
pub fn unpack(words: &Tensor, layout: &Layout, format: QuantFormat) -> Result<Tensor> {
    convert(words, None, layout, format)
}

/// Converts the elements to floats, given the scales, or to integers.
fn convert(
    words: &Tensor,
    scales: Option<&Tensor>,
    layout: &Layout,
    format: QuantFormat,
) -> Result<Tensor> {
    let values = format.values_per_word();
    let has_all_words = words.len() == layout.len().div_ceil(values);
    let (blocks, block) = match format.block {
        Some(block) if scales.is_some() => (layout.len() / block, block),
        _ => (1, words.len() * values),
    };
    let is_whole = has_all_words && layout.dense_order().is_some() && !layout.shape.contains(&0);
    if is_enabled() && is_whole && block.is_multiple_of(values) {
        let all = Layout::contiguous(&[blocks, block / values, values]);
        let words = words.view(Layout::contiguous(&[blocks, block / values, 1]));
        let scales = scales.map(|scales| scales.view(Layout::contiguous(&[blocks, 1, 1])));
        let all = match scales {
            Some(scales) => pending::defer(&scaled(format.bits), [words, scales], all)?,
            None => pending::defer(&unpacked(format.bits), [words], all)?,
        };
        return Ok(all.view(layout.clone()));
    }
    let dtype = if scales.is_some() { DType::F32 } else { DType::I32 };
    let inputs = [words, scales.unwrap_or(words)];
    let out = Tensor::empty(words.runtime(), &layout.shape, dtype)?;
    Launch {
        kernel: &DequantizeKernel { bits: format.bits, out: dtype },
        inputs: &inputs[..if scales.is_some() { 2 } else { 1 }],
        outputs: &[&out],
        params: &DequantizeParams {
            count: out.len() as u32,
            // Elements of an expanded view are more than those of its words.
            block: format.block.unwrap_or(u32::MAX as usize) as u32,
            pad0: 0,
            pad1: 0,
            walk: Walk::new(&[layout])?,
        },
        workgroups: workgroups_for(out.len()),
        work: out.len() as u64,
        rounds: None,
    }
    .run()?;
    Ok(out)
}

/// Returns integers of 8 bits, which were uploaded as bytes, four in each of the `words`. They are pending: a kernel
/// that reads them, such as one that normalises images, reads the bytes.
///
/// # Errors
///
/// Returns an error if the memory is not available.
pub fn bytes(words: &Tensor, shape: &[usize], dtype: DType) -> Result<Tensor> {
    let count = words.len();
    let map = if dtype == DType::I8 { unpacked(8) } else { unsigned_bytes() };
    let words = words.view(Layout::contiguous(&[count, 1]));
    let all = pending::defer(&map, [words], Layout::contiguous(&[count, 4]))?;
    Ok(all.bitcast(dtype).view(Layout::contiguous(shape)))
}

/// Byte `i` of the words `a`, which are repeated for each of their bytes.
fn unsigned_bytes() -> Map {
    Map::new("(a >> (8u * (i & 3u))) & 0xff", DType::I32)
}

/// The integer `i` of the words `a`, which are repeated for each of their integers.
fn unpacked(bits: u32) -> Map {
    let expression = match bits {
        8 => "(a << (24u - 8u * (i & 3u))) >> 24u",
        4 => "(a << (28u - 4u * (i & 7u))) >> 28u",
        _ => "(a << (30u - 2u * (i & 15u))) >> 30u",
    };
    Map::new(expression, DType::I32)
}

/// The same, times the scale `b`.
fn scaled(bits: u32) -> Map {
    let expression = match bits {
        8 => "b * f32((a << (24u - 8u * (i & 3u))) >> 24u)",
        4 => "b * f32((a << (28u - 4u * (i & 7u))) >> 28u)",
        _ => "b * f32((a << (30u - 2u * (i & 15u))) >> 30u)",
    };
    Map::new(expression, DType::F32)
}

/// Integers whose floats are pending, in words that are in memory.
pub(super) struct PendingFloats {
    pub words: Tensor,
    /// One for each block.
    pub scales: Tensor,
    /// The minimum of each block, which is added to its elements.
    pub minima: Option<Tensor>,
    /// The bits of an integer, 4 or 8.
    pub bits: u32,
    /// The elements of a block.
    pub block: usize,
}

/// Returns the words, scales and minima of a pending dequantisation, whatever the layout of the tensor.
pub(super) fn pending_floats(tensor: &Tensor) -> Option<PendingFloats> {
    let lazy = tensor.pending()?;
    if let Some(floats) = scaled_integers(tensor.runtime(), lazy) {
        return Some(floats);
    }
    if lazy.expression().wgsl != rows::float_add.wgsl {
        return None;
    }
    let args = lazy.args();
    let [Arg { storage, layout: None, padding: None, .. }, minima] = &args[..] else { return None };
    let floats = scaled_integers(tensor.runtime(), storage.pending()?)?;
    let blocks = floats.scales.len();
    let minima = repeated(tensor.runtime(), minima, blocks, floats.block)?;
    let is_float = minima.dtype() == DType::F32;
    is_float.then_some(PendingFloats { minima: Some(minima), ..floats })
}

/// Returns the integers and scales of [`scaled`].
fn scaled_integers(runtime: &Arc<Runtime>, lazy: &Lazy) -> Option<PendingFloats> {
    let expression = lazy.expression();
    let bits = [4, 8].into_iter().find(|&bits| scaled(bits).expr == expression.wgsl)?;
    let values = 32 / bits as usize;
    let args = lazy.args();
    let [words, scales] = &args[..] else { return None };
    let words = repeated(runtime, words, expression.len / values, values)?;
    let blocks = scales.layout.as_ref()?.shape[0];
    let block = expression.len / blocks;
    let scales = repeated(runtime, scales, blocks, block)?;
    Some(PendingFloats { words, scales, minima: None, bits, block })
}

/// Returns a packed tensor in memory of `len` elements, each of which an argument repeats so many times.
fn repeated(runtime: &Arc<Runtime>, arg: &Arg, len: usize, times: usize) -> Option<Tensor> {
    let Arg { storage, dtype, layout: Some(layout), padding: None } = arg else { return None };
    storage.memory()?;
    let inner = layout.strides.iter().rposition(|&stride| stride != 0).map_or(0, |axis| axis + 1);
    let outer = layout.leading(inner);
    let repeats: usize = layout.shape[inner..].iter().product();
    let is_repeated = outer.is_packed() && (outer.len(), repeats) == (len, times);
    let elements = Layout::contiguous(&[len]);
    is_repeated.then(|| Tensor::of_storage(runtime, storage.clone(), elements, *dtype))
}

/// Returns the computations that the family can request, with the types of their inputs.
fn maps() -> Vec<(Map, Vec<DType>)> {
    let of =
        |bits| [(unpacked(bits), vec![DType::I32]), (scaled(bits), vec![DType::I32, DType::F32])];
    let bytes = (unsigned_bytes(), vec![DType::I32]);
    QuantFormat::BITS.into_iter().flat_map(of).chain([bytes]).collect()
}

/// Returns the computation of the floats of blocks that are runs, and how it reads its inputs.
pub(super) fn in_registers(bits: u32) -> (Map, [(DType, Access); 2]) {
    (scaled(bits), [(DType::I32, Access::Runs), (DType::F32, Access::Runs)])
}

/// Returns every variant that the family can dispatch.
pub fn variants() -> Vec<Variant> {
    let of = |bits| [DType::F32, DType::I32].map(|out| DequantizeKernel { bits, out });
    let mut out = variants_of(QuantFormat::BITS.into_iter().flat_map(of));
    out.extend(fused::samples(maps()));
    out
}

/// No cases: arguments of a case cannot be quantised tensors. `tests/kernels/quantized.rs` tests them.
pub const CASES: &[Case] = cases! {};
