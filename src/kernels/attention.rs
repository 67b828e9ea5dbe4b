//! Attention: sums of values, weighted by a softmax of the products of queries and keys.

pub(crate) mod definition;
pub(crate) mod sizes;
pub(crate) mod unit_tiles;

use std::sync::Arc;

use smallvec::SmallVec;

use crate::device::{Limits, Units};
use crate::kernels::attention::definition::AttentionDefinition;
use crate::kernels::attention::sizes::Sizes;
use crate::kernels::attention::unit_tiles::AttentionUnits;
use crate::kernels::fusion::prologue;
use crate::kernels::gemm::units::{self, UnitsKernel};
use crate::kernels::launch::{Launch, Reads, variants_of, workgroups_for};
use crate::kernels::ops::cases::{Arg, Case, bools, cases, permuted};
use crate::kernels::ops::map::ScalarValue;
use crate::kernels::ops::options::AttentionOptions;
use crate::kernels::policy::team::Team;
use crate::kernels::software::composed_attention;
use crate::kernels::{cast, create, elementwise, policy, views};
use crate::params;
use crate::runtime::{Fragment, Kernel, Runtime, Source, Variant, wgsl};
use crate::tensor::{DType, Layout, Result, Tensor};

/// The fragments of the shaders.
pub(super) const FRAGMENTS: &[Fragment] = &[
    ("lib/attention", wgsl!("../../shaders/lib/attention.wgsl")),
    ("lib/attention_backward", wgsl!("../../shaders/lib/attention_backward.wgsl")),
    ("lib/attention_scores", wgsl!("../../shaders/lib/attention_scores.wgsl")),
    ("lib/attention_tile", wgsl!("../../shaders/lib/attention_tile.wgsl")),
    ("lib/attention_units", wgsl!("../../shaders/lib/attention_units.wgsl")),
    ("lib/log_sum", wgsl!("../../shaders/lib/log_sum.wgsl")),
];

static ATTENTION: Source =
    Source::new::<AttentionParams>("attention", wgsl!("../../shaders/attention/attention.wgsl"))
        .with_fragments(FRAGMENTS);
static ATTENTION_TILED: Source = Source::new::<AttentionParams>(
    "attention_tiled",
    wgsl!("../../shaders/attention/attention_tiled.wgsl"),
)
.with_fragments(FRAGMENTS);
static ATTENTION_UNITS: Source = Source::new::<AttentionParams>(
    "attention_units",
    // Browsers do not offer matrix units.
    if cfg!(target_arch = "wasm32") {
        ""
    } else {
        wgsl!("../../shaders/attention/attention_units.wgsl")
    },
)
.with_fragments(FRAGMENTS);
static ATTENTION_MERGE: Source = Source::new::<MergeParams>(
    "attention_merge",
    wgsl!("../../shaders/attention/attention_merge.wgsl"),
)
.with_fragments(FRAGMENTS);

params! {
    struct AttentionParams {
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
        has_mask: u32,
        has_bias: u32,
        mask_offset: u32,
        bias_offset: u32,
        keys_per_split: u32,
        hidden_score: f32,
        pad0: u32,
        pad1: u32,
        pad2: u32,
        q: OperandLayout,
        k: OperandLayout,
        v: OperandLayout,
        mask_strides: [i32; 4],
        bias_strides: [i32; 4],
    }
}

params! {
    struct MergeParams {
        count: u32,
        width: u32,
        splits: u32,
        pad0: u32,
    }
}

params! {
    /// The layout of a `[batch, heads, length, width]` operand, in vec4s.
    pub(super) struct OperandLayout {
        offset: u32,
        batch_stride: i32,
        head_stride: i32,
        row_stride: i32,
    }
}

impl OperandLayout {
    /// Returns the layout of a tensor from [`in_vec4s`].
    pub fn of(tensor: &Tensor) -> Self {
        let layout = tensor.layout();
        let [batch_stride, head_stride, row_stride] =
            [0, 1, 2].map(|axis| (layout.strides[axis] / 4) as i32);
        Self { offset: layout.offset as u32 / 4, batch_stride, head_stride, row_stride }
    }
}

/// Rows of a tile (`shaders/lib/attention_tile.wgsl`).
pub(super) const TILE: usize = 64;
/// The most vec4s of a query that a kernel for few queries holds (`shaders/attention/attention.wgsl`).
const MAX_STAGED: usize = 32;
/// Invocations that share the columns of a row of a tile.
pub(super) const LANES: usize = 16;

