//! Sizes at which 32-bit arithmetic would wrap: kernels compute the right result, or the op is an error.

use std::panic::AssertUnwindSafe;

use burn::nn::LinearConfig;
use burn::nn::attention::{MhaInput, MultiHeadAttentionConfig};
use burn::tensor::module::{
    adaptive_avg_pool2d, avg_pool2d, conv_transpose1d, conv_transpose2d, conv1d, conv3d,
    interpolate, max_pool2d,
};
use burn::tensor::ops::{
    ConvOptions, ConvTransposeOptions, DeformConvOptions, InterpolateMode, InterpolateOptions,
};
use burn::tensor::{Int, Tensor, TensorData};
use burn_backend::ops::ModuleOps;
use burn_wgsl::{Autodiff, Wgsl, WgslDevice, WgslTensor};

use crate::common::{devices, gpus, panic_message};

/// Returns the element `i` of a row of small integers.
fn element(i: usize) -> f32 {
    (i * 7919 % 1013 % 17) as f32 - 8.0
}

fn row(len: usize, device: &WgslDevice) -> Tensor<Wgsl, 4> {
    let values: Vec<f32> = (0..len).map(element).collect();
    Tensor::from_data(TensorData::new(values, [1, 1, 1, len]), device)
}

/// The windows of adaptive pooling, by definition.
fn windows(input: usize, output: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
    (0..output).map(move |o| o * input / output..((o + 1) * input).div_ceil(output))
}

/// The input and output sizes: products above 2^32, windows of one and of many elements, up- and downsampling, outputs
/// below and above 2^16.
const SIZES: [(usize, usize); 7] = [
    (70_000, 65_000),
    (65_536, 65_536),
    (1 << 20, 4096),
    (1_000_000, 5000),
    (90_000, 70_001),
    (70_001, 90_000),
    (480_000, 8950),
];

#[test]
fn adaptive_pooling_of_long_axes_is_right() {
    for device in gpus() {
        for (input, output) in SIZES {
            let expected: Vec<f32> = windows(input, output)
                .map(|window| {
                    let len = window.len() as f32;
                    window.map(element).sum::<f32>() / len
                })
                .collect();
            for along_rows in [false, true] {
                let x = row(input, &device);
                let (x, size) = match along_rows {
                    true => (x.swap_dims(2, 3), [output, 1]),
                    false => (x, [1, output]),
                };
                let found = adaptive_avg_pool2d(x, size).into_data().to_vec::<f32>().expect("f32");
                let differs = (0..output).find(|&i| (found[i] - expected[i]).abs() > 1e-4);
                assert_eq!(differs, None, "{input} -> {output} on {device}");
            }
        }
    }
}

#[test]
fn gradients_of_adaptive_pooling_of_long_axes_are_right() {
    for device in gpus() {
        for (input, output) in SIZES {
            let mut expected = vec![0.0; input];
            for (o, window) in windows(input, output).enumerate() {
                let share = element(o) / window.len() as f32;
                window.for_each(|i| expected[i] += share);
            }
            let x = Tensor::<Autodiff<Wgsl>, 4>::from_inner(row(input, &device)).require_grad();
            let weights = Tensor::from_inner(row(output, &device));
            let sum = (adaptive_avg_pool2d(x.clone(), [1, output]) * weights).sum();
            let found = x.grad(&sum.backward()).expect("x has a gradient").into_data();
            let found = found.to_vec::<f32>().expect("f32");
            let differs = (0..input).find(|&i| (found[i] - expected[i]).abs() > 1e-4);
            assert_eq!(differs, None, "{input} -> {output} on {device}");
        }
    }
}

#[test]
fn padding_larger_than_an_image_counts() {
    for device in gpus() {
        let x = Tensor::<Wgsl, 4>::full([1, 1, 1, 1], 46341.0, &device);
        let mean = avg_pool2d(x, [46341; 2], [1; 2], [23170; 2], true, false).into_scalar();
        assert!((mean * 46341.0 - 1.0).abs() < 1e-4, "{mean} on {device}");
    }
}

#[test]
fn a_window_beyond_its_image_ends_with_it() {
    for device in gpus() {
        let x = Tensor::<Wgsl, 4>::full([1, 1, 1, 1], 3.0, &device);
        let largest = max_pool2d(x, [1_000_000_000, 1], [1; 2], [0; 2], [1; 2], true);
        assert_eq!(largest.into_scalar(), 3.0, "{device}");
    }
}

