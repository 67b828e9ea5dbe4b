//! Pooling in two dimensions and its gradients: maximum, average, adaptive average.

use smallvec::{SmallVec, smallvec};

use crate::kernels::conv::geometry::addressable_window;
use crate::kernels::elementwise::{binary, clamp, scalar};
use crate::kernels::fusion::{epilogue, prologue};
use crate::kernels::gather::gather;
use crate::kernels::launch::{Launch, PendingResult, Reads, variants_of, workgroups_for};
use crate::kernels::ops::cases::{Arg, Case, cases, permuted};
use crate::kernels::ops::map::ScalarValue;
use crate::kernels::ops::options::PoolWindow;
use crate::kernels::ops::table::rows as table;
use crate::kernels::reduce::{self, Reduction};
use crate::kernels::scatter::scatter_add;
use crate::kernels::{cast, create, policy, views};
use crate::params;
use crate::runtime::{Fragment, Kernel, Runtime, Source, Variant, wgsl};
use crate::tensor::{DType, Error, Result, Shape, Tensor};

/// The fragments of the shaders.
const FRAGMENTS: &[Fragment] = &[("lib/pool", wgsl!("../../shaders/lib/pool.wgsl"))];

static POOL: Source = Source::new::<PoolParams>("pool", wgsl!("../../shaders/pool/pool.wgsl"))
    .with_fragments(FRAGMENTS);
static POOL_BACKWARD: Source =
    Source::new::<PoolParams>("pool_backward", wgsl!("../../shaders/pool/pool_backward.wgsl"))
        .with_fragments(FRAGMENTS);

params! {
    struct PoolParams {
        count: u32,
        lines: u32,
        in_h: u32,
        in_w: u32,
        out_h: u32,
        out_w: u32,
        kernel_h: u32,
        kernel_w: u32,
        stride_h: u32,
        stride_w: u32,
        padding_h: u32,
        padding_w: u32,
        dilation_h: u32,
        dilation_w: u32,
        count_include_pad: u32,
        pad0: u32,
    }
}

/// Lines that one invocation computes. A line is a row of the result, of any channel and image.
const LINES: usize = 4;

/// How often a kernel may read an element of a pending operand that it computes, on average.
const MAX_REPEATS: usize = 4;

/// Returns the operand, the input or the gradient, if the kernel computes it where it reads it: it
/// does so if it reads elements few times, or only converts them.
fn prologues_of(operand: &Tensor, repeats: usize) -> SmallVec<[(usize, Reads); 3]> {
    match repeats <= MAX_REPEATS {
        true => smallvec![(0, Reads::AnyNumber)],
        false => prologue::conversions(&[operand]),
    }
}

/// What a kernel computes for each window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum PoolMode {
    Max,
    MaxWithIndices,
    Average,
    AdaptiveAverage,
}

/// The kernel of pooling and of its gradient.
#[derive(Debug, Clone, Copy, Hash)]
struct PoolKernel {
    /// What it computes for each window.
    mode: PoolMode,
    /// Whether the result is the gradient of the input.
    backward: bool,
    /// Whether an invocation computes four neighbours of a gradient, which are stored at once.
    quads: bool,
    /// Whether windows do not overlap, for the gradient.
    disjoint: bool,
}

impl Kernel for PoolKernel {
    type Params = PoolParams;

    fn variant(&self) -> Variant {
        let Self { mode, backward, quads, disjoint } = *self;
        Variant::new(if backward { &POOL_BACKWARD } else { &POOL })
            .flag("MAX", matches!(mode, PoolMode::Max | PoolMode::MaxWithIndices))
            .flag("INDICES", mode == PoolMode::MaxWithIndices)
            .flag("ADAPTIVE", mode == PoolMode::AdaptiveAverage)
            .flag("QUADS", quads)
            .flag("DISJOINT", disjoint)
            .int("LINES", LINES as u32)
    }
}

impl PoolWindow {
    /// Returns a placeholder for adaptive pooling: the sizes of input and output determine its
    /// windows.
    fn adaptive() -> Self {
        Self {
            kernel: [1, 1],
            stride: [1, 1],
            padding: [0, 0],
            dilation: [1, 1],
            ceil_mode: false,
            count_include_pad: false,
        }
    }

