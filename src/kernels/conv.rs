//! Convolution in one, two and three dimensions and its gradients, as matrix products whose operands are gathered
//! on the way in. Groups are the product's batch.
//!
//! There is one mechanism, for depth, height and width: an axis that the tensors lack has size one. Inputs are
//! padded first, so that a tap's address is the sum of two numbers and needs no check. The input's gradient, which
//! is also the transposed convolution, is a convolution too: of the gradient spread by the stride, with the kernel
//! turned round. The gradients of the transposed convolution are the convolution and its weight's gradient.
//! Kernels of one element over bare pixels, without groups or a bias, are plain matrix products; groups of one channel are in `depthwise`.

use smallvec::SmallVec;

use super::cases::{Arg, Case, case, normal, permuted};
use super::gemm::{self, Gemm, Operands, Tiling};
pub use super::geometry::{ConvOptions, TransposedOptions};
use super::geometry::{Geometry, Ground, padding, reach, spatial, volumes};
use super::reduce::{self, Reduction};
use super::{Launch, Params, copy, depthwise, matmul};
use crate::runtime::{Source, Variant};
use crate::tensor::{DType, Error, Layout, Result, Shape, Tensor};

static CONV: Source = Source { name: "conv", text: include_str!("../../shaders/conv/conv.wgsl") };
static CONV_WEIGHT_BACKWARD: Source = Source {
    name: "conv_weight_backward",
    text: include_str!("../../shaders/conv/conv_weight_backward.wgsl"),
};

/// Runs one of the products over images whose pixels have so many channels to a group, and joins its parts.
fn run(
    g: &Geometry,
    source: &'static Source,
    gemm: &Gemm,
    channels: usize,
    inputs: &[&Tensor],
    has_bias: bool,
) -> Result<Tensor> {
    let runtime = inputs[0].runtime();
    let quads = gemm.wants_quads();
    let shape = [g.options.groups, gemm.m, gemm.n];
    let out = Tensor::empty(runtime, &[gemm.splits, shape.iter().product()], DType::F32, inputs)?;
    if !out.is_empty() {
        let pixels = |size: [usize; 3]| size.iter().product::<usize>();
        let groups = g.options.groups;
        let tiling = gemm.tiling(runtime, quads);
        let (workgroups, sizes) = gemm.words(tiling);
        let mut params: Params = SmallVec::new();
        params.extend_from_slice(&sizes);
        params.extend([g.images, groups, channels, groups * channels].map(|v| v as u32));
        params.extend([pixels(g.input) as u32, pixels(g.output) as u32, u32::from(has_bias), 0]);
        params.extend(g.words(g.input));
        let operands = Operands { quads, ..Operands::default() };
        Launch {
            variant: &variant(source, g.input[0] > 1, tiling, operands),
            inputs,
            outputs: &[&out],
            params: &params,
            groups: workgroups,
            work: gemm.work(),
        }
        .run()?;
    }
    gemm.join(out, &shape)
}

fn variant(source: &'static Source, volume: bool, tiling: Tiling, operands: Operands) -> Variant {
    let forward = std::ptr::eq(source, &CONV);
    let tiled = matches!(tiling, Tiling::Tiled { .. });
    // The results of a convolution have their pixels last: rows are neighbours in memory, columns are not.
    gemm::define(Variant::new(source).flag("VOLUME", volume), tiling, operands)
        .flag("OUT_QUAD", operands.quads && !forward)
        .flag("ROWS_FAST", forward && tiled)
}

/// Whether [`conv`] takes an input and a weight of these shapes.
///
/// # Errors
///
/// When they do not fit.
pub fn check(x: &[usize], weight: &[usize], options: ConvOptions) -> Result<()> {
    Geometry::new(x, weight, options).map(|_| ())
}

