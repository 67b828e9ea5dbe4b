//! Ops of quantised tensors.

use burn_backend::ops::{FloatTensorOps, QTensorOps};
use burn_backend::quantization::{QuantPropagation, QuantScheme, QuantizationParametersPrimitive};
use burn_backend::{ExecutionError, TensorMetadata, TensorPrimitive, get_or_init_device_settings};
use burn_backend_021::TensorPrimitive as TensorPrimitive021;
use burn_backend_021::ops::QTensorOps as _;
use burn_backend_021::quantization::QuantizationParametersPrimitive as QuantizationParameters021;

use super::prelude::*;

/// Calls a macro with the methods that both contracts have.
#[doc(hidden)]
#[macro_export]
macro_rules! quantized_methods {
    ($macro:ident) => {
        $macro! {
            q_from_data(data: TensorData, device: &Device) -> Q;
            dequantize(tensor: Q, dtype: FloatDType) -> F;
            q_to_device(tensor: Q, device: &Device) -> Q;
            q_reshape(tensor: Q, shape: Shape) -> Q;
            q_detach(tensor: Q) -> Q;
            q_set_require_grad(tensor: Q, require_grad: bool) -> Q;
            q_expand(tensor: Q, shape: Shape) -> Q;
            q_transpose(tensor: Q) -> Q;
            q_swap_dims(tensor: Q, dim1: usize, dim2: usize) -> Q;
            q_permute(tensor: Q, axes: &[usize]) -> Q;
            q_flip(tensor: Q, axes: &[usize]) -> Q;
            q_select(tensor: Q, dim: usize, indices: I) -> Q;
            q_gather(dim: usize, tensor: Q, indices: I) -> Q;
            q_repeat_dim(tensor: Q, dim: usize, times: usize) -> Q;
            q_abs(tensor: Q) -> Q;
            q_cat(tensors: Vec<Q>, dim: usize) -> Q;
            q_argmax(tensor: Q, dim: usize, out_dtype: IntDType) -> I;
            q_argtopk(tensor: Q, dim: usize, k: usize, out_dtype: IntDType) -> I;
            q_topk(tensor: Q, dim: usize, k: usize) -> Q;
            q_argmin(tensor: Q, dim: usize, out_dtype: IntDType) -> I;
            q_max(tensor: Q) -> Q;
            q_max_dim(tensor: Q, dim: usize) -> Q;
            q_max_dim_with_indices(tensor: Q, dim: usize, out_dtype: IntDType) -> (Q, I);
            q_min(tensor: Q) -> Q;
            q_min_dim(tensor: Q, dim: usize) -> Q;
            q_min_dim_with_indices(tensor: Q, dim: usize, out_dtype: IntDType) -> (Q, I);
            q_max_abs(tensor: Q) -> Q;
            q_max_abs_dim(tensor: Q, dim: usize) -> Q;
            q_any(tensor: Q, out_dtype: BoolDType) -> B;
            q_any_dim(tensor: Q, dim: usize, out_dtype: BoolDType) -> B;
            q_all(tensor: Q, out_dtype: BoolDType) -> B;
            q_all_dim(tensor: Q, dim: usize, out_dtype: BoolDType) -> B;
            q_sort(tensor: Q, dim: usize, descending: bool) -> Q;
            q_sort_with_indices(tensor: Q, dim: usize, descending: bool, out_dtype: IntDType) -> (Q, I);
            q_argsort(tensor: Q, dim: usize, descending: bool, out_dtype: IntDType) -> I;
        }
    };
}

/// Returns a product in the type that the settings of the device ask for. Burn 0.21 has settings of its own.
fn with_settings(product: F, quantised: [Option<QuantScheme>; 2]) -> TensorPrimitive<LibTorch> {
    let settings = get_or_init_device_settings::<LibTorch>(&product.device());
    let product = match quantised {
        [Some(_), Some(_)] => LibTorch::float_cast(product, settings.float_dtype),
        _ => product,
    };
    match (settings.quantization.propagation, quantised[1].or(quantised[0])) {
        (QuantPropagation::Propagate, Some(scheme)) => {
            TensorPrimitive::QFloat(LibTorch::quantize_dynamic(product, &scheme))
        }
        _ => TensorPrimitive::Float(product),
    }
}

impl QTensorOps<Self> for LibTorch {
    quantized_methods!(forward);

    fn q_slice(tensor: Q, slices: &[Slice]) -> Q {
        Wgsl::q_slice(tensor.converted(), &slices.converted()).converted()
    }

    fn quantize_dynamic(tensor: F, scheme: &QuantScheme) -> Q {
        Wgsl::quantize_dynamic(tensor.converted(), &scheme.converted()).converted()
    }

    fn quantize(
        tensor: F,
        scheme: &QuantScheme,
        qparams: QuantizationParametersPrimitive<Self>,
    ) -> Q {
        let scales = qparams.scales.converted();
        let parameters = QuantizationParameters021 { scales };
        Wgsl::quantize(tensor.converted(), &scheme.converted(), parameters).converted()
    }

    async fn q_into_data(tensor: Q) -> Result<TensorData, ExecutionError> {
        Wgsl::q_into_data(tensor.converted()).await.converted()
    }

    fn q_matmul(lhs: TensorPrimitive<Self>, rhs: TensorPrimitive<Self>) -> TensorPrimitive<Self> {
        let scheme = |operand: &TensorPrimitive<Self>| match operand {
            TensorPrimitive::QFloat(tensor) => Some(tensor.scheme()),
            TensorPrimitive::Float(_) => None,
        };
        let quantised = [scheme(&lhs), scheme(&rhs)];
        let [lhs, rhs] = [lhs, rhs].map(|operand| match operand {
            TensorPrimitive::Float(tensor) => TensorPrimitive021::Float(tensor.converted()),
            TensorPrimitive::QFloat(tensor) => TensorPrimitive021::QFloat(tensor.converted()),
        });
        match Wgsl::q_matmul(lhs, rhs) {
            TensorPrimitive021::Float(product) => with_settings(product.converted(), quantised),
            TensorPrimitive021::QFloat(product) => TensorPrimitive::QFloat(product.converted()),
        }
    }
}
