//! Random tensors. Every place, GPU or CPU, draws from the same kind of stream, so a seed gives the same
//! numbers everywhere as long as the same calls are made.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;

use burn_backend::{Distribution, TensorData};
use parking_lot::Mutex;

use super::contract::prelude::*;
use super::site;
use super::tensor::Home;
use crate::device::Place;
use crate::kernels::random::{self, Draw, Stream};
use crate::tensor::Tensor;

/// Each place's position in its stream.
static STREAMS: LazyLock<Mutex<HashMap<Place, Stream>>> = LazyLock::new(Mutex::default);

/// Starts a place's stream at a seed.
pub(crate) fn seed(place: Place, seed: u64) {
    STREAMS.lock().insert(place, Stream::new(seed));
}

/// The part of a place's stream for `len` numbers. Without a seed, one is made up.
fn take(place: Place, len: usize) -> Stream {
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
        Distribution::Default => Draw::Uniform {
            low: 0.0,
            high: 1.0,
        },
        Distribution::Uniform(low, high) => Draw::Uniform {
            low: low as f32,
            high: high as f32,
        },
        Distribution::Normal(mean, std) => Draw::Normal {
            mean: mean as f32,
            deviation: std as f32,
        },
        Distribution::Bernoulli(probability) => Draw::Bernoulli { probability },
    };
    let stream = take(site::place(device, op), shape.num_elements());
    if dtype == FloatType::F32
        && let Some(runtime) = site::runtime(device, op)
    {
        return on_gpu(
            random::fill(&runtime, &shape, draw, DType::F32, stream),
            device,
            op,
        );
    }
    let values = random::floats(shape.num_elements(), draw, stream);
    from_data(
        TensorData::new(values, shape).convert_dtype(dtype.into()),
        device,
        op,
    )
}

pub(crate) fn int(
    shape: Shape,
    distribution: Distribution,
    device: &WgslDevice,
    dtype: IntType,
) -> I {
    let op = "int_random";
    let draw = match distribution {
        Distribution::Default => Draw::Ints {
            low: i32::MIN,
            width: u32::MAX,
        },
        Distribution::Uniform(low, high) => {
            let (low, high) = (low as i64, high as i64);
            Draw::Ints {
                low: low as i32,
                width: (high - low).clamp(1, i64::from(u32::MAX)) as u32,
            }
        }
        Distribution::Normal(mean, std) => Draw::Normal {
            mean: mean as f32,
            deviation: std as f32,
        },
        Distribution::Bernoulli(probability) => Draw::Bernoulli { probability },
    };
    let stream = take(site::place(device, op), shape.num_elements());
    let normal = matches!(draw, Draw::Normal { .. });
    if dtype == IntType::I32
        && let Some(runtime) = site::runtime(device, op)
    {
        let drawn = if normal {
            random::fill(&runtime, &shape, draw, DType::F32, stream)
                .and_then(|tensor| elementwise::cast(tensor, DType::I32))
        } else {
            random::fill(&runtime, &shape, draw, DType::I32, stream)
        };
        return on_gpu(drawn, device, op);
    }
    let len = shape.num_elements();
    let values = if normal {
        random::floats(len, draw, stream)
            .into_iter()
            .map(|x| x as i32)
            .collect()
    } else {
        random::integers(len, draw, stream)
    };
    from_data(
        TensorData::new(values, shape).convert_dtype(dtype.into()),
        device,
        op,
    )
}

fn on_gpu(
    result: crate::tensor::Result<Tensor>,
    device: &WgslDevice,
    op: &'static str,
) -> super::WgslTensor {
    let tensor = result.unwrap_or_else(|error| site::refuse(op, device, &error));
    super::WgslTensor {
        device: *device,
        home: Home::Gpu(tensor),
    }
}
