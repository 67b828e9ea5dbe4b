//! Kernels of lines: pending reductions of the last axis, with the elementwise ops before and after them.
//!
//! Softmax, norms and their gradients are such a kernel, also where a program or Burn's automatic differentiation
//! composes them.

use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

use crate::kernels::fusion::batch::{Computation, GraphLaunch};
use crate::kernels::fusion::graph::{ArgSource, Graph, Leaf, LineShape, MAX_NODES, PendingNode};
use crate::kernels::fusion::program::{
    Access, MAX_WORDS, Overwrite, Program, ProgramOutput, Step, StepKind, params_of, vec4s_of,
};
use crate::kernels::fusion::registry::{MAX_BINDINGS, index_of, may_use, program_of, rounds_of};
use crate::kernels::fusion::schedule::{NextStep, RecordedLaunch};
use crate::kernels::ops::map::Map;
use crate::kernels::policy::team::Team;
use crate::kernels::policy::{self, MIN_TEAM_LEN};
use crate::params;
use crate::runtime::{
    Compilation, Expr, Kernel, KernelKey, MAX_GROUPS, Runtime, RuntimeError, Source, Variant,
    variants_of, wgsl,
};
use crate::tensor::{DType, ReduceOp};

static LINES: Source =
    Source::new::<LinesParams>("lines", wgsl!("../../../shaders/lines/lines.wgsl"));

params! {
    struct LinesParams {
        count: u32,
        len: u32,
        pad0: u32,
        pad1: u32,
        words: [[u32; 4]; 1],
    }
}

/// The invocations of a kernel that share a line, and how they read it.
#[derive(Debug, Clone, Copy)]
struct SharedLine {
    team: Team,
    /// Whether elements are read in vec4s.
    vec4: bool,
    /// The loads of an invocation from a line, at most.
    loads: usize,
}

impl SharedLine {
    /// Returns the team for lines; `None` if a line needs several workgroups.
    fn of(runtime: &Runtime, LineShape { count, len }: LineShape) -> Option<Self> {
        let policy = policy::of(runtime);
        let vec4 = len >= MIN_TEAM_LEN && len.is_multiple_of(4);
        let loads = if vec4 { len / 4 } else { len };
        let team = policy.team_of_line(count, len, loads);
        let loads = loads.div_ceil(team.size as usize);
        // Other reductions read as many loads one after the other.
        let is_accurate = loads <= policy.max_summed();
        let is_split = policy.splits_lines(count, len, 3 * (loads + 1));
        (is_accurate && !is_split).then_some(Self { team, vec4, loads })
    }
}

/// Returns whether kernels reduce `count` lines of this length.
pub(crate) fn are_reduced(runtime: &Runtime, count: usize, len: usize) -> bool {
    SharedLine::of(runtime, LineShape { count, len }).is_some()
}

impl ReduceOp {
    /// Returns the name of the reduction in programs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sum => "line_sum",
            Self::Mean => "line_mean",
            Self::Max => "line_max",
            Self::Min => "line_min",
        }
    }
}

/// The kernel of a program.
#[derive(Debug, Clone, Copy, Hash)]
struct LinesKernel {
    /// The index of the program.
    program: u32,
    /// The length of the array of parameters, in vec4s.
    words: u32,
    /// The invocations that reduce a line.
    team: Team,
    /// Whether elements are read in vec4s.
    vec4: bool,
}

impl Kernel for LinesKernel {
    type Params = LinesParams;

    fn variant(&self) -> Variant {
        let (program, ops) = program_of(self.program);
        let elements = self.elements() as usize;
        let text = program.text_on_lines(&ops, elements, self.team.subgroup);
        let variant = Variant::new(&LINES)
            .label(program.to_string())
            .ty("A", text.integer)
            .int("WORDS", self.words)
            .int("ELEMENTS", self.elements())
            .code("CODE", text.code);
        let mut variant = self.team.define(variant);
        variant.ops.extend(ops.iter());
        variant
    }
}

