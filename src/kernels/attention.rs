//! Attention: weighted sums of values, by how well queries and keys match.

use smallvec::SmallVec;

use super::cases::{Arg, Case, case, normal, permuted, truths};
use super::elementwise::Number;
use super::team::has_octets;
use super::{Launch, Params, copy, create, div_up};
use crate::runtime::{Runtime, Source, Variant};
use crate::tensor::{DType, Error, Layout, Result, Tensor};

static ATTENTION: Source =
    Source { name: "attention", text: include_str!("../../shaders/attention/attention.wgsl") };

/// What is done to the products of queries and keys before they become weights.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// Their factor; one over the square root of a key's length where there is none.
    pub scale: Option<f32>,
    /// The bound they are bent towards: `softcap * tanh(score / softcap)`.
    pub softcap: Option<f32>,
    /// Whether a query sees only the keys up to its own place, the last query all of them.
    pub causal: bool,
}

/// How a workgroup is made up; see `shaders/attention/attention.wgsl`.
#[derive(Debug, Clone, Copy)]
struct Shape {
    lanes: u32,
    rows: u32,
    /// Quads of columns per lane.
    cols: u32,
    /// Lanes that cover a row's columns.
    span: u32,
    subgroup: bool,
}

impl Shape {
    /// For a width in quads: enough columns for all of it, up to a limit, in few variants.
    fn choose(runtime: &Runtime, width: usize) -> Self {
        let quads = width.next_power_of_two() as u32;
        if runtime.is_software() {
            Self::software(quads, has_octets(runtime))
        } else {
            Self::gpu(quads)
        }
    }

    fn gpu(quads: u32) -> Self {
        Self { lanes: 64, rows: 8, cols: 1, span: quads.clamp(8, 64), subgroup: false }
    }

    fn software(quads: u32, subgroup: bool) -> Self {
        Self { lanes: 8, rows: 8, cols: (quads / 8).clamp(1, 2), span: 8, subgroup }
    }

    fn variant(self, biased: bool) -> Variant {
        let teams = self.lanes / self.span;
        Variant::new(&ATTENTION)
            .flag("SUBGROUP", self.subgroup)
            .flag("BIASED", biased)
            .int("LANES", self.lanes)
            .int("ROWS", self.rows)
            .int("COLS", self.cols)
            .int("TEAMS", teams)
            .int("OWN", self.rows / teams)
    }
}

