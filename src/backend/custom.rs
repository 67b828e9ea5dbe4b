//! What the kernels of a program need of the backend.

use burn_backend::{DType, TensorData};

use super::computing::Computing;
use super::context::{Conversion, OpContext};
use super::debug::Inspection;
use super::host_data::HostData;
use super::resolve::runtime;
pub(crate) use super::tensor::burn_dtype;
use super::tensor::{Storage, WgslTensor};
use super::transfer;
use crate::autocast::rules::Rule;
use crate::device::{DeviceError, ResolvedDevice, WgslDevice};
use crate::kernels::launch::expression;
use crate::runtime::{RuntimeError, begin_op};
use crate::tensor::{self, Tensor};

impl WgslTensor {
    /// Creates a tensor of what a kernel computed.
    pub(crate) fn on_gpu(device: WgslDevice, tensor: Tensor) -> Self {
        Self::new(device, Storage::Gpu(tensor))
    }

    /// Returns the size of each axis.
    pub(crate) fn sizes(&self) -> Vec<usize> {
        burn_backend::TensorMetadata::shape(self).to_vec()
    }
}

/// Returns whether ops on a tensor run on the CPU.
pub(crate) fn is_on_cpu(tensor: &WgslTensor) -> Result<bool, DeviceError> {
    Ok(tensor.device().resolve()? == ResolvedDevice::Cpu)
}

/// Returns a tensor as kernels take it, for the op `name`. The error is the element type of a tensor that the device
/// does not store.
pub(crate) fn on_gpu(name: &'static str, tensor: WgslTensor) -> Result<Tensor, String> {
    begin_op(name);
    match tensor.storage {
        Storage::Gpu(tensor) => Ok(tensor),
        Storage::Cpu(tensor) => {
            let dtype = burn_backend::TensorMetadata::dtype(&*tensor);
            Err(format!("{dtype:?}, which the device does not store"))
        }
    }
}

/// Returns the data of a tensor on the CPU. The error is its element type, if it is another.
pub(crate) fn cpu_data(tensor: WgslTensor, dtype: tensor::DType) -> Result<TensorData, String> {
    let found = burn_backend::TensorMetadata::dtype(&tensor);
    let Storage::Cpu(tensor) = tensor.storage else {
        return Err(format!("{found:?} on a GPU"));
    };
    let data = tensor.into_data();
    let expected = burn_dtype(dtype);
    let converts = match expected {
        DType::F32 => matches!(found, DType::F16 | DType::BF16 | DType::Flex32),
        DType::I32 => matches!(found, DType::I16 | DType::I8 | DType::U16 | DType::U8),
        _ => false,
    };
    match (found, expected) {
        (DType::Bool(_), DType::Bool(_)) => Ok(data),
        _ if found == expected => Ok(data),
        _ if converts => Ok(data.convert_dtype(expected)),
        _ => Err(format!("{found:?}")),
    }
}

/// Creates a tensor from data on the host. The error says what is wrong with the data.
pub(crate) fn upload(
    data: TensorData,
    device: &WgslDevice,
    dtype: tensor::DType,
    op: &'static str,
) -> Result<WgslTensor, String> {
    begin_op(op);
    let expected = burn_dtype(dtype);
    let is_bool = |dtype| matches!(dtype, DType::Bool(_));
    if data.dtype != expected && !(is_bool(data.dtype) && is_bool(expected)) {
        return Err(format!("is {:?} instead of {expected:?}", data.dtype));
    }
    let data = HostData::new(data).map_err(|error| format!("is wrong: {error}"))?;
    Ok(transfer::upload_checked(data, device, op))
}

/// Begins an op of the program that runs on the CPU.
pub(crate) fn computing(op: &'static str, operands: &[WgslTensor]) -> Computing {
    let device = operands.first().map(WgslTensor::device).unwrap_or_default();
    Computing::with_operands(&device, op, |all| {
        all.extend(operands.iter().map(|operand| ("input", operand.clone())));
    })
}

/// Checks a result as those of other ops are: see [`debug`](super::debug).
pub(crate) fn inspect(name: &'static str, result: WgslTensor) -> WgslTensor {
    let context = OpContext::new(name, Conversion::Stored, Rule::Promote);
    Inspection::begin(|_| {}).end(&context, result)
}

/// Compiles a WGSL expression of `a` and `b` on the device of a tensor.
pub(crate) fn compile_expression(
    tensor: &WgslTensor,
    name: &'static str,
    wgsl: &'static str,
) -> Result<(), RuntimeError> {
    let Some(runtime) = runtime(&tensor.device(), name) else { return Ok(()) };
    expression::compile(&runtime, name, wgsl)
}
