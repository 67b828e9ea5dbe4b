//! The order of a dataset's items in an epoch.

use std::cell::Cell;
use std::ops::Range;
use std::sync::Arc;

/// The order of items. It depends on nothing but the sampler's fields and the epoch, so that it can be repeated on any
/// platform, with any number of workers.
pub trait Sampler: Send + Sync {
    /// Returns the items of an epoch of a dataset of `len` items, in order; `len` is [`items`](Self::items), if there
    /// are. Each index is below `len`; an item may be left out or be there more than once. A batch has `batch_size`
    /// items that follow each other.
    fn epoch(&self, len: usize, batch_size: usize, epoch: u64) -> Vec<usize>;

    /// Returns the sampler of a part of the items, whose first has the index 0.
    fn part(&self, items: Range<usize>) -> Arc<dyn Sampler>;

    /// Returns the number of items that the sampler is made for; `None` if it is any.
    fn items(&self) -> Option<usize> {
        None
    }

    /// Returns the place, among the items of all workers of [`parallel`](crate::parallel), of an item in the order of
    /// this sampler: [`item_seed`] is derived from it. The places of the rest of an epoch differ from each other, but
    /// depend on the number of workers.
    fn place(&self, place: usize) -> usize {
        place
    }

    /// Returns the seed from which [`item_seed`] is derived.
    fn seed(&self) -> u64 {
        0
    }
}

/// The order of the dataset.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sequential;

/// A random order, another in each epoch.
#[derive(Debug, Clone, Copy)]
pub struct Shuffled {
    /// Equal seeds give equal orders.
    pub seed: u64,
}

/// Items drawn with replacement, in proportion to weights.
///
/// ```
/// use burn_wgsl::train::{Sampler, Weighted};
///
/// // The third of three items, three times as often as the second.
/// let sampler = Weighted::new(vec![0.0, 1.0, 3.0], 100, 7);
/// let epoch = sampler.epoch(3, 4, 0);
/// assert_eq!(epoch.len(), 100);
/// assert!(epoch.iter().all(|&item| item > 0));
/// ```
#[derive(Debug, Clone)]
pub struct Weighted {
    seed: u64,
    draws: usize,
    weights: Arc<[f64]>,
}

/// Batches of items of similar length, in random order: padding wastes less. The lengths are in any unit.
///
/// ```
/// use burn_wgsl::train::{Bucketed, Sampler};
///
/// let lengths = [3, 50, 4, 60];
/// let order = Bucketed::new(lengths, 7).epoch(4, 2, 0);
/// // The two short ones are a batch, and the two long ones.
/// assert_eq!(lengths[order[0]] < 10, lengths[order[1]] < 10);
/// ```
#[derive(Debug, Clone)]
pub struct Bucketed {
    seed: u64,
    lengths: Arc<[usize]>,
}

impl Weighted {
    /// Creates a sampler that draws `draws` items in an epoch.
    ///
    /// # Panics
    ///
    /// Panics if a weight is negative or not finite, or if all are 0.
    pub fn new(weights: impl Into<Arc<[f64]>>, draws: usize, seed: u64) -> Self {
        let weights = weights.into();
        let wrong = weights.iter().position(|weight| !(weight.is_finite() && *weight >= 0.0));
        if let Some(item) = wrong {
            panic!("the weight of item {item} is {}; it must be 0 or more", weights[item]);
        }
        assert!(
            weights.iter().any(|weight| *weight > 0.0),
            "none of {} weights is above 0, so that no item can be drawn",
            weights.len()
        );
        Self { seed, draws, weights }
    }
}

impl Bucketed {
    /// Creates a sampler for items of these lengths.
    pub fn new(lengths: impl Into<Arc<[usize]>>, seed: u64) -> Self {
        Self { seed, lengths: lengths.into() }
    }
}

impl Sampler for Sequential {
    fn epoch(&self, len: usize, _: usize, _: u64) -> Vec<usize> {
        (0..len).collect()
    }

