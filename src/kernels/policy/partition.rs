//! The partition of a product on a GPU: the tile of a workgroup, and the splits of k, for which the
//! busiest processor is estimated to take the fewest clocks.
//!
//! A GPU hands out workgroups to its processors until all are done. Fewer and larger tiles read
//! operands less often; but if their number is just above a multiple of the number of processors, most
//! of them wait for the last workgroups. Splits of k make the workgroups more and shorter, and their
//! sums take another pass over memory.

use crate::device::Units;
use crate::kernels::policy::strategy::{GemmSizes, Strategy, Tile};

/// Multiply-adds of f32 of a processor per clock: those of NVIDIA's, Intel's and Apple's GPUs, and AMD's since RDNA 3.
pub(crate) const LANES: f64 = 128.0;
/// Bytes that a processor reads per clock from workgroup memory.
const WORKGROUP_BYTES: f64 = 128.0;
/// The same from the caches that processors share: 5 TB/s of an RX 7900 XTX are 21.
const CACHE_BYTES: f64 = 20.0;
/// The same from memory: 3 to 14 on the GPUs of `benches/ladder/roofline.md`. A low one, since a wrong
/// split costs more than a missed one.
const MEMORY_BYTES: f64 = 3.0;
/// The largest share of multiply-adds among the instructions of a loop (`benches/gpus`).
const MAX_SHARE: f64 = 0.85;
/// Clocks from the end of a launch until the next one has filled the GPU.
const LAUNCH: f64 = 5000.0;
/// The shortest split of k.
const MIN_SPLIT: usize = 256;
/// The most workgroups per processor for which k is split. More keep it busy without.
const MAX_ROUNDS: usize = 4;

/// How fast a GPU multiplies operands of a type.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Throughput {
    /// The number of processors.
    pub processors: usize,
    /// The most multiply-adds of a processor per clock.
    pub per_clock: f64,
    /// The matrix units that multiply, and the bytes of an element.
    pub units: Option<(Units, f64)>,
}

impl Throughput {
    /// Returns the tile of a workgroup: the smallest, if units do not hold that of the strategy.
    fn tile(&self, strategy: Strategy) -> Tile {
        let is_held = |tile: &Tile| self.units.is_none_or(|(units, _)| tile.is_held_by(units));
        strategy.tile().filter(is_held).unwrap_or(Tile::SMALLEST)
    }

    /// Returns the multiply-adds per clock that a processor reaches in a tile.
    fn in_tile(&self, tile: Tile) -> f64 {
        let [rows, cols] = [tile.rows, tile.cols].map(f64::from);
        let lines = (rows + cols) / (rows * cols);
        // Elements of workgroup memory per multiply-add: an invocation computes blocks of 4 x 4, one for every 64 x 64
        // of a tile, and so reads its lines 16 times; a subgroup with units computes a quarter of a tile, which reads
        // them twice, and the tile is stored once.
        let [from_workgroup, from_cache] = match self.units {
            Some((_, bytes)) => [3.0 * bytes, bytes],
            None => [16.0 * 4.0, 4.0],
        };
        let limits = [
            self.per_clock * MAX_SHARE,
            WORKGROUP_BYTES / (from_workgroup * lines),
            CACHE_BYTES / (from_cache * lines),
        ];
        limits.into_iter().fold(f64::INFINITY, f64::min)
    }

    /// Returns how many rounds of workgroups take as long as the loads for which a processor waits:
    /// a workgroup alone on it hides none. Both are estimates. That of units fits one measurement:
    /// products of 1,024 x 1,024 x 1,024 on an H200 take 21 us in tiles of 64 x 64, and 29 in tiles
    /// of 64 x 128, of which a processor has at most one.
    fn exposed_rounds(&self) -> f64 {
        if self.units.is_some() { 1.25 } else { 0.5 }
    }

    /// Estimates the clocks of a product.
    fn clocks(&self, sizes: GemmSizes, tile: Tile, splits: usize) -> f64 {
        let GemmSizes { batch, m, n, k } = sizes;
        let rounds = (tiles(sizes, tile) * splits).div_ceil(self.processors) as f64;
        let work = f64::from(tile.rows * tile.cols) * k.div_ceil(splits) as f64;
        let product = (rounds + self.exposed_rounds()) * work / self.in_tile(tile);
        if splits == 1 {
            return product;
        }
        // Every split is written, and read again.
        let bytes = (2 * 4 * splits * batch * m * n) as f64;
        product + LAUNCH + bytes / (self.processors as f64 * MEMORY_BYTES)
    }
}

