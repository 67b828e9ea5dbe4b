//! The scaler, with Burn 0.22.

use burn::tensor::Device;
use burn_wgsl_scaler::{GradScaler, GradScalerConfig};

#[path = "../../../scaler/tests/scales.rs"]
mod scales;

#[test]
fn a_device_of_another_backend_is_an_error() {
    let config = GradScalerConfig::default();
    let error = GradScaler::new(config, &Device::flex()).expect_err("another backend");
    assert!(error.to_string().contains("patches"), "{error}");
}
