//! A buffer that the host will be able to read or write.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

/// Maximum size of a piece of a transfer, in bytes: transfers of any size need little memory of their own.
pub(super) const PIECE: u64 = 8 << 20;

/// Rounds up to the alignment of copies.
pub(super) fn padded(bytes: u64) -> u64 {
    bytes.next_multiple_of(wgpu::COPY_BUFFER_ALIGNMENT)
}

/// State shared by the `map_async` callback and the future.
#[derive(Default)]
struct MapState {
    result: Option<Result<(), wgpu::BufferAsyncError>>,
    wakers: Vec<Waker>,
}

/// A future that completes when the buffer is mapped. Its clones do too.
#[derive(Clone)]
pub(crate) struct Mapping(Arc<Mutex<MapState>>);

impl Mapping {
    /// Maps the first `bytes` bytes of a buffer.
    pub fn new(buffer: &wgpu::Buffer, mode: wgpu::MapMode, bytes: u64) -> Self {
        let state = Arc::new(Mutex::new(MapState::default()));
        buffer.map_async(mode, ..bytes, {
            let state = state.clone();
            move |result| {
                let wakers = {
                    let mut state = state.lock();
                    state.result = Some(result);
                    std::mem::take(&mut state.wakers)
                };
                // The woken tasks may run at once, so the state is not locked.
                wakers.into_iter().for_each(Waker::wake);
            }
        });
        Self(state)
    }

    /// Returns whether the future has its result.
    pub fn is_complete(&self) -> bool {
        self.0.lock().result.is_some()
    }
}

impl Future for Mapping {
    type Output = Result<(), wgpu::BufferAsyncError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.0.lock();
        match &state.result {
            Some(result) => Poll::Ready(result.clone()),
            None => {
                state.wakers.push(context.waker().clone());
                Poll::Pending
            }
        }
    }
}