/// The convolution of `x` `[n, c, ..]` with `weight` `[o, c / groups, ..]`, of one to three further axes.
///
/// # Errors
///
/// When the shapes do not fit or the memory is not there; so too for the functions below.
pub fn conv(
    x: Tensor,
    weight: Tensor,
    bias: Option<Tensor>,
    options: ConvOptions,
) -> Result<Tensor> {
    x.same_device(&weight)?;
    let g = Geometry::new(x.shape(), weight.shape(), options)?;
    let weight = by_groups(weight, &g)?;
    convolve(&g, x, &padding(&g), weight, bias)
}

/// A weight `[o, c, ..]` as `[group, o, c, d, h, w]`.
fn by_groups(weight: Tensor, g: &Geometry) -> Result<Tensor> {
    let [d, h, w] = g.kernel;
    copy::reshape(weight, &[g.options.groups, g.out_c, g.in_c, d, h, w])
}

/// The windows of `x` `[n, c, h, w]` that a convolution of one such kernel would see: `[n, c * kernel, windows]`.
pub fn windows(x: Tensor, kernel: [usize; 2], options: ConvOptions) -> Result<Tensor> {
    let channels = x.shape().get(1).copied().unwrap_or(0);
    let g = Geometry::new(x.shape(), &[1, channels, kernel[0], kernel[1]], options)?;
    let x = padding(&g).place(x, 1, channels)?;
    let [n, _, h, w, c] = [0, 1, 2, 3, 4].map(|axis| x.layout().strides[axis]);
    let [_, stride_h, stride_w] = options.stride.map(usize::cast_signed);
    let [_, tap_h, tap_w] = options.dilation.map(usize::cast_signed);
    let windows = Layout {
        shape: [g.images, channels, kernel[0], kernel[1], g.output[1], g.output[2]]
            .as_slice()
            .into(),
        strides: [n, c, tap_h * h, tap_w * w, stride_h * h, stride_w * w].as_slice().into(),
        offset: x.layout().offset,
    };
    copy::reshape(x.view(windows), &[g.images, channels * g.taps(), g.output[1] * g.output[2]])
}

/// The convolution of `x` on its ground with a weight `[group, o, c, d, h, w]`.
fn convolve(
    g: &Geometry,
    x: Tensor,
    ground: &Ground,
    weight: Tensor,
    bias: Option<Tensor>,
) -> Result<Tensor> {
    let outs = g.options.groups * g.out_c;
    if let Some(bias) = bias.as_ref().filter(|bias| bias.shape() != [outs]) {
        let (lhs, rhs) = (bias.shape().to_vec(), weight.shape().to_vec());
        return Err(Error::Shape {
            lhs,
            rhs,
            rule: "a bias has one element for each channel of the output",
        });
    }
    if depthwise::takes(g) {
        let out = depthwise::convolve(g, volumes(x)?, ground, weight, bias)?;
        return copy::reshape(out, &g.shape([g.images, g.options.groups * g.out_c], g.output));
    }
    // A bias would cost a pass over the result there.
    let one_tap = g.taps() == 1 && g.options.groups == 1 && g.options.stride == [1; 3];
    if one_tap && bias.is_none() && ground.is_bare(&volumes(x.clone())?) {
        return pointwise(g, x, weight);
    }
    let (groups, taps, pixels) = (g.options.groups, g.taps(), g.out_pixels());
    let mut gemm = Gemm::new(x.runtime(), groups, pixels, g.out_c, g.in_c * taps);
    // [group, tap, c, o]: both operands have k's innermost run next to each other, or columns.
    let weight = copy::permute(weight, &[0, 3, 4, 5, 2, 1])?;
    let mut weight = copy::reshape(weight, &[groups, taps, g.in_c, g.out_c])?;
    let mut bias = bias.map(|bias| copy::reshape(bias, &[groups, g.out_c])).transpose()?;
    if gemm.wants_quads() {
        weight = gemm::filled_up(weight, &[2, 3])?;
        bias = bias.map(|bias| gemm::filled_up(bias, &[1])).transpose()?;
    }
    let (weight, bias) = (copy::packed(weight)?, bias.map(copy::packed).transpose()?);
    let [channels, outs] = [weight.shape()[2], weight.shape()[3]];
    let x = ground.place(x, groups, channels)?;
    (gemm.n, gemm.k, gemm.inner, gemm.outer, gemm.b_step) =
        (outs, taps * channels, channels, taps, outs.cast_signed());
    if bias.is_none() {
        gemm.split_runs(x.runtime());
    }
    // Without a bias something must still be bound in its place.
    let inputs = [&x, &weight, bias.as_ref().unwrap_or(&weight)];
    let out = run(g, &CONV, &gemm, channels, &inputs, bias.is_some())?;
    let [d, h, w] = g.output;
    let out = out.view(Layout::contiguous(&[g.images, groups, outs, d * h * w]));
    let out = copy::narrow(out, 2, 0, g.out_c)?;
    copy::reshape(out, &g.shape([g.images, groups * g.out_c], [d, h, w]))
}

