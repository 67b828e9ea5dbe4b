//! Resolves devices on this machine.

use std::hash::{Hash, Hasher};
use std::io::{self, Write};
use std::str::FromStr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use super::default::{self, DeviceOnThread};
use super::hosts::{FIRST_HOST, info_of};
use super::resolve::{devices_of, parse_device, resolve_among, resolve_auto};
use super::{
    AdapterKind, Automatic, CAN_BLOCK, DeviceError, ResolvedDevice, WgslDevice, adapters,
    install_hint,
};
use crate::variables;

impl WgslDevice {
    /// Returns the adapter of this device, or the CPU.
    ///
    /// `Auto` is the device of [`use_on_thread`] or [`set_default`], if there is one. Otherwise, it is resolved once
    /// per process. If it becomes the CPU because there is no usable GPU,
    /// one message says so: in the log if warnings of this crate are logged, otherwise on standard
    /// error. [`set_quiet`] and `BURN_WGSL_QUIET=1` suppress the message on standard error.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such device. For `Auto`, returns an error if
    /// `BURN_WGSL_DEVICE` is not a device selector or selects a device that does not exist. The
    /// error lists the available devices.
    pub fn resolve(&self) -> Result<ResolvedDevice, DeviceError> {
        match self {
            Self::Cpu => Ok(ResolvedDevice::Cpu),
            Self::Auto => match default::current() {
                Some(device) => device.resolve(),
                None => Ok(automatic()?.resolved),
            },
            device => resolve_among(*device, adapters()),
        }
    }

    /// Returns the canonical selector of this device: `Gpu(n)`, `Software` or `Cpu`. Tensors report
    /// it as their device.
    ///
    /// Returns the device unchanged if it cannot be resolved.
    pub fn canonical(self) -> Self {
        match self {
            Self::Cpu | Self::Software | Self::Gpu(_) | Self::Host(_) => self,
            device => match device.resolve() {
                Ok(ResolvedDevice::Cpu) => Self::Cpu,
                // The first of `selectors(adapters(), index)`: GPUs are ranked before software
                // adapters, of which only the first can be selected.
                Ok(ResolvedDevice::Adapter(index)) if index >= FIRST_HOST => {
                    Self::Host(index - FIRST_HOST)
                }
                Ok(ResolvedDevice::Adapter(index)) => match adapters()[index].info.kind {
                    AdapterKind::Software => Self::Software,
                    _ => Self::Gpu(index),
                },
                Err(_) => self,
            },
        }
    }

    /// Describes the device: the adapter's name, kind and API, or `CPU`.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`WgslDevice::resolve`].
    pub fn describe(&self) -> Result<String, DeviceError> {
        Ok(match self.resolve()? {
            ResolvedDevice::Cpu => "CPU".to_owned(),
            ResolvedDevice::Adapter(index) => {
                let Some(info) = info_of(index) else { return Ok(self.to_string()) };
                format!("{} [{}, {}]", info.name, info.kind, info.api)
            }
        })
    }
}

impl PartialEq for WgslDevice {
    /// Returns whether both select the same device. That may look for the devices of the machine; in a browser, where
    /// they are found later, the answer changes then.
    fn eq(&self, other: &Self) -> bool {
        // The same selector needs no adapters.
        self.to_code() == other.to_code()
            || self.canonical().to_code() == other.canonical().to_code()
    }
}

impl Eq for WgslDevice {}

impl Hash for WgslDevice {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.canonical().to_code().hash(state);
    }
}

impl FromStr for WgslDevice {
    type Err = DeviceError;

    /// Parses a device selector, one of [`ACCEPTED_SELECTORS`](super::ACCEPTED_SELECTORS).
    ///
    /// `name:TEXT` is matched against the adapters immediately. Any other device is checked only by
    /// [`WgslDevice::resolve`].
    fn from_str(text: &str) -> Result<Self, DeviceError> {
        parse_device(text, adapters)
    }
}

/// Makes a device the one that [`WgslDevice::Auto`] and `WgslDevice::default()` are, in place of what the environment
/// or the rank selects; `Auto` ends that. Tensors stay on their devices. Set it at the beginning of a program.
///
/// ```standalone_crate
/// use burn_wgsl::{WgslDevice, device};
///
/// device::set_default(WgslDevice::Cpu)?;
/// assert_eq!(WgslDevice::default().canonical(), WgslDevice::Cpu);
/// # Ok::<(), device::DeviceError>(())
/// ```
///
/// # Errors
///
/// Returns an error if there is no such device.
pub fn set_default(device: WgslDevice) -> Result<(), DeviceError> {
    device.resolve()?;
    default::set(match device {
        WgslDevice::Auto => None,
        device => Some(device.canonical()),
    });
    Ok(())
}

/// Makes a device the one that [`WgslDevice::Auto`] is on this thread, until the result is dropped: what is created on
/// the default device, such as the parameters of a record, is there. Such devices nest. Threads that are started
/// meanwhile have the default of the program; those of a `train::Loader` use the device of the thread that created it.
///
/// ```
/// use burn::tensor::Tensor;
/// use burn_wgsl::{Wgsl, WgslDevice, device};
///
/// let on_cpu = device::use_on_thread(WgslDevice::Cpu)?;
/// let x = Tensor::<Wgsl, 1>::ones([2], &WgslDevice::default());
/// assert_eq!(x.device(), WgslDevice::Cpu);
/// drop(on_cpu);
/// # Ok::<(), device::DeviceError>(())
/// ```
///
/// # Errors
///
/// Returns an error if there is no such device.
pub fn use_on_thread(device: WgslDevice) -> Result<DeviceOnThread, DeviceError> {
    device.resolve()?;
    Ok(DeviceOnThread::begin(device.canonical()))
}

