//! Elementwise kernels: unary, binary and scalar ops, comparisons, masks, casts, fills and copies
//! are one shader with different WGSL expressions.

use std::borrow::Cow;
use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

use crate::kernels::fusion::switch::is_enabled;
use crate::kernels::fusion::{fused, pending, prologue};
use crate::kernels::launch::walk::Walk;
use crate::kernels::launch::{Launch, Reads, div_up, parts, variants_of};
use crate::kernels::ops::cases::{Arg, Case, bools, cases, ints, permuted, positive};
use crate::kernels::ops::map::{CONSTANT, CONVERSION, Map, ScalarValue};
use crate::kernels::ops::table::{self, OperandForm, Reference, Row};
use crate::kernels::policy;
use crate::params;
use crate::runtime::{Expr, Kernel, Runtime, Source, Variant, wgsl};
use crate::tensor::{DType, Error, Layout, Result, Tensor, broadcast, collapse};

// Variants of the shader differ in their `Params`: there is one source for each struct.
const TEXT: &str = wgsl!("../../shaders/elementwise/elementwise.wgsl");
static PACKED: Source = Source::new::<PackedParams>("elementwise", TEXT);
static STRIDED: Source = Source::new::<StridedParams>("elementwise", TEXT);

params! {
    struct PackedParams {
        len: u32,
        rounds: u32,
        s: u32,
        t: u32,
        whole_vec4s: u32,
        s_high: u32,
        t_high: u32,
        pad0: u32,
        starts: [u32; 4],
    }
}

params! {
    struct StridedParams {
        len: u32,
        rounds: u32,
        s: u32,
        t: u32,
        whole_vec4s: u32,
        s_high: u32,
        t_high: u32,
        pad0: u32,
        walk: Walk,
    }
}

/// Invocations of a workgroup; each computes one vec4 per round.
const WORKGROUP_SIZE: usize = 64;

const MASK_WHERE: &str = "select(a, c, b != 0u)";
pub(super) const MASK_FILL: &str = "select(a, s, b != 0u)";
const POWI: &str = "pow_(a, f32(b))";

/// The kernel for tensors that are accessed in vec4s.
#[derive(Debug, Clone, Copy, Hash)]
struct PackedMap {
    /// What the kernel computes.
    computation: Specialisation,
    /// The index of the input that the result overwrites, if any.
    in_place: Option<usize>,
}

impl Kernel for PackedMap {
    type Params = PackedParams;

    fn variant(&self) -> Variant {
        let Self { computation, in_place } = *self;
        let variant =
            Variant::new(&PACKED).flag("PACKED", true).flag("WORDS", computation.in_words());
        computation.define(variant, in_place, [false; 3])
    }
}

/// The kernel for tensors that are accessed through their strides.
#[derive(Debug, Clone, Copy, Hash)]
struct StridedMap {
    /// What the kernel computes.
    computation: Specialisation,
    /// The access in vec4s along the innermost axis; `None` for access element by element.
    inner: Option<InnerAccess>,
}

impl Kernel for StridedMap {
    type Params = StridedParams;

    fn variant(&self) -> Variant {
        let Self { computation, inner } = *self;
        let variant =
            Variant::new(&STRIDED).flag("STRIDED", inner.is_none()).flag("WORDS", inner.is_some());
        computation.define(variant, None, inner.map_or([false; 3], |inner| inner.broadcast))
    }
}

/// What specialises a kernel besides its access to memory.
#[derive(Debug, Clone, Copy, Hash)]
struct Specialisation {
    /// The WGSL expression.
    expr: Expr,
    /// The type of the result.
    out_type: DType,
    /// The types of the inputs `a`, `b` and `c`.
    inputs: [Option<DType>; 3],
    /// The type of the scalars, if any.
    scalar_type: Option<DType>,
}

impl Specialisation {
    /// Returns whether every element is a 32-bit word.
    fn in_words(&self) -> bool {
        self.inputs.iter().flatten().chain([&self.out_type]).all(|dtype| dtype.size() == 4)
    }

