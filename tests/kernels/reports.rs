//! Kinds of wrong results that users reported of other frameworks: sums that stop growing, means that overflow, views
//! that are read or written in the wrong place, gradients that are lost. Each test names the reports; the right
//! values are counted, exact, or computed in f64 here.

use burn::nn::{BatchNormConfig, LayerNormConfig};
use burn::tensor::activation::{
    gelu, gelu_approximate, log_sigmoid, log_softmax, sigmoid, softmax, softplus, tanh,
};
use burn::tensor::backend::Backend;
use burn::tensor::module::{
    attention, avg_pool2d, conv_transpose2d, conv1d, conv2d, interpolate, linear, max_pool2d,
};
use burn::tensor::ops::{
    AttentionModuleOptions, ConvOptions, ConvTransposeOptions, InterpolateMode, InterpolateOptions,
    ModuleOps,
};
use burn::tensor::quantization::{QuantLevel, QuantScheme, QuantStore, QuantValue};
use burn::tensor::{
    Bool, Distribution, FloatDType, IndexingUpdateOp, Int, IntDType, Slice, Tensor, TensorData,
    TensorPrimitive,
};
use burn_wgsl::{Autodiff, Wgsl, WgslDevice, memory};

use crate::common::{devices, gpus, is_alone, serial_guard, test_alone};

type Grad = Autodiff<Wgsl>;

fn tensor<const D: usize>(
    values: Vec<f32>,
    shape: [usize; D],
    device: &WgslDevice,
) -> Tensor<Wgsl, D> {
    Tensor::from_data(TensorData::new(values, shape), device)
}

/// Returns a tensor of small integers, whose sums and products are exact.
fn numbers<const D: usize>(shape: [usize; D], device: &WgslDevice) -> Tensor<Wgsl, D> {
    tensor(small(shape.iter().product()), shape, device)
}

fn small(len: usize) -> Vec<f32> {
    (0..len).map(|i| (i * 5 % 7) as f32 - 3.0).collect()
}

fn int_tensor<const D: usize>(
    values: Vec<i32>,
    shape: [usize; D],
    device: &WgslDevice,
) -> Tensor<Wgsl, D, Int> {
    Tensor::from_data(TensorData::new(values, shape), device)
}

fn floats<const D: usize>(tensor: Tensor<Wgsl, D>) -> Vec<f32> {
    tensor.into_data().iter::<f32>().collect()
}

fn ints<const D: usize>(tensor: Tensor<Wgsl, D, Int>) -> Vec<i64> {
    tensor.into_data().iter::<i64>().collect()
}

fn bools<const D: usize>(tensor: Tensor<Wgsl, D, Bool>) -> Vec<bool> {
    tensor.into_data().iter::<bool>().collect()
}

/// Returns a tensor that gradients are computed of.
fn leaf<const D: usize>(tensor: Tensor<Wgsl, D>) -> Tensor<Grad, D> {
    Tensor::from_inner(tensor).require_grad()
}

fn gradient<const D: usize>(x: &Tensor<Grad, D>, loss: &Tensor<Grad, 1>) -> Vec<f32> {
    floats(x.grad(&loss.backward()).expect("a gradient"))
}

/// Asserts that numbers are right up to a relative error, or an absolute one where they are below 1.
fn assert_near(found: &[f32], expected: &[f64], tolerance: f64, what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        let found = f64::from(*found);
        let close = (found - expected).abs() <= tolerance * expected.abs().max(1.0);
        assert!(found == *expected || close, "{what}: {i}: {found}, not {expected}");
    }
}

/// pola-rs/polars#10553, tensorflow/tensorboard#5337: a sum of ones in f32 does not grow beyond 2^24 or 2^28.
#[test]
fn a_sum_of_ones_grows_beyond_what_a_float_counts() {
    for device in devices() {
        let x = tensor(vec![1.0; 4098], [1, 4098], &device).expand([4100, 4098]);
        assert_eq!(floats(x.clone().sum()), [16_801_800.0], "{device}");
        assert_eq!(floats(x.clone().mean()), [1.0], "{device}");
        assert_eq!(floats(x.sum_dim(1).sum_dim(0)), [16_801_800.0], "{device}");
    }
}

/// tracel-ai/burn#4770, numpy/numpy#7930: the mean of f16 is infinite where the sum is above 65504.
#[test]
fn a_mean_of_halves_is_finite_where_the_sum_is_not() {
    for device in devices() {
        let x = tensor(vec![1000.0; 256 * 300], [256, 300], &device).cast(FloatDType::F16);
        assert_eq!(floats(x.clone().mean()), [1000.0], "{device}");
        assert_eq!(floats(x.clone().mean_dim(0)), [1000.0; 300], "{device}");
        assert_eq!(floats(x.mean_dim(1)), [1000.0; 256], "{device}");
    }
}

/// microsoft/onnxruntime#29043, pytorch/pytorch#66707: layer norm in f16 squares deviations above 256 to infinity.
#[test]
fn layer_norm_of_halves_does_not_overflow() {
    for device in devices() {
        let values: Vec<f32> = (0..64).map(|i| (i % 5) as f32 * 1000.0 - 2000.0).collect();
        let half = |values: Vec<f32>, shape: [usize; 1]| {
            tensor(values, shape, &device).cast(FloatDType::F16)
        };
        let x = half(values.clone(), [64]).reshape([1, 64]);
        let primitive = |x: Tensor<Wgsl, 1>| x.into_primitive().tensor();
        let y = Wgsl::layer_norm(
            x.into_primitive().tensor(),
            primitive(half(vec![1.0; 64], [64])),
            Some(primitive(half(vec![0.0; 64], [64]))),
            1e-5,
        );
        let y = Tensor::<Wgsl, 2>::from_primitive(TensorPrimitive::Float(y));
        assert_near(&floats(y), &normalised(&values, 1e-5), 4e-3, &device.to_string());
    }
}

/// Returns numbers less their mean, divided by their standard deviation.
fn normalised(values: &[f32], epsilon: f64) -> Vec<f64> {
    let len = values.len() as f64;
    let mean = values.iter().map(|x| f64::from(*x)).sum::<f64>() / len;
    let variance = values.iter().map(|x| (f64::from(*x) - mean).powi(2)).sum::<f64>() / len;
    values.iter().map(|x| (f64::from(*x) - mean) / (variance + epsilon).sqrt()).collect()
}

/// tracel-ai/burn#5607, pytorch/pytorch#51102: layer norm computes the variance as E[x^2] - E[x]^2, which is noise
/// where the mean is large.
#[test]
fn layer_norm_is_right_at_a_large_mean() {
    for device in devices() {
        for mean in [0.0, 100.0, 1000.0, 10_000.0] {
            let values: Vec<f32> = (0..16).map(|i| mean + i as f32 / 64.0).collect();
            let norm = LayerNormConfig::new(16).init::<Wgsl>(&device);
            let y = norm.forward(tensor(values.clone(), [1, 16], &device));
            let what = format!("{mean} on {device}");
            assert_near(&floats(y), &normalised(&values, 1e-5), 0.02, &what);
        }
    }
}

/// tenstorrent/tt-metal#45968: batch norm in training is NaN where the mean is large and the variance is small.
#[test]
fn batch_norm_in_training_is_right_at_a_large_mean() {
    for device in devices() {
        // Two channels, which are rows of one sample.
        let row = |mean: f32| (0..256).map(move |i| mean + (i * 37 % 256) as f32 / 1024.0);
        let (first, second): (Vec<f32>, Vec<f32>) = (row(5000.0).collect(), row(-7.0).collect());
        let x = tensor([first.clone(), second.clone()].concat(), [1, 2, 256], &device);
        let norm = BatchNormConfig::new(2).init::<Grad>(&device);
        let y = norm.forward(leaf(x)).inner();
        let expected = [normalised(&first, 1e-5), normalised(&second, 1e-5)].concat();
        assert_near(&floats(y), &expected, 0.02, &device.to_string());
    }
}

/// tensorflow/tensorflow#56222, tensorflow/tensorflow#3290: the variance of equal numbers is negative, and its root
/// NaN.
#[test]
fn the_variance_of_equal_numbers_is_not_negative() {
    for device in devices() {
        for len in [7, 1001, 70_001] {
            let x = tensor(vec![0.214_441; len], [1, len], &device);
            let mean = f64::from(0.214_441_f32);
            for variance in [x.clone().var(1), x.clone().var_bias(1), x.clone().var_mean(1).0] {
                let deviation = variance.sqrt();
                assert_near(&floats(deviation), &[0.0], 1e-6, &format!("{len} on {device}"));
            }
            assert_near(&floats(x.mean_dim(1)), &[mean], 1e-6, &format!("{len} on {device}"));
        }
    }
}

