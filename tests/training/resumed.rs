//! Runs of several workers that another number of them resumes.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use burn::data::dataloader::batcher::Batcher;
use burn::data::dataset::InMemDataset;
use burn::module::Module;
use burn::optim::momentum::MomentumConfig;
use burn::optim::{GradientsParams, Optimizer, SgdConfig};
use burn::tensor::{Distribution, Tensor};
use burn_wgsl::parallel::{self, ParallelError, Part, Rest, SharedRun, Worker, Workers};
use burn_wgsl::train::{
    CheckpointError, Loader, LoaderConfig, Parts, Position, Run, RunConfig, Saved, Shuffled, Stop,
};
use burn_wgsl::{Autodiff, Wgsl, WgslDevice};

use crate::cnn::{Cnn, Fill, numbers};
use crate::common::{devices, is_alone, test_alone};
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
    loader: Arc<Loader<B, usize, Sample>>,
    part: Part<Shuffled>,
}

impl<O: Optimizer<Cnn<B>, B>> Saved for Resumable<O> {
    fn parts(&mut self, parts: &mut Parts<'_>) -> Result<(), CheckpointError> {
        parts.module("model", &mut self.model)?;
        parts.optimizer("optimizer", &mut self.optimizer)?;
        let part = &self.part;
        parts.loader_of("position", &self.loader, |own| part.to_all(own), |all| part.of_all(all))
    }
}

/// Steps with batches of 12 of 40 items, in several epochs.
struct Steps<'a> {
    folder: &'a Path,
    /// The step after which they end.
    last: u64,
    /// The part of random numbers in an image.
    noise: f64,
}

impl Steps<'_> {
    /// Takes the steps, from the beginning or from the checkpoint in the folder. Saves if there was none. Returns the
    /// weights, and the position of all workers.
    fn take(&self, worker: &Worker) -> Result<(Vec<f32>, Position), Box<dyn std::error::Error>> {
        let device = worker.device();
        worker.seed::<B>(17);
        let part = worker.part(Shuffled { seed: 5 }, 12, Rest::Uneven)?;
        let config = LoaderConfig { workers: 0, ..LoaderConfig::new(worker.batch_size(12)?) };
        let items = InMemDataset::new((0..40).collect::<Vec<usize>>());
        let loader = Loader::new(items, Numbered, &device, config)?.with_sampler(part.clone())?;
        let model = worker.broadcast(Cnn::<B>::new(&device).map(&mut Fill(0)))?;
        let momentum = MomentumConfig::new().with_momentum(0.9);
        let optimizer = SgdConfig::new().with_momentum(Some(momentum)).init();
        let mut state = Resumable { model, optimizer, loader: Arc::new(loader), part };
        let run = SharedRun::new(worker, Stop::new());
        let mut run = run.saved_to(self.folder, RunConfig::default())?;
        let resumed = run.resume(&mut state)?;
        while run.step() < self.last {
            let loader = state.loader.clone();
            for batch in loader.batches() {
                self.step(worker, &mut state, batch?)?;
                if !run.end_step(&mut state)? || run.step() == self.last {
                    break;
                }
            }
        }
        if !resumed {
            run.save(&mut state, None)?;
            run.finish()?;
        }
        Ok((weights(&state.model), state.part.to_all(state.loader.position())))
    }

    fn step<O: Optimizer<Cnn<B>, B>>(
        &self,
        worker: &Worker,
        state: &mut Resumable<O>,
        (images, labels): Sample,
    ) -> Result<(), ParallelError> {
        let Resumable { model, optimizer, .. } = state;
        let samples = labels.dims()[0];
        let images = match self.noise {
            0.0 => images,
            part => images.clone() + images.random_like(Distribution::Default) * part,
        };
        let loss = (model.forward(images) - labels).powi_scalar(2).mean();
        let gradients = GradientsParams::from_grads(loss.backward(), &*model);
        let gradients = worker.mean::<B, _>(gradients, &*model, samples)?;
        *model = optimizer.step(0.05, model.clone(), gradients);
        Ok(())
    }

    /// Takes them with workers that share a device.
    fn take_by(&self, count: usize, device: WgslDevice) -> (Vec<f32>, Position) {
        let workers = Workers::threads(vec![device; count]).oversubscribed(true);
        let taken = parallel::run(workers, |worker| self.take(worker));
        taken.expect("they train").remove(0)
    }
}