/// How the work is divided among workgroups.
#[derive(Debug, Clone, Copy, Hash)]
enum Division {
    /// A few rows, whose columns are those of a team, in vec4s per member, from operands of a 16-bit type or f32.
    /// Queries that are `staged` are read once.
    Rows { team: Team, cols: u32, half: Option<DType>, staged: bool },
    /// Many rows, with so many vec4 columns per invocation.
    Tiles { cols: u32 },
    /// Many rows, with matrix units.
    Units(AttentionUnits),
}

impl Division {
    /// Returns the rows and the vec4 columns that a workgroup computes.
    fn tile(self) -> (usize, usize) {
        match self {
            Self::Rows { team, cols, .. } => (8, (cols * team.size) as usize),
            Self::Tiles { cols } => (TILE, cols as usize * LANES),
            Self::Units(units) => (units.rows(), units.width as usize / 4),
        }
    }
}

/// The kernels that compute attention.
#[derive(Debug, Clone, Copy, Hash)]
struct AttentionKernel {
    division: Division,
    /// Whether there is a softcap, a mask or a bias.
    biased: bool,
    /// Whether the logarithms of the sums of weights are results too.
    log_sums: bool,
}

impl Kernel for AttentionKernel {
    type Params = AttentionParams;

    fn variant(&self) -> Variant {
        let Self { division, biased, log_sums } = *self;
        let variant = match division {
            Division::Rows { team, cols, half, staged } => {
                let (rows, _) = division.tile();
                let teams = team.workgroup_size / team.size;
                Variant::new(&ATTENTION)
                    .flag("F16", half == Some(DType::F16))
                    .flag("BF16", half == Some(DType::BF16))
                    .flag("SUBGROUP", team.subgroup)
                    .flag("STAGED", staged)
                    .int("WORKGROUP_SIZE", team.workgroup_size)
                    .int("ROWS", rows as u32)
                    .int("COLS", cols)
                    .int("TEAM_SIZE", team.size)
                    .int("ROWS_PER_TEAM", rows as u32 / teams)
            }
            Division::Tiles { cols } => Variant::new(&ATTENTION_TILED).int("COLS", cols),
            Division::Units(units) => units.define(Variant::new(&ATTENTION_UNITS)),
        };
        variant.flag("BIASED", biased).flag("LOG_SUMS", log_sums)
    }
}

/// The kernel that adds up attention over splits of the keys.
#[derive(Debug, Clone, Copy, Hash)]
struct MergeKernel {
    log_sums: bool,
}

impl Kernel for MergeKernel {
    type Params = MergeParams;

    fn variant(&self) -> Variant {
        Variant::new(&ATTENTION_MERGE).flag("LOG_SUMS", self.log_sums)
    }
}

/// What attention is computed from.
struct AttentionInputs {
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Option<Tensor>,
    bias: Option<Tensor>,
    options: AttentionOptions,
}

/// Computes `softmax(query @ key^T) @ value` for `[batch, heads, queries, width]`,
/// `[batch, heads, keys, width]` and `[batch, heads, keys, value width]`.
///
/// A mask hides keys where it is true; a bias is added to the scores. Both broadcast to
/// `[batch, heads, queries, keys]`. The result is zero for a query whose keys are all hidden. It is
/// f32, also for operands of 16 bits.
///
/// # Errors
///
/// Returns an error if the shapes do not fit or the memory is not available.
pub fn attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Option<Tensor>,
    bias: Option<Tensor>,
    options: AttentionOptions,
) -> Result<Tensor> {
    let inputs = AttentionInputs { query, key, value, mask, bias, options };
    compute(inputs, false, None).map(|(out, _)| out)
}

/// Computes [`attention`], and for its gradient the logarithm of the sum of `e^score` of each
/// query and what is rounded away of it, `[batch, heads, queries, 2]`. It is infinite for a query whose
/// keys are all hidden, and if values have no columns.
///
/// # Errors
///
/// As [`attention`].
pub fn attention_with_log_sums(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Option<Tensor>,
    bias: Option<Tensor>,
    options: AttentionOptions,
) -> Result<(Tensor, Tensor)> {
    compute(AttentionInputs { query, key, value, mask, bias, options }, true, None)
}

/// Attention of rows of so many elements, or fewer, with matrix units.
#[derive(Debug, Clone, Copy)]
struct AttentionWithUnits {
    width: u32,
}

