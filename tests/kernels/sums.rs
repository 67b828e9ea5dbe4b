//! Sums that are right at any length: of views, of ones, of random numbers, in every type.

use burn::tensor::{Distribution, FloatDType, Int, Tensor, TensorData};
use burn_wgsl::{Autodiff, Wgsl, WgslDevice};

use crate::common::{self, devices, gpus};

fn ones<const D: usize>(shape: [usize; D], device: &WgslDevice) -> Tensor<Wgsl, D> {
    // In memory, not a pending constant.
    let len = shape.iter().product();
    Tensor::from_data(TensorData::new(vec![1_f32; len], shape), device)
}

fn values<const D: usize>(tensor: Tensor<Wgsl, D>) -> Vec<f32> {
    tensor.cast(FloatDType::F32).into_data().to_vec().expect("f32")
}

fn assert_all<const D: usize>(found: Tensor<Wgsl, D>, expected: f32, what: &str) {
    let found = values(found);
    let wrong = found.iter().find(|value| **value != expected);
    assert_eq!((wrong, found.is_empty()), (None, false), "{what}: expected {expected}");
}

#[test]
fn sums_of_ones_are_exact() {
    for device in devices() {
        // Beyond 2^24, where 1 added to a float changes nothing.
        for len in [(1 << 24) + 4, 33_554_436] {
            let what = format!("{len} on {device}");
            let x = ones([len], &device);
            assert_all(x.clone().sum(), len as f32, &what);
            assert_all(x.clone().mean(), 1.0, &what);
            assert_all(x.clone().reshape([2, len / 2]).sum_dim(1), (len / 2) as f32, &what);
            assert_all(x.clone().reshape([len / 2, 2]).sum_dim(0), (len / 2) as f32, &what);
            assert_all(x.clone().reshape([len / 4, 4]).sum_dim(0), (len / 4) as f32, &what);
            assert_all(x.reshape([len / 2, 2]).swap_dims(0, 1).mean_dim(1), 1.0, &what);
        }
    }
}

#[test]
fn sums_of_views_are_exact() {
    for device in devices() {
        let what = format!("{device}");
        let x = ones([5001, 8002], &device);
        let part = x.slice([1..5001, 1..8001]);
        assert_all(part.clone().sum(), 4e7, &what);
        assert_all(part.clone().mean(), 1.0, &what);
        assert_all(part.clone().transpose().sum(), 4e7, &what);
        assert_all(part.sum_dim(0).sum_dim(1), 4e7, &what);
        // A view that has as many elements as its memory, and others.
        let x = Tensor::<Wgsl, 1>::from_floats([1.0, 2.0, 3.0, 4.0], &device);
        assert_all(x.clone().slice(0..1).expand([4]).sum(), 4.0, &what);
        assert_all(x.slice(3..4).expand([4]).mean(), 4.0, &what);
        let x = Tensor::<Wgsl, 1, Int>::from_ints([1, 2, 3, 4], &device);
        assert_all(x.slice(0..1).expand([4]).sum().float(), 4.0, &what);
        // Broadcast to more elements than a float counts.
        let x = Tensor::<Wgsl, 2>::from_floats([[1.0], [2.0], [6.0]], &device);
        let x = x.expand([3, 20_000_001]);
        assert_all(x.clone().mean(), 3.0, &what);
        assert_all(x.clone().sum(), 180_000_009.0_f64 as f32, &what);
        assert_all(x.slice([2..3, 0..20_000_001]).sum_dim(1), 120_000_006.0_f64 as f32, &what);
    }
}

#[test]
fn means_of_billions_of_elements_are_right() {
    for device in gpus() {
        // 2.1e9 elements, which need no memory.
        let x = Tensor::<Wgsl, 2>::from_floats([[2.0, 4.0, 3.0, 3.0]], &device);
        let x = x.reshape([4, 1]).expand([4, 536_870_911]);
        assert_all(x.clone().mean(), 3.0, "mean");
        assert_all(x.sum(), (12_u64 * 536_870_911) as f32, "sum");
    }
}

