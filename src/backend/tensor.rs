//! The tensor primitive and its two homes.

use burn_backend::{DType, QTensorPrimitive, TensorMetadata};
use burn_flex::{FlexQTensor, FlexTensor};
use burn_std::quantization::QuantScheme;
use burn_std::{BoolStore, Shape};

use crate::device::WgslDevice;
use crate::tensor::{self, Tensor};

/// A tensor of the backend: on a GPU, or on the CPU.
///
/// On [`WgslDevice::Cpu`] every tensor is on the CPU. On a GPU device so are tensors of a type that no
/// kernel knows yet (64-bit numbers, say); they keep their device and every op on them runs on the
/// CPU twin, which is counted.
#[derive(Debug, Clone)]
pub struct WgslTensor {
    pub(crate) device: WgslDevice,
    pub(crate) home: Home,
}

#[derive(Debug, Clone)]
pub(crate) enum Home {
    Gpu(Tensor),
    Cpu(FlexTensor),
}

impl TensorMetadata for WgslTensor {
    fn dtype(&self) -> DType {
        match &self.home {
            Home::Gpu(tensor) => burn_dtype(tensor.dtype()),
            Home::Cpu(tensor) => tensor.dtype(),
        }
    }

    fn shape(&self) -> Shape {
        match &self.home {
            Home::Gpu(tensor) => Shape::from(tensor.shape().to_vec()),
            Home::Cpu(tensor) => tensor.shape(),
        }
    }

    fn rank(&self) -> usize {
        match &self.home {
            Home::Gpu(tensor) => tensor.shape().len(),
            Home::Cpu(tensor) => tensor.rank(),
        }
    }
}

/// Burn's name for a kernel's element type.
pub(crate) fn burn_dtype(dtype: tensor::DType) -> DType {
    match dtype {
        tensor::DType::F32 => DType::F32,
        tensor::DType::I32 => DType::I32,
        tensor::DType::Bool => DType::Bool(BoolStore::U32),
    }
}

/// The kernels' name for a Burn type, if they know it.
pub(crate) fn kernel_dtype(dtype: DType) -> Option<tensor::DType> {
    match dtype {
        DType::F32 => Some(tensor::DType::F32),
        DType::I32 => Some(tensor::DType::I32),
        DType::Bool(_) => Some(tensor::DType::Bool),
        _ => None,
    }
}

/// A quantised tensor. It lives on the CPU twin, whatever its device.
#[derive(Debug, Clone)]
pub struct WgslQuantizedTensor {
    pub(crate) device: WgslDevice,
    pub(crate) twin: FlexQTensor,
}

impl TensorMetadata for WgslQuantizedTensor {
    fn dtype(&self) -> DType {
        self.twin.dtype()
    }

    fn shape(&self) -> Shape {
        self.twin.shape()
    }
}

impl QTensorPrimitive for WgslQuantizedTensor {
    fn scheme(&self) -> &QuantScheme {
        self.twin.scheme()
    }
}
