//! What test programs share: devices, the case list, tolerances, counts of launches and panic messages.
//!
//! Tests run on the software adapter and on the first GPU where they are available, and always on
//! the CPU. A missing device is reported as skipped. If `BURN_WGSL_TEST_REQUIRE` names the missing
//! device, the test fails instead.
#![allow(
    dead_code,
    unused_imports,
    unused_macros,
    reason = "each program uses a part of this module"
)]

mod reached;
mod tolerance;

use std::any::Any;
use std::cell::Cell;
use std::io::Write;
use std::panic::UnwindSafe;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};
use std::thread::ThreadId;

use burn::tensor::{Distribution, Tensor};
use burn_backend::{Backend, TensorData};
use burn_wgsl::backend::call::Value;
use burn_wgsl::backend::fallbacks_on_thread;
use burn_wgsl::device::{ResolvedDevice, set_quiet};
use burn_wgsl::kernels::ops::cases::Case;
use burn_wgsl::kernels::ops::table::Reference;
use burn_wgsl::runtime::{Event, Observer, Origin, Runtime};
use burn_wgsl::{Wgsl, WgslDevice};

pub use tolerance::{
    CHAINED_F16, CLOSE, FINITE_DIFFERENCE, SUMMED, Tolerance, WEIGHTED_F16, assert_close,
    tolerance_of, values_are_ignored,
};

/// Returns the devices that tests run on: the GPUs of this machine and the CPU.
pub fn devices() -> Vec<WgslDevice> {
    let mut devices = gpus();
    devices.push(WgslDevice::Cpu);
    devices
}

/// Returns the GPUs of this machine, including the software adapter.
pub fn gpus() -> Vec<WgslDevice> {
    let _ = env_logger::builder().is_test(true).try_init();
    // Tests name their devices; the message that there is no GPU would be noise.
    set_quiet(true);
    let required = std::env::var("BURN_WGSL_TEST_REQUIRE").unwrap_or_default();
    let mut gpus = Vec::new();
    for device in [WgslDevice::Software, WgslDevice::Gpu(0)] {
        match device.resolve() {
            Ok(ResolvedDevice::Adapter(index)) => {
                reached::record(index);
                gpus.push(device);
            }
            Ok(ResolvedDevice::Cpu) => {}
            Err(error) => {
                assert!(
                    required != device.to_string(),
                    "BURN_WGSL_TEST_REQUIRE={required}, but: {error}"
                );
                // The test harness hides `eprintln!` of passing tests, so write to stderr directly.
                let _ =
                    writeln!(std::io::stderr(), "GPU cases skipped on {device}: no such device");
            }
        }
    }
    gpus
}

/// Returns the opened devices of [`gpus`].
pub fn runtimes() -> Vec<Arc<Runtime>> {
    let resolved = gpus().into_iter().map(|device| device.resolve());
    resolved
        .filter_map(|resolved| match resolved.expect("the device exists") {
            ResolvedDevice::Adapter(index) => Some(Runtime::of(index).expect("the device opens")),
            ResolvedDevice::Cpu => None,
        })
        .collect()
}

/// Locks a mutex of this test process. Tests that hold the guard run one at a time.
pub fn serial_guard() -> MutexGuard<'static, ()> {
    static SERIAL: Mutex<()> = Mutex::new(());
    SERIAL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Draws random numbers for a test that does not depend on a seed, while no test runs that does.
pub fn random<const D: usize>(
    shape: [usize; D],
    distribution: Distribution,
    device: &WgslDevice,
) -> Tensor<Wgsl, D> {
    let _guard = serial_guard();
    Tensor::random(shape, distribution, device)
}

/// Runs `work` and panics if one of its ops falls back to the CPU. `label` starts the message.
#[track_caller]
pub fn without_fallbacks<R>(label: &str, work: impl FnOnce() -> R) -> R {
    let before = fallbacks_on_thread();
    let result = work();
    assert_eq!(fallbacks_on_thread(), before, "{label}: an op fell back to the CPU");
    result
}

/// Returns the cases of the case list.
///
/// `BURN_WGSL_TEST_CASES=sort,conv3d` keeps the cases whose op name contains one of these strings.
pub fn cases() -> impl Iterator<Item = &'static Case> {
    let filter = std::env::var("BURN_WGSL_TEST_CASES").unwrap_or_default();
    burn_wgsl::kernels::cases().filter(move |case| {
        filter.is_empty() || filter.split(',').any(|part| case.op.contains(part))
    })
}

/// Reads back the results of an op.
pub fn read_values<B: Backend>(values: Vec<Value<B>>) -> Vec<TensorData> {
    let read = |value: Value<B>| pollster::block_on(value.into_data()).expect("readback succeeds");
    values.into_iter().map(read).collect()
}

/// Returns whether the op of an elementwise row takes floats.
pub fn takes_floats(reference: Reference) -> bool {
    matches!(
        reference,
        Reference::Float1(_)
            | Reference::Float2(_)
            | Reference::Float3(_)
            | Reference::FloatTest(_)
            | Reference::FloatComparison(_)
    )
}

/// Returns whether the op of an elementwise row returns booleans from floats or integers. Such an
/// op has the boolean type as its last argument.
pub fn takes_bool_type(reference: Reference) -> bool {
    matches!(
        reference,
        Reference::FloatTest(_) | Reference::FloatComparison(_) | Reference::IntComparison(_)
    )
}

thread_local! {
    /// The file whose panics on this thread are printed; `None`: all are.
    static SHOWN: Cell<Option<&'static str>> = const { Cell::new(None) };
}

