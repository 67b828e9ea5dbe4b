//! Allocations: memory of a device with one owner.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use super::allocator::{ALIGN, Allocator, LARGE, Location, Placement, PoolBuffer};
use super::error::RuntimeError;
use super::events::{Event, Observers};
use super::gpu::{Buffer, Gpu, LOST, TAKEN_BACK};
use super::origin::{Origin, current_origin};
use super::sync::{Mutex, MutexGuard};
use super::taint::Taint;

impl PoolBuffer for Arc<Buffer> {
    fn id(&self) -> u64 {
        self.id
    }

    fn size(&self) -> u64 {
        self.raw.size()
    }
}

/// Memory of a device. It is placed in a GPU buffer when a command first uses it, and goes back to
/// the allocator when it is dropped.
pub struct Allocation {
    /// The requested size in bytes.
    bytes: u64,
    /// The op whose result the memory holds.
    origin: Origin,
    placement: OnceLock<Placement<Arc<Buffer>>>,
    /// Serial number of the submission that last wrote the memory; 0 if none did.
    written: AtomicU64,
    /// The launches with indices on which the contents depend.
    taint: Taint,
    /// The allocation that owns the memory, if this is a part of one.
    whole: Option<Arc<Allocation>>,
    /// Whether the memory is a buffer of the program, which no launch overwrites.
    is_foreign: bool,
    returns: Arc<Returns>,
}

/// The placements of dropped allocations, until the allocator takes them back.
///
/// An allocation may be dropped anywhere, also while the allocator is in use, so it must not wait
/// for the allocator.
pub(crate) struct Returns<B = Arc<Buffer>> {
    placements: Mutex<Vec<Placement<B>>>,
    /// The ids of buffers of the program that no tensor uses any more.
    foreign: Mutex<Vec<u64>>,
    observers: Arc<Observers>,
}

impl<B: PoolBuffer> Returns<B> {
    pub fn new(observers: Arc<Observers>) -> Self {
        Self { placements: Mutex::default(), foreign: Mutex::default(), observers }
    }

    fn take(&self, placement: Placement<B>) {
        let Placement { buffer, offset, size, .. } = &placement;
        let location = Location { buffer: buffer.id(), offset: *offset };
        let bytes = *size;
        let mut placements = self.placements.lock();
        self.observers.notify(|| Event::Release { location, bytes });
        placements.push(placement);
    }

    /// Takes the ids of the buffers of the program that no tensor uses any more.
    pub fn take_foreign(&self) -> Vec<u64> {
        std::mem::take(&mut *self.foreign.lock())
    }

    /// Gives the memory of dropped allocations to the allocator. Until the lock is dropped, dropping an allocation
    /// waits.
    pub fn give_back(&self, allocator: &mut Allocator<B>) -> MutexGuard<'_, Vec<Placement<B>>> {
        let mut placements = self.placements.lock();
        placements.drain(..).for_each(|placement| allocator.release(placement));
        placements
    }
}

impl Allocation {
    /// Returns an error if the contents are lost, or depend on an index outside its axis.
    pub(crate) fn check(&self, gpu: &Gpu) -> Result<(), RuntimeError> {
        match self.written() {
            LOST => Err(RuntimeError::LostResults { device: gpu.name() }),
            TAKEN_BACK => Err(RuntimeError::TakenBack),
            0 => Ok(()),
            serial => {
                gpu.check_results(serial..=serial)?;
                self.taint().check()
            }
        }
    }

    pub(super) fn new(bytes: u64, returns: &Arc<Returns>) -> Self {
        Self {
            bytes,
            origin: current_origin(),
            placement: OnceLock::new(),
            written: AtomicU64::new(0),
            taint: Taint::default(),
            whole: None,
            is_foreign: false,
            returns: returns.clone(),
        }
    }

    /// Creates an allocation whose memory is a buffer of the program.
    pub(super) fn foreign(buffer: Arc<Buffer>, bytes: u64, returns: &Arc<Returns>) -> Self {
        let size = buffer.size();
        let placement = Placement { buffer, offset: 0, size, requested: bytes };
        let mut allocation = Self::new(bytes, returns);
        allocation.is_foreign = true;
        allocation.set_placement(placement);
        allocation
    }

    /// Returns a part of placed memory, which it keeps alive: `bytes` bytes from `offset` on, a
    /// multiple of [`ALIGN`]. `None` if the memory has no place yet.
    pub(crate) fn part(whole: &Arc<Self>, offset: u64, bytes: u64) -> Option<Self> {
        let placement = whole.placement.get()?;
        let end = offset.checked_add(bytes);
        assert!(
            offset.is_multiple_of(ALIGN) && end.is_some_and(|end| end <= whole.bytes),
            "the part of {bytes} bytes from {offset} on exceeds memory of {} bytes",
            whole.bytes
        );
        let part = Placement {
            buffer: placement.buffer.clone(),
            offset: placement.offset + offset,
            size: bytes.next_multiple_of(ALIGN).min(placement.size - offset),
            requested: bytes,
        };
        Some(Self {
            bytes,
            origin: whole.origin,
            placement: OnceLock::from(part),
            written: AtomicU64::new(0),
            taint: Taint::default(),
            whole: Some(whole.whole.as_ref().unwrap_or(whole).clone()),
            is_foreign: false,
            returns: whole.returns.clone(),
        })
    }

    /// Returns whether another allocation, or the program, owns the memory.
    pub fn is_part(&self) -> bool {
        self.whole.is_some() || self.is_foreign
    }

    /// Returns whether the program owns the memory, and may write it.
    pub fn is_foreign(&self) -> bool {
        self.is_foreign || self.whole.as_ref().is_some_and(|whole| whole.is_foreign)
    }

