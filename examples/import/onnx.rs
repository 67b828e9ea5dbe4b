//! A model from an ONNX file: its module was written when this program was compiled.

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

/// What `burn-onnx` wrote.
#[allow(clippy::all, dead_code, missing_docs, unused_imports)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/onnx/cnn.rs"));
}

/// The model of `fixtures/cnn.onnx`.
#[derive(Debug)]
pub struct Cnn<B: Backend>(generated::Model<B>);

impl<B: Backend> Cnn<B> {
    /// Loads the weights, which are part of the program.
    pub fn new(device: &B::Device) -> Self {
        Self(generated::Model::from_embedded(device))
    }

    /// Returns the scores of images `[images, 1, 12, 12]`.
    pub fn forward(&self, images: Tensor<B, 4>) -> Tensor<B, 2> {
        self.0.forward(images)
    }
}
