//! Softmax and its logarithm along an axis.

use super::cases::{Arg, Case, case, normal, permuted};
use super::{Launch, copy, div_up};
use crate::runtime::{Source, Variant};
use crate::tensor::{DType, Result, Tensor};

static SOFTMAX: Source = Source { name: "softmax", text: include_str!("../../shaders/softmax/softmax.wgsl") };

/// How a line is walked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// By one invocation.
    Line,
    /// By a workgroup.
    Row { lanes: u32, quads: bool },
}

fn variant(log: bool, mode: Mode) -> Variant {
    let variant = Variant::new(&SOFTMAX).flag("LOG", log);
    match mode {
        Mode::Line => variant,
        Mode::Row { lanes, quads } => variant.flag("ROW", true).int("LANES", lanes).flag("QUADS", quads),
    }
}

/// `e^x / sum of e^x` along an axis.
///
/// # Errors
///
/// When the memory is not there.
pub fn softmax(tensor: Tensor, axis: usize) -> Result<Tensor> {
    along(tensor, axis, false)
}

/// The logarithm of [`softmax`], without taking that of tiny numbers.
///
/// # Errors
///
/// When the memory is not there.
pub fn log_softmax(tensor: Tensor, axis: usize) -> Result<Tensor> {
    along(tensor, axis, true)
}

fn along(tensor: Tensor, axis: usize, log: bool) -> Result<Tensor> {
    let tensor = copy::packed(tensor)?;
    let out = Tensor::empty(tensor.runtime(), tensor.shape(), DType::F32, &[&tensor])?;
    let len = tensor.shape()[axis];
    if tensor.is_empty() {
        return Ok(out);
    }
    let stride: usize = tensor.shape()[axis + 1..].iter().product();
    let lines = tensor.len() / len;
    // On a software adapter a workgroup is one subgroup: its barriers cost nothing.
    let lanes = if tensor.runtime().is_software() { 8 } else { 128 };
    let row = len >= 32 && stride == 1;
    let quads = row && len.is_multiple_of(4);
    let mode = if row { Mode::Row { lanes, quads } } else { Mode::Line };
    Launch {
        variant: &variant(log, mode),
        inputs: &[&tensor],
        outputs: &[&out],
        params: &[lines as u32, if quads { len / 4 } else { len } as u32, stride as u32, 0],
        groups: if row { lines as u64 } else { div_up(lines, 64) },
        work: tensor.len() as u64 * 8,
    }
    .run()?;
    Ok(out)
}

/// Every variant that can be asked for.
pub fn variants() -> Vec<Variant> {
    let rows = [8, 128].into_iter().flat_map(|lanes| [true, false].map(|quads| Mode::Row { lanes, quads }));
    let modes = std::iter::once(Mode::Line).chain(rows);
    modes.flat_map(|mode| [variant(false, mode), variant(true, mode)]).collect()
}

/// What the family must pass.
pub const CASES: &[Case] = &[
    case("softmax", &[normal(&[7, 10]), Arg::Int(1)]),
    case("softmax", &[normal(&[7, 300]), Arg::Int(1)]),
    case("softmax", &[normal(&[3, 40, 5]), Arg::Int(1)]),
    case("softmax", &[permuted(&[40, 6], &[1, 0]), Arg::Int(1)]),
    case("log_softmax", &[normal(&[64, 10]), Arg::Int(1)]),
    case("log_softmax", &[normal(&[9, 1000]), Arg::Int(1)]),
    case("log_softmax", &[normal(&[9, 3]), Arg::Int(0)]),
    case("softmax", &[normal(&[5, 301]), Arg::Int(1)]),
    case("log_softmax", &[normal(&[3, 65]), Arg::Int(1)]),
    case("softmin", &[normal(&[9, 3]), Arg::Int(1)]),
];
