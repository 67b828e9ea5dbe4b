//! The contract's quantised tensor ops. What is not listed here is Burn's own composition: dequantise,
//! compute, quantise.

use burn_flex::{FlexDevice, FlexQTensor};
use burn_std::quantization::{QuantScheme, QuantStore, QuantizedBytes};

use super::context::{fail, resolve, runtime};
use super::contract::prelude::*;
use super::contract::slice_axes;
use super::data::{check_can_block, execution_error, read_all};
use super::tensor::{GpuQuantized, QuantizedStorage, Storage, kernel_format};
use crate::kernels::quantized::{self, Format, Quantized};
use crate::tensor::{self, Tensor};

/// Quantised ops.
macro_rules! quantized_contract {
    ($apply:ident) => {
        $apply! {
            quantize(tensor: F, scheme: Scheme, qparams: QParams) -> Q = with_scheme(scheme, |format| quantized::quantize(tensor, qparams, format));
            quantize_dynamic(tensor: F, scheme: Scheme) -> Q = with_scheme(scheme, |format| quantized::quantize_dynamic(tensor, format));
            dequantize(tensor: Q, dtype: FloatType) -> F = with(dtype, quantized::dequantize(&tensor.values));
            q_reshape(tensor: Q, shape: Shape) -> Q = tensor.map(|q| quantized::reshape(q, &shape));
            q_expand(tensor: Q, shape: Shape) -> Q = tensor.map(|q| quantized::expand(q, &shape));
            q_swap_dims(tensor: Q, dim1: Size, dim2: Size) -> Q = tensor.map(|q| quantized::swap_dims(q, dim1, dim2));
            q_permute(tensor: Q, axes: Axes) -> Q = tensor.map(|q| quantized::permute(q, axes));
            q_flip(tensor: Q, axes: Axes) -> Q = tensor.map(|q| quantized::flip(q, axes));
            q_select(tensor: Q, dim: Size, indices: Index) -> Q = tensor.map(|q| quantized::select(q, dim, indices));
            q_slice(tensor: Q, slices: Slices) -> Q = tensor.map(|q| slice_quantized(q, slices));
            q_gather(dim: Size, tensor: Q, indices: Index) -> Q = tensor.map(|q| quantized::gather(dim, q, indices));
            q_argmax(tensor: Q, dim: Size, dtype: IntType) -> I = with(dtype, extreme(Reduction::ArgMax, &tensor, dim));
            q_argmin(tensor: Q, dim: Size, dtype: IntType) -> I = with(dtype, extreme(Reduction::ArgMin, &tensor, dim));
        }
    };
}

pub(crate) use quantized_contract;

impl QTensorOps<Wgsl> for Wgsl {
    quantized_contract!(methods);

    fn q_from_data(data: TensorData, device: &WgslDevice) -> Q {
        quantized_from_data(data, device, "q_from_data")
    }

    async fn q_into_data(tensor: Q) -> Result<TensorData, ExecutionError> {
        let (_, mut data) = read_with_quantized(Vec::new(), vec![tensor]).await?;
        data.pop().ok_or_else(|| execution_error(&"nothing was read back"))
    }

    fn q_device(tensor: &Q) -> WgslDevice {
        tensor.device
    }

    fn q_to_device(tensor: Q, device: &WgslDevice) -> Q {
        let op = "q_to_device";
        if resolve(&tensor.device, op) == resolve(device, op) {
            return Q { device: *device, ..tensor };
        }
        quantized_from_data(read_quantized_now(tensor, op), device, op)
    }
}

/// A quantisation by a scheme that the context has seen kernels know.
fn with_scheme(
    scheme: &QuantScheme,
    f: impl FnOnce(Format) -> tensor::Result<Quantized>,
) -> tensor::Result<GpuQuantized> {
    let Some(format) = kernel_format(scheme) else {
        panic!("no kernel takes {scheme:?}");
    };
    Ok(GpuQuantized {
        values: f(format)?,
        // On the host each value is a byte.
        scheme: scheme.with_store(QuantStore::Native),
    })
}

fn slice_quantized(tensor: Quantized, slices: &[burn_std::Slice]) -> tensor::Result<Quantized> {
    let axes = slice_axes(tensor.shape(), slices);
    quantized::slice(tensor, &axes)
}

/// Where the extreme of each line is. The floats decide: integers of two blocks are not comparable.
fn extreme(kind: Reduction, tensor: &GpuQuantized, dim: usize) -> tensor::Result<Tensor> {
    reduce::dim(kind, quantized::dequantize(&tensor.values)?, dim)
}

