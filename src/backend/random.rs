//! Random tensors. Every device draws from the same kind of stream: the same seed and the same
//! calls give the same numbers on every GPU and on the CPU.

use std::cell::Cell;
use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::LazyLock;

use burn_backend::{Distribution, TensorData};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::contract::prelude::*;
use super::resolve::{fail, resolve, runtime};
use super::tensor::{Storage, WgslTensor, stored_dtype};
use crate::device::{DeviceError, ResolvedDevice};
use crate::kernels::cast;
use crate::kernels::random::{self, PhiloxStream, Sampler};
use crate::runtime::begin_op;
use crate::tensor::Tensor;

/// The streams of each device: one, unless workers share the device.
static STREAMS: LazyLock<Mutex<HashMap<(ResolvedDevice, usize), PhiloxStream>>> =
    LazyLock::new(Mutex::default);

thread_local! {
    /// The stream of a device that this thread draws from.
    static STREAM: Cell<usize> = const { Cell::new(0) };
}

/// Sets the stream of a device that this thread draws from. Others draw from stream 0.
#[cfg(feature = "train")]
pub(crate) fn use_stream(stream: usize) {
    STREAM.set(stream);
}

/// Restarts a device's stream at a seed.
pub(crate) fn seed(device: ResolvedDevice, seed: u64) {
    STREAMS.lock().insert((device, STREAM.get()), PhiloxStream::new(seed));
}

/// Where a device is in its random numbers: what a checkpoint of a run saves. Equal states give equal numbers on every
/// device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RandomState {
    /// The seed.
    pub seed: u64,
    /// The next unused block of four numbers.
    pub block: u64,
}

/// Returns the state of a device's random numbers, which all of its tensors share. A device that was not seeded is
/// seeded at random.
///
/// ```standalone_crate
/// use burn::tensor::{Distribution, Tensor};
/// use burn_wgsl::{Wgsl, WgslDevice, random_state, set_random_state};
///
/// let device = WgslDevice::default();
/// let state = random_state(&device)?;
/// let draw = || Tensor::<Wgsl, 1>::random([4], Distribution::Default, &device).into_data();
/// let first = draw();
/// set_random_state(&device, state)?;
/// assert_eq!(draw(), first);
/// # Ok::<(), burn_wgsl::device::DeviceError>(())
/// ```
///
/// # Errors
///
/// Returns an error if there is no such device.
pub fn random_state(device: &WgslDevice) -> Result<RandomState, DeviceError> {
    let PhiloxStream { seed, block } = take(device.resolve()?, 0);
    Ok(RandomState { seed, block })
}

/// Continues a device's random numbers at a state.
///
/// # Errors
///
/// Returns an error if there is no such device.
pub fn set_random_state(device: &WgslDevice, state: RandomState) -> Result<(), DeviceError> {
    let RandomState { seed, block } = state;
    let key = (device.resolve()?, STREAM.get());
    STREAMS.lock().insert(key, PhiloxStream { seed, block });
    Ok(())
}

/// Takes `len` numbers from a device's stream. Without a seed, the stream starts at a random one.
fn take(device: ResolvedDevice, len: usize) -> PhiloxStream {
    let mut streams = STREAMS.lock();
    let key = (device, STREAM.get());
    let random_seed = || PhiloxStream::new(std::hash::RandomState::new().hash_one(key));
    streams.entry(key).or_insert_with(random_seed).take(len)
}

/// Returns the number of elements of a shape.
fn number_of_elements(op: &str, shape: &Shape) -> usize {
    let len = crate::tensor::strided_len(shape.as_slice());
    len.unwrap_or_else(|| panic!("{op}: a tensor of shape {shape:?} has too many elements"))
}

