//! Updates of boolean tensors at indices, of which Burn 0.21 has only those with a logical or: as integers.

use burn_backend::tensor::IndexingUpdateOp;
use burn_backend_021::ops::{BoolTensorOps, IntTensorOps};
use burn_backend_021::{BoolDType, IntDType, Scalar};
use burn_wgsl::{Wgsl, WgslTensor};

use crate::contract::Convert;
use crate::ops::update::{int_scatter, int_select_assign};

/// Returns the update of zeros and ones that a logical one is.
fn of_integers(update: IndexingUpdateOp) -> IndexingUpdateOp {
    match update {
        IndexingUpdateOp::Assign => IndexingUpdateOp::Assign,
        IndexingUpdateOp::Add | IndexingUpdateOp::Max => IndexingUpdateOp::Max,
        IndexingUpdateOp::Mul | IndexingUpdateOp::Min => IndexingUpdateOp::Min,
    }
}

fn integers(tensor: WgslTensor) -> WgslTensor {
    Wgsl::bool_into_int(tensor, IntDType::I32)
}

fn booleans(tensor: WgslTensor) -> WgslTensor {
    Wgsl::int_not_equal_elem(tensor, Scalar::Int(0), BoolDType::Native)
}

/// Combines elements of `tensor` along `dim` with those of `value`, which has the shape of `indices`.
pub(crate) fn scatter(
    dim: usize,
    tensor: WgslTensor,
    indices: WgslTensor,
    value: WgslTensor,
    update: IndexingUpdateOp,
) -> WgslTensor {
    let update = of_integers(update);
    if update == IndexingUpdateOp::Max {
        return Wgsl::bool_scatter_or(dim, tensor, indices, value);
    }
    let (tensor, value) = (integers(tensor), integers(value));
    booleans(int_scatter(tensor, dim, indices, value, update))
}

/// Combines elements or slices of `data` at coordinates with those of `values`.
pub(crate) fn scatter_nd(
    data: WgslTensor,
    indices: WgslTensor,
    values: WgslTensor,
    update: IndexingUpdateOp,
) -> WgslTensor {
    let (data, values) = (integers(data), integers(values));
    booleans(Wgsl::int_scatter_nd(data, indices, values, of_integers(update).converted()))
}

/// Returns elements or slices of `data` at coordinates.
pub(crate) fn gather_nd(data: WgslTensor, indices: WgslTensor) -> WgslTensor {
    booleans(Wgsl::int_gather_nd(integers(data), indices))
}

/// Combines the slices of `tensor` along `dim` with those of `value`, one for each index.
pub(crate) fn select_assign(
    tensor: WgslTensor,
    dim: usize,
    indices: WgslTensor,
    value: WgslTensor,
    update: IndexingUpdateOp,
) -> WgslTensor {
    let update = of_integers(update);
    if update == IndexingUpdateOp::Max {
        return Wgsl::bool_select_or(tensor, dim, indices, value);
    }
    let (tensor, value) = (integers(tensor), integers(value));
    booleans(int_select_assign(tensor, dim, indices, value, update))
}