/// The convolution with a kernel of one element: for each image the product of `[o, c]` and `[c, pixels]`, read as they are.
fn pointwise(g: &Geometry, x: Tensor, weight: Tensor) -> Result<Tensor> {
    let x = copy::reshape(x, &[g.images, g.in_c, g.output.iter().product()])?;
    let out = matmul::matmul(copy::reshape(weight, &[1, g.out_c, g.in_c])?, x)?;
    copy::reshape(out, &g.shape([g.images, g.out_c], g.output))
}

/// The gradient of [`conv`] with respect to `x`, whose shape is given.
pub fn x_backward(
    x: &[usize],
    weight: Tensor,
    grad: Tensor,
    options: ConvOptions,
) -> Result<Tensor> {
    turned(x, weight, grad, None, options)
}

/// The gradient of [`conv`] with respect to its weight, whose shape is given.
pub fn weight_backward(
    x: Tensor,
    weight: &[usize],
    grad: Tensor,
    options: ConvOptions,
) -> Result<Tensor> {
    x.same_device(&grad)?;
    let mut g = Geometry::new(x.shape(), weight, options)?.with_outputs(grad.shape())?;
    if depthwise::takes(&g) {
        let out = depthwise::weight_backward(&g, volumes(x)?, &padding(&g), grad)?;
        return copy::reshape(out, weight);
    }
    let (groups, taps) = (options.groups, g.taps());
    let mut gemm = Gemm::new(x.runtime(), groups, g.out_c, g.in_c * taps, g.out_pixels());
    let (mut channels, mut grad) = (g.in_c, volumes(grad)?);
    if gemm.wants_quads() {
        // Rows of the gradient are read four pixels at a time; those past its end are zeros, and the input has
        // room for their windows.
        channels = channels.next_multiple_of(4);
        grad = gemm::filled_up(grad, &[4])?;
        let [.., width] = &mut g.output;
        *width = grad.shape()[4];
        let last =
            width.saturating_sub(1) * options.stride[2] + reach(g.kernel, options.dilation)[2];
        g.input[2] = g.input[2].max(last + 1);
    }
    let grad = copy::packed(grad)?;
    let x = padding(&g).place(x, groups, channels)?;
    let [d, h, w] = g.output;
    (gemm.n, gemm.k, gemm.inner, gemm.outer) =
        (taps * channels, g.out_pixels(), w, g.images * d * h);
    gemm.b_step = (options.stride[2] * groups * channels).cast_signed();
    gemm.split_runs(x.runtime());
    let out = run(&g, &CONV_WEIGHT_BACKWARD, &gemm, channels, &[&grad, &x], false)?;
    let out = out.view(Layout::contiguous(&[groups * g.out_c, taps, channels]));
    let out = copy::narrow(copy::swap_dims(out, 1, 2)?, 1, 0, g.in_c)?;
    copy::reshape(out, weight)
}

