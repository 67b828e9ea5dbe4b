//! Ops of modules: convolution, pooling, interpolation, attention and norms.

use burn_backend::ops::{
    BatchNormTrain, BatchNormTrainBackward, DeformConv2dBackward, IntTensorOps, InterpolateMode,
    MaxPool1dBackward, MaxPool1dWithIndices, MaxPool2dBackward, MaxPool2dWithIndices, ModuleOps,
};
use burn_backend_021::ops::ModuleOps as _;

use super::adaptive::{adaptive_avg_pool3d, adaptive_avg_pool3d_backward};
use super::batch_norm::{batch_norm_train, batch_norm_train_backward};
use super::nearest_exact::{nearest_exact, nearest_exact_backward};
use super::padding::{padded, unpadded};
use super::prelude::*;
use super::windows::{Axis, Windows};
use crate::release::check_interpolation;
use burn_wgsl::WgslTensor;

/// Calls a macro with the methods that both contracts have.
#[doc(hidden)]
#[macro_export]
macro_rules! module_methods {
    ($macro:ident) => {
        $macro! {
            embedding(weights: F, indices: I) -> F;
            embedding_backward(weights: F, output_grad: F, indices: I) -> F;
            linear(x: F, weight: F, bias: Option<F>) -> F;
            linear_x_backward(weight: F, output_grad: F) -> F;
            linear_weight_backward(x: F, output_grad: F) -> F;
            linear_bias_backward(output_grad: F) -> F;
            conv1d_bias_backward(x: F, bias: F, output_grad: F) -> F;
            conv2d_bias_backward(x: F, bias: F, output_grad: F) -> F;
            deform_conv2d(
                x: F, offset: F, weight: F, mask: Option<F>, bias: Option<F>, options: DeformConvOptions<2>
            ) -> F;
            conv3d_bias_backward(x: F, bias: F, output_grad: F) -> F;
            conv_transpose1d(x: F, weight: F, bias: Option<F>, options: ConvTransposeOptions<1>) -> F;
            conv_transpose1d_x_backward(weight: F, output_grad: F, options: ConvTransposeOptions<1>) -> F;
            conv_transpose1d_weight_backward(
                x: F, weight: F, output_grad: F, options: ConvTransposeOptions<1>
            ) -> F;
            conv_transpose1d_bias_backward(x: F, bias: F, output_grad: F) -> F;
            conv_transpose2d(x: F, weight: F, bias: Option<F>, options: ConvTransposeOptions<2>) -> F;
            conv_transpose2d_x_backward(weight: F, output_grad: F, options: ConvTransposeOptions<2>) -> F;
            conv_transpose2d_weight_backward(
                x: F, weight: F, output_grad: F, options: ConvTransposeOptions<2>
            ) -> F;
            conv_transpose2d_bias_backward(x: F, bias: F, output_grad: F) -> F;
            conv_transpose3d(x: F, weight: F, bias: Option<F>, options: ConvTransposeOptions<3>) -> F;
            conv_transpose3d_x_backward(weight: F, output_grad: F, options: ConvTransposeOptions<3>) -> F;
            conv_transpose3d_weight_backward(
                x: F, weight: F, output_grad: F, options: ConvTransposeOptions<3>
            ) -> F;
            conv_transpose3d_bias_backward(x: F, bias: F, output_grad: F) -> F;
            unfold4d(x: F, kernel_size: [usize; 2], options: UnfoldOptions) -> F;
            adaptive_avg_pool2d(x: F, output_size: [usize; 2]) -> F;
            adaptive_avg_pool2d_backward(x: F, grad: F) -> F;
            adaptive_avg_pool1d(x: F, output_size: usize) -> F;
            adaptive_avg_pool1d_backward(x: F, grad: F) -> F;
            layer_norm(tensor: F, gamma: F, beta: Option<F>, epsilon: f64) -> F;
            ctc_loss(log_probs: F, targets: I, input_lengths: I, target_lengths: I, blank: usize) -> F;
            ctc_loss_backward(
                log_probs: F, targets: I, input_lengths: I, target_lengths: I, grad_loss: F, blank: usize
            ) -> F;
        }
    };
}

/// Calls a macro with the convolutions, and the number of their axes.
#[doc(hidden)]
#[macro_export]
macro_rules! convolution_methods {
    ($macro:ident) => {
        $macro! {
            conv1d, conv1d_x_backward, conv1d_weight_backward: 1;
            conv2d, conv2d_x_backward, conv2d_weight_backward: 2;
            conv3d, conv3d_x_backward, conv3d_weight_backward: 3;
        }
    };
}

