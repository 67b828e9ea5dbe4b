//! Where autocast is on, and where products round: scopes of a device, on the thread that opened them.

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::sync::LazyLock;

use burn_backend::DType;

use super::rules::Rule;
use super::{MatmulPrecision, Precision};
use crate::device::WgslDevice;
use crate::variables;

/// What a scope decides.
#[derive(Debug, Clone, Copy)]
pub(super) enum PrecisionPolicy {
    Autocast(Precision),
    Products(MatmulPrecision),
    /// Products of 16 bits that are gradients of parameters are f32.
    #[cfg_attr(not(feature = "autodiff"), allow(dead_code, reason = "nothing has gradients"))]
    WideGradients,
}

/// An open scope.
struct Open {
    id: u64,
    /// Its device; `None` for all.
    device: Option<WgslDevice>,
    policy: PrecisionPolicy,
}

thread_local! {
    static OPEN: RefCell<Vec<Open>> = const { RefCell::new(Vec::new()) };
    static NEXT_ID: Cell<u64> = const { Cell::new(0) };
    /// What to do when the last scope ends.
    static AT_END: Cell<Option<fn()>> = const { Cell::new(None) };
}

/// The precisions outside of every scope.
static AUTOCAST: LazyLock<Precision> =
    LazyLock::new(|| variables::AUTOCAST.parse(|word| word.parse().ok()).unwrap_or_default());
static PRODUCTS: LazyLock<MatmulPrecision> = LazyLock::new(|| {
    variables::MATMUL_PRECISION.parse(|word| word.parse().ok()).unwrap_or_default()
});

/// A scope of [`autocast`](fn@super::autocast) or [`matmul_precision`](super::matmul_precision). It ends
/// when this is dropped. It stays on its thread:
///
/// ```compile_fail,E0277
/// let device = burn_wgsl::WgslDevice::default();
/// let scope = burn_wgsl::autocast(&device, burn_wgsl::Precision::Bf16);
/// std::thread::spawn(move || drop(scope));
/// ```
#[derive(Debug)]
#[must_use = "the scope ends when it is dropped"]
pub struct PrecisionScope {
    id: u64,
    /// A scope belongs to the thread that opened it.
    _thread: PhantomData<*const ()>,
}

impl PrecisionScope {
    pub(super) fn open(device: Option<&WgslDevice>, policy: PrecisionPolicy) -> Self {
        let id = NEXT_ID.get();
        NEXT_ID.set(id + 1);
        let device = device.map(|device| device.canonical());
        OPEN.with_borrow_mut(|open| open.push(Open { id, device, policy }));
        Self { id, _thread: PhantomData }
    }
}

impl Drop for PrecisionScope {
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

/// Calls a function when the last scope of this thread ends. Returns `false` if there is none. The scope of the
/// environment variable never ends.
#[cfg(feature = "autodiff")]
pub(crate) fn at_end(work: fn()) -> bool {
    let is_open = OPEN.with_borrow(|open| !open.is_empty());
    if is_open {
        AT_END.set(Some(work));
    }
    is_open || *AUTOCAST != Precision::F32
}

/// Switches autocast off on every device until the result is dropped.
#[cfg(feature = "autodiff")]
pub(crate) fn off() -> PrecisionScope {
    PrecisionScope::open(None, PrecisionPolicy::Autocast(Precision::F32))
}

/// Makes gradients of parameters f32, also those of products of 16 bits, until the result is dropped.
#[cfg(feature = "autodiff")]
pub(crate) fn wide_gradients() -> PrecisionScope {
    PrecisionScope::open(None, PrecisionPolicy::WideGradients)
}

/// Returns what the innermost scope decides for a device, by its canonical selector.
fn innermost<T>(device: &WgslDevice, decision: impl Fn(PrecisionPolicy) -> Option<T>) -> Option<T> {
    OPEN.with_borrow(|open| {
        let is_for = |scope: &&Open| scope.device.is_none_or(|of_scope| of_scope == *device);
        open.iter().rev().filter(is_for).find_map(|scope| decision(scope.policy))
    })
}

/// Returns the precision of the innermost scope of autocast for a device, by its canonical selector.
pub(super) fn precision(device: &WgslDevice) -> Precision {
    let precision = innermost(device, |policy| match policy {
        PrecisionPolicy::Autocast(precision) => Some(precision),
        PrecisionPolicy::Products(_) | PrecisionPolicy::WideGradients => None,
    });
    precision.unwrap_or(*AUTOCAST)
}

/// Returns the 16-bit type of products on a device; `None` if autocast is off.
fn lower_type(device: &WgslDevice) -> Option<DType> {
    match precision(device) {
        Precision::F32 => None,
        Precision::F16 => Some(DType::F16),
        Precision::Bf16 => Some(DType::BF16),
    }
}

/// Returns whether products of f32 on a device round their operands to bf16.
fn rounds_products(device: &WgslDevice) -> bool {
    let precision = innermost(device, |policy| match policy {
        PrecisionPolicy::Products(precision) => Some(precision),
        PrecisionPolicy::Autocast(_) | PrecisionPolicy::WideGradients => None,
    });
    precision.unwrap_or(*PRODUCTS) == MatmulPrecision::Medium
}

/// Products with fewer elements of all operands are computed in f32, because the conversions would take longer than
/// matrix units save.
const MIN_ELEMENTS: usize = 1 << 19;

/// The float operands of an op: their device, their types and how large they are.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct FloatOperands {
    device: Option<WgslDevice>,
    /// The type of the first.
    first: Option<DType>,
    /// Another type, if they have several.
    other: Option<DType>,
    /// The widest of their types.
    widest: Option<DType>,
    /// The number of their elements, of a product.
    elements: usize,
}

