//! burn-train's learner on several devices.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use burn::data::dataloader::batcher::Batcher;
use burn::data::dataloader::{DataLoader, DataLoaderBuilder};
use burn::data::dataset::InMemDataset;
use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::optim::SgdConfig;
use burn::tensor::Tensor;
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::train::metric::{LossMetric, MetricDefinition};
use burn::train::renderer::{
    EvaluationName, EvaluationProgress, MetricState, MetricsRenderer, MetricsRendererEvaluation,
    MetricsRendererTraining, ProgressType, TrainingProgress,
};
use burn::train::{
    InferenceStep, Learner, RegressionOutput, SupervisedTraining, TrainOutput, TrainStep,
    TrainingStrategy,
};
use burn_wgsl::parallel::{ParallelStrategy, Workers};
use burn_wgsl::train::{Loader, LoaderConfig, Shuffled, Stop};
use burn_wgsl::{Autodiff, Wgsl, WgslDevice};

use crate::cnn::{Fill, numbers};
use crate::common::devices;
use crate::networks::worst;

type B = Autodiff<Wgsl>;

const WIDTH: usize = 6;
const EPOCHS: usize = 3;

#[derive(Module, Debug)]
struct Line<B: Backend> {
    layer: Linear<B>,
}

type Batch<B> = (Tensor<B, 2>, Tensor<B, 2>);

impl<B: Backend> Line<B> {
    fn output(&self, (x, targets): Batch<B>) -> RegressionOutput<B> {
        let output = self.layer.forward(x).tanh();
        let loss = (output.clone() - targets.clone()).powi_scalar(2).mean();
        RegressionOutput { loss, output, targets }
    }
}

impl<B: AutodiffBackend> TrainStep for Line<B> {
    type Input = Batch<B>;
    type Output = RegressionOutput<B>;

    fn step(&self, batch: Batch<B>) -> TrainOutput<RegressionOutput<B>> {
        let output = self.output(batch);
        TrainOutput::new(self, output.loss.backward(), output)
    }
}

impl<B: Backend> InferenceStep for Line<B> {
    type Input = Batch<B>;
    type Output = RegressionOutput<B>;

    fn step(&self, batch: Batch<B>) -> RegressionOutput<B> {
        self.output(batch)
    }
}

/// Makes samples of their numbers.
#[derive(Clone)]
struct Rows;

impl<B: Backend<Device = WgslDevice>> Batcher<B, usize, Batch<B>> for Rows {
    fn batch(&self, items: Vec<usize>, device: &WgslDevice) -> Batch<B> {
        let rows = |of: usize, width: usize| {
            let rows = items.iter().map(|item| {
                let data = numbers::<2>(of + item, [1, width], &WgslDevice::Cpu).into_data();
                Tensor::<B, 2>::from_data(data, device)
            });
            Tensor::cat(rows.collect(), 0)
        };
        (rows(0, WIDTH), rows(5000, 2))
    }
}

fn loader<B>(items: &[usize], batch: usize, device: WgslDevice) -> Arc<dyn DataLoader<B, Batch<B>>>
where
    B: Backend<Device = WgslDevice>,
{
    let builder = DataLoaderBuilder::new(Rows).batch_size(batch).set_device(device);
    builder.build(InMemDataset::new(items.to_vec()))
}

/// Epochs, and the items that were seen in each.
type Items = Vec<(usize, usize)>;

/// The items of training and validation.
#[derive(Clone, Default)]
struct Progresses(Arc<Mutex<[Items; 2]>>);

impl Progresses {
    fn note(&self, part: usize, item: &TrainingProgress) {
        let epoch = item.global_progress.items_processed;
        let all = &mut self.0.lock().expect("no holder panics")[part];
        let processed = item.progress.as_ref().map_or(0, |progress| progress.items_processed);
        match all.last_mut().filter(|(last, _)| *last == epoch) {
            Some(last) => last.1 = processed,
            None => all.push((epoch, processed)),
        }
    }
}

