//! Views, and ops that copy what they cannot view.

use crate::kernels::copy::{self, copy_map, expand_layout};
use crate::kernels::fusion::pending;
use crate::kernels::ops::cases::{Arg, Case, Fill, Input, bools, cases, floats, ints, permuted};
use crate::kernels::ops::map::ScalarValue;
use crate::kernels::{cast, create};
use crate::tensor::{
    Error, Layout, MAX_LEN, Padding, Result, Shape, SliceAxis, Tensor, checked_len, strided_len,
};

/// Returns the tensor packed: row-major, without gaps, offset zero. Copies it unless it is packed.
///
/// # Errors
///
/// Returns an error if the memory is not available; so do the functions below.
pub fn packed(tensor: Tensor) -> Result<Tensor> {
    if tensor.is_packed() { Ok(tensor) } else { duplicate(&tensor) }
}

/// Returns a packed copy.
fn duplicate(tensor: &Tensor) -> Result<Tensor> {
    if tensor.dtype().is_half() {
        return cast::convert_half(tensor, tensor.dtype());
    }
    copy::packed(tensor)
}

/// Returns a packed tensor that may be overwritten: `tensor` itself if it is packed and has a
/// single owner, otherwise a copy.
pub fn writable(tensor: Tensor) -> Result<Tensor> {
    if tensor.is_unique() { packed(tensor) } else { duplicate(&tensor) }
}

/// Swaps two axes, without a copy.
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

/// Broadcasts axes of size 1, without a copy.
pub fn expand(tensor: Tensor, shape: &[usize]) -> Result<Tensor> {
    let layout = expand_layout(tensor.layout(), shape)?;
    check_addressable(shape)?;
    Ok(tensor.view(layout))
}

/// Returns a shape, or an error if a host cannot count its elements, or the distances between them.
pub(crate) fn check_countable(shape: &[usize]) -> Result<Shape> {
    match strided_len(shape) {
        Some(_) => Ok(shape.into()),
        None => Err(Error::TooManyElements { shape: shape.to_vec() }),
    }
}

/// Returns an error if a shape has more elements than a 32-bit index can address. Views can have
/// more elements than their memory.
pub(crate) fn check_addressable(shape: &[usize]) -> Result<()> {
    match checked_len(shape) {
        Some(len) if len <= MAX_LEN => Ok(()),
        _ => Err(Error::TooManyElements { shape: shape.to_vec() }),
    }
}

/// Changes the shape. Copies the tensor only if no view of it has the new shape.
pub fn reshape(tensor: Tensor, shape: &[usize]) -> Result<Tensor> {
    check_addressable(shape)?;
    check_same_len(tensor.shape(), shape)?;
    if let Some(layout) = tensor.layout().reshape(shape) {
        return Ok(tensor.view(layout));
    }
    let tensor = duplicate(&tensor)?;
    Ok(tensor.view(Layout::contiguous(shape)))
}

/// Returns an error if two shapes have different numbers of elements.
pub(super) fn check_same_len(from: &[usize], to: &[usize]) -> Result<()> {
    if checked_len(from) == checked_len(to) {
        return Ok(());
    }
    Err(Error::Shape {
        lhs: from.to_vec(),
        rhs: to.to_vec(),
        rule: "both shapes must have the same number of elements",
    })
}

/// Returns sliding windows along an axis, without a copy: see [`Layout::unfold`].
pub fn unfold(tensor: Tensor, axis: usize, size: usize, step: usize) -> Result<Tensor> {
    if step == 0 {
        return Err(Error::Shape {
            lhs: tensor.shape().to_vec(),
            rhs: vec![size, step],
            rule: "the step of the windows must be positive",
        });
    }
    let layout = tensor.layout().unfold(axis, size, step);
    check_addressable(&layout.shape)?;
    Ok(tensor.view(layout))
}

/// Slices the leading axes, without a copy.
pub fn slice(tensor: Tensor, axes: &[SliceAxis]) -> Result<Tensor> {
    Ok(tensor.view(tensor.layout().slice(axes)))
}