/// dwavesystems/dwave-optimization#555, tensorflow/tensorflow#10142: softmax is NaN where exp overflows.
#[test]
fn softmax_of_large_scores_is_finite() {
    for device in devices() {
        for scores in [[800.0_f32, 1.0, 1.0], [1e30, 1e30, 1.0], [-1e30, -1e30, -1e30]] {
            let maximum = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let powers = scores.map(|x| f64::from(x - maximum).exp());
            let expected = powers.map(|power| power / powers.iter().sum::<f64>());
            let what = format!("{scores:?} on {device}");
            let x = tensor(scores.to_vec(), [1, 3], &device);
            assert_near(&floats(softmax(x.clone(), 1)), &expected, 1e-6, &what);
            assert_near(&floats(softmax(x.transpose(), 0)), &expected, 1e-6, &what);
        }
    }
}

/// Large scores in attention, as dwavesystems/dwave-optimization#555 has them in softmax.
#[test]
fn attention_with_large_scores_is_finite() {
    for device in devices() {
        let options = || AttentionModuleOptions { scale: Some(1.0), ..Default::default() };
        let row = |values: Vec<f32>| {
            let len = values.len();
            tensor(values, [1, 1, len, 1], &device)
        };
        let values = || row(vec![2.0, 4.0, 9.0]);
        let keys = row(vec![1.0, 3.0, 2.0]);
        let y = attention(row(vec![1000.0, -1000.0]), keys, values(), None, None, options());
        assert_near(&floats(y), &[4.0, 2.0], 1e-6, &device.to_string());
        // The scores are 1e38 and equal.
        let y = attention(row(vec![1e19]), row(vec![1e19; 3]), values(), None, None, options());
        assert_near(&floats(y), &[5.0], 1e-6, &device.to_string());
    }
}

/// tracel-ai/burn#4694, iree-org/iree#24175: attention of a query that sees no key is NaN.
#[test]
fn a_query_that_sees_no_key_gets_zeros() {
    for device in devices() {
        let x = || numbers([1, 1, 3, 2], &device);
        let hidden = vec![false, true, false, true, true, true, false, false, true];
        let hidden =
            Tensor::<Wgsl, 4, Bool>::from_data(TensorData::new(hidden, [1, 1, 3, 3]), &device);
        let options = AttentionModuleOptions { is_causal: true, ..Default::default() };
        let y = floats(attention(x(), x(), x(), Some(hidden), None, options));
        // The first query sees the first key only.
        assert_eq!(y[..4], [small(2), vec![0.0; 2]].concat(), "{device}");
        assert!(y.iter().all(|y| y.is_finite()), "{y:?} on {device}");
    }
}

/// pytorch/pytorch#31829, tinygrad/tinygrad#17853: scores of -inf make log softmax or its gradient NaN.
#[test]
fn infinite_scores_have_no_weight_and_no_gradient() {
    for device in devices() {
        let x = leaf(tensor(vec![1.0, f32::NEG_INFINITY, 1.0], [1, 3], &device));
        let half = -std::f64::consts::LN_2;
        let what = device.to_string();
        let logs = log_softmax(x.clone(), 1);
        let expected = [half, f64::NEG_INFINITY, half];
        assert_near(&floats(logs.clone().inner()), &expected, 1e-6, &what);
        assert_near(&floats(softmax(x.clone(), 1).inner()), &[0.5, 0.0, 0.5], 1e-6, &what);
        let loss = logs.slice([0..1, 0..1]).sum();
        assert_near(&gradient(&x, &loss), &[0.5, 0.0, -0.5], 1e-6, &what);
    }
}

/// tracel-ai/burn#4859, jax-ml/jax#6764, elixir-nx/nx#1499: argmax of a line with NaN is another index than that of
/// the first NaN, and depends on the length of the line.
#[test]
fn argmax_is_the_index_of_the_first_nan() {
    for device in devices() {
        for len in [5, 300, 1000, 5000] {
            let mut values = vec![0.0; 3 * len];
            // NaN at both ends, NaN at one, and ties.
            for i in [0, len - 1, len + len - 2] {
                values[i] = f32::NAN;
            }
            values[len] = f32::INFINITY;
            let x = tensor(values, [3, len], &device);
            let what = format!("{len} on {device}");
            assert_eq!(ints(x.clone().argmax(1)), [0, len as i64 - 2, 0], "{what}");
            assert_eq!(ints(x.clone().transpose().argmin(0)), [0, len as i64 - 2, 0], "{what}");
            let maxima = floats(x.max_dim(1));
            assert!(maxima[0].is_nan() && maxima[1].is_nan() && maxima[2] == 0.0, "{what}");
        }
    }
}

/// tracel-ai/burn#1427: minima and maxima of floats are wrong beyond 32767.
#[test]
fn extremes_are_right_at_any_magnitude() {
    for device in devices() {
        for scale in [1.0, 1e10, 1e34] {
            let x = tensor(vec![32_768.0 * scale, 32_767.0 * scale], [2], &device);
            assert_eq!(floats(x.clone().min()), [32_767.0 * scale], "{device}");
            assert_eq!(ints(x.clone().argmin(0)), [1], "{device}");
            assert_eq!(floats(x.clone().neg().max()), [-32_767.0 * scale], "{device}");
            assert_eq!(ints(x.neg().argmax(0)), [1], "{device}");
        }
    }
}

/// pytorch/pytorch#116567, tracel-ai/burn#4859: NaN is sorted somewhere in the middle, or first. GPUs only: burn-flex
/// has another order.
#[test]
fn nan_is_sorted_last() {
    for device in gpus() {
        for len in [6, 600, 6000] {
            let keys = [f32::NAN, 1.0, -1.0, f32::INFINITY, f32::NEG_INFINITY, 0.5];
            let x = tensor((0..len).map(|i| keys[i % 6]).collect(), [len], &device);
            let sorted = floats(x.clone().sort(0));
            let sixth = len / 6;
            assert!(sorted[5 * sixth..].iter().all(|x| x.is_nan()), "{len} on {device}");
            let others = [f32::NEG_INFINITY, -1.0, 0.5, 1.0, f32::INFINITY];
            let expected: Vec<f32> =
                others.iter().flat_map(|x| std::iter::repeat_n(*x, sixth)).collect();
            assert_eq!(sorted[..5 * sixth], expected, "{len} on {device}");
        }
    }
}

/// data-apis/array-api-compat#354, pytorch/pytorch#183885: equal elements change their order, and a sort along the
/// first of many columns returns wrong indices.
#[test]
fn sorting_keeps_the_order_of_equal_elements() {
    for device in devices() {
        for len in [30, 257, 5000] {
            let x = tensor(vec![10.0; len], [len], &device);
            let order: Vec<i64> = (0..len as i64).collect();
            assert_eq!(ints(x.clone().argsort(0)), order, "{len} on {device}");
            assert_eq!(ints(x.argsort_descending(0)), order, "{len} on {device}");
        }
        // Each column is 2, 1, 0 or 1, 0, 2.
        let columns = 70_001;
        let element = |i: usize| ((i / columns + i % columns % 2) * 2 + 2) % 3;
        let values = (0..3 * columns).map(|i| element(i) as f32).collect();
        let (values, indices) = tensor(values, [3, columns], &device).sort_with_indices(0);
        assert!(floats(values).iter().enumerate().all(|(i, x)| *x == (i / columns) as f32));
        let column =
            |i: usize| (0..3).position(|row| element(row * columns + i % columns) == i / columns);
        let wrong = ints(indices)
            .iter()
            .enumerate()
            .find(|(i, x)| column(*i) != Some(**x as usize))
            .map(|(i, _)| i);
        assert_eq!(wrong, None, "{device}");
    }
}

/// flagos-ai/FlagGems#758, pytorch/pytorch#132107: cumulative maxima lose NaN, and cumulative sums of infinities are
/// NaN.
#[test]
fn cumulative_ops_keep_nan_and_infinity() {
    for device in devices() {
        for len in [4, 300, 5000, 70_000] {
            let what = format!("{len} on {device}");
            let mut values: Vec<f32> = (0..len).map(|i| i as f32).collect();
            values[len / 2] = f32::NAN;
            let x = tensor(values, [len], &device);
            let maxima = floats(x.clone().cummax(0));
            assert!(maxima[..len / 2].iter().enumerate().all(|(i, x)| *x == i as f32), "{what}");
            assert!(maxima[len / 2..].iter().all(|x| x.is_nan()), "{what}");
            let minima = floats(x.cummin(0));
            assert!(minima[..len / 2].iter().all(|x| *x == 0.0), "{what}");
            assert!(minima[len / 2..].iter().all(|x| x.is_nan()), "{what}");
            let sums = tensor(vec![f32::INFINITY; len], [len], &device).cumsum(0);
            assert!(floats(sums).iter().all(|x| *x == f32::INFINITY), "{what}");
        }
    }
}

