//! Reductions over one axis, several, or all.
//!
//! A line is the elements that one output reduces. If there are few outputs, long lines are divided
//! into splits, which are reduced separately and then combined. The order is always the same:
//! results repeat bit for bit.

use smallvec::SmallVec;

use crate::kernels::elementwise::scalar;
use crate::kernels::fusion::{epilogue, prologue, reductions};
use crate::kernels::gather::gather;
use crate::kernels::launch::walk::{Walk, shape_words};
use crate::kernels::launch::{Launch, PendingResult, Reads, parts, variants_of};
use crate::kernels::ops::cases::{Arg, Case, bools, cases, ints, permuted};
use crate::kernels::ops::map::ScalarValue;
use crate::kernels::ops::table::rows;
use crate::kernels::policy::team::Team;
use crate::kernels::{create, policy, views};
use crate::params;
use crate::runtime::{Kernel, Source, Variant, wgsl};
use crate::tensor::{
    DType, Error, Layout, MAX_RANK, ReduceOp, Result, Shape, Strides, Tensor, collapse,
};

static REDUCE: Source =
    Source::new::<ReduceParams>("reduce", wgsl!("../../shaders/reduce/reduce.wgsl"));

params! {
    struct ReduceParams {
        count: u32,
        lines: u32,
        len: u32,
        split_len: u32,
        divisor: f32,
        stride: i32,
        inner_rank: u32,
        zero: u32,
        walk: Walk,
        inner_shape: [[u32; 4]; MAX_RANK / 4],
        inner_strides: [[i32; 4]; MAX_RANK / 4],
    }
}

/// The result of a reduction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reduction {
    /// The sum; zero for an empty line.
    Sum,
    /// The sum of partial sums, to which the rounding errors of its additions are added (D. E. Knuth, The Art of
    /// Computer Programming 2, 4.2.2); of f32 only.
    SumOfSums,
    /// The sum divided by the length; NaN for an empty line of floats.
    Mean,
    /// The product; one for an empty line.
    Prod,
    /// The maximum; NaN if any element is NaN.
    Max,
    /// The minimum; NaN if any element is NaN.
    Min,
    /// The maximum magnitude.
    MaxAbs,
    /// Whether any element is not zero.
    Any,
    /// Whether all elements are not zero.
    All,
    /// The index of the maximum, the first of equals.
    ArgMax,
    /// The index of the minimum, the first of equals.
    ArgMin,
}

use Reduction::*;

/// The elements that one load reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Load {
    /// One element.
    Scalar,
    /// Four neighbours of a line.
    Along,
    /// One element of each of four neighbouring lines.
    Across,
}

/// How a kernel reads lines.
#[derive(Debug, Clone, Copy, Hash)]
struct LineAccess {
    /// The invocations that reduce a line.
    team: Team,
    /// The elements that one load reads.
    load: Load,
    /// Whether one axis is reduced.
    flat: bool,
}

/// The kernel of a reduction.
#[derive(Debug, Clone, Copy, Hash)]
struct ReduceKernel {
    /// The result for each line.
    kind: Reduction,
    /// The type of the elements.
    dtype: DType,
    /// How the lines are read.
    access: LineAccess,
}

impl ReduceKernel {
    /// Returns whether results are stored in vec4s.
    fn stores_vec4(&self) -> bool {
        self.access.load == Load::Across && self.dtype.size() == 4
    }
}

impl Kernel for ReduceKernel {
    type Params = ReduceParams;

