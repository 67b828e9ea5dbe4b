//! The tensor types, stored on a GPU or on the CPU.

use std::fmt;

use burn_backend::{DType, QTensorPrimitive, TensorMetadata};
use burn_std::quantization::{
    QuantLevel, QuantMode, QuantParam, QuantScheme, QuantStore, QuantValue,
};
use burn_std::{BoolStore, Shape};
use smallvec::SmallVec;

use crate::cpu::{FlexQTensor, FlexTensor};
use crate::device::{CAN_BLOCK, WgslDevice};
use crate::kernels::ops::options::QuantFormat;
use crate::kernels::quantized::Quantized;
use crate::runtime::Runtime;
use crate::tensor::{self, Tensor};

/// A tensor of the backend, stored on a GPU or on the CPU.
///
/// On [`WgslDevice::Cpu`] every tensor is stored on the CPU. On a GPU device this holds for types
/// that its kernels do not support: 64-bit floats, and 64-bit integers on adapters without them.
/// Ops on such tensors fall back to the CPU and are counted ([`fallbacks`](crate::fallbacks)).
#[derive(Clone)]
pub struct WgslTensor {
    device: WgslDevice,
    pub(crate) storage: Storage,
}

impl WgslTensor {
    /// Creates a tensor on a device. The tensor reports the canonical selector: Burn compares the
    /// devices of tensors, so `Auto` and `Gpu(0)` must become equal here if they are one adapter.
    pub(crate) fn new(device: WgslDevice, storage: Storage) -> Self {
        Self { device: device.canonical(), storage }
    }

    /// Returns the device, by its canonical selector.
    pub(crate) fn device(&self) -> WgslDevice {
        self.device
    }

    /// Returns the number of elements.
    pub(crate) fn elements(&self) -> usize {
        match &self.storage {
            Storage::Gpu(tensor) => tensor.len(),
            Storage::Cpu(tensor) => tensor::checked_len(&tensor.shape()).unwrap_or(usize::MAX),
        }
    }

    /// Returns whether two tensors are in the same memory, or will be when they are computed.
    #[cfg(feature = "train")]
    pub(crate) fn shares_memory(&self, other: &Self) -> bool {
        match (&self.storage, &other.storage) {
            (Storage::Gpu(own), Storage::Gpu(other)) => own.shares_memory(other),
            (Storage::Cpu(own), Storage::Cpu(other)) => {
                std::ptr::eq(own.data_arc().as_ptr(), other.data_arc().as_ptr())
            }
            _ => false,
        }
    }

    /// Returns whether kernels for GPUs compute with the tensor, not the CPU or a software adapter.
    #[cfg(feature = "autodiff")]
    pub(crate) fn is_on_gpu(&self) -> bool {
        matches!(&self.storage, Storage::Gpu(tensor) if !tensor.runtime().is_software())
    }

    /// Returns whether the program owns the memory, and may write it between ops.
    #[cfg(feature = "autodiff")]
    pub(crate) fn is_foreign(&self) -> bool {
        match &self.storage {
            Storage::Gpu(tensor) => tensor.is_foreign(),
            Storage::Cpu(_) => false,
        }
    }
}

/// The memory that stores the elements of a tensor.
#[derive(Debug, Clone)]
pub(crate) enum Storage {
    Gpu(Tensor),
    /// Boxed, so that a tensor on a GPU is no larger than it must be.
    Cpu(Box<FlexTensor>),
}

impl WgslTensor {
    /// Returns the bytes of the host's memory that a tensor keeps, if it is there: all of what it views. Tensors on a
    /// GPU keep the memory of the device.
    pub fn host_memory(&self) -> Option<u64> {
        match &self.storage {
            Storage::Gpu(_) => None,
            Storage::Cpu(tensor) => Some(tensor.data_arc().len() as u64),
        }
    }
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
            Storage::Gpu(tensor) => Shape::new_raw(SmallVec::from_slice(tensor.shape())),
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

impl fmt::Debug for WgslTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt_tensor(f, "WgslTensor", self, &self.device)
    }
}

/// Prints the name, shape, element type and device of a tensor, not its elements.
fn fmt_tensor(
    f: &mut fmt::Formatter<'_>,
    name: &str,
    tensor: &impl TensorMetadata,
    device: &WgslDevice,
) -> fmt::Result {
    f.debug_struct(name)
        .field("shape", &tensor.shape().as_slice())
        .field("dtype", &tensor.dtype())
        .field("device", device)
        .finish()
}

/// Converts an element type to Burn's. Booleans are stored in 32 bits, but read back as Rust's
/// `bool`.
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
        tensor::DType::Bool => DType::Bool(BoolStore::Native),
    }
}

