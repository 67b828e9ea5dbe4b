//! The float tensor ops of Burn's contract.

use burn_backend::TensorMetadata;

use super::contract::prelude::*;
use super::random;
use crate::autocast::FloatOperands;
use Reduction::*;

/// Float ops that are not in the elementwise table.
macro_rules! float_contract {
    ($apply:ident) => {
        $apply! {
            float_zeros(shape: Shape, device: Device, dtype: FloatType) -> F =
                full_float(&device, &shape, 0.0, dtype);
            float_ones(shape: Shape, device: Device, dtype: FloatType) -> F =
                full_float(&device, &shape, 1.0, dtype);
            float_full(shape: Shape, value: Scalar, device: Device, dtype: FloatType) -> F =
                full_float(&device, &shape, value.elem(), dtype);
            float_empty(shape: Shape, device: Device, dtype: FloatType) -> F =
                full_float(&device, &shape, 0.0, dtype);
            float_into_int(tensor: F, dtype: IntType) -> I as Stored = cast_to(tensor, dtype);
            float_cast(tensor: F, dtype: FloatType) -> F as Stored = cast_to(tensor, dtype);
            float_matmul(lhs: F, rhs: F) -> F as Half under Product =
                attention_pattern::product(lhs, rhs), else cpu;
            float_cross(lhs: F, rhs: F, dim: Axis) -> F = cross::cross(lhs, rhs, dim);
            float_transpose(tensor: F) -> F as Stored = transpose(tensor);
            float_swap_dims(tensor: F, dim1: Axis, dim2: Axis) -> F as Stored =
                views::swap_dims(tensor, dim1, dim2);
            float_permute(tensor: F, axes: Axes) -> F as Stored = views::permute(tensor, axes);
            float_flip(tensor: F, axes: Axes) -> F as Stored = views::flip(tensor, axes);
            float_reshape(tensor: F, shape: Shape) -> F as Stored = views::reshape(tensor, &shape);
            float_expand(tensor: F, shape: Shape) -> F as Stored = views::expand(tensor, &shape);
            float_repeat_dim(tensor: F, dim: Axis, times: Size) -> F as Stored =
                views::repeat_dim(tensor, dim, times), else cpu;
            float_cat(tensors: VecF, dim: Axis) -> F as Half = views::cat(tensors, dim), else cpu;
            float_unfold(tensor: F, dim: Axis, size: Size, step: Size) -> F as Stored =
                views::unfold(tensor, dim, size, step);
            float_slice(tensor: F, slices: Slices) -> F as Stored = slice(tensor, slices);
            float_slice_assign(tensor: F, slices: Slices, value: F) -> F as Half gradient slice =
                slice_assign(tensor, slices, value);
            float_gather(dim: Axis, tensor: F, indices: Indices) -> F =
                gather::gather(dim, tensor, indices), else cpu;
            float_select(tensor: F, dim: Axis, indices: Indices) -> F as Half =
                gather::select(tensor, dim, indices), else cpu;
            float_scatter_add(dim: Axis, tensor: F, indices: Indices, value: F) -> F =
                scatter::scatter_add(dim, tensor, indices, value), else cpu;
            float_select_add(tensor: F, dim: Axis, indices: Indices, value: F) -> F =
                scatter::select_add(tensor, dim, indices, value), else cpu;
            float_gather_nd(data: F, indices: Indices) -> F =
                gather_nd::gather_nd(data, indices), else cpu;
            float_scatter_nd(data: F, indices: Indices, values: F, reduction: UpdateOp) -> F =
                scatter_nd::scatter_nd(data, indices, values, scatter_op(reduction)), else cpu;
            float_mask_where(tensor: F, mask: B, value: F) -> F =
                elementwise::mask_where(tensor, mask, value);
            float_mask_fill(tensor: F, mask: B, value: Scalar) -> F =
                elementwise::mask_fill(tensor, mask, scalar_value::F(value));
            float_powi(lhs: F, rhs: I) -> F under Full = elementwise::powi(lhs, rhs);
            float_sum(tensor: F) -> F under Full = reduce::all(Sum, tensor), else cpu;
            float_sum_dim(tensor: F, dim: Axis) -> F under Full =
                reduce::dim(Sum, tensor, dim), else cpu;
            float_mean(tensor: F) -> F under Full = reduce::all(Mean, tensor), else cpu;
            float_mean_dim(tensor: F, dim: Axis) -> F under Full =
                reduce::dim(Mean, tensor, dim), else cpu;
            float_prod(tensor: F) -> F under Full gradient product = reduce::all(Prod, tensor);
            float_prod_dim(tensor: F, dim: Axis) -> F under Full gradient product =
                reduce::dim(Prod, tensor, dim);
            float_max(tensor: F) -> F = reduce::all(Max, tensor), else cpu;
            float_max_dim(tensor: F, dim: Axis) -> F = reduce::dim(Max, tensor, dim);
            float_max_dim_with_indices(tensor: F, dim: Axis, dtype: IntType) -> FI =
                with_indices(ArgMax, tensor, dim);
            float_min(tensor: F) -> F = reduce::all(Min, tensor), else cpu;
            float_min_dim(tensor: F, dim: Axis) -> F = reduce::dim(Min, tensor, dim);
            float_min_dim_with_indices(tensor: F, dim: Axis, dtype: IntType) -> FI =
                with_indices(ArgMin, tensor, dim);
            float_max_abs(tensor: F) -> F = reduce::all(MaxAbs, tensor), else cpu;
            float_max_abs_dim(tensor: F, dim: Axis) -> F = reduce::dim(MaxAbs, tensor, dim);
            float_argmax(tensor: F, dim: Axis, dtype: IntType) -> I =
                reduce::dim(ArgMax, tensor, dim), else cpu;
            float_argmin(tensor: F, dim: Axis, dtype: IntType) -> I =
                reduce::dim(ArgMin, tensor, dim), else cpu;
            float_any(tensor: F, dtype: BoolType) -> B = reduce::all(Any, tensor);
            float_any_dim(tensor: F, dim: Axis, dtype: BoolType) -> B =
                reduce::dim(Any, tensor, dim);
            float_all(tensor: F, dtype: BoolType) -> B = reduce::all(All, tensor);
            float_all_dim(tensor: F, dim: Axis, dtype: BoolType) -> B =
                reduce::dim(All, tensor, dim);
            float_topk(tensor: F, dim: Axis, k: Size) -> F gradient topk =
                sort::topk(tensor, dim, k);
            float_argtopk(tensor: F, dim: Axis, k: Size, dtype: IntType) -> I =
                sort::argtopk(tensor, dim, k), else cpu;
            float_sort(tensor: F, dim: Axis, descending: Flag) -> F =
                sort::sort(tensor, dim, descending);
            float_sort_with_indices(tensor: F, dim: Axis, descending: Flag, dtype: IntType) -> FI =
                sort::with_indices(tensor, dim, descending);
            float_argsort(tensor: F, dim: Axis, descending: Flag, dtype: IntType) -> I =
                sort::argsort(tensor, dim, descending);
            float_cumsum(tensor: F, dim: Axis) -> F under Full =
                scan::scan(ScanOp::Sum, tensor, dim);
            float_cumprod(tensor: F, dim: Axis) -> F under Full gradient product =
                scan::scan(ScanOp::Prod, tensor, dim);
            float_cummin(tensor: F, dim: Axis) -> F = scan::scan(ScanOp::Min, tensor, dim);
            float_cummax(tensor: F, dim: Axis) -> F = scan::scan(ScanOp::Max, tensor, dim);
            float_grid_sample_2d(tensor: F, grid: F, options: GridSample) -> F gradient grid_sample =
                grid_sample::grid_sample_2d(
                    tensor,
                    grid,
                    options.mode.into(),
                    options.padding_mode.into(),
                    options.align_corners,
                ), else cpu;
        }
    };
}

