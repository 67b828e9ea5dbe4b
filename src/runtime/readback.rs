//! Readbacks: copies of GPU memory to the host, in pieces of bounded size, so that a readback of any size needs little
//! memory of its own.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;

use super::events::Event;
use super::faults::Fault;
use super::gpu::Gpu;
use super::mapping::{Mapping, PIECE, padded};
use super::reports::{HostCopy, ReportsInFlight, SlotRange};
use super::submitter::Submitted;
use super::waits::{Wait, Waiting};
use super::{Allocation, Runtime, RuntimeError, State, block_on};
use crate::device::CAN_BLOCK;

/// Smallest size of a buffer for readbacks, in bytes.
const MIN_READBACK_BUFFER: u64 = 64 << 10;
/// Maximum number of pieces of a readback in flight: one is copied by the device while the host
/// reads the other.
const READBACK_PIECES: usize = 2;
/// Maximum size of the unused buffers for readbacks that are kept, in bytes.
const KEPT_READBACK_BYTES: u64 = 32 << 20;

/// The unused buffers for readbacks of a device.
#[derive(Default)]
pub(crate) struct ReadbackBuffers(Mutex<Vec<wgpu::Buffer>>);

impl ReadbackBuffers {
    /// Returns a buffer for a readback of `bytes` bytes.
    fn take(&self, gpu: &Gpu, bytes: u64) -> Result<wgpu::Buffer, RuntimeError> {
        let mut buffers = self.0.lock();
        if let Some(index) = buffers.iter().position(|buffer| buffer.size() >= bytes) {
            return Ok(buffers.swap_remove(index));
        }
        drop(buffers);
        let size = bytes.next_power_of_two().max(MIN_READBACK_BUFFER);
        let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
        gpu.create_buffer("readback", size, usage, false)
            .map_err(|error| gpu.transfer_error(&error))
    }

    /// Keeps an unmapped buffer for another readback, or destroys it.
    fn keep(&self, buffer: wgpu::Buffer) {
        let mut buffers = self.0.lock();
        let kept: u64 = buffers.iter().map(wgpu::Buffer::size).sum();
        if kept + buffer.size() <= KEPT_READBACK_BYTES {
            buffers.push(buffer);
        } else {
            // A browser frees a dropped buffer only at the next garbage collection.
            buffer.destroy();
        }
    }

    /// Destroys the unused buffers.
    pub fn trim(&self) {
        self.0.lock().drain(..).for_each(|buffer| buffer.destroy());
    }
}

/// A range of a GPU buffer that is read back.
pub(super) struct ReadbackSource<'a> {
    pub buffer: &'a wgpu::Buffer,
    pub offset: u64,
    pub bytes: u64,
}

/// A part of a readback: consecutive bytes of all sources, at most [`PIECE`].
#[derive(Default)]
struct Piece {
    /// Index of the source, offset within it, and number of bytes, of each copy.
    copies: Vec<(usize, u64, u64)>,
    bytes: u64,
}

/// Splits the sources into pieces.
fn pieces(sizes: impl Iterator<Item = u64>) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    for (source, bytes) in sizes.enumerate() {
        let mut offset = 0;
        while offset < bytes {
            let room = pieces.last().map_or(0, |piece| PIECE - piece.bytes);
            let copied = room.min(bytes - offset);
            match pieces.last_mut() {
                Some(piece) if room > 0 => {
                    piece.copies.push((source, offset, copied));
                    piece.bytes += padded(copied);
                }
                _ => pieces.push(Piece::default()),
            }
            offset += copied;
        }
    }
    pieces
}

/// A piece that the device is copying.
struct PieceInFlight {
    piece: Piece,
    buffer: wgpu::Buffer,
    /// The serial number of the submission.
    serial: u64,
    submission: Option<wgpu::SubmissionIndex>,
    mapped: Mapping,
}

impl Gpu {
    /// Returns whether a buffer is mapped, as far as the device says now.
    fn has_mapped(&self, mapping: &Mapping) -> bool {
        if !mapping.is_complete() && CAN_BLOCK && !self.is_lost() {
            let _ = self.device.poll(wgpu::PollType::Poll);
        }
        mapping.is_complete()
    }
}

