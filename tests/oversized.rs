//! Tensors that are larger than a binding. The largest binding is 4 MiB here.
//!
//! These tests have their own process: the limit holds for all devices that it opens.

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

use burn::tensor::activation::softmax;
use burn::tensor::module::conv2d;
use burn::tensor::ops::ConvOptions;
use burn::tensor::quantization::{QuantLevel, QuantScheme, QuantStore};
use burn::tensor::{Distribution, FloatDType, Int, Tensor, TensorData, s};
use burn_wgsl::{Wgsl, WgslDevice};
use common::{gpus, runtimes, without_fallbacks};

/// Returns the devices to test, whose bindings are limited.
fn devices() -> Vec<WgslDevice> {
    static LIMIT: Once = Once::new();
    LIMIT.call_once(|| burn_wgsl::runtime::limit_bindings(4 << 20));
    gpus()
}

/// Returns small integers, whose sums are exact in f32.
fn matrix(shape: [usize; 2], device: &WgslDevice) -> Tensor<Wgsl, 2> {
    let values = (0..shape[0] * shape[1]).map(|i| (i * 7919 % 1013 % 17) as f32 - 8.0);
    let data = TensorData::new(values.collect::<Vec<f32>>(), shape);
    Tensor::from_data(data, device)
}

/// Checks that a computation gives the same elements as on the CPU, without fallbacks.
#[track_caller]
fn check<const D: usize>(name: &str, work: impl Fn(&WgslDevice) -> Tensor<Wgsl, D>) {
    let expected = work(&WgslDevice::Cpu).into_data();
    for device in devices() {
        let found = without_fallbacks(&format!("{name} on {device}"), || work(&device).into_data());
        assert_eq!(found.shape, expected.shape, "{name} on {device}");
        let [found, expected] =
            [&found, &expected].map(|data| data.as_slice::<f32>().expect("elements are f32"));
        let differs = (0..found.len()).find(|&i| found[i] != expected[i]);
        if let Some(i) = differs {
            panic!("{name} on {device}: {} at {i}, not {}", found[i], expected[i]);
        }
    }
}

#[test]
fn elementwise_ops_write_and_read_oversized_tensors() {
    check("add", |device| {
        let x = matrix([3001, 1003], device);
        let y = matrix([1003, 3001], device).transpose();
        let row = matrix([1, 1003], device);
        (x + y) * row + 1.0
    });
    check("in place", |device| matrix([3001, 1003], device).abs().add_scalar(3.0).mul_scalar(0.5));
    check("broadcast", |device| {
        matrix([3001, 1], device) + matrix([1, 1003], device).mul_scalar(2.0)
    });
    check("mask", |device| {
        let x = matrix([3001, 1003], device);
        let mask = x.clone().greater_elem(2.0);
        x.clone().mask_fill(mask.clone(), 5.0).mask_where(mask.bool_not(), x.mul_scalar(3.0))
    });
    check("a small view", |device| {
        let x = matrix([3001, 1003], device);
        (x.clone().slice(s![2900..2990, 3..1000]) * 2.0) + x.slice(s![1..91, 0..997])
    });
}

#[test]
fn creation_fills_oversized_tensors() {
    check("full", |device| Tensor::<Wgsl, 2>::full([3001, 1003], 2.5, device));
    check("arange", |device| {
        Tensor::<Wgsl, 1, Int>::arange_step(-5..6_000_000, 2, device).float().mul_scalar(0.5)
    });
    check("random", |device| {
        <Wgsl as burn::tensor::backend::Backend>::seed(device, 7);
        Tensor::<Wgsl, 2>::random([3001, 1003], Distribution::Uniform(0.0, 1.0), device)
    });
}

#[test]
fn copies_write_and_read_oversized_tensors() {
    let x = |device: &WgslDevice| matrix([3001, 1003], device);
    check("cat", |device| Tensor::cat(vec![x(device), matrix([77, 1003], device)], 0));
    check("cat of columns", |device| Tensor::cat(vec![x(device), matrix([3001, 5], device)], 1));
    check("slice_assign", |device| {
        let value = matrix([2500, 900], device).mul_scalar(3.0);
        x(device).slice_assign(s![400..2900, 50..950], value)
    });
    check("flip", |device| x(device).flip([0, 1]) + 0.0);
    check("transpose", |device| x(device).transpose().reshape([3001 * 1003]));
    check("permute", |device| {
        x(device).reshape([3001, 17, 59]).permute([2, 0, 1]).reshape([59 * 3001, 17])
    });
    check("repeat", |device| matrix([2, 1_000_001], device).repeat_dim(0, 3));
    check("steps", |device| x(device).slice(s![..;-2, ..;3]) + 0.0);
}

