//! Reports of kernels: indices that are outside their axis.
//!
//! A kernel cannot panic. For each axis that its indices address, it writes an index outside the
//! axis to a word of its slot in the buffer of reports (`shaders/lib/report.wgsl`); of several, the
//! largest when read as unsigned. The next readback copies the slots, and clears them.

use std::sync::Arc;

use smallvec::SmallVec;

use super::allocation::Buffer;
use super::events::current_op;
use super::gpu::Gpu;
use super::{RuntimeError, is_off};

/// The environment variable that switches reports off, with the value `0`.
const REPORTS_VARIABLE: &str = "BURN_WGSL_INDEX_REPORTS";

/// The size of a slot in bytes: the largest alignment of bindings that an adapter requires. It has
/// a word for each axis.
const SLOT_SIZE: u64 = 256;
/// The number of slots. Slot 0 is never read. It takes the reports of ops beyond this number
/// between two readbacks, and all of them if reports are switched off.
const SLOTS: u64 = 1024;

/// An axis that the indices of a kernel address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexedAxis {
    /// Its position in the shape of the tensor.
    pub axis: usize,
    /// Its number of elements.
    pub size: usize,
}

/// An op and the axes that its indices address.
#[derive(Debug, PartialEq, Eq)]
struct IndexedOp {
    op: &'static str,
    axes: SmallVec<[IndexedAxis; 2]>,
}

/// The reports of the kernels of a device.
pub(crate) struct Reports {
    enabled: bool,
    /// The buffer with the slots, once there is one.
    buffer: Option<Arc<Buffer>>,
    /// The op of each slot after slot 0, since the last readback.
    ops: Vec<IndexedOp>,
}

/// A slot in the buffer of reports.
#[derive(Debug, Clone)]
pub(crate) struct Slot {
    pub buffer: Arc<Buffer>,
    /// Its place in the buffer, in bytes.
    pub offset: u64,
}

impl Slot {
    pub const SIZE: u64 = SLOT_SIZE;
}

/// Reports that a readback copies.
pub(crate) struct UnreadReports {
    pub buffer: Arc<Buffer>,
    ops: Vec<IndexedOp>,
}

impl Reports {
    /// The size of the buffer in bytes.
    pub const BUFFER_SIZE: u64 = SLOTS * SLOT_SIZE;

    pub fn new() -> Self {
        Self { enabled: !is_off(REPORTS_VARIABLE), buffer: None, ops: Vec::new() }
    }

    /// Returns whether there is a buffer for the slots.
    pub fn has_buffer(&self) -> bool {
        self.buffer.is_some()
    }

    /// Sets the buffer, of [`BUFFER_SIZE`](Self::BUFFER_SIZE) bytes, unless there is one.
    pub fn set_buffer(&mut self, buffer: Arc<Buffer>) {
        self.buffer.get_or_insert(buffer);
    }

    /// Returns the slot for the running op, whose indices address `axes`.
    pub fn slot(&mut self, axes: &[IndexedAxis]) -> Option<Slot> {
        let buffer = self.buffer.clone()?;
        Some(Slot { buffer, offset: self.index(current_op(), axes) * SLOT_SIZE })
    }

    /// Returns the index of a slot. Launches of one op on axes of the same size share it.
    fn index(&mut self, op: &'static str, axes: &[IndexedAxis]) -> u64 {
        if !self.enabled || axes.len() as u64 > SLOT_SIZE / 4 {
            return 0;
        }
        let known = self.ops.iter().rposition(|known| known.op == op && *known.axes == *axes);
        if let Some(position) = known {
            return position as u64 + 1;
        }
        if self.ops.len() as u64 + 1 == SLOTS {
            return 0;
        }
        self.ops.push(IndexedOp { op, axes: axes.into() });
        self.ops.len() as u64
    }

    /// Returns the number of bytes of the reports since the last readback.
    pub fn unread_bytes(&self) -> u64 {
        self.ops.len() as u64 * SLOT_SIZE
    }

    /// Takes the reports since the last call, if kernels could make any. The caller records the
    /// copy and the clearing of their slots at once.
    pub fn take_unread(&mut self) -> Option<UnreadReports> {
        let buffer = self.buffer.clone().filter(|_| !self.ops.is_empty())?;
        Some(UnreadReports { buffer, ops: std::mem::take(&mut self.ops) })
    }
}

impl UnreadReports {
    /// Returns the offset and the number of bytes to read back.
    pub fn range(&self) -> (u64, u64) {
        (SLOT_SIZE, self.ops.len() as u64 * SLOT_SIZE)
    }

    /// Returns an error for the first report among the bytes that were read back.
    pub fn check(&self, gpu: &Gpu, bytes: &[u8]) -> Result<(), RuntimeError> {
        for (op, slot) in self.ops.iter().zip(bytes.chunks_exact(SLOT_SIZE as usize)) {
            let (words, _) = slot.as_chunks();
            for (&IndexedAxis { axis, size }, &word) in op.axes.iter().zip(words) {
                // An index outside its axis is not zero.
                let index = i32::from_ne_bytes(word);
                if index != 0 {
                    let device = gpu.name();
                    return Err(RuntimeError::IndexOutOfRange {
                        device,
                        op: op.op,
                        index,
                        axis,
                        size,
                    });
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AXES: [IndexedAxis; 2] =
        [IndexedAxis { axis: 0, size: 4 }, IndexedAxis { axis: 1, size: 5 }];

    fn reports(enabled: bool) -> Reports {
        Reports { enabled, buffer: None, ops: Vec::new() }
    }

    #[test]
    fn launches_of_an_op_on_equal_axes_share_a_slot() {
        let mut reports = reports(true);
        assert_eq!(reports.index("gather", &AXES), 1);
        assert_eq!(reports.index("gather", &AXES[..1]), 2);
        assert_eq!(reports.index("scatter", &AXES), 3);
        assert_eq!(reports.index("gather", &AXES), 1);
    }

    #[test]
    fn the_first_slot_takes_what_is_not_read() {
        assert_eq!(reports(false).index("gather", &AXES), 0);
        let mut reports = reports(true);
        for size in 1..SLOTS {
            let axis = IndexedAxis { axis: 0, size: size as usize };
            assert_eq!(reports.index("gather", &[axis]), size);
        }
        assert_eq!(reports.index("scatter", &AXES), 0);
    }
}
