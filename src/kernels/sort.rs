//! Sorting along an axis, stably, without reading anything back.

use super::cases::{Arg, Case, case, ints, normal, positive};
use super::{Launch, copy, div_up};
use crate::runtime::{Source, Variant};
use crate::tensor::{DType, Result, Tensor};

static SORT: Source = Source { name: "sort", text: include_str!("../../shaders/sort/sort.wgsl") };

/// Elements that the first step sorts together.
const BLOCK: usize = 32;

fn variant(dtype: DType, first: bool, descending: bool) -> Variant {
    Variant::new(&SORT)
        .ty("E", dtype.wgsl())
        .int("BLOCK", BLOCK as u32)
        .flag("FLOAT", dtype == DType::F32)
        .flag("FIRST", first)
        .flag("DESCENDING", descending)
}

/// The elements in order along an axis, and where each was. Of equals the first stays first. Floats are in the
/// order of their bits: NaN is greater than infinity.
///
/// # Errors
///
/// When the memory is not there; so too for the functions below.
pub fn with_indices(tensor: Tensor, axis: usize, descending: bool) -> Result<(Tensor, Tensor)> {
    let last = tensor.shape().len() - 1;
    let exchanged = |tensor: Tensor| copy::swap_dims(tensor, axis, last);
    let tensor = copy::packed(exchanged(tensor)?)?;
    let line = tensor.shape()[last];
    let (mut values, mut indices) = step(&[&tensor], line, None, descending)?;
    let mut run = BLOCK;
    while run < line {
        (values, indices) = step(&[&values, &indices], line, Some(run), descending)?;
        run *= 2;
    }
    Ok((exchanged(values)?, exchanged(indices)?))
}

/// One step: blocks sorted on their own, or sorted runs of so many merged in pairs.
fn step(
    inputs: &[&Tensor],
    line: usize,
    run: Option<usize>,
    descending: bool,
) -> Result<(Tensor, Tensor)> {
    let values = inputs[0];
    let empty = |dtype| Tensor::empty(values.runtime(), values.shape(), dtype, inputs);
    let (sorted, indices) = (empty(values.dtype())?, empty(DType::I32)?);
    if !values.is_empty() {
        Launch {
            variant: &variant(values.dtype(), run.is_none(), descending),
            inputs,
            outputs: &[&sorted, &indices],
            params: &[values.len() as u32, line as u32, run.unwrap_or(0) as u32, 0],
            groups: div_up(values.len(), 64),
            work: (values.len() * BLOCK) as u64,
        }
        .run()?;
    }
    Ok((sorted, indices))
}

/// The elements in order.
pub fn sort(tensor: Tensor, axis: usize, descending: bool) -> Result<Tensor> {
    Ok(with_indices(tensor, axis, descending)?.0)
}

/// Where each element of the order was.
pub fn argsort(tensor: Tensor, axis: usize, descending: bool) -> Result<Tensor> {
    Ok(with_indices(tensor, axis, descending)?.1)
}

/// The `count` greatest elements, in descending order.
pub fn topk(tensor: Tensor, axis: usize, count: usize) -> Result<Tensor> {
    let count = count.min(tensor.shape()[axis]);
    copy::packed(copy::narrow(sort(tensor, axis, true)?, axis, 0, count)?)
}

/// Every variant that can be asked for.
pub fn variants() -> Vec<Variant> {
    let mut out = Vec::new();
    for dtype in DType::COMPUTE_TYPES.into_iter().filter(|&dtype| dtype != DType::Bool) {
        for bits in 0..4 {
            out.push(variant(dtype, bits & 1 == 1, bits & 2 == 2));
        }
    }
    out
}

/// What the family must pass.
pub const CASES: &[Case] = &[
    case("float_sort", &[normal(&[7]), Arg::Int(0), Arg::Switch(false)]),
    case("float_sort", &[positive(&[3, 1000]), Arg::Int(1), Arg::Switch(true)]),
    case("float_sort", &[positive(&[65, 3, 2]), Arg::Int(0), Arg::Switch(false)]),
    case("float_sort", &[normal(&[2, 0]), Arg::Int(1), Arg::Switch(false)]),
    case("float_sort", &[positive(&[40, 9]), Arg::Int(0), Arg::Switch(true)]),
    case(
        "float_sort_with_indices",
        &[positive(&[3, 100]), Arg::Int(1), Arg::Switch(false), Arg::IntType],
    ),
    case("float_argsort", &[positive(&[33, 4]), Arg::Int(0), Arg::Switch(true), Arg::IntType]),
    case("float_topk", &[positive(&[5, 90]), Arg::Int(1), Arg::Int(7)]),
    case("int_sort", &[ints(&[4, 130]), Arg::Int(1), Arg::Switch(false)]),
    case("int_sort", &[ints(&[70, 2]), Arg::Int(0), Arg::Switch(true)]),
    // Of few elements burn-flex keeps ties in order too.
    case("int_sort_with_indices", &[ints(&[3, 15]), Arg::Int(1), Arg::Switch(true)]),
    case("int_argsort", &[ints(&[15, 3]), Arg::Int(0), Arg::Switch(false)]),
    case("int_topk", &[ints(&[5, 90]), Arg::Int(0), Arg::Int(2)]),
];
