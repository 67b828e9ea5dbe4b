//! Tensors from host data and back.

use std::borrow::Cow;
use std::sync::Arc;

use burn_backend::ops::{TransactionOps, TransactionPrimitive, TransactionPrimitiveData};
use burn_backend::{DType, ExecutionError, TensorData};
use burn_flex::FlexTensor;
use burn_std::{BoolStore, Shape};

use super::Wgsl;
use super::context::{OpContext, fail, resolve, runtime};
use super::quantized::read_with_quantized;
use super::tensor::{Storage, WgslTensor, burn_dtype, stored_dtype};
use crate::device::{CAN_BLOCK, DeviceError, WgslDevice};
use crate::kernels::copy;
use crate::runtime::{Allocation, Runtime, RuntimeError};
use crate::tensor::{self, Tensor};

/// An error of the runtime as Burn reports it.
pub(crate) fn execution_error(error: &dyn std::fmt::Display) -> ExecutionError {
    ExecutionError::WithContext { reason: error.to_string() }
}

/// A tensor holding `data`: on the GPU if the device is one and its kernels know the type.
pub(crate) fn from_data(data: TensorData, device: &WgslDevice, op: &'static str) -> WgslTensor {
    let runtime = runtime(device, op);
    let stored = runtime.and_then(|runtime| Some((stored_dtype(data.dtype, &runtime)?, runtime)));
    // Where a GPU has no 64-bit integers and nothing can be computed elsewhere, they are kept in 32 bits.
    let data = match &stored {
        Some((dtype, _)) if data.dtype.size() == 8 && dtype.size() == 4 => {
            narrowed(data).unwrap_or_else(|error| fail(op, device, &error))
        }
        _ => data,
    };
    let storage = match (stored, data.dtype) {
        (Some((dtype, runtime)), _) => {
            let words = words(&data, dtype);
            let uploaded = Tensor::upload(&runtime, data.shape.as_slice(), dtype, &words);
            Storage::Gpu(uploaded.unwrap_or_else(|error| fail(op, device, &error)))
        }
        _ if !OpContext::HAS_CPU => OpContext::new(op).no_cpu_backend(),
        // The twin wants all truth values of an op stored alike, and knows no words.
        (None, DType::Bool(_)) => {
            let bytes: Vec<u8> = truths(&data).collect();
            let data =
                TensorData::from_bytes_vec(bytes, data.shape, DType::Bool(BoolStore::Native));
            Storage::Cpu(FlexTensor::from_data(data))
        }
        _ => Storage::Cpu(FlexTensor::from_data(data)),
    };
    WgslTensor { device: *device, storage }
}

/// 64-bit integers in 32 bits, if they fit.
fn narrowed(data: TensorData) -> Result<TensorData, String> {
    let fits = match data.dtype {
        DType::U64 => data.iter::<u64>().find(|&x| u32::try_from(x).is_err()).map(i128::from),
        _ => data.iter::<i64>().find(|&x| i32::try_from(x).is_err()).map(i128::from),
    };
    match (fits, data.dtype) {
        (Some(value), dtype) => Err(format!(
            "{value} does not fit in the 32 bits that this device has for {dtype:?}; scale or split the numbers, or use the CPU device"
        )),
        (None, DType::U64) => Ok(data.convert_dtype(DType::U32)),
        (None, _) => Ok(data.convert_dtype(DType::I32)),
    }
}

/// The elements as a GPU stores them, filled up to whole words.
fn words(data: &TensorData, dtype: tensor::DType) -> Cow<'_, [u8]> {
    fn widen<T: Copy + bytemuck::Pod>(data: &TensorData, word: fn(T) -> i32) -> Cow<'_, [u8]> {
        let elements = data.as_bytes().chunks_exact(size_of::<T>());
        let words = elements.map(|bytes| word(bytemuck::pod_read_unaligned(bytes)));
        words.flat_map(i32::to_ne_bytes).collect()
    }
    match dtype {
        tensor::DType::Bool => {
            truths(data).flat_map(|byte| u32::from(byte).to_ne_bytes()).collect()
        }
        tensor::DType::I16 => widen(data, |x: i16| x.into()),
        tensor::DType::I8 => widen(data, |x: i8| x.into()),
        tensor::DType::U16 => widen(data, |x: u16| x.into()),
        tensor::DType::U8 => widen(data, |x: u8| x.into()),
        _ => {
            let bytes = data.as_bytes();
            let mut words = Cow::from(bytes);
            if !bytes.len().is_multiple_of(4) {
                words.to_mut().resize(bytes.len().next_multiple_of(4), 0);
            }
            words
        }
    }
}

/// Reference values as bytes 0 and 1, however they are stored.
fn truths(data: &TensorData) -> impl Iterator<Item = u8> + '_ {
    let width = data.dtype.size();
    data.as_bytes().chunks_exact(width).map(|word| u8::from(word.iter().any(|&byte| byte != 0)))
}

/// The words of a GPU tensor as host data. Reference values come back as Rust's `bool`.
fn to_data(mut bytes: Vec<u8>, tensor: &Tensor) -> TensorData {
    let shape = Shape::from(tensor.shape().to_vec());
    let dtype = match burn_dtype(tensor.dtype()) {
        DType::Bool(_) => DType::Bool(BoolStore::Native),
        other => other,
    };
    let size = dtype.size();
    if size < tensor.dtype().size() as usize {
        // Widened elements: the low bytes of each word, which come first wherever wgpu runs.
        let low = |word: &[u8]| {
            let word = bytemuck::pod_read_unaligned::<u32>(word);
            word.to_le_bytes().into_iter().take(size)
        };
        let narrow: Vec<u8> = bytes.chunks_exact(4).flat_map(low).collect();
        return TensorData::from_bytes_vec(narrow, shape, dtype);
    }
    bytes.truncate(tensor.len() * size);
    TensorData::from_bytes_vec(bytes, shape, dtype)
}

