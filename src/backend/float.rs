//! The contract's float tensor ops.

use super::contract::prelude::*;
use super::int::first;
use super::random;
use Reduction::*;

/// Float ops that are not in the elementwise table.
macro_rules! float_contract {
    ($apply:ident) => {
        $apply! {
            float_zeros(shape: Shape, device: Device, dtype: FloatType) -> F = with(dtype, create::full(&device, &shape, Literal::Float(0.0), DType::F32));
            float_ones(shape: Shape, device: Device, dtype: FloatType) -> F = with(dtype, create::full(&device, &shape, Literal::Float(1.0), DType::F32));
            float_full(shape: Shape, value: Number, device: Device, dtype: FloatType) -> F = with(dtype, create::full(&device, &shape, number::F(value), DType::F32));
            float_empty(shape: Shape, device: Device, dtype: FloatType) -> F = with(dtype, create::full(&device, &shape, Literal::Float(0.0), DType::F32));
            float_into_int(tensor: F, dtype: IntType) -> I as stored = { let to = stored(tensor.runtime(), dtype); cast::cast(tensor, to) };
            float_cast(tensor: F, dtype: FloatType) -> F as stored = { let to = stored(tensor.runtime(), dtype); cast::cast(tensor, to) };
            float_matmul(lhs: F, rhs: F) -> F as halves = matmul::matmul(lhs, rhs);
            float_cross(lhs: F, rhs: F, dim: Size) -> F = cross::cross(lhs, rhs, dim);
            float_transpose(tensor: F) -> F as stored = transpose(tensor);
            float_swap_dims(tensor: F, dim1: Size, dim2: Size) -> F as stored = copy::swap_dims(tensor, dim1, dim2);
            float_permute(tensor: F, axes: Axes) -> F as stored = copy::permute(tensor, axes);
            float_flip(tensor: F, axes: Axes) -> F as stored = copy::flip(tensor, axes);
            float_reshape(tensor: F, shape: Shape) -> F as stored = copy::reshape(tensor, &shape);
            float_expand(tensor: F, shape: Shape) -> F as stored = copy::expand(tensor, &shape);
            float_repeat_dim(tensor: F, dim: Size, times: Size) -> F as stored = copy::repeat_dim(tensor, dim, times);
            float_cat(tensors: ManyF, dim: Size) -> F = copy::cat(tensors, dim);
            float_unfold(tensor: F, dim: Size, size: Size, step: Size) -> F as stored = copy::unfold(tensor, dim, size, step);
            float_slice(tensor: F, slices: Slices) -> F as stored = slice(tensor, slices);
            float_slice_assign(tensor: F, slices: Slices, value: F) -> F = slice_assign(tensor, slices, value);
            float_gather(dim: Size, tensor: F, indices: Index) -> F = index::gather(dim, tensor, indices), else cpu::read(Flex::float_gather, dim, tensor, indices);
            float_scatter_add(dim: Size, tensor: F, indices: Index, value: F) -> F = index::scatter(dim, tensor, indices, value), else cpu::add(Flex::float_scatter_add, dim, tensor, indices, value);
            float_scatter_nd(data: F, indices: Index, values: F, reduction: Update) -> F = index_nd::scatter_nd(data, indices, values, update(reduction)), else { let (indices, values) = cpu::inside_nd(indices, values, &data.shape()); Flex::float_scatter_nd(data, indices, values, reduction) };
            float_gather_nd(data: F, indices: Index) -> F = index_nd::gather_nd(data, indices), else { let indices = cpu::clamped_nd(indices, &data.shape()); Flex::float_gather_nd(data, indices) };
            float_select(tensor: F, dim: Size, indices: Index) -> F = index::select(tensor, dim, indices), else cpu::read(|dim, tensor, indices| Flex::float_select(tensor, dim, indices), dim, tensor, indices);
            float_select_add(tensor: F, dim: Size, indices: Index, value: F) -> F = index::select_add(tensor, dim, indices, value), else cpu::add(|dim, tensor, indices, value| Flex::float_select_add(tensor, dim, indices, value), dim, tensor, indices, value);
            float_mask_where(tensor: F, mask: B, value: F) -> F = elementwise::mask_where(tensor, mask, value);
            float_mask_fill(tensor: F, mask: B, value: Number) -> F = elementwise::mask_fill(tensor, mask, number::F(value));
            float_powi(lhs: F, rhs: I) -> F = elementwise::powi(lhs, rhs);
            float_sum(tensor: F) -> F = reduce::all(Sum, tensor);
            // burn-flex reads past the end of some expanded views.
            float_sum_dim(tensor: F, dim: Size) -> F = reduce::dim(Sum, tensor, dim), else Flex::float_sum_dim(tensor.to_contiguous(), dim);
            float_mean(tensor: F) -> F = reduce::all(Mean, tensor);
            float_mean_dim(tensor: F, dim: Size) -> F = reduce::dim(Mean, tensor, dim), else Flex::float_mean_dim(tensor.to_contiguous(), dim);
            float_prod(tensor: F) -> F = reduce::all(Prod, tensor);
            float_prod_dim(tensor: F, dim: Size) -> F = reduce::dim(Prod, tensor, dim);
            float_max(tensor: F) -> F = reduce::all(Max, tensor), else cpu::whole(tensor, Flex::float_max_dim);
            float_max_dim(tensor: F, dim: Size) -> F = reduce::dim(Max, tensor, dim);
            float_max_dim_with_indices(tensor: F, dim: Size, dtype: IntType) -> FI = with(dtype, with_indices(ArgMax, tensor, dim));
            float_min(tensor: F) -> F = reduce::all(Min, tensor), else cpu::whole(tensor, Flex::float_min_dim);
            float_min_dim(tensor: F, dim: Size) -> F = reduce::dim(Min, tensor, dim);
            float_min_dim_with_indices(tensor: F, dim: Size, dtype: IntType) -> FI = with(dtype, with_indices(ArgMin, tensor, dim));
            float_max_abs(tensor: F) -> F = reduce::all(MaxAbs, tensor), else cpu::whole(Flex::float_abs(tensor), Flex::float_max_dim);
            float_max_abs_dim(tensor: F, dim: Size) -> F = reduce::dim(MaxAbs, tensor, dim);
            float_argmax(tensor: F, dim: Size, dtype: IntType) -> I = with(dtype, reduce::dim(ArgMax, tensor, dim));
            float_argmin(tensor: F, dim: Size, dtype: IntType) -> I = with(dtype, reduce::dim(ArgMin, tensor, dim));
            float_any(tensor: F, dtype: BoolType) -> B = with(dtype, reduce::all(Any, tensor));
            float_any_dim(tensor: F, dim: Size, dtype: BoolType) -> B = with(dtype, reduce::dim(Any, tensor, dim));
            float_all(tensor: F, dtype: BoolType) -> B = with(dtype, reduce::all(All, tensor));
            float_all_dim(tensor: F, dim: Size, dtype: BoolType) -> B = with(dtype, reduce::dim(All, tensor, dim));
            float_topk(tensor: F, dim: Size, k: Size) -> F = sort::topk(tensor, dim, k);
            float_sort(tensor: F, dim: Size, descending: Switch) -> F = sort::sort(tensor, dim, descending);
            float_sort_with_indices(tensor: F, dim: Size, descending: Switch, dtype: IntType) -> FI = with(dtype, sort::with_indices(tensor, dim, descending));
            float_argsort(tensor: F, dim: Size, descending: Switch, dtype: IntType) -> I = with(dtype, sort::argsort(tensor, dim, descending));
            float_cumsum(tensor: F, dim: Size) -> F = scan::scan(ScanOp::Sum, tensor, dim);
            float_cumprod(tensor: F, dim: Size) -> F = scan::scan(ScanOp::Prod, tensor, dim);
            float_cummin(tensor: F, dim: Size) -> F = scan::scan(ScanOp::Min, tensor, dim);
            float_cummax(tensor: F, dim: Size) -> F = scan::scan(ScanOp::Max, tensor, dim);
            float_grid_sample_2d(tensor: F, grid: F, options: GridSample) -> F =
                grid_sample::grid_sample_2d(tensor, grid, options.mode.into(), options.padding_mode.into(), options.align_corners),
                else cpu::grid_sample_2d(tensor, grid, options);
        }
    };
}

pub(crate) use float_contract;

impl FloatTensorOps<Wgsl> for Wgsl {
    crate::kernels::table::float_rows!(elementwise_methods);
    float_contract!(methods);

    fn float_argtopk(tensor: F, dim: usize, k: usize, dtype: IntType) -> I {
        first(Self::float_argsort(tensor, dim, true, dtype), dim, k)
    }

    fn float_from_data(data: TensorData, device: &WgslDevice) -> F {
        from_data(data, device, "float_from_data")
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
        tensor.device
    }

    fn float_to_device(tensor: F, device: &WgslDevice) -> F {
        to_device(tensor, device, "float_to_device")
    }
}
