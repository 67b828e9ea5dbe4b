//! Which batch size `--batch auto` is.

use std::path::Path;

use anyhow::Result;
use burn::optim::Optimizer;
use burn_wgsl::WgslDevice;
use burn_wgsl::scaler::GradScaler;
use burn_wgsl::train::{BatchSearch, Checkpoint};
use digits::data::Dataset;
use digits::learner::Learner;
use digits::model::Model;
use digits::tensors::{SampleTensors, int_tensor};

use crate::train::{B, Settings};

/// Returns the batch size of the run that is saved in a folder.
///
/// # Errors
///
/// Returns an error if there is no checkpoint that is whole.
pub fn of_run(folder: &Path) -> Result<usize> {
    Ok(Checkpoint::latest_value::<Settings>(folder, "settings")?.batch)
}

/// Tries batch sizes, and returns the fastest.
///
/// # Errors
///
/// Returns an error if one image does not fit.
pub fn fastest<O: Optimizer<Model<B>, B>>(
    learner: Learner<B, O>,
    scaler: &GradScaler,
    dataset: &Dataset,
    device: &WgslDevice,
) -> Result<usize> {
    let train = SampleTensors::<B>::new(&dataset.train, device);
    let search = BatchSearch { max: train.count, ..BatchSearch::default() };
    let mut updated = None;
    let sizes = search.find(device, |batch| {
        let indices = (0..).take(batch).collect();
        let (images, labels) = train.select(int_tensor(indices, device));
        let gradients = learner.gradients(scaler.scale(learner.loss(images, labels)));
        // Each step is the first: one may fail after it has returned. What is dropped is not computed.
        updated = Some(learner.clone().update(gradients, 1e-3));
    })?;
    drop(updated);
    print!("{sizes}");
    Ok(sizes.fastest)
}
