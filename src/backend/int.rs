//! The integer tensor ops of Burn's contract.

use super::contract::prelude::*;
use super::random;
use Reduction::*;

/// Integer ops that are not in the elementwise table.
macro_rules! int_contract {
    ($apply:ident) => {
        $apply! {
            int_zeros(shape: Shape, device: Device, dtype: IntType) -> I =
                full_int(&device, &shape, 0, dtype);
            int_ones(shape: Shape, device: Device, dtype: IntType) -> I =
                full_int(&device, &shape, 1, dtype);
            int_full(shape: Shape, value: Scalar, device: Device, dtype: IntType) -> I =
                full_int(&device, &shape, int_value(value), dtype);
            int_empty(shape: Shape, device: Device, dtype: IntType) -> I =
                full_int(&device, &shape, 0, dtype);
            int_arange(range: Range, device: Device, dtype: IntType) -> I =
                arange(&device, range, 1, dtype), else cpu;
            int_arange_step(range: Range, step: Size, device: Device, dtype: IntType) -> I =
                arange(&device, range, step, dtype), else cpu;
            int_into_float(tensor: I, dtype: FloatType) -> F as Stored gradient by_hand =
                cast_to(tensor, dtype);
            int_cast(tensor: I, dtype: IntType) -> I as Stored = cast_to(tensor, dtype);
            int_matmul(lhs: I, rhs: I) -> I = matmul::matmul(lhs, rhs), else cpu;
            int_transpose(tensor: I) -> I as Stored = transpose(tensor);
            int_swap_dims(tensor: I, dim1: Axis, dim2: Axis) -> I as Stored =
                views::swap_dims(tensor, dim1, dim2);
            int_permute(tensor: I, axes: Axes) -> I as Stored = views::permute(tensor, axes);
            int_flip(tensor: I, axes: Axes) -> I as Stored = views::flip(tensor, axes);
            int_reshape(tensor: I, shape: Shape) -> I as Stored = views::reshape(tensor, &shape);
            int_expand(tensor: I, shape: Shape) -> I as Stored = views::expand(tensor, &shape);
            int_repeat_dim(tensor: I, dim: Axis, times: Size) -> I as Stored =
                views::repeat_dim(tensor, dim, times), else cpu;
            int_cat(tensors: VecI, dim: Axis) -> I = views::cat(tensors, dim), else cpu;
            int_unfold(tensor: I, dim: Axis, size: Size, step: Size) -> I as Stored =
                views::unfold(tensor, dim, size, step);
            int_slice(tensor: I, slices: Slices) -> I as Stored = slice(tensor, slices);
            int_slice_assign(tensor: I, slices: Slices, value: I) -> I =
                slice_assign(tensor, slices, value);
            int_gather(dim: Axis, tensor: I, indices: Indices) -> I =
                gather::gather(dim, tensor, indices), else cpu;
            int_select(tensor: I, dim: Axis, indices: Indices) -> I =
                gather::select(tensor, dim, indices), else cpu;
            int_scatter_add(dim: Axis, tensor: I, indices: Indices, value: I) -> I =
                scatter::scatter_add(dim, tensor, indices, value), else cpu;
            int_select_add(tensor: I, dim: Axis, indices: Indices, value: I) -> I =
                scatter::select_add(tensor, dim, indices, value), else cpu;
            int_gather_nd(data: I, indices: Indices) -> I =
                gather_nd::gather_nd(data, indices), else cpu;
            int_scatter_nd(data: I, indices: Indices, values: I, reduction: UpdateOp) -> I =
                scatter_nd::scatter_nd(data, indices, values, scatter_op(reduction)), else cpu;
            int_mask_where(tensor: I, mask: B, value: I) -> I =
                elementwise::mask_where(tensor, mask, value);
            int_mask_fill(tensor: I, mask: B, value: Scalar) -> I =
                elementwise::mask_fill(tensor, mask, scalar_value::I(value));
            int_sum(tensor: I) -> I = reduce::all(Sum, tensor), else cpu;
            int_sum_dim(tensor: I, dim: Axis) -> I = reduce::dim(Sum, tensor, dim), else cpu;
            int_mean(tensor: I) -> I = reduce::all(Mean, tensor), else cpu;
            int_mean_dim(tensor: I, dim: Axis) -> I = reduce::dim(Mean, tensor, dim), else cpu;
            int_prod(tensor: I) -> I = reduce::all(Prod, tensor);
            int_prod_dim(tensor: I, dim: Axis) -> I = reduce::dim(Prod, tensor, dim);
            int_max(tensor: I) -> I = reduce::all(Max, tensor);
            int_max_dim(tensor: I, dim: Axis) -> I = reduce::dim(Max, tensor, dim);
            int_max_dim_with_indices(tensor: I, dim: Axis) -> II =
                with_indices(ArgMax, tensor, dim);
            int_min(tensor: I) -> I = reduce::all(Min, tensor);
            int_min_dim(tensor: I, dim: Axis) -> I = reduce::dim(Min, tensor, dim);
            int_min_dim_with_indices(tensor: I, dim: Axis) -> II =
                with_indices(ArgMin, tensor, dim);
            int_max_abs(tensor: I) -> I = reduce::all(MaxAbs, tensor);
            int_max_abs_dim(tensor: I, dim: Axis) -> I = reduce::dim(MaxAbs, tensor, dim);
            int_argmax(tensor: I, dim: Axis) -> I as Indices =
                reduce::dim(ArgMax, tensor, dim), else cpu;
            int_argmin(tensor: I, dim: Axis) -> I as Indices =
                reduce::dim(ArgMin, tensor, dim), else cpu;
            int_any(tensor: I, dtype: BoolType) -> B = reduce::all(Any, tensor);
            int_any_dim(tensor: I, dim: Axis, dtype: BoolType) -> B = reduce::dim(Any, tensor, dim);
            int_all(tensor: I, dtype: BoolType) -> B = reduce::all(All, tensor);
            int_all_dim(tensor: I, dim: Axis, dtype: BoolType) -> B = reduce::dim(All, tensor, dim);
            int_topk(tensor: I, dim: Axis, k: Size) -> I = sort::topk(tensor, dim, k);
            int_argtopk(tensor: I, dim: Axis, k: Size) -> I as Indices =
                sort::argtopk(tensor, dim, k), else cpu;
            int_sort(tensor: I, dim: Axis, descending: Flag) -> I =
                sort::sort(tensor, dim, descending);
            int_sort_with_indices(tensor: I, dim: Axis, descending: Flag) -> II =
                sort::with_indices(tensor, dim, descending);
            int_argsort(tensor: I, dim: Axis, descending: Flag) -> I as Indices =
                sort::argsort(tensor, dim, descending);
            int_cumsum(tensor: I, dim: Axis) -> I = scan::scan(ScanOp::Sum, tensor, dim);
            int_cumprod(tensor: I, dim: Axis) -> I = scan::scan(ScanOp::Prod, tensor, dim);
            int_cummin(tensor: I, dim: Axis) -> I = scan::scan(ScanOp::Min, tensor, dim);
            int_cummax(tensor: I, dim: Axis) -> I = scan::scan(ScanOp::Max, tensor, dim);
        }
    };
}

