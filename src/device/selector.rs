//! The device type and the words that name it.

use std::fmt;

/// Where tensors live and ops run.
///
/// Written and read (`Display`, `FromStr`) in the words of [`ACCEPTED_SELECTORS`]. A value says what is
/// wanted, not what is there: whether it is there shows in [`WgslDevice::resolve`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum WgslDevice {
    /// What the environment variable `BURN_WGSL_DEVICE` names; without it the best GPU (discrete
    /// before integrated before virtual), and the CPU where there is none.
    #[default]
    Auto,
    /// The n-th GPU in rank order, software adapters not counted.
    Gpu(usize),
    /// The n-th discrete GPU in rank order.
    Discrete(usize),
    /// The n-th integrated GPU in rank order.
    Integrated(usize),
    /// The n-th virtual GPU in rank order.
    Virtual(usize),
    /// A software adapter (lavapipe, SwiftShader, WARP). Never chosen unless asked for.
    Software,
    /// No GPU: every op runs on the CPU, and no graphics driver is touched.
    Cpu,
}

/// The words that name a device, for help texts and errors.
pub const ACCEPTED_SELECTORS: &str = "auto, cpu, gpu or gpu:N, discrete:N, integrated:N, virtual:N, \
     software, name:TEXT (TEXT is a part of the adapter's name)";

impl WgslDevice {
    /// A stable pair of numbers for this device: its type and its index within the type.
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
        }
    }

    /// The device of a pair made by [`Self::to_code`]; a type that is none of them gives `Auto`.
    pub fn from_code((kind, index): (u16, u32)) -> Self {
        let n = index as usize;
        match kind {
            1 => Self::Gpu(n),
            2 => Self::Discrete(n),
            3 => Self::Integrated(n),
            4 => Self::Virtual(n),
            5 => Self::Software,
            6 => Self::Cpu,
            _ => Self::Auto,
        }
    }
}

impl fmt::Display for WgslDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Through `pad`, so that a caller's column width is kept.
        match self {
            Self::Auto => f.pad("auto"),
            Self::Gpu(n) => f.pad(&format!("gpu:{n}")),
            Self::Discrete(n) => f.pad(&format!("discrete:{n}")),
            Self::Integrated(n) => f.pad(&format!("integrated:{n}")),
            Self::Virtual(n) => f.pad(&format!("virtual:{n}")),
            Self::Software => f.pad("software"),
            Self::Cpu => f.pad("cpu"),
        }
    }
}

/// What a text says, before it is known which adapters are there.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Selector {
    /// A device by its own word.
    Device(WgslDevice),
    /// A part of an adapter's name, in lower case.
    Name(String),
}

/// Reads a word; `None` when it is not one.
pub(super) fn read(text: &str) -> Option<Selector> {
    let text = text.trim().to_lowercase();
    let (word, rest) = match text.split_once(':') {
        Some((word, rest)) => (word, Some(rest)),
        None => (text.as_str(), None),
    };
    let numbered = |device: fn(usize) -> WgslDevice| match rest {
        None => Some(device(0)),
        Some(digits) => digits.parse().ok().map(device),
    };
    let plain = |device: WgslDevice| rest.is_none().then_some(device);
    let device = match word {
        "auto" => plain(WgslDevice::Auto),
        "cpu" => plain(WgslDevice::Cpu),
        "software" => plain(WgslDevice::Software),
        "gpu" => numbered(WgslDevice::Gpu),
        "discrete" => numbered(WgslDevice::Discrete),
        "integrated" => numbered(WgslDevice::Integrated),
        "virtual" => numbered(WgslDevice::Virtual),
        "name" => {
            let name = rest.unwrap_or_default().trim();
            return (!name.is_empty()).then(|| Selector::Name(name.to_owned()));
        }
        _ => None,
    };
    device.map(Selector::Device)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY: [WgslDevice; 8] = [
        WgslDevice::Auto,
        WgslDevice::Gpu(0),
        WgslDevice::Gpu(7),
        WgslDevice::Discrete(1),
        WgslDevice::Integrated(0),
        WgslDevice::Virtual(2),
        WgslDevice::Software,
        WgslDevice::Cpu,
    ];

    #[test]
    fn what_is_written_can_be_read() {
        for device in EVERY {
            assert_eq!(read(&device.to_string()), Some(Selector::Device(device)));
        }
    }

    #[test]
    fn codes_lead_back_to_their_device() {
        for device in EVERY {
            assert_eq!(WgslDevice::from_code(device.to_code()), device);
        }
        assert_eq!(WgslDevice::from_code((999, 3)), WgslDevice::Auto);
    }

    #[test]
    fn words_forgive_case_spaces_and_a_missing_number() {
        assert_eq!(read(" GPU "), Some(Selector::Device(WgslDevice::Gpu(0))));
        assert_eq!(read("Discrete"), Some(Selector::Device(WgslDevice::Discrete(0))));
        assert_eq!(read("name: Radeon"), Some(Selector::Name("radeon".into())));
    }

    #[test]
    fn anything_else_is_refused() {
        for text in ["", "fpga", "gpu:", "gpu:x", "gpu:-1", "cpu:0", "name", "name: "] {
            assert_eq!(read(text), None, "{text:?}");
        }
    }
}
