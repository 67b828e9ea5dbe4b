//! Uploads: the host fills mapped memory, from which the device copies, in pieces of bounded size.

use std::collections::VecDeque;
use std::ops::Deref;

use parking_lot::Mutex;

use super::events::Event;
use super::faults::Fault;
use super::gpu::Gpu;
use super::mapping::{Mapping, PIECE, padded};
use super::recorder::SMALL_UPLOAD;
use super::stall::Largest;
use super::waits::{Wait, Waiting};
use super::{Allocation, Runtime, RuntimeError};
use crate::device::CAN_BLOCK;

/// Maximum number of buffers that are kept: the host fills one while the device copies from others.
const KEPT_BUFFERS: usize = 4;

/// The buffers for large uploads of a device, in the order of their last use. They are kept, because a driver may crash
/// when it maps new memory while there is hardly any.
#[derive(Default)]
pub(crate) struct UploadBuffers(Mutex<VecDeque<UploadBuffer>>);

/// A buffer for a piece of an upload.
struct UploadBuffer {
    raw: wgpu::Buffer,
    /// The submission that copies from the buffer.
    submission: wgpu::SubmissionIndex,
    /// Completes when the copy has finished and the buffer is mapped again.
    mapped: Mapping,
}

impl UploadBuffers {
    /// Returns a mapped buffer for a piece of an upload. Waits if all of them are in use.
    fn take(&self, gpu: &Gpu) -> Result<Option<wgpu::Buffer>, RuntimeError> {
        let mut buffers = self.0.lock();
        let oldest_is_mapped = buffers.front().is_some_and(|buffer| buffer.mapped.is_complete());
        if !oldest_is_mapped && buffers.len() < KEPT_BUFFERS {
            let usage = wgpu::BufferUsages::MAP_WRITE | wgpu::BufferUsages::COPY_SRC;
            if let Ok(buffer) = gpu.create_buffer("upload", PIECE, usage, true) {
                return Ok(Some(buffer));
            }
        }
        let Some(oldest) = buffers.pop_front() else { return Ok(None) };
        drop(buffers);
        if !oldest_is_mapped {
            let _waiting = Waiting::begin(Wait::Upload);
            gpu.wait(Some(oldest.submission))?;
        }
        // Another thread may have found the buffer mapped, but not have said so yet.
        pollster::block_on(oldest.mapped).map_err(|error| gpu.transfer_error(&error))?;
        Ok(Some(oldest.raw))
    }

    /// Maps a buffer again when `submission` has copied from it, for the next upload.
    fn keep(&self, raw: wgpu::Buffer, submission: wgpu::SubmissionIndex) {
        let mut buffers = self.0.lock();
        if buffers.len() < KEPT_BUFFERS {
            let mapped = Mapping::new(&raw, wgpu::MapMode::Write, raw.size());
            buffers.push_back(UploadBuffer { raw, submission, mapped });
        }
    }
}

/// The part of an upload that the host is filling.
struct Piece {
    memory: PieceMemory,
    /// The bytes that are there.
    filled: u64,
}

/// Memory that the device copies from.
enum PieceMemory {
    Mapped {
        raw: wgpu::Buffer,
        view: wgpu::BufferViewMut,
    },
    /// A browser has staging memory of its own.
    Browser(wgpu::QueueWriteBufferView),
}

impl Piece {
    fn write(&mut self, data: &[u8]) {
        let start = self.filled as usize;
        let mut place = match &mut self.memory {
            PieceMemory::Mapped { view, .. } => view.slice(start..start + data.len()),
            PieceMemory::Browser(view) => view.slice(start..start + data.len()),
        };
        place.copy_from_slice(data);
        self.filled += data.len() as u64;
    }
}

/// An upload to new memory, which the host writes from its beginning to its end.
pub(crate) struct Upload<R: Deref<Target = Runtime>> {
    runtime: R,
    allocation: Allocation,
    /// The bytes of the pieces whose copies were submitted.
    submitted: u64,
    piece: Option<Piece>,
}

impl<R: Deref<Target = Runtime>> Upload<R> {
    /// Begins an upload of some bytes.
    ///
    /// # Errors
    ///
    /// Returns an error if they exceed the largest buffer, or the device was lost.
    pub fn begin(runtime: R, bytes: u64) -> Result<Self, RuntimeError> {
        let allocation = runtime.alloc(bytes)?;
        runtime.gpu.observers.notify(|| Event::Upload { bytes });
        Ok(Self { runtime, allocation, submitted: 0, piece: None })
    }

    /// Copies the next bytes. When a piece is complete, its copy on the device is submitted.
    ///
    /// # Errors
    ///
    /// Returns an error if there are more bytes than the upload has, the device is out of memory, there is no memory
    /// for staging, or the device was lost.
    pub fn write(&mut self, mut data: &[u8]) -> Result<(), RuntimeError> {
        let gpu = &self.runtime.gpu;
        gpu.observers.notify(|| Event::Staged { bytes: data.len() as u64 });
        if data.len() as u64 > self.missing() {
            return Err(gpu.transfer_error(&"more bytes were written than the upload has"));
        }
        while !data.is_empty() {
            let mut piece = match self.piece.take() {
                Some(piece) => piece,
                None => self.new_piece()?,
            };
            let room = (PIECE - piece.filled).min(data.len() as u64) as usize;
            let (now, rest) = data.split_at(room);
            piece.write(now);
            data = rest;
            match piece.filled {
                PIECE => self.submit(piece)?,
                _ => self.piece = Some(piece),
            }
        }
        Ok(())
    }