    fn variant(&self) -> Variant {
        let Self { kind, dtype, access: LineAccess { team, load, flat } } = *self;
        let float = dtype == DType::F32;
        let partial = match kind {
            Any | All => "u32",
            _ => dtype.wgsl(),
        };
        let finish = match kind {
            Mean if float => "div(v, p.divisor)",
            // An i32 is less than a length that it cannot hold.
            Mean if dtype == DType::I32 => {
                "select(v / i32(p.len * LINE_ELEMENTS_PER_LOAD), 0, i32(p.len * LINE_ELEMENTS_PER_LOAD) < 0)"
            }
            Mean => "v / T(p.len * LINE_ELEMENTS_PER_LOAD)",
            _ => "v",
        };
        let vec4 = load != Load::Scalar;
        let variant = Variant::new(&REDUCE)
            .ty("E", dtype.wgsl())
            .ty("T", partial)
            .ty("O", kind.result_type(dtype).wgsl())
            .expr("COMBINE", kind.combine_expr(float))
            .expr("IDENTITY", kind.identity_expr(dtype))
            .expr("LOAD", kind.load_expr(float))
            .expr("FINISH", finish)
            .expr("BETTER", kind.better_expr(float))
            .int("LINE_ELEMENTS_PER_LOAD", if load == Load::Along { 4 } else { 1 })
            .flag("ARG", kind.is_arg())
            .flag("COMPENSATED", kind == SumOfSums)
            .flag("SCALAR", !kind.loads_scalars() && load != Load::Across)
            .flag("ALONG", load == Load::Along)
            .flag("FLAT", flat)
            .flag("ACROSS", load == Load::Across)
            .flag("VEC4", vec4)
            .flag("WORDS", vec4 && dtype.size() == 4)
            .flag("STORES_WORDS4", self.stores_vec4());
        team.define(variant)
    }
}

impl Reduction {
    const ALL: [Self; 11] =
        [Sum, SumOfSums, Mean, Prod, Max, Min, MaxAbs, Any, All, ArgMax, ArgMin];

    /// Returns the reduction as one that may be pending.
    fn op(self) -> Option<ReduceOp> {
        match self {
            Sum => Some(ReduceOp::Sum),
            Mean => Some(ReduceOp::Mean),
            Max => Some(ReduceOp::Max),
            Min => Some(ReduceOp::Min),
            _ => None,
        }
    }

    fn is_arg(self) -> bool {
        matches!(self, ArgMax | ArgMin)
    }

    /// Returns whether each load has one element.
    fn loads_scalars(self) -> bool {
        self.is_arg() || self == SumOfSums
    }

    /// Returns whether elements of `dtype` are floats that are added up.
    fn adds_floats(self, dtype: DType) -> bool {
        matches!(self, Sum | Mean) && dtype == DType::F32
    }

    /// Returns the type of the result for elements of `dtype`.
    fn result_type(self, dtype: DType) -> DType {
        match self {
            Any | All => DType::Bool,
            ArgMax | ArgMin => DType::I32,
            _ => dtype,
        }
    }

    /// Returns the reduction of each split. A mean is divided after its splits are summed.
    fn of_each_split(self) -> Self {
        match self {
            Mean => Sum,
            other => other,
        }
    }

    /// Returns the reduction that combines the results of splits of elements of `dtype`.
    fn of_splits(self, dtype: DType) -> Self {
        match self {
            Sum | Mean if dtype == DType::F32 => SumOfSums,
            Mean => Sum,
            MaxAbs => Max,
            other => other,
        }
    }

    /// Returns whether there is a kernel for elements of `dtype`.
    fn exists_for(self, dtype: DType) -> bool {
        match self {
            Any | All => true,
            SumOfSums => dtype == DType::F32,
            _ => dtype != DType::Bool,
        }
    }

