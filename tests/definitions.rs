//! Where burn-flex is no truth: what it lacks, or defines otherwise than PyTorch, against definitions written out here.

mod common;

use burn::backend::Autodiff;
use burn::tensor::module;
use burn::tensor::ops::{InterpolateMode, InterpolateOptions};
use burn::tensor::{Distribution, Tensor, TensorData, TensorPrimitive};
use burn_backend::ops::ModuleOps;
use burn_wgsl::{Wgsl, WgslDevice};
use common::{Tolerance, assert_close, devices, gpus};

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
            [
                1.0, 1.0, 2.0, 2.0, 1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 4.0, 4.0, 3.0, 3.0, 4.0, 4.0,
            ],
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
                Tolerance {
                    relative: 0.0,
                    absolute: 5e-5,
                },
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
        for (input, output) in [
            ([7, 5], [11, 13]),
            ([9, 14], [4, 3]),
            ([1, 6], [8, 1]),
            ([5, 8], [40, 31]),
        ] {
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
                let (one, other) = (
                    (y * forward).sum().into_scalar(),
                    (backward * x).sum().into_scalar(),
                );
                assert!(
                    (one - other).abs() < 2e-6 * size,
                    "{mode:?} {align_corners} {input:?} to {output:?} on {device}: {one} and {other}"
                );
            }
        }
    }
}

/// The Lanczos filter trains too, and its gradient leaves no GPU.
#[test]
fn the_lanczos_gradient_stays_on_the_gpu() {
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

        assert_eq!(burn_wgsl::fallbacks(), before, "on {device}");
    }
}

/// What does not fit is an error that says so, and nothing is read past an end.
#[test]
fn what_cannot_be_resized_is_refused_by_name() {
    for device in gpus() {
        let message = |f: &dyn Fn()| {
            let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f))
                .expect_err("it is refused");
            panic.downcast_ref::<String>().cloned().unwrap_or_default()
        };
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