/// The gradient of [`conv`] or [`transposed`] with respect to its bias: the sum over everything but the channels.
pub fn bias_backward(grad: Tensor) -> Result<Tensor> {
    spatial(grad.shape())?;
    let channels = grad.shape()[1];
    let others: SmallVec<[usize; 4]> = (0..grad.shape().len()).filter(|&axis| axis != 1).collect();
    let out = reduce::axes(Reduction::Sum, grad, &others)?;
    Ok(out.view(Layout::contiguous(&[channels])))
}

/// The transposed convolution of `x` `[n, c, ..]` with `weight` `[c, o / groups, ..]`.
pub fn transposed(
    x: Tensor,
    weight: Tensor,
    bias: Option<Tensor>,
    options: TransposedOptions,
) -> Result<Tensor> {
    let TransposedOptions { conv: ConvOptions { stride, padding, dilation, groups }, extra } =
        options;
    let (size, kernel) = (spatial(x.shape())?, spatial(weight.shape())?);
    let reach = reach(kernel, dilation);
    let mut shape: Shape = x.shape().into();
    shape[1] = weight.shape()[1] * groups;
    let missing = 3 - (shape.len() - 2);
    for axis in missing..3 {
        let full = (size[axis].max(1) - 1) * stride[axis] + reach[axis] + extra[axis] + 1;
        shape[axis + 2 - missing] =
            full.checked_sub(2 * padding[axis]).ok_or_else(|| Error::Shape {
                lhs: x.shape().to_vec(),
                rhs: weight.shape().to_vec(),
                rule: "the padding must leave something of the output",
            })?;
    }
    turned(&shape, weight, x, bias, options.conv)
}

/// What the convolution of an `x` of this shape, turned round, makes of `grad`.
fn turned(
    x: &[usize],
    weight: Tensor,
    grad: Tensor,
    bias: Option<Tensor>,
    options: ConvOptions,
) -> Result<Tensor> {
    weight.same_device(&grad)?;
    let forward = Geometry::new(x, weight.shape(), options)?.with_outputs(grad.shape())?;
    let ConvOptions { stride, padding, dilation, groups } = options;
    let size = spatial(x)?;
    let reach = reach(forward.kernel, dilation);
    let start = [0, 1, 2].map(|axis| reach[axis].cast_signed() - padding[axis].cast_signed());
    let back = Geometry {
        in_c: forward.out_c,
        input: [0, 1, 2].map(|axis| size[axis] + reach[axis]),
        out_c: forward.in_c,
        output: size,
        options: ConvOptions { stride: [1; 3], padding: [0; 3], dilation, groups },
        ..forward
    };
    // [group, o, c, ..] to [group, c, o, ..], planes, rows and columns from their ends.
    let weight = copy::swap_dims(by_groups(weight, &forward)?, 1, 2)?;
    let ground = Ground { start, step: stride, size: back.input };
    convolve(&back, grad, &ground, copy::flip(weight, &[3, 4, 5])?, bias)
}

/// The gradient of [`transposed`] with respect to `x`: the convolution of the gradient.
pub fn transposed_x_backward(
    weight: Tensor,
    grad: Tensor,
    options: TransposedOptions,
) -> Result<Tensor> {
    weight.same_device(&grad)?;
    let mut g = Geometry::new(grad.shape(), weight.shape(), options.conv)?;
    // Extra rows can make room for windows that no element of x was spread by.
    g.output = [0, 1, 2]
        .map(|axis| g.output[axis].saturating_sub(options.extra[axis] / options.conv.stride[axis]));
    let weight = by_groups(weight, &g)?;
    convolve(&g, grad, &padding(&g), weight, None)
}

/// The gradient of [`transposed`] with respect to its weight, whose shape is given: x and the gradient change places.
pub fn transposed_weight_backward(
    x: Tensor,
    weight: &[usize],
    grad: Tensor,
    options: TransposedOptions,
) -> Result<Tensor> {
    weight_backward(grad, weight, x, options.conv)
}

