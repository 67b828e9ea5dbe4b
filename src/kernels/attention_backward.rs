//! The gradients of attention with respect to queries, keys and values.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::device::{Limits, Units};
use crate::kernels::attention::definition::AttentionDefinition;
use crate::kernels::attention::sizes::{Sizes, mismatch};
use crate::kernels::attention::unit_tiles::AttentionUnits;
use crate::kernels::attention::{
    LANES, OperandLayout, TILE, broadcast_offset, broadcast_strides, hidden_by, in_vec4s,
};
use crate::kernels::fusion::prologue;
use crate::kernels::gemm::units::{self, UnitsKernel};
use crate::kernels::launch::walk::Walk;
use crate::kernels::launch::{Launch, div_up, variants_of};
use crate::kernels::ops::cases::{Arg, Case, bools, cases, permuted};
use crate::kernels::ops::map::ScalarValue;
use crate::kernels::ops::options::AttentionOptions;
use crate::kernels::ops::table::rows;
use crate::kernels::policy::team::Team;
use crate::kernels::reduce::{self, Reduction};
use crate::kernels::software::composed_attention;
use crate::kernels::{cast, create, elementwise, policy, views};
use crate::params;
use crate::runtime::{Kernel, Runtime, Source, Variant, wgsl};
use crate::tensor::{DType, Layout, Result, Tensor};

static ATTENTION_BACKWARD: Source = Source::new::<AttentionBackwardParams>(
    "attention_backward",
    wgsl!("../../shaders/attention_backward/attention_backward.wgsl"),
)
.with_fragments(super::attention::FRAGMENTS);
static ATTENTION_BACKWARD_STATS: Source = Source::new::<StatsParams>(
    "attention_backward_stats",
    wgsl!("../../shaders/attention_backward/attention_backward_stats.wgsl"),
);
static ATTENTION_BACKWARD_UNITS: Source = Source::new::<AttentionBackwardParams>(
    "attention_backward_units",
    // Browsers do not offer matrix units.
    if cfg!(target_arch = "wasm32") {
        ""
    } else {
        wgsl!("../../shaders/attention_backward/attention_backward_units.wgsl")
    },
)
.with_fragments(super::attention::FRAGMENTS);

params! {
    struct AttentionBackwardParams {
        heads: u32,
        queries: u32,
        keys: u32,
        width: u32,
        value_width: u32,
        row_blocks: u32,
        col_blocks: u32,
        workgroups: u32,
        scale: f32,
        softcap: f32,
        causal: u32,
        has_bias: u32,
        bias_offset: u32,
        hidden_score: f32,
        pad0: u32,
        pad1: u32,
        q: OperandLayout,
        k: OperandLayout,
        v: OperandLayout,
        g: OperandLayout,
        bias_strides: [i32; 4],
    }
}

params! {
    struct StatsParams {
        count: u32,
        len: u32,
        pad0: u32,
        pad1: u32,
        walk: Walk,
    }
}

/// The invocations that compute the statistics of a query.
const STATS_TEAM: Team = Team { workgroup_size: 128, size: 8, stride: 1, subgroup: false };

/// The kernel of the statistics of queries.
#[derive(Debug, Clone, Copy, Hash)]
struct StatsKernel;

impl Kernel for StatsKernel {
    type Params = StatsParams;

    fn variant(&self) -> Variant {
        STATS_TEAM.define(Variant::new(&ATTENTION_BACKWARD_STATS).flag("VEC4", true))
    }
}

/// The operands whose gradients a kernel computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum GradientOf {
    Queries,
    /// In tiles only.
    KeysAndValues,
    /// With matrix units only.
    Keys,
    /// With matrix units only.
    Values,
}

/// How the work is divided among workgroups.
#[derive(Debug, Clone, Copy, Hash)]
enum GradientDivision {
    /// With so many vec4 columns per invocation.
    Tiles { cols: u32 },
    /// With matrix units.
    Units(AttentionUnits),
}

/// The kernels of the gradients.
#[derive(Debug, Clone, Copy, Hash)]
struct AttentionBackwardKernel {
    of: GradientOf,
    /// Whether there is a softcap or a bias.
    biased: bool,
    division: GradientDivision,
}

