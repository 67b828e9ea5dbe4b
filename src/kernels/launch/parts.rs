//! Tensors that are larger than a binding: launches on parts of them.

use crate::runtime::Runtime;
use crate::tensor::{DType, Layout, Result, Tensor, checked_len, collapse};

/// Parts begin at multiples of this many elements where possible, so that they are aligned for
/// bindings, also with elements of 16 bits.
pub(crate) const ALIGNED: usize = 128;

/// Returns whether a tensor is larger than a binding.
pub(crate) fn any_oversized<'a>(tensors: impl IntoIterator<Item = &'a Tensor>) -> bool {
    tensors.into_iter().any(Tensor::is_oversized)
}

/// Returns whether a packed tensor would be larger than a binding, or have too many elements.
pub(crate) fn exceed_binding(runtime: &Runtime, shape: &[usize], dtype: DType) -> bool {
    let limit = runtime.max_binding() / dtype.size();
    checked_len(shape).is_none_or(|len| len as u64 > limit)
}

/// Calls `work` with parts of tensors of one shape, the same parts of each, such that every part
/// fits a binding.
///
/// # Errors
///
/// Returns the first error of `work`.
pub(crate) fn each(
    tensors: &[Tensor],
    work: &mut dyn FnMut(&[Tensor]) -> Result<()>,
) -> Result<()> {
    let layouts: Vec<&Layout> = tensors.iter().map(Tensor::layout).collect();
    let (shape, strides) = collapse(&layouts);
    let merged: Vec<Tensor> = tensors
        .iter()
        .zip(strides)
        .map(|(tensor, strides)| {
            let offset = tensor.layout().offset;
            tensor.view(Layout::new(shape.clone(), strides, offset))
        })
        .collect();
    each_half(&merged, work)
}

fn each_half(tensors: &[Tensor], work: &mut dyn FnMut(&[Tensor]) -> Result<()>) -> Result<()> {
    let Some(axis) = tensors.iter().find_map(longest_axis) else { return work(tensors) };
    for (start, len) in halves(tensors[0].shape()[axis]) {
        let half: Vec<Tensor> = tensors
            .iter()
            .map(|tensor| tensor.view(tensor.layout().narrow(axis, start, len)))
            .collect();
        each_half(&half, work)?;
    }
    Ok(())
}

/// Returns the axis along which an oversized tensor extends furthest in memory. `None` if the
/// tensor is not oversized, or cannot be split.
pub(crate) fn longest_axis(tensor: &Tensor) -> Option<usize> {
    if !tensor.is_oversized() {
        return None;
    }
    let (shape, strides) = (&tensor.layout().shape, &tensor.layout().strides);
    let extent = |&axis: &usize| shape[axis].saturating_sub(1) * strides[axis].unsigned_abs();
    (0..shape.len()).max_by_key(extent).filter(|axis| extent(axis) > 0)
}

/// Splits an axis into two ranges: start and length of each.
pub(crate) fn halves(len: usize) -> [(usize, usize); 2] {
    let half = match len / 2 {
        half if half > ALIGNED => half.next_multiple_of(ALIGNED),
        half => half,
    };
    [(0, half), (half, len - half)]
}

/// Returns both halves of a tensor along an axis.
///
/// # Errors
///
/// Returns the errors of `work`, which is called with both halves.
pub(crate) fn of_halves(
    tensor: &Tensor,
    axis: usize,
    work: impl Fn(Tensor) -> Result<Tensor>,
) -> Result<[Tensor; 2]> {
    let [first, second] = halves(tensor.shape()[axis])
        .map(|(start, len)| work(tensor.view(tensor.layout().narrow(axis, start, len))));
    Ok([first?, second?])
}
