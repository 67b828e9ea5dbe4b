//! The quantised tensor ops of Burn's contract. Burn composes the ops that are not listed: it
//! dequantises, computes, and quantises.

use burn_backend::{QTensorPrimitive, TensorMetadata, TensorPrimitive, get_device_settings};
use burn_std::quantization::QuantPropagation;

use super::contract::prelude::*;
use super::tensor::GpuQuantized;
use super::transfer::{into_quantized_data, quantized_to_device, upload_quantized};
use crate::kernels::quantized;
use Reduction::*;

/// Quantised ops.
macro_rules! quantized_contract {
    ($apply:ident) => {
        $apply! {
            quantize(tensor: F, scheme: Scheme, qparams: QParams) -> Q =
                GpuQuantized::new(scheme, |format| quantized::quantize(tensor, qparams, format)),
                else cpu;
            quantize_dynamic(tensor: F, scheme: Scheme) -> Q =
                GpuQuantized::new(scheme, |format| quantized::quantize_dynamic(tensor, format));
            dequantize(tensor: Q, dtype: FloatType) -> F = quantized::dequantize(&tensor.values);
            q_reshape(tensor: Q, shape: Shape) -> Q =
                tensor.map(|values| quantized::reshape(values, &shape));
            q_expand(tensor: Q, shape: Shape) -> Q =
                tensor.map(|values| quantized::expand(values, &shape));
            q_swap_dims(tensor: Q, dim1: Axis, dim2: Axis) -> Q =
                tensor.map(|values| quantized::swap_dims(values, dim1, dim2));
            q_permute(tensor: Q, axes: Axes) -> Q =
                tensor.map(|values| quantized::permute(values, axes));
            q_flip(tensor: Q, axes: Axes) -> Q = tensor.map(|values| quantized::flip(values, axes));
            q_select(tensor: Q, dim: Axis, indices: Indices) -> Q =
                tensor.map(|values| quantized::select(values, dim, indices));
            q_slice(tensor: Q, slices: Slices) -> Q =
                tensor.map(|values| slice_quantized(values, slices));
            q_gather(dim: Axis, tensor: Q, indices: Indices) -> Q =
                tensor.map(|values| quantized::gather(dim, values, indices));
            q_argmax(tensor: Q, dim: Axis, dtype: IntType) -> I =
                arg_reduce_quantized(ArgMax, &tensor, dim);
            q_argmin(tensor: Q, dim: Axis, dtype: IntType) -> I =
                arg_reduce_quantized(ArgMin, &tensor, dim);
        }
    };
}

pub(crate) use quantized_contract;

impl QTensorOps<Wgsl> for Wgsl {
    quantized_contract!(methods);

    fn q_from_data(data: TensorData, device: &WgslDevice) -> Q {
        upload_quantized(data, device, "q_from_data")
    }

    async fn q_into_data(tensor: Q) -> Result<TensorData, ExecutionError> {
        into_quantized_data(tensor).await
    }

    /// Multiplies two quantised matrices as integers where there is a kernel for them.
    fn q_matmul(lhs: TensorPrimitive<Self>, rhs: TensorPrimitive<Self>) -> TensorPrimitive<Self> {
        // The right operand decides what the result is, if it is quantised.
        let quantised = [&lhs, &rhs].into_iter().rev().find_map(|operand| match operand {
            TensorPrimitive::QFloat(tensor) => Some((tensor.propagation(), *tensor.scheme())),
            TensorPrimitive::Float(_) => None,
        });
        let product = match (lhs, rhs) {
            (TensorPrimitive::Float(lhs), TensorPrimitive::Float(rhs)) => {
                Self::float_matmul(lhs, rhs)
            }
            (TensorPrimitive::QFloat(lhs), TensorPrimitive::Float(rhs)) => {
                Self::float_matmul(Self::dequantize(lhs, rhs.dtype().into()), rhs)
            }
            (TensorPrimitive::Float(lhs), TensorPrimitive::QFloat(rhs)) => {
                let rhs = Self::dequantize(rhs, lhs.dtype().into());
                Self::float_matmul(lhs, rhs)
            }
            (TensorPrimitive::QFloat(lhs), TensorPrimitive::QFloat(rhs)) => product(lhs, rhs),
        };
        match quantised {
            Some((QuantPropagation::Propagate, scheme)) => {
                TensorPrimitive::QFloat(Self::quantize_dynamic(product, &scheme))
            }
            _ => TensorPrimitive::Float(product),
        }
    }

    fn q_device(tensor: &Q) -> WgslDevice {
        tensor.device()
    }

    fn q_to_device(tensor: Q, device: &WgslDevice) -> Q {
        quantized_to_device(tensor, device, "q_to_device")
    }
}

/// Computes the product of two quantised matrices, in the float type of their device.
fn product(lhs: Q, rhs: Q) -> F {
    let dtype: FloatType = get_device_settings::<Wgsl>(&lhs.device()).float_dtype;
    let product: F = run!(
        q_matmul [lhs: Q rhs: Q] [] quantized::matmul(&lhs.values, &rhs.values),
        else cpu::q_matmul(lhs, rhs)
    );
    if product.dtype() == dtype.into() { product } else { Wgsl::float_cast(product, dtype) }
}
