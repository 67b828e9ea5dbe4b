//! Sorting along an axis, stably, without reading anything back.

use smallvec::SmallVec;

use super::cases::{Arg, Case, case, ints, normal, positive};
use super::elementwise::COMPUTED;
use super::{Launch, copy, div_up};
use crate::runtime::{Source, Variant};
use crate::tensor::{DType, Result, SliceAxis, Tensor};

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
    let back = |tensor: Tensor| copy::swap_dims(tensor, axis, last);
    let mut values = copy::packed(copy::swap_dims(tensor, axis, last)?)?;
    let (runtime, shape) = (values.runtime().clone(), values.shape().to_vec());
    let line = shape[last];
    let mut indices = Tensor::empty(&runtime, &shape, DType::I32, &[])?;
    if values.is_empty() {
        return Ok((back(values)?, back(indices)?));
    }
    let mut run = 0;
    while run == 0 || run < line {
        let first = run == 0;
        let both = [&values, &indices];
        let inputs = if first { &both[..1] } else { &both[..] };
        let sorted = Tensor::empty(&runtime, &shape, values.dtype(), inputs)?;
        let places = Tensor::empty(&runtime, &shape, DType::I32, inputs)?;
        Launch {
            variant: &variant(values.dtype(), first, descending),
            inputs,
            outputs: &[&sorted, &places],
            params: &[values.len() as u32, line as u32, run as u32, 0],
            groups: div_up(values.len(), 64),
            work: (values.len() * BLOCK) as u64,
        }
        .run()?;
        (values, indices) = (sorted, places);
        run = if first { BLOCK } else { run * 2 };
    }
    Ok((back(values)?, back(indices)?))
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
    first(sort(tensor, axis, true)?, axis, count)
}

/// The first `count` along an axis, in memory of their own.
fn first(tensor: Tensor, axis: usize, count: usize) -> Result<Tensor> {
    let whole = |&len: &usize| SliceAxis { start: 0, step: 1, len };
    let mut parts: SmallVec<[SliceAxis; 6]> = tensor.shape().iter().map(whole).collect();
    parts[axis].len = count.min(parts[axis].len);
    copy::packed(copy::slice(tensor, &parts)?)
}

/// Every variant that can be asked for.
pub fn variants() -> Vec<Variant> {
    let mut out = Vec::new();
    for dtype in COMPUTED.into_iter().filter(|&dtype| dtype != DType::Bool) {
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
    case("float_sort_with_indices", &[positive(&[3, 100]), Arg::Int(1), Arg::Switch(false), Arg::IntType]),
    case("float_argsort", &[positive(&[33, 4]), Arg::Int(0), Arg::Switch(true), Arg::IntType]),
    case("float_topk", &[positive(&[5, 90]), Arg::Int(1), Arg::Int(7)]),
    case("int_sort", &[ints(&[4, 130]), Arg::Int(1), Arg::Switch(false)]),
    case("int_sort", &[ints(&[70, 2]), Arg::Int(0), Arg::Switch(true)]),
    // Of few elements burn-flex keeps ties in order too.
    case("int_sort_with_indices", &[ints(&[3, 15]), Arg::Int(1), Arg::Switch(true)]),
    case("int_argsort", &[ints(&[15, 3]), Arg::Int(0), Arg::Switch(false)]),
    case("int_topk", &[ints(&[5, 90]), Arg::Int(0), Arg::Int(2)]),
];
