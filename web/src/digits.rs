//! Trains the network of the digits example, a few steps per call.

use burn::tensor::activation::softmax;
use burn::tensor::backend::Backend;
use burn::tensor::{ElementConversion, Tensor, TensorData};
use burn_wgsl::{Wgsl, WgslDevice};
use serde::Deserialize;
use wasm_bindgen::prelude::wasm_bindgen;
use wasm_bindgen::{JsError, JsValue};
use web_time::Instant;

use crate::Training;
use crate::data::{Samples, WHITE};
use crate::device::parse_device;
use crate::learner::Learner;
use crate::model::{CLASSES, Model, SIDE};
use crate::parameters;
use crate::rng::Rng;
use crate::script::{Result, TrainingReport, check_learning_rate, from_js, js_error, read_floats};
use crate::tensors::{SampleTensors, int_tensor};

/// Training settings. A missing setting keeps its current value.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Settings {
    seed: Option<u32>,
    /// Images per step.
    batch: Option<usize>,
    /// Learning rate.
    rate: Option<f64>,
}

const LEARNER_EXISTS: &str = "the learner is absent only during a step";

/// The network, its data and the training progress.
#[wasm_bindgen]
pub struct Digits {
    device: WgslDevice,
    /// `None` only during a step.
    learner: Option<Learner<Training>>,
    train: SampleTensors<Training>,
    test: SampleTensors<Wgsl>,
    rng: Rng,
    /// The shuffled image indices of this epoch.
    order: Vec<i32>,
    /// The position in `order` at which the next batch starts.
    position: usize,
    step: usize,
    epoch: usize,
    batch_size: usize,
    learning_rate: f64,
}

#[wasm_bindgen]
impl Digits {
    /// Creates an untrained network on an open device. `settings` holds `seed`, `batch` (images per
    /// step) and `rate` (learning rate).
    pub async fn create(device: &str, settings: JsValue) -> Result<Digits> {
        let device = parse_device(device)?;
        let settings: Settings = from_js(settings)?;
        let seed = u64::from(settings.seed.unwrap_or(1));
        let dataset = built_in();
        Training::seed(&device, seed);
        let mut rng = Rng(seed);
        let mut created = Self {
            device,
            learner: Some(Learner::new(Model::new(&device), &device)),
            train: SampleTensors::new(&dataset.train, &device),
            test: SampleTensors::new(&dataset.test, &device),
            order: rng.permutation(dataset.train.labels.len()),
            rng,
            position: 0,
            step: 0,
            epoch: 0,
            batch_size: 64,
            learning_rate: 1e-3,
        };
        created.apply(&settings)?;
        Ok(created)
    }

    /// Sets the batch size and the learning rate for the following steps.
    pub fn configure(&mut self, settings: JsValue) -> Result<()> {
        self.apply(&from_js(settings)?)
    }

    fn apply(&mut self, settings: &Settings) -> Result<()> {
        let batch_size = settings.batch.unwrap_or(self.batch_size);
        let learning_rate = settings.rate.unwrap_or(self.learning_rate);
        if batch_size == 0 {
            return Err(JsError::new("the batch size is 0; it must be at least 1"));
        }
        check_learning_rate(learning_rate)?;
        (self.batch_size, self.learning_rate) = (batch_size, learning_rate);
        Ok(())
    }

    /// Trains `steps` steps and awaits their losses.
    pub async fn run(&mut self, steps: usize) -> Result<JsValue> {
        let start = Instant::now();
        let mut losses = Vec::with_capacity(steps);
        let mut images = 0;
        for _ in 0..steps {
            let end = self.order.len().min(self.position + self.batch_size);
            let indices = int_tensor(self.order[self.position..end].to_vec(), &self.device);
            images += end - self.position;
            self.position = end;
            if self.position == self.order.len() {
                self.order = self.rng.permutation(self.order.len());
                self.position = 0;
                self.epoch += 1;
            }
            let (pixels, labels) = self.train.select(indices);
            let learner = self.learner.take().expect(LEARNER_EXISTS);
            let (learner, loss) = learner.step(pixels, labels, self.learning_rate);
            self.learner = Some(learner);
            self.step += 1;
            losses.push(loss);
        }
        TrainingReport {
            step: self.step,
            epoch: self.epoch,
            samples: images,
            ..TrainingReport::new(losses, start).await?
        }
        .to_js()
    }

    fn model(&self) -> Model<Wgsl> {
        self.learner.as_ref().expect(LEARNER_EXISTS).valid()
    }

    /// Returns the accuracy on the test images, between 0 and 1.
    pub async fn accuracy(&self) -> Result<f64> {
        let Some(correct) = self.test.count_correct(&self.model()) else {
            return Ok(0.0);
        };
        let correct = correct.into_data_async().await.map_err(js_error)?;
        let correct: f64 = correct.iter::<i64>().next().unwrap_or(0).elem();
        Ok(correct / self.test.count as f64)
    }

    /// Returns the probability of each of the ten digits for an 8x8 image in row-major order.
    pub async fn predict(&self, pixels: Vec<f32>) -> Result<Vec<f32>> {
        if pixels.len() != SIDE * SIDE {
            return Err(JsError::new(&format!(
                "the image has {} pixels; expected {}",
                pixels.len(),
                SIDE * SIDE
            )));
        }
        let image = Tensor::from_data(TensorData::new(pixels, [1, 1, SIDE, SIDE]), &self.device);
        read_floats(softmax(self.model().forward(image), 1).reshape([CLASSES])).await
    }

    /// Returns all weights as one flat list.
    pub async fn weights(&self) -> Result<Vec<f32>> {
        parameters::read(&self.model()).await
    }

    /// Replaces all weights by a list from [`Digits::weights`] and resets the optimiser.
    pub fn set_weights(&mut self, weights: Vec<f32>) -> Result<()> {
        let model =
            parameters::write(Model::<Training>::new(&self.device), &weights, &self.device)?;
        self.learner = Some(Learner::new(model, &self.device));
        Ok(())
    }
}

/// Decodes the data set that `build.rs` packs: pixel columns of the images in the order of their
/// labels, then the labels in the original order.
fn built_in() -> crate::data::Dataset {
    const PIXELS: usize = SIDE * SIDE;
    let packed = include_bytes!(concat!(env!("OUT_DIR"), "/digits.bin"));
    let count = packed.len() / (PIXELS + 1);
    let (pixels, labels) = packed.split_at(PIXELS * count);
    let mut rows = vec![0; count];
    let images_of = |label: u8| (0..count).filter(move |&image| labels[image] == label);
    (0..10).flat_map(images_of).enumerate().for_each(|(row, image)| rows[image] = row);
    let indices =
        rows.into_iter().flat_map(|row| (0..PIXELS).map(move |column| column * count + row));
    crate::data::Dataset::split(Samples {
        pixels: indices.map(|index| f32::from(pixels[index]) / f32::from(WHITE)).collect(),
        labels: labels.iter().map(|&label| i32::from(label)).collect(),
    })
}
