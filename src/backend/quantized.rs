//! The contract's quantised tensor ops, all on the CPU twin. What is not listed here is Burn's own
//! composition: dequantise, compute, quantise.

use super::contract::prelude::*;
use super::data::relabel;

/// Quantised ops.
macro_rules! quantized_contract {
    ($apply:ident) => {
        $apply! {
            quantize(tensor: F, scheme: Scheme, qparams: QParams) -> Q;
            quantize_dynamic(tensor: F, scheme: Scheme) -> Q;
            dequantize(tensor: Q, dtype: FloatType) -> F;
            q_reshape(tensor: Q, shape: Shape) -> Q;
            q_expand(tensor: Q, shape: Shape) -> Q;
            q_swap_dims(tensor: Q, dim1: Size, dim2: Size) -> Q;
            q_permute(tensor: Q, axes: Axes) -> Q;
            q_flip(tensor: Q, axes: Axes) -> Q;
            q_select(tensor: Q, dim: Size, indices: I) -> Q;
            q_slice(tensor: Q, slices: Slices) -> Q;
            q_gather(dim: Size, tensor: Q, indices: I) -> Q;
            q_argmax(tensor: Q, dim: Size, dtype: IntType) -> I;
            q_argmin(tensor: Q, dim: Size, dtype: IntType) -> I;
        }
    };
}

impl QTensorOps<Wgsl> for Wgsl {
    quantized_contract!(methods);

    fn q_from_data(data: TensorData, device: &WgslDevice) -> Q {
        Q {
            device: *device,
            twin: Flex::q_from_data(data, &burn_flex::FlexDevice),
        }
    }

    async fn q_into_data(tensor: Q) -> Result<TensorData, ExecutionError> {
        Ok(host_data(tensor))
    }

    fn q_device(tensor: &Q) -> WgslDevice {
        tensor.device
    }

    fn q_to_device(tensor: Q, device: &WgslDevice) -> Q {
        relabel(tensor, device)
    }
}

/// The tensor's data, which is on the host already.
pub(crate) fn host_data(tensor: Q) -> TensorData {
    // The twin answers at once: nothing is waited for.
    pollster::block_on(Flex::q_into_data(tensor.twin))
        .unwrap_or_else(|error| panic!("q_into_data: {error}"))
}
