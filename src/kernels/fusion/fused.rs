//! The kernel of pending elementwise expressions, and its launch.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::kernels::fusion::batch::{Computation, GraphLaunch, Pages};
use crate::kernels::fusion::graph::Graph;
use crate::kernels::fusion::program::{Access, Program, Words, params_len, params_of, vec4s_of};
use crate::kernels::fusion::registry::{index_of, program_of, rounds_of};
use crate::kernels::ops::map::Map;
use crate::kernels::policy;
use crate::params;
use crate::runtime::{
    Allocation, Compilation, Dispatch, Kernel, KernelKey, Recorded, Runtime, RuntimeError, Source,
    Variant, describe_operands, div_up, variants_of, wgsl,
};
use crate::tensor::DType;

static FUSED: Source =
    Source::new::<FusedParams>("fused", wgsl!("../../../shaders/fused/fused.wgsl"));

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

/// A fused kernel.
#[derive(Debug, Clone, Copy, Hash)]
struct FusedKernel {
    /// The index of the program.
    program: u32,
    /// The length of the array of parameters, in vec4s.
    words: u32,
}

impl FusedKernel {
    /// Returns the kernel of a program of these ops, with parameters of `words` words.
    fn new(program: &Program, words: usize, ops: impl Iterator<Item = &'static str>) -> Self {
        Self { program: index_of(program, ops), words: vec4s_of(words) }
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

/// The launch of a kernel.
pub(crate) struct FusedLaunch<'a> {
    runtime: &'a Runtime,
    kernel: FusedKernel,
    /// The numbers of operands that are only read, and that are written.
    operands: (usize, usize),
    /// The elements that an invocation of a batch computes.
    elements: usize,
    words: &'a Words,
}

impl<'a> FusedLaunch<'a> {
    /// Creates the launch of a program of these ops.
    pub fn new(
        runtime: &'a Runtime,
        program: &Program,
        words: &'a Words,
        ops: impl Iterator<Item = &'static str>,
    ) -> Self {
        Self {
            runtime,
            kernel: FusedKernel::new(program, words.len(), ops),
            operands: program.operands(),
            elements: program.batched_elements(),
            words,
        }
    }

    /// Returns whether the kernel is compiled.
    pub fn is_prepared(&self) -> bool {
        self.runtime.is_prepared(&KernelKey::of(&self.kernel))
    }

    /// Returns how the kernel is compiled.
    pub fn compilation(&self) -> Compilation<'static> {
        let kernel = self.kernel;
        Compilation {
            key: KernelKey::of(&kernel),
            kernel: Box::new(move || kernel.variant()),
            operands: self.operands,
            params_len: params_len(kernel.words),
        }
    }

    /// Launches the kernel for one graph.
    ///
    /// # Errors
    ///
    /// As [`Runtime::record_dispatch`].
    pub fn run(
        &self,
        computation: &Computation,
        graph: &Graph,
        program: &Program,
    ) -> Result<Recorded, RuntimeError> {
        let Computation { len, ops, .. } = *computation;
        let vec4s = len.div_ceil(4);
        let rounds = policy::of(self.runtime).elementwise_rounds(vec4s);
        // The invocation of each round computes four elements.
        let max_vec4s =
            policy::max_rounds(self.runtime) / (4 * rounds_of(self.kernel.program) as usize + 1);
        let rounds = rounds.min(max_vec4s.max(1));
        computation.record(
            (graph, program),
            &GraphLaunch {
                key: KernelKey::of(&self.kernel),
                params: &self.params(len, rounds),
                groups: div_up(vec4s, WORKGROUP_SIZE * rounds),
                work: len as u64 * ops as u64,
                results: format_args!("{len} elements"),
            },
        )
    }

    /// Launches the kernel for several graphs at once. `pages` are the buffers of all operands. A
    /// table tells each workgroup which elements it computes: for each graph the first workgroup,
    /// the number of elements, and the page and the start of each operand.
    ///
    /// # Errors
    ///
    /// As [`Runtime::record_dispatch`].
    pub fn run_batch(
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
            key: KernelKey::of(&self.kernel),
            kernel: &|| unreachable!("the kernel is compiled before its launch"),
            indexed_axes: None,
        })
    }

    /// Returns the bytes of the WGSL `Params`. `len` is the number of elements, or of tensors.
    fn params(&self, len: usize, rounds: usize) -> SmallVec<[u8; 128]> {
        params_of([len, rounds], self.words, self.kernel.words)
    }
}

/// Returns samples of the kernel: programs decide which there are. Every access to memory is in one, in every class of
/// types.
pub fn variants() -> Vec<Variant> {
    let mut out = Vec::new();
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
    of_programs(out)
}

/// Returns the kernels that compute one expression each, of tensors of these types.
pub(crate) fn samples(maps: impl IntoIterator<Item = (Map, Vec<DType>)>) -> Vec<Variant> {
    of_programs(maps.into_iter().map(|(map, types)| {
        let leaves = types.iter().map(|&dtype| (dtype, Access::Packed));
        Program::sample(&[&map], &leaves.collect::<Vec<_>>())
    }))
}

fn of_programs(programs: impl IntoIterator<Item = Program>) -> Vec<Variant> {
    variants_of(programs.into_iter().map(|program| {
        let words = program.words();
        FusedKernel::new(&program, words, std::iter::empty())
    }))
}
