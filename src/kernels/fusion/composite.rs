//! A kernel with the programs that it computes where it reads inputs and where it stores its
//! result.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::kernels::fusion::registry::{MAX_BINDINGS, program_of};
use crate::runtime::{IndexedAxis, Kernel, KernelKey, Runtime, Variant};
use crate::tensor::Tensor;

/// The programs of a kernel.
#[derive(Debug, Clone, Default, Hash)]
pub(crate) struct Programs {
    /// Inputs and the indices of the programs that compute them.
    pub prologues: SmallVec<[(u8, u32); 2]>,
    /// The index of the program that goes on computing with the result.
    pub epilogue: Option<u32>,
}

impl Programs {
    fn is_empty(&self) -> bool {
        self.prologues.is_empty() && self.epilogue.is_none()
    }
}

/// A kernel with prologues and an epilogue.
#[derive(Debug, Clone, Hash)]
pub(super) struct Composite<K> {
    pub kernel: K,
    pub programs: Programs,
}

impl<K: Kernel> Kernel for Composite<K> {
    type Params = K::Params;

    fn variant(&self) -> Variant {
        AnyKernel::variant(&self.kernel, &self.programs)
    }
}

/// A kernel of any type, with any programs.
pub(crate) trait AnyKernel: Send + Sync {
    fn key(&self, programs: &Programs) -> KernelKey;
    fn variant(&self, programs: &Programs) -> Variant;
    fn to_box(&self) -> Box<dyn AnyKernel>;
}

impl<K: Kernel> AnyKernel for K {
    fn key(&self, programs: &Programs) -> KernelKey {
        let key = KernelKey::of(self);
        if programs.is_empty() { key } else { key.with(programs) }
    }

    fn variant(&self, programs: &Programs) -> Variant {
        with_programs(Kernel::variant(self), programs)
    }

    fn to_box(&self) -> Box<dyn AnyKernel> {
        Box::new(self.clone())
    }
}

fn with_programs(mut variant: Variant, programs: &Programs) -> Variant {
    for &(input, program) in &programs.prologues {
        let (program, ops) = program_of(program);
        variant.prologues.push(program.prologue(input.into(), &ops, variant.words()));
        variant.ops.extend(ops.iter());
    }
    if let Some(program) = programs.epilogue {
        let (program, ops) = program_of(program);
        variant.epilogue = Some(Box::new(program.epilogue(&ops, variant.words())));
        variant.ops.extend(ops.iter());
    }
    variant
}

/// A launch of a kernel of any type: kernel, operands, parameters and size.
#[derive(Clone, Copy)]
pub(crate) struct AnyLaunch<'a> {
    pub runtime: &'a Arc<Runtime>,
    pub kernel: &'a dyn AnyKernel,
    pub inputs: &'a [&'a Tensor],
    pub outputs: &'a [&'a Tensor],
    pub params: &'a [u8],
    pub workgroups: u64,
    pub work: u64,
    pub rounds: u64,
    /// The axes of indices that the kernel reports.
    pub indexed_axes: Option<&'a [IndexedAxis]>,
}

/// The bytes of a kernel's parameters.
pub(super) type Params = SmallVec<[u8; 256]>;

/// Appends the words of programs to the parameters of a kernel.
pub(super) fn with_words<'a>(
    params: &[u8],
    programs: impl IntoIterator<Item = &'a [u32]>,
) -> Params {
    let mut out = Params::from_slice(params);
    out.resize(out.len().next_multiple_of(16), 0);
    for words in programs {
        out.extend_from_slice(bytemuck::cast_slice(words));
    }
    out.resize(out.len().next_multiple_of(16), 0);
    out
}

/// Returns whether the device can bind these operands and parameters.
pub(super) fn fits(runtime: &Runtime, operands: usize, params: &[u8]) -> bool {
    let limit = runtime.info().limits.storage_buffers_per_stage.min(MAX_BINDINGS);
    operands <= limit as usize && runtime.fits_params(params.len(), operands)
}
