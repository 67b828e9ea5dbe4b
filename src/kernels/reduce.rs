//! Reductions over one axis, several, or all.
//!
//! A line is what one output reduces. Long lines with few outputs are cut into parts that are reduced
//! on their own and then combined, always in the same order: results repeat bit for bit.

use smallvec::SmallVec;

use super::cases::{Arg, Case, case, ints, normal, permuted, truths};
use super::create;
use super::elementwise::{Number, scalar};
use super::table::rows;
use super::team::{Team, part_of};
use super::{Launch, Params, walk};
use crate::runtime::{Source, Variant};
use crate::tensor::{DType, Error, Layout, MAX_RANK, Result, Shape, Tensor, collapse};

static REDUCE: Source =
    Source { name: "reduce", text: include_str!("../../shaders/reduce/reduce.wgsl") };

/// What is computed from a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reduction {
    /// The sum; zero for an empty line.
    Sum,
    /// The sum divided by the length; NaN for an empty line of floats.
    Mean,
    /// The product; one for an empty line.
    Prod,
    /// The largest element; NaN if there is one.
    Max,
    /// The smallest element; NaN if there is one.
    Min,
    /// The largest magnitude.
    MaxAbs,
    /// Whether any element is not zero.
    Any,
    /// Whether all elements are not zero.
    All,
    /// The index of the largest element, the first of equals.
    ArgMax,
    /// The index of the smallest element, the first of equals.
    ArgMin,
}

use Reduction::*;

impl Reduction {
    const EVERY: [Self; 10] = [Sum, Mean, Prod, Max, Min, MaxAbs, Any, All, ArgMax, ArgMin];

    fn is_arg(self) -> bool {
        matches!(self, ArgMax | ArgMin)
    }

    /// The result's type for elements of `dtype`.
    fn out(self, dtype: DType) -> DType {
        match self {
            Any | All => DType::Bool,
            ArgMax | ArgMin => DType::I32,
            _ => dtype,
        }
    }

    /// The reduction that combines the results of parts.
    fn of_parts(self) -> Self {
        match self {
            MaxAbs => Max,
            other => other,
        }
    }

    fn exists_for(self, dtype: DType) -> bool {
        dtype != DType::Bool || matches!(self, Any | All)
    }

    fn variant(self, dtype: DType, team: Team, reads: Reads, flat: bool, last: bool) -> Variant {
        let float = dtype == DType::F32;
        let inner = match self {
            Any | All => "u32",
            _ => dtype.wgsl(),
        };
        let combine = match self {
            Sum | Mean => "a + b",
            Prod => "a * b",
            Max | MaxAbs if float => "nan_max(a, b)",
            Max | MaxAbs => "max(a, b)",
            Min if float => "nan_min(a, b)",
            Min => "min(a, b)",
            Any => "a | b",
            All => "a & b",
            ArgMax | ArgMin => "a",
        };
        let identity = match self {
            Sum | Mean => "T()",
            Any => "0u",
            All => "1u",
            Prod => "T(1)",
            Max if float => "-inf()",
            Min if float => "inf()",
            Max | Min => limit(dtype, self == Max),
            MaxAbs | ArgMax | ArgMin => "T()",
        };
        let load = match self {
            MaxAbs if float => "abs(v)",
            MaxAbs => "select(v, T(0) - v, v < T(0))",
            Any | All => "u32(!(v == E()))",
            _ => "v",
        };
        let better = match (self, float) {
            (ArgMax, true) => "v > b || (is_nan(v) && (!is_nan(b) || index < best.index))",
            (ArgMin, true) => "v < b || (is_nan(v) && (!is_nan(b) || index < best.index))",
            (ArgMax, false) => "v > b",
            (ArgMin, false) => "v < b",
            _ => "false",
        };
        let finish = match (self, last) {
            (Mean, true) if float => "v / p.scale",
            (Mean, true) => "v / T(p.len * PER_LOAD)",
            _ => "v",
        };
        let quads = reads != Reads::Single;
        let variant = Variant::new(&REDUCE)
            .ty("E", dtype.wgsl())
            .ty("T", inner)
            .ty("O", self.out(dtype).wgsl())
            .expr("COMBINE", combine)
            .expr("IDENTITY", identity)
            .expr("LOAD", load)
            .expr("FINISH", finish)
            .expr("BETTER", better)
            .int("PER_LOAD", if reads == Reads::Along { 4 } else { 1 })
            .flag("ARG", self.is_arg())
            .flag("ALONG", reads == Reads::Along)
            .flag("FLAT", flat)
            .flag("ACROSS", reads == Reads::Across)
            .flag("QUADS", quads)
            .flag("WORDS", quads && dtype.size() == 4);
        team.define(variant)
    }
}