    /// Specialises a kernel for this computation, given the input that the result overwrites, and
    /// the inputs of which four neighbours are one element.
    fn define(self, variant: Variant, in_place: Option<usize>, broadcast: [bool; 3]) -> Variant {
        const OPERANDS: [[&str; 4]; 3] = [
            ["A", "READ_A", "IN_PLACE_A", "BROADCAST_A"],
            ["B", "READ_B", "IN_PLACE_B", "BROADCAST_B"],
            ["C", "READ_C", "IN_PLACE_C", "BROADCAST_C"],
        ];
        let mut variant = variant.ty("O", self.out_type.wgsl()).expr("EXPR", self.expr.0);
        for (index, (dtype, names)) in self.inputs.iter().flatten().zip(OPERANDS).enumerate() {
            let [ty, read, overwritten, broadcasts] = names;
            variant = variant
                .ty(ty, dtype.wgsl())
                .flag(if in_place == Some(index) { overwritten } else { read }, true)
                .flag(broadcasts, broadcast[index]);
        }
        if let Some(dtype) = self.scalar_type {
            variant = variant.ty("S", dtype.wgsl()).flag("SCALARS_64", dtype.is_64_bit());
        }
        match self.inputs[0] {
            Some(dtype) if dtype.is_64_bit() => variant.int("BITS", 64),
            _ => variant,
        }
    }
}

/// How four neighbours along the innermost axis are read from each input.
#[derive(Debug, Clone, Copy, Hash)]
struct InnerAccess {
    /// Per input: whether the four are one element. Otherwise they are contiguous.
    broadcast: [bool; 3],
}

impl InnerAccess {
    /// Returns the access for `layouts`, the output's first; `None` if a layout does not allow it.
    fn new(layouts: &[&Layout]) -> Option<Self> {
        let (shape, strides) = collapse(layouts);
        if !shape.last()?.is_multiple_of(4) {
            return None;
        }
        let mut broadcast = [false; 3];
        for (index, (layout, strides)) in layouts.iter().zip(&strides).enumerate() {
            let (&inner, outer) = strides.split_last()?;
            let aligned =
                layout.offset.is_multiple_of(4) && outer.iter().all(|stride| stride % 4 == 0);
            match (inner, index) {
                (1, _) if aligned => {}
                (0, 1..) => broadcast[index - 1] = true,
                _ => return None,
            }
        }
        Some(Self { broadcast })
    }
}

impl Map {
    /// Computes a new tensor from up to three that broadcast. An input with a single owner is
    /// overwritten where possible.
    ///
    /// # Errors
    ///
    /// Returns an error if the shapes do not broadcast, the tensors are on different devices, or
    /// the device fails.
    pub fn run<const N: usize>(&self, inputs: [Tensor; N]) -> Result<Tensor> {
        let first = inputs[0].shape();
        let mut shape: Cow<'_, [usize]> = Cow::Borrowed(first);
        for input in inputs[1..].iter().filter(|input| input.shape() != first) {
            let broadcast = broadcast(&shape, input.shape()).ok_or_else(|| Error::Shape {
                lhs: shape.to_vec(),
                rhs: input.shape().to_vec(),
                rule: "each axis must have the same size in both, or size 1 in one",
            })?;
            shape = Cow::Owned(broadcast.to_vec());
        }
        let runtime = inputs[0].runtime();
        if is_enabled()
            && !shape.contains(&0)
            && !parts::exceed_binding(runtime, &shape, self.out_type)
            && !parts::any_oversized(&inputs)
        {
            let same = inputs.iter().find(|input| input.shape() == &shape[..]);
            let layout =
                same.map_or_else(|| Layout::contiguous(&shape), |input| input.layout().packed());
            return pending::defer(self, inputs, layout);
        }
        let in_place = self.in_place_input(&inputs, &shape);
        let out = match in_place {
            Some(index) => inputs[index].clone(),
            None => Tensor::empty(runtime, &shape, self.out_type)?,
        };
        self.write(&inputs, &out, in_place)?;
        Ok(out)
    }

    /// Returns the index of the input that the result may overwrite. All inputs must be read in
    /// vec4s, and the in-place variant must pay for its compilation.
    fn in_place_input(&self, inputs: &[Tensor], shape: &[usize]) -> Option<usize> {
        let pays = policy::of(inputs[0].runtime()).pays_for_special_case(inputs[0].len());
        if !pays || !inputs.iter().all(|input| input.shape() == shape && in_vec4s(input)) {
            return None;
        }
        (0..inputs.len()).find(|&index| {
            let input = &inputs[index];
            let mut others = inputs.iter().enumerate().filter(|&(other, _)| other != index);
            input.dtype() == self.out_type
                && input.is_packed()
                && input.is_unique()
                && others.all(|(_, other)| match (other.memory(), input.memory()) {
                    (Some(other), Some(input)) => !other.shares_buffer(input),
                    _ => true,
                })
        })
    }

