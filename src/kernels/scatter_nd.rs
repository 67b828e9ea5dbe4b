//! Combines updates into a tensor at multi-dimensional indices.
//!
//! A stable sort orders the updates by location; each location then combines its updates in order.
//! Results repeat bit for bit, without atomics.

use super::common::cases::{Arg, Case, below, case, ints, normal, permuted};
use super::common::launch::{Launch, variants_of, workgroups_for};
use super::common::options::ScatterOp;
use super::composed::views;
use super::gather_nd::{indexed_axes, locations};
use super::sort;
use crate::params;
use crate::runtime::{Kernel, Source, Variant};
use crate::tensor::{DType, Error, Result, Tensor};

static SCATTER_ND: Source = Source::new::<ScatterNdParams>(
    "scatter_nd",
    include_str!("../../shaders/scatter_nd/scatter_nd.wgsl"),
);

params! {
    struct ScatterNdParams {
        count: u32,
        updates: u32,
        slice_len: u32,
        pad0: u32,
    }
}

/// Every [`ScatterOp`].
const SCATTER_OPS: [ScatterOp; 5] =
    [ScatterOp::Assign, ScatterOp::Add, ScatterOp::Mul, ScatterOp::Min, ScatterOp::Max];

/// Returns the WGSL expression that combines an element `a` with an update `b`.
fn combine(op: ScatterOp, dtype: DType) -> &'static str {
    let float = dtype == DType::F32;
    match op {
        ScatterOp::Assign => "b",
        ScatterOp::Add if dtype == DType::Bool => "a | b",
        ScatterOp::Add => "a + b",
        ScatterOp::Mul => "a * b",
        ScatterOp::Min if float => "nan_min(a, b)",
        ScatterOp::Min => "min(a, b)",
        ScatterOp::Max if float => "nan_max(a, b)",
        ScatterOp::Max => "max(a, b)",
    }
}

/// The kernel that combines the sorted updates of each location.
#[derive(Debug, Clone, Copy, Hash)]
struct ScatterNdKernel {
    /// The type of the elements.
    dtype: DType,
    /// How an element is combined with an update.
    op: ScatterOp,
}

impl Kernel for ScatterNdKernel {
    type Params = ScatterNdParams;

    fn variant(&self) -> Variant {
        let Self { dtype, op } = *self;
        Variant::new(&SCATTER_ND).ty("E", dtype.wgsl()).expr("COMBINE", combine(op, dtype))
    }
}

/// Combines `values` `[.., remaining axes of the tensor]` into `tensor` at `indices` `[.., k]`.
/// Each row of indices is a location in the first `k` axes. A row with an index outside its axis
/// is skipped.
///
/// # Errors
///
/// Returns an error if the shapes do not fit or the memory is not available.
pub fn scatter_nd(
    tensor: Tensor,
    indices: Tensor,
    values: Tensor,
    op: ScatterOp,
) -> Result<Tensor> {
    tensor.same_device(&indices)?;
    tensor.same_device(&values)?;
    let (axes, slice_len) = indexed_axes(tensor.shape(), indices.shape())?;
    let rows = &indices.shape()[..indices.shape().len() - 1];
    let updates: usize = rows.iter().product();
    if rows != &values.shape()[..rows.len().min(values.shape().len())]
        || values.len() != updates * slice_len
    {
        return Err(Error::Shape {
            lhs: indices.shape().to_vec(),
            rhs: values.shape().to_vec(),
            rule: "each row of indices needs a value with the shape of the tensor's remaining axes",
        });
    }
    if values.is_empty() || tensor.is_empty() {
        return Ok(tensor);
    }
    let unsorted = locations(&tensor.shape()[..axes], indices)?;
    // `order` has the index of the update at each sorted position.
    let (locations, order) = sort::with_indices(unsorted, 0, false)?;
    let (locations, order) = (views::packed(locations)?, views::packed(order)?);
    let values = views::packed(values)?;
    let out = views::writable(tensor)?;
    Launch {
        kernel: &ScatterNdKernel { dtype: out.dtype(), op },
        inputs: &[&locations, &order, &values],
        outputs: &[&out],
        params: &ScatterNdParams {
            count: values.len() as u32,
            updates: updates as u32,
            slice_len: slice_len as u32,
            pad0: 0,
        },
        workgroups: workgroups_for(values.len()),
        work: values.len() as u64,
    }
    .run()?;
    Ok(out)
}

/// Returns every variant that the family can dispatch.
pub fn variants() -> Vec<Variant> {
    let mut kernels = Vec::new();
    for dtype in DType::COMPUTE_TYPES {
        for op in SCATTER_OPS {
            if dtype != DType::Bool || op == ScatterOp::Add {
                kernels.push(ScatterNdKernel { dtype, op });
            }
        }
    }
    variants_of(kernels)
}

/// The cases that the family must pass.
pub const CASES: &[Case] = &[
    case(
        "float_scatter_nd",
        &[normal(&[5, 6]), below(5, &[40, 2]), normal(&[40]), Arg::Scatter(ScatterOp::Add)],
    ),
    case(
        "float_scatter_nd",
        &[
            normal(&[5, 6]),
            below(5, &[4, 10, 1]),
            normal(&[4, 10, 6]),
            Arg::Scatter(ScatterOp::Add),
        ],
    ),
    case(
        "float_scatter_nd",
        &[normal(&[5, 6]), below(5, &[40, 2]), normal(&[40]), Arg::Scatter(ScatterOp::Assign)],
    ),
    case(
        "float_scatter_nd",
        &[normal(&[5, 6]), below(5, &[9, 1]), normal(&[9, 6]), Arg::Scatter(ScatterOp::Mul)],
    ),
    case(
        "float_scatter_nd",
        &[normal(&[5, 6]), below(5, &[9, 1]), normal(&[9, 6]), Arg::Scatter(ScatterOp::Min)],
    ),
    case(
        "float_scatter_nd",
        &[
            permuted(&[6, 5], &[1, 0]),
            below(5, &[9, 1]),
            normal(&[9, 6]),
            Arg::Scatter(ScatterOp::Max),
        ],
    ),
    case(
        "int_scatter_nd",
        &[ints(&[5, 6]), below(5, &[40, 2]), ints(&[40]), Arg::Scatter(ScatterOp::Add)],
    ),
    case(
        "int_scatter_nd",
        &[ints(&[5, 6]), below(5, &[40, 2]), ints(&[40]), Arg::Scatter(ScatterOp::Max)],
    ),
];
