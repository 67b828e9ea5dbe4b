//! The kinds of operands and results in the contract's tables.

use burn_backend::ops::{
    AttentionModuleOptions, ConvOptions, ConvTransposeOptions, DeformConv2dBackward,
    DeformConvOptions, GridSampleOptions, GridSamplePaddingMode,
    InterpolateMode as BurnInterpolateMode, InterpolateOptions, MaxPool2dBackward,
    MaxPool2dWithIndices,
};
use burn_backend::quantization::QuantizationParametersPrimitive;

use super::context::{OpContext, OpOutput, RowOperand};
use super::host_data::DataKind;
use super::{Wgsl, WgslQuantizedTensor, WgslTensor};
use crate::cpu::{self, FlexTensor};
use crate::kernels::deform::DeformGradients;
use crate::kernels::ops::options::{GridPadding, InterpolateMode};
use crate::tensor::Tensor;

/// A float tensor.
pub(crate) type F = WgslTensor;
/// An integer tensor.
pub(crate) type I = WgslTensor;
/// A boolean tensor.
pub(crate) type B = WgslTensor;
/// An integer tensor of indices into other operands. Its element type is independent of theirs.
pub(crate) type Indices = WgslTensor;
/// A quantised tensor.
pub(crate) type Q = WgslQuantizedTensor;
/// The weight of a product.
pub(crate) type Weight = WgslTensor;
/// The bias of a product, which autocast leaves alone.
pub(crate) type Bias = Option<WgslTensor>;
/// A float tensor that the op's own gradient converts under autocast.
pub(crate) type Uncast = WgslTensor;
/// An optional float tensor.
pub(crate) type OptF = Option<WgslTensor>;
/// An optional boolean tensor.
pub(crate) type OptB = Option<WgslTensor>;
/// A list of float tensors.
pub(crate) type VecF = Vec<WgslTensor>;
/// A list of integer tensors.
pub(crate) type VecI = Vec<WgslTensor>;
/// A list of boolean tensors.
pub(crate) type VecB = Vec<WgslTensor>;
/// A float and an integer tensor.
pub(crate) type FI = (WgslTensor, WgslTensor);
/// Two integer tensors.
pub(crate) type II = (WgslTensor, WgslTensor);
/// Two float tensors.
pub(crate) type FF = (WgslTensor, WgslTensor);
/// Three float tensors.
pub(crate) type F3 = (WgslTensor, WgslTensor, WgslTensor);
/// A device.
pub(crate) type Device<'a> = &'a crate::device::WgslDevice;
/// A scalar operand.
pub(crate) type Scalar = burn_backend::Scalar;
/// An axis of the first tensor, not counting `Indices`. The context checks that it exists.
pub(crate) type Axis = usize;
/// Axes of the first tensor.
pub(crate) type Axes<'a> = &'a [usize];
/// A size or a count.
pub(crate) type Size = usize;
/// An optional size.
pub(crate) type OptSize = Option<usize>;
/// Height and width.
pub(crate) type Size2 = [usize; 2];
/// A shape.
pub(crate) type Shape = burn_std::Shape;
/// One slice per axis.
pub(crate) type Slices<'a> = &'a [burn_std::Slice];
/// A half-open range of integers.
pub(crate) type Range = std::ops::Range<i64>;
/// A boolean parameter, such as `ceil_mode`.
pub(crate) type Flag = bool;
/// A float parameter, such as an epsilon.
pub(crate) type Real = f64;
/// The requested float type of the result.
pub(crate) type FloatType = burn_std::FloatDType;
/// The requested integer type of the result.
pub(crate) type IntType = burn_std::IntDType;
/// The requested boolean type of the result.
pub(crate) type BoolType = burn_std::BoolDType;
/// Options of a 1d convolution.
pub(crate) type Conv1 = ConvOptions<1>;
/// Options of a 2d convolution.
pub(crate) type Conv2 = ConvOptions<2>;
/// Options of a 3d convolution.
pub(crate) type Conv3 = ConvOptions<3>;
/// Options of a transposed 1d convolution.
pub(crate) type ConvT1 = ConvTransposeOptions<1>;
/// Options of a transposed 2d convolution.
pub(crate) type ConvT2 = ConvTransposeOptions<2>;
/// Options of a transposed 3d convolution.
pub(crate) type ConvT3 = ConvTransposeOptions<3>;
/// Options of a deformable convolution.
pub(crate) type Deform = DeformConvOptions<2>;
/// Options of unfolding an image into windows.
pub(crate) type Unfold = burn_backend::ops::UnfoldOptions;
/// Options of interpolation.
pub(crate) type Interpolate = InterpolateOptions;
/// Options of grid sampling.
pub(crate) type GridSample = GridSampleOptions;
/// Options of attention.
pub(crate) type Attention = AttentionModuleOptions;
/// How a scatter combines an element with an update.
pub(crate) type UpdateOp = burn_backend::tensor::IndexingUpdateOp;
/// A quantisation scheme.
pub(crate) type Scheme<'a> = &'a burn_std::quantization::QuantScheme;
/// The parameters of a quantisation.
pub(crate) type QParams = QuantizationParametersPrimitive<Wgsl>;
/// The result of max pooling: maxima and their indices.
pub(crate) type Pooled = MaxPool2dWithIndices<Wgsl>;
/// The gradient of max pooling.
pub(crate) type PooledBackward = MaxPool2dBackward<Wgsl>;
/// The gradients of a deformable convolution.
pub(crate) type DeformBackward = DeformConv2dBackward<Wgsl>;

