//! Fourier transforms against their definition in f64.

use std::f64::consts::TAU;

use burn::tensor::signal::{irfft, rfft};
use burn::tensor::{Tensor, TensorData};
use burn_backend::ops::ModuleOps;
use burn_wgsl::{Wgsl, WgslDevice};

use crate::common::{devices, gpus, panic_message};

fn signal(n: usize) -> Vec<f64> {
    (0..n).map(|j| f64::from((j as f32 * 0.37).sin() + ((j * j) as f32 * 0.011).cos())).collect()
}

fn upload(values: &[f64], device: &WgslDevice) -> Tensor<Wgsl, 1> {
    Tensor::from_data(TensorData::new(values.to_vec(), [values.len()]), device)
}

fn read(tensor: Tensor<Wgsl, 1>) -> Vec<f64> {
    tensor.into_data().iter().collect()
}

/// Returns the real and imaginary parts of the spectrum, `[n / 2 + 1]` each, by direct summation.
fn dft(x: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let n = x.len();
    let roots: Vec<(f64, f64)> = (0..n)
        .map(|k| (TAU * k as f64 / n as f64).sin_cos())
        .map(|(sin, cos)| (cos, -sin))
        .collect();
    let bin = |k: usize| {
        x.iter().enumerate().fold((0.0, 0.0), |(re, im), (j, x)| {
            let (cos, sin) = roots[k * j % n];
            (re + x * cos, im + x * sin)
        })
    };
    (0..=n / 2).map(bin).unzip()
}

/// Returns the largest difference relative to the largest expected magnitude.
fn relative_error(values: &[f64], expected: &[f64]) -> f64 {
    assert_eq!(values.len(), expected.len());
    let max_abs =
        |values: &mut dyn Iterator<Item = f64>| values.fold(0.0f64, |a, b| a.max(b.abs()));
    let max_difference = max_abs(&mut values.iter().zip(expected).map(|(a, b)| a - b));
    max_difference / max_abs(&mut expected.iter().copied())
}

#[test]
fn rfft_and_irfft_match_the_definition() {
    for n in [16, 512, 4096] {
        let x = signal(n);
        let (re, im) = dft(&x);
        for device in devices() {
            let spectrum = rfft(upload(&x, &device), 0, None);
            let errors =
                [relative_error(&read(spectrum.0), &re), relative_error(&read(spectrum.1), &im)];
            assert!(errors.iter().all(|&e| e < 1e-6), "rfft of {n} on {device}: {errors:?}");
            let inverse = read(irfft(upload(&re, &device), upload(&im, &device), 0, None));
            let error = relative_error(&inverse, &x);
            assert!(error < 1e-6, "irfft of {n} on {device}: {error}");
        }
    }
}

#[test]
fn irfft_inverts_rfft_of_a_long_signal() {
    let x = signal(1 << 18);
    for device in gpus() {
        let (re, im) = rfft(upload(&x, &device), 0, None);
        let error = relative_error(&read(irfft(re, im, 0, Some(x.len()))), &x);
        assert!(error < 2e-6, "{device}: {error}");
    }
}

#[test]
fn rfft_panics_unless_the_length_is_a_power_of_two() {
    for device in gpus() {
        let text = panic_message(|| {
            let x = upload(&signal(1000), &device).into_primitive().tensor();
            let _ = Wgsl::rfft(x, 0, Some(1000));
        });
        assert!(text.contains("rfft") && text.contains("power of two"), "{text}");
    }
}