/// pytorch/pytorch#143486, tensorflow/tfjs#1867: cumulative sums of long axes, or of many lines, start again in
/// between.
#[test]
fn cumulative_sums_of_long_axes_are_exact() {
    for device in devices() {
        for [lines, len] in [[2, 1_000_003], [70_001, 9]] {
            let what = format!("{lines} of {len} on {device}");
            let x = tensor(vec![1.0; lines * len], [lines, len], &device);
            let wrong = floats(x.clone().cumsum(1))
                .iter()
                .enumerate()
                .find(|(i, x)| **x != (i % len + 1) as f32)
                .map(|(i, x)| (i, *x));
            assert_eq!(wrong, None, "{what}");
            let wrong = floats(x.reshape([len, lines]).cumsum(0))
                .iter()
                .enumerate()
                .find(|(i, x)| **x != (i / lines + 1) as f32)
                .map(|(i, x)| (i, *x));
            assert_eq!(wrong, None, "{what}");
        }
    }
}

/// tracel-ai/burn#3864: the gradient of cumprod divides by zero.
#[test]
fn the_gradient_of_cumprod_is_right_at_zeros() {
    for device in devices() {
        let x = leaf(tensor(vec![2.0, 0.0, 3.0, 4.0], [4], &device));
        let loss = x.clone().cumprod(0).sum();
        assert_eq!(gradient(&x, &loss), [1.0, 32.0, 0.0, 0.0], "{device}");
        let loss = x.clone().prod();
        assert_eq!(gradient(&x, &loss), [0.0, 24.0, 0.0, 0.0], "{device}");
    }
}

/// pytorch/pytorch#4132, pytorch/pytorch#108618: the gradient of x / 0 behind a mask is NaN. Here too, as
/// `docs/debugging.md` says; with the divisor masked as well, it is zero, and the other elements are right in both
/// cases.
#[test]
fn the_gradient_of_a_masked_division_by_zero() {
    for device in devices() {
        let x = leaf(tensor(vec![4.0, 0.0, -2.0], [3], &device));
        let is_zero = x.clone().equal_elem(0.0);
        let y = x.clone().recip().mask_fill(is_zero.clone(), 0.0);
        assert_eq!(floats(y.clone().inner()), [0.25, 0.0, -0.5], "{device}");
        let found = gradient(&x, &y.sum());
        assert_eq!([found[0], found[2]], [-0.0625, -0.25], "{device}");
        let divisor = x.clone().mask_fill(is_zero.clone(), 1.0);
        let y = divisor.recip().mask_fill(is_zero, 0.0);
        assert_eq!(gradient(&x, &y.sum()), [-0.0625, 0.0, -0.25], "{device}");
    }
}

/// tracel-ai/burn#5573, tracel-ai/burn#3513: a backward pass of one thread frees what another thread builds, whose
/// gradients are lost, or which panics.
#[test]
fn backward_passes_of_threads_do_not_lose_gradients() {
    for device in devices() {
        let shared = leaf(tensor(vec![3.0; 64], [64], &device));
        let compute = |factor: f32| {
            for round in 0..25 {
                let own = leaf(tensor(vec![2.0; 64], [64], &device));
                // The leaf is used again after a pass.
                drop(own.clone().sum().backward());
                let parts = vec![own.clone() * factor, shared.clone() * own.clone()];
                let grads = Tensor::cat(parts, 0).sum().backward();
                let found = floats(own.grad(&grads).expect("a gradient"));
                assert_eq!(found, [factor + 3.0; 64], "round {round} on {device}");
                let found = floats(shared.grad(&grads).expect("a gradient"));
                assert_eq!(found, [2.0; 64], "round {round} on {device}");
            }
        };
        std::thread::scope(|scope| {
            (1..7).for_each(|factor| drop(scope.spawn(move || compute(factor as f32))));
        });
    }
}

/// tracel-ai/burn#4339, tracel-ai/burn#2743, tracel-ai/burn#4970: memory grows with each pass that no backward pass
/// follows. Here the next backward pass of the network frees it.
#[test]
fn passes_without_a_backward_pass_keep_no_memory_for_good() {
    if !is_alone(test_alone!("passes_without_a_backward_pass_keep_no_memory_for_good")) {
        return;
    }
    for device in gpus() {
        let used = || memory::usage(&device).expect("the device opens").in_use;
        let weight = leaf(tensor(vec![1.0; 512], [1, 512], &device));
        let x = Tensor::<Grad, 2>::from_inner(tensor(vec![1.0; 1 << 20], [2048, 512], &device));
        let pass = || (x.clone() * weight.clone()).exp().sum();
        drop(pass().backward());
        let before = used();
        for _ in 0..60 {
            assert!(floats(pass().inner())[0] > 1e6, "{device}");
            drop(pass().backward());
        }
        // A pass keeps 4 MiB.
        let grown = used().saturating_sub(before);
        assert!(grown < 120 << 20, "{grown} bytes on {device}");
    }
}

/// ggml-org/llama.cpp#19965, sonos/tract#2820, tensorflow/tfjs#5432: a kernel of more than 65535 workgroups fails or
/// writes a part of its result.
#[test]
fn ops_of_more_than_65535_lines_are_complete() {
    for device in devices() {
        let lines = 70_001;
        let x = tensor((0..lines * 3).map(|i| (i % 3) as f32).collect(), [lines, 3], &device);
        let all = |found: Vec<f32>, expected: &[f32], what: &str| {
            assert_eq!(found.len(), lines * expected.len(), "{what} on {device}");
            let wrong = found
                .chunks(expected.len())
                .position(|line| line.iter().zip(expected).any(|(x, y)| (x - y).abs() > 1e-6));
            assert_eq!(wrong, None, "{what} on {device}");
        };
        all(floats(x.clone().sum_dim(1)), &[3.0], "sum_dim");
        all(floats(x.clone().sort_descending(1)), &[2.0, 1.0, 0.0], "sort");
        all(floats(x.clone().cumsum(1)), &[0.0, 1.0, 3.0], "cumsum");
        let powers = [0_f64, 1.0, 2.0].map(f64::exp);
        let expected = powers.map(|power| (power / powers.iter().sum::<f64>()) as f32);
        all(floats(softmax(x.clone(), 1)), &expected, "softmax");
        let rows = x.clone().reshape([lines, 1, 3]);
        all(floats(rows.clone().matmul(rows.swap_dims(1, 2))), &[5.0], "matmul");
        // More than 65535 groups of 64 elements.
        let len = (1 << 22) + 5;
        let x = Tensor::<Wgsl, 1>::ones([len], &device).cumsum(0) * 2.0 + 1.0;
        let wrong = floats(x).iter().enumerate().position(|(i, x)| *x != (2 * i + 3) as f32);
        assert_eq!(wrong, None, "elements on {device}");
    }
}

/// pytorch/pytorch#96225: the gradients of a convolution are wrong where the batch is 2^16 or more.
#[test]
fn the_gradient_of_a_convolution_counts_every_sample() {
    for device in devices() {
        for batch in [65_535, 65_536, 65_537] {
            let x = leaf(tensor(vec![1.0; batch], [batch, 1, 1], &device));
            let weight = leaf(tensor(vec![2.0], [1, 1, 1], &device));
            let loss =
                conv1d(x.clone(), weight.clone(), None, ConvOptions::new([1], [0], [1], 1)).sum();
            let grads = loss.backward();
            let found = floats(weight.grad(&grads).expect("a gradient"));
            assert_eq!(found, [batch as f32], "{batch} on {device}");
            let found = floats(x.grad(&grads).expect("a gradient"));
            assert!(found.len() == batch && found.iter().all(|x| *x == 2.0), "{batch} on {device}");
        }
    }
}

/// pytorch/pytorch#96982: a convolution with a kernel of 65536 elements returns zeros.
#[test]
fn a_convolution_with_a_long_kernel_sums_all_of_it() {
    for device in devices() {
        for len in [65_536, 70_003] {
            let x = tensor(vec![1.0; len + 10], [1, 1, len + 10], &device);
            let weight = tensor(vec![1.0; len], [1, 1, len], &device);
            let y = conv1d(x, weight, None, ConvOptions::new([1], [0], [1], 1));
            assert_eq!(floats(y), vec![len as f32; 11], "{len} on {device}");
        }
    }
}

/// A convolution of two axes, or a transposed one, by counting.
struct Taps {
    /// The shape of the result.
    shape: [usize; 4],
    /// The places of an element of the result, and of the elements of the input and the weight whose product it adds.
    places: Vec<[usize; 3]>,
}