    /// Returns the height and width of the output for an input of shape `x`.
    pub(crate) fn output(&self, x: &[usize]) -> Result<[usize; 2]> {
        let error = || Error::Shape {
            lhs: x.to_vec(),
            rhs: self.kernel.to_vec(),
            rule: "pooling needs x [n, c, h, w], positive window sizes and strides, and a window \
                   no larger than the padded input, all below 2^30",
        };
        let mut out = [0; 2];
        for axis in 0..2 {
            let [kernel, stride] = [self.kernel[axis], self.stride[axis]];
            if x.len() != 4 || kernel == 0 || stride == 0 {
                return Err(error());
            }
            let (padding, dilation) = (self.padding[axis], self.dilation[axis]);
            let sizes = addressable_window(x[axis + 2], kernel, stride, padding, dilation);
            let (padded, extent) = sizes.ok_or_else(error)?;
            // The distance from the first possible position of the window to the last.
            let distance = padded.checked_sub(extent + 1);
            out[axis] = match distance {
                Some(distance) if self.ceil_mode => distance.div_ceil(stride) + 1,
                Some(distance) => distance / stride + 1,
                // One window, which extends past the padded input.
                None if self.ceil_mode => 1,
                None => return Err(error()),
            };
        }
        Ok(out)
    }

    /// Returns the shape of the result for an input of a shape.
    ///
    /// # Errors
    ///
    /// Returns an error if a window does not fit, or the result is too large.
    pub fn output_shape(&self, x: &[usize]) -> Result<Shape> {
        let [height, width] = self.output(x)?;
        views::check_countable(&[x[0], x[1], height, width])
    }

    /// Returns the size of the window without the taps beyond the padded input, which no window of an output reaches.
    fn taps_inside(&self, input: [usize; 2]) -> [usize; 2] {
        [0, 1].map(|axis| {
            let padded = input[axis] + 2 * self.padding[axis];
            self.kernel[axis].min(padded.div_ceil(self.dilation[axis]).max(1))
        })
    }

    /// Returns the parameters of a kernel with `count` invocations that computes `lines` lines.
    fn params(
        &self,
        count: usize,
        lines: usize,
        input: [usize; 2],
        output: [usize; 2],
    ) -> PoolParams {
        let [in_h, in_w] = input.map(|size| size as u32);
        let [out_h, out_w] = output.map(|size| size as u32);
        let [kernel_h, kernel_w] = self.taps_inside(input).map(|size| size as u32);
        let [stride_h, stride_w] = self.stride.map(|step| step as u32);
        let [padding_h, padding_w] = self.padding.map(|size| size as u32);
        let [dilation_h, dilation_w] = self.dilation.map(|step| step as u32);
        PoolParams {
            count: count as u32,
            lines: lines as u32,
            in_h,
            in_w,
            out_h,
            out_w,
            kernel_h,
            kernel_w,
            stride_h,
            stride_w,
            padding_h,
            padding_w,
            dilation_h,
            dilation_w,
            count_include_pad: u32::from(self.count_include_pad),
            pad0: 0,
        }
    }
}

/// Returns the invocations for a result of `lines` lines: each computes one column of [`LINES`]
/// lines.
fn invocations(lines: usize, width: usize) -> usize {
    lines.div_ceil(LINES) * width
}

impl PoolWindow {
    /// Returns the window along one axis of the image, which has one element along the other.
    fn along(&self, axis: usize) -> Self {
        let only = |sizes: [usize; 2], other: usize| {
            let mut only = [other; 2];
            only[axis] = sizes[axis];
            only
        };
        Self {
            kernel: only(self.kernel, 1),
            stride: only(self.stride, 1),
            padding: only(self.padding, 0),
            dilation: only(self.dilation, 1),
            ..*self
        }
    }
}

/// Elements of a window above which few windows are pooled along one axis after the other, so that more invocations
/// share them.
const MANY_ELEMENTS: usize = 1024;

