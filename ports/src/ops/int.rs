//! Ops of integer tensors.

use burn_backend::ops::IntTensorOps;
use burn_backend_021::ops::IntTensorOps as _;

use super::prelude::*;
use super::update::{int_scatter, int_select_assign};

/// Calls a macro with the methods that both contracts have.
#[doc(hidden)]
#[macro_export]
macro_rules! int_methods {
    ($macro:ident) => {
        $macro! {
            int_empty(shape: Shape, device: &Device, dtype: IntDType) -> I;
            int_from_data(data: TensorData, device: &Device) -> I;
            int_to_device(tensor: I, device: &Device) -> I;
            int_reshape(tensor: I, shape: Shape) -> I;
            int_into_float(tensor: I, out_dtype: FloatDType) -> F;
            int_mask_where(tensor: I, mask: B, value: I) -> I;
            int_mask_fill(tensor: I, mask: B, value: Scalar) -> I;
            int_gather(dim: usize, tensor: I, indices: I) -> I;
            int_scatter_nd(data: I, indices: I, values: I, reduction: IndexingUpdateOp) -> I;
            int_gather_nd(data: I, indices: I) -> I;
            int_select(tensor: I, dim: usize, indices: I) -> I;
            int_repeat_dim(tensor: I, dim: usize, times: usize) -> I;
            int_cat(tensors: Vec<I>, dim: usize) -> I;
            int_equal(lhs: I, rhs: I, out_dtype: BoolDType) -> B;
            int_not_equal(lhs: I, rhs: I, out_dtype: BoolDType) -> B;
            int_equal_elem(lhs: I, rhs: Scalar, out_dtype: BoolDType) -> B;
            int_not_equal_elem(lhs: I, rhs: Scalar, out_dtype: BoolDType) -> B;
            int_greater(lhs: I, rhs: I, out_dtype: BoolDType) -> B;
            int_greater_elem(lhs: I, rhs: Scalar, out_dtype: BoolDType) -> B;
            int_greater_equal(lhs: I, rhs: I, out_dtype: BoolDType) -> B;
            int_greater_equal_elem(lhs: I, rhs: Scalar, out_dtype: BoolDType) -> B;
            int_lower(lhs: I, rhs: I, out_dtype: BoolDType) -> B;
            int_lower_elem(lhs: I, rhs: Scalar, out_dtype: BoolDType) -> B;
            int_lower_equal(lhs: I, rhs: I, out_dtype: BoolDType) -> B;
            int_lower_equal_elem(lhs: I, rhs: Scalar, out_dtype: BoolDType) -> B;
            int_add(lhs: I, rhs: I) -> I;
            int_add_scalar(lhs: I, rhs: Scalar) -> I;
            int_powi(lhs: I, rhs: I) -> I;
            int_powi_scalar(lhs: I, rhs: Scalar) -> I;
            int_powi_scalar_impl(lhs: I, rhs: Scalar) -> I;
            int_clamp_min(tensor: I, min: Scalar) -> I;
            int_clamp_max(tensor: I, max: Scalar) -> I;
            int_clamp(tensor: I, min: Scalar, max: Scalar) -> I;
            int_sub(lhs: I, rhs: I) -> I;
            int_sub_scalar(lhs: I, rhs: Scalar) -> I;
            int_mul(lhs: I, rhs: I) -> I;
            int_mul_scalar(lhs: I, rhs: Scalar) -> I;
            int_div(lhs: I, rhs: I) -> I;
            int_div_scalar(lhs: I, rhs: Scalar) -> I;
            int_remainder(lhs: I, rhs: I) -> I;
            int_remainder_scalar(lhs: I, rhs: Scalar) -> I;
            int_matmul(lhs: I, rhs: I) -> I;
            int_neg(tensor: I) -> I;
            int_zeros(shape: Shape, device: &Device, dtype: IntDType) -> I;
            int_ones(shape: Shape, device: &Device, dtype: IntDType) -> I;
            int_full(shape: Shape, fill_value: Scalar, device: &Device, dtype: IntDType) -> I;
            int_sum(tensor: I) -> I;
            int_sum_dim(tensor: I, dim: usize) -> I;
            int_prod(tensor: I) -> I;
            int_prod_dim(tensor: I, dim: usize) -> I;
            int_mean(tensor: I) -> I;
            int_mean_dim(tensor: I, dim: usize) -> I;
            int_cumsum(tensor: I, dim: usize) -> I;
            int_cumprod(tensor: I, dim: usize) -> I;
            int_cummin(tensor: I, dim: usize) -> I;
            int_cummax(tensor: I, dim: usize) -> I;
            int_argmax(tensor: I, dim: usize) -> I;
            int_argtopk(tensor: I, dim: usize, k: usize) -> I;
            int_topk(tensor: I, dim: usize, k: usize) -> I;
            int_argmin(tensor: I, dim: usize) -> I;
            int_max(tensor: I) -> I;
            int_max_dim(tensor: I, dim: usize) -> I;
            int_max_dim_with_indices(tensor: I, dim: usize) -> (I, I);
            int_max_abs(tensor: I) -> I;
            int_max_abs_dim(tensor: I, dim: usize) -> I;
            int_min(tensor: I) -> I;
            int_min_dim(tensor: I, dim: usize) -> I;
            int_min_dim_with_indices(tensor: I, dim: usize) -> (I, I);
            int_abs(tensor: I) -> I;
            int_transpose(tensor: I) -> I;
            int_swap_dims(tensor: I, dim1: usize, dim2: usize) -> I;
            int_permute(tensor: I, axes: &[usize]) -> I;
            int_flip(tensor: I, axes: &[usize]) -> I;
            int_random(shape: Shape, distribution: Distribution, device: &Device, dtype: IntDType) -> I;
            int_arange_step(range: Range<i64>, step: usize, device: &Device, dtype: IntDType) -> I;
            int_arange(range: Range<i64>, device: &Device, dtype: IntDType) -> I;
            int_any(tensor: I, out_dtype: BoolDType) -> B;
            int_any_dim(tensor: I, dim: usize, out_dtype: BoolDType) -> B;
            int_all(tensor: I, out_dtype: BoolDType) -> B;
            int_all_dim(tensor: I, dim: usize, out_dtype: BoolDType) -> B;
            int_sign(tensor: I) -> I;
            int_expand(tensor: I, shape: Shape) -> I;
            int_sort(tensor: I, dim: usize, descending: bool) -> I;
            int_sort_with_indices(tensor: I, dim: usize, descending: bool) -> (I, I);
            int_argsort(tensor: I, dim: usize, descending: bool) -> I;
            bitwise_and(lhs: I, rhs: I) -> I;
            bitwise_and_scalar(lhs: I, rhs: Scalar) -> I;
            bitwise_or(lhs: I, rhs: I) -> I;
            bitwise_or_scalar(lhs: I, rhs: Scalar) -> I;
            bitwise_xor(lhs: I, rhs: I) -> I;
            bitwise_xor_scalar(lhs: I, rhs: Scalar) -> I;
            bitwise_not(tensor: I) -> I;
            bitwise_left_shift(lhs: I, rhs: I) -> I;
            bitwise_left_shift_scalar(lhs: I, rhs: Scalar) -> I;
            bitwise_right_shift(lhs: I, rhs: I) -> I;
            bitwise_right_shift_scalar(lhs: I, rhs: Scalar) -> I;
            int_cast(tensor: I, dtype: IntDType) -> I;
            int_unfold(tensor: I, dim: usize, size: usize, step: usize) -> I;
        }
    };
}

impl IntTensorOps<Self> for Port {
    int_methods!(forward);

    forward_slices!(int_slice, int_slice_assign);

    /// Burn's default sorts whole lines.
    fn int_topk_with_indices(tensor: I, dim: usize, k: usize) -> (I, I) {
        let indices = Self::int_argtopk(tensor.clone(), dim, k);
        (Self::int_gather(dim, tensor, indices.clone()), indices)
    }

    async fn int_into_data(tensor: I) -> Result<TensorData, ExecutionError> {
        Wgsl::int_into_data(tensor.converted()).await.converted()
    }

    fn int_scatter(dim: usize, tensor: I, indices: I, value: I, update: IndexingUpdateOp) -> I {
        int_scatter(tensor.converted(), dim, indices.converted(), value.converted(), update)
            .converted()
    }

    fn int_select_assign(
        tensor: I,
        dim: usize,
        indices: I,
        value: I,
        update: IndexingUpdateOp,
    ) -> I {
        int_select_assign(tensor.converted(), dim, indices.converted(), value.converted(), update)
            .converted()
    }
}
