//! Tensors from host data and back.

use std::sync::Arc;

use burn_backend::ops::{TransactionOps, TransactionPrimitive, TransactionPrimitiveData};
use burn_backend::{DType, ExecutionError, TensorData};
use burn_flex::FlexTensor;
use burn_std::{BoolStore, Shape};

use super::Wgsl;
use super::quantized::read_with_quantized;
use super::site::{place, refuse, runtime};
use super::tensor::{Home, WgslTensor, kernel_dtype};
use crate::device::WgslDevice;
use crate::kernels::copy;
use crate::runtime::{Runtime, RuntimeError, Slice};
use crate::tensor::{self, Tensor};

/// An error of the runtime as Burn reports it.
pub(crate) fn execution_error(error: &dyn std::fmt::Display) -> ExecutionError {
    ExecutionError::WithContext {
        reason: error.to_string(),
    }
}

/// A tensor holding `data`: on the GPU if the device is one and its kernels know the type.
pub(crate) fn from_data(data: TensorData, device: &WgslDevice, op: &'static str) -> WgslTensor {
    let home = match (runtime(device, op), kernel_dtype(data.dtype)) {
        (Some(runtime), Some(dtype)) => {
            let words = words(&data);
            let uploaded = Tensor::upload(&runtime, data.shape.as_slice(), dtype, &words);
            Home::Gpu(uploaded.unwrap_or_else(|error| refuse(op, device, &error)))
        }
        // The twin stores truth values as bytes.
        (_, Some(tensor::DType::Bool)) => {
            let store = match data.dtype {
                DType::Bool(BoolStore::U32) => DType::Bool(BoolStore::U8),
                other => other,
            };
            let bytes: Vec<u8> = truths(&data).collect();
            Home::Cpu(FlexTensor::from_data(TensorData::from_bytes_vec(
                bytes, data.shape, store,
            )))
        }
        _ => Home::Cpu(FlexTensor::from_data(data)),
    };
    WgslTensor {
        device: *device,
        home,
    }
}

/// The elements as the GPU stores them: four bytes each.
fn words(data: &TensorData) -> std::borrow::Cow<'_, [u8]> {
    match data.dtype {
        DType::Bool(_) => truths(data)
            .flat_map(|byte| u32::from(byte).to_ne_bytes())
            .collect::<Vec<u8>>()
            .into(),
        _ => data.as_bytes().into(),
    }
}

/// Truth values as bytes 0 and 1, however they are stored.
fn truths(data: &TensorData) -> impl Iterator<Item = u8> + '_ {
    let width = data.dtype.size();
    data.as_bytes()
        .chunks_exact(width)
        .map(|word| u8::from(word.iter().any(|&byte| byte != 0)))
}

/// The bytes of a GPU tensor as host data. Truth values come back as Rust's `bool`.
fn to_data(bytes: Vec<u8>, tensor: &Tensor) -> TensorData {
    let shape = Shape::from(tensor.shape().to_vec());
    match tensor.dtype() {
        tensor::DType::F32 => TensorData::from_bytes_vec(bytes, shape, DType::F32),
        tensor::DType::I32 => TensorData::from_bytes_vec(bytes, shape, DType::I32),
        tensor::DType::Bool => {
            let bytes = bytes
                .chunks_exact(4)
                .map(|word| u8::from(word[0] != 0))
                .collect();
            TensorData::from_bytes_vec(bytes, shape, DType::Bool(BoolStore::Native))
        }
    }
}

/// Reads a tensor back.
pub(crate) async fn into_data(tensor: WgslTensor) -> Result<TensorData, ExecutionError> {
    let mut data = read_all(vec![tensor]).await?;
    data.pop()
        .ok_or_else(|| execution_error(&"nothing was read back"))
}

/// Reads tensors back: those on one GPU in one submission and one wait.
pub(crate) async fn read_all(tensors: Vec<WgslTensor>) -> Result<Vec<TensorData>, ExecutionError> {
    let failed = |error: crate::tensor::Error| execution_error(&error);
    let mut out: Vec<Option<TensorData>> = Vec::with_capacity(tensors.len());
    let mut waiting: Vec<(usize, Tensor)> = Vec::new();
    for (index, tensor) in tensors.into_iter().enumerate() {
        match tensor.home {
            Home::Cpu(tensor) => out.push(Some(tensor.into_data())),
            Home::Gpu(tensor) => {
                waiting.push((index, copy::packed(tensor).map_err(failed)?));
                out.push(None);
            }
        }
    }
    while let Some((_, first)) = waiting.first() {
        let runtime: Arc<Runtime> = first.runtime().clone();
        let (here, elsewhere): (Vec<_>, Vec<_>) = waiting
            .into_iter()
            .partition(|(_, tensor)| Arc::ptr_eq(tensor.runtime(), &runtime));
        let parts: Vec<(Arc<Slice>, u64)> = here.iter().map(|(_, tensor)| tensor.part()).collect();
        let read = runtime
            .read(&parts)
            .await
            .map_err(|error: RuntimeError| execution_error(&error))?;
        for ((index, tensor), bytes) in here.iter().zip(read) {
            out[*index] = Some(to_data(bytes, tensor));
        }
        waiting = elsewhere;
    }
    Ok(out.into_iter().flatten().collect())
}

/// Reads a tensor back, waiting for it.
///
/// # Panics
///
/// When the device fails, and in a browser, where nothing can wait.
pub(crate) fn read_now(tensor: WgslTensor, op: &'static str) -> TensorData {
    let device = tensor.device;
    if matches!(tensor.home, Home::Gpu(_)) {
        may_wait(op);
    }
    pollster::block_on(into_data(tensor)).unwrap_or_else(|error| refuse(op, &device, &error))
}

/// Ends an op that would have to wait for a GPU where nothing can.
pub(crate) fn may_wait(op: &str) {
    if cfg!(target_arch = "wasm32") {
        panic!(
            "{op} has no kernel for these tensors, and a browser cannot wait for the CPU to do it"
        );
    }
}

/// The tensor on another device: relabelled if that is the same place, else through the host.
pub(crate) fn to_device(tensor: WgslTensor, device: &WgslDevice, op: &'static str) -> WgslTensor {
    if place(&tensor.device, op) == place(device, op) {
        return WgslTensor {
            device: *device,
            ..tensor
        };
    }
    from_data(read_now(tensor, op), device, op)
}

impl TransactionOps<Wgsl> for Wgsl {
    async fn tr_execute(
        transaction: TransactionPrimitive<Wgsl>,
    ) -> Result<TransactionPrimitiveData, ExecutionError> {
        let TransactionPrimitive {
            read_floats,
            read_qfloats,
            read_ints,
            read_bools,
            ..
        } = transaction;
        let (floats, ints) = (read_floats.len(), read_ints.len());
        let tensors: Vec<WgslTensor> = read_floats
            .into_iter()
            .chain(read_ints)
            .chain(read_bools)
            .collect();
        let (mut data, read_qfloats) = read_with_quantized(tensors, read_qfloats).await?;
        let read_bools = data.split_off(floats + ints);
        let read_ints = data.split_off(floats);
        Ok(TransactionPrimitiveData {
            read_floats: data,
            read_qfloats,
            read_ints,
            read_bools,
        })
    }
}