/// Methods without a row: written out, or left to Burn.
#[cfg(feature = "internals")]
macro_rules! float_written {
    ($apply:ident) => {
        $apply! {
            composed float_random;
            composed float_powi_scalar under Full;
            composed float_powf_scalar;
            host float_from_data;
            host float_into_data;
            host float_device;
            host float_to_device;
            host float_detach;
            host float_set_require_grad;
            host float_is_require_grad;
        }
    };
}

pub(crate) use float_contract;
#[cfg(feature = "internals")]
pub(crate) use float_written;

impl FloatTensorOps<Wgsl> for Wgsl {
    crate::kernels::ops::table::float_rows!(elementwise_methods);
    float_contract!(methods);

    /// As Burn's, but autocast computes squares in f32, too.
    fn float_powi_scalar(lhs: F, rhs: Scalar) -> F {
        let mut operands = FloatOperands::default();
        operands.see(Rule::Full, lhs.device(), lhs.dtype(), || lhs.elements());
        let lhs = match operands.cast_types(Rule::Full) {
            Some([dtype, _]) => Self::float_cast(lhs, dtype.into()),
            None => lhs,
        };
        let square = |x: F| Self::float_mul(x.clone(), x);
        match rhs.elem::<i64>() {
            0 => Self::float_ones(lhs.shape(), &lhs.device(), lhs.dtype().into()),
            1 => lhs,
            2 => square(lhs),
            -1 => Self::float_recip(lhs),
            -2 => Self::float_recip(square(lhs)),
            _ => Self::float_powi_scalar_impl(lhs, rhs),
        }
    }

    fn float_from_data(data: TensorData, device: &WgslDevice) -> F {
        upload(data, DataKind::Float, device, "float_from_data")
    }

    fn float_random(
        shape: Shape,
        distribution: burn_backend::Distribution,
        device: &WgslDevice,
        dtype: FloatType,
    ) -> F {
        random::float(shape, distribution, device, dtype)
    }

    async fn float_into_data(tensor: F) -> Result<TensorData, ExecutionError> {
        into_data(tensor).await
    }

    fn float_device(tensor: &F) -> WgslDevice {
        tensor.device()
    }

    fn float_to_device(tensor: F, device: &WgslDevice) -> F {
        to_device(tensor, device, "float_to_device")
    }
}
