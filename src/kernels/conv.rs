//! Convolution in one to three dimensions and its gradients.
//!
//! Everything is computed in three dimensions: a missing axis has size 1. On GPUs, the kernels of
//! `conv_tiled` read the tensors where they are; `winograd` is an alternative for 3 x 3.
//! The kernels of this file are for the strategies without tiles: matrix products whose operands are
//! gathered while they are read (implicit GEMM), with the groups as their batch. Their inputs are
//! padded first, so that the address of a tap is the sum of two offsets and needs no bounds check.
//!
//! The gradient of the input is also the transposed convolution: a convolution of the output's
//! gradient, with `stride - 1` zeros between its pixels, and the flipped kernel. The gradients of
//! the transposed convolution are the convolution and the gradient of its weight.
//!
//! Kernels of one element without padding, stride, groups or bias are plain matrix products. Groups
//! of one channel are in `depthwise`.

pub(crate) mod definition;
pub(crate) mod geometry;
pub(crate) mod padded_input;

use smallvec::{SmallVec, smallvec};

use crate::kernels::conv::geometry::{
    ConvGeometry, TOO_LARGE, Window, addressable_window, kernel_extent, spatial_sizes,
};
use crate::kernels::conv::padded_input::{PaddedInput, with_three_axes};
use crate::kernels::fusion::epilogue;
use crate::kernels::gemm::{self, Gemm, GemmOperands, GemmParams, Tiling};
use crate::kernels::launch::{Launch, PendingResult, variants_of};
use crate::kernels::ops::cases::{Arg, Case, cases, permuted};
use crate::kernels::ops::map::ScalarValue;
use crate::kernels::ops::options::{ConvOptions, TransposedOptions};
use crate::kernels::ops::table::rows;
use crate::kernels::policy::strategy::{GemmSizes, Strategy};
use crate::kernels::reduce::{self, Reduction};
use crate::kernels::winograd::Winograd;
use crate::kernels::{cast, conv_tiled, create, depthwise, elementwise, matmul, policy, views};
use crate::params;
use crate::runtime::{Fragment, Kernel, Source, Variant, wgsl};
use crate::tensor::{DType, Error, Layout, Result, Shape, Tensor};

/// The fragments of the shaders.
const FRAGMENTS: &[Fragment] = &[("lib/conv", wgsl!("../../shaders/lib/conv.wgsl"))];

static CONV: Source = Source::new::<ConvParams>("conv", wgsl!("../../shaders/conv/conv.wgsl"))
    .with_fragments(FRAGMENTS);
static CONV_WEIGHT_BACKWARD: Source = Source::new::<ConvParams>(
    "conv_weight_backward",
    wgsl!("../../shaders/conv/conv_weight_backward.wgsl"),
)
.with_fragments(FRAGMENTS);

params! {
    struct ConvParams {
        gemm: GemmParams,
        images: u32,
        groups: u32,
        in_channels: u32,
        pixel_stride: u32,
        out_pixels: u32,
        has_bias: u32,
        pad0: u32,
        pad1: u32,
        window: Window,
    }
}

/// The kernels of a convolution, each a matrix product per group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum DirectPass {
    /// The output: padded input times weight.
    Forward,
    /// The gradient of the weight: gradient of the output times padded input.
    WeightBackward,
}

/// The kernel of a pass.
#[derive(Debug, Clone, Copy, Hash)]
struct ConvKernel {
    /// The product that the kernel computes.
    pass: DirectPass,
    /// Whether the depth of the padded input is above 1.
    volume: bool,
    /// The mapping of the product to workgroups.
    tiling: Tiling,
    /// Whether the operands are read in vec4s.
    vec4: bool,
}

impl Kernel for ConvKernel {
    type Params = ConvParams;

    fn variant(&self) -> Variant {
        let Self { pass, volume, tiling, vec4 } = *self;
        let forward = pass == DirectPass::Forward;
        let source = if forward { &CONV } else { &CONV_WEIGHT_BACKWARD };
        let variant = Variant::new(source).flag("BIAS", forward).flag("VOLUME", volume);
        // The rows of the forward product are the pixels of the output, which are contiguous.
        gemm::define(variant, tiling, GemmOperands { vec4, ..GemmOperands::default() })
            .flag("OUT_VEC4", vec4 && !forward)
    }
}

