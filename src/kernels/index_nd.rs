//! Reading and writing at places that several indices name together, and finding such places.
//!
//! Writing sorts the updates by place, stably, and then walks each place in order: deterministic, without atomics.

use smallvec::SmallVec;

use super::cases::{Arg, Case, below, case, ints, normal, permuted};
use super::scan::{ScanOp, scan};
use super::{Launch, Params, cast, copy, div_up, sort};
use crate::runtime::{Source, Variant};
use crate::tensor::{DType, Error, MAX_RANK, Result, Shape, Tensor};

static GATHER_ND: Source =
    Source { name: "gather_nd", text: include_str!("../../shaders/index/gather_nd.wgsl") };
static SCATTER_ND: Source =
    Source { name: "scatter_nd", text: include_str!("../../shaders/index/scatter_nd.wgsl") };
static ARGWHERE: Source =
    Source { name: "argwhere", text: include_str!("../../shaders/index/argwhere.wgsl") };

/// What becomes of an element that is written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Update {
    /// The last value written.
    Assign,
    /// The sum.
    Add,
    /// The product.
    Mul,
    /// The least; NaN if there is one.
    Min,
    /// The greatest; NaN if there is one.
    Max,
}

impl Update {
    const EVERY: [Self; 5] = [Self::Assign, Self::Add, Self::Mul, Self::Min, Self::Max];

    fn combine(self, dtype: DType) -> &'static str {
        let float = dtype == DType::F32;
        match self {
            Self::Assign => "b",
            // For truth values, whether any is true.
            Self::Add if dtype == DType::Bool => "a | b",
            Self::Add => "a + b",
            Self::Mul => "a * b",
            Self::Min if float => "nan_min(a, b)",
            Self::Min => "min(a, b)",
            Self::Max if float => "nan_max(a, b)",
            Self::Max => "max(a, b)",
        }
    }
}

fn gather_variant(dtype: DType, places: bool) -> Variant {
    Variant::new(&GATHER_ND).ty("E", dtype.wgsl()).flag("PLACES", places)
}

fn scatter_variant(dtype: DType, update: Update) -> Variant {
    Variant::new(&SCATTER_ND).ty("E", dtype.wgsl()).expr("COMBINE", update.combine(dtype))
}

/// The axes of a shape that indices name, and the count of elements at each place.
fn split(shape: &[usize], indices: &[usize]) -> Result<(usize, usize)> {
    let depth = indices.last().copied().unwrap_or(0);
    if depth > shape.len() || indices.is_empty() || depth > MAX_RANK {
        return Err(Error::Shape {
            lhs: shape.to_vec(),
            rhs: indices.to_vec(),
            rule: "the last axis of the indices names at most all axes of the tensor",
        });
    }
    Ok((depth, shape[depth..].iter().product()))
}

/// Words of a shape that a kernel walks by hand.
fn shape_words(shape: &[usize]) -> [u32; MAX_RANK] {
    let mut words = [1; MAX_RANK];
    for (word, &size) in words.iter_mut().zip(shape) {
        *word = size as u32;
    }
    words
}

/// The slices of `tensor` at `indices` `[.., k]`, each row of which names a place in the first `k` axes:
/// `[.., rest of the tensor's axes]`. An index outside of its axis is clamped to it.
///
/// # Errors
///
/// When the shapes do not fit or the memory is not there; so too for the functions below.
pub fn gather_nd(tensor: Tensor, indices: Tensor) -> Result<Tensor> {
    tensor.same_device(&indices)?;
    let (depth, slice) = split(tensor.shape(), indices.shape())?;
    let (tensor, indices) = (copy::packed(tensor)?, copy::packed(cast::indices(indices)?)?);
    let mut shape: Shape = indices.shape()[..indices.shape().len() - 1].into();
    shape.extend_from_slice(&tensor.shape()[depth..]);
    let out = Tensor::empty(tensor.runtime(), &shape, tensor.dtype(), &[&tensor, &indices])?;
    if out.is_empty() {
        return Ok(out);
    }
    if tensor.is_empty() {
        return Err(Error::Shape {
            lhs: tensor.shape().to_vec(),
            rhs: indices.shape().to_vec(),
            rule: "there is nothing to gather from an empty axis",
        });
    }
    let mut params: Params = SmallVec::new();
    params.extend([out.len(), depth, slice, 0].map(|v| v as u32));
    params.extend(shape_words(&tensor.shape()[..depth]));
    Launch {
        variant: &gather_variant(tensor.dtype(), false),
        inputs: &[&indices, &tensor],
        outputs: &[&out],
        params: &params,
        groups: div_up(out.len(), 64),
        work: out.len() as u64,
    }
    .run()?;
    Ok(out)
}

