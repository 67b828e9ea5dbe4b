//! The memory pool: GPU buffers kept for reuse.
//!
//! There is one queue, so memory may be handed out again the moment its last holder lets go: whatever
//! still reads it was submitted earlier. Large tensors own a buffer from size classes of an eighth of
//! an octave (at most 12.5 % waste); small ones are slices of shared pages.
//!
//! wgpu tracks how a *whole* buffer is used, and within one dispatch a buffer is either read or
//! written. Pages are therefore chosen so that an output never shares a page with an input.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;

/// Slices start at multiples of this, the largest alignment any adapter asks for.
const ALIGN: u64 = 256;
/// Tensors of this size and more own a buffer.
const LARGE: u64 = 1 << 20;
/// The size of a page that small tensors share.
const PAGE: u64 = 4 << 20;
/// Unused memory above this much, and above half of what is in use, goes back to the driver.
const SLACK: u64 = 256 << 20;

/// How much memory a device holds. Sizes are in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemoryUsage {
    /// Held by living tensors.
    pub in_use: u64,
    /// Held by the pool: in use, or kept for reuse.
    pub reserved: u64,
    /// The most that was ever in use at once.
    pub peak: u64,
}

/// A GPU buffer with an identity that caches can key on.
#[derive(Debug)]
pub(crate) struct Buffer {
    pub id: u64,
    pub raw: wgpu::Buffer,
}

/// A piece of GPU memory. Returns to the pool when dropped.
#[derive(Debug)]
pub struct Allocation {
    pub(crate) buffer: Arc<Buffer>,
    pub(crate) offset: u64,
    pub(crate) size: u64,
    pool: Arc<Pool>,
}

impl Allocation {
    /// The size in bytes, padding included.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Whether both are pieces of one GPU buffer, which a dispatch may only read or only write.
    pub fn shares_buffer(&self, other: &Allocation) -> bool {
        self.buffer.id == other.buffer.id
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        self.pool.release(&self.buffer, self.offset, self.size);
    }
}

#[derive(Debug)]
struct Page {
    buffer: Arc<Buffer>,
    free: Ranges,
}

/// The free ranges of a page: offset to length, never adjacent.
#[derive(Debug)]
struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    fn all() -> Self {
        Self(BTreeMap::from([(0, PAGE)]))
    }

    fn take(&mut self, size: u64) -> Option<u64> {
        let (&offset, &len) = self.0.iter().find(|&(_, &len)| len >= size)?;
        self.0.remove(&offset);
        if len > size {
            self.0.insert(offset + size, len - size);
        }
        Some(offset)
    }

    fn give(&mut self, mut offset: u64, mut size: u64) {
        if let Some((&before, &len)) = self.0.range(..offset).next_back()
            && before + len == offset
        {
            self.0.remove(&before);
            offset = before;
            size += len;
        }
        if let Some(len) = self.0.remove(&(offset + size)) {
            size += len;
        }
        self.0.insert(offset, size);
    }

    fn is_empty(&self) -> bool {
        self.0.get(&0) == Some(&PAGE)
    }
}

#[derive(Debug, Default)]
struct Free {
    pages: Vec<Page>,
    /// Unused large buffers by class size, each with the moment it was let go.
    large: HashMap<u64, Vec<(Arc<Buffer>, u64)>>,
    large_bytes: u64,
    /// Buffers that are no longer the pool's, but may still be named by commands that were not submitted yet.
    retired: Vec<Arc<Buffer>>,
    usage: MemoryUsage,
    clock: u64,
}

/// The pool of one device.
#[derive(Debug)]
pub(crate) struct Pool {
    state: Mutex<Free>,
    /// No buffer is larger than this, whatever its size class.
    limit: u64,
}

/// What the pool could serve from the memory it has.
pub(crate) enum Request {
    Served(Allocation),
    /// A buffer of this size must be created and given to [`Pool::add`].
    Create(u64),
}

/// The size that a tensor of `bytes` takes up: its size class.
pub(crate) fn size_class(bytes: u64) -> u64 {
    let bytes = bytes.max(1).next_multiple_of(ALIGN);
    if bytes < LARGE {
        return bytes;
    }
    let step = (bytes.next_power_of_two() >> 1).max(LARGE) >> 3;
    bytes.next_multiple_of(step)
}

impl Pool {
    /// An empty pool whose buffers keep to `limit`, itself brought down to the alignment.
    pub fn new(limit: u64) -> Self {
        Self { state: Mutex::default(), limit: limit / ALIGN * ALIGN }
    }

    /// The largest size that can be asked for.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// The size that a tensor of `bytes` takes up.
    fn size_of(&self, bytes: u64) -> u64 {
        size_class(bytes).min(self.limit)
    }

