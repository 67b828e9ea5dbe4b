//! Pending results: an elementwise op becomes an expression that is computed when its memory is needed, and so does a
//! launch that may get an epilogue.

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustc_hash::FxHasher;
use smallvec::SmallVec;

use crate::kernels::fusion::composite::AnyLaunch;
use crate::kernels::fusion::compute::compute;
use crate::kernels::fusion::epilogue::DeferredLaunch;
use crate::kernels::fusion::lines;
use crate::kernels::fusion::program::{Access, RESULT};
use crate::kernels::fusion::prologue::{self, Reads};
use crate::kernels::fusion::schedule::NextStep;
use crate::kernels::fusion::switch::is_enabled;
use crate::kernels::ops::map::{CONSTANT, CONVERSION, Map};
use crate::kernels::policy;
use crate::runtime::{Runtime, current_origin, is_captured};
use crate::tensor::{
    Arg, DType, Error, Expression, Extent, Layout, Lazy, Lines, Padding, Result, Tensor, described,
    description,
};

/// The maximum number of expressions in a kernel.
const MAX_OPS: u32 = 24;
/// The maximum number of expressions in a kernel that reduces lines. One that several others use is counted for each
/// of them.
const MAX_OPS_ON_LINES: u32 = 128;

/// The result of a launch that may be deferred.
pub(crate) struct PendingResult<'a> {
    pub runtime: &'a Arc<Runtime>,
    pub shape: &'a [usize],
    pub dtype: DType,
    /// Whether the kernel stores it in vec4s.
    pub vec4: bool,
    /// Whether the kernel is large. On software adapters, each epilogue would take too long to
    /// compile.
    pub large_kernel: bool,
    /// Whether an input is probably a parameter, which outlives the result: its size does not prevent deferral then.
    /// If it is none, it stays in memory for the result.
    pub reads_parameter: bool,
    /// The inputs that the kernel may compute if they are pending.
    pub prologues: &'a [(usize, Reads)],
}

impl<'a> PendingResult<'a> {
    /// Returns a result of which the kernel stores one element at a time, without prologues.
    pub fn scalars(runtime: &'a Arc<Runtime>, shape: &'a [usize], dtype: DType) -> Self {
        let (vec4, large_kernel, reads_parameter) = (false, false, false);
        Self { runtime, shape, dtype, vec4, large_kernel, reads_parameter, prologues: &[] }
    }
}

/// Returns the pending result of an elementwise computation. The inputs broadcast to the shape of `layout`, which is
/// packed.
///
/// # Errors
///
/// Returns an error if the inputs are on different devices, the result is too large, or an input
/// that must be computed first cannot be computed.
pub(crate) fn defer<const N: usize>(
    map: &Map,
    inputs: [Tensor; N],
    layout: Layout,
) -> Result<Tensor> {
    let runtime = inputs[0].runtime().clone();
    let mut args: SmallVec<[Arg; 2]> = SmallVec::new();
    for input in inputs {
        let is_taken = map.expr != CONVERSION && may_be_by_itself(&input);
        let input = if is_taken { by_itself(input)? } else { input };
        if !Arc::ptr_eq(input.runtime(), &runtime) {
            let (lhs, rhs) = (runtime.name(), input.runtime().name());
            return Err(Error::DeviceMismatch { lhs, rhs });
        }
        let arg = input.into_arg(&layout.shape)?;
        args.push(if arg.layout.is_none() { arg } else { whole_constant(arg, &runtime, &layout)? });
    }
    defer_args(map, &runtime, args, layout)
}

/// Returns whether [`by_itself`] may return another tensor.
#[inline]
fn may_be_by_itself(input: &Tensor) -> bool {
    input
        .pending()
        .is_some_and(|lazy| lazy.is_computed_alone() || lazy.expression().is_conversion())
}

/// Returns the input of an op that does more than convert it: what a larger op might replace is computed by itself, so
/// that this op can be its epilogue.
fn by_itself(input: Tensor) -> Result<Tensor> {
    if input.is_computed_alone() {
        return input.by_itself();
    }
    let Some(replaceable) = input.converts_replaceable() else { return Ok(input) };
    let converted = Map::new(CONVERSION, input.dtype());
    let converted = defer(&converted, [replaceable.by_itself()?], input.layout().packed())?;
    Ok(converted)
}

