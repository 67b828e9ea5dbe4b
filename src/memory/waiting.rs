//! Nodes of a graph of gradients that wait for a backward pass, and keep memory.
#![cfg_attr(not(feature = "autodiff"), allow(dead_code, reason = "only gradients have nodes"))]

use std::any::Any;
use std::sync::Weak;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

/// A node, of which the graph has the last reference.
type WaitingNode = Weak<dyn Any + Send + Sync>;

/// The number of nodes at which a program is warned.
const MANY: usize = 1 << 14;

static NODES: Mutex<Nodes> = Mutex::new(Nodes { nodes: Vec::new(), pruned_at: 1 << 10 });

struct Nodes {
    nodes: Vec<WaitingNode>,
    /// The length at which nodes that are gone are removed.
    pruned_at: usize,
}

impl Nodes {
    fn prune(&mut self) -> usize {
        self.nodes.retain(|node| node.strong_count() > 0);
        self.pruned_at = (2 * self.nodes.len()).max(1 << 10);
        self.nodes.len()
    }
}

/// Adds a node.
pub(crate) fn add(node: WaitingNode) {
    let mut nodes = NODES.lock();
    nodes.nodes.push(node);
    if nodes.nodes.len() < nodes.pruned_at {
        return;
    }
    let count = nodes.prune();
    drop(nodes);
    static IS_WARNED: AtomicBool = AtomicBool::new(false);
    if count >= MANY && !IS_WARNED.swap(true, Ordering::Relaxed) {
        log::warn!(
            "{count} operations wait for a backward pass, and keep their operands in memory until then; if none \
             follows, as in a validation, compute with the model that `valid()` returns, which keeps nothing [BW13]"
        );
    }
}

/// Returns the number of operations of all devices that wait for a backward pass.
pub(super) fn count() -> usize {
    NODES.lock().prune()
}
