//! Measures compute speed and transfer bandwidth of this browser's devices.

use burn::tensor::{Distribution, Tensor, TensorData};
use burn_wgsl::{Wgsl, WgslDevice};
use serde::Serialize;
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;
use web_time::Instant;

use crate::device::parse_device;
use crate::script::{Result, js_error, to_js};

/// The result of a measurement.
#[derive(Serialize)]
struct Measurement {
    /// Median time of one run.
    seconds: f64,
    gflops: Option<f64>,
    gbytes_per_second: Option<f64>,
    runs: usize,
}

/// Measures the product of two `n` by `n` f32 matrices for about `milliseconds`.
#[wasm_bindgen]
pub async fn race_matmul(device: &str, n: usize, milliseconds: f64) -> Result<JsValue> {
    let device = parse_device(device)?;
    let (a, b) = (random([n, n], &device), random([n, n], &device));
    let (seconds, runs) = median_time(milliseconds, || a.clone().matmul(b.clone())).await?;
    let gflops = Some(2.0 * (n as f64).powi(3) / seconds / 1e9);
    to_js(&Measurement { seconds, gflops, gbytes_per_second: None, runs })
}

/// Measures the addition of two f32 vectors of `count` elements for about `milliseconds`.
#[wasm_bindgen]
pub async fn race_elementwise(device: &str, count: usize, milliseconds: f64) -> Result<JsValue> {
    let device = parse_device(device)?;
    let (a, b) = (random([count], &device), random([count], &device));
    let (seconds, runs) = median_time(milliseconds, || a.clone() + b.clone()).await?;
    to_js(&Measurement {
        seconds,
        gflops: None,
        // Each element takes two 4-byte reads and one 4-byte write.
        gbytes_per_second: Some(12.0 * count as f64 / seconds / 1e9),
        runs,
    })
}

/// Measures the upload of `bytes` bytes to the device for about `milliseconds`.
#[wasm_bindgen]
pub async fn race_upload(device: &str, bytes: usize, milliseconds: f64) -> Result<JsValue> {
    let device = parse_device(device)?;
    let data = TensorData::new(vec![1.0_f32; bytes / 4], [bytes / 4]);
    let (seconds, runs) =
        median_time(milliseconds, || Tensor::<Wgsl, 1>::from_data(data.clone(), &device)).await?;
    to_js(&Measurement {
        seconds,
        gflops: None,
        gbytes_per_second: Some(bytes as f64 / seconds / 1e9),
        runs,
    })
}

/// Measures the readback of `bytes` bytes from the device for about `milliseconds`.
#[wasm_bindgen]
pub async fn race_download(device: &str, bytes: usize, milliseconds: f64) -> Result<JsValue> {
    let device = parse_device(device)?;
    let tensor = random([bytes / 4], &device);
    let mut times = Vec::new();
    let first_start = Instant::now();
    while times.len() < 3 || first_start.elapsed().as_secs_f64() * 1e3 < milliseconds {
        let start = Instant::now();
        tensor.clone().into_data_async().await.map_err(js_error)?;
        times.push(start.elapsed().as_secs_f64());
    }
    let (seconds, runs) = median(times);
    to_js(&Measurement {
        seconds,
        gflops: None,
        gbytes_per_second: Some(bytes as f64 / seconds / 1e9),
        runs,
    })
}

fn random<const D: usize>(shape: [usize; D], device: &WgslDevice) -> Tensor<Wgsl, D> {
    Tensor::random(shape, Distribution::Uniform(-1.0, 1.0), device)
}

/// Waits until a tensor is computed, by reading back its first element.
async fn wait_for<const D: usize>(tensor: Tensor<Wgsl, D>) -> Result<()> {
    let len = tensor.shape().num_elements();
    let first = tensor.reshape([len]).narrow(0, 0, 1);
    first.into_data_async().await.map(drop).map_err(js_error)
}

/// Returns the median time of one run in seconds, and the number of runs.
///
/// Runs are submitted in batches of about 30 ms, so that waiting adds little to the time. The first
/// run compiles kernels and is not measured. The second run determines the batch size.
async fn median_time<const D: usize>(
    milliseconds: f64,
    run: impl Fn() -> Tensor<Wgsl, D>,
) -> Result<(f64, usize)> {
    wait_for(run()).await?;
    let start = Instant::now();
    wait_for(run()).await?;
    let seconds_per_run = start.elapsed().as_secs_f64();
    let batch = (0.03 / seconds_per_run.max(1e-5)).clamp(1.0, 256.0) as usize;
    let mut times = Vec::new();
    let first_start = Instant::now();
    while times.len() < 3 || first_start.elapsed().as_secs_f64() * 1e3 < milliseconds {
        let start = Instant::now();
        for _ in 1..batch {
            drop(run());
        }
        wait_for(run()).await?;
        times.push(start.elapsed().as_secs_f64() / batch as f64);
    }
    let (seconds, batches) = median(times);
    Ok((seconds, batches * batch))
}

/// Returns the median and the number of times.
fn median(mut times: Vec<f64>) -> (f64, usize) {
    times.sort_by(f64::total_cmp);
    (times[times.len() / 2], times.len())
}
