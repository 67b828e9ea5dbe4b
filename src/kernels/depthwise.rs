//! Depthwise convolutions: groups of one input channel, where a matrix product would leave most of its tile empty.

use super::cases::{Arg, Case, case, normal, permuted};
use super::geometry::{Geometry, Ground};
use super::reduce::{self, Reduction};
use super::{Launch, Params, copy, div_up};
use crate::runtime::{Source, Variant};
use crate::tensor::{DType, Result, Tensor};

static DEPTHWISE: Source =
    Source { name: "depthwise", text: include_str!("../../shaders/depthwise/depthwise.wgsl") };
static DEPTHWISE_WEIGHT_BACKWARD: Source = Source {
    name: "depthwise_weight_backward",
    text: include_str!("../../shaders/depthwise/depthwise_weight_backward.wgsl"),
};

/// The rows that one invocation makes: the lanes of a vector.
const LINES: usize = 4;

/// Whether a convolution has kernels of its own here.
pub(super) fn takes(g: &Geometry) -> bool {
    g.in_c == 1 && g.options.groups > 1
}

/// The convolution of `x` `[n, groups, d, h, w]` on its ground with a weight of `[groups * out_c, 1, ..]`, as `[n, groups * out_c, d, h, w]`.
pub(super) fn convolve(
    g: &Geometry,
    x: Tensor,
    ground: &Ground,
    weight: Tensor,
    bias: Option<Tensor>,
) -> Result<Tensor> {
    let (x, weight, bias) =
        (copy::packed(x)?, copy::packed(weight)?, bias.map(copy::packed).transpose()?);
    // Without a bias something must still be bound in its place.
    let inputs = [&x, &weight, bias.as_ref().unwrap_or(&weight)];
    let [d, h, w] = g.output;
    let channels = g.options.groups * g.out_c;
    let out = Tensor::empty(x.runtime(), &[g.images, channels, d, h, w], DType::F32, &inputs)?;
    let bundles = g.images * channels * d * h.div_ceil(LINES);
    Launch {
        variant: &variant(&DEPTHWISE, ground.step != [1; 3]),
        inputs: &inputs,
        outputs: &[&out],
        params: &params(g, &x, ground, [bundles, usize::from(bias.is_some()), 0]),
        groups: div_up(bundles * w, 64),
        work: 2 * (out.len() * g.taps()) as u64,
    }
    .run()?;
    Ok(out)
}

/// The gradient of [`convolve`], of `x` among zeros, with respect to its weight, as `[groups * out_c, taps]`.
pub(super) fn weight_backward(
    g: &Geometry,
    x: Tensor,
    ground: &Ground,
    grad: Tensor,
) -> Result<Tensor> {
    let (x, grad) = (copy::packed(x)?, copy::packed(grad)?);
    let rows = g.images * g.output[0] * g.output[1];
    let weights = g.options.groups * g.out_c * g.taps();
    // Enough invocations to fill the device.
    let enough = if x.runtime().is_software() { 1 << 10 } else { 1 << 16 };
    let rows_per_part = rows.div_ceil((enough / weights.max(1)).clamp(1, rows.max(1))).max(1);
    let parts = rows.div_ceil(rows_per_part).max(1);
    let inputs = [&x, &grad];
    let out = Tensor::empty(x.runtime(), &[parts, weights], DType::F32, &inputs)?;
    Launch {
        variant: &variant(&DEPTHWISE_WEIGHT_BACKWARD, false),
        inputs: &inputs,
        outputs: &[&out],
        params: &params(g, &x, ground, [out.len(), 0, rows_per_part]),
        groups: div_up(out.len(), 64),
        work: 2 * (weights * g.out_pixels()) as u64,
    }
    .run()?;
    if parts == 1 { Ok(out) } else { reduce::dim(Reduction::Sum, out, 0) }
}

/// The words of the shaders' `Params`.
fn params(
    g: &Geometry,
    x: &Tensor,
    ground: &Ground,
    [count, has_bias, rows_per_part]: [usize; 3],
) -> Params {
    let mut words: Params =
        [count, g.images, g.options.groups * g.out_c, g.out_c].iter().map(|&v| v as u32).collect();
    let input = [2, 3, 4].map(|axis| x.shape()[axis]);
    words.extend(g.words(input));
    words.extend(ground.start.map(|v| v as i32 as u32));
    words.push(has_bias as u32);
    words.extend(ground.step.map(|v| v as u32));
    words.push(rows_per_part as u32);
    words
}

fn variant(source: &'static Source, spread: bool) -> Variant {
    Variant::new(source).int("LINES", LINES as u32).flag("SPREAD", spread)
}

/// Every variant that can be asked for.
pub fn variants() -> Vec<Variant> {
    vec![
        variant(&DEPTHWISE, false),
        variant(&DEPTHWISE, true),
        variant(&DEPTHWISE_WEIGHT_BACKWARD, false),
    ]
}

/// What the family must pass.
pub const CASES: &[Case] = {
    const SAME: Arg = Arg::Conv(&[1, 1], &[1, 1], &[1, 1], 6);
    const STRIDED: Arg = Arg::Conv(&[2, 1], &[2, 0], &[1, 2], 3);
    const LINE: Arg = Arg::Conv(&[2], &[1], &[1], 5);
    const CUBE: Arg = Arg::Conv(&[1, 2, 1], &[1, 0, 1], &[1, 1, 2], 2);
    const T_SAME: Arg = Arg::ConvTransposed(&[2, 3], &[1, 1], &[1, 0], &[1, 2], 4);
    &[
        case("conv2d", &[normal(&[2, 6, 9, 11]), normal(&[6, 1, 3, 3]), normal(&[6]), SAME]),
        case(
            "conv2d",
            &[permuted(&[2, 9, 8, 3], &[0, 3, 1, 2]), normal(&[6, 1, 5, 2]), Arg::Without, STRIDED],
        ),
        case("conv1d", &[normal(&[3, 5, 12]), normal(&[5, 1, 3]), normal(&[5]), LINE]),
        case("conv3d", &[normal(&[2, 2, 4, 7, 6]), normal(&[4, 1, 3, 2, 3]), normal(&[4]), CUBE]),
        case(
            "conv_transpose2d",
            &[normal(&[2, 4, 5, 4]), normal(&[4, 1, 3, 3]), normal(&[4]), T_SAME],
        ),
        case(
            "conv2d_x_backward",
            &[normal(&[2, 6, 9, 11]), normal(&[6, 1, 3, 3]), normal(&[2, 6, 9, 11]), SAME],
        ),
        case(
            "conv2d_weight_backward",
            &[normal(&[2, 6, 9, 11]), normal(&[6, 1, 3, 3]), normal(&[2, 6, 9, 11]), SAME],
        ),
        case(
            "conv2d_weight_backward",
            &[normal(&[2, 3, 9, 8]), normal(&[6, 1, 5, 2]), normal(&[2, 6, 5, 6]), STRIDED],
        ),
    ]
};