macro_rules! convolutions {
    ($($conv:ident, $x_backward:ident, $weight_backward:ident: $axes:literal;)*) => {
        $(fn $conv(x: F, weight: F, bias: Option<F>, options: ConvOptions<$axes>) -> F {
            let (x, options, _) = padded(x.converted(), options);
            Wgsl::$conv(x, weight.converted(), bias.converted(), options).converted()
        }

        fn $x_backward(x: F, weight: F, output_grad: F, options: ConvOptions<$axes>) -> F {
            let (x, options, place) = padded(x.converted(), options);
            let grad = Wgsl::$x_backward(x, weight.converted(), output_grad.converted(), options);
            unpadded(grad, place).converted()
        }

        fn $weight_backward(x: F, weight: F, output_grad: F, options: ConvOptions<$axes>) -> F {
            let (x, options, _) = padded(x.converted(), options);
            Wgsl::$weight_backward(x, weight.converted(), output_grad.converted(), options).converted()
        })*
    };
}

/// Converts the input of pooling in one dimension. Settings are kernel, stride, padding and
/// dilation.
fn line(x: F, settings: [usize; 4], ceil_mode: bool) -> (WgslTensor, Windows<1>) {
    let [kernel, stride, padding, dilation] = settings;
    let x = x.converted();
    let windows = Windows::new(&x, [Axis { kernel, stride, padding, dilation }], ceil_mode);
    (x, windows)
}

/// As `line`, in two dimensions.
fn plane(x: F, settings: [[usize; 2]; 4], ceil_mode: bool) -> (WgslTensor, Windows<2>) {
    let axis = |axis: usize| {
        let [kernel, stride, padding, dilation] = settings.map(|setting| setting[axis]);
        Axis { kernel, stride, padding, dilation }
    };
    let x = x.converted();
    let windows = Windows::new(&x, [axis(0), axis(1)], ceil_mode);
    (x, windows)
}

impl ModuleOps<Self> for Port {
    module_methods!(forward);
    convolution_methods!(convolutions);
    module_methods_of_release!();

    fn deform_conv2d_backward(
        x: F,
        offset: F,
        weight: F,
        mask: Option<F>,
        bias: Option<F>,
        output_grad: F,
        options: DeformConvOptions<2>,
    ) -> DeformConv2dBackward<Self> {
        let gradients = Wgsl::deform_conv2d_backward(
            x.converted(),
            offset.converted(),
            weight.converted(),
            mask.converted(),
            bias.converted(),
            output_grad.converted(),
            options.converted(),
        );
        DeformConv2dBackward {
            x_grad: gradients.x_grad.converted(),
            offset_grad: gradients.offset_grad.converted(),
            weight_grad: gradients.weight_grad.converted(),
            mask_grad: gradients.mask_grad.converted(),
            bias_grad: gradients.bias_grad.converted(),
        }
    }

    fn max_pool1d(
        x: F,
        kernel_size: usize,
        stride: usize,
        padding: usize,
        dilation: usize,
        ceil_mode: bool,
    ) -> F {
        let (x, windows) = line(x, [kernel_size, stride, padding, dilation], ceil_mode);
        Wgsl::max_pool1d(x, kernel_size, stride, padding, dilation, windows.ceil_mode).converted()
    }

    fn max_pool2d(
        x: F,
        kernel_size: [usize; 2],
        stride: [usize; 2],
        padding: [usize; 2],
        dilation: [usize; 2],
        ceil_mode: bool,
    ) -> F {
        let (x, windows) = plane(x, [kernel_size, stride, padding, dilation], ceil_mode);
        let pooled = Wgsl::max_pool2d(x, kernel_size, stride, padding, dilation, windows.ceil_mode);
        windows.cut(pooled).converted()
    }

    fn max_pool1d_with_indices(
        x: F,
        kernel_size: usize,
        stride: usize,
        padding: usize,
        dilation: usize,
        ceil_mode: bool,
        indices_dtype: IntDType,
    ) -> MaxPool1dWithIndices<Self> {
        let (x, windows) = line(x, [kernel_size, stride, padding, dilation], ceil_mode);
        let ceil_mode = windows.ceil_mode;
        let pooled =
            Wgsl::max_pool1d_with_indices(x, kernel_size, stride, padding, dilation, ceil_mode);
        let indices = Self::int_cast(pooled.indices.converted(), indices_dtype);
        MaxPool1dWithIndices { output: pooled.output.converted(), indices }
    }