impl AttentionBackwardKernel {
    /// Returns whether the kernel brings what it sums into the range of f16.
    fn is_bounded(&self) -> bool {
        let of_f16 = |units: AttentionUnits| units.dtype == DType::F16;
        self.of != GradientOf::Values
            && matches!(self.division, GradientDivision::Units(units) if of_f16(units))
    }
}

impl Kernel for AttentionBackwardKernel {
    type Params = AttentionBackwardParams;

    fn variant(&self) -> Variant {
        let Self { of, biased, division } = *self;
        let variant = match division {
            GradientDivision::Tiles { cols } => Variant::new(&ATTENTION_BACKWARD).int("COLS", cols),
            GradientDivision::Units(units) => units
                .define(Variant::new(&ATTENTION_BACKWARD_UNITS))
                .flag("VALUES", of == GradientOf::Values)
                .flag("BOUNDED", self.is_bounded()),
        };
        variant.flag("KEYS", of != GradientOf::Queries).flag("BIASED", biased)
    }
}

/// What [`attention`](super::attention::attention) was computed from, and its results.
pub struct Forward {
    /// `[batch, heads, queries, width]`.
    pub query: Tensor,
    /// `[batch, heads, keys, width]`.
    pub key: Tensor,
    /// `[batch, heads, keys, value width]`.
    pub value: Tensor,
    /// Booleans that broadcast to `[batch, heads, queries, keys]`.
    pub mask: Option<Tensor>,
    /// Broadcasts to `[batch, heads, queries, keys]`.
    pub bias: Option<Tensor>,
    /// `[batch, heads, queries, value width]`.
    pub out: Tensor,
    /// `[batch, heads, queries, 2]`.
    pub log_sums: Tensor,
}

/// Computes the gradients of attention with respect to query, key and value from the gradient of
/// its result. The gradients are f32, also for operands of 16 bits. The memory that it needs grows
/// linearly with the numbers of queries and keys.
///
/// # Errors
///
/// Returns an error if the shapes do not fit or the memory is not available.
pub fn attention_backward(
    forward: Forward,
    grad: Tensor,
    options: AttentionOptions,
) -> Result<(Tensor, Tensor, Tensor)> {
    compute(forward, grad, options, None)
}

/// Computes [`attention_backward`], with given matrix units if they are forced.
fn compute(
    forward: Forward,
    mut grad: Tensor,
    options: AttentionOptions,
    forced: Option<AttentionUnits>,
) -> Result<(Tensor, Tensor, Tensor)> {
    let Forward { mut query, mut key, mut value, mask, bias, out, log_sums } = forward;
    let sizes = Sizes::of(&query, &key, &value)?;
    check(sizes, &query, [&out, &grad], &log_sums)?;
    let Sizes { batch, heads, queries, keys, value_width, .. } = sizes;
    if keys == 0 || queries == 0 || batch * heads * value_width == 0 {
        let zeros = |tensor: &Tensor| {
            create::full(tensor.runtime(), tensor.shape(), ScalarValue::Float(0.0), DType::F32)
        };
        return Ok((zeros(&query)?, zeros(&key)?, zeros(&value)?));
    }
    let plan = GradientPlan::of([&query, &key, &value, &grad], sizes, forced);
    let wide = cast::to_compute_type;
    let (out, log_sums) = (cast::widened(&out)?, wide(log_sums)?);
    if plan.units.is_none() {
        let widened = cast::widened;
        (query, key, value) = (widened(&query)?, widened(&key)?, widened(&value)?);
        grad = widened(&grad)?;
    }
    let bias = hidden_by(mask, bias.map(wide).transpose()?)?;
    let bias_layout = bias.as_ref().map(|bias| sizes.broadcast(&query, bias)).transpose()?;

    if plan.composes {
        let products = elementwise::binary(&rows::float_mul, out, wide(grad.clone())?)?;
        let means = reduce::dim(Reduction::Sum, products, 3)?;
        let scores = composed_attention::Scores { sizes, key, bias, options };
        return composed_attention::attention_backward(
            &query, &value, &scores, &log_sums, &means, &grad,
        );
    }
    let is_f16 = plan.units.is_some_and(|units| units.dtype == DType::F16);
    let value_bounds = match is_f16 {
        true => Some(reduce::dim(Reduction::MaxAbs, cast::widened(&value)?, 3)?),
        false => None,
    };
    let grad = in_vec4s(grad)?;
    let operands = GradientOperands {
        stats: stats(out, &grad, log_sums)?,
        query: in_vec4s(query)?,
        key: in_vec4s(key)?,
        value: in_vec4s(value)?,
        grad,
        value_bounds,
        bias,
        bias_layout,
        options,
    };
    operands.gradients(sizes, plan)
}

