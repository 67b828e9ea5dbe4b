//! A web page of one's own: a line is fitted to points, on the visitor's GPU. `index.html` beside this folder calls it.

use burn::backend::Autodiff;
use burn::nn::LinearConfig;
use burn::nn::loss::{MseLoss, Reduction};
use burn::optim::{GradientsParams, Optimizer, SgdConfig};
use burn::tensor::{Tensor, TensorData};
use burn_wgsl::{Wgsl, WgslDevice};
use wasm_bindgen::JsError;
use wasm_bindgen::prelude::wasm_bindgen;

/// The slope and the offset of the line through the points, by gradient descent. `device` is "auto", "software", ...
#[wasm_bindgen]
pub async fn fit(
    device: &str,
    x: Vec<f32>,
    y: Vec<f32>,
    steps: usize,
) -> Result<Vec<f32>, JsError> {
    if x.len() != y.len() {
        return Err(JsError::new("each x needs a y"));
    }
    // Once, before the first tensor; again after the GPU was lost.
    let device = burn_wgsl::open(&device.parse::<WgslDevice>()?).await?;
    let column = |values: Vec<f32>| {
        let count = values.len();
        Tensor::<Autodiff<Wgsl>, 2>::from_data(TensorData::new(values, [count, 1]), &device)
    };
    let (x, y) = (column(x), column(y));
    let mut line = LinearConfig::new(1, 1).init(&device);
    let mut optimizer = SgdConfig::new().init();
    for _ in 0..steps {
        let loss = MseLoss::new().forward(line.forward(x.clone()), y.clone(), Reduction::Mean);
        let gradients = GradientsParams::from_grads(loss.backward(), &line);
        line = optimizer.step(0.1, line, gradients);
    }
    // Data is awaited, never waited for.
    let mut found = Vec::new();
    for part in
        [line.weight.val().reshape([1])].into_iter().chain(line.bias.map(|offset| offset.val()))
    {
        found.extend(part.into_data_async().await?.iter::<f32>());
    }
    Ok(found)
}