/// `tensor` with `values` `[.., rest of the tensor's axes]` combined into the places that `indices` `[.., k]` name. An index
/// outside of its axis is skipped.
pub fn scatter_nd(
    tensor: Tensor,
    indices: Tensor,
    values: Tensor,
    update: Update,
) -> Result<Tensor> {
    tensor.same_device(&indices)?;
    tensor.same_device(&values)?;
    let (depth, slice) = split(tensor.shape(), indices.shape())?;
    let rows = &indices.shape()[..indices.shape().len() - 1];
    let updates: usize = rows.iter().product();
    if rows != &values.shape()[..rows.len().min(values.shape().len())]
        || values.len() != updates * slice
    {
        return Err(Error::Shape {
            lhs: indices.shape().to_vec(),
            rhs: values.shape().to_vec(),
            rule: "there is a value, of the shape of the tensor's other axes, for each row of indices",
        });
    }
    if values.is_empty() || tensor.is_empty() {
        return Ok(tensor);
    }
    let runtime = tensor.runtime().clone();
    let indices = copy::packed(cast::indices(indices)?)?;
    let places = Tensor::empty(&runtime, &[updates], DType::I32, &[&indices])?;
    let mut params: Params = SmallVec::new();
    params.extend([updates, depth, 1, 0].map(|v| v as u32));
    params.extend(shape_words(&tensor.shape()[..depth]));
    Launch {
        variant: &gather_variant(DType::I32, true),
        inputs: &[&indices],
        outputs: &[&places],
        params: &params,
        groups: div_up(updates, 64),
        work: updates as u64,
    }
    .run()?;
    let (places, order) = sort::with_indices(places, 0, false)?;
    let (places, order) = (copy::packed(places)?, copy::packed(order)?);
    let values = copy::packed(values)?;
    let out = copy::owned(tensor, &[&places, &order, &values])?;
    Launch {
        variant: &scatter_variant(out.dtype(), update),
        inputs: &[&places, &order, &values],
        outputs: &[&out],
        params: &[(updates * slice) as u32, updates as u32, slice as u32, 0],
        groups: div_up(updates * slice, 64),
        work: (updates * slice) as u64,
    }
    .run()?;
    Ok(out)
}

/// How many elements up to and with each are true, for a tensor of truth values as one line.
pub fn counts(tensor: &Tensor) -> Result<Tensor> {
    let line = copy::reshape(tensor.clone(), &[tensor.len()])?;
    scan(ScanOp::Sum, cast::cast(line, DType::I32)?, 0)
}

/// The coordinates `[found, rank]` of the true elements, of which there are `found`; `counts` is what [`counts`] gave.
pub fn argwhere(tensor: Tensor, counts: &Tensor, found: usize) -> Result<Tensor> {
    let rank = tensor.shape().len();
    if rank > MAX_RANK {
        return Err(Error::TooManyAxes { shape: tensor.shape().to_vec() });
    }
    let tensor = copy::packed(tensor)?;
    let out = Tensor::empty(tensor.runtime(), &[found, rank], DType::I32, &[&tensor, counts])?;
    if out.is_empty() {
        return Ok(out);
    }
    let mut params: Params = SmallVec::new();
    params.extend([tensor.len(), rank, 0, 0].map(|v| v as u32));
    params.extend(shape_words(tensor.shape()));
    Launch {
        variant: &Variant::new(&ARGWHERE),
        inputs: &[&tensor, counts],
        outputs: &[&out],
        params: &params,
        groups: div_up(tensor.len(), 64),
        work: tensor.len() as u64,
    }
    .run()?;
    Ok(out)
}

/// Every variant that can be asked for.
pub fn variants() -> Vec<Variant> {
    let mut out = vec![Variant::new(&ARGWHERE), gather_variant(DType::I32, true)];
    for dtype in DType::COMPUTE_TYPES {
        out.push(gather_variant(dtype, false));
        for update in Update::EVERY {
            if dtype != DType::Bool || update == Update::Add {
                out.push(scatter_variant(dtype, update));
            }
        }
    }
    out
}

/// What the family must pass.
pub const CASES: &[Case] = &[
    case("float_gather_nd", &[normal(&[5, 6, 4]), below(5, &[7, 2])]),
    case("float_gather_nd", &[permuted(&[5, 6, 4], &[2, 0, 1]), below(4, &[3, 2, 3])]),
    case("float_gather_nd", &[normal(&[5, 6]), below(5, &[9, 1])]),
    case("int_gather_nd", &[ints(&[5, 6]), below(5, &[3, 2])]),
    case(
        "float_scatter_nd",
        &[normal(&[5, 6]), below(5, &[40, 2]), normal(&[40]), Arg::Update(Update::Add)],
    ),
    case(
        "float_scatter_nd",
        &[normal(&[5, 6]), below(5, &[4, 10, 1]), normal(&[4, 10, 6]), Arg::Update(Update::Add)],
    ),
    case(
        "float_scatter_nd",
        &[normal(&[5, 6]), below(5, &[40, 2]), normal(&[40]), Arg::Update(Update::Assign)],
    ),
    case(
        "float_scatter_nd",
        &[normal(&[5, 6]), below(5, &[9, 1]), normal(&[9, 6]), Arg::Update(Update::Mul)],
    ),
    case(
        "float_scatter_nd",
        &[normal(&[5, 6]), below(5, &[9, 1]), normal(&[9, 6]), Arg::Update(Update::Min)],
    ),
    case(
        "float_scatter_nd",
        &[permuted(&[6, 5], &[1, 0]), below(5, &[9, 1]), normal(&[9, 6]), Arg::Update(Update::Max)],
    ),
    case(
        "int_scatter_nd",
        &[ints(&[5, 6]), below(5, &[40, 2]), ints(&[40]), Arg::Update(Update::Add)],
    ),
    case(
        "int_scatter_nd",
        &[ints(&[5, 6]), below(5, &[40, 2]), ints(&[40]), Arg::Update(Update::Max)],
    ),
];