    fn part(&self, _: Range<usize>) -> Arc<dyn Sampler> {
        Arc::new(*self)
    }
}

impl Sampler for Shuffled {
    fn epoch(&self, len: usize, _: usize, epoch: u64) -> Vec<usize> {
        let mut items: Vec<usize> = (0..len).collect();
        Random::new(&[self.seed, epoch]).shuffle(&mut items);
        items
    }

    fn part(&self, items: Range<usize>) -> Arc<dyn Sampler> {
        Arc::new(Self { seed: mix(self.seed ^ items.start as u64) })
    }

    fn seed(&self) -> u64 {
        self.seed
    }
}

impl Sampler for Weighted {
    fn epoch(&self, len: usize, _: usize, epoch: u64) -> Vec<usize> {
        let mut total = 0.0;
        let ends: Vec<f64> = self.weights[..len]
            .iter()
            .map(|weight| {
                total += weight;
                total
            })
            .collect();
        if total == 0.0 {
            return Vec::new();
        }
        let mut random = Random::new(&[self.seed, epoch]);
        let mut draw = || {
            let at = random.unit() * total;
            ends.partition_point(|end| *end <= at).min(ends.len() - 1)
        };
        (0..self.draws).map(|_| draw()).collect()
    }

    /// The draws of all parts together are those of the whole.
    fn part(&self, items: Range<usize>) -> Arc<dyn Sampler> {
        let all = self.weights.len().max(1);
        let items = items.start.min(self.weights.len())..items.end.min(self.weights.len());
        let until = |end: usize| (self.draws as u128 * end as u128 / all as u128) as usize;
        let draws = until(items.end) - until(items.start);
        let seed = mix(self.seed ^ items.start as u64);
        Arc::new(Self { seed, draws, weights: self.weights[items].into() })
    }

    fn items(&self) -> Option<usize> {
        Some(self.weights.len())
    }

    fn seed(&self) -> u64 {
        self.seed
    }
}

impl Sampler for Bucketed {
    fn epoch(&self, len: usize, batch_size: usize, epoch: u64) -> Vec<usize> {
        let mut random = Random::new(&[self.seed, epoch]);
        let mut items: Vec<usize> = (0..len).collect();
        // Items of equal length are in random order. So are those of the last batch, which is not full.
        random.shuffle(&mut items);
        let full = items.len() - items.len() % batch_size;
        items[..full].sort_by_key(|item| self.lengths[*item]);
        let mut batches: Vec<&[usize]> = items[..full].chunks(batch_size).collect();
        random.shuffle(&mut batches);
        batches.into_iter().chain([&items[full..]]).flatten().copied().collect()
    }

    fn part(&self, items: Range<usize>) -> Arc<dyn Sampler> {
        let seed = mix(self.seed ^ items.start as u64);
        let items = items.start.min(self.lengths.len())..items.end.min(self.lengths.len());
        Arc::new(Self { seed, lengths: self.lengths[items].into() })
    }

    fn items(&self) -> Option<usize> {
        Some(self.lengths.len())
    }

    fn seed(&self) -> u64 {
        self.seed
    }
}

thread_local! {
    static ITEM_SEED: Cell<u64> = const { Cell::new(0) };
}

/// Returns a seed for random changes of an item, such as augmentation. Within `Dataset::get`, it depends on the
/// sampler's seed, the epoch and the item's place in the epoch; within `Batcher::batch`, on the place of the first
/// item of the batch. It does not depend on the worker that loads the item. Elsewhere, it is 0.
///
/// ```
/// use burn::data::dataset::Dataset;
/// use burn_wgsl::train::item_seed;
///
/// /// Rows, of which each second one on average is mirrored.
/// struct Mirrored(Vec<[u8; 4]>);
///
/// impl Dataset<[u8; 4]> for Mirrored {
///     fn get(&self, index: usize) -> Option<[u8; 4]> {
///         let mut row = *self.0.get(index)?;
///         if item_seed() % 2 == 1 {
///             row.reverse();
///         }
///         Some(row)
///     }
///
///     fn len(&self) -> usize {
///         self.0.len()
///     }
/// }
/// assert_eq!(Mirrored(vec![[1, 2, 3, 4]]).len(), 1);
/// ```
pub fn item_seed() -> u64 {
    ITEM_SEED.get()
}