impl DirectPass {
    /// Runs the product over images with `channels` channels per group, and sums its splits. The
    /// result has the shape `[groups, m, n]`; the shader defines the order of its elements.
    fn run(
        self,
        g: &ConvGeometry,
        plan: &Gemm,
        channels: usize,
        inputs: &[&Tensor],
        has_bias: bool,
    ) -> Result<Tensor> {
        let runtime = inputs[0].runtime();
        let vec4 = plan.strategy.prefers_vec4();
        let groups = g.options.groups;
        let shape = [groups, plan.m, plan.n];
        let out_shape = [plan.splits, shape.iter().product()];
        let tiling = plan.tiling(runtime, vec4, None);
        let (workgroups, params) = plan.params(tiling);
        let out = Launch {
            kernel: &ConvKernel { pass: self, volume: g.input[0] > 1, tiling, vec4 },
            inputs,
            outputs: &[],
            params: &ConvParams {
                gemm: params,
                images: g.images as u32,
                groups: groups as u32,
                in_channels: channels as u32,
                pixel_stride: (groups * channels) as u32,
                out_pixels: g.output.iter().product::<usize>() as u32,
                has_bias: u32::from(has_bias),
                pad0: 0,
                pad1: 0,
                window: g.window(g.input),
            },
            workgroups,
            work: plan.work(),
            rounds: Some(plan.rounds(tiling, vec4)),
        }
        .defer(&PendingResult {
            vec4: vec4 && self != Self::Forward,
            large_kernel: true,
            ..PendingResult::scalars(runtime, &out_shape, DType::F32)
        })?;
        plan.sum_splits(out, &shape)
    }
}

/// Returns the shape of the result of [`conv`].
///
/// # Errors
///
/// Returns an error if the shapes do not fit; so do the functions of shapes below.
pub fn conv_shape(
    x: &[usize],
    weight: &[usize],
    bias: Option<&[usize]>,
    options: ConvOptions,
) -> Result<Shape> {
    let g = ConvGeometry::new(x, weight, options)?;
    check_bias(bias, g.all_out_channels())?;
    Ok(g.shape([g.images, g.all_out_channels()], g.output))
}

fn check_bias(bias: Option<&[usize]>, channels: usize) -> Result<()> {
    match bias.filter(|bias| *bias != [channels]) {
        None => Ok(()),
        Some(bias) => Err(Error::Shape {
            lhs: bias.to_vec(),
            rhs: vec![channels],
            rule: "a bias must have one element per output channel",
        }),
    }
}

/// Checks that `grad` can be the gradient of a convolution.
pub fn check_gradient(
    x: &[usize],
    weight: &[usize],
    grad: &[usize],
    options: ConvOptions,
) -> Result<()> {
    ConvGeometry::new(x, weight, options)?.with_output_of(grad).map(|_| ())
}

/// Computes the convolution of `x` `[n, c, ..]` with `weight` `[o, c / groups, ..]`, over one to
/// three spatial axes.
///
/// # Errors
///
/// Returns an error if the shapes do not fit or the memory is not available; so do the functions
/// below.
pub fn conv(
    x: Tensor,
    weight: Tensor,
    bias: Option<Tensor>,
    options: ConvOptions,
) -> Result<Tensor> {
    x.same_device(&weight)?;
    let g = ConvGeometry::new(x.shape(), weight.shape(), options)?;
    forward(&g, x, weight, bias)
}

/// Computes [`conv`] for the output size in `g`.
fn forward(g: &ConvGeometry, x: Tensor, weight: Tensor, bias: Option<Tensor>) -> Result<Tensor> {
    let padded = PaddedInput::of(g);
    match Path::of(g, &x, &padded, bias.as_ref())? {
        Path::Product(strategy) if strategy.is_tiled() => match Winograd::of(g, false, &x) {
            Some(winograd) => {
                let shape = g.shape([g.images, g.all_out_channels()], g.output);
                views::reshape(winograd.convolve(x, weight, bias)?, &shape)
            }
            None => conv_tiled::convolve(g, x, weight, bias, strategy, None),
        },
        path => convolve(path, g, x, &padded, by_groups(weight, g)?, bias),
    }
}

/// How a convolution is computed.
#[derive(Debug, Clone, Copy)]
enum Path {
    /// Without a matrix product: see [`depthwise`].
    Depthwise,
    /// As a matrix product of the weight and the input.
    Pointwise,
    /// As a product with windows, by a strategy.
    Product(Strategy),
}

impl Path {
    /// Chooses the path of a convolution of the padded `x`.
    ///
    /// # Errors
    ///
    /// Returns an error if the bias does not fit.
    fn of(
        g: &ConvGeometry,
        x: &Tensor,
        padded: &PaddedInput,
        bias: Option<&Tensor>,
    ) -> Result<Self> {
        check_bias(bias.map(Tensor::shape), g.all_out_channels())?;
        if depthwise::applies(g) && g.taps() < policy::max_rounds(x.runtime()) / 2 {
            return Ok(Self::Depthwise);
        }
        let one_tap = g.taps() == 1 && g.options.groups == 1 && g.options.stride == [1; 3];
        // The product has one row per output channel: a bias would need another pass over the result.
        if one_tap && bias.is_none() && padded.is_identity(&with_three_axes(x.clone())?) {
            return Ok(Self::Pointwise);
        }
        if g.taps() >= conv_tiled::MAX_TAPS {
            return Ok(Self::Product(Strategy::Scalar));
        }
        Ok(Self::Product(matmul::choose_strategy(x.runtime(), product_sizes(g), x.dtype())))
    }
}

