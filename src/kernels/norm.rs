//! Normalisation of rows.

use super::cases::{Arg, Case, case, normal, permuted};
use super::{Launch, copy};
use crate::runtime::{Source, Variant};
use crate::tensor::{DType, Error, Result, Tensor};

static RMS_NORM: Source =
    Source { name: "rms_norm", text: include_str!("../../shaders/norm/rms_norm.wgsl") };

fn variant(lanes: u32) -> Variant {
    Variant::new(&RMS_NORM).int("LANES", lanes)
}

/// Each row of `x` `[.., width]` divided by its root mean square, times `gamma` `[width]`.
///
/// # Errors
///
/// When the shapes do not fit or the memory is not there.
pub fn rms_norm(x: Tensor, gamma: Tensor, epsilon: f32) -> Result<Tensor> {
    x.same_device(&gamma)?;
    let width = x.shape().last().copied().unwrap_or(0);
    if gamma.shape() != [width] {
        return Err(Error::Shape {
            lhs: x.shape().to_vec(),
            rhs: gamma.shape().to_vec(),
            rule: "gamma has one element for each of a row's",
        });
    }
    let (x, gamma) = (copy::packed(x)?, copy::packed(gamma)?);
    let out = Tensor::empty(x.runtime(), x.shape(), DType::F32, &[&x, &gamma])?;
    if out.is_empty() {
        return Ok(out);
    }
    let rows = x.len() / width;
    Launch {
        variant: &variant(if x.runtime().is_software() { 8 } else { 128 }),
        inputs: &[&x, &gamma],
        outputs: &[&out],
        params: &[rows as u32, width as u32, epsilon.to_bits(), 0],
        groups: rows as u64,
        work: x.len() as u64 * 4,
    }
    .run()?;
    Ok(out)
}

/// Every variant that can be asked for.
pub fn variants() -> Vec<Variant> {
    vec![variant(8), variant(128)]
}

/// What the family must pass.
pub const CASES: &[Case] = &[
    case("rms_norm", &[normal(&[5, 64]), normal(&[64]), Arg::Float(1e-5)]),
    case("rms_norm", &[normal(&[2, 3, 7]), normal(&[7]), Arg::Float(1e-5)]),
    case("rms_norm", &[permuted(&[300, 4], &[1, 0]), normal(&[300]), Arg::Float(1e-5)]),
];
