//! Reports of kernels: indices that are outside their axis.
//!
//! A kernel cannot panic. Each launch with indices has a slot in the buffer of reports, with a word for each
//! axis that they address. The kernel writes an index outside the axis to the word
//! (`shaders/lib/report.wgsl`); of several, the largest when read as unsigned. A readback copies the slots
//! and clears them, and so does a launch after [`COPIED_TOGETHER`] others.
//!
//! Until then, and for good if an index was outside, the launch is in the [`Taint`](super::taint::Taint) of its
//! results and of all that is computed from them.

use std::sync::Arc;

use super::allocation::Allocation;
use super::error::RuntimeError;
use super::gpu::Buffer;
use super::mapping::Mapping;
use super::origin::current_op;
use super::sync::Mutex;
use super::taint::{IndexReport, IndexedAxis};
use crate::variables;

/// The size of a slot in bytes: the largest alignment of bindings that an adapter requires. It has
/// a word for each axis.
const SLOT_SIZE: u64 = 256;
/// The number of slots. Slot 0 is never read: it takes all reports if they are switched off.
const SLOTS: u64 = 1024;

/// The number of launches after which their slots are copied, if no readback does so before. What is computed from them
/// lists their batches until the slots are read: without a copy, a program that reads nothing for many steps would
/// carry long lists along.
const COPIED_TOGETHER: usize = 512;

/// The most errors that are kept for a program that asks for none.
const MAX_ERRORS: usize = 64;

/// What the results of a launch depend on, if they differ in that: on nothing else, also if they overwrite other
/// memory.
#[derive(Debug, Default)]
pub(crate) struct Flows<'a> {
    /// The memory that each group of results needs, one after the other.
    pub read: Vec<&'a Allocation>,
    /// The memory of each group of results.
    pub written: Vec<&'a Allocation>,
    /// The sizes of both, for each group.
    pub groups: Vec<(usize, usize)>,
}

impl<'a> Flows<'a> {
    /// Adds results and the memory that they need.
    pub fn add(
        &mut self,
        read: impl IntoIterator<Item = &'a Allocation>,
        written: impl IntoIterator<Item = &'a Allocation>,
    ) {
        let (reads, writes) = (self.read.len(), self.written.len());
        self.read.extend(read);
        self.written.extend(written);
        self.groups.push((self.read.len() - reads, self.written.len() - writes));
    }
}

/// The slots of the launches since they were copied last.
pub(crate) struct Reports {
    enabled: bool,
    /// The buffer with the slots, once there is one.
    buffer: Option<Arc<Buffer>>,
    /// The launch of each slot after slot 0.
    launches: Vec<Arc<IndexReport>>,
    /// The number of failures at the last call of [`forget_lost`](Self::forget_lost).
    failures: usize,
}

/// A slot in the buffer of reports.
#[derive(Debug, Clone)]
pub(crate) struct Slot {
    pub buffer: Arc<Buffer>,
    /// Its place in the buffer, in bytes.
    pub offset: u64,
    /// The launch, unless reports are switched off.
    pub report: Option<Arc<IndexReport>>,
}

impl Slot {
    pub const SIZE: u64 = SLOT_SIZE;
}

impl Reports {
    /// The size of the buffer in bytes.
    pub const BUFFER_SIZE: u64 = SLOTS * SLOT_SIZE;

    pub fn new() -> Self {
        let enabled = !variables::INDEX_REPORTS.is_off();
        Self { enabled, buffer: None, launches: Vec::new(), failures: 0 }
    }

    /// Returns whether there is a buffer for the slots.
    pub fn has_buffer(&self) -> bool {
        self.buffer.is_some()
    }

    /// Sets the buffer, of [`BUFFER_SIZE`](Self::BUFFER_SIZE) bytes, unless there is one.
    pub fn set_buffer(&mut self, buffer: Arc<Buffer>) {
        self.buffer.get_or_insert(buffer);
    }

    /// Returns whether all slots are taken.
    pub fn is_full(&self) -> bool {
        self.launches.len() as u64 + 1 >= SLOTS
    }

