//! Where burn-flex is no truth: what it lacks, or defines otherwise than PyTorch, against definitions written out here.

mod common;

use burn::backend::Autodiff;
use burn::tensor::module;
use burn::tensor::ops::{
    ConvOptions, GridSampleOptions, GridSamplePaddingMode, InterpolateMode, InterpolateOptions,
};
use burn::tensor::{Distribution, Tensor, TensorData, TensorPrimitive};
use burn_backend::ops::ModuleOps;
use burn_wgsl::{Wgsl, WgslDevice};
use common::{Tolerance, assert_close, devices, gpus};

const CLOSE: Tolerance = Tolerance { relative: 2e-5, absolute: 2e-5 };

fn random<const D: usize>(shape: [usize; D], device: &WgslDevice) -> Tensor<Wgsl, D> {
    Tensor::random(shape, Distribution::Normal(0.0, 1.0), device)
}

fn resizing(mode: &InterpolateMode, align_corners: bool) -> InterpolateOptions {
    InterpolateOptions::new(mode.clone()).with_align_corners(align_corners)
}

/// The figures in PyTorch's documentation of `Upsample`.
#[test]
fn resizing_gives_the_documented_figures() {
    let cases = [
        (
            resizing(&InterpolateMode::Nearest, false),
            [1.0, 1.0, 2.0, 2.0, 1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 4.0, 4.0, 3.0, 3.0, 4.0, 4.0],
        ),
        (
            resizing(&InterpolateMode::Bilinear, false),
            [
                1.0, 1.25, 1.75, 2.0, 1.5, 1.75, 2.25, 2.5, 2.5, 2.75, 3.25, 3.5, 3.0, 3.25, 3.75,
                4.0,
            ],
        ),
        (
            resizing(&InterpolateMode::Bilinear, true),
            [
                1.0, 1.3333, 1.6667, 2.0, 1.6667, 2.0, 2.3333, 2.6667, 2.3333, 2.6667, 3.0, 3.3333,
                3.0, 3.3333, 3.6667, 4.0,
            ],
        ),
    ];
    for device in devices() {
        let x = Tensor::<Wgsl, 4>::from_floats([[[[1.0, 2.0], [3.0, 4.0]]]], &device);
        for (options, truth) in &cases {
            let y = module::interpolate(x.clone(), [4, 4], options.clone());
            let truth = TensorData::new(truth.to_vec(), [1, 1, 4, 4]);
            let what = format!("{options:?} on {device}");
            assert_close(
                &what,
                &y.into_data(),
                &truth,
                Tolerance { relative: 0.0, absolute: 5e-5 },
            );
        }
    }
}

/// Resizing is linear: for its matrix A and any x and y, the sum of y * A x is that of A^T y * x.
#[test]
fn the_gradient_of_resizing_is_its_transpose() {
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
                let options = resizing(mode, align_corners);
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
                let size = (y.clone() * forward.clone()).abs().sum().into_scalar();
                let (one, other) =
                    ((y * forward).sum().into_scalar(), (backward * x).sum().into_scalar());
                assert!(
                    (one - other).abs() < 2e-6 * size,
                    "{mode:?} {align_corners} {input:?} to {output:?} on {device}: {one} and {other}"
                );
            }
        }
    }
}

/// Average pooling is linear in its input and a convolution in its weights: for either as a matrix A, the sum of y * A x is
/// that of A^T y * x. Here where windows hang over the padding, and where groups meet a stride with a remainder.
#[test]
fn gradients_of_pools_and_grouped_weights_are_transposes() {
    type Trained<const D: usize> = Tensor<Autodiff<Wgsl>, D>;
    fn check<const D: usize>(
        what: &str,
        device: &WgslDevice,
        x: [usize; D],
        map: impl Fn(Trained<D>) -> Trained<D>,
    ) {
        let x = Trained::from_inner(random(x, device)).require_grad();
        let forward = map(x.clone());
        let y = random(forward.dims(), device);
        let grads = (forward.clone() * Trained::from_inner(y.clone())).backward();
        let backward = x.grad(&grads).expect("x is tracked");
        let one = (y * forward.inner()).sum().into_scalar();
        let other = (backward * x.inner()).sum().into_scalar();
        assert!(
            (one - other).abs() < 1e-4 * (1.0 + one.abs()),
            "{what} on {device}: {one} and {other}"
        );
    }
    for device in devices() {
        for (size, kernel, padding) in [(5, 2, 0), (3, 3, 1), (7, 4, 1), (6, 5, 2), (2, 5, 1)] {
            for counted in [true, false] {
                check("avg_pool2d", &device, [2, 3, size, size + 1], |x| {
                    let window = [kernel, kernel];
                    module::avg_pool2d(x, window, [2, 3], [padding, 0], counted, true)
                });
            }
        }
        let x = Trained::<3>::from_inner(random([2, 6, 12], &device));
        for groups in [1, 2, 3] {
            check("conv1d", &device, [6, 6 / groups, 2], |weight| {
                let options = ConvOptions::new([3], [0], [1], groups);
                module::conv1d(x.clone(), weight, None, options)
            });
        }
    }
}