/// Returns whether windows of a size are pooled along one axis after the other, or by reductions: the loops of an
/// invocation would be too long, or there are few invocations.
fn is_divided(runtime: &Runtime, [height, width]: [usize; 2], invocations: usize) -> bool {
    let is_large = height > 1 && width > 1 && height.saturating_mul(width) >= MANY_ELEMENTS;
    let is_busy = invocations >= policy::of(runtime).busy_invocations() / 4;
    rounds([height, width]) > policy::max_rounds(runtime) || is_large && !is_busy
}

/// Returns the rounds of the loops of an invocation, which go over windows of a size, or over the windows of an
/// element.
fn rounds([height, width]: [usize; 2]) -> usize {
    height.saturating_mul(width.saturating_add(2)).saturating_add(1).saturating_mul(LINES)
}

/// Pools along the width and then along the height: a maximum is that of maxima of rows, an average that of averages of
/// rows. The first maximum of a window is the first of the first row that has it.
fn separated(
    mode: PoolMode,
    x: Tensor,
    window: PoolWindow,
    output: [usize; 2],
) -> Result<(Tensor, Option<Tensor>)> {
    let [n, c, h] = [x.shape()[0], x.shape()[1], x.shape()[2]];
    let (of_rows, indices) = forward(mode, x, window.along(1), [h, output[1]])?;
    let (out, positions) = forward(mode, of_rows, window.along(0), output)?;
    let (Some(indices), Some(positions)) = (indices, positions) else { return Ok((out, None)) };
    // The second indices are positions among the maxima of the rows.
    let indices = views::reshape(indices, &[n * c, h * output[1]])?;
    let positions = views::reshape(positions, &[n * c, output[0] * output[1]])?;
    let indices = views::reshape(gather(1, indices, positions)?, &[n, c, output[0], output[1]])?;
    Ok((out, Some(indices)))
}

/// Pools along one axis of the image, with `taps` elements in a window, too many for a loop: windows are lines of a
/// view, which a reduction splits.
fn long_windows(
    mode: PoolMode,
    x: Tensor,
    window: PoolWindow,
    output: [usize; 2],
    axis: usize,
    taps: usize,
) -> Result<(Tensor, Option<Tensor>)> {
    if mode == PoolMode::AdaptiveAverage {
        return Ok((long_means(&x, axis + 2, output[axis])?, None));
    }
    let shape = [x.shape()[0], x.shape()[1], output[0], output[1]];
    let lines = lines_of_windows(mode, &x, &window, output[axis], axis, taps)?;
    let reduced = |kind| views::reshape(reduce::dim(kind, lines.clone(), 4)?, &shape);
    match mode {
        PoolMode::Max => Ok((reduced(Reduction::Max)?, None)),
        PoolMode::MaxWithIndices => {
            let taps = reduced(Reduction::ArgMax)?;
            Ok((reduced(Reduction::Max)?, Some(indices_of_taps(taps, &x, &window, axis)?)))
        }
        _ => {
            let counts = counts(&x, &window, output[axis], axis)?;
            Ok((binary(&table::float_div, reduced(Reduction::Sum)?, counts)?, None))
        }
    }
}

/// Computes the means of adaptive windows along an axis of a tensor, one after the other.
fn long_means(x: &Tensor, along: usize, windows: usize) -> Result<Tensor> {
    let input = x.shape()[along];
    let mean_of = |o: usize| {
        let (start, end) = (o * input / windows, ((o + 1) * input).div_ceil(windows));
        reduce::dim(Reduction::Mean, views::narrow(x.clone(), along, start, end - start)?, along)
    };
    views::cat((0..windows).map(mean_of).collect::<Result<_>>()?, along)
}

