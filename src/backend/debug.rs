//! Debugging of programs: each op on its own, values that are not finite, results that differ from
//! run to run.
//!
//! Errors and NaN appear where a result is read, often far from the op that caused them. These
//! modes check each op as it runs, and panic with its name. They cost a wait for the device after
//! every op.
//!
//! | what | function | variable |
//! |---|---|---|
//! | run each op at once | [`set_each_op`] | `BURN_WGSL_DEBUG=ops` |
//! | find the first NaN | [`set_values`] | `BURN_WGSL_DEBUG=nan` |
//! | find the first NaN or infinity | [`set_values`] | `BURN_WGSL_DEBUG=finite` |
//! | name each wait for a GPU in the log | [`set_waits`] | `BURN_WGSL_DEBUG=waits` |
//! | lines of the program in profiles and memory recordings | [`set_lines`] | `BURN_WGSL_DEBUG=lines` |
//! | groups by scope and op in graphics debuggers | | `BURN_WGSL_DEBUG=groups` |
//! | compile shaders with all checks | [`check_shaders`] | `BURN_WGSL_CHECKED=1` |
//! | print the WGSL of each kernel | | `BURN_WGSL_PRINT_KERNELS=1` |
//! | compare two runs | [`compare_runs`] | |
//!
//! `BURN_WGSL_DEBUG` takes several words, separated by commas.

use std::cell::Cell;
use std::fmt;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU8, Ordering};

use burn_backend::ops::{BoolTensorOps, FloatTensorOps};
use burn_backend::{DType, TensorData, TensorMetadata, get_device_settings};

use super::Wgsl;
use super::context::{OpContext, OpOutput};
use super::resolve::runtime;
use super::tensor::{Storage, WgslTensor};
use super::transfer::read_blocking;
use crate::device::CAN_BLOCK;
use crate::runtime::{current_scope, record_lines, set_current_op, show_waits};
use crate::variables;

pub use crate::runtime::check_shaders;

/// The environment variable that sets the modes at the start of a program.
pub const DEBUG_VARIABLE: &str = variables::DEBUG.name;

/// The values that every result may have: see [`set_values`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Values {
    /// All.
    #[default]
    Any,
    /// No NaN. Programs with masks use infinities on purpose.
    NotNan,
    /// Neither NaN nor infinity.
    Finite,
}

const EACH_OP: u8 = 1;
const NOT_NAN: u8 = 2;
const FINITE: u8 = 4;

/// The modes that are on: a set of the bits above.
static MODES: LazyLock<AtomicU8> = LazyLock::new(|| AtomicU8::new(modes_of_environment()));

thread_local! {
    /// Whether this thread checks a result, for which it runs ops that are not checked.
    static CHECKING: Cell<bool> = const { Cell::new(false) };
}

fn modes_of_environment() -> u8 {
    let Some(words) = variables::DEBUG.value() else { return 0 };
    let words = words.split(',').map(str::trim).filter(|word| !word.is_empty());
    words.fold(0, |modes, word| match word {
        "ops" => modes | EACH_OP,
        "nan" => modes | NOT_NAN,
        "finite" => modes | FINITE,
        "waits" => {
            show_waits(true);
            modes
        }
        // They are on from the first op on.
        "lines" | "groups" => modes,
        _ => {
            variables::DEBUG.ignore(word);
            modes
        }
    })
}

fn set(bits: u8, on: u8) {
    MODES.fetch_and(!bits, Ordering::Relaxed);
    MODES.fetch_or(on, Ordering::Relaxed);
}

/// Runs each op at once and waits for it, so that an error names the op that failed. Off
/// by default. Does nothing in browsers, which cannot wait.
///
/// ```no_run
/// burn_wgsl::debug::set_each_op(true); // an error names its op
/// ```
pub fn set_each_op(enabled: bool) {
    set(EACH_OP, if enabled { EACH_OP } else { 0 });
}

/// Makes an op panic if its float results have other values. The panic names the op, its operands
/// with their ranges, and the scope; in the backward pass of [`Autodiff`](crate::Autodiff) the
/// scope ends in `backward`. Does nothing in browsers, which cannot wait.
///
/// ```should_panic
/// use burn::tensor::Tensor;
/// use burn_wgsl::{Wgsl, WgslDevice, debug};
///
/// debug::set_values(debug::Values::NotNan);
/// let x = Tensor::<Wgsl, 1>::from_floats([1.0, -1.0], &WgslDevice::default());
/// let _ = x.log(); // float_log: the result has 1 NaN ...
/// ```
pub fn set_values(values: Values) {
    set(
        NOT_NAN | FINITE,
        match values {
            Values::Any => 0,
            Values::NotNan => NOT_NAN,
            Values::Finite => FINITE,
        },
    );
}

