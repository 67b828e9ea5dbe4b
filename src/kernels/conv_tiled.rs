//! Convolutions on GPUs: matrix products in tiles whose right operand, the windows of a tensor, is
//! gathered while it is loaded. Tensors are read where they are: there are no copies that are padded
//! or in another order, but for weights.
//!
//! A transposed convolution does not multiply the zeros that a stride leaves between its elements:
//! elements of the result that are reached by the same taps are a phase, and every phase is a product
//! with those taps.

use std::sync::Arc;

use crate::device::{Limits, Units};
use crate::kernels::conv::definition::{ConvDefinition, SumOf};
use crate::kernels::conv::geometry::{ConvGeometry, Window};
use crate::kernels::fusion::{epilogue, prologue};
use crate::kernels::gemm::units::{self, UnitsKernel, units_for};
use crate::kernels::gemm::{self, Gemm, GemmOperands, GemmParams, Tiling};
use crate::kernels::launch::{Launch, PendingResult, variants_of};
use crate::kernels::ops::cases::{Arg, Case, cases};
use crate::kernels::ops::options::ConvOptions;
use crate::kernels::ops::table::rows;
use crate::kernels::policy::strategy::{GemmSizes, Strategy, Tile};
use crate::kernels::{cast, elementwise, matmul, views};
use crate::params;
use crate::runtime::{Fragment, Kernel, Runtime, Source, Variant, wgsl};
use crate::tensor::{DType, Layout, Result, Shape, Tensor};

/// The fragments of the shaders.
const FRAGMENTS: &[Fragment] = &[("lib/conv_tiled", wgsl!("../../shaders/lib/conv_tiled.wgsl"))];

static CONV_TILED: Source =
    Source::new::<ConvTiledParams>("conv_tiled", wgsl!("../../shaders/conv_tiled/conv_tiled.wgsl"))
        .with_fragments(FRAGMENTS);
static CONV_TILED_WEIGHT_BACKWARD: Source = Source::new::<ConvTiledParams>(
    "conv_tiled_weight_backward",
    wgsl!("../../shaders/conv_tiled/conv_tiled_weight_backward.wgsl"),
)
.with_fragments(FRAGMENTS);

params! {
    struct ConvTiledParams {
        gemm: GemmParams,
        groups: u32,
        channels: u32,
        has_bias: u32,
        padding_d: u32,
        padding_h: u32,
        padding_w: u32,
        period_d: u32,
        period_h: u32,
        period_w: u32,
        tap_d: i32,
        tap_h: i32,
        tap_w: i32,
        phases_d: u32,
        phases_h: u32,
        phases_w: u32,
        pad0: u32,
        window: Window,
    }
}

/// The kernels compute indices of taps exactly for fewer taps than these.
pub(super) const MAX_TAPS: usize = 1 << 19;

/// The kernels of a convolution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum ConvPass {
    /// The output.
    Forward,
    /// The transpose: the gradient of the input.
    Transposed,
    /// The gradient of the weight. The gradient of the output is read in vec4s or element by element.
    WeightBackward { vec4: bool },
}

/// The kernel of a pass.
#[derive(Debug, Clone, Copy, Hash)]
struct ConvTiledKernel {
    pass: ConvPass,
    /// Whether the steps of k in workgroup memory are of one tap: see [`ConvPass::has_uniform_tap`]. Only
    /// with matrix units, because other kernels gain little or lose occupancy.
    uniform_tap: bool,
    /// Whether a depth is above 1.
    volume: bool,
    /// The mapping of the product to workgroups.
    tiling: Tiling,
    /// Whether the result is stored in vec4s.
    out_vec4: bool,
    /// The type of 16-bit operands, which need matrix units; `None` for f32.
    half: Option<DType>,
}

impl Kernel for ConvTiledKernel {
    type Params = ConvTiledParams;

