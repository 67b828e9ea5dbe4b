//! The CPU twin: burn-flex, and what it lacks or loses, computed with it.

mod ctc;
mod index;

pub(crate) use ctc::*;
pub(crate) use index::*;

use burn_backend::ops::{
    ConvOptions, FloatTensorOps, GridSampleOptions, GridSamplePaddingMode, InterpolateMode,
    InterpolateOptions, ModuleOps,
};
use burn_backend::{TensorData, TensorMetadata};
use burn_flex::{Flex, FlexTensor};
use burn_std::{Shape, Slice};

use crate::kernels::interpolate::{Mode, Runs, cubic};
use crate::kernels::table::{Reference, Row};

/// An elementwise row with one operand, by its truth.
pub(crate) fn map(row: &Row, tensor: FlexTensor) -> FlexTensor {
    let Reference::F1(truth) = row.reference else {
        panic!("{}: the row's truth is of another kind", row.name)
    };
    let (dtype, data) = (tensor.dtype(), tensor.into_data());
    let values: Vec<f64> = data.iter::<f64>().map(truth).collect();
    FlexTensor::from_data(TensorData::new(values, data.shape).convert_dtype(dtype))
}

/// An elementwise row with two operands that broadcast, by its truth.
pub(crate) fn map2(row: &Row, lhs: FlexTensor, rhs: FlexTensor) -> FlexTensor {
    let Reference::F2(truth) = row.reference else {
        panic!("{}: the row's truth is of another kind", row.name)
    };
    let shape = lhs
        .shape()
        .broadcast(&rhs.shape())
        .unwrap_or_else(|error| panic!("{}: {error:?}", row.name));
    let dtype = lhs.dtype();
    let spread = |tensor| Flex::float_expand(tensor, shape.clone()).into_data();
    let (lhs, rhs) = (spread(lhs), spread(rhs));
    let values: Vec<f64> =
        lhs.iter::<f64>().zip(rhs.iter::<f64>()).map(|(a, b)| truth(a, b)).collect();
    FlexTensor::from_data(TensorData::new(values, shape).convert_dtype(dtype))
}

/// Elements within limits, the upper one where they cross, and NaN where an element or a limit is. burn-flex takes
/// a limit for an element that is NaN, and ends where a limit is or they cross.
pub(crate) fn clamp(tensor: FlexTensor, least: f64, most: f64) -> FlexTensor {
    if least.is_nan() || most.is_nan() {
        return Flex::float_mul_scalar(tensor, f64::NAN.into());
    }
    Flex::float_clamp(tensor, least.min(most).into(), most.into())
}

/// A reduction of one axis over all of them. burn-flex's own ones of all elements pass NaN over.
pub(crate) fn whole(tensor: FlexTensor, reduce: fn(FlexTensor, usize) -> FlexTensor) -> FlexTensor {
    let len = tensor.shape().num_elements();
    reduce(Flex::float_reshape(tensor, Shape::from([len])), 0)
}

/// Each row divided by its root mean square, times `gamma`.
pub(crate) fn rms_norm(x: FlexTensor, gamma: FlexTensor, epsilon: f64) -> FlexTensor {
    let y = over_deviation(x, epsilon);
    let gamma = as_row(gamma, y.rank());
    Flex::float_mul(y, gamma)
}

/// Each row less its mean, over its standard deviation, times `gamma`, plus `beta`. burn-flex's own takes the
/// variance as the difference of two squares, which for a mean of 100 deviations leaves two digits.
pub(crate) fn layer_norm(
    x: FlexTensor,
    gamma: FlexTensor,
    beta: Option<FlexTensor>,
    epsilon: f64,
) -> FlexTensor {
    let axis = x.rank() - 1;
    let center = |x: FlexTensor| Flex::float_sub(x.clone(), Flex::float_mean_dim(x, axis));
    // A large mean is rounded; the second takes away what the first left.
    let y = over_deviation(center(center(x)), epsilon);
    let y = Flex::float_mul(y, as_row(gamma, axis + 1));
    match beta {
        Some(beta) => Flex::float_add(y, as_row(beta, axis + 1)),
        None => y,
    }
}

/// Each row divided by the root of the mean of its squares.
fn over_deviation(x: FlexTensor, epsilon: f64) -> FlexTensor {
    let axis = x.rank() - 1;
    let mean = Flex::float_mean_dim(Flex::float_mul(x.clone(), x.clone()), axis);
    let scale = Flex::float_sqrt(Flex::float_add_scalar(mean, epsilon.into()));
    Flex::float_div(x, scale)
}

/// A vector as the last of so many axes.
fn as_row(vector: FlexTensor, rank: usize) -> FlexTensor {
    let mut shape = vec![1; rank];
    shape[rank - 1] = vector.shape().num_elements();
    Flex::float_reshape(vector, Shape::from(shape))
}