/// Returns the statistics of each query, `[rows, 4]`: both numbers of its log sum, its mean, and its largest gradient.
/// `grad` has a width in whole vec4s.
fn stats(out: Tensor, grad: &Tensor, log_sums: Tensor) -> Result<Tensor> {
    let (out, grad) = (in_vec4s(out)?, cast::widened(grad)?);
    let log_sums = views::packed(log_sums)?;
    let [batch, heads, queries, width] = out.layout().shape[..] else {
        unreachable!("results of attention have four axes")
    };
    let (count, len) = (batch * heads * queries, width / 4);
    let stats = Tensor::empty(out.runtime(), &[count, 4], DType::F32)?;
    let rows = [&out, &grad].map(|operand| operand.layout().leading(3));
    Launch {
        kernel: &StatsKernel,
        inputs: &[&out, &grad, &log_sums],
        outputs: &[&stats],
        params: &StatsParams {
            count: count as u32,
            len: len as u32,
            pad0: 0,
            pad1: 0,
            walk: Walk::new(&[&rows[0], &rows[1]])?,
        },
        workgroups: STATS_TEAM.workgroups(count),
        work: 2 * out.len() as u64,
        rounds: Some(len.div_ceil(STATS_TEAM.size as usize) as u64),
    }
    .run_with_prologues(&prologue::conversions(&[&out, &grad]))?;
    Ok(stats)
}

/// Checks the results of the forward pass and their gradient.
fn check(sizes: Sizes, query: &Tensor, results: [&Tensor; 2], log_sums: &Tensor) -> Result<()> {
    let Sizes { batch, heads, queries, value_width, .. } = sizes;
    for result in results {
        query.same_device(result)?;
        if result.shape() != [batch, heads, queries, value_width] {
            let rule = "a result and its gradient must be [batch, heads, queries, value width]";
            return Err(mismatch(query, result, rule));
        }
    }
    query.same_device(log_sums)?;
    match log_sums.shape() == [batch, heads, queries, 2] {
        true => Ok(()),
        false => Err(mismatch(query, log_sums, "there must be two numbers per query")),
    }
}

/// Which kernels compute the gradients.
#[derive(Debug, Clone, Copy)]
struct GradientPlan {
    /// Whether matrix products compute them instead of these kernels.
    composes: bool,
    units: Option<AttentionUnits>,
}

impl GradientPlan {
    /// Chooses the kernels for queries, keys, values and the gradient. `forced` is set in a test of matrix units.
    fn of(operands: [&Tensor; 4], sizes: Sizes, forced: Option<AttentionUnits>) -> Self {
        let runtime = operands[0].runtime();
        let composes = policy::of(runtime).composes_attention_gradients();
        let has_tiles =
            !composes && policy::of(runtime).tiles_attention(sizes.queries.min(sizes.keys));
        let units = match forced {
            None if has_tiles => {
                let kernel = |width| AttentionBackwardWithUnits { width };
                AttentionUnits::for_operands(&operands, kernel)
            }
            _ => forced,
        };
        Self { composes: composes && units.is_none(), units }
    }

    /// Returns how the kernel of a gradient divides the work, and the numbers of blocks of rows and columns. `cols` is
    /// in vec4s.
    fn division(
        self,
        of: GradientOf,
        rows: usize,
        cols: usize,
        biased: bool,
    ) -> (GradientDivision, u64, u64) {
        if let Some(units) = self.units {
            return (GradientDivision::Units(units), div_up(rows, units.rows()), 1);
        }
        // Two gradients, or a bias, fill the registers of some GPUs.
        let is_narrow = cols <= LANES || of != GradientOf::Queries || biased;
        let cols_each = if is_narrow { 1 } else { 2 };
        let col_blocks = div_up(cols, cols_each * LANES);
        (GradientDivision::Tiles { cols: cols_each as u32 }, div_up(rows, TILE), col_blocks)
    }
}

