//! What the contents of memory depend on: launches of which an index may be outside its axis.

use std::sync::Arc;

use smallvec::SmallVec;

use super::RuntimeError;
use super::sync::Mutex;
use super::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// An axis that the indices of a kernel address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexedAxis {
    /// Its position in the shape of the tensor.
    pub axis: usize,
    /// Its number of elements.
    pub size: usize,
}

/// What is known of up to 64 launches with indices in a row. A bit stands for a launch.
#[derive(Debug)]
struct ReportBatch {
    /// Its number among all of the process: batches of a device are ordered by it.
    number: u64,
    /// The launches whose slots were read.
    known: AtomicU64,
    /// Those of them that had an index outside its axis, or whose slots could not be read.
    failed: AtomicU64,
    /// Those of which the program was given the error.
    returned: AtomicU64,
    errors: Mutex<Vec<(u64, RuntimeError)>>,
}

impl ReportBatch {
    fn new() -> Arc<Self> {
        static BATCHES: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        Arc::new(Self {
            number: BATCHES.fetch_add(1, std::sync::atomic::Ordering::Relaxed),
            known: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            returned: AtomicU64::new(0),
            errors: Mutex::default(),
        })
    }

    /// Notes the outcome of a launch. The first one counts. Returns whether this is the first, and an error.
    fn finish(&self, bit: u64, outcome: Result<(), RuntimeError>) -> bool {
        let mut errors = self.errors.lock();
        if self.known.load(Ordering::Relaxed) & bit != 0 {
            return false;
        }
        let failed = outcome.is_err();
        if let Err(error) = outcome {
            errors.push((bit, error));
            self.failed.fetch_or(bit, Ordering::Release);
        }
        // Last: a launch that is known, and has not failed, is clean.
        self.known.fetch_or(bit, Ordering::Release);
        failed
    }

    /// Returns those of some launches that are not known to be clean.
    fn unclean(&self, bits: u64) -> u64 {
        let known = self.known.load(Ordering::Acquire);
        bits & !(known & !self.failed.load(Ordering::Acquire))
    }

    /// Returns an error of some launches, if one is known.
    fn error(&self, bits: u64) -> Option<RuntimeError> {
        if self.failed.load(Ordering::Acquire) & bits == 0 {
            return None;
        }
        let errors = self.errors.lock();
        errors.iter().find(|(bit, _)| bit & bits != 0).map(|(_, error)| error.clone())
    }

    /// Notes that the program was given the errors of some launches.
    fn set_returned(&self, bits: u64) {
        let failed = self.failed.load(Ordering::Acquire);
        self.returned.fetch_or(bits & failed, Ordering::Relaxed);
    }
}

/// A launch with indices.
#[derive(Debug)]
pub(crate) struct IndexReport {
    batch: Arc<ReportBatch>,
    /// Its bit in the batch.
    bit: u64,
    op: &'static str,
    axes: SmallVec<[IndexedAxis; 2]>,
}

impl IndexReport {
    /// Creates a launch of an op. It is in the batch of `previous`, the launch before it whose slot is copied with its
    /// own, unless that batch is full.
    pub fn new(previous: Option<&Self>, op: &'static str, axes: &[IndexedAxis]) -> Arc<Self> {
        let next = previous.and_then(|launch| Some((&launch.batch, launch.bit.checked_mul(2)?)));
        let (batch, bit) = match next {
            Some((batch, bit)) => (batch.clone(), bit),
            None => (ReportBatch::new(), 1),
        };
        Arc::new(Self { batch, bit, op, axes: axes.into() })
    }

    /// Notes what its slot says. The first outcome counts. Returns whether this is the first, and an error.
    pub fn finish(&self, outcome: Result<(), RuntimeError>) -> bool {
        self.batch.finish(self.bit, outcome)
    }

    /// Returns the error, if the launch is known to have one.
    pub fn error(&self) -> Option<RuntimeError> {
        self.batch.error(self.bit)
    }

    /// Returns whether the program was given the error.
    pub fn is_returned(&self) -> bool {
        self.batch.returned.load(Ordering::Relaxed) & self.bit != 0
    }

