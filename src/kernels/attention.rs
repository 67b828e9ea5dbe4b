//! Attention: sums of values, weighted by a softmax of the products of queries and keys.

use smallvec::SmallVec;

use super::common::cases::{Arg, Case, bools, case, normal, permuted};
use super::common::launch::{Launch, div_up, variants_of};
use super::common::options::AttentionOptions;
use super::common::policy;
use super::common::team::Team;
use super::composed::{self, create, views};
use super::elementwise::{self, ScalarValue};
use crate::params;
use crate::runtime::{Kernel, Source, Variant, wgsl};
use crate::tensor::{DType, Error, Layout, Result, Tensor};

static ATTENTION: Source =
    Source::new::<AttentionParams>("attention", wgsl!("../../shaders/attention/attention.wgsl"));

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
        pad0: u32,
        q: OperandLayout,
        k: OperandLayout,
        v: OperandLayout,
        mask_strides: [i32; 4],
        bias_strides: [i32; 4],
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

/// Query rows that a workgroup computes.
const ROWS: u32 = 8;

/// The attention kernel.
#[derive(Debug, Clone, Copy, Hash)]
struct AttentionKernel {
    /// The invocations that compute the columns of a row.
    team: Team,
    /// Columns per member of the team, in vec4s.
    cols: u32,
    /// Whether there is a softcap, a mask or a bias.
    biased: bool,
    /// Whether the logarithms of the sums of weights are results too.
    log_sums: bool,
}

impl Kernel for AttentionKernel {
    type Params = AttentionParams;

    fn variant(&self) -> Variant {
        let Self { team, cols, biased, log_sums } = *self;
        let teams = team.workgroup_size / team.size;
        Variant::new(&ATTENTION)
            .flag("SUBGROUP", team.subgroup)
            .flag("BIASED", biased)
            .flag("LOG_SUMS", log_sums)
            .int("WORKGROUP_SIZE", team.workgroup_size)
            .int("ROWS", ROWS)
            .int("COLS", cols)
            .int("TEAM_SIZE", team.size)
            .int("ROWS_PER_TEAM", ROWS / teams)
    }
}

/// The sizes of the operands of attention.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sizes {
    pub batch: usize,
    pub heads: usize,
    pub queries: usize,
    pub keys: usize,
    pub width: usize,
    pub value_width: usize,
}

impl Sizes {
    /// Returns the sizes, or an error if the shapes do not fit.
    pub fn of(query: &Tensor, key: &Tensor, value: &Tensor) -> Result<Self> {
        let [batch, heads, queries, width] = four_axes(query)?;
        let [_, _, keys, _] = four_axes(key)?;
        let [_, _, _, value_width] = four_axes(value)?;
        if key.shape() != [batch, heads, keys, width] || width == 0 {
            let rule = "queries and keys must have the same batch, heads and width, and a width above zero";
            return Err(mismatch(query, key, rule));
        }
        if value.shape() != [batch, heads, keys, value_width] {
            return Err(mismatch(query, value, "there must be one value per key"));
        }
        query.same_device(key)?;
        query.same_device(value)?;
        Ok(Self { batch, heads, queries, keys, width, value_width })
    }

    /// Returns the layout of a mask or bias for every score.
    pub fn broadcast(&self, query: &Tensor, tensor: &Tensor) -> Result<Layout> {
        query.same_device(tensor)?;
        let layout = tensor.layout().expand(&[self.batch, self.heads, self.queries, self.keys]);
        layout.ok_or_else(|| {
            let rule = "a mask or bias must broadcast to [batch, heads, queries, keys]";
            mismatch(query, tensor, rule)
        })
    }
}

/// Returns the error that an operand does not fit to the query.
pub(super) fn mismatch(query: &Tensor, operand: &Tensor, rule: &'static str) -> Error {
    Error::Shape { lhs: query.shape().to_vec(), rhs: operand.shape().to_vec(), rule }
}

