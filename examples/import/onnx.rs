//! A model from an ONNX file: its module was written when this program was compiled.

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

/// The module that `burn-onnx` generated.
#[allow(clippy::all, dead_code, unused_imports, reason = "generated code")]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/onnx/cnn.rs"));
}

/// The model of `fixtures/cnn.onnx`.
#[derive(Debug)]
pub struct OnnxCnn<B: Backend>(generated::Model<B>);

impl<B: Backend> OnnxCnn<B> {
    /// Loads the weights, which are part of the program.
    pub fn new(device: &B::Device) -> Self {
        Self(generated::Model::from_embedded(device))
    }

    /// Returns the scores of images `[images, 1, 12, 12]`.
    pub fn forward(&self, images: Tensor<B, 4>) -> Tensor<B, 2> {
        self.0.forward(images)
    }
}
