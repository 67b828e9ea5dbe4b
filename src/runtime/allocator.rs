//! The allocator: places allocations in GPU buffers that are kept for reuse.
//!
//! A small allocation is a range of a shared page. A large one owns a buffer. Sizes are rounded up
//! to one of eight classes per power of two, which wastes at most 12.5 %.
//!
//! Memory can be reused as soon as its last owner is dropped. There is one queue, so every command
//! that still uses the memory runs before the commands that reuse it.
//!
//! wgpu tracks the usage of *whole* buffers, and within one dispatch a buffer is either read-only
//! or writable. An output is therefore never placed in the page of another operand.
//!
//! The allocator does not create buffers: it is generic over them, and asks its caller.

use smallvec::SmallVec;

/// Where memory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Location {
    /// The GPU buffer.
    pub buffer: u64,
    /// The offset in the buffer, in bytes.
    pub offset: u64,
}

/// Alignment of placements: the largest alignment of a binding that any adapter requires.
pub(crate) const ALIGN: u64 = 256;
/// Allocations of at least this size own a buffer.
pub(crate) const LARGE: u64 = 1 << 20;
/// The size of a page shared by small allocations.
pub(crate) const PAGE_SIZE: u64 = 4 << 20;
/// Smallest limit on idle memory, see [`Allocator::idle_limit`].
const MIN_IDLE_LIMIT: u64 = 256 << 20;
/// Releases after which a maximum of the memory in use is old: more than a training step of a large
/// model makes.
const PEAK_WINDOW: u64 = 1 << 15;

/// How much memory a device holds. Sizes are in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryUsage {
    /// Number of live allocations.
    pub allocations: u64,
    /// Size of the live allocations as requested.
    pub requested: u64,
    /// Size of the live allocations, including padding.
    pub in_use: u64,
    /// Size of all buffers for tensors, in use or kept for reuse.
    pub reserved: u64,
    /// Maximum of `in_use` since the device was opened, or since the peak was reset.
    pub peak: u64,
}

/// Number of powers of two that allocations are counted by.
const SIZE_RANGES: usize = 64;

/// Live allocations of similar size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SizeRange {
    /// Their sizes are less than twice this size, and at least this size.
    pub from: u64,
    /// Number of allocations.
    pub allocations: u64,
    /// Their size, including padding.
    pub bytes: u64,
}

/// A maximum of the memory in use since a point in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PeakId(u64);

/// Where an allocation is: a range of a buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Placement<B> {
    pub buffer: B,
    /// Offset in bytes, a multiple of [`ALIGN`].
    pub offset: u64,
    /// Size in bytes, including padding.
    pub size: u64,
    /// Size in bytes, as requested.
    pub requested: u64,
}

/// A buffer as the allocator sees it.
pub(crate) trait PoolBuffer: Clone {
    /// A number that no other buffer of the device has.
    fn id(&self) -> u64;
    /// The size in bytes.
    fn size(&self) -> u64;
}

/// The maximum of the memory in use in this window of [`PEAK_WINDOW`] releases and the one before.
#[derive(Debug, Clone, Copy, Default)]
struct RecentPeak {
    current: u64,
    previous: u64,
    /// The number of releases at which the next window starts.
    window_end: u64,
}

impl RecentPeak {
    fn record(&mut self, in_use: u64) {
        self.current = self.current.max(in_use);
    }

    /// Starts the next window, if it is time. `clock`: the number of releases so far.
    fn advance(&mut self, clock: u64, in_use: u64) {
        if clock >= self.window_end {
            *self =
                Self { current: in_use, previous: self.current, window_end: clock + PEAK_WINDOW };
        }
    }

    fn bytes(self) -> u64 {
        self.current.max(self.previous)
    }
}

/// The answer to a request for memory.
pub(crate) enum Placed<B> {
    At(Placement<B>),
    /// The caller must create a buffer of this size and pass it to [`Allocator::add`].
    NeedsBuffer(u64),
}

