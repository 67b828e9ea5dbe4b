//! Text from a trained model.

use burn::tensor::activation::softmax;
use burn::tensor::backend::{Backend, ExecutionError};
use burn::tensor::{FloatDType, Tensor};
use digits::rng::Rng;
use digits::tensors::int_tensor;

use crate::model::Gpt;

/// The temperature at which the probabilities of all but the most likely token vanish.
const MIN_TEMPERATURE: f32 = 1e-3;

/// Samples the token after `context`, which has at least one and at most as many tokens as the model
/// reads. A temperature of 0 selects the most likely one.
///
/// # Errors
///
/// Returns an error if the device fails.
pub async fn next_token<B: Backend>(
    model: &Gpt<B>,
    context: &[i32],
    temperature: f32,
    rng: &mut Rng,
    device: &B::Device,
) -> Result<i32, ExecutionError> {
    let length = context.len();
    let tokens: Tensor<B, 1, _> = int_tensor(context.to_vec(), device);
    let logits = model.forward(tokens.unsqueeze::<2>());
    let vocabulary = logits.dims()[2];
    let last = logits.narrow(1, length - 1, 1).reshape([vocabulary]).cast(FloatDType::F32);
    let probabilities = softmax(last / temperature.max(MIN_TEMPERATURE), 0);
    let probabilities = probabilities.into_data_async().await?;
    // Inverse transform sampling: the token at which the cumulative probability exceeds a uniform
    // number.
    let mut remaining = rng.below(1 << 24) as f32 / (1 << 24) as f32;
    for (token, probability) in probabilities.iter::<f32>().enumerate() {
        remaining -= probability;
        if remaining < 0.0 {
            return Ok(token as i32);
        }
    }
    Ok(vocabulary as i32 - 1)
}
