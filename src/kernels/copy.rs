//! Views and the copies that materialise them. A copy is the elementwise kernel with the expression `a`.

use smallvec::SmallVec;

use super::cases::{Arg, Case, Fill, Input, case, ints, normal, permuted, truths};
use super::cast;
use super::elementwise::{Map, Number};
use super::transpose;
use crate::runtime::Variant;
use crate::tensor::{Error, Layout, Result, Shape, SliceAxis, Tensor};

fn copy_of(tensor: &Tensor) -> Map {
    Map::new("a", tensor.dtype())
}

/// The tensor in row-major order, starting at its buffer's start; itself if it already is.
///
/// # Errors
///
/// When the memory is not there; so too for the functions below.
pub fn packed(tensor: Tensor) -> Result<Tensor> {
    if tensor.is_packed() { Ok(tensor) } else { duplicate(&tensor) }
}

/// A copy in memory of its own.
fn duplicate(tensor: &Tensor) -> Result<Tensor> {
    if tensor.dtype().is_half() {
        return cast::half(tensor, tensor.dtype());
    }
    let out = Tensor::empty(tensor.runtime(), tensor.shape(), tensor.dtype(), &[tensor])?;
    write(tensor, &out)?;
    Ok(out)
}

/// A tensor that may be written over while `others` are read: this one if nobody else holds it and it shares no
/// buffer with them, else a copy. No dispatch may write a buffer that it also reads.
pub fn owned(tensor: Tensor, others: &[&Tensor]) -> Result<Tensor> {
    let shares = others.iter().any(|other| other.buffer().shares_buffer(tensor.buffer()));
    if !shares && tensor.is_unique() && tensor.is_packed() {
        return Ok(tensor);
    }
    let mut inputs: SmallVec<[&Tensor; 4]> = SmallVec::from_slice(others);
    inputs.push(&tensor);
    let out = Tensor::empty(tensor.runtime(), tensor.shape(), tensor.dtype(), &inputs)?;
    write(&tensor, &out)?;
    Ok(out)
}

/// Writes a tensor's elements, broadcast to its shape, to `part`, a view in another buffer.
pub fn write(tensor: &Tensor, part: &Tensor) -> Result<()> {
    if transpose::transpose(tensor, part)? {
        return Ok(());
    }
    copy_of(tensor).write_to(std::slice::from_ref(tensor), part)
}

/// Exchanges two axes, without a copy.
pub fn swap_dims(tensor: Tensor, a: usize, b: usize) -> Result<Tensor> {
    Ok(tensor.view(tensor.layout().swap(a, b)))
}

/// Reorders the axes, without a copy.
pub fn permute(tensor: Tensor, axes: &[usize]) -> Result<Tensor> {
    Ok(tensor.view(tensor.layout().permute(axes)))
}

/// Reverses axes, without a copy.
pub fn flip(tensor: Tensor, axes: &[usize]) -> Result<Tensor> {
    Ok(tensor.view(tensor.layout().flip(axes)))
}

/// Repeats axes of size one, without a copy.
pub fn expand(tensor: Tensor, shape: &[usize]) -> Result<Tensor> {
    let layout = tensor.layout().expand(shape).ok_or_else(|| Error::Shape {
        lhs: tensor.shape().to_vec(),
        rhs: shape.to_vec(),
        rule: "only axes of size one expand",
    })?;
    addressable(shape)?;
    Ok(tensor.view(layout))
}

/// Refuses what indices of 32 bits cannot tell apart: a view may have more elements than its memory.
fn addressable(shape: &[usize]) -> Result<()> {
    let len = shape.iter().try_fold(1usize, |len, &size| len.checked_mul(size));
    match len {
        Some(len) if u32::try_from(len).is_ok() => Ok(()),
        _ => Err(Error::TooManyElements { shape: shape.to_vec() }),
    }
}

