//! Copies between views: an elementwise kernel with the expression `a`, or the transpose kernel.

use std::sync::Arc;

use crate::kernels::launch::parts;
use crate::kernels::ops::map::Map;
use crate::kernels::transpose;
use crate::runtime::{Runtime, Variant};
use crate::tensor::{DType, Error, Layout, Result, Shape, Tensor};

/// Returns the elementwise computation of a copy.
pub(crate) fn copy_map(dtype: DType) -> Map {
    Map::new("a", dtype)
}

/// Copies a tensor to `view`. The tensor must broadcast to the shape of `view`. 16-bit elements are
/// copied as words of two, so that both layouts must consist of whole pairs.
pub fn write(tensor: &Tensor, view: &Tensor) -> Result<()> {
    if view.is_empty() {
        return Ok(());
    }
    if tensor.dtype().is_half() {
        let tensor = tensor.view(expand_layout(tensor.layout(), view.shape())?);
        let [Some(from), Some(to)] = [pairs(&tensor)?, pairs(view)?] else {
            return Err(Error::Unsupported("a copy to a view of single 16-bit elements"));
        };
        return write(&from, &to);
    }
    if parts::any_oversized([tensor, view]) {
        let tensor = tensor.view(expand_layout(tensor.layout(), view.shape())?);
        return parts::each(&[tensor, view.clone()], &mut |parts| write(&parts[0], &parts[1]));
    }
    if transpose::transpose(tensor, view)? {
        return Ok(());
    }
    copy_map(tensor.dtype()).write_to(std::slice::from_ref(tensor), view)
}

/// Returns a tensor of 16-bit elements as words of two, which kernels move as they are; `None` if they are not whole
/// pairs.
///
/// # Errors
///
/// Returns an error if the memory cannot be computed.
pub(crate) fn pairs(tensor: &Tensor) -> Result<Option<Tensor>> {
    let Some(layout) = tensor.layout().pairs() else { return Ok(None) };
    tensor.buffer()?;
    Ok(Some(tensor.view_as(layout, DType::U32)))
}

/// Returns packed words as 16-bit elements: the inverse of [`pairs`].
pub(crate) fn unpaired(words: &Tensor, dtype: DType) -> Tensor {
    let mut shape: Shape = words.shape().into();
    if let Some(last) = shape.last_mut() {
        *last *= 2;
    }
    words.view_as(Layout::contiguous(&shape), dtype)
}

/// Returns a packed copy of a tensor of words.
///
/// # Errors
///
/// Returns an error if the memory is not available.
pub(crate) fn packed(tensor: &Tensor) -> Result<Tensor> {
    let out = Tensor::empty(tensor.runtime(), tensor.shape(), tensor.dtype())?;
    write(tensor, &out)?;
    Ok(out)
}

/// Broadcasts axes of size 1 of a layout.
pub(crate) fn expand_layout(layout: &Layout, shape: &[usize]) -> Result<Layout> {
    layout.expand(shape).ok_or_else(|| Error::Shape {
        lhs: layout.shape.to_vec(),
        rhs: shape.to_vec(),
        rule: "only axes of size 1 can expand",
    })
}

/// Creates a packed tensor from a launch for each part of it that fits a binding: `launch` gets the
/// first element and the number of elements.
///
/// # Errors
///
/// Returns an error of `launch`, or if the memory is not available.
pub(crate) fn concatenated(
    runtime: &Arc<Runtime>,
    shape: &[usize],
    dtype: DType,
    launch: impl Fn(usize, usize) -> Result<Tensor>,
) -> Result<Tensor> {
    let out = Tensor::empty(runtime, shape, dtype)?;
    let mut start = 0;
    parts::each(std::slice::from_ref(&out), &mut |parts| {
        let part = &parts[0];
        write(&launch(start, part.len())?, part)?;
        start += part.len();
        Ok(())
    })?;
    Ok(out)
}

/// Returns every variant that these functions can request, besides those of `create`, `transpose`
/// and `cast`.
pub fn variants() -> Vec<Variant> {
    DType::COMPUTE_TYPES.iter().flat_map(|&dtype| copy_map(dtype).variants(&[dtype])).collect()
}