/// `softmax(query @ key^T) @ value` for `[batch, heads, queries, width]`, `[batch, heads, keys, width]` and
/// `[batch, heads, keys, value width]`.
///
/// A mask hides keys where it is true; a bias is added to the scores. Both broadcast to
/// `[batch, heads, queries, keys]`. A query that sees no key gets zeros.
///
/// # Errors
///
/// When the shapes do not fit or the memory is not there.
pub fn attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Option<Tensor>,
    bias: Option<Tensor>,
    options: Options,
) -> Result<Tensor> {
    let fits = |rhs: &Tensor, rule| Error::Shape {
        lhs: query.shape().to_vec(),
        rhs: rhs.shape().to_vec(),
        rule,
    };
    let ([batch, heads, queries, width], [_, _, keys, _]) = (four(&query)?, four(&key)?);
    let [_, _, _, value_width] = four(&value)?;
    if key.shape() != [batch, heads, keys, width] || width == 0 {
        return Err(fits(
            &key,
            "queries and keys have one batch, one count of heads and one width above zero",
        ));
    }
    if value.shape() != [batch, heads, keys, value_width] {
        return Err(fits(&value, "each key has a value"));
    }
    let scores = [batch, heads, queries, keys];
    let spread = |tensor: &Tensor| {
        query.same_device(tensor)?;
        let layout = tensor.layout().expand(&scores);
        layout.ok_or_else(|| {
            fits(tensor, "a mask or bias broadcasts to [batch, heads, queries, keys]")
        })
    };
    query.same_device(&key)?;
    query.same_device(&value)?;
    let mask_layout = mask.as_ref().map(spread).transpose()?;
    let bias_layout = bias.as_ref().map(spread).transpose()?;

    let shape = [batch, heads, queries, value_width];
    if keys == 0 {
        return create::full(query.runtime(), &shape, Number::Float(0.0), DType::F32);
    }
    let scale = options.scale.unwrap_or_else(|| 1.0 / (width as f32).sqrt());
    let (query, key, value) = (in_quads(query)?, in_quads(key)?, in_quads(value)?);
    let (width, value_width) = (key.shape()[3] / 4, value.shape()[3] / 4);
    let biased = options.softcap.is_some() || mask.is_some() || bias.is_some();
    let mut inputs: SmallVec<[&Tensor; 5]> = SmallVec::from_slice(&[&query, &key, &value]);
    if biased {
        // What is missing is bound too, to something that is there, and not read.
        inputs.extend([mask.as_ref().unwrap_or(&query), bias.as_ref().unwrap_or(&query)]);
    }
    let runtime = query.runtime();
    let out =
        Tensor::empty(runtime, &[batch, heads, queries, value_width * 4], DType::F32, &inputs)?;
    if out.is_empty() {
        return create::full(runtime, &shape, Number::Float(0.0), DType::F32);
    }
    let form = Shape::choose(runtime, value_width);
    let row_blocks = div_up(queries, form.rows as usize);
    let col_blocks = div_up(value_width, (form.cols * form.span) as usize);
    let groups = (batch * heads) as u64 * row_blocks * col_blocks;
    let nothing = Layout::contiguous(&[0; 4]);
    let mask_layout = mask_layout.as_ref().unwrap_or(&nothing);
    let bias_layout = bias_layout.as_ref().unwrap_or(&nothing);

    let mut params: Params = SmallVec::new();
    params.extend([heads, queries, keys, width, value_width].map(|size| size as u32));
    params.extend([row_blocks, col_blocks, groups].map(|count| count as u32));
    params.extend([scale, options.softcap.unwrap_or(0.0)].map(f32::to_bits));
    params.extend([options.causal, mask.is_some(), bias.is_some()].map(u32::from));
    params.extend([mask_layout.offset as u32, bias_layout.offset as u32, 0]);
    for operand in [&query, &key, &value] {
        let layout = operand.layout();
        params.push(layout.offset as u32 / 4);
        params.extend(layout.strides[..3].iter().map(|&stride| (stride / 4) as i32 as u32));
    }
    for layout in [mask_layout, bias_layout] {
        params.extend(layout.strides.iter().map(|&stride| stride as i32 as u32));
    }
    Launch {
        variant: &form.variant(biased),
        inputs: &inputs,
        outputs: &[&out],
        params: &params,
        groups,
        work: 8 * (batch * heads * queries) as u64 * (keys * (width + value_width)) as u64,
    }
    .run()?;
    copy::narrow(out, 3, 0, shape[3])
}

/// The tensor with rows that are whole quads, zeros added where they are not; itself if it already is so.
fn in_quads(tensor: Tensor) -> Result<Tensor> {
    let Layout { strides, offset, shape } = tensor.layout();
    let aligned = |axis: usize| shape[axis] == 1 || strides[axis] % 4 == 0;
    let width = shape[3];
    if width % 4 == 0 && strides[3] == 1 && offset % 4 == 0 && (0..3).all(aligned) {
        return Ok(tensor);
    }
    if width % 4 == 0 {
        return copy::packed(tensor);
    }
    copy::resized(tensor, 3, width.next_multiple_of(4))
}

/// The sizes of a tensor of four axes.
fn four(tensor: &Tensor) -> Result<[usize; 4]> {
    tensor.shape().try_into().map_err(|_| Error::Shape {
        lhs: tensor.shape().to_vec(),
        rhs: vec![],
        rule: "attention takes tensors [batch, heads, length, width]",
    })
}

