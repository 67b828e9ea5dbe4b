//! The part of a worker of each batch.

use std::ops::Range;
use std::sync::Arc;

use super::ParallelError;
use crate::train::{LoaderError, Position, Sampler};

/// How the last batch of an epoch, which may have too few items, is divided. All workers take the same number of steps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Rest {
    /// Each worker gets a part of them, some an item more than others. Fewer items than workers are left out.
    #[default]
    Uneven,
    /// They are left out.
    Drop,
    /// Items from the beginning of the epoch fill the batch.
    Pad,
}

/// The part of a worker of the items of a sampler: of each batch of all workers, some items that follow each other.
#[derive(Debug, Clone)]
pub struct Part<S> {
    sampler: S,
    /// The items of each worker in a full batch.
    sizes: Arc<[usize]>,
    rank: usize,
    rest: Rest,
}

/// Divides a batch by shares that add up to 1: each worker gets at least an item.
pub(super) fn divided(batch: usize, shares: &[f64]) -> Result<Vec<usize>, ParallelError> {
    let workers = shares.len();
    if batch < workers {
        return Err(ParallelError::SmallBatch { batch, workers });
    }
    // One each, and the others by share, those left to the largest fractions.
    let others = batch - workers;
    let ideal: Vec<f64> =
        shares.iter().map(|share| (share * batch as f64 - 1.0).max(0.0)).collect();
    let total: f64 = ideal.iter().sum::<f64>().max(f64::MIN_POSITIVE);
    let ideal: Vec<f64> = ideal.iter().map(|part| part / total * others as f64).collect();
    let mut sizes: Vec<usize> = ideal.iter().map(|part| 1 + *part as usize).collect();
    let mut order: Vec<usize> = (0..workers).collect();
    order.sort_by(|&a, &b| ideal[b].fract().total_cmp(&ideal[a].fract()).then(a.cmp(&b)));
    let left = batch.saturating_sub(sizes.iter().sum());
    for &rank in order.iter().cycle().take(left) {
        sizes[rank] += 1;
    }
    Ok(sizes)
}

/// Returns which of some items are a worker's, by shares that add up to 1. A worker may have none.
pub(super) fn range(items: usize, shares: &[f64], rank: usize) -> Range<usize> {
    let until = |rank: usize| match rank == shares.len() {
        true => items,
        false => (shares[..rank].iter().sum::<f64>() * items as f64).round() as usize,
    };
    until(rank)..until(rank + 1)
}

impl<S: Sampler> Part<S> {
    pub(super) fn new(sampler: S, sizes: Vec<usize>, rank: usize, rest: Rest) -> Self {
        Self { sampler, sizes: sizes.into(), rank, rest }
    }

    /// Returns the items of a batch of all workers.
    fn batch(&self) -> usize {
        self.sizes.iter().sum()
    }

    /// Returns which items of a full batch are this worker's.
    fn own(&self) -> Range<usize> {
        let start = self.sizes[..self.rank].iter().sum();
        start..start + self.sizes[self.rank]
    }

    /// Returns which of the last `items` items of an epoch are this worker's.
    fn own_of_rest(&self, items: usize) -> Range<usize> {
        if items < self.sizes.len() {
            return 0..0;
        }
        let workers = self.sizes.len();
        let until = |rank: usize| {
            // Each has one, and the others are divided as those of a batch are.
            let before = self.sizes[..rank].iter().sum::<usize>() - rank;
            rank + (items - workers) * before / (self.batch() - workers)
        };
        until(self.rank)..until(self.rank + 1)
    }

    /// Returns the items of all workers in an epoch.
    fn items_of_all(&self, Position { dataset, epoch, .. }: Position) -> usize {
        let batch = self.batch();
        let items = self.sampler.epoch(dataset, batch, epoch).len();
        let rest = items % batch;
        match self.rest {
            Rest::Uneven if rest >= self.sizes.len() => items,
            Rest::Pad => items.next_multiple_of(batch),
            _ => items - rest,
        }
    }

    /// Returns the position of all workers from that of this one's loader: what the first worker saves.
    pub fn to_all(&self, position: Position) -> Position {
        let (own, batch) = (self.own().len(), self.batch());
        // The rest of an epoch is its last batch.
        let items = position.items.div_ceil(own) * batch;
        let items = items.min(self.items_of_all(position));
        Position { items, batch_size: batch, ..position }
    }

    /// Returns the position of this worker's loader from that of all, also of a run with another number of workers.
    ///
    /// # Errors
    ///
    /// Returns an error if the position has another batch size.
    pub fn of_all(&self, position: Position) -> Result<Position, LoaderError> {
        let (own, batch) = (self.own().len(), self.batch());
        let Position { items, dataset, batch_size, .. } = position;
        if batch_size != batch {
            let (expected, found) = ((dataset, batch), (dataset, batch_size));
            return Err(LoaderError::OtherData { expected, found });
        }
        let rest = match items == self.items_of_all(position) {
            true => self.own_of_rest(items % batch).len(),
            false => 0,
        };
        Ok(Position { items: items / batch * own + rest, batch_size: own, ..position })
    }
}

impl<S: Sampler + Clone> Sampler for Part<S> {
    /// # Panics
    ///
    /// Panics if the loader's batch is not this worker's part of a batch.
    fn epoch(&self, len: usize, batch_size: usize, epoch: u64) -> Vec<usize> {
        let (own, batch) = (self.own(), self.batch());
        assert_eq!(
            batch_size,
            own.len(),
            "the part of worker {} of a batch of {batch} has {} items, and the loader's batch {batch_size}; create \
             the loader with `worker.batch_size({batch})`",
            self.rank,
            own.len()
        );
        let mut order = self.sampler.epoch(len, batch, epoch);
        let rest = order.len() % batch;
        let full = order.len() - rest;
        if self.rest == Rest::Pad && rest > 0 {
            let first: Vec<usize> = order.iter().copied().cycle().take(batch - rest).collect();
            order.extend(first);
        }
        let whole = if self.rest == Rest::Pad { order.len() } else { full };
        let mut items: Vec<usize> =
            order[..whole].chunks(batch).flat_map(|items| &items[own.clone()]).copied().collect();
        if self.rest == Rest::Uneven {
            items.extend_from_slice(&order[full..][self.own_of_rest(rest)]);
        }
        items
    }

    fn part(&self, items: Range<usize>) -> Arc<dyn Sampler> {
        self.sampler.part(items)
    }

    fn items(&self) -> Option<usize> {
        self.sampler.items()
    }

    fn seed(&self) -> u64 {
        self.sampler.seed()
    }

    fn place(&self, place: usize) -> usize {
        let own = self.own();
        place / own.len() * self.batch() + own.start + place % own.len()
    }
}
