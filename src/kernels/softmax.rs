//! Softmax and its logarithm along an axis.

use super::cases::{Arg, Case, case, normal, permuted};
use super::team::Team;
use super::{Launch, copy};
use crate::runtime::{Source, Variant};
use crate::tensor::{DType, Result, Tensor};

static SOFTMAX: Source =
    Source { name: "softmax", text: include_str!("../../shaders/softmax/softmax.wgsl") };

fn variant(log: bool, team: Team, quads: bool) -> Variant {
    team.define(Variant::new(&SOFTMAX).flag("LOG", log).flag("QUADS", quads))
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
    let row = len >= 32 && stride == 1;
    let quads = row && len.is_multiple_of(4);
    let words = if quads { len / 4 } else { len };
    let team = if row { Team::along(tensor.runtime(), lines, words) } else { Team::ALONE };
    Launch {
        variant: &variant(log, team, quads),
        inputs: &[&tensor],
        outputs: &[&out],
        params: &[lines as u32, words as u32, stride as u32, 0],
        groups: team.groups(lines),
        work: tensor.len() as u64 * 8,
    }
    .run()?;
    Ok(out)
}

/// Every variant that can be asked for.
pub fn variants() -> Vec<Variant> {
    let rows = Team::all_along().flat_map(|team| [true, false].map(|quads| (team, quads)));
    let all = std::iter::once((Team::ALONE, false)).chain(rows);
    all.flat_map(|(team, quads)| [false, true].map(|log| variant(log, team, quads))).collect()
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