/// What the kernels read. Queries, keys, values and the gradient have widths in whole vec4s.
struct GradientOperands {
    query: Tensor,
    key: Tensor,
    value: Tensor,
    grad: Tensor,
    stats: Tensor,
    /// The largest magnitude of each value, for f16.
    value_bounds: Option<Tensor>,
    bias: Option<Tensor>,
    bias_layout: Option<Layout>,
    options: AttentionOptions,
}

impl GradientOperands {
    /// Returns the widths of keys and values, in vec4s.
    fn vec4s(&self) -> [usize; 2] {
        [&self.key, &self.value].map(|operand| operand.shape()[3] / 4)
    }

    /// Returns whether the kernels bound scores or add a bias.
    fn is_biased(&self) -> bool {
        self.options.softcap.is_some() || self.bias.is_some()
    }

    /// Returns the parameters of the kernels, but for the division of the work.
    fn params(&self, sizes: Sizes) -> AttentionBackwardParams {
        let Sizes { heads, queries, keys, width, .. } = sizes;
        let Self { query, key, value, grad, options, .. } = self;
        let [vec4s, value_vec4s] = self.vec4s();
        AttentionBackwardParams {
            heads: heads as u32,
            queries: queries as u32,
            keys: keys as u32,
            width: vec4s as u32,
            value_width: value_vec4s as u32,
            scale: options.scale.unwrap_or_else(|| 1.0 / (width as f32).sqrt()),
            softcap: options.softcap.unwrap_or(0.0),
            causal: u32::from(options.causal),
            has_bias: u32::from(self.bias.is_some()),
            bias_offset: broadcast_offset(self.bias_layout.as_ref()),
            hidden_score: options.hidden_score(),
            q: OperandLayout::of(query),
            k: OperandLayout::of(key),
            v: OperandLayout::of(value),
            g: OperandLayout::of(grad),
            bias_strides: broadcast_strides(self.bias_layout.as_ref()),
            ..bytemuck::Zeroable::zeroed()
        }
    }

    /// Launches the kernel of one gradient, or of two.
    fn launch(
        &self,
        sizes: Sizes,
        plan: GradientPlan,
        of: GradientOf,
        outputs: &[&Tensor],
    ) -> Result<()> {
        let Sizes { batch, heads, queries, keys, .. } = sizes;
        let [vec4s, value_vec4s] = self.vec4s();
        let (rows, cols) = match of {
            GradientOf::Queries => (queries, vec4s),
            _ => (keys, vec4s.max(value_vec4s)),
        };
        let biased = self.is_biased();
        let (division, row_blocks, col_blocks) = plan.division(of, rows, cols, biased);
        let Self { query, key, value, grad, stats, value_bounds, bias, .. } = self;
        let mut inputs: SmallVec<[&Tensor; 7]> =
            SmallVec::from_slice(&[query, key, value, grad, stats]);
        if biased {
            // The layout requires a binding.
            inputs.push(bias.as_ref().unwrap_or(stats));
        }
        let kernel = AttentionBackwardKernel { of, biased, division };
        inputs.extend(value_bounds.as_ref().filter(|_| kernel.is_bounded()));
        let workgroups = (batch * heads) as u64 * row_blocks * col_blocks;
        let widths = vec4s + value_vec4s;
        Launch {
            kernel: &kernel,
            inputs: &inputs,
            outputs,
            params: &AttentionBackwardParams {
                row_blocks: row_blocks as u32,
                col_blocks: col_blocks as u32,
                workgroups: workgroups as u32,
                ..self.params(sizes)
            },
            workgroups,
            work: 16 * (batch * heads * queries) as u64 * keys as u64 * widths as u64,
            // For each block of 64 rows of the others.
            rounds: Some((queries.max(keys).div_ceil(TILE) * (widths + 64)) as u64),
        }
        .run_with_prologues(&prologue::conversions(&inputs[..4]))
    }

