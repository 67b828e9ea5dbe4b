//! Computes pending results: chooses the kernels, and which results are computed together.

use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

use crate::kernels::fusion::batch::{Computation, MAX_BATCHED_LEN, add_equal_graphs, batches};
use crate::kernels::fusion::fused::FusedLaunch;
use crate::kernels::fusion::graph::{Graph, MAX_NODES};
use crate::kernels::fusion::lines;
use crate::kernels::fusion::program::{MAX_WORDS, Overwrite, Program, Words};
use crate::kernels::fusion::registry::{MAX_BINDINGS, index_of, may_use};
use crate::kernels::fusion::schedule::{self, NextStep, RecordedLaunch};
use crate::kernels::policy;
use crate::runtime::{Allocation, Flows, Runtime, RuntimeError, current_origin, set_origin};
use crate::tensor::{Epilogue, Lazy};

/// The maximum number of expressions in an epilogue, without conversions. It is compiled for each
/// element of a tile.
const MAX_EPILOGUE_OPS: usize = 8;

/// Computes a result: launches the kernel of all pending expressions that lead to it. Where they
/// are too many for one kernel, some are computed first. Small results of the same program, such as
/// the parameters of an optimizer, are computed together.
pub(crate) fn compute(root: &Arc<Lazy>) -> Result<(), RuntimeError> {
    // Events name the op that is computed, not the one that needs it.
    let needed_by = current_origin();
    set_origin(root.expression().origin);
    let mut may_batch = true;
    let computed = schedule::run(root.runtime(), || {
        let Some(graph) = Graph::of(root) else { return Ok(NextStep::Nothing) };
        if let Some(alone) = graph.nodes.iter().find(|node| node.lazy.is_computed_alone()) {
            let is_root = Arc::ptr_eq(&alone.lazy, root);
            return Ok(if is_root { NextStep::Nothing } else { NextStep::after(&alone.lazy) });
        }
        if graph.nodes.len() > MAX_NODES
            && let Some(middle) = graph.middle()
        {
            return Ok(NextStep::after(middle));
        }
        if let Some(shape) = graph.lines() {
            return lines::look(&graph, shape);
        }
        let mut launches = (0..graph.nodes.len()).filter(|&i| graph.nodes[i].lazy.is_launch());
        match (launches.next(), launches.next()) {
            (None, _) => elementwise(root, graph, &mut may_batch),
            (Some(launch), None) => with_epilogue(root, graph, launch),
            // The last one computes the rest.
            (Some(launch), Some(_)) => Ok(NextStep::after(&graph.nodes[launch].lazy)),
        }
    });
    set_origin(needed_by);
    computed?;
    // Of a reduction, no kernel computes more than that.
    if root.memory().is_none() { root.reduce_by_itself() } else { Ok(()) }
}

/// Launches the kernel of a graph of elementwise ops, with equal graphs unless `may_batch` is `false`.
fn elementwise(
    root: &Arc<Lazy>,
    graph: Graph,
    may_batch: &mut bool,
) -> Result<NextStep<'static>, RuntimeError> {
    let runtime = root.runtime();
    let len = graph.root().expression().len;
    let overwrite = match policy::of(runtime).pays_for_special_case(len) {
        true => Overwrite::OwnBuffers,
        false => Overwrite::Nothing,
    };
    let (mut program, mut words) = Program::new(&graph, graph.outputs(), overwrite);
    let max_bindings = runtime.info().limits.storage_buffers_per_stage.min(MAX_BINDINGS) as usize;
    let too_large = program.bindings() > max_bindings || words.len() > MAX_WORDS;
    if (too_large || !may_use(runtime, &program))
        && let Some(middle) = graph.middle()
    {
        return Ok(NextStep::after(middle));
    }
    let mut graphs = vec![graph];
    // One binding of a batch is the table.
    let max_pages = policy::of(runtime).batched_pages().min(max_bindings - 1);
    let fits = program.bindings() <= max_pages && len <= MAX_BATCHED_LEN;
    if fits
        && *may_batch
        && runtime.binds_whole_buffers()
        && runtime.deferred_like(root.extent().signature).len() > 1
        && let Some((batch_program, batch_words)) = Program::for_batch(&graphs[0])
    {
        add_equal_graphs(&mut graphs, &batch_program, &batch_words);
        if graphs.len() > 1 {
            (program, words) = (batch_program, batch_words);
        }
    }
    let computations = (0..graphs.len())
        .map(|graph| Computation::new(runtime, &graphs, graph, &program))
        .collect::<Result<SmallVec<[Computation; 1]>, RuntimeError>>()?;
    if let [computation] = &computations[..] {
        return single(runtime, &graphs[0], computation, program, &words);
    }
    let batches = batches(runtime, &computations, max_pages)?;
    let launches: Vec<FusedLaunch<'_>> = batches
        .iter()
        .map(|(_, pages)| {
            program.pages = pages.slots(max_pages) as u8;
            FusedLaunch::new(runtime, &program, &words, graphs[0].ops())
        })
        .collect();
    if let Some(launch) = launches.iter().find(|launch| !launch.is_prepared()) {
        // The kernel for one of them may exist.
        *may_batch = runtime.may_generate();
        return Ok(if *may_batch {
            NextStep::Compile(launch.compilation())
        } else {
            NextStep::Again
        });
    }
    let mut recordings: SmallVec<[RecordedLaunch; 1]> = SmallVec::new();
    for (launch, (batch, pages)) in launches.iter().zip(&batches) {
        // The first graph is in the first batch. The error may be of another, where it is used.
        let Ok(recorded) = launch.run_batch(batch, pages) else { break };
        batch.iter().for_each(|computation| computation.resolve(&graphs, &program));
        let results = batch.iter().flat_map(|computation| &computation.outputs);
        recordings.push(RecordedLaunch { recorded, results: results.cloned().collect() });
    }
    *may_batch = !recordings.is_empty();
    Ok(if *may_batch { NextStep::Recorded(recordings) } else { NextStep::Again })
}