    /// Returns whether the slots are to be copied before the next launch.
    pub fn is_due(&self) -> bool {
        self.launches.len() >= COPIED_TOGETHER
    }

    /// Returns a slot for a launch of the running op, whose indices address `axes`; `None` if all are taken, or there
    /// is no buffer.
    pub fn slot(&mut self, axes: &[IndexedAxis]) -> Option<Slot> {
        let buffer = self.buffer.clone().filter(|_| !self.is_full())?;
        if !self.enabled || axes.len() as u64 > SLOT_SIZE / 4 {
            return Some(Slot { buffer, offset: 0, report: None });
        }
        let report = IndexReport::new(self.launches.last().map(|last| &**last), current_op(), axes);
        self.launches.push(report.clone());
        let offset = self.launches.len() as u64 * SLOT_SIZE;
        Some(Slot { buffer, offset, report: Some(report) })
    }

    /// Returns the size of the slots of the launches since [`take`](Self::take), in bytes.
    pub fn bytes(&self) -> u64 {
        self.launches.len() as u64 * SLOT_SIZE
    }

    /// Takes the launches since the last call, with the buffer and their range in it. The caller records the copy and
    /// the clearing of their slots at once.
    pub fn take(&mut self) -> Option<(Arc<Buffer>, SlotRange, Vec<Arc<IndexReport>>)> {
        let buffer = self.buffer.clone().filter(|_| !self.launches.is_empty())?;
        let range = SlotRange { start: SLOT_SIZE, bytes: self.bytes() };
        Some((buffer, range, std::mem::take(&mut self.launches)))
    }

    /// Takes back the launches of the last [`take`](Self::take), whose slots were not copied.
    pub fn put_back(&mut self, launches: Vec<Arc<IndexReport>>) {
        debug_assert!(self.launches.is_empty(), "slots are taken under the same lock");
        self.launches = launches;
    }

    /// Forgets the launches whose slots were not copied, if submissions failed since the last call: their results are
    /// lost, and the slots may still have their indices. Returns the buffer then, for the caller to record its
    /// clearing at once.
    pub fn forget_lost(&mut self, failures: usize) -> Option<Arc<Buffer>> {
        if std::mem::replace(&mut self.failures, failures) == failures {
            return None;
        }
        // Their results are errors without an index.
        for launch in self.launches.drain(..) {
            launch.finish(Ok(()));
        }
        self.buffer.clone()
    }
}

/// A range of the buffer of reports, in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SlotRange {
    pub start: u64,
    pub bytes: u64,
}

/// Slots that the device copies to the host.
pub(crate) struct ReportsInFlight<C = HostCopy> {
    pub launches: Vec<Arc<IndexReport>>,
    /// The serial number of the submission that copies them.
    pub serial: u64,
    pub copy: C,
}

/// A copy of slots in memory of the host. Schedules have one without a device.
pub(crate) trait SlotCopy {
    fn is_mapped(&self) -> bool;
    /// Calls `read` with the bytes of a mapped copy, and unmaps it.
    fn read(&self, read: impl FnOnce(&[u8])) -> Result<(), String>;
    /// Frees a copy that is not used again.
    fn destroy(&self);
}

/// The first bytes of a buffer.
pub(crate) struct HostCopy {
    pub buffer: wgpu::Buffer,
    pub bytes: u64,
    pub mapping: Mapping,
}

impl SlotCopy for HostCopy {
    fn is_mapped(&self) -> bool {
        self.mapping.is_complete()
    }

    fn read(&self, read: impl FnOnce(&[u8])) -> Result<(), String> {
        let view = self.buffer.get_mapped_range(..self.bytes).map_err(|error| error.to_string())?;
        read(&view);
        drop(view);
        self.buffer.unmap();
        Ok(())
    }

    fn destroy(&self) {
        self.buffer.destroy();
    }
}