/// Returns the sizes of the product of a convolution, for the choice of a strategy.
fn product_sizes(g: &ConvGeometry) -> GemmSizes {
    let k = g.in_channels * g.taps();
    GemmSizes { batch: g.options.groups, m: g.out_pixels(), n: g.out_channels, k }
}

/// Reshapes a weight `[groups * o, c, ..]` to `[groups, o, c, d, h, w]`.
fn by_groups(weight: Tensor, g: &ConvGeometry) -> Result<Tensor> {
    let [d, h, w] = g.kernel;
    views::reshape(weight, &[g.options.groups, g.out_channels, g.in_channels, d, h, w])
}

/// Returns the windows of `x` `[n, c, h, w]` under a kernel (im2col): `[n, c * taps, windows]`.
pub fn im2col(x: Tensor, kernel: [usize; 2], options: ConvOptions) -> Result<Tensor> {
    let (g, channels) = im2col_geometry(x.shape(), kernel, options)?;
    let x = PaddedInput::of(&g).channels_last(x, 1, channels)?;
    let [n, _, h, w, c] = [0, 1, 2, 3, 4].map(|axis| x.layout().strides[axis]);
    let [_, stride_h, stride_w] = options.stride.map(usize::cast_signed);
    let [_, tap_h, tap_w] = options.dilation.map(usize::cast_signed);
    let [_, out_h, out_w] = g.output;
    let windows = Layout::new(
        smallvec![g.images, channels, kernel[0], kernel[1], out_h, out_w],
        smallvec![n, c, tap_h * h, tap_w * w, stride_h * h, stride_w * w],
        x.layout().offset,
    );
    views::reshape(x.view(windows), &[g.images, channels * g.taps(), out_h * out_w])
}

fn im2col_geometry(
    x: &[usize],
    kernel: [usize; 2],
    options: ConvOptions,
) -> Result<(ConvGeometry, usize)> {
    let channels = x.get(1).copied().unwrap_or(0);
    Ok((ConvGeometry::new(x, &[1, channels, kernel[0], kernel[1]], options)?, channels))
}

/// Returns the shape of the result of [`im2col`].
pub fn im2col_shape(x: &[usize], kernel: [usize; 2], options: ConvOptions) -> Result<Shape> {
    let (g, channels) = im2col_geometry(x, kernel, options)?;
    let [_, out_h, out_w] = g.output;
    Ok([g.images, channels * g.taps(), out_h * out_w].as_slice().into())
}

/// Computes the convolution of the padded `x` with a weight `[groups, o, c, d, h, w]`, by a path
/// without tiles.
fn convolve(
    path: Path,
    g: &ConvGeometry,
    x: Tensor,
    padded: &PaddedInput,
    weight: Tensor,
    bias: Option<Tensor>,
) -> Result<Tensor> {
    if let Path::Pointwise = path {
        return pointwise(g, x, weight);
    }
    let (x, weight) = (cast::to_compute_type(x)?, cast::to_compute_type(weight)?);
    let mut bias = bias.map(cast::to_compute_type).transpose()?;
    let Path::Product(strategy) = path else {
        // Depthwise.
        let out = depthwise::convolve(g, with_three_axes(x)?, padded, weight, bias)?;
        return views::reshape(out, &g.shape([g.images, g.all_out_channels()], g.output));
    };
    let (groups, taps) = (g.options.groups, g.taps());
    let mut plan = Gemm::new(product_sizes(g), strategy, x.dtype());
    plan.outer = taps;
    if let Some(bias) = bias.take_if(|_| plan.min_splits(x.runtime()) > 1) {
        // The bias is added after the splits are summed.
        let out = convolve(path, g, x, padded, weight, None)?;
        let mut per_channel: Shape = out.shape().iter().map(|_| 1).collect();
        per_channel[1] = g.all_out_channels();
        return elementwise::binary(&rows::float_add, out, views::reshape(bias, &per_channel)?);
    }
    // [groups, taps, c, o]: contiguous along the output channels.
    let weight = views::permute(weight, &[0, 3, 4, 5, 2, 1])?;
    let mut weight = views::reshape(weight, &[groups, taps, g.in_channels, g.out_channels])?;
    let mut bias = bias.map(|bias| views::reshape(bias, &[groups, g.out_channels])).transpose()?;
    if plan.strategy.prefers_vec4() {
        weight = gemm::padded_to_vec4(weight, &[2, 3])?;
        bias = bias.map(|bias| gemm::padded_to_vec4(bias, &[1])).transpose()?;
    }
    let (weight, bias) = (views::packed(weight)?, bias.map(views::packed).transpose()?);
    // Channels per group, including the padding to vec4s.
    let [in_channels, out_channels] = [weight.shape()[2], weight.shape()[3]];
    let x = padded.channels_last(x, groups, in_channels)?;
    (plan.n, plan.k) = (out_channels, taps * in_channels);
    (plan.inner, plan.outer) = (in_channels, taps);
    plan.b_step = out_channels.cast_signed();
    if bias.is_none() {
        plan.split_between_runs(x.runtime());
    }
    // The layout requires a bias binding; without a bias it is the weight.
    let inputs = [&x, &weight, bias.as_ref().unwrap_or(&weight)];
    let out = DirectPass::Forward.run(g, &plan, in_channels, &inputs, bias.is_some())?;
    let [d, h, w] = g.output;
    let out = out.view(Layout::contiguous(&[g.images, groups, out_channels, d * h * w]));
    let out = views::narrow(out, 2, 0, g.out_channels)?;
    views::reshape(out, &g.shape([g.images, g.all_out_channels()], [d, h, w]))
}