/// Methods without a row: written out, or left to Burn.
#[cfg(feature = "internals")]
macro_rules! int_written {
    ($apply:ident) => {
        $apply! {
            composed int_random;
            composed int_powi_scalar;
            host int_from_data;
            host int_into_data;
            host int_device;
            host int_to_device;
        }
    };
}

pub(crate) use int_contract;
#[cfg(feature = "internals")]
pub(crate) use int_written;

impl IntTensorOps<Wgsl> for Wgsl {
    crate::kernels::ops::table::int_rows!(elementwise_methods);
    int_contract!(methods);

    fn int_from_data(data: TensorData, device: &WgslDevice) -> I {
        upload(data, DataKind::Int, device, "int_from_data")
    }

    fn int_random(
        shape: Shape,
        distribution: burn_backend::Distribution,
        device: &WgslDevice,
        dtype: IntType,
    ) -> I {
        random::int(shape, distribution, device, dtype)
    }

    async fn int_into_data(tensor: I) -> Result<TensorData, ExecutionError> {
        into_data(tensor).await
    }

    fn int_device(tensor: &I) -> WgslDevice {
        tensor.device()
    }

    fn int_to_device(tensor: I, device: &WgslDevice) -> I {
        to_device(tensor, device, "int_to_device")
    }
}
