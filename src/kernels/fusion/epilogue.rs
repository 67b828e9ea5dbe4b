//! Epilogues: a kernel computes elementwise ops on its result before it stores it.
//!
//! A launch that may have an epilogue is deferred: its result is pending. Elementwise ops that use
//! the result become part of the launch, which saves their launch and a trip through memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use smallvec::{SmallVec, smallvec};

use crate::kernels::fusion::composite::{self, AnyKernel, Composite, Params, Programs};
use crate::kernels::fusion::graph::ArgSource;
use crate::kernels::fusion::program::{Access, Program, ProgramOutput, RESULT};
use crate::kernels::fusion::prologue::PrologueLaunch;
use crate::kernels::fusion::registry::{index_of, rounds_of};
use crate::kernels::ops::map::Map;
use crate::runtime::{
    Allocation, Compilation, Dispatch, Flows, Kernel, Origin, Recorded, Runtime, RuntimeError,
    Variant, current_origin, describe_operands, set_origin, variants_of,
};
use crate::tensor::{DType, Epilogue, PendingLaunch};

/// A launch whose result is pending. It is recorded when the result is needed, or when it is
/// dropped, so that benchmarks measure what they launch.
pub(crate) struct DeferredLaunch {
    pub runtime: Arc<Runtime>,
    pub kernel: Box<dyn AnyKernel>,
    /// The programs that compute inputs.
    pub prologues: SmallVec<[(u8, u32); 2]>,
    pub inputs: SmallVec<[Arc<Allocation>; 8]>,
    /// The parameters of the kernel.
    pub params: Params,
    /// The words of the prologues.
    pub words: SmallVec<[u32; 8]>,
    pub workgroups: u64,
    pub work: u64,
    pub rounds: u64,
    /// The size of the result in bytes.
    pub bytes: u64,
    /// Whether the kernel stores its result in vec4s.
    pub vec4: bool,
    /// The name of the op, for messages.
    pub origin: Origin,
    /// The types and shapes of the operands, if a device is observed.
    pub operands: Box<str>,
    /// The part of [`KEPT`] that is its own.
    pub kept: u64,
    /// Whether dropping it records it.
    pub runs_when_dropped: AtomicBool,
}

/// The bytes that pending launches keep in memory, beyond a few times the size of their results:
/// small results of large tensors that nobody reads, in a list of predictions for example.
static KEPT: AtomicU64 = AtomicU64::new(0);
/// The maximum of [`KEPT`].
const MAX_KEPT: u64 = 64 << 20;

/// The most elements of a result that an invocation stores.
const MAX_STORED: u64 = 256;

impl DeferredLaunch {
    /// Adds to [`KEPT`], until the launch is dropped. Returns `false` if there is no room.
    pub fn keep(&mut self, bytes: u64) -> bool {
        if KEPT.load(Ordering::Relaxed) + bytes > MAX_KEPT {
            return false;
        }
        KEPT.fetch_add(bytes, Ordering::Relaxed);
        self.kept = bytes;
        true
    }

    /// Lets the kernel compute the inputs that a fused launch computes.
    pub fn take(&mut self, fused: PrologueLaunch) {
        let words = fused.prologues.iter().flat_map(|prologue| &prologue.words);
        self.words = words.copied().collect();
        self.prologues = fused.programs.prologues;
        self.inputs = fused.inputs;
        self.work = fused.work;
        self.rounds = fused.rounds;
    }

    fn programs(&self, epilogue: Option<&Epilogue<'_>>) -> Programs {
        let epilogue = epilogue.map(|epilogue| epilogue.program);
        Programs { prologues: self.prologues.clone(), epilogue }
    }

    fn params(&self, epilogue: Option<&Epilogue<'_>>) -> Params {
        let words = epilogue.map_or(&[][..], |epilogue| epilogue.words);
        match self.words.is_empty() && words.is_empty() {
            true => self.params.clone(),
            false => composite::with_words(&self.params, [&self.words[..], words]),
        }
    }

