//! The model that tells which digit is in a picture.

use std::path::Path;

use anyhow::{Context, Result};
use burn::tensor::activation::softmax;
use burn::tensor::{Tensor, TensorData};
use burn_wgsl::serve::{Joined, PaddedSizes};
use burn_wgsl::{Wgsl, WgslDevice};
use digits::model::{Model, SIDE};
use digits::weights;
use tokio::sync::oneshot;

use crate::device::Reopened;
use crate::failure::Failure;
use crate::metrics::Metrics;
use crate::picture::Picture;

/// The classes.
pub const DIGITS: usize = 10;

/// A picture, and where its probabilities go.
#[derive(Debug)]
pub struct Classify {
    pub picture: Picture,
    pub reply: oneshot::Sender<Result<Vec<f32>, Failure>>,
}

/// The network on a device.
pub struct Classifier {
    model: Model<Wgsl>,
    device: WgslDevice,
    sizes: PaddedSizes,
}

impl Classifier {
    /// Loads a model of the example `digits`, and computes a batch of each size, which compiles the kernels.
    ///
    /// # Errors
    ///
    /// Returns an error if the file is not such a model, or the device fails.
    pub fn open(path: &Path, device: WgslDevice, sizes: PaddedSizes) -> Result<Self> {
        let name = path.display().to_string();
        let bytes = std::fs::read(path).with_context(|| format!("cannot read {name}"))?;
        let model = weights::from_bytes(Model::new(&device), &name, bytes, &device)?;
        let classifier = Self { model, device, sizes };
        for size in sizes.iter() {
            classifier.classify(&vec![&vec![0.0; SIDE * SIDE]; size])?;
        }
        Ok(classifier)
    }

    /// Returns the probabilities of the digits, for each of at most as many pictures as the largest batch has.
    ///
    /// # Errors
    ///
    /// Returns an error if the device fails.
    pub fn classify(&self, pictures: &[&Picture]) -> Result<Vec<Vec<f32>>> {
        let size = self.sizes.padded(pictures.len());
        let mut pixels: Vec<f32> = pictures.iter().copied().flatten().copied().collect();
        pixels.resize(size * SIDE * SIDE, 0.0);
        let images = TensorData::new(pixels, [size, 1, SIDE, SIDE]);
        let scores = self.model.forward(Tensor::from_data(images, &self.device));
        let probabilities: Vec<f32> = softmax(scores, 1).try_into_data()?.iter::<f32>().collect();
        Ok(probabilities.chunks(DIGITS).take(pictures.len()).map(<[f32]>::to_vec).collect())
    }
}

/// Answers requests until no more are accepted and those that wait are answered.
///
/// # Errors
///
/// Returns an error if the device fails several times in a row.
pub fn run<F: FnMut() -> Result<Classifier>>(
    mut model: Reopened<Classifier, F>,
    joined: &Joined<Classify>,
    metrics: &Metrics,
) -> Result<()> {
    while let Some(mut batch) = joined.next() {
        // The clients of the others have gone.
        batch.retain(|request| !request.reply.is_closed());
        if batch.is_empty() {
            continue;
        }
        metrics.batch_sizes.observe(batch.len() as f64);
        let pictures: Vec<&Picture> = batch.iter().map(|request| &request.picture).collect();
        match model.run(metrics, |model, _| model.classify(&pictures)) {
            Ok(answers) => {
                for (request, answer) in batch.into_iter().zip(answers) {
                    let _ = request.reply.send(Ok(answer));
                }
            }
            Err(error) => {
                let failure = Failure::Device(error.to_string());
                for request in batch {
                    let _ = request.reply.send(Err(failure.clone()));
                }
                return Err(error);
            }
        }
    }
    Ok(())
}
