//! Ops that burn-flex lacks or defines differently from PyTorch, against written-out definitions.

use std::panic::AssertUnwindSafe;

use burn::tensor::module;
use burn::tensor::ops::{
    ConvOptions, GridSampleOptions, GridSamplePaddingMode, InterpolateMode, InterpolateOptions,
};
use burn::tensor::{Distribution, Int, Tensor, TensorData, TensorPrimitive};
use burn_backend::ops::ModuleOps;
use burn_wgsl::{Autodiff, Wgsl, WgslDevice};

use crate::common::{
    self, Tolerance, assert_close, devices, gpus, panic_message, values_are_ignored,
    without_fallbacks,
};

const CLOSE: Tolerance = Tolerance { relative: 2e-5, absolute: 2e-5 };

/// Returns normally distributed floats.
fn random<const D: usize>(shape: [usize; D], device: &WgslDevice) -> Tensor<Wgsl, D> {
    common::random(shape, Distribution::Normal(0.0, 1.0), device)
}

fn interpolate_options(mode: &InterpolateMode, align_corners: bool) -> InterpolateOptions {
    InterpolateOptions::new(mode.clone()).with_align_corners(align_corners)
}

/// NVIDIA's compiler joins maxima and negations, which changed the smallest integer.
#[test]
fn maxima_of_negated_integers_wrap() {
    for device in gpus() {
        let values = [i32::MIN, 3, -10, 2, i32::MIN, 7];
        let x = Tensor::<Wgsl, 1, Int>::from_data(values, &device);
        let [largest, smallest] = [x.clone().neg().max_dim(0), x.neg().min_dim(0)];
        let found = [largest, smallest].map(|x| x.into_data().iter::<i32>().next());
        assert!(
            found == [Some(10), Some(i32::MIN)] || values_are_ignored(),
            "{found:?} on {device}"
        );
    }
}

/// GPUs divide by multiplying with an approximate reciprocal, which is zero for huge divisors.
#[test]
fn quotients_are_rounded_to_nearest() {
    let whole = (1..200).flat_map(|a| (1..50).map(move |b| ((a * b) as f32, b as f32)));
    let scaled = (0..20_000).map(|i| {
        let part =
            |i: i32, prime: i32| (i * prime % 10_007 - 5_003) as f32 * 10f32.powi(i % 21 - 10);
        (part(i, 7_919), part(i + 13, 104_729 % 10_007) + 1e-15)
    });
    let special = [
        (3e38, 3e38),
        (1e38, 2e38),
        (f32::INFINITY, 3e38),
        (1.0, 0.0),
        (-0.0, 5.0),
        (f32::MAX, 0.5),
    ];
    let pairs: Vec<(f32, f32)> = whole.chain(scaled).chain(special).collect();
    let list = |of: fn(&(f32, f32)) -> f32| pairs.iter().map(of).collect::<Vec<_>>();
    for device in gpus() {
        let [a, b] = [list(|pair| pair.0), list(|pair| pair.1)]
            .map(|values| Tensor::<Wgsl, 1>::from_floats(values.as_slice(), &device));
        let found: Vec<f32> = (a / b).into_data().to_vec().expect("they are f32");
        for ((a, b), found) in pairs.iter().zip(found) {
            let is_expected = found.to_bits() == (a / b).to_bits();
            assert!(is_expected || values_are_ignored(), "{a} / {b} is {found:e} on {device}");
        }
    }
}