#[test]
fn reductions_read_oversized_tensors() {
    let x = |device: &WgslDevice| matrix([3001, 1003], device);
    for axis in [0, 1] {
        check(&format!("sum {axis}"), |device| x(device).sum_dim(axis));
        check(&format!("max {axis}"), |device| x(device).max_dim(axis));
        check(&format!("argmax {axis}"), |device| x(device).argmax(axis).float());
        check(&format!("argmin of a transpose {axis}"), |device| {
            x(device).transpose().argmin(axis).float()
        });
    }
    check("sum", |device| x(device).sum());
    check("results that are oversized", |device| {
        let wide = matrix([1, 2 * 1003], device).reshape([1, 1003, 2]).expand([1500, 1003, 2]);
        let [sum, argmax] = [wide.clone().sum_dim(2), wide.argmax(2).float()];
        (sum + argmax).reshape([1500, 1003])
    });
    check("mean", |device| (x(device) * 0.0 + 3.0).mean());
    check("prod", |device| x(device).sign().abs().add_scalar(0.0).clamp_min(1.0).prod());
    check("max of a result", |device| (x(device) * 2.0).max_dim(0));
    check("sum of the middle axis", |device| {
        x(device).reshape([17, 3001, 59]).sum_dim(1).reshape([17, 59])
    });
    check("int mean", |device| x(device).int().mul_scalar(0).add_scalar(4).mean_dim(0).float());
}

#[test]
fn products_read_and_write_oversized_matrices() {
    check("rows", |device| matrix([20_011, 67], device).matmul(matrix([67, 9], device)));
    check("k", |device| matrix([5, 300_007], device).matmul(matrix([300_007, 4], device)));
    check("columns", |device| matrix([6, 67], device).matmul(matrix([67, 20_011], device)));
    check("result", |device| matrix([1501, 9], device).matmul(matrix([9, 1499], device)));
    check("transposed", |device| {
        matrix([67, 20_011], device).transpose().matmul(matrix([9, 67], device).transpose())
    });
    check("batch", |device| {
        let a = matrix([17 * 97, 1003], device).reshape([17, 97, 1003]);
        let b = matrix([17 * 59, 1003], device).reshape([17, 59, 1003]);
        a.matmul(b.swap_dims(1, 2))
    });
    check("broadcast batch", |device| {
        let a = matrix([1100, 1003], device).reshape([1, 1100, 1003]);
        a.matmul(matrix([3 * 1003, 7], device).reshape([3, 1003, 7]))
    });
    check("integers", |device| {
        let a = matrix([20_011, 67], device).int();
        a.matmul(matrix([67, 3], device).int()).float()
    });
}

/// The transform of the weight has four times its elements, more than a binding of 4 MiB.
#[test]
fn convolutions_do_not_need_more_than_their_tensors_to_fit() {
    check("conv2d", |device| {
        let tensor = |shape: [usize; 4]| {
            let [n, c, h, w] = shape;
            matrix([n * c, h * w], device).reshape(shape)
        };
        let options = ConvOptions::new([1, 1], [1, 1], [1, 1], 1);
        conv2d(tensor([8, 256, 16, 16]), tensor([256, 256, 3, 3]), None, options)
    });
}