/// Returns a view `[n, c, h, w, taps]` of a copy of the image with its padding, whose last axis is the elements of a
/// window along an axis of the image.
fn lines_of_windows(
    mode: PoolMode,
    x: &Tensor,
    window: &PoolWindow,
    windows: usize,
    axis: usize,
    taps: usize,
) -> Result<Tensor> {
    let along = axis + 2;
    let [stride, padding, dilation] =
        [window.stride, window.padding, window.dilation].map(|of| of[axis]);
    // To the end of the last window.
    let len = (windows - 1) * stride + (taps - 1) * dilation + 1;
    let inside = x.shape()[along].min(len.saturating_sub(padding));
    let fill = if mode == PoolMode::Average { 0.0 } else { f32::NEG_INFINITY };
    let filled = |len: usize| {
        let mut shape: Shape = x.shape().into();
        shape[along] = len;
        create::full(x.runtime(), &shape, ScalarValue::Float(fill), DType::F32)
    };
    let after = len.saturating_sub(padding + inside);
    let image = views::narrow(x.clone(), along, 0, inside)?;
    let padded = views::cat(vec![filled(padding)?, image, filled(after)?], along)?;
    let padded = views::packed(padded)?;
    let lines = padded.layout().edited(|shape, strides| {
        let step = strides[along];
        shape[along] = windows;
        strides[along] = stride.cast_signed() * step;
        shape.push(taps);
        strides.push(dilation.cast_signed() * step);
    });
    Ok(padded.view(lines))
}

/// Returns how many elements each average along an axis of the image counts, as an image of one line.
fn counts(x: &Tensor, window: &PoolWindow, windows: usize, axis: usize) -> Result<Tensor> {
    let (input, padding) = (x.shape()[axis + 2], window.padding[axis]);
    let counted = match window.count_include_pad {
        true => 0..input + 2 * padding,
        false => padding..padding + input,
    };
    let count = |o: usize| {
        let start = o * window.stride[axis];
        let end = (start + window.kernel[axis]).min(counted.end);
        end.saturating_sub(start.max(counted.start)).max(1) as f32
    };
    let counts: Vec<f32> = (0..windows).map(count).collect();
    let mut shape = [1; 4];
    shape[axis + 2] = windows;
    Tensor::upload(x.runtime(), &shape, DType::F32, bytemuck::cast_slice(&counts))
}

/// Returns the indices of maxima in their planes from their places in windows along an axis of the image. For a window
/// of padding, that is an element at the edge.
fn indices_of_taps(taps: Tensor, x: &Tensor, window: &PoolWindow, axis: usize) -> Result<Tensor> {
    let [height, width] = [x.shape()[2], x.shape()[3]];
    let int = |value: usize| [ScalarValue::Int(value as i128)];
    // Numbers along an axis of the image.
    let numbers = |axis: usize, start: i64, step: usize, len: usize| {
        let mut shape = [1; 4];
        shape[axis + 2] = len;
        views::reshape(create::arange(x.runtime(), start, step, len, DType::I32)?, &shape)
    };
    let (stride, windows) = (window.stride[axis], taps.shape()[axis + 2]);
    let starts = numbers(axis, -(window.padding[axis] as i64), stride, windows)?;
    let distances = scalar(&table::int_mul_scalar, taps, &int(window.dilation[axis]))?;
    let positions = binary(&table::int_add, distances, starts)?;
    let positions = clamp(&table::int_clamp_min, positions, &int(0))?;
    let positions = clamp(&table::int_clamp_max, positions, &int(x.shape()[axis + 2] - 1))?;
    match axis {
        0 => {
            let rows = scalar(&table::int_mul_scalar, positions, &int(width))?;
            binary(&table::int_add, rows, numbers(1, 0, 1, width)?)
        }
        _ => binary(&table::int_add, positions, numbers(0, 0, width, height)?),
    }
}