/// The expected values are those in PyTorch's documentation of `Upsample`.
#[test]
fn interpolate_matches_the_pytorch_documentation() {
    let cases = [
        (
            interpolate_options(&InterpolateMode::Nearest, false),
            [1.0, 1.0, 2.0, 2.0, 1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 4.0, 4.0, 3.0, 3.0, 4.0, 4.0],
        ),
        (
            interpolate_options(&InterpolateMode::Bilinear, false),
            [
                1.0, 1.25, 1.75, 2.0, 1.5, 1.75, 2.25, 2.5, 2.5, 2.75, 3.25, 3.5, 3.0, 3.25, 3.75,
                4.0,
            ],
        ),
        (
            interpolate_options(&InterpolateMode::Bilinear, true),
            [
                1.0, 1.3333, 1.6667, 2.0, 1.6667, 2.0, 2.3333, 2.6667, 2.3333, 2.6667, 3.0, 3.3333,
                3.0, 3.3333, 3.6667, 4.0,
            ],
        ),
    ];
    for device in devices() {
        let x = Tensor::<Wgsl, 4>::from_floats([[[[1.0, 2.0], [3.0, 4.0]]]], &device);
        for (options, expected) in &cases {
            let y = module::interpolate(x.clone(), [4, 4], options.clone());
            let expected = TensorData::new(expected.to_vec(), [1, 1, 4, 4]);
            let label = format!("{options:?} on {device}");
            let tolerance = Tolerance { relative: 0.0, absolute: 5e-5 };
            assert_close(&label, &y.into_data(), &expected, tolerance);
        }
    }
}

/// Interpolation is linear. With A as its matrix, sum(y * A x) = sum(A^T y * x) for all x and y.
#[test]
fn interpolate_backward_is_the_transpose() {
    let modes = [
        InterpolateMode::Nearest,
        InterpolateMode::Bilinear,
        InterpolateMode::Bicubic,
        InterpolateMode::Lanczos3,
    ];
    for device in devices() {
        for (input, output) in
            [([7, 5], [11, 13]), ([9, 14], [4, 3]), ([1, 6], [8, 1]), ([5, 8], [40, 31])]
        {
            for (mode, align_corners) in modes.iter().flat_map(|mode| [(mode, true), (mode, false)])
            {
                let options = interpolate_options(mode, align_corners);
                let x = random([2, 3, input[0], input[1]], &device);
                let y = random([2, 3, output[0], output[1]], &device);
                let forward = module::interpolate(x.clone(), output, options.clone());
                let backward = Tensor::<Wgsl, 4>::from_primitive(TensorPrimitive::Float(
                    Wgsl::interpolate_backward(
                        x.clone().into_primitive().tensor(),
                        y.clone().into_primitive().tensor(),
                        output,
                        options,
                    ),
                ));
                assert_eq!(backward.dims(), x.dims());
                let magnitude = (y.clone() * forward.clone()).abs().sum().into_scalar();
                let forward_sum = (y * forward).sum().into_scalar();
                let backward_sum = (backward * x).sum().into_scalar();
                assert!(
                    (forward_sum - backward_sum).abs() < 2e-6 * magnitude,
                    "{mode:?} {align_corners} {input:?} to {output:?} on {device}: \
                     forward {forward_sum}, backward {backward_sum}"
                );
            }
        }
    }
}

/// Average pooling is linear in its input, and a convolution is linear in its weights. With A as
/// the matrix of either, sum(y * A x) = sum(A^T y * x). The cases have windows that extend past
/// the padding, and grouped convolutions whose stride leaves a remainder.
#[test]
fn avg_pool_and_grouped_conv_gradients_are_transposes() {
    type Tracked<const D: usize> = Tensor<Autodiff<Wgsl>, D>;
    fn check<const D: usize>(
        label: &str,
        device: &WgslDevice,
        x: [usize; D],
        linear_map: impl Fn(Tracked<D>) -> Tracked<D>,
    ) {
        let x = Tracked::from_inner(random(x, device)).require_grad();
        let forward = linear_map(x.clone());
        let y = random(forward.dims(), device);
        let grads = (forward.clone() * Tracked::from_inner(y.clone())).backward();
        let backward = x.grad(&grads).expect("x has a gradient");
        let forward_sum = (y * forward.inner()).sum().into_scalar();
        let backward_sum = (backward * x.inner()).sum().into_scalar();
        assert!(
            (forward_sum - backward_sum).abs() < 1e-4 * (1.0 + forward_sum.abs()),
            "{label} on {device}: forward {forward_sum}, backward {backward_sum}"
        );
    }
    for device in devices() {
        for (size, kernel, padding) in [(5, 2, 0), (3, 3, 1), (7, 4, 1), (6, 5, 2), (2, 5, 1)] {
            for count_padding in [true, false] {
                check("avg_pool2d", &device, [2, 3, size, size + 1], |x| {
                    let window = [kernel, kernel];
                    module::avg_pool2d(x, window, [2, 3], [padding, 0], count_padding, true)
                });
            }
        }
        let x = Tracked::<3>::from_inner(random([2, 6, 12], &device));
        for groups in [1, 2, 3] {
            check("conv1d", &device, [6, 6 / groups, 2], |weight| {
                let options = ConvOptions::new([3], [0], [1], groups);
                module::conv1d(x.clone(), weight, None, options)
            });
        }
    }
}

