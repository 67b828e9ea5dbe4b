//! Ops of float tensors.

use burn_backend::ops::FloatTensorOps;
use burn_backend_021::ops::FloatTensorOps as _;

use super::prelude::*;
use super::update::{float_scatter, float_select_assign};

/// Calls a macro with the methods that both contracts have.
#[doc(hidden)]
#[macro_export]
macro_rules! float_methods {
    ($macro:ident) => {
        $macro! {
            float_from_data(data: TensorData, device: &Device) -> F;
            float_random(shape: Shape, distribution: Distribution, device: &Device, dtype: FloatDType) -> F;
            float_zeros(shape: Shape, device: &Device, dtype: FloatDType) -> F;
            float_ones(shape: Shape, device: &Device, dtype: FloatDType) -> F;
            float_full(shape: Shape, fill_value: Scalar, device: &Device, dtype: FloatDType) -> F;
            float_to_device(tensor: F, device: &Device) -> F;
            float_into_int(tensor: F, out_dtype: IntDType) -> I;
            float_empty(shape: Shape, device: &Device, dtype: FloatDType) -> F;
            float_repeat_dim(tensor: F, dim: usize, times: usize) -> F;
            float_add(lhs: F, rhs: F) -> F;
            float_add_scalar(lhs: F, rhs: Scalar) -> F;
            float_clamp_min(tensor: F, min: Scalar) -> F;
            float_clamp_max(tensor: F, max: Scalar) -> F;
            float_clamp(tensor: F, min: Scalar, max: Scalar) -> F;
            float_sub(lhs: F, rhs: F) -> F;
            float_sub_scalar(lhs: F, rhs: Scalar) -> F;
            float_mul(lhs: F, rhs: F) -> F;
            float_mul_scalar(lhs: F, rhs: Scalar) -> F;
            float_div(lhs: F, rhs: F) -> F;
            float_div_scalar(lhs: F, rhs: Scalar) -> F;
            float_remainder(lhs: F, rhs: F) -> F;
            float_remainder_scalar(lhs: F, rhs: Scalar) -> F;
            float_matmul(lhs: F, rhs: F) -> F;
            float_cross(lhs: F, rhs: F, dim: usize) -> F;
            float_neg(tensor: F) -> F;
            float_recip(tensor: F) -> F;
            float_transpose(tensor: F) -> F;
            float_swap_dims(tensor: F, dim1: usize, dim2: usize) -> F;
            float_permute(tensor: F, axes: &[usize]) -> F;
            float_flip(tensor: F, axes: &[usize]) -> F;
            float_reshape(tensor: F, shape: Shape) -> F;
            float_gather(dim: usize, tensor: F, indices: I) -> F;
            float_scatter_nd(data: F, indices: I, values: F, reduction: IndexingUpdateOp) -> F;
            float_gather_nd(data: F, indices: I) -> F;
            float_select(tensor: F, dim: usize, indices: I) -> F;
            float_mask_where(tensor: F, mask: B, value: F) -> F;
            float_mask_fill(tensor: F, mask: B, value: Scalar) -> F;
            float_equal(lhs: F, rhs: F, out_dtype: BoolDType) -> B;
            float_not_equal(lhs: F, rhs: F, out_dtype: BoolDType) -> B;
            float_equal_elem(lhs: F, rhs: Scalar, out_dtype: BoolDType) -> B;
            float_not_equal_elem(lhs: F, rhs: Scalar, out_dtype: BoolDType) -> B;
            float_greater(lhs: F, rhs: F, out_dtype: BoolDType) -> B;
            float_greater_elem(lhs: F, rhs: Scalar, out_dtype: BoolDType) -> B;
            float_greater_equal(lhs: F, rhs: F, out_dtype: BoolDType) -> B;
            float_greater_equal_elem(lhs: F, rhs: Scalar, out_dtype: BoolDType) -> B;
            float_lower(lhs: F, rhs: F, out_dtype: BoolDType) -> B;
            float_lower_elem(lhs: F, rhs: Scalar, out_dtype: BoolDType) -> B;
            float_lower_equal(lhs: F, rhs: F, out_dtype: BoolDType) -> B;
            float_lower_equal_elem(lhs: F, rhs: Scalar, out_dtype: BoolDType) -> B;
            float_detach(tensor: F) -> F;
            float_set_require_grad(tensor: F, require_grad: bool) -> F;
            float_sum(tensor: F) -> F;
            float_sum_dim(tensor: F, dim: usize) -> F;
            float_prod(tensor: F) -> F;
            float_prod_dim(tensor: F, dim: usize) -> F;
            float_mean(tensor: F) -> F;
            float_mean_dim(tensor: F, dim: usize) -> F;
            float_cumsum(tensor: F, dim: usize) -> F;
            float_cumprod(tensor: F, dim: usize) -> F;
            float_cummin(tensor: F, dim: usize) -> F;
            float_cummax(tensor: F, dim: usize) -> F;
            float_cast(tensor: F, dtype: FloatDType) -> F;
            float_exp(tensor: F) -> F;
            float_log(tensor: F) -> F;
            float_log1p(tensor: F) -> F;
            float_powf(lhs: F, rhs: F) -> F;
            float_powi(lhs: F, rhs: I) -> F;
            float_powi_scalar(lhs: F, rhs: Scalar) -> F;
            float_powi_scalar_impl(lhs: F, rhs: Scalar) -> F;
            float_powf_scalar(tensor: F, value: Scalar) -> F;
            float_powf_scalar_impl(tensor: F, value: Scalar) -> F;
            float_sqrt(tensor: F) -> F;
            float_abs(tensor: F) -> F;
            float_cos(tensor: F) -> F;
            float_sin(tensor: F) -> F;
            float_tan(tensor: F) -> F;
            float_cosh(tensor: F) -> F;
            float_sinh(tensor: F) -> F;
            float_tanh(tensor: F) -> F;
            float_acos(tensor: F) -> F;
            float_acosh(tensor: F) -> F;
            float_asin(tensor: F) -> F;
            float_asinh(tensor: F) -> F;
            float_atan(tensor: F) -> F;
            float_atanh(tensor: F) -> F;
            float_atan2(lhs: F, rhs: F) -> F;
            float_round(tensor: F) -> F;
            float_floor(tensor: F) -> F;
            float_ceil(tensor: F) -> F;
            float_trunc(tensor: F) -> F;
            float_erf(tensor: F) -> F;
            float_cat(tensors: Vec<F>, dim: usize) -> F;
            float_argmax(tensor: F, dim: usize, out_dtype: IntDType) -> I;
            float_argtopk(tensor: F, dim: usize, k: usize, out_dtype: IntDType) -> I;
            float_topk(tensor: F, dim: usize, k: usize) -> F;
            float_argmin(tensor: F, dim: usize, out_dtype: IntDType) -> I;
            float_max(tensor: F) -> F;
            float_max_dim(tensor: F, dim: usize) -> F;
            float_max_dim_with_indices(tensor: F, dim: usize, indices_dtype: IntDType) -> (F, I);
            float_min(tensor: F) -> F;
            float_min_dim(tensor: F, dim: usize) -> F;
            float_min_dim_with_indices(tensor: F, dim: usize, indices_dtype: IntDType) -> (F, I);
            float_max_abs(tensor: F) -> F;
            float_max_abs_dim(tensor: F, dim: usize) -> F;
            float_any(tensor: F, out_dtype: BoolDType) -> B;
            float_any_dim(tensor: F, dim: usize, out_dtype: BoolDType) -> B;
            float_all(tensor: F, out_dtype: BoolDType) -> B;
            float_all_dim(tensor: F, dim: usize, out_dtype: BoolDType) -> B;
            float_expand(tensor: F, shape: Shape) -> F;
            float_sort(tensor: F, dim: usize, descending: bool) -> F;
            float_sort_with_indices(tensor: F, dim: usize, descending: bool, indices_dtype: IntDType) -> (F, I);
            float_argsort(tensor: F, dim: usize, descending: bool, out_dtype: IntDType) -> I;
            float_grid_sample_2d(tensor: F, grid: F, options: GridSampleOptions) -> F;
            float_unfold(tensor: F, dim: usize, size: usize, step: usize) -> F;
            float_is_nan(tensor: F, out_dtype: BoolDType) -> B;
            float_is_inf(tensor: F, out_dtype: BoolDType) -> B;
        }
    };
}

