//! Pooling in three dimensions, which Burn 0.21 does not have: of height and width, and then of the depth.

use burn_backend::IntDType;
use burn_backend::ops::{IntTensorOps as _, ModuleOps as _};
use burn_backend_021::ops::{BoolTensorOps, FloatTensorOps, IntTensorOps};
use burn_backend_021::{BoolDType, Scalar, Shape, TensorData, TensorMetadata, get_device_settings};
use burn_wgsl::{Wgsl, WgslDevice, WgslTensor};

use crate::average::{self, Pool};
use crate::backend::Port;
use crate::contract::Convert;
use crate::tensor::Tensor;

/// Pooling of the planes, and of the depth, of volumes `[batch, channels, depth, height, width]`.
struct Steps {
    planes: Pool<2>,
    /// Along the depth; the pixels of a plane are the other axis.
    depth: Pool<2>,
    /// `[batch, channels, depth, height, width]`, before and after.
    input: [usize; 5],
    output: [usize; 5],
}

impl Steps {
    fn new(x: &WgslTensor, pool: Pool<3>) -> Self {
        let shape = x.shape();
        let input = [0, 1, 2, 3, 4].map(|axis| shape[axis]);
        let windows = |axis: usize| pool.windows(axis, input[2 + axis]);
        Self {
            planes: pool.along([1, 2]),
            depth: pool.along([0]).with_plain_axis(),
            input,
            output: [input[0], input[1], windows(0), windows(1), windows(2)],
        }
    }

    /// The volumes as planes.
    fn as_planes(&self) -> Shape {
        let [batch, channels, depth, height, width] = self.input;
        Shape::new([batch, channels * depth, height, width])
    }

    /// The pooled planes.
    fn as_pooled_planes(&self) -> Shape {
        let ([batch, channels, depth, ..], [.., height, width]) = (self.input, self.output);
        Shape::new([batch, channels * depth, height, width])
    }

    /// The pooled planes as lines of depth.
    fn as_lines(&self) -> Shape {
        let ([batch, channels, depth, ..], [.., height, width]) = (self.input, self.output);
        Shape::new([batch, channels, depth, height * width])
    }

    /// The result as lines of depth.
    fn as_pooled_lines(&self) -> Shape {
        let [batch, channels, depth, height, width] = self.output;
        Shape::new([batch, channels, depth, height * width])
    }
}

/// Averages volumes.
pub(crate) fn average(x: WgslTensor, pool: Pool<3>, counts_padding: bool) -> WgslTensor {
    let steps = Steps::new(&x, pool);
    let planes = Wgsl::float_reshape(x, steps.as_planes());
    let pooled = average::average(planes, steps.planes, counts_padding);
    let lines = Wgsl::float_reshape(pooled, steps.as_lines());
    let pooled = average::average(lines, steps.depth, counts_padding);
    Wgsl::float_reshape(pooled, Shape::new(steps.output))
}

/// Returns the gradient for `x` from that of the result.
pub(crate) fn average_backward(
    x: WgslTensor,
    grad: WgslTensor,
    pool: Pool<3>,
    counts_padding: bool,
) -> WgslTensor {
    let steps = Steps::new(&x, pool);
    // Only the shape counts.
    let lines = Wgsl::float_empty(steps.as_lines(), &Wgsl::float_device(&x), x.dtype().into());
    let grad = Wgsl::float_reshape(grad, steps.as_pooled_lines());
    let grad = average::average_backward(lines, grad, steps.depth, counts_padding);
    let grad = Wgsl::float_reshape(grad, steps.as_pooled_planes());
    let planes = Wgsl::float_reshape(x, steps.as_planes());
    let grad = average::average_backward(planes, grad, steps.planes, counts_padding);
    Wgsl::float_reshape(grad, Shape::new(steps.input))
}

/// Returns the largest elements.
pub(crate) fn max(x: Tensor, pool: Pool<3>) -> Tensor {
    let steps = Steps::new(&x.0, pool);
    let step = |x: WgslTensor, pool: Pool<2>| {
        let Pool { kernel, stride, padding, dilation, ceil_mode } = pool;
        Port::max_pool2d(Tensor(x), kernel, stride, padding, dilation, ceil_mode).0
    };
    let pooled = step(Wgsl::float_reshape(x.0, steps.as_planes()), steps.planes);
    let pooled = step(Wgsl::float_reshape(pooled, steps.as_lines()), steps.depth);
    Tensor(Wgsl::float_reshape(pooled, Shape::new(steps.output)))
}

