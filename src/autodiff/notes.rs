//! The parts of notes about tensors. Patterns of ops are found as the program calls them: each op notes what its
//! result is, and the next one looks there.

use std::sync::{Arc, Weak};

use burn_autodiff::NodeId;

use super::kinds::F;
use crate::backend::WgslTensor;

/// Tells the node of a tensor from others. `require_grad` keeps the id, and makes another node while the first is
/// there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Identity {
    id: NodeId,
    address: usize,
}

impl Identity {
    pub(super) fn of(tensor: &F) -> Self {
        Self { id: tensor.node.id, address: Arc::as_ptr(&tensor.node).addr() }
    }
}

/// A tensor whose node the graph may remove.
#[derive(Debug, Clone)]
pub(super) struct Input {
    /// With a count of its own, which the graph does not know.
    uncounted: F,
    count: Weak<NodeId>,
}

impl Input {
    pub(super) fn new(tensor: &F) -> Self {
        let uncounted = F { rc: Arc::new(tensor.node.id), ..tensor.clone() };
        Self { uncounted, count: Arc::downgrade(&tensor.rc) }
    }

    pub(super) fn identity(&self) -> Identity {
        Identity::of(&self.uncounted)
    }

    pub(super) fn primitive(&self) -> &WgslTensor {
        &self.uncounted.primitive
    }

    /// Returns the tensor, if its node is still in the graph. One without gradient is not in it.
    pub(super) fn tensor(self) -> Option<F> {
        match self.count.upgrade() {
            None if self.uncounted.node.requirement.is_none() => Some(self.uncounted),
            count => Some(F { rc: count?, ..self.uncounted }),
        }
    }
}