#[test]
fn lanczos_and_pool1d_gradients_do_not_fall_back() {
    for device in gpus() {
        without_fallbacks(&device.to_string(), || lanczos_and_pool1d_gradients(&device));
    }
}

fn lanczos_and_pool1d_gradients(device: &WgslDevice) {
    let x = Tensor::<Autodiff<Wgsl>, 4>::from_inner(random([1, 2, 6, 5], device)).require_grad();
    let options = InterpolateOptions::new(InterpolateMode::Lanczos3);
    let grads = module::interpolate(x.clone(), [9, 4], options).sum().backward();
    // The weights of each output sum to one, so the gradient sums to the number of outputs:
    // 2 channels of 9 x 4.
    let grad_sum = x.grad(&grads).expect("x has a gradient").sum().into_scalar();
    assert!((grad_sum - 72.0).abs() < 1e-3, "{grad_sum} on {device}");

    let x = Tensor::<Autodiff<Wgsl>, 3>::from_inner(random([2, 3, 9], device)).require_grad();
    let y = module::max_pool1d(x.clone(), 3, 2, 1, 1, false).sum()
        + module::avg_pool1d(x.clone(), 3, 2, 1, true, false).sum()
        + module::adaptive_avg_pool1d(x.clone(), 4).sum();
    let grads = y.backward();
    assert!(x.grad(&grads).is_some());
}

/// Returns the sampling coordinates `[1, h, w, 2]` at which interpolation to `[h, w]` samples.
fn regular_grid(output: [usize; 2], align_corners: bool, device: &WgslDevice) -> Tensor<Wgsl, 4> {
    let coordinate = |index: usize, size: usize| match align_corners {
        true => 2.0 * index as f32 / (size - 1) as f32 - 1.0,
        false => (2.0 * index as f32 + 1.0) / size as f32 - 1.0,
    };
    let mut coordinates = Vec::new();
    for row in 0..output[0] {
        for col in 0..output[1] {
            coordinates.extend([coordinate(col, output[1]), coordinate(row, output[0])]);
        }
    }
    Tensor::from_data(TensorData::new(coordinates, [1, output[0], output[1], 2]), device)
}

fn bicubic_options(padding: GridSamplePaddingMode, align_corners: bool) -> GridSampleOptions {
    GridSampleOptions::new(InterpolateMode::Bicubic)
        .with_padding_mode(padding)
        .with_align_corners(align_corners)
}

#[test]
fn bicubic_grid_sample_on_a_regular_grid_equals_interpolate() {
    for device in devices() {
        for align_corners in [true, false] {
            let x = random([1, 2, 5, 8], &device);
            let resized = module::interpolate(
                x.clone(),
                [9, 11],
                interpolate_options(&InterpolateMode::Bicubic, align_corners),
            );
            let grid = regular_grid([9, 11], align_corners, &device);
            let sampled = x.grid_sample_2d(
                grid,
                bicubic_options(GridSamplePaddingMode::Border, align_corners),
            );
            let label = format!("align_corners {align_corners} on {device}");
            assert_close(&label, &sampled.into_data(), &resized.into_data(), CLOSE);
        }
    }
}