impl MetricsRendererTraining for Progresses {
    fn update_train(&mut self, _: MetricState) {}

    fn update_valid(&mut self, _: MetricState) {}

    fn render_train(&mut self, item: TrainingProgress, _: Vec<ProgressType>) {
        self.note(0, &item);
    }

    fn render_valid(&mut self, item: TrainingProgress, _: Vec<ProgressType>) {
        self.note(1, &item);
    }
}

impl MetricsRendererEvaluation for Progresses {
    fn update_test(&mut self, _: EvaluationName, _: MetricState) {}

    fn render_test(&mut self, _: EvaluationProgress, _: Vec<ProgressType>) {}
}

impl MetricsRenderer for Progresses {
    fn manual_close(&mut self) {}

    fn register_metric(&mut self, _: MetricDefinition) {}
}

/// Trains on devices with a loader. Returns the weights and the items that were seen.
fn train(
    devices: &[WgslDevice],
    items: Arc<dyn DataLoader<B, Batch<B>>>,
    accumulation: usize,
    strategy: &ParallelStrategy,
) -> (Vec<f32>, Progresses) {
    let device = devices[0];
    let model = Line { layer: LinearConfig::new(WIDTH, 2).init::<B>(&device) }.map(&mut Fill(0));
    let progresses = Progresses::default();
    let valid = loader::<Wgsl>(&[1, 2, 3, 4, 5], 2, device);
    static FOLDERS: AtomicUsize = AtomicUsize::new(0);
    let folder = FOLDERS.fetch_add(1, Ordering::Relaxed);
    let folder = format!("learner-{}-{folder}", std::process::id());
    let folder = std::env::temp_dir().join(folder);
    let training = SupervisedTraining::new(&folder, items, valid)
        .metrics((LossMetric::new(),))
        .with_training_strategy(TrainingStrategy::Custom(Arc::new(strategy.clone())))
        .with_application_logger(None)
        .grads_accumulation(accumulation)
        .renderer(progresses.clone())
        .num_epochs(EPOCHS);
    let trained = training.launch(Learner::new(model, SgdConfig::new().init(), 0.2)).model;
    // A training that fails at once writes nothing.
    let _ = std::fs::remove_dir_all(folder);
    assert_eq!(trained.devices(), [device.canonical()]);
    let weights = trained.layer.weight.val().into_data().to_vec().expect("it is f32");
    (weights, progresses)
}

fn several(devices: &[WgslDevice]) -> ParallelStrategy {
    ParallelStrategy::new(Workers::threads(devices.iter().copied()).oversubscribed(true))
}

#[test]
fn a_learner_takes_the_steps_of_one_with_the_batches_of_all() {
    for device in devices() {
        // Of 25 items, the first worker has 13: one step more.
        let items: Vec<usize> = (0..25).collect();
        let both = [device; 2];
        // Batches of eight, four of each worker, and the last of one.
        let (first, second) = items.split_at(13);
        let order = first.chunks(4).zip(second.chunks(4).chain([&[][..]]));
        let order: Vec<usize> = order.flat_map(|(a, b)| [a, b].concat()).collect();
        let mut before = None;
        for accumulation in [1, 2] {
            let strategy = several(&both);
            let (weights, progresses) =
                train(&both, loader(&items, 4, device), accumulation, &strategy);
            strategy.result().expect("it trains");
            let seen = progresses.0.lock().expect("no holder panics").clone();
            assert_eq!(seen[0], [(1, 25), (2, 25), (3, 25)]);
            assert_eq!(seen[1], [(1, 5), (2, 5), (3, 5)]);
            let alone = ParallelStrategy::new(Workers::alone(device));
            let (expected, _) = train(&[device], loader(&order, 8, device), accumulation, &alone);
            alone.result().expect("it trains");
            let difference = worst(&expected, &weights);
            assert!(difference <= 1e-6, "{difference} with {accumulation} on {device:?}");
            assert_ne!(before.replace(weights.clone()), Some(weights), "accumulation differs");
        }
    }
}

