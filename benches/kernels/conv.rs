//! Convolutions of one to three dimensions and their gradients, in sizes typical of image
//! networks.

use burn::tensor::Tensor;
use burn::tensor::module::{conv_transpose2d, conv1d, conv2d, conv3d};
use burn::tensor::ops::{ConvOptions, ConvTransposeOptions};
use burn_wgsl::kernels::conv::CASES;
use criterion::Criterion;

use crate::measure::{AutodiffWgsl, measure, measure_cases, measure_op, random};

pub fn benches(criterion: &mut Criterion) {
    measure_cases(criterion, "conv", CASES);
    for (x, out, kernel, stride) in [
        ([64, 32, 8, 8], 64, 3, 1),
        ([4, 64, 56, 56], 64, 3, 1),
        ([4, 64, 56, 56], 256, 1, 1),
        ([4, 64, 56, 56], 128, 3, 2),
        ([4, 3, 224, 224], 64, 7, 2),
    ] {
        Conv2d { x, out, kernel, stride, groups: 1 }.measure(criterion, "conv");
    }

    let flops = 2 * 4 * 1024 * 128 * 128 * 3;
    measure(criterion, "conv/conv1d/4x128x1024-128-3", flops, |device| {
        let (x, weight) = (random([4, 128, 1024], device), random([128, 128, 3], device));
        move || conv1d(x.clone(), weight.clone(), None, ConvOptions::new([1], [1], [1], 1))
    });
    let flops = 2 * 16 * 32 * 32 * 16 * 32 * 27;
    measure(criterion, "conv/conv3d/1x16x16x32x32-32-3x3x3", flops, |device| {
        let (x, weight) = (random([1, 16, 16, 32, 32], device), random([32, 16, 3, 3, 3], device));
        move || conv3d(x.clone(), weight.clone(), None, ConvOptions::new([1; 3], [1; 3], [1; 3], 1))
    });
    let flops = 2 * 4 * 28 * 28 * 64 * 64 * 16;
    let shapes = [[4, 64, 28, 28], [64, 64, 4, 4]];
    measure_op(
        criterion,
        "conv/conv_transpose2d/4x64x28x28-64-4x4-stride2",
        flops,
        shapes,
        |[x, weight]| {
            conv_transpose2d(
                x,
                weight,
                None,
                ConvTransposeOptions::new([2; 2], [1; 2], [0; 2], [1; 2], 1),
            )
        },
    );
}

/// A 2D convolution with "same" padding: only the stride reduces the image size.
pub struct Conv2d {
    /// Shape of the input, `[batch, channels, height, width]`.
    pub x: [usize; 4],
    /// Output channels.
    pub out: usize,
    pub kernel: usize,
    pub stride: usize,
    pub groups: usize,
}

impl Conv2d {
    /// Measures the forward pass, then each gradient together with the forward pass.
    pub fn measure(self, criterion: &mut Criterion, family: &str) {
        let Self { x: x_shape @ [batch, channels, height, width], out, kernel, stride, groups } =
            self;
        let weight_shape = [out, channels / groups, kernel, kernel];
        let pixels = batch * height.div_ceil(stride) * width.div_ceil(stride);
        let flops = 2 * pixels * weight_shape.iter().product::<usize>();
        let mut name = format!("{batch}x{channels}x{height}x{width}-{out}-{kernel}x{kernel}");
        if stride > 1 {
            name += &format!("-stride{stride}");
        }
        let options = ConvOptions::new([stride; 2], [kernel / 2; 2], [1; 2], groups);
        measure_op(
            criterion,
            &format!("{family}/conv2d/{name}"),
            flops,
            [x_shape, weight_shape],
            |[x, weight]| conv2d(x, weight, None, options.clone()),
        );
        for (operand, is_input) in [("input", true), ("weight", false)] {
            measure(
                criterion,
                &format!("{family}/conv2d_{operand}_gradient/{name}"),
                2 * flops,
                |device| {
                    let x = Tensor::<AutodiffWgsl, 4>::from_inner(random(x_shape, device))
                        .set_require_grad(is_input);
                    let weight =
                        Tensor::<AutodiffWgsl, 4>::from_inner(random(weight_shape, device))
                            .set_require_grad(!is_input);
                    let options = options.clone();
                    move || {
                        conv2d(x.clone(), weight.clone(), None, options.clone()).sum().backward()
                    }
                },
            );
        }
    }
}
