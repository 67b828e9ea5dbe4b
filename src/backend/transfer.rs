//! Uploads host data to tensors, and reads tensors back.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use burn_backend::ops::{
    QTensorOps, TransactionOps, TransactionPrimitive, TransactionPrimitiveData,
};
use burn_backend::{DType, ExecutionError, TensorData, TensorMetadata};
use burn_std::Shape;
use burn_std::quantization::QuantScheme;

use super::Wgsl;
use super::host_data::{DataKind, HostData, QuantizedData};
use super::resolve::{HAS_CPU, check_can_block, fail, fail_without_cpu, resolve, runtime};
use super::tensor::{
    GpuQuantized, QuantizedStorage, Storage, WgslQuantizedTensor, WgslTensor, burn_dtype,
    kernel_format, stored_dtype,
};
use crate::cpu::{Flex, FlexQTensor, FlexTensor, memory_error, observed};
use crate::device::{CAN_BLOCK, WgslDevice};
use crate::kernels::dequantize;
use crate::kernels::fusion::switch::is_enabled;
use crate::kernels::ops::options::QuantFormat;
use crate::kernels::quantized::Quantized;
use crate::kernels::views;
use crate::runtime::{Allocation, Runtime, begin_op};
use crate::tensor::{self, Tensor};

/// The most bytes on their way between devices: their copies are in the host's memory, and the sources stay in memory.
/// Beyond that, a tensor is moved at once.
const MAX_ARRIVING: u64 = 256 << 20;
/// The bytes on their way.
static ARRIVING: AtomicU64 = AtomicU64::new(0);
/// Integers of 8 bits are uploaded as bytes from this size on.
const MIN_BYTES: u64 = 1024;

/// Converts an error to Burn's type.
pub(crate) fn execution_error(error: &dyn std::fmt::Display) -> ExecutionError {
    ExecutionError::WithContext { reason: error.to_string() }
}

/// Checks data of the program, and uploads it to the device.
pub(crate) fn upload(
    data: TensorData,
    kind: DataKind,
    device: &WgslDevice,
    op: &'static str,
) -> WgslTensor {
    begin_op(op);
    let data = HostData::of_kind(data, kind).unwrap_or_else(|error| fail(op, device, &error));
    upload_checked(data, device, op)
}

/// Uploads `data` to the device. If its GPU cannot store the type, the tensor is stored on the
/// CPU.
pub(crate) fn upload_checked(data: HostData, device: &WgslDevice, op: &'static str) -> WgslTensor {
    try_upload(data, device, op).unwrap_or_else(|error| fail(op, device, &error))
}

/// The same. The error says why there is no tensor.
pub(super) fn try_upload(
    data: HostData,
    device: &WgslDevice,
    op: &'static str,
) -> Result<WgslTensor, String> {
    let runtime = runtime(device, op);
    let stored = runtime.and_then(|runtime| Some((stored_dtype(data.dtype(), &runtime)?, runtime)));
    let storage = match stored {
        Some((dtype, runtime)) => {
            // A browser stores 64-bit integers in 32 bits on adapters without them.
            let data = match data.dtype().size() == 8 && dtype.size() == 4 {
                true => narrow(data)?,
                false => data,
            };
            let uploaded = match travels_as_bytes(data.bytes().len() as u64, dtype, &runtime) {
                true => upload_bytes(&data, dtype, &runtime),
                false => {
                    let bytes = to_stored(&data, dtype);
                    Tensor::upload(&runtime, data.shape(), dtype, &bytes)
                }
            };
            Storage::Gpu(uploaded.map_err(|error| error.to_string())?)
        }
        None if !HAS_CPU => fail_without_cpu(op),
        None => Storage::Cpu(Box::new(observed(data.into_flex()))),
    };
    Ok(WgslTensor::new(*device, storage))
}

/// Returns whether `len` bytes of data are uploaded as they are, and unpacked to words by the device. Less is widened
/// on the host, which saves a launch.
pub(super) fn travels_as_bytes(len: u64, dtype: tensor::DType, runtime: &Runtime) -> bool {
    let is_large = len >= MIN_BYTES && len.next_multiple_of(4) * 4 <= runtime.max_binding();
    is_large && is_enabled() && matches!(dtype, tensor::DType::I8 | tensor::DType::U8)
}

