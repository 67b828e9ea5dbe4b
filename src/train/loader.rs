//! Batches in a fixed order, loaded by threads.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use burn::data::dataloader::batcher::Batcher;
use burn::data::dataloader::{DataLoader, DataLoaderIterator, Progress};
use burn::data::dataset::Dataset;
use burn::data::dataset::transform::PartialDataset;
use burn::tensor::backend::Backend;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use web_time::Instant;

use super::LoaderError;
use super::sampler::{Sampler, Sequential, reset_item_seed, set_item_seed};
use super::workers::Workers;
use crate::device::{WgslDevice, on_thread, use_on_thread};
use crate::runtime::panic_message;

/// How a [`Loader`] loads batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoaderConfig {
    /// Items of a batch. The last batch of an epoch may have fewer.
    pub batch_size: usize,
    /// Threads that load batches [default: 2]. Without any, and always in a browser, batches are loaded when they
    /// are asked for.
    pub workers: usize,
    /// Batches that are loaded ahead [default: 4]. At most two more are alive: the one that a program asks for,
    /// and the one before.
    pub prefetch: usize,
    /// Whether an epoch ends before a batch that would not be full [default: `false`].
    pub drop_last: bool,
    /// The time after which a batch that is not loaded is an error [default: none]. Without workers, it has no effect.
    pub timeout: Option<Duration>,
}

impl LoaderConfig {
    /// Returns the default configuration for batches of `batch_size` items.
    pub fn new(batch_size: usize) -> Self {
        Self { batch_size, workers: 2, prefetch: 4, drop_last: false, timeout: None }
    }
}

/// Where a loader is: what a checkpoint of a run saves. Equal positions of equal data give equal batches.
///
/// ```
/// use burn::data::{dataloader::batcher::Batcher, dataset::InMemDataset};
/// use burn_wgsl::train::{Loader, LoaderConfig, LoaderError, Shuffled};
/// use burn_wgsl::{Wgsl, WgslDevice};
///
/// struct Items;
///
/// impl Batcher<Wgsl, u32, Vec<u32>> for Items {
///     fn batch(&self, items: Vec<u32>, _: &WgslDevice) -> Vec<u32> {
///         items
///     }
/// }
///
/// let loader = || -> Result<Loader<Wgsl, u32, Vec<u32>>, LoaderError> {
///     let data = InMemDataset::new((0..10).collect());
///     Loader::new(data, Items, &WgslDevice::Cpu, LoaderConfig::new(4))?
///         .with_sampler(Shuffled { seed: 1 })
/// };
/// let first = loader()?;
/// first.batches().next().unwrap()?;
/// let position = first.position(); // of a checkpoint
/// let resumed = loader()?;
/// resumed.resume(position)?;
/// assert_eq!(resumed.batches().next().unwrap()?, first.batches().next().unwrap()?);
/// # Ok::<(), LoaderError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// The seed of the sampler.
    pub seed: u64,
    /// The epoch, from 0.
    pub epoch: u64,
    /// Items of the epoch that were returned in batches.
    pub items: usize,
    /// Items of the dataset.
    pub dataset: usize,
    /// Items of a batch.
    pub batch_size: usize,
}

/// Loads batches of a Burn dataset by threads, in the order of a sampler.
///
/// The order of batches does not depend on the number of workers. Each iteration continues at the loader's
/// [`position`](Self::position): usually it is an epoch, and the next iteration is the next epoch. After an iteration
/// that was left early, the next one continues in the same epoch; [`start_epoch`](Self::start_epoch) begins another.
///
/// ```
/// use burn::data::{dataloader::batcher::Batcher, dataset::InMemDataset};
/// use burn::tensor::Tensor;
/// use burn_wgsl::train::{Loader, LoaderConfig, Shuffled};
/// use burn_wgsl::{Wgsl, WgslDevice};
///
/// struct Numbers;
///
/// impl Batcher<Wgsl, f32, Tensor<Wgsl, 1>> for Numbers {
///     fn batch(&self, items: Vec<f32>, device: &WgslDevice) -> Tensor<Wgsl, 1> {
///         Tensor::from_floats(items.as_slice(), device)
///     }
/// }
///
/// let items = InMemDataset::new((0..10).map(|i| i as f32).collect());
/// let loader = Loader::new(items, Numbers, &WgslDevice::default(), LoaderConfig::new(4))?
///     .with_sampler(Shuffled { seed: 1 })?;
/// let sizes: Result<Vec<_>, _> = loader.batches().map(|batch| batch.map(|x| x.dims()[0])).collect();
/// assert_eq!(sizes?, [4, 4, 2]);
/// # Ok::<(), burn_wgsl::train::LoaderError>(())
/// ```
pub struct Loader<B: Backend, I, O> {
    source: Arc<Source<B, I, O>>,
    position: Mutex<Position>,
    /// Whether the next iteration is the first after [`resume`](Self::resume).
    is_resumed: AtomicBool,
    workers: OnceLock<Workers>,
}

