//! Convolution and pooling.

use burn_backend::ops::{
    ConvOptions, ConvTransposeOptions, DeformConv2dBackward, DeformConvOptions, FloatTensorOps,
    IntTensorOps, MaxPool2dBackward, MaxPool2dWithIndices, ModuleOps, UnfoldOptions,
};
use burn_backend::{TensorData, TensorMetadata};
use burn_flex::{Flex, FlexTensor};
use burn_std::{IntDType, Shape, Slice};

use super::memory::check_result;
use crate::kernels::ops::options::{ConvOptions as KernelOptions, PoolWindow, TransposedOptions};
use crate::kernels::{conv, deform, pool};
use crate::tensor;

fn dims(tensor: Option<&FlexTensor>) -> Option<Vec<usize>> {
    tensor.map(|tensor| tensor.shape().to_vec())
}

/// Defines convolutions with the shape checks of the kernel launchers.
macro_rules! checked_convs {
    ($(
        $axes:literal $conv:ident $x_backward:ident
            $weight_backward:ident = $weight_gradient:path;
    )*) => {
        $(
            pub(crate) fn $conv(
                x: FlexTensor,
                weight: FlexTensor,
                bias: Option<FlexTensor>,
                options: ConvOptions<$axes>,
            ) -> FlexTensor {
                let bias_shape = dims(bias.as_ref());
                let (lhs, rhs, kernel_options) = (x.shape(), weight.shape(), options.clone());
                let shape =
                    conv::conv_shape(&lhs, &rhs, bias_shape.as_deref(), kernel_options.into());
                check_result(stringify!($conv), shape, x.dtype());
                Flex::$conv(x, weight, bias, options)
            }

            pub(crate) fn $x_backward(
                x: FlexTensor,
                weight: FlexTensor,
                grad: FlexTensor,
                options: ConvOptions<$axes>,
            ) -> FlexTensor {
                let op = stringify!($x_backward);
                check_gradient(op, &x, &weight, &grad, options.clone().into());
                Flex::$x_backward(x, weight, grad, options)
            }

            pub(crate) fn $weight_backward(
                x: FlexTensor,
                weight: FlexTensor,
                grad: FlexTensor,
                options: ConvOptions<$axes>,
            ) -> FlexTensor {
                let op = stringify!($weight_backward);
                check_gradient(op, &x, &weight, &grad, options.clone().into());
                $weight_gradient(x, weight, grad, options)
            }
        )*
    };
}

fn check_gradient(
    op: &str,
    x: &FlexTensor,
    weight: &FlexTensor,
    grad: &FlexTensor,
    options: KernelOptions,
) {
    if let Err(error) = conv::check_gradient(&x.shape(), &weight.shape(), &grad.shape(), options) {
        panic!("{op} on cpu: {error}");
    }
}

checked_convs! {
    1 conv1d conv1d_x_backward conv1d_weight_backward = weight_gradient;
    2 conv2d conv2d_x_backward conv2d_weight_backward = Flex::conv2d_weight_backward;
    3 conv3d conv3d_x_backward conv3d_weight_backward = Flex::conv3d_weight_backward;
}

/// The same for transposed convolutions.
macro_rules! checked_transposed {
    ($($axes:literal $conv:ident $x_backward:ident $weight_backward:ident;)*) => {
        $(
            pub(crate) fn $conv(
                x: FlexTensor,
                weight: FlexTensor,
                bias: Option<FlexTensor>,
                options: ConvTransposeOptions<$axes>,
            ) -> FlexTensor {
                let bias_shape = dims(bias.as_ref());
                let (lhs, rhs, kernel_options) = (x.shape(), weight.shape(), options.clone());
                let shape = conv::transposed_shape(
                    &lhs, &rhs, bias_shape.as_deref(), kernel_options.into(),
                );
                check_result(stringify!($conv), shape, x.dtype());
                Flex::$conv(x, weight, bias, options)
            }

            pub(crate) fn $x_backward(
                weight: FlexTensor,
                grad: FlexTensor,
                options: ConvTransposeOptions<$axes>,
            ) -> FlexTensor {
                let kernel_options: TransposedOptions = options.clone().into();
                let (lhs, rhs) = (grad.shape(), weight.shape());
                let shape = conv::conv_shape(&lhs, &rhs, None, kernel_options.conv);
                check_result(stringify!($x_backward), shape, grad.dtype());
                Flex::$x_backward(weight, grad, options)
            }

            pub(crate) fn $weight_backward(
                x: FlexTensor,
                weight: FlexTensor,
                grad: FlexTensor,
                options: ConvTransposeOptions<$axes>,
            ) -> FlexTensor {
                let kernel_options: TransposedOptions = options.clone().into();
                let op = stringify!($weight_backward);
                check_gradient(op, &grad, &weight, &x, kernel_options.conv);
                Flex::$weight_backward(x, weight, grad, options)
            }
        )*
    };
}

