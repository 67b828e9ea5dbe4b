//! Elementwise kernels: unary, binary and scalar ops, comparisons, masks, casts, fills and copies are
//! one shader with another expression in it.

use std::borrow::Cow;

use smallvec::{SmallVec, smallvec};

use super::cases::{Arg, Case, case, ints, normal, permuted, positive, truths};
use super::table::{Operands, Reference, Row};
use super::{Launch, Params, div_up, walk};
use crate::runtime::{Runtime, Source, Variant};
use crate::tensor::{DType, Error, Layout, Result, Tensor, broadcast, collapse};

static ELEMENTWISE: Source = Source {
    name: "elementwise",
    text: include_str!("../../shaders/elementwise/elementwise.wgsl"),
};

/// Invocations of a workgroup, as the shader has it; each computes four neighbours per round. No more than fill a GPU: a software
/// adapter takes time for all of them, with work or without.
const LANES: usize = 64;

/// Rounds of a workgroup: the more, the fewer and longer workgroups.
fn rounds(runtime: &Runtime, quads: usize) -> usize {
    match runtime.is_software() {
        true => (quads >> 12).clamp(1, 64),
        false if quads >= 1 << 18 => 4,
        false => 1,
    }
}

/// Tensors of so many elements are worth a kernel that serves only their case: see [`worth_kernels`].
const LARGE: usize = 1 << 18;

/// A scalar operand.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Number {
    /// A float.
    Float(f32),
    /// An integer of any type.
    Int(i128),
    /// A truth value.
    Bool(bool),
}

impl Number {
    /// The bits of the value in a type that kernels compute in. Integers wrap.
    pub(crate) fn bits(self, dtype: DType) -> u64 {
        match self {
            Self::Float(x) if dtype.is_float() => x.to_bits().into(),
            Self::Int(x) if dtype.is_float() => (x as f32).to_bits().into(),
            Self::Float(x) => x as i128 as u64,
            Self::Int(x) => x as u64,
            Self::Bool(x) if dtype.is_float() => f32::from(u8::from(x)).to_bits().into(),
            Self::Bool(x) => x.into(),
        }
    }
}

/// How tensors are read and the result is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    /// All move as vec4, and one may be written over.
    Packed(Option<usize>),
    /// Four neighbours along the innermost axis at once.
    Inner(Inner),
    /// Each element through its strides.
    Strided,
}

/// Which inputs have one and the same element for four neighbours along the innermost axis; the others have four
/// that are neighbours in memory, as the output has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Inner {
    one: [bool; 3],
}

impl Inner {
    /// If all of the layouts, the output's first, can be walked so.
    fn of(layouts: &[&Layout]) -> Option<Self> {
        let (shape, strides) = collapse(layouts);
        if !shape.last()?.is_multiple_of(4) {
            return None;
        }
        let mut one = [false; 3];
        for (index, (layout, strides)) in layouts.iter().zip(&strides).enumerate() {
            let (&step, others) = strides.split_last()?;
            let aligned =
                layout.offset.is_multiple_of(4) && others.iter().all(|step| step % 4 == 0);
            match (step, index) {
                (1, _) if aligned => {}
                (0, 1..) => one[index - 1] = true,
                _ => return None,
            }
        }
        Some(Self { one })
    }
}

/// Whether kernels of their own for special cases are worth compiling: always but on a software adapter, where compiling
/// is dear, for small tensors in a program that has just begun.
fn worth_kernels(runtime: &Runtime, len: usize) -> bool {
    !runtime.is_software() || runtime.is_warmed_up() || len >= LARGE
}

/// An elementwise computation: an expression of `a`, `b`, `c`, the scalars `s`, `t` and the index `i`.
#[derive(Debug, Clone)]
pub struct Map {
    /// The WGSL expression.
    pub expr: Cow<'static, str>,
    /// The result's type.
    pub out: DType,
    /// The scalars `s` and `t`, and their type.
    pub scalars: SmallVec<[Number; 2]>,
    /// The type of the scalars.
    pub scalar: DType,
}

impl Map {
    /// A computation without scalars.
    pub fn new(expr: impl Into<Cow<'static, str>>, out: DType) -> Self {
        Self { expr: expr.into(), out, scalars: smallvec![], scalar: out }
    }

    /// Adds scalars of a type, `s` and then `t`.
    #[must_use]
    pub fn with(mut self, scalars: &[Number], dtype: DType) -> Self {
        self.scalars = scalars.into();
        self.scalar = dtype;
        self
    }

