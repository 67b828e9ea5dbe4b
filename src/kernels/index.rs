//! Reading and writing through a tensor of indices: gather, scatter, select and embedding.
//!
//! Selecting whole slices is gathering with the indices expanded, so each direction has one shader.
//! Scattering walks each line in order: the result repeats bit for bit, without atomics.

use smallvec::SmallVec;

use super::cases::{Arg, Case, below, case, ints, normal, permuted, truths};
use super::elementwise::Number;
use super::index_nd::{Update, scatter_nd};
use super::{Launch, Params, cast, copy, create, div_up, walk};
use crate::runtime::{Source, Variant};
use crate::tensor::{DType, Error, Layout, Result, Tensor};

static GATHER: Source =
    Source { name: "gather", text: include_str!("../../shaders/index/gather.wgsl") };
static SCATTER: Source =
    Source { name: "scatter", text: include_str!("../../shaders/index/scatter.wgsl") };

fn gather_variant(dtype: DType) -> Variant {
    Variant::new(&GATHER).ty("E", dtype.wgsl())
}

fn scatter_variant(dtype: DType) -> Variant {
    let combine = if dtype == DType::Bool { "a | b" } else { "a + b" };
    Variant::new(&SCATTER).ty("E", dtype.wgsl()).expr("COMBINE", combine)
}

/// `out[i] = tensor[.., indices[i], ..]` along `axis`; the result has the indices' shape.
///
/// # Errors
///
/// When the shapes do not fit or the memory is not there.
pub fn gather(axis: usize, tensor: Tensor, indices: Tensor) -> Result<Tensor> {
    tensor.same_device(&indices)?;
    let indices = cast::indices(indices)?;
    let fits = tensor.shape().len() == indices.shape().len()
        && (0..tensor.shape().len()).all(|i| i == axis || indices.shape()[i] <= tensor.shape()[i]);
    if !fits {
        return Err(Error::Shape {
            lhs: tensor.shape().to_vec(),
            rhs: indices.shape().to_vec(),
            rule: "indices have the tensor's rank and exceed it along the gathered axis only",
        });
    }
    let out =
        Tensor::empty(tensor.runtime(), indices.shape(), tensor.dtype(), &[&tensor, &indices])?;
    if out.is_empty() {
        return Ok(out);
    }
    if tensor.is_empty() {
        return Err(Error::Shape {
            lhs: tensor.shape().to_vec(),
            rhs: indices.shape().to_vec(),
            rule: "there is nothing to gather from an empty axis",
        });
    }
    // The tensor as the result walks it: the axis stands still.
    let mut base = Layout { shape: indices.shape().into(), ..tensor.layout().clone() };
    base.strides[axis] = 0;
    let mut params: Params = SmallVec::new();
    params.extend_from_slice(&[
        out.len() as u32,
        tensor.shape()[axis] as u32,
        tensor.layout().strides[axis] as i32 as u32,
        0,
    ]);
    params.extend_from_slice(&walk(&[out.layout(), indices.layout(), &base])?.0);
    Launch {
        variant: &gather_variant(tensor.dtype()),
        inputs: &[&indices, &tensor],
        outputs: &[&out],
        params: &params,
        groups: div_up(out.len(), 64),
        work: out.len() as u64,
    }
    .run()?;
    Ok(out)
}

/// `tensor[.., indices[i], ..] += value[i]` along `axis`; for truth values `or` takes the place of the sum.
///
/// # Errors
///
/// When the shapes do not fit or the memory is not there.
pub fn scatter(axis: usize, tensor: Tensor, indices: Tensor, value: Tensor) -> Result<Tensor> {
    tensor.same_device(&indices)?;
    tensor.same_device(&value)?;
    let indices = cast::indices(indices)?;
    let rank = tensor.shape().len();
    let fits = value.shape() == indices.shape()
        && rank == indices.shape().len()
        && (0..rank).all(|i| i == axis || indices.shape()[i] <= tensor.shape()[i]);
    if !fits {
        return Err(Error::Shape {
            lhs: tensor.shape().to_vec(),
            rhs: indices.shape().to_vec(),
            rule: "indices and values have one shape, exceeding the tensor along the scattered axis only",
        });
    }
    if value.is_empty() {
        return Ok(tensor);
    }
    let out = copy::owned(tensor, &[&indices, &value])?;
    // One element per line: the axis shrinks to its start.
    let start = |layout: &Layout| {
        let mut layout = Layout { shape: value.shape().into(), ..layout.clone() };
        layout.shape[axis] = 1;
        layout
    };
    let lines = value.len() / value.shape()[axis];
    let stride = |layout: &Layout| layout.strides[axis] as i32 as u32;
    let mut params: Params = SmallVec::new();
    params.extend_from_slice(&[
        lines as u32,
        value.shape()[axis] as u32,
        stride(indices.layout()),
        stride(value.layout()),
        out.shape()[axis] as u32,
        stride(out.layout()),
        0,
        0,
    ]);
    let starts = [start(out.layout()), start(indices.layout()), start(value.layout())];
    params.extend_from_slice(&walk(&[&starts[0], &starts[1], &starts[2]])?.0);
    Launch {
        variant: &scatter_variant(out.dtype()),
        inputs: &[&indices, &value],
        outputs: &[&out],
        params: &params,
        groups: div_up(lines, 64),
        work: value.len() as u64,
    }
    .run()?;
    Ok(out)
}

