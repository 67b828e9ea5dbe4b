//! Sweeps over the kernels of families with hundreds of variants: every element type, access and
//! size class. Kernels are launched directly, and compared with loops on the host or with other
//! kernels of the same computation.

#[path = "../common/mod.rs"]
mod common;

mod elementwise;
mod lines;
mod reduce;
mod scan;
mod scatter;
mod sort;
mod types;
mod winograd;

use std::sync::Arc;

use burn_wgsl::kernels::fusion::set_fusion;
use burn_wgsl::runtime::Runtime;
use burn_wgsl::tensor::{DType, Tensor};

/// Returns the adapters. From now on, every launch is a kernel of its own.
fn runtimes() -> Vec<Arc<Runtime>> {
    set_fusion(false);
    common::runtimes()
}

/// Returns the compute types that an adapter supports.
fn types(runtime: &Runtime) -> impl Iterator<Item = DType> {
    let int64 = runtime.info().features.int64;
    DType::COMPUTE_TYPES.into_iter().filter(move |dtype| int64 || !dtype.is_64_bit())
}

/// An element. Integers of every type fit into an `i128`.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Number {
    Float(f32),
    Int(i128),
}

impl Number {
    /// Returns the bytes of the number in a type. Integers wrap.
    fn bytes(self, dtype: DType) -> Vec<u8> {
        match self {
            Self::Float(x) => x.to_ne_bytes().to_vec(),
            Self::Int(x) if dtype.is_64_bit() => (x as u64).to_ne_bytes().to_vec(),
            Self::Int(x) => (x as u32).to_ne_bytes().to_vec(),
        }
    }

    fn from_bytes(bytes: &[u8], dtype: DType) -> Self {
        let word = |bytes: &[u8]| u32::from_ne_bytes(bytes.try_into().expect("four bytes"));
        let long = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().expect("eight bytes"));
        match dtype {
            DType::F32 => Self::Float(f32::from_bits(word(bytes))),
            DType::I32 => Self::Int((word(bytes) as i32).into()),
            DType::I64 => Self::Int((long(bytes) as i64).into()),
            DType::U64 => Self::Int(long(bytes).into()),
            _ => Self::Int(word(bytes).into()),
        }
    }

    /// Wraps an integer to its type.
    fn wrapped(self, dtype: DType) -> Self {
        Self::from_bytes(&self.bytes(dtype), dtype)
    }

    fn int(self) -> i128 {
        match self {
            Self::Int(x) => x,
            Self::Float(x) => panic!("{x} is not an integer"),
        }
    }

    fn float(self) -> f32 {
        match self {
            Self::Float(x) => x,
            Self::Int(x) => x as f32,
        }
    }

    /// Returns whether the numbers are equal. Floats may differ by rounding.
    fn is_close(self, other: Self) -> bool {
        match (self, other) {
            (Self::Float(a), Self::Float(b)) => {
                a == b
                    || (a.is_nan() && b.is_nan())
                    || (a.is_finite()
                        && b.is_finite()
                        && (a - b).abs() <= 1e-5 * (1.0 + a.abs().max(b.abs())))
            }
            _ => self == other,
        }
    }
}

/// Returns repeatable numbers of a type: small floats, integers of every size, booleans.
fn numbers(len: usize, dtype: DType, seed: u64) -> Vec<Number> {
    let mut state = seed.wrapping_mul(2).wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 16
    };
    let number = |_| {
        let bits = next();
        match dtype {
            DType::F32 => Number::Float((bits % 2001) as f32 / 1000.0 - 1.0),
            DType::Bool => Number::Int(i128::from(bits % 3 == 0)),
            // A third each: tiny, medium, any.
            _ => match bits % 3 {
                0 => Number::Int(i128::from(bits % 7)),
                1 => Number::Int(i128::from(bits % 5000) - 2500),
                _ => Number::Int(i128::from(bits.wrapping_mul(0x9e37_79b9_7f4a_7c15))),
            }
            .wrapped(dtype),
        }
    };
    (0..len).map(number).collect()
}

fn upload(runtime: &Arc<Runtime>, shape: &[usize], dtype: DType, numbers: &[Number]) -> Tensor {
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.bytes(dtype)).collect();
    Tensor::upload(runtime, shape, dtype, &bytes).expect("the memory is available")
}

/// Returns the elements of a tensor in row-major order.
fn read(tensor: Tensor) -> Vec<Number> {
    let tensor = burn_wgsl::kernels::views::packed(tensor).expect("the kernel runs");
    let dtype = tensor.dtype();
    let (len, size) = (tensor.len(), dtype.size() as usize);
    let bytes = tensor
        .runtime()
        .read_blocking(&[tensor.readback_range().expect("the memory")])
        .expect("the data");
    bytes[0].chunks_exact(size).take(len).map(|bytes| Number::from_bytes(bytes, dtype)).collect()
}

/// Panics at the first element that differs.
fn assert_equal(label: &str, values: &[Number], expected: &[Number]) {
    assert_eq!(values.len(), expected.len(), "{label}: the number of elements");
    for (index, (value, expected)) in values.iter().zip(expected).enumerate() {
        assert!(
            value.is_close(*expected),
            "{label}: element {index} is {value:?}, expected {expected:?}"
        );
    }
}
