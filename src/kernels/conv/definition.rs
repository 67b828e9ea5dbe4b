//! Convolutions by their definition: what self-tests of matrix units compare with.

use crate::kernels::gemm::units;
use crate::tensor::DType;

/// Which tensor is computed from the two others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SumOf {
    Output,
    /// The gradient of the input.
    Input,
    /// The gradient of the weight.
    Weight,
}

/// A convolution of integers, whose sums are exact in f32, but not in types with fewer bits: see
/// [`units::integer`]. Kernels are 3 x 3, with a padding of 1, a stride of 1, and more rows than a tile has.
pub(crate) struct ConvDefinition {
    sum: SumOf,
    pub shape_of_x: [usize; 4],
    pub shape_of_weight: [usize; 4],
    pub shape_of_out: [usize; 4],
    pub x: Vec<f32>,
    pub weight: Vec<f32>,
    pub grad: Vec<f32>,
}

impl ConvDefinition {
    /// Creates the operands. A product has `shared` channels or filters to sum over.
    pub fn new(sum: SumOf, shared: usize, dtype: DType) -> Self {
        let (images, rows, [height, width]) = (2, 132, [8, 12]);
        let (channels, filters) = match sum {
            SumOf::Input => (rows, shared),
            _ => (shared, rows),
        };
        let shape_of_x = [images, channels, height, width];
        let shape_of_weight = [filters, channels, 3, 3];
        let shape_of_out = [images, filters, height, width];
        type IsLarge<'a> = &'a dyn Fn(usize) -> bool;
        // `is_large` depends on the index along `axis`.
        let integers = |shape: [usize; 4], seed: usize, axis: usize, is_large: IsLarge<'_>| {
            let row = shape[2] * shape[3];
            let integer = |at: usize| {
                let index = if axis == 0 { at / row / shape[1] } else { at / row % shape[1] };
                units::integer(dtype, [at / row, at % row], seed, is_large(index))
            };
            (0..shape.iter().product()).map(integer).collect::<Vec<f32>>()
        };
        // One factor of each product is large: by the channel or the filter that they share. Those of
        // a gradient of the weight share neither.
        let even = |index: usize| index.is_multiple_of(2);
        let odd = |index: usize| !index.is_multiple_of(2);
        let (all, none) = (|_: usize| true, |_: usize| false);
        let (of_x, of_weight, of_grad, axis): (IsLarge<'_>, IsLarge<'_>, IsLarge<'_>, usize) =
            match sum {
                SumOf::Output => (&odd, &even, &none, 1),
                SumOf::Input => (&none, &even, &odd, 0),
                SumOf::Weight => (&none, &none, &all, 0),
            };
        Self {
            sum,
            shape_of_x,
            shape_of_weight,
            shape_of_out,
            x: integers(shape_of_x, 3, 1, of_x),
            weight: integers(shape_of_weight, 5, axis, of_weight),
            grad: integers(shape_of_out, 7, 1, of_grad),
        }
    }

    /// Returns the result of `len` elements: each product of an element of x, of the weight and of the output belongs
    /// to one sum.
    pub fn expected(&self, len: usize) -> Vec<f32> {
        let index = |shape: [usize; 4], [i, j, k, l]: [usize; 4]| {
            ((i * shape[1] + j) * shape[2] + k) * shape[3] + l
        };
        let Self { shape_of_x, shape_of_weight, shape_of_out, x, weight, grad, .. } = self;
        let [images, filters, height, width] = *shape_of_out;
        let mut expected = vec![0.0; len];
        let ranges = [images, filters, height, width, 3, 3];
        for at in 0..ranges.iter().product() {
            let mut rest = at;
            let mut next = |range: usize| {
                let index = rest % range;
                rest /= range;
                index
            };
            let [image, filter, row, col, tap_row, tap_col] = ranges.map(&mut next);
            let (in_row, in_col) = (row + tap_row, col + tap_col);
            if !(1..=height).contains(&in_row) || !(1..=width).contains(&in_col) {
                continue;
            }
            let of_out = index(*shape_of_out, [image, filter, row, col]);
            for channel in 0..shape_of_x[1] {
                let of_x = index(*shape_of_x, [image, channel, in_row - 1, in_col - 1]);
                let of_weight = index(*shape_of_weight, [filter, channel, tap_row, tap_col]);
                match self.sum {
                    SumOf::Output => expected[of_out] += weight[of_weight] * x[of_x],
                    SumOf::Input => expected[of_x] += weight[of_weight] * grad[of_out],
                    SumOf::Weight => expected[of_weight] += grad[of_out] * x[of_x],
                }
            }
        }
        expected
    }
}