/// Computes the result of pooling, and its indices if the mode has them.
fn forward(
    mode: PoolMode,
    x: Tensor,
    window: PoolWindow,
    output: [usize; 2],
) -> Result<(Tensor, Option<Tensor>)> {
    let x = views::packed(x)?;
    let [n, c, h, w] = [x.shape()[0], x.shape()[1], x.shape()[2], x.shape()[3]];
    let shape = [n, c, output[0], output[1]];
    views::check_addressable(&shape)?;
    let lines = n * c * output[0];
    let count = invocations(lines, output[1]);
    let size = match mode {
        PoolMode::AdaptiveAverage => {
            [0, 1].map(|axis| largest_adaptive([h, w][axis], output[axis]))
        }
        _ => window.taps_inside([h, w]),
    };
    if !x.is_empty() && count > 0 && is_divided(x.runtime(), size, count) {
        let is_kept = |axis: usize| size[axis] == 1 && output[axis] == [h, w][axis];
        return match [is_kept(0), is_kept(1)] {
            [true, _] => long_windows(mode, x, window, output, 1, size[1]),
            [_, true] => long_windows(mode, x, window, output, 0, size[0]),
            _ => separated(mode, x, window, output),
        };
    }
    let area = |[height, width]: [usize; 2]| height as u64 * width as u64;
    let taps = area(window.taps_inside([h, w]));
    let results = lines as u64 * output[1] as u64;
    let repeats = match mode {
        PoolMode::AdaptiveAverage => results.div_ceil(x.len().max(1) as u64),
        _ => taps.div_ceil(area(window.stride)),
    };
    let work = match mode {
        // The windows overlap by at most one element along each axis.
        PoolMode::AdaptiveAverage => x.len() as u64 + 4 * results,
        _ => results.saturating_mul(taps).max(x.len() as u64),
    };
    let prologues = prologues_of(&x, usize::try_from(repeats).unwrap_or(usize::MAX));
    let launch = Launch {
        kernel: &PoolKernel { mode, backward: false, quads: false, disjoint: false },
        inputs: &[&x],
        outputs: &[],
        params: &window.params(count, lines, [h, w], output),
        workgroups: workgroups_for(count),
        work,
        rounds: Some(rounds(size) as u64),
    };
    if mode != PoolMode::MaxWithIndices {
        let result = PendingResult::scalars(x.runtime(), &shape, DType::F32);
        return Ok((launch.defer(&PendingResult { prologues: &prologues, ..result })?, None));
    }
    let out = Tensor::empty(x.runtime(), &shape, DType::F32)?;
    let indices = Tensor::empty(x.runtime(), &shape, DType::I32)?;
    Launch { outputs: &[&out, &indices], ..launch }.run_with_prologues(&prologues)?;
    Ok((out, Some(indices)))
}

/// Computes the gradient with respect to the input, whose shape is `x`.
fn backward(
    mode: PoolMode,
    x: &[usize],
    grad: Tensor,
    indices: Option<Tensor>,
    window: PoolWindow,
) -> Result<Tensor> {
    let window_output = window.output(x)?;
    let output = match (mode, grad.shape()) {
        // Adaptive pooling has outputs of any size.
        (PoolMode::AdaptiveAverage, &[_, _, h, w]) => [h, w],
        _ => window_output,
    };
    let expected = [x[0], x[1], output[0], output[1]];
    let mismatch = std::iter::once(&grad).chain(&indices).find(|tensor| tensor.shape() != expected);
    if let Some(mismatch) = mismatch {
        let (lhs, rhs) = (mismatch.shape().to_vec(), expected.to_vec());
        return Err(Error::Shape {
            lhs,
            rhs,
            rule: "a gradient and the indices of maxima must have the shape of the output",
        });
    }
    let grad = views::packed(grad)?;
    let indices = indices.map(views::packed).transpose()?;
    let len: usize = x.iter().product();
    let lines = x[..3].iter().product();
    let [height, width] = window.taps_inside([x[2], x[3]]);
    let repeats = match mode {
        // A window has one maximum.
        PoolMode::Max | PoolMode::MaxWithIndices => 1,
        PoolMode::Average => height.saturating_mul(width),
        PoolMode::AdaptiveAverage => len.div_ceil(grad.len().max(1)),
    };
    let quads = policy::of(grad.runtime()).computes_neighbours() && len.is_multiple_of(4);
    let count = if quads { len / 4 } else { invocations(lines, x[3]) };
    // The windows that contain an element, along each axis.
    let covering = match mode {
        PoolMode::AdaptiveAverage => {
            // The windows of an element are as the elements of a window of the reverse.
            [0, 1].map(|axis| largest_adaptive(output[axis], x[axis + 2]))
        }
        _ => windows_of_element(&window, [height, width], output),
    };
    let disjoint = covering == [1, 1] && mode != PoolMode::AdaptiveAverage;
    let is_empty = grad.is_empty() || len == 0;
    let is_one_axis = covering.contains(&1) && indices.is_none();
    // The ends of adaptive windows of so many outputs are found by long division: four loops over 32 bits.
    let divides = mode == PoolMode::AdaptiveAverage && output.iter().any(|&size| size > 1 << 16);
    let rounds = if divides { rounds(covering).saturating_mul(140) } else { rounds(covering) };
    if !is_empty && !is_one_axis && rounds > policy::max_rounds(grad.runtime()) {
        return backward_of_many_windows(mode, x, grad, indices, window, output);
    }
    let mut inputs: SmallVec<[&Tensor; 2]> = SmallVec::from_slice(&[&grad]);
    inputs.extend(&indices);
    let windows: u64 = covering.iter().map(|&count| count as u64).product();
    Launch {
        kernel: &PoolKernel { mode, backward: true, quads, disjoint },
        inputs: &inputs,
        outputs: &[],
        params: &window.params(count, lines, [x[2], x[3]], output),
        workgroups: workgroups_for(count),
        work: ((grad.len() + len) as u64 * 4).saturating_mul(windows),
        rounds: Some(rounds as u64),
    }
    .defer(&PendingResult {
        vec4: quads,
        prologues: &prologues_of(&grad, repeats),
        ..PendingResult::scalars(grad.runtime(), x, DType::F32)
    })
}

