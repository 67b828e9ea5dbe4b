//! The tiles of a product on a GPU, and the splits of its k: those for which the busiest processor is estimated to take
//! the fewest clocks.
//!
//! A GPU hands out workgroups to its processors until all are done. Fewer and larger tiles read operands less often; but
//! if their number is just above a multiple of the number of processors, most of them wait for the last workgroups. Splits
//! of k make the workgroups more and shorter, and their sums take another pass over memory.

use super::strategy::{GemmSizes, Strategy, Tile};

/// Multiply-adds of a processor per clock: 128 lanes on AMD's and NVIDIA's GPUs, and on Apple's.
const LANES: f64 = 128.0;
/// Bytes that a processor reads per clock from workgroup memory.
const WORKGROUP_BYTES: f64 = 128.0;
/// Bytes that a processor's share of memory delivers per clock: 4 to 15 on the same GPUs.
const MEMORY_BYTES: f64 = 6.0;
/// The largest share of multiply-adds among the instructions of a loop (`benches/gpus`).
const MAX_SHARE: f64 = 0.85;
/// Clocks from the end of a launch until the next one has filled the GPU.
const LAUNCH: f64 = 5000.0;
/// The shortest split of k.
const MIN_SPLIT: usize = 256;
/// The most workgroups per processor for which k is split. More keep it busy without.
const MAX_ROUNDS: usize = 4;

/// The division of a product among workgroups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Division {
    pub strategy: Strategy,
    pub splits: usize,
}

impl Division {
    /// Returns the fastest division for a number of processors, by one of these strategies.
    pub fn fastest(processors: usize, sizes: GemmSizes, strategies: &[Strategy]) -> Option<Self> {
        let processors = processors.max(1);
        let mut fastest = None;
        let mut least = f64::INFINITY;
        for &strategy in strategies {
            let tile = strategy.tile().unwrap_or(Tile::SMALLEST);
            let tiles = tiles(sizes, tile);
            let max_splits = (sizes.k / MIN_SPLIT).max(1);
            // As many splits as fit in a number of rounds.
            let splits = (1..=MAX_ROUNDS).map(|rounds| rounds * processors / tiles.max(1));
            for splits in splits.map(|splits| splits.clamp(1, max_splits)) {
                let clocks = clocks(processors, sizes, tile, splits);
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

/// Estimates the clocks of a product.
fn clocks(processors: usize, sizes: GemmSizes, tile: Tile, splits: usize) -> f64 {
    let GemmSizes { batch, m, n, k } = sizes;
    let rounds = (tiles(sizes, tile) * splits).div_ceil(processors) as f64;
    let [rows, cols] = [tile.rows, tile.cols].map(f64::from);
    // An invocation multiplies 4 x 4 elements for every 64 x 64 of a tile, which it reads from workgroup memory.
    let bytes_per_multiply_add = 4.0 * 16.0 * (rows + cols) / (rows * cols);
    let share = (WORKGROUP_BYTES / bytes_per_multiply_add / LANES).min(MAX_SHARE);
    let per_workgroup = rows * cols * k.div_ceil(splits) as f64 / (LANES * share);
    // A workgroup alone on a processor waits for its loads.
    let product = (rounds + 0.5) * per_workgroup;
    if splits == 1 {
        return product;
    }
    // Every split is written, and read again.
    let bytes = (2 * 4 * splits * batch * m * n) as f64;
    product + LAUNCH + bytes / (processors as f64 * MEMORY_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TILED: [Strategy; 3] = [Strategy::Tiled64, Strategy::Tiled64x128, Strategy::Tiled128];

    fn fastest(processors: usize, [m, n, k]: [usize; 3]) -> (Strategy, usize) {
        let sizes = GemmSizes { batch: 1, m, n, k };
        let Division { strategy, splits } =
            Division::fastest(processors, sizes, &TILED).expect("there are strategies");
        (strategy, splits)
    }

    #[test]
    fn large_products_have_large_tiles_and_no_splits() {
        for processors in [8, 46, 96, 132] {
            assert_eq!(fastest(processors, [4096, 4096, 4096]), (Strategy::Tiled128, 1));
        }
    }

    #[test]
    fn splits_fill_the_processors() {
        // 16 tiles of 64 x 64, or 4 of 128 x 128, of which 24 splits are 96.
        let (strategy, splits) = fastest(96, [256, 256, 65536]);
        let workgroups = splits
            * tiles(GemmSizes { batch: 1, m: 256, n: 256, k: 1 }, strategy.tile().expect("tiled"));
        assert_eq!(workgroups % 96, 0, "{strategy:?} {splits}");
        // Half of 96 processors have a tile: twice as many workgroups.
        assert!(fastest(96, [768, 256, 4096]).1 > 1);
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