    /// Computes a new tensor of `shape` from the element's index and the scalars.
    ///
    /// # Errors
    ///
    /// Returns an error if the memory is not available.
    pub fn fill(&self, runtime: &Arc<Runtime>, shape: &[usize]) -> Result<Tensor> {
        let oversized = parts::exceed_binding(runtime, shape, self.out_type);
        if is_enabled() && !shape.contains(&0) && !oversized {
            return pending::defer_fill(self, runtime, shape);
        }
        let out = Tensor::empty(runtime, shape, self.out_type)?;
        self.write(&[], &out, None)?;
        Ok(out)
    }

    /// Writes the result to the elements of `out`, which may be a view.
    ///
    /// # Errors
    ///
    /// Returns an error if an input does not broadcast to `out`, or the device fails.
    pub fn write_to(&self, inputs: &[Tensor], out: &Tensor) -> Result<()> {
        self.write(inputs, out, None)
    }

    /// Writes the result to `out`, which is the input with the index `in_place`, if any.
    fn write(&self, inputs: &[Tensor], out: &Tensor, in_place: Option<usize>) -> Result<()> {
        let len = out.len();
        if len == 0 {
            return Ok(());
        }
        if out.is_oversized() || parts::any_oversized(inputs) {
            return self.write_parts(inputs, out, in_place);
        }
        // The last vec4 may extend past the elements. Only the single owner of the allocation may
        // overwrite the memory behind them.
        let may_write_past_end =
            len.is_multiple_of(4) || in_place.is_some() || (out.is_packed() && out.is_unique());
        let packed = may_write_past_end
            && in_vec4s(out)
            && inputs.iter().all(|input| input.shape() == out.shape() && in_vec4s(input));
        match packed {
            true => self.write_packed(inputs, out, in_place),
            false => self.write_strided(inputs, out),
        }
    }

    /// Writes the result in parts that fit a binding. The expression must not use the element's
    /// index.
    fn write_parts(&self, inputs: &[Tensor], out: &Tensor, in_place: Option<usize>) -> Result<()> {
        let mut tensors = vec![out.clone()];
        for input in inputs {
            tensors.push(input.view(expanded(input, out)?));
        }
        parts::each(&tensors, &mut |parts| match parts {
            [out, inputs @ ..] => self.write(inputs, out, in_place),
            [] => Ok(()),
        })
    }

    /// Writes the result, in vec4s. All tensors have one shape and are contiguous.
    fn write_packed(&self, inputs: &[Tensor], out: &Tensor, in_place: Option<usize>) -> Result<()> {
        let vec4s = out.len().div_ceil(4);
        let rounds = policy::of(out.runtime()).elementwise_rounds(vec4s);
        let [s, t] = self.scalar_bits();
        let start = |tensor: &Tensor| tensor.layout().offset as u32 / 4;
        let params = PackedParams {
            len: out.len() as u32,
            rounds: rounds as u32,
            s: s as u32,
            t: t as u32,
            whole_vec4s: 0,
            s_high: (s >> 32) as u32,
            t_high: (t >> 32) as u32,
            pad0: 0,
            starts: [0, 1, 2, 3].map(|index| match index {
                0 => start(out),
                _ => inputs.get(index - 1).map_or(0, start),
            }),
        };
        // An input that is overwritten has no binding of its own.
        let read = (0..inputs.len()).filter(|&index| Some(index) != in_place);
        let read: SmallVec<[&Tensor; 3]> = read.map(|index| &inputs[index]).collect();
        let kernel = PackedMap { computation: self.computation(inputs), in_place };
        let workgroups = div_up(vec4s, WORKGROUP_SIZE * rounds);
        let prologues = match in_place {
            None => self.prologues(inputs, out),
            Some(_) => SmallVec::new(),
        };
        launch(&kernel, &read, out, &params, workgroups, &prologues)
    }

