//! Pending reductions.
//!
//! A reduction of the last axis is a pending result. Ops on it, and ops that repeat it along the lines again, stay
//! pending, too. When one of these results is needed, a kernel of lines computes all that lead to it. A reduction
//! without such ops is computed by itself.
//!
//! A sum over other axes waits for sums of its result: Burn adds up the gradient of a parameter axis by axis.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use smallvec::SmallVec;

use crate::kernels::fusion::compute::compute;
use crate::kernels::fusion::lines::are_reduced;
use crate::kernels::fusion::pending::{extent, signature_of};
use crate::kernels::fusion::switch::is_enabled;
use crate::runtime::Deferred;
use crate::tensor::{
    DType, Expression, Lazy, Lines, PendingReduction, ReduceByItself, ReduceOp, Result, Tensor,
};

/// The reductions that each thread leaves pending, at most. The next one computes the oldest, whose input would stay in
/// memory otherwise.
const MAX_PENDING: usize = 64;
/// The maximum number of them that may keep more than [`SMALL`] bytes.
const MAX_LARGE: usize = 2;
/// See [`MAX_LARGE`].
const SMALL: u64 = 1 << 20;

thread_local! {
    /// Those that keep little memory, and the others.
    static PENDING: [RefCell<VecDeque<Weak<Lazy>>>; 2] = const {
        [RefCell::new(VecDeque::new()), RefCell::new(VecDeque::new())]
    };
}

/// Returns the pending result of a reduction of axes, which stay with size 1; `None` if it should be computed by
/// itself.
///
/// # Errors
///
/// Returns an error if the result is too large, or an input cannot be computed.
pub(crate) fn defer(
    op: ReduceOp,
    tensor: &Tensor,
    axes: &[usize],
    by_itself: ReduceByItself,
) -> Result<Option<Tensor>> {
    let (runtime, shape) = (tensor.runtime(), tensor.shape());
    let is_eligible = is_enabled()
        && tensor.dtype() == DType::F32
        && tensor.is_packed()
        && !tensor.is_empty()
        && !tensor.is_oversized()
        && runtime.may_generate()
        // The program may write it before the result is needed.
        && !tensor.is_foreign();
    let len: usize = axes.iter().map(|&axis| shape[axis]).product();
    let count = tensor.len() / len.max(1);
    let has_lines = *axes == [shape.len().wrapping_sub(1)] && are_reduced(runtime, count, len);
    // Burn reduces the axes of a parameter's gradient one after the other, the first of them first.
    let stays = |axis: &usize| !axes.contains(axis) && shape[*axis] > 1;
    let may_go_on = op == ReduceOp::Sum
        && axes.first() == Some(&0)
        && (0..shape.len()).filter(stays).count() > 1;
    if !is_eligible || len < 2 || !has_lines && !may_go_on {
        return Ok(None);
    }
    let arg = tensor.clone().into_arg(shape)?;
    let args = std::slice::from_ref(&arg);
    let mut kernel = extent(shape, tensor.len(), args)?;
    let lines = Lines { len: len as u32, is_reduced: false };
    if has_lines && kernel.lines.is_some_and(|others| others != lines) {
        arg.storage.computed()?;
        kernel = extent(shape, tensor.len(), args)?;
    }
    kernel.lines = has_lines.then_some(Lines { is_reduced: true, ..lines });
    kernel.signature = match has_lines {
        true => signature_of(op.name(), DType::F32, std::iter::empty(), args),
        // That of a tensor in memory: it is computed before a batch.
        false => 0,
    };
    let is_large = kernel.kept > SMALL;
    let mut reduced_shape = tensor.layout().shape.clone();
    axes.iter().for_each(|&axis| reduced_shape[axis] = 1);
    let expression = Expression::named(op.name(), DType::F32, count);
    let reduction = (PendingReduction::new(op, shape, axes, by_itself), arg);
    let result =
        Tensor::of_reduction(runtime, &reduced_shape, expression, reduction, kernel, compute)?;
    if let Some(lazy) = result.pending() {
        keep(lazy, is_large);
    }
    Ok(Some(result))
}

/// Returns what a pending sum that nothing else refers to adds up, and the axes; otherwise the tensor.
pub(crate) fn summed(tensor: Tensor) -> Result<(Tensor, SmallVec<[usize; 4]>), Tensor> {
    let sums = |reduction: &PendingReduction| {
        let size =
            |(axis, &size): (usize, &usize)| if reduction.axes.contains(&axis) { 1 } else { size };
        reduction.op == ReduceOp::Sum
            && tensor.is_packed()
            && tensor.dtype() == DType::F32
            && reduction.shape.iter().enumerate().map(size).eq(tensor.shape().iter().copied())
    };
    let is_sum = tensor.pending().and_then(|lazy| lazy.reduction()).is_some_and(sums);
    let taken = if is_sum { tensor.take_reduced() } else { None };
    match taken.map(|(input, reduction)| (input, reduction.axes.clone())) {
        Some(summed) => Ok(summed),
        None => Err(tensor),
    }
}

/// Adds a reduction to those that are pending, and computes the oldest if there are too many. What computes a reduction
/// by itself must not defer another one: the thread could wait for itself here.
fn keep(lazy: &Arc<Lazy>, is_large: bool) {
    let max = if is_large { MAX_LARGE } else { MAX_PENDING };
    // Dropped after the list is back: they may own the last reference to other results.
    let mut owned: SmallVec<[Arc<Lazy>; MAX_LARGE]> = SmallVec::new();
    let oldest = PENDING.with(|lists| {
        let mut pending = lists[usize::from(is_large)].borrow_mut();
        if pending.len() >= max {
            pending.retain(|other| {
                let other = other.upgrade();
                let is_pending = other.as_ref().is_some_and(|other| other.memory().is_none());
                owned.extend(other);
                is_pending
            });
        }
        pending.push_back(Arc::downgrade(lazy));
        if pending.len() > max { pending.pop_front() } else { None }
    });
    drop(owned);
    if let Some(oldest) = oldest.and_then(|oldest| oldest.upgrade()) {
        // It stays pending if it cannot be computed; then there is an error where it is needed.
        let _ = oldest.record();
    }
}
