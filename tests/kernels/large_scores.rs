//! Softmax, its logarithm, losses and attention with scores of any magnitude: the maximum and the logarithm of the sum
//! are never rounded together where a difference is taken.

use burn::nn::loss::CrossEntropyLossConfig;
use burn::tensor::activation::{log_softmax, softmax};
use burn::tensor::module::attention;
use burn::tensor::ops::AttentionModuleOptions;
use burn::tensor::{FloatDType, Int, Tensor, TensorData};
use burn_wgsl::{Autodiff, Wgsl, WgslDevice};

use crate::common::devices;

type Grad = Autodiff<Wgsl>;

const MAGNITUDES: [f32; 6] = [1e3, 3e4, 1e6, 1e9, 1e20, 1e38];

fn values<const D: usize>(tensor: Tensor<Wgsl, D>) -> Vec<f32> {
    tensor.cast(FloatDType::F32).into_data().to_vec().expect("f32")
}

fn assert_close(found: &[f32], expected: &[f64], tolerance: f64, what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        let error = (f64::from(*found) - expected).abs();
        assert!(error <= tolerance * expected.abs().max(1.0), "{what}: {i}: {found}, {expected}");
    }
}

fn softmax_of(row: &[f32]) -> Vec<f64> {
    let maximum = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let powers: Vec<f64> = row.iter().map(|x| (f64::from(*x) - f64::from(maximum)).exp()).collect();
    let sum: f64 = powers.iter().sum();
    powers.into_iter().map(|power| power / sum).collect()
}

#[test]
fn softmax_and_losses_of_large_scores() {
    for device in devices() {
        for (dtype, tolerance) in
            [(FloatDType::F32, 1e-5), (FloatDType::F16, 2e-3), (FloatDType::BF16, 2e-2)]
        {
            for len in [5, 300, 9000] {
                for magnitude in MAGNITUDES {
                    if dtype == FloatDType::F16 && magnitude > 6e4 {
                        continue;
                    }
                    for equal in [true, false] {
                        let what =
                            format!("{dtype:?} {len} of {magnitude}, equal: {equal}, {device}");
                        let element = |i: usize| match equal {
                            true => magnitude,
                            false => magnitude * (1.0 - (i % 7) as f32 * 0.125),
                        };
                        let data =
                            TensorData::new((0..len).map(element).collect::<Vec<f32>>(), [1, len]);
                        let x = Tensor::<Wgsl, 2>::from_data(data, &device).cast(dtype);
                        let row = values(x.clone());
                        let expected = softmax_of(&row);
                        assert_close(
                            &values(softmax(x.clone(), 1)),
                            &expected,
                            tolerance / 10.0,
                            &what,
                        );
                        let maximum = f64::from(magnitude.min(row[0]));
                        let sum: f64 = row.iter().map(|x| (f64::from(*x) - maximum).exp()).sum();
                        let logs: Vec<f64> =
                            row.iter().map(|x| f64::from(*x) - maximum - sum.ln()).collect();
                        assert_close(&values(log_softmax(x.clone(), 1)), &logs, tolerance, &what);
                        // Along the first axis too.
                        let column = softmax(x.clone().transpose(), 0);
                        assert_close(&values(column), &expected, tolerance / 10.0, &what);
                        if dtype != FloatDType::F32 {
                            continue;
                        }
                        let x = Tensor::<Grad, 2>::from_inner(x).require_grad();
                        let target = Tensor::<Grad, 1, Int>::zeros([1], &device);
                        let loss =
                            CrossEntropyLossConfig::new().init(&device).forward(x.clone(), target);
                        assert_close(&values(loss.clone().inner()), &[sum.ln()], 1e-5, &what);
                        let grad = values(x.grad(&loss.backward()).expect("a gradient"));
                        let expected: Vec<f64> = expected
                            .iter()
                            .enumerate()
                            .map(|(i, weight)| weight - f64::from(u8::from(i == 0)))
                            .collect();
                        assert_close(&grad, &expected, 1e-5, &what);
                    }
                }
            }
        }
    }
}

/// Attention of equal inputs: each value has the same weight, forward and backward.
fn assert_equal_weights(device: &WgslDevice, dtype: FloatDType, magnitude: f32, keys: usize) {
    let what = format!("{keys} keys of {magnitude} in {dtype:?} on {device}");
    for queries in [1, 8, 70] {
        let full = |rows: usize, value: f32| {
            let data = TensorData::new(vec![value; rows * 32], [1, 1, rows, 32]);
            Tensor::<Grad, 4>::from_data(data, device).cast(dtype).require_grad()
        };
        let (query, key, value) =
            (full(queries, magnitude), full(keys, magnitude), full(keys, 1000.0));
        let options = AttentionModuleOptions { scale: Some(1.0 / 32.0), ..Default::default() };
        let out = attention(query, key, value.clone(), None, None, options);
        let tolerance = if dtype == FloatDType::F32 { 1e-4 } else { 1e-2 };
        let expected = vec![1000.0; queries * 32];
        assert_close(&values(out.clone().inner()), &expected, tolerance, &what);
        let grad = values(value.grad(&out.sum().backward()).expect("a gradient"));
        let expected = vec![queries as f64 / keys as f64; keys * 32];
        assert_close(&grad, &expected, tolerance, &what);
    }
}

#[test]
fn attention_of_large_scores() {
    for device in devices() {
        for keys in [3, 100, 700] {
            // Scores are the squares.
            for magnitude in [31.6, 1000.0, 31_600.0, 1e9, 3e18] {
                assert_equal_weights(&device, FloatDType::F32, magnitude, keys);
                assert_equal_weights(&device, FloatDType::BF16, magnitude, keys);
            }
            assert_equal_weights(&device, FloatDType::F16, 100.0, keys);
        }
    }
}