/// Computes `softmax(query @ key^T) @ value` for `[batch, heads, queries, width]`,
/// `[batch, heads, keys, width]` and `[batch, heads, keys, value width]`.
///
/// A mask hides keys where it is true; a bias is added to the scores. Both broadcast to
/// `[batch, heads, queries, keys]`. The result is zero for a query whose keys are all hidden.
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
    compute(query, key, value, mask, bias, options, false).map(|(out, _)| out)
}

/// Computes [`attention`], and for its gradient the logarithm of the sum of `e^score` of each
/// query, `[batch, heads, queries]`. It is infinite for a query whose keys are all hidden.
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
    compute(query, key, value, mask, bias, options, true)
}

/// Computes attention. The second result is meaningful only with `log_sums`.
fn compute(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Option<Tensor>,
    bias: Option<Tensor>,
    options: AttentionOptions,
    log_sums: bool,
) -> Result<(Tensor, Tensor)> {
    let sizes = Sizes::of(&query, &key, &value)?;
    let Sizes { batch, heads, queries, keys, width, .. } = sizes;
    let broadcast = |tensor: &Tensor| sizes.broadcast(&query, tensor);
    let mask_layout = mask.as_ref().map(broadcast).transpose()?;
    let bias_layout = bias.as_ref().map(broadcast).transpose()?;
    let runtime = query.runtime().clone();
    let shape = [batch, heads, queries, sizes.value_width];
    let constant = |shape: &[usize], value: f32| {
        create::full(&runtime, shape, ScalarValue::Float(value), DType::F32)
    };
    let sums_shape = [batch, heads, queries];
    if keys == 0 || shape.contains(&0) {
        return Ok((constant(&shape, 0.0)?, constant(&sums_shape, f32::INFINITY)?));
    }
    if policy::composes_attention(&runtime, queries * keys) {
        let bias = hidden_by(mask, bias)?;
        let scores = composed::attention::Scores { sizes, key, bias, options };
        return composed::attention::attention(&query, &value, &scores);
    }
    let scale = options.scale.unwrap_or_else(|| 1.0 / (width as f32).sqrt());
    let (query, key, value) = (in_vec4s(query)?, in_vec4s(key)?, in_vec4s(value)?);
    // From here on, widths count vec4s.
    let (width, value_width) = (key.shape()[3] / 4, value.shape()[3] / 4);
    let biased = options.softcap.is_some() || mask.is_some() || bias.is_some();
    let mut inputs: SmallVec<[&Tensor; 5]> = SmallVec::from_slice(&[&query, &key, &value]);
    if biased {
        // The layout requires both bindings; a missing mask or bias is the query.
        inputs.extend([mask.as_ref().unwrap_or(&query), bias.as_ref().unwrap_or(&query)]);
    }
    let out = Tensor::empty(&runtime, &[batch, heads, queries, value_width * 4], DType::F32)?;
    let sums = Tensor::empty(&runtime, &sums_shape, DType::F32)?;
    let outputs = [&out, &sums];
    let (team, cols) = policy::attention_team(&runtime, value_width);
    let row_blocks = div_up(queries, ROWS as usize);
    let col_blocks = div_up(value_width, (cols * team.size) as usize);
    let workgroups = (batch * heads) as u64 * row_blocks * col_blocks;
    Launch {
        kernel: &AttentionKernel { team, cols, biased, log_sums },
        inputs: &inputs,
        outputs: &outputs[..if log_sums { 2 } else { 1 }],
        params: &AttentionParams {
            heads: heads as u32,
            queries: queries as u32,
            keys: keys as u32,
            width: width as u32,
            value_width: value_width as u32,
            row_blocks: row_blocks as u32,
            col_blocks: col_blocks as u32,
            workgroups: workgroups as u32,
            scale,
            softcap: options.softcap.unwrap_or(0.0),
            causal: u32::from(options.causal),
            has_mask: u32::from(mask.is_some()),
            has_bias: u32::from(bias.is_some()),
            mask_offset: broadcast_offset(mask_layout.as_ref()),
            bias_offset: broadcast_offset(bias_layout.as_ref()),
            pad0: 0,
            q: OperandLayout::of(&query),
            k: OperandLayout::of(&key),
            v: OperandLayout::of(&value),
            mask_strides: broadcast_strides(mask_layout.as_ref()),
            bias_strides: broadcast_strides(bias_layout.as_ref()),
        },
        workgroups,
        work: 8 * (batch * heads * queries) as u64 * (keys * (width + value_width)) as u64,
    }
    .run()?;
    Ok((views::narrow(out, 3, 0, shape[3])?, sums))
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
    let Layout { strides, offset, shape } = tensor.layout();
    let aligned = |axis: usize| shape[axis] == 1 || strides[axis] % 4 == 0;
    let width = shape[3];
    if width % 4 == 0 && strides[3] == 1 && offset % 4 == 0 && (0..3).all(aligned) {
        return Ok(tensor);
    }
    if width % 4 == 0 {
        return views::packed(tensor);
    }
    views::resized(tensor, 3, width.next_multiple_of(4))
}

