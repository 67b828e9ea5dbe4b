//! The contract's ops on tensors of truth values.

use super::contract::prelude::*;
use crate::tensor::SliceAxis;
use Reduction::*;

/// Ops on truth values that are not in the elementwise table.
macro_rules! bool_contract {
    ($apply:ident) => {
        $apply! {
            bool_empty(shape: Shape, device: Device, dtype: BoolType) -> B = with(dtype, create::full(&device, &shape, Literal::Bool(false), DType::Bool));
            bool_zeros(shape: Shape, device: Device, dtype: BoolType) -> B = with(dtype, create::full(&device, &shape, Literal::Bool(false), DType::Bool));
            bool_ones(shape: Shape, device: Device, dtype: BoolType) -> B = with(dtype, create::full(&device, &shape, Literal::Bool(true), DType::Bool));
            bool_into_int(tensor: B, dtype: IntType) -> I = with(dtype, cast::cast(tensor, DType::I32));
            bool_into_float(tensor: B, dtype: FloatType) -> F = with(dtype, cast::cast(tensor, DType::F32));
            bool_transpose(tensor: B) -> B = transpose(tensor);
            bool_swap_dims(tensor: B, dim1: Size, dim2: Size) -> B = copy::swap_dims(tensor, dim1, dim2);
            bool_permute(tensor: B, axes: Axes) -> B = copy::permute(tensor, axes);
            bool_flip(tensor: B, axes: Axes) -> B = copy::flip(tensor, axes);
            bool_reshape(tensor: B, shape: Shape) -> B = copy::reshape(tensor, &shape);
            bool_expand(tensor: B, shape: Shape) -> B = copy::expand(tensor, &shape);
            bool_repeat_dim(tensor: B, dim: Size, times: Size) -> B = copy::repeat_dim(tensor, dim, times);
            bool_cat(tensors: ManyB, dim: Size) -> B = copy::cat(tensors, dim);
            bool_unfold(tensor: B, dim: Size, size: Size, step: Size) -> B = copy::unfold(tensor, dim, size, step);
            bool_slice(tensor: B, slices: Slices) -> B = slice(tensor, slices);
            bool_slice_assign(tensor: B, slices: Slices, value: B) -> B = slice_assign(tensor, slices, value);
            bool_gather(dim: Size, tensor: B, indices: Index) -> B = index::gather(dim, tensor, indices), else cpu::read(Flex::bool_gather, dim, tensor, indices);
            bool_scatter_or(dim: Size, tensor: B, indices: Index, value: B) -> B = index::scatter(dim, tensor, indices, value), else cpu::add(Flex::bool_scatter_or, dim, tensor, indices, value);
            bool_select(tensor: B, dim: Size, indices: Index) -> B = index::select(tensor, dim, indices), else cpu::read(|dim, tensor, indices| Flex::bool_select(tensor, dim, indices), dim, tensor, indices);
            bool_select_or(tensor: B, dim: Size, indices: Index, value: B) -> B = index::select_add(tensor, dim, indices, value), else cpu::add(|dim, tensor, indices, value| Flex::bool_select_or(tensor, dim, indices, value), dim, tensor, indices, value);
            bool_mask_where(tensor: B, mask: B, value: B) -> B = elementwise::mask_where(tensor, mask, value);
            bool_mask_fill(tensor: B, mask: B, value: Number) -> B = elementwise::mask_fill(tensor, mask, number::B(value));
            bool_any(tensor: B) -> B = reduce::all(Any, tensor);
            bool_any_dim(tensor: B, dim: Size) -> B = reduce::dim(Any, tensor, dim);
            bool_all(tensor: B) -> B = reduce::all(All, tensor);
            bool_all_dim(tensor: B, dim: Size) -> B = reduce::dim(All, tensor, dim);
        }
    };
}

pub(crate) use bool_contract;

impl BoolTensorOps<Wgsl> for Wgsl {
    crate::kernels::table::bool_rows!(elementwise_methods);
    bool_contract!(methods);

    fn bool_from_data(data: TensorData, device: &WgslDevice) -> B {
        from_data(data, device, "bool_from_data")
    }

    async fn bool_into_data(tensor: B) -> Result<TensorData, ExecutionError> {
        into_data(tensor).await
    }

    fn bool_device(tensor: &B) -> WgslDevice {
        tensor.device
    }

    fn bool_to_device(tensor: B, device: &WgslDevice) -> B {
        to_device(tensor, device, "bool_to_device")
    }

    async fn bool_argwhere(tensor: B, dtype: IntType) -> I {
        let mut context = OpContext::new("bool_argwhere");
        tensor.register(&mut context);
        dtype.register(&mut context);
        let fail = |error: &dyn std::fmt::Display| -> ! { panic!("bool_argwhere: {error}") };
        if context.has_kernel() {
            // The size of the result is a number on the GPU: the one that is read back.
            let tensor: crate::tensor::Tensor = tensor.into_gpu(&context);
            let found = async {
                let counts = index_nd::counts(&tensor)?;
                let last = counts.len().saturating_sub(1);
                let last = copy::slice(
                    counts.clone(),
                    &[SliceAxis { start: last, step: 1, len: counts.len().min(1) }],
                )?;
                let data =
                    into_data(OpOutput::from_gpu(last, &OpContext::new("bool_argwhere"))).await;
                Ok((counts, data))
            };
            let (counts, data) =
                found.await.unwrap_or_else(|error: crate::tensor::Error| fail(&error));
            let data = data.unwrap_or_else(|error| fail(&error));
            let found = data.iter::<i32>().next().unwrap_or(0);
            return context.computed(index_nd::argwhere(tensor, &counts, found as usize));
        }
        context.record_fallback();
        let data = into_data(tensor).await.unwrap_or_else(|error| fail(&error));
        let device = &burn_flex::FlexDevice;
        let found = Flex::bool_argwhere(Flex::bool_from_data(data, device), dtype).await;
        OpOutput::from_cpu(found, &context)
    }
}