checked_transposed! {
    1 conv_transpose1d conv_transpose1d_x_backward conv_transpose1d_weight_backward;
    2 conv_transpose2d conv_transpose2d_x_backward conv_transpose2d_weight_backward;
    3 conv_transpose3d conv_transpose3d_x_backward conv_transpose3d_weight_backward;
}

pub(crate) fn unfold4d(x: FlexTensor, kernel: [usize; 2], options: UnfoldOptions) -> FlexTensor {
    let shape = conv::im2col_shape(&x.shape(), kernel, options.clone().into());
    check_result("unfold4d", shape, x.dtype());
    Flex::unfold4d(x, kernel, options)
}

pub(crate) fn deform_conv2d(
    x: FlexTensor,
    offset: FlexTensor,
    weight: FlexTensor,
    mask: Option<FlexTensor>,
    bias: Option<FlexTensor>,
    options: DeformConvOptions<2>,
) -> FlexTensor {
    let op = "deform_conv2d";
    let shape = check_deform(op, &x, &offset, &weight, mask.as_ref(), &options);
    if let Some(bias) = dims(bias.as_ref()).filter(|bias| bias[..] != [shape[1]]) {
        panic!("{op} on cpu: a bias must have one element per output channel, not {bias:?}");
    }
    Flex::deform_conv2d(x, offset, weight, mask, bias, options)
}

pub(crate) fn deform_conv2d_backward(
    x: FlexTensor,
    offset: FlexTensor,
    weight: FlexTensor,
    mask: Option<FlexTensor>,
    bias: Option<FlexTensor>,
    output_grad: FlexTensor,
    options: DeformConvOptions<2>,
) -> DeformConv2dBackward<Flex> {
    let op = "deform_conv2d_backward";
    let shape = check_deform(op, &x, &offset, &weight, mask.as_ref(), &options);
    let grad = output_grad.shape();
    assert!(
        grad[..] == shape[..],
        "{op} on cpu: a gradient must have the shape {shape:?} of the output, not {grad:?}"
    );
    Flex::deform_conv2d_backward(x, offset, weight, mask, bias, output_grad, options)
}

/// Returns the shape of the result.
fn check_deform(
    op: &str,
    x: &FlexTensor,
    offset: &FlexTensor,
    weight: &FlexTensor,
    mask: Option<&FlexTensor>,
    options: &DeformConvOptions<2>,
) -> tensor::Shape {
    let mask = dims(mask);
    let (lhs, offset, rhs) = (x.shape(), offset.shape(), weight.shape());
    let shape = deform::deform_shape(&lhs, &offset, &rhs, mask.as_deref(), options.clone().into());
    check_result(op, shape, x.dtype())
}

/// Computes the gradient of a 1-D convolution with respect to its weight, group by group. Burn's
/// implementation for groups does not crop the excess taps of its result, which occur if windows do
/// not reach the end of the padded input.
fn weight_gradient(
    x: FlexTensor,
    weight: FlexTensor,
    grad: FlexTensor,
    options: ConvOptions<1>,
) -> FlexTensor {
    let groups = options.groups;
    let group_slice = |tensor: &FlexTensor, axis: usize, group: usize| {
        let size = tensor.shape()[axis] / groups;
        let mut slices = [Slice::full(); 3];
        slices[axis] = Slice::from(group * size..(group + 1) * size);
        Flex::float_slice(tensor.clone(), &slices)
    };
    let group_gradient = |group| {
        let options = ConvOptions { groups: 1, ..options.clone() };
        let (x, weight) = (group_slice(&x, 1, group), group_slice(&weight, 0, group));
        Flex::conv1d_weight_backward(x, weight, group_slice(&grad, 1, group), options)
    };
    Flex::float_cat((0..groups).map(group_gradient).collect(), 0)
}

/// Panics with the error of the kernel launchers if a pooling window does not fit, where burn-flex returns an empty
/// tensor, or the result is too large.
fn check_window(op: &str, x: &FlexTensor, window: &PoolWindow) {
    check_result(op, window.output_shape(&x.shape()), x.dtype());
}