    /// Computes the gradients with the kernels of a plan.
    fn gradients(&self, sizes: Sizes, plan: GradientPlan) -> Result<(Tensor, Tensor, Tensor)> {
        let empty = |tensor: &Tensor| Tensor::empty(tensor.runtime(), tensor.shape(), DType::F32);
        let grads = (empty(&self.query)?, empty(&self.key)?, empty(&self.value)?);
        self.launch(sizes, plan, GradientOf::Queries, &[&grads.0])?;
        match plan.units {
            Some(_) => {
                self.launch(sizes, plan, GradientOf::Keys, &[&grads.1])?;
                self.launch(sizes, plan, GradientOf::Values, &[&grads.2])?;
            }
            None => self.launch(sizes, plan, GradientOf::KeysAndValues, &[&grads.1, &grads.2])?,
        }
        Ok((
            views::narrow(grads.0, 3, 0, sizes.width)?,
            views::narrow(grads.1, 3, 0, sizes.width)?,
            views::narrow(grads.2, 3, 0, sizes.value_width)?,
        ))
    }
}

/// Gradients of attention of rows of so many elements, or fewer, with matrix units.
#[derive(Debug, Clone, Copy)]
struct AttentionBackwardWithUnits {
    width: u32,
}

impl UnitsKernel for AttentionBackwardWithUnits {
    fn fits(&self, limits: &Limits, units: Units, dtype: DType) -> bool {
        AttentionUnits { units, dtype, width: self.width }.fits(limits)
    }

    fn number(&self, dtype: DType) -> u32 {
        AttentionUnits::number(self.width, dtype)
    }

    fn name(&self) -> String {
        format!("gradients of attention {}", self.width)
    }

