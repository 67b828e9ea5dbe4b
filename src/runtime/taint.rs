//! What the contents of memory depend on: launches of which an index may be outside its axis.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

use smallvec::SmallVec;

use super::RuntimeError;
use super::sync::Mutex;
use super::sync::atomic::{AtomicBool, Ordering};

/// The most launches and groups that a taint lists.
pub(super) const MAX_LISTED: usize = 64;

/// An axis that the indices of a kernel address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexedAxis {
    /// Its position in the shape of the tensor.
    pub axis: usize,
    /// Its number of elements.
    pub size: usize,
}

/// The number of errors so far, in all of the process.
pub(super) static ERRORS: AtomicU64 = AtomicU64::new(0);

/// A launch with indices, or a group of them.
///
/// Groups share launches and other groups: to visit each of them once, they remember what was found.
#[derive(Debug)]
pub(crate) struct IndexReport {
    /// Its number among all of the process.
    pub number: u64,
    op: &'static str,
    axes: SmallVec<[IndexedAxis; 2]>,
    /// The launches and groups of a group.
    group: Vec<Arc<IndexReport>>,
    /// Set when the slot of the launch was read; of a group, when it is known to be clean or to have an error.
    pub outcome: OnceLock<Result<(), RuntimeError>>,
    /// The number of errors when the group was found to have none, plus one.
    searched: AtomicU64,
    /// Whether the program was given the error.
    pub is_returned: AtomicBool,
    /// The number of errors when those of the group were marked as given, plus one.
    returned: AtomicU64,
}

impl IndexReport {
    pub fn new(op: &'static str, axes: &[IndexedAxis]) -> Arc<Self> {
        Self::with_group(op, axes, Vec::new())
    }

    fn with_group(op: &'static str, axes: &[IndexedAxis], group: Vec<Arc<Self>>) -> Arc<Self> {
        static REPORTS: AtomicU64 = AtomicU64::new(0);
        Arc::new(Self {
            number: REPORTS.fetch_add(1, Ordering::Relaxed),
            op,
            axes: axes.into(),
            group,
            outcome: OnceLock::new(),
            searched: AtomicU64::new(0),
            is_returned: AtomicBool::new(false),
            returned: AtomicU64::new(0),
        })
    }

    /// Returns the error, if the launch is known to have one.
    pub fn error(&self) -> Option<RuntimeError> {
        if let Some(outcome) = self.outcome.get() {
            return outcome.as_ref().err().cloned();
        }
        if self.group.is_empty() {
            return None;
        }
        let errors = ERRORS.load(Ordering::Acquire) + 1;
        if self.searched.load(Ordering::Acquire) == errors {
            return None;
        }
        let error = self.group.iter().find_map(|report| report.error());
        match &error {
            Some(error) => drop(self.outcome.set(Err(error.clone()))),
            None => self.searched.store(errors, Ordering::Release),
        }
        error
    }

    fn is_clean(&self) -> bool {
        if let Some(outcome) = self.outcome.get() {
            return outcome.is_ok();
        }
        // The latest are the last to be read.
        let is_clean = !self.group.is_empty() && self.group.iter().rev().all(|r| r.is_clean());
        if is_clean {
            let _ = self.outcome.set(Ok(()));
        }
        is_clean
    }

    /// Notes that the program was given the errors.
    pub fn set_returned(&self) {
        self.is_returned.store(true, Ordering::Relaxed);
        let errors = ERRORS.load(Ordering::Acquire) + 1;
        if !self.group.is_empty() && self.returned.swap(errors, Ordering::AcqRel) != errors {
            let failed = self.group.iter().filter(|report| report.error().is_some());
            failed.for_each(|report| report.set_returned());
        }
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

/// The launches with indices on which the contents of memory depend, without those that are known to have had none
/// outside.
#[derive(Debug, Default)]
pub(crate) struct Taint {
    /// Whether the list may have entries. Most memory has none.
    is_set: AtomicBool,
    /// Ordered by their numbers.
    pub reports: Mutex<SmallVec<[Arc<IndexReport>; 2]>>,
}

impl Taint {
    /// Returns whether there may be launches.
    pub fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Acquire)
    }

    /// Adds a launch.
    pub fn add(&self, report: &Arc<IndexReport>) {
        self.add_all(std::slice::from_ref(report));
    }

    /// Adds all launches of another taint.
    pub fn merge(&self, other: &Taint) {
        if !other.is_set() || std::ptr::eq(self, other) {
            return;
        }
        let others = {
            let mut others = other.reports.lock();
            others.retain(|report| !report.is_clean());
            others.clone()
        };
        // Without the other lock: two taints may be merged with each other.
        self.add_all(&others);
    }

    /// Adds launches, ordered by their numbers.
    fn add_all(&self, others: &[Arc<IndexReport>]) {
        if others.is_empty() {
            return;
        }
        let mut reports = self.reports.lock();
        let mut merged = SmallVec::with_capacity(reports.len() + others.len());
        let (mut own, mut others) = (reports.drain(..).peekable(), others.iter().peekable());
        while let Some(other) = others.peek() {
            match own.next_if(|report| report.number <= other.number) {
                Some(report) => {
                    others.next_if(|other| other.number == report.number);
                    merged.push(report);
                }
                None => merged.extend(others.next().cloned()),
            }
        }
        merged.extend(own);
        if merged.len() > MAX_LISTED {
            // A chain of launches, each of which would copy the list of those before. Two lists may be almost as long
            // as one may be.
            let oldest = merged.drain(..merged.len() - MAX_LISTED / 2).collect();
            merged.push(IndexReport::with_group("", &[], oldest));
        }
        *reports = merged;
        self.is_set.store(true, Ordering::Release);
    }

    /// Becomes equal to another taint.
    pub fn replace(&self, other: &Taint) {
        if !self.is_set() && !other.is_set() {
            return;
        }
        let others = other.reports.lock().clone();
        let mut reports = self.reports.lock();
        self.is_set.store(!others.is_empty(), Ordering::Release);
        *reports = others;
    }

    /// Returns the error of a launch that had an index outside its axis.
    pub fn check(&self) -> Result<(), RuntimeError> {
        if !self.is_set() {
            return Ok(());
        }
        let mut reports = self.reports.lock();
        reports.retain(|report| !report.is_clean());
        self.is_set.store(!reports.is_empty(), Ordering::Release);
        reports.iter().find_map(|report| report.error()).map_or(Ok(()), Err)
    }

    /// Notes that the program was given the errors.
    pub fn set_returned(&self) {
        let reports = self.reports.lock();
        reports.iter().filter(|report| report.error().is_some()).for_each(|r| r.set_returned());
    }
}
