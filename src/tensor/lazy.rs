//! Elementwise results that are computed when their memory is first needed.
//!
//! An elementwise op returns a tensor whose memory is a [`Lazy`]: the op and its arguments, which
//! may be lazy themselves. When the memory is needed, one kernel computes it with all pending
//! results that lead to it (`kernels::fusion`).

use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;

use super::{DType, Error, Extent, Layout, PendingReduction, Storage, Tensor};
use crate::runtime::{
    Allocation, Compilation, Deferred, Flows, Origin, Recorded, Runtime, RuntimeError,
    current_origin, set_origin,
};

/// An elementwise op: a WGSL expression of the elements `a`, `b`, `c` of the arguments, the scalars
/// `s`, `t` and the index `i`.
#[derive(Debug, Clone)]
pub(crate) struct Expression {
    /// The op, for messages and listings.
    pub origin: Origin,
    /// The WGSL expression.
    pub wgsl: &'static str,
    /// The element type of the result.
    pub dtype: DType,
    /// The bits of the scalars.
    pub scalars: SmallVec<[u64; 2]>,
    /// The type of the scalars.
    pub scalar_type: DType,
    /// The number of elements of the result.
    pub len: usize,
}

impl Expression {
    /// Creates what stands for a result of `len` elements that no expression computes.
    pub fn named(name: &'static str, dtype: DType, len: usize) -> Self {
        let (scalars, scalar_type) = (SmallVec::new(), DType::F32);
        Self { origin: current_origin(), wgsl: name, dtype, scalars, scalar_type, len }
    }

    /// Returns whether it only converts elements, from or to 16 bits for example.
    pub fn is_conversion(&self) -> bool {
        self.wgsl == "a"
    }
}

/// An argument of an expression.
pub(crate) struct Arg {
    pub storage: Storage,
    /// The type as which the elements are read.
    pub dtype: DType,
    /// The layout, of the shape of the result; `None` if it is packed.
    pub layout: Option<Layout>,
    /// Which elements of the result have an element of the argument, if not all. It is packed then.
    pub padding: Option<Box<Padding>>,
}

/// An argument that is a part of each line of the result. The other elements of a line are zeros.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Padding {
    /// The number of elements of a line.
    pub line: usize,
    /// The first element of a line that is in the argument.
    pub start: usize,
    /// The number of elements of a line that are in the argument.
    pub len: usize,
}

impl Padding {
    /// Returns the fields, which are parameters of kernels.
    pub fn words(&self) -> [usize; 3] {
        [self.line, self.start, self.len]
    }
}

/// A kernel launch whose result is pending. Elementwise ops on the result may become part of it.
pub(crate) trait PendingLaunch: Send + Sync {
    /// Returns whether the device can bind the operands of the kernel with an epilogue.
    fn fits(&self, epilogue: &Epilogue<'_>) -> bool;

    /// Returns how the kernel is compiled; `None` if it is.
    fn compilation(&self, epilogue: Option<&Epilogue<'_>>) -> Option<Compilation<'static>>;

    /// Returns what the launch reads.
    fn inputs(&self) -> &[Arc<Allocation>];

    /// Notes that a larger op has replaced the launch: it does not run when it is dropped.
    fn set_replaced(&self);

    /// Records the launch: it writes the result to the first of `outputs`, or those of the
    /// epilogue, which depend on what `flows` says, or on all operands.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Runtime::record_dispatch`].
    fn record(
        &self,
        outputs: &[Arc<Allocation>],
        epilogue: Option<&Epilogue<'_>>,
        flows: &Flows<'_>,
    ) -> Result<Recorded, RuntimeError>;
}

/// What a kernel goes on computing with its result.
pub(crate) struct Epilogue<'a> {
    /// The index of the program.
    pub program: u32,
    /// The tensors that the program reads.
    pub inputs: &'a [Arc<Allocation>],
    /// The number of results that it writes.
    pub outputs: usize,
    /// Its parameters.
    pub words: &'a [u32],
    /// The number of operations.
    pub work: u64,
    /// Whether it writes 16-bit floats.
    pub writes_halves: bool,
}

/// Memory, or the expression that computes it.
pub(crate) struct Lazy {
    runtime: Arc<Runtime>,
    bytes: u64,
    expression: Expression,
    extent: Extent,
    compute: Compute,
    /// Whether another expression has had it as an argument.
    used: AtomicBool,
    /// Whether a larger op computes what the result was for.
    replaced: AtomicBool,
    memory: OnceLock<Arc<Allocation>>,
    /// The arguments, until the memory is computed.
    args: Mutex<SmallVec<[Arg; 2]>>,
    source: Source,
}

/// What a result comes from, until the memory is computed.
enum Source {
    /// Its expression.
    Expression,
    Launch(Mutex<Option<Launch>>),
    Arrival(Mutex<Arrival>),
    Replaceable(Box<ReplaceableSource>),
    Reduction(Box<PendingReduction>),
}

/// A pending launch.
struct Launch {
    launch: Arc<dyn PendingLaunch>,
    /// The operands, if it multiplies matrices.
    product: Option<Arc<[Tensor; 2]>>,
}

/// An op that a larger one may replace: softmax, in attention. Nothing is launched until its result is needed.
pub(crate) trait Replaceable: Any + Send + Sync {
    /// Computes the op by itself. Returns a packed tensor.
    ///
    /// # Errors
    ///
    /// Returns an error if the device cannot compute it.
    fn compute(&self) -> Result<Tensor, Error>;