/// Hides panics of this thread: see [`hide_panics_outside`].
pub struct HiddenPanics(());

/// Prints only the panics of a file on this thread, until the result is dropped. For tests that expect panics of ops.
#[must_use]
pub fn hide_panics_outside(file: &'static str) -> HiddenPanics {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let is_in = |file| info.location().is_some_and(|location| location.file() == file);
            if SHOWN.get().is_none_or(is_in) {
                hook(info);
            }
        }));
    });
    SHOWN.set(Some(file));
    HiddenPanics(())
}

impl Drop for HiddenPanics {
    fn drop(&mut self) {
        SHOWN.set(None);
    }
}

/// Returns the message of the panic that `f` must raise.
pub fn panic_message(f: impl FnOnce() + UnwindSafe) -> String {
    message_of(std::panic::catch_unwind(f).expect_err("the call panics"))
}

/// Returns the message of a panic as an entry of a list of failures. It starts with `label`, unless
/// the message contains the label.
pub fn failure(label: &str, panic: Box<dyn Any + Send>) -> String {
    let message = message_of(panic);
    if message.contains(label) { message } else { format!("{label}: {message}") }
}

/// Returns the message of a panic, or an empty string if it has none.
fn message_of(panic: Box<dyn Any + Send>) -> String {
    match panic.downcast::<String>() {
        Ok(message) => *message,
        Err(panic) => panic.downcast_ref::<&str>().copied().unwrap_or_default().to_owned(),
    }
}

/// Returns a command that runs the calling test program. Where a dynamic loader was told to start it, with options, the
/// loader and its options are a part of the command.
pub fn test_program() -> Command {
    let program = std::env::args().next().expect("the first argument is the program");
    let command_line = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    let command_line = String::from_utf8_lossy(&command_line);
    let mut words = command_line.split('\0').take_while(|word| *word != program);
    let Some(loader) = words.next() else { return Command::new(program) };
    let mut command = Command::new(loader);
    command.args(words).arg(program);
    command
}

/// Returns a command that runs only the test `name` of the calling module, ignored or not.
macro_rules! test_alone {
    ($name:expr) => {
        $crate::common::test_in(module_path!(), $name)
    };
}
pub(crate) use test_alone;

/// Returns the command of [`test_alone`] for a module, whose path starts with the test program.
pub fn test_in(module: &str, name: &str) -> Command {
    let path = module.split_once("::").map_or(String::new(), |(_, module)| format!("{module}::"));
    let mut command = test_program();
    command.args(["--exact", &format!("{path}{name}"), "--include-ignored", "--nocapture"]);
    command
}

/// Returns whether this process runs only the calling test, of which `test` is the command. If not, runs it in a
/// process of its own, and panics if it fails there. For tests that measure what other tests use, too.
pub fn is_alone(mut test: Command) -> bool {
    const VARIABLE: &str = "BURN_WGSL_TEST_ALONE";
    if std::env::var_os(VARIABLE).is_some() {
        return true;
    }
    assert_success(&test.env(VARIABLE, "1").output().expect("the child starts"));
    false
}

/// Runs a test in a child process, with environment variables.
pub fn run_child(mut test: Command, environment: &[(&str, &str)]) -> Output {
    test.env_remove("BURN_WGSL_DEVICE").env_remove("BURN_WGSL_QUIET").env_remove("RUST_LOG");
    test.envs(environment.iter().copied()).output().expect("the child starts")
}

/// Panics with the output of a child process if it failed.
pub fn assert_success(output: &Output) {
    let text = String::from_utf8_lossy(&output.stdout);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}\n{error}");
}

/// Returns the runtime of a GPU.
pub fn runtime_of(device: &WgslDevice) -> Arc<Runtime> {
    match device.resolve().expect("the device exists") {
        ResolvedDevice::Adapter(index) => Runtime::of(index).expect("the device opens"),
        ResolvedDevice::Cpu => panic!("{device} is not a GPU"),
    }
}

/// Returns the resident size of this process in bytes; 0 where it is not known.
pub fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.map(|line| line.trim().trim_end_matches(" kB"));
    number.map_or(0, |number| number.parse::<usize>().expect("VmRSS is a number") << 10)
}

/// Counts the launches on one thread of kernels whose label contains a text.
pub struct Launches {
    thread: ThreadId,
    text: &'static str,
    count: AtomicUsize,
}

impl Launches {
    /// Creates a count for this thread.
    pub fn containing(text: &'static str) -> Arc<Self> {
        let thread = std::thread::current().id();
        Arc::new(Self { thread, text, count: AtomicUsize::new(0) })
    }

    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }
}

impl Observer for Launches {
    fn event(&self, _: Origin, event: Event<'_>) {
        if let Event::Dispatch { kernel, .. } = event
            && std::thread::current().id() == self.thread
            && kernel.to_string().contains(self.text)
        {
            self.count.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Counts the bytes that a device's data has on its way.
#[derive(Default)]
pub struct Copies {
    pub uploaded: AtomicU64,
    /// Copied by the host to memory that the device copies from.
    pub staged: AtomicU64,
    pub read_back: AtomicU64,
}

impl Observer for Copies {
    fn event(&self, _: Origin, event: Event<'_>) {
        let (count, bytes) = match event {
            Event::Upload { bytes } => (&self.uploaded, bytes),
            Event::Staged { bytes } => (&self.staged, bytes),
            Event::Readback { bytes } => (&self.read_back, bytes),
            _ => return,
        };
        count.fetch_add(bytes, Ordering::Relaxed);
    }
}
