//! Convolution and pooling.

use burn_backend::ops::{
    ConvOptions, FloatTensorOps, IntTensorOps, MaxPool2dBackward, MaxPool2dWithIndices, ModuleOps,
};
use burn_backend::{TensorData, TensorMetadata};
use burn_flex::{Flex, FlexTensor};
use burn_std::{IntDType, Shape, Slice};

use crate::kernels::common::options::PoolWindow;
use crate::kernels::conv;

/// Defines convolutions with the shape checks of the kernel launchers. burn-flex lacks some of
/// them.
macro_rules! checked_convs {
    ($($name:ident $axes:literal)*) => {
        $(pub(crate) fn $name(
            x: FlexTensor,
            weight: FlexTensor,
            bias: Option<FlexTensor>,
            options: ConvOptions<$axes>,
        ) -> FlexTensor {
            let checked = conv::check_shapes(&x.shape(), &weight.shape(), options.clone().into());
            if let Err(error) = checked {
                panic!("{}: {error}", stringify!($name));
            }
            Flex::$name(x, weight, bias, options)
        })*
    };
}

checked_convs! { conv1d 1 conv2d 2 conv3d 3 }

/// Computes the gradient of a 1-D convolution with respect to its weight, group by group. Burn's
/// implementation for groups does not crop the excess taps of its result, which occur if windows do
/// not reach the end of the padded input.
pub(crate) fn conv1d_weight_backward(
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

/// Panics with the error of the kernel launchers if a pooling window does not fit. burn-flex
/// returns an empty tensor.
fn check_window(op: &str, x: &FlexTensor, window: &PoolWindow) {
    if let Err(error) = window.output(&x.shape()) {
        panic!("{op}: {error}");
    }
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
