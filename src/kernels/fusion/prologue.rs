//! Prologues: a kernel computes a pending input where it reads it, instead of reading memory.
//!
//! This saves the launch that would compute the input, and the memory. Conversions from 16 bits are
//! pending inputs too, so that kernels read 16-bit tensors as they are stored.

use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

use crate::kernels::fusion::composite::{self, AnyLaunch, Composite, Programs, with_words};
use crate::kernels::fusion::graph::{Graph, PendingNode};
use crate::kernels::fusion::program::{Access, Overwrite, Program, ProgramOutput, Words};
use crate::kernels::fusion::registry::{index_of, may_use, rounds_of};
use crate::kernels::fusion::schedule::{self, NextStep, RecordedLaunch};
use crate::kernels::fusion::switch::is_enabled;
use crate::kernels::ops::map::Map;
use crate::kernels::policy;
use crate::runtime::{Allocation, Compilation, Dispatch, Flows, Kernel, Variant, variants_of};
use crate::tensor::{Arg, DType, Lazy, Result, Tensor, describe};

/// How often a kernel reads each element of an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reads {
    /// At least once, and seldom more often. Prologues write what they compute and overwrite
    /// nothing that they read, so that the same value may be written again.
    Once,
    /// A few times, or not at all.
    Seldom,
    /// Any number of times, or not at all.
    AnyNumber,
}

/// The maximum number of expressions that a kernel computes more than once.
const MAX_REPEATED_OPS: usize = 8;
/// The maximum number of tensors that a kernel reads more than once for an input.
const MAX_REPEATED_LEAVES: usize = 3;

/// What computes an input.
pub(crate) struct Prologue {
    input: usize,
    graph: Graph,
    program: Program,
    pub words: Words,
}

impl Prologue {
    /// Returns the results that the kernel writes.
    fn outputs(&self) -> impl Iterator<Item = &Arc<Lazy>> + Clone {
        let outputs = self.program.outputs.iter();
        outputs.map(|output| &self.graph.nodes[usize::from(output.step)].lazy)
    }
}

/// How a launch gets an input.
enum PrologueInput {
    /// From memory.
    Memory,
    /// From memory, after a pending result was computed.
    After(Arc<Lazy>),
    Computed(Box<Prologue>),
}

/// Records a launch of which pending `inputs` are computed by the kernel. Returns `false` if there
/// are none, in which case nothing is recorded.
///
/// # Errors
///
/// Returns an error if an input cannot be computed, the operands are on different devices, or in the cases of
/// [`Runtime::dispatch`](crate::runtime::Runtime::dispatch).
pub(crate) fn try_run(launch: &AnyLaunch<'_>, inputs: &[(usize, Reads)]) -> Result<bool> {
    fuse(launch, inputs, |fused| fused.record(launch))
}

/// Calls `look` with a launch of which the kernel computes pending `inputs`, under the lock of the device's pending
/// results. Results that must be in memory are computed before. Returns `false` if no launch was recorded.
///
/// # Errors
///
/// Returns an error if an input cannot be computed, the operands are on different devices, or an error of `look` or of
/// what it says comes next.
pub(crate) fn fuse<'a>(
    launch: &AnyLaunch<'a>,
    inputs: &[(usize, Reads)],
    mut look: impl FnMut(PrologueLaunch) -> Result<NextStep<'a>>,
) -> Result<bool> {
    if !applies(launch, inputs)? {
        return Ok(false);
    }
    schedule::run(launch.runtime, || match fusion(launch, inputs) {
        Fusion::Nothing => Ok(NextStep::Nothing),
        Fusion::After(lazy) => Ok(NextStep::after(&lazy)),
        Fusion::Launch(fused) => look(fused),
    })
}

fn references(memory: &[Arc<Allocation>]) -> SmallVec<[&Allocation; 8]> {
    memory.iter().map(|memory| &**memory).collect()
}

/// What becomes of a launch with pending inputs.
#[expect(
    clippy::large_enum_variant,
    reason = "it is made once for a launch, and taken apart at once"
)]
enum Fusion {
    /// All inputs are in memory.
    Nothing,
    /// A result must be computed first.
    After(Arc<Lazy>),
    /// The kernel computes some inputs, and all others are in memory.
    Launch(PrologueLaunch),
}

/// A launch with prologues. The pending results that it refers to must not change: it lives under the lock of the
/// device's pending results.
pub(crate) struct PrologueLaunch {
    pub programs: Programs,
    pub prologues: SmallVec<[Prologue; 2]>,
    /// What the kernel reads.
    pub inputs: SmallVec<[Arc<Allocation>; 8]>,
    pub work: u64,
    pub rounds: u64,
}

