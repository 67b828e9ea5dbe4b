//! The wgpu device and its queue, and the health of the device.

use std::any::Any;
use std::cell::Cell;
use std::ops::RangeInclusive;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use smallvec::SmallVec;
use web_time::Instant;

use super::error::RuntimeError;
use super::events::Observers;
use super::faults::{Fault, Faults};
use super::panics::panic_message;
use super::stall::{InFlight, Largest, Stall, WaitError};
use super::submitting::current_submission;
use crate::device::{AdapterInfo, AdapterKind, CAN_BLOCK, OpenDevice};

/// A GPU buffer with a unique id, used as a cache key.
#[derive(Debug)]
pub(crate) struct Buffer {
    pub id: u64,
    pub raw: wgpu::Buffer,
}

/// Instead of the serial number of the submission that wrote memory: its contents are lost.
pub(super) const LOST: u64 = u64::MAX;
/// The same: the memory is that of a buffer of the program, which took it back.
pub(super) const TAKEN_BACK: u64 = u64::MAX - 1;

/// How long the host polls a physical GPU before it sleeps.
const SPIN: Duration = Duration::from_micros(200);

/// An opened wgpu device.
pub(crate) struct Gpu {
    pub info: AdapterInfo,
    pub device: wgpu::Device,
    pub queue: wgpu::Queue,
    pub faults: Faults,
    pub observers: Arc<Observers>,
    /// Whether the program opened the device, and destroys it.
    is_host: bool,
    /// The adapter's name; from the second opening on with the number of the opening.
    name: String,
    health: Arc<Health>,
    in_flight: InFlight,
    next_buffer_id: AtomicU64,
}

/// Errors of the device that were not caught where they happened.
struct Health {
    /// Whether anything below is set.
    impaired: AtomicBool,
    /// Why the device was lost. Set once it is lost.
    lost: OnceLock<String>,
    /// An error that was not reported yet. The device can be used after it.
    unreported: Mutex<Option<DeviceFailure>>,
    /// Serial number of the submission that is being recorded, from 1.
    serial: AtomicU64,
    /// Serial numbers of the submissions whose results are lost, first and last.
    lost_results: Mutex<Vec<(u64, u64)>>,
    has_lost_results: AtomicBool,
}

/// An error that the device reported.
enum DeviceFailure {
    OutOfMemory,
    Other(String),
    /// Returned by an op that could not return it to a caller.
    Returned(RuntimeError),
}

impl Health {
    fn new() -> Self {
        Self {
            impaired: AtomicBool::new(false),
            lost: OnceLock::new(),
            unreported: Mutex::default(),
            serial: AtomicU64::new(1),
            lost_results: Mutex::default(),
            has_lost_results: AtomicBool::new(false),
        }
    }

    fn lose(&self, reason: String) {
        LOST_HERE.set(true);
        let _ = self.lost.set(reason);
        self.impaired.store(true, Ordering::SeqCst);
    }

    /// Registers an error, and begins a new submission.
    ///
    /// If this thread is making a submission, its results and those of all later ones are lost,
    /// because these may use them; otherwise those of the submission being recorded. A browser
    /// reports errors late: there, all results so far are lost.
    fn fail(&self, failure: DeviceFailure) {
        let recorded = || self.serial.load(Ordering::SeqCst);
        let first = if CAN_BLOCK { current_submission().unwrap_or_else(recorded) } else { 1 };
        {
            let mut lost = self.lost_results.lock();
            // Set before the new submission begins: a launch that is recorded meanwhile belongs to
            // the old one, or its check waits for this lock.
            self.has_lost_results.store(true, Ordering::SeqCst);
            let last = self.serial.fetch_add(1, Ordering::SeqCst);
            lost.push((first, last));
        }
        self.unreported.lock().get_or_insert(failure);
        self.impaired.store(true, Ordering::SeqCst);
    }
}

