//! Conversions between element types, with the semantics of Rust's `as`; floats round to nearest,
//! ties to even.
//!
//! Conversions from and to 16-bit floats have a kernel. The others are elementwise expressions.

use crate::kernels::copy;
use crate::kernels::fusion::pending;
use crate::kernels::fusion::switch::is_enabled;
use crate::kernels::launch::walk::Walk;
use crate::kernels::launch::{Launch, parts, variants_of, workgroups_for};
use crate::kernels::ops::cases::{Case, cases};
use crate::kernels::ops::map::{CONVERSION, Map};
use crate::kernels::policy;
use crate::params;
use crate::runtime::{Kernel, Source, Variant, wgsl};
use crate::tensor::{DType, Result, Tensor};

static CAST: Source = Source::new::<CastParams>("cast", wgsl!("../../shaders/cast/cast.wgsl"));

params! {
    struct CastParams {
        count: u32,
        len: u32,
        start: u32,
        pad: u32,
        walk: Walk,
    }
}

/// The kernel: a conversion from or to 16-bit floats.
#[derive(Debug, Clone, Copy, Hash)]
struct CastKernel {
    /// The type of the tensor.
    from: DType,
    /// The type of the result.
    to: DType,
}

impl Kernel for CastKernel {
    type Params = CastParams;

    fn variant(&self) -> Variant {
        let name = |dtype, names: [&'static str; 3]| match dtype {
            DType::F32 => names[0],
            DType::F16 => names[1],
            _ => names[2],
        };
        Variant::new(&CAST)
            .flag(name(self.from, ["FROM_F32", "FROM_F16", "FROM_BF16"]), true)
            .flag(name(self.to, ["TO_F32", "TO_F16", "TO_BF16"]), true)
    }
}

/// Converts the elements to another type. Integers wrap, floats are truncated to integers and
/// saturate, and booleans are true for elements other than zero.
///
/// # Errors
///
/// Returns an error if the memory is not available.
pub fn cast(tensor: Tensor, to: DType) -> Result<Tensor> {
    let from = tensor.dtype();
    match (from, to) {
        _ if from == to => Ok(tensor),
        _ if (from.is_half() || to.is_half()) && from.is_float() && to.is_float() => {
            convert_half(&tensor, to)
        }
        _ if from.is_half() => cast(convert_half(&tensor, DType::F32)?, to),
        _ if to.is_half() => convert_half(&cast(tensor, DType::F32)?, to),
        // The same bits: booleans are stored as 0 and 1, and signed integers wrap to unsigned ones.
        (DType::Bool, _) if to.compute_type() == DType::I32 || to == DType::U32 => {
            Ok(tensor.bitcast(to))
        }
        (_, DType::I32) if from.compute_type() == DType::I32 => Ok(tensor.bitcast(to)),
        (DType::I32, DType::U32) | (DType::U32, DType::I32) => Ok(tensor.bitcast(to)),
        _ => {
            let tensor = tensor.bitcast(from.compute_type());
            let map = Map::new(cast_expr(from.compute_type(), to), to.compute_type());
            Ok(map.run([tensor])?.bitcast(to))
        }
    }
}

/// Converts the tensor to its compute type.
///
/// # Errors
///
/// Returns an error if the memory is not available.
pub fn to_compute_type(tensor: Tensor) -> Result<Tensor> {
    let dtype = tensor.dtype();
    if dtype.is_half() {
        return convert_half(&tensor, DType::F32);
    }
    Ok(tensor.bitcast(dtype.compute_type()))
}

/// Returns a tensor of 16-bit floats as f32, with the same strides unless elements have gaps or
/// repeat. The conversion is pending, so that kernels can read the tensor as it is stored.
///
/// # Errors
///
/// Returns an error if the memory is not available.
pub(super) fn widened(tensor: &Tensor) -> Result<Tensor> {
    let Some(axes) = tensor.layout().dense_order() else { return to_compute_type(tensor.clone()) };
    let packed = tensor.view(tensor.layout().permute(&axes));
    Ok(to_compute_type(packed)?.view(tensor.layout().clone()))
}

/// Returns a tensor, which may be the pending conversion of 16-bit floats with other strides: with their strides then,
/// so that kernels can read them as they are stored.
///
/// # Errors
///
/// Returns an error if the memory is not available.
pub(super) fn as_stored(tensor: Tensor) -> Result<Tensor> {
    let stored = tensor.converted_from().filter(|stored| {
        stored.dtype().is_half()
            && tensor.dtype() == DType::F32
            && stored.layout().dense_order().is_some()
            && policy::of(tensor.runtime()).keeps_halves()
    });
    stored.map_or(Ok(tensor), |stored| widened(&stored))
}

