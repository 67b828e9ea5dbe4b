//! What a device does, for memory trackers and profilers: an event for each allocation, release,
//! dispatch, upload, readback and submission, with the op that caused it and the scope of the
//! program that it ran in.

use std::borrow::Cow;
use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use parking_lot::RwLock;
use web_time::Instant;

use super::origin::{Origin, current_origin};
use super::{Location, Runtime, Variant};
use crate::variables::has_debug_groups;

/// Something that a device did. Sizes are in bytes.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Event<'a> {
    /// Memory was placed.
    Allocate {
        /// Where it is. No other memory is there until it is given back.
        location: Location,
        /// Its size, including padding.
        bytes: u64,
        /// Its size as requested.
        requested: u64,
    },
    /// Memory was given back.
    Release {
        /// Where it was.
        location: Location,
        /// Its size, including padding.
        bytes: u64,
    },
    /// A kernel launch was recorded.
    Dispatch {
        /// The kernel.
        kernel: &'a Variant,
        /// The estimated number of operations.
        work: u64,
    },
    /// Data was uploaded.
    Upload {
        /// Its size.
        bytes: u64,
    },
    /// Data was copied to memory that the device copies from.
    Staged {
        /// Its size.
        bytes: u64,
    },
    /// Data was read back.
    Readback {
        /// Its size.
        bytes: u64,
    },
    /// Commands were submitted.
    Submit {
        /// The number of kernel launches among them.
        dispatches: usize,
    },
    /// An op was computed on the CPU.
    Computed {
        /// When it began.
        began: Instant,
        /// How long it took.
        took: Duration,
        /// The types and shapes of its operands and results.
        operands: &'a str,
        /// The size of its operands and results.
        bytes: u64,
    },
    /// A scope has ended.
    Scope {
        /// Its name after those of the scopes around it, separated by slashes.
        name: &'a str,
        /// When it began.
        began: Instant,
    },
}

/// Receives the events of a device.
pub trait Observer: Send + Sync {
    /// Called for each event, on the thread that caused it, with the op that runs there; for
    /// [`Event::Allocate`], the op whose result the memory holds. The device may be locked
    /// meanwhile: an observer must not use it.
    fn event(&self, origin: Origin, event: Event<'_>);

    /// Returns what holds the memory of the device, for messages.
    fn holders(&self) -> Option<String> {
        None
    }
}

/// The observers of a device.
#[derive(Default)]
pub(crate) struct Observers {
    present: AtomicBool,
    observers: RwLock<Vec<Arc<dyn Observer>>>,
}

/// The observers of the CPU device.
static HOST: LazyLock<Arc<Observers>> = LazyLock::new(Arc::default);

/// Returns the observers of the CPU device.
pub(crate) fn host_observers() -> &'static Arc<Observers> {
    &HOST
}

/// The number of observations in this process.
static OBSERVERS: AtomicUsize = AtomicUsize::new(0);

impl Observers {
    /// Returns whether there are any.
    pub fn are_present(&self) -> bool {
        self.present.load(Ordering::Relaxed)
    }

    /// Passes an event of the op that runs on this thread to the observers.
    pub fn notify<'a>(&self, event: impl FnOnce() -> Event<'a>) {
        self.notify_of(current_origin, event);
    }

    /// Passes an event of an op to the observers. Does nothing without one.
    pub fn notify_of<'a>(
        &self,
        origin: impl FnOnce() -> Origin,
        event: impl FnOnce() -> Event<'a>,
    ) {
        if !self.are_present() {
            return;
        }
        let (origin, event) = (origin(), event());
        self.observers.read().iter().for_each(|observer| observer.event(origin, event));
    }

    /// Returns what holds the memory of the device, if an observer knows it.
    pub fn holders(&self) -> Option<String> {
        self.observers.read().iter().find_map(|observer| observer.holders())
    }
}

/// An observer's subscription to the events of a device, until it is dropped.
#[must_use = "the observation ends when this is dropped"]
pub struct Observation {
    observers: Arc<Observers>,
    observer: Arc<dyn Observer>,
}

impl Observation {
    pub(super) fn begin(observers: &Arc<Observers>, observer: Arc<dyn Observer>) -> Self {
        let mut all = observers.observers.write();
        all.push(observer.clone());
        observers.present.store(true, Ordering::Relaxed);
        OBSERVERS.fetch_add(1, Ordering::Relaxed);
        Self { observers: observers.clone(), observer }
    }
}