thread_local! {
    /// Whether a device was lost in a call from this thread.
    static LOST_HERE: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work`, and returns whether a call in it lost a device.
pub(super) fn loses_device<R>(work: impl FnOnce() -> R) -> (R, bool) {
    LOST_HERE.set(false);
    let result = work();
    (result, LOST_HERE.take())
}

impl Gpu {
    /// The errors with which wgpu refuses an object.
    const REFUSALS: [wgpu::ErrorFilter; 3] = [
        wgpu::ErrorFilter::Validation,
        wgpu::ErrorFilter::Internal,
        wgpu::ErrorFilter::OutOfMemory,
    ];

    /// Takes an open device. `generation` counts how often its adapter was opened, from 1.
    pub fn new(opened: OpenDevice, generation: u32) -> Self {
        let OpenDevice { device, queue, info, is_host } = opened;
        let name = match generation {
            0 | 1 => info.name.clone(),
            _ => format!("{} (opening {generation})", info.name),
        };
        let health = Arc::new(Health::new());
        if !is_host {
            Self::set_callbacks(&device, &health, &name);
        }
        let faults = Faults::default();
        let observers = Arc::default();
        let next_buffer_id = AtomicU64::new(1);
        let in_flight = InFlight::new(info.kind);
        Self {
            info,
            device,
            queue,
            faults,
            observers,
            is_host,
            name,
            health,
            in_flight,
            next_buffer_id,
        }
    }

    /// Registers what the device reports. A program keeps its own callbacks on its device.
    fn set_callbacks(device: &wgpu::Device, health: &Arc<Health>, name: &str) {
        let name = name.to_owned();
        device.set_device_lost_callback({
            let (health, name) = (health.clone(), name.clone());
            move |reason, message| {
                // `Destroyed` is also reported when the process exits normally.
                if reason != wgpu::DeviceLostReason::Destroyed {
                    log::error!("the device {name} was lost: {message}");
                }
                health.lose(if message.is_empty() { format!("{reason:?}") } else { message });
            }
        });
        device.on_uncaptured_error(Arc::new({
            let (health, name) = (health.clone(), name.clone());
            move |error: wgpu::Error| {
                log::error!("{name}: {error}");
                health.fail(match error {
                    wgpu::Error::OutOfMemory { .. } => DeviceFailure::OutOfMemory,
                    error => DeviceFailure::Other(error.to_string()),
                });
            }
        }));
    }

    /// Returns the adapter's name; from the second opening on with the number of the opening.
    pub fn name(&self) -> String {
        self.name.clone()
    }

    /// Returns whether [`check`](Self::check) may return an error.
    pub fn is_impaired(&self) -> bool {
        self.health.impaired.load(Ordering::Acquire)
    }

    /// Returns an error if the device was lost, and once for each error that it reported.
    pub fn check(&self) -> Result<(), RuntimeError> {
        let Health { impaired, unreported, .. } = &*self.health;
        if !impaired.load(Ordering::Acquire) {
            return Ok(());
        }
        // Cleared first: what happens from here on sets it again.
        impaired.store(false, Ordering::SeqCst);
        if let Some(error) = self.lost_error() {
            impaired.store(true, Ordering::SeqCst);
            return Err(error);
        }
        match unreported.lock().take() {
            None => Ok(()),
            Some(DeviceFailure::OutOfMemory) => {
                Err(RuntimeError::Exhausted { device: self.name() })
            }
            Some(DeviceFailure::Other(message)) => {
                Err(RuntimeError::Failed { device: self.name(), message })
            }
            Some(DeviceFailure::Returned(error)) => Err(error),
        }
    }

    /// Lets the next [`check`](Self::check) return an error, unless it has another one.
    pub fn report_later(&self, error: RuntimeError) {
        self.health.unreported.lock().get_or_insert(DeviceFailure::Returned(error));
        self.health.impaired.store(true, Ordering::SeqCst);
    }

    /// Returns an error if the results of a submission with one of these serial numbers are lost.
    pub fn check_results(&self, serials: RangeInclusive<u64>) -> Result<(), RuntimeError> {
        if !self.health.has_lost_results.load(Ordering::SeqCst) {
            return Ok(());
        }
        let lost = self.health.lost_results.lock();
        let overlap =
            |&(first, last): &(u64, u64)| first <= *serials.end() && last >= *serials.start();
        match lost.iter().any(overlap) {
            true => Err(RuntimeError::LostResults { device: self.name() }),
            false => Ok(()),
        }
    }

    /// Returns whether the commands of a submission failed, and not only some before them.
    pub fn has_failed(&self, serial: u64) -> bool {
        self.health.has_lost_results.load(Ordering::SeqCst)
            && self.health.lost_results.lock().iter().any(|&(first, _)| first == serial)
    }

    /// Returns how many submissions have failed.
    pub fn failures(&self) -> usize {
        match self.health.has_lost_results.load(Ordering::SeqCst) {
            true => self.health.lost_results.lock().len(),
            false => 0,
        }
    }

    /// Returns an error if the device was lost or closed.
    pub fn lost_error(&self) -> Option<RuntimeError> {
        let reason = self.health.lost.get()?.clone();
        Some(RuntimeError::DeviceLost { device: self.name(), reason })
    }

    /// Returns an error where the host cannot block, which is in a browser.
    pub fn check_can_block(&self) -> Result<(), RuntimeError> {
        if !CAN_BLOCK {
            return Err(RuntimeError::CannotBlock { device: self.name() });
        }
        Ok(())
    }

    /// Destroys the device and marks it as lost.
    pub fn destroy(&self, reason: &str) {
        self.lose(reason);
        if self.is_host {
            return;
        }
        self.device.destroy();
        let _ = self.device.poll(wgpu::PollType::Poll);
    }

    /// Marks the device as lost.
    pub fn lose(&self, reason: &str) {
        self.health.lose(reason.to_owned());
    }

    /// Returns the serial number of the submission that is being recorded.
    pub fn serial(&self) -> u64 {
        self.health.serial.load(Ordering::SeqCst)
    }

    /// Returns the serial number of the submission that was recorded, and begins the next one.
    pub fn begin_submission(&self) -> u64 {
        self.health.serial.fetch_add(1, Ordering::SeqCst)
    }

    /// Writes to buffers, and submits commands that run after it.
    ///
    /// On a device of the program, whose callbacks are the program's, their errors are caught here.
    pub fn submit(
        &self,
        writes: &[(wgpu::Buffer, Vec<u8>)],
        commands: Option<wgpu::CommandEncoder>,
        largest: Largest,
    ) -> wgpu::SubmissionIndex {
        if self.faults.strikes(Fault::Loss) {
            self.destroy("a test lost it");
        }
        let fails = self.faults.strikes(Fault::Submit);
        assert!(!self.faults.strikes(Fault::SubmitPanic), "a test made a submission panic");
        let submit = || {
            for (buffer, data) in writes.iter().filter(|(_, data)| !data.is_empty()) {
                self.queue.write_buffer(buffer, 0, data);
            }
            let commands = commands.map(wgpu::CommandEncoder::finish);
            self.queue.submit(commands.filter(|_| !fails))
        };
        let filters: &[_] = match self.is_host {
            true => &Self::REFUSALS,
            false => &[],
        };
        let (index, error) = self.in_error_scopes(filters, submit);
        if let Some(error) = error {
            self.health.fail(DeviceFailure::Other(error.to_string()));
        }
        self.in_flight.push(&self.queue, largest);
        if fails {
            self.health.fail(DeviceFailure::Other("a test failed a submission".to_owned()));
        }
        index
    }

    /// Runs calls of wgpu that submit commands. If one panics, the results of the commands are lost.
    pub fn catch<R>(&self, submit: impl FnOnce() -> R) -> Option<R> {
        let result = catch_unwind(AssertUnwindSafe(submit));
        let failed = |panic: Box<dyn Any + Send>| {
            let message = format!("wgpu panicked: {}", panic_message(&*panic));
            self.health.fail(DeviceFailure::Other(message));
        };
        result.map_err(failed).ok()
    }

    /// Submits commands with objects of the program. Returns an error if wgpu refuses them.
    pub fn submit_with_foreign(
        &self,
        encode: impl FnOnce(&mut wgpu::CommandEncoder),
    ) -> Result<(), RuntimeError> {
        let finish = || {
            let descriptor = wgpu::CommandEncoderDescriptor::default();
            let mut encoder = self.device.create_command_encoder(&descriptor);
            encode(&mut encoder);
            encoder.finish()
        };
        let commands = self.call_with_foreign(finish)?;
        self.call_with_foreign(|| self.queue.submit([commands]))?;
        self.in_flight.push(&self.queue, Largest::default());
        Ok(())
    }

    /// Creates a bind group, with buffers of the program if `has_foreign`. Returns an error if wgpu refuses one of
    /// those.
    pub fn create_bind_group(
        &self,
        descriptor: &wgpu::BindGroupDescriptor<'_>,
        has_foreign: bool,
    ) -> Result<wgpu::BindGroup, RuntimeError> {
        let create = || self.device.create_bind_group(descriptor);
        if !has_foreign {
            return Ok(create());
        }
        self.call_with_foreign(create)
    }

    /// Calls wgpu with objects of the program. Returns an error if wgpu refuses them, or panics, as it does with some
    /// objects of another instance.
    fn call_with_foreign<R>(&self, call: impl FnOnce() -> R) -> Result<R, RuntimeError> {
        let call = || catch_unwind(AssertUnwindSafe(call));
        let message = match self.with_error_scopes(&Self::REFUSALS, call) {
            Ok(Ok(result)) => return Ok(result),
            Ok(Err(panic)) => panic_message(&*panic),
            Err(error) => error.to_string(),
        };
        Err(RuntimeError::Foreign { device: self.name(), message })
    }

    /// Calls wgpu, which may panic. On a device of the program, its errors do not reach the program's handler.
    pub fn guarded<R>(&self, call: impl FnOnce() -> R) -> Result<R, RuntimeError> {
        let filters: &[_] = if self.is_host { &Self::REFUSALS } else { &[] };
        match self.with_error_scopes(filters, || self.catch(call)) {
            Ok(Some(result)) => Ok(result),
            Ok(None) => Err(self.transfer_error(&"wgpu panicked")),
            Err(error) => Err(self.transfer_error(&error)),
        }
    }

    /// Polls a physical GPU until something is done, at most for [`SPIN`]: a thread that sleeps wakes up
    /// later than a small op takes. Returns whether it is done.
    fn polls_until(&self, is_done: impl Fn(&wgpu::PollStatus) -> bool) -> bool {
        let start = Instant::now();
        // Not by waits for no time, which make wgpu 30 panic.
        while self.info.kind != AdapterKind::Software && !self.is_lost() {
            match self.device.poll(wgpu::PollType::Poll) {
                Ok(status) if is_done(&status) => return true,
                Ok(_) if start.elapsed() < SPIN => std::hint::spin_loop(),
                _ => return false,
            }
        }
        false
    }

    /// Returns whether the device was lost. Unlike [`check`](Self::check), takes no error that another is to have.
    pub fn is_lost(&self) -> bool {
        self.health.lost.get().is_some()
    }

    /// Returns whether all submissions have finished.
    pub fn is_idle(&self) -> bool {
        let is_idle = self.reclaim();
        if is_idle {
            self.in_flight.goes_on();
        }
        is_idle
    }

    /// Lets wgpu free what finished submissions used. Returns whether all have finished, and the device is there.
    pub fn reclaim(&self) -> bool {
        !self.is_lost()
            && self.device.poll(wgpu::PollType::Poll).is_ok_and(|status| status.is_queue_empty())
    }

    /// Returns whether at least `count` submissions have not finished.
    pub fn has_in_flight(&self, count: usize) -> bool {
        !self.is_idle()
            && self.in_flight.unfinished().is_none_or(|unfinished| unfinished >= count as u64)
    }

    /// Returns how long a wait may last without progress; `None` for ever.
    pub fn wait_limit(&self) -> Option<Duration> {
        self.in_flight.limit
    }

    /// Waits until a submission has finished, or all of them. Returns an error if the device makes no progress.
    pub fn wait(&self, submission: Option<wgpu::SubmissionIndex>) -> Result<(), RuntimeError> {
        self.lost_error().map_or(Ok(()), Err)?;
        let waited = self.in_flight.wait(&self.device, submission);
        self.check()?;
        waited.map_err(|error| match error {
            WaitError::Poll(error) => self.transfer_error(&error),
            WaitError::Stall(stall) => self.stalled(stall),
        })
    }

    /// Waits until `is_done`, or until a submission has finished, or all if it is `None`. Returns an error if the
    /// device makes no progress.
    pub fn wait_until(
        &self,
        submission: Option<wgpu::SubmissionIndex>,
        is_done: impl Fn(&wgpu::PollStatus) -> bool,
    ) -> Result<(), RuntimeError> {
        match self.polls_until(is_done) {
            true => {
                self.in_flight.goes_on();
                self.check()
            }
            false => self.wait(submission),
        }
    }

    fn stalled(&self, Stall { seconds, running }: Stall) -> RuntimeError {
        RuntimeError::Stalled { device: self.name(), seconds, running: running.to_string() }
    }

    /// Returns the error of a driver that does not return from a submission.
    pub fn submission_error(&self) -> RuntimeError {
        let seconds = self.wait_limit().unwrap_or_default().as_secs_f64();
        let unknown = Stall { seconds, running: Largest::default() };
        self.stalled(self.in_flight.stall().unwrap_or(unknown))
    }

    /// Returns whether the driver may not return from a submission for a while.
    pub fn may_block(&self) -> bool {
        self.in_flight.may_block()
    }

    /// Creates a buffer for tensors. Returns `None` if the device is out of memory.
    pub fn create_tensor_buffer(&self, size: u64) -> Option<Arc<Buffer>> {
        if self.info.kind == AdapterKind::Software && !host_has_memory(size) {
            return None;
        }
        let usage = wgpu::BufferUsages::STORAGE
            | wgpu::BufferUsages::COPY_SRC
            | wgpu::BufferUsages::COPY_DST;
        let raw = self.create_buffer("tensors", size, usage, false).ok()?;
        Some(self.known_buffer(raw))
    }

    /// Gives a buffer an id.
    pub fn known_buffer(&self, raw: wgpu::Buffer) -> Arc<Buffer> {
        let id = self.next_buffer_id.fetch_add(1, Ordering::Relaxed);
        Arc::new(Buffer { id, raw })
    }

    /// Creates a buffer. Returns an error if the device is out of memory.
    pub fn create_buffer(
        &self,
        label: &str,
        size: u64,
        usage: wgpu::BufferUsages,
        mapped_at_creation: bool,
    ) -> Result<wgpu::Buffer, wgpu::Error> {
        let create = || {
            self.device.create_buffer(&wgpu::BufferDescriptor {
                label: Some(label),
                size,
                usage,
                mapped_at_creation,
            })
        };
        self.with_error_scopes(&[wgpu::ErrorFilter::OutOfMemory], create)
    }

    /// Runs `create` and returns its result, or an error of the kinds in `filters` that it caused.
    ///
    /// A browser reports errors later, to the uncaptured-error handler. There the returned object
    /// may be invalid, and a later op or readback returns the error.
    pub fn with_error_scopes<T>(
        &self,
        filters: &[wgpu::ErrorFilter],
        create: impl FnOnce() -> T,
    ) -> Result<T, wgpu::Error> {
        let (created, error) = self.in_error_scopes(filters, create);
        error.map_or(Ok(created), Err)
    }

    /// Runs `work`, and returns its result and the error that it caused.
    fn in_error_scopes<T>(
        &self,
        filters: &[wgpu::ErrorFilter],
        work: impl FnOnce() -> T,
    ) -> (T, Option<wgpu::Error>) {
        if !CAN_BLOCK {
            return (work(), None);
        }
        let scopes: SmallVec<[_; 3]> =
            filters.iter().map(|&filter| self.device.push_error_scope(filter)).collect();
        let result = work();
        // Scopes must be popped innermost first.
        let errors = scopes.into_iter().rev().filter_map(|scope| pollster::block_on(scope.pop()));
        (result, errors.last())
    }

    /// Returns the error of a failed transfer: that the device was lost, if that is why it failed.
    pub fn transfer_error(&self, error: &dyn std::fmt::Display) -> RuntimeError {
        let mut message = error.to_string();
        if self.is_host {
            message +=
                "; if the program's device was destroyed or lost, call `interop::report_lost`";
        }
        let failed = RuntimeError::Transfer { device: self.name(), message };
        self.check().err().unwrap_or(failed)
    }
}

/// Returns whether the host can allocate the memory for a buffer of a software adapter.
///
/// Such an adapter uses the memory of the host. Mesa's does not notice when there is none, and
/// crashes when it writes to the buffer. wgpu allocates memory for several buffers at once.
fn host_has_memory(size: u64) -> bool {
    const BLOCK: u64 = 256 << 20;
    let Ok(bytes) = usize::try_from(size.max(BLOCK)) else { return false };
    !CAN_BLOCK || Vec::<u8>::new().try_reserve_exact(bytes).is_ok()
}
