//! What the tensors of a client hold, in bytes.
//!
//! A tensor counts with its elements, also if it is a view; a view also keeps what it views
//! counted. The memory itself can be less, because views share it. It can be more while a pending
//! result keeps its operands.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use burn_backend::ops::{BoolTensorOps, FloatTensorOps, IntTensorOps};
use burn_backend::{DType, ExecutionError, Shape, TensorData, TensorMetadata};
use burn_ir::{BaseOperationIr, HandleKind, OperationIr, TensorId, TensorIr};
use burn_tch::{LibTorch, LibTorchDevice};

/// Bytes of the smallest tensor, with what the server keeps for it.
const SMALLEST: u64 = 256;
/// Bytes that the server keeps for each axis of a tensor: its size and its stride, in the tensor and
/// in what describes it.
const AXIS: u64 = 64;

/// The bytes of a client and of all clients.
struct Counts {
    client: AtomicU64,
    all: Arc<AtomicU64>,
}

/// Bytes that count until this is dropped.
pub(crate) struct Charge {
    bytes: u64,
    counts: Arc<Counts>,
    /// What a view keeps.
    viewed: Option<Arc<Charge>>,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.counts.client.fetch_sub(self.bytes, Ordering::Relaxed);
        self.counts.all.fetch_sub(self.bytes, Ordering::Relaxed);
        // Without recursion: a client decides how many views of views there are.
        let mut next = self.viewed.take();
        while let Some(viewed) = next {
            next = Arc::into_inner(viewed).and_then(|mut charge| charge.viewed.take());
        }
    }
}

/// The tensors of a client.
pub(crate) struct Ledger {
    limit: u64,
    counts: Arc<Counts>,
    tensors: HashMap<TensorId, Arc<Charge>>,
}

impl Ledger {
    /// Creates a ledger whose bytes count in `all` too.
    pub fn new(limit: u64, all: Arc<AtomicU64>) -> Self {
        let counts = Arc::new(Counts { client: AtomicU64::new(0), all });
        Self { limit, counts, tensors: HashMap::new() }
    }

    /// Returns an error if a client has no room for this many bytes.
    pub fn check(&self, bytes: u64) -> Result<(), String> {
        let held = self.counts.client.load(Ordering::Relaxed);
        if held.saturating_add(bytes) <= self.limit {
            return Ok(());
        }
        Err(format!(
            "the client holds {held} bytes and asks for {bytes}, but its limit is {} \
             (--max-bytes)",
            self.limit
        ))
    }

    /// Counts bytes.
    pub fn charge(&self, bytes: u64, viewed: Option<Arc<Charge>>) -> Result<Arc<Charge>, String> {
        self.check(bytes)?;
        self.counts.client.fetch_add(bytes, Ordering::Relaxed);
        self.counts.all.fetch_add(bytes, Ordering::Relaxed);
        Ok(Arc::new(Charge { bytes, counts: self.counts.clone(), viewed }))
    }

    /// Counts a tensor, in the place of an earlier one with this id.
    pub fn add(
        &mut self,
        id: TensorId,
        bytes: u64,
        viewed: Option<Arc<Charge>>,
    ) -> Result<(), String> {
        let charge = self.charge(bytes.max(SMALLEST), viewed)?;
        self.tensors.insert(id, charge);
        Ok(())
    }

    pub fn get(&self, id: TensorId) -> Option<Arc<Charge>> {
        self.tensors.get(&id).cloned()
    }

    pub fn remove(&mut self, id: TensorId) {
        self.tensors.remove(&id);
    }
}

/// Returns the bytes of a tensor, or `u64::MAX` if they do not fit.
pub(crate) fn bytes_of(shape: &Shape, dtype: DType) -> u64 {
    let element = match dtype {
        // As stored on a GPU.
        DType::Bool(_) => 4,
        // Packed types have no size of their own.
        dtype => dtype.size().max(1) as u64,
    };
    shape.as_slice().iter().fold(element, |bytes, size| bytes.saturating_mul(*size as u64))
}

/// Returns the bytes of what a backend has stored, with its axes.
pub(crate) fn bytes_held(handle: &HandleKind<LibTorch>) -> u64 {
    let (shape, dtype) = match handle {
        HandleKind::Float(tensor) | HandleKind::Int(tensor) | HandleKind::Bool(tensor) => {
            (tensor.shape(), tensor.dtype())
        }
        HandleKind::Quantized(tensor) => (tensor.shape(), tensor.dtype()),
    };
    // Those of usual tensors are in SMALLEST.
    let axes = (shape.rank() as u64).saturating_sub(4) * AXIS;
    bytes_of(&shape, dtype).saturating_add(axes)
}