/// Returns in how many windows an element is at most, along each axis.
fn windows_of_element(window: &PoolWindow, taps: [usize; 2], output: [usize; 2]) -> [usize; 2] {
    [0, 1].map(|axis| {
        let extent = (taps[axis] - 1) * window.dilation[axis] + 1;
        extent.div_ceil(window.stride[axis]).min(output[axis]).max(1)
    })
}

/// Returns the elements of a window of adaptive pooling along an axis, at most.
fn largest_adaptive(input: usize, output: usize) -> usize {
    match input.checked_rem(output) {
        Some(0) => input / output,
        Some(_) => input / output + 2,
        None => 0,
    }
}

/// Computes the gradient of pooling with elements in too many windows for a loop: that of maxima is scattered, that of
/// averages is computed along the height and then along the width.
fn backward_of_many_windows(
    mode: PoolMode,
    x: &[usize],
    grad: Tensor,
    indices: Option<Tensor>,
    window: PoolWindow,
    output: [usize; 2],
) -> Result<Tensor> {
    let [n, c, h, w] = [x[0], x[1], x[2], x[3]];
    let Some(indices) = indices else {
        let of_rows = backward(mode, &[n, c, h, output[1]], grad, None, window.along(0))?;
        return backward(mode, x, of_rows, None, window.along(1));
    };
    // A window without an element has the index 0, and no gradient.
    let has_element = |axis: usize, o: usize| {
        let start = o * window.stride[axis];
        let positions = (0..window.kernel[axis]).map(|tap| start + tap * window.dilation[axis]);
        let inside = window.padding[axis]..window.padding[axis] + [h, w][axis];
        positions.take_while(|position| *position < inside.end).any(|at| at >= inside.start)
    };
    let [rows, columns] = [0, 1].map(|axis| {
        let has_element = move |o: usize| f32::from(u8::from(has_element(axis, o)));
        (0..output[axis]).map(has_element).collect::<Vec<f32>>()
    });
    let upload = |shape: [usize; 4], mask: &[f32]| {
        Tensor::upload(grad.runtime(), &shape, DType::F32, bytemuck::cast_slice(mask))
    };
    let (rows, columns) =
        (upload([1, 1, output[0], 1], &rows)?, upload([1, 1, 1, output[1]], &columns)?);
    let zeros = create::full(grad.runtime(), &[n * c, h * w], ScalarValue::Float(0.0), DType::F32)?;
    let grad = binary(&table::float_mul, binary(&table::float_mul, grad, rows)?, columns)?;
    let per_plane = [n * c, output[0] * output[1]];
    let indices = views::reshape(indices, &per_plane)?;
    let grad = views::reshape(grad, &per_plane)?;
    views::reshape(scatter_add(1, zeros, indices, grad)?, x)
}

