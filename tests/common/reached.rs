//! Records which kernel variants the tests launch, for `cargo xtask test`, which fails if a variant
//! is never launched.

use std::collections::HashSet;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use burn_wgsl::runtime::{Event, Observer, Origin, Runtime, Variant};

/// The environment variable with the file to which the names of launched variants are appended.
const REACHED_VARIABLE: &str = "BURN_WGSL_TEST_REACHED";

/// Writes each variant to the file when it is first launched.
struct Recorder {
    file: PathBuf,
    reached: Mutex<HashSet<Variant>>,
}

impl Observer for Recorder {
    fn event(&self, _: Origin, event: Event<'_>) {
        let Event::Dispatch { kernel, .. } = event else { return };
        let mut reached = self.reached.lock().unwrap_or_else(PoisonError::into_inner);
        if reached.contains(kernel) {
            return;
        }
        reached.insert(kernel.clone());
        // Several test programs may append at once: a short line is written as a whole.
        let file = OpenOptions::new().create(true).append(true).open(&self.file);
        if let Err(error) =
            file.and_then(|mut file| file.write_all(format!("{kernel}\n").as_bytes()))
        {
            panic!("cannot write {}: {error}", self.file.display());
        }
    }
}

/// Records the variants launched on an adapter from now on, if the environment variable is set.
pub fn record(adapter: usize) {
    let Some(file) = std::env::var_os(REACHED_VARIABLE).map(PathBuf::from) else { return };
    /// One recorder for each open device, however often a program asks for its devices.
    static RECORDED: Mutex<Vec<Weak<Runtime>>> = Mutex::new(Vec::new());
    if let Ok(runtime) = Runtime::of(adapter) {
        let mut recorded = RECORDED.lock().unwrap_or_else(PoisonError::into_inner);
        if recorded.iter().any(|other| std::ptr::eq(other.as_ptr(), Arc::as_ptr(&runtime))) {
            return;
        }
        recorded.push(Arc::downgrade(&runtime));
        let recorder = Recorder { file, reached: Mutex::default() };
        // Until the process ends.
        std::mem::forget(runtime.observe(Arc::new(recorder)));
    }
}
