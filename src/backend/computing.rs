//! Ops that run on the CPU, for the observers of their device.

use burn_backend::TensorMetadata;
use web_time::Instant;

use super::context::{OpContext, OpOutput};
use super::resolve::{HAS_CPU, runtime};
use super::tensor::WgslTensor;
use crate::device::WgslDevice;
use crate::runtime::{Event, ObservedDevice, host_observers, is_observed};

/// An op that is being computed on the CPU.
pub(crate) struct Computing(Option<Box<Computation>>);

struct Computation {
    device: ObservedDevice,
    operands: String,
    bytes: u64,
    began: Instant,
}

impl Computing {
    /// Begins an op. `operands` adds the operands.
    pub fn begin(
        context: &OpContext,
        operands: impl FnOnce(&mut Vec<(&'static str, WgslTensor)>),
    ) -> Self {
        Self::with_operands(&context.device(), context.op(), operands)
    }

    /// Begins an op without operands.
    pub fn of(device: &WgslDevice, op: &'static str) -> Self {
        Self::with_operands(device, op, |_| {})
    }

    /// Begins an op of a device.
    pub fn with_operands(
        device: &WgslDevice,
        op: &'static str,
        operands: impl FnOnce(&mut Vec<(&'static str, WgslTensor)>),
    ) -> Self {
        if !HAS_CPU || !is_observed() {
            return Self(None);
        }
        let device = match runtime(device, op) {
            Some(runtime) => ObservedDevice::Gpu(runtime),
            None if host_observers().are_present() => ObservedDevice::Host,
            None => return Self(None),
        };
        let mut found = Vec::new();
        operands(&mut found);
        let found: Vec<WgslTensor> = found.into_iter().map(|(_, operand)| operand).collect();
        let (operands, bytes) = described(&found);
        // Held any longer, the operands could not be overwritten.
        drop(found);
        Self(Some(Box::new(Computation { device, operands, bytes, began: Instant::now() })))
    }

    /// Passes the op to the observers, and returns the result.
    pub fn end<R: OpOutput>(self, result: R) -> R {
        if self.0.is_some() {
            let mut results = Vec::new();
            result.inspect_results(&mut results);
            self.end_with(&results);
        }
        result
    }

    /// Passes the op to the observers.
    pub fn end_with(self, results: &[WgslTensor]) {
        let Some(computation) = self.0 else { return };
        let Computation { device, operands, bytes, began } = *computation;
        let took = began.elapsed();
        let (text, of_results) = described(results);
        let operands = format!("{operands} -> {text}");
        let operands = operands.trim_start();
        let event = || Event::Computed { began, took, operands, bytes: bytes + of_results };
        device.observers().notify(event);
    }
}

/// Returns the types and shapes of tensors, and their size in bytes.
fn described(tensors: &[WgslTensor]) -> (String, u64) {
    let texts = tensors
        .iter()
        .map(|tensor| format!("{} {:?}", tensor.dtype().name(), tensor.shape().as_slice()));
    let bytes =
        tensors.iter().map(|tensor| (tensor.shape().num_elements() * tensor.dtype().size()) as u64);
    (texts.collect::<Vec<_>>().join(", "), bytes.sum())
}
