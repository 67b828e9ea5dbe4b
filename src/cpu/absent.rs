//! What stands in for burn-flex in a build without the feature `cpu`: types without values, so that there are no
//! tensors of the CPU backend.

use burn_backend::{DType, ExecutionError, TensorData, TensorMetadata};
use burn_std::quantization::QuantScheme;
use burn_std::{FloatDType, IntDType, Shape};

use crate::kernels::ops::table::Row;

/// A type without values.
#[derive(Debug, Clone)]
enum Never {}

/// A tensor of the CPU backend.
#[derive(Debug, Clone)]
pub(crate) struct FlexTensor(Never);

/// A quantised tensor of the CPU backend.
#[derive(Debug, Clone)]
pub(crate) struct FlexQTensor(Never);

/// The CPU backend.
pub(crate) struct Flex;

/// Its device.
pub(crate) struct FlexDevice;

/// The result of max pooling.
pub(crate) type Pooled = FlexTensor;
/// The gradient of max pooling.
pub(crate) type PooledGradient = FlexTensor;
/// The gradients of a deformable convolution.
pub(crate) type DeformGradients = FlexTensor;
/// The parameters of a quantisation.
pub(crate) type QuantizationParameters = FlexTensor;

impl FlexTensor {
    pub fn from_data(_: TensorData) -> Self {
        unreachable!("uploads end before, where there is no CPU backend")
    }

    pub fn data_arc(&self) -> &[u8] {
        match self.0 {}
    }

    pub fn into_data(self) -> TensorData {
        match self.0 {}
    }
}

impl TensorMetadata for FlexTensor {
    fn dtype(&self) -> DType {
        match self.0 {}
    }

    fn shape(&self) -> Shape {
        match self.0 {}
    }
}

impl FlexQTensor {
    pub fn new(tensor: FlexTensor, _: QuantScheme, _: Vec<f32>) -> Self {
        match tensor.0 {}
    }

    pub fn scheme(&self) -> &QuantScheme {
        match self.0 {}
    }
}

impl TensorMetadata for FlexQTensor {
    fn dtype(&self) -> DType {
        match self.0 {}
    }

    fn shape(&self) -> Shape {
        match self.0 {}
    }
}

impl Flex {
    pub fn float_cast(tensor: FlexTensor, _: FloatDType) -> FlexTensor {
        match tensor.0 {}
    }

    pub fn int_cast(tensor: FlexTensor, _: IntDType) -> FlexTensor {
        match tensor.0 {}
    }

    pub async fn q_into_data(tensor: FlexQTensor) -> Result<TensorData, ExecutionError> {
        match tensor.0 {}
    }

    pub async fn bool_argwhere(tensor: FlexTensor, _: IntDType) -> FlexTensor {
        match tensor.0 {}
    }
}

pub(crate) fn observed(tensor: FlexTensor) -> FlexTensor {
    tensor
}

pub(crate) fn pooled_parts(value: Pooled) -> (FlexTensor, FlexTensor) {
    match value.0 {}
}

pub(crate) fn pooled_gradient(value: PooledGradient) -> FlexTensor {
    match value.0 {}
}

pub(crate) fn deform_gradients(
    value: DeformGradients,
) -> ([FlexTensor; 3], [Option<FlexTensor>; 2]) {
    match value.0 {}
}

pub(crate) fn quantization_parameters(scales: FlexTensor) -> QuantizationParameters {
    match scales.0 {}
}

pub(crate) fn map(_: &Row, tensor: FlexTensor) -> FlexTensor {
    match tensor.0 {}
}

pub(crate) fn map2(_: &Row, lhs: FlexTensor, _: FlexTensor) -> FlexTensor {
    match lhs.0 {}
}