#[test]
fn errors_of_long_sums_stay_small() {
    const LEN: usize = 1 << 20;
    for device in devices() {
        let cpu = WgslDevice::Cpu;
        // All positive, so that the error of adding one after the other would grow with the length.
        let x = common::random([LEN], Distribution::Uniform(0.0, 1.0), &cpu);
        let exact: f64 = values(x.clone()).into_iter().map(f64::from).sum();
        let x = x.to_device(&device);
        for x in [x.clone().reshape([1, LEN]), x.clone().reshape([LEN, 1]).transpose()] {
            let sum = f64::from(values(x.sum())[0]);
            assert!((sum - exact).abs() <= 1e-6 * exact, "{sum}, {exact} on {device}");
        }
        let columns = x.reshape([LEN / 2, 2]);
        let of_column = |at: usize| {
            let column = columns.clone().slice([0..LEN / 2, at..at + 1]);
            values(column).into_iter().map(f64::from).sum::<f64>()
        };
        let exact = [of_column(0), of_column(1)];
        for (sum, exact) in values(columns.clone().sum_dim(0)).into_iter().zip(exact) {
            assert!((f64::from(sum) - exact).abs() <= 1e-6 * exact, "{sum}, {exact} on {device}");
        }
    }
}

#[test]
fn sums_in_16_bits_do_not_overflow_on_the_way() {
    for device in devices() {
        for dtype in [FloatDType::F16, FloatDType::BF16] {
            let what = format!("{dtype:?} on {device}");
            let x = (ones([300, 1000], &device) * 100.0).cast(dtype);
            assert_all(x.clone().mean(), 100.0, &what);
            assert_all(x.clone().mean_dim(0), 100.0, &what);
            assert_all(x.clone().mean_dim(1), 100.0, &what);
            // A sum of many ones is rounded once.
            let x = ones([70_000, 3], &device).cast(dtype);
            let expected = if dtype == FloatDType::F16 { f32::INFINITY } else { 70_144.0 };
            assert_all(x.clone().sum_dim(0), expected, &what);
            assert_all(x.mean_dim(0), 1.0, &what);
        }
    }
}

#[test]
fn gradients_of_parameters_of_large_batches_are_exact() {
    type Grad = Autodiff<Wgsl>;
    for device in devices() {
        // The gradient of a bias is the sum over the batch, that of a scale the sum of the input.
        let rows = 200_000;
        let bias = Tensor::<Grad, 1>::zeros([4], &device).require_grad();
        let scale = Tensor::<Grad, 1>::ones([4], &device).require_grad();
        let x = Tensor::<Grad, 2>::from_inner(ones([rows, 4], &device));
        let y = x * scale.clone().unsqueeze() + bias.clone().unsqueeze();
        let grads = y.sum().backward();
        for parameter in [&bias, &scale] {
            let grad = parameter.grad(&grads).expect("a gradient");
            assert_all(grad, rows as f32, &format!("{device}"));
        }
    }
}

#[test]
fn infinite_terms_stay_infinite() {
    for device in devices() {
        for len in [10, 300_000] {
            let sum_with = |terms: &[f32]| {
                let mut elements = vec![1.0_f32; len];
                elements[len - terms.len()..].copy_from_slice(terms);
                let x = Tensor::<Wgsl, 1>::from_data(TensorData::new(elements, [len]), &device);
                values(x.sum())[0]
            };
            assert_eq!(sum_with(&[f32::INFINITY]), f32::INFINITY, "{len} on {device}");
            assert_eq!(sum_with(&[f32::NEG_INFINITY]), f32::NEG_INFINITY, "{len} on {device}");
            assert!(sum_with(&[f32::INFINITY, f32::NEG_INFINITY]).is_nan(), "{len} on {device}");
            assert!(sum_with(&[f32::NAN]).is_nan(), "{len} on {device}");
            // Beyond the largest float.
            assert_eq!(sum_with(&[f32::MAX, f32::MAX]), f32::INFINITY, "{len} on {device}");
        }
    }
}
