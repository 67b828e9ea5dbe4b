//! Runs of several workers that another number of them resumes.

use std::path::Path;

use burn::data::dataloader::batcher::Batcher;
use burn::data::dataset::InMemDataset;
use burn::module::Module;
use burn::optim::momentum::MomentumConfig;
use burn::optim::{GradientsParams, Optimizer, SgdConfig};
use burn::tensor::Tensor;
use burn_wgsl::parallel::{self, Part, Rest, Worker, Workers};
use burn_wgsl::train::{
    Checkpoint, CheckpointError, Loader, LoaderConfig, Parts, Position, Run, RunConfig, Saved,
    Shuffled,
};
use burn_wgsl::{Autodiff, Wgsl, WgslDevice};

use crate::cnn::{Cnn, Fill, numbers};
use crate::common::devices;
use crate::networks::{weights, worst};

type B = Autodiff<Wgsl>;

/// Makes images and labels of their numbers.
struct Numbered;

type Sample = (Tensor<B, 4>, Tensor<B, 2>);

impl Batcher<B, usize, Sample> for Numbered {
    fn batch(&self, items: Vec<usize>, device: &WgslDevice) -> Sample {
        let images = items.iter().map(|item| numbers(*item, [1, 1, 8, 8], device)).collect();
        let labels = items.iter().map(|item| numbers(item + 1000, [1, 3], device)).collect();
        (Tensor::cat(images, 0), Tensor::cat(labels, 0))
    }
}

/// The run of a worker: what a checkpoint has.
struct Resumable<O> {
    model: Cnn<B>,
    optimizer: O,
    loader: Loader<B, usize, Sample>,
    part: Part<Shuffled>,
    steps: u64,
}

impl<O: Optimizer<Cnn<B>, B>> Saved for Resumable<O> {
    fn parts(&mut self, parts: &mut Parts<'_>) -> Result<(), CheckpointError> {
        parts.module("model", &mut self.model)?;
        parts.optimizer("optimizer", &mut self.optimizer)?;
        parts.value("steps", &mut self.steps)?;
        let part = &self.part;
        parts.loader_of("position", &self.loader, |own| part.to_all(own), |all| part.of_all(all))
    }
}

/// Takes steps with batches of 12 of 40 items, in several epochs, from the beginning or from a checkpoint, up to the
/// last. Saves if there is no checkpoint. Returns the weights, and the position of all workers.
fn run_until(
    worker: &Worker,
    last: u64,
    folder: &Path,
) -> Result<(Vec<f32>, Position), Box<dyn std::error::Error>> {
    let device = worker.device();
    let part = worker.part(Shuffled { seed: 5 }, 12, Rest::Uneven)?;
    let config = LoaderConfig { workers: 0, ..LoaderConfig::new(worker.batch_size(12)?) };
    let items = InMemDataset::new((0..40).collect::<Vec<usize>>());
    let loader = Loader::new(items, Numbered, &device, config)?.with_sampler(part.clone())?;
    let model = worker.broadcast(Cnn::<B>::new(&device).map(&mut Fill(0)))?;
    let momentum = MomentumConfig::new().with_momentum(0.9);
    let optimizer = SgdConfig::new().with_momentum(Some(momentum)).init();
    let mut state = Resumable { model, optimizer, loader, part, steps: 0 };
    let found = Checkpoint::latest(folder)?;
    if let Some(found) = &found {
        found.restore(&mut state, &device)?;
    }
    while state.steps < last {
        let Resumable { model, optimizer, loader, steps, .. } = &mut state;
        for batch in loader.batches() {
            let (images, labels) = batch?;
            let samples = labels.dims()[0];
            let loss = (model.forward(images) - labels).powi_scalar(2).mean();
            let gradients = GradientsParams::from_grads(loss.backward(), &*model);
            let gradients = worker.mean::<B, _>(gradients, &*model, samples)?;
            *model = optimizer.step(0.05, model.clone(), gradients);
            *steps += 1;
            if *steps == last {
                break;
            }
        }
    }
    if found.is_none() && worker.is_first() {
        let mut run = Run::open(folder, &[device], RunConfig::default())?;
        run.begin(false, &mut state)?;
        run.save(&mut state, None)?;
        run.finish()?;
    }
    let Resumable { model, loader, part, .. } = &state;
    Ok((weights(model), part.to_all(loader.position())))
}

#[test]
fn another_number_of_workers_goes_on_with_the_same_steps() {
    let folder = |name: &str| {
        let folder = format!("parallel-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).expect("it can be created");
        folder
    };
    for device in devices() {
        let train = |count: usize, last: u64, folder: &Path| {
            let workers = Workers::threads(vec![device; count]).oversubscribed(true);
            let trained = parallel::run(workers, |worker| run_until(worker, last, folder));
            trained.expect("they train").remove(0)
        };
        // Six steps are within the second epoch of four, and 14 in the fourth.
        let (whole, saved) = (folder("whole"), folder("saved"));
        let (expected, position) = train(1, 14, &whole);
        train(4, 6, &saved);
        for count in [4, 2, 1] {
            let (found, reached) = train(count, 14, &saved);
            let difference = worst(&expected, &found);
            assert!(difference <= 1e-6, "{difference} with {count} on {device:?}");
            assert_eq!(reached, position, "with {count} on {device:?}");
        }
        for folder in [whole, saved] {
            std::fs::remove_dir_all(folder).expect("it can be removed");
        }
    }
}
