//! The digits example's network, trained a few steps at a time.

use burn::tensor::activation::softmax;
use burn::tensor::backend::Backend;
use burn::tensor::{ElementConversion, Tensor, TensorData};
use burn_wgsl::{Wgsl, WgslDevice};
use serde::Deserialize;
use wasm_bindgen::prelude::wasm_bindgen;
use wasm_bindgen::{JsError, JsValue};
use web_time::Instant;

use crate::Training;
use crate::data::{Split, WHITE};
use crate::device::parsed;
use crate::dice::Dice;
use crate::learner::Learner;
use crate::model::{CLASSES, Model, SIDE};
use crate::parameters;
use crate::script::{Result, Steps, error, floats, settings};
use crate::set::{Set, ints};

/// What shapes a run; what is missing stays as it is.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Settings {
    seed: Option<u32>,
    batch: Option<usize>,
    rate: Option<f64>,
}

/// Where the network is while no step is under way.
const WHOLE: &str = "a step that ends puts the network back";

/// The network, its data and where it stands.
#[wasm_bindgen]
pub struct Digits {
    device: WgslDevice,
    /// Missing only while a step is under way.
    learner: Option<Learner<Training>>,
    train: Set<Training>,
    test: Set<Wgsl>,
    dice: Dice,
    order: Vec<i32>,
    /// The images of this epoch that were learnt from.
    taken: usize,
    step: usize,
    epoch: usize,
    batch: usize,
    rate: f64,
}

#[wasm_bindgen]
impl Digits {
    /// A fresh network on a device that is open; `settings` are a seed, the batch and the learning rate.
    pub async fn create(device: &str, settings: JsValue) -> Result<Digits> {
        let device = parsed(device)?;
        let given: Settings = crate::script::settings(settings)?;
        let seed = u64::from(given.seed.unwrap_or(1));
        let digits = built_in();
        Training::seed(&device, seed);
        let mut dice = Dice(seed);
        let mut new = Self {
            device,
            learner: Some(Learner::new(Model::new(&device), &device)),
            train: Set::new(&digits.train, &device),
            test: Set::new(&digits.test, &device),
            order: dice.order(digits.train.labels.len()),
            dice,
            taken: 0,
            step: 0,
            epoch: 0,
            batch: 64,
            rate: 1e-3,
        };
        new.change(&given)?;
        Ok(new)
    }

    /// Changes the batch or the learning rate from the next step on.
    pub fn set(&mut self, changes: JsValue) -> Result<()> {
        self.change(&settings(changes)?)
    }

    fn change(&mut self, given: &Settings) -> Result<()> {
        let batch = given.batch.unwrap_or(self.batch);
        let rate = given.rate.unwrap_or(self.rate);
        if batch == 0 {
            return Err(JsError::new("a batch has at least one image"));
        }
        if !(rate.is_finite() && rate > 0.0) {
            return Err(JsError::new("a learning rate is above zero"));
        }
        (self.batch, self.rate) = (batch, rate);
        Ok(())
    }

    /// Trains so many steps, and waits for the last one's loss.
    pub async fn run(&mut self, steps: usize) -> Result<JsValue> {
        let start = Instant::now();
        let mut losses = Vec::with_capacity(steps);
        let mut images = 0;
        for _ in 0..steps {
            let to = self.order.len().min(self.taken + self.batch);
            let picked = ints(self.order[self.taken..to].to_vec(), &self.device);
            images += to - self.taken;
            self.taken = to;
            if self.taken == self.order.len() {
                self.order = self.dice.order(self.order.len());
                self.taken = 0;
                self.epoch += 1;
            }
            let (pixels, labels) = self.train.pick(picked);
            let (learner, loss) = self.learner.take().expect(WHOLE).step(pixels, labels, self.rate);
            self.learner = Some(learner);
            self.step += 1;
            losses.push(loss);
        }
        Steps {
            step: self.step,
            epoch: self.epoch,
            samples: images,
            ..Steps::new(losses, start).await?
        }
        .object()
    }

    fn model(&self) -> Model<Wgsl> {
        self.learner.as_ref().expect(WHOLE).valid()
    }

    /// The share of the held-out images that are recognised.
    pub async fn accuracy(&self) -> Result<f64> {
        let Some(correct) = self.test.correct(&self.model()) else {
            return Ok(0.0);
        };
        let correct = correct.into_data_async().await.map_err(error)?;
        let correct: f64 = correct.iter::<i64>().next().unwrap_or(0).elem();
        Ok(correct / self.test.count as f64)
    }

    /// How likely an 8x8 image, row by row, is each of the ten digits.
    pub async fn predict(&self, pixels: Vec<f32>) -> Result<Vec<f32>> {
        if pixels.len() != SIDE * SIDE {
            return Err(JsError::new(&format!(
                "an image has {} pixels, not {}",
                SIDE * SIDE,
                pixels.len()
            )));
        }
        let image = Tensor::from_data(TensorData::new(pixels, [1, 1, SIDE, SIDE]), &self.device);
        floats(softmax(self.model().forward(image), 1).reshape([CLASSES])).await
    }

    /// Every weight, one after another.
    pub async fn weights(&self) -> Result<Vec<f32>> {
        parameters::read(&self.model()).await
    }

    /// Takes such weights; the optimiser starts afresh.
    pub fn set_weights(&mut self, weights: Vec<f32>) -> Result<()> {
        let model =
            parameters::write(Model::<Training>::new(&self.device), &weights, &self.device)?;
        self.learner = Some(Learner::new(model, &self.device));
        Ok(())
    }
}

/// The example's data, from the form in which it is small to download: column by column, the labels last.
fn built_in() -> crate::data::Digits {
    const PIXELS: usize = SIDE * SIDE;
    let packed = include_bytes!(concat!(env!("OUT_DIR"), "/digits.bin"));
    let count = packed.len() / (PIXELS + 1);
    let (pixels, labels) = packed.split_at(PIXELS * count);
    let places = (0..count).flat_map(|row| (0..PIXELS).map(move |column| column * count + row));
    crate::data::Digits::split(Split {
        pixels: places.map(|place| f32::from(pixels[place]) / f32::from(WHITE)).collect(),
        labels: labels.iter().map(|&label| i32::from(label)).collect(),
    })
}