/// A folder that is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("parallel-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).expect("it can be created");
        Self(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn another_number_of_workers_goes_on_with_the_same_steps() {
    for device in devices() {
        // Six steps are within the second epoch of four, and 14 in the fourth.
        let (whole, saved) = (Folder::new("whole"), Folder::new("saved"));
        let (expected, position) =
            Steps { folder: &whole.0, last: 14, noise: 0.0 }.take_by(1, device);
        Steps { folder: &saved.0, last: 6, noise: 0.0 }.take_by(4, device);
        for count in [4, 2, 1] {
            let (found, reached) =
                Steps { folder: &saved.0, last: 14, noise: 0.0 }.take_by(count, device);
            let difference = worst(&expected, &found);
            assert!(difference <= 1e-6, "{difference} with {count} on {device:?}");
            assert_eq!(reached, position, "with {count} on {device:?}");
        }
    }
}

/// In a process of its own: other tests draw from the streams of a device, too.
#[test]
fn resumed_workers_go_on_with_their_random_numbers() {
    if !is_alone(test_alone!("resumed_workers_go_on_with_their_random_numbers")) {
        return;
    }
    for device in devices() {
        for count in [1, 3] {
            let (whole, saved) = (Folder::new("whole"), Folder::new("saved"));
            let steps = |last, folder: &Folder| {
                let folder = &folder.0;
                Steps { folder, last, noise: 0.5 }.take_by(count, device).0
            };
            let expected = steps(9, &whole);
            let before = steps(5, &saved);
            assert_ne!(before, expected);
            assert_eq!(steps(9, &saved), expected, "{count} on {device:?}");
        }
    }
}

/// A run whose state is a number.
fn counted(
    worker: &Worker,
    folder: &Path,
    resumes: bool,
    stop: Stop,
) -> Result<(u64, u64), ParallelError> {
    let mut count = 0_u64;
    let mut state = |parts: &mut Parts<'_>| parts.value("count", &mut count);
    let config = RunConfig { every: Some(2), ..RunConfig::default() };
    let mut run = SharedRun::new(worker, stop).saved_to(folder, config)?;
    run.begin(resumes, &mut state)?;
    while run.step() < 5 && run.end_step(&mut state)? {}
    run.finish()?;
    let step = run.step();
    Ok((step, count))
}

/// The request of one worker ends all of them, and the error of the first, which alone reads the folder, too.
#[test]
fn workers_begin_and_end_together() {
    let folder = Folder::new("together");
    let run = |resumes: bool, stops: bool| {
        let workers = Workers::threads([WgslDevice::Cpu; 3]).oversubscribed(true);
        parallel::run(workers, |worker| {
            let stop = Stop::new();
            if stops && worker.rank() == 2 {
                stop.request();
            }
            counted(worker, &folder.0, resumes, stop)
        })
    };
    let error = run(true, false).expect_err("there is no checkpoint");
    assert!(error.to_string().contains("there is no checkpoint"), "{error}");
    assert_eq!(run(false, true).expect("it is new"), [(1, 0); 3]);
    let error = run(false, false).expect_err("there is a checkpoint");
    assert!(error.to_string().contains("has checkpoints"), "{error}");
    assert_eq!(run(true, false).expect("it is resumed"), [(5, 0); 3]);
    // After four steps, the last of those that are saved.
    assert_eq!(run(true, true).expect("it is resumed"), [(5, 0); 3]);

    let workers = Workers::threads([WgslDevice::Cpu]);
    let without = parallel::run(workers, |worker| {
        let mut state = |_: &mut Parts<'_>| Ok(());
        let mut run = SharedRun::new(worker, Stop::new());
        assert!(!run.begin(false, &mut state)?);
        assert!(run.end_step(&mut state)?);
        run.save(&mut state, Some(1.0))?;
        run.begin(true, &mut state)
    });
    let error = without.expect_err("it has no folder");
    assert!(error.to_string().contains("without a folder"), "{error}");
}

/// A checkpoint of a run of one device has no random numbers of other workers.
#[test]
fn workers_resume_a_run_of_one_device() {
    let folder = Folder::new("of-one");
    let mut count = 7_u64;
    let mut state = |parts: &mut Parts<'_>| parts.value("count", &mut count);
    let mut run = Run::open(&folder.0, &[WgslDevice::Cpu], RunConfig::default()).expect("it opens");
    run.save(&mut state, None).expect("it is saved");
    run.finish().expect("it is written");
    drop(run);
    let workers = Workers::threads([WgslDevice::Cpu; 2]).oversubscribed(true);
    let counts = parallel::run(workers, |worker| {
        let mut count = 0_u64;
        let mut state = |parts: &mut Parts<'_>| parts.value("count", &mut count);
        let run = SharedRun::new(worker, Stop::new());
        let resumed = run.saved_to(&folder.0, RunConfig::default())?.resume(&mut state)?;
        assert!(resumed);
        Ok::<_, ParallelError>(count)
    });
    assert_eq!(counts.expect("it is resumed"), [7, 7]);
}