    /// Returns the bytes that are still to be written.
    fn missing(&self) -> u64 {
        let filled = self.piece.as_ref().map_or(0, |piece| piece.filled);
        self.allocation.bytes() - self.submitted - filled
    }

    /// Submits the copy of the last bytes, and returns the memory.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write), and if bytes are missing.
    pub fn finish(mut self) -> Result<Allocation, RuntimeError> {
        if self.missing() > 0 {
            let message = format!("{} bytes of an upload were not written", self.missing());
            return Err(self.runtime.gpu.transfer_error(&message));
        }
        if let Some(piece) = self.piece.take() {
            self.submit(piece)?;
        }
        Ok(self.allocation)
    }

    /// Returns memory for the next bytes. The memory on the device is placed before the first.
    fn new_piece(&self) -> Result<Piece, RuntimeError> {
        let runtime = &*self.runtime;
        let gpu = &runtime.gpu;
        if self.submitted == 0 {
            let mut state = runtime.place(runtime.state.lock(), &[&self.allocation], &[])?;
            // Commands recorded before this upload may use the same memory, so they are submitted first.
            runtime.submit(&mut state)?;
        }
        let memory = if CAN_BLOCK {
            let raw = runtime.upload_buffers.take(gpu)?.ok_or_else(|| self.out_of_memory())?;
            let view = raw.get_mapped_range_mut(..).map_err(|error| gpu.transfer_error(&error))?;
            PieceMemory::Mapped { raw, view }
        } else {
            let len = padded((self.allocation.bytes() - self.submitted).min(PIECE));
            let view = self.target().zip(wgpu::BufferSize::new(len));
            let view = view.and_then(|((target, offset), len)| {
                gpu.queue.write_buffer_with(target, offset, len)
            });
            PieceMemory::Browser(view.ok_or_else(|| self.out_of_memory())?)
        };
        Ok(Piece { memory, filled: 0 })
    }

    /// Returns the buffer of the memory, and where in it the next piece begins.
    fn target(&self) -> Option<(&wgpu::Buffer, u64)> {
        let placement = self.allocation.placement()?;
        Some((&placement.buffer.raw, placement.offset + self.submitted))
    }

    fn out_of_memory(&self) -> RuntimeError {
        self.runtime.out_of_memory(self.allocation.bytes())
    }

    /// Submits the copy of a piece to the memory.
    fn submit(&mut self, piece: Piece) -> Result<(), RuntimeError> {
        let gpu = &self.runtime.gpu;
        let serial = gpu.serial();
        self.allocation.set_written(serial);
        let filled = piece.filled;
        if !self.submit_copy(piece)? {
            return Err(self.out_of_memory());
        }
        gpu.check()?;
        gpu.check_results(serial..=gpu.serial())?;
        self.submitted += filled;
        Ok(())
    }

    /// Returns `false` if there is no memory for the copy.
    fn submit_copy(&self, Piece { memory, filled }: Piece) -> Result<bool, RuntimeError> {
        let gpu = &self.runtime.gpu;
        let Some((target, offset)) = self.target() else { return Ok(false) };
        if gpu.faults.strikes(Fault::Upload) {
            return Ok(false);
        }
        match memory {
            PieceMemory::Browser(view) => {
                drop(view);
                gpu.submit(&[], None, Largest::default());
            }
            PieceMemory::Mapped { raw, view } => {
                drop(view);
                raw.unmap();
                let mut encoder =
                    gpu.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
                encoder.copy_buffer_to_buffer(&raw, 0, target, offset, padded(filled));
                let submit = || gpu.submit(&[], Some(encoder), Largest::default());
                let Some(submission) = gpu.catch(submit) else {
                    gpu.check()?;
                    return Ok(false);
                };
                self.runtime.upload_buffers.keep(raw, submission);
            }
        }
        Ok(true)
    }
}

impl Runtime {
    /// Uploads `data` to a new allocation.
    ///
    /// # Errors
    ///
    /// Returns an error if `data` exceeds the largest buffer, the device is out of memory, there
    /// is no memory for staging, or the device was lost.
    pub fn upload(&self, data: &[u8]) -> Result<Allocation, RuntimeError> {
        if data.len() > SMALL_UPLOAD {
            let mut upload = Upload::begin(self, data.len() as u64)?;
            upload.write(data)?;
            return upload.finish();
        }
        let bytes = data.len() as u64;
        let allocation = self.alloc(bytes)?;
        if data.is_empty() {
            return Ok(allocation);
        }
        self.gpu.observers.notify(|| Event::Upload { bytes });
        self.gpu.observers.notify(|| Event::Staged { bytes });
        let mut state = self.place(self.state.lock(), &[&allocation], &[])?;
        state.recorder.upload(&self.gpu, &allocation, data);
        let overdue = state.recorder.overdue();
        drop(state);
        self.wait_for_room(overdue)?;
        Ok(allocation)
    }
}