impl Runtime {
    /// Reads the first `bytes` bytes of each `(allocation, bytes)` pair in `ranges`, with one
    /// submission for each 8 MiB.
    ///
    /// On native platforms the first poll of the future blocks until the data is there. In a
    /// browser the future yields to the event loop.
    ///
    /// # Errors
    ///
    /// Returns an error if the device was lost, an allocation's contents were lost or depend on an index
    /// outside its axis, or there is no memory for the data.
    pub async fn read(
        &self,
        ranges: &[(Arc<Allocation>, u64)],
    ) -> Result<Vec<Vec<u8>>, RuntimeError> {
        let sources = self.sources(ranges)?;
        let read = self.read_sources(&sources).await?;
        // A submission that the results depend on may have failed while the host waited.
        for (allocation, _) in ranges {
            self.check_read(allocation)?;
        }
        Ok(read)
    }

    /// Places what is to be read, and returns where it is.
    fn sources<'a>(
        &self,
        ranges: &'a [(Arc<Allocation>, u64)],
    ) -> Result<Vec<ReadbackSource<'a>>, RuntimeError> {
        self.gpu.check()?;
        for (allocation, _) in ranges {
            self.check_read(allocation)?;
        }
        self.place_all(ranges.iter().map(|(allocation, _)| &**allocation))?;
        let source = |(allocation, bytes): &'a (Arc<Allocation>, u64)| {
            let placement = allocation.placement()?;
            let (buffer, offset) = (&placement.buffer.raw, placement.offset);
            Some(ReadbackSource { buffer, offset, bytes: *bytes })
        };
        Ok(ranges.iter().filter_map(source).collect())
    }

    /// Returns an error if the contents of an allocation cannot be given to the program.
    fn check_read(&self, allocation: &Allocation) -> Result<(), RuntimeError> {
        let checked = allocation.check(&self.gpu);
        if checked.is_err() {
            allocation.taint().set_returned();
        }
        checked
    }

    /// Reads like [`read`](Self::read), and blocks until the data is there.
    ///
    /// # Errors
    ///
    /// Returns an error in the same cases as [`read`](Self::read), and in a browser, which cannot
    /// block.
    pub fn read_blocking(
        &self,
        ranges: &[(Arc<Allocation>, u64)],
    ) -> Result<Vec<Vec<u8>>, RuntimeError> {
        self.gpu.check_can_block()?;
        block_on(self.read(ranges))
    }

    /// Places those allocations that are not placed yet.
    fn place_all<'a>(
        &self,
        allocations: impl Iterator<Item = &'a Allocation>,
    ) -> Result<(), RuntimeError> {
        let mut state = self.state.lock();
        for allocation in allocations {
            state = self.place(state, &[allocation], &[])?;
        }
        Ok(())
    }

    /// Reads ranges of buffers.
    pub(super) async fn read_sources(
        &self,
        sources: &[ReadbackSource<'_>],
    ) -> Result<Vec<Vec<u8>>, RuntimeError> {
        let mut read = Vec::with_capacity(sources.len());
        for source in sources {
            let mut bytes = Vec::new();
            bytes
                .try_reserve_exact(source.bytes as usize)
                .map_err(|_| RuntimeError::HostOutOfMemory { requested: source.bytes })?;
            read.push(bytes);
        }
        let mut in_flight: VecDeque<PieceInFlight> = VecDeque::new();
        let mut end = 0;
        for piece in pieces(sources.iter().map(|source| source.bytes)) {
            if in_flight.len() == READBACK_PIECES
                && let Some(oldest) = in_flight.pop_front()
            {
                self.finish_piece(oldest, &mut read).await?;
            }
            let piece = self.start_piece(piece, sources)?;
            end = piece.serial + 1;
            in_flight.push_back(piece);
        }
        for piece in in_flight {
            self.finish_piece(piece, &mut read).await?;
        }
        self.finish_reports(end).await;
        self.compiler.save();
        Ok(read)
    }

    /// Records the copy of the reports so far, and their clearing, if kernels could make any, and submits everything
    /// recorded.
    pub(super) fn copy_reports(&self, state: &mut State) -> Result<(), RuntimeError> {
        match state.reports.bytes() {
            0 => Ok(()),
            _ => self.copy_to_host(state, |_| {}).map(drop),
        }
    }

    /// Submits what `encode` records, and the copies of the reports so far.
    fn copy_to_host(
        &self,
        state: &mut State,
        encode: impl FnOnce(&mut wgpu::CommandEncoder),
    ) -> Result<Submitted, RuntimeError> {
        let gpu = &self.gpu;
        let State { recorder, reports, .. } = &mut *state;
        // Before anything is recorded that nobody would read.
        recorder.check()?;
        let staging = match reports.bytes() {
            0 => None,
            bytes => Some(self.readback_buffers.take(gpu, bytes)?),
        };
        // Without a buffer for the copy, the launches keep their slots.
        let copied = staging.and_then(|staging| Some((reports.take()?, staging)));
        if let Some(((from, SlotRange { start, bytes }, _), staging)) = &copied {
            let encoder = recorder.copy_encoder(gpu);
            encoder.copy_buffer_to_buffer(&from.raw, *start, staging, 0, *bytes);
            encoder.clear_buffer(&from.raw, *start, Some(*bytes));
        }
        encode(recorder.copy_encoder(gpu));
        let submitted = match self.submit(state) {
            Ok(submitted) => submitted,
            Err(error) => {
                // They are copied when the driver returns, but nobody waits for it.
                if let Some(((_, _, launches), _)) = &copied {
                    self.outcomes.fail(launches, &gpu.name(), &error);
                }
                return Err(error);
            }
        };
        let Some(((_, range, launches), buffer)) = copied else { return Ok(submitted) };
        let (bytes, serial) = (range.bytes, submitted.serial);
        if submitted.has_failed {
            // The slots were neither copied nor cleared: the next readback has them.
            state.reports.put_back(launches);
            self.readback_buffers.keep(buffer);
            return Ok(submitted);
        }
        let mapping = match gpu.guarded(|| Mapping::new(&buffer, wgpu::MapMode::Read, bytes)) {
            Ok(mapping) => mapping,
            Err(error) => {
                self.outcomes.fail(&launches, &gpu.name(), &error);
                return Ok(submitted);
            }
        };
        let copy = HostCopy { buffer, bytes, mapping };
        self.outcomes.push(ReportsInFlight { launches, serial, copy });
        self.read_reports();
        Ok(submitted)
    }

    /// Reads the reports that have arrived.
    fn read_reports(&self) {
        // In a browser, errors arrive late: what was copied before is lost, too.
        let is_lost = |serial| !CAN_BLOCK && self.gpu.check_results(serial..=serial).is_err();
        for copy in self.outcomes.read_mapped(&self.gpu.name(), is_lost) {
            self.readback_buffers.keep(copy.buffer);
        }
    }

    /// Waits for the reports that were copied by submissions before `end`, and reads them. Where the host can block,
    /// these submissions must have finished.
    pub(super) async fn finish_reports(&self, end: u64) {
        for mapping in self.outcomes.mappings(end) {
            let _ = mapping.await;
        }
        self.read_reports();
    }

    /// Submits the copies of a piece and of the reports so far.
    fn start_piece(
        &self,
        piece: Piece,
        sources: &[ReadbackSource<'_>],
    ) -> Result<PieceInFlight, RuntimeError> {
        let gpu = &self.gpu;
        gpu.observers.notify(|| Event::Readback { bytes: piece.bytes });
        let mut state = self.state.lock();
        let buffer = self.readback_buffers.take(gpu, piece.bytes)?;
        let submitted = self.copy_to_host(&mut state, |encoder| {
            let mut offset = 0;
            for &(source, start, bytes) in &piece.copies {
                let ReadbackSource { buffer: from, offset: base, .. } = sources[source];
                encoder.copy_buffer_to_buffer(from, base + start, &buffer, offset, padded(bytes));
                offset += padded(bytes);
            }
        })?;
        drop(state);
        let mapped = gpu.guarded(|| Mapping::new(&buffer, wgpu::MapMode::Read, piece.bytes))?;
        let Submitted { index: submission, serial, .. } = submitted;
        Ok(PieceInFlight { piece, buffer, serial, submission, mapped })
    }

    /// Waits for a piece and appends its bytes to those read before.
    async fn finish_piece(
        &self,
        in_flight: PieceInFlight,
        read: &mut [Vec<u8>],
    ) -> Result<(), RuntimeError> {
        let gpu = &self.gpu;
        let PieceInFlight { piece, buffer, serial, submission, mapped } = in_flight;
        if CAN_BLOCK && !gpu.has_mapped(&mapped) {
            let _waiting = Waiting::begin(Wait::Readback);
            gpu.wait_until(submission, |_| mapped.is_complete())?;
        }
        let copied = gpu.check_results(serial..=serial);
        let mapped = mapped.await;
        gpu.check()?;
        copied?;
        if gpu.faults.strikes(Fault::Map) {
            return Err(gpu.transfer_error(&"a test failed it"));
        }
        mapped.map_err(|error| gpu.transfer_error(&error))?;
        let view =
            buffer.get_mapped_range(..piece.bytes).map_err(|error| gpu.transfer_error(&error))?;
        let mut offset = 0;
        for (source, _, bytes) in piece.copies {
            read[source].extend_from_slice(&view[offset..offset + bytes as usize]);
            offset += padded(bytes) as usize;
        }
        drop(view);
        buffer.unmap();
        self.readback_buffers.keep(buffer);
        Ok(())
    }
}

/// Ranges of memory that are being copied to the host. The memory is kept until then.
pub(crate) struct StartedRead {
    ranges: Vec<(Arc<Allocation>, u64)>,
    pieces: Vec<PieceInFlight>,
}

impl Runtime {
    /// Submits the copies of ranges as [`read`](Self::read) does, and does not wait for them. All of them need memory
    /// that the host reads.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    pub(crate) fn start_read(
        &self,
        ranges: Vec<(Arc<Allocation>, u64)>,
    ) -> Result<StartedRead, RuntimeError> {
        let sources = self.sources(&ranges)?;
        let pieces = pieces(sources.iter().map(|source| source.bytes)).into_iter();
        let pieces: Result<_, _> = pieces.map(|piece| self.start_piece(piece, &sources)).collect();
        drop(sources);
        Ok(StartedRead { ranges, pieces: pieces? })
    }

    /// Returns whether a started read would not wait.
    #[cfg(feature = "train")]
    pub(crate) fn is_read(&self, started: &StartedRead) -> bool {
        let is_mapped = |piece: &PieceInFlight| self.gpu.has_mapped(&piece.mapped);
        // A lost device has an error at once.
        started.pieces.iter().all(is_mapped) || self.gpu.is_lost()
    }

    /// Waits for a started read.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    pub(crate) async fn finish_read(
        &self,
        started: StartedRead,
    ) -> Result<Vec<Vec<u8>>, RuntimeError> {
        let StartedRead { ranges, pieces } = started;
        let mut read = vec![Vec::new(); ranges.len()];
        let end = pieces.last().map_or(0, |piece| piece.serial + 1);
        for piece in pieces {
            self.finish_piece(piece, &mut read).await?;
        }
        self.finish_reports(end).await;
        for (allocation, _) in &ranges {
            self.check_read(allocation)?;
        }
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_all_bytes_in_order() {
        let sizes = [5, 0, 3 * PIECE + 4, 17, PIECE];
        let pieces = pieces(sizes.into_iter());
        let mut covered = [0; 5];
        for piece in &pieces {
            assert!(!piece.copies.is_empty() && piece.bytes <= PIECE);
            let mut bytes = 0;
            for &(source, offset, len) in &piece.copies {
                assert_eq!(offset, covered[source]);
                assert!(offset.is_multiple_of(wgpu::COPY_BUFFER_ALIGNMENT));
                covered[source] += len;
                bytes += padded(len);
            }
            assert_eq!(bytes, piece.bytes);
        }
        assert_eq!(covered, sizes);
    }
}