/// Reads a tensor back.
pub(crate) async fn into_data(tensor: WgslTensor) -> Result<TensorData, ExecutionError> {
    let mut data = read_all(vec![tensor]).await?;
    data.pop().ok_or_else(|| execution_error(&"nothing was read back"))
}

/// Reads tensors back: those on one GPU in one submission and one wait.
pub(crate) async fn read_all(tensors: Vec<WgslTensor>) -> Result<Vec<TensorData>, ExecutionError> {
    let failed = |error: crate::tensor::Error| execution_error(&error);
    let mut out: Vec<Option<TensorData>> = Vec::with_capacity(tensors.len());
    let mut waiting: Vec<(usize, Tensor)> = Vec::new();
    for (index, tensor) in tensors.into_iter().enumerate() {
        match tensor.storage {
            Storage::Cpu(_) if !OpContext::HAS_CPU => {
                return Err(execution_error(&DeviceError::NoCpu));
            }
            Storage::Cpu(tensor) => out.push(Some(tensor.into_data())),
            Storage::Gpu(tensor) => {
                waiting.push((index, copy::packed(tensor).map_err(failed)?));
                out.push(None);
            }
        }
    }
    while let Some((_, first)) = waiting.first() {
        let runtime: Arc<Runtime> = first.runtime().clone();
        let (here, elsewhere): (Vec<_>, Vec<_>) =
            waiting.into_iter().partition(|(_, tensor)| Arc::ptr_eq(tensor.runtime(), &runtime));
        let parts: Vec<(Arc<Allocation>, u64)> =
            here.iter().map(|(_, tensor)| tensor.part()).collect();
        let read =
            runtime.read(&parts).await.map_err(|error: RuntimeError| execution_error(&error))?;
        for ((index, tensor), bytes) in here.iter().zip(read) {
            out[*index] = Some(to_data(bytes, tensor));
        }
        waiting = elsewhere;
    }
    out.into_iter()
        .collect::<Option<_>>()
        .ok_or_else(|| execution_error(&"a tensor was not read back"))
}

/// Reads a tensor back, waiting for it.
///
/// # Panics
///
/// When the device fails, and in a browser, where nothing can wait.
pub(crate) fn read_now(tensor: WgslTensor, op: &'static str) -> TensorData {
    let device = tensor.device;
    if matches!(tensor.storage, Storage::Gpu(_)) {
        check_can_block(op, &device);
    }
    pollster::block_on(into_data(tensor)).unwrap_or_else(|error| fail(op, &device, &error))
}

/// Ends an op that would have to wait for a GPU where nothing can.
pub(crate) fn check_can_block(op: &str, device: &WgslDevice) {
    if !CAN_BLOCK {
        fail(op, device, &RuntimeError::CannotBlock { device: device.to_string() });
    }
}

/// Ends an op that would have to wait for a GPU, so that the CPU can do it, where nothing can.
pub(crate) fn check_can_fall_back(op: &str) {
    if !CAN_BLOCK {
        panic!(
            "{op} has no kernel for these tensors, and a browser cannot wait for the CPU to do it"
        );
    }
}

/// The tensor on another device: relabelled if that is the same place, else through the host.
pub(crate) fn to_device(tensor: WgslTensor, device: &WgslDevice, op: &'static str) -> WgslTensor {
    if resolve(&tensor.device, op) == resolve(device, op) {
        return WgslTensor { device: *device, ..tensor };
    }
    from_data(read_now(tensor, op), device, op)
}

impl TransactionOps<Wgsl> for Wgsl {
    async fn tr_execute(
        transaction: TransactionPrimitive<Wgsl>,
    ) -> Result<TransactionPrimitiveData, ExecutionError> {
        let TransactionPrimitive { read_floats, read_qfloats, read_ints, read_bools, .. } =
            transaction;
        let (floats, ints) = (read_floats.len(), read_ints.len());
        let tensors: Vec<WgslTensor> =
            read_floats.into_iter().chain(read_ints).chain(read_bools).collect();
        let (mut data, read_qfloats) = read_with_quantized(tensors, read_qfloats).await?;
        let read_bools = data.split_off(floats + ints);
        let read_ints = data.split_off(floats);
        Ok(TransactionPrimitiveData { read_floats: data, read_qfloats, read_ints, read_bools })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_in_32_bits_is_kept_and_the_rest_is_refused() {
        let kept = narrowed(TensorData::from([-5i64, i32::MAX.into()])).expect("it fits");
        assert_eq!(
            (kept.dtype, kept.to_vec::<i32>().expect("i32")),
            (DType::I32, vec![-5, i32::MAX])
        );
        let kept = narrowed(TensorData::from([7u64, u32::MAX.into()])).expect("it fits");
        assert_eq!(kept.dtype, DType::U32);
        let error = narrowed(TensorData::from([1i64, 1 << 40])).expect_err("it does not fit");
        assert!(error.contains("1099511627776"), "{error}");
    }
}
