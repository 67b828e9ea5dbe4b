//! Finds the checkpoint from which a run continues.

use std::path::Path;

use burn::lr_scheduler::LrScheduler;
use burn::module::Module;
use burn::optim::adaptor::OptimizerAdaptor;
use burn::optim::{Adam, Optimizer};
use burn::record::{DefaultRecorder, Record, Recorder};
use burn_wgsl::scaler::ScaledOptimizer;
use burn_wgsl::{Precision, WgslDevice};

use crate::B;
use crate::classifier::Classifier;

type Adaptor = OptimizerAdaptor<Adam, Classifier<B>, B>;

/// Returns the last epoch with a complete checkpoint in the folder of a run, and whether it has the
/// state of a loss scale, as in f16. A run that is killed while it writes a checkpoint leaves an
/// incomplete one; Burn keeps the one before.
pub fn last(folder: &Path, device: &WgslDevice) -> Option<(usize, bool)> {
    let files = std::fs::read_dir(folder.join("checkpoint")).ok()?;
    let mut epochs: Vec<usize> = files
        .filter_map(|file| {
            let name = file.ok()?.file_name().into_string().ok()?;
            name.strip_prefix("model-")?.strip_suffix(".mpk")?.parse().ok()
        })
        .collect();
    epochs.sort_unstable();
    epochs.into_iter().rev().find_map(|epoch| {
        let is_complete =
            can_load::<<Classifier<B> as Module<B>>::Record>(folder, "model", epoch, device)
                && can_load::<<f64 as LrScheduler>::Record<B>>(folder, "scheduler", epoch, device);
        let scaled = can_load_optimizer::<ScaledOptimizer<Adaptor>>(folder, epoch, device);
        let plain = || can_load_optimizer::<Adaptor>(folder, epoch, device);
        (is_complete && (scaled || plain())).then_some((epoch, scaled))
    })
}

/// Returns whether a run with the loss scale that a precision needs can continue after a checkpoint
/// with or without one.
pub fn fits(precision: Precision, is_scaled: bool) -> bool {
    (precision == Precision::F16) == is_scaled
}

fn can_load_optimizer<O: Optimizer<Classifier<B>, B>>(
    folder: &Path,
    epoch: usize,
    device: &WgslDevice,
) -> bool {
    can_load::<O::Record>(folder, "optim", epoch, device)
}

/// Returns whether a file of a checkpoint exists and is complete.
fn can_load<R: Record<B>>(folder: &Path, name: &str, epoch: usize, device: &WgslDevice) -> bool {
    let file = folder.join("checkpoint").join(format!("{name}-{epoch}"));
    Recorder::<B>::load::<R>(&DefaultRecorder::new(), file, device).is_ok()
}
