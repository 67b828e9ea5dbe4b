//! A part of the data on a device.

use burn::tensor::backend::Backend;
use burn::tensor::{Int, Tensor, TensorData};

use crate::data::Split;
use crate::model::{Model, SIDE};

/// Test images per forward pass: bounds the memory that a large data file takes.
const TEST_BATCH: usize = 1024;

/// A part of the data, uploaded once.
pub struct Set<B: Backend> {
    images: Tensor<B, 4>,
    labels: Tensor<B, 1, Int>,
    pub count: usize,
}

impl<B: Backend> Set<B> {
    pub fn new(split: &Split, device: &B::Device) -> Self {
        let count = split.labels.len();
        let pixels = TensorData::new(split.pixels.clone(), [count, 1, SIDE, SIDE]);
        Self {
            images: Tensor::from_data(pixels, device),
            labels: ints(split.labels.clone(), device),
            count,
        }
    }

    /// The images and labels at some places.
    pub fn pick(&self, indices: Tensor<B, 1, Int>) -> (Tensor<B, 4>, Tensor<B, 1, Int>) {
        (self.images.clone().select(0, indices.clone()), self.labels.clone().select(0, indices))
    }

    /// How many of the images the model recognises, still on the device; none where there are no images.
    pub fn correct(&self, model: &Model<B>) -> Option<Tensor<B, 1, Int>> {
        let correct = (0..self.count).step_by(TEST_BATCH).map(|from| {
            let range = from..self.count.min(from + TEST_BATCH);
            let images = self.images.clone().slice_dim(0, range.clone());
            model.correct(images, self.labels.clone().slice_dim(0, range))
        });
        correct.reduce(|sum, part| sum + part)
    }
}

/// Whole numbers on a device.
pub fn ints<B: Backend>(values: Vec<i32>, device: &B::Device) -> Tensor<B, 1, Int> {
    let count = values.len();
    Tensor::from_data(TensorData::new(values, [count]), device)
}
