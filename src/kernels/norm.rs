//! Normalisation of rows.

use smallvec::{SmallVec, smallvec};

use super::cases::{Arg, Case, case, normal, permuted};
use super::team::Team;
use super::{Launch, copy};
use crate::runtime::{Source, Variant};
use crate::tensor::{DType, Error, Result, Tensor};

static NORM: Source = Source { name: "norm", text: include_str!("../../shaders/norm/norm.wgsl") };

fn variant(center: bool, team: Team, quads: bool) -> Variant {
    team.define(Variant::new(&NORM).flag("CENTER", center).flag("QUADS", quads))
}

/// Each row of `x` `[.., width]` divided by its root mean square, times `gamma` `[width]`.
///
/// # Errors
///
/// When the shapes do not fit or the memory is not there.
pub fn rms_norm(x: Tensor, gamma: Tensor, epsilon: f32) -> Result<Tensor> {
    normalise(x, gamma, None, epsilon, false)
}

/// Each row of `x` `[.., width]` less its mean, divided by its standard deviation, times `gamma` `[width]`, plus
/// `beta` `[width]`.
///
/// # Errors
///
/// When the shapes do not fit or the memory is not there.
pub fn layer_norm(x: Tensor, gamma: Tensor, beta: Option<Tensor>, epsilon: f32) -> Result<Tensor> {
    normalise(x, gamma, beta, epsilon, true)
}

fn normalise(
    x: Tensor,
    gamma: Tensor,
    beta: Option<Tensor>,
    epsilon: f32,
    center: bool,
) -> Result<Tensor> {
    let width = x.shape().last().copied().unwrap_or(0);
    for scale in std::iter::once(&gamma).chain(&beta) {
        x.same_device(scale)?;
        if scale.shape() != [width] {
            return Err(Error::Shape {
                lhs: x.shape().to_vec(),
                rhs: scale.shape().to_vec(),
                rule: "gamma and beta have one element for each of a row's",
            });
        }
    }
    let (x, gamma) = (copy::packed(x)?, copy::packed(gamma)?);
    let beta = beta.map(copy::packed).transpose()?;
    let mut inputs: SmallVec<[&Tensor; 3]> = smallvec![&x, &gamma];
    if center {
        // Without a beta something must still be bound in its place.
        inputs.push(beta.as_ref().unwrap_or(&gamma));
    }
    let out = Tensor::empty(x.runtime(), x.shape(), DType::F32, &inputs)?;
    if out.is_empty() {
        return Ok(out);
    }
    let rows = x.len() / width;
    let quads = width.is_multiple_of(4);
    let words = if quads { width / 4 } else { width };
    let team = if width >= 32 { Team::along(x.runtime(), rows, words) } else { Team::ALONE };
    Launch {
        variant: &variant(center, team, quads),
        inputs: &inputs,
        outputs: &[&out],
        params: &[rows as u32, words as u32, epsilon.to_bits(), u32::from(beta.is_some())],
        groups: team.groups(rows),
        work: x.len() as u64 * 8,
    }
    .run()?;
    Ok(out)
}

/// Every variant that can be asked for.
pub fn variants() -> Vec<Variant> {
    let teams = Team::all_along().chain([Team::ALONE]);
    let all = teams.flat_map(|team| [true, false].map(|quads| (team, quads)));
    all.flat_map(|(team, quads)| [true, false].map(|center| variant(center, team, quads))).collect()
}

/// What the family must pass. `tests/definitions.rs` checks rows with a large mean, which burn-flex gets wrong.
pub const CASES: &[Case] = &[
    case("rms_norm", &[normal(&[5, 64]), normal(&[64]), Arg::Float(1e-5)]),
    case("rms_norm", &[normal(&[2, 3, 7]), normal(&[7]), Arg::Float(1e-5)]),
    case("rms_norm", &[permuted(&[300, 4], &[1, 0]), normal(&[300]), Arg::Float(1e-5)]),
    case("layer_norm", &[normal(&[5, 64]), normal(&[64]), normal(&[64]), Arg::Float(1e-5)]),
    case("layer_norm", &[normal(&[5, 64]), normal(&[64]), Arg::Without, Arg::Float(1e-5)]),
    case("layer_norm", &[normal(&[70, 3, 7]), normal(&[7]), normal(&[7]), Arg::Float(1e-3)]),
    case("layer_norm", &[normal(&[9, 1]), normal(&[1]), normal(&[1]), Arg::Float(1e-5)]),
    case("layer_norm", &[normal(&[1000]), normal(&[1000]), normal(&[1000]), Arg::Float(1e-5)]),
    case(
        "layer_norm",
        &[permuted(&[300, 4], &[1, 0]), normal(&[300]), normal(&[300]), Arg::Float(1e-5)],
    ),
    case("layer_norm", &[normal(&[0, 7]), normal(&[7]), Arg::Without, Arg::Float(1e-5)]),
];
