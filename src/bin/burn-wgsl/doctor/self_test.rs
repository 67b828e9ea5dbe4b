//! The self-test: the kernels on a device against the CPU.

use burn::tensor::{FloatDType, IntDType, TensorData};
use burn_wgsl::backend::call::{self, Types, Value};
use burn_wgsl::kernels::ops::cases::Case;
use burn_wgsl::{Wgsl, WgslDevice, kernels};
use serde::Serialize;

use crate::bench::catch_panic;

/// The result of the cases with one float type.
#[derive(Debug, Serialize)]
pub struct SelfTest {
    /// The float type.
    pub dtype: &'static str,
    /// Number of cases.
    pub cases: usize,
    /// The cases that failed, in the order of the case list.
    pub failures: Vec<Failure>,
}

/// A case that failed.
#[derive(Debug, Serialize)]
pub struct Failure {
    pub op: &'static str,
    /// The first difference, or the error.
    pub text: String,
}

/// The float types, with the allowed relative differences from the CPU's results in f32.
const TYPES: [(&str, FloatDType, f64); 3] = [
    ("f32", FloatDType::F32, 1e-4),
    ("f16", FloatDType::F16, 1e-3),
    ("bf16", FloatDType::BF16, 8e-3),
];

/// Returns the allowed absolute difference. Where there are matrix units, they multiply weights of attention that are
/// rounded to 11 bits.
fn absolute(op: &str, float: FloatDType) -> f64 {
    match (op, float) {
        ("attention", FloatDType::F16) => 5e-4,
        _ => 1e-4,
    }
}

/// Runs every case of the case list on a device, in each float type, and compares the results with
/// those of the CPU. `on_case` is called before each case with the share that is done.
pub fn run(device: &WgslDevice, on_case: impl Fn(f64)) -> Vec<SelfTest> {
    let cases: Vec<&Case> = kernels::cases().collect();
    let total = (cases.len() * TYPES.len()) as f64;
    let mut done = 0.0;
    let mut results = Vec::new();
    for (dtype, float, relative) in TYPES {
        let mut result = SelfTest { dtype, cases: 0, failures: Vec::new() };
        for case in &cases {
            on_case(done / total);
            done += 1.0;
            if float != FloatDType::F32 && !case.agrees_in_half() {
                continue;
            }
            let types = Types { float, rounded: float, int: IntDType::I32 };
            let in_f32 = Types { float: FloatDType::F32, ..types };
            // The CPU may lack an op.
            let Ok(Some(expected)) = values(case, &WgslDevice::Cpu, in_f32) else { continue };
            // Results may be beyond the range of 16 bits.
            let in_type = |data: TensorData| match data.dtype.is_float() {
                true => data.convert_dtype(float.into()),
                false => data,
            };
            let expected: Vec<TensorData> = expected.into_iter().map(in_type).collect();
            result.cases += 1;
            let failure = match values(case, device, types) {
                Err(error) => Some(error),
                Ok(found) => {
                    let tolerance = [absolute(case.op, float), relative];
                    difference(&found.unwrap_or_default(), &expected, tolerance)
                }
            };
            result.failures.extend(failure.map(|text| Failure { op: case.op, text }));
        }
        results.push(result);
    }
    results
}

/// Returns the results of a case, or the message of its panic.
fn values(
    case: &Case,
    device: &WgslDevice,
    types: Types,
) -> Result<Option<Vec<TensorData>>, String> {
    catch_panic(|| {
        let values = call::call_as::<Wgsl>(case, device, types, &mut |tensor| tensor)?;
        let read = |value: Value<Wgsl>| {
            pollster::block_on(value.into_data()).unwrap_or_else(|error| panic!("{error}"))
        };
        Some(values.into_iter().map(read).collect())
    })
}

/// Describes the first difference, if there is one.
fn difference(
    found: &[TensorData],
    expected: &[TensorData],
    [absolute, relative]: [f64; 2],
) -> Option<String> {
    if found.len() != expected.len() {
        return Some(format!("{} results instead of {}", found.len(), expected.len()));
    }
    found.iter().zip(expected).find_map(|(found, expected)| {
        if found.shape != expected.shape {
            return Some(format!("the shape {:?} instead of {:?}", found.shape, expected.shape));
        }
        let pairs = found.iter::<f64>().zip(expected.iter::<f64>());
        let is_close = |a: f64, b: f64| {
            a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= absolute + relative * b.abs()
        };
        let (index, (a, b)) = pairs.enumerate().find(|(_, (a, b))| !is_close(*a, *b))?;
        Some(format!("element {index} is {a} instead of {b}"))
    })
}