/// The copied slots that were not read yet, and the errors that the program was not given.
pub(crate) struct Outcomes<C = HostCopy> {
    in_flight: Mutex<Vec<ReportsInFlight<C>>>,
    errors: Mutex<Vec<Arc<IndexReport>>>,
}

impl<C> Default for Outcomes<C> {
    fn default() -> Self {
        Self { in_flight: Mutex::default(), errors: Mutex::default() }
    }
}

impl Outcomes {
    /// Returns the mappings of the copies by submissions before `end`.
    pub fn mappings(&self, end: u64) -> Vec<Mapping> {
        let in_flight = self.in_flight.lock();
        let copies = in_flight.iter().filter(|copied| copied.serial < end);
        copies.map(|copied| copied.copy.mapping.clone()).collect()
    }
}

impl<C: SlotCopy> Outcomes<C> {
    pub fn push(&self, copied: ReportsInFlight<C>) {
        self.in_flight.lock().push(copied);
    }

    /// Reads the copies that are mapped, but those of submissions that `is_lost` tells. Returns the copies that can be
    /// used again.
    pub fn read_mapped(&self, device: &str, is_lost: impl Fn(u64) -> bool) -> Vec<C> {
        // Until the outcomes are set, a thread that waits for them must find the copies in the list.
        let mut in_flight = self.in_flight.lock();
        let mapped = in_flight.extract_if(.., |copied| copied.copy.is_mapped());
        let (lost, read) = mapped.partition::<Vec<_>, _>(|copied| is_lost(copied.serial));
        for copied in &lost {
            // Their results are errors without an index.
            for launch in &copied.launches {
                launch.finish(Ok(()));
            }
            copied.copy.destroy();
        }
        read.into_iter().filter_map(|copied| self.read(copied, device)).collect()
    }

    /// Reads a copy. Returns it, if it can be used again.
    fn read(&self, copied: ReportsInFlight<C>, device: &str) -> Option<C> {
        let ReportsInFlight { launches, copy, .. } = copied;
        let result = copy.read(|bytes| {
            for (report, slot) in launches.iter().zip(bytes.chunks_exact(SLOT_SIZE as usize)) {
                self.finish(report, report.read(slot, device));
            }
        });
        if let Err(error) = result {
            self.fail(&launches, device, &error);
            copy.destroy();
            return None;
        }
        Some(copy)
    }

    /// Marks launches whose slots cannot be read: their results are not to be trusted.
    pub fn fail(&self, launches: &[Arc<IndexReport>], device: &str, error: &dyn std::fmt::Display) {
        for report in launches {
            let (device, message) = (device.to_owned(), error.to_string());
            self.finish(report, Err(RuntimeError::Transfer { device, message }));
        }
    }

    fn finish(&self, report: &Arc<IndexReport>, outcome: Result<(), RuntimeError>) {
        if !report.finish(outcome) {
            return;
        }
        let mut errors = self.errors.lock();
        errors.retain(|report| !report.is_returned());
        if errors.len() < MAX_ERRORS {
            errors.push(report.clone());
        }
    }

