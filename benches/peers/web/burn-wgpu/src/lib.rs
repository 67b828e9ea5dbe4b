//! The digits example on Burn's own GPU backend.
#![cfg(target_arch = "wasm32")]

#[path = "../../../../../examples/digits/data.rs"]
#[allow(dead_code)]
mod data;
#[path = "../../../../../examples/digits/dice.rs"]
mod dice;
#[path = "../../../../../examples/digits/learner.rs"]
#[allow(dead_code)]
mod learner;
#[path = "../../../../../examples/digits/model.rs"]
#[allow(dead_code)]
mod model;
#[path = "../../../../../examples/digits/set.rs"]
#[allow(dead_code)]
mod set;

use burn::backend::wgpu::graphics::AutoGraphicsApi;
use burn::backend::wgpu::{WgpuDevice, init_setup_async};
use burn::backend::{Autodiff, Wgpu};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use wasm_bindgen::prelude::wasm_bindgen;
use wasm_bindgen::{JsError, JsValue};

use dice::Dice;
use learner::Learner;
use model::Model;
use set::{Set, ints};

type Training = Autodiff<Wgpu>;

#[wasm_bindgen]
pub struct Digits {
    device: WgpuDevice,
    learner: Option<Learner<Training>>,
    train: Set<Training>,
    dice: Dice,
    order: Vec<i32>,
    batch: usize,
}

#[derive(serde::Serialize)]
struct Steps {
    losses: Vec<f32>,
}

#[wasm_bindgen]
impl Digits {
    pub async fn create(batch: usize) -> Result<Digits, JsError> {
        let device = WgpuDevice::DefaultDevice;
        init_setup_async::<AutoGraphicsApi>(&device, Default::default()).await;
        let digits = data::Digits::built_in().map_err(|error| JsError::new(&error.to_string()))?;
        Training::seed(&device, 1);
        Ok(Self {
            learner: Some(Learner::new(Model::new(&device), &device)),
            train: Set::new(&digits.train, &device),
            dice: Dice(1),
            order: Vec::new(),
            batch,
            device,
        })
    }

    pub async fn run(&mut self, steps: usize) -> Result<JsValue, JsError> {
        let mut losses = Vec::new();
        for _ in 0..steps {
            if self.order.len() < self.batch {
                self.order = self.dice.order(self.train.count);
            }
            let rest = self.order.split_off(self.batch);
            let picked = ints(std::mem::replace(&mut self.order, rest), &self.device);
            let (images, labels) = self.train.pick(picked);
            let learner = self.learner.take().ok_or_else(|| JsError::new("an earlier step failed"))?;
            let (learner, loss) = learner.step(images, labels, 1e-3);
            self.learner = Some(learner);
            losses.push(loss);
        }
        let data = Tensor::<Wgpu, 1>::cat(losses, 0)
            .into_data_async()
            .await
            .map_err(|error| JsError::new(&format!("{error:?}")))?;
        Ok(serde_wasm_bindgen::to_value(&Steps { losses: data.iter::<f32>().collect() })?)
    }
}
