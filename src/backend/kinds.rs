//! Short names for the kinds of operands and results, as the contract's tables write them.

use burn_backend::ops::{
    AttentionModuleOptions, ConvOptions, ConvTransposeOptions, DeformConv2dBackward,
    DeformConvOptions, GridSampleOptions, GridSamplePaddingMode, InterpolateMode,
    InterpolateOptions, MaxPool2dBackward, MaxPool2dWithIndices,
};
use burn_backend::quantization::QuantizationParametersPrimitive;
use burn_backend::tensor::IndexingUpdateOp;
use burn_flex::{Flex, FlexTensor};

use super::context::{OpContext, OpOutput, Operand};
use super::{Wgsl, WgslQuantizedTensor, WgslTensor};
use crate::kernels::deform::Gradients;
use crate::kernels::grid_sample::Padding;
use crate::kernels::interpolate::Mode;
use crate::tensor::Tensor;

/// A float tensor.
pub(crate) type F = WgslTensor;
/// An integer tensor.
pub(crate) type I = WgslTensor;
/// Integers that are places in other operands: their type may be another one.
pub(crate) type Index = WgslTensor;
/// A tensor of truth values.
pub(crate) type B = WgslTensor;
/// A quantised tensor.
pub(crate) type Q = WgslQuantizedTensor;
/// A float tensor that may be missing.
pub(crate) type OptF = Option<WgslTensor>;
/// A tensor of truth values that may be missing.
pub(crate) type OptB = Option<WgslTensor>;
/// Float tensors.
pub(crate) type ManyF = Vec<WgslTensor>;
/// Integer tensors.
pub(crate) type ManyI = Vec<WgslTensor>;
/// Tensors of truth values.
pub(crate) type ManyB = Vec<WgslTensor>;
/// A float and an integer tensor.
pub(crate) type FI = (WgslTensor, WgslTensor);
/// Two integer tensors.
pub(crate) type II = (WgslTensor, WgslTensor);
/// Two float tensors.
pub(crate) type FF = (WgslTensor, WgslTensor);
/// A device.
pub(crate) type Device<'a> = &'a crate::device::WgslDevice;
/// A scalar.
pub(crate) type Number = burn_backend::Scalar;
/// An axis, a size or a count.
pub(crate) type Size = usize;
/// A size that may be missing.
pub(crate) type OptSize = Option<usize>;
/// Axes.
pub(crate) type Axes<'a> = &'a [usize];
/// Slices, one for each axis.
pub(crate) type Slices<'a> = &'a [burn_std::Slice];
/// A shape.
pub(crate) type Shape = burn_std::Shape;
/// A half-open range of integers.
pub(crate) type Range = std::ops::Range<i64>;
/// Height and width.
pub(crate) type Pair = [usize; 2];
/// A switch.
pub(crate) type Switch = bool;
/// A number.
pub(crate) type Real = f64;
/// The float type of a result.
pub(crate) type FloatType = burn_std::FloatDType;
/// The integer type of a result.
pub(crate) type IntType = burn_std::IntDType;
/// The type of a result that is truth values.
pub(crate) type BoolType = burn_std::BoolDType;
/// Options of a convolution in one dimension.
pub(crate) type Conv1 = ConvOptions<1>;
/// Options of a convolution in two dimensions.
pub(crate) type Conv2 = ConvOptions<2>;
/// Options of a convolution in three dimensions.
pub(crate) type Conv3 = ConvOptions<3>;
/// Options of a transposed convolution in one dimension.
pub(crate) type ConvT1 = ConvTransposeOptions<1>;
/// Options of a transposed convolution in two dimensions.
pub(crate) type ConvT2 = ConvTransposeOptions<2>;
/// Options of a transposed convolution in three dimensions.
pub(crate) type ConvT3 = ConvTransposeOptions<3>;
/// Options of a deformable convolution.
pub(crate) type Deform = DeformConvOptions<2>;
/// Options of cutting an image into windows.
pub(crate) type Unfold = burn_backend::ops::UnfoldOptions;
/// Options of resizing.
pub(crate) type Interpolate = InterpolateOptions;
/// Options of sampling on a grid.
pub(crate) type GridSample = GridSampleOptions;
/// Options of attention.
pub(crate) type Attention = AttentionModuleOptions;
/// How a scatter combines.
pub(crate) type Update = IndexingUpdateOp;
/// A quantisation scheme.
pub(crate) type Scheme<'a> = &'a burn_std::quantization::QuantScheme;
/// A quantisation's parameters.
pub(crate) type QParams = QuantizationParametersPrimitive<Wgsl>;
/// Maxima and where they are.
pub(crate) type Pooled = MaxPool2dWithIndices<Wgsl>;
/// The gradient of a maximum.
pub(crate) type PooledBackward = MaxPool2dBackward<Wgsl>;
/// The gradients of a deformable convolution.
pub(crate) type DeformBackward = DeformConv2dBackward<Wgsl>;