/// The gradient of resizing. burn-flex has none of the Lanczos filter: that one is a product with the matrices
/// that resize rows and columns.
pub(crate) fn interpolate_backward(
    x: FlexTensor,
    grad: FlexTensor,
    output: [usize; 2],
    options: InterpolateOptions,
) -> FlexTensor {
    if !matches!(options.mode, InterpolateMode::Lanczos3) {
        return Flex::interpolate_backward(x, grad, output, options);
    }
    let matrix = |input: usize, output: usize| {
        let runs = Runs::resizing(Mode::Lanczos3, options.align_corners, input, output);
        let mut values = vec![0.0f32; output * input];
        for (row, first, weights) in runs.iter() {
            let start = row * input + first;
            values[start..start + weights.len()].copy_from_slice(weights);
        }
        let data = TensorData::new(values, [1, 1, output, input]).convert_dtype(grad.dtype());
        FlexTensor::from_data(data)
    };
    let [_, _, height, width] = x.shape().dims();
    let rows = Flex::float_transpose(matrix(height, output[0]));
    let columns = matrix(width, output[1]);
    Flex::float_matmul(Flex::float_matmul(rows, grad.clone()), columns)
}

/// The gradient of a convolution's weights, group by group. Burn's own for groups in one dimension does not cut off the
/// taps that a stride with a remainder adds.
pub(crate) fn conv1d_weight_backward(
    x: FlexTensor,
    weight: FlexTensor,
    grad: FlexTensor,
    options: ConvOptions<1>,
) -> FlexTensor {
    let groups = options.groups;
    let part = |tensor: &FlexTensor, axis: usize, group: usize| {
        let size = tensor.shape()[axis] / groups;
        let mut slices = [Slice::full(); 3];
        slices[axis] = Slice::from(group * size..(group + 1) * size);
        Flex::float_slice(tensor.clone(), &slices)
    };
    let gradient = |group| {
        let options = ConvOptions { groups: 1, ..options.clone() };
        let (x, weight) = (part(&x, 1, group), part(&weight, 0, group));
        Flex::conv1d_weight_backward(x, weight, part(&grad, 1, group), options)
    };
    Flex::float_cat((0..groups).map(gradient).collect(), 0)
}

/// The gradient of average pooling's result, with what burn-flex divides too much by made up for: a window that hangs over
/// the padding has fewer cells.
pub(crate) fn undivided(
    grad: FlexTensor,
    x: &Shape,
    kernel: [usize; 2],
    stride: [usize; 2],
    padding: [usize; 2],
) -> FlexTensor {
    let [_, _, rows, columns] = grad.shape().dims();
    let share = |axis: usize, at: usize| {
        let left = x[2 + axis] + 2 * padding[axis] - at * stride[axis];
        kernel[axis] as f32 / left.min(kernel[axis]) as f32
    };
    let shares = |row| (0..columns).map(move |column| share(0, row) * share(1, column));
    let shares: Vec<f32> = (0..rows).flat_map(shares).collect();
    let shares = TensorData::new(shares, [1, 1, rows, columns]).convert_dtype(grad.dtype());
    Flex::float_mul(grad, FlexTensor::from_data(shares))
}

/// Images at the places of a grid. burn-flex does not know cubic convolution.
pub(crate) fn grid_sample_2d(
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
    let read = |tensor: FlexTensor| tensor.into_data().iter::<f64>().collect::<Vec<_>>();
    let (x, grid) = (read(x), read(grid));
    let mut out = Vec::with_capacity(n * c * rows * cols);
    for image in 0..n * c {
        let pixels = &x[image * h * w..][..h * w];
        let places = &grid[image / c * rows * cols * 2..][..rows * cols * 2];
        for place in places.chunks_exact(2) {
            let across = cubic_taps(place[0], w, &options);
            let mut sum = 0.0;
            for (row, weight) in cubic_taps(place[1], h, &options) {
                let line = across.map(|(col, weight)| match (row, col) {
                    (Some(row), Some(col)) => weight * pixels[row * w + col],
                    _ => 0.0,
                });
                sum += weight * line.iter().sum::<f64>();
            }
            out.push(sum);
        }
    }
    FlexTensor::from_data(TensorData::new(out, [n, c, rows, cols]).convert_dtype(dtype))
}

/// The elements of an axis around a place from -1 to 1, none where it lies outside, and their weights.
fn cubic_taps(place: f64, size: usize, options: &GridSampleOptions) -> [(Option<usize>, f64); 4] {
    let last = size as i64 - 1;
    let margin = if options.align_corners { 0.0 } else { 0.5 };
    let at = (place + 1.0) / 2.0 * (last as f64 + 2.0 * margin) - margin;
    [-1.0, 0.0, 1.0, 2.0].map(|step| {
        let tap = at.floor() + step;
        let element = match options.padding_mode {
            GridSamplePaddingMode::Zeros => tap as i64,
            GridSamplePaddingMode::Border => (tap as i64).clamp(0, last),
            GridSamplePaddingMode::Reflection => {
                // There and back, with or without the outermost elements twice.
                let (turn, twice) = (last + i64::from(margin > 0.0), i64::from(margin > 0.0));
                let along = (tap as i64).rem_euclid((2 * turn).max(1));
                along.min(2 * turn - twice - along).max(0)
            }
        };
        let inside = (0..=last).contains(&element);
        (inside.then_some(element as usize), cubic((at - tap).abs()))
    })
}

/// Refuses for the twin what the kernels' launchers refuse: burn-flex does not always look.
pub(crate) fn insist(op: &str, check: crate::tensor::Result<()>) {
    if let Err(error) = check {
        panic!("{op}: {error}");
    }
}