impl FloatOperands {
    /// Adds an operand of an op under a rule.
    pub fn see(
        &mut self,
        rule: Rule,
        device: WgslDevice,
        dtype: DType,
        elements: impl FnOnce() -> usize,
    ) {
        self.device.get_or_insert(device);
        if matches!(rule, Rule::Product | Rule::Gradient) {
            self.elements = self.elements.saturating_add(elements());
        }
        if *self.first.get_or_insert(dtype) != dtype {
            self.other = Some(dtype);
        }
        self.widest = Some(self.widest.map_or(dtype, |widest| wider(widest, dtype)));
    }

    /// Returns the widest of their types; `None` if there is no operand.
    pub fn widest(&self) -> Option<DType> {
        self.widest
    }

    /// Returns the type of the first and another, if they have several.
    pub fn different_types(&self) -> Option<[DType; 2]> {
        Some([self.first?, self.other?])
    }

    /// Returns the type to which an op under a rule converts them, and the type of its result; `None` if it leaves
    /// both to the operands.
    pub fn cast_types(&self, rule: Rule) -> Option<[DType; 2]> {
        let widest = self.widest?;
        let lower = lower_type(&self.device?)?;
        let [target, result] = match rule {
            // A program that uses f64 needs its digits.
            _ if widest == DType::F64 => [DType::F64; 2],
            Rule::Product if self.is_small() => [DType::F32, lower],
            Rule::Gradient if self.is_small() => [DType::F32; 2],
            Rule::Product | Rule::Lower => [lower; 2],
            Rule::Gradient => [lower, DType::F32],
            Rule::Full | Rule::BiasGradient => [DType::F32; 2],
            Rule::Promote => [widest; 2],
        };
        let changes = self.other.is_some() || target != widest || result != widest;
        changes.then_some([target, result])
    }

    /// Returns whether conversions of the operands take longer than their product in f32.
    fn is_small(&self) -> bool {
        self.widest == Some(DType::F32) && self.elements < MIN_ELEMENTS
    }

    /// The same as [`cast_types`](Self::cast_types) for a gradient in a backward pass, outside of autocast.
    pub fn gradient_types(&self, rule: Rule) -> Option<[DType; 2]> {
        let first = self.first.filter(|dtype| matches!(dtype, DType::F16 | DType::BF16))?;
        let is_gradient = matches!(rule, Rule::Gradient | Rule::BiasGradient);
        let wide = |policy| matches!(policy, PrecisionPolicy::WideGradients).then_some(());
        let is_wide = is_gradient && innermost(&self.device?, wide).is_some();
        is_wide.then_some([first, DType::F32])
    }

    /// The same as [`cast_types`](Self::cast_types) for a product of f32 outside of autocast.
    pub fn product_types(&self, rule: Rule) -> Option<[DType; 2]> {
        let is_f32 = self.widest == Some(DType::F32) && self.other.is_none();
        let is_product = matches!(rule, Rule::Product | Rule::Gradient);
        let rounds = is_f32 && is_product && rounds_products(&self.device?);
        rounds.then_some([DType::BF16, DType::F32])
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
