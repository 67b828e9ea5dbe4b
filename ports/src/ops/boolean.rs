//! Ops of boolean tensors.

use burn_backend::ops::BoolTensorOps;
use burn_backend_021::ops::BoolTensorOps as _;

use super::prelude::*;

/// Calls a macro with the methods that both contracts have.
#[doc(hidden)]
#[macro_export]
macro_rules! boolean_methods {
    ($macro:ident) => {
        $macro! {
            bool_empty(shape: Shape, device: &Device, dtype: BoolDType) -> B;
            bool_zeros(shape: Shape, device: &Device, dtype: BoolDType) -> B;
            bool_ones(shape: Shape, device: &Device, dtype: BoolDType) -> B;
            bool_from_data(data: TensorData, device: &Device) -> B;
            bool_into_int(tensor: B, out_dtype: IntDType) -> I;
            bool_into_float(tensor: B, out_dtype: FloatDType) -> F;
            bool_to_device(tensor: B, device: &Device) -> B;
            bool_reshape(tensor: B, shape: Shape) -> B;
            bool_mask_where(tensor: B, mask: B, value: B) -> B;
            bool_mask_fill(tensor: B, mask: B, value: Scalar) -> B;
            bool_gather(dim: usize, tensor: B, indices: I) -> B;
            bool_select(tensor: B, dim: usize, indices: I) -> B;
            bool_repeat_dim(tensor: B, dim: usize, times: usize) -> B;
            bool_cat(tensors: Vec<B>, dim: usize) -> B;
            bool_equal(lhs: B, rhs: B) -> B;
            bool_not_equal(lhs: B, rhs: B) -> B;
            bool_equal_elem(lhs: B, rhs: Scalar) -> B;
            bool_not_equal_elem(lhs: B, rhs: Scalar) -> B;
            bool_not(tensor: B) -> B;
            bool_and(lhs: B, rhs: B) -> B;
            bool_or(lhs: B, rhs: B) -> B;
            bool_xor(lhs: B, rhs: B) -> B;
            bool_transpose(tensor: B) -> B;
            bool_swap_dims(tensor: B, dim1: usize, dim2: usize) -> B;
            bool_permute(tensor: B, axes: &[usize]) -> B;
            bool_flip(tensor: B, axes: &[usize]) -> B;
            bool_any(tensor: B) -> B;
            bool_any_dim(tensor: B, dim: usize) -> B;
            bool_all(tensor: B) -> B;
            bool_all_dim(tensor: B, dim: usize) -> B;
            bool_expand(tensor: B, shape: Shape) -> B;
            bool_unfold(tensor: B, dim: usize, size: usize, step: usize) -> B;
        }
    };
}

impl BoolTensorOps<Self> for Port {
    boolean_methods!(forward);
    boolean_methods_of_release!();

    forward_slices!(bool_slice, bool_slice_assign);

    async fn bool_into_data(tensor: B) -> Result<TensorData, ExecutionError> {
        Wgsl::bool_into_data(tensor.converted()).await.converted()
    }

    fn bool_argwhere(tensor: B, out_dtype: IntDType) -> impl Future<Output = I> + 'static + Send {
        let found = Wgsl::bool_argwhere(tensor.converted(), out_dtype.converted());
        async move { found.await.converted() }
    }
}
