//! Handles for Burn's remote server.

use burn_ir::{BackendIr, HandleKind, TensorHandle};

use crate::backend::Port;
use crate::tensor::{QuantizedTensor, Tensor};

impl BackendIr for Port {
    type Handle = HandleKind<Self>;

    fn float_tensor(handle: TensorHandle<Self::Handle>) -> Tensor {
        match handle.handle {
            HandleKind::Float(tensor) => tensor,
            other => wrong_handle("float", &other),
        }
    }

    fn int_tensor(handle: TensorHandle<Self::Handle>) -> Tensor {
        match handle.handle {
            HandleKind::Int(tensor) => tensor,
            other => wrong_handle("int", &other),
        }
    }

    fn bool_tensor(handle: TensorHandle<Self::Handle>) -> Tensor {
        match handle.handle {
            HandleKind::Bool(tensor) => tensor,
            other => wrong_handle("bool", &other),
        }
    }

    fn quantized_tensor(handle: TensorHandle<Self::Handle>) -> QuantizedTensor {
        match handle.handle {
            HandleKind::Quantized(tensor) => tensor,
            other => wrong_handle("quantized", &other),
        }
    }

    fn float_tensor_handle(tensor: Tensor) -> Self::Handle {
        HandleKind::Float(tensor)
    }

    fn int_tensor_handle(tensor: Tensor) -> Self::Handle {
        HandleKind::Int(tensor)
    }

    fn bool_tensor_handle(tensor: Tensor) -> Self::Handle {
        HandleKind::Bool(tensor)
    }

    fn quantized_tensor_handle(tensor: QuantizedTensor) -> Self::Handle {
        HandleKind::Quantized(tensor)
    }
}

fn wrong_handle(expected: &str, handle: &HandleKind<Port>) -> ! {
    panic!("expected a {expected} tensor handle, found a {} tensor handle", handle.name())
}