/// Computes the maximum of each window of `x` `[n, c, h, w]`.
///
/// # Errors
///
/// Returns an error if the window does not fit or the memory is not available; so do the functions
/// below.
pub fn max_pool2d(x: Tensor, window: PoolWindow) -> Result<Tensor> {
    let output = window.output(x.shape())?;
    Ok(forward(PoolMode::Max, x, window, output)?.0)
}

/// Computes [`max_pool2d`] and the position of each maximum in its plane: `row * width + column`.
pub fn max_pool2d_with_indices(x: Tensor, window: PoolWindow) -> Result<(Tensor, Tensor)> {
    let output = window.output(x.shape())?;
    let (out, indices) = forward(PoolMode::MaxWithIndices, x, window, output)?;
    let indices = indices.unwrap_or_else(|| out.clone().bitcast(DType::I32));
    Ok((out, indices))
}

/// Computes the gradient of [`max_pool2d`] with respect to its input, whose shape is `x`.
pub fn max_pool2d_backward(
    x: &[usize],
    grad: Tensor,
    indices: Tensor,
    window: PoolWindow,
) -> Result<Tensor> {
    backward(PoolMode::Max, x, grad, Some(cast::indices(indices)?), window)
}

/// Computes the average of each window of `x` `[n, c, h, w]`.
pub fn avg_pool2d(x: Tensor, window: PoolWindow) -> Result<Tensor> {
    let output = window.output(x.shape())?;
    Ok(forward(PoolMode::Average, x, window, output)?.0)
}

/// Computes the gradient of [`avg_pool2d`] with respect to its input, whose shape is `x`.
pub fn avg_pool2d_backward(x: &[usize], grad: Tensor, window: PoolWindow) -> Result<Tensor> {
    backward(PoolMode::Average, x, grad, None, window)
}

/// Computes the averages of `output` windows that cover `x` `[n, c, h, w]` evenly.
pub fn adaptive_avg_pool2d(x: Tensor, output: [usize; 2]) -> Result<Tensor> {
    adaptive_shape(x.shape(), output)?;
    Ok(forward(PoolMode::AdaptiveAverage, x, PoolWindow::adaptive(), output)?.0)
}

/// Returns the shape of the result of [`adaptive_avg_pool2d`].
///
/// # Errors
///
/// Returns an error if `x` has another rank, or is too large.
pub fn adaptive_shape(x: &[usize], output: [usize; 2]) -> Result<Shape> {
    PoolWindow::adaptive().output(x)?;
    views::check_countable(&[x[0], x[1], output[0], output[1]])
}

/// Computes the gradient of [`adaptive_avg_pool2d`] with respect to its input, whose shape is `x`.
pub fn adaptive_avg_pool2d_backward(x: &[usize], grad: Tensor) -> Result<Tensor> {
    backward(PoolMode::AdaptiveAverage, x, grad, None, PoolWindow::adaptive())
}

/// Returns every variant that the family can dispatch.
pub fn variants() -> Vec<Variant> {
    use PoolMode::{AdaptiveAverage, Average, Max, MaxWithIndices};
    let forward = [Max, MaxWithIndices, Average, AdaptiveAverage].map(|mode| PoolKernel {
        mode,
        backward: false,
        quads: false,
        disjoint: false,
    });
    let windows =
        [(Max, false), (Max, true), (Average, false), (Average, true), (AdaptiveAverage, false)];
    let backward = windows.map(|(mode, disjoint)| {
        [false, true].map(|quads| PoolKernel { mode, backward: true, quads, disjoint })
    });
    let kernels = [&forward[..], backward.as_flattened()].concat();
    let with_prologue = prologue::samples(kernels.iter().copied(), 0);
    let with_epilogue = epilogue::samples(backward.into_iter().flatten());
    [variants_of(kernels), with_prologue, with_epilogue].concat()
}

