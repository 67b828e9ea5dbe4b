//! Strategies for matrix products: what they are called, and which one is chosen.

use std::str::FromStr;
use std::sync::LazyLock;

/// How a product is computed, by name. With the operands it gives a
/// [`Tiling`](super::gemm::Tiling).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Strategy {
    /// Direct, one element per load: takes any strides, compiles fast.
    Scalar,
    /// Direct, four elements per load: 32 rows per subgroup, or 16 per workgroup without subgroups.
    Vec4,
    /// Tiles of 64x64 in workgroup memory.
    Tiled64,
    /// Tiles of 128x128 in workgroup memory.
    Tiled128,
}

/// The sizes of `batch` products `[m, k] x [k, n]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GemmSizes {
    pub batch: usize,
    pub m: usize,
    pub n: usize,
    pub k: usize,
}

impl GemmSizes {
    /// Floating-point operations.
    pub fn work(self) -> u64 {
        2 * (self.batch * self.m) as u64 * (self.n * self.k) as u64
    }
}

/// When a product is split along k into parts that are summed afterwards.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SplitK {
    /// Rows and columns of the tiles that are counted.
    pub tile: usize,
    /// Tiles that keep the device busy: no split from there on.
    pub enough_tiles: usize,
    /// The minimum of k in a part.
    pub min_k: usize,
}

/// `BURN_WGSL_TILING` forces a strategy: `scalar`, `vec4`, `tiled64` or `tiled128`.
static FORCED: LazyLock<Option<Strategy>> = LazyLock::new(|| {
    let name = std::env::var("BURN_WGSL_TILING").ok()?;
    let strategy = name.parse().ok();
    if strategy.is_none() {
        log::warn!(
            "BURN_WGSL_TILING={name:?} is ignored: expected scalar, vec4, tiled64 or tiled128"
        );
    }
    strategy
});

impl Strategy {
    /// Every strategy with its name.
    pub const ALL: [(Self, &'static str); 4] = [
        (Self::Scalar, "scalar"),
        (Self::Vec4, "vec4"),
        (Self::Tiled64, "tiled64"),
        (Self::Tiled128, "tiled128"),
    ];

    /// The name in the environment variable and in tuning files.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(each, _)| *each == self).map_or("", |(_, name)| name)
    }

    /// The strategy that the environment variable forces.
    pub fn forced() -> Option<Self> {
        *FORCED
    }

    /// Whether operands go through workgroup memory.
    pub fn is_tiled(self) -> bool {
        matches!(self, Self::Tiled64 | Self::Tiled128)
    }

    /// Whether operands are read four elements at a time where they can be.
    pub fn prefers_vec4(self) -> bool {
        self != Self::Scalar
    }
}

impl FromStr for Strategy {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        Self::ALL.iter().find(|(_, each)| *each == name).map(|(each, _)| *each).ok_or(())
    }
}