/// Returns the sizes of a tensor of four axes.
fn four_axes(tensor: &Tensor) -> Result<[usize; 4]> {
    tensor.shape().try_into().map_err(|_| Error::Shape {
        lhs: tensor.shape().to_vec(),
        rhs: vec![],
        rule: "attention needs tensors [batch, heads, length, width]",
    })
}

/// Returns every variant that the family can dispatch.
pub fn variants() -> Vec<Variant> {
    variants_of(policy::all_attention_teams().flat_map(|(team, cols)| {
        let kernel = |biased, log_sums| AttentionKernel { team, cols, biased, log_sums };
        [kernel(false, false), kernel(false, true), kernel(true, false), kernel(true, true)]
    }))
}

/// The cases that the family must pass.
pub const CASES: &[Case] = {
    const PLAIN: Arg = Arg::Attention(None, None, false);
    const CAUSAL: Arg = Arg::Attention(None, None, true);
    const ALL: Arg = Arg::Attention(Some(0.3), Some(2.0), true);
    const NONE: Arg = Arg::Absent;
    /// The case of queries, keys and values of these shapes.
    macro_rules! packed {
        ($($argument:expr),*) => { packed!(@"attention", $($argument),*) };
        (
            @$op:literal, $queries:expr, $keys:expr, $values:expr, $mask:expr, $bias:expr,
            $options:expr
        ) => {
            case(
                $op,
                &[normal(&$queries), normal(&$keys), normal(&$values), $mask, $bias, $options],
            )
        };
    }
    macro_rules! log_sums {
        ($($argument:expr),*) => { packed!(@"attention_with_log_sums", $($argument),*) };
    }
    &[
        packed!([2, 3, 5, 8], [2, 3, 7, 8], [2, 3, 7, 8], NONE, NONE, PLAIN),
        // One query, one key, widths that are not multiples of four.
        packed!([1, 2, 1, 3], [1, 2, 1, 3], [1, 2, 1, 1], NONE, NONE, PLAIN),
        packed!([1, 2, 19, 21], [1, 2, 70, 21], [1, 2, 70, 33], NONE, NONE, PLAIN),
        packed!([1, 1, 9, 70], [1, 1, 130, 70], [1, 1, 130, 300], NONE, NONE, PLAIN),
        // The layout of a transformer: heads next to the width in memory.
        case(
            "attention",
            &[
                permuted(&[2, 9, 3, 16], &[0, 2, 1, 3]),
                permuted(&[2, 11, 3, 16], &[0, 2, 1, 3]),
                permuted(&[2, 11, 3, 16], &[0, 2, 1, 3]),
                NONE,
                NONE,
                CAUSAL,
            ],
        ),
        packed!([1, 2, 33, 8], [1, 2, 33, 8], [1, 2, 33, 8], NONE, NONE, CAUSAL),
        // More queries than keys: the first queries attend to no key.
        packed!([1, 2, 20, 8], [1, 2, 9, 8], [1, 2, 9, 8], NONE, NONE, CAUSAL),
        packed!([2, 2, 9, 8], [2, 2, 12, 8], [2, 2, 12, 8], bools(&[2, 2, 9, 12]), NONE, PLAIN),
        // Two keys: the mask hides both from some queries.
        packed!([1, 2, 9, 8], [1, 2, 2, 8], [1, 2, 2, 8], bools(&[1, 2, 9, 2]), NONE, PLAIN),
        packed!([2, 2, 9, 8], [2, 2, 12, 8], [2, 2, 12, 8], NONE, normal(&[2, 2, 9, 12]), PLAIN),
        packed!(
            [2, 2, 9, 8],
            [2, 2, 12, 8],
            [2, 2, 12, 8],
            bools(&[1, 1, 9, 12]),
            permuted(&[12, 1, 2, 1], &[3, 2, 1, 0]),
            ALL
        ),
        // Wide values, with and without a bias.
        packed!([1, 1, 9, 8], [1, 1, 12, 8], [1, 1, 12, 100], NONE, NONE, PLAIN),
        packed!([1, 1, 9, 8], [1, 1, 12, 8], [1, 1, 12, 40], NONE, normal(&[1, 1, 9, 12]), PLAIN),
        packed!([1, 1, 9, 8], [1, 1, 12, 8], [1, 1, 12, 100], NONE, normal(&[1, 1, 9, 12]), PLAIN),
        packed!([1, 1, 9, 8], [1, 1, 12, 8], [1, 1, 12, 300], NONE, normal(&[1, 1, 9, 12]), PLAIN),
        packed!([2, 2, 0, 8], [2, 2, 9, 8], [2, 2, 9, 8], NONE, NONE, PLAIN),
        log_sums!([1, 2, 19, 21], [1, 2, 70, 21], [1, 2, 70, 33], NONE, NONE, PLAIN),
        log_sums!([1, 1, 9, 70], [1, 1, 130, 70], [1, 1, 130, 300], NONE, NONE, PLAIN),
        log_sums!([1, 2, 20, 8], [1, 2, 9, 8], [1, 2, 9, 8], NONE, NONE, CAUSAL),
        log_sums!([1, 1, 9, 8], [1, 1, 12, 8], [1, 1, 12, 8], NONE, normal(&[1, 1, 9, 12]), ALL),
        log_sums!([1, 1, 9, 8], [1, 1, 12, 8], [1, 1, 12, 40], NONE, normal(&[1, 1, 9, 12]), ALL),
        log_sums!([1, 1, 9, 8], [1, 1, 12, 8], [1, 1, 12, 100], NONE, normal(&[1, 1, 9, 12]), ALL),
        log_sums!([1, 1, 9, 8], [1, 1, 12, 8], [1, 1, 12, 300], NONE, normal(&[1, 1, 9, 12]), ALL),
        log_sums!([1, 1, 9, 8], [1, 1, 12, 8], [1, 1, 12, 40], NONE, NONE, PLAIN),
        log_sums!([1, 1, 9, 8], [1, 1, 12, 8], [1, 1, 12, 100], NONE, NONE, PLAIN),
        log_sums!(
            [1, 2, 1030, 8],
            [1, 2, 20, 8],
            [1, 2, 20, 12],
            bools(&[1, 1, 1030, 20]),
            NONE,
            ALL
        ),
        // More queries and keys than burn-flex computes in one block.
        packed!([1, 1, 520, 16], [1, 1, 513, 16], [1, 1, 513, 16], NONE, NONE, ALL),
    ]
};