    fn variant(&self) -> Variant {
        let Self { pass, uniform_tap, volume, tiling, out_vec4, half } = *self;
        let has_taps = pass.has_taps_in_k();
        let source = if has_taps { &CONV_TILED } else { &CONV_TILED_WEIGHT_BACKWARD };
        let operands = GemmOperands {
            vec4: pass != ConvPass::WeightBackward { vec4: false },
            a_transposed: false,
            b_transposed: true,
            half,
            gathered: true,
        };
        gemm::define(Variant::new(source), tiling, operands)
            .flag("BIAS", has_taps)
            .flag("ROW_BIAS", true)
            .flag("GATHERED", true)
            .flag("UNIFORM_TAP", uniform_tap)
            .flag("TRANSPOSED", pass == ConvPass::Transposed)
            .flag("HOLES", pass == ConvPass::Transposed && !out_vec4)
            .flag("VOLUME", volume)
            .flag("OUT_VEC4", out_vec4)
    }
}

impl ConvPass {
    /// Returns whether the channels of a tap are a multiple of the steps of k that each kernel has
    /// in workgroup memory. Then these are of one tap, whichever tile is chosen.
    fn has_uniform_tap(self, g: &ConvGeometry) -> bool {
        let channels = if self == Self::Transposed { g.out_channels } else { g.in_channels };
        self.has_taps_in_k() && channels.is_multiple_of(gemm::MAX_STEPS as usize)
    }

    /// Returns whether the steps of k are the channels of each tap.
    fn has_taps_in_k(self) -> bool {
        !matches!(self, Self::WeightBackward { .. })
    }

    /// Returns the operands of a product, packed, and the matrix units that multiply them, if there
    /// are any. `forced`: units to use without a test.
    fn operands(
        self,
        g: &ConvGeometry,
        plan: &Gemm,
        [a, b]: [Tensor; 2],
        forced: Option<Units>,
    ) -> Result<ConvOperands> {
        let can_use_units = !is_volume(g) && plan.k > 0;
        let has_uniform_tap = self.has_uniform_tap(g);
        let units_of = |dtype| {
            if let Some(units) = forced {
                return Some((has_uniform_tap, units));
            }
            if !can_use_units {
                return None;
            }
            let of_kernel = |uniform_tap| {
                let kernel = ConvWithUnits { pass: self, uniform_tap, strategy: plan.strategy };
                Some((uniform_tap, units_for(a.runtime(), dtype, &kernel)?))
            };
            // A driver may compute the kernel with a uniform tap wrong, and the other one right.
            let uniform = if has_uniform_tap { of_kernel(true) } else { None };
            uniform.or_else(|| of_kernel(false))
        };
        let mut found = if a.dtype() == b.dtype() { units_of(a.dtype()) } else { None };
        let half = Some(a.dtype()).filter(|dtype| dtype.is_half() && found.is_some());
        if half.is_none() {
            found = units_of(DType::F32);
        }
        let (uniform_tap, units) = found.unzip();
        let uniform_tap = uniform_tap.unwrap_or(false);
        Ok(ConvOperands { a: views::packed(a)?, b: views::packed(b)?, units, uniform_tap, half })
    }