/// The cases that the family must pass. The arguments after the tensors are the kernel size, stride
/// and padding, then the dilation of a maximum or `count_include_pad` of an average, then
/// `ceil_mode`.
pub const CASES: &[Case] = {
    const TWO: Arg = Arg::Sizes(&[2, 2]);
    const ONE: Arg = Arg::Sizes(&[1, 1]);
    const ZERO: Arg = Arg::Sizes(&[0, 0]);
    const THREE_BY_TWO: Arg = Arg::Sizes(&[3, 2]);
    cases! {
        max_pool2d([2, 3, 8, 8], TWO, TWO, ZERO, ONE, false);
        max_pool2d([2, 3, 9, 7], THREE_BY_TWO, TWO, ONE, TWO, false);
        max_pool2d([2, 3, 9, 7], THREE_BY_TWO, TWO, ONE, ONE, true);
        max_pool2d_with_indices([2, 3, 9, 7], THREE_BY_TWO, ONE, ONE, ONE, false);
        // Four neighbours of the gradient are in two rows, or in two planes.
        max_pool2d_with_indices([4, 3, 9, 7], THREE_BY_TWO, ONE, ONE, ONE, false);
        max_pool1d([2, 3, 10], 4, 3, 1, 2, true);
        max_pool1d_with_indices([2, 3, 9], 3, 2, 1, 1, false);
        max_pool1d_with_indices(permuted(&[9, 3, 2], &[2, 1, 0]), 2, 1, 0, 2, true);
        // Windows larger than their input.
        max_pool2d_with_indices([2, 3, 2, 9], THREE_BY_TWO, TWO, ZERO, ONE, true);
        avg_pool2d([2, 3, 2, 9], THREE_BY_TWO, TWO, ZERO, false, true);
        max_pool1d([2, 3, 9], 3, 2, 1, 1, false);
        avg_pool2d([2, 3, 8, 8], TWO, TWO, ZERO, true, false);
        avg_pool2d([2, 3, 9, 7], THREE_BY_TWO, ONE, ONE, false, false);
        avg_pool2d([2, 3, 9, 7], THREE_BY_TWO, TWO, ONE, true, true);
        avg_pool2d_backward([2, 3, 8, 8], [2, 3, 4, 4], TWO, TWO, ZERO, true, false);
        avg_pool2d_backward([2, 3, 9, 7], [2, 3, 9, 8], THREE_BY_TWO, ONE, ONE, false, false);
        avg_pool2d_backward([4, 3, 9, 7], [4, 3, 9, 8], THREE_BY_TWO, ONE, ONE, false, false);
        avg_pool1d([2, 3, 9], 3, 2, 1, true, false);
        avg_pool1d(permuted(&[9, 3, 2], &[2, 1, 0]), 4, 3, 1, false, true);
        avg_pool1d_backward([2, 3, 9], [2, 3, 5], 3, 2, 1, true, false);
        avg_pool1d_backward([2, 3, 9], [2, 3, 9], 3, 1, 1, false, false);
        adaptive_avg_pool2d([2, 3, 9, 7], THREE_BY_TWO);
        adaptive_avg_pool2d([2, 3, 4, 5], Arg::Sizes(&[7, 5]));
        adaptive_avg_pool2d_backward([2, 3, 9, 7], [2, 3, 3, 2]);
        adaptive_avg_pool2d_backward([4, 3, 9, 7], [4, 3, 3, 2]);
        adaptive_avg_pool2d_backward([2, 3, 4, 5], [2, 3, 7, 5]);
        adaptive_avg_pool1d([2, 3, 9], 4);
        adaptive_avg_pool1d(permuted(&[5, 3, 2], &[2, 1, 0]), 7);
        adaptive_avg_pool1d_backward([2, 3, 9], [2, 3, 4]);
        adaptive_avg_pool1d_backward([2, 3, 5], permuted(&[7, 3, 2], &[2, 1, 0]));
    }
};
