//! Ops of quantised tensors.

use burn_backend::ops::{FloatTensorOps, QTensorOps};
use burn_backend::quantization::{
    BlockLayout, QuantPropagation, QuantScheme, QuantizationParametersPrimitive,
};
use burn_backend::{ExecutionError, TensorMetadata, TensorPrimitive, get_or_init_device_settings};
use burn_backend_021::TensorPrimitive as TensorPrimitive021;
use burn_backend_021::ops::QTensorOps as _;
use burn_backend_021::quantization::{
    QuantScheme as QuantScheme021, QuantizationParametersPrimitive as QuantizationParameters021,
};

use super::prelude::*;

/// Calls a macro with the methods that both contracts have.
#[doc(hidden)]
#[macro_export]
macro_rules! quantized_methods {
    ($macro:ident) => {
        $macro! {
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

/// Returns a product in the type that the settings of the device ask for. Burn 0.21 has settings of
/// its own.
fn with_settings(product: F, quantised: [Option<QuantScheme>; 2]) -> TensorPrimitive<Port> {
    let settings = get_or_init_device_settings::<Port>(&product.device());
    let product = match quantised {
        [Some(_), Some(_)] => Port::float_cast(product, settings.float_dtype),
        _ => product,
    };
    match (settings.quantization.propagation, quantised[1].or(quantised[0])) {
        (QuantPropagation::Propagate, Some(scheme)) => {
            TensorPrimitive::QFloat(Port::quantize_dynamic(product, &scheme))
        }
        _ => TensorPrimitive::Float(product),
    }
}

/// Converts the scheme of a tensor that is quantised.
///
/// # Panics
///
/// Panics if the scheme is not supported, or if lines of the tensor are not whole numbers of blocks.
/// Burn 0.21 has blocks that continue on the next line.
fn scheme_of(tensor: &F, scheme: &QuantScheme) -> QuantScheme021 {
    let converted = scheme.converted();
    let shape = tensor.shape();
    if let Some(block) = scheme.block_size() {
        assert!(
            BlockLayout::new(&shape, &block).divides(),
            "a tensor of shape {shape:?} cannot be quantised in blocks of {block:?}: its last axis \
             must be a whole number of blocks"
        );
    }
    converted
}

impl QTensorOps<Self> for Port {
    quantized_methods!(forward);
    quantized_methods_of_release!();

    fn q_slice(tensor: Q, slices: &[Slice]) -> Q {
        Wgsl::q_slice(tensor.converted(), &slices.converted()).converted()
    }

    fn quantize_dynamic(tensor: F, scheme: &QuantScheme) -> Q {
        let scheme = scheme_of(&tensor, scheme);
        Wgsl::quantize_dynamic(tensor.converted(), &scheme).converted()
    }

    fn quantize(
        tensor: F,
        scheme: &QuantScheme,
        qparams: QuantizationParametersPrimitive<Self>,
    ) -> Q {
        let scheme = scheme_of(&tensor, scheme);
        let scales = qparams.scales.converted();
        let parameters = QuantizationParameters021 { scales };
        Wgsl::quantize(tensor.converted(), &scheme, parameters).converted()
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
