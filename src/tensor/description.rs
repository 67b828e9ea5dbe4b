//! Operands in words, for profiles.

use super::{DType, Tensor};
use crate::runtime::describe_operands;

/// Describes the operands of the next launch, for profiles.
#[inline(never)]
pub(crate) fn describe(inputs: &[&Tensor], outputs: &[&Tensor]) {
    describe_operands(|| description(inputs, outputs));
}

/// Returns the types and shapes of the operands of a launch, for profiles.
pub(crate) fn description(inputs: &[&Tensor], outputs: &[&Tensor]) -> String {
    let list = |tensors: &[&Tensor]| {
        let operands = tensors.iter().enumerate();
        // A binding that a kernel does not use repeats another.
        let operands = operands.filter(|(index, tensor)| {
            !tensors[..*index].iter().any(|other| std::ptr::eq(*other, **tensor))
        });
        let described = operands.map(|(_, tensor)| described(tensor.dtype(), tensor.shape()));
        described.collect::<Vec<_>>().join(", ")
    };
    format!("{} -> {}", list(inputs), list(outputs))
}

/// Returns a type and a shape, for profiles.
pub(crate) fn described(dtype: DType, shape: &[usize]) -> String {
    format!("{dtype:?} {shape:?}").to_ascii_lowercase()
}