/// The least value of an integer type, or the greatest.
fn limit(dtype: DType, least: bool) -> &'static str {
    match (dtype, least) {
        (DType::I32, true) => "i32(-0x7fffffff) - 1",
        (DType::I32, false) => "0x7fffffff",
        (DType::I64, true) => "i64(u64(1u) << 63u)",
        (DType::I64, false) => "i64(~u64(0u) >> 1u)",
        (_, true) => "T(0)",
        (_, false) => "~T(0)",
    }
}

/// What one read brings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reads {
    /// An element.
    Single,
    /// Four neighbours of a line.
    Along,
    /// An element of each of four lines.
    Across,
}

/// Reduces the given axes, which stay in the shape with size one.
///
/// # Errors
///
/// For a maximum or minimum of nothing or a mean of no integers, and when the device fails.
pub fn axes(kind: Reduction, tensor: Tensor, axes: &[usize]) -> Result<Tensor> {
    let mut shape: Shape = tensor.shape().into();
    let mut kept: SmallVec<[usize; 6]> = SmallVec::new();
    for axis in 0..shape.len() {
        if !axes.contains(&axis) {
            kept.push(axis);
        }
    }
    let len: usize = axes.iter().map(|&axis| shape[axis]).product();
    for &axis in axes {
        shape[axis] = 1;
    }
    if len == 0 && kind == Mean && tensor.dtype().is_float() {
        let nothing = Number::Float(f32::NAN);
        return create::full(tensor.runtime(), &shape, nothing, tensor.dtype());
    }
    if len == 0 && !matches!(kind, Sum | Prod | Any | All) {
        return Err(Error::Shape {
            lhs: tensor.shape().to_vec(),
            rhs: axes.to_vec(),
            rule: "the axes of a maximum, minimum or mean must not be empty",
        });
    }
    let outer = tensor.layout().permute(&kept);
    let inner = Layout { offset: 0, ..tensor.layout().permute(axes) };
    let out = reduce(kind, &tensor, &outer, &inner)?;
    Ok(out.view(Layout::contiguous(&shape)))
}

/// Reduces one axis, which stays in the shape with size one.
///
/// # Errors
///
/// As [`axes`].
pub fn dim(kind: Reduction, tensor: Tensor, axis: usize) -> Result<Tensor> {
    axes(kind, tensor, &[axis])
}

/// Reduces everything to a tensor of shape `[1]`.
///
/// # Errors
///
/// As [`axes`].
pub fn all(kind: Reduction, tensor: Tensor) -> Result<Tensor> {
    let every: SmallVec<[usize; 6]> = (0..tensor.shape().len()).collect();
    let out = axes(kind, tensor, &every)?;
    Ok(out.view(Layout::contiguous(&[1])))
}

