//! Batches of images: bytes on their way to the device, floats on it.

use burn::data::dataloader::batcher::Batcher;
use burn::tensor::backend::{Backend, ExecutionError};
use burn::tensor::{Int, Tensor};
use burn_wgsl::train::Staging;
use burn_wgsl::{Autodiff, Wgsl, WgslDevice};

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

impl Images {
    /// Copies the images to memory that the device copies from.
    fn stage(
        &self,
        items: &[Labelled],
        device: &WgslDevice,
    ) -> Result<Batch<Wgsl>, ExecutionError> {
        let Format { channels, side } = self.0;
        let mut pixels = Staging::<u8, 4>::new([items.len(), channels, side, side], device)?;
        let mut labels = Staging::<i32, 1>::new([items.len()], device)?;
        for item in items {
            pixels.push(&item.pixels)?;
            labels.push(&[item.label.cast_signed()])?;
        }
        // The bytes become floats in the kernel that normalises them.
        let images = pixels.finish()?.float() / 127.5 - 1.0;
        Ok(Batch { images, labels: labels.finish()? })
    }
}

impl Batcher<Wgsl, Labelled, Batch<Wgsl>> for Images {
    fn batch(&self, items: Vec<Labelled>, device: &WgslDevice) -> Batch<Wgsl> {
        // The loader returns the panic of a worker as an error.
        self.stage(&items, device).unwrap_or_else(|error| panic!("{error}"))
    }
}

impl Batcher<Autodiff<Wgsl>, Labelled, Batch<Autodiff<Wgsl>>> for Images {
    fn batch(&self, items: Vec<Labelled>, device: &WgslDevice) -> Batch<Autodiff<Wgsl>> {
        let Batch::<Wgsl> { images, labels } = self.batch(items, device);
        Batch { images: Tensor::from_inner(images), labels: Tensor::from_inner(labels) }
    }
}