/// Creates a float tensor of random numbers.
pub(crate) fn float(
    shape: Shape,
    distribution: Distribution,
    device: &WgslDevice,
    dtype: FloatType,
) -> F {
    let op = "float_random";
    begin_op(op);
    let sampler = match distribution {
        Distribution::Default => Sampler::Uniform { low: 0.0, high: 1.0 },
        Distribution::Uniform(low, high) => Sampler::Uniform { low: low as f32, high: high as f32 },
        Distribution::Normal(mean, std) => {
            Sampler::Normal { mean: mean as f32, deviation: std as f32 }
        }
        Distribution::Bernoulli(probability) => Sampler::Bernoulli { probability },
    };
    let stream = take(resolve(device, op), number_of_elements(op, &shape));
    if let Some(runtime) = runtime(device, op)
        && let Some(stored) = stored_dtype(dtype.into(), &runtime)
    {
        let drawn = random::fill(&runtime, &shape, sampler, DType::F32, stream);
        return cast_to_stored(drawn, stored, device, op);
    }
    cpu::check_memory(op, shape.as_slice(), size_of::<f32>());
    let computing = Computing::of(device, op);
    let values = random::floats(shape.num_elements(), sampler, stream);
    let data = TensorData::new(values, shape).convert_dtype(dtype.into());
    computing.end(upload(data, DataKind::Float, device, op))
}

/// Creates an integer tensor of random numbers.
pub(crate) fn int(
    shape: Shape,
    distribution: Distribution,
    device: &WgslDevice,
    dtype: IntType,
) -> I {
    let op = "int_random";
    begin_op(op);
    let len = number_of_elements(op, &shape);
    let stream = take(resolve(device, op), len);
    let (min, max) = limits(dtype);
    // Uniform integers in low..low + width. Other distributions draw floats and convert them.
    let (low, width) = match distribution {
        Distribution::Default => (min, (max - min) as u64),
        Distribution::Uniform(low, high) => {
            let (low, high) = (low as i128, high as i128);
            let low = low.clamp(min, max);
            (low, (high.clamp(min, max + 1) - low).max(1) as u64)
        }
        Distribution::Normal(mean, std) => {
            let float = float(shape, Distribution::Normal(mean, std), device, FloatType::F32);
            return Wgsl::float_into_int(float, dtype);
        }
        Distribution::Bernoulli(probability) => {
            let float = float(shape, Distribution::Bernoulli(probability), device, FloatType::F32);
            return Wgsl::float_into_int(float, dtype);
        }
    };
    // The kernel draws i32. Larger ranges are drawn on the host.
    let fits = low >= i32::MIN.into() && low + i128::from(width) <= i128::from(i32::MAX) + 1;
    if fits
        && let (Ok(width), Some(runtime)) = (u32::try_from(width), runtime(device, op))
        && let Some(stored) = stored_dtype(dtype.into(), &runtime)
    {
        let sampler = Sampler::Ints { low: low as i32, width };
        let drawn = random::fill(&runtime, &shape, sampler, DType::I32, stream);
        return cast_to_stored(drawn, stored, device, op);
    }
    cpu::check_memory(op, shape.as_slice(), size_of::<i64>());
    let computing = Computing::of(device, op);
    let values = random::integers_64_bit(len, low as i64, width, stream);
    let data = TensorData::new(values, shape).convert_dtype(dtype.into());
    computing.end(upload(data, DataKind::Int, device, op))
}

/// The range of a type; that of u64 is limited to 63 bits.
fn limits(dtype: IntType) -> (i128, i128) {
    match dtype {
        IntType::I64 => (i64::MIN.into(), i64::MAX.into()),
        IntType::I32 => (i32::MIN.into(), i32::MAX.into()),
        IntType::I16 => (i16::MIN.into(), i16::MAX.into()),
        IntType::I8 => (i8::MIN.into(), i8::MAX.into()),
        IntType::U64 => (0, i64::MAX.into()),
        IntType::U32 => (0, u32::MAX.into()),
        IntType::U16 => (0, u16::MAX.into()),
        IntType::U8 => (0, u8::MAX.into()),
    }
}

/// Casts drawn numbers to their storage type.
fn cast_to_stored(
    drawn: crate::tensor::Result<Tensor>,
    stored: DType,
    device: &WgslDevice,
    op: &'static str,
) -> WgslTensor {
    let tensor = drawn.and_then(|tensor| cast::cast(tensor, stored));
    let tensor = tensor.unwrap_or_else(|error| fail(op, device, &error));
    WgslTensor::new(*device, Storage::Gpu(tensor))
}