/// Returns the elements `start..start + len` along an axis, without a copy.
pub fn narrow(tensor: Tensor, axis: usize, start: usize, len: usize) -> Result<Tensor> {
    Ok(tensor.view(tensor.layout().narrow(axis, start, len)))
}

/// Crops an axis, or pads it with zeros at its end, to `len`.
pub fn resized(tensor: Tensor, axis: usize, len: usize) -> Result<Tensor> {
    let copied = len.min(tensor.shape()[axis]);
    let tensor = narrow(tensor, axis, 0, copied)?;
    if copied == len {
        return Ok(tensor);
    }
    let mut shape: Shape = tensor.shape().into();
    shape[axis] = len;
    let out = zeros_in_other_buffer(&tensor, &shape)?;
    copy::write(&tensor, &out.view(out.layout().narrow(axis, 0, copied)))?;
    Ok(out)
}

/// Returns zeros of the type of `tensor` in another buffer, so that `tensor` can be copied into
/// them.
pub fn zeros_in_other_buffer(tensor: &Tensor, shape: &[usize]) -> Result<Tensor> {
    let out = Tensor::empty(tensor.runtime(), shape, tensor.dtype())?;
    create::constant(ScalarValue::Int(0), out.dtype()).write_to(&[], &out)?;
    Ok(out)
}

/// Replaces a slice of the tensor by `value`. The result has the type of the tensor, or f32 if single elements of 16
/// bits must be written.
pub fn slice_assign(tensor: Tensor, axes: &[SliceAxis], value: Tensor) -> Result<Tensor> {
    tensor.same_device(&value)?;
    let target = Layout::contiguous(tensor.shape()).slice(axes);
    let value = expand(value, &target.shape)?;
    if pending::is_pending_zero(&tensor)
        && value.dtype() == tensor.dtype()
        && let Some(padding) = padding(tensor.layout(), axes)
    {
        let copy = copy_map(value.dtype());
        return pending::defer_padded(&copy, packed(value)?, padding, tensor.shape());
    }
    if tensor.dtype().is_half() && target.pairs().is_none() {
        let [tensor, value] = [tensor, value].map(cast::to_compute_type);
        return slice_assign(tensor?, axes, value?);
    }
    let value = in_pairs(value)?;
    let tensor = writable(tensor)?;
    copy::write(&value, &tensor.view(target))?;
    Ok(tensor)
}

/// Returns the tensor, or a packed copy if it has 16-bit elements that are not whole pairs. The size of the last axis
/// must be even then.
fn in_pairs(tensor: Tensor) -> Result<Tensor> {
    let is_single = tensor.dtype().is_half() && tensor.layout().pairs().is_none();
    if is_single { duplicate(&tensor) } else { Ok(tensor) }
}

/// Returns how a slice is a part of each line of a packed tensor. `None` if it is a part along
/// several axes, empty or everything, or has steps.
fn padding(layout: &Layout, axes: &[SliceAxis]) -> Option<Padding> {
    let mut parts = axes
        .iter()
        .enumerate()
        .filter(|&(axis, slice)| slice.len != layout.shape[axis] || slice.step != 1);
    let (axis, slice) = parts.next()?;
    if parts.next().is_some() || slice.step != 1 || slice.len == 0 || !layout.is_packed() {
        return None;
    }
    let inner: usize = layout.shape[axis + 1..].iter().product();
    let [line, start, len] = [layout.shape[axis], slice.start, slice.len].map(|size| size * inner);
    Some(Padding { line, start, len })
}

