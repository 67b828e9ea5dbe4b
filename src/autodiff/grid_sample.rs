//! Grid sampling. Burn differentiates the bilinear mode.

use burn_autodiff::Autodiff as BurnAutodiff;
use burn_autodiff::checkpoint::strategy::CheckpointStrategy;
use burn_backend::ops::{
    BoolTensorOps, FloatTensorOps, GridSamplePaddingMode, IntTensorOps, InterpolateMode,
};
use burn_backend::{TensorData, TensorMetadata, get_device_settings};
use burn_std::{FloatDType, IntDType, Shape, Slice};

use super::kinds::{F, GridSample};
use super::node::node;
use crate::backend::{Wgsl, WgslTensor};

pub(super) fn float_grid_sample_2d<C: CheckpointStrategy>(
    tensor: F,
    grid: F,
    options: GridSample,
) -> F {
    if !matches!(options.mode, InterpolateMode::Nearest | InterpolateMode::Bicubic) {
        return BurnAutodiff::<Wgsl, C>::float_grid_sample_2d(tensor, grid, options);
    }
    let output = Wgsl::float_grid_sample_2d(
        tensor.primitive.clone(),
        grid.primitive.clone(),
        options.clone(),
    );
    node::<C, _, 2, 2>([tensor, grid], output, options, |[x, grid], options, grad| {
        if matches!(options.mode, InterpolateMode::Bicubic) {
            return bicubic_gradients(x, grid, &options, grad);
        }
        // Between two steps, the coordinates make no difference.
        let of_grid = Wgsl::float_zeros(grid.shape(), &grid.device(), grid.dtype().into());
        [nearest_gradient(&x, grid, options, grad), of_grid]
    })
}

/// Adds the gradient of each sample to the pixel that it was read from.
fn nearest_gradient(
    x: &WgslTensor,
    grid: WgslTensor,
    options: GridSample,
    grad: WgslTensor,
) -> WgslTensor {
    let device = x.device();
    let [n, c, h, w] = x.shape().dims();
    let [_, _, rows, cols] = grad.shape().dims();
    // Sampled like the image, images of row and column numbers tell which pixel a sample is, or
    // zero outside.
    let grid = Wgsl::float_cast(grid, FloatDType::F32);
    let sampled = |len: usize, shape: [usize; 4]| {
        let numbers = Wgsl::int_arange(1..len as i64 + 1, &device, IntDType::I32);
        let numbers = Wgsl::int_reshape(numbers, Shape::from(shape));
        let numbers = Wgsl::int_into_float(numbers, FloatDType::F32);
        let image = Wgsl::float_expand(numbers, Shape::from([n, 1, h, w]));
        let numbers = Wgsl::float_grid_sample_2d(image, grid.clone(), options.clone());
        Wgsl::float_into_int(numbers, IntDType::I32)
    };
    let rows_before = Wgsl::int_sub_scalar(sampled(h, [1, 1, h, 1]), 1.into());
    let pixels = Wgsl::int_mul_scalar(rows_before, (w as i64).into());
    let pixels = Wgsl::int_add(pixels, sampled(w, [1, 1, 1, w]));
    // The pixels from 1 on, and 0 for samples outside.
    let pixels = Wgsl::int_clamp_min(pixels, 0.into());
    let pixels = Wgsl::int_reshape(pixels, Shape::from([n, 1, rows * cols]));
    let pixels = Wgsl::int_expand(pixels, Shape::from([n, c, rows * cols]));
    let grad = Wgsl::float_reshape(grad, Shape::from([n, c, rows * cols]));
    let zeros = Wgsl::float_zeros(Shape::from([n, c, h * w + 1]), &device, grad.dtype().into());
    let sums = Wgsl::float_scatter_add(2, zeros, pixels, grad);
    let inside = [Slice::full(), Slice::full(), Slice::new(1, None, 1)];
    Wgsl::float_reshape(Wgsl::float_slice(sums, &inside), x.shape())
}