/// One-dimensional indices spread over the other axes of `shape`.
fn spread(indices: Tensor, axis: usize, shape: &[usize]) -> Result<Tensor> {
    let mut alone: SmallVec<[usize; 6]> = SmallVec::from_elem(1, shape.len());
    alone[axis] = indices.len();
    let mut full: SmallVec<[usize; 6]> = shape.into();
    full[axis] = indices.len();
    copy::expand(copy::reshape(indices, &alone)?, &full)
}

/// The slices of `tensor` along `axis` that one-dimensional `indices` name.
///
/// # Errors
///
/// As [`gather`].
pub fn select(tensor: Tensor, axis: usize, indices: Tensor) -> Result<Tensor> {
    let indices = spread(indices, axis, tensor.shape())?;
    gather(axis, tensor, indices)
}

/// Adds slices of `value` to the slices of `tensor` that `indices` name; `or` for truth values.
///
/// # Errors
///
/// As [`scatter`].
pub fn select_add(tensor: Tensor, axis: usize, indices: Tensor, value: Tensor) -> Result<Tensor> {
    if axis == 0 && pays_to_sort(&tensor, indices.len(), value.len()) {
        let rows = indices.len();
        return scatter_nd(tensor, copy::reshape(indices, &[rows, 1])?, value, Update::Add);
    }
    let indices = spread(indices, axis, value.shape())?;
    scatter(axis, tensor, indices, value)
}

/// Whether to sort updates by place rather than to walk each line of them. The sums are made in the same order, so
/// the result has the same bits.
fn pays_to_sort(tensor: &Tensor, rows: usize, values: usize) -> bool {
    let lines = values / rows.max(1);
    if tensor.runtime().is_software() { rows >= 4096 && lines < 8 } else { rows >= 512 }
}

/// Rows of `weights` `[count, width]` for indices `[batch, length]`: `[batch, length, width]`.
///
/// # Errors
///
/// As [`gather`].
pub fn embedding(weights: Tensor, indices: Tensor) -> Result<Tensor> {
    let mut shape: SmallVec<[usize; 6]> = indices.shape().into();
    shape.push(weights.shape()[1]);
    let indices = copy::reshape(indices.clone(), &[indices.len()])?;
    copy::reshape(select(weights, 0, indices)?, &shape)
}

/// The gradient of [`embedding`] with respect to its weights.
///
/// # Errors
///
/// As [`scatter`].
pub fn embedding_backward(weights: Tensor, grad: Tensor, indices: Tensor) -> Result<Tensor> {
    let zeros = create::full(weights.runtime(), weights.shape(), Number::Float(0.0), DType::F32)?;
    let rows = indices.len();
    let grad = copy::reshape(grad, &[rows, weights.shape()[1]])?;
    select_add(zeros, 0, copy::reshape(indices, &[rows])?, grad)
}

/// Every variant that can be asked for.
pub fn variants() -> Vec<Variant> {
    DType::COMPUTE_TYPES
        .into_iter()
        .flat_map(|dtype| [gather_variant(dtype), scatter_variant(dtype)])
        .collect()
}

/// What the family must pass.
pub const CASES: &[Case] = &[
    case("float_gather", &[Arg::Int(1), normal(&[4, 6]), below(6, &[4, 3])]),
    case("float_gather", &[Arg::Int(0), normal(&[4, 6]), below(4, &[9, 6])]),
    case("float_gather", &[Arg::Int(2), permuted(&[5, 3, 4], &[2, 1, 0]), below(5, &[4, 3, 5])]),
    case("float_scatter_add", &[Arg::Int(1), normal(&[4, 6]), below(6, &[4, 9]), normal(&[4, 9])]),
    case("float_scatter_add", &[Arg::Int(0), normal(&[4, 6]), below(4, &[9, 6]), normal(&[9, 6])]),
    case("float_select", &[normal(&[5, 4, 3]), Arg::Int(1), below(4, &[7])]),
    case("float_select_add", &[normal(&[5, 4]), Arg::Int(0), below(5, &[9]), normal(&[9, 4])]),
    case("float_select_add", &[normal(&[5, 4]), Arg::Int(1), below(4, &[9]), normal(&[5, 9])]),
    case("int_gather", &[Arg::Int(1), ints(&[4, 6]), below(6, &[4, 3])]),
    case("int_scatter_add", &[Arg::Int(1), ints(&[4, 6]), below(6, &[4, 9]), ints(&[4, 9])]),
    case("int_select", &[ints(&[5, 4]), Arg::Int(0), below(5, &[9])]),
    case("int_select_add", &[ints(&[5, 4]), Arg::Int(0), below(5, &[9]), ints(&[9, 4])]),
    case("bool_gather", &[Arg::Int(1), truths(&[4, 6]), below(6, &[4, 3])]),
    case("bool_scatter_or", &[Arg::Int(1), truths(&[4, 6]), below(6, &[4, 9]), truths(&[4, 9])]),
    case("bool_select", &[truths(&[5, 4]), Arg::Int(0), below(5, &[9])]),
    case("bool_select_or", &[truths(&[5, 4]), Arg::Int(0), below(5, &[9]), truths(&[9, 4])]),
    case("float_select_add", &[normal(&[7]), Arg::Int(0), below(7, &[5000]), normal(&[5000])]),
    case("embedding_backward", &[normal(&[11, 8]), normal(&[6, 100, 8]), below(11, &[6, 100])]),
    case("embedding", &[normal(&[11, 8]), below(11, &[3, 7])]),
    case("embedding_backward", &[normal(&[11, 8]), normal(&[3, 7, 8]), below(11, &[3, 7])]),
];