impl Taps {
    /// Returns the taps of a convolution, where `transposed` is `None`, or of a transposed one with an output
    /// padding.
    fn of(
        x: [usize; 4],
        weight: [usize; 4],
        [stride, padding, dilation, groups]: [usize; 4],
        transposed: Option<usize>,
    ) -> Self {
        let size = |x: usize, kernel: usize| match transposed {
            None => (x + 2 * padding - dilation * (kernel - 1) - 1) / stride + 1,
            Some(extra) => (x - 1) * stride + dilation * (kernel - 1) + extra + 1 - 2 * padding,
        };
        let channels = if transposed.is_some() { weight[1] * groups } else { weight[0] };
        let shape = [x[0], channels, size(x[2], weight[2]), size(x[3], weight[3])];
        let place = |shape: [usize; 4], [a, b, c, d]: [usize; 4]| {
            ((a * shape[1] + b) * shape[2] + c) * shape[3] + d
        };
        // The place along an axis of the larger image, for a place of the smaller one and of the kernel.
        let along = |small: usize, kernel: usize, len: usize| {
            (small * stride + kernel * dilation).checked_sub(padding).filter(|large| *large < len)
        };
        let mut places = Vec::new();
        let small = if transposed.is_some() { x } else { shape };
        let large = if transposed.is_some() { shape } else { x };
        for (n, s, c) in (0..x[0])
            .flat_map(|n| (0..small[1]).map(move |s| (n, s)))
            .flat_map(|(n, s)| (0..weight[1]).map(move |c| (n, s, c)))
        {
            let l = s / (small[1] / groups) * weight[1] + c;
            for (row, column) in (0..small[2]).flat_map(|r| (0..small[3]).map(move |c| (r, c))) {
                for (i, j) in (0..weight[2]).flat_map(|i| (0..weight[3]).map(move |j| (i, j))) {
                    let (Some(y), Some(z)) = (along(row, i, large[2]), along(column, j, large[3]))
                    else {
                        continue;
                    };
                    let small = place(small, [n, s, row, column]);
                    let large = place(large, [n, l, y, z]);
                    let weight = place(weight, [s, c, i, j]);
                    places.push(match transposed {
                        Some(_) => [large, small, weight],
                        None => [small, large, weight],
                    });
                }
            }
        }
        Self { shape, places }
    }

    /// Returns the sums of the products of the elements at two of the three places.
    fn sums(&self, result: usize, len: usize, [a, b]: [(usize, &[f32]); 2]) -> Vec<f64> {
        let mut sums = vec![0.0; len];
        for places in &self.places {
            sums[places[result]] += f64::from(a.1[places[a.0]]) * f64::from(b.1[places[b.0]]);
        }
        sums
    }
}

/// Checks a convolution of small integers and its gradients.
fn check_conv(x: [usize; 4], weight: [usize; 4], options: [usize; 4], transposed: Option<usize>) {
    let taps = Taps::of(x, weight, options, transposed);
    let lens = [taps.shape, x, weight].map(|shape| shape.iter().product::<usize>());
    let [result, image, kernel] = lens.map(small);
    let [stride, padding, dilation, groups] = options;
    for device in devices() {
        let what = format!("{x:?} * {weight:?}, {options:?}, {transposed:?} on {device}");
        let input = leaf(tensor(image.clone(), x, &device));
        let weights = leaf(tensor(kernel.clone(), weight, &device));
        let y = match transposed {
            None => {
                let options = ConvOptions::new([stride; 2], [padding; 2], [dilation; 2], groups);
                conv2d(input.clone(), weights.clone(), None, options)
            }
            Some(extra) => {
                let options = ConvTransposeOptions::new(
                    [stride; 2],
                    [padding; 2],
                    [extra; 2],
                    [dilation; 2],
                    groups,
                );
                conv_transpose2d(input.clone(), weights.clone(), None, options)
            }
        };
        assert_eq!(y.dims(), taps.shape, "{what}");
        let expected = taps.sums(0, lens[0], [(1, &image), (2, &kernel)]);
        assert_near(&floats(y.clone().inner()), &expected, 1e-5, &what);
        let factors = Tensor::from_inner(tensor(result.clone(), taps.shape, &device));
        let grads = (y * factors).sum().backward();
        let expected = taps.sums(1, lens[1], [(0, &result), (2, &kernel)]);
        assert_near(&floats(input.grad(&grads).expect("a gradient")), &expected, 1e-5, &what);
        let expected = taps.sums(2, lens[2], [(0, &result), (1, &image)]);
        assert_near(&floats(weights.grad(&grads).expect("a gradient")), &expected, 1e-5, &what);
    }
}

/// tensorflow/tfjs#6263, pytorch/executorch#7595: convolutions of each channel are wrong where the kernel is dilated,
/// or where the stride is not the dilation.
#[test]
fn dilated_convolutions_of_each_channel() {
    for options in [[1, 2, 2, 6], [2, 1, 1, 6], [2, 3, 3, 6], [3, 0, 2, 6]] {
        check_conv([2, 6, 11, 9], [6, 1, 3, 3], options, None);
    }
    // Two filters for each channel.
    check_conv([1, 3, 8, 8], [6, 1, 3, 3], [2, 2, 2, 3], None);
}

/// tracel-ai/burn#1891, pytorch/pytorch#51430: the gradient of the weight is wrong where the convolution has groups
/// and a stride.
#[test]
fn gradients_of_convolutions_with_groups() {
    check_conv([1, 4, 4, 4], [4, 1, 3, 3], [2, 1, 1, 4], None);
    check_conv([3, 6, 7, 5], [4, 3, 3, 2], [2, 1, 1, 2], None);
    // The padding is larger than the kernel.
    check_conv([1, 4, 2, 2], [2, 2, 1, 1], [2, 3, 1, 2], None);
}

/// huggingface/candle#2337: the gradient of a transposed convolution confuses stride and dilation.
#[test]
fn gradients_of_transposed_convolutions_with_a_stride() {
    for (options, extra) in
        [([2, 0, 1, 1], 0), ([2, 1, 1, 2], 1), ([1, 1, 2, 1], 0), ([3, 2, 2, 2], 2)]
    {
        let groups = options[3];
        check_conv([2, 4, 5, 4], [4, 6 / groups, 3, 3], options, Some(extra));
    }
}

/// FluxML/NNlib.jl#763, pytorch/pytorch#187399: an empty batch crashes, or its gradient is not zero.
#[test]
fn an_empty_batch_has_a_gradient_of_zeros() {
    for device in devices() {
        let x = leaf(tensor(vec![], [0, 2, 5, 5], &device));
        let weight = leaf(numbers([3, 2, 3, 3], &device));
        let y = conv2d(x, weight.clone(), None, ConvOptions::new([1, 1], [0, 0], [1, 1], 1));
        assert_eq!(y.dims(), [0, 3, 3, 3], "{device}");
        assert_eq!(gradient(&weight, &y.sum()), [0.0; 54], "{device}");
        let weight = leaf(numbers([4, 3], &device));
        let y = leaf(tensor(vec![], [0, 4], &device)).matmul(weight.clone());
        assert_eq!(y.dims(), [0, 3], "{device}");
        assert_eq!(gradient(&weight, &y.sum()), [0.0; 12], "{device}");
    }
}

/// pytorch/pytorch#190050: a product over no elements aborts.
#[test]
fn a_product_over_no_elements_is_zero() {
    for device in devices() {
        let [x, weight] =
            [[3_usize, 0], [0, 5]].map(|shape| Tensor::<Wgsl, 2>::zeros(shape, &device));
        assert_eq!(floats(x.clone().matmul(weight.clone())), [0.0; 15], "{device}");
        let bias = numbers([5], &device);
        assert_eq!(floats(linear(x, weight, Some(bias))), small(5).repeat(3), "{device}");
    }
}

/// tracel-ai/burn#5310, tracel-ai/burn#5293: reductions of no elements panic, in f16 too.
#[test]
fn reductions_of_no_elements_have_a_value() {
    for device in devices() {
        for dtype in [FloatDType::F32, FloatDType::F16] {
            let what = format!("{dtype:?} on {device}");
            let x = tensor(vec![], [3, 0], &device).cast(dtype);
            assert_eq!(floats(x.clone().sum()), [0.0], "{what}");
            assert_eq!(floats(x.clone().sum_dim(1)), [0.0; 3], "{what}");
            assert_eq!(floats(x.clone().prod_dim(1)), [1.0; 3], "{what}");
            assert!(floats(x.clone().mean()).iter().all(|x| x.is_nan()), "{what}");
            assert_eq!(x.sum_dim(0).dims(), [1, 0], "{what}");
        }
        // Nothing is selected.
        let x = leaf(numbers([4, 3], &device));
        let none =
            Tensor::<Grad, 1, Int>::from_data(TensorData::new(Vec::<i32>::new(), [0]), &device);
        let loss = x.clone().select(0, none).sum() + x.clone().slice([0..1, 0..1]).sum();
        let mut expected = [0.0_f32; 12];
        expected[0] = 1.0;
        assert_eq!(gradient(&x, &loss), expected, "{device}");
    }
}

