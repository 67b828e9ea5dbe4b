//! The op cases of the library's own tests, one by one: results of this browser's GPU beside those of the CPU.

use burn_backend::TensorData;
use burn_wgsl::backend::call::{Value, call, call_extension};
use burn_wgsl::kernels::cases::{self, Case};
use burn_wgsl::{Wgsl, WgslDevice};
use wasm_bindgen::prelude::wasm_bindgen;

use crate::device::parsed;
use crate::script::{Result, error};

#[path = "../../tests/common/tolerance.rs"]
#[allow(dead_code, reason = "the tests use more of it")]
mod tolerance;

/// How many cases there are.
#[wasm_bindgen]
pub fn check_count() -> usize {
    cases::all().count()
}

/// Runs a case on the device and on the CPU, and says how they differ; nothing if they do not.
#[wasm_bindgen]
pub async fn check(index: usize, device: &str) -> Result<Option<String>> {
    let device = parsed(device)?;
    let Some(case) = cases::all().nth(index) else {
        return Ok(Some(format!("there is no case {index}")));
    };
    let truth = results(case, &WgslDevice::Cpu).await?;
    let before = burn_wgsl::fallbacks();
    let value = results(case, &device).await?;
    let differs = || {
        if value.len() != truth.len() {
            return Some(format!("{} results, the truth has {}", value.len(), truth.len()));
        }
        if burn_wgsl::fallbacks() != before {
            return Some("it ran on the CPU".to_owned());
        }
        let mut pairs = value.iter().zip(&truth);
        pairs.find_map(|(value, truth)| tolerance::difference(value, truth, tolerance::SUMMED))
    };
    Ok(differs().map(|difference| format!("{case:?}: {difference}")))
}

async fn results(case: &Case, device: &WgslDevice) -> Result<Vec<TensorData>> {
    let values = call::<Wgsl>(case, device, &mut |tensor| tensor).or_else(|| call_extension(case, device));
    let mut data = Vec::new();
    for value in values.unwrap_or_default() {
        data.push(Value::into_data(value).await.map_err(error)?);
    }
    Ok(data)
}