    /// Writes the result through the strides of the tensors. The inputs broadcast to `out`.
    fn write_strided(&self, inputs: &[Tensor], out: &Tensor) -> Result<()> {
        let len = out.len();
        let mut layouts: SmallVec<[Layout; 4]> = smallvec![out.layout().clone()];
        for input in inputs {
            layouts.push(expanded(input, out)?);
        }
        let layouts: SmallVec<[&Layout; 4]> = layouts.iter().collect();
        let computation = self.computation(inputs);
        let pays = computation.in_words() && policy::of(out.runtime()).pays_for_special_case(len);
        let inner = if pays { InnerAccess::new(&layouts) } else { None };
        let vec4s = len.div_ceil(4);
        let rounds = policy::of(out.runtime()).elementwise_rounds(vec4s);
        let walk = Walk::new(&layouts)?;
        let [s, t] = self.scalar_bits();
        let params = StridedParams {
            len: len as u32,
            rounds: rounds as u32,
            s: s as u32,
            t: t as u32,
            whole_vec4s: walk.innermost().is_multiple_of(4).into(),
            s_high: (s >> 32) as u32,
            t_high: (t >> 32) as u32,
            pad0: 0,
            walk,
        };
        let read: SmallVec<[&Tensor; 3]> = inputs.iter().collect();
        let kernel = StridedMap { computation, inner };
        let workgroups = div_up(vec4s, WORKGROUP_SIZE * rounds);
        let prologues = self.prologues(inputs, out);
        launch(&kernel, &read, out, &params, workgroups, &prologues)
    }

    /// Returns the input that a kernel may compute: a pending tensor that is copied, but not repeated. With whole
    /// vec4s, a kernel computes no more elements than there are.
    fn prologues(&self, inputs: &[Tensor], out: &Tensor) -> SmallVec<[(usize, Reads); 1]> {
        let is_copy = self.expr == CONVERSION && self.computation(inputs).in_words();
        let [input] = inputs else { return SmallVec::new() };
        if !is_copy || input.shape() != out.shape() || !out.len().is_multiple_of(4) {
            return SmallVec::new();
        }
        let mut axes = input.layout().strides.iter().zip(input.shape());
        let repeats = axes.any(|(&stride, &size)| stride == 0 && size > 1);
        // The functions of `lib/integer` have the type of the copy's elements.
        let integer = input.pending().and_then(|lazy| lazy.extent().integer);
        if repeats || integer.is_some_and(|integer| integer.wgsl() != input.dtype().wgsl()) {
            return SmallVec::new();
        }
        let is_dense = input.layout().dense_order().is_some();
        smallvec![(0, if is_dense { Reads::Once } else { Reads::AnyNumber })]
    }

    /// Returns the bits of the scalars `s` and `t`; 0 for a scalar that is not used.
    fn scalar_bits(&self) -> [u64; 2] {
        [0, 1].map(|index| self.scalars.get(index).map_or(0, |s| s.bits(self.scalar_type)))
    }

    /// Returns what specialises the kernels of this computation for these inputs.
    fn computation(&self, inputs: &[Tensor]) -> Specialisation {
        self.computation_of([0, 1, 2].map(|index| Some(inputs.get(index)?.dtype())))
    }

    fn computation_of(&self, inputs: [Option<DType>; 3]) -> Specialisation {
        Specialisation {
            expr: Expr(self.expr),
            out_type: self.out_type,
            inputs,
            scalar_type: (!self.scalars.is_empty()).then_some(self.scalar_type),
        }
    }

    /// Returns every variant of this computation for inputs of these types.
    pub(crate) fn variants(&self, inputs: &[DType]) -> Vec<Variant> {
        let computation = self.computation_of([0, 1, 2].map(|index| inputs.get(index).copied()));
        let mut strided = vec![StridedMap { computation, inner: None }];
        if computation.in_words() {
            strided.extend((0..1 << inputs.len()).map(|bits| {
                let broadcast = [0, 1, 2].map(|index| bits >> index & 1 == 1);
                StridedMap { computation, inner: Some(InnerAccess { broadcast }) }
            }));
        }
        let mut copies = Vec::new();
        if self.expr == CONVERSION && computation.in_words() {
            let repeats = |map: &&StridedMap| map.inner.is_some_and(|inner| inner.broadcast[0]);
            let others = strided.iter().filter(|map| !repeats(map)).copied();
            copies.extend(prologue::samples(others, 0));
            copies.extend(prologue::samples([PackedMap { computation, in_place: None }], 0));
        }
        let in_place = (0..inputs.len()).filter(|&index| inputs[index] == self.out_type).map(Some);
        let packed = std::iter::once(None).chain(in_place);
        let packed = packed.map(|in_place| PackedMap { computation, in_place });
        [variants_of(strided), copies, variants_of(packed)].concat()
    }
}