/// Uploads integers of 8 bits as bytes.
fn upload_bytes(
    data: &HostData,
    dtype: tensor::DType,
    runtime: &Arc<Runtime>,
) -> tensor::Result<Tensor> {
    let mut bytes = Cow::from(data.bytes());
    let padded = bytes.len().next_multiple_of(4);
    if bytes.len() < padded {
        bytes.to_mut().resize(padded, 0);
    }
    let words = Tensor::upload(runtime, &[padded / 4], tensor::DType::I32, &bytes)?;
    dequantize::bytes(&words, data.shape(), dtype)
}

/// Checks data that was read back, for the CPU backend.
pub(crate) fn flex_tensor(data: TensorData, op: &'static str) -> FlexTensor {
    HostData::new(data).unwrap_or_else(|error| panic!("{op}: {error}")).into_flex()
}

/// Converts 64-bit integers to 32 bits if all of them fit.
fn narrow(data: HostData) -> Result<HostData, String> {
    let elements = data.as_data();
    let (too_large, dtype) = match data.dtype() {
        DType::U64 => {
            let too_large = elements.iter::<u64>().find(|&x| u32::try_from(x).is_err());
            (too_large.map(i128::from), DType::U32)
        }
        _ => {
            let too_large = elements.iter::<i64>().find(|&x| i32::try_from(x).is_err());
            (too_large.map(i128::from), DType::I32)
        }
    };
    match too_large {
        None => Ok(data.convert(dtype)),
        Some(value) => Err(format!(
            "{value} does not fit in the 32 bits that this device has for {:?}; scale or split \
             the numbers, or use the CPU device",
            data.dtype()
        )),
    }
}

/// Converts the elements to the GPU's storage format, padded to a multiple of four bytes.
fn to_stored(data: &HostData, dtype: tensor::DType) -> Cow<'_, [u8]> {
    fn widen<T: Copy + bytemuck::Pod>(data: &HostData, to_word: fn(T) -> i32) -> Cow<'_, [u8]> {
        let elements = data.bytes().chunks_exact(size_of::<T>());
        let words = elements.map(|bytes| to_word(bytemuck::pod_read_unaligned(bytes)));
        words.flat_map(i32::to_ne_bytes).collect()
    }
    match dtype {
        tensor::DType::Bool => {
            data.bools().flat_map(|byte| u32::from(byte).to_ne_bytes()).collect()
        }
        tensor::DType::I16 => widen(data, |x: i16| x.into()),
        tensor::DType::I8 => widen(data, |x: i8| x.into()),
        tensor::DType::U16 => widen(data, |x: u16| x.into()),
        tensor::DType::U8 => widen(data, |x: u8| x.into()),
        _ => {
            let mut bytes = Cow::from(data.bytes());
            if !bytes.len().is_multiple_of(4) {
                let padded = bytes.len().next_multiple_of(4);
                bytes.to_mut().resize(padded, 0);
            }
            bytes
        }
    }
}

/// Converts the stored bytes of a GPU tensor to host data. Booleans become Rust's `bool`.
pub(super) fn from_stored(mut bytes: Vec<u8>, tensor: &Tensor) -> TensorData {
    let shape = Shape::from(tensor.shape().to_vec());
    let dtype = burn_dtype(tensor.dtype());
    let size = dtype.size();
    if size < tensor.dtype().size() as usize {
        // The element is the low bytes of a 32-bit word.
        let low_bytes = |word: &[u8]| {
            let word = bytemuck::pod_read_unaligned::<u32>(word);
            word.to_le_bytes().into_iter().take(size)
        };
        let elements: Vec<u8> = bytes.chunks_exact(4).flat_map(low_bytes).collect();
        return TensorData::from_bytes_vec(elements, shape, dtype);
    }
    bytes.truncate(tensor.len() * size);
    TensorData::from_bytes_vec(bytes, shape, dtype)
}

/// Reads a tensor back.
pub(crate) async fn into_data(tensor: WgslTensor) -> Result<TensorData, ExecutionError> {
    let mut data = read_all(vec![tensor]).await?;
    data.pop().ok_or_else(|| execution_error(&"nothing was read back"))
}

