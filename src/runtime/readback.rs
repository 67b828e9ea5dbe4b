//! Readback to the host: many allocations with one submission and one wait.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

use super::{Allocation, Runtime, RuntimeError};

/// State shared by the `map_async` callback and the future.
#[derive(Default)]
struct MapState {
    result: Option<Result<(), wgpu::BufferAsyncError>>,
    waker: Option<Waker>,
}

/// A future that completes when the buffer is mapped.
struct MapFuture(Arc<Mutex<MapState>>);

impl Future for MapFuture {
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
    /// Reads the first `bytes` bytes of each `(allocation, bytes)` pair in `ranges`, in one
    /// submission.
    ///
    /// On native platforms the first poll of the future blocks until the data is there. In a
    /// browser the future yields to the event loop.
    ///
    /// # Errors
    ///
    /// Returns an error if the device was lost or there is no memory for the staging buffer.
    pub async fn read(
        self: &Arc<Self>,
        ranges: &[(Arc<Allocation>, u64)],
    ) -> Result<Vec<Vec<u8>>, RuntimeError> {
        let padded = |bytes: u64| bytes.next_multiple_of(wgpu::COPY_BUFFER_ALIGNMENT);
        let total: u64 = ranges.iter().map(|(_, bytes)| padded(*bytes)).sum();
        let copy = |encoder: &mut wgpu::CommandEncoder, staging: &wgpu::Buffer| {
            let mut offset = 0;
            for (allocation, bytes) in ranges {
                let len = padded(*bytes);
                if len > 0 {
                    encoder.copy_buffer_to_buffer(
                        &allocation.buffer.raw,
                        allocation.offset,
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
            let mut out = Vec::with_capacity(ranges.len());
            for (_, bytes) in ranges {
                out.push(view[offset as usize..(offset + bytes) as usize].to_vec());
                offset += padded(*bytes);
            }
            out
        };
        self.copy_to_host(total, copy, unpack).await
    }

    /// Reads like [`read`](Self::read), and blocks until the data is there.
    ///
    /// # Errors
    ///
    /// Returns an error in the same cases as [`read`](Self::read), and in a browser, which cannot
    /// block.
    pub fn read_blocking(
        self: &Arc<Self>,
        ranges: &[(Arc<Allocation>, u64)],
    ) -> Result<Vec<Vec<u8>>, RuntimeError> {
        self.check_can_block()?;
        pollster::block_on(self.read(ranges))
    }

    /// Copies `total` bytes to the host. `copy` records the copies into the staging buffer, and
    /// `unpack` converts the mapped bytes.
    pub(super) async fn copy_to_host<T>(
        &self,
        total: u64,
        copy: impl FnOnce(&mut wgpu::CommandEncoder, &wgpu::Buffer),
        unpack: impl FnOnce(&[u8]) -> T,
    ) -> Result<T, RuntimeError> {
        self.check_usable()?;
        if total == 0 {
            return Ok(unpack(&[]));
        }
        let (staging, mapping) = {
            let create = || {
                self.device.create_buffer(&wgpu::BufferDescriptor {
                    label: Some("readback"),
                    size: total,
                    usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
                    mapped_at_creation: false,
                })
            };
            let staging = self
                .with_error_scopes(&[wgpu::ErrorFilter::OutOfMemory], create)
                .map_err(|error| self.readback_error(&error))?;
            let mut stream = self.stream.lock();
            copy(stream.copy_encoder(&self.device), &staging);
            stream.submit(&self.device, &self.queue);
            let state = Arc::new(Mutex::new(MapState::default()));
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
            (staging, MapFuture(state))
        };
        #[cfg(not(target_arch = "wasm32"))]
        {
            let polled = self.device.poll(wgpu::PollType::wait_indefinitely());
            self.stream.lock().clear_in_flight();
            self.save_pipeline_cache();
            polled.map_err(|error| self.readback_error(&error))?;
        }
        let mapped = mapping.await;
        self.check_usable()?;
        mapped.map_err(|error| self.readback_error(&error))?;
        let view = staging.get_mapped_range(..).map_err(|error| self.readback_error(&error))?;
        let unpacked = unpack(&view);
        drop(view);
        // A browser frees a dropped buffer only at the next garbage collection.
        staging.destroy();
        Ok(unpacked)
    }
}
