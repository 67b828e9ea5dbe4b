//! The memory pool: GPU buffers kept for reuse.
//!
//! A large allocation owns a whole buffer. Its size is rounded up to one of eight size classes per
//! power of two, which wastes at most 12.5 %. A small allocation is a range of a shared page.
//!
//! Memory can be reused as soon as its last owner is dropped. There is one queue, so every command
//! that still uses the memory runs before the commands that reuse it.
//!
//! wgpu tracks the usage of *whole* buffers, and within one dispatch a buffer is either read-only
//! or writable. An output is therefore never allocated from the page of an input.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;

/// Alignment of allocation offsets: the largest that any adapter requires.
const ALIGN: u64 = 256;
/// Allocations of at least this size own a buffer.
const LARGE: u64 = 1 << 20;
/// The size of a page shared by small allocations.
const PAGE_SIZE: u64 = 4 << 20;
/// Smallest limit on unused memory, see [`unused_limit`].
const MIN_UNUSED_LIMIT: u64 = 256 << 20;

/// How much memory a device holds. Sizes are in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemoryUsage {
    /// Size of the live allocations.
    pub in_use: u64,
    /// Size of the pool's buffers, in use or kept for reuse.
    pub reserved: u64,
    /// Maximum of `in_use` since the device was opened.
    pub peak: u64,
}

/// A GPU buffer with a unique id, used as a cache key.
#[derive(Debug)]
pub(crate) struct Buffer {
    pub id: u64,
    pub raw: wgpu::Buffer,
}

/// A range of a GPU buffer, allocated from the pool. Dropping it returns the range to the pool.
#[derive(Debug)]
pub struct Allocation {
    pub(crate) buffer: Arc<Buffer>,
    pub(crate) offset: u64,
    pub(crate) size: u64,
    pool: Arc<Pool>,
}

impl Allocation {
    /// Returns the size in bytes, including padding.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Returns whether both allocations are in the same GPU buffer.
    ///
    /// Within one dispatch, a buffer is either read-only or writable.
    pub fn shares_buffer(&self, other: &Allocation) -> bool {
        self.buffer.id == other.buffer.id
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        self.pool.release(&self.buffer, self.offset, self.size);
    }
}

/// A buffer shared by small allocations.
#[derive(Debug)]
struct Page {
    buffer: Arc<Buffer>,
    free_ranges: FreeRanges,
}

/// The free ranges of a page as a map from offset to length. Adjacent ranges are merged.
#[derive(Debug)]
struct FreeRanges(BTreeMap<u64, u64>);

impl FreeRanges {
    /// Returns the free ranges of an empty page: one range over the whole page.
    fn new() -> Self {
        Self(BTreeMap::from([(0, PAGE_SIZE)]))
    }

    /// Allocates the first range that fits, and returns its offset.
    fn allocate(&mut self, size: u64) -> Option<u64> {
        let (&offset, &len) = self.0.iter().find(|&(_, &len)| len >= size)?;
        self.0.remove(&offset);
        if len > size {
            self.0.insert(offset + size, len - size);
        }
        Some(offset)
    }

    /// Frees a range and merges it with adjacent free ranges.
    fn free(&mut self, mut offset: u64, mut size: u64) {
        if let Some((&previous, &len)) = self.0.range(..offset).next_back()
            && previous + len == offset
        {
            self.0.remove(&previous);
            offset = previous;
            size += len;
        }
        if let Some(len) = self.0.remove(&(offset + size)) {
            size += len;
        }
        self.0.insert(offset, size);
    }

    /// Returns whether the whole page is free.
    fn is_page_free(&self) -> bool {
        self.0.get(&0) == Some(&PAGE_SIZE)
    }
}

/// The mutable state of a [`Pool`].
#[derive(Debug, Default)]
struct PoolState {
    pages: Vec<Page>,
    /// Free large buffers by size class, each with the value of `clock` at its release.
    free_large: HashMap<u64, Vec<(Arc<Buffer>, u64)>>,
    /// Total size of `free_large` in bytes.
    free_large_bytes: u64,
    /// Buffers removed from the pool that recorded commands may still use.
    retired: Vec<Arc<Buffer>>,
    usage: MemoryUsage,
    /// Number of releases so far.
    clock: u64,
}

