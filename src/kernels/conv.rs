//! Convolution in two dimensions and its gradients, as matrix products whose operands are gathered on
//! the way in. Groups are the product's batch. The transposed convolution is the input's gradient.

use smallvec::SmallVec;

use super::cases::{Arg, Case, case, normal, permuted};
use super::matmul::{Gemm, Quads, Tiling};
use super::reduce::{self, Reduction};
use super::{Launch, Params, copy};
use crate::runtime::{Source, Variant};
use crate::tensor::{DType, Error, Layout, Result, Tensor};

static CONV2D: Source = Source {
    name: "conv2d",
    text: include_str!("../../shaders/conv/conv2d.wgsl"),
};
static CONV2D_X_BACKWARD: Source = Source {
    name: "conv2d_x_backward",
    text: include_str!("../../shaders/conv/conv2d_x_backward.wgsl"),
};
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
    input: [usize; 2],
    out_c: usize,
    output: [usize; 2],
    kernel: [usize; 2],
    options: ConvOptions,
}

impl Geometry {
    /// From an input `[n, c, h, w]`, a weight `[o, c / groups, i, j]` and the output's area.
    fn new(
        x: &[usize],
        weight: &[usize],
        output: Option<[usize; 2]>,
        options: ConvOptions,
    ) -> Result<Self> {
        let error = |rule| Error::Shape {
            lhs: x.to_vec(),
            rhs: weight.to_vec(),
            rule,
        };
        let ConvOptions {
            stride,
            padding,
            dilation,
            groups,
        } = options;
        if x.len() != 4 || weight.len() != 4 {
            return Err(error(
                "a convolution needs x [n, c, h, w] and a weight [o, c / groups, i, j]",
            ));
        }
        if x[1] != weight[1] * groups || !weight[0].is_multiple_of(groups) {
            return Err(error(
                "channels must be the weight's times the groups, which divide the outputs",
            ));
        }
        let (input, kernel) = ([x[2], x[3]], [weight[2], weight[3]]);
        let reach = |axis: usize| dilation[axis] * (kernel[axis].max(1) - 1) + 1;
        if (0..2).any(|axis| kernel[axis] == 0 || input[axis] + 2 * padding[axis] < reach(axis)) {
            return Err(error("the kernel must not be larger than the padded input"));
        }
        let area = |axis: usize| (input[axis] + 2 * padding[axis] - reach(axis)) / stride[axis] + 1;
        let output = output.unwrap_or([area(0), area(1)]);
        Ok(Self {
            images: x[0],
            in_c: weight[1],
            input,
            out_c: weight[0] / groups,
            output,
            kernel,
            options,
        })
    }

    fn taps(&self) -> usize {
        self.kernel[0] * self.kernel[1]
    }

    fn out_pixels(&self) -> usize {
        self.images * self.output[0] * self.output[1]
    }

    fn in_pixels(&self) -> usize {
        self.images * self.input[0] * self.input[1]
    }

