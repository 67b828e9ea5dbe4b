//! Runs the op cases of the library's tests in the browser and compares the GPU's results with the
//! CPU's.

use burn_backend::{DType, TensorData};
use burn_std::{FloatDType, IntDType};
use burn_wgsl::backend::call::{Types, Value, call_as, call_extension};
use burn_wgsl::kernels;
use burn_wgsl::kernels::ops::cases::Case;
use burn_wgsl::{Wgsl, WgslDevice};
use wasm_bindgen::prelude::wasm_bindgen;

use crate::device::parse_device;
use crate::script::{Result, js_error};

#[path = "../../tests/common/tolerance.rs"]
#[allow(dead_code, reason = "only the native tests use the rest")]
mod tolerance;

/// Returns the number of op cases.
#[wasm_bindgen]
pub fn case_count() -> usize {
    kernels::cases().count()
}

/// Runs a case on the device and on the CPU. Returns a description of the first difference, or
/// `None` if the results agree.
///
/// With `half`, the device computes in f16, and the CPU computes in f32 from inputs rounded to f16.
/// Cases that are not meaningful in f16 are skipped.
#[wasm_bindgen]
pub async fn check_case(index: usize, device: &str, half: bool) -> Result<Option<String>> {
    let device = parse_device(device)?;
    let Some(case) = kernels::cases().nth(index) else {
        return Ok(Some(format!("no case has index {index}")));
    };
    if half && !case.agrees_in_half() {
        return Ok(None);
    }
    let float = if half { FloatDType::F16 } else { FloatDType::F32 };
    let types = Types { float, rounded: float, int: IntDType::I32 };
    let reference =
        results(case, &WgslDevice::Cpu, Types { float: FloatDType::F32, ..types }).await?;
    let fallbacks_before = burn_wgsl::fallbacks();
    let actual = results(case, &device, types).await?;
    let find_difference = || {
        if actual.len() != reference.len() {
            let (found, expected) = (actual.len(), reference.len());
            return Some(format!("the device returned {found} results, the CPU {expected}"));
        }
        if burn_wgsl::fallbacks() != fallbacks_before {
            return Some("the op fell back to the CPU".to_owned());
        }
        let mut pairs = actual.iter().zip(&reference);
        pairs.find_map(|(actual, reference)| {
            if half && reference.dtype == DType::F32 && actual.dtype != DType::F16 {
                return Some(format!("a result has type {:?} instead of F16", actual.dtype));
            }
            // Values out of range for f16 become infinite.
            let reference = reference.clone().convert_dtype(actual.dtype);
            tolerance::difference(actual, &reference, tolerance::tolerance_of(actual.dtype))
        })
    };
    Ok(find_difference().map(|difference| format!("{case:?}: {difference}")))
}

/// Runs a case on a device and reads its results back.
async fn results(case: &Case, device: &WgslDevice, types: Types) -> Result<Vec<TensorData>> {
    let values = call_as::<Wgsl>(case, device, types, &mut |tensor| tensor);
    // Ops outside Burn's contract support only the default float type, f32.
    let values = values
        .or_else(|| call_extension(case, device).filter(|_| types.rounded == FloatDType::F32));
    let mut data = Vec::new();
    for value in values.unwrap_or_default() {
        data.push(Value::into_data(value).await.map_err(js_error)?);
    }
    Ok(data)
}