/// Reads tensors back, those on the same GPU in one submission.
async fn read_all(tensors: Vec<WgslTensor>) -> Result<Vec<TensorData>, ExecutionError> {
    let mut out: Vec<Option<TensorData>> = Vec::with_capacity(tensors.len());
    let mut pending: Vec<(usize, Tensor)> = Vec::new();
    for (index, tensor) in tensors.into_iter().enumerate() {
        match tensor.storage {
            Storage::Cpu(tensor) => {
                // A view can have more elements than its memory.
                let (shape, size) = (tensor.shape(), tensor.dtype().size());
                if let Some(error) = memory_error(shape.as_slice(), size) {
                    return Err(execution_error(&error));
                }
                out.push(Some(tensor.into_data()));
            }
            Storage::Gpu(tensor) => {
                let tensor = views::packed(tensor).map_err(|error| execution_error(&error))?;
                pending.push((index, tensor));
                out.push(None);
            }
        }
    }
    while let Some((_, first)) = pending.first() {
        let runtime: Arc<Runtime> = first.runtime().clone();
        let (same_gpu, others): (Vec<_>, Vec<_>) =
            pending.into_iter().partition(|(_, tensor)| Arc::ptr_eq(tensor.runtime(), &runtime));
        let ranges: tensor::Result<Vec<(Arc<Allocation>, u64)>> =
            same_gpu.iter().map(|(_, tensor)| tensor.readback_range()).collect();
        let ranges = ranges.map_err(|error| execution_error(&error))?;
        let read = runtime.read(&ranges).await.map_err(|error| execution_error(&error))?;
        for ((index, tensor), bytes) in same_gpu.iter().zip(read) {
            out[*index] = Some(from_stored(bytes, tensor));
        }
        pending = others;
    }
    out.into_iter()
        .collect::<Option<_>>()
        .ok_or_else(|| execution_error(&"a tensor was not read back"))
}

/// Reads a tensor back, blocking until the GPU has finished.
///
/// # Panics
///
/// Panics if the device fails, and in a browser, where the host cannot block.
pub(crate) fn read_blocking(tensor: WgslTensor, op: &'static str) -> TensorData {
    let device = tensor.device();
    if matches!(tensor.storage, Storage::Gpu(_)) {
        check_can_block(op, &device);
    }
    crate::runtime::block_on(into_data(tensor)).unwrap_or_else(|error| fail(op, &device, &error))
}

/// Moves a tensor to another device, through the host unless both are the same device. Between GPUs, the copy is waited
/// for when the result is first used.
pub(crate) fn to_device(tensor: WgslTensor, device: &WgslDevice, op: &'static str) -> WgslTensor {
    if resolve(&tensor.device(), op) == resolve(device, op) {
        return tensor;
    }
    begin_op(op);
    if let Some(arriving) = start_transfer(&tensor, device, op) {
        return arriving;
    }
    let data = HostData::new(read_blocking(tensor, op));
    upload_checked(data.unwrap_or_else(|error| fail(op, device, &error)), device, op)
}

/// Bytes on their way, until they are taken or dropped.
struct Arriving(u64);

impl Arriving {
    /// Counts bytes, unless too many are on their way.
    fn begin(bytes: u64) -> Option<Self> {
        let arriving = Self(bytes);
        (ARRIVING.fetch_add(bytes, Ordering::Relaxed) + bytes <= MAX_ARRIVING).then_some(arriving)
    }
}

impl Drop for Arriving {
    fn drop(&mut self) {
        ARRIVING.fetch_sub(self.0, Ordering::Relaxed);
    }
}