/// tracel-ai/burn#5604, pytorch/pytorch#198119: the last window of an average with ceil_mode has fewer elements, but
/// its gradient is divided by the size of a full window.
#[test]
fn the_last_window_of_an_average_with_ceil_mode() {
    for device in devices() {
        for include in [true, false] {
            let x = leaf(tensor(vec![1.0, 2.0, 3.0, 4.0, 5.0], [1, 1, 1, 5], &device));
            let y = avg_pool2d(x.clone(), [1, 2], [1, 2], [0, 0], include, true);
            assert_eq!(floats(y.clone().inner()), [1.5, 3.5, 5.0], "{include} on {device}");
            let found = gradient(&x, &y.sum());
            assert_eq!(found, [0.5, 0.5, 0.5, 0.5, 1.0], "{include} on {device}");
        }
        // Padding counts, or does not.
        let x = tensor(vec![1.0, 2.0, 6.0], [1, 1, 1, 3], &device);
        let y = |include| floats(avg_pool2d(x.clone(), [1, 3], [1, 1], [0, 1], include, false));
        assert_near(&y(true), &[1.0, 3.0, 8.0 / 3.0], 1e-6, &device.to_string());
        assert_near(&y(false), &[1.5, 3.0, 4.0], 1e-6, &device.to_string());
    }
}

/// tracel-ai/burn#5791, pytorch/pytorch#45357: with ceil_mode, a window of a maximum has padding only. Its maximum is
/// -inf and has no gradient; the others are right.
#[test]
fn maxima_of_windows_with_padding() {
    for device in devices() {
        let x = leaf(tensor(vec![-5.0, -4.0, -3.0, -2.0, -1.0], [1, 1, 1, 5], &device));
        let y = max_pool2d(x.clone(), [1, 2], [1, 2], [0, 1], [1, 1], true);
        let found = floats(y.clone().inner());
        assert_eq!(found[..3], [-5.0, -3.0, -1.0], "{device}");
        assert!(found[3..].iter().all(|y| *y == f32::NEG_INFINITY), "{found:?} on {device}");
        let loss = y.slice([0..1, 0..1, 0..1, 0..3]).sum();
        assert_eq!(gradient(&x, &loss), [1.0, 0.0, 1.0, 0.0, 1.0], "{device}");
        // Dilated windows: elements 0 and 2, 1 and 3, 2 and 4.
        let y = max_pool2d(x.clone(), [1, 2], [1, 1], [0, 0], [1, 2], false);
        assert_eq!(floats(y.inner()), [-3.0, -2.0, -1.0], "{device}");
    }
}

/// tracel-ai/burn#4510, antimora/burn-flex#7: bilinear interpolation ignores whether corners are aligned.
#[test]
fn interpolation_with_and_without_aligned_corners() {
    for device in devices() {
        let resize = |x: Vec<f32>, len: usize, aligned: bool| {
            let width = x.len();
            let options =
                InterpolateOptions::new(InterpolateMode::Bilinear).with_align_corners(aligned);
            floats(interpolate(tensor(x, [1, 1, 1, width], &device), [1, len], options))
        };
        let what = device.to_string();
        assert_near(&resize(vec![0.0, 1.0], 4, false), &[0.0, 0.25, 0.75, 1.0], 1e-6, &what);
        let expected = [0.0, 5.0, 10.0, 15.0, 20.0];
        assert_near(&resize(vec![0.0, 10.0, 20.0], 5, true), &expected, 1e-6, &what);
        // To one element, which is the first, or the middle.
        assert_near(&resize(vec![3.0, 10.0, 20.0], 1, true), &[3.0], 1e-6, &what);
        assert_near(&resize(vec![3.0, 10.0, 20.0], 1, false), &[10.0], 1e-6, &what);
        // A line stays a line, to its last element.
        let line: Vec<f32> = (0..1001).map(|i| i as f32).collect();
        let expected: Vec<f64> = (0..4001).map(|i| f64::from(i) / 4.0).collect();
        assert_near(&resize(line, 4001, true), &expected, 1e-5, &what);
    }
}

/// tensorflow/tfjs#7373, awxkee/pic-scale-safe#13: nearest interpolation rounds, and takes the neighbour of the
/// element.
#[test]
fn nearest_interpolation_takes_whole_indices() {
    for device in devices() {
        for [width, len] in [[3, 7], [2, 98], [5, 35], [49, 7], [1000, 3000], [7, 5]] {
            let what = format!("{width} to {len} on {device}");
            let x = tensor((0..width).map(|i| i as f32).collect(), [1, 1, 1, width], &device);
            let options =
                InterpolateOptions::new(InterpolateMode::Nearest).with_align_corners(false);
            let x = leaf(x);
            let y = interpolate(x.clone(), [1, len], options);
            let sources: Vec<usize> = (0..len).map(|i| i * width / len).collect();
            let expected: Vec<f32> = sources.iter().map(|i| *i as f32).collect();
            assert_eq!(floats(y.clone().inner()), expected, "{what}");
            let mut counts = vec![0.0; width];
            sources.iter().for_each(|i| counts[*i] += 1.0);
            assert_eq!(gradient(&x, &y.sum()), counts, "{what}");
        }
    }
}

/// Returns the product of two matrices of small integers.
fn product(a: &[f32], b: &[f32], [m, k, n]: [usize; 3]) -> Vec<f32> {
    let element = |i: usize| (0..k).map(|j| a[i / n * k + j] * b[j * n + i % n]).sum();
    (0..m * n).map(element).collect()
}

/// tracel-ai/burn#4966: a product is near zero where the first matrix has 500 rows or more.
#[test]
fn products_of_many_rows() {
    for device in devices() {
        for [m, k, n] in [[499, 33, 17], [513, 64, 40], [1025, 7, 5]] {
            let (a, b) = (small(m * k), small(k * n));
            let expected = product(&a, &b, [m, k, n]);
            let y = tensor(a, [m, k], &device).matmul(tensor(b, [k, n], &device));
            assert_eq!(floats(y), expected, "{m} {k} {n} on {device}");
        }
    }
}

/// tracel-ai/burn#5304, tracel-ai/burn#4256: a product with a transposed matrix is wrong, or panics.
#[test]
fn products_of_transposed_matrices() {
    for device in devices() {
        for [m, k, n] in [[3, 2, 2], [65, 33, 70], [1, 300, 5], [130, 1, 1]] {
            let (a, b) = (small(m * k), small(k * n));
            let what = format!("{m} {k} {n} on {device}");
            let flipped = |values: &[f32], rows: usize, columns: usize| {
                let values = (0..rows * columns).map(|i| values[i % rows * columns + i / rows]);
                tensor(values.collect(), [columns, rows], &device).transpose()
            };
            let expected = product(&a, &b, [m, k, n]);
            let (lhs, rhs) = (flipped(&a, m, k), flipped(&b, k, n));
            assert_eq!(floats(lhs.clone().matmul(tensor(b, [k, n], &device))), expected, "{what}");
            assert_eq!(floats(tensor(a, [m, k], &device).matmul(rhs.clone())), expected, "{what}");
            assert_eq!(floats(lhs.matmul(rhs)), expected, "{what}");
        }
    }
}

/// huggingface/candle#3960, tracel-ai/burn#1646: products of a broadcast batch are zero in part, or panic.
#[test]
fn products_of_broadcast_batches() {
    for device in devices() {
        let [m, k, n] = [5, 6, 7];
        let (a, b) = (small(3 * m * k), small(4 * k * n));
        let mut expected = Vec::new();
        for (i, j) in (0..3).flat_map(|i| (0..4).map(move |j| (i, j))) {
            let (a, b) = (&a[i * m * k..(i + 1) * m * k], &b[j * k * n..(j + 1) * k * n]);
            expected.extend(product(a, b, [m, k, n]));
        }
        let lhs = tensor(a, [3, 1, m, k], &device);
        let rhs = tensor(b, [1, 4, k, n], &device);
        assert_eq!(floats(lhs.clone().matmul(rhs.clone())), expected, "{device}");
        let [lhs, rhs] = [lhs.expand([3, 4, m, k]), rhs.expand([3, 4, k, n])];
        assert_eq!(floats(lhs.clone().matmul(rhs.clone())), expected, "{device}");
        // (b^T a^T)^T is a b.
        let y = rhs.swap_dims(2, 3).matmul(lhs.swap_dims(2, 3)).swap_dims(2, 3);
        assert_eq!(floats(y), expected, "{device}");
    }
}

