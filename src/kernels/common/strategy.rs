//! Strategies for matrix products: their names, and the one that the environment forces.

use std::str::FromStr;
use std::sync::LazyLock;

/// A way to compute a product. With the operands, it determines the
/// [`Tiling`](super::gemm::Tiling).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Strategy {
    /// Direct, one element per load: supports any strides and compiles fast.
    Scalar,
    /// Direct, four elements per load: 32 rows per subgroup, or 16 per workgroup without subgroups.
    Vec4,
    /// Tiles of 64x64 in workgroup memory.
    Tiled64,
    /// Tiles of 128x128 in workgroup memory.
    Tiled128,
    /// Direct, several products per workgroup: for small products on GPUs.
    Small,
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
    /// Returns the number of floating-point operations.
    pub fn work(self) -> u64 {
        2 * (self.batch * self.m) as u64 * (self.n * self.k) as u64
    }
}

/// The thresholds of split-K: k is split if the output has too few tiles to keep the device busy.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SplitK {
    /// Rows and columns of a counted tile.
    pub tile: usize,
    /// Number of tiles that keeps the device busy. From there on, k is not split.
    pub enough_tiles: usize,
    /// Minimum length of a split.
    pub min_k: usize,
}

/// The strategy that `BURN_WGSL_TILING` forces: `scalar`, `vec4`, `tiled64` or `tiled128`.
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
    /// Every strategy that can be forced, with its name. [`Self::Small`] depends on the sizes only.
    pub const ALL: [(Self, &'static str); 4] = [
        (Self::Scalar, "scalar"),
        (Self::Vec4, "vec4"),
        (Self::Tiled64, "tiled64"),
        (Self::Tiled128, "tiled128"),
    ];

    /// Returns the name in the environment variable and in tuning files.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(each, _)| *each == self).map_or("", |(_, name)| name)
    }

    /// Returns the strategy that `BURN_WGSL_TILING` forces.
    pub fn forced() -> Option<Self> {
        *FORCED
    }

    /// Returns whether operands are loaded through workgroup memory.
    pub fn is_tiled(self) -> bool {
        matches!(self, Self::Tiled64 | Self::Tiled128)
    }

    /// Returns whether operands are read in vec4s if their layouts allow it.
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