/// Returns whether a launch has pending inputs, which its kernel may compute. All other operands are in memory then.
///
/// # Errors
///
/// Returns an error if an operand cannot be computed, or the operands are on different devices.
fn applies(launch: &AnyLaunch<'_>, inputs: &[(usize, Reads)]) -> Result<bool> {
    let is_pending = |&(input, _): &(usize, Reads)| launch.inputs[input].pending().is_some();
    if !is_enabled() || !inputs.iter().any(is_pending) {
        return Ok(false);
    }
    for operand in launch.inputs.iter().chain(launch.outputs) {
        launch.inputs[0].same_device(operand)?;
    }
    for (index, input) in launch.inputs.iter().enumerate() {
        if inputs.iter().all(|&(other, _)| other != index) {
            input.buffer()?;
        }
    }
    // A launch is recorded under a lock that computing a result would take again.
    for output in launch.outputs {
        output.buffer()?;
    }
    Ok(true)
}

/// Returns a launch of which the kernel computes those of `inputs` that are pending and that it can
/// compute, for a launch that this [applies](applies) to.
fn fusion(launch: &AnyLaunch<'_>, inputs: &[(usize, Reads)]) -> Fusion {
    let mut prologues: SmallVec<[Prologue; 2]> = SmallVec::new();
    let mut first = None;
    for &(index, reads) in inputs {
        match input(launch.inputs[index], index, reads) {
            PrologueInput::Memory => {}
            PrologueInput::After(lazy) => first = Some(lazy),
            PrologueInput::Computed(prologue) => match shared_output(&prologues, &prologue) {
                Some(lazy) => first = Some(lazy),
                None => prologues.push(*prologue),
            },
        }
    }
    if let Some(lazy) = first {
        return Fusion::After(lazy);
    }
    if prologues.is_empty() {
        return Fusion::Nothing;
    }
    let fused = PrologueLaunch::new(launch, prologues);
    if fused.fits(launch) {
        return Fusion::Launch(fused);
    }
    let nodes = |prologue: &&Prologue| prologue.graph.nodes.len();
    match fused.prologues.iter().max_by_key(nodes) {
        Some(largest) => Fusion::After(largest.graph.root().lazy.clone()),
        None => Fusion::Nothing,
    }
}

/// Returns a result that a prologue would compute and write again, because one of `others` does.
fn shared_output(others: &[Prologue], prologue: &Prologue) -> Option<Arc<Lazy>> {
    let mut written = others.iter().flat_map(Prologue::outputs);
    written.find(|lazy| prologue.outputs().any(|output| Arc::ptr_eq(output, lazy))).cloned()
}

impl PrologueLaunch {
    /// Inputs without a prologue must be in memory.
    fn new(launch: &AnyLaunch<'_>, prologues: SmallVec<[Prologue; 2]>) -> Self {
        let mut inputs = SmallVec::new();
        for (index, input) in launch.inputs.iter().enumerate() {
            match prologues.iter().find(|prologue| prologue.input == index) {
                Some(Prologue { graph, .. }) => {
                    inputs.extend(graph.leaves.iter().map(|leaf| leaf.memory.clone()));
                }
                None => inputs.extend(input.memory().cloned()),
            }
        }
        let (mut programs, mut work) = (Programs::default(), launch.work);
        let mut rounds_per_round = 1;
        for Prologue { input, graph, program, .. } in &prologues {
            // A round of the kernel reads a vec4, or two of them.
            let index = index_of(program, graph.ops());
            rounds_per_round += 8 * rounds_of(index);
            programs.prologues.push((*input as u8, index));
            work += (graph.nodes.len() * graph.root().expression().len) as u64;
        }
        let rounds = launch.rounds.saturating_mul(rounds_per_round);
        Self { programs, prologues, inputs, work, rounds }
    }

    /// Returns whether the kernel only writes its own outputs.
    pub fn is_pure(&self) -> bool {
        self.prologues.iter().all(|prologue| prologue.program.outputs.is_empty())
    }

    /// Returns whether the kernel is compiled.
    pub fn is_prepared(&self, launch: &AnyLaunch<'_>) -> bool {
        launch.runtime.is_prepared(&launch.kernel.key(&self.programs))
    }

