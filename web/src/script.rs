//! Values and errors as JavaScript has them.

use burn::tensor::Tensor;
use burn_wgsl::Wgsl;
use serde::Serialize;
use wasm_bindgen::{JsError, JsValue};
use web_time::Instant;

/// A result that JavaScript gets.
pub type Result<T> = std::result::Result<T, JsError>;

/// A plain object. Numbers of 64 bits become JavaScript's own.
pub fn object(value: &impl Serialize) -> Result<JsValue> {
    let plain = serde_wasm_bindgen::Serializer::json_compatible();
    value.serialize(&plain).map_err(|error| JsError::new(&error.to_string()))
}

/// An error with its causes.
pub fn error(error: impl Into<anyhow::Error>) -> JsError {
    JsError::new(&format!("{:#}", error.into()))
}

/// Settings, read from an object.
pub fn settings<T: serde::de::DeserializeOwned>(value: JsValue) -> Result<T> {
    serde_wasm_bindgen::from_value(value).map_err(|error| JsError::new(&error.to_string()))
}

/// What some training steps came to.
#[derive(Serialize, Default)]
pub struct Steps {
    /// Before each step.
    pub losses: Vec<f32>,
    /// From the first call to the last loss, which is waited for.
    pub seconds: f64,
    /// Steps taken in all.
    pub step: usize,
    /// Epochs finished in all, where there are any.
    pub epoch: usize,
    /// Images or characters learnt from.
    pub samples: usize,
}

impl Steps {
    /// Waits for the losses of steps that began at `start`.
    pub async fn new(losses: Vec<Tensor<Wgsl, 1>>, start: Instant) -> Result<Self> {
        let losses = match losses.is_empty() {
            true => Vec::new(),
            false => floats(Tensor::cat(losses, 0)).await?,
        };
        Ok(Self { losses, seconds: start.elapsed().as_secs_f64(), ..Self::default() })
    }

    /// As JavaScript gets it.
    pub fn object(&self) -> Result<JsValue> {
        object(self)
    }
}

/// The numbers of a tensor.
pub async fn floats(tensor: Tensor<Wgsl, 1>) -> Result<Vec<f32>> {
    let data = tensor.into_data_async().await.map_err(error)?;
    Ok(data.iter::<f32>().collect())
}