/// Returns the gradients of the images and of the coordinates: a sample is the sum of 4 x 4 pixels,
/// each times a weight of its row and one of its column.
fn bicubic_gradients(
    x: WgslTensor,
    grid: WgslTensor,
    options: &GridSample,
    grad: WgslTensor,
) -> [WgslTensor; 2] {
    let (x_dtype, grid_dtype) = (x.dtype().into(), grid.dtype().into());
    let [x, grid, grad] = [x, grid, grad].map(|tensor| Wgsl::float_cast(tensor, FloatDType::F32));
    let ([n, c, h, w], [_, _, rows, cols]) = (x.shape().dims(), grad.shape().dims());
    let samples = rows * cols;
    let coordinates = |index: usize| {
        let part = [Slice::full(), Slice::full(), Slice::full(), Slice::index(index as isize)];
        Wgsl::float_reshape(Wgsl::float_slice(grid.clone(), &part), Shape::from([n, 1, samples]))
    };
    let vertical = Taps::new(coordinates(1), h, options);
    let horizontal = Taps::new(coordinates(0), w, options);
    // Tensors of the pairs of a row and a column: [n, row, column, sample].
    let by_row = Shape::from([n, 4, 1, samples]);
    let by_col = Shape::from([n, 1, 4, samples]);
    let pairs = |of_rows: &WgslTensor, of_cols: &WgslTensor| {
        let product = Wgsl::float_mul(
            Wgsl::float_reshape(of_rows.clone(), by_row.clone()),
            Wgsl::float_reshape(of_cols.clone(), by_col.clone()),
        );
        Wgsl::float_reshape(product, Shape::from([n, 1, 16, samples]))
    };
    let pixels = Wgsl::int_add(
        Wgsl::int_reshape(Wgsl::int_mul_scalar(vertical.pixels, (w as i64).into()), by_row.clone()),
        Wgsl::int_reshape(horizontal.pixels, by_col.clone()),
    );
    let pixels = Wgsl::int_reshape(pixels, Shape::from([n, 1, 16 * samples]));
    let pixels = Wgsl::int_expand(pixels, Shape::from([n, c, 16 * samples]));
    let grad = Wgsl::float_reshape(grad, Shape::from([n, c, 1, samples]));

    let parts = Wgsl::float_mul(grad.clone(), pairs(&vertical.weights, &horizontal.weights));
    let parts = Wgsl::float_reshape(parts, Shape::from([n, c, 16 * samples]));
    let zeros = Wgsl::float_zeros(Shape::from([n, c, h * w]), &x.device(), FloatDType::F32);
    let of_x = Wgsl::float_scatter_add(2, zeros, pixels.clone(), parts);
    let of_x = Wgsl::float_reshape(of_x, x.shape());

    let values = Wgsl::float_reshape(x, Shape::from([n, c, h * w]));
    let values = Wgsl::float_gather(2, values, pixels);
    let values = Wgsl::float_reshape(values, Shape::from([n, c, 16, samples]));
    // The gradient of the weight of each pair.
    let of_pairs = Wgsl::float_sum_dim(Wgsl::float_mul(values, grad), 1);
    let of_coordinate = |slopes: WgslTensor, size: usize| {
        let sums = Wgsl::float_sum_dim(Wgsl::float_mul(of_pairs.clone(), slopes), 2);
        let scaled = Wgsl::float_mul_scalar(sums, (0.5 * Axis::new(size, options).length).into());
        Wgsl::float_reshape(scaled, Shape::from([n, rows, cols, 1]))
    };
    let of_grid = Wgsl::float_cat(
        vec![
            of_coordinate(pairs(&vertical.weights, &horizontal.slopes), w),
            of_coordinate(pairs(&vertical.slopes, &horizontal.weights), h),
        ],
        3,
    );
    [Wgsl::float_cast(of_x, x_dtype), Wgsl::float_cast(of_grid, grid_dtype)]
}

/// The rows or the columns that bicubic samples read: tensors of [n, 4, sample].
struct Taps {
    /// Indices, inside the image.
    pixels: WgslTensor,
    /// Weights; zero if the tap is outside and reads zero.
    weights: WgslTensor,
    /// Derivatives of the weights by the position.
    slopes: WgslTensor,
}