    /// Returns the WGSL expression that combines two partial results.
    fn combine_expr(self, float: bool) -> &'static str {
        match self {
            Sum | SumOfSums | Mean => "a + b",
            Prod => "a * b",
            Max | MaxAbs if float => "nan_max(a, b)",
            Max | MaxAbs => "max(a, b)",
            Min if float => "nan_min(a, b)",
            Min => "min(a, b)",
            Any => "a | b",
            All => "a & b",
            ArgMax | ArgMin => "a",
        }
    }

    /// Returns the WGSL expression of the partial result of no elements.
    fn identity_expr(self, dtype: DType) -> &'static str {
        match (self, dtype) {
            (Any, _) => "0u",
            (All, _) => "1u",
            (Prod, _) => "T(1)",
            (Max, DType::F32) => "-inf()",
            (Min, DType::F32) => "inf()",
            (Max, _) => min_expr(dtype),
            (Min, _) => max_expr(dtype),
            _ => "T()",
        }
    }

    /// Returns the WGSL expression of the partial result of an element `v`.
    fn load_expr(self, float: bool) -> &'static str {
        match self {
            MaxAbs if float => "abs(v)",
            MaxAbs => "select(v, T(0) - v, v < T(0))",
            Any | All => "u32(!(v == E()))",
            _ => "v",
        }
    }

    /// Returns the WGSL expression for whether element `v` replaces the best element so far, `b`.
    fn better_expr(self, float: bool) -> &'static str {
        match (self, float) {
            (ArgMax, true) => "v > b || (is_nan(v) && (!is_nan(b) || index < best.index))",
            (ArgMin, true) => "v < b || (is_nan(v) && (!is_nan(b) || index < best.index))",
            (ArgMax, false) => "v > b",
            (ArgMin, false) => "v < b",
            _ => "false",
        }
    }
}

/// Returns the WGSL expression of an integer type's minimum.
fn min_expr(dtype: DType) -> &'static str {
    match dtype {
        DType::I32 => "i32(-0x7fffffff) - 1",
        DType::I64 => "i64(u64(1u) << 63u)",
        _ => "T(0)",
    }
}

/// Returns the WGSL expression of an integer type's maximum.
fn max_expr(dtype: DType) -> &'static str {
    match dtype {
        DType::I32 => "0x7fffffff",
        DType::I64 => "i64(~u64(0u) >> 1u)",
        _ => "~T(0)",
    }
}

/// Reduces the given axes. They remain in the shape with size 1.
///
/// # Errors
///
/// Returns an error if the reduced axes are empty and the reduction has no result for that
/// (maximum, minimum, integer mean), or the device fails.
pub fn axes(kind: Reduction, tensor: Tensor, axes: &[usize]) -> Result<Tensor> {
    let Some(op) = kind.op() else { return axes_by_themselves(kind, &tensor, axes) };
    let before = if kind == Sum { reductions::summed(tensor) } else { Err(tensor) };
    let (tensor, axes) = match before {
        Ok((summed, mut all)) => {
            all.extend_from_slice(axes);
            all.sort_unstable();
            all.dedup();
            (summed, all)
        }
        Err(tensor) => (tensor, axes.into()),
    };
    match reductions::defer(op, &tensor, &axes, by_itself)? {
        Some(result) => Ok(result),
        None => axes_by_themselves(kind, &tensor, &axes),
    }
}

/// Reduces axes by the kernels of this family.
fn by_itself(op: ReduceOp, tensor: &Tensor, axes: &[usize]) -> Result<Tensor> {
    let kind = match op {
        ReduceOp::Sum => Sum,
        ReduceOp::Mean => Mean,
        ReduceOp::Max => Max,
        ReduceOp::Min => Min,
    };
    axes_by_themselves(kind, tensor, axes)
}

fn axes_by_themselves(kind: Reduction, tensor: &Tensor, axes: &[usize]) -> Result<Tensor> {
    let mut shape: Shape = tensor.shape().into();
    let outer_axes: SmallVec<[usize; 6]> =
        (0..shape.len()).filter(|axis| !axes.contains(axis)).collect();
    let len: usize = axes.iter().map(|&axis| shape[axis]).product();
    let is_itself = len == 1 && matches!(kind, Sum | Mean | Prod | Max | Min);
    // Callers expect a packed result, which the program does not write.
    if is_itself && tensor.is_packed() && !tensor.is_foreign() {
        return Ok(tensor.clone());
    }
    for &axis in axes {
        shape[axis] = 1;
    }
    if len == 0 && kind == Mean && tensor.dtype().is_float() {
        let nan = ScalarValue::Float(f32::NAN);
        return create::full(tensor.runtime(), &shape, nan, tensor.dtype());
    }
    if len == 0 && !matches!(kind, Sum | Prod | Any | All) {
        return Err(Error::Shape {
            lhs: tensor.shape().to_vec(),
            rhs: axes.to_vec(),
            rule: "the axes of a maximum, minimum or mean must not be empty",
        });
    }
    let axis = match parts::exceed_binding(tensor.runtime(), &shape, tensor.dtype()) {
        true => outer_axes.iter().copied().max_by_key(|&axis| tensor.shape()[axis]),
        false => parts::longest_axis(tensor),
    };
    if let Some(axis) = axis {
        return in_halves(kind, tensor, axes, axis);
    }
    let outer = tensor.layout().permute(&outer_axes);
    let inner = tensor.layout().permute(axes).at(0);
    let out = reduce(kind, tensor, &outer, &inner)?;
    let splits = out.len() / outer.len().max(1);
    if kind.is_arg() && splits > 1 {
        return best_of_splits(
            kind,
            tensor.clone(),
            axes[0],
            out.view(Layout::contiguous(&[&[splits], &outer.shape[..]].concat())),
        );
    }
    Ok(out.view(Layout::contiguous(&shape)))
}