    /// Computes a new tensor from up to three that broadcast, or writes over one that nobody else holds.
    ///
    /// # Errors
    ///
    /// When the shapes do not broadcast, the tensors are on two devices, or the device fails.
    pub fn run(&self, inputs: SmallVec<[Tensor; 3]>) -> Result<Tensor> {
        let mut shape: crate::tensor::Shape = inputs[0].shape().into();
        for input in &inputs[1..] {
            inputs[0].same_device(input)?;
            shape = broadcast(&shape, input.shape()).ok_or_else(|| Error::Shape {
                lhs: shape.to_vec(),
                rhs: input.shape().to_vec(),
                rule: "each axis must have the same size, or size one",
            })?;
        }
        // In place only where all move as vec4, and where it is worth a kernel of its own.
        let straight = worth_kernels(inputs[0].runtime(), inputs[0].len())
            && inputs.iter().all(|input| {
                let layout = input.layout();
                layout.shape == shape && layout.is_contiguous() && layout.offset.is_multiple_of(4)
            });
        let same = (0..inputs.len()).filter(|_| straight).find(|&i| {
            let input = &inputs[i];
            input.dtype() == self.out
                && input.is_packed()
                && input.is_unique()
                && inputs
                    .iter()
                    .enumerate()
                    .all(|(k, other)| k == i || !other.buffer().shares_buffer(input.buffer()))
        });
        let out = match same {
            Some(index) => inputs[index].clone(),
            None => {
                let refs: SmallVec<[&Tensor; 3]> = inputs.iter().collect();
                Tensor::empty(inputs[0].runtime(), &shape, self.out, &refs)?
            }
        };
        self.write(&inputs, &out, same)?;
        Ok(out)
    }

    /// Computes a new tensor of `shape` from the element's index and the scalars alone.
    ///
    /// # Errors
    ///
    /// When the memory is not there.
    pub fn fill(
        &self,
        runtime: &std::sync::Arc<crate::runtime::Runtime>,
        shape: &[usize],
    ) -> Result<Tensor> {
        let out = Tensor::empty(runtime, shape, self.out, &[])?;
        self.write(&[], &out, None)?;
        Ok(out)
    }

    /// Writes the result over the elements of `out`, which may be a view.
    ///
    /// # Errors
    ///
    /// When an input does not broadcast to `out`, or the device fails.
    pub fn write_to(&self, inputs: &[Tensor], out: &Tensor) -> Result<()> {
        self.write(inputs, out, None)
    }

    fn write(&self, inputs: &[Tensor], out: &Tensor, same: Option<usize>) -> Result<()> {
        let len = out.len();
        if len == 0 {
            return Ok(());
        }
        let mut layouts: SmallVec<[Layout; 4]> = smallvec![out.layout().clone()];
        for input in inputs {
            layouts.push(input.layout().expand(out.shape()).ok_or_else(|| Error::Shape {
                lhs: out.shape().to_vec(),
                rhs: input.shape().to_vec(),
                rule: "the second must broadcast to the first",
            })?);
        }
        // A view that ends inside a vec4 must not have its neighbours overwritten: only who holds all of the
        // memory may write past the end of the elements.
        let whole = len.is_multiple_of(4) || same.is_some() || (out.is_packed() && out.is_unique());
        let packed =
            whole && layouts.iter().all(|l| l.is_contiguous() && l.offset.is_multiple_of(4));
        let refs: SmallVec<[&Layout; 4]> = layouts.iter().collect();
        let dtypes: SmallVec<[DType; 3]> = inputs.iter().map(Tensor::dtype).collect();
        let worth = self.in_words(&dtypes) && worth_kernels(out.runtime(), len);
        let way = match Inner::of(&refs) {
            _ if packed => Access::Packed(same),
            Some(inner) if worth => Access::Inner(inner),
            _ => Access::Strided,
        };
        let quads = len.div_ceil(4);
        let rounds = rounds(out.runtime(), quads);
        let bits = |i: usize| self.scalars.get(i).map_or(0, |s| s.bits(self.scalar));
        let (s, t) = (bits(0), bits(1));
        let mut params: Params = smallvec![
            len as u32,
            rounds as u32,
            s as u32,
            t as u32,
            0,
            (s >> 32) as u32,
            (t >> 32) as u32,
            0
        ];
        if packed {
            let start =
                |i: usize| layouts.get(i).map_or(0, |layout: &Layout| layout.offset as u32 / 4);
            params.extend([start(0), start(1), start(2), start(3)]);
        } else {
            let (words, innermost) = walk(&refs)?;
            params[4] = u32::from(innermost.is_multiple_of(4));
            params.extend_from_slice(&words);
        }
        let variant = self.variant(&dtypes, way);
        let read: SmallVec<[&Tensor; 3]> =
            inputs.iter().enumerate().filter(|&(i, _)| Some(i) != same).map(|(_, t)| t).collect();
        Launch {
            variant: &variant,
            inputs: &read,
            outputs: &[out],
            params: &params,
            groups: div_up(quads, LANES * rounds),
            work: len as u64,
        }
        .run()
    }

