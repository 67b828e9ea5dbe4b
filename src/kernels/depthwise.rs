//! Depthwise convolutions: groups of one input channel, where a matrix product would leave most of
//! its tile unused.

use crate::kernels::conv::geometry::{ConvGeometry, Window};
use crate::kernels::conv::padded_input::PaddedInput;
use crate::kernels::launch::{Launch, PendingResult, variants_of, workgroups_for};
use crate::kernels::ops::cases::{Arg, Case, cases, permuted};
use crate::kernels::reduce::{self, Reduction};
use crate::kernels::{policy, views};
use crate::params;
use crate::runtime::{Fragment, Kernel, Source, Variant, wgsl};
use crate::tensor::{DType, Result, Tensor};

/// The fragments of the shaders.
const FRAGMENTS: &[Fragment] = &[("lib/depthwise", wgsl!("../../shaders/lib/depthwise.wgsl"))];

static DEPTHWISE: Source =
    Source::new::<DepthwiseParams>("depthwise", wgsl!("../../shaders/depthwise/depthwise.wgsl"))
        .with_fragments(FRAGMENTS);
static DEPTHWISE_WEIGHT_BACKWARD: Source = Source::new::<DepthwiseParams>(
    "depthwise_weight_backward",
    wgsl!("../../shaders/depthwise/depthwise_weight_backward.wgsl"),
)
.with_fragments(FRAGMENTS);

params! {
    struct DepthwiseParams {
        count: u32,
        images: u32,
        channels: u32,
        multiplier: u32,
        window: Window,
        start_d: i32,
        start_h: i32,
        start_w: i32,
        has_bias: u32,
        step_d: u32,
        step_h: u32,
        step_w: u32,
        rows_per_split: u32,
    }
}

/// Rows that one invocation computes, as the components of a vec4.
const ROWS: usize = 4;

/// The kernel of the convolution.
#[derive(Debug, Clone, Copy, Hash)]
struct DepthwiseKernel {
    /// Whether the padded input has zeros between the pixels of `x`.
    spread: bool,
}

impl Kernel for DepthwiseKernel {
    type Params = DepthwiseParams;

    fn variant(&self) -> Variant {
        Variant::new(&DEPTHWISE).int("ROWS", ROWS as u32).flag("SPREAD", self.spread)
    }
}

/// The kernel of the gradient of the weight, which has a single variant.
#[derive(Debug, Clone, Copy, Hash)]
struct DepthwiseWeightBackwardKernel;

impl Kernel for DepthwiseWeightBackwardKernel {
    type Params = DepthwiseParams;

    fn variant(&self) -> Variant {
        Variant::new(&DEPTHWISE_WEIGHT_BACKWARD).int("ROWS", ROWS as u32)
    }
}

/// Returns whether a convolution is depthwise.
pub(super) fn applies(g: &ConvGeometry) -> bool {
    g.in_channels == 1 && g.options.groups > 1
}

/// Computes the convolution of the padded `x` `[n, groups, d, h, w]` with a weight `[groups *
/// out_channels, 1, ..]`: `[n, groups * out_channels, d, h, w]`.
pub(super) fn convolve(
    g: &ConvGeometry,
    x: Tensor,
    padded: &PaddedInput,
    weight: Tensor,
    bias: Option<Tensor>,
) -> Result<Tensor> {
    let (x, weight) = (views::packed(x)?, views::packed(weight)?);
    let bias = bias.map(views::packed).transpose()?;
    // The layout requires a bias binding; without a bias it is the weight.
    let inputs = [&x, &weight, bias.as_ref().unwrap_or(&weight)];
    let [d, h, w] = g.output;
    let channels = g.all_out_channels();
    let shape = [g.images, channels, d, h, w];
    let count = g.images * channels * d * h.div_ceil(ROWS) * w;
    Launch {
        kernel: &DepthwiseKernel { spread: padded.step != [1; 3] },
        inputs: &inputs,
        outputs: &[],
        params: &DepthwiseParams {
            has_bias: u32::from(bias.is_some()),
            ..params(g, &x, padded, count, 0)
        },
        workgroups: workgroups_for(count),
        work: 2 * shape.iter().product::<usize>() as u64 * g.taps() as u64,
        rounds: Some((g.taps() + ROWS) as u64),
    }
    .defer(&PendingResult::scalars(x.runtime(), &shape, DType::F32))
}