/// Returns what `auto` is on this thread, for a thread that goes on with its work; `None` if nothing was set.
#[cfg(feature = "train")]
pub fn on_thread() -> Option<WgslDevice> {
    default::current()
}

/// Returns the device that [`WgslDevice::Auto`] selects in this process without [`set_default`] and [`use_on_thread`],
/// and the reason.
///
/// ```
/// let automatic = burn_wgsl::device::automatic()?;
/// println!("{}: {}", automatic.device, automatic.reason);
/// # Ok::<(), burn_wgsl::device::DeviceError>(())
/// ```
///
/// # Errors
///
/// Returns an error if `BURN_WGSL_DEVICE` is not a device selector or selects a device that does
/// not exist.
pub fn automatic() -> Result<&'static Automatic, DeviceError> {
    static AUTOMATIC: OnceLock<Result<Automatic, DeviceError>> = OnceLock::new();
    static BEFORE_DISCOVERY: OnceLock<Result<Automatic, DeviceError>> = OnceLock::new();
    // In a browser, this can be called before `discover`.
    let before_discovery = !CAN_BLOCK && adapters().is_empty();
    let cell = if before_discovery { &BEFORE_DISCOVERY } else { &AUTOMATIC };
    let result = cell.get_or_init(|| {
        let automatic = resolve_auto(variables::DEVICE.value(), adapters)?;
        if automatic.no_usable_gpu {
            report_cpu(&automatic.reason);
        }
        Ok(automatic)
    });
    result.as_ref().map_err(DeviceError::clone)
}

/// The environment variable that suppresses the message on standard error if `auto` becomes the CPU
/// because there is no usable GPU, with the value `1`.
pub const QUIET_VARIABLE: &str = variables::QUIET.name;

static QUIET: AtomicBool = AtomicBool::new(false);

/// Suppresses the message on standard error if `auto` becomes the CPU because there is no usable
/// GPU, or allows it again. For programs with a message of their own: [`Automatic::no_usable_gpu`]
/// says when it is needed.
///
/// ```standalone_crate
/// use burn_wgsl::device::{automatic, set_quiet};
///
/// set_quiet(true);
/// if automatic()?.no_usable_gpu {
///     eprintln!("No GPU: this takes an hour.");
/// }
/// # Ok::<(), burn_wgsl::device::DeviceError>(())
/// ```
pub fn set_quiet(quiet: bool) {
    QUIET.store(quiet, Ordering::Relaxed);
}

/// Reports that `auto` became the CPU because there is no usable GPU.
fn report_cpu(reason: &str) {
    let message = format!("all ops run on the CPU: {reason}; {}", install_hint());
    let is_quiet = || QUIET.load(Ordering::Relaxed) || variables::QUIET.is_on();
    if log::log_enabled!(log::Level::Warn) {
        log::warn!("{message}");
    } else if CAN_BLOCK && !is_quiet() {
        // `eprintln!` panics if standard error is closed.
        let _ = writeln!(
            io::stderr(),
            "burn-wgsl: {message}. To hide this message, set {QUIET_VARIABLE}=1 or select `cpu`."
        );
    }
}

/// Returns the devices for a program that uses several: the device that the environment variable
/// `BURN_WGSL_DEVICE` selects. If it is not set or `auto`, all usable GPUs in rank order, or the
/// CPU if there are none. The first one is the device of `Auto`.
///
/// Burn programs get the same list as the devices of type id 0:
///
/// ```
/// use burn::tensor::backend::{Backend, Device, DeviceId};
/// use burn_wgsl::{Wgsl, WgslDevice};
///
/// let count = Wgsl::device_count(0);
/// let devices = (0..count).map(|index| WgslDevice::from_id(DeviceId::new(0, index as u16)));
/// assert!(devices.eq(burn_wgsl::device::automatic_devices()?));
/// # Ok::<(), burn_wgsl::device::DeviceError>(())
/// ```
///
/// In a browser, the list is `Auto` before [`discover`](super::discover) completes.
///
/// # Errors
///
/// Returns the errors of [`automatic`].
pub fn automatic_devices() -> Result<Vec<WgslDevice>, DeviceError> {
    if !CAN_BLOCK && adapters().is_empty() {
        return Ok(vec![WgslDevice::Auto]);
    }
    Ok(devices_of(automatic()?, adapters))
}

#[cfg(test)]
mod tests {
    use super::super::selectors;
    use super::*;

    #[test]
    fn every_selector_of_this_machine_resolves_to_its_adapter() {
        for index in 0..adapters().len() {
            let selectors = selectors(adapters(), index);
            for selector in &selectors {
                let parsed: WgslDevice =
                    selector.to_string().parse().expect("a listed selector parses");
                let resolved = parsed.resolve().expect("a listed selector resolves");
                assert_eq!(resolved, ResolvedDevice::Adapter(index));
                assert_eq!(selector.canonical(), selectors[0]);
            }
        }
    }

    #[test]
    fn the_cpu_always_resolves() {
        let resolved = WgslDevice::Cpu.resolve().expect("the CPU resolves on every machine");
        assert_eq!(resolved, ResolvedDevice::Cpu);
    }
}
