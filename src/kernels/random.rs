//! Random numbers from a counter-based generator: a seed gives the same numbers on every device.
//!
//! The functions for the CPU are here too. Integers and booleans have the same bits as the
//! kernel's; floats agree up to the rounding of the last operations.

use std::sync::Arc;

use crate::kernels::copy;
use crate::kernels::launch::{Launch, PendingResult, parts, variants_of, workgroups_for};
use crate::kernels::ops::cases::{Case, cases};
use crate::params;
use crate::runtime::{Kernel, Runtime, Source, Variant, wgsl};
use crate::tensor::{DType, Result, Tensor};

static RANDOM: Source =
    Source::new::<RandomParams>("random", wgsl!("../../shaders/random/random.wgsl"));

params! {
    struct RandomParams {
        count: u32,
        len: u32,
        block: [u32; 2],
        seed: [u32; 2],
        shift: f32,
        scale: f32,
        largest: f32,
        threshold: u32,
        int_low: i32,
        int_width: u32,
    }
}

/// Numbers per block of the stream.
const BLOCK_LEN: usize = 4;

/// A distribution to sample from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Sampler {
    /// Floats in `[low, high)`.
    Uniform {
        /// The lower bound.
        low: f32,
        /// The upper bound.
        high: f32,
    },
    /// Normally distributed floats.
    Normal {
        /// The mean.
        mean: f32,
        /// The standard deviation.
        deviation: f32,
    },
    /// One with this probability, else zero.
    Bernoulli {
        /// In `[0, 1]`.
        probability: f64,
    },
    /// Integers in `low .. low + width`, with `width` up to 2^32 - 1.
    Ints {
        /// The lower bound.
        low: i32,
        /// The number of values.
        width: u32,
    },
}

/// The distribution of a [`Sampler`] without its parameters.
#[derive(Debug, Clone, Copy, Hash)]
enum Distribution {
    Uniform,
    Normal,
    Bernoulli,
    Ints,
}

/// The kernel of random numbers.
#[derive(Debug, Clone, Copy, Hash)]
struct RandomKernel {
    /// The distribution to sample from.
    distribution: Distribution,
    /// The type of the result.
    out: DType,
}

impl Kernel for RandomKernel {
    type Params = RandomParams;

    fn variant(&self) -> Variant {
        let distribution = match self.distribution {
            Distribution::Uniform => "UNIFORM",
            Distribution::Normal => "NORMAL",
            Distribution::Bernoulli => "BERNOULLI",
            Distribution::Ints => "INTS",
        };
        Variant::new(&RANDOM).ty("O", self.out.wgsl()).flag(distribution, true)
    }
}

/// A position in the stream of random numbers of a seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PhiloxStream {
    /// The seed, which is the key of the generator.
    pub seed: u64,
    /// The next unused block of four numbers.
    pub block: u64,
}

impl PhiloxStream {
    /// Returns the start of the stream of a seed.
    pub fn new(seed: u64) -> Self {
        Self { seed, block: 0 }
    }

    /// Advances past the blocks for `len` numbers. Returns the position of the first one.
    pub fn take(&mut self, len: usize) -> Self {
        let start = *self;
        self.block = self.block.wrapping_add(len.div_ceil(BLOCK_LEN) as u64);
        start
    }
}

impl Sampler {
    /// Returns the kind of distribution.
    fn distribution(self) -> Distribution {
        match self {
            Self::Uniform { .. } => Distribution::Uniform,
            Self::Normal { .. } => Distribution::Normal,
            Self::Bernoulli { .. } => Distribution::Bernoulli,
            Self::Ints { .. } => Distribution::Ints,
        }
    }

    fn params(self, len: usize, stream: PhiloxStream) -> RandomParams {
        let params = RandomParams {
            count: len.div_ceil(BLOCK_LEN) as u32,
            len: len as u32,
            block: low_and_high(stream.block),
            seed: low_and_high(stream.seed),
            ..bytemuck::Zeroable::zeroed()
        };
        match self {
            Self::Uniform { low, high } => RandomParams {
                shift: low,
                scale: high - low,
                largest: largest_below(low, high),
                ..params
            },
            Self::Normal { mean, deviation } => {
                RandomParams { shift: mean, scale: deviation, ..params }
            }
            Self::Bernoulli { probability } => {
                RandomParams { threshold: threshold(probability), ..params }
            }
            Self::Ints { low, width } => RandomParams { int_low: low, int_width: width, ..params },
        }
    }