/// Returns the layout of an input, expanded to the shape of `out`.
fn expanded(input: &Tensor, out: &Tensor) -> Result<Layout> {
    input.layout().expand(out.shape()).ok_or_else(|| Error::Shape {
        lhs: out.shape().to_vec(),
        rhs: input.shape().to_vec(),
        rule: "the second must broadcast to the first",
    })
}

/// Returns whether the elements are contiguous and begin with a whole vec4.
fn in_vec4s(tensor: &Tensor) -> bool {
    tensor.layout().is_contiguous() && tensor.layout().offset.is_multiple_of(4)
}

/// Adds a tensor of floats to a sum.
///
/// # Errors
///
/// As [`binary`].
pub(super) fn accumulate(sum: &mut Option<Tensor>, tensor: Tensor) -> Result<()> {
    *sum = Some(match sum.take() {
        Some(sum) => binary(&table::rows::float_add, sum, tensor)?,
        None => tensor,
    });
    Ok(())
}

/// The most rounds of an invocation: of 64 vec4s ([`policy::elementwise_rounds`]), whose elements take up to 65 each,
/// for the bits of a power.
const MAX_ROUNDS: u64 = 64 * 4 * 65;

fn launch<K: Kernel>(
    kernel: &K,
    inputs: &[&Tensor],
    out: &Tensor,
    params: &K::Params,
    workgroups: u64,
    prologues: &[(usize, Reads)],
) -> Result<()> {
    Launch {
        kernel,
        inputs,
        outputs: &[out],
        params,
        workgroups,
        work: out.len() as u64,
        rounds: Some(MAX_ROUNDS),
    }
    .run_with_prologues(prologues)
}

/// Computes a row of the table with one operand.
///
/// # Errors
///
/// See [`Map::run`]; the same holds for the functions below.
pub fn unary(row: &Row, tensor: Tensor) -> Result<Tensor> {
    Map::new(row.wgsl, tensor.dtype()).run([tensor])
}

/// Computes a row with two operands that broadcast.
pub fn binary(row: &Row, lhs: Tensor, rhs: Tensor) -> Result<Tensor> {
    Map::new(row.wgsl, lhs.dtype()).run([lhs, rhs])
}

/// Computes a row with a tensor and one or two scalars.
pub fn scalar(row: &Row, tensor: Tensor, scalars: &[ScalarValue]) -> Result<Tensor> {
    let dtype = tensor.dtype();
    Map::new(row.wgsl, dtype).with(scalars, dtype).run([tensor])
}

/// Computes a row that clamps a tensor to one or two limits, which may be outside the range of its
/// type.
pub fn clamp(row: &Row, tensor: Tensor, limits: &[ScalarValue]) -> Result<Tensor> {
    let (min, max) = tensor.dtype().range();
    let in_range = |limit: &ScalarValue| match *limit {
        ScalarValue::Int(x) => ScalarValue::Int(x.clamp(min, max)),
        other => other,
    };
    let limits: SmallVec<[ScalarValue; 2]> = limits.iter().map(in_range).collect();
    scalar(row, tensor, &limits)
}

/// Computes a row that tests one operand.
pub fn predicate(row: &Row, tensor: Tensor) -> Result<Tensor> {
    Map::new(row.wgsl, DType::Bool).run([tensor])
}

/// Computes a row that compares two operands.
pub fn compare(row: &Row, lhs: Tensor, rhs: Tensor) -> Result<Tensor> {
    Map::new(row.wgsl, DType::Bool).run([lhs, rhs])
}

