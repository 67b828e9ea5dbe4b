//! A minimal web page that trains with burn-wgsl: it fits a line to points on the visitor's GPU.
//!
//! `index.html` in the parent folder calls [`fit`].

use burn::nn::LinearConfig;
use burn::nn::loss::{MseLoss, Reduction};
use burn::optim::{GradientsParams, Optimizer, SgdConfig};
use burn::tensor::{Tensor, TensorData};
use burn_wgsl::{Autodiff, Wgsl, WgslDevice};
use wasm_bindgen::JsError;
use wasm_bindgen::prelude::wasm_bindgen;

/// Fits a line to the points `(x, y)` by gradient descent. Returns its slope and offset.
///
/// `device` is a device selector, such as `auto` or `software`.
///
/// # Errors
///
/// Returns an error if the device cannot be opened or is lost, or if `x` and `y` differ in length.
#[wasm_bindgen]
pub async fn fit(
    device: &str,
    x: Vec<f32>,
    y: Vec<f32>,
    steps: usize,
) -> Result<Vec<f32>, JsError> {
    if x.len() != y.len() {
        return Err(JsError::new(&format!(
            "x and y must have the same length, but have {} and {} values",
            x.len(),
            y.len()
        )));
    }
    // Open a device before creating tensors on it, and again after it was lost.
    let device = burn_wgsl::open(&device.parse::<WgslDevice>()?).await?;
    let column_tensor = |values: Vec<f32>| {
        let count = values.len();
        Tensor::<Autodiff<Wgsl>, 2>::from_data(TensorData::new(values, [count, 1]), &device)
    };
    let (x, y) = (column_tensor(x), column_tensor(y));
    let mut line = LinearConfig::new(1, 1).init(&device);
    let mut optimizer = SgdConfig::new().init();
    for _ in 0..steps {
        let loss = MseLoss::new().forward(line.forward(x.clone()), y.clone(), Reduction::Mean);
        let gradients = GradientsParams::from_grads(loss.backward(), &line);
        line = optimizer.step(0.1, line, gradients);
    }
    // A browser cannot block on the GPU, so reading data back is asynchronous.
    let slope = line.weight.val().reshape([1]);
    let offset = line.bias.map(|bias| bias.val());
    let mut parameters = Vec::new();
    for tensor in [slope].into_iter().chain(offset) {
        parameters.extend(tensor.into_data_async().await?.iter::<f32>());
    }
    Ok(parameters)
}