/// Returns the storage type of a Burn type on a GPU; `None` if its kernels do not support the type.
pub(crate) fn stored_dtype(dtype: DType, runtime: &Runtime) -> Option<tensor::DType> {
    let stored = match dtype {
        // Flex32 permits a lower precision than f32, but does not require it.
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
        // A browser cannot fall back to the CPU. It stores 32 bits; uploads reject larger values.
        tensor::DType::I64 if !CAN_BLOCK => Some(tensor::DType::I32),
        tensor::DType::U64 if !CAN_BLOCK => Some(tensor::DType::U32),
        _ => None,
    }
}

/// A quantised tensor of the backend, stored on a GPU or on the CPU.
///
/// Kernels support 8-bit integers with f32 scales, one per tensor or one per block. On a GPU
/// device, tensors of other schemes are stored on the CPU, as for unsupported element types.
#[derive(Clone)]
pub struct WgslQuantizedTensor {
    device: WgslDevice,
    pub(crate) storage: QuantizedStorage,
}

impl WgslQuantizedTensor {
    /// Creates a tensor on a device, whose canonical selector it reports.
    pub(crate) fn new(device: WgslDevice, storage: QuantizedStorage) -> Self {
        Self { device: device.canonical(), storage }
    }

    /// Returns the device, by its canonical selector.
    pub(crate) fn device(&self) -> WgslDevice {
        self.device
    }
}

/// The memory that stores a quantised tensor.
#[derive(Debug, Clone)]
pub(crate) enum QuantizedStorage {
    Gpu(Box<GpuQuantized>),
    Cpu(Box<FlexQTensor>),
}

/// A quantised tensor on a GPU, and Burn's scheme for its format.
#[derive(Debug, Clone)]
pub(crate) struct GpuQuantized {
    pub values: Quantized,
    pub scheme: QuantScheme,
}

impl GpuQuantized {
    /// Computes a tensor in the kernels' format of `scheme`.
    ///
    /// # Panics
    ///
    /// Panics if [`kernel_format`] does not support the scheme.
    pub fn new(
        scheme: &QuantScheme,
        compute: impl FnOnce(QuantFormat) -> tensor::Result<Quantized>,
    ) -> tensor::Result<Self> {
        let Some(format) = kernel_format(scheme) else { panic!("no kernel supports {scheme:?}") };
        // `Native` is the store of host data after a readback: one byte per value.
        Ok(Self { values: compute(format)?, scheme: scheme.with_store(QuantStore::Native) })
    }

    /// Applies a kernel to the values; the scheme stays the same.
    pub fn map(
        self,
        f: impl FnOnce(Quantized) -> tensor::Result<Quantized>,
    ) -> tensor::Result<Self> {
        let values = f(self.values)?;
        Ok(Self { values, ..self })
    }
}

/// Returns the kernels' format of a quantisation scheme; `None` if they do not support it. Ignores
/// the scheme's store: a GPU always packs values into words, the host stores them as bytes.
pub(crate) fn kernel_format(scheme: &QuantScheme) -> Option<QuantFormat> {
    let (QuantMode::Symmetric, QuantParam::F32) = (scheme.mode, scheme.param) else {
        return None;
    };
    let (bits, low, high) = match scheme.value {
        QuantValue::Q8S => (8, -127, 127),
        QuantValue::Q8F => (8, -128, 127),
        QuantValue::Q4S => (4, -7, 7),
        QuantValue::Q4F => (4, -8, 7),
        QuantValue::Q2S => (2, -1, 1),
        QuantValue::Q2F => (2, -2, 1),
        QuantValue::E5M2 | QuantValue::E4M3 | QuantValue::E2M1 => return None,
    };
    let block = match scheme.level {
        QuantLevel::Tensor => None,
        QuantLevel::Block(size) => Some(size.num_elements()),
    };
    Some(QuantFormat { bits, low, high, block })
}

impl TensorMetadata for WgslQuantizedTensor {
    fn dtype(&self) -> DType {
        DType::QFloat(*self.scheme())
    }

    fn shape(&self) -> Shape {
        match &self.storage {
            QuantizedStorage::Gpu(tensor) => {
                Shape::new_raw(SmallVec::from_slice(tensor.values.shape()))
            }
            QuantizedStorage::Cpu(tensor) => tensor.shape(),
        }
    }
}

impl fmt::Debug for WgslQuantizedTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt_tensor(f, "WgslQuantizedTensor", self, &self.device)
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
        QuantScheme::default().with_store(QuantStore::Native)
    }
}
