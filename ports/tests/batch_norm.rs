//! Batch normalisation and its gradients, beside their definition.

use burn_backend::ops::{FloatTensorOps, ModuleOps};
use burn_backend::{DType, FloatDType, TensorData, TensorMetadata};

use crate::port::wgsl::WgslDevice;
use crate::port::{Port, PortDevice, Tensor};

const DEVICES: [PortDevice; 2] = [PortDevice(WgslDevice::Software), PortDevice(WgslDevice::Cpu)];
const SHAPE: [usize; 4] = [3, 5, 2, 7];
const EPSILON: f64 = 1e-3;

/// Returns numbers from -1 to 1 that f16 has.
fn numbers(seed: usize, len: usize) -> Vec<f64> {
    let element = |i: usize| (((i * 7919 + seed * 104_729) % 513) as f64 - 256.0) / 256.0;
    (0..len).map(element).collect()
}

fn tensor(values: &[f64], shape: &[usize], dtype: FloatDType, device: &PortDevice) -> Tensor {
    let values: Vec<f32> = values.iter().map(|&value| value as f32).collect();
    let tensor = Port::float_from_data(TensorData::new(values, shape.to_vec()), device);
    Port::float_cast(tensor, dtype)
}

fn assert_close(label: &str, found: Tensor, expected: &[f64], tolerance: f64) {
    let data = pollster::block_on(Port::float_into_data(found)).expect("readback succeeds");
    let found: Vec<f64> = data.iter::<f64>().collect();
    assert_eq!(found.len(), expected.len(), "{label}");
    for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
        let error = (found - expected).abs();
        assert!(
            error <= tolerance * expected.abs().max(1.0),
            "{label}: {found} at {index}, expected {expected}"
        );
    }
}

/// The elements of each channel.
fn channels(x: &[f64]) -> Vec<Vec<f64>> {
    let [batch, channels, rows, columns] = SHAPE;
    let pixels = rows * columns;
    let of_image =
        |image: usize, channel: usize| &x[(image * channels + channel) * pixels..][..pixels];
    let elements =
        |channel: usize| (0..batch).flat_map(move |image| of_image(image, channel).to_vec());
    (0..channels).map(|channel| elements(channel).collect()).collect()
}

fn statistics(x: &[f64]) -> [Vec<f64>; 2] {
    let mean = |of: &[f64]| of.iter().sum::<f64>() / of.len() as f64;
    let means: Vec<f64> = channels(x).iter().map(|channel| mean(channel)).collect();
    let variance = |(channel, mean_of_it): (&Vec<f64>, &f64)| {
        mean(&channel.iter().map(|value| (value - mean_of_it).powi(2)).collect::<Vec<_>>())
    };
    let variances = channels(x).iter().zip(&means).map(variance).collect();
    [means, variances]
}

fn normalised(x: &[f64], gamma: &[f64], beta: &[f64]) -> Vec<f64> {
    let [means, variances] = statistics(x);
    let pixels = SHAPE[2] * SHAPE[3];
    let of = |(index, value): (usize, &f64)| {
        let channel = index / pixels % SHAPE[1];
        let deviation = (variances[channel] + EPSILON).sqrt();
        (value - means[channel]) / deviation * gamma[channel] + beta[channel]
    };
    x.iter().enumerate().map(of).collect()
}

/// The slopes of the sum of `grad * normalised(..)`, by small differences of an argument.
fn slopes(argument: &[f64], of: impl Fn(&[f64]) -> Vec<f64>, grad: &[f64]) -> Vec<f64> {
    let sum = |argument: &[f64]| of(argument).iter().zip(grad).map(|(y, g)| y * g).sum::<f64>();
    let slope = |index: usize| {
        let [less, more] = [-1e-5, 1e-5].map(|step| {
            let mut moved = argument.to_vec();
            moved[index] += step;
            sum(&moved)
        });
        (more - less) / 2e-5
    };
    (0..argument.len()).map(slope).collect()
}