#[test]
fn oversized_tensors_of_16_bits_are_converted() {
    check("f16", |device| {
        let half = matrix([3001, 1003], device).cast(FloatDType::F16);
        (half * 2.0).cast(FloatDType::F32)
    });
    check("sum", |device| {
        matrix([3001, 1003], device).cast(FloatDType::BF16).sum_dim(1).cast(FloatDType::F32)
    });
    // Only the source exceeds a binding.
    check("narrowing", |device| {
        matrix([1500, 1003], device).cast(FloatDType::F16).cast(FloatDType::F32)
    });
    check("narrowing of a transpose", |device| {
        matrix([1500, 1003], device).transpose().cast(FloatDType::BF16).cast(FloatDType::F32)
    });
    // Only the result does.
    check("widening of a transpose", |device| {
        matrix([1500, 1003], device).cast(FloatDType::F16).transpose().cast(FloatDType::F32)
    });
    check("widening of rows", |device| {
        let row = matrix([1, 1003], device).cast(FloatDType::BF16);
        row.expand([1500, 1003]).cast(FloatDType::F32)
    });
    check("strided", |device| {
        let half = matrix([3001, 1003], device).cast(FloatDType::F16);
        half.transpose().slice(s![.., ..;-1]).cast(FloatDType::BF16).cast(FloatDType::F32)
    });
    check("full", |device| {
        Tensor::<Wgsl, 2>::full([3001, 1003], 2.5, (device, burn::tensor::DType::F16))
            .cast(FloatDType::F32)
    });
}

#[test]
fn oversized_tensors_of_16_bits_are_copied() {
    let half = |shape, device: &WgslDevice| matrix(shape, device).cast(FloatDType::F16);
    check("cat", |device| {
        let rows = vec![half([3001, 1002], device), half([77, 1002], device)];
        Tensor::cat(rows, 0).cast(FloatDType::F32)
    });
    check("slice_assign", |device| {
        let value = half([900, 2500], device).transpose();
        half([3001, 1002], device).slice_assign(s![400..2900, 50..950], value).cast(FloatDType::F32)
    });
    // In f32, the table would exceed a binding.
    check("select", |device| {
        let indices = Tensor::from_ints([1499, 0, 700], device);
        half([1500, 1002], device).select(0, indices).cast(FloatDType::F32)
    });
}

#[test]
fn oversized_tensors_are_quantised_in_blocks() {
    // Many small blocks, and 18 large ones of an odd size.
    let cases = [
        ([3001, 17 * 59], QuantLevel::block([17])),
        ([18 * 235, 255], QuantLevel::block([235, 255])),
    ];
    for (shape, level) in cases {
        let scheme = QuantScheme::default().with_level(level).with_store(QuantStore::Native);
        let quantised =
            |device: &WgslDevice| matrix(shape, device).quantize_dynamic(&scheme).into_data();
        let expected = quantised(&WgslDevice::Cpu);
        for device in devices() {
            let found = without_fallbacks(&device.to_string(), || quantised(&device));
            assert!(found.bytes == expected.bytes, "{shape:?} on {device}");
        }
    }
}

#[test]
fn other_ops_name_the_limit() {
    for device in devices() {
        let x = matrix([3001, 1003], &device);
        let result = catch_unwind(AssertUnwindSafe(|| softmax(x.clone(), 1).into_data()));
        let message =
            *result.expect_err("softmax needs a binding").downcast::<String>().expect("a message");
        assert!(message.contains("12040012 bytes exceeds the 4194304 bytes that"), "{message}");
        // The device goes on.
        assert_eq!(x.slice(s![0..1, 0..1]).into_scalar(), -8.0);
    }
}

#[test]
fn a_part_keeps_the_memory_alive() {
    for device in devices() {
        let x = matrix([3001, 1003], &device);
        let part = x.clone().slice(s![3000..3001, ..]);
        let expected = part.clone().into_data();
        drop(x);
        let other = Tensor::<Wgsl, 2>::zeros([3001, 1003], &device) + 1.0;
        assert_eq!(part.clone().into_data(), expected);
        // A result must not overwrite a part of what others own.
        let whole = matrix([3001, 1003], &device);
        let doubled = whole.clone().slice(s![0..900, ..]) * 2.0;
        let _ = doubled.into_data();
        assert_eq!(whole.into_data(), matrix([3001, 1003], &device).into_data());
        drop(other);
    }
}

#[test]
fn a_tensor_beyond_the_largest_buffer_is_an_error() {
    let _ = devices();
    for runtime in runtimes() {
        // Sizes of buffers are multiples of 256 bytes.
        let limit = runtime.info().limits.max_buffer_size / 256 * 256;
        let error = runtime.alloc(limit + 4).expect_err("no buffer is so large");
        let expected = format!("exceeds the {limit} bytes of the largest buffer");
        assert!(error.to_string().contains(&expected), "{error}");
    }
}
