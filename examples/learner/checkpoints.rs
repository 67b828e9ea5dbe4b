//! Finds the checkpoint from which a run continues.

use std::path::Path;

use burn::lr_scheduler::LrScheduler;
use burn::module::Module;
use burn::optim::adaptor::OptimizerAdaptor;
use burn::optim::{Adam, Optimizer};
use burn::record::{DefaultRecorder, Record, Recorder};
use burn_wgsl::WgslDevice;

use crate::B;
use crate::classifier::Classifier;

type Adaptor = OptimizerAdaptor<Adam, Classifier<B>, B>;

/// Returns the last epoch with a complete checkpoint in the folder of a run. A run that is killed
/// while it writes a checkpoint leaves an incomplete one; Burn keeps the one before.
pub fn last(folder: &Path, device: &WgslDevice) -> Option<usize> {
    let files = std::fs::read_dir(folder.join("checkpoint")).ok()?;
    let mut epochs: Vec<usize> = files
        .filter_map(|file| {
            let name = file.ok()?.file_name().into_string().ok()?;
            name.strip_prefix("model-")?.strip_suffix(".mpk")?.parse().ok()
        })
        .collect();
    epochs.sort_unstable();
    epochs.into_iter().rev().find(|&epoch| {
        can_load::<<Classifier<B> as Module<B>>::Record>(folder, "model", epoch, device)
            && can_load::<<Adaptor as Optimizer<Classifier<B>, B>>::Record>(
                folder, "optim", epoch, device,
            )
            && can_load::<<f64 as LrScheduler>::Record<B>>(folder, "scheduler", epoch, device)
    })
}

/// Returns whether a file of a checkpoint exists and is complete.
fn can_load<R: Record<B>>(folder: &Path, name: &str, epoch: usize, device: &WgslDevice) -> bool {
    let file = folder.join("checkpoint").join(format!("{name}-{epoch}"));
    Recorder::<B>::load::<R>(&DefaultRecorder::new(), file, device).is_ok()
}