    /// Returns number `k` of the block with these random bits, as a float.
    fn float(self, bits: [u32; BLOCK_LEN], k: usize) -> f32 {
        match self {
            Self::Uniform { low, high } => {
                unit_float(bits[k]).mul_add(high - low, low).min(largest_below(low, high))
            }
            Self::Normal { mean, deviation } => {
                let pair = k & !1;
                let radius = (-2.0 * (1.0 - unit_float(bits[pair])).ln()).sqrt();
                let angle = std::f32::consts::TAU * unit_float(bits[pair + 1]);
                let component = if k.is_multiple_of(2) { angle.cos() } else { angle.sin() };
                radius * component * deviation + mean
            }
            Self::Bernoulli { .. } | Self::Ints { .. } => self.integer(bits, k) as f32,
        }
    }

    /// Returns number `k` of the block with these random bits, as an integer; floats are rounded
    /// towards zero.
    fn integer(self, bits: [u32; BLOCK_LEN], k: usize) -> i32 {
        match self {
            Self::Uniform { .. } | Self::Normal { .. } => self.float(bits, k) as i32,
            Self::Bernoulli { probability } => i32::from(bits[k] >> 1 < threshold(probability)),
            Self::Ints { low, width } => {
                low.wrapping_add_unsigned(((u64::from(bits[k]) * u64::from(width)) >> 32) as u32)
            }
        }
    }
}

/// Returns the largest float below `high`, but at least `low`: the bound of uniform floats, because
/// rounding must not reach `high`.
fn largest_below(low: f32, high: f32) -> f32 {
    high.next_down().max(low)
}

/// Returns a probability in units of 2^-31, so that one is representable.
fn threshold(probability: f64) -> u32 {
    (probability.clamp(0.0, 1.0) * f64::from(1u32 << 31)) as u32
}

/// Returns the low and the high word.
fn low_and_high(x: u64) -> [u32; 2] {
    [x as u32, (x >> 32) as u32]
}

/// Creates a tensor of random numbers, from the position `stream` on.
///
/// # Errors
///
/// Returns an error if the memory is not available.
pub fn fill(
    runtime: &Arc<Runtime>,
    shape: &[usize],
    sampler: Sampler,
    out: DType,
    stream: PhiloxStream,
) -> Result<Tensor> {
    if parts::exceed_binding(runtime, shape, out) {
        return copy::concatenated(runtime, shape, out, |first, len| {
            let block = stream.block.wrapping_add((first / BLOCK_LEN) as u64);
            fill(runtime, &[len], sampler, out, PhiloxStream { block, ..stream })
        });
    }
    let len = shape.iter().product();
    Launch {
        kernel: &RandomKernel { distribution: sampler.distribution(), out },
        inputs: &[],
        outputs: &[],
        params: &sampler.params(len, stream),
        workgroups: workgroups_for(len.div_ceil(BLOCK_LEN)),
        work: len as u64 * 20,
        rounds: None,
    }
    .defer(&PendingResult::scalars(runtime, shape, out))
}

/// Computes the kernel's floats on the CPU.
pub fn floats(len: usize, sampler: Sampler, stream: PhiloxStream) -> Vec<f32> {
    blocks(len, stream, |bits, k| sampler.float(bits, k))
}

/// Computes the kernel's integers on the CPU.
pub fn integers(len: usize, sampler: Sampler, stream: PhiloxStream) -> Vec<i32> {
    blocks(len, stream, |bits, k| sampler.integer(bits, k))
}