/// Concatenates tensors along an axis. The result has their type, or f32 if single elements of 16 bits must be written.
pub fn cat(tensors: Vec<Tensor>, axis: usize) -> Result<Tensor> {
    let first = &tensors[0];
    let mut shape: Shape = first.shape().into();
    shape[axis] = 0;
    for tensor in &tensors {
        first.same_device(tensor)?;
        let fits =
            tensor.shape().iter().zip(&shape).enumerate().all(|(i, (a, b))| i == axis || a == b);
        if tensor.shape().len() != shape.len() || !fits {
            return Err(Error::Shape {
                lhs: first.shape().to_vec(),
                rhs: tensor.shape().to_vec(),
                rule: "concatenated tensors may differ only along the concatenated axis",
            });
        }
        shape[axis] += tensor.shape()[axis];
    }
    let is_half = first.dtype().is_half();
    let layout = Layout::contiguous(&shape);
    let mut end = 0;
    let starts = tensors.iter().map(|tensor| {
        let len = tensor.shape()[axis];
        end += len;
        (end - len, len)
    });
    let starts: Vec<(usize, usize)> = starts.collect();
    if is_half
        && starts.iter().any(|&(start, len)| layout.narrow(axis, start, len).pairs().is_none())
    {
        let tensors: Result<Vec<Tensor>> = tensors.into_iter().map(cast::to_compute_type).collect();
        return cat(tensors?, axis);
    }
    let out = Tensor::empty(first.runtime(), &shape, first.dtype())?;
    for (tensor, (start, len)) in tensors.into_iter().zip(starts) {
        let target = out.view(out.layout().narrow(axis, start, len));
        copy::write(&in_pairs(tensor)?, &target)?;
    }
    Ok(out)
}

/// Repeats the tensor `times` times along an axis.
pub fn repeat_dim(tensor: Tensor, axis: usize, times: usize) -> Result<Tensor> {
    let mut shape: Shape = tensor.shape().into();
    // A new axis of size 1 in front of `axis` expands to `times`.
    let (mut with_axis, mut expanded) = (shape.clone(), shape.clone());
    with_axis.insert(axis, 1);
    expanded.insert(axis, times);
    shape[axis] = shape[axis].saturating_mul(times);
    check_addressable(&shape)?;
    let Some(layout) = tensor.layout().reshape(&with_axis) else {
        return repeat_dim(duplicate(&tensor)?, axis, times);
    };
    let out = duplicate(&tensor.view(expand_layout(&layout, &expanded)?))?;
    Ok(out.view(Layout::contiguous(&shape)))
}

