//! Cumulative ops along an axis.

use crate::kernels::launch::{Launch, variants_of, workgroups_for};
use crate::kernels::ops::cases::{Case, cases, ints, permuted};
use crate::kernels::{policy, views};
use crate::params;
use crate::runtime::{Kernel, Source, Variant, wgsl};
use crate::tensor::{DType, Result, Tensor};

static SCAN: Source = Source::new::<ScanParams>("scan", wgsl!("../../shaders/scan/scan.wgsl"));
static SCAN_TILE: Source =
    Source::new::<ScanParams>("scan_tile", wgsl!("../../shaders/scan/scan_tile.wgsl"));

params! {
    struct ScanParams {
        count: u32,
        chunks: u32,
        len: u32,
        chunk_len: u32,
        stride: u32,
        pad0: u32,
        pad1: u32,
        pad2: u32,
    }
}

/// Lines up to this length are not split into chunks.
const MAX_UNSPLIT_LEN: usize = 256;
/// Chunks, of all lines, that keep the device busy. No line is split if there are as many lines.
const BUSY_CHUNKS: usize = 2048;
/// The minimum length of a chunk.
const MIN_CHUNK_LEN: usize = 64;

/// Elements of a tile, which a workgroup scans.
const TILE: usize = 1024;
/// The longest lines that one invocation scans although their elements are neighbours.
const MAX_SERIAL_LEN: usize = 128;

/// The op that a scan combines elements with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ScanOp {
    /// The sum.
    Sum,
    /// The product.
    Prod,
    /// The maximum; NaN from the first NaN on.
    Max,
    /// The minimum; NaN from the first NaN on.
    Min,
}

use ScanOp::*;

/// The passes of a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum ScanPass {
    /// The only pass over lines of one chunk: scans them.
    Whole,
    /// The first pass over lines of several chunks: combines all elements of each chunk.
    Totals,
    /// The last pass: scans each chunk, starting from the combination of the chunks before it.
    Carry,
}

/// The kernel of a pass.
#[derive(Debug, Clone, Copy, Hash)]
struct ScanKernel {
    /// The op that combines the elements.
    op: ScanOp,
    /// The type of the elements.
    dtype: DType,
    /// What the kernel computes for each chunk.
    pass: ScanPass,
    /// Whether a workgroup scans a chunk of neighbours; otherwise an invocation scans it.
    tiled: bool,
}

impl Kernel for ScanKernel {
    type Params = ScanParams;

    fn variant(&self) -> Variant {
        let Self { op, dtype, pass, tiled } = *self;
        let combine = match (op, dtype == DType::F32) {
            (Sum, _) => "a + b",
            (Prod, _) => "a * b",
            (Max, true) => "nan_max(a, b)",
            (Max, false) => "max(a, b)",
            (Min, true) => "nan_min(a, b)",
            (Min, false) => "min(a, b)",
        };
        Variant::new(if tiled { &SCAN_TILE } else { &SCAN })
            .ty("E", dtype.wgsl())
            .expr("COMBINE", combine)
            .flag("TOTALS", pass == ScanPass::Totals)
            .flag("CARRY", pass == ScanPass::Carry)
    }
}

/// Computes the inclusive scan along an axis: each element combined with all elements before it.
///
/// # Errors
///
/// Returns an error if the memory is not available.
pub fn scan(op: ScanOp, tensor: Tensor, axis: usize) -> Result<Tensor> {
    let tensor = views::packed(tensor)?;
    let len = tensor.shape()[axis];
    let stride: usize = tensor.shape()[axis + 1..].iter().product();
    if tensor.is_empty() {
        return Ok(tensor);
    }
    let lines = tensor.len() / len;
    let tiled =
        stride == 1 && len > MAX_SERIAL_LEN && policy::of(tensor.runtime()).has_fast_barriers();
    let chunk_len = match lines >= BUSY_CHUNKS || len <= MAX_UNSPLIT_LEN {
        true => len,
        false => len.div_ceil(BUSY_CHUNKS / lines).max(MIN_CHUNK_LEN),
    };
    let chunk_len = chunk_len.min(policy::max_rounds(tensor.runtime()));
    let chunk_len = if tiled { TILE } else { chunk_len };
    let chunks = len.div_ceil(chunk_len);
    let run = |pass: ScanPass, inputs: &[&Tensor], out: &Tensor| {
        Launch {
            kernel: &ScanKernel { op, dtype: tensor.dtype(), pass, tiled },
            inputs,
            outputs: &[out],
            params: &ScanParams {
                count: (lines * chunks) as u32,
                chunks: chunks as u32,
                len: len as u32,
                chunk_len: chunk_len as u32,
                stride: stride as u32,
                pad0: 0,
                pad1: 0,
                pad2: 0,
            },
            workgroups: match tiled {
                true => (lines * chunks) as u64,
                false => workgroups_for(lines * chunks),
            },
            work: tensor.len() as u64,
            rounds: Some(chunk_len as u64),
        }
        .run()
    };
    if chunks == 1 {
        let out = Tensor::empty(tensor.runtime(), tensor.shape(), tensor.dtype())?;
        run(ScanPass::Whole, &[&tensor], &out)?;
        return Ok(out);
    }
    let totals = Tensor::empty(tensor.runtime(), &[lines, chunks], tensor.dtype())?;
    run(ScanPass::Totals, &[&tensor], &totals)?;
    let carry = scan(op, totals, 1)?;
    let inputs = [&tensor, &carry];
    let out = Tensor::empty(tensor.runtime(), tensor.shape(), tensor.dtype())?;
    run(ScanPass::Carry, &inputs, &out)?;
    Ok(out)
}

/// Returns every variant that the family can dispatch.
pub fn variants() -> Vec<Variant> {
    let mut kernels = Vec::new();
    for dtype in DType::COMPUTE_TYPES.into_iter().filter(|&dtype| dtype != DType::Bool) {
        for op in [Sum, Prod, Max, Min] {
            for pass in [ScanPass::Whole, ScanPass::Totals, ScanPass::Carry] {
                kernels.extend([false, true].map(|tiled| ScanKernel { op, dtype, pass, tiled }));
            }
        }
    }
    variants_of(kernels)
}

/// The cases that the family must pass.
pub const CASES: &[Case] = cases! {
    float_cumsum([7], 0);
    float_cumsum([3, 5000], 1);
    float_cumsum([5000, 3], 0);
    float_cumsum(permuted(&[4, 6, 5], &[2, 0, 1]), 1);
    float_cumsum([2, 0, 3], 0);
    float_cumprod([4, 9], 1);
    float_cummax([4, 900], 1);
    float_cummin([4, 9, 3], 1);
    int_cumsum(ints(&[2, 700]), 1);
    int_cumprod(ints(&[7, 3]), 0);
    int_cummax(ints(&[7, 30]), 1);
    int_cummin(ints(&[7, 30]), 0);
};
