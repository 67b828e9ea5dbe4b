//! Batches of images: bytes on their way to the device, floats on it.

use burn::data::dataloader::batcher::Batcher;
use burn::tensor::backend::Backend;
use burn::tensor::{DType, Int, Tensor, TensorData};

use crate::sources::{Format, Labelled};

/// Images `[n, channels, side, side]` with values around 0, and labels `[n]`.
#[derive(Debug, Clone)]
pub struct Batch<B: Backend> {
    pub images: Tensor<B, 4>,
    pub labels: Tensor<B, 1, Int>,
}

/// Makes batches of images of one size.
#[derive(Debug, Clone, Copy)]
pub struct Images(pub Format);

impl<B: Backend> Batcher<B, Labelled, Batch<B>> for Images {
    fn batch(&self, items: Vec<Labelled>, device: &B::Device) -> Batch<B> {
        let Format { channels, side } = self.0;
        let count = items.len();
        let mut pixels = Vec::with_capacity(count * self.0.len());
        let mut labels = Vec::with_capacity(count);
        for Labelled { pixels: of_item, label } in items {
            pixels.extend_from_slice(&of_item);
            labels.push(label.cast_signed());
        }
        // The bytes become floats in the kernel that normalises them.
        let data = TensorData::new(pixels, [count, channels, side, side]);
        let bytes = Tensor::<B, 4, Int>::from_data(data, (device, DType::U8));
        Batch {
            images: bytes.float() / 127.5 - 1.0,
            labels: Tensor::from_data(TensorData::new(labels, [count]), device),
        }
    }
}