/// The same elements under another shape; copies only where no view can do it.
pub fn reshape(tensor: Tensor, shape: &[usize]) -> Result<Tensor> {
    addressable(shape)?;
    if tensor.len() != shape.iter().product::<usize>() {
        return Err(Error::Shape {
            lhs: tensor.shape().to_vec(),
            rhs: shape.to_vec(),
            rule: "both must have as many elements",
        });
    }
    if let Some(layout) = tensor.layout().reshape(shape) {
        return Ok(tensor.view(layout));
    }
    let tensor = duplicate(&tensor)?;
    Ok(tensor.view(Layout::contiguous(shape)))
}

/// Sliding windows along an axis, without a copy: see [`Layout::unfold`].
pub fn unfold(tensor: Tensor, axis: usize, size: usize, step: usize) -> Result<Tensor> {
    if step == 0 {
        return Err(Error::Shape {
            lhs: tensor.shape().to_vec(),
            rhs: vec![size, step],
            rule: "windows move by a step above zero",
        });
    }
    let layout = tensor.layout().unfold(axis, size, step);
    addressable(&layout.shape)?;
    Ok(tensor.view(layout))
}

/// A part of the tensor, without a copy.
pub fn slice(tensor: Tensor, axes: &[SliceAxis]) -> Result<Tensor> {
    Ok(tensor.view(tensor.layout().slice(axes)))
}

/// The elements `start..start + len` along an axis, without a copy.
pub fn narrow(tensor: Tensor, axis: usize, start: usize, len: usize) -> Result<Tensor> {
    Ok(tensor.view(tensor.layout().narrow(axis, start, len)))
}

/// The tensor cut along an axis, or filled up with zeros, to `len`.
pub fn resized(tensor: Tensor, axis: usize, len: usize) -> Result<Tensor> {
    let kept = len.min(tensor.shape()[axis]);
    let tensor = narrow(tensor, axis, 0, kept)?;
    if kept == len {
        return Ok(tensor);
    }
    let mut shape: Shape = tensor.shape().into();
    shape[axis] = len;
    let out = zeros_beside(&tensor, &shape)?;
    write(&tensor, &out.view(out.layout().narrow(axis, 0, kept)))?;
    Ok(out)
}

/// Zeros of the type of `tensor` that may be written over while it is read: in none of its memory.
pub fn zeros_beside(tensor: &Tensor, shape: &[usize]) -> Result<Tensor> {
    let out = Tensor::empty(tensor.runtime(), shape, tensor.dtype(), &[tensor])?;
    Map::new("s", out.dtype()).with(&[Number::Int(0)], out.dtype()).write_to(&[], &out)?;
    Ok(out)
}

/// The tensor with a part of it replaced by `value`.
pub fn slice_assign(tensor: Tensor, axes: &[SliceAxis], value: Tensor) -> Result<Tensor> {
    tensor.same_device(&value)?;
    let tensor = owned(tensor, &[&value])?;
    let part = tensor.view(tensor.layout().slice(axes));
    write(&value, &part)?;
    Ok(tensor)
}

/// Tensors one after another along an axis.
pub fn cat(tensors: Vec<Tensor>, axis: usize) -> Result<Tensor> {
    let first = &tensors[0];
    let mut shape: SmallVec<[usize; 6]> = first.shape().into();
    shape[axis] = 0;
    for tensor in &tensors {
        first.same_device(tensor)?;
        let fits =
            tensor.shape().iter().zip(&shape).enumerate().all(|(i, (a, b))| i == axis || a == b);
        if tensor.shape().len() != shape.len() || !fits {
            return Err(Error::Shape {
                lhs: first.shape().to_vec(),
                rhs: tensor.shape().to_vec(),
                rule: "tensors that are joined differ only along the axis that joins them",
            });
        }
        shape[axis] += tensor.shape()[axis];
    }
    let refs: Vec<&Tensor> = tensors.iter().collect();
    let out = Tensor::empty(first.runtime(), &shape, first.dtype(), &refs)?;
    let mut start = 0;
    for tensor in &tensors {
        let len = tensor.shape()[axis];
        let part = out.view(out.layout().narrow(axis, start, len));
        write(tensor, &part)?;
        start += len;
    }
    Ok(out)
}

