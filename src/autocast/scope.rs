//! Where autocast is on: scopes of a device, on the thread that opened them.

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::sync::LazyLock;

use burn_backend::DType;

use super::Precision;
use super::rules::{Rule, rule_of};
use crate::device::WgslDevice;

/// The environment variable that switches autocast on for every thread and device.
pub(crate) const VARIABLE: &str = "BURN_WGSL_AUTOCAST";

/// An open scope.
struct Open {
    id: u64,
    /// Its device; `None` for all.
    device: Option<WgslDevice>,
    precision: Precision,
}

thread_local! {
    static OPEN: RefCell<Vec<Open>> = const { RefCell::new(Vec::new()) };
    static NEXT_ID: Cell<u64> = const { Cell::new(0) };
    /// What to do when the last scope ends.
    static AT_END: Cell<Option<fn()>> = const { Cell::new(None) };
}

/// The precision outside of every scope.
static DEFAULT: LazyLock<Precision> = LazyLock::new(|| {
    let word = std::env::var_os(VARIABLE).filter(|word| !word.is_empty());
    let Some(word) = word else { return Precision::F32 };
    word.to_string_lossy().parse().unwrap_or_else(|error| {
        eprintln!("burn-wgsl: {VARIABLE} is ignored: {error}");
        Precision::F32
    })
});

/// A scope of [`autocast`](super::autocast). It ends when this is dropped.
#[derive(Debug)]
#[must_use = "autocast ends when the scope is dropped"]
pub struct Autocast {
    id: u64,
    /// A scope belongs to the thread that opened it.
    _thread: PhantomData<*const ()>,
}

impl Autocast {
    pub(super) fn open(device: Option<&WgslDevice>, precision: Precision) -> Self {
        let id = NEXT_ID.get();
        NEXT_ID.set(id + 1);
        let device = device.map(|device| device.canonical());
        OPEN.with_borrow_mut(|open| open.push(Open { id, device, precision }));
        Self { id, _thread: PhantomData }
    }
}

impl Drop for Autocast {
    fn drop(&mut self) {
        let was_last = OPEN.with_borrow_mut(|open| {
            open.retain(|scope| scope.id != self.id);
            open.is_empty()
        });
        if was_last && let Some(work) = AT_END.take() {
            work();
        }
    }
}

/// Calls a function when the last scope of this thread ends. Returns `false` if there is none.
#[cfg(feature = "autodiff")]
pub(crate) fn at_end(work: fn()) -> bool {
    let is_open = OPEN.with_borrow(|open| !open.is_empty());
    if is_open {
        AT_END.set(Some(work));
    }
    is_open
}

/// Switches autocast off on every device until the result is dropped.
#[cfg(feature = "autodiff")]
pub(crate) fn off() -> Autocast {
    Autocast::open(None, Precision::F32)
}

/// Returns the 16-bit type of products on a device, by its canonical selector; `None` if autocast is
/// off.
fn lower_type(device: &WgslDevice) -> Option<DType> {
    let innermost = OPEN.with_borrow(|open| {
        let is_for = |scope: &&Open| scope.device.is_none_or(|of_scope| of_scope == *device);
        let of_device = open.iter().rev().find(is_for);
        of_device.map(|scope| scope.precision)
    });
    match innermost.unwrap_or(*DEFAULT) {
        Precision::F32 => None,
        Precision::F16 => Some(DType::F16),
        Precision::Bf16 => Some(DType::BF16),
    }
}

/// The float operands of an op: their device and types.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Operands {
    device: Option<WgslDevice>,
    /// The type of the first.
    first: Option<DType>,
    /// Another type, if they have several.
    other: Option<DType>,
    /// The widest of their types.
    widest: Option<DType>,
}

impl Operands {
    /// Adds an operand.
    pub fn see(&mut self, device: WgslDevice, dtype: DType) {
        self.device.get_or_insert(device);
        if *self.first.get_or_insert(dtype) != dtype {
            self.other = Some(dtype);
        }
        self.widest = Some(self.widest.map_or(dtype, |widest| wider(widest, dtype)));
    }

    /// Returns the type of the first and another, if they have several.
    pub fn different_types(&self) -> Option<[DType; 2]> {
        Some([self.first?, self.other?])
    }

    /// Returns the type to which an op converts them, and the type of its result; `None` if it leaves
    /// both to the operands.
    pub fn cast_types(&self, op: &str) -> Option<[DType; 2]> {
        let widest = self.widest?;
        let lower = lower_type(&self.device?)?;
        let [target, result] = match rule_of(op) {
            // A program that uses f64 needs its digits.
            _ if widest == DType::F64 => [DType::F64; 2],
            Rule::Lower => [lower; 2],
            Rule::Gradient => [lower, DType::F32],
            Rule::Full => [DType::F32; 2],
            Rule::Promote => [widest; 2],
        };
        let changes = self.other.is_some() || target != widest || result != widest;
        changes.then_some([target, result])
    }
}

/// Returns the wider of two float types: f32 for f16 and bf16.
fn wider(a: DType, b: DType) -> DType {
    match (a, b) {
        _ if a == b => a,
        (DType::F64, _) | (_, DType::F64) => DType::F64,
        _ => DType::F32,
    }
}