    /// Returns the requested size in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the size of the memory that this keeps alive, in bytes: of the whole, for a part.
    pub fn kept_bytes(&self) -> u64 {
        self.whole.as_ref().map_or(self.bytes, |whole| whole.bytes)
    }

    /// Names the op whose result the memory holds. Otherwise it is the op that asked for it.
    #[must_use]
    pub fn with_origin(mut self, origin: Origin) -> Self {
        self.origin = origin;
        self
    }

    /// Returns the op whose result the memory holds.
    pub(super) fn origin(&self) -> Origin {
        self.origin
    }

    /// Returns whether the memory is large enough to have a GPU buffer of its own, or a part of it.
    pub fn has_own_buffer(&self) -> bool {
        self.bytes >= LARGE || self.is_part()
    }

    /// Returns whether both allocations are in the same GPU buffer.
    ///
    /// Within one dispatch, a buffer is either read-only or writable.
    pub fn shares_buffer(&self, other: &Allocation) -> bool {
        match (self.placement.get(), other.placement.get()) {
            (Some(own), Some(other)) => own.buffer.id == other.buffer.id,
            _ => std::ptr::eq(self, other),
        }
    }

    /// Returns where the memory is; `None` if it was not placed.
    pub fn location(&self) -> Option<Location> {
        let placement = self.placement.get()?;
        Some(Location { buffer: placement.buffer.id, offset: placement.offset })
    }

    /// Returns where the memory is; `None` if no command has used it.
    pub(super) fn placement(&self) -> Option<&Placement<Arc<Buffer>>> {
        self.placement.get()
    }

    /// Sets where the memory is. If another thread was faster, its placement stays, and `placement`
    /// goes back to the allocator.
    pub(super) fn set_placement(&self, placement: Placement<Arc<Buffer>>) {
        if let Err(surplus) = self.placement.set(placement) {
            self.returns.take(surplus);
        }
    }

    /// Returns the serial number of the submission that last wrote the memory; 0 if none did.
    pub(super) fn written(&self) -> u64 {
        self.whole.as_ref().map_or(&self.written, |whole| &whole.written).load(Ordering::Relaxed)
    }

    /// Returns whether the contents may depend on an index outside its axis.
    pub(crate) fn is_tainted(&self) -> bool {
        self.taint().is_set()
    }

    /// Returns the launches with indices on which the contents depend.
    pub(super) fn taint(&self) -> &Taint {
        self.whole.as_ref().map_or(&self.taint, |whole| &whole.taint)
    }

    /// Records that the submission `serial` writes the memory.
    pub(super) fn set_written(&self, serial: u64) {
        let written = self.whole.as_ref().map_or(&self.written, |whole| &whole.written);
        written.store(serial, Ordering::Relaxed);
    }
}

impl fmt::Debug for Allocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Allocation").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        let Some(placement) = self.placement.take() else { return };
        if self.is_foreign {
            self.returns.foreign.lock().push(placement.buffer.id);
        } else if !self.is_part() {
            self.returns.take(placement);
        }
    }
}

#[cfg(all(test, shuttle))]
mod schedules {
    use std::collections::HashSet;

    use shuttle::rand::Rng;
    use shuttle::{rand, thread};

    use super::super::allocator::Placed;
    use super::super::allocator::tests::TestBuffer;
    use super::*;

    /// What the threads share. `live` has the buffers and offsets in use.
    struct Pool {
        state: Mutex<(Allocator<TestBuffer>, u64)>,
        returns: Returns<TestBuffer>,
        live: Mutex<HashSet<(u64, u64)>>,
    }

    impl Pool {
        fn place(&self, bytes: u64) -> Placement<TestBuffer> {
            let mut state = self.state.lock();
            let (allocator, buffers) = &mut *state;
            drop(self.returns.give_back(allocator));
            let placement = match allocator.place(bytes, &[]) {
                Placed::At(placement) => placement,
                Placed::NeedsBuffer(size) => {
                    *buffers += 1;
                    allocator.add(TestBuffer { id: *buffers, size }, bytes)
                }
            };
            drop(state);
            let is_free = self.live.lock().insert((placement.buffer.id, placement.offset));
            assert!(is_free, "{placement:?} has two owners");
            placement
        }

        fn give_up(&self, placement: Placement<TestBuffer>) {
            assert!(self.live.lock().remove(&(placement.buffer.id, placement.offset)));
            self.returns.take(placement);
        }
    }

    #[test]
    fn memory_has_one_owner() {
        let schedule = || {
            let pool = Arc::new(Pool {
                state: Mutex::new((Allocator::new(1 << 30, true), 0)),
                returns: Returns::new(Arc::default()),
                live: Mutex::default(),
            });
            let use_memory = |pool: Arc<Pool>| {
                move || {
                    let mut owned = Vec::new();
                    for _ in 0..4 {
                        // Of one size, so that a dropped range is what the next one gets.
                        let bytes = if rand::thread_rng().gen_bool(0.5) { ALIGN } else { LARGE };
                        owned.push(pool.place(bytes));
                        if rand::thread_rng().gen_bool(0.5) {
                            pool.give_up(owned.swap_remove(0));
                        }
                    }
                    owned.into_iter().for_each(|placement| pool.give_up(placement));
                }
            };
            let threads: Vec<_> = (0..3).map(|_| thread::spawn(use_memory(pool.clone()))).collect();
            threads.into_iter().for_each(|thread| thread.join().expect("it does not panic"));
            let mut state = pool.state.lock();
            drop(pool.returns.give_back(&mut state.0));
            assert_eq!(state.0.usage().in_use, 0, "all memory returns");
        };
        shuttle::check_random(schedule, 5_000);
    }
}
