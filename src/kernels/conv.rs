//! Convolution in two dimensions and its gradients, as matrix products whose operands are gathered on
//! the way in. Groups are the product's batch.
//!
//! Inputs are padded first, so that a tap's address is the sum of two numbers and needs no check. The
//! input's gradient, which is also the transposed convolution, is a convolution too: of the gradient spread
//! by the stride, with the kernel turned round.

use smallvec::SmallVec;

use super::cases::{Arg, Case, case, normal, permuted};
use super::elementwise::Number;
use super::matmul::{Gemm, Quads, Tiling};
use super::reduce::{self, Reduction};
use super::{Launch, Params, copy, create};
use crate::runtime::{Source, Variant};
use crate::tensor::{DType, Error, Layout, Result, SliceAxis, Tensor};

static CONV2D: Source = Source { name: "conv2d", text: include_str!("../../shaders/conv/conv2d.wgsl") };
static CONV2D_WEIGHT_BACKWARD: Source = Source {
    name: "conv2d_weight_backward",
    text: include_str!("../../shaders/conv/conv2d_weight_backward.wgsl"),
};

/// How a kernel moves over its input: height, then width.
#[derive(Debug, Clone, Copy)]
pub struct ConvOptions {
    /// Distance between neighbouring outputs.
    pub stride: [usize; 2],
    /// Zeros around the input.
    pub padding: [usize; 2],
    /// Distance between neighbouring taps.
    pub dilation: [usize; 2],
    /// Groups of channels that are convolved apart.
    pub groups: usize,
}

/// Every size of a convolution. Channels are per group.
struct Geometry {
    images: usize,
    in_c: usize,
    /// The padded input's.
    input: [usize; 2],
    out_c: usize,
    output: [usize; 2],
    kernel: [usize; 2],
    options: ConvOptions,
}

impl Geometry {
    /// From an input `[n, c, h, w]` and a weight `[o, c / groups, i, j]`.
    fn new(x: &[usize], weight: &[usize], options: ConvOptions) -> Result<Self> {
        let error = |rule| Error::Shape { lhs: x.to_vec(), rhs: weight.to_vec(), rule };
        let ConvOptions { stride, padding, dilation, groups } = options;
        if x.len() != 4 || weight.len() != 4 {
            return Err(error("a convolution needs x [n, c, h, w] and a weight [o, c / groups, i, j]"));
        }
        if x[1] != weight[1] * groups || !weight[0].is_multiple_of(groups) {
            return Err(error("channels must be the weight's times the groups, which divide the outputs"));
        }
        let kernel = [weight[2], weight[3]];
        let input = [x[2] + 2 * padding[0], x[3] + 2 * padding[1]];
        let reach = |axis: usize| dilation[axis] * (kernel[axis].max(1) - 1) + 1;
        if (0..2).any(|axis| kernel[axis] == 0 || input[axis] < reach(axis)) {
            return Err(error("the kernel must not be larger than the padded input"));
        }
        let output = [0, 1].map(|axis| (input[axis] - reach(axis)) / stride[axis] + 1);
        Ok(Self { images: x[0], in_c: weight[1], input, out_c: weight[0] / groups, output, kernel, options })
    }

    fn taps(&self) -> usize {
        self.kernel[0] * self.kernel[1]
    }

    fn out_pixels(&self) -> usize {
        self.images * self.output[0] * self.output[1]
    }

    /// Runs one of the products, and joins its parts to a tensor of `shape`.
    fn run(
        &self,
        source: &'static Source,
        gemm: &Gemm,
        inputs: &[&Tensor],
        has_bias: bool,
        shape: &[usize],
    ) -> Result<Tensor> {
        let len: usize = shape.iter().product();
        let out = Tensor::empty(inputs[0].runtime(), &[gemm.splits, len], DType::F32, inputs)?;
        if len > 0 {
            // Neighbours along a row of the gradient, or a column of the result, may be in two images.
            let area = self.output[0] * self.output[1];
            let (row, col) = if source.name == CONV2D.name { (gemm.k, area) } else { (area, gemm.n) };
            let quads = Quads {
                a: row.is_multiple_of(4),
                out: col.is_multiple_of(4),
                ..Quads::default()
            };
            let ConvOptions { stride, dilation, groups, .. } = self.options;
            let mut params: Params = SmallVec::new();
            params.extend_from_slice(&gemm.words());
            params.extend([self.images, groups, self.in_c].map(|v| v as u32));
            for pair in [self.input, self.output, self.kernel, stride, dilation] {
                params.extend(pair.map(|v| v as u32));
            }
            params.extend([u32::from(has_bias), 0, 0]);
            Launch {
                variant: &variant(source, gemm.tiling, quads),
                inputs,
                outputs: &[&out],
                params: &params,
                groups: gemm.groups(),
                work: gemm.work(),
            }
            .run()?;
        }
        gemm.join(out, shape)
    }
}