/// Computes the convolution with a kernel of one element: for each image, the product of `[o, c]`
/// and `[c, pixels]`.
fn pointwise(g: &ConvGeometry, x: Tensor, weight: Tensor) -> Result<Tensor> {
    let x = views::reshape(x, &[g.images, g.in_channels, g.output.iter().product()])?;
    let weight = views::reshape(weight, &[1, g.out_channels, g.in_channels])?;
    let out = matmul::matmul(weight, x)?;
    views::reshape(out, &g.shape([g.images, g.out_channels], g.output))
}

/// Computes the gradient of [`conv`] with respect to its input, whose shape is `x`.
pub fn x_backward(
    x: &[usize],
    weight: Tensor,
    grad: Tensor,
    options: ConvOptions,
) -> Result<Tensor> {
    transposed_convolve(x, weight, grad, None, options)
}

/// Computes the gradient of [`conv`] with respect to its weight, whose shape is `weight`.
pub fn weight_backward(
    x: Tensor,
    weight: &[usize],
    grad: Tensor,
    options: ConvOptions,
) -> Result<Tensor> {
    x.same_device(&grad)?;
    let mut g = ConvGeometry::new(x.shape(), weight, options)?.with_output_of(grad.shape())?;
    let max_width = policy::max_rounds(x.runtime()) / 2;
    if g.output[2] > max_width {
        return weight_backward_in_parts(&g, x, weight, &grad, max_width);
    }
    if depthwise::applies(&g) {
        let (x, grad) = (cast::to_compute_type(x)?, cast::to_compute_type(grad)?);
        let out = depthwise::weight_backward(&g, with_three_axes(x)?, &PaddedInput::of(&g), grad)?;
        return views::reshape(out, weight);
    }
    let (groups, taps) = (options.groups, g.taps());
    let sizes =
        GemmSizes { batch: groups, m: g.out_channels, n: g.in_channels * taps, k: g.out_pixels() };
    let strategy = matmul::choose_strategy(x.runtime(), sizes, x.dtype());
    if strategy.is_tiled() {
        return conv_tiled::weight_backward(&g, x, weight, grad, strategy, None);
    }
    let (x, grad) = (cast::to_compute_type(x)?, cast::to_compute_type(grad)?);
    let mut plan = Gemm::new(sizes, strategy, x.dtype());
    let (mut channels, mut grad) = (g.in_channels, with_three_axes(grad)?);
    if plan.strategy.prefers_vec4() {
        // Rows of the gradient are padded with zeros and read in vec4s. The padded input must cover
        // the windows of the added pixels.
        channels = channels.next_multiple_of(4);
        grad = gemm::padded_to_vec4(grad, &[4])?;
        let width = grad.shape()[4];
        g.output[2] = width;
        let extent = kernel_extent(g.kernel, options.dilation)[2];
        let last = width.saturating_sub(1) * options.stride[2] + extent;
        g.input[2] = g.input[2].max(last + 1);
    }
    let grad = views::packed(grad)?;
    let x = PaddedInput::of(&g).channels_last(x, groups, channels)?;
    let [d, h, w] = g.output;
    (plan.n, plan.k) = (taps * channels, g.out_pixels());
    (plan.inner, plan.outer) = (w, g.images * d * h);
    plan.b_step = (options.stride[2] * groups * channels).cast_signed();
    plan.split_between_runs(x.runtime());
    let out = DirectPass::WeightBackward.run(&g, &plan, channels, &[&grad, &x], false)?;
    let out = out.view(Layout::contiguous(&[groups * g.out_channels, taps, channels]));
    let out = views::narrow(views::swap_dims(out, 1, 2)?, 1, 0, g.in_channels)?;
    views::reshape(out, weight)
}