pub(crate) fn adaptive_avg_pool2d(x: FlexTensor, output: [usize; 2]) -> FlexTensor {
    check_result("adaptive_avg_pool2d", pool::adaptive_shape(&x.shape(), output), x.dtype());
    Flex::adaptive_avg_pool2d(x, output)
}

pub(crate) fn max_pool2d(
    x: FlexTensor,
    kernel: [usize; 2],
    stride: [usize; 2],
    padding: [usize; 2],
    dilation: [usize; 2],
    ceil_mode: bool,
) -> FlexTensor {
    let window =
        PoolWindow { kernel, stride, padding, dilation, ceil_mode, count_include_pad: false };
    check_window("max_pool2d", &x, &window);
    Flex::max_pool2d(x, kernel, stride, padding, dilation, ceil_mode)
}

pub(crate) fn max_pool2d_with_indices(
    x: FlexTensor,
    kernel: [usize; 2],
    stride: [usize; 2],
    padding: [usize; 2],
    dilation: [usize; 2],
    ceil_mode: bool,
) -> MaxPool2dWithIndices<Flex> {
    let window =
        PoolWindow { kernel, stride, padding, dilation, ceil_mode, count_include_pad: false };
    check_window("max_pool2d_with_indices", &x, &window);
    Flex::max_pool2d_with_indices(x, kernel, stride, padding, dilation, ceil_mode)
}

pub(crate) fn avg_pool2d(
    x: FlexTensor,
    kernel: [usize; 2],
    stride: [usize; 2],
    padding: [usize; 2],
    count_include_pad: bool,
    ceil_mode: bool,
) -> FlexTensor {
    let window =
        PoolWindow { kernel, stride, padding, dilation: [1, 1], ceil_mode, count_include_pad };
    check_window("avg_pool2d", &x, &window);
    Flex::avg_pool2d(x, kernel, stride, padding, count_include_pad, ceil_mode)
}

/// Computes the gradient of average pooling with respect to `x`.
pub(crate) fn avg_pool2d_backward(
    x: FlexTensor,
    grad: FlexTensor,
    kernel: [usize; 2],
    stride: [usize; 2],
    padding: [usize; 2],
    count_include_pad: bool,
    ceil_mode: bool,
) -> FlexTensor {
    let grad = if ceil_mode && count_include_pad {
        correct_divisor(grad, &x.shape(), kernel, stride, padding)
    } else {
        grad
    };
    Flex::avg_pool2d_backward(x, grad, kernel, stride, padding, count_include_pad, ceil_mode)
}

/// Scales the gradient of average pooling's output to correct the divisor of burn-flex. burn-flex
/// divides by the size of the kernel, but a window that extends past the padded input has fewer
/// elements. `x` is the shape of the input.
fn correct_divisor(
    grad: FlexTensor,
    x: &Shape,
    kernel: [usize; 2],
    stride: [usize; 2],
    padding: [usize; 2],
) -> FlexTensor {
    let [_, _, rows, columns] = grad.shape().dims();
    let factor = |axis: usize, position: usize| {
        let padded = x[2 + axis] + 2 * padding[axis];
        let available = padded.checked_sub(position * stride[axis]);
        let available = available.unwrap_or_else(|| {
            panic!("avg_pool2d_backward on cpu: the gradient has more windows than the input of shape {x:?}")
        });
        kernel[axis] as f32 / available.min(kernel[axis]) as f32
    };
    let row_factors = |row| (0..columns).map(move |column| factor(0, row) * factor(1, column));
    let factors: Vec<f32> = (0..rows).flat_map(row_factors).collect();
    let factors = TensorData::new(factors, [1, 1, rows, columns]).convert_dtype(grad.dtype());
    Flex::float_mul(grad, FlexTensor::from_data(factors))
}

/// Computes the gradient of max pooling with respect to `x`. burn-flex expects 64-bit indices.
#[expect(clippy::too_many_arguments, reason = "the signature of Burn's method")]
pub(crate) fn max_pool2d_with_indices_backward(
    x: FlexTensor,
    kernel: [usize; 2],
    stride: [usize; 2],
    padding: [usize; 2],
    dilation: [usize; 2],
    ceil_mode: bool,
    output_grad: FlexTensor,
    indices: FlexTensor,
) -> MaxPool2dBackward<Flex> {
    let indices = Flex::int_cast(indices, IntDType::I64);
    Flex::max_pool2d_with_indices_backward(
        x,
        kernel,
        stride,
        padding,
        dilation,
        ceil_mode,
        output_grad,
        indices,
    )
}