/// Every variant that can be asked for.
pub fn variants() -> Vec<Variant> {
    let mut shapes: Vec<Shape> = [8, 16, 32, 64].map(Shape::gpu).into();
    for subgroup in [false, true] {
        shapes.extend([8, 16].map(|quads| Shape::software(quads, subgroup)));
    }
    shapes.into_iter().flat_map(|shape| [shape.variant(false), shape.variant(true)]).collect()
}

/// What the family must pass.
pub const CASES: &[Case] = {
    const PLAIN: Arg = Arg::Attention(None, None, false);
    const CAUSAL: Arg = Arg::Attention(None, None, true);
    const ALL: Arg = Arg::Attention(Some(0.3), Some(2.0), true);
    const NONE: Arg = Arg::Without;
    &[
        case(
            "attention",
            &[
                normal(&[2, 3, 5, 8]),
                normal(&[2, 3, 7, 8]),
                normal(&[2, 3, 7, 8]),
                NONE,
                NONE,
                PLAIN,
            ],
        ),
        // One query, one key, widths that no block divides.
        case(
            "attention",
            &[
                normal(&[1, 2, 1, 3]),
                normal(&[1, 2, 1, 3]),
                normal(&[1, 2, 1, 1]),
                NONE,
                NONE,
                PLAIN,
            ],
        ),
        case(
            "attention",
            &[
                normal(&[1, 2, 19, 21]),
                normal(&[1, 2, 70, 21]),
                normal(&[1, 2, 70, 33]),
                NONE,
                NONE,
                PLAIN,
            ],
        ),
        case(
            "attention",
            &[
                normal(&[1, 1, 9, 70]),
                normal(&[1, 1, 130, 70]),
                normal(&[1, 1, 130, 300]),
                NONE,
                NONE,
                PLAIN,
            ],
        ),
        // As a transformer has them: heads beside the width in memory.
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
        case(
            "attention",
            &[
                normal(&[1, 2, 33, 8]),
                normal(&[1, 2, 33, 8]),
                normal(&[1, 2, 33, 8]),
                NONE,
                NONE,
                CAUSAL,
            ],
        ),
        // More queries than keys: the first see none.
        case(
            "attention",
            &[
                normal(&[1, 2, 20, 8]),
                normal(&[1, 2, 9, 8]),
                normal(&[1, 2, 9, 8]),
                NONE,
                NONE,
                CAUSAL,
            ],
        ),
        case(
            "attention",
            &[
                normal(&[2, 2, 9, 8]),
                normal(&[2, 2, 12, 8]),
                normal(&[2, 2, 12, 8]),
                truths(&[2, 2, 9, 12]),
                NONE,
                PLAIN,
            ],
        ),
        // A mask of two keys: some rows see nothing.
        case(
            "attention",
            &[
                normal(&[1, 2, 9, 8]),
                normal(&[1, 2, 2, 8]),
                normal(&[1, 2, 2, 8]),
                truths(&[1, 2, 9, 2]),
                NONE,
                PLAIN,
            ],
        ),
        case(
            "attention",
            &[
                normal(&[2, 2, 9, 8]),
                normal(&[2, 2, 12, 8]),
                normal(&[2, 2, 12, 8]),
                NONE,
                normal(&[2, 2, 9, 12]),
                PLAIN,
            ],
        ),
        case(
            "attention",
            &[
                normal(&[2, 2, 9, 8]),
                normal(&[2, 2, 12, 8]),
                normal(&[2, 2, 12, 8]),
                truths(&[1, 1, 9, 12]),
                permuted(&[12, 1, 2, 1], &[3, 2, 1, 0]),
                ALL,
            ],
        ),
        case(
            "attention",
            &[
                normal(&[2, 2, 0, 8]),
                normal(&[2, 2, 9, 8]),
                normal(&[2, 2, 9, 8]),
                NONE,
                NONE,
                PLAIN,
            ],
        ),
        // Past what burn-flex does in one piece.
        case(
            "attention",
            &[
                normal(&[1, 1, 520, 16]),
                normal(&[1, 1, 513, 16]),
                normal(&[1, 1, 513, 16]),
                NONE,
                NONE,
                ALL,
            ],
        ),
    ]
};