/// huggingface/candle#3710, huggingface/candle#3711: select and gather of a transposed tensor read other elements.
#[test]
fn select_and_gather_of_views() {
    for device in devices() {
        let element = |row: usize, column: usize| (column * 17 + row) as f32;
        let x = tensor((0..40 * 17).map(|i| i as f32).collect(), [40, 17], &device).transpose();
        let rows = [16_usize, 0, 5, 5];
        let indices = int_tensor(rows.map(|row| row as i32).to_vec(), [4], &device);
        let expected: Vec<f32> =
            rows.iter().flat_map(|row| (0..40).map(|column| element(*row, column))).collect();
        assert_eq!(floats(x.clone().select(0, indices.clone())), expected, "{device}");
        // A row, and a part of the columns.
        let part = x.clone().slice([0..17, 7..9]);
        let expected: Vec<f32> =
            rows.iter().flat_map(|row| [element(*row, 7), element(*row, 8)]).collect();
        assert_eq!(floats(part.clone().select(0, indices.clone())), expected, "{device}");
        let indices = indices.unsqueeze_dim::<2>(1).expand([4, 2]);
        assert_eq!(floats(part.gather(0, indices)), expected, "{device}");
    }
}

/// huggingface/candle#3357, huggingface/candle#1951: indices of 64 bits are not read, or read as 32 bits.
#[test]
fn indices_of_any_width() {
    for device in devices() {
        for dtype in [IntDType::I64, IntDType::I32] {
            let x = numbers([6, 2], &device);
            let indices = int_tensor(vec![5, 1, 5], [3], &device).cast(dtype);
            let expected: Vec<f32> = [5, 1, 5_usize]
                .into_iter()
                .flat_map(|i| [small(12)[2 * i], small(12)[2 * i + 1]])
                .collect();
            let what = format!("{dtype:?} on {device}");
            assert_eq!(floats(x.clone().select(0, indices.clone())), expected, "{what}");
            let columns = indices.unsqueeze_dim::<2>(1).expand([3, 2]);
            assert_eq!(floats(x.gather(0, columns.clone())), expected, "{what}");
            let zeros = Tensor::<Wgsl, 2>::zeros([6, 2], &device);
            let ones = Tensor::<Wgsl, 2>::ones([3, 2], &device);
            let counts = zeros.scatter(0, columns, ones, IndexingUpdateOp::Add);
            let expected = [0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 2.0, 2.0];
            assert_eq!(floats(counts), expected, "{what}");
        }
    }
}

/// tracel-ai/burn#5296, tracel-ai/burn#4069, tenstorrent/tt-metal#53386: gradients of elements that are read more
/// than once overwrite each other.
#[test]
fn gradients_of_repeated_indices_add_up() {
    for device in devices() {
        let len = 5000;
        let x = leaf(numbers([4, 3], &device));
        let rows: Vec<i32> = (0..len).map(|i| [1, 3, 3, 1, 3][i % 5]).collect();
        let indices = Tensor::<Grad, 1, Int>::from_data(TensorData::new(rows, [len]), &device);
        let counts = [0.0_f32, 2000.0, 0.0, 3000.0].map(|count| [count; 3]).concat();
        let loss = x.clone().select(0, indices.clone()).sum();
        assert_eq!(gradient(&x, &loss), counts, "{device}");
        let columns = indices.unsqueeze_dim::<2>(1).expand([len, 3]);
        let loss = x.clone().gather(0, columns).sum();
        assert_eq!(gradient(&x, &loss), counts, "{device}");
        // Windows that overlap: elements are in 1, 2, 3, 3, 2 and 1 of them.
        let x = leaf(numbers([6], &device));
        let windows: Tensor<Grad, 2> = x.clone().unfold(0, 3, 1);
        assert_eq!(gradient(&x, &windows.sum()), [1.0, 2.0, 3.0, 3.0, 2.0, 1.0], "{device}");
    }
}

/// tracel-ai/burn#4069: the gradient of cat is taken from the place of another operand, where some need none.
#[test]
fn the_gradient_of_one_operand_of_cat() {
    for device in devices() {
        let constant = |len| Tensor::<Grad, 1>::from_inner(numbers([len], &device));
        let x = leaf(numbers([3], &device));
        let factors = tensor((0..9).map(|i| i as f32).collect(), [9], &device);
        let y = Tensor::cat(vec![constant(4), x.clone(), constant(2)], 0);
        let loss = (y * Tensor::from_inner(factors)).sum();
        assert_eq!(gradient(&x, &loss), [4.0, 5.0, 6.0], "{device}");
    }
}

/// pytorch/pytorch#114302: an update of an expanded tensor is written to each element that shares its memory.
#[test]
fn an_update_of_an_expanded_tensor_changes_one_element() {
    for device in devices() {
        let x = numbers([1, 6], &device);
        let y = x.clone().expand([3, 6]);
        let z = y.clone().slice_assign([1..2, 2..3], tensor(vec![50.0], [1, 1], &device));
        let mut expected = small(6).repeat(3);
        assert_eq!(floats(y.clone()), expected, "{device}");
        expected[8] = 50.0;
        assert_eq!(floats(z), expected, "{device}");
        assert_eq!(floats(x), small(6), "{device}");
        // The only handle of an expanded tensor.
        let y = numbers([6], &device).reshape([1, 6]).expand([3, 6]);
        let indices = int_tensor(vec![2; 6], [1, 6], &device);
        let ones = Tensor::<Wgsl, 2>::ones([1, 6], &device);
        let y = y.scatter(0, indices, ones, IndexingUpdateOp::Add);
        let last: Vec<f32> = small(6).iter().map(|x| x + 1.0).collect();
        assert_eq!(floats(y), [small(6), small(6), last].concat(), "{device}");
    }
}

/// ml-explore/mlx#4444: the gradient of a slice with a step is added to elements between.
#[test]
fn the_gradient_of_a_slice_with_a_step() {
    for device in devices() {
        let x = leaf(Tensor::<Wgsl, 2>::zeros([2, 3], &device));
        let factors = |first: f32| {
            Tensor::<Grad, 2>::from_inner(tensor(
                vec![first, first + 1.0, first + 2.0],
                [1, 3],
                &device,
            ))
        };
        let even = x.clone().slice([Slice::new(0, None, 2)]) * factors(1.0);
        let odd = x.clone().slice([Slice::new(1, None, 2)]) * factors(100.0);
        let loss = even.sum() + odd.sum();
        assert_eq!(gradient(&x, &loss), [1.0, 2.0, 3.0, 100.0, 101.0, 102.0], "{device}");
        // A negative step starts at the end.
        let x = leaf(numbers([5], &device));
        let y = x.clone().slice([Slice::new(0, None, -2)]);
        let expected: Vec<f32> = [4, 2, 0].iter().map(|i| small(5)[*i]).collect();
        assert_eq!(floats(y.clone().inner()), expected, "{device}");
        let factors = tensor(vec![1.0, 2.0, 3.0], [3], &device);
        let loss = (y * Tensor::from_inner(factors)).sum();
        assert_eq!(gradient(&x, &loss), [3.0, 0.0, 2.0, 0.0, 1.0], "{device}");
    }
}

/// ml-explore/mlx#4528: reductions of reversed views are wrong along an axis in the middle.
#[test]
fn reductions_of_reversed_views() {
    for device in devices() {
        for [a, b, c] in [[2, 1024, 16], [2, 512, 64], [3, 70, 5]] {
            let values: Vec<f32> = (0..a * b * c).map(|i| (i % 101) as f32).collect();
            let mut sums = vec![0.0_f32; a * c];
            for (i, x) in values.iter().enumerate() {
                sums[(a - 1 - i / (b * c)) * c + i % c] += x;
            }
            let x = tensor(values, [a, b, c], &device).flip([0]);
            assert_eq!(floats(x.clone().sum_dim(1)), sums, "{a} {b} {c} on {device}");
            assert_eq!(floats(x.flip([1]).sum_dim(1)), sums, "{a} {b} {c} on {device}");
        }
    }
}

