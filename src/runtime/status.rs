//! What a process does with its devices, for other processes: `burn-wgsl top` shows it.
//!
//! A process that shares its status writes a small file every second. The file is removed when
//! sharing ends, or by a reader some seconds after the process has ended. Nothing is shared unless a program or its
//! user asks for it.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{env, fs, io, process};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::Runtime;
use super::cache::{create_own_folder, is_own_folder, read_own, write_atomically};
use crate::device::CAN_BLOCK;
use crate::variables;

/// How often the status is written.
const INTERVAL: Duration = Duration::from_secs(1);
/// From which age on a status is one of a process that ended without removing it.
const STALE: Duration = Duration::from_secs(10);

/// What a process does with its devices.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Status {
    /// The id of the process.
    pub process: u32,
    /// The name of its program.
    pub program: String,
    /// When the status was taken, in milliseconds since 1970.
    pub millis: u64,
    /// The open devices.
    pub devices: Vec<DeviceStatus>,
}

/// What a process does with a device. Sizes are in bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DeviceStatus {
    /// The adapter's name.
    pub device: String,
    /// The adapter's address on the PCI bus, if it is known.
    pub pci_bus_id: Option<String>,
    /// Size of the tensors.
    pub in_use: u64,
    /// Size of the pool's buffers, in use or kept for reuse.
    pub reserved: u64,
    /// The largest `in_use` so far.
    pub peak: u64,
    /// The approximate number of operations so far.
    pub operations: u64,
}

