//! The tensor primitive and its two homes.

use burn_backend::{DType, QTensorPrimitive, TensorMetadata};
use burn_flex::{FlexQTensor, FlexTensor};
use burn_std::quantization::{QuantLevel, QuantMode, QuantParam, QuantScheme, QuantValue};
use burn_std::{BoolStore, Shape};

use crate::device::{CAN_BLOCK, WgslDevice};
use crate::kernels::quantized::{Format, Quantized};
use crate::runtime::Runtime;
use crate::tensor::{self, Tensor};

/// A tensor of the backend: on a GPU, or on the CPU.
///
/// On [`WgslDevice::Cpu`] every tensor is on the CPU. On a GPU device so are tensors of a type that its kernels
/// do not know: 64-bit floats everywhere, 64-bit integers on adapters without them. They keep their device and
/// every op on them runs on the CPU twin, which is counted.
#[derive(Debug, Clone)]
pub struct WgslTensor {
    pub(crate) device: WgslDevice,
    pub(crate) storage: Storage,
}

#[derive(Debug, Clone)]
pub(crate) enum Storage {
    Gpu(Tensor),
    Cpu(FlexTensor),
}

impl TensorMetadata for WgslTensor {
    fn dtype(&self) -> DType {
        match &self.storage {
            Storage::Gpu(tensor) => burn_dtype(tensor.dtype()),
            Storage::Cpu(tensor) => tensor.dtype(),
        }
    }

    fn shape(&self) -> Shape {
        match &self.storage {
            Storage::Gpu(tensor) => Shape::from(tensor.shape().to_vec()),
            Storage::Cpu(tensor) => tensor.shape(),
        }
    }

    fn rank(&self) -> usize {
        match &self.storage {
            Storage::Gpu(tensor) => tensor.shape().len(),
            Storage::Cpu(tensor) => tensor.rank(),
        }
    }
}

/// Burn's name for an element type.
pub(crate) fn burn_dtype(dtype: tensor::DType) -> DType {
    match dtype {
        tensor::DType::F32 => DType::F32,
        tensor::DType::F16 => DType::F16,
        tensor::DType::BF16 => DType::BF16,
        tensor::DType::I32 => DType::I32,
        tensor::DType::U32 => DType::U32,
        tensor::DType::I64 => DType::I64,
        tensor::DType::U64 => DType::U64,
        tensor::DType::I16 => DType::I16,
        tensor::DType::I8 => DType::I8,
        tensor::DType::U16 => DType::U16,
        tensor::DType::U8 => DType::U8,
        tensor::DType::Bool => DType::Bool(BoolStore::U32),
    }
}

/// How a GPU stores a Burn type, if its kernels know it.
pub(crate) fn stored_dtype(dtype: DType, runtime: &Runtime) -> Option<tensor::DType> {
    let stored = match dtype {
        // Flex32 is f32 with permission to compute in less.
        DType::F32 | DType::Flex32 => tensor::DType::F32,
        DType::F16 => tensor::DType::F16,
        DType::BF16 => tensor::DType::BF16,
        DType::I32 => tensor::DType::I32,
        DType::U32 => tensor::DType::U32,
        DType::I64 => tensor::DType::I64,
        DType::U64 => tensor::DType::U64,
        DType::I16 => tensor::DType::I16,
        DType::I8 => tensor::DType::I8,
        DType::U16 => tensor::DType::U16,
        DType::U8 => tensor::DType::U8,
        DType::Bool(_) => tensor::DType::Bool,
        DType::F64 | DType::QFloat(_) => return None,
    };
    match stored {
        stored if !stored.is_64_bit() || runtime.info().features.int64 => Some(stored),
        // A browser cannot compute on the CPU in between: numbers that fit are kept in 32 bits, others are refused.
        tensor::DType::I64 if !CAN_BLOCK => Some(tensor::DType::I32),
        tensor::DType::U64 if !CAN_BLOCK => Some(tensor::DType::U32),
        _ => None,
    }
}

/// A quantised tensor of the backend: on a GPU, or on the CPU.
///
/// Kernels know the schemes of 8-bit integers with scales in f32, for the whole tensor or for each block. On a
/// GPU device, tensors of the others are on the CPU like those of a type that no kernel knows.
#[derive(Debug, Clone)]
pub struct WgslQuantizedTensor {
    pub(crate) device: WgslDevice,
    pub(crate) storage: QuantizedStorage,
}

#[derive(Debug, Clone)]
pub(crate) enum QuantizedStorage {
    Gpu(Box<GpuQuantized>),
    Cpu(FlexQTensor),
}

/// A quantised tensor on a GPU with Burn's name for its format.
#[derive(Debug, Clone)]
pub(crate) struct GpuQuantized {
    pub values: Quantized,
    pub scheme: QuantScheme,
}

impl GpuQuantized {
    /// What kernels make of the tensor; its scheme stays.
    pub fn map(
        self,
        f: impl FnOnce(Quantized) -> tensor::Result<Quantized>,
    ) -> tensor::Result<Self> {
        let values = f(self.values)?;
        Ok(Self { values, ..self })
    }
}

/// The kernels' name for a quantisation scheme, if they know it. How values are stored is not the scheme's
/// to say: on a GPU they are packed, on the host each is a byte.
pub(crate) fn kernel_format(scheme: &QuantScheme) -> Option<Format> {
    let (QuantMode::Symmetric, QuantParam::F32) = (scheme.mode, scheme.param) else {
        return None;
    };
    let low = match scheme.value {
        QuantValue::Q8S => -127,
        QuantValue::Q8F => -128,
        _ => return None,
    };
    let block = match scheme.level {
        QuantLevel::Tensor => None,
        QuantLevel::Block(size) => Some(size.num_elements()),
    };
    Some(Format { low, block })
}

impl TensorMetadata for WgslQuantizedTensor {
    fn dtype(&self) -> DType {
        DType::QFloat(*self.scheme())
    }

    fn shape(&self) -> Shape {
        match &self.storage {
            QuantizedStorage::Gpu(tensor) => Shape::from(tensor.values.shape().to_vec()),
            QuantizedStorage::Cpu(tensor) => tensor.shape(),
        }
    }
}

impl QTensorPrimitive for WgslQuantizedTensor {
    fn scheme(&self) -> &QuantScheme {
        match &self.storage {
            QuantizedStorage::Gpu(tensor) => &tensor.scheme,
            QuantizedStorage::Cpu(tensor) => tensor.scheme(),
        }
    }

    fn default_scheme() -> QuantScheme {
        FlexQTensor::default_scheme()
    }
}