/// Returns the index of the best element along an axis, from that of each split, `[splits, ..]`.
fn best_of_splits(kind: Reduction, tensor: Tensor, axis: usize, indices: Tensor) -> Result<Tensor> {
    let mut order: SmallVec<[usize; 6]> = (1..indices.shape().len()).collect();
    order.insert(axis, 0);
    let indices = indices.view(indices.layout().permute(&order));
    let values = gather(axis, tensor, indices.clone())?;
    // Of equal elements, the first split has the first.
    gather(axis, indices, dim(kind, values, axis)?)
}

/// Reduces axes of a tensor that is larger than a binding, or whose result is: reduces its halves
/// along an axis, and combines the results.
fn in_halves(kind: Reduction, tensor: &Tensor, axes: &[usize], halved: usize) -> Result<Tensor> {
    if !axes.contains(&halved) {
        let halves = parts::of_halves(tensor, halved, |half| self::axes(kind, half, axes))?;
        return views::cat(halves.into(), halved);
    }
    if kind.is_arg() {
        return Ok(best_in_parts(kind, tensor.clone(), axes[0])?[0].clone());
    }
    let part = kind.of_each_split();
    let halves = parts::of_halves(tensor, halved, |half| self::axes(part, half, axes))?;
    let out = dim(kind.of_splits(tensor.dtype()), views::cat(halves.into(), halved)?, halved)?;
    divided(kind, out, axes.iter().map(|&axis| tensor.shape()[axis]).product())
}

/// Returns the index and the value of the best element along an axis.
fn best_in_parts(kind: Reduction, tensor: Tensor, axis: usize) -> Result<[Tensor; 2]> {
    let Some(halved) = parts::longest_axis(&tensor) else {
        let index = dim(kind, tensor.clone(), axis)?;
        return Ok([index.clone(), gather(axis, tensor, index)?]);
    };
    let [(_, middle), _] = parts::halves(tensor.shape()[halved]);
    let halves = parts::halves(tensor.shape()[halved]).map(|(start, len)| {
        best_in_parts(kind, tensor.view(tensor.layout().narrow(halved, start, len)), axis)
    });
    let [[first, first_value], [second, second_value]] = match halves {
        [Ok(first), Ok(second)] => [first, second],
        [Err(error), _] | [_, Err(error)] => return Err(error),
    };
    let values = views::cat(vec![first_value, second_value], halved)?;
    if halved != axis {
        return Ok([views::cat(vec![first, second], halved)?, values]);
    }
    let second = scalar(&rows::int_add_scalar, second, &[ScalarValue::Int(middle as i128)])?;
    let indices = views::cat(vec![first, second], axis)?;
    // Of equal elements, the first half has the first.
    let best = dim(kind, values.clone(), axis)?;
    Ok([gather(axis, indices, best.clone())?, gather(axis, values, best)?])
}

