//! The pending results that lead to one, and the tensors in memory that they read.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::runtime::{Allocation, Flows};
use crate::tensor::{Arg, DType, Expression, Layout, Lazy, Padding};

/// The maximum number of results in a kernel.
pub(crate) const MAX_NODES: usize = 48;

/// What an argument refers to, by index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum ArgSource {
    /// An earlier pending result.
    Node(u8),
    /// A tensor in memory.
    Leaf(u8),
}

/// A pending result.
pub(crate) struct PendingNode {
    pub lazy: Arc<Lazy>,
    /// The arguments, with the types as which they are read.
    pub args: SmallVec<[(ArgSource, DType); 2]>,
    /// The number of arguments of this graph that refer to it.
    references: usize,
    /// Whether it is a packed 16-bit tensor in memory, converted to f32. It stays pending for later kernels, which read
    /// fewer bytes then.
    is_widened: bool,
}

impl PendingNode {
    /// Returns the expression that computes the result.
    pub fn expression(&self) -> &Expression {
        self.lazy.expression()
    }

    /// Returns whether there are references to the result besides those of the graph and `others`:
    /// of tensors, or of pending results outside of the graph.
    fn is_held(&self, others: usize) -> bool {
        // One reference is the node's own.
        Arc::strong_count(&self.lazy) > self.references + 1 + others
    }

    /// Returns whether the result must be in memory for references besides those of the graph and `others`.
    fn is_written(&self, others: usize) -> bool {
        !self.is_widened && self.is_held(others)
    }
}

/// A tensor in memory.
pub(crate) struct Leaf {
    pub memory: Arc<Allocation>,
    pub dtype: DType,
    /// The layout; `None` if it is packed.
    pub layout: Option<Layout>,
    pub padding: Option<Box<Padding>>,
    /// The number of elements of the results that read it, or that a reduction reduces.
    pub len: usize,
    /// The number of arguments of this graph that refer to it.
    references: usize,
    /// The number of all references to the lazy result that owns the memory, if one does.
    lazy_owners: Option<usize>,
    /// Whether a result that stays pending needs it.
    is_kept: bool,
}

impl Leaf {
    /// Returns the index of the first element in the memory.
    pub fn offset(&self) -> usize {
        self.layout.as_ref().map_or(0, |layout| layout.offset)
    }

    /// Returns whether all of it is read, in its order.
    fn is_packed(&self) -> bool {
        self.layout.is_none() && self.padding.is_none()
    }

    /// Returns whether only the graph refers to the memory, so that a result may overwrite it.
    pub fn is_owned(&self) -> bool {
        if self.memory.is_part() || self.is_kept {
            return false;
        }
        // One reference is the leaf's own.
        let owners = Arc::strong_count(&self.memory) - 1;
        match self.lazy_owners {
            Some(lazy_owners) => lazy_owners == self.references && owners == 1,
            None => owners == self.references,
        }
    }
}

/// The lines that the pending reductions of a graph reduce.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LineShape {
    /// The number of lines.
    pub count: usize,
    /// The number of elements of a line.
    pub len: usize,
}

/// The pending results that lead to one, each after those that it refers to. That one is the last.
#[derive(Default)]
pub(crate) struct Graph {
    pub nodes: SmallVec<[PendingNode; 8]>,
    pub leaves: SmallVec<[Leaf; 4]>,
}

impl Graph {
    /// Collects the pending results that lead to `root`; `None` if it was computed. The deferred
    /// work of the device must be locked, so that none of them is computed meanwhile.
    pub fn of(root: &Arc<Lazy>) -> Option<Self> {
        let mut graph = Self::default();
        graph.visit(root)?;
        for node in &graph.nodes[..graph.nodes.len() - 1] {
            if node.is_widened && node.is_held(0) {
                for &(source, _) in &node.args {
                    if let ArgSource::Leaf(leaf) = source {
                        graph.leaves[usize::from(leaf)].is_kept = true;
                    }
                }
            }
        }
        Some(graph)
    }

    /// Adds a result after those that it refers to, and returns its index; `None` if it was
    /// computed.
    fn visit(&mut self, lazy: &Arc<Lazy>) -> Option<usize> {
        if lazy.memory().is_some() {
            return None;
        }
        // The latest are the most likely.
        let is_same = |node: &PendingNode| Arc::ptr_eq(&node.lazy, lazy);
        if let Some(index) = self.nodes.iter().rposition(is_same) {
            return Some(index);
        }
        let mut args: SmallVec<[(ArgSource, DType); 2]> = SmallVec::new();
        // It is computed before the rest.
        let is_alone = lazy.is_computed_alone();
        for arg in lazy.args().iter().filter(|_| !is_alone) {
            let source = match arg.storage.pending().and_then(|lazy| self.visit(lazy)) {
                Some(index) => {
                    self.nodes[index].references += 1;
                    ArgSource::Node(index as u8)
                }
                None => ArgSource::Leaf(self.leaf(arg, lazy)?),
            };
            args.push((source, arg.dtype));
        }
        let is_widened = lazy.expression().is_conversion()
            && lazy.expression().dtype == DType::F32
            && matches!(args[..], [(ArgSource::Leaf(leaf), dtype)] if dtype.is_half()
                && self.leaves[usize::from(leaf)].is_packed());
        self.nodes.push(PendingNode { lazy: lazy.clone(), args, references: 0, is_widened });
        Some(self.nodes.len() - 1)
    }

