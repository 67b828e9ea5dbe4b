//! Sorting along an axis: a stable merge sort without readbacks.

use super::common::cases::{Arg, Case, case, ints, normal, positive};
use super::common::launch::{Launch, variants_of, workgroups_for};
use super::composed::views;
use crate::params;
use crate::runtime::{Kernel, Source, Variant, wgsl};
use crate::tensor::{DType, Result, Tensor};

static SORT: Source = Source::new::<SortParams>("sort", wgsl!("../../shaders/sort/sort.wgsl"));

params! {
    struct SortParams {
        count: u32,
        line_len: u32,
        run_len: u32,
        pad0: u32,
    }
}

/// Elements of a block, which the first pass sorts.
const BLOCK_SIZE: usize = 32;

/// The kernel of a pass.
#[derive(Debug, Clone, Copy, Hash)]
struct SortKernel {
    /// The type of the elements.
    dtype: DType,
    /// Whether the pass sorts blocks; otherwise it merges runs.
    block_pass: bool,
    /// Whether the order is descending.
    descending: bool,
}

impl Kernel for SortKernel {
    type Params = SortParams;

    fn variant(&self) -> Variant {
        let Self { dtype, block_pass, descending } = *self;
        Variant::new(&SORT)
            .ty("E", dtype.wgsl())
            .int("BLOCK_SIZE", BLOCK_SIZE as u32)
            .flag("FLOAT", dtype == DType::F32)
            .flag("BLOCK_PASS", block_pass)
            .flag("DESCENDING", descending)
    }
}

/// Sorts the elements along an axis, and returns them and their original indices. The sort is
/// stable. Floats are ordered by their bits: NaN is greater than infinity.
///
/// # Errors
///
/// Returns an error if the memory is not available; so do the functions below.
pub fn with_indices(tensor: Tensor, axis: usize, descending: bool) -> Result<(Tensor, Tensor)> {
    let last = tensor.shape().len() - 1;
    let swapped = |tensor: Tensor| views::swap_dims(tensor, axis, last);
    let tensor = views::packed(swapped(tensor)?)?;
    let line_len = tensor.shape()[last];
    let (mut values, mut indices) = sort_pass(&[&tensor], line_len, None, descending)?;
    let mut run_len = BLOCK_SIZE;
    while run_len < line_len {
        (values, indices) = sort_pass(&[&values, &indices], line_len, Some(run_len), descending)?;
        run_len *= 2;
    }
    Ok((swapped(values)?, swapped(indices)?))
}

/// Runs one pass: sorts the blocks of the values, or, given `run_len`, merges pairs of sorted runs
/// of the values and their indices.
fn sort_pass(
    inputs: &[&Tensor],
    line_len: usize,
    run_len: Option<usize>,
    descending: bool,
) -> Result<(Tensor, Tensor)> {
    let values = inputs[0];
    let empty = |dtype| Tensor::empty(values.runtime(), values.shape(), dtype);
    let (sorted, indices) = (empty(values.dtype())?, empty(DType::I32)?);
    if !values.is_empty() {
        Launch {
            kernel: &SortKernel {
                dtype: values.dtype(),
                block_pass: run_len.is_none(),
                descending,
            },
            inputs,
            outputs: &[&sorted, &indices],
            params: &SortParams {
                count: values.len() as u32,
                line_len: line_len as u32,
                run_len: run_len.unwrap_or(0) as u32,
                pad0: 0,
            },
            workgroups: workgroups_for(values.len()),
            work: (values.len() * BLOCK_SIZE) as u64,
        }
        .run()?;
    }
    Ok((sorted, indices))
}

/// Sorts the elements along an axis.
pub fn sort(tensor: Tensor, axis: usize, descending: bool) -> Result<Tensor> {
    Ok(with_indices(tensor, axis, descending)?.0)
}

/// Returns the original indices of the sorted elements.
pub fn argsort(tensor: Tensor, axis: usize, descending: bool) -> Result<Tensor> {
    Ok(with_indices(tensor, axis, descending)?.1)
}

/// Returns the `count` largest elements along an axis, in descending order.
pub fn topk(tensor: Tensor, axis: usize, count: usize) -> Result<Tensor> {
    let count = count.min(tensor.shape()[axis]);
    views::packed(views::narrow(sort(tensor, axis, true)?, axis, 0, count)?)
}

/// Returns every variant that the family can dispatch.
pub fn variants() -> Vec<Variant> {
    let mut kernels = Vec::new();
    for dtype in DType::COMPUTE_TYPES.into_iter().filter(|&dtype| dtype != DType::Bool) {
        for descending in [false, true] {
            kernels.extend([false, true].map(|block_pass| SortKernel {
                dtype,
                block_pass,
                descending,
            }));
        }
    }
    variants_of(kernels)
}

/// The cases that the family must pass.
pub const CASES: &[Case] = &[
    case("float_sort", &[normal(&[7]), Arg::Int(0), Arg::Flag(false)]),
    case("float_sort", &[positive(&[3, 1000]), Arg::Int(1), Arg::Flag(true)]),
    case("float_sort", &[positive(&[65, 3, 2]), Arg::Int(0), Arg::Flag(false)]),
    case("float_sort", &[normal(&[2, 0]), Arg::Int(1), Arg::Flag(false)]),
    case("float_sort", &[positive(&[40, 9]), Arg::Int(0), Arg::Flag(true)]),
    case(
        "float_sort_with_indices",
        &[positive(&[3, 100]), Arg::Int(1), Arg::Flag(false), Arg::IntType],
    ),
    case("float_argsort", &[positive(&[33, 4]), Arg::Int(0), Arg::Flag(true), Arg::IntType]),
    case("float_topk", &[positive(&[5, 90]), Arg::Int(1), Arg::Int(7)]),
    case("int_sort", &[ints(&[4, 130]), Arg::Int(1), Arg::Flag(false)]),
    case("int_sort", &[ints(&[70, 2]), Arg::Int(0), Arg::Flag(true)]),
    // The reference, the CPU backend, is stable only for few elements.
    case("int_sort_with_indices", &[ints(&[3, 15]), Arg::Int(1), Arg::Flag(true)]),
    case("int_argsort", &[ints(&[15, 3]), Arg::Int(0), Arg::Flag(false)]),
    case("int_topk", &[ints(&[5, 90]), Arg::Int(0), Arg::Int(2)]),
];