    /// Notes that a larger op has replaced this one, which may drop what it would compute from.
    fn set_replaced(&self);
}

/// A [`Replaceable`] op. One that nobody has replaced is computed when it is dropped, as other launches are.
struct ReplaceableSource {
    runtime: Arc<Runtime>,
    /// The name of the op, for events and messages.
    origin: Origin,
    state: Mutex<ReplaceableState>,
}

#[derive(Clone)]
enum ReplaceableState {
    Waiting(Arc<dyn Replaceable>),
    /// A larger op has replaced it. Its own result may be needed all the same.
    Replaced(Arc<dyn Replaceable>),
    /// Computed by itself; the result may be pending.
    Computed(Tensor),
}

impl ReplaceableSource {
    /// Computes the op in its own name.
    fn compute(&self, op: &Arc<dyn Replaceable>) -> Result<Tensor, RuntimeError> {
        let needed_by = current_origin();
        set_origin(self.origin);
        let computed = op.compute();
        set_origin(needed_by);
        computed.map_err(runtime_error)
    }
}

impl Drop for ReplaceableSource {
    fn drop(&mut self) {
        let ReplaceableState::Waiting(op) = self.state.get_mut().clone() else { return };
        // A thread that holds the lock only looks at pending results, and must not launch anything.
        if !self.runtime.can_lock_deferred() || self.runtime.is_impaired() {
            return;
        }
        if let Err(error) = self.compute(&op) {
            self.runtime.report_later(error);
        }
    }
}

/// Elements on their way from another device.
enum Arrival {
    UnderWay(Elements),
    Taken,
    Failed(RuntimeError),
}

/// Waits for the elements of a packed tensor, and returns them.
pub(crate) type Elements = Box<dyn FnOnce() -> Result<Vec<u8>, RuntimeError> + Send>;

/// Computes a lazy result: records a kernel and calls [`Lazy::resolve`]. Does nothing if the memory
/// was computed meanwhile.
pub(crate) type Compute = fn(&Arc<Lazy>) -> Result<(), RuntimeError>;

impl Lazy {
    /// Creates memory of `bytes` bytes that `compute` computes from an expression.
    #[inline(always)]
    pub fn new(
        runtime: &Arc<Runtime>,
        bytes: u64,
        expression: Expression,
        args: SmallVec<[Arg; 2]>,
        extent: Extent,
        compute: Compute,
    ) -> Arc<Self> {
        Self::deferred(Self::of(
            runtime,
            bytes,
            expression,
            extent,
            compute,
            args,
            Source::Expression,
        ))
    }

    /// Creates memory of `bytes` bytes that a launch writes.
    pub fn of_launch(
        runtime: &Arc<Runtime>,
        bytes: u64,
        expression: Expression,
        launch: Arc<dyn PendingLaunch>,
        extent: Extent,
        compute: Compute,
    ) -> Arc<Self> {
        let source = Source::Launch(Mutex::new(Some(Launch { launch, product: None })));
        let args = SmallVec::new();
        Self::deferred(Self::of(runtime, bytes, expression, extent, compute, args, source))
    }

    /// Creates memory of `bytes` bytes of an op that a larger one may replace.
    pub fn of_replaceable(
        runtime: &Arc<Runtime>,
        bytes: u64,
        expression: Expression,
        op: Arc<dyn Replaceable>,
    ) -> Arc<Self> {
        let source = Source::Replaceable(Box::new(ReplaceableSource {
            runtime: runtime.clone(),
            origin: expression.origin,
            state: Mutex::new(ReplaceableState::Waiting(op)),
        }));
        // Batches look for results like others: it is in none.
        let extent = Extent { ops: 1, signature: u64::MAX, has_launch: true, ..Extent::default() };
        let (compute, args) = (compute_replaceable, SmallVec::new());
        Self::deferred(Self::of(runtime, bytes, expression, extent, compute, args, source))
    }