    /// Returns the first error that the program was not given.
    pub fn take_error(&self) -> Result<(), RuntimeError> {
        let mut errors = self.errors.lock();
        errors.retain(|report| !report.is_returned());
        if errors.is_empty() {
            return Ok(());
        }
        let first = errors.remove(0);
        first.set_returned();
        first.error().map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::super::taint::Taint;
    use super::*;

    /// Returns launches in a row.
    fn launches(count: usize) -> Vec<Arc<IndexReport>> {
        let mut launches: Vec<Arc<IndexReport>> = Vec::new();
        for _ in 0..count {
            let previous = launches.last().map(|last| &**last);
            launches.push(IndexReport::new(previous, "gather", &AXES));
        }
        launches
    }

    const AXES: [IndexedAxis; 2] =
        [IndexedAxis { axis: 0, size: 4 }, IndexedAxis { axis: 1, size: 5 }];

    #[test]
    fn taint_stays_until_the_launch_is_known_to_be_clean() {
        let [good, bad] = &launches(2)[..] else { unreachable!("there are two") };
        let (of_both, of_good) = (Taint::default(), Taint::default());
        of_both.add(bad);
        of_both.add(good);
        of_both.add(bad);
        assert_eq!((of_both.len(), of_both.batches()), (2, 1));
        of_good.add(good);
        let derived = Taint::default();
        derived.merge(&of_both);
        derived.merge(&derived);
        assert!(derived.check().is_ok(), "nothing is known yet");
        let outcomes = Outcomes::<HostCopy>::default();
        outcomes.finish(good, good.read(&[0; 8], "device"));
        outcomes.finish(bad, bad.read(&[0, 0, 0, 0, 7, 0, 0, 0], "device"));
        assert!(of_good.check().is_ok());
        for _ in 0..2 {
            let error = derived.check().expect_err("it depends on the launch").to_string();
            assert!(error.contains("gather: index 7 is out of range for axis 1 of size 5"));
        }
        assert_eq!(derived.len(), 1);
        assert!(!of_good.is_set());
        derived.set_returned();
        assert!(outcomes.take_error().is_ok(), "it was returned");
    }

    /// A chain of results, each of which depends on all launches before.
    #[test]
    fn a_long_chain_loses_no_launch() {
        let launches = launches(1000);
        let taints: Vec<Taint> = launches.iter().map(|_| Taint::default()).collect();
        for (i, launch) in launches.iter().enumerate() {
            if i > 0 {
                taints[i].merge(&taints[i - 1]);
            }
            taints[i].add(launch);
            assert_eq!((taints[i].len() as usize, taints[i].batches()), (i + 1, i / 64 + 1));
        }
        let outcomes = Outcomes::<HostCopy>::default();
        for (i, launch) in launches.iter().enumerate() {
            let word = if i == 500 { 7 } else { 0 };
            outcomes.finish(launch, launch.read(&[word, 0, 0, 0, 0, 0, 0, 0], "device"));
        }
        let failed = |taint: &Taint| taint.check().is_err();
        assert_eq!(taints.iter().position(failed), Some(500));
        assert!(taints[500..].iter().all(|taint| failed(taint) && taint.len() == 1));
        taints[999].set_returned();
        assert!(outcomes.take_error().is_ok(), "it was returned");
    }

    /// The parameters of a network, each of which depends on all others after a step, with slots that are read long
    /// after their launches.
    #[test]
    fn lists_have_an_entry_for_each_unread_batch() {
        const UNREAD: usize = 512;
        let taints: Vec<Taint> = (0..16).map(|_| Taint::default()).collect();
        let launches = launches(100 * taints.len());
        let outcomes = Outcomes::<HostCopy>::default();
        for (i, launch) in launches.iter().enumerate() {
            let (step, taint) = (i / taints.len(), &taints[i % taints.len()]);
            taint.merge(&taints[(i + step) % taints.len()]);
            taint.add(launch);
            if i >= UNREAD {
                outcomes.finish(&launches[i - UNREAD], Ok(()));
            }
            assert!(taint.check().is_ok());
            assert!(taint.batches() <= UNREAD / 64 + 1, "step {step}");
        }
        let (last, others) = launches.split_last().expect("there are launches");
        others.iter().for_each(|launch| outcomes.finish(launch, Ok(())));
        assert_eq!(
            taints.iter().filter(|taint| taint.check().is_ok() && taint.is_set()).count(),
            1
        );
        outcomes.finish(last, last.read(&[7, 0, 0, 0, 0, 0, 0, 0], "device"));
        assert_eq!(taints.iter().filter(|taint| taint.check().is_err()).count(), 1);
    }

    #[test]
    fn the_first_outcome_counts() {
        let outcomes = Outcomes::<HostCopy>::default();
        let launches = launches(2);
        outcomes.finish(&launches[0], Ok(()));
        outcomes.fail(&launches, "device", &"it failed");
        assert!(launches[0].error().is_none() && launches[1].error().is_some());
        assert!(outcomes.take_error().is_err() && outcomes.take_error().is_ok());
    }

    #[test]
    fn launches_that_are_forgotten_are_clean() {
        let mut reports = Reports { enabled: true, ..Reports::new() };
        let launch = launches(1);
        let taint = Taint::default();
        taint.add(&launch[0]);
        reports.put_back(launch);
        assert!(reports.forget_lost(0).is_none() && taint.is_set());
        reports.forget_lost(1);
        assert!(taint.check().is_ok() && !taint.is_set());
    }

    #[test]
    fn no_slot_is_behind_the_buffer() {
        let mut reports = Reports { enabled: true, ..Reports::new() };
        reports.put_back(launches(SLOTS as usize - 1));
        assert!(reports.is_full() && reports.is_due() && reports.slot(&AXES).is_none());
        assert_eq!(reports.bytes() + SLOT_SIZE, Reports::BUFFER_SIZE);
    }

    #[test]
    fn errors_that_were_not_returned_are_taken_once_each() {
        let outcomes = Outcomes::<HostCopy>::default();
        let launches = launches(2);
        outcomes.fail(&launches, "device", &"it failed");
        assert!(outcomes.take_error().is_err());
        assert!(outcomes.take_error().is_err());
        assert!(outcomes.take_error().is_ok());
    }
}

#[cfg(all(test, shuttle))]
mod schedules {
    use shuttle::thread;

