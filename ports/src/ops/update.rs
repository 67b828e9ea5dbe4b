//! Updates at indices along an axis other than sums, which Burn 0.21 has only for whole
//! coordinates.

use burn_backend::tensor::IndexingUpdateOp;
use burn_backend_021::ops::{FloatTensorOps, IntTensorOps};
use burn_backend_021::{Shape, TensorMetadata, get_device_settings};
use burn_wgsl::{Wgsl, WgslTensor};

use crate::contract::Convert;

/// Returns the coordinates `[n, rank]` of the elements of `indices`, with each element as the
/// coordinate of `dim`.
fn coordinates(dim: usize, indices: WgslTensor) -> WgslTensor {
    let shape = indices.shape();
    let (rank, count) = (shape.num_dims(), shape.num_elements());
    let device = Wgsl::int_device(&indices);
    // Small types could not hold the positions on other axes.
    let dtype = get_device_settings::<Wgsl>(&device).int_dtype;
    let indices = Wgsl::int_cast(indices, dtype);
    let column = |tensor| Wgsl::int_reshape(tensor, Shape::new([count, 1]));
    let columns = (0..rank).map(|axis| {
        if axis == dim {
            return column(indices.clone());
        }
        let mut line = vec![1; rank];
        line[axis] = shape[axis];
        let positions = Wgsl::int_arange(0..shape[axis] as i64, &device, dtype);
        column(Wgsl::int_expand(Wgsl::int_reshape(positions, Shape::from(line)), shape.clone()))
    });
    Wgsl::int_cat(columns.collect(), 1)
}

/// Writes the two functions for a type of elements.
macro_rules! updates {
    ($(
        $scatter:ident, $select_assign:ident: $scatter_add:ident, $select_add:ident, $scatter_nd:ident, $reshape:ident,
        $swap_dims:ident
    );* $(;)?) => {
        $(/// Combines elements of `tensor` along `dim` with those of `value`, which has the shape of `indices`.
        pub(crate) fn $scatter(
            tensor: WgslTensor,
            dim: usize,
            indices: WgslTensor,
            value: WgslTensor,
            update: IndexingUpdateOp,
        ) -> WgslTensor {
            if matches!(update, IndexingUpdateOp::Add) {
                return Wgsl::$scatter_add(dim, tensor, indices, value);
            }
            let count = indices.shape().num_elements();
            let values = Wgsl::$reshape(value, Shape::new([count]));
            Wgsl::$scatter_nd(tensor, coordinates(dim, indices), values, update.converted())
        }

        /// Combines the slices of `tensor` along `dim` with those of `value`, one for each index.
        pub(crate) fn $select_assign(
            tensor: WgslTensor,
            dim: usize,
            indices: WgslTensor,
            value: WgslTensor,
            update: IndexingUpdateOp,
        ) -> WgslTensor {
            if matches!(update, IndexingUpdateOp::Add) {
                return Wgsl::$select_add(tensor, dim, indices, value);
            }
            let count = indices.shape().num_elements();
            let indices = Wgsl::int_reshape(indices, Shape::new([count, 1]));
            let first = |tensor| Wgsl::$swap_dims(tensor, 0, dim);
            first(Wgsl::$scatter_nd(first(tensor), indices, first(value), update.converted()))
        })*
    };
}

updates! {
    float_scatter, float_select_assign: float_scatter_add, float_select_add, float_scatter_nd, float_reshape,
        float_swap_dims;
    int_scatter, int_select_assign: int_scatter_add, int_select_add, int_scatter_nd, int_reshape, int_swap_dims;
}