/// Looks at pending results of which some reduce lines.
///
/// # Errors
///
/// Returns an error if the memory is not available, or the errors of [`Runtime::record_dispatch`].
pub(crate) fn look(graph: &Graph, lines: LineShape) -> Result<NextStep<'static>, RuntimeError> {
    let root = graph.root();
    let is_reduction = |node: &&PendingNode| node.lazy.reduction().is_some();
    // A reduction without arguments is being computed by another thread.
    let has_begun = |node: &&PendingNode| is_reduction(node) && node.args.is_empty();
    let first = of_launches(graph).or_else(|| graph.nodes.iter().find(has_begun));
    let is_per_line = |node: &&PendingNode| node.expression().len == lines.count;
    let is_alone = is_reduction(&root) && graph.nodes.iter().filter(is_per_line).count() == 1;
    if first.is_none()
        && !is_alone
        && let Some(next) = launch(graph, lines)?
    {
        return Ok(next);
    }
    let first = first.or_else(|| graph.nodes.iter().find(is_reduction));
    let first = first.or_else(|| graph.last_per_line(lines));
    Ok(match first.filter(|first| !Arc::ptr_eq(&first.lazy, &root.lazy)) {
        Some(first) => NextStep::after(&first.lazy),
        // A reduction is computed by itself then.
        None => NextStep::Nothing,
    })
}

/// Returns the last result that follows a pending launch and depends on no line. It is computed first, as the launch's
/// epilogue.
fn of_launches(graph: &Graph) -> Option<&PendingNode> {
    let mut follow: SmallVec<[bool; MAX_NODES]> = SmallVec::new();
    for node in &graph.nodes {
        let follows = |&(source, _): &(ArgSource, DType)| match source {
            ArgSource::Node(node) => follow[usize::from(node)],
            ArgSource::Leaf(_) => false,
        };
        follow.push(node.lazy.is_launch() || node.args.iter().any(follows));
    }
    let nodes = graph.nodes.iter().zip(&follow).rev();
    let mut before =
        nodes.filter(|(node, follows)| **follows && node.lazy.extent().lines.is_none());
    before.next().map(|(node, _)| node)
}

/// Launches the kernel of a graph. Returns `None` if there is none.
fn launch(graph: &Graph, lines: LineShape) -> Result<Option<NextStep<'static>>, RuntimeError> {
    let runtime = graph.root().lazy.runtime();
    let Some(shared) = SharedLine::of(runtime, lines) else { return Ok(None) };
    let policy = policy::of(runtime);
    let writes_elements =
        graph.outputs().any(|node| graph.nodes[node].expression().len != lines.count);
    let is_split = !writes_elements && policy.split_len(true, lines.count, lines.len) < lines.len;
    // A tensor of one element for each line is read by the index of the line, and by no strides of its own shape.
    let reads =
        |leaf: &Leaf| leaf.len != lines.count || Access::of(leaf, Some(lines)).is_per_line();
    if is_split || !graph.leaves.iter().all(reads) {
        return Ok(None);
    }
    // Teams without a line repeat the last one, so it must not be overwritten: no workgroup may have such a team.
    let teams = (shared.team.workgroup_size / shared.team.size) as usize;
    let has_surplus = shared.team.workgroups(lines.count) > MAX_GROUPS;
    let may_overwrite = lines.count.is_multiple_of(teams) && !has_surplus;
    let overwrite = match may_overwrite && policy.pays_for_special_case(lines.count * lines.len) {
        true => Overwrite::OwnBuffers,
        false => Overwrite::Nothing,
    };
    let (program, words) = Program::on_lines(graph, graph.outputs(), overwrite, lines);
    let max_bindings = runtime.info().limits.storage_buffers_per_stage.min(MAX_BINDINGS) as usize;
    let fits = program.bindings() <= max_bindings && words.len() <= MAX_WORDS;
    if !fits || !stores(&program, shared) || !may_use(runtime, &program) {
        return Ok(None);
    }
    let kernel = LinesKernel::new(&program, words.len(), shared, graph.ops());
    let (operands, params) =
        (program.operands(), params_of([lines.count, lines.len], &words, kernel.words));
    let rounds_per_load = 1 + u64::from(kernel.elements()) * rounds_of(kernel.program);
    let rounds = (shared.loads + 1) as u64 * rounds_per_load * program.rounds_over_line() as u64;
    if rounds > runtime.info().max_rounds()
        || !runtime.fits_params(params.len(), operands.0 + operands.1)
    {
        return Ok(None);
    }
    let key = KernelKey::of(&kernel);
    if !runtime.is_prepared(&key) {
        let compilation = Compilation {
            key,
            kernel: Box::new(move || kernel.variant()),
            operands,
            params_len: params.len(),
        };
        return Ok(runtime.may_generate().then_some(NextStep::Compile(compilation)));
    }
    let computation = Computation::new(runtime, std::slice::from_ref(graph), 0, &program)?;
    let LineShape { count, len } = lines;
    let recorded = computation.record(
        (graph, &program),
        &GraphLaunch {
            key,
            params: &params,
            groups: shared.team.workgroups(count),
            work: count as u64 * len as u64 * graph.nodes.len() as u64,
            results: format_args!("{count} x {len}"),
        },
    )?;
    computation.resolve(std::slice::from_ref(graph), &program);
    let results = computation.outputs.clone();
    Ok(Some(NextStep::Recorded(smallvec![RecordedLaunch { recorded, results }])))
}

