//! The boolean tensor ops of Burn's contract.

use super::contract::prelude::*;
use crate::kernels::cast;
use crate::tensor::{Error, SliceAxis, Tensor};
use Reduction::*;

/// Boolean ops that are not in the elementwise table.
macro_rules! bool_contract {
    ($apply:ident) => {
        $apply! {
            bool_empty(shape: Shape, device: Device, dtype: BoolType) -> B =
                full_bool(&device, &shape, false);
            bool_zeros(shape: Shape, device: Device, dtype: BoolType) -> B =
                full_bool(&device, &shape, false);
            bool_ones(shape: Shape, device: Device, dtype: BoolType) -> B =
                full_bool(&device, &shape, true);
            bool_into_int(tensor: B, dtype: IntType) -> I = cast::cast(tensor, DType::I32);
            bool_into_float(tensor: B, dtype: FloatType) -> F gradient by_hand =
                cast::cast(tensor, DType::F32);
            bool_transpose(tensor: B) -> B = transpose(tensor);
            bool_swap_dims(tensor: B, dim1: Axis, dim2: Axis) -> B =
                views::swap_dims(tensor, dim1, dim2);
            bool_permute(tensor: B, axes: Axes) -> B = views::permute(tensor, axes);
            bool_flip(tensor: B, axes: Axes) -> B = views::flip(tensor, axes);
            bool_reshape(tensor: B, shape: Shape) -> B = views::reshape(tensor, &shape);
            bool_expand(tensor: B, shape: Shape) -> B = views::expand(tensor, &shape);
            bool_repeat_dim(tensor: B, dim: Axis, times: Size) -> B =
                views::repeat_dim(tensor, dim, times), else cpu;
            bool_cat(tensors: VecB, dim: Axis) -> B = views::cat(tensors, dim), else cpu;
            bool_unfold(tensor: B, dim: Axis, size: Size, step: Size) -> B =
                views::unfold(tensor, dim, size, step);
            bool_slice(tensor: B, slices: Slices) -> B = slice(tensor, slices);
            bool_slice_assign(tensor: B, slices: Slices, value: B) -> B =
                slice_assign(tensor, slices, value);
            bool_gather(dim: Axis, tensor: B, indices: Indices) -> B =
                gather::gather(dim, tensor, indices), else cpu;
            bool_select(tensor: B, dim: Axis, indices: Indices) -> B =
                gather::select(tensor, dim, indices), else cpu;
            bool_scatter_or(dim: Axis, tensor: B, indices: Indices, value: B) -> B =
                scatter::scatter_add(dim, tensor, indices, value), else cpu;
            bool_select_or(tensor: B, dim: Axis, indices: Indices, value: B) -> B =
                scatter::select_add(tensor, dim, indices, value), else cpu;
            bool_mask_where(tensor: B, mask: B, value: B) -> B =
                elementwise::mask_where(tensor, mask, value);
            bool_mask_fill(tensor: B, mask: B, value: Scalar) -> B =
                elementwise::mask_fill(tensor, mask, scalar_value::B(value));
            bool_any(tensor: B) -> B = reduce::all(Any, tensor);
            bool_any_dim(tensor: B, dim: Axis) -> B = reduce::dim(Any, tensor, dim);
            bool_all(tensor: B) -> B = reduce::all(All, tensor);
            bool_all_dim(tensor: B, dim: Axis) -> B = reduce::dim(All, tensor, dim);
        }
    };
}

/// Methods without a row: written out, or left to Burn.
#[cfg(feature = "internals")]
macro_rules! bool_written {
    ($apply:ident) => {
        $apply! {
            kernel bool_argwhere;
            host bool_from_data;
            host bool_into_data;
            host bool_device;
            host bool_to_device;
        }
    };
}

pub(crate) use bool_contract;
#[cfg(feature = "internals")]
pub(crate) use bool_written;

impl BoolTensorOps<Wgsl> for Wgsl {
    crate::kernels::ops::table::bool_rows!(elementwise_methods);
    bool_contract!(methods);

    fn bool_from_data(data: TensorData, device: &WgslDevice) -> B {
        upload(data, DataKind::Bool, device, "bool_from_data")
    }

    async fn bool_into_data(tensor: B) -> Result<TensorData, ExecutionError> {
        into_data(tensor).await
    }

    fn bool_device(tensor: &B) -> WgslDevice {
        tensor.device()
    }

    fn bool_to_device(tensor: B, device: &WgslDevice) -> B {
        to_device(tensor, device, "bool_to_device")
    }

    async fn bool_argwhere(tensor: B, dtype: IntType) -> I {
        let op = "bool_argwhere";
        let fail = |error: &dyn std::fmt::Display| -> ! { panic!("{op}: {error}") };
        let mut context = OpContext::new(op, Conversion::Compute, Rule::Promote);
        context.register(&tensor, Some(DataKind::Bool));
        context.register(&dtype, None);
        if context.has_kernel() {
            // On the same device, with the type of counts.
            let mut of_count = OpContext::new(op, Conversion::Compute, Rule::Promote);
            of_count.register(&tensor, None);
            let tensor = tensor.into_gpu(&context);
            let counts = argwhere::counts(&tensor).unwrap_or_else(|error| fail(&error));
            // The last count is the number of true elements. It must be read back before the
            // result can be allocated.
            let last = last_element(&counts).unwrap_or_else(|error| fail(&error));
            let last = OpOutput::from_gpu(last, &of_count);
            let data = into_data(last).await.unwrap_or_else(|error| fail(&error));
            let found = data.iter::<i32>().next().unwrap_or(0);
            return context.finish(argwhere::argwhere(tensor, &counts, found as usize));
        }
        if !HAS_CPU {
            fail_without_cpu(op);
        }
        context.record_fallback();
        let computing =
            Computing::begin(&context, |operands| operands.push(("tensor", tensor.clone())));
        let data = into_data(tensor).await.unwrap_or_else(|error| fail(&error));
        let tensor = flex_tensor(data, op);
        computing.end(OpOutput::from_cpu(Flex::bool_argwhere(tensor, dtype).await, &context))
    }
}

/// Returns the last element of a vector, or an empty tensor if the vector is empty.
fn last_element(vector: &Tensor) -> Result<Tensor, Error> {
    let (start, len) = (vector.len().saturating_sub(1), vector.len().min(1));
    views::slice(vector.clone(), &[SliceAxis { start, step: 1, len }])
}