fn variant(source: &'static Source, tiling: Tiling, quads: Quads) -> Variant {
    tiling.define(Variant::new(source), quads)
}

/// `x` `[n, c, h, w]` on a ground of zeros of `size`: its pixel `[i, j]` lands on `[i * step + start, ..]`, or
/// outside, where it is lost.
fn on_zeros(x: Tensor, start: [isize; 2], step: [usize; 2], size: [usize; 2]) -> Result<Tensor> {
    let shape = [x.shape()[0], x.shape()[1], size[0], size[1]];
    if start == [0, 0] && step == [1, 1] && x.shape() == shape {
        return copy::packed(x);
    }
    let whole = |len| SliceAxis { start: 0, step: 1, len };
    let (mut from, mut to) = (vec![whole(shape[0]), whole(shape[1])], vec![whole(shape[0]), whole(shape[1])]);
    for axis in 0..2 {
        let (step, size) = (step[axis] as isize, size[axis] as isize);
        let first = (-start[axis]).max(0).cast_unsigned().div_ceil(step.cast_unsigned());
        let lands = first.cast_signed() * step + start[axis];
        let fit = (size - lands).max(0).cast_unsigned().div_ceil(step.cast_unsigned());
        let len = x.shape()[axis + 2].saturating_sub(first).min(fit);
        from.push(SliceAxis { start: first, step: 1, len });
        to.push(SliceAxis { start: lands.cast_unsigned(), step, len });
    }
    let zeros = create::full(x.runtime(), &shape, Number::Float(0.0), DType::F32)?;
    copy::slice_assign(zeros, &to, copy::slice(x, &from)?)
}

fn padded(x: Tensor, g: &Geometry) -> Result<Tensor> {
    on_zeros(x, g.options.padding.map(usize::cast_signed), [1, 1], g.input)
}

/// The convolution of `x` `[n, c, h, w]` with `weight` `[o, c / groups, i, j]`.
///
/// # Errors
///
/// When the shapes do not fit or the memory is not there; so too for the functions below.
pub fn conv2d(x: Tensor, weight: Tensor, bias: Option<Tensor>, options: ConvOptions) -> Result<Tensor> {
    x.same_device(&weight)?;
    let g = Geometry::new(x.shape(), weight.shape(), options)?;
    convolve(&g, padded(x, &g)?, copy::packed(weight)?, bias)
}

/// The convolution of a padded input with packed weights.
fn convolve(g: &Geometry, x: Tensor, weight: Tensor, bias: Option<Tensor>) -> Result<Tensor> {
    let bias = bias.map(copy::packed).transpose()?;
    let groups = g.options.groups;
    let mut gemm = Gemm::new(x.runtime(), groups, g.out_c, g.out_pixels(), g.in_c * g.taps());
    if bias.is_some() {
        gemm.splits = 1;
    }
    let shape = [g.images, groups * g.out_c, g.output[0], g.output[1]];
    // Without a bias something must still be bound in its place.
    let inputs = [&weight, &x, bias.as_ref().unwrap_or(&weight)];
    g.run(&CONV2D, &gemm, &inputs, bias.is_some(), &shape)
}

/// The gradient of [`conv2d`] with respect to `x`, whose shape is given.
pub fn conv2d_x_backward(x: &[usize], weight: Tensor, grad: Tensor, options: ConvOptions) -> Result<Tensor> {
    transposed(x, weight, grad, None, options)
}