    /// Compares the gradients with their definition: of the plainest attention, and of a causal one
    /// with a softcap. The numbers of queries and keys are odd.
    fn is_right(&self, runtime: &Arc<Runtime>, dtype: DType, units: Units) -> Result<bool> {
        let forced = AttentionUnits { units, dtype, width: self.width };
        for softcap in [None, Some(2.0)] {
            // Small enough that many keys have a share.
            let options = AttentionOptions {
                scale: Some(0.25),
                softcap,
                causal: softcap.is_some(),
                hidden_score: None,
            };
            let definition = AttentionDefinition::new(self.width, options);
            let [query, key, value, grad] = definition.upload_operands(runtime, dtype)?;
            let [out, log_sums] = definition.upload_results(runtime)?;
            let forward = Forward { query, key, value, mask: None, bias: None, out, log_sums };
            let (of_queries, of_keys, of_values) = compute(forward, grad, options, Some(forced))?;
            // Weights are rounded to the type of the operands.
            let tolerance = if dtype.is_half() { 4e-3 } else { 1e-4 };
            let found = [of_queries, of_keys, of_values];
            for (found, expected) in found.iter().zip(definition.gradients()) {
                let largest = expected.iter().fold(0.0f64, |largest, x| largest.max(x.abs()));
                if !units::are_close(&units::download(found)?, &expected, tolerance * largest) {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }
}

/// Returns every variant that the family can dispatch.
pub fn variants() -> Vec<Variant> {
    let kernel = |of, biased, division| AttentionBackwardKernel { of, biased, division };
    let tiles = [
        (GradientOf::Queries, false),
        (GradientOf::Queries, true),
        (GradientOf::KeysAndValues, false),
    ];
    let tiles = tiles.into_iter().chain([(GradientOf::KeysAndValues, true)]);
    let tiles = tiles.map(|(of, biased)| kernel(of, biased, GradientDivision::Tiles { cols: 1 }));
    let wide = kernel(GradientOf::Queries, false, GradientDivision::Tiles { cols: 2 });
    let units = AttentionUnits::all().map(GradientDivision::Units).flat_map(|division| {
        let of_all = [GradientOf::Queries, GradientOf::Keys, GradientOf::Values];
        of_all
            .into_iter()
            .flat_map(move |of| [false, true].map(|biased| kernel(of, biased, division)))
    });
    let tiles: Vec<_> = tiles.chain([wide]).collect();
    let with_prologue = [0, 1, 2, 3].map(|input| prologue::samples_of_conversions(&tiles, input));
    let stats = [0, 1].map(|input| prologue::samples_of_conversions(&[StatsKernel], input));
    let all = [variants_of(tiles), variants_of(units), variants_of([StatsKernel])];
    [all.concat(), with_prologue.concat(), stats.concat()].concat()
}

/// The cases that the family must pass.
pub const CASES: &[Case] = {
    const PLAIN: Arg = Arg::Attention(None, None, false);
    const CAUSAL: Arg = Arg::Attention(None, None, true);
    const ALL: Arg = Arg::Attention(Some(0.3), Some(2.0), true);
    cases! {
        attention_backward([2, 3, 5, 8], [2, 3, 7, 8], [2, 3, 7, 8], _, _, [2, 3, 5, 8],
            [2, 3, 5, 2], [2, 3, 5, 8], PLAIN);
        // Widths that are not multiples of four; values wider and narrower than keys.
        attention_backward([1, 2, 1, 3], [1, 2, 1, 3], [1, 2, 1, 1], _, _, [1, 2, 1, 1],
            [1, 2, 1, 2], [1, 2, 1, 1], PLAIN);
        attention_backward([1, 2, 35, 21], [1, 2, 70, 21], [1, 2, 70, 33], _, _, [1, 2, 35, 33],
            [1, 2, 35, 2], [1, 2, 35, 33], PLAIN);
        attention_backward([1, 1, 9, 70], [1, 1, 40, 70], [1, 1, 40, 130], _, _, [1, 1, 9, 130],
            [1, 1, 9, 2], [1, 1, 9, 130], PLAIN);
        // The layout of a transformer: heads next to the width in memory.
        attention_backward(permuted(&[2, 9, 3, 16], &[0, 2, 1, 3]),
            permuted(&[2, 11, 3, 16], &[0, 2, 1, 3]), permuted(&[2, 11, 3, 16], &[0, 2, 1, 3]), _,
            _, [2, 3, 9, 16], [2, 3, 9, 2], permuted(&[2, 9, 3, 16], &[0, 2, 1, 3]), CAUSAL);
        attention_backward([1, 2, 70, 8], [1, 2, 70, 8], [1, 2, 70, 8], _, _, [1, 2, 70, 8],
            [1, 2, 70, 2], [1, 2, 70, 8], CAUSAL);
        // The edges of tiles of 64 rows and 64 others, of 16 columns, and of values of 64 columns.
        attention_backward([1, 2, 65, 68], [1, 2, 63, 68], [1, 2, 63, 60], _, _, [1, 2, 65, 60],
            [1, 2, 65, 2], [1, 2, 65, 60], PLAIN);
        attention_backward([2, 1, 64, 12], [2, 1, 130, 12], [2, 1, 130, 68], _, [1, 1, 64, 130],
            [2, 1, 64, 68], [2, 1, 64, 2], [2, 1, 64, 68], ALL);
        // More queries than keys, and more keys than queries.
        attention_backward([1, 2, 40, 8], [1, 2, 9, 8], [1, 2, 9, 8], _, _, [1, 2, 40, 8],
            [1, 2, 40, 2], [1, 2, 40, 8], CAUSAL);
        attention_backward([1, 2, 9, 8], [1, 2, 40, 8], [1, 2, 40, 8], _, _, [1, 2, 9, 8],
            [1, 2, 9, 2], [1, 2, 9, 8], CAUSAL);
        attention_backward([2, 2, 9, 8], [2, 2, 12, 8], [2, 2, 12, 8], bools(&[2, 2, 9, 12]), _,
            [2, 2, 9, 8], [2, 2, 9, 2], [2, 2, 9, 8], PLAIN);
        attention_backward([2, 2, 9, 8], [2, 2, 12, 8], [2, 2, 12, 40], bools(&[1, 1, 9, 12]),
            permuted(&[12, 1, 2, 1], &[3, 2, 1, 0]), [2, 2, 9, 40], [2, 2, 9, 2], [2, 2, 9, 40],
            ALL);
        attention_backward([2, 2, 0, 8], [2, 2, 9, 8], [2, 2, 9, 8], _, _, [2, 2, 0, 8],
            [2, 2, 0, 2], [2, 2, 0, 8], PLAIN);
        // Wide rows with a bias.
        attention_backward([1, 1, 9, 70], [1, 1, 40, 70], [1, 1, 40, 130], _, [1, 1, 9, 40],
            [1, 1, 9, 130], [1, 1, 9, 2], [1, 1, 9, 130], PLAIN);
        // Several blocks of queries where the gradient is composed.
        attention_backward([1, 2, 1030, 8], [1, 2, 20, 8], [1, 2, 20, 12], bools(&[1, 1, 1030, 20]),
            [1, 2, 1, 20], [1, 2, 1030, 12], [1, 2, 1030, 2], [1, 2, 1030, 12], ALL);
    }
};