/// Replaces a pending constant that broadcasts by one of the result's shape, so that no memory is read.
#[inline(never)]
fn whole_constant(arg: Arg, runtime: &Arc<Runtime>, layout: &Layout) -> Result<Arg> {
    let is_constant = |lazy: &&Arc<Lazy>| {
        lazy.expression().wgsl == CONSTANT && lazy.expression().dtype == arg.dtype
    };
    let Some(lazy) = arg.storage.pending().filter(is_constant) else { return Ok(arg) };
    let expression = Expression { len: layout.len(), ..lazy.expression().clone() };
    let extent = lazy.extent().clone();
    let constant =
        Tensor::lazy(runtime, layout.packed(), expression, SmallVec::new(), extent, compute)?;
    constant.into_arg(&layout.shape)
}

fn defer_args(
    map: &Map,
    runtime: &Arc<Runtime>,
    args: SmallVec<[Arg; 2]>,
    layout: Layout,
) -> Result<Tensor> {
    let len = layout.len();
    let mut extent = extent(&layout.shape, len, &args)?;
    extent.signature = signature(map, &args);
    let keeps_much = extent.kept > max_kept_bytes(len * reduced_len(&extent));
    let result = pending(map, runtime, layout, args, extent)?;
    if keeps_much {
        // Pending, a small result would keep large operands alive.
        result.buffer()?;
    }
    Ok(result)
}

/// Returns the pending result of a computation without inputs.
///
/// # Errors
///
/// Returns an error if the result is too large.
pub(crate) fn defer_fill(map: &Map, runtime: &Arc<Runtime>, shape: &[usize]) -> Result<Tensor> {
    let extent = Extent { ops: 1, signature: signature(map, &[]), ..Extent::default() };
    pending(map, runtime, Layout::contiguous(shape), SmallVec::new(), extent)
}

/// Returns the pending result of a computation whose input, which must be packed, is a part of each
/// line of a tensor that is zero elsewhere.
///
/// # Errors
///
/// Returns an error if the result is too large, or the input cannot be computed.
pub(crate) fn defer_padded(
    map: &Map,
    input: Tensor,
    padding: Padding,
    shape: &[usize],
) -> Result<Tensor> {
    let runtime = input.runtime().clone();
    let args = SmallVec::from_iter([input.into_padded_arg(padding)?]);
    defer_args(map, &runtime, args, Layout::contiguous(shape))
}

/// Returns whether a tensor is a pending constant with bits of zero.
pub(crate) fn is_pending_zero(tensor: &Tensor) -> bool {
    tensor.pending().is_some_and(|lazy| {
        let Expression { wgsl, scalars, .. } = lazy.expression();
        *wgsl == CONSTANT && scalars[..] == [0]
    })
}

/// Returns the pending result of a launch. `None` if the launch must not be deferred.
///
/// # Errors
///
/// Returns an error if an input cannot be computed, the result is too large, or the device was
/// lost.
pub(crate) fn defer_launch(
    launch: &AnyLaunch<'_>,
    result: &PendingResult<'_>,
) -> Result<Option<Tensor>> {
    let runtime = launch.runtime;
    let len = result.shape.iter().product();
    // Elements of 64 bits are two words.
    let has_words = result.dtype.size() == 4;
    let has_epilogue = has_words && policy::of(runtime).has_epilogue(result.large_kernel);
    if !is_enabled() || len == 0 || !has_epilogue {
        return Ok(None);
    }
    let mut deferred = DeferredLaunch {
        runtime: runtime.clone(),
        kernel: launch.kernel.to_box(),
        prologues: SmallVec::new(),
        inputs: SmallVec::new(),
        params: launch.params.into(),
        words: SmallVec::new(),
        workgroups: launch.workgroups,
        work: launch.work,
        rounds: launch.rounds,
        bytes: (len as u64 * result.dtype.size()).next_multiple_of(4),
        vec4: result.vec4,
        origin: current_origin(),
        operands: match is_captured() {
            true => {
                let result = described(result.dtype, result.shape);
                (description(launch.inputs, &[]) + &result).into()
            }
            false => "".into(),
        },
        kept: 0,
        runs_when_dropped: AtomicBool::new(false),
    };
    if !take_inputs(&mut deferred, launch, result.prologues)? {
        return Ok(None);
    }
    let bound = deferred.inputs.iter().map(|input| input.bytes()).chain([deferred.bytes]);
    if bound.max() > Some(runtime.max_binding()) {
        // Made at once, the launch fails with the reason.
        return Ok(None);
    }
    let kept: u64 = deferred.inputs.iter().map(|input| input.kept_bytes()).sum();
    let is_large = kept > 2 * max_kept_bytes(len) && !result.reads_parameter;
    if is_large || !deferred.keep(kept.saturating_sub(2 * 3 * 4 * len as u64)) {
        return Ok(None);
    }
    deferred.runs_when_dropped = AtomicBool::new(true);
    let expression = Expression::named(RESULT, result.dtype, len);
    let mut extent = Extent { ops: 1, has_launch: true, ..Extent::default() };
    for input in &deferred.inputs {
        // A kernel with more operands would have no epilogue.
        extent.add_leaf(Arc::as_ptr(input) as usize);
    }
    let deferred = Arc::new(deferred);
    Tensor::of_launch(runtime, result.shape, expression, deferred, extent, compute).map(Some)
}