/// The transposed convolution of `x` `[n, c, h, w]` with `weight` `[c, o / groups, i, j]`:
/// `extra` rows and columns are added at the far ends of the output.
pub fn conv_transpose2d(
    x: Tensor,
    weight: Tensor,
    bias: Option<Tensor>,
    options: ConvOptions,
    extra: [usize; 2],
) -> Result<Tensor> {
    let (s, w) = (x.shape(), weight.shape());
    let error = |rule| Error::Shape { lhs: s.to_vec(), rhs: w.to_vec(), rule };
    if s.len() != 4 || w.len() != 4 || s[1] != w[0] {
        return Err(error("a transposed convolution needs x [n, c, h, w] and a weight [c, o / groups, i, j]"));
    }
    let area = |axis: usize| {
        let full = (s[axis + 2].max(1) - 1) * options.stride[axis]
            + options.dilation[axis] * (w[axis + 2].max(1) - 1)
            + extra[axis]
            + 1;
        full.checked_sub(2 * options.padding[axis])
    };
    let (Some(h), Some(width)) = (area(0), area(1)) else {
        return Err(error("the padding must leave something of the output"));
    };
    let shape = [s[0], w[1] * options.groups, h, width];
    transposed(&shape, weight, x, bias, options)
}

/// What the convolution of an `x` of this shape, turned round, makes of `grad`.
fn transposed(
    x: &[usize],
    weight: Tensor,
    grad: Tensor,
    bias: Option<Tensor>,
    options: ConvOptions,
) -> Result<Tensor> {
    weight.same_device(&grad)?;
    let forward = Geometry::new(x, weight.shape(), options)?;
    let ConvOptions { stride, padding, dilation, groups } = options;
    let [i, j] = forward.kernel;
    let reach = [0, 1].map(|axis| dilation[axis] * (forward.kernel[axis] - 1));
    let start = [0, 1].map(|axis| reach[axis].cast_signed() - padding[axis].cast_signed());
    let back = Geometry {
        images: x[0],
        in_c: forward.out_c,
        input: [x[2] + reach[0], x[3] + reach[1]],
        out_c: forward.in_c,
        output: [x[2], x[3]],
        kernel: forward.kernel,
        options: ConvOptions { stride: [1, 1], padding: [0, 0], dilation, groups },
    };
    // [group, o, c, i, j] to [group, c, o, i, j], rows and columns from their ends.
    let weight = copy::reshape(weight, &[groups, back.in_c, back.out_c, i, j])?;
    let weight = copy::packed(copy::flip(copy::swap_dims(weight, 1, 2)?, &[3, 4])?)?;
    convolve(&back, on_zeros(grad, start, stride, back.input)?, weight, bias)
}

/// The gradient of [`conv2d`] with respect to its weight, whose shape is given.
pub fn conv2d_weight_backward(
    x: Tensor,
    weight: &[usize],
    grad: Tensor,
    options: ConvOptions,
) -> Result<Tensor> {
    x.same_device(&grad)?;
    let g = Geometry::new(x.shape(), weight, options)?;
    let (x, grad) = (padded(x, &g)?, copy::packed(grad)?);
    let gemm = Gemm::new(x.runtime(), options.groups, g.out_c, g.in_c * g.taps(), g.out_pixels());
    g.run(&CONV2D_WEIGHT_BACKWARD, &gemm, &[&grad, &x], false, weight)
}

/// The gradient of [`conv2d`] with respect to its bias: the sum over everything but the channels.
pub fn conv2d_bias_backward(grad: Tensor) -> Result<Tensor> {
    let channels = grad.shape()[1];
    let out = reduce::axes(Reduction::Sum, grad, &[0, 2, 3])?;
    Ok(out.view(Layout::contiguous(&[channels])))
}

/// Every variant that can be asked for.
pub fn variants() -> Vec<Variant> {
    let mut out = Vec::new();
    for tiling in Tiling::EVERY {
        for bits in 0..8 {
            let quads = Quads { b: false, ..Quads::of_bits(bits) };
            for source in [&CONV2D, &CONV2D_WEIGHT_BACKWARD] {
                let variant = variant(source, tiling, quads);
                if !out.contains(&variant) {
                    out.push(variant);
                }
            }
        }
    }
    out
}