/// Launches the kernel of one graph.
fn single(
    runtime: &Runtime,
    graph: &Graph,
    computation: &Computation,
    program: Program,
    words: &Words,
) -> Result<NextStep<'static>, RuntimeError> {
    let launch = FusedLaunch::new(runtime, &program, words, graph.ops());
    if !launch.is_prepared() {
        // Two smaller kernels are more likely to exist.
        let middle = graph.middle().filter(|_| !runtime.may_generate());
        return Ok(match middle {
            Some(middle) => NextStep::after(middle),
            None => NextStep::Compile(launch.compilation()),
        });
    }
    let recorded = launch.run(computation, graph, &program)?;
    computation.resolve(std::slice::from_ref(graph), &program);
    let results = computation.outputs.clone();
    Ok(NextStep::Recorded(smallvec![RecordedLaunch { recorded, results }]))
}

/// Launches a graph with one launch, the node with index `launch`, of which the rest is the epilogue.
fn with_epilogue(
    root: &Arc<Lazy>,
    graph: Graph,
    launch: usize,
) -> Result<NextStep<'static>, RuntimeError> {
    let runtime = root.runtime();
    // Another reference would make the result look used elsewhere.
    let lazy = &graph.nodes[launch].lazy;
    let len = lazy.expression().len;
    let launch = lazy.launch().expect("a result without memory still has its launch");
    let (program, words) = Program::new(&graph, graph.outputs(), Overwrite::Nothing);
    let inputs: SmallVec<[Arc<Allocation>; 8]> =
        graph.leaves.iter().map(|leaf| leaf.memory.clone()).collect();
    let has_epilogue = graph.nodes.len() > 1;
    let may_fuse = !has_epilogue || may_use(runtime, &program);
    let epilogue = (has_epilogue && may_fuse).then(|| Epilogue {
        program: index_of(&program, graph.ops()),
        inputs: &inputs,
        outputs: program.outputs.len(),
        words: &words,
        work: graph.nodes.len() as u64 * len as u64,
        writes_halves: program
            .outputs
            .iter()
            .any(|output| program.steps[usize::from(output.step)].dtype.size() == 2),
    });
    let epilogue = epilogue.as_ref();
    let computes = graph.nodes.iter().filter(|node| !node.expression().is_conversion());
    let is_long = computes.count() > MAX_EPILOGUE_OPS + 1;
    // The functions of integers have one type in a kernel.
    let has_i32 = graph.root().lazy.extent().integer.is_none_or(|integer| integer.wgsl() == "i32");
    let compilation = launch.compilation(epilogue);
    let is_new = compilation.is_some() && !runtime.may_generate();
    let refused = !may_fuse || has_epilogue && is_new;
    if is_long || refused || epilogue.is_some_and(|epilogue| !has_i32 || !launch.fits(epilogue)) {
        // The launch alone. A batch computes the rest of this and of similar graphs.
        let mut first = smallvec![lazy.clone()];
        add_launches_like(root, &mut first);
        return Ok(NextStep::After(first));
    }
    if let Some(compilation) = compilation {
        return Ok(NextStep::Compile(compilation));
    }
    let results = program.outputs.iter().map(|output| &graph.nodes[usize::from(output.step)].lazy);
    let mut outputs: SmallVec<[Arc<Allocation>; 4]> = SmallVec::new();
    for result in results.clone() {
        let memory = runtime.alloc(result.bytes())?.with_origin(result.expression().origin);
        outputs.push(Arc::new(memory));
    }
    let launch_inputs: SmallVec<[&Allocation; 8]> =
        launch.inputs().iter().map(|input| &**input).collect();
    let mut flows = Flows::default();
    let is_tainted = launch_inputs.iter().any(|input| input.is_tainted()) || graph.is_tainted();
    if outputs.len() > 1 && is_tainted {
        let steps = program.outputs.iter().map(|output| usize::from(output.step));
        let memory = outputs.iter().map(|memory| &**memory);
        graph.add_flows(&mut flows, steps.zip(memory), &launch_inputs);
    }
    let recorded = launch.record(&outputs, epilogue, &flows)?;
    drop((flows, launch_inputs));
    results.zip(&outputs).for_each(|(result, memory)| result.resolve(memory.clone()));
    Ok(NextStep::Recorded(smallvec![RecordedLaunch { recorded, results: outputs }]))
}

/// Adds the pending launches that lead to results with the signature of `root`.
fn add_launches_like(root: &Arc<Lazy>, launches: &mut SmallVec<[Arc<Lazy>; 2]>) {
    for candidate in root.runtime().deferred_like(root.extent().signature) {
        if let Ok(lazy) = candidate.into_any().downcast::<Lazy>() {
            add_launches(&lazy, launches);
        }
    }
}

/// Adds the pending launches that lead to a result. Its extent bounds the number of calls.
fn add_launches(lazy: &Arc<Lazy>, launches: &mut SmallVec<[Arc<Lazy>; 2]>) {
    if lazy.is_launch() && lazy.memory().is_none() {
        launches.push(lazy.clone());
    }
    for arg in lazy.args().iter() {
        if let Some(lazy) = arg.storage.pending() {
            add_launches(lazy, launches);
        }
    }
}