impl<B: Backend, I, O> fmt::Debug for Loader<B, I, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loader")
            .field("config", &self.source.config)
            .field("position", &*self.position.lock())
            .finish_non_exhaustive()
    }
}

/// What workers need to load a batch.
struct Source<B: Backend, I, O> {
    dataset: Arc<dyn Dataset<I>>,
    batcher: Arc<dyn Batcher<B, I, O>>,
    sampler: Arc<dyn Sampler>,
    device: B::Device,
    /// The default device of the thread that created the loader.
    default: Option<WgslDevice>,
    config: LoaderConfig,
}

impl<B: Backend, I: 'static, O: Send + 'static> Loader<B, I, O> {
    /// Creates a loader that loads the items in the order of the dataset. Workers start with the first batch.
    ///
    /// # Errors
    ///
    /// Returns an error if the batch size is 0, or if the dataset is empty.
    pub fn new(
        dataset: impl Dataset<I> + 'static,
        batcher: impl Batcher<B, I, O> + 'static,
        device: &B::Device,
        config: LoaderConfig,
    ) -> Result<Self, LoaderError> {
        if config.batch_size == 0 {
            return Err(LoaderError::BatchOfNothing);
        }
        if dataset.is_empty() {
            return Err(LoaderError::EmptyDataset);
        }
        Ok(Self::of(Source {
            dataset: Arc::new(dataset),
            batcher: Arc::new(batcher),
            sampler: Arc::new(Sequential),
            device: device.clone(),
            default: on_thread(),
            config,
        }))
    }

    fn of(source: Source<B, I, O>) -> Self {
        let position = Position {
            seed: source.sampler.seed(),
            epoch: 0,
            items: 0,
            dataset: source.dataset.len(),
            batch_size: source.config.batch_size,
        };
        Self {
            source: Arc::new(source),
            position: Mutex::new(position),
            is_resumed: AtomicBool::new(false),
            workers: OnceLock::new(),
        }
    }

    /// Returns a loader of the same items in another order, at the start of epoch 0.
    ///
    /// # Errors
    ///
    /// Returns an error if the sampler is made for another number of items.
    pub fn with_sampler(self, sampler: impl Sampler + 'static) -> Result<Self, LoaderError> {
        let len = self.source.dataset.len();
        match sampler.items() {
            Some(items) if items != len => Err(LoaderError::OtherSampler { items, len }),
            _ => Ok(Self::of(Source { sampler: Arc::new(sampler), ..self.source.copied() })),
        }
    }

    /// Returns the device of the batches.
    pub fn device(&self) -> B::Device {
        self.source.device.clone()
    }

    /// Returns the position after the last batch that an iterator returned.
    pub fn position(&self) -> Position {
        *self.position.lock()
    }

    /// Continues at a position: the next iteration returns the batches after it.
    ///
    /// # Errors
    ///
    /// Returns an error if the position has another seed than the sampler, another batch size or number of items, or
    /// more items than an epoch.
    pub fn resume(&self, position: Position) -> Result<(), LoaderError> {
        let expected = self.source.sampler.seed();
        if position.seed != expected {
            return Err(LoaderError::OtherSeed { expected, found: position.seed });
        }
        let expected = (self.source.dataset.len(), self.source.config.batch_size);
        let found = (position.dataset, position.batch_size);
        if found != expected {
            return Err(LoaderError::OtherData { expected, found });
        }
        let items = self.source.order(position.epoch).len();
        if position.items > items {
            return Err(LoaderError::BeyondEnd { items, found: position.items });
        }
        *self.position.lock() = position;
        self.is_resumed.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Continues at the start of an epoch.
    pub fn start_epoch(&self, epoch: u64) {
        let mut position = self.position.lock();
        (position.epoch, position.items) = (epoch, 0);
    }

    /// Returns the batches of the epoch from the position on, or the error that ends them.
    pub fn batches(&self) -> Batches<'_, B, I, O> {
        self.is_resumed.store(false, Ordering::Relaxed);
        let Position { mut epoch, mut items, .. } = self.position();
        let mut order = self.source.order(epoch);
        if items > 0 && items >= order.len() {
            // The last batch was returned, and the end was not asked for.
            (epoch, items) = (epoch + 1, 0);
            order = self.source.order(epoch);
        }
        let (sender, results) = channel();
        Batches {
            loader: self,
            order: order.into(),
            epoch,
            returned: items,
            requested: items,
            sender,
            results,
            early: BTreeMap::new(),
            alive: Arc::new(()),
            has_ended: false,
        }
    }

