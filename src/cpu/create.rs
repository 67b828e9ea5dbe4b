//! Creation, repetition and concatenation, whose results can be of any size.

use burn_backend::TensorMetadata;
use burn_backend::ops::{BoolTensorOps, FloatTensorOps, IntTensorOps};
use burn_flex::{Flex, FlexDevice, FlexTensor};
use burn_std::IntDType;

use super::memory::check_memory;

pub(crate) fn int_arange(
    range: std::ops::Range<i64>,
    device: &FlexDevice,
    dtype: IntDType,
) -> FlexTensor {
    check_range("int_arange", &range, 1);
    Flex::int_arange(range, device, dtype)
}

pub(crate) fn int_arange_step(
    range: std::ops::Range<i64>,
    step: usize,
    device: &FlexDevice,
    dtype: IntDType,
) -> FlexTensor {
    check_range("int_arange_step", &range, step);
    Flex::int_arange_step(range, step, device, dtype)
}

fn check_range(op: &str, range: &std::ops::Range<i64>, step: usize) {
    let distance = (i128::from(range.end) - i128::from(range.start)).max(0).unsigned_abs();
    let len = usize::try_from(distance.div_ceil(step.max(1) as u128)).unwrap_or(usize::MAX);
    check_memory(op, &[len], size_of::<i64>());
}

macro_rules! repeat {
    ($($name:ident $ops:ident;)*) => {
        $(pub(crate) fn $name(tensor: FlexTensor, dim: usize, times: usize) -> FlexTensor {
            let mut shape = tensor.shape().to_vec();
            shape[dim] = shape[dim].saturating_mul(times);
            check_memory(stringify!($name), &shape, tensor.dtype().size());
            <Flex as $ops<Flex>>::$name(tensor, dim, times)
        })*
    };
}

repeat! {
    float_repeat_dim FloatTensorOps;
    int_repeat_dim IntTensorOps;
    bool_repeat_dim BoolTensorOps;
}

macro_rules! cat {
    ($($name:ident $ops:ident;)*) => {
        $(pub(crate) fn $name(tensors: Vec<FlexTensor>, dim: usize) -> FlexTensor {
            if let Some(first) = tensors.first() {
                let mut shape = first.shape().to_vec();
                let lengths = tensors.iter().map(|tensor| tensor.shape()[dim]);
                shape[dim] = lengths.fold(0, usize::saturating_add);
                check_memory(stringify!($name), &shape, first.dtype().size());
            }
            <Flex as $ops<Flex>>::$name(tensors, dim)
        })*
    };
}

cat! {
    float_cat FloatTensorOps;
    int_cat IntTensorOps;
    bool_cat BoolTensorOps;
}