/// Starts to copy a tensor from a GPU to another. Returns it as one that is waited for when it is first used, or `None`
/// if it must be moved at once.
fn start_transfer(
    tensor: &WgslTensor,
    device: &WgslDevice,
    op: &'static str,
) -> Option<WgslTensor> {
    let Storage::Gpu(tensor) = &tensor.storage else { return None };
    let target = runtime(device, op)?;
    let bytes = tensor.len() as u64 * tensor.dtype().size();
    let is_stored_there = stored_dtype(burn_dtype(tensor.dtype()), &target) == Some(tensor.dtype());
    if !CAN_BLOCK || !is_stored_there || bytes == 0 {
        return None;
    }
    let arriving = Arriving::begin(bytes)?;
    let source = tensor.runtime().clone();
    let started = views::packed(tensor.clone()).and_then(|packed| {
        let range = packed.readback_range()?;
        Ok(source.start_read(vec![range])?)
    });
    let read = started.unwrap_or_else(|error| fail(op, device, &error));
    let elements = Box::new(move || {
        let read = crate::runtime::block_on(source.finish_read(read));
        drop(arriving);
        let mut read = read?;
        Ok(read.pop().unwrap_or_default())
    });
    let arriving = Tensor::of_arrival(&target, tensor.shape(), tensor.dtype(), elements);
    let arriving = arriving.unwrap_or_else(|error| fail(op, device, &error));
    Some(WgslTensor::new(*device, Storage::Gpu(arriving)))
}

/// Uploads quantised data to the device. If kernels do not support the scheme, the tensor is stored
/// on the CPU.
pub(crate) fn upload_quantized(
    data: TensorData,
    device: &WgslDevice,
    op: &'static str,
) -> WgslQuantizedTensor {
    let data = QuantizedData::new(data).unwrap_or_else(|error| fail(op, device, &error));
    let storage = match runtime(device, op) {
        Some(runtime) if kernel_format(&data.scheme).is_some() => {
            let uploaded = upload_words_and_scales(&runtime, &data);
            let tensor = uploaded.unwrap_or_else(|error| fail(op, device, &error));
            QuantizedStorage::Gpu(Box::new(tensor))
        }
        _ if !HAS_CPU => fail_without_cpu(op),
        _ => QuantizedStorage::Cpu(Box::new(data.into_flex())),
    };
    WgslQuantizedTensor::new(*device, storage)
}

/// Checks quantised data that was read back, for the CPU backend.
pub(crate) fn flex_quantized(data: TensorData, op: &'static str) -> FlexQTensor {
    QuantizedData::new(data).unwrap_or_else(|error| panic!("{op}: {error}")).into_flex()
}

/// Uploads quantised data of a scheme that kernels support.
fn upload_words_and_scales(
    runtime: &Arc<Runtime>,
    data: &QuantizedData,
) -> tensor::Result<GpuQuantized> {
    let scales = bytemuck::cast_slice(&data.scales);
    let scales = Tensor::upload(runtime, &[data.scales.len()], tensor::DType::F32, scales)?;
    GpuQuantized::new(&data.scheme, |format| {
        let words = pack_words(&data.values, format);
        let bytes = bytemuck::cast_slice(&words);
        let words = Tensor::upload(runtime, &[words.len()], tensor::DType::I32, bytes)?;
        Quantized::new(words, data.shape.as_slice(), scales, format)
    })
}

/// Packs integers into words, the first of a word in its lowest bits.
fn pack_words(values: &[i8], format: QuantFormat) -> Vec<u32> {
    let mask = u32::MAX >> (32 - format.bits);
    let pack = |values: &[i8]| {
        let integers = values.iter().rev();
        integers.fold(0, |word, &value| (word << format.bits) | (value as u32 & mask))
    };
    values.chunks(format.values_per_word()).map(pack).collect()
}

/// Unpacks the first `len` integers of words.
fn unpack_words(words: &[u32], len: usize, format: QuantFormat) -> Vec<i8> {
    let unused = 32 - format.bits;
    let integers = words.iter().flat_map(|word| {
        (0..32)
            .step_by(format.bits as usize)
            .map(move |low| ((word >> low << unused).cast_signed() >> unused) as i8)
    });
    integers.take(len).collect()
}

/// Returns the host data of a quantised tensor of the CPU backend.
pub(crate) fn cpu_data(tensor: FlexQTensor) -> TensorData {
    // burn-flex computes synchronously, so this future is ready at once.
    crate::runtime::block_on(Flex::q_into_data(tensor))
        .unwrap_or_else(|error| panic!("q_into_data: {error}"))
}

/// Reads a quantised tensor back.
pub(crate) async fn into_quantized_data(
    tensor: WgslQuantizedTensor,
) -> Result<TensorData, ExecutionError> {
    let (_, mut data) = read_with_quantized(Vec::new(), vec![tensor]).await?;
    data.pop().ok_or_else(|| execution_error(&"nothing was read back"))
}