    /// Runs the product of a and the windows of b, and sums its splits. The result has the shape
    /// `shape`. `channels` are those of a group of b.
    fn run(
        self,
        g: &ConvGeometry,
        plan: &Gemm,
        channels: usize,
        operands: &ConvOperands,
        bias: Option<&Tensor>,
        shape: &[usize],
    ) -> Result<Tensor> {
        let ConvOperands { units, uniform_tap, half, .. } = operands;
        let [a, b] = &operands.as_read()?;
        let runtime = a.runtime();
        let len: usize = shape.iter().product();
        let out_vec4 = match self {
            Self::Forward => plan.n.is_multiple_of(4 * g.images.max(1)),
            // Neighbours of a phase are neighbours in memory.
            Self::Transposed => {
                g.options.stride == [1; 3] && plan.n.is_multiple_of(4 * g.images.max(1))
            }
            Self::WeightBackward { .. } => plan.n.is_multiple_of(4),
        };
        let tiling = plan.tiling(runtime, true, *units);
        let (workgroups, params) = plan.params(tiling);
        let [padding_d, padding_h, padding_w] = g.options.padding.map(|padding| padding as u32);
        let (periods, distances) = match self {
            Self::Transposed => {
                let periods = tap_periods(g);
                let ConvOptions { stride, dilation, .. } = g.options;
                let distance = |axis: usize| periods[axis] * dilation[axis] / stride[axis];
                (periods, [0, 1, 2].map(|axis| -(distance(axis) as i32)))
            }
            _ => ([1; 3], g.options.dilation.map(|dilation| dilation as i32)),
        };
        let ([period_d, period_h, period_w], [tap_d, tap_h, tap_w]) =
            (periods.map(|period| period as u32), distances);
        let [phases_d, phases_h, phases_w] = phases(g).map(|count| count as u32);
        // The layout requires a bias binding; without a bias it is a, as it is stored.
        let stored_a = if a.pending().is_some() { &operands.a } else { a };
        let inputs = [a, b, bias.unwrap_or(stored_a)];
        let used = if self.has_taps_in_k() { 3 } else { 2 };
        let out = Launch {
            kernel: &ConvTiledKernel {
                pass: self,
                uniform_tap: *uniform_tap,
                volume: is_volume(g),
                tiling,
                out_vec4,
                half: *half,
            },
            inputs: &inputs[..used],
            outputs: &[],
            params: &ConvTiledParams {
                gemm: params,
                groups: g.options.groups as u32,
                channels: channels as u32,
                has_bias: u32::from(bias.is_some()),
                padding_d,
                padding_h,
                padding_w,
                period_d,
                period_h,
                period_w,
                tap_d,
                tap_h,
                tap_w,
                phases_d,
                phases_h,
                phases_w,
                pad0: 0,
                window: g.window(unpadded_input(g)),
            },
            workgroups,
            work: plan.work(),
            rounds: Some(plan.rounds(tiling, true)),
        }
        .defer(&PendingResult {
            vec4: out_vec4,
            large_kernel: true,
            prologues: &prologue::conversions(&inputs[..2]),
            ..PendingResult::scalars(runtime, &[plan.splits, len], DType::F32)
        })?;
        plan.sum_splits(out, shape)
    }

    /// Runs a product with windows and adds the bias, of one element per row of each group.
    fn run_with_bias(
        self,
        g: &ConvGeometry,
        mut plan: Gemm,
        channels: usize,
        operands: &ConvOperands,
        bias: Option<Tensor>,
        shape: &[usize],
    ) -> Result<Tensor> {
        plan.splits = plan.wanted_splits(operands.b.runtime());
        let mut bias =
            bias.map(cast::to_compute_type).transpose()?.map(views::packed).transpose()?;
        // A bias is added after the splits are summed.
        let added = bias.take_if(|_| plan.splits > 1);
        let out = self.run(g, &plan, channels, operands, bias.as_ref(), shape)?;
        let Some(bias) = added else { return Ok(out) };
        let mut per_channel: Shape = shape.iter().map(|_| 1).collect();
        per_channel[1] = shape[1];
        let bias = views::expand(bias.view(Layout::contiguous(&per_channel)), shape)?;
        elementwise::binary(&rows::float_add, out, bias)
    }
}

/// The operands of a product, packed.
struct ConvOperands {
    a: Tensor,
    b: Tensor,
    /// The matrix units that multiply them.
    units: Option<Units>,
    /// As in [`ConvTiledKernel`].
    uniform_tap: bool,
    /// The type of 16-bit operands that are multiplied as they are; `None` if the kernel converts them.
    half: Option<DType>,
}