/// Divides sums by the number of summed elements, if `kind` is a mean.
fn divided(kind: Reduction, sums: Tensor, len: usize) -> Result<Tensor> {
    let divisor = [ScalarValue::Int(len as i128)];
    match (kind, sums.dtype()) {
        (Mean, DType::F32) => scalar(&rows::float_div_scalar, sums, &divisor),
        (Mean, DType::I32) if i32::try_from(len).is_err() => {
            scalar(&rows::int_mul_scalar, sums, &[ScalarValue::Int(0)])
        }
        (Mean, _) => scalar(&rows::int_div_scalar, sums, &divisor),
        _ => Ok(sums),
    }
}

/// Reduces one axis. It remains in the shape with size 1.
///
/// # Errors
///
/// Returns the errors of [`axes`].
pub fn dim(kind: Reduction, tensor: Tensor, axis: usize) -> Result<Tensor> {
    axes(kind, tensor, &[axis])
}

/// Reduces all axes to a tensor of shape `[1]`.
///
/// # Errors
///
/// Returns the errors of [`axes`].
pub fn all(kind: Reduction, tensor: Tensor) -> Result<Tensor> {
    let all_axes: SmallVec<[usize; 6]> = (0..tensor.shape().len()).collect();
    let out = axes(kind, tensor, &all_axes)?;
    Ok(out.view(Layout::contiguous(&[1])))
}

/// The positions of the elements of a reduction's lines, which determine how lines are read.
struct LineLayout<'a> {
    /// Where each line starts.
    outer: &'a Layout,
    /// The elements of a line, from its start.
    inner: &'a Layout,
    /// Sizes and strides of the reduced axes, merged where possible.
    shape: Shape,
    strides: Strides,
}

impl<'a> LineLayout<'a> {
    fn new(outer: &'a Layout, inner: &'a Layout) -> Result<Self> {
        let (shape, mut strides) = collapse(&[inner]);
        if shape.len() > MAX_RANK {
            return Err(Error::TooManyAxes { shape: shape.to_vec() });
        }
        Ok(Self { outer, inner, shape, strides: strides.swap_remove(0) })
    }

    /// Returns whether one axis is reduced.
    fn is_flat(&self) -> bool {
        self.shape.len() <= 1
    }

    /// Returns whether the members of a team should read along a line: its innermost elements are
    /// contiguous, or there are too few lines for one invocation per line.
    fn prefer_along(&self) -> bool {
        let (outputs, len) = (self.outer.len(), self.inner.len());
        let contiguous = self.strides.last().is_none_or(|&stride| stride == 1);
        len >= 16 && (contiguous || (outputs < 8 && len > 64))
    }

    /// Returns the widest load for this layout.
    fn load(&self, kind: Reduction, dtype: DType, along: bool) -> Load {
        if kind.loads_scalars() || !self.outer.offset.is_multiple_of(4) {
            return Load::Scalar;
        }
        let may_be_along = self.is_flat() || kind.adds_floats(dtype);
        match along {
            true if may_be_along && self.contiguous_vec4s() => Load::Along,
            false if self.neighbouring_lines() => Load::Across,
            _ => Load::Scalar,
        }
    }

    /// Returns whether each line consists of aligned groups of four contiguous elements.
    fn contiguous_vec4s(&self) -> bool {
        let Some((&stride, outer)) = self.strides.split_last() else { return false };
        stride == 1
            && self.shape[outer.len()].is_multiple_of(4)
            && outer.iter().all(|stride| stride % 4 == 0)
            && aligned(self.outer)
    }

    /// Returns whether the lines are aligned groups of four neighbours in memory.
    fn neighbouring_lines(&self) -> bool {
        let Some(last) = self.outer.shape.len().checked_sub(1) else { return false };
        let rest = self.outer.leading(last).at(0);
        self.outer.strides[last] == 1
            && self.outer.shape[last].is_multiple_of(4)
            && aligned(&rest)
            && aligned(self.inner)
    }

    /// Returns the strides of the reduced axes in loads.
    fn load_strides(&self, load: Load) -> [[i32; 4]; MAX_RANK / 4] {
        let mut words = [[0; 4]; MAX_RANK / 4];
        for (axis, &stride) in self.strides.iter().enumerate() {
            words[axis / 4][axis % 4] = match load {
                Load::Scalar => stride as i32,
                Load::Along if axis + 1 == self.strides.len() => 1,
                Load::Along | Load::Across => (stride / 4) as i32,
            };
        }
        words
    }

