//! The tensors: those of burn-wgsl.

use burn_backend::{DType, Shape, TensorMetadata};
use burn_backend_021::TensorMetadata as _;
use burn_backend_021::ops::{FloatTensorOps, QTensorOps};
use burn_wgsl::custom::{FromTensor, Operand};
use burn_wgsl::{Wgsl, WgslQuantizedTensor, WgslTensor};

use crate::contract::Convert;
use crate::device::PortDevice;

/// A float, integer or boolean tensor.
#[derive(Debug, Clone)]
pub struct Tensor(pub WgslTensor);

/// A quantised tensor.
#[derive(Debug, Clone)]
pub struct QuantizedTensor(pub WgslQuantizedTensor);

impl TensorMetadata for Tensor {
    type Device = PortDevice;

    fn dtype(&self) -> DType {
        self.0.dtype().converted()
    }

    fn shape(&self) -> Shape {
        self.0.shape().converted()
    }

    fn rank(&self) -> usize {
        self.0.rank()
    }

    fn device(&self) -> PortDevice {
        PortDevice(Wgsl::float_device(&self.0))
    }

    // burn-wgsl decides for each op.
    fn can_mut(&self) -> bool {
        false
    }
}

impl TensorMetadata for QuantizedTensor {
    type Device = PortDevice;

    fn dtype(&self) -> DType {
        self.0.dtype().converted()
    }

    fn shape(&self) -> Shape {
        self.0.shape().converted()
    }

    fn rank(&self) -> usize {
        self.0.rank()
    }

    fn device(&self) -> PortDevice {
        PortDevice(Wgsl::q_device(&self.0))
    }

    fn can_mut(&self) -> bool {
        false
    }
}

/// A kernel of the program can read it.
impl Operand for Tensor {
    fn to_primitive(&self) -> WgslTensor {
        self.0.clone()
    }
}

/// A kernel of the program can return it.
impl FromTensor for Tensor {
    fn from_primitive(tensor: WgslTensor) -> Result<Self, String> {
        Ok(Self(tensor))
    }
}
