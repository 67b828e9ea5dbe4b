//! A product by its definition: what self-tests of matrix units compare with.

use std::sync::Arc;

use crate::kernels::gemm::units;
use crate::runtime::Runtime;
use crate::tensor::{DType, Result, Tensor};

/// Rows, columns and steps of the product: not multiples of a tile.
const SIZES: [usize; 3] = [148, 140, 84];

/// A product of matrices of integers, whose products and sums are exact in f32, but not in types with fewer bits: see
/// [`units::integer`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProductDefinition {
    pub dtype: DType,
}

impl ProductDefinition {
    // One factor of each product is large.
    fn left(self, row: usize, step: usize) -> f32 {
        units::integer(self.dtype, [row, step], 3, step.is_multiple_of(2))
    }

    fn right(self, step: usize, col: usize) -> f32 {
        units::integer(self.dtype, [step, col], 5, !step.is_multiple_of(2))
    }

    /// Uploads the operands, each as it is or as the transpose of what is stored.
    ///
    /// # Errors
    ///
    /// Returns an error if the memory is not available.
    pub fn operands(self, runtime: &Arc<Runtime>, transposed: [bool; 2]) -> Result<[Tensor; 2]> {
        let [rows, cols, steps] = SIZES;
        type Element<'a> = &'a dyn Fn(usize, usize) -> f32;
        let matrix = |[rows, cols]: [usize; 2], of: Element<'_>, transposed| -> Result<Tensor> {
            let stored = if transposed { [cols, rows] } else { [rows, cols] };
            let values = (0..rows * cols).map(|at| {
                let (outer, inner) = (at / stored[1], at % stored[1]);
                if transposed { of(inner, outer) } else { of(outer, inner) }
            });
            let tensor = units::upload(runtime, &stored, self.dtype, values)?;
            let layout = tensor.layout().clone();
            Ok(tensor.view(if transposed { layout.swap(0, 1) } else { layout }))
        };
        let left = matrix([rows, steps], &|row, step| self.left(row, step), transposed[0])?;
        let right = matrix([steps, cols], &|step, col| self.right(step, col), transposed[1])?;
        Ok([left, right])
    }

    /// Returns the elements of the product, in row-major order.
    pub fn expected(self) -> impl Iterator<Item = f32> {
        let [rows, cols, steps] = SIZES;
        let sum = move |row, col| {
            (0..steps).map(|step| self.left(row, step) * self.right(step, col)).sum::<f32>()
        };
        (0..rows * cols).map(move |at| sum(at / cols, at % cols))
    }
}