/// Rounds `bytes` up to the alignment, and then to a size class: one of eight per power of two.
pub(crate) fn size_class(bytes: u64) -> u64 {
    let step = (bytes.next_power_of_two() >> 4).max(ALIGN);
    bytes.max(1).next_multiple_of(step)
}

/// Returns how many unused bytes may remain beside `in_use` bytes on any device.
fn least_idle_limit(in_use: u64) -> u64 {
    MIN_IDLE_LIMIT.max(in_use / 2)
}

/// Returns the index of the power of two of a size.
fn size_range(size: u64) -> usize {
    size.max(1).ilog2() as usize
}

/// A buffer shared by small allocations.
///
/// A freed range goes to a list of ranges of its size, from which the next allocation of that size
/// takes it. Only when a list is empty are free ranges merged.
#[derive(Debug)]
struct Page<B> {
    buffer: B,
    /// Number of live allocations.
    live: usize,
    /// Offsets of freed ranges, by size.
    freed: SmallVec<[(u64, Vec<u64>); 8]>,
    /// Other free ranges as `(offset, size)`.
    rest: Vec<(u64, u64)>,
    /// When the page became empty, if it is.
    empty_since: u64,
}

impl<B> Page<B> {
    fn new(buffer: B) -> Self {
        Self { buffer, live: 0, freed: SmallVec::new(), rest: vec![(0, PAGE_SIZE)], empty_since: 0 }
    }

    /// Takes a freed range of exactly this size.
    fn reuse(&mut self, size: u64) -> Option<u64> {
        let (_, offsets) = self.freed.iter_mut().find(|(freed, _)| *freed == size)?;
        let offset = offsets.pop()?;
        self.live += 1;
        Some(offset)
    }

    /// Takes a part of a larger free range.
    fn carve(&mut self, size: u64) -> Option<u64> {
        let index = self.rest.iter().position(|&(_, len)| len >= size)?;
        let (offset, len) = self.rest[index];
        if len == size {
            self.rest.swap_remove(index);
        } else {
            self.rest[index] = (offset + size, len - size);
        }
        self.live += 1;
        Some(offset)
    }

    /// Takes a part of a free range after merging the freed ranges.
    fn merge_and_carve(&mut self, size: u64) -> Option<u64> {
        self.merge();
        self.carve(size)
    }

    /// Merges adjacent free ranges of all sizes.
    fn merge(&mut self) {
        for (size, offsets) in self.freed.drain(..) {
            self.rest.extend(offsets.into_iter().map(|offset| (offset, size)));
        }
        self.rest.sort_unstable();
        self.rest.dedup_by(|next, previous| {
            let adjacent = previous.0 + previous.1 == next.0;
            if adjacent {
                previous.1 += next.1;
            }
            adjacent
        });
    }

    fn free(&mut self, offset: u64, size: u64) {
        self.live -= 1;
        if self.live == 0 {
            self.freed.clear();
            self.rest.clear();
            self.rest.push((0, PAGE_SIZE));
            return;
        }
        match self.freed.iter_mut().find(|(freed, _)| *freed == size) {
            Some((_, offsets)) => offsets.push(offset),
            None => self.freed.push((size, vec![offset])),
        }
    }
}

/// A large buffer without an owner.
#[derive(Debug)]
struct IdleBuffer<B> {
    size: u64,
    since: u64,
    buffer: B,
}

/// The memory of one device.
#[derive(Debug)]
pub(crate) struct Allocator<B> {
    pages: Vec<Page<B>>,
    /// Large buffers without an owner, by ascending size.
    idle: Vec<IdleBuffer<B>>,
    /// Size of the idle large buffers and the empty pages, in bytes.
    idle_bytes: u64,
    /// Buffers that recorded commands may still use, to be destroyed after their submission.
    retired: Vec<B>,
    usage: MemoryUsage,
    /// Number and size of the live allocations by the power of two of their size.
    by_size: [(u64, u64); SIZE_RANGES],
    /// The peaks that are being measured, and the id of the next.
    peaks: SmallVec<[(PeakId, u64); 2]>,
    next_peak: u64,
    recent_peak: RecentPeak,
    /// Whether what was in use at the recent peak is kept.
    keeps_peak: bool,
    /// Number of releases so far.
    clock: u64,
    /// Maximum size of a buffer in bytes.
    limit: u64,
    /// Maximum size of all buffers in bytes.
    cap: Option<u64>,
}