    /// Whether every element is a word of 32 bits.
    fn in_words(&self, inputs: &[DType]) -> bool {
        self.out.size() == 4 && inputs.iter().all(|dtype| dtype.size() == 4)
    }

    fn variant(&self, inputs: &[DType], way: Access) -> Variant {
        const NAMES: [(&str, &str, &str, &str); 3] = [
            ("A", "IN_A", "SAME_A", "ONE_A"),
            ("B", "IN_B", "SAME_B", "ONE_B"),
            ("C", "IN_C", "SAME_C", "ONE_C"),
        ];
        let (packed, same, inner) = match way {
            Access::Packed(same) => (true, same, None),
            Access::Inner(inner) => (false, None, Some(inner)),
            Access::Strided => (false, None, None),
        };
        let mut variant = Variant::new(&ELEMENTWISE)
            .flag("PACKED", packed)
            .flag("STRIDED", way == Access::Strided)
            .flag("WORDS", self.in_words(inputs) && way != Access::Strided)
            .ty("O", self.out.wgsl())
            .expr("EXPR", self.expr.clone());
        for (index, (dtype, (alias, read, write, one))) in inputs.iter().zip(NAMES).enumerate() {
            variant = variant.ty(alias, dtype.wgsl());
            variant = variant.flag(if same == Some(index) { write } else { read }, true);
            variant = variant.flag(one, inner.is_some_and(|inner| inner.one[index]));
        }
        if !self.scalars.is_empty() {
            variant =
                variant.ty("S", self.scalar.wgsl()).flag("WIDE_SCALARS", self.scalar.is_64_bit());
        }
        match inputs.first() {
            Some(dtype) if dtype.is_64_bit() => variant.int("BITS", 64),
            _ => variant,
        }
    }
}

/// A row of the table with one operand.
///
/// # Errors
///
/// See [`Map::run`]; the same holds for the functions below.
pub fn unary(row: &Row, tensor: Tensor) -> Result<Tensor> {
    Map::new(row.wgsl, tensor.dtype()).run(smallvec![tensor])
}

/// A row with two operands that broadcast.
pub fn binary(row: &Row, lhs: Tensor, rhs: Tensor) -> Result<Tensor> {
    Map::new(row.wgsl, lhs.dtype()).run(smallvec![lhs, rhs])
}

/// A row with a tensor and one or two scalars.
pub fn scalar(row: &Row, tensor: Tensor, scalars: &[Number]) -> Result<Tensor> {
    let dtype = tensor.dtype();
    Map::new(row.wgsl, dtype).with(scalars, dtype).run(smallvec![tensor])
}

/// A row that keeps a tensor within one or two limits, which may be beyond what its type can hold.
pub fn limit(row: &Row, tensor: Tensor, limits: &[Number]) -> Result<Tensor> {
    let (least, most) = tensor.dtype().range();
    let within = |limit: &Number| match *limit {
        Number::Int(x) => Number::Int(x.clamp(least, most)),
        other => other,
    };
    let limits: SmallVec<[Number; 2]> = limits.iter().map(within).collect();
    scalar(row, tensor, &limits)
}

/// A row that asks a question about one operand.
pub fn query(row: &Row, tensor: Tensor) -> Result<Tensor> {
    Map::new(row.wgsl, DType::Bool).run(smallvec![tensor])
}

/// A row that compares two operands.
pub fn compare(row: &Row, lhs: Tensor, rhs: Tensor) -> Result<Tensor> {
    Map::new(row.wgsl, DType::Bool).run(smallvec![lhs, rhs])
}

/// A row that compares an operand with a scalar, which may be beyond what the operand's type can hold.
pub fn compare_scalar(row: &Row, tensor: Tensor, scalar: Number) -> Result<Tensor> {
    let dtype = tensor.dtype();
    if let (Number::Int(x), Reference::Iq2(truth)) = (scalar, row.reference) {
        let (least, most) = dtype.range();
        if x < least || x > most {
            let answer = Number::Bool(truth(0, if x < least { -1 } else { 1 }));
            return Map::new("s", DType::Bool)
                .with(&[answer], DType::Bool)
                .fill(tensor.runtime(), tensor.shape());
        }
    }
    Map::new(row.wgsl, DType::Bool).with(&[scalar], dtype).run(smallvec![tensor])
}