    /// Records the launch.
    fn record<'l>(self, launch: &AnyLaunch<'l>) -> Result<NextStep<'l>> {
        let Self { programs, prologues, inputs, work, .. } = self;
        let runtime = launch.runtime;
        let key = launch.kernel.key(&programs);
        let is_prepared = runtime.is_prepared(&key);
        if !is_prepared && !runtime.may_generate() {
            let roots = prologues.iter().map(|prologue| prologue.graph.root().lazy.clone());
            return Ok(NextStep::After(roots.collect()));
        }
        let results = prologues.iter().flat_map(Prologue::outputs);
        let words = prologues.iter().map(|prologue| &prologue.words[..]);
        let params = with_words(launch.params, words);
        if !is_prepared {
            let reports = usize::from(launch.indexed_axes.is_some());
            let written = launch.outputs.len() + results.count() + reports;
            let kernel = launch.kernel;
            return Ok(NextStep::Compile(Compilation {
                key,
                kernel: Box::new(move || kernel.variant(&programs)),
                operands: (inputs.len(), written),
                params_len: params.len(),
            }));
        }
        let mut outputs: SmallVec<[Arc<Allocation>; 4]> = SmallVec::new();
        for output in launch.outputs {
            outputs.push(output.buffer()?.clone());
        }
        for result in results.clone() {
            let memory = runtime.alloc(result.bytes())?.with_origin(result.expression().origin);
            outputs.push(Arc::new(memory));
        }
        let (own, held) = outputs.split_at(launch.outputs.len());
        let mut flows = Flows::default();
        if !held.is_empty() && inputs.iter().any(|input| input.is_tainted()) {
            // The launch may keep some of the old elements.
            flows.add(references(&inputs).into_iter().chain(references(own)), references(own));
            let mut held = held.iter().map(|memory| &**memory);
            for Prologue { graph, program, .. } in &prologues {
                let steps = program.outputs.iter().map(|output| usize::from(output.step));
                graph.add_flows(&mut flows, steps.zip(held.by_ref()), &[]);
            }
        }
        describe(launch.inputs, launch.outputs);
        let recorded = runtime.record_dispatch(&Dispatch {
            key,
            kernel: &|| unreachable!("the kernel is compiled before its launch"),
            inputs: &references(&inputs),
            outputs: &references(&outputs),
            params: &params,
            groups: launch.workgroups,
            work,
            indexed_axes: launch.indexed_axes,
            also_read: &flows.read,
            also_written: &flows.written,
            separate: &flows.groups,
        })?;
        drop(flows);
        results.zip(held).for_each(|(lazy, memory)| lazy.resolve(memory.clone()));
        let results = held.iter().cloned().collect();
        Ok(NextStep::Recorded(smallvec![RecordedLaunch { recorded, results }]))
    }

    /// Returns whether the device can bind the operands and parameters.
    fn fits(&self, launch: &AnyLaunch<'_>) -> bool {
        let outputs: usize =
            self.prologues.iter().map(|prologue| prologue.program.outputs.len()).sum();
        let reports = usize::from(launch.indexed_axes.is_some());
        // A deferred launch has one output.
        let operands = self.inputs.len() + launch.outputs.len().max(1) + outputs + reports;
        let words = self.prologues.iter().map(|prologue| &prologue.words[..]);
        self.rounds <= launch.runtime.info().max_rounds()
            && composite::fits(launch.runtime, operands, &with_words(launch.params, words))
    }
}

/// Returns whether a pending input that a kernel reads any number of times is computed before it.
pub(crate) fn is_computed_before(tensor: &Tensor) -> bool {
    tensor.pending().is_some_and(|lazy| {
        let extent = lazy.extent();
        is_too_large_to_repeat(extent.ops as usize, extent.leaves.into())
    })
}

fn is_too_large_to_repeat(ops: usize, leaves: usize) -> bool {
    ops > MAX_REPEATED_OPS || leaves > MAX_REPEATED_LEAVES
}

