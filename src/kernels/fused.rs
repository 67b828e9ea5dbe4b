//! Fused elementwise ops: an op becomes a pending expression, and one kernel computes the pending
//! expressions that lead to a result when its memory is needed.

use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use parking_lot::{Mutex, MutexGuard};
use rustc_hash::{FxHashMap, FxHasher};
use smallvec::SmallVec;

use super::common::cases::Case;
use super::common::launch::{PendingResult, described, description, div_up, variants_of};
use super::common::policy;
use super::dequantize;
use super::elementwise::{self, CONSTANT, Map};
use super::fusion::batch::{Computation, MAX_BATCHED_LEN, Pages, add_equal_graphs, batches};
use super::fusion::composite::AnyLaunch;
use super::fusion::epilogue::DeferredLaunch;
use super::fusion::graph::Graph;
use super::fusion::program::{Access, MAX_WORDS, Overwrite, Program, RESULT, Words};
use super::fusion::prologue;
use crate::params;
use crate::runtime::{
    Allocation, Deferred, Dispatch, Flows, Kernel, KernelKey, Recorded, Runtime, RuntimeError,
    Source, Variant, current_op, describe_operands, is_captured, set_current_op, wgsl,
};
use crate::tensor::{
    Arg, DType, Epilogue, Error, Expression, Extent, Layout, Lazy, Padding, Result, Tensor,
};
use crate::variables;

static FUSED: Source = Source::new::<FusedParams>("fused", wgsl!("../../shaders/fused/fused.wgsl"));

params! {
    struct FusedParams {
        len: u32,
        rounds: u32,
        pad0: u32,
        pad1: u32,
        words: [[u32; 4]; 1],
    }
}

/// Invocations of a workgroup; each computes one vec4 per round.
const WORKGROUP_SIZE: usize = 64;
/// The maximum number of expressions in a kernel.
const MAX_OPS: u32 = 24;
/// The maximum number of expressions in an epilogue, without conversions. It is compiled for each
/// element of a tile.
const MAX_EPILOGUE_OPS: usize = 8;
/// The maximum number of tensors in memory that a kernel reads and writes.
pub(super) const MAX_BINDINGS: u32 = 16;

/// Whether ops are fused.
static ENABLED: LazyLock<AtomicBool> =
    LazyLock::new(|| AtomicBool::new(!variables::FUSION.is_off()));

/// Returns whether ops are fused.
pub(crate) fn is_enabled() -> bool {
    ENABLED.load(Ordering::Relaxed)
}

/// Enables or disables the fusion of elementwise ops, which is enabled at first unless
/// `BURN_WGSL_FUSION` is `0`. Ops that are pending already are still computed together.
pub fn set_fusion(enabled: bool) {
    ENABLED.store(enabled, Ordering::Relaxed);
}

/// Every program of the process. A kernel refers to one by its index.
static PROGRAMS: LazyLock<Mutex<Programs>> = LazyLock::new(Mutex::default);