/// Returns whether a kernel can store the results. Two elements of 16 bits share a word.
fn stores(program: &Program, shared: SharedLine) -> bool {
    program.outputs.iter().all(|output| {
        let step = &program.steps[usize::from(output.step)];
        step.dtype.size() > 2 || shared.vec4 && step.kind == StepKind::Element
    })
}

impl LinesKernel {
    fn new(
        program: &Program,
        words: usize,
        SharedLine { team, vec4, .. }: SharedLine,
        ops: impl Iterator<Item = &'static str>,
    ) -> Self {
        Self { program: index_of(program, ops), words: vec4s_of(words), team, vec4 }
    }

    /// Returns the number of elements that are read at once.
    fn elements(&self) -> u32 {
        if self.vec4 { 4 } else { 1 }
    }
}

/// Returns samples of the kernel: programs decide which there are.
pub fn variants() -> Vec<Variant> {
    let shared = |min: usize, vec4: bool| {
        policy::all_teams_along(min).map(move |team| SharedLine { team, vec4, loads: 0 })
    };
    let single = SharedLine { team: Team::SINGLE, vec4: false, loads: 0 };
    let scalars = shared(MIN_TEAM_LEN, false).chain([single]);
    let all: Vec<SharedLine> = shared(MIN_TEAM_LEN / 4, true).chain(scalars).collect();
    let kernels = [ReduceOp::Sum, ReduceOp::Mean, ReduceOp::Max, ReduceOp::Min].map(sample);
    variants_of(kernels.iter().flat_map(|program| {
        let kernel =
            |&shared| LinesKernel::new(program, program.words(), shared, std::iter::empty());
        all.iter().map(kernel)
    }))
}

/// Returns a program that subtracts from each element what its line is reduced to, and the sum of these.
fn sample(op: ReduceOp) -> Program {
    let difference = Map::new("a - b", DType::F32);
    let leaf = (DType::F32, Access::OneLine);
    let mut program = Program::sample(&[&difference, &difference, &difference], &[leaf, leaf]);
    let reduction = |op: ReduceOp, source| Step {
        kind: StepKind::Reduction(op),
        wgsl: Expr(op.name()),
        args: smallvec![(source, DType::F32)],
        ..program.steps[0].clone()
    };
    let steps = [
        reduction(op, ArgSource::Leaf(0)),
        program.steps[1].clone(),
        reduction(ReduceOp::Sum, ArgSource::Node(1)),
    ];
    program.leaves[0].access = Access::Packed;
    program.steps = steps.into_iter().collect();
    program.steps[1].args =
        smallvec![(ArgSource::Leaf(1), DType::F32), (ArgSource::Node(0), DType::F32)];
    program.outputs = (0..3).map(|step| ProgramOutput { step, overwrites: None }).collect();
    program
}