impl UnitsKernel for AttentionWithUnits {
    fn fits(&self, limits: &Limits, units: Units, dtype: DType) -> bool {
        AttentionUnits { units, dtype, width: self.width }.fits(limits)
    }

    fn number(&self, dtype: DType) -> u32 {
        AttentionUnits::number(self.width, dtype)
    }

    fn name(&self) -> String {
        format!("attention {}", self.width)
    }

    /// Compares attention with its definition in f64: the plainest of the kernels, and the one with
    /// a softcap and log sums. There is an odd number of keys, of which later ones have larger scores.
    fn is_right(&self, runtime: &Arc<Runtime>, dtype: DType, units: Units) -> Result<bool> {
        let forced = AttentionUnits { units, dtype, width: self.width };
        for softcap in [None, Some(50.0)] {
            let all = softcap.is_some();
            let options =
                AttentionOptions { scale: Some(1.0), softcap, causal: all, hidden_score: None };
            let definition = AttentionDefinition::new(self.width, options);
            let [query, key, value, _] = definition.upload_operands(runtime, dtype)?;
            let inputs = AttentionInputs { query, key, value, mask: None, bias: None, options };
            let (out, log_sums) = compute(inputs, all, Some(forced))?;
            // Weights are rounded to the type of the operands.
            let tolerance = if dtype.is_half() { 4e-3 } else { 1e-4 };
            let is_close = |found: &Tensor, expected: &[f64]| -> Result<bool> {
                Ok(units::are_close(&units::download(found)?, expected, tolerance))
            };
            if !is_close(&out, &definition.out)?
                || all && !is_close(&log_sums, &definition.log_sums)?
            {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Computes attention, with given matrix units if they are forced. The second result is meaningful
/// only with `log_sums`.
fn compute(
    inputs: AttentionInputs,
    log_sums: bool,
    forced: Option<AttentionUnits>,
) -> Result<(Tensor, Tensor)> {
    let AttentionInputs { query, key, value, mask, bias, options } = inputs;
    let sizes = Sizes::of(&query, &key, &value)?;
    let Sizes { batch, heads, queries, keys, value_width, .. } = sizes;
    let bias = bias.map(cast::to_compute_type).transpose()?;
    let broadcast = |tensor: &Tensor| sizes.broadcast(&query, tensor);
    let mask_layout = mask.as_ref().map(broadcast).transpose()?;
    let bias_layout = bias.as_ref().map(broadcast).transpose()?;
    let constant = |shape: &[usize], value: f32| {
        create::full(query.runtime(), shape, ScalarValue::Float(value), DType::F32)
    };
    let shape = [batch, heads, queries, value_width];
    if keys == 0 || shape.contains(&0) {
        let sums = constant(&[batch, heads, queries, 2], f32::INFINITY)?;
        return Ok((constant(&shape, 0.0)?, sums));
    }
    let plan = AttentionPlan::of([&query, &key, &value], sizes, log_sums, forced);
    let operands = [query, key, value];
    let [query, key, value] = match plan.reads_stored() {
        true => operands,
        false => {
            // The kernel may compute a pending query that has no other owner.
            let [query, key, value] = operands.map(|operand| cast::widened(&operand));
            [query?, key?, value?]
        }
    };
    if plan.composes {
        let bias = hidden_by(mask, bias)?;
        let scores = composed_attention::Scores { sizes, key, bias, options };
        let (out, sums) = composed_attention::attention(&query, &value, &scores, log_sums)?;
        return Ok((out.clone(), sums.unwrap_or(out)));
    }
    let [query, key, value] = [in_vec4s(query)?, in_vec4s(key)?, in_vec4s(value)?];
    let operands =
        AttentionOperands { query, key, value, mask, bias, mask_layout, bias_layout, options };
    launch(&operands, sizes, plan, log_sums)
}

/// Which kernels compute attention.
#[derive(Debug, Clone, Copy)]
struct AttentionPlan {
    /// Whether matrix products compute it instead of these kernels.
    composes: bool,
    units: Option<AttentionUnits>,
    /// Whether the kernel for many queries runs.
    in_tiles: bool,
    /// Whether a kernel for few queries reads them once, because it may compute them.
    stages_query: bool,
    /// The 16-bit type in which few queries read keys and values as they are stored.
    half: Option<DType>,
}

impl AttentionPlan {
    /// Chooses the kernels for queries, keys and values. `forced` is set in a test of matrix units.
    fn of(
        operands: [&Tensor; 3],
        sizes: Sizes,
        log_sums: bool,
        forced: Option<AttentionUnits>,
    ) -> Self {
        let Sizes { queries, keys, width, value_width, .. } = sizes;
        let runtime = operands[0].runtime();
        // Gradients compute the scores again, and large ones must be rounded in the same way: by the same division.
        let (of_rows, _) = policy::of(runtime).attention_team(value_width.div_ceil(4));
        let row_block = of_rows.workgroup_size as usize;
        let row_rounds = keys.div_ceil(row_block)
            * rounds_of_block(row_block, width.div_ceil(4), value_width.div_ceil(4));
        let composes = policy::of(runtime).composes_attention(queries * keys, row_rounds)
            || log_sums && policy::of(runtime).composes_attention_gradients();
        let in_tiles = policy::of(runtime).has_fast_barriers() && log_sums
            || policy::of(runtime).tiles_attention(queries);
        let fills_units = match log_sums {
            true => policy::of(runtime).tiles_attention(queries.min(keys)),
            false => in_tiles,
        };
        let units = match forced {
            None if !composes && fills_units => {
                AttentionUnits::for_operands(&operands, |width| AttentionWithUnits { width })
            }
            _ => forced,
        };
        // Few queries read every key and value once: as they are stored, unless gradients follow, which read f32.
        let half = Some(operands[1].dtype()).filter(|dtype| {
            let is_read = |operand: &&Tensor| {
                operand.dtype() == *dtype && operand.shape()[3].is_multiple_of(4)
            };
            units.is_none()
                && dtype.is_half()
                && !log_sums
                && !in_tiles
                && policy::of(runtime).keeps_halves()
                && operands.iter().all(is_read)
        });
        let stages_query = operands[0].pending().is_some() && width.div_ceil(4) <= MAX_STAGED;
        Self { composes: composes && units.is_none(), units, in_tiles, stages_query, half }
    }

    /// Returns whether operands are read as they are stored.
    fn reads_stored(self) -> bool {
        self.units.is_some() || self.half.is_some()
    }

    /// Returns how the work is divided, for values of so many vec4s.
    fn division(self, runtime: &Runtime, value_width: usize) -> Division {
        match self.units {
            Some(units) => Division::Units(units),
            None if self.in_tiles => {
                Division::Tiles { cols: if value_width <= LANES { 1 } else { 2 } }
            }
            None => {
                let (team, cols) = policy::of(runtime).attention_team(value_width);
                let has_barriers = policy::of(runtime).has_fast_barriers();
                let staged = self.stages_query && self.half.is_none() && has_barriers;
                Division::Rows { team, cols, half: self.half, staged }
            }
        }
    }
}

/// What the kernels read. Queries, keys and values have widths in whole vec4s.
struct AttentionOperands {
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Option<Tensor>,
    bias: Option<Tensor>,
    mask_layout: Option<Layout>,
    bias_layout: Option<Layout>,
    options: AttentionOptions,
}

impl AttentionOperands {
    /// Returns the parameters of the kernels, but for the division of the work.
    fn params(&self, sizes: Sizes) -> AttentionParams {
        let Self { query, key, value, options, .. } = self;
        AttentionParams {
            heads: sizes.heads as u32,
            queries: sizes.queries as u32,
            keys: sizes.keys as u32,
            width: (key.shape()[3] / 4) as u32,
            value_width: (value.shape()[3] / 4) as u32,
            scale: options.scale.unwrap_or_else(|| 1.0 / (sizes.width as f32).sqrt()),
            softcap: options.softcap.unwrap_or(0.0),
            causal: u32::from(options.causal),
            has_mask: u32::from(self.mask.is_some()),
            has_bias: u32::from(self.bias.is_some()),
            mask_offset: broadcast_offset(self.mask_layout.as_ref()),
            bias_offset: broadcast_offset(self.bias_layout.as_ref()),
            hidden_score: options.hidden_score(),
            q: OperandLayout::of(query),
            k: OperandLayout::of(key),
            v: OperandLayout::of(value),
            mask_strides: broadcast_strides(self.mask_layout.as_ref()),
            bias_strides: broadcast_strides(self.bias_layout.as_ref()),
            ..bytemuck::Zeroable::zeroed()
        }
    }
}

/// Launches the kernels of a plan.
fn launch(
    operands: &AttentionOperands,
    sizes: Sizes,
    plan: AttentionPlan,
    log_sums: bool,
) -> Result<(Tensor, Tensor)> {
    let AttentionOperands { query, key, value, mask, bias, options, .. } = operands;
    let Sizes { batch, heads, queries, keys, .. } = sizes;
    let runtime = query.runtime();
    // Widths in vec4s.
    let (width, value_width) = (key.shape()[3] / 4, value.shape()[3] / 4);
    let biased = options.softcap.is_some() || mask.is_some() || bias.is_some();
    let unread;
    let mut inputs: SmallVec<[&Tensor; 5]> = SmallVec::from_slice(&[query, key, value]);
    if biased {
        // The layout requires both bindings. The query may be computed where it is read.
        let present = match mask.as_ref().or(bias.as_ref()) {
            Some(present) => present,
            None => {
                unread = Tensor::empty(runtime, &[1], DType::F32)?;
                &unread
            }
        };
        inputs.extend([mask.as_ref().unwrap_or(present), bias.as_ref().unwrap_or(present)]);
    }
    let division = plan.division(runtime, value_width);
    let (rows, cols) = division.tile();
    let (row_blocks, col_blocks) = (queries.div_ceil(rows), value_width.div_ceil(cols));
    let workgroups = batch * heads * row_blocks * col_blocks;
    let block = match &division {
        Division::Rows { team, .. } => team.workgroup_size as usize,
        Division::Tiles { .. } | Division::Units(_) => 64,
    };
    let rounds_per_block = rounds_of_block(block, width, value_width);
    let max_blocks = (policy::max_rounds(runtime) / rounds_per_block).max(1);
    let keys_per_split =
        policy::of(runtime).attention_split_len(workgroups, keys).min(max_blocks * block);
    let splits = keys.div_ceil(keys_per_split);
    let empty = |shape: &[usize]| Tensor::empty(runtime, shape, DType::F32);
    let parts = empty(&[batch, heads, queries, splits, value_width * 4])?;
    // The maximum and the sum of each split, or the logarithm of both.
    let part_sums = empty(&[batch, heads, queries, splits, 2])?;
    let has_sums = log_sums || splits > 1;
    let workgroups = (workgroups * splits) as u64;
    let mut prologues = prologue::conversions(&inputs[..3]);
    if matches!(division, Division::Rows { staged: true, .. }) {
        prologues.retain(|(input, _)| *input != 0);
        prologues.push((0, Reads::Seldom));
    }
    Launch {
        kernel: &AttentionKernel { division, biased, log_sums: has_sums },
        inputs: &inputs,
        outputs: &[&parts, &part_sums][..if has_sums { 2 } else { 1 }],
        params: &AttentionParams {
            row_blocks: row_blocks as u32,
            col_blocks: col_blocks as u32,
            workgroups: workgroups as u32,
            keys_per_split: keys_per_split as u32,
            ..operands.params(sizes)
        },
        workgroups,
        work: 8 * (batch * heads * queries) as u64 * keys as u64 * (width + value_width) as u64,
        rounds: Some((keys_per_split.div_ceil(block) * rounds_per_block) as u64),
    }
    .run_with_prologues(&prologues)?;
    let (out, sums) = if splits == 1 {
        let out = views::reshape(parts, &[batch, heads, queries, value_width * 4])?;
        (out, views::reshape(part_sums, &[batch, heads, queries, 2])?)
    } else {
        merge(&parts, &part_sums, log_sums)?
    };
    Ok((views::narrow(out, 3, 0, sizes.value_width)?, sums))
}

/// Returns the rounds of the loops of an invocation for a block of keys, at most. Widths count vec4s.
fn rounds_of_block(block: usize, width: usize, value_width: usize) -> usize {
    2 * (width + value_width) + block + 64
}

/// Computes attention over all keys from the results over splits of them: `parts` is
/// `[batch, heads, queries, splits, value width]`, and `part_sums` `[.., splits, 2]` are the maxima and
/// the sums of their weights.
fn merge(parts: &Tensor, part_sums: &Tensor, log_sums: bool) -> Result<(Tensor, Tensor)> {
    let runtime = parts.runtime();
    let queries = &part_sums.shape()[..3];
    let [splits, width] = [parts.shape()[3], parts.shape()[4]];
    let sums = Tensor::empty(runtime, &[queries, &[2]].concat(), DType::F32)?;
    let out = Tensor::empty(runtime, &[queries, &[width]].concat(), DType::F32)?;
    let count = out.len() / 4;
    Launch {
        kernel: &MergeKernel { log_sums },
        inputs: &[parts, part_sums],
        outputs: &[&out, &sums][..if log_sums { 2 } else { 1 }],
        params: &MergeParams {
            count: count as u32,
            width: (width / 4) as u32,
            splits: splits as u32,
            pad0: 0,
        },
        workgroups: workgroups_for(count),
        work: parts.len() as u64,
        rounds: Some(2 * splits as u64),
    }
    .run()?;
    Ok((out, sums))
}

/// Returns the tensor with one element along each axis along which its elements are repeated.
fn without_repeats(tensor: Tensor) -> Tensor {
    let mut layout = tensor.layout().clone();
    for axis in 0..layout.shape.len() {
        if layout.strides[axis] == 0 && layout.shape[axis] > 0 {
            layout = layout.narrow(axis, 0, 1);
        }
    }
    tensor.view(layout)
}

/// Returns the bias, with -inf where the mask hides a key.
pub(super) fn hidden_by(mask: Option<Tensor>, bias: Option<Tensor>) -> Result<Option<Tensor>> {
    let Some(mask) = mask else { return Ok(bias) };
    let visible = match bias {
        Some(bias) => bias,
        None => create::full(mask.runtime(), &[1; 4], ScalarValue::Float(0.0), DType::F32)?,
    };
    let [visible, mask] = [visible, mask].map(without_repeats);
    elementwise::mask_fill(visible, mask, ScalarValue::Float(f32::NEG_INFINITY)).map(Some)
}

/// Returns the offset of a mask or bias; zero for `None`.
pub(super) fn broadcast_offset(layout: Option<&Layout>) -> u32 {
    layout.map_or(0, |layout| layout.offset as u32)
}

/// Returns the strides of a mask or bias of four axes; zeros for `None`.
pub(super) fn broadcast_strides(layout: Option<&Layout>) -> [i32; 4] {
    layout.map_or([0; 4], |layout| [0, 1, 2, 3].map(|axis| layout.strides[axis] as i32))
}

/// Returns the tensor with rows of whole vec4s, padded with zeros if necessary. Copies it only if
/// its rows are not contiguous or not aligned to vec4s.
pub(super) fn in_vec4s(tensor: Tensor) -> Result<Tensor> {
    let layout = tensor.layout();
    let (shape, strides) = (&layout.shape, &layout.strides);
    let aligned = |axis: usize| shape[axis] == 1 || strides[axis] % 4 == 0;
    let width = shape[3];
    if width % 4 == 0 && strides[3] == 1 && layout.offset.is_multiple_of(4) && (0..3).all(aligned) {
        return Ok(tensor);
    }
    if width % 4 == 0 {
        return views::packed(tensor);
    }
    views::resized(tensor, 3, width.next_multiple_of(4))
}

/// Returns every variant that the family can dispatch.
pub fn variants() -> Vec<Variant> {
    let rows = |(team, cols)| Division::Rows { team, cols, half: None, staged: false };
    let staged = |(team, cols)| Division::Rows { team, cols, half: None, staged: true };
    let halves = policy::gpu_attention_teams().flat_map(|(team, cols)| {
        DType::HALF_TYPES.map(|half| Division::Rows { team, cols, half: Some(half), staged: false })
    });
    let tiles = [1, 2].map(|cols| Division::Tiles { cols });
    let units = AttentionUnits::all().map(Division::Units);
    let for_gpus = policy::gpu_attention_teams()
        .map(rows)
        .chain(halves)
        .chain(policy::gpu_attention_teams().map(staged))
        .chain(tiles)
        .chain(units);
    // Where there are sums to store, software adapters compute products.
    let for_software = policy::software_attention_teams().map(rows);
    let kernels = for_gpus
        .flat_map(|division| [(division, false), (division, true)])
        .chain(for_software.map(|division| (division, false)))
        .flat_map(|(division, log_sums)| {
            [false, true].map(|biased| AttentionKernel { division, biased, log_sums })
        });
    let kernels: Vec<_> = kernels.collect();
    let those = |is_one: fn(&Division) -> bool| {
        let kernels = kernels.iter().filter(move |kernel| is_one(&kernel.division));
        kernels.copied().collect::<Vec<_>>()
    };
    let tiles = those(|division| matches!(division, Division::Tiles { .. }));
    let mut with_prologue =
        [0, 1, 2].map(|input| prologue::samples_of_conversions(&tiles, input)).concat();
    let staged = those(|division| matches!(division, Division::Rows { staged: true, .. }));
    with_prologue.extend(prologue::samples(staged, 0));
    let merges = variants_of([false, true].map(|log_sums| MergeKernel { log_sums }));
    [variants_of(kernels), with_prologue, merges].concat()
}

/// The cases that the family must pass.
pub const CASES: &[Case] = {
    const PLAIN: Arg = Arg::Attention(None, None, false);
    const CAUSAL: Arg = Arg::Attention(None, None, true);
    const ALL: Arg = Arg::Attention(Some(0.3), Some(2.0), true);
    cases! {
        attention([2, 3, 5, 8], [2, 3, 7, 8], [2, 3, 7, 8], _, _, PLAIN);
        // One query, one key, widths that are not multiples of four.
        attention([1, 2, 1, 3], [1, 2, 1, 3], [1, 2, 1, 1], _, _, PLAIN);
        attention([1, 2, 19, 21], [1, 2, 70, 21], [1, 2, 70, 33], _, _, PLAIN);
        attention([1, 1, 9, 70], [1, 1, 130, 70], [1, 1, 130, 300], _, _, PLAIN);
        // The layout of a transformer: heads next to the width in memory.
        attention(permuted(&[2, 9, 3, 16], &[0, 2, 1, 3]), permuted(&[2, 11, 3, 16], &[0, 2, 1, 3]),
            permuted(&[2, 11, 3, 16], &[0, 2, 1, 3]), _, _, CAUSAL);
        attention([1, 2, 33, 8], [1, 2, 33, 8], [1, 2, 33, 8], _, _, CAUSAL);
        // More queries than keys: the first queries attend to no key.
        attention([1, 2, 20, 8], [1, 2, 9, 8], [1, 2, 9, 8], _, _, CAUSAL);
        attention([2, 2, 9, 8], [2, 2, 12, 8], [2, 2, 12, 8], bools(&[2, 2, 9, 12]), _, PLAIN);
        // Two keys: the mask hides both from some queries.
        attention([1, 2, 9, 8], [1, 2, 2, 8], [1, 2, 2, 8], bools(&[1, 2, 9, 2]), _, PLAIN);
        attention([2, 2, 9, 8], [2, 2, 12, 8], [2, 2, 12, 8], _, [2, 2, 9, 12], PLAIN);
        attention([2, 2, 9, 8], [2, 2, 12, 8], [2, 2, 12, 8], bools(&[1, 1, 9, 12]),
            permuted(&[12, 1, 2, 1], &[3, 2, 1, 0]), ALL);
        // Wide values, with and without a bias.
        attention([1, 1, 9, 8], [1, 1, 12, 8], [1, 1, 12, 40], _, _, PLAIN);
        attention([1, 1, 9, 8], [1, 1, 12, 8], [1, 1, 12, 100], _, _, PLAIN);
        attention([1, 1, 9, 8], [1, 1, 12, 8], [1, 1, 12, 40], _, [1, 1, 9, 12], PLAIN);
        attention([1, 1, 9, 8], [1, 1, 12, 8], [1, 1, 12, 100], _, [1, 1, 9, 12], PLAIN);
        attention([1, 1, 9, 8], [1, 1, 12, 8], [1, 1, 12, 300], _, [1, 1, 9, 12], PLAIN);
        attention([2, 2, 0, 8], [2, 2, 9, 8], [2, 2, 9, 8], _, _, PLAIN);
        attention_with_log_sums([1, 2, 19, 21], [1, 2, 70, 21], [1, 2, 70, 33], _, _, PLAIN);
        attention_with_log_sums([1, 1, 9, 70], [1, 1, 130, 70], [1, 1, 130, 300], _, _, PLAIN);
        attention_with_log_sums([1, 2, 20, 8], [1, 2, 9, 8], [1, 2, 9, 8], _, _, CAUSAL);
        attention_with_log_sums([1, 1, 9, 8], [1, 1, 12, 8], [1, 1, 12, 8], _, [1, 1, 9, 12], ALL);
        attention_with_log_sums([1, 1, 9, 8], [1, 1, 12, 8], [1, 1, 12, 40], _, [1, 1, 9, 12], ALL);
        attention_with_log_sums([1, 1, 9, 8], [1, 1, 12, 8], [1, 1, 12, 100], _, [1, 1, 9, 12],
            ALL);
        attention_with_log_sums([1, 1, 9, 8], [1, 1, 12, 8], [1, 1, 12, 300], _, [1, 1, 9, 12],
            ALL);
        attention_with_log_sums([1, 1, 9, 8], [1, 1, 12, 8], [1, 1, 12, 40], _, _, PLAIN);
        attention_with_log_sums([1, 1, 9, 8], [1, 1, 12, 8], [1, 1, 12, 100], _, _, PLAIN);
        attention_with_log_sums([1, 2, 1030, 8], [1, 2, 20, 8], [1, 2, 20, 12],
            bools(&[1, 1, 1030, 20]), _, ALL);
        // The edges of tiles of 64 queries, 64 keys, 16 columns and values of 64 or 128 columns.
        attention([1, 2, 17, 4], [1, 2, 63, 4], [1, 2, 63, 64], _, _, PLAIN);
        attention([2, 2, 63, 16], [2, 2, 64, 16], [2, 2, 64, 68], _, _, PLAIN);
        attention([1, 2, 64, 20], [1, 2, 65, 20], [1, 2, 65, 128], _, _, CAUSAL);
        attention([1, 2, 65, 64], [1, 2, 129, 64], [1, 2, 129, 132], _, _, CAUSAL);
        attention([1, 2, 130, 12], [1, 2, 70, 12], [1, 2, 70, 12], _, _, CAUSAL);
        attention([1, 2, 65, 8], [1, 2, 66, 8], [1, 2, 66, 8], bools(&[1, 2, 65, 66]), _, PLAIN);
        attention([2, 1, 65, 8], [2, 1, 66, 8], [2, 1, 66, 80], bools(&[1, 1, 65, 66]),
            permuted(&[66, 1, 1, 1], &[3, 2, 1, 0]), ALL);
        attention_with_log_sums([1, 2, 65, 8], [1, 2, 66, 8], [1, 2, 66, 8], _, _, CAUSAL);
        attention_with_log_sums([1, 2, 65, 8], [1, 2, 66, 8], [1, 2, 66, 80], _, _, CAUSAL);
        attention_with_log_sums([1, 1, 19, 8], [1, 1, 12, 8], [1, 1, 12, 8], _, [1, 1, 19, 12],
            ALL);
        attention_with_log_sums([1, 1, 19, 8], [1, 1, 12, 8], [1, 1, 12, 80], _, [1, 1, 19, 12],
            ALL);
        attention_with_log_sums([1, 1, 9, 8], [1, 1, 12, 8], [1, 1, 12, 8], _, _, CAUSAL);
        // Splits of the keys. The first queries see keys of the first split only.
        attention([2, 2, 1, 8], [2, 2, 700, 8], [2, 2, 700, 8], _, _, PLAIN);
        attention([1, 2, 3, 8], [1, 2, 1100, 8], [1, 2, 1100, 20], bools(&[1, 2, 3, 1100]), _,
            PLAIN);
        attention([1, 1, 70, 8], [1, 1, 600, 8], [1, 1, 600, 72], _, _, ALL);
        attention([1, 1, 2, 8], [1, 1, 513, 8], [1, 1, 513, 40], _, _, PLAIN);
        attention([1, 1, 2, 8], [1, 1, 513, 8], [1, 1, 513, 100], _, _, CAUSAL);
        attention([1, 1, 2, 8], [1, 1, 513, 8], [1, 1, 513, 300], _, _, PLAIN);
        attention([1, 1, 2, 8], [1, 1, 9, 8], [1, 1, 9, 300], _, _, PLAIN);
        attention([1, 1, 2, 8], [1, 1, 513, 8], [1, 1, 513, 40], _, _, ALL);
        attention([1, 1, 2, 8], [1, 1, 513, 8], [1, 1, 513, 100], _, _, ALL);
        attention([1, 1, 2, 8], [1, 1, 513, 8], [1, 1, 513, 300], _, _, ALL);
        attention_with_log_sums([1, 1, 620, 8], [1, 1, 600, 8], [1, 1, 600, 8], _, _, CAUSAL);
        attention_with_log_sums([1, 1, 2, 8], [1, 1, 513, 8], [1, 1, 513, 8],
            bools(&[1, 1, 2, 513]), _, ALL);
        // More queries and keys than burn-flex computes in one block.
        attention([1, 1, 520, 16], [1, 1, 513, 16], [1, 1, 513, 16], _, _, ALL);
    }
};