impl<B: PoolBuffer> Allocator<B> {
    /// Creates an allocator without memory. No buffer exceeds `limit`. `keeps_peak`: whether memory that
    /// was in use at the recent peak is kept, for memory that no one else needs and whose driver reports
    /// when there is none.
    pub fn new(limit: u64, keeps_peak: bool) -> Self {
        Self {
            pages: Vec::new(),
            idle: Vec::new(),
            idle_bytes: 0,
            retired: Vec::new(),
            usage: MemoryUsage::default(),
            by_size: [(0, 0); SIZE_RANGES],
            peaks: SmallVec::new(),
            next_peak: 0,
            recent_peak: RecentPeak::default(),
            keeps_peak,
            clock: 0,
            limit: limit / ALIGN * ALIGN,
            cap: None,
        }
    }

    /// Places `bytes` bytes in a buffer whose id is not in `avoid`.
    pub fn place(&mut self, bytes: u64, avoid: &[u64]) -> Placed<B> {
        let size = self.class(bytes);
        if size >= LARGE {
            return match self.take_idle(size) {
                Some(buffer) => Placed::At(self.own(buffer, bytes)),
                None => {
                    self.retire_beyond(self.idle_limit(self.usage.in_use + size));
                    Placed::NeedsBuffer(size)
                }
            };
        }
        for take in [Page::reuse, Page::carve, Page::merge_and_carve] {
            let pages = self.pages.iter_mut().filter(|page| !avoid.contains(&page.buffer.id()));
            for page in pages {
                let was_empty = page.live == 0;
                if let Some(offset) = take(page, size) {
                    if was_empty {
                        self.idle_bytes -= PAGE_SIZE;
                    }
                    let buffer = page.buffer.clone();
                    let placement = Placement { buffer, offset, size, requested: bytes };
                    self.count(&placement);
                    return Placed::At(placement);
                }
            }
        }
        Placed::NeedsBuffer(PAGE_SIZE)
    }

    /// Adds a buffer created for [`Placed::NeedsBuffer`], and places `bytes` bytes in it.
    pub fn add(&mut self, buffer: B, bytes: u64) -> Placement<B> {
        let size = self.class(bytes);
        self.usage.reserved += buffer.size();
        if size >= LARGE {
            return self.own(buffer, bytes);
        }
        let mut page = Page::new(buffer.clone());
        let offset = page.carve(size).unwrap_or_default();
        self.pages.push(page);
        let placement = Placement { buffer, offset, size, requested: bytes };
        self.count(&placement);
        placement
    }

    /// Returns the size of an allocation of `bytes` bytes.
    fn class(&self, bytes: u64) -> u64 {
        size_class(bytes).min(self.limit)
    }

    /// Takes the smallest idle buffer of at least `size` bytes. One that is a quarter larger or
    /// more is left for a larger allocation.
    fn take_idle(&mut self, size: u64) -> Option<B> {
        let index = self.idle.partition_point(|idle| idle.size < size);
        let fits = self.idle.get(index).is_some_and(|idle| idle.size < size + size / 4);
        fits.then(|| {
            let idle = self.idle.remove(index);
            self.idle_bytes -= idle.size;
            idle.buffer
        })
    }

    /// Places an allocation that owns its buffer.
    fn own(&mut self, buffer: B, bytes: u64) -> Placement<B> {
        let size = buffer.size();
        let placement = Placement { buffer, offset: 0, size, requested: bytes };
        self.count(&placement);
        placement
    }

    fn count(&mut self, placement: &Placement<B>) {
        let Self { usage, by_size, peaks, recent_peak, .. } = self;
        usage.allocations += 1;
        usage.requested += placement.requested;
        usage.in_use += placement.size;
        usage.peak = usage.peak.max(usage.in_use);
        recent_peak.record(usage.in_use);
        peaks.iter_mut().for_each(|(_, peak)| *peak = (*peak).max(usage.in_use));
        let (count, bytes) = &mut by_size[size_range(placement.size)];
        *count += 1;
        *bytes += placement.size;
    }

