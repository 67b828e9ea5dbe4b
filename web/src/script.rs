//! Conversions between Rust and JavaScript values.

use burn::tensor::Tensor;
use burn_wgsl::Wgsl;
use serde::Serialize;
use wasm_bindgen::{JsError, JsValue};
use web_time::Instant;

/// The result of a function that JavaScript calls.
pub type Result<T> = std::result::Result<T, JsError>;

/// Converts a value to a plain JavaScript object. 64-bit integers become JavaScript numbers.
pub fn to_js(value: &impl Serialize) -> Result<JsValue> {
    let plain = serde_wasm_bindgen::Serializer::json_compatible();
    value.serialize(&plain).map_err(|error| JsError::new(&error.to_string()))
}

/// Converts an error to a JavaScript error whose message includes the causes.
pub fn js_error(error: impl Into<anyhow::Error>) -> JsError {
    JsError::new(&format!("{:#}", error.into()))
}

/// Deserialises a JavaScript value.
pub fn from_js<T: serde::de::DeserializeOwned>(value: JsValue) -> Result<T> {
    serde_wasm_bindgen::from_value(value).map_err(|error| JsError::new(&error.to_string()))
}

/// The report of a call that ran some training steps.
#[derive(Serialize, Default)]
pub struct TrainingReport {
    /// Loss of each step, computed before its weight update.
    pub losses: Vec<f32>,
    /// Time from the start of the first step until all losses were read back.
    pub seconds: f64,
    /// Steps since the model was created.
    pub step: usize,
    /// Epochs finished since the model was created; 0 for models that do not count epochs.
    pub epoch: usize,
    /// Images or tokens that these steps trained on.
    pub samples: usize,
}

impl TrainingReport {
    /// Awaits the losses of steps that started at `start`.
    pub async fn new(losses: Vec<Tensor<Wgsl, 1>>, start: Instant) -> Result<Self> {
        let losses = match losses.is_empty() {
            true => Vec::new(),
            false => read_floats(Tensor::cat(losses, 0)).await?,
        };
        Ok(Self { losses, seconds: start.elapsed().as_secs_f64(), ..Self::default() })
    }

    /// Converts the report to a plain JavaScript object.
    pub fn to_js(&self) -> Result<JsValue> {
        to_js(self)
    }
}

/// Checks that a learning rate is finite and above 0.
pub fn check_learning_rate(learning_rate: f64) -> Result<()> {
    if learning_rate.is_finite() && learning_rate > 0.0 {
        return Ok(());
    }
    Err(JsError::new(&format!(
        "the learning rate is {learning_rate}; it must be finite and above 0"
    )))
}

/// Reads back the elements of a float tensor.
pub async fn read_floats(tensor: Tensor<Wgsl, 1>) -> Result<Vec<f32>> {
    let data = tensor.into_data_async().await.map_err(js_error)?;
    Ok(data.iter::<f32>().collect())
}
