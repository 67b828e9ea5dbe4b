//! Interpolation and grid sampling.

use burn_backend::ops::{
    FloatTensorOps, GridSampleOptions, GridSamplePaddingMode, InterpolateMode, InterpolateOptions,
    ModuleOps,
};
use burn_backend::{TensorData, TensorMetadata};
use burn_flex::{Flex, FlexDevice, FlexTensor};
use burn_std::Shape;

use super::memory::{check_memory, check_result};

use crate::kernels::interpolate::{BandMatrix, cubic, resized_shape};
use crate::kernels::ops::options::InterpolateMode as KernelMode;

pub(crate) fn interpolate(
    x: FlexTensor,
    output: [usize; 2],
    options: InterpolateOptions,
) -> FlexTensor {
    check_result("interpolate", resized_shape(&x.shape(), output), x.dtype());
    if !is_nearest(&options) {
        return Flex::interpolate(x, output, options);
    }
    let [_, _, height, width] = x.shape().dims();
    let rows = Flex::float_select(x, 2, nearest(height, output[0]));
    Flex::float_select(rows, 3, nearest(width, output[1]))
}

/// Returns whether each pixel is the nearest one. burn-flex finds it by a rounded ratio, and misses some.
fn is_nearest(options: &InterpolateOptions) -> bool {
    matches!(options.mode, InterpolateMode::Nearest) && !options.align_corners
}

/// Returns the pixel of an axis that each pixel of the resized axis is.
fn nearest(input: usize, output: usize) -> FlexTensor {
    let nearest = (0..output as u64).map(|o| (o * input as u64 / output as u64) as i64);
    FlexTensor::from_data(TensorData::new(nearest.collect::<Vec<i64>>(), [output]))
}

/// Computes the gradient of interpolation with respect to `x`. burn-flex lacks the gradient of the
/// Lanczos filter, which is a product with the matrices that resize rows and columns.
pub(crate) fn interpolate_backward(
    x: FlexTensor,
    grad: FlexTensor,
    output: [usize; 2],
    options: InterpolateOptions,
) -> FlexTensor {
    let op = "interpolate_backward";
    check_result(op, resized_shape(&x.shape(), output), x.dtype());
    let [images, channels, height, width] = x.shape().dims();
    assert!(
        grad.shape()[..] == [images, channels, output[0], output[1]],
        "{op} on cpu: the gradient must have the shape of the resized images, not {:?}",
        grad.shape()
    );
    if is_nearest(&options) {
        let zeros = |shape: [usize; 4]| {
            Flex::float_zeros(Shape::from(shape), &FlexDevice, grad.dtype().into())
        };
        let columns = zeros([images, channels, output[0], width]);
        let rows = zeros([images, channels, height, width]);
        let columns = Flex::float_select_add(columns, 3, nearest(width, output[1]), grad);
        return Flex::float_select_add(rows, 2, nearest(height, output[0]), columns);
    }
    if !matches!(options.mode, InterpolateMode::Lanczos3) {
        return Flex::interpolate_backward(x, grad, output, options);
    }
    let matrix = |input: usize, output: usize| {
        check_memory(op, &[output, input], size_of::<f32>());
        let band = BandMatrix::resize(KernelMode::Lanczos3, options.align_corners, input, output);
        let band = band.unwrap_or_else(|error| panic!("{op} on cpu: {error}"));
        let mut values = vec![0.0f32; output * input];
        for (row, first, weights) in band.iter() {
            let start = row * input + first;
            values[start..start + weights.len()].copy_from_slice(weights);
        }
        let data = TensorData::new(values, [1, 1, output, input]).convert_dtype(grad.dtype());
        FlexTensor::from_data(data)
    };
    let rows = Flex::float_transpose(matrix(height, output[0]));
    let columns = matrix(width, output[1]);
    Flex::float_matmul(Flex::float_matmul(rows, grad.clone()), columns)
}

/// Samples images `x` `[n, c, h, w]` at the points of `grid` `[n, rows, columns, 2]`. burn-flex
/// does not support bicubic sampling.
pub(crate) fn float_grid_sample_2d(
    x: FlexTensor,
    grid: FlexTensor,
    options: GridSampleOptions,
) -> FlexTensor {
    if !matches!(options.mode, InterpolateMode::Bicubic) {
        return Flex::float_grid_sample_2d(x, grid, options);
    }
    let dtype = x.dtype();
    let [n, c, h, w] = x.shape().dims();
    let [_, rows, cols, _] = grid.shape().dims();
    let values = |tensor: FlexTensor| tensor.into_data().iter::<f64>().collect::<Vec<_>>();
    let (x, grid) = (values(x), values(grid));
    let mut out = Vec::with_capacity(n * c * rows * cols);
    for image in 0..n * c {
        let pixels = &x[image * h * w..][..h * w];
        let points = &grid[image / c * rows * cols * 2..][..rows * cols * 2];
        for point in points.chunks_exact(2) {
            let col_taps = cubic_taps(point[0], w, &options);
            let mut sum = 0.0;
            for (row, weight) in cubic_taps(point[1], h, &options) {
                let products = col_taps.map(|(col, weight)| match (row, col) {
                    (Some(row), Some(col)) => weight * pixels[row * w + col],
                    _ => 0.0,
                });
                sum += weight * products.iter().sum::<f64>();
            }
            out.push(sum);
        }
    }
    FlexTensor::from_data(TensorData::new(out, [n, c, rows, cols]).convert_dtype(dtype))
}

/// Returns the indices of the four elements of an axis around a coordinate in -1..1, and their
/// weights. The index of an element outside the axis is `None`. A NaN coordinate is outside with
/// zero padding; otherwise it is the first element.
fn cubic_taps(
    coordinate: f64,
    size: usize,
    options: &GridSampleOptions,
) -> [(Option<usize>, f64); 4] {
    let last = size as i64 - 1;
    let margin = if options.align_corners { 0.0 } else { 0.5 };
    let position = (coordinate + 1.0) / 2.0 * (last as f64 + 2.0 * margin) - margin;
    let fraction = if position.is_finite() { position - position.floor() } else { 0.0 };
    [-1.0, 0.0, 1.0, 2.0].map(|step| {
        let tap = position.floor() + step;
        let element = match options.padding_mode {
            GridSamplePaddingMode::Zeros if tap.is_nan() => -1,
            GridSamplePaddingMode::Zeros => tap as i64,
            GridSamplePaddingMode::Border => (tap as i64).clamp(0, last),
            GridSamplePaddingMode::Reflection => {
                // The reflected axis is periodic. Without `align_corners`, each edge repeats.
                let edge_repeats = i64::from(margin > 0.0);
                let period = 2 * (last + edge_repeats);
                let phase = (tap as i64).rem_euclid(period.max(1));
                phase.min(period - edge_repeats - phase).max(0)
            }
        };
        let inside = (0..=last).contains(&element);
        (inside.then_some(element as usize), cubic((fraction - step).abs()))
    })
}