/// Sets [`item_seed`] on this thread. `place` is the place of the item in the epoch.
pub(super) fn set_item_seed(seed: u64, epoch: u64, place: usize) {
    ITEM_SEED.set(Random::new(&[seed, epoch, place as u64]).next());
}

/// Resets [`item_seed`] on this thread.
pub(super) fn reset_item_seed() {
    ITEM_SEED.set(0);
}

/// The generator SplitMix64 (G. Steele, D. Lea, C. Flood: Fast splittable pseudorandom number generators, 2014). Its
/// numbers, and what is made of them here, are the same on every platform and in every release.
struct Random(u64);

impl Random {
    fn new(seeds: &[u64]) -> Self {
        Self(seeds.iter().fold(0, |state, seed| mix(state ^ mix(*seed))))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// Returns a number of 53 bits in [0, 1).
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns an integer below `end`. The bias is less than `end` / 2^64.
    fn below(&mut self, end: usize) -> usize {
        ((u128::from(self.next()) * end as u128) >> 64) as usize
    }

    /// Shuffles items by Fisher and Yates.
    fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

/// The output function of SplitMix64.
fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_reference() {
        // The first outputs of SplitMix64 for the seed 1234567, as its authors' program prints them.
        let mut random = Random(1_234_567);
        let expected = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973];
        assert_eq!([random.next(), random.next()], expected);
    }

    #[test]
    fn shuffles_have_each_item_once_and_differ_by_epoch_and_seed() {
        let order = |seed, epoch| Shuffled { seed }.epoch(100, 7, epoch);
        let mut sorted = order(1, 0);
        assert_ne!(sorted, order(1, 1));
        assert_ne!(sorted, order(2, 0));
        assert_eq!(sorted, order(1, 0));
        sorted.sort_unstable();
        assert_eq!(sorted, Sequential.epoch(100, 7, 0));
    }

    #[test]
    fn the_order_never_changes() {
        assert_eq!(Shuffled { seed: 7 }.epoch(10, 1, 3), [7, 9, 2, 6, 4, 8, 5, 3, 0, 1]);
    }

    #[test]
    fn draws_follow_the_weights() {
        let sampler = Weighted::new([1.0, 0.0, 3.0], 40_000, 5);
        let drawn = sampler.epoch(3, 1, 0);
        let count = |item| drawn.iter().filter(|drawn| **drawn == item).count();
        assert_eq!((drawn.len(), count(1)), (40_000, 0));
        assert!((9_700..10_300).contains(&count(0)), "{}", count(0));
    }

    #[test]
    fn batches_have_similar_lengths() {
        let lengths: Vec<usize> = (0..103).map(|item| item * 37 % 50).collect();
        let order = Bucketed::new(lengths.clone(), 3).epoch(103, 10, 0);
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..103).collect::<Vec<_>>());
        for batch in order[..100].chunks(10) {
            let lengths = batch.iter().map(|item| lengths[*item]);
            let (least, most) = (lengths.clone().min().unwrap(), lengths.max().unwrap());
            assert!(most - least <= 5, "{least} to {most}");
        }
        assert_ne!(order, Bucketed::new(lengths, 3).epoch(103, 10, 1));
    }

    #[test]
    fn parts_draw_as_often_as_the_whole() {
        let sampler = Weighted::new(vec![1.0; 10], 25, 1);
        let drawn =
            |items: Range<usize>| sampler.part(items.clone()).epoch(items.len(), 1, 0).len();
        assert_eq!(drawn(0..3) + drawn(3..10), 25);
    }

    #[test]
    #[should_panic(expected = "the weight of item 1 is -1")]
    fn negative_weights_are_refused() {
        Weighted::new([1.0, -1.0], 1, 0);
    }
}