/// Checks that an op fails with a message on each device, and that the device works after it.
fn assert_refused(op: fn(&WgslDevice), part: &str) {
    assert_refused_on(devices(), op, part);
}

fn assert_refused_on(devices: Vec<WgslDevice>, op: fn(&WgslDevice), part: &str) {
    for device in devices {
        let message = panic_message(AssertUnwindSafe(|| op(&device)));
        assert!(message.contains(part), "{message}");
        let sum = Tensor::<Wgsl, 1>::from_floats([1.0, 2.0], &device).sum().into_scalar();
        assert_eq!(sum, 3.0, "{device}");
    }
}

#[test]
fn options_beyond_32_bits_are_errors() {
    const HUGE: usize = usize::MAX / 3 + 1;
    fn x(device: &WgslDevice) -> Tensor<Wgsl, 3> {
        Tensor::ones([1, 1, 8], device)
    }
    fn weight(len: usize, device: &WgslDevice) -> Tensor<Wgsl, 3> {
        Tensor::ones([1, 1, len], device)
    }
    let part = "must be below 2^30";
    assert_refused(
        |device| {
            let options = ConvOptions::new([1], [0], [HUGE], 1);
            drop(conv1d(x(device), weight(4, device), None, options).into_data());
        },
        part,
    );
    assert_refused(
        |device| {
            let options = ConvOptions::new([1 << 32], [1 << 32], [1], 1);
            drop(conv1d(x(device), weight(1, device), None, options).into_data());
        },
        part,
    );
    assert_refused(
        |device| {
            let options = ConvTransposeOptions::new([1 << 32], [0], [0], [1], 1);
            drop(conv_transpose1d(x(device), weight(3, device), None, options).into_data());
        },
        part,
    );
    assert_refused(
        |device| {
            let image = Tensor::<Wgsl, 4>::ones([1, 1, 4, 4], device);
            let pooled = max_pool2d(image, [2; 2], [usize::MAX; 2], [0; 2], [1; 2], true);
            drop(pooled.into_data());
        },
        "all below 2^30",
    );
}

#[test]
fn views_that_indices_cannot_address_are_errors() {
    let part = "more elements than a 32-bit index can address";
    // A host has indices of 64 bits.
    assert_refused_on(
        gpus(),
        |device| drop(Tensor::<Wgsl, 1>::ones([1], device).expand([u32::MAX as usize]).sum()),
        part,
    );
    assert_refused_on(
        gpus(),
        |device| {
            let image = Tensor::<Wgsl, 4>::ones([1, 1, 2, 2], device);
            let options = InterpolateOptions::new(InterpolateMode::Nearest);
            drop(interpolate(image, [1 << 40, 1], options).into_data());
        },
        part,
    );
    assert_refused_on(
        gpus(),
        |device| drop(Tensor::<Wgsl, 1, Int>::arange(i64::MIN..i64::MAX, device).into_data()),
        part,
    );
}

/// The numbers of elements are 2^64 or a little more.
#[test]
fn results_whose_size_wraps_are_errors() {
    const WRAPS: [usize; 2] = [1 << 33, 1 << 31];
    fn image<const N: usize>(shape: [usize; N], device: &WgslDevice) -> Tensor<Wgsl, N> {
        Tensor::ones(shape, device)
    }
    assert_refused(
        |device| drop(adaptive_avg_pool2d(image([1; 4], device), WRAPS)),
        "adaptive_avg_pool2d on",
    );
    for mode in [|| InterpolateMode::Bilinear, || InterpolateMode::Nearest] {
        for device in devices() {
            let resize = || {
                let options = InterpolateOptions::new(mode());
                drop(interpolate(image([1, 1, 2, 2], &device), WRAPS, options));
            };
            let message = panic_message(AssertUnwindSafe(resize));
            assert!(message.contains("interpolate on"), "{message}");
        }
    }
    assert_refused(
        |device| {
            let x = image([8, 8, 2, 2], device);
            drop(max_pool2d(x, [1; 2], [1; 2], [(1 << 28) - 1; 2], [1; 2], false));
        },
        "max_pool2d on",
    );
    assert_refused(
        |device| {
            let options = ConvOptions::new([1; 3], [(1 << 28) - 1; 3], [1; 3], 1);
            let (x, weight) = (image([1, 1, 2, 2, 2], device), image([1; 5], device));
            drop(conv3d(x, weight, None, options));
        },
        "conv3d on",
    );
    assert_refused(
        |device| {
            let options = ConvTransposeOptions::new([1 << 29; 2], [0; 2], [0; 2], [1; 2], 1);
            let (x, weight) = (image([8, 1, 8, 8], device), image([1, 1, 1, 1], device));
            drop(conv_transpose2d(x, weight, None, options));
        },
        "conv_transpose2d on",
    );
    assert_refused(
        |device| drop(adaptive_avg_pool2d(image([0, 1, 1, 1], device), [1 << 40, 1 << 40])),
        "adaptive_avg_pool2d on",
    );
}