/// Computes [`weight_backward`] for outputs whose rows are too long for a loop: the sum of the gradients of parts of
/// the rows.
fn weight_backward_in_parts(
    g: &ConvGeometry,
    x: Tensor,
    weight: &[usize],
    grad: &Tensor,
    max_width: usize,
) -> Result<Tensor> {
    let axis = grad.shape().len() - 1;
    let (stride, padding) = (g.options.stride[2], g.options.padding[2]);
    let extent = kernel_extent(g.kernel, g.options.dilation)[2];
    let mut shape: Shape = x.shape().into();
    shape[axis] = padding;
    let zeros = create::full(x.runtime(), &shape, ScalarValue::Float(0.0), x.dtype())?;
    let x = if padding > 0 { views::cat(vec![zeros.clone(), x, zeros], axis)? } else { x };
    let mut options = g.options;
    options.padding[2] = 0;
    let mut sum = None;
    for start in (0..g.output[2]).step_by(max_width) {
        let len = max_width.min(g.output[2] - start);
        let x = views::narrow(x.clone(), axis, start * stride, (len - 1) * stride + extent + 1)?;
        let grad = views::narrow(grad.clone(), axis, start, len)?;
        elementwise::accumulate(&mut sum, weight_backward(x, weight, grad, options)?)?;
    }
    sum.ok_or(Error::Unsupported("a convolution without outputs"))
}

/// Computes the gradient of [`conv`] or [`transposed`] with respect to its bias: the sum of `grad`
/// over all axes but the channels.
pub fn bias_backward(grad: Tensor) -> Result<Tensor> {
    spatial_sizes(grad.shape())?;
    let channels = grad.shape()[1];
    let others: SmallVec<[usize; 4]> = (0..grad.shape().len()).filter(|&axis| axis != 1).collect();
    let out = reduce::axes(Reduction::Sum, grad, &others)?;
    Ok(out.view(Layout::contiguous(&[channels])))
}

/// Returns the shape of the result of [`transposed`].
pub fn transposed_shape(
    x: &[usize],
    weight: &[usize],
    bias: Option<&[usize]>,
    options: TransposedOptions,
) -> Result<Shape> {
    let ConvOptions { stride, padding, dilation, groups } = options.conv;
    let (size, kernel) = (spatial_sizes(x)?, spatial_sizes(weight)?);
    let mut shape: Shape = x.into();
    let error = |rule| Error::Shape { lhs: x.to_vec(), rhs: weight.to_vec(), rule };
    shape[1] = weight[1].checked_mul(groups).ok_or_else(|| error(TOO_LARGE))?;
    check_bias(bias, shape[1])?;
    let missing = 3 - (shape.len() - 2);
    for axis in missing..3 {
        let [kernel, stride] = [kernel[axis], stride[axis]];
        let window = addressable_window(size[axis], kernel, stride, padding[axis], dilation[axis]);
        let (_, extent) = window.ok_or_else(|| error(TOO_LARGE))?;
        let last = (size[axis].max(1) - 1).checked_mul(stride);
        let last = last.and_then(|last| last.checked_add(extent + 1));
        let full = last.and_then(|last| last.checked_add(options.output_padding[axis]));
        let full = full.ok_or_else(|| error(TOO_LARGE))?;
        let cropped = full.checked_sub(2 * padding[axis]);
        shape[axis + 2 - missing] =
            cropped.ok_or_else(|| error("the padding must be smaller than the output"))?;
    }
    ConvGeometry::new(&shape, weight, options.conv)?.with_output_of(x)?;
    Ok(shape)
}

/// Computes the transposed convolution of `x` `[n, c, ..]` with `weight` `[c, o / groups, ..]`.
pub fn transposed(
    x: Tensor,
    weight: Tensor,
    bias: Option<Tensor>,
    options: TransposedOptions,
) -> Result<Tensor> {
    let bias_shape = bias.as_ref().map(Tensor::shape);
    let shape = transposed_shape(x.shape(), weight.shape(), bias_shape, options)?;
    transposed_convolve(&shape, weight, x, bias, options.conv)
}

/// Applies the transpose of the convolution of an input of shape `x` to `grad`.
fn transposed_convolve(
    x: &[usize],
    weight: Tensor,
    grad: Tensor,
    bias: Option<Tensor>,
    options: ConvOptions,
) -> Result<Tensor> {
    weight.same_device(&grad)?;
    let forward = ConvGeometry::new(x, weight.shape(), options)?.with_output_of(grad.shape())?;
    let ConvOptions { stride, padding, dilation, groups } = options;
    let size = spatial_sizes(x)?;
    let extent = kernel_extent(forward.kernel, dilation);
    let start = [0, 1, 2].map(|axis| extent[axis].cast_signed() - padding[axis].cast_signed());
    let backward = ConvGeometry {
        in_channels: forward.out_channels,
        input: [0, 1, 2].map(|axis| size[axis] + extent[axis]),
        out_channels: forward.in_channels,
        output: size,
        options: ConvOptions { stride: [1; 3], padding: [0; 3], dilation, groups },
        ..forward
    };
    let padded = PaddedInput { start, step: stride, size: backward.input };
    match Path::of(&backward, &grad, &padded, bias.as_ref())? {
        Path::Product(strategy) if strategy.is_tiled() => {
            match Winograd::of(&forward, true, &grad) {
                Some(winograd) => views::reshape(winograd.convolve(grad, weight, bias)?, x),
                None => conv_tiled::transpose(&forward, grad, weight, bias, strategy, None),
            }
        }
        path => {
            // [groups, o, c, ..] to [groups, c, o, ..], flipped along the spatial axes.
            let weight = views::swap_dims(by_groups(weight, &forward)?, 1, 2)?;
            let weight = views::flip(weight, &[3, 4, 5])?;
            convolve(path, &backward, grad, &padded, weight, bias)
        }
    }
}