/// Returns how a launch gets an input.
fn input(tensor: &Tensor, index: usize, reads: Reads) -> PrologueInput {
    let Some(lazy) = tensor.pending() else { return PrologueInput::Memory };
    let Some(graph) = Graph::of(lazy) else { return PrologueInput::Memory };
    let has_words = |dtype: DType| dtype.size() == 4;
    let integers_fit = lazy.extent().integer.is_none_or(|dtype| dtype.wgsl() == "i32");
    if !has_words(tensor.dtype()) || !has_words(lazy.expression().dtype) || !integers_fit {
        return PrologueInput::After(lazy.clone());
    }
    let runtime = tensor.runtime();
    // Its elements are not computed one by one, unless there is a result of each line in memory.
    if let Some(lines) = graph.lines() {
        let first = graph.last_per_line(lines).filter(|_| !graph.has_reductions());
        return PrologueInput::After(first.map_or(lazy, |node| &node.lazy).clone());
    }
    let last = graph.nodes.len() - 1;
    let held: SmallVec<[usize; 4]> = graph.held_besides_root().collect();
    let is_held = held.contains(&last);
    let is_whole =
        || tensor.layout().dense_order().is_some() && tensor.len() == lazy.expression().len;
    let writes_held = reads == Reads::Once && is_whole();
    let is_one_of_many = || runtime.deferred_like(lazy.extent().signature).len() > 1;
    let repeated_too_often =
        reads == Reads::AnyNumber && is_too_large_to_repeat(graph.nodes.len(), graph.leaves.len());
    // A launch writes its result.
    let comes_first = |node: &PendingNode| node.lazy.is_launch() || node.lazy.is_computed_alone();
    if graph.nodes.iter().any(comes_first)
        || repeated_too_often
        || is_held && (!writes_held || is_one_of_many())
    {
        // A result of the launch that must be written anyway comes first: the kernel may compute
        // the rest.
        let of_launch = |node: &usize| {
            let graph = Graph::of(&graph.nodes[*node].lazy);
            graph.is_some_and(|graph| graph.nodes.iter().any(|node| node.lazy.is_launch()))
        };
        // What it reads besides is one tensor more.
        let fits = reads != Reads::AnyNumber
            || !is_too_large_to_repeat(graph.nodes.len(), graph.leaves.len() + 1);
        let first = held.last().copied().filter(|node| !is_held && fits && of_launch(node));
        return PrologueInput::After(graph.nodes[first.unwrap_or(last)].lazy.clone());
    }
    let writable = |&node: &usize| has_words(graph.nodes[node].expression().dtype);
    if (!writes_held || !held.iter().all(writable))
        && let Some(&node) = held.last()
    {
        return PrologueInput::After(graph.nodes[node].lazy.clone());
    }
    let (program, words) = Program::new(&graph, held.into_iter(), Overwrite::Nothing);
    if !may_use(runtime, &program) {
        return PrologueInput::After(lazy.clone());
    }
    PrologueInput::Computed(Box::new(Prologue { input: index, graph, program, words }))
}

/// Returns those of `inputs` that are packed tensors of 16-bit floats in memory, converted to f32.
/// A kernel that reads them any number of times does so as they are stored, and reads fewer bytes.
pub(crate) fn conversions(inputs: &[&Tensor]) -> SmallVec<[(usize, Reads); 3]> {
    let is_packed = |arg: &Arg| arg.layout.is_none() && arg.padding.is_none();
    let is_stored = |arg: &Arg| arg.dtype.is_half() && arg.storage.pending().is_none();
    let is_conversion = |tensor: &Tensor| {
        let lazy = tensor.pending().filter(|lazy| lazy.expression().is_conversion());
        tensor.dtype() == DType::F32
            && policy::of(tensor.runtime()).keeps_halves()
            && lazy.is_some_and(
                |lazy| matches!(&lazy.args()[..], [arg] if is_packed(arg) && is_stored(arg)),
            )
    };
    let inputs = inputs.iter().enumerate().filter(|(_, tensor)| is_conversion(tensor));
    inputs.map(|(index, _)| (index, Reads::AnyNumber)).collect()
}

/// Returns samples of a kernel with a prologue of an input as [`conversions`] returns it.
pub(crate) fn samples_of_conversions<K: Kernel>(kernels: &[K], input: u8) -> Vec<Variant> {
    samples_of(kernels, input, &Map::new("a", DType::F32), &[(DType::F16, Access::Packed)])
}

/// Returns samples of a kernel with prologues of an input: programs decide which there are.
pub(crate) fn samples<K: Kernel>(kernels: impl IntoIterator<Item = K>, input: u8) -> Vec<Variant> {
    let sum = Map::new("a + b", DType::F32);
    let square = Map::new("a * a", DType::F32);
    let same = Map::new("a", DType::F32);
    let square_of_sum = &[(DType::F32, Access::Strided), (DType::F32, Access::Repeated)];
    let mut programs = [
        Program::sample(&[&square], &[(DType::F32, Access::Packed)]),
        Program::sample(&[&same], &[(DType::F16, Access::Packed)]),
        Program::sample(&[&sum, &square], square_of_sum),
    ];
    programs.iter_mut().for_each(|program| program.outputs.clear());
    programs[2].outputs.push(ProgramOutput { step: 0, overwrites: None });
    let kernels: Vec<K> = kernels.into_iter().collect();
    programs.iter().flat_map(|program| with_program(&kernels, input, program)).collect()
}

/// Returns kernels with a prologue of an input that computes one expression.
pub(crate) fn samples_of<K: Kernel>(
    kernels: &[K],
    input: u8,
    map: &Map,
    leaves: &[(DType, Access)],
) -> Vec<Variant> {
    let mut program = Program::sample(&[map], leaves);
    program.outputs.clear();
    with_program(kernels, input, &program)
}

fn with_program<K: Kernel>(kernels: &[K], input: u8, program: &Program) -> Vec<Variant> {
    let program = index_of(program, std::iter::empty());
    variants_of(kernels.iter().cloned().map(|kernel| {
        let programs = Programs { prologues: smallvec![(input, program)], epilogue: None };
        Composite { kernel, programs }
    }))
}