/// As [`Rows`], and notes the items of each batch.
#[derive(Clone)]
struct Noted(Arc<Mutex<Vec<Vec<usize>>>>);

impl Batcher<B, usize, Batch<B>> for Noted {
    fn batch(&self, items: Vec<usize>, device: &WgslDevice) -> Batch<B> {
        self.0.lock().expect("no holder panics").push(items.clone());
        Rows.batch(items, device)
    }
}

#[test]
fn epochs_have_orders_of_their_own_that_runs_repeat() {
    let cpus = [WgslDevice::Cpu; 2];
    let items = || InMemDataset::new((0..32).collect::<Vec<usize>>());
    // Returns the batches of each worker, by the half of the items that it has.
    let noted = |of_burn: bool| -> [Vec<Vec<usize>>; 2] {
        let noted = Noted(Arc::default());
        let loader: Arc<dyn DataLoader<B, Batch<B>>> = match of_burn {
            true => DataLoaderBuilder::new(noted.clone())
                .batch_size(4)
                .shuffle(5)
                .set_device(WgslDevice::Cpu)
                .build(items()),
            false => {
                let config = LoaderConfig { workers: 0, ..LoaderConfig::new(4) };
                let loader = Loader::new(items(), noted.clone(), &WgslDevice::Cpu, config);
                let loader = loader.expect("it has items").with_sampler(Shuffled { seed: 5 });
                Arc::new(loader.expect("it fits"))
            }
        };
        let strategy = several(&cpus).with_seed(3);
        train(&cpus, loader, 1, &strategy);
        strategy.result().expect("it trains");
        let all = noted.0.lock().expect("no holder panics").clone();
        let (first, second) = all.into_iter().partition(|batch| batch[0] < 16);
        [first, second]
    };
    for of_burn in [false, true] {
        let workers = noted(of_burn);
        for batches in &workers {
            let epochs: Vec<Vec<usize>> = batches.chunks(4).map(|epoch| epoch.concat()).collect();
            assert_eq!(epochs.len(), EPOCHS, "{batches:?}");
            assert!(epochs[0] != epochs[1] && epochs[1] != epochs[2], "{epochs:?}");
            for mut epoch in epochs {
                epoch.sort_unstable();
                let start = epoch[0];
                assert_eq!(epoch, (start..start + 16).collect::<Vec<_>>());
            }
        }
        assert_eq!(noted(of_burn), workers, "a run repeats its orders");
    }
}

#[test]
fn a_learner_ends_where_it_is_asked_to_and_at_errors() {
    let cpus = [WgslDevice::Cpu; 2];
    let items: Vec<usize> = (0..32).collect();
    let items = |count: usize| loader::<B>(&items[..count], 4, WgslDevice::Cpu);
    let stop = Stop::new();
    stop.request();
    let strategy = several(&cpus).with_stop(stop);
    let (weights, progresses) = train(&cpus, items(32), 1, &strategy);
    strategy.result().expect("it ends");
    assert!(progresses.0.lock().expect("no holder panics")[0].is_empty());
    // More workers than items, and a device that is there twice: the model is the one that was given.
    let few = several(&cpus);
    let (given, _) = train(&cpus, items(1), 1, &few);
    assert_eq!(given, weights);
    let error = few.result().expect_err("one worker has no item").to_string();
    assert!(error.contains("fewer workers"), "{error}");
    train(&cpus, items(32), 1, &few);
    few.result().expect("the next training has enough");
    let twice = ParallelStrategy::new(Workers::threads(cpus));
    train(&cpus, items(32), 1, &twice);
    let error = twice.result().expect_err("a device is listed twice").to_string();
    assert!(error.contains("listed twice"), "{error}");
}
