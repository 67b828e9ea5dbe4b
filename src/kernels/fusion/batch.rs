//! Results that are computed together: equal programs over many tensors, such as the parameters of
//! an optimizer.

use std::fmt;
use std::sync::Arc;

use rustc_hash::FxHashSet;
use smallvec::SmallVec;

use crate::kernels::fusion::graph::{Graph, Leaf, PendingNode};
use crate::kernels::fusion::program::{Program, Words};
use crate::runtime::{
    Allocation, Dispatch, Flows, KernelKey, Location, Recorded, Runtime, RuntimeError,
    describe_operands,
};
use crate::tensor::Lazy;

/// The numbers of pages that kernels have, where the adapter allows it.
const PAGE_SLOTS: [usize; 3] = [3, 7, 15];

/// Results with more elements are computed on their own: they have GPU buffers of their own.
pub(crate) const MAX_BATCHED_LEN: usize = (1 << 18) - 1;

/// Adds the pending expressions that have the same program and the same parameters, and no
/// expression in common.
pub(crate) fn add_equal_graphs(graphs: &mut Vec<Graph>, program: &Program, words: &Words) {
    let first = &graphs[0].root().lazy;
    let runtime = first.runtime().clone();
    let candidates = runtime.deferred_like(first.extent().signature);
    let mut included: FxHashSet<usize> = FxHashSet::default();
    let address = |node: &PendingNode| Arc::as_ptr(&node.lazy) as usize;
    included.extend(graphs[0].nodes.iter().map(address));
    // The newest first: older ones may lead to it.
    for candidate in candidates.into_iter().rev() {
        let Ok(lazy) = candidate.into_any().downcast::<Lazy>() else { continue };
        // What is used by another pending expression may be computed with it, without memory.
        if lazy.is_used() {
            continue;
        }
        let Some(graph) = Graph::of(&lazy) else { continue };
        drop(lazy);
        if graph.root().expression().len > MAX_BATCHED_LEN
            || graph.lines().is_some()
            || graph.nodes.iter().any(|node| node.lazy.is_computed_alone())
            || graph.nodes.iter().any(|node| included.contains(&address(node)))
            // Its error must not become that of the others.
            || graph.leaves.iter().any(|leaf| runtime.check_contents(&leaf.memory).is_err())
        {
            continue;
        }
        let other = Program::for_batch(&graph);
        if other.is_some_and(|(other, other_words)| other == *program && other_words == *words) {
            included.extend(graph.nodes.iter().map(address));
            graphs.push(graph);
        }
    }
}

/// The launch of the kernel of one graph, which is compiled.
pub(crate) struct GraphLaunch<'a> {
    pub key: KernelKey,
    pub params: &'a [u8],
    pub groups: u64,
    pub work: u64,
    /// The sizes of the results, for messages.
    pub results: fmt::Arguments<'a>,
}

/// What one graph of a launch reads and writes.
pub(crate) struct Computation {
    /// The memory of the leaves that no output overwrites.
    pub inputs: SmallVec<[Arc<Allocation>; 4]>,
    /// Where their elements start.
    offsets: SmallVec<[usize; 4]>,
    pub outputs: SmallVec<[Arc<Allocation>; 4]>,
    /// The number of elements.
    pub len: usize,
    /// The number of expressions.
    pub ops: usize,
    /// The index of the graph.
    graph: usize,
}

impl Computation {
    /// Allocates the outputs that overwrite no leaf.
    pub fn new(
        runtime: &Runtime,
        graphs: &[Graph],
        index: usize,
        program: &Program,
    ) -> Result<Self, RuntimeError> {
        let graph = &graphs[index];
        let mut outputs = SmallVec::new();
        for output in &program.outputs {
            outputs.push(match output.overwrites {
                Some(leaf) => graph.leaves[usize::from(leaf)].memory.clone(),
                None => {
                    let node = &graph.nodes[usize::from(output.step)];
                    Arc::new(
                        runtime.alloc(node.lazy.bytes())?.with_origin(node.expression().origin),
                    )
                }
            });
        }
        let leaves = graph.leaves.iter().zip(&program.leaves);
        let read = leaves.filter(|(_, leaf)| leaf.overwritten_by.is_none());
        let read: SmallVec<[&Leaf; 4]> = read.map(|(leaf, _)| leaf).collect();
        Ok(Self {
            inputs: read.iter().map(|leaf| leaf.memory.clone()).collect(),
            offsets: read.iter().map(|leaf| leaf.offset()).collect(),
            outputs,
            len: graph.root().expression().len,
            ops: graph.nodes.len(),
            graph: index,
        })
    }

