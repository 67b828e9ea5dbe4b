//! Cumulative ops along an axis.

use smallvec::SmallVec;

use super::cases::{Arg, Case, case, ints, normal, permuted};
use super::{Launch, copy, div_up};
use crate::runtime::{Source, Variant};
use crate::tensor::{DType, Result, Tensor};

static SCAN: Source = Source { name: "scan", text: include_str!("../../shaders/scan/scan.wgsl") };

/// What runs along a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScanOp {
    /// The sum.
    Sum,
    /// The product.
    Prod,
    /// The greatest; NaN from the first one on.
    Max,
    /// The least; NaN from the first one on.
    Min,
}

use ScanOp::*;

impl ScanOp {
    fn variant(self, dtype: DType, mode: Mode) -> Variant {
        let combine = match (self, dtype == DType::F32) {
            (Sum, _) => "a + b",
            (Prod, _) => "a * b",
            (Max, true) => "nan_max(a, b)",
            (Max, false) => "max(a, b)",
            (Min, true) => "nan_min(a, b)",
            (Min, false) => "min(a, b)",
        };
        Variant::new(&SCAN)
            .ty("E", dtype.wgsl())
            .expr("COMBINE", combine)
            .flag("TOTALS", mode == Mode::Totals)
            .flag("CARRY", mode == Mode::Carry)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Whole,
    Totals,
    Carry,
}

/// The longest line that one invocation walks alone where there are few lines.
const ALONE: usize = 256;
/// With fewer lines than this, long ones are cut into chunks.
const BUSY: usize = 2048;

/// What each element and those before it along an axis come to.
///
/// # Errors
///
/// When the memory is not there.
pub fn scan(kind: ScanOp, tensor: Tensor, axis: usize) -> Result<Tensor> {
    let tensor = copy::packed(tensor)?;
    let (len, stride) =
        (tensor.shape()[axis], tensor.shape()[axis + 1..].iter().product::<usize>());
    if tensor.is_empty() {
        return Ok(tensor);
    }
    let lines = tensor.len() / len;
    let chunk =
        if lines >= BUSY || len <= ALONE { len } else { len.div_ceil(BUSY / lines).max(64) };
    let splits = len.div_ceil(chunk);
    let run = |mode: Mode, inputs: &[&Tensor], out: &Tensor| {
        let words = [lines * splits, splits, len, chunk, stride, 0, 0, 0].map(|v| v as u32);
        Launch {
            variant: &kind.variant(tensor.dtype(), mode),
            inputs,
            outputs: &[out],
            params: &words,
            groups: div_up(lines * splits, 64),
            work: tensor.len() as u64,
        }
        .run()
    };
    if splits == 1 {
        let out = Tensor::empty(tensor.runtime(), tensor.shape(), tensor.dtype(), &[&tensor])?;
        run(Mode::Whole, &[&tensor], &out)?;
        return Ok(out);
    }
    let totals = Tensor::empty(tensor.runtime(), &[lines, splits], tensor.dtype(), &[&tensor])?;
    run(Mode::Totals, &[&tensor], &totals)?;
    let carry = scan(kind, totals, 1)?;
    let inputs: SmallVec<[&Tensor; 2]> = SmallVec::from_slice(&[&tensor, &carry]);
    let out = Tensor::empty(tensor.runtime(), tensor.shape(), tensor.dtype(), &inputs)?;
    run(Mode::Carry, &inputs, &out)?;
    Ok(out)
}

/// Every variant that can be asked for.
pub fn variants() -> Vec<Variant> {
    let mut out = Vec::new();
    for dtype in DType::COMPUTE_TYPES.into_iter().filter(|&dtype| dtype != DType::Bool) {
        for kind in [Sum, Prod, Max, Min] {
            for mode in [Mode::Whole, Mode::Totals, Mode::Carry] {
                out.push(kind.variant(dtype, mode));
            }
        }
    }
    out
}

/// What the family must pass.
pub const CASES: &[Case] = &[
    case("float_cumsum", &[normal(&[7]), Arg::Int(0)]),
    case("float_cumsum", &[normal(&[3, 5000]), Arg::Int(1)]),
    case("float_cumsum", &[normal(&[5000, 3]), Arg::Int(0)]),
    case("float_cumsum", &[permuted(&[4, 6, 5], &[2, 0, 1]), Arg::Int(1)]),
    case("float_cumsum", &[normal(&[2, 0, 3]), Arg::Int(0)]),
    case("float_cumprod", &[normal(&[4, 9]), Arg::Int(1)]),
    case("float_cummax", &[normal(&[4, 900]), Arg::Int(1)]),
    case("float_cummin", &[normal(&[4, 9, 3]), Arg::Int(1)]),
    case("int_cumsum", &[ints(&[2, 700]), Arg::Int(1)]),
    case("int_cumprod", &[ints(&[7, 3]), Arg::Int(0)]),
    case("int_cummax", &[ints(&[7, 30]), Arg::Int(1)]),
    case("int_cummin", &[ints(&[7, 30]), Arg::Int(0)]),
];
