//! Random tensors. Every place, GPU or CPU, draws from the same kind of stream, so a seed gives the same
//! numbers everywhere as long as the same calls are made.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;

use burn_backend::{Distribution, TensorData};
use parking_lot::Mutex;

use super::context;
use super::contract::prelude::*;
use super::tensor::{Storage, stored_dtype};
use crate::device::ResolvedDevice;
use crate::kernels::random::{self, Draw, Stream};
use crate::tensor::Tensor;

/// Each place's position in its stream.
static STREAMS: LazyLock<Mutex<HashMap<ResolvedDevice, Stream>>> = LazyLock::new(Mutex::default);

/// Starts a place's stream at a seed.
pub(crate) fn seed(place: ResolvedDevice, seed: u64) {
    STREAMS.lock().insert(place, Stream::new(seed));
}

/// The part of a place's stream for `len` numbers. Without a seed, one is made up.
fn take(place: ResolvedDevice, len: usize) -> Stream {
    let mut streams = STREAMS.lock();
    let fresh = || Stream::new(RandomState::new().hash_one(place));
    streams.entry(place).or_insert_with(fresh).take(len)
}

pub(crate) fn float(
    shape: Shape,
    distribution: Distribution,
    device: &WgslDevice,
    dtype: FloatType,
) -> F {
    let op = "float_random";
    let draw = match distribution {
        Distribution::Default => Draw::Uniform { low: 0.0, high: 1.0 },
        Distribution::Uniform(low, high) => Draw::Uniform { low: low as f32, high: high as f32 },
        Distribution::Normal(mean, std) => {
            Draw::Normal { mean: mean as f32, deviation: std as f32 }
        }
        Distribution::Bernoulli(probability) => Draw::Bernoulli { probability },
    };
    let stream = take(context::resolve(device, op), shape.num_elements());
    if let Some(runtime) = context::runtime(device, op)
        && let Some(stored) = stored_dtype(dtype.into(), &runtime)
    {
        let drawn = random::fill(&runtime, &shape, draw, DType::F32, stream);
        return on_gpu(drawn, stored, device, op);
    }
    let values = random::floats(shape.num_elements(), draw, stream);
    from_data(TensorData::new(values, shape).convert_dtype(dtype.into()), device, op)
}

pub(crate) fn int(
    shape: Shape,
    distribution: Distribution,
    device: &WgslDevice,
    dtype: IntType,
) -> I {
    let op = "int_random";
    let len = shape.num_elements();
    let stream = take(context::resolve(device, op), len);
    let (least, most) = limits(dtype);
    // Integers in low .. low + width; the rest is drawn as floats or coins and converted.
    let (low, width) = match distribution {
        Distribution::Default => (least, (most - least) as u64),
        Distribution::Uniform(low, high) => {
            let (low, high) = (low as i128, high as i128);
            let low = low.clamp(least, most);
            (low, (high.clamp(least, most + 1) - low).max(1) as u64)
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
    // What 32 bits can hold is drawn on the GPU, whatever it is stored in.
    let fits = low >= i32::MIN.into() && low + i128::from(width) <= i128::from(i32::MAX) + 1;
    if fits
        && let (Ok(narrow), Some(runtime)) = (u32::try_from(width), context::runtime(device, op))
        && let Some(stored) = stored_dtype(dtype.into(), &runtime)
    {
        let draw = Draw::Ints { low: low as i32, width: narrow };
        let drawn = random::fill(&runtime, &shape, draw, DType::I32, stream);
        return on_gpu(drawn, stored, device, op);
    }
    let values = random::wide_integers(len, low as i64, width, stream);
    from_data(TensorData::new(values, shape).convert_dtype(dtype.into()), device, op)
}

/// The least and the greatest value of a type; 63 bits of those that have 64.
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

fn on_gpu(
    drawn: crate::tensor::Result<Tensor>,
    stored: DType,
    device: &WgslDevice,
    op: &'static str,
) -> super::WgslTensor {
    let tensor = drawn.and_then(|tensor| cast::cast(tensor, stored));
    let tensor = tensor.unwrap_or_else(|error| context::fail(op, device, &error));
    super::WgslTensor { device: *device, storage: Storage::Gpu(tensor) }
}
