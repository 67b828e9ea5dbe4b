//! Pending reductions: what they reduce, and how they are computed by themselves.

use parking_lot::Mutex;
use smallvec::SmallVec;

use super::{Error, Shape, Tensor};

/// What a pending reduction makes of elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum ReduceOp {
    Sum,
    Mean,
    Max,
    Min,
}

/// Computes a reduction of axes by itself. Returns a packed tensor, which may be pending.
pub(crate) type ReduceByItself = fn(ReduceOp, &Tensor, &[usize]) -> Result<Tensor, Error>;

/// A pending reduction of axes of its argument, which is packed.
///
/// If that is the last axis, a kernel computes it with the elementwise ops before and after it. Otherwise it becomes a
/// part of a reduction of more axes, or is computed by itself.
pub(crate) struct PendingReduction {
    pub op: ReduceOp,
    /// The shape of the argument.
    pub shape: Shape,
    pub axes: SmallVec<[usize; 4]>,
    pub by_itself: ReduceByItself,
    /// The lock of the thread that computes it by itself. Others that need it wait.
    pub(super) computing: Mutex<()>,
}

impl PendingReduction {
    pub fn new(op: ReduceOp, shape: &[usize], axes: &[usize], by_itself: ReduceByItself) -> Self {
        let (shape, axes) = (shape.into(), axes.into());
        Self { op, shape, axes, by_itself, computing: Mutex::default() }
    }
}