    use super::super::sync::atomic::{AtomicBool, Ordering};
    use super::super::taint::Taint;
    use super::*;

    const LAUNCHES: usize = 4;
    const BAD: usize = 1;

    /// Returns launches in a row.
    fn launches<const N: usize>() -> [Arc<IndexReport>; N] {
        let axes = [IndexedAxis { axis: 0, size: 4 }];
        let mut last: Option<Arc<IndexReport>> = None;
        std::array::from_fn(|_| {
            let launch = IndexReport::new(last.as_deref(), "gather", &axes);
            last = Some(launch.clone());
            launch
        })
    }

    /// A copy that is mapped when its submission is complete.
    struct TestCopy {
        bytes: Vec<u8>,
        is_mapped: Arc<AtomicBool>,
    }

    impl SlotCopy for TestCopy {
        fn is_mapped(&self) -> bool {
            self.is_mapped.load(Ordering::Acquire)
        }

        fn read(&self, read: impl FnOnce(&[u8])) -> Result<(), String> {
            read(&self.bytes);
            Ok(())
        }

        fn destroy(&self) {}
    }

    /// One thread launches and copies the slots of each two launches, a device completes the copies, two threads read
    /// what is mapped and check a result at once. Who reads while another reads must not find less than it. In the end
    /// exactly the results of the bad launch and those after it have the error, and it is given to the program once
    /// besides.
    #[test]
    fn errors_stay_with_what_depends_on_them() {
        let schedule = || {
            let launches: Arc<[_]> = launches::<LAUNCHES>().into();
            let taints: Arc<[Taint]> = (0..LAUNCHES).map(|_| Taint::default()).collect();
            let outcomes = Arc::new(Outcomes::<TestCopy>::default());
            let mapped: Arc<[_]> =
                (0..LAUNCHES / 2).map(|_| Arc::new(AtomicBool::new(false))).collect();
            let launch = {
                let (launches, taints) = (launches.clone(), taints.clone());
                let (outcomes, mapped) = (outcomes.clone(), mapped.clone());
                move || {
                    for i in 0..LAUNCHES {
                        taints[i].add(&launches[i]);
                        if i > 0 {
                            taints[i].merge(&taints[i - 1]);
                        }
                        if i % 2 == 1 {
                            let mut bytes = vec![0; 2 * SLOT_SIZE as usize];
                            bytes[(BAD % 2) * SLOT_SIZE as usize] = u8::from(i / 2 == BAD / 2) * 7;
                            let copy = TestCopy { bytes, is_mapped: mapped[i / 2].clone() };
                            let launches = launches[i - 1..=i].to_vec();
                            outcomes.push(ReportsInFlight { launches, serial: i as u64 / 2, copy });
                        }
                    }
                }
            };
            let complete = {
                let mapped = mapped.clone();
                move || mapped.iter().for_each(|mapped| mapped.store(true, Ordering::Release))
            };
            let read = || {
                let (taints, outcomes, mapped) = (taints.clone(), outcomes.clone(), mapped.clone());
                move || {
                    // The copies that this thread saw pushed and completed.
                    let is_known = outcomes.in_flight.lock().len() > BAD / 2
                        && mapped[BAD / 2].load(Ordering::Acquire);
                    outcomes.read_mapped("device", |_| false);
                    assert!(taints[BAD - 1].check().is_ok(), "it does not depend on the bad one");
                    let is_bad = taints[BAD].check().is_err();
                    assert!(is_bad || !is_known, "what was mapped is known after reading");
                    assert!(!is_bad || taints[BAD].check().is_err(), "an error stays");
                }
            };
            let threads = [
                thread::spawn(launch),
                thread::spawn(complete),
                thread::spawn(read()),
                thread::spawn(read()),
            ];
            for thread in threads {
                thread.join().expect("it does not panic");
            }
            outcomes.read_mapped("device", |_| false);
            for (i, taint) in taints.iter().enumerate() {
                assert_eq!(taint.check().is_err(), i >= BAD, "launch {i}");
            }
            assert!(outcomes.take_error().is_err(), "nobody was given it");
            assert!(outcomes.take_error().is_ok(), "it is given once");
        };
        shuttle::check_random(schedule, 20_000);
    }

