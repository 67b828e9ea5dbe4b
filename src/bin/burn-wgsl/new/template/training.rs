//! The network, and its training: a loop that saves, stops at a signal, and continues.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use burn::data::dataloader::batcher::Batcher;
use burn::data::dataset::InMemDataset;
use burn::module::{AutodiffModule, Module};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::{Linear, LinearConfig};
use burn::optim::adaptor::OptimizerAdaptor;
use burn::optim::{Adam, AdamConfig, GradientsParams, Optimizer};
use burn::tensor::Tensor;
use burn::tensor::activation::gelu;
use burn::tensor::backend::Backend;
use burn_wgsl::train::{
    Accuracy, CheckpointError, Loader, LoaderConfig, Mean, Parts, Run, RunConfig, Saved, Shuffled,
    Stop,
};
use burn_wgsl::{Autodiff, Wgsl, WgslDevice};

use crate::data::{Batch, Batches, Point, spirals};

type B = Autodiff<Wgsl>;

const POINTS: usize = 2000;
const BATCH: usize = 50;
const WIDTH: usize = 64;
const RATE: f64 = 5e-3;
const SEED: u64 = 1;

/// A network of three layers.
#[derive(Module, Debug)]
struct Network<B: Backend> {
    first: Linear<B>,
    second: Linear<B>,
    last: Linear<B>,
}

impl<B: Backend> Network<B> {
    fn new(device: &B::Device) -> Self {
        Self {
            first: LinearConfig::new(2, WIDTH).init(device),
            second: LinearConfig::new(WIDTH, WIDTH).init(device),
            last: LinearConfig::new(WIDTH, 2).init(device),
        }
    }

    /// Returns a score for each spiral, `[n, 2]`, of positions `[n, 2]`.
    fn forward(&self, positions: Tensor<B, 2>) -> Tensor<B, 2> {
        let hidden = gelu(self.second.forward(gelu(self.first.forward(positions))));
        self.last.forward(hidden)
    }
}

/// All that a run needs to continue.
struct Trainer {
    network: Network<B>,
    optimizer: OptimizerAdaptor<Adam, Network<B>, B>,
    data: Arc<Loader<B, Point, Batch<B>>>,
}

impl Saved for Trainer {
    fn parts(&mut self, parts: &mut Parts<'_>) -> Result<(), CheckpointError> {
        parts.module("network", &mut self.network)?;
        parts.optimizer("optimizer", &mut self.optimizer)?;
        parts.loader("data", &self.data)
    }
}

impl Trainer {
    fn new(device: &WgslDevice) -> Result<Self> {
        B::seed(device, SEED);
        let points = InMemDataset::new(spirals(POINTS, 0.0));
        let data = Loader::new(points, Batches, device, LoaderConfig::new(BATCH))?;
        Ok(Self {
            network: Network::new(device),
            optimizer: AdamConfig::new().init(),
            data: Arc::new(data.with_sampler(Shuffled { seed: SEED })?),
        })
    }

    /// Takes a step with a batch. Returns the loss, which stays on the device: reading it would wait.
    fn step(&mut self, Batch { positions, spirals }: Batch<B>) -> Tensor<Wgsl, 1> {
        let scores = self.network.forward(positions);
        let loss = CrossEntropyLossConfig::new().init(&scores.device()).forward(scores, spirals);
        let gradients = GradientsParams::from_grads(loss.backward(), &self.network);
        self.network = self.optimizer.step(RATE, self.network.clone(), gradients);
        loss.inner()
    }

    /// Returns the share of other points that the network assigns to their spirals.
    fn accuracy(&self, device: &WgslDevice) -> Result<f64> {
        let batch: Batch<Wgsl> = Batches.batch(spirals(POINTS, 0.5), device);
        let mut accuracy = Accuracy::new();
        accuracy.add(self.network.valid().forward(batch.positions), batch.spirals);
        Ok(accuracy.read()?.map_or(Ok(0.0), |reading| reading.take())?)
    }
}

/// Trains up to a number of epochs, or until it is to stop. Saves to the folder, and continues the run that is there.
/// Returns the accuracy.
///
/// # Errors
///
/// Returns an error if the device fails, or the folder cannot be read or written.
pub fn run(device: &WgslDevice, folder: &Path, epochs: u64, stop: Stop) -> Result<f64> {
    let mut trainer = Trainer::new(device)?;
    let config = RunConfig { every: Some(500), ..RunConfig::default() };
    let mut run = Run::open(folder, &[*device], config)?.with_stop(stop);
    if run.resume(&mut trainer)?.is_some() {
        println!("continues after {} steps", run.step());
    }
    let steps = epochs * POINTS.div_ceil(BATCH) as u64;
    let data = trainer.data.clone();
    'epochs: while run.step() < steps {
        let mut loss = Mean::new();
        for batch in data.batches() {
            let batch = batch?;
            let samples = batch.positions.dims()[0];
            loss.add(trainer.step(batch), samples);
            if !run.end_step(&mut trainer)? {
                break 'epochs;
            }
        }
        if let Some(loss) = loss.read()? {
            println!("epoch {}   loss {:.4}", data.position().epoch, loss.take()?);
        }
    }
    run.save(&mut trainer, None)?;
    run.finish()?;
    trainer.accuracy(device)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder that does not exist yet.
    fn folder(name: &str) -> std::path::PathBuf {
        let folder = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        folder
    }

    #[test]
    fn it_learns_and_continues_with_the_same_result() {
        let device = WgslDevice::Cpu;
        let (whole, parts) = (folder("whole"), folder("parts"));
        let accuracy = run(&device, &whole, 30, Stop::new()).expect("it trains");
        assert!(accuracy > 0.95, "the accuracy is {accuracy}");

        // A checkpoint is saved after 500 steps: in the middle of an epoch, and at its end.
        let mut continued = 0.0;
        for epochs in [10, 25, 25, 30] {
            continued = run(&device, &parts, epochs, Stop::new()).expect("it trains");
        }
        assert_eq!(continued, accuracy);
        for folder in [whole, parts] {
            std::fs::remove_dir_all(folder).expect("it is there");
        }
    }
}