/// pytorch/pytorch#132732: a sum along an axis of size 1 adds elements of another axis.
#[test]
fn sums_along_axes_of_size_one() {
    for device in devices() {
        for axis in [0, 2, 3, 4] {
            let x = numbers([1, 2, 1, 1, 1], &device);
            assert_eq!(floats(x.clone().sum_dim(axis)), small(2), "{axis} on {device}");
            assert_eq!(floats(x.clone().max_dim(axis)), small(2), "{axis} on {device}");
            assert_eq!(floats(x.cumsum(axis)), small(2), "{axis} on {device}");
        }
        let x = numbers([1, 2, 1, 1, 1], &device).sum_dim(1);
        assert_eq!(floats(x), [small(2).iter().sum::<f32>()], "{device}");
    }
}

/// pytorch/pytorch#185663, ml-explore/mlx#3138: a product of indices above 2^31 or 2^32 wraps. GPUs only; the view
/// has almost 2^32 elements, and no memory of its own.
#[test]
fn indices_beyond_two_to_the_power_of_31() {
    for device in gpus() {
        // Fewer than 2^32 elements.
        let len = 65_400;
        let x = tensor((0..len).map(|i| i as f32).collect(), [1, len], &device);
        let part = x.expand([len, len]).slice([len - 2..len, len - 3..len]);
        let last = [65_397.0_f32, 65_398.0, 65_399.0];
        assert_eq!(floats(part * 1.0), [last, last].concat(), "{device}");
        // The other axis has all of the elements.
        let x = tensor((0..len).map(|i| i as f32).collect(), [len, 1], &device);
        let part = x.expand([len, len]).slice([len - 3..len, len - 2..len]);
        let expected = last.map(|x| [x; 2]).concat();
        assert_eq!(floats(part * 1.0), expected, "{device}");
    }
}

/// dropbox/hqq#159, ml-explore/mlx#1028: equal numbers, or zeros, quantise to NaN.
#[test]
fn equal_numbers_survive_quantisation() {
    for device in devices() {
        for level in [QuantLevel::Tensor, QuantLevel::block([4])] {
            let scheme = QuantScheme::default()
                .with_value(QuantValue::Q8S)
                .with_level(level)
                .with_store(QuantStore::Native);
            for value in [0.0, 5.0, -9.0, 1e-3] {
                let x = tensor(vec![value; 32], [4, 8], &device);
                let found = floats(x.quantize_dynamic(&scheme).dequantize());
                let what = format!("{value} on {device}");
                assert_near(&found, &[f64::from(value); 32], 1e-5, &what);
            }
            // An error of at most half a step.
            let values: Vec<f32> = (0..32).map(|i| i as f32 - 15.5).collect();
            let x = tensor(values.clone(), [4, 8], &device);
            let found = floats(x.quantize_dynamic(&scheme).dequantize());
            let far = found.iter().zip(&values).find(|(x, y)| (*x - *y).abs() > 16.0 / 254.0);
            assert_eq!(far, None, "{device}");
        }
    }
}

/// tracel-ai/burn#3029, pytorch/pytorch#2740, NVIDIA/Fuser#1653: uniform numbers include the upper bound, and normal
/// numbers are infinite.
#[test]
fn random_numbers_are_within_their_bounds() {
    let _guard = serial_guard();
    for device in devices() {
        let len = 1 << 20;
        let draw = |distribution| Tensor::<Wgsl, 1>::random([len], distribution, &device);
        let uniform = floats(draw(Distribution::Default));
        assert!(uniform.iter().all(|x| (0.0..1.0).contains(x)), "{device}");
        // Half of the numbers round to the upper bound.
        let uniform = floats(draw(Distribution::Uniform(16_777_215.0, 16_777_216.0)));
        assert!(uniform.iter().all(|x| *x == 16_777_215.0), "{device}");
        let normal = floats(draw(Distribution::Normal(0.0, 1.0)));
        assert!(normal.iter().all(|x| x.is_finite()), "{device}");
        let sum: f64 = normal.iter().map(|x| f64::from(*x)).sum();
        let squares: f64 = normal.iter().map(|x| f64::from(*x).powi(2)).sum();
        assert!((sum / len as f64).abs() < 0.01, "{sum} on {device}");
        assert!((squares / len as f64 - 1.0).abs() < 0.01, "{squares} on {device}");
        // The same seed gives the same numbers, in any shape.
        Wgsl::seed(&device, 7);
        let line = Tensor::<Wgsl, 1>::random([1000], Distribution::Default, &device);
        Wgsl::seed(&device, 7);
        let matrix = Tensor::<Wgsl, 2>::random([10, 100], Distribution::Default, &device);
        assert_eq!(floats(line), floats(matrix), "{device}");
    }
}

/// gfx-rs/wgpu#7387, gfx-rs/wgpu#7386, tinygrad/tinygrad#7870: floats out of the range of an integer become any
/// integer.
#[test]
fn floats_out_of_range_become_the_nearest_integer() {
    for device in devices() {
        let values = [3e9, -3e9, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 2_147_483_500.0, -1.9];
        let x = tensor(values.to_vec(), [7], &device);
        // As Rust converts them.
        let expected = values.map(|x| i64::from(x as i32));
        assert_eq!(ints(x.cast(IntDType::I32)), expected, "{device}");
    }
}

/// tinygrad/tinygrad#17087: a float that f16 cannot hold stays as it is, instead of infinity.
#[test]
fn floats_above_the_largest_half_are_infinite() {
    for device in devices() {
        let values = vec![65_536.0, -1e9, 65_519.0, 65_520.0, 2049.0, 2051.0];
        let x = tensor(values, [6], &device).cast(FloatDType::F16).cast(FloatDType::F32);
        let inf = f32::INFINITY;
        assert_eq!(floats(x), [inf, -inf, 65_504.0, inf, 2048.0, 2052.0], "{device}");
    }
}

/// huggingface/candle#1944, pytorch/pytorch#179415: a count of booleans wraps after 255, and integers of 8 bits
/// saturate where they wrap.
#[test]
fn counts_of_booleans_do_not_wrap() {
    for device in devices() {
        let mask = tensor(vec![1.0; 5000], [5000], &device).greater_elem(0.5);
        assert_eq!(ints(mask.clone().int().sum()), [5000], "{device}");
        assert_eq!(floats(mask.float().mean()), [1.0], "{device}");
        let x = int_tensor(vec![300, -1, 255, 256], [4], &device).cast(IntDType::U8);
        assert_eq!(ints(x), [44, 255, 255, 0], "{device}");
    }
}

/// pytorch/pytorch#190042, tenstorrent/tt-metal#51476: the smallest integer divided by -1 crashes, or is wrong.
#[test]
fn divisions_of_negative_integers() {
    for device in devices() {
        let x = int_tensor(vec![i32::MIN, i32::MIN, -7, 7, -7, 7], [6], &device);
        let y = int_tensor(vec![-1, 1 << 21, 2, -2, -2, 2], [6], &device);
        // Quotients are truncated and wrap. Remainders have the sign of the divisor.
        let quotients = [i64::from(i32::MIN), -1024, -3, -3, 3, 3];
        assert_eq!(ints(x.clone().div(y.clone())), quotients, "{device}");
        assert_eq!(ints(x.clone().remainder(y)), [0, 0, 1, -1, -1, 1], "{device}");
        assert_eq!(ints(x.clone().slice(0..1).neg()), [i64::from(i32::MIN)], "{device}");
        assert_eq!(ints(x.slice(0..1).sub_scalar(1)), [i64::from(i32::MAX)], "{device}");
    }
}

/// pytorch/pytorch#115491, pytorch/pytorch#37743, pytorch/pytorch#15921: remainders of large numbers are larger than
/// the divisor, and those of integers are computed in floats.
#[test]
fn remainders_of_large_numbers_are_exact() {
    for device in devices() {
        let x = int_tensor(vec![1_933_053_808, 421_123_111, -421_123_111], [3], &device);
        let y = int_tensor(vec![53, 2, 10], [3], &device);
        assert_eq!(ints(x.remainder(y)), [19, 1, 9], "{device}");
        let pairs = [(1_933_053_808.0_f32, 53.0_f32), (2_749_682_432.0, 36.0), (-1e9, 7.0)];
        let x = tensor(pairs.map(|pair| pair.0).to_vec(), [3], &device);
        let y = tensor(pairs.map(|pair| pair.1).to_vec(), [3], &device);
        let expected = pairs.map(|(x, y)| f64::from(x).rem_euclid(f64::from(y)) as f32);
        assert_eq!(floats(x.remainder(y)), expected, "{device}");
    }
}