/// What the family must pass.
pub const CASES: &[Case] = {
    const SAME: Arg = Arg::Conv([1, 1], [1, 1], [1, 1], 1);
    const WIDE: Arg = Arg::Conv([2, 1], [0, 2], [1, 2], 1);
    const GROUPED: Arg = Arg::Conv([1, 1], [1, 1], [1, 1], 2);
    const DEPTHWISE: Arg = Arg::Conv([2, 2], [1, 0], [2, 1], 4);
    &[
        case(
            "conv2d",
            &[
                normal(&[2, 3, 8, 8]),
                normal(&[5, 3, 3, 3]),
                normal(&[5]),
                SAME,
            ],
        ),
        case(
            "conv2d",
            &[
                normal(&[2, 3, 9, 8]),
                normal(&[5, 3, 3, 2]),
                Arg::Without,
                WIDE,
            ],
        ),
        case(
            "conv2d",
            &[
                normal(&[2, 4, 7, 7]),
                normal(&[6, 2, 3, 3]),
                normal(&[6]),
                GROUPED,
            ],
        ),
        case(
            "conv2d",
            &[
                normal(&[1, 4, 9, 7]),
                normal(&[8, 1, 3, 3]),
                Arg::Without,
                DEPTHWISE,
            ],
        ),
        case(
            "conv2d",
            &[
                permuted(&[2, 8, 8, 3], &[0, 3, 1, 2]),
                normal(&[4, 3, 1, 1]),
                Arg::Without,
                SAME,
            ],
        ),
        case(
            "conv2d",
            &[
                normal(&[3, 40, 6, 6]),
                normal(&[70, 40, 3, 3]),
                normal(&[70]),
                SAME,
            ],
        ),
        case(
            "conv2d_x_backward",
            &[
                normal(&[2, 3, 8, 8]),
                normal(&[5, 3, 3, 3]),
                normal(&[2, 5, 8, 8]),
                SAME,
            ],
        ),
        case(
            "conv2d_x_backward",
            &[
                normal(&[2, 3, 9, 8]),
                normal(&[5, 3, 3, 2]),
                normal(&[2, 5, 4, 10]),
                WIDE,
            ],
        ),
        case(
            "conv2d_x_backward",
            &[
                normal(&[2, 4, 7, 7]),
                normal(&[6, 2, 3, 3]),
                normal(&[2, 6, 7, 7]),
                GROUPED,
            ],
        ),
        case(
            "conv2d_x_backward",
            &[
                normal(&[1, 2, 5, 5]),
                normal(&[3, 2, 1, 1]),
                normal(&[1, 3, 7, 7]),
                SAME,
            ],
        ),
        case(
            "conv2d_x_backward",
            &[
                normal(&[1, 2, 6, 7]),
                normal(&[3, 2, 2, 1]),
                normal(&[1, 3, 4, 6]),
                Arg::Conv([2, 2], [1, 2], [1, 1], 1),
            ],
        ),
        case(
            "conv2d_weight_backward",
            &[
                normal(&[2, 3, 8, 8]),
                normal(&[5, 3, 3, 3]),
                normal(&[2, 5, 8, 8]),
                SAME,
            ],
        ),
        case(
            "conv2d_weight_backward",
            &[
                normal(&[2, 3, 9, 8]),
                normal(&[5, 3, 3, 2]),
                normal(&[2, 5, 4, 10]),
                WIDE,
            ],
        ),
        case(
            "conv2d_weight_backward",
            &[
                normal(&[64, 4, 8, 8]),
                normal(&[6, 2, 3, 3]),
                normal(&[64, 6, 8, 8]),
                GROUPED,
            ],
        ),
        case(
            "conv2d_bias_backward",
            &[normal(&[2, 3, 8, 8]), normal(&[5]), normal(&[2, 5, 8, 8])],
        ),
        case(
            "conv1d",
            &[
                normal(&[2, 3, 20]),
                normal(&[5, 3, 4]),
                normal(&[5]),
                Arg::Conv1([2], [1], [1], 1),
            ],
        ),
        case(
            "conv_transpose2d",
            &[
                normal(&[2, 4, 5, 6]),
                normal(&[4, 3, 3, 3]),
                normal(&[3]),
                Arg::ConvTranspose([2, 2], [1, 1], [1, 0], [1, 1], 1),
            ],
        ),
        case(
            "conv_transpose2d",
            &[
                normal(&[2, 4, 5, 6]),
                normal(&[4, 3, 2, 3]),
                Arg::Without,
                Arg::ConvTranspose([1, 2], [0, 1], [0, 0], [2, 1], 2),
            ],
        ),
    ]
};