/// A quantised tensor holding `data`: on the GPU if the device is one and its kernels know the scheme.
pub(crate) fn quantized_from_data(data: TensorData, device: &WgslDevice, op: &'static str) -> Q {
    let scheme = match data.dtype {
        burn_backend::DType::QFloat(scheme) => scheme,
        other => fail(op, device, &format!("the data is {other:?}, not quantised")),
    };
    let storage = match (runtime(device, op), kernel_format(&scheme)) {
        (Some(runtime), Some(_)) => {
            let shape = data.shape.clone();
            let num_elements = data.num_elements();
            let stored = QuantizedBytes { bytes: data.into_bytes(), scheme, num_elements };
            let (values, params) = stored.into_vec_i8();
            let mut bytes: Vec<u8> = bytemuck::cast_vec(values);
            bytes.resize(num_elements.next_multiple_of(4), 0);
            let upload = |format| {
                let words = [bytes.len() / 4];
                let words = Tensor::upload(&runtime, &words, DType::I32, &bytes)?;
                let count = [params.scales.len()];
                let scales = bytemuck::cast_slice(&params.scales);
                let scales = Tensor::upload(&runtime, &count, DType::F32, scales)?;
                Quantized::new(words, &shape, scales, format)
            };
            let tensor = with_scheme(&scheme, upload);
            let tensor = tensor.unwrap_or_else(|error| fail(op, device, &error));
            QuantizedStorage::Gpu(Box::new(tensor))
        }
        _ if !OpContext::HAS_CPU => OpContext::new(op).no_cpu_backend(),
        _ => QuantizedStorage::Cpu(Flex::q_from_data(data, &FlexDevice)),
    };
    Q { device: *device, storage }
}

/// The data of a tensor of the twin, which is on the host already.
pub(crate) fn cpu_data(tensor: FlexQTensor) -> TensorData {
    // The twin answers at once: nothing is waited for.
    pollster::block_on(Flex::q_into_data(tensor))
        .unwrap_or_else(|error| panic!("q_into_data: {error}"))
}

/// Reads a quantised tensor back, waiting for it.
///
/// # Panics
///
/// When the device fails, and in a browser, where nothing can wait.
pub(crate) fn read_quantized_now(tensor: Q, op: &'static str) -> TensorData {
    let device = tensor.device;
    if matches!(tensor.storage, QuantizedStorage::Gpu(_)) {
        check_can_block(op, &device);
    }
    pollster::block_on(Wgsl::q_into_data(tensor)).unwrap_or_else(|error| fail(op, &device, &error))
}

/// Reads tensors and quantised tensors back: those on one GPU in one submission and one wait.
pub(crate) async fn read_with_quantized(
    mut tensors: Vec<F>,
    quantized: Vec<Q>,
) -> Result<(Vec<TensorData>, Vec<TensorData>), ExecutionError> {
    let count = tensors.len();
    let mut homes = Vec::with_capacity(quantized.len());
    for tensor in quantized {
        let device = tensor.device;
        let part = |tensor| F { device, storage: Storage::Gpu(tensor) };
        homes.push(match tensor.storage {
            QuantizedStorage::Cpu(twin) => Err(cpu_data(twin)),
            QuantizedStorage::Gpu(tensor) => {
                let GpuQuantized { values, scheme } = *tensor;
                let shape = values.shape().to_vec();
                let (words, scales) = values.into_parts().map_err(|e| execution_error(&e))?;
                tensors.extend([part(words), part(scales)]);
                Ok((shape, scheme))
            }
        });
    }
    let mut read = read_all(tensors).await?;
    let mut parts = read.split_off(count).into_iter();
    let mut part = || parts.next().ok_or_else(|| execution_error(&"nothing was read back"));
    let joined = homes.into_iter().map(|storage| match storage {
        Err(data) => Ok(data),
        Ok((shape, scheme)) => {
            let (words, scales) = (part()?, part()?);
            let len: usize = shape.iter().product();
            let values: Vec<i8> = bytemuck::cast_slice(&words.as_bytes()[..len]).to_vec();
            let scales: Vec<f32> = scales.iter().collect();
            Ok(TensorData::quantized(values, shape, scheme, &scales))
        }
    });
    let joined: Result<Vec<TensorData>, ExecutionError> = joined.collect();
    Ok((read, joined?))
}