impl OpOutput for Pooled {
    type Gpu = (Tensor, Tensor);
    type Cpu = cpu::Pooled;

    fn from_gpu((output, indices): (Tensor, Tensor), context: &OpContext) -> Self {
        Self::new(OpOutput::from_gpu(output, context), OpOutput::from_gpu(indices, context))
    }

    fn from_cpu(value: cpu::Pooled, context: &OpContext) -> Self {
        let (output, indices) = cpu::pooled_parts(value);
        Self::new(OpOutput::from_cpu(output, context), OpOutput::from_cpu(indices, context))
    }
}

impl OpOutput for PooledBackward {
    type Gpu = Tensor;
    type Cpu = cpu::PooledGradient;

    fn from_gpu(grad: Tensor, context: &OpContext) -> Self {
        Self::new(OpOutput::from_gpu(grad, context))
    }

    fn from_cpu(value: cpu::PooledGradient, context: &OpContext) -> Self {
        Self::new(OpOutput::from_cpu(cpu::pooled_gradient(value), context))
    }
}

impl OpOutput for DeformBackward {
    type Gpu = DeformGradients;
    type Cpu = cpu::DeformGradients;

    fn from_gpu(value: DeformGradients, context: &OpContext) -> Self {
        let tensor = |tensor: Tensor| -> WgslTensor { OpOutput::from_gpu(tensor, context) };
        Self::new(
            tensor(value.x),
            tensor(value.offset),
            tensor(value.weight),
            value.mask.map(tensor),
            value.bias.map(tensor),
        )
    }

    fn from_cpu(value: cpu::DeformGradients, context: &OpContext) -> Self {
        let tensor = |tensor: FlexTensor| -> WgslTensor { OpOutput::from_cpu(tensor, context) };
        let (required, [mask, bias]) = cpu::deform_gradients(value);
        let [x, offset, weight] = required.map(tensor);
        Self::new(x, offset, weight, mask.map(tensor), bias.map(tensor))
    }
}

impl RowOperand for QParams {
    type Gpu = Tensor;
    type Cpu = cpu::QuantizationParameters;

    fn register(&self, context: &mut OpContext, kind: Option<DataKind>) {
        self.scales.register(context, kind);
    }

    fn into_gpu(self, context: &OpContext) -> Tensor {
        self.scales.into_gpu(context)
    }

    fn into_cpu(self, context: &OpContext) -> Self::Cpu {
        cpu::quantization_parameters(self.scales.into_cpu(context))
    }
}

/// Implements the conversions between one of Burn's enums and the kernels' enum with the same
/// variants.
macro_rules! same_variants {
    ($burn:ident $kernels:ident: $($variant:ident)*) => {
        impl From<$burn> for $kernels {
            fn from(value: $burn) -> Self {
                match value {
                    $($burn::$variant => Self::$variant,)*
                }
            }
        }

        impl From<$kernels> for $burn {
            fn from(value: $kernels) -> Self {
                match value {
                    $($kernels::$variant => Self::$variant,)*
                }
            }
        }
    };
}

same_variants!(BurnInterpolateMode InterpolateMode: Nearest Bilinear Bicubic Lanczos3);
same_variants!(GridSamplePaddingMode GridPadding: Zeros Border Reflection);
