//! The contract's integer tensor ops.

use super::contract::prelude::*;
use super::random;
use Reduction::*;

/// Integer ops that are not in the elementwise table.
macro_rules! int_contract {
    ($apply:ident) => {
        $apply! {
            int_zeros(shape: Shape, device: Device, dtype: IntType) -> I = with(dtype, create::full(&device, &shape, Literal::Int(0), stored(&device, dtype).compute_type()));
            int_ones(shape: Shape, device: Device, dtype: IntType) -> I = with(dtype, create::full(&device, &shape, Literal::Int(1), stored(&device, dtype).compute_type()));
            int_full(shape: Shape, value: Number, device: Device, dtype: IntType) -> I = with(dtype, create::full(&device, &shape, number::I(value), stored(&device, dtype).compute_type()));
            int_empty(shape: Shape, device: Device, dtype: IntType) -> I = with(dtype, create::full(&device, &shape, Literal::Int(0), stored(&device, dtype).compute_type()));
            int_arange_step(range: Range, step: Size, device: Device, dtype: IntType) -> I = with(dtype, arange(&device, range, step, stored(&device, dtype).compute_type()));
            int_arange(range: Range, device: Device, dtype: IntType) -> I = with(dtype, arange(&device, range, 1, stored(&device, dtype).compute_type()));
            int_into_float(tensor: I, dtype: FloatType) -> F as stored = { let to = stored(tensor.runtime(), dtype); cast::cast(tensor, to) };
            int_cast(tensor: I, dtype: IntType) -> I as stored = { let to = stored(tensor.runtime(), dtype); cast::cast(tensor, to) };
            int_matmul(lhs: I, rhs: I) -> I = matmul::matmul(lhs, rhs);
            int_transpose(tensor: I) -> I as stored = transpose(tensor);
            int_swap_dims(tensor: I, dim1: Size, dim2: Size) -> I as stored = copy::swap_dims(tensor, dim1, dim2);
            int_permute(tensor: I, axes: Axes) -> I as stored = copy::permute(tensor, axes);
            int_flip(tensor: I, axes: Axes) -> I as stored = copy::flip(tensor, axes);
            int_reshape(tensor: I, shape: Shape) -> I as stored = copy::reshape(tensor, &shape);
            int_expand(tensor: I, shape: Shape) -> I as stored = copy::expand(tensor, &shape);
            int_repeat_dim(tensor: I, dim: Size, times: Size) -> I as stored = copy::repeat_dim(tensor, dim, times);
            int_cat(tensors: ManyI, dim: Size) -> I = copy::cat(tensors, dim);
            int_unfold(tensor: I, dim: Size, size: Size, step: Size) -> I as stored = copy::unfold(tensor, dim, size, step);
            int_slice(tensor: I, slices: Slices) -> I as stored = slice(tensor, slices);
            int_slice_assign(tensor: I, slices: Slices, value: I) -> I = slice_assign(tensor, slices, value);
            int_gather(dim: Size, tensor: I, indices: Index) -> I = index::gather(dim, tensor, indices), else cpu::read(Flex::int_gather, dim, tensor, indices);
            int_scatter_add(dim: Size, tensor: I, indices: Index, value: I) -> I = index::scatter(dim, tensor, indices, value), else cpu::add(Flex::int_scatter_add, dim, tensor, indices, value);
            int_scatter_nd(data: I, indices: Index, values: I, reduction: Update) -> I = index_nd::scatter_nd(data, indices, values, update(reduction)), else { let (indices, values) = cpu::inside_nd(indices, values, &data.shape()); Flex::int_scatter_nd(data, indices, values, reduction) };
            int_gather_nd(data: I, indices: Index) -> I = index_nd::gather_nd(data, indices), else { let indices = cpu::clamped_nd(indices, &data.shape()); Flex::int_gather_nd(data, indices) };
            int_select(tensor: I, dim: Size, indices: Index) -> I = index::select(tensor, dim, indices), else cpu::read(|dim, tensor, indices| Flex::int_select(tensor, dim, indices), dim, tensor, indices);
            int_select_add(tensor: I, dim: Size, indices: Index, value: I) -> I = index::select_add(tensor, dim, indices, value), else cpu::add(|dim, tensor, indices, value| Flex::int_select_add(tensor, dim, indices, value), dim, tensor, indices, value);
            int_mask_where(tensor: I, mask: B, value: I) -> I = elementwise::mask_where(tensor, mask, value);
            int_mask_fill(tensor: I, mask: B, value: Number) -> I = elementwise::mask_fill(tensor, mask, number::I(value));
            int_sum(tensor: I) -> I = reduce::all(Sum, tensor);
            int_sum_dim(tensor: I, dim: Size) -> I = reduce::dim(Sum, tensor, dim), else Flex::int_sum_dim(tensor.to_contiguous(), dim);
            int_mean(tensor: I) -> I = reduce::all(Mean, tensor);
            int_mean_dim(tensor: I, dim: Size) -> I = reduce::dim(Mean, tensor, dim), else Flex::int_mean_dim(tensor.to_contiguous(), dim);
            int_prod(tensor: I) -> I = reduce::all(Prod, tensor);
            int_prod_dim(tensor: I, dim: Size) -> I = reduce::dim(Prod, tensor, dim);
            int_max(tensor: I) -> I = reduce::all(Max, tensor);
            int_max_dim(tensor: I, dim: Size) -> I = reduce::dim(Max, tensor, dim);
            int_max_dim_with_indices(tensor: I, dim: Size) -> II = with_indices(ArgMax, tensor, dim);
            int_min(tensor: I) -> I = reduce::all(Min, tensor);
            int_min_dim(tensor: I, dim: Size) -> I = reduce::dim(Min, tensor, dim);
            int_min_dim_with_indices(tensor: I, dim: Size) -> II = with_indices(ArgMin, tensor, dim);
            int_max_abs(tensor: I) -> I = reduce::all(MaxAbs, tensor);
            int_max_abs_dim(tensor: I, dim: Size) -> I = reduce::dim(MaxAbs, tensor, dim);
            int_argmax(tensor: I, dim: Size) -> I as index = reduce::dim(ArgMax, tensor, dim);
            int_argmin(tensor: I, dim: Size) -> I as index = reduce::dim(ArgMin, tensor, dim);
            int_any(tensor: I, dtype: BoolType) -> B = with(dtype, reduce::all(Any, tensor));
            int_any_dim(tensor: I, dim: Size, dtype: BoolType) -> B = with(dtype, reduce::dim(Any, tensor, dim));
            int_all(tensor: I, dtype: BoolType) -> B = with(dtype, reduce::all(All, tensor));
            int_all_dim(tensor: I, dim: Size, dtype: BoolType) -> B = with(dtype, reduce::dim(All, tensor, dim));
            int_topk(tensor: I, dim: Size, k: Size) -> I = sort::topk(tensor, dim, k);
            int_sort(tensor: I, dim: Size, descending: Switch) -> I = sort::sort(tensor, dim, descending);
            int_sort_with_indices(tensor: I, dim: Size, descending: Switch) -> II = sort::with_indices(tensor, dim, descending);
            int_argsort(tensor: I, dim: Size, descending: Switch) -> I as index = sort::argsort(tensor, dim, descending);
            int_cumsum(tensor: I, dim: Size) -> I = scan::scan(ScanOp::Sum, tensor, dim);
            int_cumprod(tensor: I, dim: Size) -> I = scan::scan(ScanOp::Prod, tensor, dim);
            int_cummin(tensor: I, dim: Size) -> I = scan::scan(ScanOp::Min, tensor, dim);
            int_cummax(tensor: I, dim: Size) -> I = scan::scan(ScanOp::Max, tensor, dim);
        }
    };
}