    /// The slots of a lost submission are not read.
    #[test]
    fn lost_copies_report_nothing() {
        let schedule = || {
            let outcomes = Arc::new(Outcomes::<TestCopy>::default());
            let launches = launches::<2>();
            for (serial, launch) in launches.iter().enumerate() {
                let is_mapped = Arc::new(AtomicBool::new(true));
                let copy = TestCopy { bytes: vec![7; SLOT_SIZE as usize], is_mapped };
                let (launches, serial) = (vec![launch.clone()], serial as u64);
                outcomes.push(ReportsInFlight { launches, serial, copy });
            }
            let read = || {
                let outcomes = outcomes.clone();
                thread::spawn(move || outcomes.read_mapped("device", |serial| serial == 0).len())
            };
            let read = [read(), read()].map(|thread| thread.join().expect("it does not panic"));
            assert_eq!(read.iter().sum::<usize>(), 1);
            assert!(launches[0].error().is_none());
            assert!(launches[1].error().is_some());
        };
        shuttle::check_dfs(schedule, None);
    }

    #[test]
    fn taints_can_be_merged_with_each_other() {
        let schedule = || {
            let taints: Arc<[Taint]> = (0..2).map(|_| Taint::default()).collect();
            let launches = launches::<2>();
            taints.iter().zip(&launches).for_each(|(taint, launch)| taint.add(launch));
            let merge = |to: usize, from: usize| {
                let taints = taints.clone();
                thread::spawn(move || taints[to].merge(&taints[from]))
            };
            for thread in [merge(0, 1), merge(1, 0)] {
                thread.join().expect("it does not panic");
            }
            assert!(taints.iter().all(|taint| taint.len() == 2));
        };
        shuttle::check_dfs(schedule, None);
    }

    /// Two threads ask for errors, and one of them was given an error with a result before.
    #[test]
    fn an_error_is_given_once() {
        let schedule = || {
            let outcomes = Arc::new(Outcomes::<HostCopy>::default());
            let launches = launches::<2>();
            let taint = Taint::default();
            taint.add(&launches[0]);
            outcomes.fail(&launches, "device", &"it failed");
            taint.set_returned();
            let take = || {
                let outcomes = outcomes.clone();
                thread::spawn(move || outcomes.take_error().is_err())
            };
            let taken = [take(), take()].map(|thread| thread.join().expect("it does not panic"));
            assert_eq!(taken.iter().filter(|&&is_error| is_error).count(), 1);
        };
        shuttle::check_dfs(schedule, None);
    }
}