    /// Serves `bytes` from memory at hand, never from a buffer in `avoid`.
    pub fn request(self: &Arc<Self>, bytes: u64, avoid: &[u64]) -> Request {
        let size = self.size_of(bytes);
        let mut state = self.state.lock();
        if size >= LARGE {
            let found = state.large.get_mut(&size).and_then(Vec::pop);
            let Some((buffer, _)) = found else {
                return Request::Create(size);
            };
            state.large_bytes -= size;
            return Request::Served(self.slice(&mut state, buffer, 0, size));
        }
        let found = state.pages.iter_mut().find_map(|page| {
            let usable = !avoid.contains(&page.buffer.id);
            usable.then(|| page.free.take(size).map(|offset| (page.buffer.clone(), offset)))?
        });
        match found {
            Some((buffer, offset)) => Request::Served(self.slice(&mut state, buffer, offset, size)),
            None => Request::Create(PAGE),
        }
    }

    /// Takes a fresh buffer, made because of [`Request::Create`], and serves `bytes` from it.
    pub fn add(self: &Arc<Self>, buffer: Buffer, bytes: u64) -> Allocation {
        let size = self.size_of(bytes);
        let buffer = Arc::new(buffer);
        let mut state = self.state.lock();
        state.usage.reserved += buffer.raw.size();
        if size < LARGE {
            let mut free = Ranges::all();
            free.take(size);
            state.pages.push(Page { buffer: buffer.clone(), free });
        }
        self.slice(&mut state, buffer, 0, size)
    }

    fn slice(
        self: &Arc<Self>,
        state: &mut Free,
        buffer: Arc<Buffer>,
        offset: u64,
        size: u64,
    ) -> Allocation {
        state.usage.in_use += size;
        state.usage.peak = state.usage.peak.max(state.usage.in_use);
        Allocation { buffer, offset, size, pool: self.clone() }
    }

    fn release(&self, buffer: &Arc<Buffer>, offset: u64, size: u64) {
        let mut state = self.state.lock();
        state.usage.in_use -= size;
        state.clock += 1;
        if size >= LARGE {
            let clock = state.clock;
            state.large.entry(size).or_default().push((buffer.clone(), clock));
            state.large_bytes += size;
            let limit = slack(&state);
            while state.large_bytes > limit && drop_oldest(&mut state) {}
        } else if let Some(page) = state.pages.iter_mut().find(|p| p.buffer.id == buffer.id) {
            page.free.give(offset, size);
        }
    }

    /// Gives up everything unused, which is returned to the driver by the next [`destroy_retired`](Self::destroy_retired).
    pub fn trim(&self) {
        let mut state = self.state.lock();
        while drop_oldest(&mut state) {}
        let pages = std::mem::take(&mut state.pages).into_iter();
        let (unused, used): (Vec<_>, Vec<_>) = pages.partition(|page| page.free.is_empty());
        state.pages = used;
        state.usage.reserved -= unused.len() as u64 * PAGE;
        state.retired.extend(unused.into_iter().map(|page| page.buffer));
    }

    /// Whether more was given up than should wait for a submission to come.
    pub fn is_overdue(&self) -> bool {
        let state = self.state.lock();
        state.retired.iter().map(|buffer| buffer.raw.size()).sum::<u64>() > slack(&state)
    }

    /// Returns to the driver what was given up. Called at each submission: what was recorded before may name it. To
    /// drop a buffer is not enough in a browser, which frees it when it next looks for garbage.
    pub fn destroy_retired(&self) {
        let retired = std::mem::take(&mut self.state.lock().retired);
        retired.iter().for_each(|buffer| buffer.raw.destroy());
    }

    pub fn usage(&self) -> MemoryUsage {
        self.state.lock().usage
    }
}

/// How much memory may lie unused.
fn slack(state: &Free) -> u64 {
    SLACK.max(state.usage.in_use / 2)
}

/// Lets go of the large buffer that has waited longest for reuse.
fn drop_oldest(state: &mut Free) -> bool {
    let oldest = state
        .large
        .iter()
        .filter_map(|(&size, list)| list.first().map(|&(_, since)| (since, size)))
        .min();
    let Some((_, size)) = oldest else {
        return false;
    };
    if let Some(list) = state.large.get_mut(&size) {
        let (buffer, _) = list.remove(0);
        state.retired.push(buffer);
    }
    state.large_bytes -= size;
    state.usage.reserved -= size;
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_waste_at_most_an_eighth() {
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
    fn ranges_merge_when_given_back() {
        let mut free = Ranges::all();
        assert_eq!(free.take(256), Some(0));
        assert_eq!(free.take(512), Some(256));
        assert_eq!(free.take(256), Some(768));
        free.give(0, 256);
        free.give(768, 256);
        assert_eq!(free.take(512), Some(768));
        free.give(768, 512);
        free.give(256, 512);
        assert!(free.is_empty());
        assert_eq!(free.take(PAGE + ALIGN), None);
    }
}
