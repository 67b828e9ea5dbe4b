//! Every case of the case list, on every device, against the CPU twin.

mod common;

use burn_flex::{Flex, FlexDevice};
use burn_wgsl::backend::call::{Value, call, call_extension};
use burn_wgsl::kernels::cases::Case;
use burn_wgsl::{Wgsl, WgslDevice};
use common::{SUMMED, assert_close, devices};

fn data<T: burn_backend::Backend>(values: Vec<Value<T>>) -> Vec<burn_backend::TensorData> {
    let read = |value: Value<T>| pollster::block_on(value.into_data()).expect("it is read back");
    values.into_iter().map(read).collect()
}

/// An op of Burn's contract, or one of this backend's own.
fn on(case: &Case, device: &WgslDevice) -> Vec<burn_backend::TensorData> {
    let values =
        call::<Wgsl>(case, device, &mut |tensor| tensor).or_else(|| call_extension(case, device));
    data(values.unwrap_or_else(|| panic!("no table has {}", case.op)))
}

fn run(case: &Case, device: &WgslDevice) {
    let what = format!("{case:?} on {device}");
    // What burn-flex does not know, the CPU device computes by the op's own twin.
    let truth = match call::<Flex>(case, &FlexDevice, &mut |tensor| tensor) {
        Some(values) => data(values),
        None => on(case, &WgslDevice::Cpu),
    };
    let value = on(case, device);
    assert_eq!(value.len(), truth.len(), "{what}: the count of results");
    for (value, truth) in value.iter().zip(&truth) {
        assert_close(&what, value, truth, SUMMED);
    }
}

#[test]
fn every_case_agrees_with_the_twin() {
    let mut failed = Vec::new();
    let mut count = 0;
    for device in devices() {
        for case in common::cases() {
            count += 1;
            let outcome = std::panic::catch_unwind(|| run(case, &device));
            if let Err(panic) = outcome {
                let text = panic.downcast_ref::<String>().cloned();
                let text = text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
                failed.push(format!("{case:?} on {device}: {}", text.unwrap_or_default()));
            }
        }
    }
    assert!(failed.is_empty(), "{} of {count} cases failed:\n{}", failed.len(), failed.join("\n"));
}

/// The ops that have kernels do not leave the GPU.
#[test]
fn no_case_falls_back() {
    for device in common::gpus() {
        for case in common::cases() {
            let before = burn_wgsl::fallbacks();
            let _ = std::panic::catch_unwind(|| on(case, &device));
            let after = burn_wgsl::fallbacks();
            assert_eq!(before, after, "{case:?} on {device} ran on the CPU");
        }
    }
}