/// Compares sampling outside of an image with sampling inside of an explicitly padded image.
#[test]
fn bicubic_grid_sample_reads_the_padding() {
    const MARGIN: usize = 6;
    let (h, w) = (4usize, 5usize);
    for device in devices() {
        for align_corners in [true, false] {
            for padding in [GridSamplePaddingMode::Zeros, GridSamplePaddingMode::Reflection] {
                let x = random([1, 1, h, w], &device);
                let values: Vec<f32> = x.to_data().iter::<f32>().collect();
                let source_index = |padded_index: usize, size: usize| {
                    let index = padded_index as i64 - MARGIN as i64;
                    let size = size as i64;
                    let edge_repeats = i64::from(!align_corners);
                    if padding == GridSamplePaddingMode::Zeros || (0..size).contains(&index) {
                        return index;
                    }
                    // Reflects at the first or last element. That element appears twice if the edge
                    // of the image is half an element further out.
                    let reflect_low = |index: i64| -index - edge_repeats;
                    let reflect_high = |index: i64| 2 * (size - 1) + edge_repeats - index;
                    let index = if index < 0 { reflect_low(index) } else { reflect_high(index) };
                    if index < 0 {
                        reflect_low(index)
                    } else if index >= size {
                        reflect_high(index)
                    } else {
                        index
                    }
                };
                let mut padded = Vec::new();
                for row in (0..h + 2 * MARGIN).map(|row| source_index(row, h)) {
                    for col in (0..w + 2 * MARGIN).map(|col| source_index(col, w)) {
                        let inside = (0..h as i64).contains(&row) && (0..w as i64).contains(&col);
                        padded.push(if inside {
                            values[row as usize * w + col as usize]
                        } else {
                            0.0
                        });
                    }
                }
                let padded = TensorData::new(padded, [1, 1, h + 2 * MARGIN, w + 2 * MARGIN]);
                let padded = Tensor::<Wgsl, 4>::from_data(padded, &device);
                // The same pixels, up to three outside of the image, as coordinates of each image.
                let coordinate = |pixel: f32, size: usize| match align_corners {
                    true => 2.0 * pixel / (size - 1) as f32 - 1.0,
                    false => (2.0 * pixel + 1.0) / size as f32 - 1.0,
                };
                let (mut on_image, mut on_padded) = (Vec::new(), Vec::new());
                for i in 0..40 {
                    let row = -3.0 + (i as f32 * 0.37) % (h as f32 + 5.0);
                    let col = -3.0 + (i as f32 * 0.73) % (w as f32 + 5.0);
                    on_image.extend([coordinate(col, w), coordinate(row, h)]);
                    let margin = MARGIN as f32;
                    on_padded.extend([
                        coordinate(col + margin, w + 2 * MARGIN),
                        coordinate(row + margin, h + 2 * MARGIN),
                    ]);
                }
                let grid = |coordinates| {
                    Tensor::from_data(TensorData::new(coordinates, [1, 5, 8, 2]), &device)
                };
                let sampled =
                    x.grid_sample_2d(grid(on_image), bicubic_options(padding, align_corners));
                let expected = padded.grid_sample_2d(
                    grid(on_padded),
                    bicubic_options(GridSamplePaddingMode::Border, align_corners),
                );
                let label = format!("{padding:?} {align_corners} on {device}");
                let tolerance = Tolerance { relative: 1e-4, absolute: 1e-4 };
                assert_close(&label, &sampled.into_data(), &expected.into_data(), tolerance);
            }
        }
    }
}