impl FloatTensorOps<Self> for Port {
    float_methods!(forward);
    float_methods_of_release!();

    forward_slices!(float_slice, float_slice_assign);

    /// Burn asks for 0 where the tensor is NaN.
    fn float_sign(tensor: F) -> F {
        let is_nan = Self::float_is_nan(tensor.clone(), BoolDType::Native);
        let sign = Wgsl::float_sign(tensor.converted()).converted();
        Self::float_mask_fill(sign, is_nan, Scalar::Float(0.0))
    }

    /// Burn's default sorts whole lines.
    fn float_topk_with_indices(tensor: F, dim: usize, k: usize, out_dtype: IntDType) -> (F, I) {
        let indices = Self::float_argtopk(tensor.clone(), dim, k, out_dtype);
        (Self::float_gather(dim, tensor, indices.clone()), indices)
    }

    async fn float_into_data(tensor: F) -> Result<TensorData, ExecutionError> {
        Wgsl::float_into_data(tensor.converted()).await.converted()
    }

    fn float_scatter(dim: usize, tensor: F, indices: I, value: F, update: IndexingUpdateOp) -> F {
        float_scatter(tensor.converted(), dim, indices.converted(), value.converted(), update)
            .converted()
    }

    fn float_select_assign(
        tensor: F,
        dim: usize,
        indices: I,
        value: F,
        update: IndexingUpdateOp,
    ) -> F {
        float_select_assign(tensor.converted(), dim, indices.converted(), value.converted(), update)
            .converted()
    }
}