impl ConvOperands {
    /// Returns both as the kernel multiplies them. It reads 16-bit operands as they are stored.
    fn as_read(&self) -> Result<[Tensor; 2]> {
        let read = |tensor: &Tensor| match self.half.is_none() && tensor.dtype().is_half() {
            true => cast::widened(tensor),
            false => Ok(tensor.clone()),
        };
        // What the operands wait for is computed first, so that only the conversion is pending.
        self.a.buffer()?;
        self.b.buffer()?;
        Ok([read(&self.a)?, read(&self.b)?])
    }
}

/// Returns whether a depth is above 1.
fn is_volume(g: &ConvGeometry) -> bool {
    g.input[0] > 1 || g.output[0] > 1 || g.kernel[0] > 1
}

/// Returns the size of the input without its padding.
fn unpadded_input(g: &ConvGeometry) -> [usize; 3] {
    [0, 1, 2].map(|axis| g.input[axis] - 2 * g.options.padding[axis])
}

/// Returns the number of phases of a transposed convolution along each axis.
fn phases(g: &ConvGeometry) -> [usize; 3] {
    let size = unpadded_input(g);
    [0, 1, 2].map(|axis| g.options.stride[axis].min(size[axis].max(1)))
}

/// Returns the distance between the taps that reach the same element of the input along each axis.
fn tap_periods(g: &ConvGeometry) -> [usize; 3] {
    [0, 1, 2].map(|axis| {
        let (mut divisor, mut rest) = (g.options.stride[axis], g.options.dilation[axis]);
        while rest > 0 {
            (divisor, rest) = (rest, divisor % rest);
        }
        g.options.stride[axis] / divisor
    })
}

/// Computes the convolution of `x` `[n, groups * c, ..]` with `weight` `[groups * o, c, ..]`.
/// `forced`: matrix units to use without a test, as in the functions below.
pub(super) fn convolve(
    g: &ConvGeometry,
    x: Tensor,
    weight: Tensor,
    bias: Option<Tensor>,
    strategy: Strategy,
    forced: Option<Units>,
) -> Result<Tensor> {
    let (groups, taps, channels) = (g.options.groups, g.taps(), g.in_channels);
    let inner = channels.next_multiple_of(4);
    let sizes = GemmSizes { batch: groups, m: g.out_channels, n: g.out_pixels(), k: inner * taps };
    let plan = Gemm { inner, outer: taps, ..Gemm::new(sizes, strategy, x.dtype()) };
    let mut operands = ConvPass::Forward.operands(g, &plan, [weight, x], forced)?;
    let weight = views::reshape(operands.a, &[groups, g.out_channels, channels, taps])?;
    operands.a = channels_last(weight)?;
    let shape = g.shape([g.images, g.all_out_channels()], g.output);
    ConvPass::Forward.run_with_bias(g, plan, channels, &operands, bias, &shape)
}

/// Computes the transpose of the convolution `g`, of `grad` `[n, groups * o, ..]` with `weight`
/// `[groups * o, c, ..]`.
pub(super) fn transpose(
    g: &ConvGeometry,
    grad: Tensor,
    weight: Tensor,
    bias: Option<Tensor>,
    strategy: Strategy,
    forced: Option<Units>,
) -> Result<Tensor> {
    let (groups, taps, rows) = (g.options.groups, g.taps(), g.in_channels);
    let size = unpadded_input(g);
    let phases: usize = phases(g).iter().product();
    let pixels: usize = (0..3).map(|axis| size[axis].div_ceil(g.options.stride[axis])).product();
    // The largest number of taps of a phase.
    let periods = tap_periods(g);
    let taps_of_phase: usize = (0..3).map(|axis| g.kernel[axis].div_ceil(periods[axis])).product();
    let inner = g.out_channels.next_multiple_of(4);
    let (batch, n) = (groups * phases, g.images * pixels);
    let sizes = GemmSizes { batch, m: rows, n, k: inner * taps_of_phase };
    // A phase is smaller than the convolution for which the strategy was chosen.
    let strategy = match forced {
        None => Some(matmul::choose_strategy(grad.runtime(), sizes, grad.dtype()))
            .filter(|strategy| strategy.is_tiled())
            .unwrap_or(strategy),
        Some(_) => strategy,
    };
    let plan = Gemm { inner, outer: taps_of_phase, ..Gemm::new(sizes, strategy, grad.dtype()) };
    let mut operands = ConvPass::Transposed.operands(g, &plan, [weight, grad], forced)?;
    let weight = views::reshape(operands.a, &[groups, g.out_channels, rows, taps])?;
    operands.a = channels_last(views::swap_dims(weight, 1, 2)?)?;
    let shape = g.shape([g.images, groups * rows], size);
    ConvPass::Transposed.run_with_bias(g, plan, g.out_channels, &operands, bias, &shape)
}