    /// Runs one of the three products, and joins its parts to a tensor of `shape`.
    fn run(
        &self,
        source: &'static Source,
        mut gemm: Gemm,
        inputs: &[&Tensor],
        bias: bool,
        shape: &[usize],
    ) -> Result<Tensor> {
        if bias {
            gemm.splits = 1;
        }
        // A gradient's rows are images, which must not end within four steps of k; so with the result's columns.
        let area = |side: [usize; 2]| side[0] * side[1];
        let (row, col) = match source.name {
            name if name == CONV2D.name => (gemm.k, area(self.output)),
            name if name == CONV2D_X_BACKWARD.name => (gemm.k, area(self.input)),
            _ => (area(self.output), gemm.n),
        };
        let quads = Quads {
            a: row.is_multiple_of(4),
            out: col.is_multiple_of(4),
            ..Quads::default()
        };
        let len: usize = shape.iter().product();
        let out = Tensor::empty(inputs[0].runtime(), &[gemm.splits, len], DType::F32, inputs)?;
        if len > 0 {
            let words = |values: &[usize]| values.iter().map(|&v| v as u32).collect::<Params>();
            let mut params: Params = SmallVec::new();
            params.extend_from_slice(&gemm.words());
            params.extend(words(&[self.images, self.options.groups, self.in_c]));
            params.extend(words(&self.input));
            params.extend(words(&[self.out_c]));
            params.extend(words(&self.output));
            params.extend(words(&self.kernel));
            params.extend(words(&self.options.stride));
            params.extend(words(&self.options.padding));
            params.extend(words(&self.options.dilation));
            Launch {
                variant: &variant(
                    source,
                    gemm.tiling,
                    quads,
                    bias,
                    self.options.stride != [1, 1],
                ),
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

fn variant(
    source: &'static Source,
    tiling: Tiling,
    quads: Quads,
    bias: bool,
    strided: bool,
) -> Variant {
    tiling
        .define(Variant::new(source), quads)
        .flag("BIAS", bias)
        .flag("STRIDED", strided && source.name == CONV2D_X_BACKWARD.name)
}

/// The convolution of `x` `[n, c, h, w]` with `weight` `[o, c / groups, i, j]`.
///
/// # Errors
///
/// When the shapes do not fit or the memory is not there; so too for the functions below.
pub fn conv2d(
    x: Tensor,
    weight: Tensor,
    bias: Option<Tensor>,
    options: ConvOptions,
) -> Result<Tensor> {
    x.same_device(&weight)?;
    let g = Geometry::new(x.shape(), weight.shape(), None, options)?;
    let (x, weight, bias) = (
        copy::packed(x)?,
        copy::packed(weight)?,
        bias.map(copy::packed).transpose()?,
    );
    let gemm = Gemm::new(
        x.runtime(),
        options.groups,
        g.out_c,
        g.out_pixels(),
        g.in_c * g.taps(),
    );
    let mut inputs: SmallVec<[&Tensor; 3]> = SmallVec::from_slice(&[&weight, &x]);
    inputs.extend(&bias);
    let shape = [g.images, options.groups * g.out_c, g.output[0], g.output[1]];
    g.run(&CONV2D, gemm, &inputs, bias.is_some(), &shape)
}

/// The gradient of [`conv2d`] with respect to `x`, whose shape is given.
pub fn conv2d_x_backward(
    x: &[usize],
    weight: Tensor,
    grad: Tensor,
    options: ConvOptions,
) -> Result<Tensor> {
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
    let error = |rule| Error::Shape {
        lhs: s.to_vec(),
        rhs: w.to_vec(),
        rule,
    };
    if s.len() != 4 || w.len() != 4 || s[1] != w[0] {
        return Err(error(
            "a transposed convolution needs x [n, c, h, w] and a weight [c, o / groups, i, j]",
        ));
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

fn transposed(
    x: &[usize],
    weight: Tensor,
    grad: Tensor,
    bias: Option<Tensor>,
    options: ConvOptions,
) -> Result<Tensor> {
    weight.same_device(&grad)?;
    let output = [grad.shape()[2], grad.shape()[3]];
    let g = Geometry::new(x, weight.shape(), Some(output), options)?;
    // The product walks all of a channel's outputs: [group, o, c, i, j] is copied to [group, c, o, i, j].
    let [i, j] = g.kernel;
    let weight = copy::reshape(weight, &[options.groups, g.out_c, g.in_c, i, j])?;
    let weight = copy::packed(copy::swap_dims(weight, 1, 2)?)?;
    let (grad, bias) = (copy::packed(grad)?, bias.map(copy::packed).transpose()?);
    let gemm = Gemm::new(
        grad.runtime(),
        options.groups,
        g.in_c,
        g.in_pixels(),
        g.out_c * g.taps(),
    );
    let mut inputs: SmallVec<[&Tensor; 3]> = SmallVec::from_slice(&[&weight, &grad]);
    inputs.extend(&bias);
    g.run(&CONV2D_X_BACKWARD, gemm, &inputs, bias.is_some(), x)
}

/// The gradient of [`conv2d`] with respect to its weight, whose shape is given.
pub fn conv2d_weight_backward(
    x: Tensor,
    weight: &[usize],
    grad: Tensor,
    options: ConvOptions,
) -> Result<Tensor> {
    x.same_device(&grad)?;
    let output = [grad.shape()[2], grad.shape()[3]];
    let g = Geometry::new(x.shape(), weight, Some(output), options)?;
    let (x, grad) = (copy::packed(x)?, copy::packed(grad)?);
    let gemm = Gemm::new(
        x.runtime(),
        options.groups,
        g.out_c,
        g.in_c * g.taps(),
        g.out_pixels(),
    );
    g.run(&CONV2D_WEIGHT_BACKWARD, gemm, &[&grad, &x], false, weight)
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
        for bits in 0..32 {
            let quads = Quads {
                b: false,
                a_across: false,
                ..Quads::of_bits(bits)
            };
            let (bias, strided) = (bits & 8 != 0, bits >= 16);
            for source in [&CONV2D, &CONV2D_X_BACKWARD, &CONV2D_WEIGHT_BACKWARD] {
                let bias = bias && source.name != CONV2D_WEIGHT_BACKWARD.name;
                let variant = variant(source, tiling, quads, bias, strided);
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
