//! burn-train's learner on several devices.

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
use burn_wgsl::train::Stop;
use burn_wgsl::{Autodiff, Wgsl, WgslDevice};

use crate::cnn::{Fill, numbers};
use crate::common::devices;

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

/// Trains on devices, in batches of a size for each. Returns the weights and the items that were seen.
fn train(
    devices: &[WgslDevice],
    items: &[usize],
    batch: usize,
    strategy: &ParallelStrategy,
) -> (Vec<f32>, Progresses) {
    let home = devices[0];
    let model = Line { layer: LinearConfig::new(WIDTH, 2).init::<B>(&home) }.map(&mut Fill(0));
    let progresses = Progresses::default();
    let valid = loader::<Wgsl>(&[1, 2, 3, 4, 5], 2, home);
    let folder = std::env::temp_dir().join(format!("learner-{}", std::process::id()));
    let training = SupervisedTraining::new(&folder, loader::<B>(items, batch, home), valid)
        .metrics((LossMetric::new(),))
        .with_training_strategy(TrainingStrategy::Custom(Arc::new(strategy.clone())))
        .with_application_logger(None)
        .renderer(progresses.clone())
        .num_epochs(EPOCHS);
    let trained = training.launch(Learner::new(model, SgdConfig::new().init(), 0.2)).model;
    // Other tests may write to it.
    let _ = std::fs::remove_dir_all(folder);
    assert_eq!(trained.devices(), [home.canonical()]);
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
        let strategy = several(&both);
        let (weights, progresses) = train(&both, &items, 4, &strategy);
        strategy.result().expect("it trains");
        let seen = progresses.0.lock().expect("no holder panics").clone();
        assert_eq!(seen[0], [(1, 25), (2, 25), (3, 25)]);
        assert_eq!(seen[1], [(1, 5), (2, 5), (3, 5)]);
        // Batches of eight, four of each worker, and the last of one.
        let half = items.len().div_ceil(2);
        let (first, second) = items.split_at(half);
        let order = first.chunks(4).zip(second.chunks(4).chain([&[][..]]));
        let order: Vec<usize> = order.flat_map(|(a, b)| [a, b].concat()).collect();
        let alone = ParallelStrategy::new(Workers::alone(device));
        let (expected, _) = train(&[device], &order, 8, &alone);
        alone.result().expect("it trains");
        let difference = |(a, b): (&f32, &f32)| (a - b).abs();
        let worst = expected.iter().zip(&weights).map(difference).fold(0.0, f32::max);
        assert!(worst <= 1e-6, "{worst} on {device:?}");
    }
}

#[test]
fn a_learner_ends_where_it_is_asked_to_and_at_errors() {
    let cpus = [WgslDevice::Cpu; 2];
    let items: Vec<usize> = (0..32).collect();
    let stop = Stop::new();
    stop.request();
    let strategy = several(&cpus).with_stop(stop);
    let (weights, progresses) = train(&cpus, &items, 4, &strategy);
    strategy.result().expect("it ends");
    assert!(progresses.0.lock().expect("no holder panics")[0].is_empty());
    // More workers than items, and a device that is there twice: the model is the one that was given.
    let few = several(&cpus);
    let (given, _) = train(&cpus, &[7], 4, &few);
    assert_eq!(given, weights);
    let error = few.result().expect_err("one worker has no item").to_string();
    assert!(error.contains("fewer workers"), "{error}");
    let twice = ParallelStrategy::new(Workers::threads(cpus));
    train(&cpus, &items, 4, &twice);
    let error = twice.result().expect_err("a device is listed twice").to_string();
    assert!(error.contains("listed twice"), "{error}");
}
