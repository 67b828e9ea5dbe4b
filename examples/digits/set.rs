//! A part of the data on a device, and the order in which its images are taken.

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
        Self { images: Tensor::from_data(pixels, device), labels: ints(split.labels.clone(), device), count }
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

/// The order of the training images: a generator of its own (splitmix64), so that it is the same for every device.
pub struct Shuffle(pub u64);

impl Shuffle {
    pub fn order(&mut self, count: usize) -> Vec<i32> {
        let mut order: Vec<i32> = (0..count as i32).collect();
        for last in (1..count).rev() {
            order.swap(last, self.below(last as u64 + 1) as usize);
        }
        order
    }

    /// A number from 0 to `limit - 1`: the high half of a product, which is even enough for limits this small.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        ((u128::from(z) * u128::from(limit)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::Shuffle;

    #[test]
    fn a_shuffle_keeps_every_image_and_follows_its_seed() {
        let first = Shuffle(1).order(100);
        assert_eq!(first, Shuffle(1).order(100));
        assert_ne!(first, Shuffle(2).order(100));
        let mut sorted = first;
        sorted.sort_unstable();
        assert_eq!(sorted, (0..100).collect::<Vec<i32>>());
        assert!(Shuffle(1).order(0).is_empty());
    }
}