/// Computes a row that compares an operand with a scalar, which may be outside the range of the
/// operand's type.
pub fn compare_scalar(row: &Row, tensor: Tensor, scalar: ScalarValue) -> Result<Tensor> {
    let dtype = tensor.dtype();
    if let (ScalarValue::Int(x), Reference::IntComparison(reference)) = (scalar, row.reference) {
        let (min, max) = dtype.range();
        if x < min || x > max {
            // The same for every element: the reference on two integers of that order.
            let result = ScalarValue::Bool(reference(0, if x < min { -1 } else { 1 }));
            let map = Map::new(CONSTANT, DType::Bool).with(&[result], DType::Bool);
            return map.fill(tensor.runtime(), tensor.shape());
        }
    }
    Map::new(row.wgsl, DType::Bool).with(&[scalar], dtype).run([tensor])
}

/// Returns `value` where `mask` is true, `tensor` elsewhere.
pub fn mask_where(tensor: Tensor, mask: Tensor, value: Tensor) -> Result<Tensor> {
    Map::new(MASK_WHERE, tensor.dtype()).run([tensor, mask, value])
}

/// Returns the scalar `value` where `mask` is true, `tensor` elsewhere.
pub fn mask_fill(tensor: Tensor, mask: Tensor, value: ScalarValue) -> Result<Tensor> {
    let dtype = tensor.dtype();
    Map::new(MASK_FILL, dtype).with(&[value], dtype).run([tensor, mask])
}

/// Raises floats to the power of integers.
pub fn powi(lhs: Tensor, rhs: Tensor) -> Result<Tensor> {
    Map::new(POWI, lhs.dtype()).run([lhs, rhs])
}

/// Returns every variant that the family can dispatch.
pub fn variants() -> Vec<Variant> {
    let mut out: Vec<Variant> =
        maps().iter().flat_map(|(map, types)| map.variants(types)).collect();
    // As the only op of a fused kernel.
    out.extend(fused::samples(maps()));
    out
}

/// Returns every computation of this file with the types of its inputs.
fn maps() -> Vec<(Map, Vec<DType>)> {
    let mut out = Vec::new();
    let zero = ScalarValue::Int(0);
    for row in table::ALL.iter().copied().flatten() {
        let (dtypes, predicate): (&[DType], bool) = match row.reference {
            Reference::Float1(_) | Reference::Float2(_) | Reference::Float3(_) => {
                (&[DType::F32], false)
            }
            Reference::FloatTest(_) | Reference::FloatComparison(_) => (&[DType::F32], true),
            Reference::Int1(_) | Reference::Int2(_) | Reference::Int3(_) => {
                (&DType::INTEGERS, false)
            }
            Reference::IntComparison(_) => (&DType::INTEGERS, true),
            Reference::Bool1(_) | Reference::Bool2(_) => (&[DType::Bool], false),
        };
        let (inputs, scalars) = match row.form {
            OperandForm::Unary => (1, 0),
            OperandForm::Binary => (2, 0),
            OperandForm::Scalar => (1, 1),
            OperandForm::TwoScalars => (1, 2),
        };
        for &dtype in dtypes {
            let map = Map::new(row.wgsl, if predicate { DType::Bool } else { dtype });
            let map = map.with(&vec![zero; scalars], dtype);
            out.push((map, vec![dtype; inputs]));
        }
    }
    for dtype in DType::COMPUTE_TYPES {
        out.push((Map::new(MASK_WHERE, dtype), vec![dtype, DType::Bool, dtype]));
        out.push((Map::new(MASK_FILL, dtype).with(&[zero], dtype), vec![dtype, DType::Bool]));
    }
    for dtype in DType::INTEGERS {
        out.push((Map::new(POWI, DType::F32), vec![DType::F32, dtype]));
    }
    out
}

/// The cases that the family must pass, besides the rows of the table.
pub const CASES: &[Case] = cases! {
    relu([3, 70]);
    relu(permuted(&[7, 9], &[1, 0]));
    float_powi([40], ints(&[40]));
    float_powi_scalar([40], 3);
    float_powf_scalar(positive(&[40]), Arg::Float(-1.5));
    int_powi_scalar(ints(&[40]), 3);
    prelu([3, 4, 5], [1, 4, 1]);
    float_add([1], [1]);
    float_mul([0, 3], [1, 3]);
    float_sub([2, 1, 3, 1, 2, 1, 2, 3], [2, 3, 1, 2, 1, 2, 1, 3]);
    bool_equal_elem(bools(&[9]), false);
};