    /// Takes back the memory of a dropped allocation. Idle memory above
    /// [`idle_limit`](Self::idle_limit) is retired.
    pub fn release(&mut self, placement: Placement<B>) {
        let Placement { buffer, offset, size, requested } = placement;
        self.usage.allocations -= 1;
        self.usage.requested -= requested;
        self.usage.in_use -= size;
        let (count, bytes) = &mut self.by_size[size_range(size)];
        *count -= 1;
        *bytes -= size;
        self.clock += 1;
        self.recent_peak.advance(self.clock, self.usage.in_use);
        if size >= LARGE {
            let index = self.idle.partition_point(|idle| idle.size < size);
            self.idle.insert(index, IdleBuffer { size, since: self.clock, buffer });
            self.idle_bytes += size;
        } else if let Some(page) = self.pages.iter_mut().find(|p| p.buffer.id() == buffer.id()) {
            page.free(offset, size);
            if page.live == 0 {
                page.empty_since = self.clock;
                self.idle_bytes += PAGE_SIZE;
            }
        }
        self.retire_beyond(self.idle_limit(self.usage.in_use));
    }

    /// Retires unused buffers until at most `limit` bytes are left.
    fn retire_beyond(&mut self, limit: u64) {
        while self.idle_bytes > limit {
            self.retire_oldest();
        }
    }

    /// Returns how many bytes of unused buffers are kept beside `in_use` bytes: half of those, and at
    /// least 256 MiB. If the peak is kept, also what was in use then and a quarter of it for other sizes,
    /// since a training step needs again what the one before needed, and drivers take a long time to
    /// allocate: NVIDIA's 50 ms for a GiB.
    fn idle_limit(&self, in_use: u64) -> u64 {
        let peak = if self.keeps_peak { self.recent_peak.bytes().max(in_use) } else { 0 };
        least_idle_limit(in_use).max((peak + peak / 4).saturating_sub(in_use))
    }

    /// Retires the large buffer or page that has been unused longest.
    fn retire_oldest(&mut self) {
        let buffers = self.idle.iter().enumerate();
        let oldest_buffer = buffers.map(|(index, idle)| (idle.since, index)).min();
        let pages = self.pages.iter().enumerate().filter(|(_, page)| page.live == 0);
        let oldest_page = pages.map(|(index, page)| (page.empty_since, index)).min();
        let buffer = match (oldest_buffer, oldest_page) {
            (Some((since, index)), page) if page.is_none_or(|(empty, _)| since < empty) => {
                self.idle.remove(index).buffer
            }
            (_, Some((_, index))) => self.pages.swap_remove(index).buffer,
            _ => return,
        };
        self.idle_bytes -= buffer.size();
        self.usage.reserved -= buffer.size();
        self.retired.push(buffer);
    }

    /// Retires unused buffers until at most `target` bytes are reserved, or all of them.
    pub fn trim(&mut self, target: u64) {
        while self.idle_bytes > 0 && self.usage.reserved > target {
            self.retire_oldest();
        }
    }

    /// Sets the maximum size of all buffers together.
    pub fn set_cap(&mut self, cap: Option<u64>) {
        self.cap = cap;
    }

    pub fn cap(&self) -> Option<u64> {
        self.cap
    }

    /// Returns whether another buffer of `size` bytes would exceed the cap.
    pub fn exceeds_cap(&self, size: u64) -> bool {
        // Retired buffers are still allocated.
        self.cap.is_some_and(|cap| self.usage.reserved + self.retired_bytes() + size > cap)
    }

    /// Resets the peak of [`usage`](Self::usage) to the memory in use now.
    pub fn reset_peak(&mut self) {
        self.usage.peak = self.usage.in_use;
    }

    /// Begins to measure the maximum of the memory in use.
    pub fn begin_peak(&mut self) -> PeakId {
        let id = PeakId(self.next_peak);
        self.next_peak += 1;
        self.peaks.push((id, self.usage.in_use));
        id
    }