/// Names each wait of the host for a GPU in the log, as a warning: its time, op, scope and the lines of the program
/// that wait. Off by default. A training loop is fast if it rarely waits.
///
/// ```no_run
/// burn_wgsl::debug::set_waits(true); // each wait is a warning of the log
/// ```
pub fn set_waits(enabled: bool) {
    show_waits(enabled);
}

/// Notes the line of the program at which each op is called: the innermost one that is not in Burn or another library.
/// [Profiles](crate::profiler) and [memory recordings](crate::memory) then list it. Ops of a backward pass have the
/// line that calls `backward`. Off by default: it makes each op slower on the host. A program without line tables
/// (`debug = "line-tables-only"`) has only names of functions, and a browser has neither.
///
/// ```no_run
/// burn_wgsl::debug::set_lines(true); // before the profile
/// ```
pub fn set_lines(enabled: bool) {
    record_lines(enabled);
}

/// The first difference between two runs: see [`compare_runs`].
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Difference {
    /// The index of the tensor.
    pub tensor: usize,
    /// The index of the element in the tensor; `None` if the shapes or types differ.
    pub element: Option<usize>,
    /// The values in the first and the second run.
    pub values: [f64; 2],
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tensor, element, values: [first, second] } = self;
        match element {
            Some(element) => write!(
                f,
                "element {element} of tensor {tensor} is {first} in the first run and {second} in \
                 the second"
            ),
            None => write!(f, "tensor {tensor} has another shape or type in the second run"),
        }
    }
}

/// Runs a step twice and compares the bits of its results. The step must start from the same state
/// both times: the same parameters, data and [seed](burn_backend::Backend::seed).
///
/// The kernels of this crate repeat their results bit for bit on the same device.
///
/// ```standalone_crate
/// use burn::tensor::backend::Backend;
/// use burn::tensor::{Distribution, Tensor};
/// use burn_wgsl::{Wgsl, WgslDevice, debug};
///
/// let device = WgslDevice::default();
/// let difference = debug::compare_runs(|| {
///     Wgsl::seed(&device, 1);
///     let x = Tensor::<Wgsl, 2>::random([8, 8], Distribution::Default, &device);
///     vec![x.clone().matmul(x).into_data()]
/// });
/// assert!(difference.is_none());
/// ```
pub fn compare_runs(mut step: impl FnMut() -> Vec<TensorData>) -> Option<Difference> {
    let [first, second] = [step(), step()];
    if first.len() != second.len() {
        let tensor = first.len().min(second.len());
        return Some(Difference { tensor, element: None, values: [f64::NAN; 2] });
    }
    first.iter().zip(&second).enumerate().find_map(|(tensor, (first, second))| {
        if first.shape != second.shape || first.dtype != second.dtype {
            return Some(Difference { tensor, element: None, values: [f64::NAN; 2] });
        }
        let size = first.dtype.size();
        let pairs = first.bytes.chunks(size).zip(second.bytes.chunks(size));
        let element = pairs.into_iter().position(|(first, second)| first != second)?;
        let value = |data: &TensorData| data.iter::<f64>().nth(element).unwrap_or(f64::NAN);
        let values = [value(first), value(second)];
        Some(Difference { tensor, element: Some(element), values })
    })
}