/// Computes the gradient of [`convolve`] with respect to its weight: `[groups * out_channels,
/// taps]`.
pub(super) fn weight_backward(
    g: &ConvGeometry,
    x: Tensor,
    padded: &PaddedInput,
    grad: Tensor,
) -> Result<Tensor> {
    let (x, grad) = (views::packed(x)?, views::packed(grad)?);
    let rows = g.images * g.output[0] * g.output[1];
    let weights = g.all_out_channels() * g.taps();
    let max_splits = policy::of(x.runtime()).busy_invocations() / weights.max(1);
    let rows_per_split = rows.div_ceil(max_splits.clamp(1, rows.max(1)));
    let rounds_per_row = g.output[2] + 2;
    let rows_per_split =
        rows_per_split.min(policy::max_rounds(x.runtime()) / rounds_per_row).max(1);
    let splits = rows.div_ceil(rows_per_split).max(1);
    let inputs = [&x, &grad];
    let out = Tensor::empty(x.runtime(), &[splits, weights], DType::F32)?;
    Launch {
        kernel: &DepthwiseWeightBackwardKernel,
        inputs: &inputs,
        outputs: &[&out],
        params: &params(g, &x, padded, out.len(), rows_per_split),
        workgroups: workgroups_for(out.len()),
        work: 2 * weights as u64 * g.out_pixels() as u64,
        rounds: Some((rows_per_split * rounds_per_row) as u64),
    }
    .run()?;
    if splits == 1 { Ok(out) } else { reduce::dim(Reduction::Sum, out, 0) }
}

/// Returns the parameters of a kernel with `count` invocations, without a bias.
fn params(
    g: &ConvGeometry,
    x: &Tensor,
    padded: &PaddedInput,
    count: usize,
    rows_per_split: usize,
) -> DepthwiseParams {
    let [start_d, start_h, start_w] = padded.start.map(|start| start as i32);
    let [step_d, step_h, step_w] = padded.step.map(|step| step as u32);
    DepthwiseParams {
        count: count as u32,
        images: g.images as u32,
        channels: g.all_out_channels() as u32,
        multiplier: g.out_channels as u32,
        window: g.window([2, 3, 4].map(|axis| x.shape()[axis])),
        start_d,
        start_h,
        start_w,
        has_bias: 0,
        step_d,
        step_h,
        step_w,
        rows_per_split: rows_per_split as u32,
    }
}

/// Returns every variant that the family can dispatch.
pub fn variants() -> Vec<Variant> {
    let convolutions = variants_of([false, true].map(|spread| DepthwiseKernel { spread }));
    [convolutions, variants_of([DepthwiseWeightBackwardKernel])].concat()
}

/// The cases that the family must pass.
pub const CASES: &[Case] = {
    const SAME: Arg = Arg::Conv(&[1, 1], &[1, 1], &[1, 1], 6);
    const MIXED: Arg = Arg::Conv(&[2, 1], &[2, 0], &[1, 2], 3);
    const STRIDED_1D: Arg = Arg::Conv(&[2], &[1], &[1], 5);
    const MIXED_3D: Arg = Arg::Conv(&[1, 2, 1], &[1, 0, 1], &[1, 1, 2], 2);
    const TRANSPOSED: Arg = Arg::ConvTransposed(&[2, 3], &[1, 1], &[1, 0], &[1, 2], 4);
    cases! {
        conv2d([2, 6, 9, 11], [6, 1, 3, 3], [6], SAME);
        conv2d(permuted(&[2, 9, 8, 3], &[0, 3, 1, 2]), [6, 1, 5, 2], _, MIXED);
        conv1d([3, 5, 12], [5, 1, 3], [5], STRIDED_1D);
        conv3d([2, 2, 4, 7, 6], [4, 1, 3, 2, 3], [4], MIXED_3D);
        conv_transpose2d([2, 4, 5, 4], [4, 1, 3, 3], [4], TRANSPOSED);
        conv2d_x_backward([2, 6, 9, 11], [6, 1, 3, 3], [2, 6, 9, 11], SAME);
        conv2d_weight_backward([2, 6, 9, 11], [6, 1, 3, 3], [2, 6, 9, 11], SAME);
        conv2d_weight_backward([2, 3, 9, 8], [6, 1, 5, 2], [2, 6, 5, 6], MIXED);
    }
};