    /// Ends the measurement, and returns the maximum.
    pub fn end_peak(&mut self, id: PeakId) -> u64 {
        let index = self.peaks.iter().position(|(other, _)| *other == id);
        index.map_or(self.usage.in_use, |index| self.peaks.swap_remove(index).1)
    }

    /// Returns the live allocations by size, in ascending order.
    pub fn sizes(&self) -> Vec<SizeRange> {
        let ranges =
            self.by_size.iter().enumerate().filter(|(_, (allocations, _))| *allocations > 0);
        ranges
            .map(|(power, &(allocations, bytes))| SizeRange {
                from: 1 << power,
                allocations,
                bytes,
            })
            .collect()
    }

    /// Returns the size of the largest allocation that needs no new buffer.
    pub fn largest_free(&mut self) -> u64 {
        let idle = self.idle.last().map_or(0, |idle| idle.size);
        let in_page = |page: &mut Page<B>| {
            page.merge();
            page.rest.iter().map(|&(_, size)| size).max().unwrap_or(0).min(LARGE - ALIGN)
        };
        self.pages.iter_mut().map(in_page).max().unwrap_or(0).max(idle)
    }

    /// Returns whether the retired buffers exceed half of the memory in use, and 256 MiB. The caller should then
    /// wait until the device has finished with them.
    pub fn has_excess_retired(&self) -> bool {
        self.retired_bytes() > least_idle_limit(self.usage.in_use)
    }

    fn retired_bytes(&self) -> u64 {
        self.retired.iter().map(PoolBuffer::size).sum()
    }

    /// Takes the retired buffers. Commands that use them must have been submitted.
    pub fn take_retired(&mut self) -> Vec<B> {
        std::mem::take(&mut self.retired)
    }

    pub fn usage(&self) -> MemoryUsage {
        self.usage
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct TestBuffer {
        pub id: u64,
        pub size: u64,
    }

    impl PoolBuffer for TestBuffer {
        fn id(&self) -> u64 {
            self.id
        }

        fn size(&self) -> u64 {
            self.size
        }
    }

    /// An allocator and the number of buffers created for it.
    struct Pool(Allocator<TestBuffer>, u64);

    impl Pool {
        fn new() -> Self {
            Self(Allocator::new(1 << 30, true), 0)
        }

        fn place(&mut self, bytes: u64, avoid: &[u64]) -> Placement<TestBuffer> {
            match self.0.place(bytes, avoid) {
                Placed::At(placement) => placement,
                Placed::NeedsBuffer(size) => {
                    self.1 += 1;
                    self.0.add(TestBuffer { id: self.1, size }, bytes)
                }
            }
        }
    }

    #[test]
    fn size_classes_waste_at_most_one_eighth() {
        for bytes in (1..200u64).map(|i| i * 99_991) {
            let class = size_class(bytes);
            assert!(class >= bytes && class.is_multiple_of(ALIGN), "{bytes} -> {class}");
            assert!(class - bytes <= (bytes / 8).max(ALIGN), "{bytes} -> {class}");
            assert_eq!(size_class(class), class);
        }
        assert_eq!(size_class(0), ALIGN);
    }

    #[test]
    fn placements_do_not_overlap_and_all_memory_returns() {
        let mut pool = Pool::new();
        let mut live: Vec<Placement<TestBuffer>> = Vec::new();
        let mut random = 1u64;
        for step in 0..20_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            if live.len() > 300 || (step % 3 == 0 && !live.is_empty()) {
                let index = (random >> 33) as usize % live.len();
                pool.0.release(live.swap_remove(index));
                continue;
            }
            let placed = pool.place((random >> 33) % (3 << 20), &[]);
            assert!(placed.offset + placed.size <= placed.buffer.size);
            for other in live.iter().filter(|other| other.buffer.id == placed.buffer.id) {
                let apart = other.offset + other.size <= placed.offset
                    || placed.offset + placed.size <= other.offset;
                assert!(apart, "{other:?} and {placed:?} overlap");
            }
            live.push(placed);
            let in_use: u64 = live.iter().map(|placement| placement.size).sum();
            assert_eq!(pool.0.usage().in_use, in_use);
        }
        live.drain(..).for_each(|placement| pool.0.release(placement));
        pool.0.trim(0);
        assert_eq!((pool.0.usage().in_use, pool.0.usage().reserved), (0, 0));
        assert!(pool.0.pages.is_empty() && pool.0.idle.is_empty());
    }