/// The memory pool of one device.
#[derive(Debug)]
pub(crate) struct Pool {
    state: Mutex<PoolState>,
    /// Maximum size of a buffer in bytes. Size classes are capped at it.
    limit: u64,
}

/// The result of [`Pool::try_alloc`].
pub(crate) enum PoolResponse {
    Allocated(Allocation),
    /// The caller must create a buffer of this size and pass it to [`Pool::add_buffer`].
    NeedsBuffer(u64),
}

/// Rounds `bytes` up to the alignment, and a large size up to its size class.
pub(crate) fn size_class(bytes: u64) -> u64 {
    let bytes = bytes.max(1).next_multiple_of(ALIGN);
    if bytes < LARGE {
        return bytes;
    }
    let step = (bytes.next_power_of_two() >> 1).max(LARGE) >> 3;
    bytes.next_multiple_of(step)
}

impl Pool {
    /// Creates an empty pool. No buffer exceeds `limit`, which is rounded down to the alignment.
    pub fn new(limit: u64) -> Self {
        Self { state: Mutex::default(), limit: limit / ALIGN * ALIGN }
    }

    /// Returns the maximum size of an allocation in bytes.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns the size of an allocation for `bytes` bytes: the size class, capped at the limit.
    fn allocation_size(&self, bytes: u64) -> u64 {
        size_class(bytes).min(self.limit)
    }

    /// Allocates `bytes` bytes from the pool's free memory.
    ///
    /// `avoid` holds the ids of buffers that must not be used.
    pub fn try_alloc(self: &Arc<Self>, bytes: u64, avoid: &[u64]) -> PoolResponse {
        let size = self.allocation_size(bytes);
        let mut state = self.state.lock();
        if size >= LARGE {
            // A free large buffer has no live allocation, so it is not in `avoid`.
            let free = state.free_large.get_mut(&size).and_then(Vec::pop);
            let Some((buffer, _)) = free else {
                return PoolResponse::NeedsBuffer(size);
            };
            state.free_large_bytes -= size;
            return PoolResponse::Allocated(self.new_allocation(&mut state, buffer, 0, size));
        }
        let mut usable_pages =
            state.pages.iter_mut().filter(|page| !avoid.contains(&page.buffer.id));
        let range = usable_pages.find_map(|page| {
            let offset = page.free_ranges.allocate(size)?;
            Some((page.buffer.clone(), offset))
        });
        match range {
            Some((buffer, offset)) => {
                PoolResponse::Allocated(self.new_allocation(&mut state, buffer, offset, size))
            }
            None => PoolResponse::NeedsBuffer(PAGE_SIZE),
        }
    }

    /// Adds a buffer created for [`PoolResponse::NeedsBuffer`] and allocates `bytes` bytes of it.
    pub fn add_buffer(self: &Arc<Self>, buffer: Buffer, bytes: u64) -> Allocation {
        let size = self.allocation_size(bytes);
        let buffer = Arc::new(buffer);
        let mut state = self.state.lock();
        state.usage.reserved += buffer.raw.size();
        if size < LARGE {
            let mut free_ranges = FreeRanges::new();
            free_ranges.allocate(size);
            state.pages.push(Page { buffer: buffer.clone(), free_ranges });
        }
        self.new_allocation(&mut state, buffer, 0, size)
    }

    /// Creates the allocation for a range of `buffer` and counts the range as in use.
    fn new_allocation(
        self: &Arc<Self>,
        state: &mut PoolState,
        buffer: Arc<Buffer>,
        offset: u64,
        size: u64,
    ) -> Allocation {
        state.usage.in_use += size;
        state.usage.peak = state.usage.peak.max(state.usage.in_use);
        Allocation { buffer, offset, size, pool: self.clone() }
    }

