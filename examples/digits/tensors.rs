//! The dataset as tensors on a device.

use burn::tensor::backend::Backend;
use burn::tensor::{Int, Tensor, TensorData};

use crate::data::Samples;
use crate::model::{Model, SIDE};

/// Test images per forward pass. Limits the memory use with a large data file.
const TEST_BATCH: usize = 1024;

/// Images `[count, 1, 8, 8]` and labels `[count]` on a device.
pub struct SampleTensors<B: Backend> {
    images: Tensor<B, 4>,
    labels: Tensor<B, 1, Int>,
    pub count: usize,
}

impl<B: Backend> SampleTensors<B> {
    /// Uploads samples to a device.
    pub fn new(samples: &Samples, device: &B::Device) -> Self {
        let count = samples.labels.len();
        let pixels = TensorData::new(samples.pixels.clone(), [count, 1, SIDE, SIDE]);
        Self {
            images: Tensor::from_data(pixels, device),
            labels: int_tensor(samples.labels.clone(), device),
            count,
        }
    }

    /// Returns the images `[n, 1, 8, 8]` and the labels `[n]` at `indices` `[n]`.
    pub fn select(&self, indices: Tensor<B, 1, Int>) -> (Tensor<B, 4>, Tensor<B, 1, Int>) {
        (self.images.clone().select(0, indices.clone()), self.labels.clone().select(0, indices))
    }

    /// Counts the images that the model classifies correctly. Returns a tensor `[1]` on the device,
    /// or `None` if there are no images.
    pub fn count_correct(&self, model: &Model<B>) -> Option<Tensor<B, 1, Int>> {
        let counts = (0..self.count).step_by(TEST_BATCH).map(|start| {
            let range = start..self.count.min(start + TEST_BATCH);
            let images = self.images.clone().slice_dim(0, range.clone());
            model.count_correct(images, self.labels.clone().slice_dim(0, range))
        });
        counts.reduce(|sum, count| sum + count)
    }
}

/// Uploads integers as a tensor `[n]`.
pub fn int_tensor<B: Backend>(values: Vec<i32>, device: &B::Device) -> Tensor<B, 1, Int> {
    let count = values.len();
    Tensor::from_data(TensorData::new(values, [count]), device)
}