impl Drop for Observation {
    fn drop(&mut self) {
        let mut all = self.observers.observers.write();
        if let Some(index) = all.iter().position(|other| Arc::ptr_eq(other, &self.observer)) {
            all.remove(index);
        }
        self.observers.present.store(!all.is_empty(), Ordering::Relaxed);
        OBSERVERS.fetch_sub(1, Ordering::Relaxed);
    }
}

thread_local! {
    static OPERANDS: RefCell<String> = const { RefCell::new(String::new()) };
    static SCOPES: RefCell<Vec<Cow<'static, str>>> = const { RefCell::new(Vec::new()) };
}

/// A part of a program, from [`scope`] until it is dropped.
#[must_use = "a scope ends when it is dropped"]
#[derive(Debug)]
pub struct Scope {
    /// When it began, if a device was observed then.
    began: Option<Instant>,
    /// A scope ends on its own thread.
    _thread: PhantomData<*const ()>,
}

/// Begins a scope on this thread, which ends when the result is dropped. Memory recordings name the
/// scope in which memory was allocated. Scopes nest, and end in reverse order. A slash in a name
/// stands for a nested scope: `layers/0` is drawn as `0` in `layers`.
///
/// ```
/// let _scope = burn_wgsl::scope("forward");
/// // What is allocated here is listed as allocated in `forward`.
/// ```
///
/// While a device is observed, its pending results are computed at the beginning and the end of a
/// scope, so that they are computed in their own scope; those that other threads asked for as well.
/// With `BURN_WGSL_DEBUG=groups`, those of all devices are. Otherwise a scope costs a few nanoseconds.
pub fn scope(name: impl Into<Cow<'static, str>>) -> Scope {
    let began = is_observed().then(Instant::now);
    compute_pending();
    SCOPES.with_borrow_mut(|scopes| scopes.push(name.into()));
    Scope { began, _thread: PhantomData }
}

impl Drop for Scope {
    fn drop(&mut self) {
        compute_pending();
        if let Some(began) = self.began {
            let name = current_scope();
            for runtime in Runtime::all_opened() {
                runtime.gpu.observers.notify(|| Event::Scope { name: &name, began });
            }
            host_observers().notify(|| Event::Scope { name: &name, began });
        }
        SCOPES.with_borrow_mut(Vec::pop);
    }
}

/// Returns whether a device of this process is observed.
pub fn is_observed() -> bool {
    OBSERVERS.load(Ordering::Relaxed) > 0
}

/// The number of captures of launches in this process.
pub(super) static CAPTURES: AtomicUsize = AtomicUsize::new(0);

/// Returns whether launches on a device of this process are captured.
pub fn is_captured() -> bool {
    CAPTURES.load(Ordering::Relaxed) > 0
}

/// Computes the pending results of the devices that are observed, or of all if launches are in debug groups.
fn compute_pending() {
    let has_groups = has_debug_groups();
    if !is_observed() && !has_groups {
        return;
    }
    let shows_scopes = |runtime: &Arc<Runtime>| has_groups || runtime.gpu.observers.are_present();
    for runtime in Runtime::all_opened().into_iter().filter(shows_scopes) {
        if let Err(error) = runtime.record_deferred() {
            runtime.report_later(error);
        }
    }
}

/// Returns the scopes of this thread, from the outermost to the innermost, separated by slashes. A
/// scope in one of the same name is left out.
pub fn current_scope() -> String {
    SCOPES.with_borrow(|scopes| {
        let mut names: Vec<&str> = scopes.iter().map(AsRef::as_ref).collect();
        names.dedup();
        names.join("/")
    })
}

/// Describes the operands of the next launch on this thread, if launches are captured.
pub fn describe_operands(describe: impl FnOnce() -> String) {
    if is_captured() {
        OPERANDS.set(describe());
    }
}

/// Returns the description of the operands of the launch that is being recorded on this thread.
pub(super) fn described_operands() -> String {
    OPERANDS.with_borrow(String::clone)
}

/// Forgets the description of operands.
pub(super) fn forget_operands() {
    if is_captured() {
        OPERANDS.take();
    }
}