/// The tensor `times` times along an axis.
pub fn repeat_dim(tensor: Tensor, axis: usize, times: usize) -> Result<Tensor> {
    let mut shape: SmallVec<[usize; 6]> = tensor.shape().into();
    let (mut split, mut spread) = (shape.clone(), shape.clone());
    split.insert(axis, 1);
    spread.insert(axis, times);
    shape[axis] *= times;
    let Some(layout) = tensor.layout().reshape(&split) else {
        return repeat_dim(duplicate(&tensor)?, axis, times);
    };
    let layout = layout.expand(&spread).ok_or_else(|| Error::Shape {
        lhs: split.to_vec(),
        rhs: spread.to_vec(),
        rule: "only axes of size one expand",
    })?;
    let out = duplicate(&tensor.view(layout))?;
    Ok(out.view(Layout::contiguous(&shape)))
}

/// What the family must pass.
pub const CASES: &[Case] = &[
    case("float_swap_dims", &[normal(&[3, 4, 5]), Arg::Int(0), Arg::Int(2)]),
    case("float_transpose", &[normal(&[3, 4, 5])]),
    case("float_permute", &[normal(&[3, 4, 5]), Arg::Sizes(&[2, 0, 1])]),
    case(
        "float_permute",
        &[normal(&[1, 2, 3, 2, 1, 2, 3, 2]), Arg::Sizes(&[7, 3, 5, 1, 0, 2, 6, 4])],
    ),
    case("float_flip", &[normal(&[3, 4, 5]), Arg::Sizes(&[0, 2])]),
    case("float_flip", &[permuted(&[3, 4, 5], &[2, 0, 1]), Arg::Sizes(&[1])]),
    case("float_reshape", &[normal(&[3, 4, 5]), Arg::Sizes(&[5, 12])]),
    case("float_reshape", &[permuted(&[3, 4, 5], &[2, 0, 1]), Arg::Sizes(&[6, 10])]),
    case("float_expand", &[normal(&[3, 1, 5]), Arg::Sizes(&[2, 3, 4, 5])]),
    case("float_slice", &[normal(&[7, 8, 5]), Arg::Slices(&[(1, Some(6), 2), (0, None, 3)])]),
    case("float_slice", &[normal(&[7, 8]), Arg::Slices(&[(0, None, -2), (1, Some(-1), 1)])]),
    case("float_slice", &[normal(&[7, 8]), Arg::Slices(&[(3, Some(3), 1)])]),
    case("float_slice_assign", &[normal(&[3]), Arg::Slices(&[(0, Some(2), 1)]), normal(&[2])]),
    case(
        "float_slice_assign",
        &[normal(&[7, 5]), Arg::Slices(&[(0, Some(2), 1)]), normal(&[2, 5])],
    ),
    case(
        "float_slice_assign",
        &[normal(&[7, 8]), Arg::Slices(&[(1, Some(5), 1), (2, Some(7), 1)]), normal(&[4, 5])],
    ),
    case(
        "float_slice_assign",
        &[normal(&[7, 8]), Arg::Slices(&[(0, None, -2), (0, None, 3)]), normal(&[4, 3])],
    ),
    case(
        "float_slice_assign",
        &[permuted(&[7, 8], &[1, 0]), Arg::Slices(&[(0, Some(4), 1)]), normal(&[4, 7])],
    ),
    case("float_cat", &[Arg::Tensors(&[like(&[2, 3]), like(&[4, 3])]), Arg::Int(0)]),
    case("float_cat", &[Arg::Tensors(&[like(&[2, 3]), like(&[2, 1]), like(&[2, 8])]), Arg::Int(1)]),
    case("float_repeat_dim", &[normal(&[2, 1, 5]), Arg::Int(1), Arg::Int(3)]),
    case("float_repeat_dim", &[permuted(&[3, 4], &[1, 0]), Arg::Int(0), Arg::Int(2)]),
    case("float_unfold", &[normal(&[3, 9]), Arg::Int(1), Arg::Int(3), Arg::Int(2)]),
    case("float_unfold", &[normal(&[9, 3]), Arg::Int(0), Arg::Int(4), Arg::Int(1)]),
    case("float_mask_where", &[normal(&[5, 6]), truths(&[5, 6]), normal(&[5, 6])]),
    case("float_mask_where", &[normal(&[5, 6]), truths(&[1, 6]), normal(&[5, 1])]),
    case("float_mask_fill", &[normal(&[5, 6]), truths(&[5, 6]), Arg::Float(-1.5)]),
    case("float_into_int", &[normal(&[50]), Arg::IntType]),
    case("float_cast", &[normal(&[50]), Arg::FloatType]),
    case("int_swap_dims", &[ints(&[3, 4]), Arg::Int(0), Arg::Int(1)]),
    case("int_transpose", &[ints(&[3, 4])]),
    case("int_permute", &[ints(&[3, 4, 5]), Arg::Sizes(&[2, 0, 1])]),
    case("int_flip", &[ints(&[3, 4]), Arg::Sizes(&[1])]),
    case("int_reshape", &[ints(&[3, 4]), Arg::Sizes(&[2, 6])]),
    case("int_expand", &[ints(&[3, 1]), Arg::Sizes(&[3, 4])]),
    case("int_slice", &[ints(&[7, 8]), Arg::Slices(&[(0, None, -2), (1, Some(-1), 1)])]),
    case("int_slice_assign", &[ints(&[7, 8]), Arg::Slices(&[(1, Some(5), 1)]), ints(&[4, 8])]),
    case("int_cat", &[Arg::Tensors(&[whole(&[2, 3]), whole(&[4, 3])]), Arg::Int(0)]),
    case("int_repeat_dim", &[ints(&[2, 1, 5]), Arg::Int(1), Arg::Int(3)]),
    case("int_unfold", &[ints(&[3, 9]), Arg::Int(1), Arg::Int(3), Arg::Int(2)]),
    case("int_mask_where", &[ints(&[5, 6]), truths(&[5, 6]), ints(&[5, 6])]),
    case("int_mask_fill", &[ints(&[5, 6]), truths(&[5, 6]), Arg::Int(7)]),
    case("int_into_float", &[ints(&[50]), Arg::FloatType]),
    case("int_cast", &[ints(&[50]), Arg::IntType]),
    case("bool_swap_dims", &[truths(&[3, 4]), Arg::Int(0), Arg::Int(1)]),
    case("bool_transpose", &[truths(&[3, 4])]),
    case("bool_permute", &[truths(&[3, 4, 5]), Arg::Sizes(&[2, 0, 1])]),
    case("bool_flip", &[truths(&[3, 4]), Arg::Sizes(&[1])]),
    case("bool_reshape", &[truths(&[3, 4]), Arg::Sizes(&[2, 6])]),
    case("bool_expand", &[truths(&[3, 1]), Arg::Sizes(&[3, 4])]),
    case("bool_slice", &[truths(&[7, 8]), Arg::Slices(&[(0, None, -2), (1, Some(-1), 1)])]),
    case("bool_slice_assign", &[truths(&[7, 8]), Arg::Slices(&[(1, Some(5), 1)]), truths(&[4, 8])]),
    case("bool_cat", &[Arg::Tensors(&[coins(&[2, 3]), coins(&[4, 3])]), Arg::Int(0)]),
    case("bool_repeat_dim", &[truths(&[2, 1, 5]), Arg::Int(1), Arg::Int(3)]),
    case("bool_unfold", &[truths(&[3, 9]), Arg::Int(1), Arg::Int(3), Arg::Int(2)]),
    case("bool_mask_where", &[truths(&[5, 6]), truths(&[5, 6]), truths(&[5, 6])]),
    case("bool_mask_fill", &[truths(&[5, 6]), truths(&[5, 6]), Arg::Switch(true)]),
    case("bool_into_float", &[truths(&[50]), Arg::FloatType]),
    case("bool_into_int", &[truths(&[50]), Arg::IntType]),
];

const fn like(shape: &'static [usize]) -> Input {
    Input { fill: Fill::Normal, shape, axes: &[] }
}

const fn whole(shape: &'static [usize]) -> Input {
    Input { fill: Fill::Ints, shape, axes: &[] }
}

const fn coins(shape: &'static [usize]) -> Input {
    Input { fill: Fill::Truths, shape, axes: &[] }
}

/// Copies are elementwise kernels, and views are none.
pub fn variants() -> Vec<Variant> {
    Vec::new()
}