/// What is checked after an op, with the operands that the message lists. `None` if no mode is on.
pub(crate) struct Inspection(Option<(u8, Vec<(&'static str, WgslTensor)>)>);

impl Inspection {
    /// Begins the inspection of an op. `operands` adds the operands.
    pub fn begin(operands: impl FnOnce(&mut Vec<(&'static str, WgslTensor)>)) -> Self {
        // A browser cannot wait for an op: the compiler removes inspections from builds for browsers.
        if !CAN_BLOCK {
            return Self(None);
        }
        let modes = MODES.load(Ordering::Relaxed);
        if modes == 0 || CHECKING.get() {
            return Self(None);
        }
        let mut found = Vec::new();
        if modes & (NOT_NAN | FINITE) != 0 {
            operands(&mut found);
        }
        Self(Some((modes, found)))
    }

    /// Checks the result of an op, and returns it.
    ///
    /// # Panics
    ///
    /// Panics if the check fails.
    pub fn end<R: OpOutput>(self, context: &OpContext, result: R) -> R {
        if CAN_BLOCK && let Some((modes, operands)) = self.0 {
            let mut results = Vec::new();
            result.inspect_results(&mut results);
            CHECKING.set(true);
            // Also if the check panics.
            let _done = Done;
            check(context.op(), modes, &operands, &results);
        }
        result
    }
}

/// An op, and its result that is infinite on purpose: for queries whose keys are all masked.
const INFINITE_LOG_SUMS: (&str, usize) = ("attention_with_log_sums", 1);

struct Done;

impl Drop for Done {
    fn drop(&mut self) {
        CHECKING.set(false);
    }
}

fn check(op: &'static str, modes: u8, operands: &[(&str, WgslTensor)], results: &[WgslTensor]) {
    for (index, result) in results.iter().enumerate() {
        if modes & EACH_OP != 0
            && let Storage::Gpu(tensor) = &result.storage
            && let Some(runtime) = runtime(&result.device(), op)
        {
            let computed = tensor.buffer().map(drop).map_err(|error| error.to_string());
            let done = computed.and_then(|()| runtime.sync().map_err(|error| error.to_string()));
            if let Err(error) = done {
                panic!("{op} failed{}: {error}", in_scope());
            }
        }
        if modes & (NOT_NAN | FINITE) != 0 && result.dtype().is_float() {
            let may_be_infinite = (op, index) == INFINITE_LOG_SUMS;
            check_values(op, modes & FINITE != 0 && !may_be_infinite, operands, result);
        }
    }
    set_current_op(op);
}

/// Panics if a result has values that it may not have. They are searched on the device.
fn check_values(
    op: &'static str,
    finite: bool,
    operands: &[(&str, WgslTensor)],
    result: &WgslTensor,
) {
    let booleans = get_device_settings::<Wgsl>(&result.device()).bool_dtype;
    let mut wrong = Wgsl::float_is_nan(result.clone(), booleans);
    if finite {
        wrong = Wgsl::bool_or(wrong, Wgsl::float_is_inf(result.clone(), booleans));
    }
    let any = Wgsl::bool_any(wrong);
    if !read_blocking(any, op).iter::<bool>().next().unwrap_or(false) {
        return;
    }
    let mut message =
        format!("{op}{}: the result has {} [BW28]", in_scope(), Range::of(result, op));
    for (name, operand) in operands {
        message += &format!("\n    {name}: {}", Range::of(operand, op));
    }
    panic!("{message}");
}

fn in_scope() -> String {
    let scope = current_scope();
    if scope.is_empty() { scope } else { format!(" in {scope}") }
}

/// The values of a tensor, for a message.
struct Range {
    dtype: DType,
    shape: Vec<usize>,
    nan: usize,
    infinite: usize,
    /// The least and the greatest finite value.
    limits: Option<(f64, f64)>,
}

impl Range {
    fn of(tensor: &WgslTensor, op: &'static str) -> Self {
        let data = read_blocking(tensor.clone(), op);
        let mut range = Self {
            dtype: data.dtype,
            shape: data.shape.to_vec(),
            nan: 0,
            infinite: 0,
            limits: None,
        };
        for value in data.iter::<f64>() {
            if value.is_nan() {
                range.nan += 1;
            } else if value.is_infinite() {
                range.infinite += 1;
            } else {
                let (low, high) = range.limits.unwrap_or((value, value));
                range.limits = Some((low.min(value), high.max(value)));
            }
        }
        range
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { dtype, shape, nan, infinite, limits } = self;
        let mut parts = Vec::new();
        if *nan > 0 {
            parts.push(format!("{nan} NaN"));
        }
        if *infinite > 0 {
            parts.push(format!("{infinite} infinite"));
        }
        if let Some((low, high)) = limits {
            parts.push(format!("{low:.6e} to {high:.6e}"));
        }
        let values = if parts.is_empty() { "no values".to_owned() } else { parts.join(", ") };
        write!(f, "{values} ({dtype:?} {shape:?})")
    }
}