#[derive(Default)]
struct Programs {
    indices: FxHashMap<Arc<Program>, u32>,
    /// Each program, and the ops that it was first made for.
    list: Vec<(Arc<Program>, Arc<[&'static str]>)>,
}

/// A fused kernel.
#[derive(Debug, Clone, Copy, Hash)]
struct FusedKernel {
    /// The index of the program.
    program: u32,
    /// The length of the array of parameters, in vec4s.
    words: u32,
}

/// Returns the index of a program of these ops.
pub(super) fn index_of(program: &Program, ops: impl Iterator<Item = &'static str>) -> u32 {
    let mut programs = PROGRAMS.lock();
    let Programs { indices, list } = &mut *programs;
    if let Some(&index) = indices.get(program) {
        return index;
    }
    let program = Arc::new(program.clone());
    let index = list.len() as u32;
    list.push((program.clone(), ops.collect()));
    indices.insert(program, index);
    index
}

/// Returns whether a kernel of the program should be asked for: it has an index, or more kernels
/// should be generated.
pub(super) fn may_use(runtime: &Runtime, program: &Program) -> bool {
    runtime.may_generate() || PROGRAMS.lock().indices.contains_key(program)
}

/// Returns the program with an index, and its ops.
pub(super) fn program_of(index: u32) -> (Arc<Program>, Arc<[&'static str]>) {
    PROGRAMS.lock().list[index as usize].clone()
}

impl FusedKernel {
    /// Returns the kernel of a program of these ops, with parameters of `words` words.
    fn new(program: &Program, words: usize, ops: impl Iterator<Item = &'static str>) -> Self {
        Self { program: index_of(program, ops), words: words.div_ceil(4).max(1) as u32 }
    }

    /// Returns the size of the WGSL `Params` in bytes.
    fn params_len(self) -> usize {
        16 * (1 + self.words as usize)
    }

    /// Compiles the kernel.
    fn prepare(self, runtime: &Runtime, operands: (usize, usize)) -> Result<(), RuntimeError> {
        let key = KernelKey::of(&self);
        runtime.prepare(key, &|| self.variant(), operands, self.params_len())
    }
}

impl Kernel for FusedKernel {
    type Params = FusedParams;

    fn variant(&self) -> Variant {
        let (program, ops) = program_of(self.program);
        let text = program.text(&ops);
        let mut variant = Variant::new(&FUSED)
            .flag("BATCHED", program.pages > 0)
            .label(program.to_string())
            .ty("A", text.integer)
            .int("WORDS", self.words)
            .int("ENTRY", text.entry)
            .int("ELEMENTS", program.batched_elements() as u32)
            .code("CODE", text.code);
        variant.ops.extend(ops.iter());
        variant
    }
}

/// Returns the pending result of an elementwise computation. The inputs broadcast to `shape`.
///
/// # Errors
///
/// Returns an error if the inputs are on different devices, the result is too large, or an input
/// that must be computed first cannot be computed.
pub(crate) fn defer<const N: usize>(
    map: &Map,
    inputs: [Tensor; N],
    shape: &[usize],
) -> Result<Tensor> {
    let runtime = inputs[0].runtime().clone();
    let mut args: SmallVec<[Arg; 2]> = SmallVec::new();
    for input in inputs {
        if !Arc::ptr_eq(input.runtime(), &runtime) {
            let (lhs, rhs) = (runtime.name(), input.runtime().name());
            return Err(Error::DeviceMismatch { lhs, rhs });
        }
        args.push(input.into_arg(shape)?);
    }
    defer_args(map, &runtime, args, shape)
}

fn defer_args(
    map: &Map,
    runtime: &Arc<Runtime>,
    args: SmallVec<[Arg; 2]>,
    shape: &[usize],
) -> Result<Tensor> {
    let len = shape.iter().product();
    let mut extent = extent(shape, len, &args)?;
    extent.signature = signature(map, &args);
    let keeps_much = extent.kept > max_kept_bytes(len);
    let result = pending(map, runtime, shape, len, args, extent)?;
    if keeps_much {
        // Pending, a small result would keep large operands alive.
        result.buffer()?;
    }
    Ok(result)
}

/// Returns the pending result of a computation without inputs.
///
/// # Errors
///
/// Returns an error if the result is too large.
pub(crate) fn defer_fill(map: &Map, runtime: &Arc<Runtime>, shape: &[usize]) -> Result<Tensor> {
    let extent = Extent { ops: 1, signature: signature(map, &[]), ..Extent::default() };
    pending(map, runtime, shape, shape.iter().product(), SmallVec::new(), extent)
}

/// Returns the pending result of a computation whose input, which must be packed, is a part of each
/// line of a tensor that is zero elsewhere.
///
/// # Errors
///
/// Returns an error if the result is too large, or the input cannot be computed.
pub(crate) fn defer_padded(
    map: &Map,
    input: Tensor,
    padding: Padding,
    shape: &[usize],
) -> Result<Tensor> {
    let runtime = input.runtime().clone();
    let args = SmallVec::from_iter([input.into_padded_arg(padding)?]);
    defer_args(map, &runtime, args, shape)
}

/// Returns whether a tensor is a pending constant with bits of zero.
pub(crate) fn is_pending_zero(tensor: &Tensor) -> bool {
    tensor.pending().is_some_and(|lazy| {
        let Expression { wgsl, scalars, .. } = lazy.expression();
        *wgsl == CONSTANT && scalars[..] == [0]
    })
}

/// Returns the pending result of a launch. `None` if the launch must not be deferred.
///
/// # Errors
///
/// Returns an error if an input cannot be computed, the result is too large, or the device was
/// lost.
pub(super) fn defer_launch(
    launch: &AnyLaunch<'_>,
    result: &PendingResult<'_>,
) -> Result<Option<Tensor>> {
    let runtime = launch.runtime;
    let len = result.shape.iter().product();
    // Elements of 64 bits are two words.
    let has_words = result.dtype.size() == 4;
    let has_epilogue = has_words && policy::has_epilogue(runtime, result.large_kernel);
    if !is_enabled() || len == 0 || !has_epilogue {
        return Ok(None);
    }
    let mut deferred = DeferredLaunch {
        runtime: runtime.clone(),
        kernel: launch.kernel.to_box(),
        prologues: SmallVec::new(),
        inputs: SmallVec::new(),
        params: launch.params.into(),
        words: SmallVec::new(),
        workgroups: launch.workgroups,
        work: launch.work,
        rounds: launch.rounds,
        bytes: (len as u64 * result.dtype.size()).next_multiple_of(4),
        vec4: result.vec4,
        op: current_op(),
        operands: match is_captured() {
            true => {
                let result = described(result.dtype, result.shape);
                (description(launch.inputs, &[]) + &result).into()
            }
            false => "".into(),
        },
        kept: 0,
        recorded: AtomicBool::new(true),
    };
    match prologue::fuse(launch, result.prologues)? {
        Some(fused) if !fused.is_pure() => return Ok(None),
        // The launch is made at once, with operands that are computed first.
        Some(fused) if !runtime.may_generate() && !fused.is_prepared(launch) => return Ok(None),
        Some(fused) => {
            let words = fused.prologues.iter().flat_map(|prologue| &prologue.words);
            deferred.words = words.copied().collect();
            deferred.prologues = fused.programs.prologues;
            deferred.inputs = fused.inputs;
            deferred.work = fused.work;
            deferred.rounds = fused.rounds;
        }
        None => {
            for input in launch.inputs {
                launch.inputs[0].same_device(input)?;
                deferred.inputs.push(input.buffer()?.clone());
            }
        }
    }
    let bound = deferred.inputs.iter().map(|input| input.bytes()).chain([deferred.bytes]);
    if bound.max() > Some(runtime.max_binding()) {
        // Made at once, the launch fails with the reason.
        return Ok(None);
    }
    let kept: u64 = deferred.inputs.iter().map(|input| input.kept_bytes()).sum();
    if kept > 2 * max_kept_bytes(len) || !deferred.keep(kept.saturating_sub(2 * 3 * 4 * len as u64))
    {
        return Ok(None);
    }
    deferred.recorded = AtomicBool::new(false);
    let expression = Expression {
        op: current_op(),
        wgsl: RESULT,
        dtype: result.dtype,
        scalars: SmallVec::new(),
        scalar_type: DType::F32,
        len,
    };
    let mut extent = Extent { ops: 1, ..Extent::default() };
    for input in &deferred.inputs {
        // A kernel with more operands would have no epilogue.
        extent.add_leaf(Arc::as_ptr(input) as usize);
    }
    let deferred = Arc::new(deferred);
    Tensor::of_launch(runtime, result.shape, expression, deferred, extent, compute).map(Some)
}

#[inline]
fn pending(
    map: &Map,
    runtime: &Arc<Runtime>,
    shape: &[usize],
    len: usize,
    args: SmallVec<[Arg; 2]>,
    extent: Extent,
) -> Result<Tensor> {
    let expression = Expression {
        op: current_op(),
        wgsl: map.expr,
        dtype: map.out_type,
        scalars: map.scalars.iter().map(|scalar| scalar.bits(map.scalar_type)).collect(),
        scalar_type: map.scalar_type,
        len,
    };
    Tensor::lazy(runtime, shape, expression, args, extent, compute)
}

/// Returns the extent of an op with its arguments. Arguments that cannot be part of its kernel are
/// computed.
fn extent(shape: &[usize], len: usize, args: &[Arg]) -> Result<Extent> {
    loop {
        match try_extent(shape, len, args) {
            Ok(extent) => return Ok(extent),
            Err(index) => drop(args[index].storage.computed()?),
        }
    }
}

/// Returns the extent of an op with its arguments, or the index of a pending argument that must be
/// computed first.
fn try_extent(shape: &[usize], len: usize, args: &[Arg]) -> Result<Extent, usize> {
    let integer = args.first().map(|arg| arg.dtype).filter(|dtype| dtype.is_integer());
    let mut extent = Extent { ops: 1, integer, ..Extent::default() };
    let mut largest: Option<(u32, usize)> = None;
    let mut has_room = true;
    for (index, arg) in args.iter().enumerate() {
        let Some(lazy) = arg.storage.pending() else {
            if let Some(memory) = arg.storage.memory() {
                has_room &= extent.add_leaf(Arc::as_ptr(memory) as usize);
                extent.kept += memory.kept_bytes();
            }
            let walks = |layout: &Layout| Access::without_strides(layout).is_none();
            if arg.layout.as_deref().is_some_and(walks) {
                extent.walked = Some(shape.into());
            }
            continue;
        };
        let inner = lazy.extent();
        let bytes = (len as u64 * arg.dtype.size()).next_multiple_of(4);
        let integers_agree = match (extent.integer, inner.integer) {
            (Some(outer), Some(inner)) => outer.wgsl() == inner.wgsl(),
            _ => true,
        };
        let shapes_agree = inner.walked.as_deref().is_none_or(|walked| walked == shape);
        if arg.layout.is_some() || bytes != lazy.bytes() || !integers_agree || !shapes_agree {
            return Err(index);
        }
        extent.ops += inner.ops;
        extent.kept += inner.kept;
        extent.integer = extent.integer.or(inner.integer);
        if inner.walked.is_some() {
            extent.walked.clone_from(&inner.walked);
        }
        for &address in &inner.addresses[..inner.leaves.into()] {
            has_room &= extent.add_leaf(address);
        }
        if largest.is_none_or(|(ops, _)| inner.ops > ops) {
            largest = Some((inner.ops, index));
        }
    }
    let too_large = !has_room || extent.ops > MAX_OPS || extent.kept > max_kept_bytes(len);
    match largest {
        Some((_, index)) if too_large => Err(index),
        _ => Ok(extent),
    }
}

/// Returns how many bytes pending elementwise results of `len` elements may keep in memory: three
/// tensors of that size, and 1 MiB. A pending launch may keep twice as much.
fn max_kept_bytes(len: usize) -> u64 {
    3 * 4 * len as u64 + (1 << 20)
}

/// Returns the hash of an op, its scalars and its arguments, but for the tensors in memory, and of
/// the thread: what another thread is about to use must not be computed early.
fn signature(map: &Map, args: &[Arg]) -> u64 {
    thread_local! {
        static THREAD: u64 = {
            static COUNT: AtomicU64 = AtomicU64::new(0);
            COUNT.fetch_add(1, Ordering::Relaxed)
        };
    }
    let mut hasher = FxHasher::default();
    THREAD.with(|thread| thread.hash(&mut hasher));
    (map.expr.as_ptr() as usize, map.out_type as u8).hash(&mut hasher);
    for scalar in &map.scalars {
        scalar.bits(map.scalar_type).hash(&mut hasher);
    }
    for arg in args {
        let signature = arg.storage.pending().map_or(0, |lazy| lazy.extent().signature);
        (arg.dtype as u8, signature).hash(&mut hasher);
    }
    hasher.finish()
}

/// Computes a result: launches the kernel of all pending expressions that lead to it. Where they
/// are too many for one kernel, some are computed first. Small results of the same program, such as
/// the parameters of an optimizer, are computed together.
fn compute(root: &Arc<Lazy>) -> Result<(), RuntimeError> {
    // Events name the op that is computed, not the one that needs it.
    let needed_by = current_op();
    set_current_op(root.expression().op);
    let computed = compute_all(root);
    set_current_op(needed_by);
    computed
}

fn compute_all(root: &Arc<Lazy>) -> Result<(), RuntimeError> {
    let runtime = root.runtime();
    let mut may_batch = true;
    loop {
        let locked = runtime.lock_deferred();
        let Some(graph) = Graph::of(root) else { return Ok(()) };
        let mut launches = (0..graph.nodes.len()).filter(|&i| graph.nodes[i].lazy.is_launch());
        match (launches.next(), launches.next()) {
            (None, _) => {}
            (Some(launch), None) => {
                if let Some(launch) = compute_launch(runtime, launch, graph, locked)? {
                    compute(&launch)?;
                    // A batch computes the rest of this and of similar graphs.
                    for launch in launches_like(root) {
                        compute(&launch)?;
                    }
                }
                continue;
            }
            // The last one computes the rest.
            (Some(launch), Some(_)) => {
                let launch = graph.nodes[launch].lazy.clone();
                drop((graph, locked));
                compute(&launch)?;
                continue;
            }
        }
        let len = graph.root().expression().len;
        let overwrite = match policy::pays_for_special_case(runtime, len) {
            true => Overwrite::OwnBuffers,
            false => Overwrite::Nothing,
        };
        let (mut program, mut words) = Program::new(&graph, graph.outputs(), overwrite);
        let max_bindings = runtime.info().limits.storage_buffers_per_stage.min(MAX_BINDINGS);
        let too_large = program.bindings() > max_bindings as usize || words.len() > MAX_WORDS;
        if (too_large || !may_use(runtime, &program))
            && let Some(middle) = graph.middle().cloned()
        {
            drop((graph, locked));
            compute(&middle)?;
            continue;
        }
        let mut graphs = vec![graph];
        // One binding of a batch is the table.
        let max_pages = policy::batched_pages(runtime).min(max_bindings as usize - 1);
        let fits = program.bindings() <= max_pages && len <= MAX_BATCHED_LEN;
        if fits
            && may_batch
            && runtime.binds_whole_buffers()
            && runtime.deferred_like(root.extent().signature).len() > 1
            && let Some((batch_program, batch_words)) = Program::for_batch(&graphs[0])
        {
            add_equal_graphs(&mut graphs, &batch_program, &batch_words);
            if graphs.len() > 1 {
                (program, words) = (batch_program, batch_words);
            }
        }
        let mut computations = Vec::with_capacity(graphs.len());
        for graph in 0..graphs.len() {
            computations.push(Computation::new(runtime, &graphs, graph, &program)?);
        }
        let batches = match computations.len() {
            1 => Vec::new(),
            _ => batches(runtime, &computations, max_pages)?,
        };
        let mut launches: SmallVec<[FusedLaunch<'_>; 1]> = SmallVec::new();
        for pages in batches
            .iter()
            .map(|(_, pages)| pages.slots(max_pages))
            .chain(batches.is_empty().then_some(0))
        {
            let ops = graphs[0].nodes.iter().map(|node| node.expression().op);
            program.pages = pages as u8;
            let operands = program.operands();
            let kernel = FusedKernel::new(&program, words.len(), ops);
            let elements = program.batched_elements();
            launches.push(FusedLaunch { runtime, kernel, operands, elements, words: &words });
        }
        if let Some(launch) = launches.iter().find(|launch| !launch.is_prepared()) {
            drop(locked);
            if graphs.len() > 1 && !runtime.may_generate() {
                // The kernel for one of them may exist.
                may_batch = false;
                continue;
            }
            // Two smaller kernels are more likely to exist.
            if let Some(middle) = graphs[0].middle().filter(|_| !runtime.may_generate()).cloned() {
                drop(graphs);
                compute(&middle)?;
                continue;
            }
            launch.kernel.prepare(runtime, launch.operands)?;
            continue;
        }
        let mut result = Ok(());
        let mut is_refused = false;
        let mut recorded: SmallVec<[Recorded; 1]> = SmallVec::new();
        if batches.is_empty() {
            recorded.push(launches[0].run(&computations[0], &graphs[0], &program)?);
            computations[0].resolve(&graphs, &program);
        }
        for (launch, (batch, pages)) in launches.iter().zip(&batches) {
            match launch.run_batch(batch, pages) {
                Ok(launched) => recorded.push(launched),
                // The first graph is in the first batch. The error may be of another, where it is used.
                Err(_) => {
                    is_refused = recorded.is_empty();
                    break;
                }
            }
            batch.iter().for_each(|computation| computation.resolve(&graphs, &program));
        }
        drop(locked);
        if is_refused {
            may_batch = false;
            continue;
        }
        for launched in recorded {
            if let Err(error) = runtime.finish_dispatch(launched) {
                // An operand may have been overwritten: the results cannot be computed again.
                computations.iter().for_each(|computation| computation.lose(runtime));
                result = result.and(Err(error));
            }
        }
        return result;
    }
}

/// Returns the pending launches that lead to results with the signature of `root`.
fn launches_like(root: &Arc<Lazy>) -> Vec<Arc<Lazy>> {
    let runtime = root.runtime();
    let _locked = runtime.lock_deferred();
    let candidates = runtime.deferred_like(root.extent().signature);
    let lazy = |work: Arc<dyn Deferred>| work.into_any().downcast::<Lazy>().ok();
    let graphs = candidates.into_iter().filter_map(lazy).filter_map(|lazy| Graph::of(&lazy));
    let launches = graphs.flat_map(|graph| {
        let nodes = graph.nodes.into_iter().filter(|node| node.lazy.is_launch());
        nodes.map(|node| node.lazy)
    });
    launches.collect()
}

/// Computes a graph with one launch, the node with index `launch`, of which the rest is the
/// epilogue. Returns the launch if it must be computed first.
fn compute_launch(
    runtime: &Runtime,
    launch: usize,
    graph: Graph,
    locked: MutexGuard<'_, ()>,
) -> Result<Option<Arc<Lazy>>, RuntimeError> {
    // Another reference would make the result look used elsewhere.
    let lazy = &graph.nodes[launch].lazy;
    let (index, len) = (launch, lazy.expression().len);
    let Some(launch) = lazy.launch() else { return Ok(None) };
    let (program, words) = Program::new(&graph, graph.outputs(), Overwrite::Nothing);
    let inputs: SmallVec<[Arc<Allocation>; 8]> =
        graph.leaves.iter().map(|leaf| leaf.memory.clone()).collect();
    let ops = graph.nodes.iter().map(|node| node.expression().op);
    let has_epilogue = graph.nodes.len() > 1;
    let may_fuse = !has_epilogue || may_use(runtime, &program);
    let epilogue = (has_epilogue && may_fuse).then(|| Epilogue {
        program: index_of(&program, ops),
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
    let is_new = |epilogue| !launch.is_prepared(epilogue) && !runtime.may_generate();
    let refused = !may_fuse || has_epilogue && is_new(epilogue);
    if is_long || refused || epilogue.is_some_and(|epilogue| !has_i32 || !launch.fits(epilogue)) {
        let lazy = graph.nodes[index].lazy.clone();
        drop((graph, locked));
        return Ok(Some(lazy));
    }
    if !launch.is_prepared(epilogue) {
        drop(locked);
        launch.prepare(epilogue)?;
        return Ok(None);
    }
    let results = program.outputs.iter().map(|output| &graph.nodes[usize::from(output.step)].lazy);
    let mut outputs: SmallVec<[Arc<Allocation>; 4]> = SmallVec::new();
    for result in results.clone() {
        let memory = runtime.alloc(result.bytes())?.of_op(result.expression().op);
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
    // First the graph: without memory of its own, the launch would look pending to another thread.
    drop(graph);
    drop(locked);
    let finished = runtime.finish_dispatch(recorded);
    if finished.is_err() {
        outputs.iter().for_each(|memory| runtime.lose(memory));
    }
    finished.map(|()| None)
}

/// The launch of a kernel.
struct FusedLaunch<'a> {
    runtime: &'a Runtime,
    kernel: FusedKernel,
    /// The numbers of operands that are only read, and that are written.
    operands: (usize, usize),
    /// The elements that an invocation of a batch computes.
    elements: usize,
    words: &'a Words,
}

impl FusedLaunch<'_> {
    fn is_prepared(&self) -> bool {
        self.runtime.is_prepared(&KernelKey::of(&self.kernel))
    }

    /// Launches the kernel for one graph.
    fn run(
        &self,
        computation: &Computation,
        graph: &Graph,
        program: &Program,
    ) -> Result<Recorded, RuntimeError> {
        let Computation { len, ops, inputs, outputs, .. } = computation;
        let (len, ops) = (*len, *ops);
        let vec4s = len.div_ceil(4);
        let rounds = policy::elementwise_rounds(self.runtime, vec4s);
        // The invocation of each round computes four elements.
        let max_vec4s = policy::max_rounds(self.runtime) / (4 * program.rounds() as usize + 1);
        let rounds = rounds.min(max_vec4s.max(1));
        let [inputs, outputs] = [inputs, outputs].map(|list| {
            list.iter().map(|memory| &**memory).collect::<SmallVec<[&Allocation; 8]>>()
        });
        let mut flows = Flows::default();
        if outputs.len() > 1 && graph.is_tainted() {
            let steps = program.outputs.iter().map(|output| usize::from(output.step));
            graph.add_flows(&mut flows, steps.zip(outputs.iter().copied()), &[]);
        }
        describe_operands(|| format!("{} -> {} of {len} elements", inputs.len(), outputs.len()));
        self.runtime.record_dispatch(&Dispatch {
            inputs: &inputs,
            outputs: &outputs,
            params: &self.params(len, rounds),
            groups: div_up(vec4s, WORKGROUP_SIZE * rounds),
            work: len as u64 * ops as u64,
            also_read: &flows.read,
            also_written: &flows.written,
            separate: &flows.groups,
            ..self.template()
        })
    }

    /// Launches the kernel for several graphs at once. `pages` are the buffers of all operands. A
    /// table tells each workgroup which elements it computes: for each graph the first workgroup,
    /// the number of elements, and the page and the start of each operand.
    fn run_batch(
        &self,
        batch: &[&Computation],
        pages: &Pages<'_>,
    ) -> Result<Recorded, RuntimeError> {
        let mut table: Vec<u32> = Vec::new();
        let (mut groups, mut work) = (0, 0);
        for computation in batch {
            table.extend([groups as u32, computation.len as u32]);
            for (memory, offset) in computation.places() {
                table.extend(pages.find(memory, offset));
            }
            groups += div_up(computation.len.div_ceil(self.elements), WORKGROUP_SIZE);
            work += computation.len as u64 * computation.ops as u64;
        }
        let table = self.runtime.upload(bytemuck::cast_slice(&table))?;
        // Outputs may overwrite leaves, on which they depend.
        let read: Vec<&Allocation> =
            batch.iter().flat_map(|computation| computation.operands()).map(|m| &**m).collect();
        let written: Vec<&Allocation> = batch
            .iter()
            .flat_map(|computation| &computation.outputs)
            .map(|memory| &**memory)
            .collect();
        let separate: Vec<(usize, usize)> = batch
            .iter()
            .map(|computation| (computation.operands().count(), computation.outputs.len()))
            .collect();
        let spares: Result<SmallVec<[Arc<Allocation>; 8]>, RuntimeError> =
            (pages.len()..self.operands.1).map(|index| self.runtime.spare(index)).collect();
        let spares = spares?;
        let outputs: SmallVec<[&Allocation; 16]> =
            pages.memory().chain(spares.iter().map(|spare| &**spare)).collect();
        describe_operands(|| {
            let len: usize = batch.iter().map(|computation| computation.len).sum();
            format!("{} results of {len} elements in total", batch.len())
        });
        self.runtime.record_dispatch(&Dispatch {
            inputs: &[&table],
            outputs: &outputs,
            params: &self.params(batch.len(), 1),
            groups,
            work,
            also_read: &read,
            also_written: &written,
            separate: &separate,
            ..self.template()
        })
    }

    /// Returns a dispatch without operands.
    fn template(&self) -> Dispatch<'_> {
        Dispatch {
            key: KernelKey::of(&self.kernel),
            kernel: &|| unreachable!("the kernel is compiled before its launch"),
            inputs: &[],
            outputs: &[],
            params: &[],
            groups: 0,
            work: 0,
            indexed_axes: None,
            also_read: &[],
            also_written: &[],
            separate: &[],
        }
    }

    /// Returns the bytes of the WGSL `Params`. `len` is the number of elements, or of tensors.
    fn params(&self, len: usize, rounds: usize) -> SmallVec<[u8; 128]> {
        let mut out: SmallVec<[u8; 128]> = SmallVec::new();
        let head = [len as u32, rounds as u32, 0, 0];
        out.extend_from_slice(bytemuck::cast_slice(&head));
        out.extend_from_slice(bytemuck::cast_slice(self.words));
        out.resize(self.kernel.params_len(), 0);
        out
    }
}

/// Returns samples of the kernel: programs decide which there are. Every elementwise expression is
/// in one, and every access to memory in every class of types.
pub fn variants() -> Vec<Variant> {
    let maps = elementwise::maps().into_iter().chain(dequantize::maps());
    let single = maps.map(|(map, types)| {
        let leaves = types.iter().map(|&dtype| (dtype, Access::Packed));
        Program::sample(&[&map], &leaves.collect::<Vec<_>>())
    });
    let mut out: Vec<Program> = single.collect();
    let accesses = [
        Access::Packed,
        Access::Offset,
        Access::Single,
        Access::Runs,
        Access::Vec4,
        Access::Repeated,
        Access::Strided,
        Access::PaddedVec4,
        Access::Padded,
    ];
    for dtype in [DType::F32, DType::F16, DType::BF16, DType::I64] {
        let sum = Map::new("a + b", dtype.compute_type());
        let same = Map::new("a", dtype);
        for access in accesses {
            let program = Program::sample(&[&sum, &same], &[(dtype, access), (dtype, access)]);
            out.push(Program { whole_vec4s: access != Access::Strided, ..program.clone() });
            if dtype.size() == 4 && access == Access::Packed {
                out.push(Program { pages: 3, ..program.clone() });
                out.push(program.overwriting_first());
                for half in [DType::F16, DType::BF16] {
                    let rounded = Map::new("a", half);
                    let program = Program::sample(&[&sum, &rounded], &[(dtype, access); 2]);
                    out.push(Program { pages: 3, ..program });
                }
            }
        }
    }
    let kernels = out.into_iter().map(|program| {
        let words = program.words();
        FusedKernel::new(&program, words, std::iter::empty())
    });
    variants_of(kernels)
}

/// No cases: fused kernels compute the cases of elementwise ops.
pub const CASES: &[Case] = &[];