/// `value` where `mask` holds, `tensor` elsewhere.
pub fn mask_where(tensor: Tensor, mask: Tensor, value: Tensor) -> Result<Tensor> {
    Map::new("select(a, c, b != 0u)", tensor.dtype()).run(smallvec![tensor, mask, value])
}

/// `value` where `mask` holds, `tensor` elsewhere.
pub fn mask_fill(tensor: Tensor, mask: Tensor, value: Number) -> Result<Tensor> {
    let dtype = tensor.dtype();
    Map::new("select(a, s, b != 0u)", dtype).with(&[value], dtype).run(smallvec![tensor, mask])
}

/// The floats to the power of the integers.
pub fn powi(lhs: Tensor, rhs: Tensor) -> Result<Tensor> {
    Map::new(POWI, lhs.dtype()).run(smallvec![lhs, rhs])
}

const POWI: &str = "pow_(a, f32(b))";

/// Every variant that can be asked for: each row and helper, packed or not, in place or not.
pub fn variants() -> Vec<Variant> {
    let mut out = Vec::new();
    let mut add = |map: &Map, inputs: &[DType]| {
        out.push(map.variant(inputs, Access::Strided));
        for same in std::iter::once(None).chain((0..inputs.len()).map(Some)) {
            if same.is_none_or(|i: usize| inputs[i] == map.out) {
                out.push(map.variant(inputs, Access::Packed(same)));
            }
        }
        if map.in_words(inputs) {
            for bits in 0..1 << inputs.len() {
                let one = [0, 1, 2].map(|index| bits >> index & 1 == 1);
                out.push(map.variant(inputs, Access::Inner(Inner { one })));
            }
        }
    };
    for row in super::table::ALL.iter().copied().flatten() {
        let (dtypes, question): (&[DType], bool) = match row.reference {
            Reference::F1(_) | Reference::F2(_) | Reference::F3(_) => (&[DType::F32], false),
            Reference::Fq1(_) | Reference::Fq2(_) => (&[DType::F32], true),
            Reference::I1(_) | Reference::I2(_) | Reference::I3(_) => (&DType::INTEGERS, false),
            Reference::Iq2(_) => (&DType::INTEGERS, true),
            Reference::B1(_) | Reference::B2(_) => (&[DType::Bool], false),
        };
        let (inputs, scalars) = match row.operands {
            Operands::Unary => (1, 0),
            Operands::Binary => (2, 0),
            Operands::Scalar => (1, 1),
            Operands::Scalars => (1, 2),
        };
        for &dtype in dtypes {
            let map = Map::new(row.wgsl, if question { DType::Bool } else { dtype });
            let map = map.with(&vec![Number::Int(0); scalars], dtype);
            add(&map, &vec![dtype; inputs]);
        }
    }
    let zero = &[Number::Int(0)];
    for dtype in DType::COMPUTE_TYPES {
        add(&Map::new("select(a, c, b != 0u)", dtype), &[dtype, DType::Bool, dtype]);
        add(&Map::new("select(a, s, b != 0u)", dtype).with(zero, dtype), &[dtype, DType::Bool]);
        add(&Map::new("a", dtype), &[dtype]);
        add(&Map::new("s", dtype).with(zero, dtype), &[]);
    }
    for dtype in DType::INTEGERS {
        add(&Map::new(POWI, DType::F32), &[DType::F32, dtype]);
        add(&super::create::counting(dtype, [zero[0]; 2]), &[]);
    }
    for (map, from) in super::cast::maps() {
        add(&map, &[from]);
    }
    out
}

/// What the family must pass besides the rows of the table.
pub const CASES: &[Case] = &[
    case("relu", &[normal(&[3, 70])]),
    case("relu", &[permuted(&[7, 9], &[1, 0])]),
    case("float_powi", &[normal(&[40]), ints(&[40])]),
    case("float_powi_scalar", &[normal(&[40]), Arg::Int(3)]),
    case("float_powf_scalar", &[positive(&[40]), Arg::Float(-1.5)]),
    case("int_powi_scalar", &[ints(&[40]), Arg::Int(3)]),
    case("prelu", &[normal(&[3, 4, 5]), normal(&[1, 4, 1])]),
    case("float_add", &[normal(&[1]), normal(&[1])]),
    case("float_mul", &[normal(&[0, 3]), normal(&[1, 3])]),
    case("float_sub", &[normal(&[2, 1, 3, 1, 2, 1, 2, 3]), normal(&[2, 3, 1, 2, 1, 2, 1, 3])]),
    case("bool_equal_elem", &[truths(&[9]), Arg::Switch(false)]),
];