    /// Returns the sizes of the reduced axes in loads.
    fn load_shape(&self, load: Load) -> Shape {
        let mut shape = self.shape.clone();
        if let (Load::Along, Some(last)) = (load, shape.last_mut()) {
            *last /= 4;
        }
        shape
    }
}

/// Returns whether all positions are multiples of four, relative to the first element.
fn aligned(layout: &Layout) -> bool {
    layout.strides.iter().zip(&layout.shape).all(|(&stride, &size)| size == 1 || stride % 4 == 0)
}

/// Reduces the lines that start at the positions of `outer`, each over the relative positions of
/// `inner`. Returns one element per line; for indices, one per split and line.
fn reduce(kind: Reduction, tensor: &Tensor, outer: &Layout, inner: &Layout) -> Result<Tensor> {
    let (runtime, dtype) = (tensor.runtime(), tensor.dtype());
    let (outputs, len) = (outer.len(), inner.len());
    let layout = LineLayout::new(outer, inner)?;
    let along = layout.prefer_along();
    let load = layout.load(kind, dtype, along);
    // Indices of splits are combined along one axis.
    let may_split = !kind.is_arg() || outer.shape.len() + 1 == tensor.shape().len();
    let LineDivision { lines, per_load, splits, split_len, team, rounds } =
        LineDivision::of(kind, tensor, &layout, load, (outputs, len), may_split);
    let inner_strides = layout.load_strides(load);
    let shape = [splits * outputs];
    let kernel = ReduceKernel {
        kind: if splits == 1 { kind } else { kind.of_each_split() },
        dtype,
        access: LineAccess { team, load, flat: layout.is_flat() },
    };
    let result = PendingResult {
        vec4: kernel.stores_vec4() && policy::of(runtime).computes_neighbours(),
        prologues: &[(0, Reads::Once)],
        ..PendingResult::scalars(runtime, &shape, kind.result_type(dtype))
    };
    // The values at the indices of splits are read later: a second reference makes this kernel write
    // what would otherwise be computed again.
    let is_read_later = kind.is_arg() && splits > 1 && prologue::is_computed_before(tensor);
    let held = is_read_later.then(|| tensor.clone());
    let out = Launch {
        kernel: &kernel,
        inputs: &[tensor],
        outputs: &[],
        params: &ReduceParams {
            count: (lines * splits) as u32,
            lines: lines as u32,
            len: (len / per_load) as u32,
            split_len: (split_len.min(len) / per_load) as u32,
            divisor: len as f32,
            stride: if layout.shape.is_empty() { 1 } else { inner_strides[0][0] },
            inner_rank: layout.shape.len() as u32,
            zero: 0,
            walk: Walk::new(&[outer])?,
            inner_shape: shape_words(&layout.load_shape(load))?,
            inner_strides,
        },
        workgroups: team.workgroups(lines * splits),
        work: tensor.len() as u64,
        rounds: Some(rounds as u64),
    }
    .defer(&result)?;
    drop(held);
    // The values at the indices of splits are not known here.
    if splits == 1 || kind.is_arg() {
        return Ok(out);
    }
    let out =
        dim(kind.of_splits(tensor.dtype()), out.view(Layout::contiguous(&[splits, outputs])), 0)?;
    divided(kind, out, len)
}

/// How the lines of a tensor are divided among teams.
struct LineDivision {
    /// Lines, or groups of four lines.
    lines: usize,
    /// Elements of a line per load.
    per_load: usize,
    splits: usize,
    /// Elements of a line in a split.
    split_len: usize,
    team: Team,
    /// The rounds of loops of an invocation.
    rounds: usize,
}

