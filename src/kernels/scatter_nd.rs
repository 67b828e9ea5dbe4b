//! Combines updates into a tensor at multi-dimensional indices.
//!
//! A stable sort orders the updates by location. Those of a location are then combined in levels,
//! in a fixed order. Results repeat bit for bit, without atomics, and no invocation combines more
//! than 64 updates.

use crate::kernels::gather_nd::{first_axes, indexed_axes, locations};
use crate::kernels::launch::{Launch, variants_of, workgroups_for};
use crate::kernels::ops::cases::{Arg, Case, below, cases, ints, permuted};
use crate::kernels::ops::options::ScatterOp;
use crate::kernels::{sort, views};
use crate::params;
use crate::runtime::{Kernel, Source, Variant, wgsl};
use crate::tensor::{DType, Error, Result, Tensor};

static SCATTER_ND: Source =
    Source::new::<ScatterNdParams>("scatter_nd", wgsl!("../../shaders/scatter_nd/scatter_nd.wgsl"));

params! {
    struct ScatterNdParams {
        count: u32,
        updates: u32,
        slice_len: u32,
        stride: u32,
    }
}

/// The most updates that one invocation combines.
const FAN_IN: usize = 64;

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

/// The kernel of a level, which combines sorted updates.
#[derive(Debug, Clone, Copy, Hash)]
struct ScatterNdKernel {
    /// The type of the elements.
    dtype: DType,
    /// How an element is combined with an update.
    op: ScatterOp,
    /// Whether the level reads the updates; otherwise it reads partial results.
    first: bool,
    /// Whether the level writes to the tensor; otherwise it writes partial results.
    last: bool,
}

impl Kernel for ScatterNdKernel {
    type Params = ScatterNdParams;

    fn variant(&self) -> Variant {
        let Self { dtype, op, first, last } = *self;
        Variant::new(&SCATTER_ND)
            .ty("E", dtype.wgsl())
            .expr("COMBINE", combine(op, dtype))
            .int("FAN_IN", FAN_IN as u32)
            .flag("FIRST", first)
            .flag("LAST", last)
    }
}

/// Combines `values` `[.., remaining axes of the tensor]` into `tensor` at `indices` `[.., k]`.
/// Each row of indices is a location in the first `k` axes. A row with an index outside its axis
/// is reported and skipped.
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
    if values.is_empty() {
        return Ok(tensor);
    }
    if tensor.is_empty() {
        return Err(Error::Shape {
            lhs: tensor.shape().to_vec(),
            rhs: indices.shape().to_vec(),
            rule: "the scattered axes must not be empty",
        });
    }
    let unsorted = locations(&first_axes(&tensor.shape()[..axes]), indices, updates)?;
    combine_at(tensor, unsorted, values, op)
}

/// Combines `values` `[updates, ..]` into `tensor` `[locations, ..]`, given the location of each
/// update as i32, or -1 to skip it.
///
/// # Errors
///
/// Returns an error if the memory is not available.
pub(super) fn combine_at(
    tensor: Tensor,
    locations: Tensor,
    values: Tensor,
    op: ScatterOp,
) -> Result<Tensor> {
    let updates = locations.len();
    let slice_len = values.len() / updates;
    // `order` has the index of the update at each sorted position.
    let count = tensor.len() / slice_len;
    let (locations, order) = sort::locations(locations, count)?;
    let (locations, order) = (views::packed(locations)?, views::packed(order)?);
    let values = views::packed(values)?;
    let out = views::writable(tensor)?;
    let dtype = out.dtype();
    let partial = match updates > FAN_IN {
        true => Some(Tensor::empty(out.runtime(), &[values.len()], dtype)?),
        false => None,
    };
    let mut stride = 1;
    loop {
        let (first, last) = (stride == 1, stride * FAN_IN >= updates);
        let inputs: &[&Tensor] = match (&partial, first, last) {
            (Some(partial), false, true) => &[&locations, partial],
            (_, true, _) => &[&locations, &order, &values],
            (_, false, _) => &[&locations],
        };
        Launch {
            kernel: &ScatterNdKernel { dtype, op, first, last },
            inputs,
            outputs: &[partial.as_ref().filter(|_| !last).unwrap_or(&out)],
            params: &ScatterNdParams {
                count: values.len() as u32,
                updates: updates as u32,
                slice_len: slice_len as u32,
                stride: stride as u32,
            },
            workgroups: workgroups_for(values.len()),
            work: values.len() as u64,
            rounds: Some(FAN_IN as u64),
        }
        .run()?;
        if last {
            return Ok(out);
        }
        stride *= FAN_IN;
    }
}

/// Returns every variant that the family can dispatch.
pub fn variants() -> Vec<Variant> {
    let mut kernels = Vec::new();
    for dtype in DType::COMPUTE_TYPES {
        for op in SCATTER_OPS {
            if dtype != DType::Bool || op == ScatterOp::Add {
                let levels = [(true, true), (true, false), (false, false), (false, true)];
                kernels.extend(levels.map(|(first, last)| ScatterNdKernel {
                    dtype,
                    op,
                    first,
                    last,
                }));
            }
        }
    }
    variants_of(kernels)
}

/// The cases that the family must pass.
pub const CASES: &[Case] = cases! {
    // Several levels, as most updates have few locations.
    float_scatter_nd([3], below(3, &[5000, 1]), [5000], Arg::Scatter(ScatterOp::Add));
    float_scatter_nd([2, 3], below(2, &[300, 1]), [300, 3], Arg::Scatter(ScatterOp::Max));
    int_scatter_nd(ints(&[2]), below(2, &[5000, 1]), ints(&[5000]),
        Arg::Scatter(ScatterOp::Assign));
    float_scatter_nd([5, 6], below(5, &[40, 2]), [40], Arg::Scatter(ScatterOp::Add));
    float_scatter_nd([5, 6], below(5, &[4, 10, 1]), [4, 10, 6], Arg::Scatter(ScatterOp::Add));
    float_scatter_nd([5, 6], below(5, &[40, 2]), [40], Arg::Scatter(ScatterOp::Assign));
    float_scatter_nd([5, 6], below(5, &[9, 1]), [9, 6], Arg::Scatter(ScatterOp::Mul));
    float_scatter_nd([5, 6], below(5, &[9, 1]), [9, 6], Arg::Scatter(ScatterOp::Min));
    float_scatter_nd(permuted(&[6, 5], &[1, 0]), below(5, &[9, 1]), [9, 6],
        Arg::Scatter(ScatterOp::Max));
    int_scatter_nd(ints(&[5, 6]), below(5, &[40, 2]), ints(&[40]), Arg::Scatter(ScatterOp::Add));
    int_scatter_nd(ints(&[5, 6]), below(5, &[40, 2]), ints(&[40]), Arg::Scatter(ScatterOp::Max));
};
