//! `train::Loader`: the order of batches, what is alive, errors, and positions.

use std::collections::{BTreeSet, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use burn::data::dataloader::DataLoader;
use burn::data::dataloader::batcher::Batcher;
use burn::data::dataset::{Dataset, InMemDataset};
use burn::tensor::{Int, Tensor};
use burn_wgsl::train::{
    Bucketed, Loader, LoaderConfig, LoaderError, Position, Shuffled, Weighted, item_seed,
};
use burn_wgsl::{Wgsl, WgslDevice};

use crate::common::{devices, panic_message};

/// Batches of the items themselves, and of their seeds.
#[derive(Clone, Default)]
struct Items;

type Batch = Vec<(usize, u64)>;

impl Batcher<Wgsl, (usize, u64), Batch> for Items {
    fn batch(&self, items: Batch, _: &WgslDevice) -> Batch {
        items
    }
}

/// Items that take different times, so that workers end in another order.
struct Slow(usize);

impl Dataset<(usize, u64)> for Slow {
    fn get(&self, index: usize) -> Option<(usize, u64)> {
        thread::sleep(Duration::from_micros((index * 7919 % 13) as u64 * 100));
        Some((index, item_seed()))
    }

    fn len(&self) -> usize {
        self.0
    }
}

fn config(batch_size: usize, workers: usize) -> LoaderConfig {
    LoaderConfig { workers, ..LoaderConfig::new(batch_size) }
}

fn loader(workers: usize) -> Loader<Wgsl, (usize, u64), Batch> {
    let loader = Loader::new(Slow(50), Items, &WgslDevice::Cpu, config(4, workers));
    let loader = loader.expect("it is valid").with_sampler(Shuffled { seed: 3 });
    loader.expect("it takes any number of items")
}

fn epoch(loader: &Loader<Wgsl, (usize, u64), Batch>) -> Vec<Batch> {
    loader.batches().collect::<Result<_, _>>().expect("every batch is loaded")
}

#[test]
fn batches_do_not_depend_on_the_workers() {
    let expected = loader(0);
    let expected = [epoch(&expected), epoch(&expected)];
    assert_eq!(expected[0].len(), 13);
    assert_eq!(expected[0][12].len(), 2);
    assert_ne!(expected[0], expected[1]);
    let items: BTreeSet<usize> = expected[0].iter().flatten().map(|item| item.0).collect();
    assert_eq!(items, (0..50).collect());
    let seeds: HashSet<u64> = expected.iter().flatten().flatten().map(|item| item.1).collect();
    assert_eq!(seeds.len(), 100, "each item has a seed of its own in each epoch");
    for workers in [0, 1, 2, 4] {
        for _ in 0..10 {
            let loader = loader(workers);
            assert_eq!([epoch(&loader), epoch(&loader)], expected, "{workers} workers");
        }
    }
    assert_eq!(item_seed(), 0);
}

#[test]
fn batches_of_tensors_are_the_same_on_every_device() {
    struct Squares;
    impl Batcher<Wgsl, i32, Tensor<Wgsl, 1, Int>> for Squares {
        fn batch(&self, items: Vec<i32>, device: &WgslDevice) -> Tensor<Wgsl, 1, Int> {
            Tensor::from_ints(items.as_slice(), device).powi_scalar(2)
        }
    }
    for device in devices() {
        let dataset = InMemDataset::new((0..10).collect());
        let loader = Loader::new(dataset, Squares, &device, config(4, 2)).expect("it is valid");
        let found: Vec<Vec<i32>> = loader
            .batches()
            .map(|batch| batch.expect("it is loaded").into_data().iter().collect())
            .collect();
        let expected = [vec![0, 1, 4, 9], vec![16, 25, 36, 49], vec![64, 81]];
        assert_eq!(found, expected, "on {device}");
    }
}

/// Counts what is alive.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

struct Counting {
    alive: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
    threads: Arc<Mutex<HashSet<thread::ThreadId>>>,
}

impl Batcher<Wgsl, (usize, u64), Counted> for Counting {
    fn batch(&self, _: Batch, _: &WgslDevice) -> Counted {
        let alive = self.alive.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(alive, Ordering::SeqCst);
        self.threads.lock().expect("no test panics").insert(thread::current().id());
        Counted(self.alive.clone())
    }
}

#[test]
fn few_batches_are_alive_and_workers_live_on() {
    let (alive, most, threads) = <(Arc<AtomicUsize>, Arc<AtomicUsize>, Arc<Mutex<_>>)>::default();
    let counting = Counting { alive: alive.clone(), most: most.clone(), threads: threads.clone() };
    let config = LoaderConfig { prefetch: 3, ..config(2, 2) };
    let loader = Loader::new(Slow(60), counting, &WgslDevice::Cpu, config).expect("it is valid");
    for _ in 0..3 {
        let mut last = None;
        for batch in loader.batches() {
            // As a training loop, which has a batch while it asks for the next.
            thread::sleep(Duration::from_millis(2));
            last = Some(batch.expect("it is loaded"));
        }
        drop(last);
    }
    // Left early: what workers still load for this iteration is dropped.
    drop(loader.batches().next());
    let most = most.load(Ordering::SeqCst);
    assert!((2..=5).contains(&most), "{most} batches were alive");
    assert_eq!(threads.lock().expect("no test panics").len(), 2);
    while alive.load(Ordering::SeqCst) > 0 {
        thread::yield_now();
    }
}

/// Panics at item 6, and has no item 9.
struct Broken;

impl Dataset<(usize, u64)> for Broken {
    fn get(&self, index: usize) -> Option<(usize, u64)> {
        assert!(index != 6, "the file of item {index} is damaged");
        (index != 9).then_some((index, 0))
    }

    fn len(&self) -> usize {
        12
    }
}

#[test]
fn a_worker_that_panics_is_an_error_after_the_batches_before_it() {
    for workers in [0, 2] {
        let loader = Loader::new(Broken, Items, &WgslDevice::Cpu, config(2, workers));
        let loader = loader.expect("it is valid");
        let mut batches = loader.batches();
        for first in [0, 2, 4] {
            let batch = batches.next().expect("it is in the epoch").expect("it is loaded");
            assert_eq!(batch[0].0, first);
        }
        let error = batches.next().expect("it is in the epoch").expect_err("item 6 panics");
        assert!(matches!(&error, LoaderError::Panicked { items, .. } if *items == [6, 7]));
        assert!(error.to_string().contains("the file of item 6 is damaged"), "{error}");
        assert!(batches.next().is_none());
        // The position is before the batch: the next iteration tries it again.
        let position = loader.position();
        assert_eq!((position.epoch, position.items), (0, 6));
        let position = Position { items: 8, ..position };
        loader.resume(position).expect("it is in the epoch");
        let error = loader.batches().next().expect("it is in the epoch").expect_err("no item 9");
        assert_eq!(error, LoaderError::NoItem { item: 9, len: 12 });
        loader.resume(position).expect("it is in the epoch");
        let message = panic_message(std::panic::AssertUnwindSafe(|| {
            drop(DataLoader::<Wgsl, Batch>::iter(&loader).next());
        }));
        assert!(message.contains("has no item 9"), "{message}");
        loader.start_epoch(4);
        assert_eq!(loader.position().epoch, 4);
    }
}

#[test]
fn a_worker_that_hangs_is_an_error() {
    struct Hanging;
    impl Dataset<(usize, u64)> for Hanging {
        fn get(&self, index: usize) -> Option<(usize, u64)> {
            if index == 2 {
                thread::sleep(Duration::from_secs(3600));
            }
            Some((index, 0))
        }

        fn len(&self) -> usize {
            8
        }
    }
    let config = LoaderConfig { timeout: Some(Duration::from_secs(1)), ..config(2, 2) };
    let loader = Loader::new(Hanging, Items, &WgslDevice::Cpu, config).expect("it is valid");
    let mut batches = loader.batches();
    assert!(batches.next().is_some_and(|batch| batch.is_ok()));
    let error = batches.next().expect("it is in the epoch").expect_err("the worker sleeps");
    assert_eq!(
        error,
        LoaderError::TimedOut { items: vec![2, 3], epoch: 0, timeout: Duration::from_secs(1) }
    );
}

#[test]
fn a_position_continues_where_it_was_saved() {
    for workers in [0, 3] {
        let whole = loader(workers);
        let expected: Vec<Batch> = [epoch(&whole), epoch(&whole)].concat();
        for read in [0, 1, 7, 13, 15] {
            let first = loader(workers);
            let mut found: Vec<Batch> = Vec::new();
            while found.len() < read {
                let batches = first.batches().take(read - found.len());
                found.extend(batches.map(|batch| batch.expect("it is loaded")));
            }
            // As a file: the position is JSON.
            let saved = serde_json::to_string(&first.position()).expect("it is plain data");
            drop(first);
            let second = loader(workers);
            let position = serde_json::from_str(&saved).expect("it is a position");
            second.resume(position).expect("it is the same order");
            while found.len() < expected.len() {
                found.extend(epoch(&second));
            }
            assert_eq!(found, expected, "after {read} batches, {workers} workers");
        }
    }
    let loader = loader(0);
    let position = loader.position();
    let other = loader.resume(Position { seed: 4, ..position });
    assert_eq!(other, Err(LoaderError::OtherSeed { expected: 3, found: 4 }));
    let beyond = loader.resume(Position { items: 51, ..position });
    assert_eq!(beyond, Err(LoaderError::BeyondEnd { items: 50, found: 51 }));
    let other = loader.resume(Position { dataset: 49, ..position });
    assert_eq!(other, Err(LoaderError::OtherData { expected: (50, 4), found: (49, 4) }));
    assert_eq!(loader.position(), position);
    // After the last batch, but before the end of the iteration: the next epoch.
    loader.resume(Position { items: 50, ..position }).expect("it is in the epoch");
    assert_eq!(epoch(&loader).len(), 13);
    assert_eq!(loader.position().epoch, 2);
}

#[test]
fn loaders_are_those_of_burn() {
    let loader: Arc<dyn DataLoader<Wgsl, Batch>> = Arc::new(loader(2));
    assert_eq!(loader.num_items(), 50);
    let mut batches = loader.iter();
    assert!(batches.next().is_some());
    let progress = batches.progress();
    assert_eq!((progress.items_processed, progress.items_total), (4, 50));
    drop(batches);
    let moved = loader.to_device(&WgslDevice::Cpu);
    let items: usize = moved.iter().map(|batch| batch.len()).sum();
    assert_eq!(items, 50, "an iteration that was left early is not continued");
    let resumed = self::loader(1);
    resumed.resume(Position { items: 8, ..resumed.position() }).expect("it is in the epoch");
    let resumed: Arc<dyn DataLoader<Wgsl, Batch>> = Arc::new(resumed);
    let items: usize = resumed.iter().map(|batch| batch.len()).sum();
    assert_eq!(items, 42);
    let parts = [loader.slice(0, 20), loader.slice(20, 50)];
    let items = |part: &Arc<dyn DataLoader<Wgsl, Batch>>| {
        part.iter().flatten().map(|item| item.0).collect::<BTreeSet<usize>>()
    };
    assert_eq!(items(&parts[0]), (0..20).collect());
    assert_eq!(items(&parts[1]), (20..50).collect());
}

#[test]
fn other_samplers_fill_batches_too() {
    let with = |drop_last| {
        let config = LoaderConfig { drop_last, ..config(8, 2) };
        Loader::new(Slow(20), Items, &WgslDevice::Cpu, config).expect("it is valid")
    };
    let sizes = |loader: Loader<Wgsl, (usize, u64), Batch>| {
        epoch(&loader).iter().map(Vec::len).collect::<Vec<_>>()
    };
    assert_eq!(sizes(with(false)), [8, 8, 4]);
    assert_eq!(sizes(with(true)), [8, 8]);
    let bucketed = with(false).with_sampler(Bucketed::new(vec![1; 20], 1));
    assert_eq!(sizes(bucketed.expect("there are 20 lengths")), [8, 8, 4]);
    let other = with(false).with_sampler(Bucketed::new(vec![1; 19], 1)).err();
    assert_eq!(other, Some(LoaderError::OtherSampler { items: 19, len: 20 }));
    let weights: Vec<f64> = (0..20).map(|item| f64::from(u8::from(item == 7))).collect();
    let loader = with(false).with_sampler(Weighted::new(weights, 16, 1));
    let loader = loader.expect("there are 20 weights");
    assert!(epoch(&loader).iter().flatten().all(|item| item.0 == 7));
}

/// Burn divides a loader by the items of an epoch, which are not those of the dataset.
#[test]
fn parts_by_the_items_of_an_epoch_have_the_whole_dataset() {
    let whole = || {
        let config = LoaderConfig { drop_last: true, ..config(8, 0) };
        Loader::new(Slow(20), Items, &WgslDevice::Cpu, config).expect("it is valid")
    };
    for draws in [10, 40] {
        let loader = whole().with_sampler(Weighted::new(vec![1.0; 20], draws, 1));
        let loader = loader.expect("there are 20 weights");
        let items = loader.num_items();
        let halves = [loader.slice(0, items / 2), loader.slice(items / 2, items)];
        let drawn = halves.map(|half| half.iter().flatten().map(|item| item.0).collect::<Vec<_>>());
        let of = |half: &[usize], range: std::ops::Range<usize>| {
            half.iter().all(|item| range.contains(item))
        };
        assert!(of(&drawn[0], 0..10) && of(&drawn[1], 10..20), "{drawn:?}");
        assert_eq!(drawn.map(|half| half.len()), [draws / 2 / 8 * 8; 2]);
    }
    // Of 16 items in batches, the last four of the dataset belong to the second half.
    let loader = whole();
    assert_eq!(loader.num_items(), 16);
    let second = loader.slice(8, 16);
    let drawn: Vec<usize> = second.iter().flatten().map(|item| item.0).collect();
    assert_eq!(drawn, (10..18).collect::<Vec<_>>());
}

#[test]
fn what_cannot_be_loaded_is_refused() {
    let of = |len, batch_size| {
        Loader::<Wgsl, _, _>::new(Slow(len), Items, &WgslDevice::Cpu, config(batch_size, 1)).err()
    };
    assert_eq!(of(5, 0), Some(LoaderError::BatchOfNothing));
    assert_eq!(of(0, 4), Some(LoaderError::EmptyDataset));
    assert_eq!(of(5, 4), None);
}