    /// Creates memory of `bytes` bytes of a reduction of `arg`.
    pub fn of_reduction(
        runtime: &Arc<Runtime>,
        bytes: u64,
        expression: Expression,
        (reduction, arg): (PendingReduction, Arg),
        extent: Extent,
        compute: Compute,
    ) -> Arc<Self> {
        let (args, source) = (SmallVec::from_iter([arg]), Source::Reduction(Box::new(reduction)));
        Self::deferred(Self::of(runtime, bytes, expression, extent, compute, args, source))
    }

    /// Creates memory of `bytes` bytes for elements that arrive from another device. They are waited for when the
    /// memory is first needed, and not with other deferred work.
    pub fn of_arrival(
        runtime: &Arc<Runtime>,
        bytes: u64,
        expression: Expression,
        elements: Elements,
    ) -> Arc<Self> {
        let extent = Extent { ops: 1, has_launch: true, ..Extent::default() };
        let source = Source::Arrival(Mutex::new(Arrival::UnderWay(elements)));
        Arc::new(Self::of(runtime, bytes, expression, extent, arrive, SmallVec::new(), source))
    }

    #[inline(always)]
    fn of(
        runtime: &Arc<Runtime>,
        bytes: u64,
        expression: Expression,
        extent: Extent,
        compute: Compute,
        args: SmallVec<[Arg; 2]>,
        source: Source,
    ) -> Self {
        for lazy in args.iter().filter_map(|arg| arg.storage.pending()) {
            lazy.used.store(true, Ordering::Relaxed);
        }
        Self {
            runtime: runtime.clone(),
            bytes,
            expression,
            extent,
            compute,
            used: AtomicBool::new(false),
            replaced: AtomicBool::new(false),
            memory: OnceLock::new(),
            args: Mutex::new(args),
            source,
        }
    }

    #[inline(always)]
    fn deferred(lazy: Self) -> Arc<Self> {
        let lazy = Arc::new(lazy);
        let work: Weak<Self> = Arc::downgrade(&lazy);
        lazy.runtime.defer(lazy.extent.signature, work);
        lazy
    }

    /// Returns the device.
    pub fn runtime(&self) -> &Arc<Runtime> {
        &self.runtime
    }

    /// Returns the size in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns what computes the memory.
    pub fn expression(&self) -> &Expression {
        &self.expression
    }

    /// Returns the arguments, of which there are none after the memory was computed.
    pub fn args(&self) -> MutexGuard<'_, SmallVec<[Arg; 2]>> {
        self.args.lock()
    }

    /// Returns whether a launch computes the memory, not an elementwise op.
    pub fn is_launch(&self) -> bool {
        matches!(self.source, Source::Launch(_))
    }

    /// Returns whether the memory is not computed together with other results: elements that arrive from another
    /// device, ops that a larger one may replace, and reductions of other axes than the last.
    pub fn is_computed_alone(&self) -> bool {
        match self.source {
            Source::Arrival(_) | Source::Replaceable(_) => true,
            Source::Reduction(_) => self.extent.lines.is_none(),
            Source::Expression | Source::Launch(_) => false,
        }
    }

    /// Returns whether the memory is that of an op that a larger one may replace.
    pub fn is_replaceable(&self) -> bool {
        matches!(self.source, Source::Replaceable(_))
    }

    /// Returns the reduction that computes the memory, if one does.
    pub fn reduction(&self) -> Option<&PendingReduction> {
        match &self.source {
            Source::Reduction(reduction) => Some(reduction),
            _ => None,
        }
    }

    /// Computes a reduction by itself, and its memory; nothing if it was computed, or is no reduction.
    ///
    /// # Errors
    ///
    /// Returns an error if the device cannot compute it. It stays pending.
    pub fn reduce_by_itself(&self) -> Result<(), RuntimeError> {
        let Source::Reduction(reduction) = &self.source else { return Ok(()) };
        let _computing = reduction.computing.lock();
        // A kernel of lines, or a reduction of more axes, may have computed it meanwhile.
        let Some(input) = self.take_reduced() else { return Ok(()) };
        let reduced = self.reduced(reduction, &input);
        match reduced.and_then(|tensor| Ok(tensor.buffer()?.clone())) {
            Ok(memory) => {
                let _locked = self.runtime.lock_deferred();
                self.resolve(memory);
                Ok(())
            }
            Err(error) => {
                let Tensor { storage, dtype, .. } = input;
                self.args.lock().push(Arg { storage, dtype, layout: None, padding: None });
                Err(runtime_error(error))
            }
        }
    }