    /// Records the launch with parameters and operands that [`PendingLaunch`] describes.
    fn record_to(
        &self,
        outputs: &[&Allocation],
        epilogue: Option<&Epilogue<'_>>,
        flows: &Flows<'_>,
    ) -> Result<Recorded, RuntimeError> {
        let leaves = epilogue.map_or(&[][..], |epilogue| epilogue.inputs);
        let inputs: SmallVec<[&Allocation; 8]> =
            self.inputs.iter().chain(leaves).map(|input| &**input).collect();
        let programs = self.programs(epilogue);
        describe_operands(|| self.operands.to_string());
        let recorded = self.runtime.record_dispatch(&Dispatch {
            key: self.kernel.key(&programs),
            kernel: &|| self.kernel.variant(&programs),
            inputs: &inputs,
            outputs,
            params: &self.params(epilogue),
            groups: self.workgroups,
            work: self.work + epilogue.map_or(0, |epilogue| epilogue.work),
            indexed_axes: None,
            also_read: &flows.read,
            also_written: &flows.written,
            separate: &flows.groups,
        })?;
        self.runs_when_dropped.store(false, Ordering::Relaxed);
        Ok(recorded)
    }
}

impl PendingLaunch for DeferredLaunch {
    fn fits(&self, epilogue: &Epilogue<'_>) -> bool {
        let operands = self.inputs.len() + epilogue.inputs.len() + epilogue.outputs;
        let rounds = rounds_of(epilogue.program) * MAX_STORED;
        (self.vec4 || !epilogue.writes_halves)
            && self.rounds + rounds <= self.runtime.info().max_rounds()
            && composite::fits(&self.runtime, operands, &self.params(Some(epilogue)))
    }

    fn compilation(&self, epilogue: Option<&Epilogue<'_>>) -> Option<Compilation<'static>> {
        let programs = self.programs(epilogue);
        let key = self.kernel.key(&programs);
        if self.runtime.is_prepared(&key) {
            return None;
        }
        let (inputs, outputs) =
            epilogue.map_or((0, 1), |epilogue| (epilogue.inputs.len(), epilogue.outputs));
        let kernel = self.kernel.to_box();
        Some(Compilation {
            key,
            kernel: Box::new(move || kernel.variant(&programs)),
            operands: (self.inputs.len() + inputs, outputs),
            params_len: self.params(epilogue).len(),
        })
    }

    fn inputs(&self) -> &[Arc<Allocation>] {
        &self.inputs
    }

    fn set_replaced(&self) {
        self.runs_when_dropped.store(false, Ordering::Relaxed);
    }

    fn record(
        &self,
        outputs: &[Arc<Allocation>],
        epilogue: Option<&Epilogue<'_>>,
        flows: &Flows<'_>,
    ) -> Result<Recorded, RuntimeError> {
        let outputs: SmallVec<[&Allocation; 4]> = outputs.iter().map(|output| &**output).collect();
        self.record_to(&outputs, epilogue, flows)
    }
}

impl Drop for DeferredLaunch {
    fn drop(&mut self) {
        KEPT.fetch_sub(self.kept, Ordering::Relaxed);
        if !*self.runs_when_dropped.get_mut() || self.runtime.is_impaired() {
            return;
        }
        let dropped_by = current_origin();
        set_origin(self.origin);
        let run = || {
            let output = self.runtime.alloc(self.bytes)?;
            self.runtime.finish_dispatch(self.record_to(&[&output], None, &Flows::default())?)
        };
        if let Err(error) = run() {
            self.runtime.report_later(error);
        }
        set_origin(dropped_by);
    }
}

/// Returns samples of kernels with an epilogue: programs decide which there are.
pub(crate) fn samples<K: Kernel>(kernels: impl IntoIterator<Item = K>) -> Vec<Variant> {
    let result = Map::new(RESULT, DType::F32);
    let sum = Map::new("a + b", DType::F32);
    let mut program = Program::sample(&[&result, &sum], &[(DType::F32, Access::Strided)]);
    program.steps[0].args.clear();
    program.steps[1].args.push((ArgSource::Leaf(0), DType::F32));
    program.outputs = smallvec![
        ProgramOutput { step: 0, overwrites: None },
        ProgramOutput { step: 1, overwrites: None }
    ];
    let epilogue = Some(index_of(&program, std::iter::empty()));
    let programs = Programs { epilogue, ..Programs::default() };
    let with_epilogue = |kernel| Composite { kernel, programs: programs.clone() };
    variants_of(kernels.into_iter().map(with_epilogue))
}
