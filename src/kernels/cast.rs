//! Elements in another type, as Rust's `as` converts them; floats round to the nearest, ties to even.

use smallvec::smallvec;

use super::cases::Case;
use super::elementwise::Map;
use super::{Launch, Params, div_up, walk};
use crate::runtime::{Source, Variant};
use crate::tensor::{DType, Result, Tensor};

static HALF: Source = Source { name: "half", text: include_str!("../../shaders/cast/half.wgsl") };

/// The tensor's elements in another type: integers wrap, floats become integers towards zero and saturate, and a truth
/// value says whether an element is not zero.
///
/// # Errors
///
/// When the memory is not there.
pub fn cast(tensor: Tensor, to: DType) -> Result<Tensor> {
    let from = tensor.dtype();
    match (from, to) {
        _ if from == to => Ok(tensor),
        _ if (from.is_half() || to.is_half()) && from.is_float() && to.is_float() => {
            half(&tensor, to)
        }
        _ if from.is_half() => cast(half(&tensor, DType::F32)?, to),
        _ if to.is_half() => half(&cast(tensor, DType::F32)?, to),
        // The same bits: truth values are stored as 0 and 1, and a signed number's wrap to an unsigned one's.
        (DType::Bool, _) if to.compute_type() == DType::I32 || to == DType::U32 => {
            Ok(tensor.bitcast(to))
        }
        (_, DType::I32) if from.compute_type() == DType::I32 => Ok(tensor.bitcast(to)),
        (DType::I32, DType::U32) | (DType::U32, DType::I32) => Ok(tensor.bitcast(to)),
        _ => {
            let tensor = tensor.bitcast(from.compute_type());
            let map = Map::new(expr(from.compute_type(), to), to.compute_type());
            Ok(map.run(smallvec![tensor])?.bitcast(to))
        }
    }
}

/// The tensor in the type that kernels compute it in.
///
/// # Errors
///
/// When the memory is not there.
pub fn computed(tensor: Tensor) -> Result<Tensor> {
    let dtype = tensor.dtype();
    if dtype.is_half() {
        return half(&tensor, DType::F32);
    }
    Ok(tensor.bitcast(dtype.compute_type()))
}

/// Indices as kernels take them. Those past 32 bits are past any axis: they become the farthest of 32 bits.
///
/// # Errors
///
/// When the memory is not there.
pub fn indices(tensor: Tensor) -> Result<Tensor> {
    match tensor.dtype() {
        DType::I32 => Ok(tensor),
        from => Map::new(index_expr(from), DType::I32).run(smallvec![tensor]),
    }
}

fn index_expr(from: DType) -> &'static str {
    match from {
        DType::I64 => "i32(clamp(a, i64(-1), i64(0x7fffffff)))",
        DType::U64 => "i32(min(a, u64(0x7fffffffu)))",
        _ => "i32(min(a, 0x7fffffffu))",
    }
}

/// A packed copy, of which the source, the result or both hold floats of 16 bits.
pub(super) fn half(tensor: &Tensor, to: DType) -> Result<Tensor> {
    let out = Tensor::empty(tensor.runtime(), tensor.shape(), to, &[tensor])?;
    if out.is_empty() {
        return Ok(out);
    }
    let mut params: Params = smallvec![out.len() as u32, 0, 0, 0];
    params.extend_from_slice(&walk(&[tensor.layout()])?.0);
    Launch {
        variant: &half_variant(tensor.dtype(), to),
        inputs: &[tensor],
        outputs: &[&out],
        params: &params,
        groups: div_up(out.len(), 128),
        work: out.len() as u64,
    }
    .run()?;
    Ok(out)
}

fn half_variant(from: DType, to: DType) -> Variant {
    Variant::new(&HALF)
        .flag("FROM_32", from == DType::F32)
        .flag("FROM_16", from == DType::F16)
        .flag("TO_32", to == DType::F32)
        .flag("TO_16", to == DType::F16)
}

/// The conversion of an element `a` of a computed type.
fn expr(from: DType, to: DType) -> &'static str {
    match (from, to) {
        (DType::F32, DType::Bool) => "!(a == 0.0)",
        (DType::F32, DType::I32) => "to_i32(a)",
        (DType::F32, DType::I16) => "clamp(to_i32(a), -32768, 32767)",
        (DType::F32, DType::I8) => "clamp(to_i32(a), -128, 127)",
        (DType::F32, DType::U16) => "clamp(to_i32(a), 0, 65535)",
        (DType::F32, DType::U8) => "clamp(to_i32(a), 0, 255)",
        (DType::F32, DType::U32) => "to_u32(a)",
        (DType::F32, DType::I64) => "to_i64(a)",
        (DType::F32, DType::U64) => "to_u64(a)",
        (DType::I64, DType::F32) => "i64_to_float(a)",
        (DType::U64, DType::F32) => "u64_to_float(a)",
        // Widened with the sign of the source, then taken for the other sign: compilers differ in one step.
        (DType::U32, DType::I64) => "i64(u64(a))",
        (DType::I32, DType::U64) => "u64(i64(a))",
        (_, DType::Bool) => "!(a == A(0))",
        (_, DType::I16) => "(i32(a) << 16u) >> 16u",
        (_, DType::I8) => "(i32(a) << 24u) >> 24u",
        (_, DType::U16) => "i32(a) & 0xffff",
        (_, DType::U8) => "i32(a) & 0xff",
        _ => "a",
    }
}

/// Every conversion that is an elementwise kernel, with the type it starts from.
pub(super) fn maps() -> Vec<(Map, DType)> {
    let targets = [DType::I16, DType::I8, DType::U16, DType::U8];
    let mut out = Vec::new();
    for from in DType::COMPUTE_TYPES {
        for to in DType::COMPUTE_TYPES.into_iter().chain(targets) {
            let map = Map::new(expr(from, to), to.compute_type());
            let known =
                |(m, f): &(Map, DType)| *f == from && m.out == map.out && m.expr == map.expr;
            if from != to && !out.iter().any(known) {
                out.push((map, from));
            }
        }
        if from.is_integer() && from != DType::I32 {
            out.push((Map::new(index_expr(from), DType::I32), from));
        }
    }
    out
}

/// Every variant of the kernel for 16-bit floats; the other conversions are elementwise kernels.
pub fn variants() -> Vec<Variant> {
    let floats = [DType::F32, DType::F16, DType::BF16];
    let pairs = floats.into_iter().flat_map(|from| floats.map(|to| (from, to)));
    pairs
        .filter(|(from, to)| from.is_half() || to.is_half())
        .map(|(from, to)| half_variant(from, to))
        .collect()
}

/// What the family must pass is in the tests of types: the cases' arguments name none.
pub const CASES: &[Case] = &[];