    /// Returns the workers, which it starts at first; `None` if there are none.
    fn workers(&self) -> Result<Option<&Workers>, LoaderError> {
        let count = if cfg!(target_family = "wasm") { 0 } else { self.source.config.workers };
        if count == 0 {
            return Ok(None);
        }
        if self.workers.get().is_none() {
            // Another thread may have been faster; these then end.
            let _ = self.workers.set(Workers::start(count)?);
        }
        Ok(self.workers.get())
    }
}

impl<B: Backend, I: 'static, O: 'static> Source<B, I, O> {
    /// Returns a source of the same items.
    fn copied(&self) -> Self {
        Self {
            dataset: self.dataset.clone(),
            batcher: self.batcher.clone(),
            sampler: self.sampler.clone(),
            device: self.device.clone(),
            default: self.default,
            config: self.config,
        }
    }

    /// Returns the items of an epoch that are in batches.
    fn order(&self, epoch: u64) -> Vec<usize> {
        let batch_size = self.config.batch_size;
        let mut order = self.sampler.epoch(self.dataset.len(), batch_size, epoch);
        if self.config.drop_last {
            order.truncate(order.len() - order.len() % batch_size);
        }
        order
    }

    /// Loads the batch of these items, the first of which has this place in the epoch.
    fn load(&self, items: &[usize], epoch: u64, place: usize) -> Result<O, LoaderError> {
        let seed = self.sampler.seed();
        let load = || {
            let _default = self.default.and_then(|device| use_on_thread(device).ok());
            let mut loaded = Vec::with_capacity(items.len());
            for (place, &item) in (place..).zip(items) {
                set_item_seed(seed, epoch, self.sampler.place(place));
                let found = self.dataset.get(item);
                let len = self.dataset.len();
                loaded.push(found.ok_or(LoaderError::NoItem { item, len })?);
            }
            set_item_seed(seed, epoch, self.sampler.place(place));
            Ok(self.batcher.batch(loaded, &self.device))
        };
        let result = catch_unwind(AssertUnwindSafe(load));
        reset_item_seed();
        result.unwrap_or_else(|panic| {
            let (items, message) = (items.to_vec(), panic_message(&*panic));
            Err(LoaderError::Panicked { items, epoch, message })
        })
    }
}

/// A batch, or why it was not loaded, with the place of its first item.
type Loaded<O> = (usize, Result<O, LoaderError>);

/// The batches of an epoch: see [`Loader::batches`].
pub struct Batches<'a, B: Backend, I, O> {
    loader: &'a Loader<B, I, O>,
    order: Arc<[usize]>,
    epoch: u64,
    /// Items of the batches that were returned.
    returned: usize,
    /// Items of the batches that workers were asked for.
    requested: usize,
    sender: Sender<Loaded<O>>,
    results: Receiver<Loaded<O>>,
    /// Batches that came before their turn, by the place of their first item.
    early: BTreeMap<usize, Result<O, LoaderError>>,
    /// Workers skip the batches of an iterator that is gone.
    alive: Arc<()>,
    has_ended: bool,
}