/// As in PyTorch: halfway between two pixels, nearest mode takes the even one. A NaN coordinate
/// lies outside of the image with zero padding, and on the first pixel with border padding.
#[test]
fn grid_sample_handles_ties_nan_and_infinite_coordinates() {
    use GridSamplePaddingMode::{Border, Reflection, Zeros};
    for device in devices() {
        // On the CPU, burn-flex computes the other modes, with rules of its own.
        let modes = match device {
            WgslDevice::Cpu => vec![InterpolateMode::Bicubic],
            _ => {
                vec![InterpolateMode::Nearest, InterpolateMode::Bilinear, InterpolateMode::Bicubic]
            }
        };
        let x = Tensor::<Wgsl, 4>::from_floats([[[[1.0, 2.0, 3.0, 4.0]]]], &device);
        let sample = |coordinate: f32, mode: InterpolateMode, padding| {
            let grid = Tensor::<Wgsl, 4>::from_floats([[[[coordinate, 0.0]]]], &device);
            let options = GridSampleOptions::new(mode).with_padding_mode(padding);
            x.clone().grid_sample_2d(grid, options).into_scalar()
        };
        // These coordinates lie at 0.5, 1.5 and 2.5 pixels.
        for (coordinate, expected) in [(-0.5, 1.0), (0.0, 3.0), (0.5, 3.0)] {
            if device == WgslDevice::Cpu {
                continue;
            }
            let value = sample(coordinate, InterpolateMode::Nearest, Zeros);
            assert_eq!(value, expected, "{coordinate} on {device}");
        }
        for coordinate in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e30] {
            for mode in modes.clone() {
                let value = sample(coordinate, mode.clone(), Zeros);
                assert_eq!(value, 0.0, "{coordinate} on {device}");
                let expected = if coordinate > 0.0 { 4.0 } else { 1.0 };
                let value = sample(coordinate, mode.clone(), Border);
                assert_eq!(value, expected, "{coordinate} on {device}");
                let value = sample(coordinate, mode, Reflection);
                assert!((1.0..=4.0).contains(&value), "{coordinate} on {device}: {value}");
            }
        }
    }
}

/// The mean is 100 to 1000 times the standard deviation.
#[test]
fn layer_norm_keeps_precision_at_a_large_mean() {
    for device in devices() {
        for (rows, width, mean) in [
            (70, 7, 100.0),
            (5, 64, 100.0),
            (3, 1000, 100.0),
            (3, 4096, -1000.0),
            (2, 9001, -1000.0),
        ] {
            let x = random([rows, width], &device) + mean;
            let (gamma, beta) = (random([width], &device), random([width], &device));
            let y = Tensor::<Wgsl, 2>::from_primitive(TensorPrimitive::Float(Wgsl::layer_norm(
                x.clone().into_primitive().tensor(),
                gamma.clone().into_primitive().tensor(),
                Some(beta.clone().into_primitive().tensor()),
                1e-5,
            )));
            let read = |data: TensorData| data.iter::<f64>().collect::<Vec<_>>();
            let (x, gamma, beta) =
                (read(x.into_data()), read(gamma.into_data()), read(beta.into_data()));
            let mut expected = Vec::new();
            for row in x.chunks(width) {
                let mean = row.iter().sum::<f64>() / width as f64;
                let variance = row.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / width as f64;
                let scale = 1.0 / (variance + 1e-5).sqrt();
                expected.extend((0..width).map(|k| (row[k] - mean) * scale * gamma[k] + beta[k]));
            }
            let label = format!("rows of {width} with a mean of {mean} on {device}");
            let expected = TensorData::new(expected, [rows, width]);
            let tolerance = Tolerance { relative: 1e-5, absolute: 1e-5 };
            assert_close(&label, &y.into_data(), &expected, tolerance);
        }
    }
}

#[test]
fn unsupported_sampling_panics_with_the_reason() {
    for device in gpus() {
        let x = random([1, 1, 4, 4], &device);
        let grid = random([1, 2, 2, 2], &device);
        let text = panic_message(AssertUnwindSafe(|| {
            let _ = x
                .clone()
                .grid_sample_2d(grid.clone(), GridSampleOptions::new(InterpolateMode::Lanczos3));
        }));
        assert!(text.contains("Lanczos") && text.contains(&device.to_string()), "{text}");
        let text = panic_message(AssertUnwindSafe(|| {
            let _ = x
                .clone()
                .grid_sample_2d(random([1, 2, 2, 3], &device), GridSampleOptions::default());
        }));
        assert!(text.contains("[1, 2, 2, 3]"), "{text}");
        let text = panic_message(|| {
            let empty = Tensor::<Wgsl, 4>::zeros([1, 1, 0, 4], &device);
            let _ = module::interpolate(
                empty,
                [2, 2],
                InterpolateOptions::new(InterpolateMode::Bilinear),
            );
        });
        assert!(text.contains("[1, 1, 0, 4]"), "{text}");
    }
}