/// The result over the lines that start at `outer`'s elements and run through `inner`'s.
fn reduce(kind: Reduction, tensor: &Tensor, outer: &Layout, inner: &Layout) -> Result<Tensor> {
    let (outputs, len) = (outer.len(), inner.len());
    let (inner_shape, inner_strides) = collapse(&[inner]);
    if inner_shape.len() > MAX_RANK {
        return Err(Error::TooManyAxes { shape: inner_shape.to_vec() });
    }
    let steps = &inner_strides[0];
    let flat = inner_shape.len() <= 1;
    let straight = flat && steps.first().is_none_or(|&step| step == 1);
    let four = |layout: &Layout| {
        layout.strides.iter().zip(&layout.shape).all(|(&s, &n)| n == 1 || s % 4 == 0)
    };
    let quads = |reads| {
        if kind.is_arg() || !outer.offset.is_multiple_of(4) { Reads::Single } else { reads }
    };
    let beside = outer.shape.len().checked_sub(1).is_some_and(|last| {
        let rest = Layout {
            shape: outer.shape[..last].into(),
            strides: outer.strides[..last].into(),
            offset: 0,
        };
        outer.strides[last] == 1
            && outer.shape[last].is_multiple_of(4)
            && four(&rest)
            && four(inner)
    });
    // A team's reads should be neighbours in memory: of a line, or of lines beside one another if there are some.
    // Those of indices are not cut into parts: few of them need a team each.
    let few = if kind.is_arg() { 64 } else { 8 };
    let along =
        len >= 16 && (steps.last().is_none_or(|&step| step == 1) || (outputs < few && len > 64));
    let reads = match along {
        true if straight && len.is_multiple_of(4) && four(outer) => quads(Reads::Along),
        false if beside => quads(Reads::Across),
        _ => Reads::Single,
    };
    let (runtime, dtype) = (tensor.runtime(), tensor.dtype());
    // Few outputs: parts of a line are reduced first. Indices do not survive that, so theirs are not cut.
    let chunk = if kind.is_arg() { len } else { part_of(runtime, along, outputs, len) };
    let chunk = chunk.next_multiple_of(4).max(4);
    let splits = len.div_ceil(chunk).max(1);
    let (lines, unit) = match reads {
        Reads::Single => (outputs, 1),
        Reads::Along => (outputs, 4),
        Reads::Across => (outputs / 4, 1),
    };
    let team = match along {
        true if dtype.size() == 8 => {
            Team::along(runtime, lines * splits, chunk / unit).by_barriers()
        }
        true => Team::along(runtime, lines * splits, chunk / unit),
        false => Team::across(runtime, reads == Reads::Across, chunk),
    };
    let out = Tensor::empty(runtime, &[splits * outputs], kind.out(dtype), &[tensor])?;
    if outputs == 0 {
        return Ok(out);
    }
    // In reads: those along a line are neighbours.
    let step_of = |axis: usize| match (reads, steps.get(axis)) {
        (Reads::Single, Some(&step)) => step as i32 as u32,
        (Reads::Across, Some(&step)) => (step / 4) as i32 as u32,
        _ => 1,
    };
    let mut params: Params = SmallVec::new();
    params.extend_from_slice(&[
        lines as u32,
        splits as u32,
        (len / unit) as u32,
        (chunk.min(len) / unit) as u32,
        (len as f32).to_bits(),
        step_of(0),
        inner_shape.len() as u32,
        0,
    ]);
    params.extend_from_slice(&walk(&[outer])?.0);
    let mut words = [0u32; 2 * MAX_RANK];
    for (axis, &size) in inner_shape.iter().enumerate() {
        words[axis] = size as u32;
        words[MAX_RANK + axis] = step_of(axis);
    }
    params.extend_from_slice(&words);
    Launch {
        variant: &kind.variant(dtype, team, reads, flat, splits == 1),
        inputs: &[tensor],
        outputs: &[&out],
        params: &params,
        groups: team.groups(lines * splits),
        work: tensor.len() as u64,
    }
    .run()?;
    if splits == 1 {
        return Ok(out);
    }
    let total = if kind == Mean { Sum } else { kind.of_parts() };
    let out = dim(total, out.view(Layout::contiguous(&[splits, outputs])), 0)?;
    match (kind, dtype) {
        (Mean, DType::F32) => scalar(&rows::float_div_scalar, out, &[Number::Int(len as i128)]),
        (Mean, _) => scalar(&rows::int_div_scalar, out, &[Number::Int(len as i128)]),
        _ => Ok(out),
    }
}

/// Every variant that can be asked for.
pub fn variants() -> Vec<Variant> {
    let single = Team::all_along().chain(Team::all_across(false)).map(|team| (team, Reads::Single));
    let across = Team::all_across(true).map(|team| (team, Reads::Across));
    let both = single
        .chain(across)
        .flat_map(|(team, reads)| [true, false].map(|flat| (team, reads, flat)));
    let ways: Vec<_> =
        Team::all_along().map(|team| (team, Reads::Along, true)).chain(both).collect();
    let mut out = Vec::new();
    for kind in Reduction::EVERY {
        for dtype in DType::COMPUTE_TYPES.into_iter().filter(|&dtype| kind.exists_for(dtype)) {
            for &(team, reads, flat) in &ways {
                let exists = (dtype.size() < 8 || team == team.by_barriers())
                    && (reads == Reads::Single || !kind.is_arg());
                // Only a mean does something else in the end.
                let ends: &[bool] = if kind == Mean { &[true, false] } else { &[true] };
                let ends = ends.iter().filter(|_| exists);
                out.extend(ends.map(|&last| kind.variant(dtype, team, reads, flat, last)));
            }
        }
    }
    out
}