/// Every variant that can be asked for.
pub fn variants() -> Vec<Variant> {
    let mut out = Vec::new();
    for (tiling, operands) in gemm::every() {
        let natural = !operands.a_across && !operands.b_along && operands.half.is_none();
        let needed = natural && (operands.quads || matches!(tiling, Tiling::Direct { .. }));
        for source in [&CONV, &CONV_WEIGHT_BACKWARD] {
            out.extend(
                [false, true]
                    .iter()
                    .filter(|_| needed)
                    .map(|&volume| variant(source, volume, tiling, operands)),
            );
        }
    }
    out
}

/// What the family must pass.
pub const CASES: &[Case] = {
    const SAME: Arg = Arg::Conv(&[1, 1], &[1, 1], &[1, 1], 1);
    const BARE: Arg = Arg::Conv(&[1, 1], &[0, 0], &[1, 1], 1);
    const WIDE: Arg = Arg::Conv(&[2, 1], &[0, 2], &[1, 2], 1);
    const GROUPED: Arg = Arg::Conv(&[1, 1], &[1, 1], &[1, 1], 2);
    const DEPTHWISE: Arg = Arg::Conv(&[2, 2], &[1, 0], &[2, 1], 4);
    const LINE: Arg = Arg::Conv(&[2], &[1], &[1], 1);
    const LINES: Arg = Arg::Conv(&[1], &[2], &[3], 2);
    const CUBE: Arg = Arg::Conv(&[1, 1, 1], &[1, 1, 1], &[1, 1, 1], 1);
    const SKEW: Arg = Arg::Conv(&[2, 1, 3], &[1, 0, 2], &[1, 2, 1], 1);
    const CUBES: Arg = Arg::Conv(&[1, 2, 1], &[0, 1, 1], &[2, 1, 1], 2);
    const CHANNELS: Arg = Arg::Conv(&[1, 1, 2], &[1, 1, 0], &[1, 1, 1], 4);
    const T_LINE: Arg = Arg::ConvTransposed(&[3], &[1], &[2], &[1], 1);
    const T_LINES: Arg = Arg::ConvTransposed(&[2], &[0], &[0], &[2], 2);
    const T_SAME: Arg = Arg::ConvTransposed(&[2, 2], &[1, 1], &[1, 0], &[1, 1], 1);
    const T_WIDE: Arg = Arg::ConvTransposed(&[1, 2], &[0, 1], &[1, 0], &[2, 1], 2);
    const T_CUBE: Arg = Arg::ConvTransposed(&[2, 1, 2], &[1, 0, 1], &[1, 0, 0], &[1, 2, 1], 1);
    const T_CUBES: Arg = Arg::ConvTransposed(&[1, 2, 1], &[0, 1, 1], &[0, 1, 1], &[1, 1, 2], 2);
    &[
        case(
            "unfold4d",
            &[normal(&[2, 3, 7, 6]), Arg::Sizes(&[3, 2]), Arg::Conv(&[1, 1], &[0, 0], &[1, 1], 1)],
        ),
        case(
            "unfold4d",
            &[
                permuted(&[2, 7, 6, 3], &[0, 3, 1, 2]),
                Arg::Sizes(&[3, 2]),
                Arg::Conv(&[2, 1], &[1, 2], &[1, 2], 1),
            ],
        ),
        case("conv2d", &[normal(&[2, 3, 8, 8]), normal(&[5, 3, 3, 3]), normal(&[5]), SAME]),
        case("conv2d", &[normal(&[2, 3, 9, 8]), normal(&[5, 3, 3, 2]), Arg::Without, WIDE]),
        case("conv2d", &[normal(&[2, 4, 7, 7]), normal(&[6, 2, 3, 3]), normal(&[6]), GROUPED]),
        case("conv2d", &[normal(&[1, 4, 9, 7]), normal(&[8, 1, 3, 3]), Arg::Without, DEPTHWISE]),
        case("conv2d", &[normal(&[2, 4, 9, 8]), normal(&[4, 1, 2, 3]), normal(&[4]), DEPTHWISE]),
        case(
            "conv2d",
            &[permuted(&[2, 8, 8, 3], &[0, 3, 1, 2]), normal(&[4, 3, 1, 1]), Arg::Without, SAME],
        ),
        case("conv2d", &[normal(&[3, 12, 6, 6]), normal(&[8, 12, 1, 1]), Arg::Without, BARE]),
        case(
            "conv2d_x_backward",
            &[normal(&[3, 12, 6, 6]), normal(&[8, 12, 1, 1]), normal(&[3, 8, 6, 6]), BARE],
        ),
        // From and to one channel: products with a k of one.
        case("conv2d", &[normal(&[2, 1, 6, 6]), normal(&[8, 1, 1, 1]), Arg::Without, BARE]),
        case(
            "conv2d_x_backward",
            &[normal(&[2, 12, 6, 6]), normal(&[1, 12, 1, 1]), normal(&[2, 1, 6, 6]), BARE],
        ),
        case("conv2d", &[normal(&[3, 40, 6, 6]), normal(&[70, 40, 3, 3]), normal(&[70]), SAME]),
        case("conv2d", &[normal(&[0, 3, 8, 8]), normal(&[5, 3, 3, 3]), normal(&[5]), SAME]),
        case(
            "conv2d_weight_backward",
            &[normal(&[0, 3, 8, 8]), normal(&[5, 3, 3, 3]), normal(&[0, 5, 8, 8]), SAME],
        ),
        case(
            "conv_transpose2d",
            &[normal(&[0, 4, 5, 6]), normal(&[4, 3, 3, 3]), normal(&[3]), T_SAME],
        ),
        case(
            "conv2d_x_backward",
            &[normal(&[2, 3, 8, 8]), normal(&[5, 3, 3, 3]), normal(&[2, 5, 8, 8]), SAME],
        ),
        case(
            "conv2d_x_backward",
            &[normal(&[2, 3, 9, 8]), normal(&[5, 3, 3, 2]), normal(&[2, 5, 4, 10]), WIDE],
        ),
        case(
            "conv2d_x_backward",
            &[normal(&[2, 4, 7, 7]), normal(&[6, 2, 3, 3]), normal(&[2, 6, 7, 7]), GROUPED],
        ),
        case(
            "conv2d_x_backward",
            &[normal(&[1, 4, 9, 7]), normal(&[8, 1, 3, 3]), normal(&[1, 8, 4, 3]), DEPTHWISE],
        ),
        case(
            "conv2d_x_backward",
            &[normal(&[1, 2, 5, 5]), normal(&[3, 2, 1, 1]), normal(&[1, 3, 7, 7]), SAME],
        ),
        case(
            "conv2d_x_backward",
            &[
                normal(&[1, 2, 6, 7]),
                normal(&[3, 2, 2, 1]),
                normal(&[1, 3, 4, 6]),
                Arg::Conv(&[2, 2], &[1, 2], &[1, 1], 1),
            ],
        ),
        case(
            "conv2d_weight_backward",
            &[normal(&[2, 3, 8, 8]), normal(&[5, 3, 3, 3]), normal(&[2, 5, 8, 8]), SAME],
        ),
        case(
            "conv2d_weight_backward",
            &[normal(&[2, 3, 9, 8]), normal(&[5, 3, 3, 2]), normal(&[2, 5, 4, 10]), WIDE],
        ),
        case(
            "conv2d_weight_backward",
            &[normal(&[64, 4, 8, 8]), normal(&[6, 2, 3, 3]), normal(&[64, 6, 8, 8]), GROUPED],
        ),
        case(
            "conv2d_weight_backward",
            &[normal(&[3, 4, 9, 7]), normal(&[8, 1, 3, 3]), normal(&[3, 8, 4, 3]), DEPTHWISE],
        ),
        case("conv2d_bias_backward", &[normal(&[2, 3, 8, 8]), normal(&[5]), normal(&[2, 5, 8, 8])]),
        case("conv1d", &[normal(&[2, 3, 20]), normal(&[5, 3, 4]), normal(&[5]), LINE]),
        case("conv1d", &[normal(&[3, 4, 17]), normal(&[6, 2, 3]), Arg::Without, LINES]),
        case(
            "conv1d",
            &[permuted(&[2, 12, 4], &[0, 2, 1]), normal(&[6, 2, 3]), normal(&[6]), LINES],
        ),
        case(
            "conv1d_x_backward",
            &[normal(&[2, 3, 20]), normal(&[5, 3, 4]), normal(&[2, 5, 10]), LINE],
        ),
        case(
            "conv1d_x_backward",
            &[normal(&[3, 4, 17]), normal(&[6, 2, 3]), normal(&[3, 6, 15]), LINES],
        ),
        case(
            "conv1d_weight_backward",
            &[normal(&[2, 3, 20]), normal(&[5, 3, 4]), normal(&[2, 5, 10]), LINE],
        ),
        case(
            "conv1d_weight_backward",
            &[normal(&[3, 4, 17]), normal(&[6, 2, 3]), normal(&[3, 6, 15]), LINES],
        ),
        case("conv1d_bias_backward", &[normal(&[2, 3, 20]), normal(&[5]), normal(&[2, 5, 10])]),
        case("conv3d", &[normal(&[2, 3, 4, 5, 6]), normal(&[5, 3, 3, 3, 3]), normal(&[5]), CUBE]),
        case("conv3d", &[normal(&[2, 3, 6, 7, 8]), normal(&[4, 3, 2, 3, 4]), Arg::Without, SKEW]),
        case("conv3d", &[normal(&[1, 4, 7, 6, 5]), normal(&[6, 2, 3, 2, 3]), normal(&[6]), CUBES]),
        case(
            "conv3d",
            &[normal(&[2, 4, 4, 5, 6]), normal(&[4, 1, 3, 3, 2]), normal(&[4]), CHANNELS],
        ),
        case(
            "conv3d",
            &[
                permuted(&[2, 4, 5, 6, 3], &[0, 4, 1, 2, 3]),
                normal(&[4, 3, 1, 1, 1]),
                Arg::Without,
                CUBE,
            ],
        ),
        case(
            "conv3d",
            &[
                normal(&[2, 3, 1, 8, 8]),
                normal(&[4, 3, 1, 3, 3]),
                normal(&[4]),
                Arg::Conv(&[1, 1, 1], &[0, 1, 1], &[1, 1, 1], 1),
            ],
        ),
        case(
            "conv3d",
            &[normal(&[1, 16, 12, 12, 12]), normal(&[48, 16, 3, 3, 3]), normal(&[48]), CUBE],
        ),
        case(
            "conv3d_x_backward",
            &[normal(&[2, 3, 4, 5, 6]), normal(&[5, 3, 3, 3, 3]), normal(&[2, 5, 4, 5, 6]), CUBE],
        ),
        case(
            "conv3d_x_backward",
            &[normal(&[2, 3, 6, 7, 8]), normal(&[4, 3, 2, 3, 4]), normal(&[2, 4, 4, 3, 3]), SKEW],
        ),
        case(
            "conv3d_x_backward",
            &[normal(&[1, 4, 7, 6, 5]), normal(&[6, 2, 3, 2, 3]), normal(&[1, 6, 3, 4, 5]), CUBES],
        ),
        case(
            "conv3d_weight_backward",
            &[normal(&[2, 3, 4, 5, 6]), normal(&[5, 3, 3, 3, 3]), normal(&[2, 5, 4, 5, 6]), CUBE],
        ),
        case(
            "conv3d_weight_backward",
            &[normal(&[2, 3, 6, 7, 8]), normal(&[4, 3, 2, 3, 4]), normal(&[2, 4, 4, 3, 3]), SKEW],
        ),
        case(
            "conv3d_weight_backward",
            &[normal(&[1, 4, 7, 6, 5]), normal(&[6, 2, 3, 2, 3]), normal(&[1, 6, 3, 4, 5]), CUBES],
        ),
        case(
            "conv3d_bias_backward",
            &[normal(&[2, 3, 4, 5, 6]), normal(&[5]), normal(&[2, 5, 4, 5, 6])],
        ),
        case("conv_transpose1d", &[normal(&[2, 3, 9]), normal(&[3, 5, 4]), normal(&[5]), T_LINE]),
        case("conv_transpose1d", &[normal(&[2, 4, 9]), normal(&[4, 3, 3]), Arg::Without, T_LINES]),
        case("conv_transpose1d_x_backward", &[normal(&[3, 5, 4]), normal(&[2, 5, 28]), T_LINE]),
        case(
            "conv_transpose1d_weight_backward",
            &[normal(&[2, 4, 9]), normal(&[4, 3, 3]), normal(&[2, 6, 21]), T_LINES],
        ),
        case(
            "conv_transpose1d_bias_backward",
            &[normal(&[2, 3, 9]), normal(&[5]), normal(&[2, 5, 28])],
        ),
        case(
            "conv_transpose2d",
            &[normal(&[2, 4, 5, 6]), normal(&[4, 3, 3, 3]), normal(&[3]), T_SAME],
        ),
        case(
            "conv_transpose2d",
            &[normal(&[2, 4, 5, 6]), normal(&[4, 3, 2, 3]), Arg::Without, T_WIDE],
        ),
        case(
            "conv_transpose2d_x_backward",
            &[normal(&[4, 3, 3, 3]), normal(&[2, 3, 10, 11]), T_SAME],
        ),
        // An extra row that no element of x reaches.
        case(
            "conv_transpose2d_x_backward",
            &[normal(&[4, 3, 2, 3]), normal(&[2, 6, 8, 11]), T_WIDE],
        ),
        case(
            "conv_transpose2d_weight_backward",
            &[normal(&[2, 4, 5, 6]), normal(&[4, 3, 3, 3]), normal(&[2, 3, 10, 11]), T_SAME],
        ),
        case(
            "conv_transpose2d_weight_backward",
            &[normal(&[2, 4, 5, 6]), normal(&[4, 3, 2, 3]), normal(&[2, 6, 8, 11]), T_WIDE],
        ),
        case(
            "conv_transpose2d_bias_backward",
            &[normal(&[2, 4, 5, 6]), normal(&[3]), normal(&[2, 3, 10, 11])],
        ),
        case(
            "conv_transpose3d",
            &[normal(&[2, 4, 3, 4, 5]), normal(&[4, 3, 3, 2, 3]), normal(&[3]), T_CUBE],
        ),
        case(
            "conv_transpose3d",
            &[normal(&[1, 4, 3, 4, 5]), normal(&[4, 3, 2, 3, 2]), Arg::Without, T_CUBES],
        ),
        case(
            "conv_transpose3d_x_backward",
            &[normal(&[4, 3, 2, 3, 2]), normal(&[1, 6, 4, 8, 6]), T_CUBES],
        ),
        case(
            "conv_transpose3d_weight_backward",
            &[normal(&[2, 4, 3, 4, 5]), normal(&[4, 3, 3, 2, 3]), normal(&[2, 3, 6, 6, 9]), T_CUBE],
        ),
        case(
            "conv_transpose3d_weight_backward",
            &[
                normal(&[1, 4, 3, 4, 5]),
                normal(&[4, 3, 2, 3, 2]),
                normal(&[1, 6, 4, 8, 6]),
                T_CUBES,
            ],
        ),
        case(
            "conv_transpose3d_bias_backward",
            &[normal(&[2, 4, 3, 4, 5]), normal(&[3]), normal(&[2, 3, 6, 6, 9])],
        ),
    ]
};
