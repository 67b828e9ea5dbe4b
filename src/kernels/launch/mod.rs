//! A kernel launch on tensors, and what launchers share about tensors that it addresses.
//!
//! - `walk`: the addresses of strided tensors;
//! - `parts`: launches on parts of tensors that are larger than a binding;
//! - `expression`: expressions of a program, compiled alone.

pub(crate) mod expression;
pub(crate) mod parts;
pub(crate) mod walk;

#[cfg(debug_assertions)]
use std::collections::HashSet;
use std::sync::Arc;
#[cfg(debug_assertions)]
use std::sync::LazyLock;

#[cfg(debug_assertions)]
use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::kernels::fusion::composite::AnyLaunch;
use crate::kernels::fusion::{pending, prologue};
use crate::runtime::{Allocation, Dispatch, IndexedAxis, Kernel, KernelKey, Runtime, Variant};
use crate::tensor::{Error, Result, Tensor, describe};

pub(crate) use crate::kernels::fusion::pending::PendingResult;
pub(crate) use crate::kernels::fusion::prologue::Reads;
pub(crate) use crate::runtime::{div_up, variants_of};

/// Invocations of a workgroup in kernels that compute one result per invocation
/// (`shaders/lib/invocation.wgsl`).
const WORKGROUP_SIZE: usize = 64;

/// A kernel launch: kernel, operands, parameters and size.
pub(crate) struct Launch<'a, K: Kernel> {
    pub kernel: &'a K,
    /// Tensors that are only read, in binding order.
    pub inputs: &'a [&'a Tensor],
    /// Tensors that are written, or read and written, in binding order after the inputs.
    pub outputs: &'a [&'a Tensor],
    pub params: &'a K::Params,
    pub workgroups: u64,
    /// Estimated number of operations. The runtime limits the work of a submission.
    pub work: u64,
    /// The most rounds of loops that an invocation takes, if they grow with the operands. A launch of more than
    /// [`max_rounds`](crate::device::AdapterInfo::max_rounds) is an error.
    pub rounds: Option<u64>,
}

