//! Bringing data back to the host: many buffers in one submission and one wait.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

use super::{Allocation, Runtime, RuntimeError};

/// What the driver's callback leaves for the waiting future.
#[derive(Default)]
struct Mapped {
    result: Option<Result<(), wgpu::BufferAsyncError>>,
    waker: Option<Waker>,
}

/// Completes when the buffer is mapped.
struct Mapping(Arc<Mutex<Mapped>>);

impl Future for Mapping {
    type Output = Result<(), wgpu::BufferAsyncError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.0.lock();
        match state.result.take() {
            Some(result) => Poll::Ready(result),
            None => {
                state.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Runtime {
    /// Reads the first bytes of each slice, all in one submission. Natively the wait happens when the
    /// future is first polled; in a browser it yields to the page.
    ///
    /// # Errors
    ///
    /// When the device was lost or the memory for the transfer is not there.
    pub async fn read(
        self: &Arc<Self>,
        parts: &[(Arc<Allocation>, u64)],
    ) -> Result<Vec<Vec<u8>>, RuntimeError> {
        let padded = |bytes: u64| bytes.next_multiple_of(wgpu::COPY_BUFFER_ALIGNMENT);
        let total: u64 = parts.iter().map(|(_, bytes)| padded(*bytes)).sum();
        let copy = |encoder: &mut wgpu::CommandEncoder, staging: &wgpu::Buffer| {
            let mut offset = 0;
            for (slice, bytes) in parts {
                let len = padded(*bytes);
                if len > 0 {
                    encoder.copy_buffer_to_buffer(
                        &slice.buffer.raw,
                        slice.offset,
                        staging,
                        offset,
                        len,
                    );
                }
                offset += len;
            }
        };
        let unpack = |view: &[u8]| {
            let mut offset = 0;
            let mut out = Vec::with_capacity(parts.len());
            for (_, bytes) in parts {
                out.push(view[offset as usize..(offset + bytes) as usize].to_vec());
                offset += padded(*bytes);
            }
            out
        };
        self.fetch(total, copy, unpack).await
    }

    /// As [`read`](Self::read), waiting for it.
    ///
    /// # Errors
    ///
    /// As there, and in a browser, where nothing can wait.
    pub fn read_now(
        self: &Arc<Self>,
        parts: &[(Arc<Allocation>, u64)],
    ) -> Result<Vec<Vec<u8>>, RuntimeError> {
        self.check_can_block()?;
        pollster::block_on(self.read(parts))
    }

    /// Brings `total` bytes to the host, which `copy` records into a buffer, and shows them to `unpack`.
    pub(super) async fn fetch<T>(
        &self,
        total: u64,
        copy: impl FnOnce(&mut wgpu::CommandEncoder, &wgpu::Buffer),
        unpack: impl FnOnce(&[u8]) -> T,
    ) -> Result<T, RuntimeError> {
        self.check_lost()?;
        if total == 0 {
            return Ok(unpack(&[]));
        }
        let (staging, mapping) = {
            let staging = || {
                self.device.create_buffer(&wgpu::BufferDescriptor {
                    label: Some("readback"),
                    size: total,
                    usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
                    mapped_at_creation: false,
                })
            };
            let staging = self.with_error_scopes(&[wgpu::ErrorFilter::OutOfMemory], staging);
            let staging = staging.map_err(|error| self.readback_error(&error))?;
            let mut stream = self.stream.lock();
            copy(stream.encoder(&self.device), &staging);
            stream.submit(&self.device, &self.queue);
            let state = Arc::new(Mutex::new(Mapped::default()));
            staging.map_async(wgpu::MapMode::Read, .., {
                let state = state.clone();
                move |result| {
                    let mut state = state.lock();
                    state.result = Some(result);
                    if let Some(waker) = state.waker.take() {
                        waker.wake();
                    }
                }
            });
            (staging, Mapping(state))
        };
        #[cfg(not(target_arch = "wasm32"))]
        {
            let polled = self.device.poll(wgpu::PollType::wait_indefinitely());
            self.stream.lock().finish_all();
            self.save_pipeline_cache();
            polled.map_err(|error| self.readback_error(&error))?;
        }
        let mapped = mapping.await;
        self.check_lost()?;
        mapped.map_err(|error| self.readback_error(&error))?;
        let view = staging.get_mapped_range(..).map_err(|error| self.readback_error(&error))?;
        let unpacked = unpack(&view);
        drop(view);
        // A browser would keep it until it next looks for garbage.
        staging.destroy();
        Ok(unpacked)
    }
}
