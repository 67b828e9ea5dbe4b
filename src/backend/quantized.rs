//! The quantised tensor ops of Burn's contract. Burn composes the ops that are not listed: it
//! dequantises, computes, and quantises.

use burn_backend::{QTensorPrimitive, TensorMetadata, TensorPrimitive, get_device_settings};
use burn_std::quantization::QuantPropagation;

use super::contract::prelude::*;
use super::tensor::GpuQuantized;
use super::transfer::{into_quantized_data, quantized_to_device, upload_quantized};
use crate::kernels::quantized;
use crate::runtime::begin_op;
use Reduction::*;

/// Quantised ops.
macro_rules! quantized_contract {
    ($apply:ident) => {
        $apply! {
            quantize(tensor: F, scheme: Scheme, qparams: QParams) -> Q gradient by_hand =
                GpuQuantized::new(scheme, |format| quantized::quantize(tensor, qparams, format)),
                else cpu;
            quantize_dynamic(tensor: F, scheme: Scheme) -> Q =
                GpuQuantized::new(scheme, |format| quantized::quantize_dynamic(tensor, format));
            dequantize(tensor: Q, dtype: FloatType) -> F gradient by_hand =
                quantized::dequantize(&tensor.values);
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

/// Methods without a row: written out, or left to Burn, which dequantises, computes, and
/// quantises if the result is quantised.
#[cfg(feature = "internals")]
macro_rules! quantized_written {
    ($apply:ident) => {
        $apply! {
            host q_from_data;
            host q_into_data;
            host q_device;
            host q_to_device;
            host q_detach;
            host q_set_require_grad;
            host q_is_require_grad;
            composed q_transpose;
            composed q_repeat_dim;
            composed q_add;
            composed q_add_scalar;
            composed q_clamp_min;
            composed q_clamp_max;
            composed q_clamp;
            composed q_sub;
            composed q_sub_scalar;
            composed q_mul;
            composed q_mul_scalar;
            composed q_div;
            composed q_div_scalar;
            composed q_matmul;
            composed q_neg;
            composed q_recip;
            composed q_sum;
            composed q_sum_dim;
            composed q_prod;
            composed q_prod_dim;
            composed q_mean;
            composed q_mean_dim;
            composed q_cumsum;
            composed q_cumprod;
            composed q_cummin;
            composed q_cummax;
            composed q_exp;
            composed q_log;
            composed q_log1p;
            composed q_powf;
            composed q_powi;
            composed q_powi_scalar;
            composed q_powf_scalar;
            composed q_sqrt;
            composed q_abs;
            composed q_cos;
            composed q_sin;
            composed q_tan;
            composed q_cosh;
            composed q_sinh;
            composed q_tanh;
            composed q_erf;
            composed q_cat;
            composed q_argtopk;
            composed q_topk;
            composed q_max;
            composed q_max_dim;
            composed q_max_dim_with_indices;
            composed q_min;
            composed q_min_dim;
            composed q_min_dim_with_indices;
            composed q_max_abs;
            composed q_max_abs_dim;
            composed q_any;
            composed q_any_dim;
            composed q_all;
            composed q_all_dim;
            composed q_sort;
            composed q_sort_with_indices;
            composed q_argsort;
        }
    };
}

pub(crate) use quantized_contract;
#[cfg(feature = "internals")]
pub(crate) use quantized_written;

impl QTensorOps<Wgsl> for Wgsl {
    quantized_contract!(methods);

    fn q_from_data(data: TensorData, device: &WgslDevice) -> Q {
        begin_op("q_from_data");
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
        q_matmul [lhs: Q rhs: Q] [] [] quantized::matmul(&lhs.values, &rhs.values),
        else cpu::q_matmul(lhs, rhs)
    );
    if product.dtype() == dtype.into() { product } else { Wgsl::float_cast(product, dtype) }
}
