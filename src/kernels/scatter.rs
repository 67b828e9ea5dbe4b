//! Adds values along one axis at the positions of a tensor of indices: scatter, select and the
//! gradient of an embedding.
//!
//! One invocation applies all updates of a line in order. On GPUs, long lines are sorted first and combined
//! in levels (`scatter_nd.rs`). Results repeat bit for bit, without atomics.

use crate::kernels::gather::expand_indices;
use crate::kernels::gather_nd::locations;
use crate::kernels::launch::walk::Walk;
use crate::kernels::launch::{Launch, variants_of, workgroups_for};
use crate::kernels::ops::cases::{Case, below, bools, cases, ints};
use crate::kernels::ops::map::ScalarValue;
use crate::kernels::ops::options::ScatterOp;
use crate::kernels::scatter_nd::{combine_at, scatter_nd};
use crate::kernels::{cast, create, policy, views};
use crate::params;
use crate::runtime::{IndexedAxis, Kernel, Source, Variant, wgsl};
use crate::tensor::{DType, Error, Layout, Result, Tensor};

static SCATTER: Source =
    Source::new::<ScatterParams>("scatter", wgsl!("../../shaders/scatter/scatter.wgsl"));

params! {
    struct ScatterParams {
        count: u32,
        len: u32,
        index_stride: i32,
        value_stride: i32,
        size: u32,
        stride: i32,
        pad0: u32,
        pad1: u32,
        walk: Walk,
    }
}

/// The kernel that adds values along an axis.
#[derive(Debug, Clone, Copy, Hash)]
struct ScatterKernel {
    /// The type of the elements.
    dtype: DType,
}

impl Kernel for ScatterKernel {
    type Params = ScatterParams;

    fn variant(&self) -> Variant {
        let combine = if self.dtype == DType::Bool { "a | b" } else { "a + b" };
        Variant::new(&SCATTER).ty("E", self.dtype.wgsl()).expr("COMBINE", combine)
    }
}

/// Computes `tensor[.., indices[i], ..] += values[i]` along `axis`; `or` for booleans. An index
/// outside the axis is reported and skipped.
///
/// # Errors
///
/// Returns an error if the shapes do not fit or the memory is not available; so do the functions
/// below.
pub fn scatter_add(axis: usize, tensor: Tensor, indices: Tensor, values: Tensor) -> Result<Tensor> {
    tensor.same_device(&indices)?;
    tensor.same_device(&values)?;
    let indices = cast::indices(indices)?;
    let rank = tensor.shape().len();
    let fits = values.shape() == indices.shape()
        && rank == indices.shape().len()
        && (0..rank).all(|i| i == axis || indices.shape()[i] <= tensor.shape()[i]);
    if !fits {
        return Err(Error::Shape {
            lhs: tensor.shape().to_vec(),
            rhs: indices.shape().to_vec(),
            rule: "indices and values must have the same shape, of the tensor's rank, which may \
                   exceed the tensor along the scattered axis only",
        });
    }
    if values.is_empty() {
        return Ok(tensor);
    }
    if tensor.is_empty() {
        return Err(Error::Shape {
            lhs: tensor.shape().to_vec(),
            rhs: indices.shape().to_vec(),
            rule: "the scattered axis must not be empty",
        });
    }
    let lines = values.len() / values.shape()[axis];
    let same_lines = (0..rank).all(|i| i == axis || indices.shape()[i] == tensor.shape()[i]);
    if same_lines && policy::of(tensor.runtime()).pays_to_sort_lines(values.shape()[axis], lines) {
        return scatter_sorted(axis, tensor, indices, values);
    }
    let mut out = views::writable(tensor)?;
    let max_updates = policy::of(out.runtime()).updates_per_launch();
    for start in (0..values.shape()[axis]).step_by(max_updates) {
        let len = max_updates.min(values.shape()[axis] - start);
        let part = |tensor: &Tensor| tensor.view(tensor.layout().narrow(axis, start, len));
        out = scatter_in_order(axis, out, &part(&indices), &part(&values))?;
    }
    Ok(out)
}

