//! Fourier transforms against their definition, in double precision.

mod common;

use std::f64::consts::TAU;

use burn::tensor::signal::{irfft, rfft};
use burn::tensor::{Tensor, TensorData};
use burn_backend::ops::ModuleOps;
use burn_wgsl::{Wgsl, WgslDevice};
use common::{devices, gpus};

fn signal(n: usize) -> Vec<f64> {
    (0..n).map(|j| f64::from((j as f32 * 0.37).sin() + ((j * j) as f32 * 0.011).cos())).collect()
}

fn upload(values: &[f64], device: &WgslDevice) -> Tensor<Wgsl, 1> {
    Tensor::from_data(TensorData::new(values.to_vec(), [values.len()]), device)
}

fn read(tensor: Tensor<Wgsl, 1>) -> Vec<f64> {
    tensor.into_data().iter().collect()
}

/// The spectrum, by a sum for each of its elements.
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

/// The largest difference, relative to the largest of the truth.
fn error(values: &[f64], truth: &[f64]) -> f64 {
    assert_eq!(values.len(), truth.len());
    let largest =
        |values: &mut dyn Iterator<Item = f64>| values.fold(0.0f64, |a, b| a.max(b.abs()));
    largest(&mut values.iter().zip(truth).map(|(a, b)| a - b)) / largest(&mut truth.iter().copied())
}

#[test]
fn spectra_agree_with_their_definition() {
    for n in [16, 512, 4096] {
        let x = signal(n);
        let (re, im) = dft(&x);
        for device in devices() {
            let spectrum = rfft(upload(&x, &device), 0, None);
            let errors = [error(&read(spectrum.0), &re), error(&read(spectrum.1), &im)];
            assert!(errors.iter().all(|&e| e < 1e-6), "rfft of {n} on {device}: {errors:?}");
            let back = read(irfft(upload(&re, &device), upload(&im, &device), 0, None));
            assert!(error(&back, &x) < 1e-6, "irfft of {n} on {device}: {}", error(&back, &x));
        }
    }
}

#[test]
fn a_long_signal_comes_back() {
    let x = signal(1 << 18);
    for device in gpus() {
        let (re, im) = rfft(upload(&x, &device), 0, None);
        let back = read(irfft(re, im, 0, Some(x.len())));
        assert!(error(&back, &x) < 2e-6, "{device}: {}", error(&back, &x));
    }
}

#[test]
fn other_lengths_are_refused_by_name() {
    for device in gpus() {
        let panic = std::panic::catch_unwind(|| {
            let x = upload(&signal(1000), &device).into_primitive().tensor();
            Wgsl::rfft(x, 0, Some(1000))
        });
        let panic = panic.expect_err("it is refused");
        let text = panic.downcast_ref::<String>().cloned().unwrap_or_default();
        assert!(text.contains("rfft") && text.contains("power of two"), "{text}");
    }
}