/// What the family must pass.
pub const CASES: &[Case] = &[
    case("float_sum", &[normal(&[3, 5])]),
    case("float_sum", &[normal(&[4099])]),
    case("float_sum", &[normal(&[257, 1023])]),
    case("float_sum", &[permuted(&[7, 9, 5], &[2, 0, 1])]),
    case("float_sum_dim", &[normal(&[4, 6, 5]), Arg::Int(0)]),
    case("float_sum_dim", &[normal(&[4, 6, 5]), Arg::Int(1)]),
    case("float_sum_dim", &[normal(&[4, 6, 5]), Arg::Int(2)]),
    case("float_sum_dim", &[normal(&[3, 4096]), Arg::Int(1)]),
    case("float_sum_dim", &[normal(&[3000, 64]), Arg::Int(1)]),
    case("float_sum_dim", &[normal(&[5000, 3]), Arg::Int(0)]),
    case("float_sum_dim", &[normal(&[5000, 12]), Arg::Int(0)]),
    case("float_sum_dim", &[normal(&[3000, 72]), Arg::Int(0)]),
    case("float_mean_dim", &[normal(&[2, 3000, 70]), Arg::Int(1)]),
    case("float_max_dim", &[normal(&[300, 68]), Arg::Int(0)]),
    case("float_argmin", &[normal(&[300, 70]), Arg::Int(0), Arg::IntType]),
    case("float_argmax", &[normal(&[37, 40]), Arg::Int(1), Arg::IntType]),
    case("float_mean_dim", &[normal(&[3, 70, 36]), Arg::Int(1)]),
    case("float_max_dim", &[normal(&[2, 9, 8]), Arg::Int(1)]),
    case("float_sum_dim", &[permuted(&[40, 33], &[1, 0]), Arg::Int(1)]),
    case("float_sum_dim", &[normal(&[2, 0, 3]), Arg::Int(1)]),
    case("float_sum_dim", &[normal(&[70_000, 17]), Arg::Int(1)]),
    case("float_mean", &[normal(&[33, 77])]),
    case("float_mean_dim", &[normal(&[33, 77]), Arg::Int(0)]),
    case("float_mean_dim", &[normal(&[2, 5000]), Arg::Int(1)]),
    case("float_prod", &[normal(&[2, 9])]),
    case("float_prod_dim", &[normal(&[5, 20]), Arg::Int(1)]),
    case("float_max", &[normal(&[3000])]),
    case("float_min", &[normal(&[30, 100])]),
    case("float_max_abs", &[normal(&[30, 100])]),
    case("float_max_dim", &[normal(&[3, 4, 50]), Arg::Int(2)]),
    case("float_min_dim", &[normal(&[3, 4, 50]), Arg::Int(0)]),
    case("float_max_abs_dim", &[normal(&[30, 41]), Arg::Int(1)]),
    case("float_max_dim_with_indices", &[normal(&[6, 40]), Arg::Int(1), Arg::IntType]),
    case("float_min_dim_with_indices", &[normal(&[6, 40]), Arg::Int(0), Arg::IntType]),
    case("float_argmax", &[normal(&[6, 7]), Arg::Int(1), Arg::IntType]),
    case("float_argmax", &[normal(&[3, 700]), Arg::Int(1), Arg::IntType]),
    case("float_argmin", &[normal(&[60, 7, 2]), Arg::Int(1), Arg::IntType]),
    case("float_any", &[normal(&[6, 7]), Arg::BoolType]),
    case("float_any_dim", &[normal(&[6, 7]), Arg::Int(1), Arg::BoolType]),
    case("float_all", &[normal(&[6, 7]), Arg::BoolType]),
    case("float_all_dim", &[normal(&[6, 7]), Arg::Int(0), Arg::BoolType]),
    case("int_sum", &[ints(&[700, 30])]),
    case("int_sum_dim", &[ints(&[7, 30]), Arg::Int(0)]),
    case("int_prod", &[ints(&[9])]),
    case("int_prod_dim", &[ints(&[4, 5]), Arg::Int(1)]),
    case("int_mean", &[ints(&[9, 3])]),
    case("int_mean_dim", &[ints(&[9, 3]), Arg::Int(0)]),
    case("int_max", &[ints(&[9, 300])]),
    case("int_min", &[ints(&[9, 300])]),
    case("int_max_dim", &[ints(&[9, 30]), Arg::Int(1)]),
    case("int_min_dim", &[ints(&[9, 30]), Arg::Int(1)]),
    case("int_max_abs", &[ints(&[9, 30])]),
    case("int_max_abs_dim", &[ints(&[9, 30]), Arg::Int(0)]),
    case("int_max_dim_with_indices", &[ints(&[9, 30]), Arg::Int(1)]),
    case("int_min_dim_with_indices", &[ints(&[9, 30]), Arg::Int(1)]),
    case("int_argmax", &[ints(&[9, 30]), Arg::Int(1)]),
    case("int_argmin", &[ints(&[9, 30]), Arg::Int(0)]),
    case("int_any", &[ints(&[9, 30]), Arg::BoolType]),
    case("int_any_dim", &[ints(&[9, 3]), Arg::Int(1), Arg::BoolType]),
    case("int_all", &[ints(&[9, 30]), Arg::BoolType]),
    case("int_all_dim", &[ints(&[9, 3]), Arg::Int(0), Arg::BoolType]),
    case("bool_any", &[truths(&[50])]),
    case("bool_any_dim", &[truths(&[5, 3]), Arg::Int(1)]),
    case("bool_all", &[truths(&[50])]),
    case("bool_all_dim", &[truths(&[5, 3]), Arg::Int(0)]),
];