/// Returns a copy of a tensor in the host's memory that keeps much more than its elements, as the
/// CPU backend returns for an op that overwrites a part of a larger tensor.
pub(crate) fn without_rest(
    handle: &HandleKind<LibTorch>,
    device: &LibTorchDevice,
) -> Option<HandleKind<LibTorch>> {
    const KEPT: u64 = 64 << 10;
    let (HandleKind::Float(tensor) | HandleKind::Int(tensor) | HandleKind::Bool(tensor)) = handle
    else {
        return None;
    };
    let elements = bytes_of(&tensor.shape(), tensor.dtype());
    if tensor.0.host_memory()? <= elements.saturating_mul(2).saturating_add(KEPT) {
        return None;
    }
    let data = |read: Result<TensorData, ExecutionError>| read.ok();
    Some(match handle.clone() {
        HandleKind::Float(tensor) => {
            let read = pollster::block_on(LibTorch::float_into_data(tensor));
            HandleKind::Float(LibTorch::float_from_data(data(read)?, device))
        }
        HandleKind::Int(tensor) => {
            let read = pollster::block_on(LibTorch::int_into_data(tensor));
            HandleKind::Int(LibTorch::int_from_data(data(read)?, device))
        }
        HandleKind::Bool(tensor) => {
            let read = pollster::block_on(LibTorch::bool_into_data(tensor));
            HandleKind::Bool(LibTorch::bool_from_data(data(read)?, device))
        }
        HandleKind::Quantized(_) => return None,
    })
}

/// Returns the operand of which the result of an op can be a view.
pub(crate) fn viewed_by(op: &OperationIr) -> Option<&TensorIr> {
    let (OperationIr::BaseFloat(op) | OperationIr::BaseInt(op) | OperationIr::BaseBool(op)) = op
    else {
        return None;
    };
    match op {
        BaseOperationIr::Reshape(op) | BaseOperationIr::Expand(op) => Some(&op.input),
        BaseOperationIr::SwapDims(op) => Some(&op.input),
        BaseOperationIr::Permute(op) => Some(&op.input),
        BaseOperationIr::Flip(op) => Some(&op.input),
        BaseOperationIr::Unfold(op) => Some(&op.input),
        BaseOperationIr::Slice(op) => Some(&op.tensor),
        BaseOperationIr::Cast(op) if op.input.dtype == op.out.dtype => Some(&op.input),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger(limit: u64) -> (Ledger, Arc<AtomicU64>) {
        let all = Arc::new(AtomicU64::new(0));
        (Ledger::new(limit, all.clone()), all)
    }

    #[test]
    fn views_keep_what_they_view() {
        let (mut ledger, all) = ledger(3000);
        let [whole, view] = [0, 1].map(TensorId::new);
        ledger.add(whole, 2000, None).expect("it fits");
        ledger.add(view, 4, ledger.get(whole)).expect("it fits");
        ledger.remove(whole);
        assert_eq!(all.load(Ordering::Relaxed), 2256);
        assert!(ledger.add(whole, 2000, None).is_err());
        ledger.remove(view);
        assert_eq!(all.load(Ordering::Relaxed), 0);
        assert!(ledger.add(whole, 2000, None).is_ok());
        drop(ledger);
        assert_eq!(all.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn long_chains_of_views_are_freed() {
        let (mut ledger, all) = ledger(u64::MAX);
        let id = TensorId::new(0);
        for _ in 0..1_000_000 {
            ledger.add(id, 4, ledger.get(id)).expect("it fits");
        }
        drop(ledger);
        assert_eq!(all.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn sizes_do_not_wrap() {
        let bytes = |shape: &[usize], dtype| bytes_of(&Shape::from(shape.to_vec()), dtype);
        assert_eq!(bytes(&[2, 3], DType::F32), 24);
        assert_eq!(bytes(&[], DType::F16), 2);
        assert_eq!(bytes(&[usize::MAX, 2], DType::F32), u64::MAX);
        assert_eq!(bytes(&[usize::MAX, usize::MAX, 0], DType::U8), 0);
    }
}