/// The Lanczos filter trains too, and its gradient leaves no GPU; so it is for pooling in one dimension.
#[test]
fn gradients_stay_on_the_gpu() {
    for device in gpus() {
        let before = burn_wgsl::fallbacks();
        let x =
            Tensor::<Autodiff<Wgsl>, 4>::from_inner(random([1, 2, 6, 5], &device)).require_grad();
        let y = module::interpolate(
            x.clone(),
            [9, 4],
            InterpolateOptions::new(InterpolateMode::Lanczos3),
        );
        let grads = y.sum().backward();
        // Weights of an output sum to one, so the gradient of their sum sums to the count of outputs.
        let total = x.grad(&grads).expect("x is tracked").sum().into_scalar();
        assert!((total - 72.0).abs() < 1e-3, "{total} on {device}");

        let x = Tensor::<Autodiff<Wgsl>, 3>::from_inner(random([2, 3, 9], &device)).require_grad();
        let y = module::max_pool1d(x.clone(), 3, 2, 1, 1, false).sum()
            + module::avg_pool1d(x.clone(), 3, 2, 1, true, false).sum()
            + module::adaptive_avg_pool1d(x.clone(), 4).sum();
        let grads = y.backward();
        assert!(x.grad(&grads).is_some());
        assert_eq!(burn_wgsl::fallbacks(), before, "on {device}");
    }
}

/// Places that lie on an image as resizing lays its outputs.
fn regular_grid(output: [usize; 2], align_corners: bool, device: &WgslDevice) -> Tensor<Wgsl, 4> {
    let place = |o: usize, count: usize| match align_corners {
        true => 2.0 * o as f32 / (count - 1) as f32 - 1.0,
        false => (2.0 * o as f32 + 1.0) / count as f32 - 1.0,
    };
    let mut places = Vec::new();
    for row in 0..output[0] {
        for col in 0..output[1] {
            places.extend([place(col, output[1]), place(row, output[0])]);
        }
    }
    Tensor::from_data(TensorData::new(places, [1, output[0], output[1], 2]), device)
}

fn sampling(padding: GridSamplePaddingMode, align_corners: bool) -> GridSampleOptions {
    GridSampleOptions::new(InterpolateMode::Bicubic)
        .with_padding_mode(padding)
        .with_align_corners(align_corners)
}

#[test]
fn bicubic_sampling_on_a_regular_grid_is_resizing() {
    for device in devices() {
        for align_corners in [true, false] {
            let x = random([1, 2, 5, 8], &device);
            let resized = module::interpolate(
                x.clone(),
                [9, 11],
                resizing(&InterpolateMode::Bicubic, align_corners),
            );
            let grid = regular_grid([9, 11], align_corners, &device);
            let sampled =
                x.grid_sample_2d(grid, sampling(GridSamplePaddingMode::Border, align_corners));
            let what = format!("align_corners {align_corners} on {device}");
            assert_close(&what, &sampled.into_data(), &resized.into_data(), CLOSE);
        }
    }
}

/// What lies outside of an image may as well be a part of a larger one.
#[test]
fn bicubic_sampling_sees_the_padding() {
    const MORE: usize = 6;
    let (h, w) = (4usize, 5usize);
    for device in devices() {
        for align_corners in [true, false] {
            for padding in [GridSamplePaddingMode::Zeros, GridSamplePaddingMode::Reflection] {
                let x = random([1, 1, h, w], &device);
                let values: Vec<f32> = x.to_data().iter::<f32>().collect();
                let element = |at: usize, size: usize| {
                    let at = at as i64 - MORE as i64;
                    let size = size as i64;
                    let again = i64::from(!align_corners);
                    if padding == GridSamplePaddingMode::Zeros || (0..size).contains(&at) {
                        return at;
                    }
                    // Back from the first or last element, which counts twice if the ends are half an element out.
                    let at = if at < 0 { -at - again } else { 2 * (size - 1) + again - at };
                    if at < 0 {
                        -at - again
                    } else if at >= size {
                        2 * (size - 1) + again - at
                    } else {
                        at
                    }
                };
                let mut large = Vec::new();
                for row in (0..h + 2 * MORE).map(|row| element(row, h)) {
                    for col in (0..w + 2 * MORE).map(|col| element(col, w)) {
                        let inside = (0..h as i64).contains(&row) && (0..w as i64).contains(&col);
                        large.push(if inside {
                            values[row as usize * w + col as usize]
                        } else {
                            0.0
                        });
                    }
                }
                let large = TensorData::new(large, [1, 1, h + 2 * MORE, w + 2 * MORE]);
                let large = Tensor::<Wgsl, 4>::from_data(large, &device);
                // Pixels up to three outside of the image, as places on the one and the other.
                let place = |pixel: f32, size: usize| match align_corners {
                    true => 2.0 * pixel / (size - 1) as f32 - 1.0,
                    false => (2.0 * pixel + 1.0) / size as f32 - 1.0,
                };
                let (mut here, mut there) = (Vec::new(), Vec::new());
                for i in 0..40 {
                    let row = -3.0 + (i as f32 * 0.37) % (h as f32 + 5.0);
                    let col = -3.0 + (i as f32 * 0.73) % (w as f32 + 5.0);
                    here.extend([place(col, w), place(row, h)]);
                    let more = MORE as f32;
                    there
                        .extend([place(col + more, w + 2 * MORE), place(row + more, h + 2 * MORE)]);
                }
                let grid =
                    |places| Tensor::from_data(TensorData::new(places, [1, 5, 8, 2]), &device);
                let small = x.grid_sample_2d(grid(here), sampling(padding, align_corners));
                let truth = large.grid_sample_2d(
                    grid(there),
                    sampling(GridSamplePaddingMode::Border, align_corners),
                );
                let what = format!("{padding:?} {align_corners} on {device}");
                let loose = Tolerance { relative: 1e-4, absolute: 1e-4 };
                assert_close(&what, &small.into_data(), &truth.into_data(), loose);
            }
        }
    }
}