impl<B: Backend, I: 'static, O: Send + 'static> Batches<'_, B, I, O> {
    fn config(&self) -> LoaderConfig {
        self.loader.source.config
    }

    /// Returns the end of the batch that begins at a place.
    fn end_of(&self, place: usize) -> usize {
        self.order.len().min(place.saturating_add(self.config().batch_size))
    }

    /// Asks workers for batches, of which at most `prefetch` are not returned yet.
    fn request(&mut self, workers: &Workers) {
        let ahead = self.config().prefetch.max(1).saturating_mul(self.config().batch_size);
        let end = self.order.len().min(self.returned.saturating_add(ahead));
        while self.requested < end {
            let (place, end) = (self.requested, self.end_of(self.requested));
            let (source, order) = (self.loader.source.clone(), self.order.clone());
            let (sender, epoch) = (self.sender.clone(), self.epoch);
            let alive = Arc::downgrade(&self.alive);
            workers.run(move || {
                if alive.strong_count() > 0 {
                    let _ = sender.send((place, source.load(&order[place..end], epoch, place)));
                }
            });
            self.requested = end;
        }
    }

    /// Waits for the batch whose first item has this place.
    fn wait_for(&mut self, place: usize) -> Result<O, LoaderError> {
        let timeout = self.config().timeout;
        let start = Instant::now();
        loop {
            if let Some(batch) = self.early.remove(&place) {
                return batch;
            }
            // This end of the channel has a sender, so that only the time can end.
            let received = match timeout {
                Some(timeout) => self.results.recv_timeout(timeout.saturating_sub(start.elapsed())),
                None => self.results.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            let Ok((found, batch)) = received else {
                let items = self.order[place..self.end_of(place)].to_vec();
                let timeout = timeout.unwrap_or_default();
                return Err(LoaderError::TimedOut { items, epoch: self.epoch, timeout });
            };
            self.early.insert(found, batch);
        }
    }

    fn load_next(&mut self) -> Result<O, LoaderError> {
        let (place, end) = (self.returned, self.end_of(self.returned));
        let loader = self.loader;
        let batch = match loader.workers()? {
            Some(workers) => {
                self.request(workers);
                let batch = self.wait_for(place)?;
                self.returned = end;
                // Workers load the next batches while the program uses this one.
                self.request(workers);
                batch
            }
            None => loader.source.load(&self.order[place..end], self.epoch, place)?,
        };
        self.returned = end;
        let mut position = loader.position.lock();
        (position.epoch, position.items) = (self.epoch, end);
        Ok(batch)
    }
}

impl<B: Backend, I: 'static, O: Send + 'static> Iterator for Batches<'_, B, I, O> {
    type Item = Result<O, LoaderError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_ended {
            return None;
        }
        if self.returned >= self.order.len() {
            self.has_ended = true;
            self.loader.start_epoch(self.epoch + 1);
            return None;
        }
        let batch = self.load_next();
        self.has_ended = batch.is_err();
        Some(batch)
    }
}

/// [`Batches`] as Burn's iterator, which has no errors.
struct PanickingBatches<'a, B: Backend, I, O>(Batches<'a, B, I, O>);

impl<B: Backend, I: 'static, O: Send + 'static> Iterator for PanickingBatches<'_, B, I, O> {
    type Item = O;

    fn next(&mut self) -> Option<O> {
        self.0.next().map(|batch| batch.unwrap_or_else(|error| panic!("{error}")))
    }
}

impl<B: Backend, I: 'static, O: Send + 'static> DataLoaderIterator<O>
    for PanickingBatches<'_, B, I, O>
{
    fn progress(&self) -> Progress {
        Progress::new(self.0.returned, self.0.order.len())
    }
}

/// Batches that cannot be loaded are panics with the message of the [`LoaderError`].
impl<B: Backend, I: Send + Sync + Clone + 'static, O: Send + 'static> DataLoader<B, O>
    for Loader<B, I, O>
{
    /// Begins an epoch, as Burn's loaders do: after an iteration that was left early, the next one. Only after
    /// [`resume`](Loader::resume), it continues within an epoch.
    fn iter<'a>(&'a self) -> Box<dyn DataLoaderIterator<O> + 'a> {
        let position = self.position();
        if position.items > 0 && !self.is_resumed.load(Ordering::Relaxed) {
            self.start_epoch(position.epoch + 1);
        }
        Box::new(PanickingBatches(self.batches()))
    }

    fn num_items(&self) -> usize {
        self.source.order(self.position().epoch).len()
    }

    fn to_device(&self, device: &B::Device) -> Arc<dyn DataLoader<B, O>> {
        let loader = Self::of(Source { device: device.clone(), ..self.source.copied() });
        *loader.position.lock() = self.position();
        let is_resumed = self.is_resumed.load(Ordering::Relaxed);
        loader.is_resumed.store(is_resumed, Ordering::Relaxed);
        Arc::new(loader)
    }

    /// Returns a loader of a part of the dataset. `start` and `end` count the items of an epoch, of which a sampler may
    /// draw more or fewer than the dataset has.
    fn slice(&self, start: usize, end: usize) -> Arc<dyn DataLoader<B, O>> {
        let (len, items) = (self.source.dataset.len(), self.num_items().max(1));
        let of_dataset =
            |place: usize| (place.min(items) as u128 * len as u128 / items as u128) as usize;
        let end = of_dataset(end);
        let start = of_dataset(start).min(end);
        let dataset = PartialDataset::new(self.source.dataset.clone(), start, end);
        Arc::new(Self::of(Source {
            dataset: Arc::new(dataset),
            sampler: self.source.sampler.part(start..end),
            ..self.source.copied()
        }))
    }
}