/// Sets the inputs of a deferred launch, some of which its kernel computes. Returns `false` if the launch must be made
/// at once.
fn take_inputs(
    deferred: &mut DeferredLaunch,
    launch: &AnyLaunch<'_>,
    prologues: &[(usize, Reads)],
) -> Result<bool> {
    let mut may_defer = None;
    prologue::fuse(launch, prologues, |fused| {
        // If its kernel is not compiled, the launch is made at once, with operands that are computed first.
        let is_ready = launch.runtime.may_generate() || fused.is_prepared(launch);
        may_defer = Some(fused.is_pure() && is_ready);
        deferred.take(fused);
        Ok(NextStep::Nothing)
    })?;
    if let Some(may_defer) = may_defer {
        return Ok(may_defer);
    }
    for input in launch.inputs {
        launch.inputs[0].same_device(input)?;
        deferred.inputs.push(input.buffer()?.clone());
    }
    Ok(true)
}

#[inline(always)]
fn pending(
    map: &Map,
    runtime: &Arc<Runtime>,
    layout: Layout,
    args: SmallVec<[Arg; 2]>,
    extent: Extent,
) -> Result<Tensor> {
    let expression = Expression {
        origin: current_origin(),
        wgsl: map.expr,
        dtype: map.out_type,
        scalars: map.scalars.iter().map(|scalar| scalar.bits(map.scalar_type)).collect(),
        scalar_type: map.scalar_type,
        len: layout.len(),
    };
    Tensor::lazy(runtime, layout, expression, args, extent, compute)
}

/// Returns the extent of an op with its arguments. Arguments that cannot be part of its kernel are
/// computed.
#[cfg_attr(not(target_family = "wasm"), inline(always))]
pub(crate) fn extent(shape: &[usize], len: usize, args: &[Arg]) -> Result<Extent> {
    loop {
        match try_extent(shape, len, args) {
            Ok(extent) => return Ok(extent),
            Err(index) => drop(args[index].storage.computed()?),
        }
    }
}

/// Returns the extent of an op with its arguments, or the index of a pending argument that must be
/// computed first.
#[cfg_attr(not(target_family = "wasm"), inline(always))]
fn try_extent(shape: &[usize], len: usize, args: &[Arg]) -> Result<Extent, usize> {
    let integer = args.first().map(|arg| arg.dtype).filter(|dtype| dtype.is_integer());
    let mut extent = Extent { ops: 1, integer, ..Extent::default() };
    let mut largest: Option<(u32, usize)> = None;
    let mut has_room = true;
    for (index, arg) in args.iter().enumerate() {
        let Some(lazy) = arg.storage.pending() else {
            if let Some(memory) = arg.storage.memory() {
                let known = extent.leaves;
                has_room &= extent.add_leaf(Arc::as_ptr(memory) as usize);
                if extent.leaves > known {
                    extent.kept += memory.kept_bytes();
                }
            }
            let walks = |layout: &Layout| Access::without_strides(layout).is_none();
            if arg.layout.as_ref().is_some_and(walks) {
                extent.walked = Some(shape.into());
            }
            continue;
        };
        let inner = lazy.extent();
        let lines = match &arg.layout {
            None => inner.lines,
            Some(layout) => {
                // In memory later, it is read through its strides.
                if Access::without_strides(layout).is_none() {
                    if extent.walked.as_deref().is_some_and(|walked| walked != shape) {
                        return Err(index);
                    }
                    extent.walked = Some(shape.into());
                }
                Some(of_broadcast(lazy, layout, args).ok_or(index)?)
            }
        };
        let bytes = (len as u64 * arg.dtype.size()).next_multiple_of(4);
        // A part of a 16-bit result may have as many words.
        let is_equal = bytes == lazy.bytes() && len == lazy.expression().len;
        let is_whole = arg.layout.is_some() || is_equal;
        let integers_agree = match (extent.integer, inner.integer) {
            (Some(outer), Some(inner)) => outer.wgsl() == inner.wgsl(),
            _ => true,
        };
        let lines_agree = lines.is_none() || extent.lines.is_none() || extent.lines == lines;
        let shapes_agree = inner.walked.as_deref().is_none_or(|walked| {
            let is_reduced = lines.is_some_and(|lines| lines.is_reduced);
            let known = extent.walked.as_deref().or((!is_reduced).then_some(shape));
            known.is_none_or(|known| walked == known)
        });
        if !is_whole || !lines_agree || !integers_agree || !shapes_agree {
            return Err(index);
        }
        extent.lines = extent.lines.or(lines);
        extent.ops += inner.ops;
        extent.has_launch |= inner.has_launch;
        extent.integer = extent.integer.or(inner.integer);
        if inner.walked.is_some() {
            extent.walked.clone_from(&inner.walked);
        }
        let known = extent.leaves;
        for &address in &inner.addresses[..inner.leaves.into()] {
            has_room &= extent.add_leaf(address);
        }
        // Counts only tensors that earlier arguments do not keep, as if all had the same size.
        extent.kept += match extent.leaves - known {
            0 => 0,
            added if added == inner.leaves => inner.kept,
            added => inner.kept * u64::from(added) / u64::from(inner.leaves),
        };
        if largest.is_none_or(|(ops, _)| inner.ops > ops) {
            largest = Some((inner.ops, index));
        }
    }
    let max_ops = if extent.lines.is_some() { MAX_OPS_ON_LINES } else { MAX_OPS };
    let max_kept = max_kept_bytes(len * reduced_len(&extent));
    let too_large = !has_room || extent.ops > max_ops || extent.kept > max_kept;
    match largest {
        Some((_, index)) if too_large => Err(index),
        _ => Ok(extent),
    }
}