    /// Notes that the program was given the error.
    pub fn set_returned(&self) {
        self.batch.set_returned(self.bit);
    }

    /// Returns the error in the words of a slot, if there is one. `device` is the name of the device.
    pub fn read(&self, slot: &[u8], device: &str) -> Result<(), RuntimeError> {
        let (words, _) = slot.as_chunks();
        for (&IndexedAxis { axis, size }, &word) in self.axes.iter().zip(words) {
            // An index outside its axis is not zero.
            let index = i32::from_ne_bytes(word);
            if index != 0 {
                let (device, op) = (device.to_owned(), self.op);
                return Err(RuntimeError::IndexOutOfRange { device, op, index, axis, size });
            }
        }
        Ok(())
    }
}

/// Some launches of a batch.
#[derive(Debug, Clone)]
struct Launches {
    batch: Arc<ReportBatch>,
    bits: u64,
}

/// The launches with indices on which the contents of memory depend, without those that are known to have had none
/// outside. It has as many entries as there are batches whose slots were not read.
#[derive(Debug, Default)]
pub(crate) struct Taint {
    /// Whether the list may have entries. Most memory has none.
    is_set: AtomicBool,
    /// Ordered by the numbers of the batches.
    entries: Mutex<SmallVec<[Launches; 2]>>,
}

impl Taint {
    /// Returns whether there may be launches.
    pub fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Acquire)
    }

    /// Adds a launch.
    pub fn add(&self, report: &IndexReport) {
        self.add_all([Launches { batch: report.batch.clone(), bits: report.bit }]);
    }

    /// Adds all launches of another taint.
    pub fn merge(&self, other: &Taint) {
        if !other.is_set() || std::ptr::eq(self, other) {
            return;
        }
        // Without the other lock while they are added: two taints may be merged with each other.
        let others = {
            let mut others = other.entries.lock();
            retain_unclean(&mut others);
            others.clone()
        };
        self.add_all(others);
    }

    fn add_all(&self, others: impl IntoIterator<Item = Launches>) {
        let mut entries = self.entries.lock();
        for Launches { batch, bits } in others {
            // Most often it is among the last.
            match entries.iter().rposition(|entry| entry.batch.number <= batch.number) {
                Some(at) if entries[at].batch.number == batch.number => entries[at].bits |= bits,
                before => entries.insert(before.map_or(0, |at| at + 1), Launches { batch, bits }),
            }
        }
        self.is_set.store(!entries.is_empty(), Ordering::Release);
    }

    /// Becomes equal to another taint.
    pub fn replace(&self, other: &Taint) {
        if !self.is_set() && !other.is_set() {
            return;
        }
        let others = other.entries.lock().clone();
        let mut entries = self.entries.lock();
        self.is_set.store(!others.is_empty(), Ordering::Release);
        *entries = others;
    }

    /// Returns the error of a launch that had an index outside its axis.
    pub fn check(&self) -> Result<(), RuntimeError> {
        if !self.is_set() {
            return Ok(());
        }
        let mut entries = self.entries.lock();
        retain_unclean(&mut entries);
        self.is_set.store(!entries.is_empty(), Ordering::Release);
        entries.iter().find_map(|entry| entry.batch.error(entry.bits)).map_or(Ok(()), Err)
    }

    /// Notes that the program was given the errors.
    pub fn set_returned(&self) {
        self.entries.lock().iter().for_each(|entry| entry.batch.set_returned(entry.bits));
    }

    /// Returns the number of launches.
    #[cfg(test)]
    pub fn len(&self) -> u32 {
        self.entries.lock().iter().map(|entry| entry.bits.count_ones()).sum()
    }

    /// Returns the number of batches that the list refers to.
    #[cfg(test)]
    pub fn batches(&self) -> usize {
        self.entries.lock().len()
    }
}

/// Removes the launches that are known to be clean.
fn retain_unclean(entries: &mut SmallVec<[Launches; 2]>) {
    entries.retain(|entry| {
        entry.bits = entry.batch.unclean(entry.bits);
        entry.bits != 0
    });
}