pub(crate) use int_contract;

impl IntTensorOps<Wgsl> for Wgsl {
    crate::kernels::table::int_rows!(elementwise_methods);
    int_contract!(methods);

    fn int_argtopk(tensor: I, dim: usize, k: usize) -> I {
        first(Self::int_argsort(tensor, dim, true), dim, k)
    }

    fn int_from_data(data: TensorData, device: &WgslDevice) -> I {
        from_data(data, device, "int_from_data")
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
        tensor.device
    }

    fn int_to_device(tensor: I, device: &WgslDevice) -> I {
        to_device(tensor, device, "int_to_device")
    }
}

/// The first `k` along an axis.
pub(super) fn first(tensor: I, dim: usize, k: usize) -> I {
    let shape = burn_backend::TensorMetadata::shape(&tensor);
    let mut slices = vec![burn_std::Slice::full(); shape.num_dims()];
    slices[dim] = burn_std::Slice::new(0, Some(k as isize), 1);
    Wgsl::int_slice(tensor, &slices)
}

fn arange(
    runtime: &std::sync::Arc<crate::runtime::Runtime>,
    range: Range,
    step: usize,
    dtype: DType,
) -> crate::tensor::Result<crate::tensor::Tensor> {
    assert!(step > 0, "arange: the step must not be zero");
    let len = usize::try_from(range.end - range.start).unwrap_or(0).div_ceil(step);
    create::arange(runtime, range.start, step, len, dtype)
}