/// Returns the largest elements, and their positions in their volumes, in row-major order.
pub(crate) fn max_with_indices(x: Tensor, pool: Pool<3>, dtype: IntDType) -> (Tensor, Tensor) {
    let steps = Steps::new(&x.0, pool);
    let device = Wgsl::float_device(&x.0);
    // Small types could not hold the positions.
    let wide = get_device_settings::<Wgsl>(&device).int_dtype.converted();
    let step = |x: WgslTensor, pool: Pool<2>| {
        let Pool { kernel, stride, padding, dilation, ceil_mode } = pool;
        let x = Tensor(x);
        let pooled =
            Port::max_pool2d_with_indices(x, kernel, stride, padding, dilation, ceil_mode, wide);
        (pooled.output.0, pooled.indices.0)
    };
    let (pooled, in_planes) = step(Wgsl::float_reshape(x.0, steps.as_planes()), steps.planes);
    let (pooled, in_lines) = step(Wgsl::float_reshape(pooled, steps.as_lines()), steps.depth);
    let output = Tensor(Wgsl::float_reshape(pooled, Shape::new(steps.output)));
    let [batch, channels, depth, height, width] = steps.output;
    let (pixels, [.., input_depth, rows, columns]) = (height * width, steps.input);
    // Which pixel of which pooled plane, in whose window the position is.
    let (in_planes, in_lines) = (at_least_zero(in_planes), at_least_zero(in_lines));
    let chosen = Wgsl::int_reshape(in_lines, Shape::new([batch, channels, depth * pixels]));
    let in_planes =
        Wgsl::int_reshape(in_planes, Shape::new([batch, channels, input_depth * pixels]));
    let in_plane = Wgsl::int_gather(2, in_planes, chosen.clone());
    let scalar = |number: usize| Scalar::Int(number as i64);
    let plane = Wgsl::int_div_scalar(chosen, scalar(pixels.max(1)));
    let before = Wgsl::int_mul_scalar(plane, scalar(rows * columns));
    let indices = Wgsl::int_reshape(Wgsl::int_add(before, in_plane), Shape::new(steps.output));
    let indices = match empty_windows(&pool, &steps, &device) {
        Some(empty) => Wgsl::int_mask_fill(indices, empty, Scalar::Int(-1)),
        None => indices,
    };
    (output, Port::int_cast(Tensor(indices), dtype))
}

/// Windows that have only padding have the index -1 on a CPU.
fn at_least_zero(indices: WgslTensor) -> WgslTensor {
    Wgsl::int_clamp_min(indices, Scalar::Int(0))
}

/// Returns which windows have only padding, as those with gaps can; `None` if there are none.
fn empty_windows(pool: &Pool<3>, steps: &Steps, device: &WgslDevice) -> Option<WgslTensor> {
    let axes = [0, 1, 2].map(|axis| {
        let (size, windows) = (steps.input[2 + axis], steps.output[2 + axis]);
        let inside = pool.padding[axis]..pool.padding[axis] + size;
        let is_empty = |window: usize| {
            let element = |tap: usize| window * pool.stride[axis] + tap * pool.dilation[axis];
            (0..pool.kernel[axis]).all(|tap| !inside.contains(&element(tap)))
        };
        (0..windows).map(is_empty).collect::<Vec<bool>>()
    });
    if !axes.iter().flatten().any(|is_empty| *is_empty) {
        return None;
    }
    let [depths, rows, columns] = &axes;
    let lines = depths.iter().flat_map(|depth| rows.iter().map(move |row| depth | row));
    let empty: Vec<bool> =
        lines.flat_map(|line| columns.iter().map(move |column| line | column)).collect();
    let [_, _, depth, height, width] = steps.output;
    let empty = TensorData::new(empty, [1, 1, depth, height, width]);
    let empty = Wgsl::bool_from_data(empty, device);
    Some(Wgsl::bool_expand(empty, Shape::new(steps.output)))
}

/// Returns the gradient for `x` from that of the largest elements and their positions.
pub(crate) fn max_backward(x: WgslTensor, grad: WgslTensor, indices: WgslTensor) -> WgslTensor {
    let (shape, output) = (x.shape(), grad.shape());
    let volumes = |shape: &Shape| Shape::new([shape[0], shape[1], shape[2] * shape[3] * shape[4]]);
    let zeros = Wgsl::float_zeros(volumes(&shape), &Wgsl::float_device(&x), x.dtype().into());
    let indices = Wgsl::int_reshape(indices, volumes(&output));
    let grad = Wgsl::float_reshape(grad, volumes(&output));
    // A window that has only padding has no gradient.
    let empty = Wgsl::int_lower_elem(indices.clone(), Scalar::Int(0), BoolDType::Native);
    let grad = Wgsl::float_mask_fill(grad, empty, Scalar::Float(0.0));
    let indices = at_least_zero(indices);
    Wgsl::float_reshape(Wgsl::float_scatter_add(2, zeros, indices, grad), shape)
}