impl LineDivision {
    /// Divides lines of `len` elements, which are in several splits if `may_split` allows it.
    fn of(
        kind: Reduction,
        tensor: &Tensor,
        layout: &LineLayout,
        load: Load,
        (outputs, len): (usize, usize),
        may_split: bool,
    ) -> Self {
        let (runtime, dtype) = (tensor.runtime(), tensor.dtype());
        let along = layout.prefer_along();
        let (lines, per_load) = match load {
            Load::Scalar => (outputs, 1),
            Load::Along => (outputs, 4),
            Load::Across => (outputs / 4, 1),
        };
        let team_of = |splits: usize, split_len: usize| match along {
            true => policy::of(runtime).team_along(lines * splits, split_len / per_load),
            false => policy::of(runtime).team_across(load == Load::Across, split_len),
        };
        // A load whose place depends on several axes takes a round for each of them.
        let rounds_per_load = if layout.is_flat() { 1 } else { layout.shape.len() + 1 };
        let mut max_loads = policy::max_rounds(runtime) / rounds_per_load;
        if kind.adds_floats(dtype) {
            max_loads = max_loads.min(policy::of(runtime).max_summed());
        }
        let split_len = match may_split && kind != SumOfSums {
            true => policy::of(runtime).split_len(along, outputs, len),
            false => len,
        };
        let split_len = split_len.next_multiple_of(4).max(4);
        let mut team = team_of(len.div_ceil(split_len).max(1), split_len);
        let max_len = max_loads * team.size as usize * per_load;
        let split_len = if may_split { split_len.min((max_len & !3).max(4)) } else { split_len };
        let splits = len.div_ceil(split_len).max(1);
        if split_len < max_len {
            team = team_of(splits, split_len);
        }
        let team = if dtype.is_64_bit() { team.without_subgroups() } else { team };
        let loads = (split_len / per_load).div_ceil(team.size as usize);
        Self { lines, per_load, splits, split_len, team, rounds: loads * rounds_per_load }
    }
}

/// Returns every variant that the family can dispatch.
pub fn variants() -> Vec<Variant> {
    let scalar_teams = policy::all_teams_along(0).chain(policy::all_teams_across(false));
    let scalar_loads = scalar_teams.map(|team| (team, Load::Scalar));
    let along_loads = policy::all_teams_along(0).map(|team| (team, Load::Along));
    let across_loads = policy::all_teams_across(true).map(|team| (team, Load::Across));
    let loads = scalar_loads.chain(along_loads).chain(across_loads);
    let accesses: Vec<_> = loads
        .flat_map(|(team, load)| [true, false].map(|flat| LineAccess { team, load, flat }))
        .collect();
    let mut kernels = Vec::new();
    for kind in Reduction::ALL {
        for dtype in DType::COMPUTE_TYPES.into_iter().filter(|&dtype| kind.exists_for(dtype)) {
            for &access in &accesses {
                // Sums of sums are neighbours of those of the next line: no team reads along a few of many.
                let exists = (!dtype.is_64_bit() && kind != SumOfSums || !access.team.subgroup)
                    && ((access.load == Load::Scalar && access.flat) || !kind.loads_scalars())
                    && (access.load != Load::Along || access.flat || kind.adds_floats(dtype));
                if exists {
                    kernels.push(ReduceKernel { kind, dtype, access });
                }
            }
        }
    }
    let sampled =
        |kernel: &&ReduceKernel| matches!(kernel.kind, Sum | ArgMax) && kernel.dtype == DType::F32;
    let sampled: Vec<_> = kernels.iter().filter(sampled).copied().collect();
    let mut variants = variants_of(kernels);
    let sums = sampled.iter().filter(|kernel| kernel.kind == Sum).copied();
    variants.extend(epilogue::samples(sums));
    variants.extend(prologue::samples(sampled, 0));
    variants
}

