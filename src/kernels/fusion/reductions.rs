//! Pending reductions.
//!
//! A reduction of the last axis is a pending result. Ops on it, and ops that repeat it along the lines again, stay
//! pending, too. When one of these results is needed, a kernel of lines computes all that lead to it. A reduction that
//! nothing of this applies to is computed by itself.
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
use crate::runtime::current_origin;
use crate::tensor::{
    DType, Expression, Lazy, Lines, PendingReduction, ReduceByItself, ReduceOp, Result, Tensor,
};

/// The reductions of much memory that each thread leaves pending. The next one computes the oldest, whose input would
/// stay in memory otherwise.
const MAX_LARGE: usize = 4;
/// What a reduction may keep in memory without being one of them, in bytes.
const SMALL: u64 = 1 << 20;

thread_local! {
    static LARGE: RefCell<VecDeque<Weak<Lazy>>> = const { RefCell::new(VecDeque::new()) };
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
        && runtime.may_generate()
        // The program may write it before the result is needed.
        && !tensor.is_foreign();
    let len: usize = axes.iter().map(|&axis| shape[axis]).product();
    let count = tensor.len() / len.max(1);
    let has_lines = *axes == [shape.len().wrapping_sub(1)] && are_reduced(runtime, count, len);
    // Burn reduces the axes of a parameter's gradient one after the other, the first of them first.
    let may_go_on = op == ReduceOp::Sum && shape.len() > 2 && axes.first() == Some(&0);
    if !is_eligible || len < 2 || !has_lines && !may_go_on {
        return Ok(None);
    }
    let arg = tensor.clone().into_arg(shape)?;
    let args = std::slice::from_ref(&arg);
    let mut kernel = extent(shape, tensor.len(), args)?;
    let lines = Lines { len, is_reduced: false };
    if has_lines && kernel.lines.is_some_and(|others| others != lines) {
        arg.storage.computed()?;
        kernel = extent(shape, tensor.len(), args)?;
    }
    kernel.lines = has_lines.then_some(Lines { is_reduced: true, ..lines });
    kernel.signature = signature_of(op.name(), DType::F32, &[], args);
    let is_large = kernel.kept > SMALL;
    let mut reduced_shape = tensor.layout().shape.clone();
    axes.iter().for_each(|&axis| reduced_shape[axis] = 1);
    let expression = Expression {
        origin: current_origin(),
        wgsl: op.name(),
        dtype: DType::F32,
        scalars: SmallVec::new(),
        scalar_type: DType::F32,
        len: count,
    };
    let reduction = (PendingReduction::new(op, shape, axes, by_itself), arg);
    let result =
        Tensor::of_reduction(runtime, &reduced_shape, expression, reduction, kernel, compute)?;
    if is_large && let Some(lazy) = result.pending() {
        keep(lazy);
    }
    Ok(Some(result))
}

/// Returns what a pending sum that nothing else refers to adds up, and the axes.
pub(crate) fn summed(tensor: &Tensor) -> Option<(Tensor, SmallVec<[usize; 4]>)> {
    let lazy = tensor.pending().filter(|_| tensor.is_packed())?;
    let reduction = lazy.reduction().filter(|_| lazy.is_computed_alone())?;
    if reduction.op != ReduceOp::Sum
        || Arc::strong_count(lazy) > 1
        || tensor.shape().len() != reduction.shape.len()
    {
        return None;
    }
    Some((lazy.take_reduced()?, reduction.axes.clone()))
}

/// Adds a reduction to those of much memory, and computes one of them if there are too many.
fn keep(lazy: &Arc<Lazy>) {
    let oldest = LARGE.with_borrow_mut(|large| {
        large.retain(|other| other.upgrade().is_some_and(|other| other.memory().is_none()));
        large.push_back(Arc::downgrade(lazy));
        if large.len() > MAX_LARGE { large.pop_front() } else { None }
    });
    if let Some(oldest) = oldest.and_then(|oldest| oldest.upgrade()) {
        // Who needs its result gets the error.
        let _ = oldest.computed();
    }
}
