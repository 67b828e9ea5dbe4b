//! The adapters on which programs run with the layer.

use std::fmt;

/// A Vulkan adapter that programs run on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Adapter {
    /// Mesa's software adapter.
    Lavapipe,
    /// A GPU of AMD that is not there. Results are zeros.
    Pretended,
}

impl Adapter {
    pub const ALL: [Self; 2] = [Self::Lavapipe, Self::Pretended];

    /// Returns the selector of the adapter's device.
    pub fn selector(self) -> &'static str {
        match self {
            Self::Lavapipe => "software",
            Self::Pretended => "gpu:0",
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Lavapipe => "lavapipe",
            Self::Pretended => "navi31",
        }
    }
}

impl fmt::Display for Adapter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
