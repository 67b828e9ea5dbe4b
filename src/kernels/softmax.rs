//! Softmax and its logarithm along an axis.

use super::cases::{Arg, Case, case, normal, permuted};
use super::{Launch, copy, div_up};
use crate::runtime::{Source, Variant};
use crate::tensor::{DType, Result, Tensor};

static SOFTMAX: Source = Source { name: "softmax", text: include_str!("../../shaders/softmax/softmax.wgsl") };

fn variant(log: bool, lanes: Option<u32>) -> Variant {
    Variant::new(&SOFTMAX).flag("LOG", log).flag("ROW", lanes.is_some()).int("LANES", lanes.unwrap_or(64))
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
    let lanes = if tensor.runtime().is_software() { 8 } else { 128 };
    let row = len >= 32 && stride == 1;
    Launch {
        variant: &variant(log, row.then_some(lanes)),
        inputs: &[&tensor],
        outputs: &[&out],
        params: &[lines as u32, len as u32, stride as u32, 0],
        groups: if row { lines as u64 } else { div_up(lines, 64) },
        work: tensor.len() as u64 * 8,
    }
    .run()?;
    Ok(out)
}

/// Every variant that can be asked for.
pub fn variants() -> Vec<Variant> {
    [None, Some(8), Some(128)].into_iter().flat_map(|lanes| [variant(false, lanes), variant(true, lanes)]).collect()
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
    case("softmin", &[normal(&[9, 3]), Arg::Int(1)]),
];
