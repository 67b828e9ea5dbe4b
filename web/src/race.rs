//! How fast this browser's devices compute, and how fast data gets there and back.

use burn::tensor::{Distribution, Tensor, TensorData};
use burn_wgsl::{Wgsl, WgslDevice};
use serde::Serialize;
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;
use web_time::Instant;

use crate::device::parsed;
use crate::script::{Result, error, object};

/// The median time of an op.
#[derive(Serialize)]
struct Time {
    seconds: f64,
    gflops: Option<f64>,
    gbytes_per_second: Option<f64>,
    runs: usize,
}

/// Two `n` by `n` matrices multiplied, again and again for about so many milliseconds.
#[wasm_bindgen]
pub async fn race_matmul(device: &str, n: usize, milliseconds: f64) -> Result<JsValue> {
    let device = parsed(device)?;
    let (a, b) = (random([n, n], &device), random([n, n], &device));
    let (seconds, runs) = median(milliseconds, || a.clone().matmul(b.clone())).await?;
    let gflops = Some(2.0 * (n as f64).powi(3) / seconds / 1e9);
    object(&Time { seconds, gflops, gbytes_per_second: None, runs })
}

/// Two vectors of `count` numbers added.
#[wasm_bindgen]
pub async fn race_elementwise(device: &str, count: usize, milliseconds: f64) -> Result<JsValue> {
    let device = parsed(device)?;
    let (a, b) = (random([count], &device), random([count], &device));
    let (seconds, runs) = median(milliseconds, || a.clone() + b.clone()).await?;
    object(&Time {
        seconds,
        gflops: None,
        gbytes_per_second: Some(12.0 * count as f64 / seconds / 1e9),
        runs,
    })
}

/// So many bytes brought to the device, until it has them.
#[wasm_bindgen]
pub async fn race_upload(device: &str, bytes: usize, milliseconds: f64) -> Result<JsValue> {
    let device = parsed(device)?;
    let data = TensorData::new(vec![1.0_f32; bytes / 4], [bytes / 4]);
    let (seconds, runs) =
        median(milliseconds, || Tensor::<Wgsl, 1>::from_data(data.clone(), &device)).await?;
    object(&Time {
        seconds,
        gflops: None,
        gbytes_per_second: Some(bytes as f64 / seconds / 1e9),
        runs,
    })
}

/// So many bytes brought back from the device.
#[wasm_bindgen]
pub async fn race_download(device: &str, bytes: usize, milliseconds: f64) -> Result<JsValue> {
    let device = parsed(device)?;
    let tensor = random([bytes / 4], &device);
    let mut times = Vec::new();
    let begun = Instant::now();
    while times.len() < 3 || begun.elapsed().as_secs_f64() * 1e3 < milliseconds {
        let start = Instant::now();
        tensor.clone().into_data_async().await.map_err(error)?;
        times.push(start.elapsed().as_secs_f64());
    }
    let (seconds, runs) = middle(times);
    object(&Time {
        seconds,
        gflops: None,
        gbytes_per_second: Some(bytes as f64 / seconds / 1e9),
        runs,
    })
}

fn random<const D: usize>(shape: [usize; D], device: &WgslDevice) -> Tensor<Wgsl, D> {
    Tensor::random(shape, Distribution::Uniform(-1.0, 1.0), device)
}

/// Waits until a result is there, by fetching one number of it.
async fn done<const D: usize>(tensor: Tensor<Wgsl, D>) -> Result<()> {
    let len = tensor.shape().num_elements();
    let first = tensor.reshape([len]).narrow(0, 0, 1);
    first.into_data_async().await.map(drop).map_err(error)
}

/// The median time of one run. Runs are handed over in batches that take about 30 ms, so that waiting costs little; the
/// first ones, which compile, do not count.
async fn median<const D: usize>(
    milliseconds: f64,
    run: impl Fn() -> Tensor<Wgsl, D>,
) -> Result<(f64, usize)> {
    done(run()).await?;
    let start = Instant::now();
    done(run()).await?;
    let once = start.elapsed().as_secs_f64();
    let batch = (0.03 / once.max(1e-5)).clamp(1.0, 256.0) as usize;
    let mut times = Vec::new();
    let begun = Instant::now();
    while times.len() < 3 || begun.elapsed().as_secs_f64() * 1e3 < milliseconds {
        let start = Instant::now();
        for _ in 1..batch {
            drop(run());
        }
        done(run()).await?;
        times.push(start.elapsed().as_secs_f64() / batch as f64);
    }
    let (seconds, batches) = middle(times);
    Ok((seconds, batches * batch))
}

fn middle(mut times: Vec<f64>) -> (f64, usize) {
    times.sort_by(f64::total_cmp);
    (times[times.len() / 2], times.len())
}