    /// Returns a dropped allocation's memory to the pool.
    fn release(&self, buffer: &Arc<Buffer>, offset: u64, size: u64) {
        let mut state = self.state.lock();
        state.usage.in_use -= size;
        state.clock += 1;
        if size >= LARGE {
            let clock = state.clock;
            state.free_large.entry(size).or_default().push((buffer.clone(), clock));
            state.free_large_bytes += size;
            let limit = unused_limit(&state);
            while state.free_large_bytes > limit && retire_oldest(&mut state) {}
        } else if let Some(page) = state.pages.iter_mut().find(|p| p.buffer.id == buffer.id) {
            page.free_ranges.free(offset, size);
        }
    }

    /// Retires all unused buffers. [`destroy_retired`](Self::destroy_retired) destroys them later.
    pub fn trim(&self) {
        let mut state = self.state.lock();
        while retire_oldest(&mut state) {}
        let pages = std::mem::take(&mut state.pages).into_iter();
        let (unused, used): (Vec<_>, Vec<_>) =
            pages.partition(|page| page.free_ranges.is_page_free());
        state.pages = used;
        state.usage.reserved -= unused.len() as u64 * PAGE_SIZE;
        state.retired.extend(unused.into_iter().map(|page| page.buffer));
    }

    /// Returns whether the retired buffers exceed the limit on unused memory.
    ///
    /// The caller then submits the recorded commands, so that the buffers can be destroyed.
    pub fn has_excess_retired(&self) -> bool {
        let state = self.state.lock();
        state.retired.iter().map(|buffer| buffer.raw.size()).sum::<u64>() > unused_limit(&state)
    }

    /// Destroys the retired buffers.
    ///
    /// Called after each submission, because recorded commands may use the buffers. Dropping a
    /// buffer is not enough in a browser, which frees it only at the next garbage collection.
    pub fn destroy_retired(&self) {
        let retired = std::mem::take(&mut self.state.lock().retired);
        retired.iter().for_each(|buffer| buffer.raw.destroy());
    }

    pub fn usage(&self) -> MemoryUsage {
        self.state.lock().usage
    }
}

/// Returns how many bytes of unused large buffers the pool keeps: half of the memory in use, and at
/// least [`MIN_UNUSED_LIMIT`].
fn unused_limit(state: &PoolState) -> u64 {
    MIN_UNUSED_LIMIT.max(state.usage.in_use / 2)
}

/// Retires the large buffer that has been free longest. Returns `false` if no large buffer is free.
fn retire_oldest(state: &mut PoolState) -> bool {
    let oldest = state
        .free_large
        .iter()
        .filter_map(|(&size, list)| list.first().map(|&(_, released)| (released, size)))
        .min();
    let Some((_, size)) = oldest else {
        return false;
    };
    if let Some(list) = state.free_large.get_mut(&size) {
        let (buffer, _) = list.remove(0);
        state.retired.push(buffer);
    }
    state.free_large_bytes -= size;
    state.usage.reserved -= size;
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_classes_waste_at_most_one_eighth() {
        for bytes in (1..200u64).map(|i| i * 99_991) {
            let class = size_class(bytes);
            assert!(class >= bytes && class.is_multiple_of(ALIGN), "{bytes} -> {class}");
            if bytes >= LARGE {
                assert!((class - bytes) as f64 <= bytes as f64 * 0.125, "{bytes} -> {class}");
                assert_eq!(size_class(class), class);
            }
        }
    }

    #[test]
    fn freed_ranges_merge_with_adjacent_ranges() {
        let mut ranges = FreeRanges::new();
        assert_eq!(ranges.allocate(256), Some(0));
        assert_eq!(ranges.allocate(512), Some(256));
        assert_eq!(ranges.allocate(256), Some(768));
        ranges.free(0, 256);
        ranges.free(768, 256);
        assert_eq!(ranges.allocate(512), Some(768));
        ranges.free(768, 512);
        ranges.free(256, 512);
        assert!(ranges.is_page_free());
        assert_eq!(ranges.allocate(PAGE_SIZE + ALIGN), None);
    }
}
