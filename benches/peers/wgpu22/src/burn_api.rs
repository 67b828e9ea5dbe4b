//! The Burn 0.22 types that the workloads use. In Burn 0.22 the tensor type has no backend
//! parameter, and the device decides whether gradients are tracked.

pub use burn::module::Module as Model;
pub use burn::nn::conv::{Conv2d, Conv2dConfig};
pub use burn::nn::loss::CrossEntropyLoss;
pub use burn::nn::pool::MaxPool2dConfig;
pub use burn::nn::transformer::{
    TransformerEncoder, TransformerEncoderConfig, TransformerEncoderInput,
};
pub use burn::nn::{
    BatchNorm, BatchNormConfig, Embedding, EmbeddingConfig, LayerNorm, LayerNormConfig, Linear,
    LinearConfig, Lstm, LstmConfig, PaddingConfig2d,
};
pub use burn::optim::{AdamConfig, GradientsParams};
pub use burn::tensor::module::{attention, conv2d};
pub use burn::tensor::ops::{AttentionModuleOptions, ConvOptions};
pub use burn::tensor::quantization::{QuantScheme, QuantValue};
pub use burn::tensor::{DType, Device, TensorData, activation};

use burn::tensor::quantization::ScaleDtype;
use burn::tensor::{Int, Tensor};

/// A tensor without gradients.
pub type Untracked<const D: usize> = Tensor<D>;
/// A tensor that may have gradients.
pub type Tracked<const D: usize> = Tensor<D>;
/// Integers, as labels and tokens.
pub type Ids<const D: usize> = Tensor<D, Int>;
pub type Labels = Ids<1>;
pub type UntrackedIds<const D: usize> = Tensor<D, Int>;

/// Returns the device for tensors with gradients.
pub fn autodiff_device(device: &Device) -> Device {
    device.clone().autodiff()
}

/// Layers without gradients: of a device that tracks none.
pub mod untracked {
    pub use burn::nn::{LayerNorm, Linear};
}

/// Returns the scheme of integers in blocks of 32 that share a scale of f32, in the default form of their memory.
pub fn blocks_of_32(value: QuantValue) -> QuantScheme {
    QuantScheme::default().with_value(value).per_block([32], ScaleDtype::F32)
}
