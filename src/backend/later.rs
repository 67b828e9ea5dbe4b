//! Tensors that are read back while the program goes on.

use burn_backend::{ExecutionError, TensorData};

use super::tensor::{Storage, WgslTensor};
use super::transfer::{execution_error, from_stored, into_data};
use crate::device::CAN_BLOCK;
use crate::kernels::views;
use crate::runtime::StartedRead;
use crate::tensor::Tensor;

/// The largest tensor that can be read later, in bytes.
const MAX_BYTES: u64 = 8 << 20;

/// A tensor on its way to the host.
pub(crate) enum LaterData {
    /// It was there already.
    OnHost(TensorData),
    /// The device copies it.
    Started { tensor: Tensor, read: StartedRead },
}

impl LaterData {
    /// Starts the readback of a tensor of at most 8 MiB.
    pub fn start(tensor: WgslTensor) -> Result<Self, ExecutionError> {
        let tensor = match tensor.storage {
            Storage::Cpu(_) => {
                let data = crate::runtime::block_on(into_data(tensor))?;
                return Ok(Self::OnHost(data));
            }
            Storage::Gpu(tensor) => tensor,
        };
        let tensor = views::packed(tensor).map_err(|error| execution_error(&error))?;
        let range = tensor.readback_range().map_err(|error| execution_error(&error))?;
        if range.1 > MAX_BYTES {
            let message = "more than 8 MiB cannot be read later; use into_data";
            return Err(execution_error(&message));
        }
        let read = tensor.runtime().start_read(vec![range]);
        let read = read.map_err(|error| execution_error(&error))?;
        Ok(Self::Started { tensor, read })
    }

    /// Returns whether [`Self::take`] would not wait.
    pub fn is_ready(&self) -> bool {
        match self {
            Self::OnHost(_) => true,
            Self::Started { tensor, read } => tensor.runtime().is_read(read),
        }
    }

    /// Waits for the data, where the host can.
    pub fn take(self) -> Result<TensorData, ExecutionError> {
        if !CAN_BLOCK && !self.is_ready() {
            return Err(execution_error(&"a browser cannot wait for a readback: await it"));
        }
        crate::runtime::block_on(self.take_async())
    }

    pub async fn take_async(self) -> Result<TensorData, ExecutionError> {
        let (tensor, read) = match self {
            Self::OnHost(data) => return Ok(data),
            Self::Started { tensor, read } => (tensor, read),
        };
        let read = tensor.runtime().finish_read(read).await;
        let bytes = read.map_err(|error| execution_error(&error))?.pop().unwrap_or_default();
        Ok(from_stored(bytes, &tensor))
    }
}
