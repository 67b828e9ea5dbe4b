//! Strategies for matrix products: their names, and the one that the environment forces.

use std::str::FromStr;
use std::sync::LazyLock;

use crate::device::Units;
use crate::variables;

/// A way to compute a product. With the operands, it determines the
/// [`Tiling`](crate::kernels::gemm::Tiling).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Strategy {
    /// Direct, one element per load: supports any strides and compiles fast.
    Scalar,
    /// Direct, four elements per load: 32 rows of four columns per invocation, or 16 rows of up to 16 columns
    /// without subgroups.
    Vec4,
    /// Tiles of 64x64 in workgroup memory.
    Tiled64,
    /// Tiles of 64x128 in workgroup memory.
    Tiled64x128,
    /// Tiles of 128x128 in workgroup memory.
    Tiled128,
    /// Direct, several products per workgroup: for small products on GPUs.
    Small,
}

/// The part of a product that a workgroup computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Tile {
    pub rows: u32,
    pub cols: u32,
}

impl Tile {
    /// The smallest tile.
    pub const SMALLEST: Self = Self { rows: 64, cols: 64 };
    /// Every tile.
    pub const ALL: [Self; 3] =
        [Self::SMALLEST, Self { rows: 64, cols: 128 }, Self { rows: 128, cols: 128 }];

    /// Returns whether the sums of the tile are not too many for units: a subgroup holds at most 4 x 4 matrices of a
    /// quarter of the tile.
    pub fn is_held_by(self, units: Units) -> bool {
        self.rows.max(self.cols) <= 2 * 4 * units.size
    }
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

/// The strategy that `BURN_WGSL_TILING` forces, by its name.
static FORCED: LazyLock<Option<Strategy>> =
    LazyLock::new(|| variables::TILING.parse(|name| name.parse().ok()));

impl Strategy {
    /// Every strategy that can be forced, with its name. [`Self::Small`] depends on the sizes only.
    pub const ALL: [(Self, &'static str); 5] = [
        (Self::Scalar, "scalar"),
        (Self::Vec4, "vec4"),
        (Self::Tiled64, "tiled64"),
        (Self::Tiled64x128, "tiled64x128"),
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

    /// Returns the tile that a workgroup computes from operands in workgroup memory; `None` for other strategies.
    pub fn tile(self) -> Option<Tile> {
        let [small, wide, large] = Tile::ALL;
        match self {
            Self::Tiled64 => Some(small),
            Self::Tiled64x128 => Some(wide),
            Self::Tiled128 => Some(large),
            Self::Scalar | Self::Vec4 | Self::Small => None,
        }
    }

    /// Returns the index of [`Self::tile`] in [`Tile::ALL`]; 0 for strategies without a tile.
    pub fn tile_index(self) -> usize {
        let tile = self.tile().unwrap_or(Tile::SMALLEST);
        Tile::ALL.iter().position(|each| *each == tile).unwrap_or_default()
    }

    /// Returns whether operands are loaded through workgroup memory.
    pub fn is_tiled(self) -> bool {
        self.tile().is_some()
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