    /// Records a launch of the graph and its program.
    ///
    /// # Errors
    ///
    /// As [`Runtime::record_dispatch`].
    pub fn record(
        &self,
        (graph, program): (&Graph, &Program),
        launch: &GraphLaunch<'_>,
    ) -> Result<Recorded, RuntimeError> {
        let [inputs, outputs] = [&self.inputs[..], &self.outputs[..]].map(|list| {
            list.iter().map(|memory| &**memory).collect::<SmallVec<[&Allocation; 8]>>()
        });
        let mut flows = Flows::default();
        if outputs.len() > 1 && graph.is_tainted() {
            let steps = program.outputs.iter().map(|output| usize::from(output.step));
            graph.add_flows(&mut flows, steps.zip(outputs.iter().copied()), &[]);
        }
        let GraphLaunch { results, .. } = launch;
        describe_operands(|| format!("{} -> {} of {results}", inputs.len(), outputs.len()));
        graph.root().lazy.runtime().record_dispatch(&Dispatch {
            key: launch.key,
            kernel: &|| unreachable!("the kernel is compiled before its launch"),
            inputs: &inputs,
            outputs: &outputs,
            params: launch.params,
            groups: launch.groups,
            work: launch.work,
            indexed_axes: None,
            also_read: &flows.read,
            also_written: &flows.written,
            separate: &flows.groups,
        })
    }

    /// Makes the outputs the memory of their expressions.
    pub fn resolve(&self, graphs: &[Graph], program: &Program) {
        for (output, memory) in program.outputs.iter().zip(&self.outputs) {
            graphs[self.graph].nodes[usize::from(output.step)].lazy.resolve(memory.clone());
        }
    }

    /// Returns the inputs, then the outputs.
    pub fn operands(&self) -> impl Iterator<Item = &Arc<Allocation>> {
        self.inputs.iter().chain(&self.outputs)
    }

    /// Returns the operands with the offsets of their elements.
    pub fn places(&self) -> impl Iterator<Item = (&Arc<Allocation>, usize)> {
        let offsets = self.offsets.iter().copied().chain(std::iter::repeat(0));
        self.operands().zip(offsets)
    }
}

/// The GPU buffers of a batch: for each, its id and memory in it.
#[derive(Default)]
pub(crate) struct Pages<'a>(SmallVec<[(Location, &'a Allocation); 8]>);

impl<'a> Pages<'a> {
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the number of pages that the kernel has: some more, so that there are few kernels.
    pub fn slots(&self, max_pages: usize) -> usize {
        let fits = |slots: &usize| (self.len()..=max_pages).contains(slots);
        PAGE_SLOTS.into_iter().find(fits).unwrap_or(self.len())
    }

    /// Adds the buffers of placed memory that are missing.
    fn add(&mut self, memory: &'a Allocation) {
        if let Some(location) = memory.location()
            && self.0.iter().all(|(page, _)| page.buffer != location.buffer)
        {
            self.0.push((location, memory));
        }
    }

    /// Returns the index of the buffer of memory, and where the 32-bit word `offset` of the memory
    /// is, in vec4s, relative to the memory by which the buffer is bound.
    pub fn find(&self, memory: &Allocation, offset: usize) -> [u32; 2] {
        let location = memory.location();
        let same = |location: Location| {
            self.0
                .iter()
                .position(|(page, _)| page.buffer == location.buffer)
                .map(|i| (i, location))
        };
        location.and_then(same).map_or([0; 2], |(index, location)| {
            let (page, _) = self.0[index];
            // Negative distances wrap, as the sum with the start of the page's memory does.
            let distance = location.offset.cast_signed() - page.offset.cast_signed();
            [index as u32, ((distance / 16) as u32).wrapping_add((offset / 4) as u32)]
        })
    }

    /// Returns memory in each buffer.
    pub fn memory(&self) -> impl Iterator<Item = &Allocation> {
        self.0.iter().map(|(_, memory)| *memory)
    }
}

/// Places the outputs, and divides computations into batches whose operands are in at most
/// `max_pages` buffers.
pub(crate) fn batches<'a>(
    runtime: &Runtime,
    computations: &'a [Computation],
    max_pages: usize,
) -> Result<Vec<(Vec<&'a Computation>, Pages<'a>)>, RuntimeError> {
    let mut out: Vec<(Vec<&Computation>, Pages<'_>)> = Vec::new();
    for computation in computations {
        let [inputs, outputs] = [&computation.inputs, &computation.outputs].map(|list| {
            list.iter().map(|memory| &**memory).collect::<SmallVec<[&Allocation; 8]>>()
        });
        runtime.place_outputs(&outputs, &inputs)?;
        let with = |pages: Pages<'a>| {
            computation.operands().fold(pages, |mut pages, memory| {
                pages.add(memory);
                pages
            })
        };
        if let Some((batch, pages)) = out.last_mut() {
            let joined = with(Pages(pages.0.clone()));
            if joined.len() <= max_pages {
                batch.push(computation);
                *pages = joined;
                continue;
            }
        }
        out.push((vec![computation], with(Pages::default())));
    }
    Ok(out)
}
