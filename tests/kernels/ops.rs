//! Every case of the case list on every device against burn-flex.

use burn::tensor::Tensor;
use burn_backend::TensorData;
use burn_flex::{Flex, FlexDevice};
use burn_wgsl::backend::call::{call, call_extension};
use burn_wgsl::kernels::ops::cases::Case;
use burn_wgsl::{Wgsl, WgslDevice};

use crate::common::{
    self, SUMMED, assert_close, devices, failure, read_values, test_alone, without_fallbacks,
};

/// Runs a case: an op of Burn's contract or an extension of this backend.
fn run(case: &Case, device: &WgslDevice) -> Vec<TensorData> {
    let values =
        call::<Wgsl>(case, device, &mut |tensor| tensor).or_else(|| call_extension(case, device));
    read_values(values.unwrap_or_else(|| panic!("no table has the op {}", case.op)))
}

/// Compares the results of a case with the reference.
fn check(case: &Case, device: &WgslDevice) {
    let label = format!("{case:?} on {device}");
    // The reference is burn-flex, or this crate's CPU backend for ops that burn-flex lacks.
    let expected = match call::<Flex>(case, &FlexDevice, &mut |tensor| tensor) {
        Some(values) => read_values(values),
        None => run(case, &WgslDevice::Cpu),
    };
    let values = run(case, device);
    assert_eq!(values.len(), expected.len(), "{label}: the number of results");
    for (value, expected) in values.iter().zip(&expected) {
        assert_close(&label, value, expected, SUMMED);
    }
}

/// The algorithm is off by default.
#[test]
fn convolutions_by_winograd_match_burn_flex() {
    let output = test_alone!("every_case_matches_burn_flex")
        .env("BURN_WGSL_AS_GPU", "1")
        .env("BURN_WGSL_WINOGRAD", "1")
        .env("BURN_WGSL_TEST_CASES", "conv2d_x_backward,conv_transpose2d_x_backward")
        .output()
        .expect("the program runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

#[test]
fn every_case_matches_burn_flex() {
    let mut failed = Vec::new();
    let mut count = 0;
    for device in devices() {
        for case in common::cases() {
            count += 1;
            if let Err(panic) = std::panic::catch_unwind(|| check(case, &device)) {
                failed.push(failure(&format!("{case:?} on {device}"), panic));
            }
        }
    }
    assert!(failed.is_empty(), "{} of {count} cases failed:\n{}", failed.len(), failed.join("\n"));
}

/// Operands that are padded to vec4s give a result whose rows have gaps. No case: in 16 bits, the gradients of so many
/// rows are too inexact.
#[test]
fn products_of_several_matrices_with_one_are_right() {
    for device in common::gpus() {
        let product = |device: &WgslDevice| {
            let numbers = |seed: usize, shape: [usize; 3]| {
                let number = |i: usize| ((i * 7919 + seed) % 2003) as f32 / 1001.0 - 1.0;
                let values = (0..shape.iter().product()).map(number).collect::<Vec<f32>>();
                Tensor::<Wgsl, 3>::from_data(TensorData::new(values, shape), device)
            };
            numbers(1, [7, 65, 128]).matmul(numbers(2, [1, 128, 151])).into_data()
        };
        let label = format!("a product on {device}");
        assert_close(&label, &product(&device), &product(&WgslDevice::Cpu), SUMMED);
    }
}

#[test]
fn no_case_falls_back() {
    for device in common::gpus() {
        for case in common::cases() {
            without_fallbacks(&format!("{case:?} on {device}"), || {
                let _ = std::panic::catch_unwind(|| run(case, &device));
            });
        }
    }
}
