//! The device type and its text form, the device selector.

use std::fmt;

use crate::variables;

/// The environment variable that sets the device of [`WgslDevice::Auto`].
///
/// Its value is a device selector. An empty value is the same as an unset variable.
pub const DEVICE_VARIABLE: &str = variables::DEVICE.name;

/// The device on which tensors are stored and ops run.
///
/// `Display` and `FromStr` use the selectors of [`ACCEPTED_SELECTORS`]. A value is a request: the
/// device may not exist. [`WgslDevice::resolve`] checks that it does.
///
/// Several selectors can select one device: `Auto` and `Discrete(0)` may both be `Gpu(0)`. They are equal, and have the
/// same hash: [`WgslDevice::canonical`] returns the one that tensors on the device report.
///
/// ```
/// use burn_wgsl::WgslDevice;
///
/// let device: WgslDevice = "cpu".parse()?; // gpu:0, discrete:1, name:radeon, software
/// assert_eq!(device, WgslDevice::Cpu);
/// // The device that `auto` stands for.
/// println!("{}", WgslDevice::default().canonical());
/// # Ok::<(), burn_wgsl::device::DeviceError>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub enum WgslDevice {
    /// The device that the environment variable `BURN_WGSL_DEVICE` selects. If it is not set, the
    /// first usable GPU in rank order (discrete, integrated, virtual, unknown kind), or else the
    /// CPU.
    #[default]
    Auto,
    /// The n-th GPU in rank order, from 0, without software adapters.
    Gpu(usize),
    /// The n-th discrete GPU in rank order.
    Discrete(usize),
    /// The n-th integrated GPU in rank order.
    Integrated(usize),
    /// The n-th virtual GPU in rank order.
    Virtual(usize),
    /// The first software adapter (lavapipe, SwiftShader, WARP). Never selected automatically.
    Software,
    /// The n-th device that the program opened itself and handed in: see [`interop`](crate::interop).
    Host(usize),
    /// The CPU: all ops run on the CPU, and no graphics driver is loaded.
    Cpu,
}

/// The accepted device selectors, for help texts and errors.
pub const ACCEPTED_SELECTORS: &str = "auto, cpu, gpu or gpu:N, discrete:N, integrated:N, \
     virtual:N, software, name:TEXT (TEXT is part of an adapter's name)";

impl WgslDevice {
    /// Returns a stable code for this device: its type and its index within the type. Type 0 is
    /// `Auto`.
    pub fn to_code(self) -> (u16, u32) {
        let index = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        match self {
            Self::Auto => (0, 0),
            Self::Gpu(n) => (1, index(n)),
            Self::Discrete(n) => (2, index(n)),
            Self::Integrated(n) => (3, index(n)),
            Self::Virtual(n) => (4, index(n)),
            Self::Software => (5, 0),
            Self::Cpu => (6, 0),
            Self::Host(n) => (7, index(n)),
        }
    }

    /// Returns the device of a code from [`Self::to_code`], or `Auto` if the type is unknown.
    pub fn from_code((type_id, index): (u16, u32)) -> Self {
        let n = index as usize;
        match type_id {
            1 => Self::Gpu(n),
            2 => Self::Discrete(n),
            3 => Self::Integrated(n),
            4 => Self::Virtual(n),
            5 => Self::Software,
            6 => Self::Cpu,
            7 => Self::Host(n),
            _ => Self::Auto,
        }
    }
}

impl fmt::Display for WgslDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // `pad` applies the caller's width.
        match self {
            Self::Auto => f.pad("auto"),
            Self::Gpu(n) => f.pad(&format!("gpu:{n}")),
            Self::Discrete(n) => f.pad(&format!("discrete:{n}")),
            Self::Integrated(n) => f.pad(&format!("integrated:{n}")),
            Self::Virtual(n) => f.pad(&format!("virtual:{n}")),
            Self::Software => f.pad("software"),
            Self::Host(n) => f.pad(&format!("host:{n}")),
            Self::Cpu => f.pad("cpu"),
        }
    }
}

/// A parsed device selector, not yet matched against the adapters.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Selector {
    /// A selector that does not depend on the adapters.
    Device(WgslDevice),
    /// Part of an adapter's name, in lower case.
    Name(String),
}

/// Parses a device selector. Returns `None` if the text is not one.
pub(super) fn parse_selector(text: &str) -> Option<Selector> {
    let text = text.trim().to_ascii_lowercase();
    let (keyword, argument) = match text.split_once(':') {
        Some((keyword, argument)) => (keyword, Some(argument)),
        None => (text.as_str(), None),
    };
    let indexed = |device: fn(usize) -> WgslDevice| match argument {
        None => Some(device(0)),
        Some(index) => index.parse().ok().map(device),
    };
    let plain = |device: WgslDevice| argument.is_none().then_some(device);
    let device = match keyword {
        "auto" => plain(WgslDevice::Auto),
        "cpu" => plain(WgslDevice::Cpu),
        "software" => plain(WgslDevice::Software),
        "gpu" => indexed(WgslDevice::Gpu),
        "discrete" => indexed(WgslDevice::Discrete),
        "integrated" => indexed(WgslDevice::Integrated),
        "virtual" => indexed(WgslDevice::Virtual),
        // Not among the accepted selectors: only the program knows them.
        "host" => indexed(WgslDevice::Host),
        "name" => {
            let name = argument.unwrap_or_default().trim();
            return (!name.is_empty()).then(|| Selector::Name(name.to_owned()));
        }
        _ => None,
    };
    device.map(Selector::Device)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEVICES: [WgslDevice; 9] = [
        WgslDevice::Auto,
        WgslDevice::Gpu(0),
        WgslDevice::Gpu(7),
        WgslDevice::Discrete(1),
        WgslDevice::Integrated(0),
        WgslDevice::Virtual(2),
        WgslDevice::Host(1),
        WgslDevice::Software,
        WgslDevice::Cpu,
    ];

    #[test]
    fn display_and_parse_round_trip() {
        for device in DEVICES {
            assert_eq!(parse_selector(&device.to_string()), Some(Selector::Device(device)));
        }
    }

    #[test]
    fn codes_round_trip() {
        for device in DEVICES {
            assert_eq!(WgslDevice::from_code(device.to_code()), device);
        }
        assert_eq!(WgslDevice::from_code((999, 3)), WgslDevice::Auto);
    }

    #[test]
    fn parsing_accepts_any_case_spaces_and_a_missing_index() {
        assert_eq!(parse_selector(" GPU "), Some(Selector::Device(WgslDevice::Gpu(0))));
        assert_eq!(parse_selector("Discrete"), Some(Selector::Device(WgslDevice::Discrete(0))));
        assert_eq!(parse_selector("name: Radeon"), Some(Selector::Name("radeon".into())));
    }

    #[test]
    fn parsing_rejects_invalid_selectors() {
        for text in ["", "fpga", "gpu:", "gpu:x", "gpu:-1", "cpu:0", "name", "name: "] {
            assert_eq!(parse_selector(text), None, "{text:?}");
        }
    }
}