impl OpOutput for Pooled {
    type Gpu = (Tensor, Tensor);
    type Cpu = MaxPool2dWithIndices<Flex>;

    fn from_gpu((output, indices): (Tensor, Tensor), context: &OpContext) -> Self {
        Self::new(OpOutput::from_gpu(output, context), OpOutput::from_gpu(indices, context))
    }

    fn from_cpu(value: MaxPool2dWithIndices<Flex>, context: &OpContext) -> Self {
        Self::new(
            OpOutput::from_cpu(value.output, context),
            OpOutput::from_cpu(value.indices, context),
        )
    }
}

impl OpOutput for PooledBackward {
    type Gpu = Tensor;
    type Cpu = MaxPool2dBackward<Flex>;

    fn from_gpu(grad: Tensor, context: &OpContext) -> Self {
        Self::new(OpOutput::from_gpu(grad, context))
    }

    fn from_cpu(value: MaxPool2dBackward<Flex>, context: &OpContext) -> Self {
        Self::new(OpOutput::from_cpu(value.x_grad, context))
    }
}

impl OpOutput for DeformBackward {
    type Gpu = Gradients;
    type Cpu = DeformConv2dBackward<Flex>;

    fn from_gpu(value: Gradients, context: &OpContext) -> Self {
        let tensor = |tensor: Tensor| -> WgslTensor { OpOutput::from_gpu(tensor, context) };
        Self::new(
            tensor(value.x),
            tensor(value.offset),
            tensor(value.weight),
            value.mask.map(tensor),
            value.bias.map(tensor),
        )
    }

    fn from_cpu(value: DeformConv2dBackward<Flex>, context: &OpContext) -> Self {
        let tensor = |tensor: FlexTensor| -> WgslTensor { OpOutput::from_cpu(tensor, context) };
        Self::new(
            tensor(value.x_grad),
            tensor(value.offset_grad),
            tensor(value.weight_grad),
            value.mask_grad.map(tensor),
            value.bias_grad.map(tensor),
        )
    }
}

impl Operand for QParams {
    type Gpu = Tensor;
    type Cpu = QuantizationParametersPrimitive<Flex>;

    fn register(&self, context: &mut OpContext) {
        self.scales.register(context);
    }

    fn into_gpu(self, context: &OpContext) -> Tensor {
        self.scales.into_gpu(context)
    }

    fn into_cpu(self, context: &OpContext) -> Self::Cpu {
        QuantizationParametersPrimitive { scales: self.scales.into_cpu(context) }
    }
}

/// Makes an enum of Burn's and one of the kernels' into each other, variant by variant.
macro_rules! same_words {
    ($burn:ident $kernels:ident: $($word:ident)*) => {
        impl From<$burn> for $kernels {
            fn from(value: $burn) -> Self {
                match value {
                    $($burn::$word => Self::$word,)*
                }
            }
        }

        impl From<$kernels> for $burn {
            fn from(value: $kernels) -> Self {
                match value {
                    $($kernels::$word => Self::$word,)*
                }
            }
        }
    };
}

same_words!(InterpolateMode Mode: Nearest Bilinear Bicubic Lanczos3);
same_words!(GridSamplePaddingMode Padding: Zeros Border Reflection);