/// As PyTorch has it: half-way between two pixels the even one is nearest, and a place that is no number
/// lies outside, or on the first pixel.
#[test]
fn sampling_at_doubtful_places() {
    use GridSamplePaddingMode::{Border, Reflection, Zeros};
    for device in gpus() {
        let x = Tensor::<Wgsl, 4>::from_floats([[[[1.0, 2.0, 3.0, 4.0]]]], &device);
        let at = |place: f32, mode: InterpolateMode, padding| {
            let grid = Tensor::<Wgsl, 4>::from_floats([[[[place, 0.0]]]], &device);
            let options = GridSampleOptions::new(mode).with_padding_mode(padding);
            x.clone().grid_sample_2d(grid, options).into_scalar()
        };
        // At 0.5, 1.5 and 2.5 pixels.
        for (place, truth) in [(-0.5, 1.0), (0.0, 3.0), (0.5, 3.0)] {
            assert_eq!(at(place, InterpolateMode::Nearest, Zeros), truth, "{place} on {device}");
        }
        for place in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e30] {
            for mode in [InterpolateMode::Nearest, InterpolateMode::Bilinear] {
                assert_eq!(at(place, mode.clone(), Zeros), 0.0, "{place} on {device}");
                let truth = if place > 0.0 { 4.0 } else { 1.0 };
                assert_eq!(at(place, mode.clone(), Border), truth, "{place} on {device}");
                let reflected = at(place, mode, Reflection);
                assert!((1.0..=4.0).contains(&reflected), "{place} on {device}: {reflected}");
            }
        }
    }
}

/// A mean of a hundred or a thousand deviations costs no digits.
#[test]
fn layer_norm_keeps_its_digits_at_a_large_mean() {
    for device in devices() {
        for (rows, width, mean) in
            [(70, 7, 100.0), (5, 64, 100.0), (3, 1000, 100.0), (3, 4096, -1000.0)]
        {
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
            let mut truth = Vec::new();
            for row in x.chunks(width) {
                let mean = row.iter().sum::<f64>() / width as f64;
                let variance = row.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / width as f64;
                let scale = 1.0 / (variance + 1e-5).sqrt();
                truth.extend((0..width).map(|k| (row[k] - mean) * scale * gamma[k] + beta[k]));
            }
            let what = format!("rows of {width} around {mean} on {device}");
            let truth = TensorData::new(truth, [rows, width]);
            assert_close(
                &what,
                &y.into_data(),
                &truth,
                Tolerance { relative: 1e-5, absolute: 1e-5 },
            );
        }
    }
}

/// What does not fit is an error that says so, and nothing is read past an end.
#[test]
fn what_cannot_be_sampled_is_refused_by_name() {
    for device in gpus() {
        let message = |f: &dyn Fn()| {
            let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f))
                .expect_err("it is refused");
            panic.downcast_ref::<String>().cloned().unwrap_or_default()
        };
        let x = random([1, 1, 4, 4], &device);
        let grid = random([1, 2, 2, 2], &device);
        let text = message(&|| {
            let _ = x
                .clone()
                .grid_sample_2d(grid.clone(), GridSampleOptions::new(InterpolateMode::Lanczos3));
        });
        assert!(text.contains("Lanczos") && text.contains(&device.to_string()), "{text}");
        let text = message(&|| {
            let _ = x
                .clone()
                .grid_sample_2d(random([1, 2, 2, 3], &device), GridSampleOptions::default());
        });
        assert!(text.contains("[1, 2, 2, 3]"), "{text}");
        let text = message(&|| {
            let none = Tensor::<Wgsl, 4>::zeros([1, 1, 0, 4], &device);
            let _ = module::interpolate(
                none,
                [2, 2],
                InterpolateOptions::new(InterpolateMode::Bilinear),
            );
        });
        assert!(text.contains("[1, 1, 0, 4]"), "{text}");
    }
}