#[test]
fn batches_are_normalised_and_have_gradients() {
    let len = SHAPE.iter().product();
    let [x, grad] = [1, 2].map(|seed| numbers(seed, len));
    let [gamma, beta] = [3, 4].map(|seed| numbers(seed, SHAPE[1]));
    let [means, variances] = statistics(&x);
    let y = normalised(&x, &gamma, &beta);
    let of_x = slopes(&x, |x| normalised(x, &gamma, &beta), &grad);
    let of_gamma = slopes(&gamma, |gamma| normalised(&x, gamma, &beta), &grad);
    let of_beta = slopes(&beta, |beta| normalised(&x, &gamma, beta), &grad);
    for device in DEVICES {
        let types = [
            (FloatDType::F32, FloatDType::F32, 2e-5),
            (FloatDType::F16, FloatDType::F16, 4e-3),
            // As under autocast: only x's gradient has 16 bits.
            (FloatDType::F16, FloatDType::F32, 2e-5),
        ];
        for (dtype, of_parameters, tolerance) in types {
            let line = |values: &[f64]| tensor(values, &[SHAPE[1]], of_parameters, &device);
            let [x, grad] = [&x, &grad].map(|of| tensor(of, &SHAPE, dtype, &device));
            let label =
                |part: &str| format!("{part} of {dtype:?}, {of_parameters:?} on {device:?}");
            let found = Port::batch_norm_train(x.clone(), line(&gamma), line(&beta), EPSILON);
            assert_eq!(found.output.dtype(), DType::from(of_parameters));
            assert_eq!(found.variance.dtype(), DType::from(of_parameters));
            assert_close(&label("result"), found.output, &y, tolerance);
            assert_close(&label("means"), found.mean.clone(), &means, tolerance);
            assert_close(&label("variances"), found.variance.clone(), &variances, tolerance);
            let [mean, variance] = [found.mean, found.variance];
            let found =
                Port::batch_norm_train_backward(x, line(&gamma), mean, variance, EPSILON, grad);
            assert_eq!(found.x_grad.dtype(), DType::from(dtype));
            assert_eq!(found.gamma_grad.dtype(), DType::from(of_parameters));
            let of_16_bits = if dtype == FloatDType::F16 { 4e-3 } else { tolerance };
            assert_close(&label("x's gradient"), found.x_grad, &of_x, of_16_bits);
            assert_close(&label("gamma's gradient"), found.gamma_grad, &of_gamma, tolerance);
            assert_close(&label("beta's gradient"), found.beta_grad, &of_beta, tolerance);
        }
    }
}

#[test]
fn a_variance_beyond_f16_is_kept_for_the_gradient() {
    for device in DEVICES {
        let x: Vec<f64> = [-600.0, 600.0].repeat(20);
        let x = tensor(&x, &[40, 1], FloatDType::F16, &device);
        let line = |value| tensor(&[value], &[1], FloatDType::F32, &device);
        let found = Port::batch_norm_train(x.clone(), line(2.0), line(0.5), EPSILON);
        assert_close("variance", found.variance.clone(), &[360_000.0], 1e-5);
        let grad: Vec<f64> = [3.0, 5.0].repeat(20);
        let grad = tensor(&grad, &[40, 1], FloatDType::F32, &device);
        let [mean, variance] = [found.mean, found.variance];
        let found = Port::batch_norm_train_backward(x, line(2.0), mean, variance, EPSILON, grad);
        assert_close("gamma's gradient", found.gamma_grad, &[40.0], 1e-5);
        assert_close("beta's gradient", found.beta_grad, &[160.0], 1e-5);
    }
}

#[test]
fn an_empty_batch_has_gradients_of_zero() {
    for device in DEVICES {
        let x = tensor(&[], &[0, 2, 3], FloatDType::F32, &device);
        let line = || tensor(&[1.0, 1.0], &[2], FloatDType::F32, &device);
        let found = Port::batch_norm_train_backward(x.clone(), line(), line(), line(), EPSILON, x);
        assert_eq!(found.x_grad.shape().to_vec(), [0, 2, 3]);
        assert_close("gamma's gradient", found.gamma_grad, &[0.0; 2], 0.0);
        assert_close("beta's gradient", found.beta_grad, &[0.0; 2], 0.0);
    }
}