    /// Returns the index of a tensor in memory, which is added if it is new.
    fn leaf(&mut self, arg: &Arg, reader: &Lazy) -> Option<u8> {
        let memory = arg.storage.memory()?;
        let len = match reader.reduction() {
            Some(reduction) => reduction.shape.iter().product(),
            None => reader.expression().len,
        };
        let is_same = |leaf: &Leaf| {
            Arc::ptr_eq(&leaf.memory, memory)
                && leaf.dtype == arg.dtype
                && leaf.layout == arg.layout
                && leaf.padding == arg.padding
                && leaf.len == len
        };
        let index = self.leaves.iter().position(is_same).unwrap_or_else(|| {
            self.leaves.push(Leaf {
                memory: memory.clone(),
                dtype: arg.dtype,
                layout: arg.layout.clone(),
                padding: arg.padding.clone(),
                len,
                references: 0,
                lazy_owners: arg.storage.lazy_owners(),
                is_kept: false,
            });
            self.leaves.len() - 1
        });
        self.leaves[index].references += 1;
        Some(index as u8)
    }

    /// Returns the lines of the graph if it has a pending reduction, or results of one element per line beside results
    /// of all elements.
    pub fn lines(&self) -> Option<LineShape> {
        let (lines, len) = (self.root().lazy.extent().lines?, self.root().expression().len);
        let line_len = lines.len as usize;
        let count = if lines.is_reduced { len } else { len / line_len };
        let is_per_line = |node: &PendingNode| node.expression().len == count;
        let is_mixed = self.nodes.iter().any(is_per_line) && !self.nodes.iter().all(is_per_line);
        (self.has_reductions() || is_mixed).then_some(LineShape { count, len: line_len })
    }

    /// Returns whether a result is that of a reduction.
    pub fn has_reductions(&self) -> bool {
        self.nodes.iter().any(|node| node.lazy.reduction().is_some())
    }

    /// Returns the last result of one element for each line.
    pub fn last_per_line(&self, lines: LineShape) -> Option<&PendingNode> {
        self.nodes.iter().rev().find(|node| node.expression().len == lines.count)
    }

    /// Returns the result.
    pub fn root(&self) -> &PendingNode {
        &self.nodes[self.nodes.len() - 1]
    }

    /// Returns the ops of the results.
    pub fn ops(&self) -> impl Iterator<Item = &'static str> {
        self.nodes.iter().map(|node| node.expression().origin.op)
    }

    /// Returns the indices of the results that must be in memory: those that something outside of
    /// the graph needs there, and the last.
    pub fn outputs(&self) -> impl Iterator<Item = usize> {
        let last = self.nodes.len() - 1;
        (0..=last).filter(move |&index| index == last || self.nodes[index].is_written(0))
    }

    /// Returns the indices of the results that something outside of the graph needs in memory, besides
    /// one tensor that refers to the last.
    pub fn held_besides_root(&self) -> impl Iterator<Item = usize> {
        let last = self.nodes.len() - 1;
        (0..=last).filter(move |&index| self.nodes[index].is_written(usize::from(index == last)))
    }

    /// Returns whether a result may depend on an index outside its axis.
    pub fn is_tainted(&self) -> bool {
        self.leaves.iter().any(|leaf| leaf.memory.is_tainted())
    }

    /// Adds what results depend on. `results` are their indices and their memory, `launch` is what the pending launch
    /// in the graph reads, if there is one.
    pub fn add_flows<'a>(
        &'a self,
        flows: &mut Flows<'a>,
        results: impl Iterator<Item = (usize, &'a Allocation)>,
        launch: &[&'a Allocation],
    ) {
        const LAUNCH: u64 = 1 << 63;
        // A bit for each leaf, and one for the launch.
        let mut masks: SmallVec<[u64; 32]> = SmallVec::new();
        for node in &self.nodes {
            let own = if node.lazy.is_launch() { LAUNCH } else { 0 };
            let mask = node.args.iter().fold(own, |mask, (source, _)| match *source {
                ArgSource::Node(index) => mask | masks[usize::from(index)],
                ArgSource::Leaf(index) => mask | 1 << index,
            });
            masks.push(mask);
        }
        for (result, memory) in results {
            let mask = masks[result];
            let leaves = self.leaves.iter().enumerate();
            let leaves = leaves.filter(|(index, _)| mask >> index & 1 == 1);
            let launch = launch.iter().filter(|_| mask & LAUNCH != 0);
            let read = leaves.map(|(_, leaf)| &*leaf.memory).chain(launch.copied());
            flows.add(read, [memory]);
        }
    }

    /// Returns a result that can be computed on its own, after which the rest is smaller.
    pub fn middle(&self) -> Option<&Arc<Lazy>> {
        let last = self.nodes.len() - 1;
        (last > 0).then(|| &self.nodes[last / 2].lazy)
    }
}