    /// Takes what a reduction reduces; `None` if it was taken or computed before, or is no reduction.
    pub fn take_reduced(&self) -> Option<Tensor> {
        let Source::Reduction(reduction) = &self.source else { return None };
        let Arg { storage, dtype, .. } = self.args.lock().pop()?;
        let layout = Layout::contiguous(&reduction.shape);
        Some(Tensor::of_storage(&self.runtime, storage, layout, dtype))
    }

    /// Calls the reduction in its own name.
    ///
    /// # Errors
    ///
    /// Returns an error if the device cannot compute it.
    pub fn reduced(&self, reduction: &PendingReduction, input: &Tensor) -> Result<Tensor, Error> {
        let needed_by = current_origin();
        set_origin(self.expression.origin);
        let result = (reduction.by_itself)(reduction.op, input, &reduction.axes);
        set_origin(needed_by);
        result
    }

    /// Notes that the launch multiplies these matrices.
    pub fn set_product(&self, operands: [Tensor; 2]) {
        if let Source::Launch(launch) = &self.source
            && let Some(launch) = &mut *launch.lock()
        {
            launch.product = Some(Arc::new(operands));
        }
    }

    /// Returns the matrices that the launch multiplies, if that is known.
    pub fn product(&self) -> Option<Arc<[Tensor; 2]>> {
        match &self.source {
            Source::Launch(launch) => launch.lock().as_ref()?.product.clone(),
            _ => None,
        }
    }

    /// Returns the op of this type that a larger one may replace; `None` if it was computed.
    pub fn replaceable<T: Replaceable>(&self) -> Option<Arc<T>> {
        let Source::Replaceable(source) = &self.source else { return None };
        match source.state.lock().clone() {
            ReplaceableState::Waiting(op) | ReplaceableState::Replaced(op) => {
                let op: Arc<dyn Any + Send + Sync> = op;
                op.downcast().ok()
            }
            ReplaceableState::Computed(_) => None,
        }
    }

    /// Returns whether a larger op computes what the result was for, or what it is converted from was for.
    fn is_replaced(&self) -> bool {
        let source = || self.args.lock().first().and_then(|arg| arg.storage.pending().cloned());
        self.replaced.load(Ordering::Relaxed)
            || self.expression.is_conversion() && source().is_some_and(|lazy| lazy.is_replaced())
    }

    /// Notes that a larger op computes what the result was for. It is computed only if the program uses it.
    pub fn set_replaced(&self) {
        self.replaced.store(true, Ordering::Relaxed);
        match &self.source {
            Source::Launch(launch) => {
                if let Some(launch) = &*launch.lock() {
                    launch.launch.set_replaced();
                }
            }
            Source::Replaceable(source) => {
                let mut state = source.state.lock();
                let ReplaceableState::Waiting(op) = &*state else { return };
                let op = op.clone();
                *state = ReplaceableState::Replaced(op.clone());
                // It drops tensors: not under the lock.
                drop(state);
                op.set_replaced();
            }
            Source::Expression | Source::Arrival(_) | Source::Reduction(_) => {}
        }
    }

    /// Returns the result of an op that a larger one may replace, which is computed by itself now; `None` if it is no
    /// such op.
    ///
    /// # Errors
    ///
    /// Returns an error if the device cannot compute it.
    pub fn result_by_itself(&self) -> Result<Option<Tensor>, RuntimeError> {
        let Source::Replaceable(source) = &self.source else { return Ok(None) };
        let op = match source.state.lock().clone() {
            ReplaceableState::Waiting(op) | ReplaceableState::Replaced(op) => op,
            ReplaceableState::Computed(tensor) => return Ok(Some(tensor)),
        };
        // Not under the lock of the state: the op looks at other pending results.
        let tensor = source.compute(&op)?;
        let before = std::mem::replace(
            &mut *source.state.lock(),
            ReplaceableState::Computed(tensor.clone()),
        );
        // Of two threads that compute it, both have the same elements.
        drop(before);
        Ok(Some(tensor))
    }