/// Shares the status of this process until it is dropped.
#[derive(Debug)]
#[must_use = "the status is shared until this is dropped"]
pub struct SharedStatus {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for SharedStatus {
    fn drop(&mut self) {
        self.end = None;
        if let Some(thread) = self.thread.take() {
            // It has nothing to return.
            let _ = thread.join();
        }
    }
}

/// Returns the folder of the files, which a restart empties: in the user's runtime folder, or if that
/// does not exist, in the folder for temporary files. Only this user can read the files.
fn folder() -> PathBuf {
    let runtime = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    match runtime.filter(|folder| folder.is_dir()) {
        Some(folder) => folder.join("burn-wgsl"),
        None => env::temp_dir().join(format!("burn-wgsl-user-{}", user())),
    }
}

#[cfg(unix)]
fn user() -> String {
    rustix::process::geteuid().as_raw().to_string()
}

/// Elsewhere the folder for temporary files is the user's own.
#[cfg(not(unix))]
fn user() -> String {
    "user".to_owned()
}

/// Shares the status of this process with `burn-wgsl top`, which other programs of the same user
/// can run. The environment variable `BURN_WGSL_STATUS=1` does so too.
///
/// ```no_run
/// let _shared = burn_wgsl::share_status()?; // until it is dropped
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
///
/// Returns an error if the file or its thread cannot be made, and in a browser.
pub fn share_status() -> io::Result<SharedStatus> {
    if !CAN_BLOCK {
        return Err(io::ErrorKind::Unsupported.into());
    }
    write(&own_file())?;
    start()
}

/// The file of this process.
fn own_file() -> PathBuf {
    folder().join(format!("{}.json", process::id()))
}

/// Starts the thread that writes the status.
fn start() -> io::Result<SharedStatus> {
    let file = own_file();
    let (end, ended) = channel::<()>();
    let thread =
        std::thread::Builder::new().name("burn-wgsl status".to_owned()).spawn(move || {
            let mut level = log::Level::Warn;
            loop {
                // The next one may succeed.
                if let Err(error) = write(&file) {
                    let file = file.display();
                    log::log!(level, "the status cannot be written to {file}: {error}");
                    level = log::Level::Debug;
                }
                if ended.recv_timeout(INTERVAL) != Err(RecvTimeoutError::Timeout) {
                    break;
                }
            }
            let _ = fs::remove_file(&file);
        })?;
    Ok(SharedStatus { end: Some(end), thread: Some(thread) })
}

/// Shares the status until the process ends, if the variable is set. Only the first call does.
pub(super) fn share_if_asked() {
    static ASKED: AtomicBool = AtomicBool::new(false);
    static SHARED: Mutex<Option<SharedStatus>> = Mutex::new(None);
    if !CAN_BLOCK || !variables::STATUS.is_on() || ASKED.swap(true, Ordering::Relaxed) {
        return;
    }
    // The thread writes: here, a device is being opened, whose lock is held.
    match start() {
        Ok(shared) => *SHARED.lock() = Some(shared),
        Err(error) => log::warn!("the status of this process cannot be shared: {error}"),
    }
}

/// The largest file, in bytes.
const MAX_FILE: u64 = 64 << 10;

fn write(file: &Path) -> io::Result<()> {
    if let Some(folder) = file.parent() {
        create_own_folder(folder)?;
    }
    write_atomically(file, &serde_json::to_vec(&current())?)
}

fn millis() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Returns the status of this process.
fn current() -> Status {
    let program = env::current_exe().ok();
    let program = program.as_deref().and_then(Path::file_stem).map(|name| name.to_string_lossy());
    let devices = Runtime::all_opened().into_iter().map(|runtime| {
        let usage = runtime.memory();
        DeviceStatus {
            device: runtime.info().name.clone(),
            pci_bus_id: runtime.info().pci_bus_id.clone(),
            in_use: usage.in_use,
            reserved: usage.reserved,
            peak: usage.peak,
            operations: runtime.work_dispatched(),
        }
    });
    Status {
        process: process::id(),
        program: program.unwrap_or_default().into_owned(),
        millis: millis(),
        devices: devices.collect(),
    }
}

/// Returns what the processes of this user share, by the id of the process.
pub fn shared_statuses() -> Vec<Status> {
    statuses_in(&folder(), millis())
}

/// Returns the statuses in a folder that are not older than [`STALE`] at a time. Older files are
/// deleted. There are none in a folder that is not this user's alone: other users could put files there.
fn statuses_in(folder: &Path, now: u64) -> Vec<Status> {
    if !is_own_folder(folder) {
        return Vec::new();
    }
    let files = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut statuses: Vec<Status> = files
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .filter_map(|path| {
            let status: Status = serde_json::from_slice(&read_own(&path, MAX_FILE)?).ok()?;
            let is_current = now.saturating_sub(status.millis) < STALE.as_millis() as u64;
            if !is_current {
                let _ = fs::remove_file(&path);
            }
            is_current.then_some(status)
        })
        .collect();
    statuses.sort_by_key(|status| status.process);
    statuses
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_and_damaged_files_are_left_out() {
        let folder = env::temp_dir().join(format!("burn-wgsl-status-{}", process::id()));
        create_own_folder(&folder).expect("it is new");
        let status = |process, millis| Status {
            process,
            program: "train".to_owned(),
            millis,
            devices: Vec::new(),
        };
        for status in [status(7, 100_000), status(3, 99_000), status(5, 1000)] {
            let file = folder.join(format!("{}.json", status.process));
            let json = serde_json::to_vec(&status).expect("a status is JSON");
            write_atomically(&file, &json).expect("the folder is writable");
        }
        write_atomically(&folder.join("9.json"), b"{").expect("the folder is writable");
        let found = statuses_in(&folder, 100_500);
        assert_eq!(found, [status(3, 99_000), status(7, 100_000)]);
        assert!(!folder.join("5.json").exists(), "the file of an ended process is still there");
        fs::remove_dir_all(&folder).expect("the folder is removable");
        assert!(statuses_in(&folder, 100_500).is_empty());
    }

    #[test]
    fn a_shared_status_ends_with_its_guard() {
        let shared = share_status().expect("the folder is writable");
        let is_shared = || shared_statuses().iter().any(|status| status.process == process::id());
        assert!(is_shared());
        drop(shared);
        assert!(!is_shared());
    }
}