/// Computes the gradient of [`transposed`] with respect to its input: the convolution of `grad`.
pub fn transposed_x_backward(
    weight: Tensor,
    grad: Tensor,
    options: TransposedOptions,
) -> Result<Tensor> {
    weight.same_device(&grad)?;
    let mut g = ConvGeometry::new(grad.shape(), weight.shape(), options.conv)?;
    // Output padding can add windows that belong to no element of the input.
    let added = [0, 1, 2].map(|axis| options.output_padding[axis] / options.conv.stride[axis]);
    g.output = [0, 1, 2].map(|axis| g.output[axis].saturating_sub(added[axis]));
    forward(&g, grad, weight, None)
}

/// Computes the gradient of [`transposed`] with respect to its weight, whose shape is `weight`: the
/// gradient of the convolution with `x` and `grad` exchanged.
pub fn transposed_weight_backward(
    x: Tensor,
    weight: &[usize],
    grad: Tensor,
    options: TransposedOptions,
) -> Result<Tensor> {
    weight_backward(grad, weight, x, options.conv)
}

/// Returns every variant that the family can dispatch.
pub fn variants() -> Vec<Variant> {
    let mut kernels = Vec::new();
    for (tiling, operands) in gemm::all() {
        let GemmOperands { vec4, a_transposed, b_transposed, half, gathered: _ } = operands;
        let direct = matches!(tiling, Tiling::Direct { .. });
        if a_transposed || b_transposed || half.is_some() || !direct {
            continue;
        }
        for pass in [DirectPass::Forward, DirectPass::WeightBackward] {
            kernels.extend([false, true].map(|volume| ConvKernel { pass, volume, tiling, vec4 }));
        }
    }
    let with_epilogue = epilogue::samples(kernels.iter().copied());
    [variants_of(kernels), with_epilogue].concat()
}