/// Applies the updates of each line in order, one invocation per line.
fn scatter_in_order(axis: usize, out: Tensor, indices: &Tensor, values: &Tensor) -> Result<Tensor> {
    // The start of each line: the axis is reduced to its first element.
    let line_starts = |layout: &Layout| {
        layout.edited(|shape, _| {
            *shape = values.shape().into();
            shape[axis] = 1;
        })
    };
    let out_starts = line_starts(out.layout());
    let index_starts = line_starts(indices.layout());
    let value_starts = line_starts(values.layout());
    let stride = |tensor: &Tensor| tensor.layout().strides[axis] as i32;
    let lines = values.len() / values.shape()[axis];
    Launch {
        kernel: &ScatterKernel { dtype: out.dtype() },
        inputs: &[indices, values],
        outputs: &[&out],
        params: &ScatterParams {
            count: lines as u32,
            len: values.shape()[axis] as u32,
            index_stride: stride(indices),
            value_stride: stride(values),
            size: out.shape()[axis] as u32,
            stride: stride(&out),
            pad0: 0,
            pad1: 0,
            walk: Walk::new(&[&out_starts, &index_starts, &value_starts])?,
        },
        workgroups: workgroups_for(lines),
        work: values.len() as u64,
        rounds: Some(values.shape()[axis] as u64),
    }
    .run_indexed(&[IndexedAxis { axis, size: out.shape()[axis] }], &[])?;
    Ok(out)
}

/// Sorts the updates of all lines by their location. All axes but `axis` have equal sizes.
fn scatter_sorted(axis: usize, tensor: Tensor, indices: Tensor, values: Tensor) -> Result<Tensor> {
    let last = tensor.shape().len() - 1;
    // Lines become rows.
    let rows = |tensor| views::packed(views::swap_dims(tensor, axis, last)?);
    let (tensor, indices, values) = (rows(tensor)?, rows(indices)?, rows(values)?);
    let shape = tensor.shape().to_vec();
    let len = indices.shape()[last];
    let indexed = IndexedAxis { axis, size: shape[last] };
    let locations = locations(&[indexed], views::reshape(indices, &[values.len(), 1])?, len)?;
    let flat = views::reshape(tensor, &[shape.iter().product()])?;
    let flat = combine_at(flat, locations, values, ScatterOp::Add)?;
    views::swap_dims(views::reshape(flat, &shape)?, axis, last)
}

/// Adds slices of `values` to the slices of `tensor` along `axis` at one-dimensional `indices`;
/// `or` for booleans.
pub fn select_add(tensor: Tensor, axis: usize, indices: Tensor, values: Tensor) -> Result<Tensor> {
    let rows = indices.len();
    if axis == 0 && policy::of(tensor.runtime()).pays_to_sort_updates(rows) {
        let indices = views::reshape(indices, &[rows, 1])?;
        return scatter_nd(tensor, indices, values, ScatterOp::Add);
    }
    let indices = expand_indices(indices, axis, values.shape())?;
    scatter_add(axis, tensor, indices, values)
}

/// Computes the gradient of [`embedding`](super::gather::embedding) with respect to its weights.
pub fn embedding_backward(weights: Tensor, grad: Tensor, indices: Tensor) -> Result<Tensor> {
    let zeros =
        create::full(weights.runtime(), weights.shape(), ScalarValue::Float(0.0), DType::F32)?;
    let rows = indices.len();
    let grad = views::reshape(grad, &[rows, weights.shape()[1]])?;
    select_add(zeros, 0, views::reshape(indices, &[rows])?, grad)
}

/// Returns every variant that the family can dispatch.
pub fn variants() -> Vec<Variant> {
    variants_of(DType::COMPUTE_TYPES.map(|dtype| ScatterKernel { dtype }))
}

/// The cases that the family must pass.
pub const CASES: &[Case] = cases! {
    float_scatter_add(0, [3, 8], below(3, &[9000, 8]), [9000, 8]);
    float_scatter_add(1, [2, 5], below(5, &[2, 9000]), [2, 9000]);
    int_scatter_add(0, ints(&[7]), below(7, &[9000]), ints(&[9000]));
    float_scatter_add(1, [4, 6], below(6, &[4, 9]), [4, 9]);
    float_scatter_add(0, [4, 6], below(4, &[9, 6]), [9, 6]);
    float_select_add([5, 4], 0, below(5, &[9]), [9, 4]);
    float_select_add([5, 4], 1, below(4, &[9]), [5, 9]);
    int_scatter_add(1, ints(&[4, 6]), below(6, &[4, 9]), ints(&[4, 9]));
    int_select_add(ints(&[5, 4]), 0, below(5, &[9]), ints(&[9, 4]));
    bool_scatter_or(1, bools(&[4, 6]), below(6, &[4, 9]), bools(&[4, 9]));
    bool_select_or(bools(&[5, 4]), 0, below(5, &[9]), bools(&[9, 4]));
    float_select_add([7], 0, below(7, &[5000]), [5000]);
    embedding_backward([11, 8], [6, 100, 8], below(11, &[6, 100]));
    // Locations of two digits.
    embedding_backward([700, 4], [2, 900, 4], below(700, &[2, 900]));
    embedding_backward([11, 8], [3, 7, 8], below(11, &[3, 7]));
};