impl<K: Kernel> Launch<'_, K> {
    /// Records the launch.
    ///
    /// # Errors
    ///
    /// Returns an error if the operands are on different devices, or in the cases of
    /// [`Runtime::dispatch`](crate::runtime::Runtime::dispatch).
    pub fn run(self) -> Result<()> {
        self.check_rounds(self.outputs[0].runtime())?;
        self.record(None)
    }

    /// Checks that the loops of an invocation end in time, and in debug builds that loops that grow are counted.
    fn check_rounds(&self, runtime: &Runtime) -> Result<()> {
        #[cfg(debug_assertions)]
        self.assert_rounds();
        let (rounds, limit) = (self.rounds.unwrap_or(0), runtime.info().max_rounds());
        if rounds > limit && self.workgroups > 0 {
            Err(Error::TooManyRounds { rounds, limit })
        } else {
            Ok(())
        }
    }

    #[cfg(debug_assertions)]
    fn assert_rounds(&self) {
        static CHECKED: LazyLock<Mutex<HashSet<(KernelKey, bool)>>> = LazyLock::new(Mutex::default);
        let states_rounds = self.rounds.is_some();
        if CHECKED.lock().insert((KernelKey::of(self.kernel), states_rounds)) {
            let source = self.kernel.variant().source;
            assert!(
                states_rounds || !source.states_rounds(),
                "the launch of {} does not state the rounds of its loops",
                source.name
            );
        }
    }

    /// Records the launch of a kernel that reads inputs as [`Reads`] says. If such an input is
    /// pending, the kernel computes it where it reads it.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run).
    pub fn run_with_prologues(self, inputs: &[(usize, Reads)]) -> Result<()> {
        self.check_rounds(self.outputs[0].runtime())?;
        match prologue::try_run(&self.erased(self.outputs[0].runtime(), None), inputs)? {
            true => Ok(()),
            false => self.run(),
        }
    }

    /// Returns the pending result of a kernel with one packed output, which `self.outputs` does not
    /// contain. The kernel must store each element as a word or in vec4s of words, and only store.
    /// It may store the same value again. Elementwise ops on the result become part of the launch,
    /// if they follow before the result is needed.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run), and if the result is too large.
    pub fn defer(self, result: &PendingResult<'_>) -> Result<Tensor> {
        let PendingResult { runtime, shape, dtype, prologues, .. } = *result;
        self.check_rounds(runtime)?;
        if let Some(tensor) = pending::defer_launch(&self.erased(runtime, None), result)? {
            return Ok(tensor);
        }
        let out = Tensor::empty(runtime, shape, dtype)?;
        Launch { outputs: &[&out], ..self }.run_with_prologues(prologues)?;
        Ok(out)
    }

    fn erased<'a>(
        &'a self,
        runtime: &'a Arc<Runtime>,
        indexed_axes: Option<&'a [IndexedAxis]>,
    ) -> AnyLaunch<'a> {
        AnyLaunch {
            runtime,
            indexed_axes,
            kernel: self.kernel,
            inputs: self.inputs,
            outputs: self.outputs,
            params: bytemuck::bytes_of(self.params),
            workgroups: self.workgroups,
            work: self.work,
            rounds: self.rounds.unwrap_or(0),
        }
    }

    /// Records the launch of a kernel that reports indices outside `axes`, and that computes
    /// pending inputs as in [`run_with_prologues`](Self::run_with_prologues).
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run).
    pub fn run_indexed(self, axes: &[IndexedAxis], inputs: &[(usize, Reads)]) -> Result<()> {
        self.check_rounds(self.outputs[0].runtime())?;
        match prologue::try_run(&self.erased(self.outputs[0].runtime(), Some(axes)), inputs)? {
            true => Ok(()),
            false => self.record(Some(axes)),
        }
    }

    fn record(self, indexed_axes: Option<&[IndexedAxis]>) -> Result<()> {
        let kernel = || {
            let variant = self.kernel.variant();
            debug_assert!(variant.source.takes::<K::Params>(), "parameters of {variant}");
            variant
        };
        BytesLaunch {
            key: KernelKey::of(self.kernel),
            kernel: &kernel,
            inputs: self.inputs,
            outputs: self.outputs,
            params: bytemuck::bytes_of(self.params),
            workgroups: self.workgroups,
            work: self.work,
            indexed_axes,
        }
        .record()
    }
}

/// A kernel launch whose parameters are bytes. Fields as those of [`Launch`].
pub(crate) struct BytesLaunch<'a> {
    pub key: KernelKey,
    pub kernel: &'a dyn Fn() -> Variant,
    pub inputs: &'a [&'a Tensor],
    pub outputs: &'a [&'a Tensor],
    pub params: &'a [u8],
    pub workgroups: u64,
    pub work: u64,
    pub indexed_axes: Option<&'a [IndexedAxis]>,
}

impl BytesLaunch<'_> {
    /// Records the launch.
    ///
    /// # Errors
    ///
    /// As [`Launch::run`].
    pub fn record(self) -> Result<()> {
        let output = self.outputs[0];
        for operand in self.inputs.iter().chain(&self.outputs[1..]) {
            output.same_device(operand)?;
        }
        let mut inputs: SmallVec<[&Allocation; 6]> = SmallVec::new();
        for input in self.inputs {
            inputs.push(input.buffer()?);
        }
        let mut outputs: SmallVec<[&Allocation; 2]> = SmallVec::new();
        for output in self.outputs {
            outputs.push(output.buffer()?);
        }
        describe(self.inputs, self.outputs);
        output.runtime().dispatch(&Dispatch {
            key: self.key,
            kernel: self.kernel,
            inputs: &inputs,
            outputs: &outputs,
            params: self.params,
            groups: self.workgroups,
            work: self.work,
            indexed_axes: self.indexed_axes,
            also_read: &[],
            also_written: &[],
            separate: &[],
        })?;
        Ok(())
    }
}

/// Returns the number of workgroups of a kernel with one invocation per result.
pub(crate) fn workgroups_for(results: usize) -> u64 {
    div_up(results, WORKGROUP_SIZE)
}
