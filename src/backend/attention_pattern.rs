//! Attention that the program composes, for its gradient: see `kernels::attention_pattern`.

use super::context::{Conversion, OpContext, OpOutput, RowOperand};
use super::host_data::DataKind;
use super::tensor::{Storage, WgslTensor};
use crate::autocast::rules::Rule;
use crate::kernels::attention_pattern;
use crate::kernels::ops::options::AttentionOptions;
use crate::kernels::{attention, attention_backward};
use crate::tensor::{Result, Tensor};

pub(crate) use crate::kernels::attention_pattern::without;

/// The mask and the options of attention that the program composes.
#[derive(Debug, Clone)]
pub(crate) struct ComposedAttention {
    mask: Option<Tensor>,
    options: AttentionOptions,
}

/// Returns the tensor of a device with kernels.
fn on_gpu(tensor: &WgslTensor) -> Option<&Tensor> {
    match &tensor.storage {
        Storage::Gpu(tensor) => Some(tensor),
        Storage::Cpu(_) => None,
    }
}

/// Returns whether a tensor may be the scores of attention.
pub(crate) fn are_scores(tensor: &WgslTensor) -> bool {
    on_gpu(tensor).is_some_and(|tensor| attention_pattern::of_scores(tensor).is_some())
}

/// Returns whether a tensor is the weights of attention, which are not computed yet.
pub(crate) fn are_weights(tensor: &WgslTensor) -> bool {
    on_gpu(tensor).is_some_and(|tensor| attention_pattern::of_weights(tensor).is_some())
}

impl ComposedAttention {
    /// Returns the attention of these weights and values, which computes what the weights are for.
    pub fn of(weights: &WgslTensor, value: &WgslTensor) -> Option<Self> {
        let (weights, value) = (on_gpu(weights)?, on_gpu(value)?);
        let pattern = attention_pattern::of_weights(weights).filter(|it| it.takes(value))?;
        attention_pattern::set_replaced(weights);
        Some(Self { mask: pattern.mask, options: pattern.options })
    }

    /// Computes the result, and what the gradients need besides: the logarithms of the sums.
    pub fn compute(&self, operands: [WgslTensor; 3]) -> (WgslTensor, WgslTensor) {
        let (mask, options) = (self.mask.clone(), self.options);
        launch(operands, |[query, key, value]| {
            attention::attention_with_log_sums(query, key, value, mask, None, options)
        })
    }

    /// Computes the gradients of queries, keys and values. After these, `operands` are the results of
    /// [`compute`](Self::compute), and the gradient of the first.
    pub fn gradients(&self, operands: [WgslTensor; 6]) -> [WgslTensor; 3] {
        let (mask, options) = (self.mask.clone(), self.options);
        let gradients: (WgslTensor, WgslTensor, WgslTensor) =
            launch(operands, |[query, key, value, out, log_sums, grad]| {
                let bias = None;
                let forward =
                    attention_backward::Forward { query, key, value, mask, bias, out, log_sums };
                attention_backward::attention_backward(forward, grad, options)
            });
        gradients.into()
    }
}

/// Launches kernels on operands of any float types.
fn launch<const N: usize, R: OpOutput>(
    operands: [WgslTensor; N],
    kernels: impl FnOnce([Tensor; N]) -> Result<R::Gpu>,
) -> R {
    let mut context = OpContext::new("attention", Conversion::Wide, Rule::Promote);
    operands.iter().for_each(|operand| context.register(operand, Some(DataKind::Float)));
    context.settle_types();
    let operands = operands.map(|operand| operand.into_gpu(&context));
    context.finish(kernels(operands))
}