/// The cases that these functions must pass.
pub const CASES: &[Case] = cases! {
    float_swap_dims([3, 4, 5], 0, 2);
    float_transpose([3, 4, 5]);
    float_permute([3, 4, 5], Arg::Sizes(&[2, 0, 1]));
    float_permute([1, 2, 3, 2, 1, 2, 3, 2], Arg::Sizes(&[7, 3, 5, 1, 0, 2, 6, 4]));
    float_flip([3, 4, 5], Arg::Sizes(&[0, 2]));
    float_flip(permuted(&[3, 4, 5], &[2, 0, 1]), Arg::Sizes(&[1]));
    float_reshape([3, 4, 5], Arg::Sizes(&[5, 12]));
    float_reshape(permuted(&[3, 4, 5], &[2, 0, 1]), Arg::Sizes(&[6, 10]));
    float_expand([3, 1, 5], Arg::Sizes(&[2, 3, 4, 5]));
    float_slice([7, 8, 5], Arg::Slices(&[(1, Some(6), 2), (0, None, 3)]));
    float_slice([7, 8], Arg::Slices(&[(0, None, -2), (1, Some(-1), 1)]));
    float_slice([7, 8], Arg::Slices(&[(3, Some(3), 1)]));
    float_slice_assign([3], Arg::Slices(&[(0, Some(2), 1)]), [2]);
    float_slice_assign([7, 5], Arg::Slices(&[(0, Some(2), 1)]), [2, 5]);
    float_slice_assign([7, 8], Arg::Slices(&[(1, Some(5), 1), (2, Some(7), 1)]), [4, 5]);
    float_slice_assign([7, 8], Arg::Slices(&[(0, None, -2), (0, None, 3)]), [4, 3]);
    float_slice_assign(permuted(&[7, 8], &[1, 0]), Arg::Slices(&[(0, Some(4), 1)]), [4, 7]);
    float_cat(Arg::Tensors(&[floats(&[2, 3]), floats(&[4, 3])]), 0);
    float_cat(Arg::Tensors(&[floats(&[2, 3]), floats(&[2, 1]), floats(&[2, 8])]), 1);
    // 16-bit elements are moved in pairs.
    float_cat(Arg::Tensors(&[floats(&[2, 4]), floats(&[3, 4])]), 0);
    float_cat(Arg::Tensors(&[floats(&[2, 4]), floats(&[2, 2]), floats(&[2, 8])]), 1);
    float_cat(Arg::Tensors(&[floats(&[2, 0]), floats(&[2, 4])]), 1);
    float_slice_assign([7, 8], Arg::Slices(&[(1, Some(5), 1), (2, Some(6), 1)]), [4, 4]);
    float_slice_assign([7, 8], Arg::Slices(&[(1, Some(5), 1), (2, Some(6), 1)]), permuted(&[4, 4], &[1, 0]));
    float_slice_assign([3, 2, 4], Arg::Slices(&[(2, Some(3), 1)]), [1, 2, 4]);
    float_repeat_dim([2, 1, 5], 1, 3);
    float_repeat_dim(permuted(&[3, 4], &[1, 0]), 0, 2);
    float_unfold([3, 9], 1, 3, 2);
    float_unfold([9, 3], 0, 4, 1);
    float_mask_where([5, 6], bools(&[5, 6]), [5, 6]);
    float_mask_where([5, 6], bools(&[1, 6]), [5, 1]);
    float_mask_fill([5, 6], bools(&[5, 6]), Arg::Float(-1.5));
    float_into_int([50], Arg::IntType);
    float_cast([50], Arg::FloatType);
    int_swap_dims(ints(&[3, 4]), 0, 1);
    int_transpose(ints(&[3, 4]));
    int_permute(ints(&[3, 4, 5]), Arg::Sizes(&[2, 0, 1]));
    int_flip(ints(&[3, 4]), Arg::Sizes(&[1]));
    int_reshape(ints(&[3, 4]), Arg::Sizes(&[2, 6]));
    int_expand(ints(&[3, 1]), Arg::Sizes(&[3, 4]));
    int_slice(ints(&[7, 8]), Arg::Slices(&[(0, None, -2), (1, Some(-1), 1)]));
    int_slice_assign(ints(&[7, 8]), Arg::Slices(&[(1, Some(5), 1)]), ints(&[4, 8]));
    int_cat(Arg::Tensors(&[integers(&[2, 3]), integers(&[4, 3])]), 0);
    int_repeat_dim(ints(&[2, 1, 5]), 1, 3);
    int_unfold(ints(&[3, 9]), 1, 3, 2);
    int_mask_where(ints(&[5, 6]), bools(&[5, 6]), ints(&[5, 6]));
    int_mask_fill(ints(&[5, 6]), bools(&[5, 6]), 7);
    int_into_float(ints(&[50]), Arg::FloatType);
    int_cast(ints(&[50]), Arg::IntType);
    bool_swap_dims(bools(&[3, 4]), 0, 1);
    bool_transpose(bools(&[3, 4]));
    bool_permute(bools(&[3, 4, 5]), Arg::Sizes(&[2, 0, 1]));
    bool_flip(bools(&[3, 4]), Arg::Sizes(&[1]));
    bool_reshape(bools(&[3, 4]), Arg::Sizes(&[2, 6]));
    bool_expand(bools(&[3, 1]), Arg::Sizes(&[3, 4]));
    bool_slice(bools(&[7, 8]), Arg::Slices(&[(0, None, -2), (1, Some(-1), 1)]));
    bool_slice_assign(bools(&[7, 8]), Arg::Slices(&[(1, Some(5), 1)]), bools(&[4, 8]));
    bool_cat(Arg::Tensors(&[booleans(&[2, 3]), booleans(&[4, 3])]), 0);
    bool_repeat_dim(bools(&[2, 1, 5]), 1, 3);
    bool_unfold(bools(&[3, 9]), 1, 3, 2);
    bool_mask_where(bools(&[5, 6]), bools(&[5, 6]), bools(&[5, 6]));
    bool_mask_fill(bools(&[5, 6]), bools(&[5, 6]), true);
    bool_into_float(bools(&[50]), Arg::FloatType);
    bool_into_int(bools(&[50]), Arg::IntType);
};

const fn integers(shape: &'static [usize]) -> Input {
    Input { fill: Fill::Ints, shape, axes: &[] }
}

const fn booleans(shape: &'static [usize]) -> Input {
    Input { fill: Fill::Bools, shape, axes: &[] }
}
