//! The opened devices of this process, one for each adapter.

use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use super::{Runtime, status};
use crate::device::{self, CAN_BLOCK, DeviceError, FIRST_HOST};

/// An adapter's device.
#[derive(Default)]
struct Slot {
    /// The device that was opened last. It may be lost.
    runtime: Option<Arc<Runtime>>,
    /// How often the adapter was opened.
    openings: u32,
}

/// The opened devices, by their index in `device::adapters()`. Opening a device locks only its own
/// slot.
fn slots() -> &'static [Mutex<Slot>] {
    // Not lazily, which would keep a panic of a driver for ever.
    static SLOTS: OnceLock<Vec<Mutex<Slot>>> = OnceLock::new();
    SLOTS.get_or_init(|| device::adapters().iter().map(|_| Mutex::default()).collect())
}

/// The devices of the program, by their numbers.
static HOSTS: Mutex<Vec<Option<Arc<Runtime>>>> = Mutex::new(Vec::new());

impl Slot {
    /// Returns the device, or why it cannot be used if it was opened before.
    fn usable(&self) -> Result<Arc<Runtime>, Option<String>> {
        match &self.runtime {
            Some(runtime) => match runtime.lost() {
                None => Ok(runtime.clone()),
                Some(reason) => Err(Some(reason)),
            },
            None => Err(None),
        }
    }

    fn open(&mut self, opened: device::OpenDevice) -> Arc<Runtime> {
        self.openings += 1;
        let runtime = Arc::new(Runtime::new(opened, self.openings));
        status::share_if_asked();
        self.runtime = Some(runtime.clone());
        runtime
    }
}

impl Runtime {
    /// Returns the runtime of an adapter.
    ///
    /// Opens the adapter's device at first use, and again after the device was lost. In a browser
    /// only [`open`](Self::open) can open a device.
    ///
    /// # Errors
    ///
    /// Returns an error if the driver refuses to open the adapter or the adapter lacks a required
    /// limit. In a browser, returns an error if the device is not open.
    ///
    /// # Panics
    ///
    /// Panics if `adapter` is out of range for `device::adapters()`. The index in a
    /// `device::ResolvedDevice` is always in range.
    pub fn of(adapter: usize) -> Result<Arc<Self>, DeviceError> {
        if let Some(number) = adapter.checked_sub(FIRST_HOST) {
            return Self::of_host(number);
        }
        let mut slot = slots()[adapter].lock();
        let reason = match slot.usable() {
            Ok(runtime) => return Ok(runtime),
            Err(reason) => reason,
        };
        let found = &device::adapters()[adapter];
        if !CAN_BLOCK {
            return Err(DeviceError::NotOpen { adapter: found.info.name.clone(), reason });
        }
        Ok(slot.open(pollster::block_on(device::open(found))?))
    }

    /// Takes a device of the program. Returns its number.
    pub fn add_host(opened: device::OpenDevice) -> usize {
        let info = opened.info.clone();
        // Before any lock: it calls wgpu, which may call the program.
        let runtime = Arc::new(Self::new(opened, 1));
        let number = device::add_host(info, |_| HOSTS.lock().push(Some(runtime)));
        status::share_if_asked();
        number
    }

    /// Opens another device of an adapter, with a wgpu instance of its own. Returns its number, as that of a device of
    /// the program.
    ///
    /// # Errors
    ///
    /// Returns an error if the adapter is gone, or the driver refuses to open it once more.
    #[cfg(feature = "train")]
    pub fn open_own(adapter: usize) -> Result<usize, DeviceError> {
        let known = &device::adapters()[adapter];
        // The order of adapters is the same as long as there are no others.
        let fresh = pollster::block_on(device::enumerate());
        let same = |other: &&device::Adapter| {
            (&other.info.name, other.info.kind) == (&known.info.name, known.info.kind)
        };
        let fresh = fresh.get(adapter).filter(same).unwrap_or(known);
        Ok(Self::add_host(pollster::block_on(device::open(fresh))?))
    }

    fn of_host(number: usize) -> Result<Arc<Self>, DeviceError> {
        let runtime = HOSTS.lock().get(number).cloned().flatten();
        let reason = match &runtime {
            Some(runtime) => runtime.lost(),
            None => Some("it was closed".to_owned()),
        };
        match (runtime, reason) {
            (Some(runtime), None) => Ok(runtime),
            (_, reason) => {
                let info = device::info_of(FIRST_HOST + number);
                let adapter = info.map_or("its adapter", |info| &info.name).to_owned();
                Err(DeviceError::HostLost { adapter, reason: reason.unwrap_or_default() })
            }
        }
    }

    /// Returns the runtime of an adapter like [`of`](Self::of).
    ///
    /// In a browser this also opens the device if it is not open.
    ///
    /// # Errors
    ///
    /// Returns an error if the adapter is gone, the driver refuses to open it, or it lacks a
    /// required limit.
    ///
    /// # Panics
    ///
    /// Panics if `adapter` is out of range for `device::adapters()`.
    pub async fn open(adapter: usize) -> Result<Arc<Self>, DeviceError> {
        let opened = Self::of(adapter);
        if CAN_BLOCK || opened.is_ok() || adapter >= FIRST_HOST {
            return opened;
        }
        // A `GPUAdapter` in a browser can open only one device, so a new adapter is requested.
        let known = &device::adapters()[adapter];
        let fresh = device::enumerate().await;
        let opened = device::open(fresh.get(adapter).unwrap_or(known)).await?;
        // Another task may have opened the adapter during the `await`. All tensors of an adapter
        // must be on the same device, so the first device is kept.
        let mut slot = slots()[adapter].lock();
        match slot.usable() {
            Ok(first) => {
                opened.device.destroy();
                Ok(first)
            }
            Err(_) => Ok(slot.open(opened)),
        }
    }

    /// Returns the runtime of an adapter if its device is open.
    pub fn opened(adapter: usize) -> Option<Arc<Self>> {
        match adapter.checked_sub(FIRST_HOST) {
            Some(number) => HOSTS.lock().get(number).cloned().flatten(),
            None => slots()[adapter].lock().runtime.clone(),
        }
    }

    /// Returns the runtimes of all open devices.
    pub(super) fn all_opened() -> Vec<Arc<Self>> {
        let mut opened: Vec<Arc<Self>> =
            slots().iter().filter_map(|slot| slot.lock().runtime.clone()).collect();
        opened.extend(HOSTS.lock().iter().flatten().cloned());
        opened
    }

    /// Destroys an adapter's device if it is open.
    ///
    /// Tensors on the device are lost. The next use of the adapter opens a new device; in a browser
    /// the next [`open`](Self::open) does.
    pub fn close(adapter: usize) {
        let runtime = match adapter.checked_sub(FIRST_HOST) {
            Some(number) => HOSTS.lock().get_mut(number).and_then(Option::take),
            None => slots()[adapter].lock().runtime.take(),
        };
        if let Some(runtime) = runtime {
            runtime.gpu.destroy("it was closed");
        }
    }
}
