//! Quantisation.

use burn_backend::TensorMetadata;
use burn_backend::ops::{FloatTensorOps, QTensorOps};
use burn_backend::quantization::QuantizationParametersPrimitive;
use burn_flex::{Flex, FlexQTensor, FlexTensor};
use burn_std::FloatDType;
use burn_std::quantization::{QuantLevel, QuantScheme};

/// Quantises floats with the given scales.
///
/// # Panics
///
/// Panics unless there is one scale per tensor, or per block. burn-flex ignores surplus scales and
/// drops the blocks of missing ones.
pub(crate) fn quantize(
    tensor: FlexTensor,
    scheme: &QuantScheme,
    qparams: QuantizationParametersPrimitive<Flex>,
) -> FlexQTensor {
    let (shape, scales) = (tensor.shape(), qparams.scales.shape());
    let blocks = match scheme.level {
        QuantLevel::Tensor => 1,
        QuantLevel::Block(block) => {
            let (elements, block) = (shape.num_elements(), block.num_elements().max(1));
            assert!(
                elements.is_multiple_of(block),
                "quantize: blocks of {block} elements do not divide a tensor of shape {:?}",
                shape.as_slice()
            );
            elements / block
        }
    };
    assert!(
        scales.num_elements() == blocks,
        "quantize: a tensor of shape {:?} needs {blocks} scales, one per tensor or per block, but \
         the scales have shape {:?}",
        shape.as_slice(),
        scales.as_slice(),
    );
    Flex::quantize(tensor, scheme, qparams)
}

/// Computes the product of two quantised matrices, in f32.
pub(crate) fn q_matmul(lhs: FlexQTensor, rhs: FlexQTensor) -> FlexTensor {
    let [lhs, rhs] = [lhs, rhs].map(|matrix| Flex::dequantize(matrix, FloatDType::F32));
    Flex::float_matmul(lhs, rhs)
}