/// Returns how a result that reads a pending one through a layout is related to lines; `None` unless the layout repeats
/// the pending result's element of each line.
#[inline(never)]
fn of_broadcast(lazy: &Lazy, layout: &Layout, args: &[Arg]) -> Option<Lines> {
    let (extent, count) = (lazy.extent(), lazy.expression().len);
    let len = layout.repeats().filter(|_| layout.offset == 0)?;
    let fits = match extent.lines {
        Some(lines) => lines.is_reduced && lines.len as usize == len,
        // One element per line, but no reduction: the kernel of lines computes it. After a launch, the rest is the
        // launch's epilogue instead.
        None => {
            let follows_launch =
                |arg: &Arg| arg.storage.pending().is_some_and(|lazy| lazy.extent().has_launch);
            let is_last_axis = layout.shape.last() == Some(&len) && count > 1 && len > 1;
            is_last_axis
                && extent.walked.is_none()
                && !args.iter().any(follows_launch)
                && lines::are_reduced(lazy.runtime(), count, len)
        }
    };
    (fits && layout.len() == count * len).then_some(Lines { len: len as u32, is_reduced: false })
}

/// Returns the number of elements that were reduced to each element of a result; one if none were.
fn reduced_len(extent: &Extent) -> usize {
    extent.lines.filter(|lines| lines.is_reduced).map_or(1, |lines| lines.len as usize)
}

/// Returns how many bytes pending elementwise results of `len` elements may keep in memory: three
/// tensors of that size, and 1 MiB. A pending launch may keep twice as much.
fn max_kept_bytes(len: usize) -> u64 {
    3 * 4 * len as u64 + (1 << 20)
}

/// Returns the hash of an op, its scalars and its arguments, but for the tensors in memory, and of
/// the thread: what another thread is about to use must not be computed early.
fn signature(map: &Map, args: &[Arg]) -> u64 {
    let scalars = map.scalars.iter().map(|scalar| scalar.bits(map.scalar_type));
    signature_of(map.expr, map.out_type, scalars, args)
}

/// As [`signature`], of an expression with the bits of its scalars.
#[cfg_attr(not(target_family = "wasm"), inline(always))]
pub(crate) fn signature_of(
    expr: &'static str,
    out_type: DType,
    scalars: impl Iterator<Item = u64>,
    args: &[Arg],
) -> u64 {
    thread_local! {
        static THREAD: u64 = {
            static COUNT: AtomicU64 = AtomicU64::new(0);
            COUNT.fetch_add(1, Ordering::Relaxed)
        };
    }
    let mut hasher = FxHasher::default();
    THREAD.with(|thread| thread.hash(&mut hasher));
    (expr.as_ptr() as usize, out_type as u8).hash(&mut hasher);
    for scalar in scalars {
        scalar.hash(&mut hasher);
    }
    for arg in args {
        let signature = arg.storage.pending().map_or(0, |lazy| lazy.extent().signature);
        (arg.dtype as u8, signature).hash(&mut hasher);
    }
    hasher.finish()
}