    #[test]
    fn an_avoided_page_is_not_used() {
        let mut pool = Pool::new();
        let first = pool.place(256, &[]);
        let second = pool.place(256, &[first.buffer.id]);
        assert_ne!(first.buffer.id, second.buffer.id);
        assert_eq!(pool.place(256, &[second.buffer.id]).buffer.id, first.buffer.id);
    }

    #[test]
    fn freed_ranges_of_other_sizes_are_merged_when_needed() {
        let mut pool = Pool::new();
        let small: Vec<_> = (0..PAGE_SIZE / ALIGN).map(|_| pool.place(ALIGN, &[])).collect();
        assert_eq!(pool.1, 1);
        let (keep, free): (Vec<_>, Vec<_>) = small.into_iter().partition(|p| p.offset < 1 << 20);
        free.into_iter().for_each(|placement| pool.0.release(placement));
        assert_eq!(pool.place(960 << 10, &[]).buffer.id, keep[0].buffer.id);
        assert_eq!(pool.1, 1);
    }

    #[test]
    fn a_large_buffer_is_reused_for_a_slightly_smaller_allocation_only() {
        let mut pool = Pool::new();
        let large = pool.place(100 << 20, &[]);
        let id = large.buffer.id;
        pool.0.release(large);
        assert_ne!(pool.place(50 << 20, &[]).buffer.id, id);
        assert_eq!(pool.place(90 << 20, &[]).buffer.id, id);
    }

    #[test]
    fn what_a_recent_step_needed_is_kept() {
        let mut pool = Pool::new();
        for _ in 0..3 {
            let step: Vec<_> = (0..20).map(|_| pool.place(64 << 20, &[])).collect();
            step.into_iter().for_each(|placement| pool.0.release(placement));
        }
        assert_eq!((pool.1, pool.0.usage().reserved), (20, 20 * (64 << 20)));
        // Of other sizes, a quarter.
        let others: Vec<_> = (0..20).map(|_| pool.place(32 << 20, &[])).collect();
        assert_eq!(pool.0.usage().reserved, 25 * (64 << 20));
        others.into_iter().for_each(|placement| pool.0.release(placement));
        assert_eq!(pool.0.usage().reserved, 25 * (64 << 20));
    }

    #[test]
    fn idle_memory_is_limited() {
        let mut pool = Pool(Allocator::new(1 << 30, false), 0);
        let placements: Vec<_> = (0..20).map(|_| pool.place(64 << 20, &[])).collect();
        placements.into_iter().for_each(|placement| pool.0.release(placement));
        assert_eq!(pool.0.usage().reserved, MIN_IDLE_LIMIT);
        assert!(pool.0.has_excess_retired());
        assert_eq!(pool.0.take_retired().len(), 16);
        assert!(!pool.0.has_excess_retired());
    }

    #[test]
    fn an_old_peak_is_not_kept() {
        let mut pool = Pool::new();
        let placements: Vec<_> = (0..20).map(|_| pool.place(64 << 20, &[])).collect();
        placements.into_iter().for_each(|placement| pool.0.release(placement));
        // Until the peak is old.
        for _ in 0..2 * PEAK_WINDOW {
            let small = pool.place(256, &[]);
            pool.0.release(small);
        }
        // A page has been added, so that one more of the large buffers exceeds the limit.
        assert_eq!(pool.0.usage().reserved, 3 * (64 << 20) + PAGE_SIZE);
        assert!(pool.0.has_excess_retired());
        assert_eq!(pool.0.take_retired().len(), 17);
        assert!(!pool.0.has_excess_retired());
    }
}
