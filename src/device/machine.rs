//! From a device's word to a place on this machine.

use std::env::{self, VarError};
use std::str::FromStr;
use std::sync::OnceLock;

use super::resolve::{locate, parse, resolve_auto};
use super::{
    Automatic, CAN_BLOCK, DEVICE_VARIABLE, DeviceError, ResolvedDevice, WgslDevice, adapters,
    install_hint, selectors,
};

impl WgslDevice {
    /// Where this device is.
    ///
    /// What `Auto` means is found out once per process. Where it means the CPU because there is no
    /// GPU, a warning says so, also once.
    ///
    /// # Errors
    ///
    /// When there is no such device, or, for `Auto`, when `BURN_WGSL_DEVICE` is set to something
    /// that cannot be had. The error lists what is there.
    pub fn resolve(&self) -> Result<ResolvedDevice, DeviceError> {
        match self {
            Self::Cpu => Ok(ResolvedDevice::Cpu),
            Self::Auto => Ok(automatic()?.place),
            device => locate(*device, adapters()),
        }
    }
}

impl WgslDevice {
    /// The preferred word for this device, never `Auto`; the device itself where it is not there.
    pub fn preferred(self) -> Self {
        match self {
            Self::Cpu | Self::Software | Self::Gpu(_) => self,
            device => match device.resolve() {
                Ok(ResolvedDevice::Cpu) => Self::Cpu,
                Ok(ResolvedDevice::Adapter(index)) => {
                    let selectors = selectors(adapters(), index);
                    selectors.first().copied().unwrap_or(self)
                }
                Err(_) => self,
            },
        }
    }

    /// The device in words: the adapter's name, kind and API, or `CPU`.
    ///
    /// # Errors
    ///
    /// As [`WgslDevice::resolve`].
    pub fn describe(&self) -> Result<String, DeviceError> {
        Ok(match self.resolve()? {
            ResolvedDevice::Cpu => "CPU".to_owned(),
            ResolvedDevice::Adapter(index) => {
                let info = &adapters()[index].info;
                format!("{} [{}, {}]", info.name, info.kind, info.api)
            }
        })
    }
}

impl FromStr for WgslDevice {
    type Err = DeviceError;

    /// Reads a word for a device, one of [`ACCEPTED_SELECTORS`](super::ACCEPTED_SELECTORS).
    ///
    /// `name:` looks through the adapters at once; any other word is not checked against what is
    /// there before [`WgslDevice::resolve`].
    fn from_str(text: &str) -> Result<Self, DeviceError> {
        parse(text, adapters)
    }
}

/// What [`WgslDevice::Auto`] means in this process, and why.
///
/// # Errors
///
/// When `BURN_WGSL_DEVICE` is set to something that is no word for a device, or is not there.
pub fn automatic() -> Result<&'static Automatic, DeviceError> {
    static AUTOMATIC: OnceLock<Result<Automatic, DeviceError>> = OnceLock::new();
    static BEFORE_LOOKING: OnceLock<Result<Automatic, DeviceError>> = OnceLock::new();
    // In a browser this may be asked before the adapter is known.
    let early = !CAN_BLOCK && adapters().is_empty();
    let automatic = if early { &BEFORE_LOOKING } else { &AUTOMATIC };
    let automatic = automatic.get_or_init(|| {
        let automatic = resolve_auto(environment(), adapters)?;
        if automatic.no_gpu_found {
            let reason = &automatic.reason;
            log::warn!("everything runs on the CPU: {reason}; {}", install_hint());
        }
        Ok(automatic)
    });
    automatic.as_ref().map_err(DeviceError::clone)
}

fn environment() -> Option<String> {
    match env::var(DEVICE_VARIABLE) {
        Ok(value) => Some(value),
        Err(VarError::NotPresent) => None,
        // No word has such letters, so this becomes the error for an unknown one.
        Err(VarError::NotUnicode(value)) => Some(value.to_string_lossy().into_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adapters_of_this_machine_are_where_their_words_say() {
        for index in 0..adapters().len() {
            for word in crate::device::selectors(adapters(), index) {
                let read: WgslDevice = word.to_string().parse().expect("its own word is read");
                assert_eq!(read.resolve().expect("it is there"), ResolvedDevice::Adapter(index));
                let preferred = crate::device::selectors(adapters(), index)[0];
                assert_eq!(word.preferred(), preferred);
            }
        }
    }

    #[test]
    fn the_cpu_is_always_there() {
        assert_eq!(WgslDevice::Cpu.resolve().expect("it is"), ResolvedDevice::Cpu);
    }
}
