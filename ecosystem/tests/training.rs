//! burn-train: its learner trains a classifier of bars, with metrics and checkpoints, and goes on from one.

use std::path::Path;

use burn::data::dataloader::DataLoaderBuilder;
use burn::data::dataloader::batcher::Batcher;
use burn::data::dataset::InMemDataset;
use burn::module::Module;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::{Linear, LinearConfig};
use burn::optim::AdamConfig;
use burn::prelude::*;
use burn::tensor::activation::relu;
use burn::train::metric::{AccuracyMetric, LossMetric};
use burn::train::{
    ClassificationOutput, InferenceStep, Learner, SupervisedTraining, TrainOutput, TrainStep,
};

const PIXELS: usize = 64;
const CLASSES: usize = 4;

/// An image with a bar at a place that its class decides.
#[derive(Clone, Debug)]
struct Bar {
    pixels: Vec<f32>,
    class: i32,
}

fn bars(count: usize) -> Vec<Bar> {
    let bar = |index: usize| {
        let class = index % CLASSES;
        let pixel = |pixel: usize| {
            let noise = ((index * 7919 + pixel * 104_729) % 101) as f32 / 202.0;
            if pixel / (PIXELS / CLASSES) == class { 1.0 - noise } else { noise }
        };
        Bar { pixels: (0..PIXELS).map(pixel).collect(), class: class as i32 }
    };
    (0..count).map(bar).collect()
}

#[derive(Clone, Debug)]
struct Batch {
    images: Tensor<2>,
    classes: Tensor<1, Int>,
}

#[derive(Clone)]
struct Bars;

impl Batcher<Bar, Batch> for Bars {
    fn batch(&self, bars: Vec<Bar>, device: &Device) -> Batch {
        let pixels: Vec<f32> = bars.iter().flat_map(|bar| bar.pixels.iter().copied()).collect();
        let classes: Vec<i32> = bars.iter().map(|bar| bar.class).collect();
        Batch {
            images: Tensor::from_data(TensorData::new(pixels, [bars.len(), PIXELS]), device),
            classes: Tensor::from_data(TensorData::new(classes, [bars.len()]), device),
        }
    }
}

#[derive(Module, Debug)]
struct Classifier {
    hidden: Linear,
    output: Linear,
}

impl Classifier {
    fn new(device: &Device) -> Self {
        Self {
            hidden: LinearConfig::new(PIXELS, 32).init(device),
            output: LinearConfig::new(32, CLASSES).init(device),
        }
    }

    fn logits(&self, images: Tensor<2>) -> Tensor<2> {
        self.output.forward(relu(self.hidden.forward(images)))
    }

    fn classify(&self, batch: Batch) -> ClassificationOutput {
        let logits = self.logits(batch.images);
        let loss = CrossEntropyLossConfig::new().init(&logits.device());
        let loss = loss.forward(logits.clone(), batch.classes.clone());
        ClassificationOutput::new(loss, logits, batch.classes)
    }
}

impl TrainStep for Classifier {
    type Input = Batch;
    type Output = ClassificationOutput;

    fn step(&self, batch: Batch) -> TrainOutput<ClassificationOutput> {
        let output = self.classify(batch);
        TrainOutput::new(self, output.loss.backward(), output)
    }
}

impl InferenceStep for Classifier {
    type Input = Batch;
    type Output = ClassificationOutput;

    fn step(&self, batch: Batch) -> ClassificationOutput {
        self.classify(batch)
    }
}

/// Trains for some epochs, from a checkpoint if there is one. Returns the share of images that are classified right.
fn train(folder: &Path, epochs: usize, checkpoint: Option<usize>) -> f32 {
    let device = Device::default();
    let training = device.clone().autodiff();
    training.seed(3);
    let loader = |device: &Device| {
        let builder = DataLoaderBuilder::new(Bars).batch_size(16).shuffle(7);
        builder.set_device(device.clone()).build(InMemDataset::new(bars(256)))
    };
    let mut supervised = SupervisedTraining::new(folder, loader(&training), loader(&device))
        .metrics((AccuracyMetric::new(), LossMetric::new()))
        .with_default_checkpointers()
        .with_application_logger(None)
        .num_epochs(epochs);
    if let Some(checkpoint) = checkpoint {
        supervised = supervised.checkpoint(checkpoint);
    }
    let learner = Learner::new(Classifier::new(&training), AdamConfig::new().init(), 5e-3);
    let model = supervised.launch(learner).model;
    let batch = Bars.batch(bars(256), &device);
    let found = model.logits(batch.images).argmax(1).flatten::<1>(0, 1);
    found.equal(batch.classes).float().mean().into_scalar::<f32>()
}

#[test]
fn a_learner_trains_and_goes_on_from_a_checkpoint() {
    let folder = tempfile::tempdir().expect("a folder for the run");
    train(folder.path(), 4, None);
    assert!(folder.path().join("checkpoint").is_dir());
    // No epoch is left: only the model of the checkpoint can be so good.
    let accuracy = train(folder.path(), 4, Some(4));
    assert!(accuracy > 0.95, "{accuracy}");
}