/// Reads a quantised tensor back, blocking until the GPU has finished.
///
/// # Panics
///
/// Panics if the device fails, and in a browser, where the host cannot block.
pub(crate) fn read_quantized_blocking(tensor: WgslQuantizedTensor, op: &'static str) -> TensorData {
    let device = tensor.device();
    if matches!(tensor.storage, QuantizedStorage::Gpu(_)) {
        check_can_block(op, &device);
    }
    crate::runtime::block_on(into_quantized_data(tensor))
        .unwrap_or_else(|error| fail(op, &device, &error))
}

/// Moves a quantised tensor to another device, through the host unless both are the same device.
pub(crate) fn quantized_to_device(
    tensor: WgslQuantizedTensor,
    device: &WgslDevice,
    op: &'static str,
) -> WgslQuantizedTensor {
    if resolve(&tensor.device(), op) == resolve(device, op) {
        return tensor;
    }
    begin_op(op);
    upload_quantized(read_quantized_blocking(tensor, op), device, op)
}

/// A quantised tensor during a readback.
enum Pending {
    /// The data of a tensor of the CPU backend.
    Host(TensorData),
    /// A tensor on a GPU; its words and scales are being read back.
    Gpu { shape: Vec<usize>, scheme: QuantScheme, format: QuantFormat },
}

/// Reads tensors and quantised tensors back, those on the same GPU in one submission.
async fn read_with_quantized(
    mut tensors: Vec<WgslTensor>,
    quantized: Vec<WgslQuantizedTensor>,
) -> Result<(Vec<TensorData>, Vec<TensorData>), ExecutionError> {
    let count = tensors.len();
    let mut pending = Vec::with_capacity(quantized.len());
    for tensor in quantized {
        let device = tensor.device();
        let on_gpu = |tensor| WgslTensor::new(device, Storage::Gpu(tensor));
        pending.push(match tensor.storage {
            QuantizedStorage::Cpu(tensor) => Pending::Host(cpu_data(*tensor)),
            QuantizedStorage::Gpu(tensor) => {
                let GpuQuantized { values, scheme } = *tensor;
                let (shape, format) = (values.shape().to_vec(), values.format());
                let (words, scales) =
                    values.into_parts().map_err(|error| execution_error(&error))?;
                tensors.extend([on_gpu(words), on_gpu(scales)]);
                Pending::Gpu { shape, scheme, format }
            }
        });
    }
    let mut data = read_all(tensors).await?;
    let mut words_and_scales = data.split_off(count).into_iter();
    let mut next =
        || words_and_scales.next().ok_or_else(|| execution_error(&"nothing was read back"));
    let mut quantized_data = Vec::with_capacity(pending.len());
    for tensor in pending {
        quantized_data.push(match tensor {
            Pending::Host(data) => data,
            Pending::Gpu { shape, scheme, format } => {
                let (words, scales) = (next()?, next()?);
                let len: usize = shape.iter().product();
                let words: Vec<u32> = words.iter::<i32>().map(i32::cast_unsigned).collect();
                let values = unpack_words(&words, len, format);
                let scales: Vec<f32> = scales.iter().collect();
                TensorData::quantized(values, shape, scheme, &scales)
            }
        });
    }
    Ok((data, quantized_data))
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
    fn narrow_keeps_integers_that_fit_in_32_bits_and_rejects_others() {
        let narrow = |data: TensorData| {
            let narrowed = narrow(HostData::new(data).expect("the data is valid"));
            narrowed.map(|data| data.as_data().clone())
        };
        let narrowed = narrow(TensorData::from([-5i64, i32::MAX.into()])).expect("both fit");
        assert_eq!(
            (narrowed.dtype, narrowed.to_vec::<i32>().expect("i32")),
            (DType::I32, vec![-5, i32::MAX])
        );
        let narrowed = narrow(TensorData::from([7u64, u32::MAX.into()])).expect("both fit");
        assert_eq!(narrowed.dtype, DType::U32);
        let error = narrow(TensorData::from([1i64, 1 << 40])).expect_err("2^40 does not fit");
        assert!(error.contains("1099511627776"), "{error}");
    }
}