/// Converts indices to i32, the type that kernels read. An index above the range of i32 becomes the
/// largest i32, and a negative 64-bit index becomes -1: both remain outside any axis.
///
/// # Errors
///
/// Returns an error if the memory is not available.
pub fn indices(tensor: Tensor) -> Result<Tensor> {
    match tensor.dtype() {
        DType::I32 => Ok(tensor),
        from => Map::new(index_expr(from), DType::I32).run([tensor]),
    }
}

/// Returns the WGSL expression of an index `a` as i32, for [`indices`].
fn index_expr(from: DType) -> &'static str {
    match from {
        DType::I64 => "i32(clamp(a, i64(-1), i64(0x7fffffff)))",
        DType::U64 => "i32(min(a, u64(0x7fffffffu)))",
        _ => "i32(min(a, 0x7fffffffu))",
    }
}

/// Makes a packed copy of type `to`. The source, the result or both are 16-bit floats.
pub(super) fn convert_half(tensor: &Tensor, to: DType) -> Result<Tensor> {
    let runtime = tensor.runtime();
    let oversized = tensor.is_oversized() || parts::exceed_binding(runtime, tensor.shape(), to);
    if is_enabled() && !tensor.is_empty() && !oversized {
        return pending::defer(
            &Map::new(CONVERSION, to),
            [tensor.clone()],
            tensor.layout().packed(),
        );
    }
    let out = Tensor::empty(runtime, tensor.shape(), to)?;
    match oversized {
        _ if tensor.is_empty() => {}
        true => convert_parts(tensor, &out)?,
        false => write_half(tensor, &out)?,
    }
    Ok(out)
}

/// Converts a tensor in parts that fit a binding. Parts of a 16-bit result must begin with a whole
/// word, as those of a contiguous tensor do.
fn convert_parts(tensor: &Tensor, out: &Tensor) -> Result<()> {
    let source = match tensor.dtype() {
        _ if !out.dtype().is_half() || tensor.layout().is_contiguous() => tensor.clone(),
        DType::F32 => copy::packed(tensor)?,
        _ => convert_half(tensor, DType::F32)?,
    };
    parts::each(&[source, out.clone()], &mut |parts| write_half(&parts[0], &parts[1]))
}

/// Converts the elements of a tensor, and writes them to `out`, which is contiguous and begins with
/// a whole word if it has 16 bits. One type is a 16-bit float.
fn write_half(tensor: &Tensor, out: &Tensor) -> Result<()> {
    let pairs = out.len().div_ceil(2);
    Launch {
        kernel: &CastKernel { from: tensor.dtype(), to: out.dtype() },
        inputs: &[tensor],
        outputs: &[out],
        params: &CastParams {
            count: pairs as u32,
            len: out.len() as u32,
            start: out.layout().offset as u32 / 2,
            pad: 0,
            walk: Walk::new(&[tensor.layout(), out.layout()])?,
        },
        workgroups: workgroups_for(pairs),
        work: out.len() as u64,
        rounds: None,
    }
    .run()
}

/// Returns the WGSL expression that converts an element `a` of a compute type.
fn cast_expr(from: DType, to: DType) -> &'static str {
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
        // Extends, then changes the sign: compilers differ in how they do both in one step.
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

/// Returns every elementwise conversion with its source type.
fn maps() -> Vec<(Map, DType)> {
    let targets = [DType::I16, DType::I8, DType::U16, DType::U8];
    let mut out = Vec::new();
    for from in DType::COMPUTE_TYPES {
        for to in DType::COMPUTE_TYPES.into_iter().chain(targets) {
            let map = Map::new(cast_expr(from, to), to.compute_type());
            let same = |(other, source): &(Map, DType)| {
                *source == from && other.out_type == map.out_type && other.expr == map.expr
            };
            if from != to && !out.iter().any(same) {
                out.push((map, from));
            }
        }
        if from.is_integer() && from != DType::I32 {
            out.push((Map::new(index_expr(from), DType::I32), from));
        }
    }
    out
}

/// Returns every variant that the family can dispatch.
pub fn variants() -> Vec<Variant> {
    let floats = [DType::F32, DType::F16, DType::BF16];
    let pairs = floats.into_iter().flat_map(|from| floats.map(|to| CastKernel { from, to }));
    let mut out = variants_of(pairs.filter(|pair| pair.from.is_half() || pair.to.is_half()));
    out.extend(maps().into_iter().flat_map(|(map, from)| map.variants(&[from])));
    out
}

/// No cases: arguments of a case cannot name an element type. `tests/kernels/types.rs` tests conversions.
pub const CASES: &[Case] = cases! {};
