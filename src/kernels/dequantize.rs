//! Dequantisation: 8-bit integers, four per word, to floats or to 32-bit integers.

use super::common::cases::Case;
use super::common::launch::{Launch, variants_of, workgroups_for};
use super::common::options::QuantFormat;
use super::common::walk::Walk;
use crate::params;
use crate::runtime::{Kernel, Source, Variant, wgsl};
use crate::tensor::{DType, Layout, Result, Tensor};

static DEQUANTIZE: Source = Source::new::<DequantizeParams>(
    "dequantize",
    wgsl!("../../shaders/dequantize/dequantize.wgsl"),
);
static DEQUANTIZE_VIEW: Source = Source::new::<DequantizeViewParams>(
    "dequantize_view",
    wgsl!("../../shaders/dequantize/dequantize_view.wgsl"),
);

params! {
    struct DequantizeParams {
        count: u32,
        len: u32,
        block: u32,
        pad0: u32,
    }
}

params! {
    struct DequantizeViewParams {
        count: u32,
        pad0: u32,
        pad1: u32,
        pad2: u32,
        walk: Walk,
    }
}

/// The kernel for packed integers.
#[derive(Debug, Clone, Copy, Hash)]
struct DequantizeKernel {
    /// The type of the result: f32, or i32 for integers without scales.
    out: DType,
}

impl Kernel for DequantizeKernel {
    type Params = DequantizeParams;

    fn variant(&self) -> Variant {
        define(&DEQUANTIZE, self.out)
    }
}

/// The kernel for integers of any layout.
#[derive(Debug, Clone, Copy, Hash)]
struct DequantizeViewKernel {
    /// The type of the result, as in [`DequantizeKernel`].
    out: DType,
}

impl Kernel for DequantizeViewKernel {
    type Params = DequantizeViewParams;

    fn variant(&self) -> Variant {
        define(&DEQUANTIZE_VIEW, self.out)
    }
}

/// Specialises either kernel for the type of its result.
fn define(source: &'static Source, out: DType) -> Variant {
    Variant::new(source).ty("O", out.wgsl()).flag("INTEGERS", out == DType::I32)
}

/// Computes the floats of quantised elements: each integer times the scale of its block.
///
/// `layout` locates the integers in the words, in bytes. With blocks it must be packed.
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
    let (_, block) = format.blocks(&layout.shape)?;
    convert(words, Some((scales, block)), layout)
}

/// Unpacks the integers, one per word, without their scales.
pub fn unpack(words: &Tensor, layout: &Layout) -> Result<Tensor> {
    convert(words, None, layout)
}

/// Converts the elements to floats, given the scales and the elements of a block, or to integers.
fn convert(words: &Tensor, scales: Option<(&Tensor, usize)>, layout: &Layout) -> Result<Tensor> {
    let (dtype, inputs, block): (_, &[&Tensor], usize) = match scales {
        Some((scales, block)) => (DType::F32, &[words, scales], block),
        None => (DType::I32, &[words], 1),
    };
    let out = Tensor::empty(words.runtime(), &layout.shape, dtype)?;
    let work = out.len() as u64;
    if layout.offset == 0 && layout.is_contiguous() {
        let count = out.len().div_ceil(QuantFormat::VALUES_PER_WORD);
        Launch {
            kernel: &DequantizeKernel { out: dtype },
            inputs,
            outputs: &[&out],
            params: &DequantizeParams {
                count: count as u32,
                len: out.len() as u32,
                block: block as u32,
                pad0: 0,
            },
            workgroups: workgroups_for(count),
            work,
        }
        .run()?;
    } else {
        Launch {
            kernel: &DequantizeViewKernel { out: dtype },
            inputs,
            outputs: &[&out],
            params: &DequantizeViewParams {
                count: out.len() as u32,
                pad0: 0,
                pad1: 0,
                pad2: 0,
                walk: Walk::new(&[layout])?,
            },
            workgroups: workgroups_for(out.len()),
            work,
        }
        .run()?;
    }
    Ok(out)
}

/// Returns every variant that the family can dispatch.
pub fn variants() -> Vec<Variant> {
    let types = [DType::F32, DType::I32];
    let views = variants_of(types.map(|out| DequantizeViewKernel { out }));
    [views, variants_of(types.map(|out| DequantizeKernel { out }))].concat()
}

/// No cases: arguments of a case cannot be quantised tensors. `tests/quantized.rs` tests them.
pub const CASES: &[Case] = &[];