impl Taps {
    /// `coordinates` is [n, 1, sample].
    fn new(coordinates: WgslTensor, size: usize, options: &GridSample) -> Self {
        let axis = Axis::new(size, options);
        let device = coordinates.device();
        let offsets = TensorData::new(vec![-1.0f32, 0.0, 1.0, 2.0], [1, 4, 1]);
        let offsets = Wgsl::float_from_data(offsets, &device);
        let position = Wgsl::float_add_scalar(coordinates, 1.0.into());
        let position = Wgsl::float_mul_scalar(position, (0.5 * axis.length).into());
        let position = Wgsl::float_sub_scalar(position, axis.margin.into());
        let before = Wgsl::float_floor(position.clone());
        let fraction = Wgsl::float_sub(position, before.clone());
        // Positions that are not finite have no fraction.
        let booleans = get_device_settings::<Wgsl>(&device).bool_dtype;
        let not_finite = Wgsl::float_is_nan(fraction.clone(), booleans);
        let fraction = Wgsl::float_mask_fill(fraction, not_finite, 0.0.into());
        let distance = Wgsl::float_sub(fraction, offsets.clone());
        let (mut weights, mut slopes) = cubic(distance);
        let mut taps = Wgsl::float_add(before, offsets);
        match options.padding_mode {
            GridSamplePaddingMode::Zeros => {
                let above = Wgsl::float_greater_equal_elem(taps.clone(), 0.0.into(), booleans);
                let below = Wgsl::float_lower_elem(taps.clone(), (size as f64).into(), booleans);
                let outside = Wgsl::bool_not(Wgsl::bool_and(above, below));
                weights = Wgsl::float_mask_fill(weights, outside.clone(), 0.0.into());
                slopes = Wgsl::float_mask_fill(slopes, outside, 0.0.into());
            }
            GridSamplePaddingMode::Border => {}
            GridSamplePaddingMode::Reflection => taps = axis.reflect(taps),
        }
        let pixels = Wgsl::float_into_int(taps, IntDType::I32);
        let pixels = Wgsl::int_clamp(pixels, 0.into(), (size as i64 - 1).into());
        Self { pixels, weights, slopes }
    }
}

/// An axis of the images, in pixels whose centres are at whole numbers.
struct Axis {
    /// The distance between its ends.
    length: f64,
    /// The distance from the centre of an outermost pixel to the end.
    margin: f64,
}

impl Axis {
    fn new(size: usize, options: &GridSample) -> Self {
        let margin = if options.align_corners { 0.0 } else { 0.5 };
        Self { length: size as f64 - 1.0 + 2.0 * margin, margin }
    }

    /// Reflects positions at the ends until they are inside.
    fn reflect(&self, positions: WgslTensor) -> WgslTensor {
        if self.length == 0.0 {
            return Wgsl::float_mul_scalar(positions, 0.0.into());
        }
        let distance = Wgsl::float_abs(Wgsl::float_add_scalar(positions, self.margin.into()));
        let lengths = Wgsl::float_div_scalar(distance, self.length.into());
        let reflections = Wgsl::float_floor(lengths.clone());
        let rest = Wgsl::float_sub(lengths, reflections.clone());
        let half = Wgsl::float_mul_scalar(reflections, 0.5.into());
        let parity = Wgsl::float_sub(half.clone(), Wgsl::float_floor(half));
        let booleans = get_device_settings::<Wgsl>(&rest.device()).bool_dtype;
        let backwards = Wgsl::float_equal_elem(parity, 0.5.into(), booleans);
        let from_end = Wgsl::float_add_scalar(Wgsl::float_neg(rest.clone()), 1.0.into());
        let rest = Wgsl::float_mask_where(rest, backwards, from_end);
        let rest = Wgsl::float_mul_scalar(rest, self.length.into());
        // Taps are whole numbers; the division has rounded.
        Wgsl::float_round(Wgsl::float_sub_scalar(rest, self.margin.into()))
    }
}

/// Returns the weights of pixels by their distances (R. Keys, 1981, with a = -3/4), and the
/// derivatives.
fn cubic(distance: WgslTensor) -> (WgslTensor, WgslTensor) {
    let booleans = get_device_settings::<Wgsl>(&distance.device()).bool_dtype;
    let d = Wgsl::float_abs(distance.clone());
    let is_near = Wgsl::float_lower_elem(d.clone(), 1.0.into(), booleans);
    let by_distance = |near: &[f64], far: &[f64]| {
        let far = polynomial(&d, far);
        Wgsl::float_mask_where(far, is_near.clone(), polynomial(&d, near))
    };
    let weights = by_distance(&[1.25, -2.25, 0.0, 1.0], &[-0.75, 3.75, -6.0, 3.0]);
    let slopes = by_distance(&[3.75, -4.5, 0.0], &[-2.25, 7.5, -6.0]);
    (weights, Wgsl::float_mul(slopes, Wgsl::float_sign(distance)))
}

/// Computes a polynomial of `x`, whose highest coefficient comes first.
fn polynomial(x: &WgslTensor, coefficients: &[f64]) -> WgslTensor {
    let [highest, others @ ..] = coefficients else { unreachable!("there are coefficients") };
    let mut terms = Wgsl::float_mul_scalar(x.clone(), (*highest).into());
    for (index, &coefficient) in others.iter().enumerate() {
        terms = Wgsl::float_add_scalar(terms, coefficient.into());
        if index + 1 < others.len() {
            terms = Wgsl::float_mul(terms, x.clone());
        }
    }
    terms
}
