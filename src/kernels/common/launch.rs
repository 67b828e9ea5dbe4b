//! A kernel launch on tensors.

use smallvec::SmallVec;

use crate::runtime::{Allocation, Dispatch, IndexedAxis, Kernel, KernelKey, Variant};
use crate::tensor::{Result, Tensor};

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
}

impl<K: Kernel> Launch<'_, K> {
    /// Records the launch.
    ///
    /// # Errors
    ///
    /// Returns an error if the operands are on different devices, or in the cases of
    /// [`Runtime::dispatch`](crate::runtime::Runtime::dispatch).
    pub fn run(self) -> Result<()> {
        self.record(None)
    }

    /// Records the launch of a kernel that reports indices outside `axes`.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run).
    pub fn run_indexed(self, axes: &[IndexedAxis]) -> Result<()> {
        self.record(Some(axes))
    }

    fn record(self, indexed_axes: Option<&[IndexedAxis]>) -> Result<()> {
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
        output.runtime().dispatch(&Dispatch {
            key: KernelKey::of(self.kernel),
            kernel: &|| {
                let variant = self.kernel.variant();
                debug_assert!(variant.source.takes::<K::Params>(), "parameters of {variant}");
                variant
            },
            inputs: &inputs,
            outputs: &outputs,
            params: bytemuck::bytes_of(self.params),
            groups: self.workgroups,
            work: self.work,
            indexed_axes,
            also_read: &[],
            also_written: &[],
        })?;
        Ok(())
    }
}

/// Returns the variants of kernels, for the list of a family.
///
/// # Panics
///
/// Panics if the key of a kernel would be too long: see [`KernelKey::of`].
pub(crate) fn variants_of<K: Kernel>(kernels: impl IntoIterator<Item = K>) -> Vec<Variant> {
    let variant_with_key = |kernel: K| {
        KernelKey::of(&kernel);
        kernel.variant()
    };
    kernels.into_iter().map(variant_with_key).collect()
}

/// Returns the number of workgroups of a kernel with one invocation per result.
pub(crate) fn workgroups_for(results: usize) -> u64 {
    div_up(results, WORKGROUP_SIZE)
}

/// Returns `a / b` rounded up.
pub(crate) fn div_up(a: usize, b: usize) -> u64 {
    a.div_ceil(b) as u64
}
