//! burn-flex's types, under the names that the backend uses.

use burn_backend::ops::{DeformConv2dBackward, MaxPool2dBackward, MaxPool2dWithIndices};
use burn_backend::quantization::QuantizationParametersPrimitive;
pub(crate) use burn_flex::{Flex, FlexDevice, FlexQTensor, FlexTensor};

/// The result of max pooling.
pub(crate) type Pooled = MaxPool2dWithIndices<Flex>;
/// The gradient of max pooling.
pub(crate) type PooledGradient = MaxPool2dBackward<Flex>;
/// The gradients of a deformable convolution.
pub(crate) type DeformGradients = DeformConv2dBackward<Flex>;
/// The parameters of a quantisation.
pub(crate) type QuantizationParameters = QuantizationParametersPrimitive<Flex>;

/// Returns maxima and their indices.
pub(crate) fn pooled_parts(value: Pooled) -> (FlexTensor, FlexTensor) {
    (value.output, value.indices)
}

/// Returns the gradient of the input of max pooling.
pub(crate) fn pooled_gradient(value: PooledGradient) -> FlexTensor {
    value.x_grad
}

/// Returns the gradients of x, offset and weight, and those of mask and bias.
pub(crate) fn deform_gradients(
    value: DeformGradients,
) -> ([FlexTensor; 3], [Option<FlexTensor>; 2]) {
    let DeformConv2dBackward { x_grad, offset_grad, weight_grad, mask_grad, bias_grad } = value;
    ([x_grad, offset_grad, weight_grad], [mask_grad, bias_grad])
}

/// Returns the parameters with these scales.
pub(crate) fn quantization_parameters(scales: FlexTensor) -> QuantizationParameters {
    QuantizationParametersPrimitive { scales }
}
