//! Captures when each kernel launch ran on the GPU, and when the host recorded it.
//!
//! While a capture is taken, every dispatch gets its own compute pass with a timestamp at its
//! beginning and end. Every API can write timestamps there, and some APIs only there. Each
//! submission resolves its timestamps into a small buffer, so the query set covers only one
//! submission. The buffers are read back at the end of the capture.
//!
//! The two clocks are compared once, at the end: the last timestamp is taken when the host has
//! waited for it, so GPU times on the host's clock are late by the latency of a wait.

use std::time::Duration;

use web_time::Instant;

use super::readback::ReadbackSource;
use super::stall::Largest;
use super::timestamps::{Captured, Profiler};
use super::{Runtime, RuntimeError};
use crate::device::CAN_BLOCK;

/// Why a capture cannot begin.
#[derive(Debug)]
pub(crate) enum CaptureError {
    /// The adapter or its driver does not support timestamp queries.
    NoTimestamps,
    /// Another capture is being taken.
    Busy,
    /// The device failed.
    Runtime(RuntimeError),
}

impl From<RuntimeError> for CaptureError {
    fn from(error: RuntimeError) -> Self {
        Self::Runtime(error)
    }
}

impl Runtime {
    /// Begins a capture of the kernel launches on this device. Returns the host's time, from which
    /// all times are counted.
    pub(crate) fn begin_capture(&self) -> Result<Instant, CaptureError> {
        if !self.info().features.timestamps {
            return Err(CaptureError::NoTimestamps);
        }
        self.record_deferred()?;
        let recorder = &mut self.state.lock().recorder;
        if recorder.profiler.is_some() {
            return Err(CaptureError::Busy);
        }
        recorder.submit(&self.gpu)?;
        let profiler = Profiler::new(&self.gpu.device);
        let began = profiler.began;
        recorder.profiler = Some(Box::new(profiler));
        Ok(began)
    }

    /// Ends the capture and drops it.
    pub(crate) fn cancel_capture(&self) {
        self.stop_capture();
    }

    /// Submits the recorded commands and removes the profiler from the recorder.
    fn stop_capture(&self) -> Option<Box<Profiler>> {
        let mut state = self.state.lock();
        // The wait for the results reports a driver that does not return.
        let _ = state.recorder.submit(&self.gpu);
        state.recorder.profiler.take()
    }

    /// Ends the capture, waits for the GPU, and returns all launches in order. In a browser the
    /// clocks of host and GPU agree up to the time of a readback, elsewhere up to that of a wait.
    pub(crate) async fn end_capture(&self) -> Result<Vec<Captured>, RuntimeError> {
        let recorded = self.record_deferred();
        // The capture ends also if the device failed.
        let profiler = self.stop_capture();
        recorded?;
        let Some(mut profiler) = profiler else { return Ok(Vec::new()) };
        if profiler.dispatches.is_empty() {
            return Ok(Vec::new());
        }
        let written = self.write_last_timestamp(&mut profiler)?;
        let sources: Vec<ReadbackSource<'_>> = profiler
            .resolved
            .iter()
            .map(|(buffer, bytes)| ReadbackSource { buffer, offset: 0, bytes: *bytes })
            .collect();
        let read = self.read_sources(&sources).await?;
        let now = written.unwrap_or_else(|| profiler.began.elapsed());
        let timestamps: Vec<u64> = read
            .iter()
            .flat_map(|bytes| bytes.chunks_exact(size_of::<u64>()))
            .map(bytemuck::pod_read_unaligned)
            .collect();
        let period = f64::from(self.gpu.queue.get_timestamp_period());
        let nanos = |ticks: u64| Duration::from_nanos((ticks as f64 * period) as u64);
        let last = timestamps.last().copied().unwrap_or_default();
        // On the host's clock. The end of a launch is not after the beginning of the next, which
        // rounded times could be.
        let at = |ticks: u64| now.saturating_sub(nanos(last.saturating_sub(ticks)));
        for (captured, pair) in profiler.dispatches.iter_mut().zip(timestamps.chunks_exact(2)) {
            captured.start = at(pair[0]);
            // Saturates to zero if the clock was reset between the two timestamps.
            captured.time = at(pair[1]).saturating_sub(captured.start);
        }
        Ok(std::mem::take(&mut profiler.dispatches))
    }

    /// Writes a timestamp and waits for it. Returns the host's time then; `None` in a browser, which
    /// cannot wait.
    fn write_last_timestamp(
        &self,
        profiler: &mut Profiler,
    ) -> Result<Option<Duration>, RuntimeError> {
        let device = &self.gpu.device;
        let mut encoder = device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        drop(encoder.begin_compute_pass(&wgpu::ComputePassDescriptor {
            label: None,
            timestamp_writes: Some(wgpu::ComputePassTimestampWrites {
                query_set: &profiler.query_set,
                beginning_of_pass_write_index: Some(0),
                end_of_pass_write_index: Some(1),
            }),
        }));
        profiler.resolve_queries(device, &mut encoder, 2);
        let submission = self.gpu.submit(&[], Some(encoder), Largest::default());
        if !CAN_BLOCK {
            return Ok(None);
        }
        self.gpu.wait(Some(submission))?;
        Ok(Some(profiler.began.elapsed()))
    }
}