/// The cases that the family must pass.
pub const CASES: &[Case] = cases! {
    float_sum([3, 5]);
    float_sum([1, 1]);
    float_sum([4099]);
    float_sum([257, 1023]);
    float_sum(permuted(&[7, 9, 5], &[2, 0, 1]));
    // Over several axes, in vec4s.
    float_sum(permuted(&[2, 4, 8], &[1, 0, 2]));
    float_sum(permuted(&[8, 5, 12], &[1, 0, 2]));
    float_sum(permuted(&[9, 8, 16], &[1, 0, 2]));
    float_mean(permuted(&[2, 4, 8], &[1, 0, 2]));
    float_mean(permuted(&[8, 5, 12], &[1, 0, 2]));
    float_mean(permuted(&[9, 8, 16], &[1, 0, 2]));
    mean_axes([3, 130, 2, 8], Arg::Sizes(&[0, 2, 3]));
    mean_axes([3, 4, 30, 24], Arg::Sizes(&[0, 2]));
    conv2d_bias_backward([3, 1, 2, 8], [130], [3, 130, 2, 8]);
    float_sum_dim([4, 6, 5], 0);
    float_sum_dim([4, 6, 5], 1);
    float_sum_dim([4, 6, 5], 2);
    float_sum_dim([3, 4096], 1);
    float_sum_dim([3000, 64], 1);
    float_sum_dim([5000, 3], 0);
    float_sum_dim([5000, 12], 0);
    float_sum_dim([3000, 72], 0);
    float_mean_dim([2, 3000, 70], 1);
    float_max_dim([300, 68], 0);
    float_argmin([300, 70], 0, Arg::IntType);
    float_argmax([37, 40], 1, Arg::IntType);
    float_mean_dim([3, 70, 36], 1);
    float_max_dim([2, 9, 8], 1);
    float_sum_dim(permuted(&[40, 33], &[1, 0]), 1);
    float_sum_dim([2, 0, 3], 1);
    float_sum_dim([70_000, 17], 1);
    float_mean([33, 77]);
    float_mean_dim([33, 77], 0);
    float_mean_dim([2, 5000], 1);
    float_prod([2, 9]);
    float_prod_dim([5, 20], 1);
    float_max([3000]);
    float_min([30, 100]);
    float_max_abs([30, 100]);
    float_max_dim([3, 4, 50], 2);
    float_min_dim([3, 4, 50], 0);
    float_max_abs_dim([30, 41], 1);
    float_max_dim_with_indices([6, 40], 1, Arg::IntType);
    float_min_dim_with_indices([6, 40], 0, Arg::IntType);
    float_argmax([6, 7], 1, Arg::IntType);
    float_argmax([3, 700], 1, Arg::IntType);
    float_argmin([60, 7, 2], 1, Arg::IntType);
    // In splits.
    float_argmax([2, 9000], 1, Arg::IntType);
    float_argmin(permuted(&[3, 3000, 2], &[2, 1, 0]), 1, Arg::IntType);
    int_argmax(ints(&[9000, 2]), 0);
    float_any([6, 7], Arg::BoolType);
    float_any_dim([6, 7], 1, Arg::BoolType);
    float_all([6, 7], Arg::BoolType);
    float_all_dim([6, 7], 0, Arg::BoolType);
    int_sum(ints(&[700, 30]));
    int_sum_dim(ints(&[7, 30]), 0);
    int_prod(ints(&[9]));
    int_prod_dim(ints(&[4, 5]), 1);
    int_mean(ints(&[9, 3]));
    int_mean_dim(ints(&[9, 3]), 0);
    int_max(ints(&[9, 300]));
    int_min(ints(&[9, 300]));
    int_max_dim(ints(&[9, 30]), 1);
    int_min_dim(ints(&[9, 30]), 1);
    int_max_abs(ints(&[9, 30]));
    int_max_abs_dim(ints(&[9, 30]), 0);
    int_max_dim_with_indices(ints(&[9, 30]), 1);
    int_min_dim_with_indices(ints(&[9, 30]), 1);
    int_argmax(ints(&[9, 30]), 1);
    int_argmin(ints(&[9, 30]), 0);
    int_any(ints(&[9, 30]), Arg::BoolType);
    int_any_dim(ints(&[9, 3]), 1, Arg::BoolType);
    int_all(ints(&[9, 30]), Arg::BoolType);
    int_all_dim(ints(&[9, 3]), 0, Arg::BoolType);
    bool_any(bools(&[50]));
    bool_any_dim(bools(&[5, 3]), 1);
    bool_all(bools(&[50]));
    bool_all_dim(bools(&[5, 3]), 0);
};