/// The partition of a product among workgroups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Partition {
    pub strategy: Strategy,
    pub splits: usize,
}

impl Partition {
    /// Returns the fastest partition by one of these strategies.
    pub fn fastest(
        throughput: Throughput,
        sizes: GemmSizes,
        strategies: &[Strategy],
    ) -> Option<Self> {
        let throughput = Throughput { processors: throughput.processors.max(1), ..throughput };
        let max_splits = (sizes.k / MIN_SPLIT).max(1);
        let mut fastest = None;
        let mut least = f64::INFINITY;
        for &strategy in strategies {
            let tile = throughput.tile(strategy);
            let tiles = tiles(sizes, tile).max(1);
            // One, and as many as fit in a number of rounds.
            let splits = (0..=MAX_ROUNDS).map(|rounds| rounds * throughput.processors / tiles);
            for splits in splits.map(|splits| splits.clamp(1, max_splits)) {
                let clocks = throughput.clocks(sizes, tile, splits);
                if clocks < least {
                    (least, fastest) = (clocks, Some(Self { strategy, splits }));
                }
            }
        }
        fastest
    }
}

/// Returns the number of tiles of a product.
fn tiles(sizes: GemmSizes, tile: Tile) -> usize {
    let GemmSizes { batch, m, n, .. } = sizes;
    batch * m.div_ceil(tile.rows as usize) * n.div_ceil(tile.cols as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TILED: [Strategy; 3] = [Strategy::Tiled64, Strategy::Tiled64x128, Strategy::Tiled128];

    fn fastest_by(throughput: Throughput, [m, n, k]: [usize; 3]) -> (Strategy, usize) {
        let sizes = GemmSizes { batch: 1, m, n, k };
        let Partition { strategy, splits } =
            Partition::fastest(throughput, sizes, &TILED).expect("there are strategies");
        (strategy, splits)
    }

    fn fastest(processors: usize, sizes: [usize; 3]) -> (Strategy, usize) {
        fastest_by(Throughput { processors, per_clock: LANES, units: None }, sizes)
    }

    fn fastest_with_units(processors: usize, size: u32, sizes: [usize; 3]) -> (Strategy, usize) {
        let units = Some((Units { size, subgroup_size: 32 }, 2.0));
        fastest_by(Throughput { processors, per_clock: 1024.0, units }, sizes)
    }

    #[test]
    fn large_products_have_large_tiles_and_no_splits() {
        for processors in [8, 46, 96, 132] {
            assert_eq!(fastest(processors, [4096; 3]), (Strategy::Tiled128, 1));
            // Tiles of 64 x 128 can fill the last round better.
            let (strategy, splits) = fastest_with_units(processors, 16, [4096; 3]);
            assert!(strategy != Strategy::Tiled64 && splits == 1, "{strategy:?} {splits}");
        }
    }

    #[test]
    fn splits_fill_the_processors() {
        // Three splits of 64 tiles are two for each of 96 processors.
        assert_eq!(fastest(96, [1024; 3]), (Strategy::Tiled128, 3));
        // 48 splits of four tiles are two for each.
        assert_eq!(fastest(96, [256, 256, 65536]), (Strategy::Tiled128, 48));
    }

    #[test]
    fn units_leave_less_to_gain_from_splits() {
        // The sums of the splits would take longer than the product saves.
        for (processors, sizes) in
            [(132, [1024; 3]), (132, [512, 2048, 2048]), (96, [1024; 3]), (128, [768, 3072, 768])]
        {
            assert_eq!(fastest_with_units(processors, 16, sizes).1, 1, "{processors} {sizes:?}");
        }
        // One workgroup for each processor is too few.
        assert_eq!(fastest_with_units(132, 16, [1024; 3]).0, Strategy::Tiled64);
        // With units of 8 x 8 every strategy has the smallest tile: the first is taken.
        assert_eq!(fastest_with_units(8, 8, [4096; 3]), (Strategy::Tiled64, 1));
    }

    #[test]
    fn short_products_are_not_split() {
        assert_eq!(fastest(96, [128, 128, 256]).1, 1);
        assert_eq!(fastest(96, [0, 128, 0]).1, 1);
        // Splits are not shorter than MIN_SPLIT.
        assert!(fastest(132, [64, 64, 1024]).1 <= 4);
    }

    #[test]
    fn few_rows_have_low_tiles() {
        let (strategy, _) = fastest(96, [64, 16384, 512]);
        assert_ne!(strategy, Strategy::Tiled128);
    }
}