/// Returns a weight `[groups, o, c, taps]` as `[groups, o, taps, c]`, with channels padded for vec4s.
fn channels_last(weight: Tensor) -> Result<Tensor> {
    views::packed(gemm::padded_to_vec4(views::swap_dims(weight, 2, 3)?, &[3])?)
}

/// Computes the gradient of [`convolve`] with respect to its weight, whose shape is `weight`.
pub(super) fn weight_backward(
    g: &ConvGeometry,
    x: Tensor,
    weight: &[usize],
    grad: Tensor,
    strategy: Strategy,
    forced: Option<Units>,
) -> Result<Tensor> {
    let (groups, taps) = (g.options.groups, g.taps());
    let [d, h, w] = g.output;
    let (inner, outer) = (w.next_multiple_of(4), g.images * d * h);
    let sizes =
        GemmSizes { batch: groups, m: g.out_channels, n: g.in_channels * taps, k: inner * outer };
    let mut plan = Gemm { inner, outer, ..Gemm::new(sizes, strategy, x.dtype()) };
    plan.splits = plan.wanted_splits(x.runtime());
    let pass = ConvPass::WeightBackward { vec4: w.is_multiple_of(4) };
    let operands = pass.operands(g, &plan, [grad, x], forced)?;
    pass.run(g, &plan, g.in_channels, &operands, None, weight)
}

/// The convolutions with matrix units: each kernel of each pass with each strategy.
#[derive(Debug, Clone, Copy)]
struct ConvWithUnits {
    pass: ConvPass,
    /// As in [`ConvTiledKernel`].
    uniform_tap: bool,
    strategy: Strategy,
}

impl UnitsKernel for ConvWithUnits {
    fn fits(&self, limits: &Limits, units: Units, dtype: DType) -> bool {
        gemm::units_fit(limits, Tile::SMALLEST, units, dtype.size() as u32)
    }

    fn number(&self, dtype: DType) -> u32 {
        let kernel = match self.pass {
            ConvPass::Forward => u32::from(self.uniform_tap),
            ConvPass::Transposed => 2 + u32::from(self.uniform_tap),
            ConvPass::WeightBackward { .. } => 4,
        };
        let tile = self.strategy.tile_index() as u32;
        tile << 4 | u32::from(dtype == DType::F32) << 3 | kernel
    }

    fn name(&self) -> String {
        let pass = match self.pass {
            ConvPass::Forward => "convolution",
            ConvPass::Transposed => "transposed convolution",
            ConvPass::WeightBackward { .. } => "weight gradient",
        };
        let tap = if self.uniform_tap { ", uniform tap" } else { "" };
        format!("{pass} {:?}{tap}", self.strategy)
    }