/// praeclarum/webgpu-torch#11, mrdoob/three.js#28971: powers of negative numbers are NaN, because the shading
/// language has none.
#[test]
fn powers_of_negative_numbers() {
    for device in devices() {
        let values = [-2.0_f32, -3.0, 0.0, 2.0, -8.0];
        let x = tensor(values.to_vec(), [5], &device);
        let what = device.to_string();
        for exponent in [0, 1, 2, 3, 5] {
            let expected = values.map(|x: f32| f64::from(x).powi(exponent));
            assert_near(&floats(x.clone().powi_scalar(exponent)), &expected, 1e-4, &what);
            let found = floats(x.clone().powf_scalar(exponent as f32));
            assert_near(&found, &expected, 1e-4, &what);
            let exponents = tensor(vec![exponent as f32; 5], [5], &device);
            assert_near(&floats(x.clone().powf(exponents)), &expected, 1e-4, &what);
        }
        // The gradient of x^3 is 3 x^2.
        let x = leaf(x);
        let expected = values.map(|x: f32| f64::from(3.0 * x * x));
        let loss = x.clone().powf_scalar(3.0).sum();
        assert_near(&gradient(&x, &loss), &expected, 1e-4, &what);
        let root = floats(tensor(vec![-8.0], [1], &device).powf_scalar(1.0 / 3.0));
        assert!(root[0].is_nan(), "{root:?} on {what}");
    }
}

/// gpuweb/gpuweb#1381, pytorch/pytorch#17440: halves are rounded up on some devices, and to even on others.
#[test]
fn halves_are_rounded_to_even() {
    for device in devices() {
        let x =
            tensor(vec![0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 8_388_609.0, 0.499_999_97], [8], &device);
        let expected = [0.0, 2.0, 2.0, 0.0, -2.0, -2.0, 8_388_609.0, 0.0];
        assert_eq!(floats(x.round()), expected, "{device}");
    }
}

/// sonos/tract#2846, gpuweb/gpuweb#4458: tanh of a large number is NaN.
#[test]
fn tanh_of_large_numbers_is_one() {
    for device in devices() {
        let x = leaf(tensor(vec![1000.0, -1000.0, 45.0, 89.0, f32::INFINITY], [5], &device));
        let y = tanh(x.clone());
        assert_eq!(floats(y.clone().inner()), [1.0, -1.0, 1.0, 1.0, 1.0], "{device}");
        assert_eq!(gradient(&x, &y.sum()), [0.0; 5], "{device}");
    }
}

/// pytorch/executorch#22323, huggingface/candle#1408: gelu is NaN below -13 or above 10.
#[test]
fn the_tails_of_gelu_are_finite() {
    for device in devices() {
        let x = tensor(vec![-1e4, -100.0, -13.24, -6.0, 6.0, 10.5, 13.24, 1e4], [8], &device);
        let expected = [0.0, 0.0, 0.0, 0.0, 6.0, 10.5, f64::from(13.24_f32), 1e4];
        type Op = fn(Tensor<Grad, 1>) -> Tensor<Grad, 1>;
        let ops: [(&str, Op); 2] = [("gelu", gelu), ("gelu_approximate", gelu_approximate)];
        for (name, op) in ops {
            let what = format!("{name} on {device}");
            let x = leaf(x.clone());
            let y = op(x.clone());
            assert_near(&floats(y.clone().inner()), &expected, 1e-6, &what);
            let slopes = [0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0];
            assert_near(&gradient(&x, &y.sum()), &slopes, 1e-5, &what);
        }
    }
}

/// tracel-ai/burn#5373, jeshraghian/snntorch#427: softplus and sigmoid overflow, and their gradients are NaN. Burn
/// 0.21 computes softplus from exp and log, so it is tried where exp is finite; log_sigmoid is tried everywhere.
#[test]
fn the_tails_of_sigmoid_and_softplus() {
    for device in devices() {
        let what = device.to_string();
        let values = [-1000.0_f32, -100.0, -80.0, -1.0, 0.0, 1.0, 80.0, 100.0, 1000.0];
        let probability = |x: f32| 1.0 / (1.0 + (-f64::from(x)).exp());
        let x = leaf(tensor(values.to_vec(), [9], &device));
        let y = log_sigmoid(x.clone());
        let expected = values.map(|x| f64::from(x.min(0.0)) - (-f64::from(x.abs())).exp().ln_1p());
        assert_near(&floats(y.clone().inner()), &expected, 1e-6, &what);
        assert_near(&gradient(&x, &y.sum()), &values.map(|x| probability(-x)), 1e-6, &what);
        let y = sigmoid(x.clone());
        assert_near(&floats(y.clone().inner()), &values.map(probability), 1e-6, &what);
        let slopes = values.map(|x| probability(x) * probability(-x));
        assert_near(&gradient(&x, &y.sum()), &slopes, 1e-6, &what);
        let values = &values[2..7];
        let x = leaf(tensor(values.to_vec(), [5], &device));
        let y = softplus(x.clone(), 1.0);
        let expected: Vec<f64> = values
            .iter()
            .map(|x| f64::from(x.max(0.0)) + (-f64::from(x.abs())).exp().ln_1p())
            .collect();
        assert_near(&floats(y.clone().inner()), &expected, 1e-5, &what);
        let slopes: Vec<f64> = values.iter().map(|x| probability(*x)).collect();
        assert_near(&gradient(&x, &y.sum()), &slopes, 1e-5, &what);
    }
}

/// CE-Programming/toolchain#515, gwtproject/gwt#9711: log1p of a small number is computed as log(1 + x), and loses
/// it.
#[test]
fn log1p_keeps_small_numbers() {
    for device in devices() {
        let values = [1e-20_f32, 1e-8, -1e-8, 1e-4, -0.5, 0.0, 1e6];
        let x = tensor(values.to_vec(), [7], &device);
        let found = floats(x.log1p());
        for (x, found) in values.iter().zip(found) {
            let expected = f64::from(*x).ln_1p();
            let error = (f64::from(found) - expected).abs();
            assert!(error <= 2e-6 * expected.abs(), "{x}: {found}, not {expected} on {device}");
        }
    }
}

/// gpuweb/gpuweb#2270, shader-slang/slang#7344: compilers assume that there is no NaN, and its tests return false.
#[test]
fn nan_and_infinity_are_found() {
    for device in devices() {
        let (nan, inf) = (f32::NAN, f32::INFINITY);
        let x = tensor(vec![nan, inf, -inf, 0.0, -nan, f32::MAX], [6], &device);
        assert_eq!(bools(x.clone().is_nan()), [true, false, false, false, true, false], "{device}");
        assert_eq!(bools(x.clone().is_inf()), [false, true, true, false, false, false], "{device}");
        // NaN is unequal to itself, computed or not.
        let unequal = [true, false, false, false, true, false];
        assert_eq!(bools(x.clone().not_equal(x.clone())), unequal, "{device}");
        let other = tensor(vec![nan, inf, -inf, 0.0, -nan, f32::MAX], [6], &device);
        let y = x - other;
        assert_eq!(bools(y.is_nan()), [true, true, true, false, true, false], "{device}");
    }
}

/// gpuweb/gpuweb#1711, born-ml/born#61: clamps, minima and maxima of NaN are numbers.
#[test]
fn clamps_of_nan_are_nan() {
    for device in devices() {
        let x = tensor(vec![f32::NAN, 5.0, -5.0], [3], &device);
        let y = Tensor::<Wgsl, 1>::ones([3], &device);
        let cases = [
            (x.clone().clamp(-1.0, 1.0), [1.0, -1.0]),
            (x.clone().clamp_min(-1.0), [5.0, -1.0]),
            (x.clone().clamp_max(1.0), [1.0, -5.0]),
            (x.clone().max_pair(y.clone()), [5.0, 1.0]),
            // Burn's own comparison: NaN in the place of the second operand is not less than the first.
            (x.clone().min_pair(y.clone()), [1.0, -5.0]),
        ];
        for (i, (found, expected)) in cases.into_iter().enumerate() {
            let found = floats(found);
            assert!(found[0].is_nan(), "{i}: {found:?} on {device}");
            assert_eq!(found[1..], expected, "{i} on {device}");
        }
    }
}

/// ml-explore/mlx#4063, pytorch/pytorch#193781: zeros lose their sign, so that their reciprocal has another one.
#[test]
fn zeros_keep_their_signs() {
    for device in devices() {
        for len in [2, 7, 64] {
            let what = format!("{len} on {device}");
            let sign = |i: usize| if i.is_multiple_of(2) { 1.0 } else { -1.0 };
            let x = tensor((0..len).map(|i| 0.0 * sign(i)).collect(), [len], &device);
            let infinities: Vec<f32> = (0..len).map(|i| f32::INFINITY * sign(i)).collect();
            assert_eq!(floats(x.clone().recip()), infinities, "{what}");
            let opposite: Vec<f32> = infinities.iter().map(|x| -x).collect();
            assert_eq!(floats(x.clone().neg().recip()), opposite, "{what}");
            assert_eq!(floats(x.abs().recip()), vec![f32::INFINITY; len], "{what}");
        }
    }
}
