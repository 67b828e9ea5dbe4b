//! Normalisation of rows: layer norm and RMS norm.

use smallvec::{SmallVec, smallvec};

use super::common::cases::{Arg, Case, case, normal, permuted};
use super::common::launch::{Launch, variants_of};
use super::common::policy;
use super::common::team::Team;
use super::composed::views;
use crate::params;
use crate::runtime::{Kernel, Source, Variant};
use crate::tensor::{DType, Error, Result, Tensor};

static NORM: Source =
    Source::new::<NormParams>("norm", include_str!("../../shaders/norm/norm.wgsl"));

params! {
    struct NormParams {
        count: u32,
        len: u32,
        epsilon: f32,
        has_beta: u32,
    }
}

/// Rows of at least this many elements are reduced by a team, shorter ones by one invocation.
const MIN_TEAM_LEN: usize = 32;

/// The kernel of both norms.
#[derive(Debug, Clone, Copy, Hash)]
struct NormKernel {
    /// Whether the mean is subtracted: layer norm, not RMS norm.
    center: bool,
    /// The invocations that reduce a row.
    team: Team,
    /// Whether rows are read in vec4s.
    vec4: bool,
}

impl Kernel for NormKernel {
    type Params = NormParams;

    fn variant(&self) -> Variant {
        let variant = Variant::new(&NORM).flag("CENTER", self.center).flag("VEC4", self.vec4);
        self.team.define(variant)
    }
}

/// Divides each row of `x` `[.., width]` by its root mean square and multiplies it by `gamma`
/// `[width]`.
///
/// # Errors
///
/// Returns an error if the shapes do not fit or the memory is not available.
pub fn rms_norm(x: Tensor, gamma: Tensor, epsilon: f32) -> Result<Tensor> {
    normalise(x, gamma, None, epsilon, false)
}

/// Subtracts the mean of each row of `x` `[.., width]`, divides by the standard deviation,
/// multiplies by `gamma` `[width]` and adds `beta` `[width]`.
///
/// # Errors
///
/// Returns an error if the shapes do not fit or the memory is not available.
pub fn layer_norm(x: Tensor, gamma: Tensor, beta: Option<Tensor>, epsilon: f32) -> Result<Tensor> {
    normalise(x, gamma, beta, epsilon, true)
}

/// Normalises each row of `x`; `center`: subtracts the mean and supports `beta`.
fn normalise(
    x: Tensor,
    gamma: Tensor,
    beta: Option<Tensor>,
    epsilon: f32,
    center: bool,
) -> Result<Tensor> {
    let width = x.shape().last().copied().unwrap_or(0);
    for parameter in std::iter::once(&gamma).chain(&beta) {
        x.same_device(parameter)?;
        if parameter.shape() != [width] {
            return Err(Error::Shape {
                lhs: x.shape().to_vec(),
                rhs: parameter.shape().to_vec(),
                rule: "gamma and beta must have one element per element of a row",
            });
        }
    }
    let (x, gamma) = (views::packed(x)?, views::packed(gamma)?);
    let beta = beta.map(views::packed).transpose()?;
    let mut inputs: SmallVec<[&Tensor; 3]> = smallvec![&x, &gamma];
    if center {
        // The layout requires a beta binding; without a beta it is gamma.
        inputs.push(beta.as_ref().unwrap_or(&gamma));
    }
    let out = Tensor::empty(x.runtime(), x.shape(), DType::F32)?;
    if out.is_empty() {
        return Ok(out);
    }
    let rows = x.len() / width;
    let vec4 = width.is_multiple_of(4);
    let loads = if vec4 { width / 4 } else { width };
    let team = match width >= MIN_TEAM_LEN {
        true => policy::team_along(x.runtime(), rows, loads),
        false => Team::SINGLE,
    };
    Launch {
        kernel: &NormKernel { center, team, vec4 },
        inputs: &inputs,
        outputs: &[&out],
        params: &NormParams {
            count: rows as u32,
            len: loads as u32,
            epsilon,
            has_beta: u32::from(beta.is_some()),
        },
        workgroups: team.workgroups(rows),
        work: x.len() as u64 * 8,
    }
    .run()?;
    Ok(out)
}

/// Returns every variant that the family can dispatch.
pub fn variants() -> Vec<Variant> {
    let vec4s = policy::all_teams_along(MIN_TEAM_LEN / 4).map(|team| (team, true));
    let scalars = policy::all_teams_along(MIN_TEAM_LEN).map(|team| (team, false));
    let singles = [true, false].map(|vec4| (Team::SINGLE, vec4));
    let all = vec4s.chain(scalars).chain(singles);
    variants_of(
        all.flat_map(|(team, vec4)| [true, false].map(|center| NormKernel { center, team, vec4 })),
    )
}

/// The cases that the family must pass. burn-flex is wrong for rows with a large mean;
/// `tests/definitions.rs` tests them.
pub const CASES: &[Case] = &[
    case("rms_norm", &[normal(&[5, 64]), normal(&[64]), Arg::Float(1e-5)]),
    case("rms_norm", &[normal(&[2, 3, 7]), normal(&[7]), Arg::Float(1e-5)]),
    case("rms_norm", &[permuted(&[300, 4], &[1, 0]), normal(&[300]), Arg::Float(1e-5)]),
    case("layer_norm", &[normal(&[5, 64]), normal(&[64]), normal(&[64]), Arg::Float(1e-5)]),
    case("layer_norm", &[normal(&[5, 64]), normal(&[64]), Arg::Absent, Arg::Float(1e-5)]),
    case("layer_norm", &[normal(&[70, 3, 7]), normal(&[7]), normal(&[7]), Arg::Float(1e-3)]),
    case("layer_norm", &[normal(&[9, 1]), normal(&[1]), normal(&[1]), Arg::Float(1e-5)]),
    case("layer_norm", &[normal(&[1000]), normal(&[1000]), normal(&[1000]), Arg::Float(1e-5)]),
    case(
        "layer_norm",
        &[permuted(&[300, 4], &[1, 0]), normal(&[300]), normal(&[300]), Arg::Float(1e-5)],
    ),
    case("layer_norm", &[normal(&[0, 7]), normal(&[7]), Arg::Absent, Arg::Float(1e-5)]),
];