    /// Convolves integers, whose products and sums are exact in f32, but not in types with fewer
    /// bits: see [`units::integer`]. Sizes are not multiples of a tile. With a uniform tap, channels are a
    /// multiple of the steps in workgroup memory.
    fn is_right(&self, runtime: &Arc<Runtime>, dtype: DType, units: Units) -> Result<bool> {
        let shared = if self.uniform_tap { 2 * gemm::MAX_STEPS as usize } else { 36 };
        let sum = match self.pass {
            ConvPass::Forward => SumOf::Output,
            ConvPass::Transposed => SumOf::Input,
            ConvPass::WeightBackward { .. } => SumOf::Weight,
        };
        let test = ConvDefinition::new(sum, shared, dtype);
        let upload = |shape: [usize; 4], values: &[f32]| {
            units::upload(runtime, &shape, dtype, values.iter().copied())
        };
        let [x, weight, grad] = [
            upload(test.shape_of_x, &test.x),
            upload(test.shape_of_weight, &test.weight),
            upload(test.shape_of_out, &test.grad),
        ];
        let options =
            ConvOptions { stride: [1; 3], padding: [0, 1, 1], dilation: [1; 3], groups: 1 };
        let g = ConvGeometry::new(&test.shape_of_x, &test.shape_of_weight, options)?;
        let (strategy, forced) = (self.strategy, Some(units));
        let found = match self.pass {
            ConvPass::Forward => convolve(&g, x?, weight?, None, strategy, forced)?,
            ConvPass::Transposed => transpose(&g, grad?, weight?, None, strategy, forced)?,
            ConvPass::WeightBackward { .. } => {
                weight_backward(&g, x?, &test.shape_of_weight, grad?, strategy, forced)?
            }
        };
        let found = units::download(&found)?;
        Ok(found == test.expected(found.len()))
    }
}

/// Returns every variant that the family can dispatch.
pub fn variants() -> Vec<Variant> {
    let passes = [
        ConvPass::Forward,
        ConvPass::Transposed,
        ConvPass::WeightBackward { vec4: true },
        ConvPass::WeightBackward { vec4: false },
    ];
    let mut kernels = Vec::new();
    for pass in passes {
        for (tile, bits) in
            Tile::ALL.into_iter().flat_map(|tile| (0..4).map(move |bits| (tile, bits)))
        {
            let (volume, out_vec4) = (bits & 1 == 1, bits & 2 == 2);
            let kernel = ConvTiledKernel {
                pass,
                uniform_tap: false,
                volume,
                tiling: Tiling::Tiled { tile },
                out_vec4,
                half: None,
            };
            kernels.push(kernel);
        }
        for (tiling, operands) in gemm::all_with_units() {
            let GemmOperands { a_transposed, b_transposed, half, .. } = operands;
            if (a_transposed, b_transposed) != (false, true) {
                continue;
            }
            for (uniform_tap, out_vec4) in
                [(false, false), (false, true), (true, false), (true, true)]
            {
                if uniform_tap && !pass.has_taps_in_k() {
                    continue;
                }
                let volume = false;
                kernels.push(ConvTiledKernel { pass, uniform_tap, volume, tiling, out_vec4, half });
            }
        }
    }
    let with_epilogue = epilogue::samples(kernels.iter().copied());
    let of_f32 = kernels.iter().copied();
    let of_f32: Vec<_> = of_f32.filter(|kernel| kernel.half.is_none()).collect();
    let with_prologue = [0, 1].map(|input| prologue::samples_of_conversions(&of_f32, input));
    [variants_of(kernels), with_epilogue, with_prologue.concat()].concat()
}

