//! The digits example on burn-wgpu, for browsers.
#![cfg(target_arch = "wasm32")]

#[path = "../../../../../examples/digits/data.rs"]
#[allow(dead_code)]
mod data;
#[path = "../../../../../examples/digits/learner.rs"]
#[allow(dead_code)]
mod learner;
#[path = "../../../../../examples/digits/model.rs"]
#[allow(dead_code)]
mod model;
#[path = "../../../../../examples/digits/rng.rs"]
mod rng;
#[path = "../../../../../examples/digits/tensors.rs"]
#[allow(dead_code)]
mod tensors;

use burn::backend::wgpu::graphics::AutoGraphicsApi;
use burn::backend::wgpu::{WgpuDevice, init_setup_async};
use burn::backend::{Autodiff, Wgpu};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use wasm_bindgen::prelude::wasm_bindgen;
use wasm_bindgen::{JsError, JsValue};

use learner::Learner;
use model::Model;
use rng::Rng;
use tensors::{SampleTensors, int_tensor};

type TrainingBackend = Autodiff<Wgpu>;

/// The digits network, its optimiser state and its training data.
#[wasm_bindgen]
pub struct Digits {
    device: WgpuDevice,
    learner: Option<Learner<TrainingBackend>>,
    train: SampleTensors<TrainingBackend>,
    rng: Rng,
    order: Vec<i32>,
    batch: usize,
}

/// The losses of some training steps, as returned to JavaScript.
#[derive(serde::Serialize)]
struct Steps {
    losses: Vec<f32>,
}

#[wasm_bindgen]
impl Digits {
    /// Opens the default GPU and creates the network with random weights.
    pub async fn create(batch: usize) -> Result<Digits, JsError> {
        let device = WgpuDevice::DefaultDevice;
        init_setup_async::<AutoGraphicsApi>(&device, Default::default()).await;
        let digits = data::Dataset::built_in().map_err(|error| JsError::new(&error.to_string()))?;
        TrainingBackend::seed(&device, 1);
        Ok(Self {
            learner: Some(Learner::new(Model::new(&device), &device)),
            train: SampleTensors::new(&digits.train, &device),
            rng: Rng(1),
            order: Vec::new(),
            batch,
            device,
        })
    }

    /// Runs training steps and returns their losses.
    pub async fn run(&mut self, steps: usize) -> Result<JsValue, JsError> {
        let mut losses = Vec::new();
        for _ in 0..steps {
            if self.order.len() < self.batch {
                self.order = self.rng.permutation(self.train.count);
            }
            let rest = self.order.split_off(self.batch);
            let batch = int_tensor(std::mem::replace(&mut self.order, rest), &self.device);
            let (images, labels) = self.train.select(batch);
            let learner = self.learner.take();
            let learner = learner.ok_or_else(|| JsError::new("an earlier step failed"))?;
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