/// The cases that the family must pass.
pub const CASES: &[Case] = {
    const SAME: Arg = Arg::Conv(&[1, 1], &[1, 1], &[1, 1], 1);
    const UNPADDED: Arg = Arg::Conv(&[1, 1], &[0, 0], &[1, 1], 1);
    const MIXED: Arg = Arg::Conv(&[2, 1], &[0, 2], &[1, 2], 1);
    const GROUPED: Arg = Arg::Conv(&[1, 1], &[1, 1], &[1, 1], 2);
    const DEPTHWISE: Arg = Arg::Conv(&[2, 2], &[1, 0], &[2, 1], 4);
    const STRIDED_1D: Arg = Arg::Conv(&[2], &[1], &[1], 1);
    const GROUPED_1D: Arg = Arg::Conv(&[1], &[2], &[3], 2);
    const SAME_3D: Arg = Arg::Conv(&[1, 1, 1], &[1, 1, 1], &[1, 1, 1], 1);
    const MIXED_3D: Arg = Arg::Conv(&[2, 1, 3], &[1, 0, 2], &[1, 2, 1], 1);
    const GROUPED_3D: Arg = Arg::Conv(&[1, 2, 1], &[0, 1, 1], &[2, 1, 1], 2);
    const DEPTHWISE_3D: Arg = Arg::Conv(&[1, 1, 2], &[1, 1, 0], &[1, 1, 1], 4);
    const T_1D: Arg = Arg::ConvTransposed(&[3], &[1], &[2], &[1], 1);
    const T_GROUPED_1D: Arg = Arg::ConvTransposed(&[2], &[0], &[0], &[2], 2);
    const T_2D: Arg = Arg::ConvTransposed(&[2, 2], &[1, 1], &[1, 0], &[1, 1], 1);
    const T_GROUPED_2D: Arg = Arg::ConvTransposed(&[1, 2], &[0, 1], &[1, 0], &[2, 1], 2);
    const T_3D: Arg = Arg::ConvTransposed(&[2, 1, 2], &[1, 0, 1], &[1, 0, 0], &[1, 2, 1], 1);
    const T_GROUPED_3D: Arg =
        Arg::ConvTransposed(&[1, 2, 1], &[0, 1, 1], &[0, 1, 1], &[1, 1, 2], 2);
    cases! {
        unfold4d([2, 3, 7, 6], Arg::Sizes(&[3, 2]), Arg::Conv(&[1, 1], &[0, 0], &[1, 1], 1));
        unfold4d(permuted(&[2, 7, 6, 3], &[0, 3, 1, 2]), Arg::Sizes(&[3, 2]),
            Arg::Conv(&[2, 1], &[1, 2], &[1, 2], 1));
        conv2d([2, 3, 8, 8], [5, 3, 3, 3], [5], SAME);
        conv2d([2, 3, 9, 8], [5, 3, 3, 2], _, MIXED);
        conv2d([2, 4, 7, 7], [6, 2, 3, 3], [6], GROUPED);
        conv2d([1, 4, 9, 7], [8, 1, 3, 3], _, DEPTHWISE);
        conv2d([2, 4, 9, 8], [4, 1, 2, 3], [4], DEPTHWISE);
        conv2d(permuted(&[2, 8, 8, 3], &[0, 3, 1, 2]), [4, 3, 1, 1], _, SAME);
        conv2d([3, 12, 6, 6], [8, 12, 1, 1], _, UNPADDED);
        conv2d_x_backward([3, 12, 6, 6], [8, 12, 1, 1], [3, 8, 6, 6], UNPADDED);
        // Large enough for vec4s, with few output pixels or output channels: small tiles.
        conv2d([1, 128, 4, 4], [64, 128, 3, 3], [64], UNPADDED);
        conv3d([1, 64, 2, 2, 2], [64, 64, 3, 3, 3], [64], SAME_3D);
        conv2d_weight_backward([2, 16, 20, 20], [8, 16, 3, 3], [2, 8, 20, 20], SAME);
        conv2d_weight_backward([2, 16, 20, 20], [12, 16, 3, 3], [2, 12, 20, 20], SAME);
        conv3d_weight_backward([1, 8, 8, 8, 8], [8, 8, 3, 3, 3], [1, 8, 8, 8, 8], SAME_3D);
        conv3d_weight_backward([1, 8, 8, 8, 8], [12, 8, 3, 3, 3], [1, 12, 8, 8, 8], SAME_3D);
        // Up to 32 columns.
        conv2d([1, 8, 12, 12], [24, 8, 3, 3], [24], SAME);
        conv3d([1, 8, 4, 6, 6], [24, 8, 3, 3, 3], [24], SAME_3D);
        conv2d_weight_backward([2, 8, 20, 20], [12, 8, 1, 3], [2, 12, 22, 20], SAME);
        conv3d_weight_backward([1, 8, 8, 8, 8], [12, 8, 1, 1, 3], [1, 12, 10, 10, 8], SAME_3D);
        // One input channel, and the gradient of one output channel: products with k = 1.
        conv2d([2, 1, 6, 6], [8, 1, 1, 1], _, UNPADDED);
        conv2d_x_backward([2, 12, 6, 6], [1, 12, 1, 1], [2, 1, 6, 6], UNPADDED);
        conv2d([3, 40, 6, 6], [70, 40, 3, 3], [70], SAME);
        conv2d([0, 3, 8, 8], [5, 3, 3, 3], [5], SAME);
        conv2d_weight_backward([0, 3, 8, 8], [5, 3, 3, 3], [0, 5, 8, 8], SAME);
        conv_transpose2d([0, 4, 5, 6], [4, 3, 3, 3], [3], T_2D);
        conv2d_x_backward([2, 3, 8, 8], [5, 3, 3, 3], [2, 5, 8, 8], SAME);
        conv2d_x_backward([2, 3, 9, 8], [5, 3, 3, 2], [2, 5, 4, 10], MIXED);
        conv2d_x_backward([2, 4, 7, 7], [6, 2, 3, 3], [2, 6, 7, 7], GROUPED);
        conv2d_x_backward([1, 4, 9, 7], [8, 1, 3, 3], [1, 8, 4, 3], DEPTHWISE);
        conv2d_x_backward([1, 2, 5, 5], [3, 2, 1, 1], [1, 3, 7, 7], SAME);
        conv2d_x_backward([1, 2, 6, 7], [3, 2, 2, 1], [1, 3, 4, 6],
            Arg::Conv(&[2, 2], &[1, 2], &[1, 1], 1));
        conv2d_weight_backward([2, 3, 8, 8], [5, 3, 3, 3], [2, 5, 8, 8], SAME);
        conv2d_weight_backward([2, 3, 9, 8], [5, 3, 3, 2], [2, 5, 4, 10], MIXED);
        conv2d_weight_backward([64, 4, 8, 8], [6, 2, 3, 3], [64, 6, 8, 8], GROUPED);
        conv2d_weight_backward([3, 4, 9, 7], [8, 1, 3, 3], [3, 8, 4, 3], DEPTHWISE);
        conv2d_bias_backward([2, 3, 8, 8], [5], [2, 5, 8, 8]);
        conv1d([2, 3, 20], [5, 3, 4], [5], STRIDED_1D);
        conv1d([3, 4, 17], [6, 2, 3], _, GROUPED_1D);
        conv1d(permuted(&[2, 12, 4], &[0, 2, 1]), [6, 2, 3], [6], GROUPED_1D);
        conv1d_x_backward([2, 3, 20], [5, 3, 4], [2, 5, 10], STRIDED_1D);
        conv1d_x_backward([3, 4, 17], [6, 2, 3], [3, 6, 15], GROUPED_1D);
        conv1d_weight_backward([2, 3, 20], [5, 3, 4], [2, 5, 10], STRIDED_1D);
        conv1d_weight_backward([3, 4, 17], [6, 2, 3], [3, 6, 15], GROUPED_1D);
        conv1d_bias_backward([2, 3, 20], [5], [2, 5, 10]);
        conv3d([2, 3, 4, 5, 6], [5, 3, 3, 3, 3], [5], SAME_3D);
        conv3d([2, 3, 6, 7, 8], [4, 3, 2, 3, 4], _, MIXED_3D);
        conv3d([1, 4, 7, 6, 5], [6, 2, 3, 2, 3], [6], GROUPED_3D);
        conv3d([2, 4, 4, 5, 6], [4, 1, 3, 3, 2], [4], DEPTHWISE_3D);
        conv3d(permuted(&[2, 4, 5, 6, 3], &[0, 4, 1, 2, 3]), [4, 3, 1, 1, 1], _, SAME_3D);
        conv3d([2, 3, 1, 8, 8], [4, 3, 1, 3, 3], [4],
            Arg::Conv(&[1, 1, 1], &[0, 1, 1], &[1, 1, 1], 1));
        conv3d([1, 16, 12, 12, 12], [48, 16, 3, 3, 3], [48], SAME_3D);
        conv3d_x_backward([2, 3, 4, 5, 6], [5, 3, 3, 3, 3], [2, 5, 4, 5, 6], SAME_3D);
        conv3d_x_backward([2, 3, 6, 7, 8], [4, 3, 2, 3, 4], [2, 4, 4, 3, 3], MIXED_3D);
        conv3d_x_backward([1, 4, 7, 6, 5], [6, 2, 3, 2, 3], [1, 6, 3, 4, 5], GROUPED_3D);
        conv3d_weight_backward([2, 3, 4, 5, 6], [5, 3, 3, 3, 3], [2, 5, 4, 5, 6], SAME_3D);
        conv3d_weight_backward([2, 3, 6, 7, 8], [4, 3, 2, 3, 4], [2, 4, 4, 3, 3], MIXED_3D);
        conv3d_weight_backward([1, 4, 7, 6, 5], [6, 2, 3, 2, 3], [1, 6, 3, 4, 5], GROUPED_3D);
        conv3d_bias_backward([2, 3, 4, 5, 6], [5], [2, 5, 4, 5, 6]);
        conv_transpose1d([2, 3, 9], [3, 5, 4], [5], T_1D);
        conv_transpose1d([2, 4, 9], [4, 3, 3], _, T_GROUPED_1D);
        conv_transpose1d_x_backward([3, 5, 4], [2, 5, 28], T_1D);
        conv_transpose1d_weight_backward([2, 4, 9], [4, 3, 3], [2, 6, 21], T_GROUPED_1D);
        conv_transpose1d_bias_backward([2, 3, 9], [5], [2, 5, 28]);
        conv_transpose2d([2, 4, 5, 6], [4, 3, 3, 3], [3], T_2D);
        conv_transpose2d([2, 4, 5, 6], [4, 3, 2, 3], _, T_GROUPED_2D);
        conv_transpose2d_x_backward([4, 3, 3, 3], [2, 3, 10, 11], T_2D);
        // The output padding adds a row that no element of the input reaches.
        conv_transpose2d_x_backward([4, 3, 2, 3], [2, 6, 8, 11], T_GROUPED_2D);
        conv_transpose2d_weight_backward([2, 4, 5, 6], [4, 3, 3, 3], [2, 3, 10, 11], T_2D);
        conv_transpose2d_weight_backward([2, 4, 5, 6], [4, 3, 2, 3], [2, 6, 8, 11], T_GROUPED_2D);
        conv_transpose2d_bias_backward([2, 4, 5, 6], [3], [2, 3, 10, 11]);
        conv_transpose3d([2, 4, 3, 4, 5], [4, 3, 3, 2, 3], [3], T_3D);
        conv_transpose3d([1, 4, 3, 4, 5], [4, 3, 2, 3, 2], _, T_GROUPED_3D);
        conv_transpose3d_x_backward([4, 3, 2, 3, 2], [1, 6, 4, 8, 6], T_GROUPED_3D);
        conv_transpose3d_weight_backward([2, 4, 3, 4, 5], [4, 3, 3, 2, 3], [2, 3, 6, 6, 9], T_3D);
        conv_transpose3d_weight_backward([1, 4, 3, 4, 5], [4, 3, 2, 3, 2], [1, 6, 4, 8, 6],
            T_GROUPED_3D);
        conv_transpose3d_bias_backward([2, 4, 3, 4, 5], [3], [2, 3, 6, 6, 9]);
    }
};