/// The cases that the family must pass.
pub const CASES: &[Case] = {
    const SAME: Arg = Arg::Conv(&[1, 1], &[1, 1], &[1, 1], 1);
    const STRIDED: Arg = Arg::Conv(&[2, 2], &[1, 1], &[1, 1], 1);
    const MIXED: Arg = Arg::Conv(&[3, 2], &[2, 0], &[1, 3], 2);
    // The taps of an element are as far apart as the stride, and others have none.
    const SPARSE: Arg = Arg::Conv(&[2, 4], &[1, 2], &[2, 2], 1);
    const STRIDED_1D: Arg = Arg::Conv(&[3], &[2], &[2], 1);
    const STRIDED_3D: Arg = Arg::Conv(&[2, 1, 2], &[1, 1, 0], &[1, 2, 1], 1);
    const T_MIXED: Arg = Arg::ConvTransposed(&[3, 2], &[1, 0], &[1, 0], &[2, 1], 2);
    const T_3D: Arg = Arg::ConvTransposed(&[1, 2, 2], &[0, 1, 1], &[0, 1, 0], &[1, 1, 1], 1);
    const PADDED_DEPTH: Arg = Arg::Conv(&[3, 1, 1], &[1, 1, 1], &[1, 1, 1], 1);
    const FAR: Arg = Arg::Conv(&[100, 65536], &[0, 0], &[1, 1], 1);
    const SAME_3D: Arg = Arg::Conv(&[1, 1, 1], &[1, 1, 1], &[1, 1, 1], 1);
    cases! {
        // Around the edges of tiles: 65 and 130 channels, 63 to 132 pixels.
        conv2d([1, 5, 9, 7], [65, 5, 3, 3], [65], SAME);
        conv2d([3, 4, 4, 11], [130, 4, 3, 3], _, SAME);
        conv2d([2, 8, 16, 12], [6, 8, 5, 2], [6], STRIDED);
        // The depth of the input is 1, but windows start in its padding.
        conv3d([1, 2, 1, 3, 3], [4, 2, 1, 3, 3], [4], PADDED_DEPTH);
        conv3d_x_backward([1, 2, 1, 3, 3], [4, 2, 1, 3, 3], [1, 4, 1, 3, 3], PADDED_DEPTH);
        conv3d_weight_backward([1, 2, 1, 3, 3], [4, 2, 1, 3, 3], [1, 4, 1, 3, 3], PADDED_DEPTH);
        // The stride is larger than the input: phases without elements.
        conv2d_x_backward([1, 8, 4, 5], [3, 8, 2, 2], [1, 3, 1, 1], FAR);
        conv2d([2, 6, 10, 13], [4, 3, 2, 3], [4], MIXED);
        // k is split, and the bias is added after that.
        conv2d([1, 130, 5, 5], [7, 130, 3, 3], [7], SAME);
        conv3d([2, 3, 5, 6, 7], [5, 3, 3, 2, 3], [5], SAME_3D);
        conv3d([2, 4, 5, 6, 8], [5, 4, 3, 2, 2], _, STRIDED_3D);
        conv2d_x_backward([2, 65, 9, 8], [6, 65, 3, 3], [2, 6, 5, 4], STRIDED);
        conv2d_x_backward([3, 4, 8, 8], [6, 4, 1, 1], [3, 6, 5, 5], STRIDED);
        conv2d_x_backward([2, 6, 10, 13], [4, 3, 2, 3], [2, 4, 5, 4], MIXED);
        conv2d_x_backward([2, 3, 9, 14], [5, 3, 4, 3], [2, 5, 3, 4], SPARSE);
        conv2d_x_backward([1, 8, 4, 6], [130, 8, 3, 3], [1, 130, 4, 6], SAME);
        conv1d_x_backward([2, 5, 19], [3, 5, 5], [2, 3, 5], STRIDED_1D);
        conv3d_x_backward([2, 4, 5, 6, 8], [5, 4, 3, 2, 2], [2, 5, 3, 6, 4], STRIDED_3D);
        conv_transpose2d([2, 4, 5, 6], [4, 3, 4, 3], [6], T_MIXED);
        conv_transpose3d([1, 4, 3, 4, 5], [4, 3, 2, 3, 2], [3], T_3D);
        conv2d_weight_backward([2, 5, 9, 7], [65, 5, 3, 3], [2, 65, 9, 7], SAME);
        conv2d_weight_backward([2, 6, 10, 13], [4, 3, 2, 3], [2, 4, 5, 4], MIXED);
        conv3d_weight_backward([2, 3, 4, 5, 8], [5, 3, 3, 3, 3], [2, 5, 4, 5, 8], SAME_3D);
        conv3d_weight_backward([2, 4, 5, 6, 8], [5, 4, 3, 2, 2], [2, 5, 3, 6, 4], STRIDED_3D);
    }
};