    /// Returns the launch that computes the memory, if it is not elementwise; `None` after the
    /// memory was computed.
    pub fn launch(&self) -> Option<Arc<dyn PendingLaunch>> {
        match &self.source {
            Source::Launch(launch) => launch.lock().as_ref().map(|launch| launch.launch.clone()),
            _ => None,
        }
    }

    /// Returns the size of the kernel that computes the memory.
    pub fn extent(&self) -> &Extent {
        &self.extent
    }

    /// Returns whether another expression has had it as an argument.
    pub fn is_used(&self) -> bool {
        self.used.load(Ordering::Relaxed)
    }

    /// Returns the memory; `None` while it is pending.
    pub fn memory(&self) -> Option<&Arc<Allocation>> {
        self.memory.get()
    }

    /// Returns the memory, which is computed first if it is pending.
    ///
    /// # Errors
    ///
    /// Returns an error if the kernel does not compile, the memory is not available, or the device
    /// was lost. The memory stays pending, or its contents are lost.
    pub fn computed(self: &Arc<Self>) -> Result<&Arc<Allocation>, RuntimeError> {
        if self.memory.get().is_none() {
            (self.compute)(self)?;
        }
        Ok(self.memory.get().expect("`compute` sets the memory if it succeeds"))
    }

    /// Sets the memory, which recorded commands write, and drops the arguments.
    pub fn resolve(&self, memory: Arc<Allocation>) {
        // Nothing is set if it was set before: `compute` is called under a lock.
        let _ = self.memory.set(memory);
        // Dropped without the lock: they may own the last reference to other results.
        let args = std::mem::take(&mut *self.args.lock());
        let launch = match &self.source {
            Source::Launch(launch) => launch.lock().take(),
            _ => None,
        };
        drop((args, launch));
    }
}

/// Returns the error of an op whose operands were checked when it was called.
fn runtime_error(error: Error) -> RuntimeError {
    match error {
        Error::Runtime(error) => error,
        error => unreachable!("{error}"),
    }
}

/// Computes an op that no larger one has replaced.
fn compute_replaceable(lazy: &Arc<Lazy>) -> Result<(), RuntimeError> {
    if let Some(tensor) = lazy.result_by_itself()? {
        let memory = tensor.buffer().map_err(runtime_error)?.clone();
        let _locked = lazy.runtime.lock_deferred();
        lazy.resolve(memory);
    }
    Ok(())
}

/// Waits for the elements of an arrival, and uploads them.
fn arrive(lazy: &Arc<Lazy>) -> Result<(), RuntimeError> {
    let Source::Arrival(arrival) = &lazy.source else { return Ok(()) };
    // Threads that need the same tensor wait for it, too; no other work is under this lock.
    let mut arrival = arrival.lock();
    match std::mem::replace(&mut *arrival, Arrival::Taken) {
        Arrival::Taken => Ok(()),
        Arrival::Failed(error) => {
            *arrival = Arrival::Failed(error.clone());
            Err(error)
        }
        Arrival::UnderWay(elements) => {
            let elements = elements().inspect_err(|error| {
                *arrival = Arrival::Failed(error.clone());
            })?;
            match lazy.runtime.upload(&elements) {
                Ok(memory) => {
                    let _locked = lazy.runtime.lock_deferred();
                    lazy.resolve(Arc::new(memory));
                    Ok(())
                }
                Err(error) => {
                    // There may be memory later.
                    *arrival = Arrival::UnderWay(Box::new(|| Ok(elements)));
                    Err(error)
                }
            }
        }
    }
}

/// A reduction whose result nothing has used is computed when it is dropped, as other launches are.
impl Drop for Lazy {
    fn drop(&mut self) {
        let Source::Reduction(reduction) = &self.source else { return };
        if self.memory.get().is_some() || self.is_used() {
            return;
        }
        // A thread that holds the lock only looks at pending results, and must not launch anything.
        if !self.runtime.can_lock_deferred() || self.runtime.is_impaired() {
            return;
        }
        let reduced = self.take_reduced().map(|input| self.reduced(reduction, &input));
        if let Some(Err(error)) = reduced {
            self.runtime.report_later(runtime_error(error));
        }
    }
}

impl Deferred for Lazy {
    fn record(self: Arc<Self>) -> Result<(), RuntimeError> {
        match self.is_replaced() || self.is_recorded() {
            true => Ok(()),
            false => (self.compute)(&self),
        }
    }

    fn is_recorded(&self) -> bool {
        self.memory.get().is_some()
    }

    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }
}

impl fmt::Debug for Lazy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lazy").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}
