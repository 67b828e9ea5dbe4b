//! The op cases of the library's own tests, one by one: results of this browser's GPU beside those of the CPU.

use burn_backend::{DType, TensorData};
use burn_std::{FloatDType, IntDType};
use burn_wgsl::backend::call::{Types, Value, call_as, call_extension};
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

/// Runs a case on the device and on the CPU, and says how they differ; nothing if they do not. With `half` the device computes in
/// f16, and the CPU in f32 from the same numbers. Where a case says nothing in f16, nothing is run.
#[wasm_bindgen]
pub async fn check(index: usize, device: &str, half: bool) -> Result<Option<String>> {
    let device = parsed(device)?;
    let Some(case) = cases::all().nth(index) else {
        return Ok(Some(format!("there is no case {index}")));
    };
    if half && !case.holds_in_half() {
        return Ok(None);
    }
    let float = if half { FloatDType::F16 } else { FloatDType::F32 };
    let types = Types { float, rounded: float, int: IntDType::I32 };
    let truth = results(case, &WgslDevice::Cpu, Types { float: FloatDType::F32, ..types }).await?;
    let before = burn_wgsl::fallbacks();
    let value = results(case, &device, types).await?;
    let differs = || {
        if value.len() != truth.len() {
            return Some(format!("{} results, the truth has {}", value.len(), truth.len()));
        }
        if burn_wgsl::fallbacks() != before {
            return Some("it ran on the CPU".to_owned());
        }
        let mut pairs = value.iter().zip(&truth);
        pairs.find_map(|(value, truth)| {
            if half && truth.dtype == DType::F32 && value.dtype != DType::F16 {
                return Some(format!("a result is {:?}", value.dtype));
            }
            // What f16 has no number for is infinite.
            let truth = truth.clone().convert_dtype(value.dtype);
            tolerance::difference(value, &truth, tolerance::tolerance_of(value.dtype))
        })
    };
    Ok(differs().map(|difference| format!("{case:?}: {difference}")))
}

async fn results(case: &Case, device: &WgslDevice, types: Types) -> Result<Vec<TensorData>> {
    let values = call_as::<Wgsl>(case, device, types, &mut |tensor| tensor);
    // The ops beyond the contract are called in the device's own types only.
    let values = values
        .or_else(|| call_extension(case, device).filter(|_| types.rounded == FloatDType::F32));
    let mut data = Vec::new();
    for value in values.unwrap_or_default() {
        data.push(Value::into_data(value).await.map_err(error)?);
    }
    Ok(data)
}