/// Burn's tensors check them as well, but not the methods of a backend.
#[test]
fn weights_of_other_channels_are_errors() {
    fn ones<const N: usize>(shape: [usize; N], device: &WgslDevice) -> WgslTensor {
        Tensor::<Wgsl, N>::ones(shape, device).into_primitive().tensor()
    }
    assert_refused(
        |device| {
            let (x, weight) = (ones([1, 2, 8], device), ones([3, 1, 3], device));
            let options = ConvTransposeOptions::new([1], [0], [0], [1], 1);
            drop(Wgsl::conv_transpose1d(x, weight, None, options));
        },
        "conv_transpose1d on",
    );
    assert_refused(
        |device| {
            let (x, weight) = (ones([1, 2, 8], device), ones([2, 1, 3], device));
            let options = ConvTransposeOptions::new([1], [0], [0], [1], 2);
            drop(Wgsl::conv_transpose1d(x, weight, Some(ones([3], device)), options));
        },
        "a bias must have one element per output channel",
    );
    assert_refused(
        |device| {
            let (x, weight) = (ones([1, 2, 4, 4], device), ones([2, 2, 3, 3], device));
            let options = DeformConvOptions::new([1; 2], [0; 2], [1; 2], 1, 1);
            let offset = ones([1, 4, 2, 2], device);
            drop(Wgsl::deform_conv2d(x, offset, weight, None, None, options));
        },
        "an offset must be",
    );
    assert_refused(
        |device| {
            let (x, weight) = (ones([1, 2, 4, 4], device), ones([2, 2, 3, 3], device));
            let options = ConvOptions::new([1; 2], [0; 2], [1; 2], 1);
            let grad = ones([1, 2, 9, 9], device);
            drop(Wgsl::conv2d_x_backward(x, weight, grad, options));
        },
        "a gradient must have the shape of the output",
    );
}

#[test]
fn products_of_no_elements_are_zero_or_empty() {
    for device in devices() {
        for (lhs, rhs) in [
            ([0, 4, 3], [1, 3, 2]),
            ([1, 4, 3], [0, 3, 2]),
            ([2, 0, 3], [1, 3, 2]),
            ([2, 4, 0], [1, 0, 2]),
            ([2, 4, 3], [2, 3, 0]),
        ] {
            let zeros = |shape: [usize; 3]| Tensor::<Wgsl, 3>::ones(shape, &device);
            let product = zeros(lhs).matmul(zeros(rhs));
            let batch = if lhs[0] == 1 { rhs[0] } else { lhs[0] };
            assert_eq!(product.dims(), [batch, lhs[1], rhs[2]], "{lhs:?} {rhs:?} on {device}");
            assert_eq!(product.sum().into_scalar(), 0.0, "{lhs:?} {rhs:?} on {device}");
        }
        let layer = LinearConfig::new(3, 2).init::<Wgsl>(&device);
        assert_eq!(layer.forward(Tensor::<Wgsl, 3>::zeros([0, 4, 3], &device)).dims(), [0, 4, 2]);
        let attention = MultiHeadAttentionConfig::new(4, 2).init::<Wgsl>(&device);
        let x = Tensor::<Wgsl, 3>::zeros([0, 4, 4], &device);
        assert_eq!(attention.forward(MhaInput::self_attn(x)).context.dims(), [0, 4, 4]);
    }
}

#[test]
fn long_ranges_with_long_steps_are_short() {
    for device in devices() {
        let range = Tensor::<Wgsl, 1, Int>::arange_step(0..1 << 31, 1 << 30, &device);
        let found = range.into_data().convert::<i64>().to_vec::<i64>().expect("i64");
        assert_eq!(found, [0, 1 << 30], "{device}");
    }
}