/// Computes integers in `low .. low + width` on the CPU, from the same stream: for ranges beyond
/// 32 bits and devices without a kernel.
pub fn integers_64_bit(len: usize, low: i64, width: u64, stream: PhiloxStream) -> Vec<i64> {
    let value = |bits: [u32; BLOCK_LEN], k: usize| {
        low.wrapping_add(((u128::from(bits[k]) * u128::from(width)) >> 32) as i64)
    };
    blocks(len, stream, value)
}

/// Computes `len` numbers: `value(bits, k)` is number `k` of the block with these random bits.
fn blocks<T>(
    len: usize,
    stream: PhiloxStream,
    value: impl Fn([u32; BLOCK_LEN], usize) -> T,
) -> Vec<T> {
    let mut out = Vec::with_capacity(len);
    for index in 0..len.div_ceil(BLOCK_LEN) {
        let bits = philox(stream.block.wrapping_add(index as u64), stream.seed);
        out.extend((0..BLOCK_LEN.min(len - index * BLOCK_LEN)).map(|k| value(bits, k)));
    }
    out
}

/// Returns a float in `[0, 1)` from the upper 24 bits.
fn unit_float(bits: u32) -> f32 {
    (bits >> 8) as f32 * 5.960_464_5e-8
}

/// Computes Philox 4x32-10: four random words from the index of a block, and the seed as key.
fn philox(block: u64, seed: u64) -> [u32; BLOCK_LEN] {
    let [low, high] = low_and_high(block);
    let mut x = [low, high, 0, 0];
    let mut key = low_and_high(seed);
    for _ in 0..10 {
        let m0 = u64::from(x[0]) * 0xd251_1f53;
        let m1 = u64::from(x[2]) * 0xcd9e_8d57;
        x = [
            (m1 >> 32) as u32 ^ x[1] ^ key[0],
            m1 as u32,
            (m0 >> 32) as u32 ^ x[3] ^ key[1],
            m0 as u32,
        ];
        key = [key[0].wrapping_add(0x9e37_79b9), key[1].wrapping_add(0xbb67_ae85)];
    }
    x
}

/// Returns every variant that the family can dispatch.
pub fn variants() -> Vec<Variant> {
    use Distribution::{Bernoulli, Ints, Normal, Uniform};
    let floats = [Uniform, Normal, Bernoulli].map(|kind| (kind, DType::F32));
    let integers = [Bernoulli, Ints].map(|kind| (kind, DType::I32));
    let all = floats.into_iter().chain(integers);
    variants_of(all.map(|(distribution, out)| RandomKernel { distribution, out }))
}

/// No cases: the results are not a function of the arguments. `tests/training/behaviour.rs` compares the
/// kernel with the functions for the CPU.
pub const CASES: &[Case] = cases! {};

#[cfg(test)]
mod tests {
    use super::*;

    /// The known answer was published by the authors of the generator.
    #[test]
    fn philox_gives_the_known_answer() {
        assert_eq!(philox(0, 0), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
    }

    #[test]
    fn samples_have_the_moments_of_their_distribution() {
        let n = 1 << 16;
        let mean = |v: &[f32]| v.iter().map(|&x| f64::from(x)).sum::<f64>() / n as f64;
        let uniform = floats(n, Sampler::Uniform { low: -1.0, high: 3.0 }, PhiloxStream::new(7));
        assert!((mean(&uniform) - 1.0).abs() < 0.02);
        assert!(uniform.iter().all(|x| (-1.0..=3.0).contains(x)));
        let normal = floats(n, Sampler::Normal { mean: 2.0, deviation: 3.0 }, PhiloxStream::new(7));
        let spread: Vec<f32> = normal.iter().map(|x| (x - 2.0).powi(2)).collect();
        assert!((mean(&normal) - 2.0).abs() < 0.05 && (mean(&spread).sqrt() - 3.0).abs() < 0.05);
        let coins = integers(n, Sampler::Bernoulli { probability: 0.3 }, PhiloxStream::new(7));
        assert!((coins.iter().sum::<i32>() as f64 / n as f64 - 0.3).abs() < 0.01);
        let dice = integers(n, Sampler::Ints { low: 1, width: 6 }, PhiloxStream::new(7));
        assert!(dice.iter().all(|d| (1..=6).contains(d)));
    }
}
