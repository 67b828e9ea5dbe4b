//! The types of Burn 0.21 that `models.rs` and the workloads of the comparison use. The module around this one defines
//! the backend, `Inner`, and `Autodiff`.

pub use burn::module::AutodiffModule;
pub use burn::nn::conv::Conv2dConfig;
pub use burn::nn::loss::CrossEntropyLoss;
pub use burn::nn::pool::MaxPool2dConfig;
pub use burn::nn::transformer::{TransformerEncoderConfig, TransformerEncoderInput};
pub use burn::nn::{
    BatchNormConfig, EmbeddingConfig, LayerNormConfig, LinearConfig, LstmConfig, PaddingConfig2d,
};
pub use burn::optim::{AdamConfig, GradientsParams, Optimizer};
pub use burn::tensor::module::{attention, conv2d};
pub use burn::tensor::ops::{AttentionModuleOptions, ConvOptions};
pub use burn::tensor::quantization::{QuantScheme, QuantValue};
pub use burn::tensor::{DType, TensorData, activation};

use burn::tensor::backend::BackendTypes;
use burn::tensor::quantization::{QuantLevel, QuantStore};
use burn::tensor::{Int, Tensor};

use super::{Autodiff, Inner};

/// The backend wrapped for automatic differentiation.
type Outer = Autodiff<Inner>;

pub type Device = <Inner as BackendTypes>::Device;
/// A tensor without gradients.
pub type Untracked<const D: usize> = Tensor<Inner, D>;
/// A tensor that may have gradients.
pub type Tracked<const D: usize> = Tensor<Outer, D>;
/// Integers, as labels and tokens.
pub type Ids<const D: usize> = Tensor<Outer, D, Int>;
pub type Labels = Ids<1>;
pub type UntrackedIds<const D: usize> = Tensor<Inner, D, Int>;
pub type BatchNorm = burn::nn::BatchNorm<Outer>;
pub type Embedding = burn::nn::Embedding<Outer>;
pub type LayerNorm = burn::nn::LayerNorm<Outer>;
pub type Linear = burn::nn::Linear<Outer>;
pub type Lstm = burn::nn::Lstm<Outer>;
pub type Conv2d = burn::nn::conv::Conv2d<Outer>;
pub type TransformerEncoder = burn::nn::transformer::TransformerEncoder<Outer>;

/// Layers without gradients.
pub mod untracked {
    use super::Inner;

    pub type LayerNorm = burn::nn::LayerNorm<Inner>;
    pub type Linear = burn::nn::Linear<Inner>;
}

/// The trait bound of a trainable model.
pub trait Model: AutodiffModule<Outer> {}
impl<M: AutodiffModule<Outer>> Model for M {}

/// Returns the device for tensors with gradients. In Burn 0.21 it is the same device: the tensor
/// type decides whether gradients are tracked.
pub fn autodiff_device(device: &Device) -> Device {
    device.clone()
}

/// Returns the scheme of integers in blocks of 32 that share a scale of f32.
pub fn blocks_of_32(value: QuantValue) -> QuantScheme {
    let level = QuantLevel::block([32]);
    QuantScheme::default().with_value(value).with_level(level).with_store(QuantStore::Native)
}
