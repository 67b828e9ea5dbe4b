//! The cross product of vectors along an axis.

use smallvec::SmallVec;

use super::cases::{Arg, Case, case, normal, permuted};
use super::{Launch, Params, div_up, walk};
use crate::runtime::{Source, Variant};
use crate::tensor::{DType, Error, Layout, Result, Tensor, broadcast};

static CROSS: Source =
    Source { name: "cross", text: include_str!("../../shaders/elementwise/cross.wgsl") };

/// The cross products of the vectors along `axis`, which has size three in both; the other axes broadcast.
///
/// # Errors
///
/// When the shapes do not fit or the memory is not there.
pub fn cross(lhs: Tensor, rhs: Tensor, axis: usize) -> Result<Tensor> {
    lhs.same_device(&rhs)?;
    let error = || Error::Shape {
        lhs: lhs.shape().to_vec(),
        rhs: rhs.shape().to_vec(),
        rule: "both must have as many axes, three elements along that of the product, and broadcast",
    };
    let threes = [&lhs, &rhs].map(|tensor| tensor.shape().get(axis) == Some(&3));
    if threes != [true, true] || lhs.shape().len() != rhs.shape().len() {
        return Err(error());
    }
    let shape = broadcast(lhs.shape(), rhs.shape()).ok_or_else(error)?;
    let out = Tensor::empty(lhs.runtime(), &shape, DType::F32, &[&lhs, &rhs])?;
    if out.is_empty() {
        return Ok(out);
    }
    let spread = |tensor: &Tensor| tensor.layout().expand(&shape).ok_or_else(error);
    let layouts = [out.layout().clone(), spread(&lhs)?, spread(&rhs)?];
    // The walk is over the vectors; a step along the axis leads from one component to the next.
    let others: SmallVec<[usize; 6]> = (0..shape.len()).filter(|&other| other != axis).collect();
    let vectors: [Layout; 3] = [0, 1, 2].map(|i: usize| layouts[i].permute(&others));
    let count = out.len() / 3;
    let mut params: Params = SmallVec::new();
    params.push(count as u32);
    params.extend([0, 1, 2].map(|i: usize| layouts[i].strides[axis] as i32 as u32));
    params.extend_from_slice(&walk(&[&vectors[0], &vectors[1], &vectors[2]])?.0);
    Launch {
        variant: &Variant::new(&CROSS),
        inputs: &[&lhs, &rhs],
        outputs: &[&out],
        params: &params,
        groups: div_up(count, 64),
        work: out.len() as u64,
    }
    .run()?;
    Ok(out)
}

/// Every variant that can be asked for.
pub fn variants() -> Vec<Variant> {
    vec![Variant::new(&CROSS)]
}

/// What the family must pass.
pub const CASES: &[Case] = &[
    case("float_cross", &[normal(&[5, 3]), normal(&[5, 3]), Arg::Int(1)]),
    case("float_cross", &[normal(&[3, 70]), normal(&[3, 70]), Arg::Int(0)]),
    case("float_cross", &[normal(&[2, 3, 4]), permuted(&[4, 3, 2], &[2, 1, 0]), Arg::Int(1)]),
    case("float_cross", &[normal(&[2, 1, 3]), normal(&[1, 4, 3]), Arg::Int(2)]),
    case("float_cross", &[normal(&[3]), normal(&[3]), Arg::Int(0)]),
    case("float_cross", &[normal(&[0, 3]), normal(&[0, 3]), Arg::Int(1)]),
];
