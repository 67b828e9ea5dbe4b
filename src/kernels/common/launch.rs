//! A kernel launch on tensors.

use smallvec::SmallVec;

use crate::runtime::{Allocation, Dispatch, Params, Variant};
use crate::tensor::{Result, Tensor};

/// Invocations of a workgroup in kernels that compute one result per invocation
/// (`shaders/lib/invocation.wgsl`).
const WORKGROUP_SIZE: usize = 64;

/// A kernel launch: variant, operands, parameters and size.
pub(crate) struct Launch<'a, P> {
    pub variant: &'a Variant,
    /// Tensors that are only read, in binding order.
    pub inputs: &'a [&'a Tensor],
    /// Tensors that are written, or read and written, in binding order after the inputs.
    pub outputs: &'a [&'a Tensor],
    pub params: &'a P,
    pub workgroups: u64,
    /// Estimated number of operations. The runtime limits the work of a submission.
    pub work: u64,
}

impl<P: Params> Launch<'_, P> {
    /// Records the launch.
    ///
    /// # Errors
    ///
    /// Returns an error if the kernel does not compile on this device, or the device was lost.
    pub fn run(self) -> Result<()> {
        debug_assert!(
            self.variant.source.takes::<P>(),
            "{} declares other parameters",
            self.variant
        );
        let runtime = self.outputs[0].runtime();
        let inputs: SmallVec<[&Allocation; 6]> = self.inputs.iter().map(|t| t.buffer()).collect();
        let outputs: SmallVec<[&Allocation; 2]> = self.outputs.iter().map(|t| t.buffer()).collect();
        runtime.dispatch(&Dispatch {
            variant: self.variant,
            inputs: &inputs,
            outputs: &outputs,
            params: bytemuck::bytes_of(self.params),
            groups: self.workgroups,
            work: self.work,
        })?;
        Ok(())
    }
}

/// Returns the number of workgroups of a kernel with one invocation per result.
pub(crate) fn workgroups_for(results: usize) -> u64 {
    div_up(results, WORKGROUP_SIZE)
}

/// Returns `a / b` rounded up.
pub(crate) fn div_up(a: usize, b: usize) -> u64 {
    a.div_ceil(b) as u64
}