    fn max_pool1d_with_indices_backward(
        x: F,
        kernel_size: usize,
        stride: usize,
        padding: usize,
        dilation: usize,
        ceil_mode: bool,
        output_grad: F,
        indices: I,
    ) -> MaxPool1dBackward<Self> {
        let (x, windows) = line(x, [kernel_size, stride, padding, dilation], ceil_mode);
        let gradient = Wgsl::max_pool1d_with_indices_backward(
            x,
            kernel_size,
            stride,
            padding,
            dilation,
            windows.ceil_mode,
            output_grad.converted(),
            indices.converted(),
        );
        MaxPool1dBackward { x_grad: gradient.x_grad.converted() }
    }

    fn max_pool2d_with_indices(
        x: F,
        kernel_size: [usize; 2],
        stride: [usize; 2],
        padding: [usize; 2],
        dilation: [usize; 2],
        ceil_mode: bool,
        indices_dtype: IntDType,
    ) -> MaxPool2dWithIndices<Self> {
        let (x, windows) = plane(x, [kernel_size, stride, padding, dilation], ceil_mode);
        let ceil_mode = windows.ceil_mode;
        let pooled =
            Wgsl::max_pool2d_with_indices(x, kernel_size, stride, padding, dilation, ceil_mode);
        let indices = windows.cut_indices(pooled.indices).converted();
        MaxPool2dWithIndices {
            output: windows.cut(pooled.output).converted(),
            indices: Self::int_cast(indices, indices_dtype),
        }
    }

    fn max_pool2d_with_indices_backward(
        x: F,
        kernel_size: [usize; 2],
        stride: [usize; 2],
        padding: [usize; 2],
        dilation: [usize; 2],
        ceil_mode: bool,
        output_grad: F,
        indices: I,
    ) -> MaxPool2dBackward<Self> {
        let (x, windows) = plane(x, [kernel_size, stride, padding, dilation], ceil_mode);
        let gradient = Wgsl::max_pool2d_with_indices_backward(
            x,
            kernel_size,
            stride,
            padding,
            dilation,
            windows.ceil_mode,
            windows.grown(output_grad.converted()),
            windows.grown_indices(indices.converted()),
        );
        MaxPool2dBackward { x_grad: gradient.x_grad.converted() }
    }

    fn adaptive_avg_pool3d(x: F, output_size: [usize; 3]) -> F {
        adaptive_avg_pool3d(x.converted(), output_size).converted()
    }

    fn adaptive_avg_pool3d_backward(x: F, grad: F) -> F {
        adaptive_avg_pool3d_backward(x.converted(), grad.converted()).converted()
    }

    fn interpolate(x: F, output_size: [usize; 2], options: InterpolateOptions) -> F {
        check_interpolation(&options, &x, output_size);
        match options.mode {
            InterpolateMode::NearestExact => nearest_exact(x.converted(), output_size),
            _ => Wgsl::interpolate(x.converted(), output_size, options.converted()),
        }
        .converted()
    }

    fn interpolate_backward(
        x: F,
        grad: F,
        output_size: [usize; 2],
        options: InterpolateOptions,
    ) -> F {
        check_interpolation(&options, &x, output_size);
        let (x, grad) = (x.converted(), grad.converted());
        match options.mode {
            InterpolateMode::NearestExact => nearest_exact_backward(&x, grad),
            _ => Wgsl::interpolate_backward(x, grad, output_size, options.converted()),
        }
        .converted()
    }

    fn batch_norm_train(x: F, gamma: F, beta: F, epsilon: f64) -> BatchNormTrain<Self> {
        let [output, mean, variance] = batch_norm_train(x.0, gamma.0, beta.0, epsilon);
        BatchNormTrain {
            output: output.converted(),
            mean: mean.converted(),
            variance: variance.converted(),
        }
    }

    fn batch_norm_train_backward(
        x: F,
        gamma: F,
        mean: F,
        variance: F,
        epsilon: f64,
        output_grad: F,
    ) -> BatchNormTrainBackward<Self> {
        let statistics = [mean.0, variance.0];
        let [x_grad, gamma_grad, beta_grad] =
            batch_norm_train_backward(x.0, gamma.0, statistics, epsilon, output_grad.0);
        BatchNormTrainBackward {
            x_grad: x_grad.converted(),
            gamma_grad: gamma_grad.converted(),
            beta_grad: beta_grad.converted(),
        }
    }

    fn has_ctc_loss_backward() -> bool {
        Wgsl::has_ctc_loss_backward()
    }
}
