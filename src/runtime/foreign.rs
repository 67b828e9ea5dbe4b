//! Buffers and textures of the program.

use super::allocation::Allocation;
use super::gpu::TAKEN_BACK;
use super::{Runtime, RuntimeError};

impl Runtime {
    /// Returns memory that is a buffer of the program. No launch writes it.
    pub(crate) fn foreign(&self, buffer: wgpu::Buffer, bytes: u64) -> Allocation {
        Allocation::foreign(self.gpu.known_buffer(buffer), bytes, &self.returns)
    }

    /// Marks a buffer of the program as taken back, after everything recorded so far was submitted: using it from
    /// here on is an error.
    pub(crate) fn take_back_foreign(&self, memory: &Allocation) {
        // A second panic would end the process. What is pending then is an error.
        if !std::thread::panicking()
            && let Err(error) = self.flush()
        {
            self.report_later(error);
        }
        memory.set_written(TAKEN_BACK);
        if let Some(placement) = memory.placement() {
            self.state.lock().recorder.forget(&[placement.buffer.id]);
        }
    }

    /// Submits everything recorded so far, and then commands between memory and an object of the program: a copy that
    /// reads the memory, or writes it if `writes`. `encode` gets the buffer and the offset.
    ///
    /// The commands are a submission of their own, and no lock is held while wgpu checks them: an object that it
    /// refuses loses nothing else.
    ///
    /// # Errors
    ///
    /// Returns an error if the device is out of memory or was lost, the contents are lost, or wgpu refuses the object.
    pub(crate) fn submit_with_foreign(
        &self,
        memory: &Allocation,
        writes: bool,
        encode: impl FnOnce(&mut wgpu::CommandEncoder, &wgpu::Buffer, u64),
    ) -> Result<(), RuntimeError> {
        self.gpu.check()?;
        memory.check(&self.gpu)?;
        self.record_deferred()?;
        let outputs: &[&Allocation] = if writes { &[memory] } else { &[] };
        let inputs: &[&Allocation] = if writes { &[] } else { &[memory] };
        let mut state = self.place(self.state.lock(), outputs, inputs)?;
        self.submit(&mut state)?;
        let serial = self.gpu.begin_submission();
        drop(state);
        let Some(placement) = memory.placement() else { return Ok(()) };
        if writes {
            memory.set_written(serial);
        }
        let submitted = self.gpu.submit_with_foreign(|encoder| {
            encode(encoder, &placement.buffer.raw, placement.offset);
        });
        if submitted.is_err() && writes {
            self.lose(memory);
        }
        submitted
    }

    /// Checks that a buffer of the program is of this device, and is neither destroyed nor mapped.
    ///
    /// # Errors
    ///
    /// Returns wgpu's error. A browser reports it later, where it is used.
    pub(crate) fn check_foreign(&self, buffer: &wgpu::Buffer) -> Result<(), RuntimeError> {
        // Clears nothing, but is a use.
        self.gpu.submit_with_foreign(|encoder| encoder.clear_buffer(buffer, 0, Some(0)))
    }

    /// Returns the buffer of memory and the offset in it, after everything recorded so far was submitted.
    ///
    /// # Errors
    ///
    /// Returns an error if the device is out of memory or was lost, or the contents are lost.
    pub(crate) fn submitted_buffer(
        &self,
        memory: &Allocation,
    ) -> Result<(wgpu::Buffer, u64), RuntimeError> {
        self.gpu.check()?;
        drop(self.place(self.state.lock(), &[], &[memory])?);
        self.flush()?;
        memory.check(&self.gpu)?;
        let placement = memory.placement().ok_or(RuntimeError::TakenBack)?;
        Ok((placement.buffer.raw.clone(), placement.offset))
    }

    /// Creates a buffer for the program.
    ///
    /// # Errors
    ///
    /// Returns an error if the device is out of memory.
    pub(crate) fn create_foreign(
        &self,
        size: u64,
        usage: wgpu::BufferUsages,
    ) -> Result<wgpu::Buffer, RuntimeError> {
        let created = self.gpu.create_buffer("tensor", size, usage, false);
        created.map_err(|_| self.out_of_memory(size))
    }

    /// Marks the device as lost: its program says so.
    pub(crate) fn report_lost(&self, reason: &str) {
        self.gpu.lose(reason);
    }
}
