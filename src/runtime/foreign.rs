//! Buffers and textures of the program.

use std::sync::Arc;

use super::allocation::Allocation;
use super::gpu::TAKEN_BACK;
use super::{Runtime, RuntimeError};

impl Runtime {
    /// Returns memory that is a buffer of the program. No launch writes it.
    pub(crate) fn foreign(&self, buffer: wgpu::Buffer, bytes: u64) -> Allocation {
        Allocation::foreign(self.gpu.known_buffer(buffer), bytes, &self.returns)
    }

    /// Marks a buffer of the program as taken back, after everything recorded so far was submitted: using it from here on
    /// is an error.
    pub(crate) fn take_back_foreign(&self, memory: &Allocation) {
        if let Err(error) = self.flush() {
            self.report_later(error);
        }
        memory.set_written(TAKEN_BACK);
        if let Some(placement) = memory.placement() {
            self.state.lock().recorder.forget(&[placement.buffer.id]);
        }
    }

    /// Encodes a command that reads memory, or writes it if `writes`, in order with the recorded ones. `encode` gets the
    /// buffer and the offset.
    ///
    /// # Errors
    ///
    /// Returns an error if the device is out of memory or was lost, or the contents are lost.
    pub(crate) fn encode(
        &self,
        memory: &Allocation,
        writes: bool,
        encode: impl FnOnce(&mut wgpu::CommandEncoder, &wgpu::Buffer, u64),
    ) -> Result<(), RuntimeError> {
        self.gpu.check()?;
        self.gpu.check_contents(memory)?;
        let outputs: &[&Allocation] = if writes { &[memory] } else { &[] };
        let inputs: &[&Allocation] = if writes { &[] } else { &[memory] };
        let mut state = self.place(self.state.lock(), outputs, inputs)?;
        if let Some(placement) = memory.placement() {
            let encoder = state.recorder.copy_encoder(&self.gpu);
            encode(encoder, &placement.buffer.raw, placement.offset);
        }
        if writes {
            memory.set_written(self.gpu.serial());
        }
        Ok(())
    }

    /// Returns the buffer of memory and the offset in it, after everything recorded so far was submitted.
    ///
    /// # Errors
    ///
    /// As [`encode`](Self::encode).
    pub(crate) fn submitted_buffer(
        &self,
        memory: &Arc<Allocation>,
    ) -> Result<(wgpu::Buffer, u64), RuntimeError> {
        let mut found = None;
        self.encode(memory, false, |_, buffer, offset| found = Some((buffer.clone(), offset)))?;
        self.flush()?;
        self.gpu.check_contents(memory)?;
        found.ok_or(RuntimeError::TakenBack)
    }

    /// Marks the device as lost: its program says so.
    pub(crate) fn report_lost(&self, reason: &str) {
        self.gpu.lose(reason);
    }
}
