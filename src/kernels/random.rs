//! Random numbers from a counter-based generator: the seed gives the same numbers on every device.
//!
//! Integers and truth values agree bit for bit between the kernel and its twin here; floats agree to
//! the rounding of the last operations.

use std::sync::Arc;

use super::{Launch, div_up};
use crate::runtime::{Runtime, Source, Variant};
use crate::tensor::{DType, Result, Tensor};

static RANDOM: Source =
    Source { name: "random", text: include_str!("../../shaders/random/random.wgsl") };

/// What the numbers are drawn from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Draw {
    /// Floats in `[low, high)`.
    Uniform {
        /// The lower end.
        low: f32,
        /// The upper end.
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
        /// The lower end.
        low: i32,
        /// How many values there are.
        width: u32,
    },
}

/// A position in the stream of a seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stream {
    /// The key of the generator.
    pub seed: u64,
    /// The next unused block of four numbers.
    pub block: u64,
}

impl Stream {
    /// The stream of a seed, from its start.
    pub fn new(seed: u64) -> Self {
        Self { seed, block: 0 }
    }

    /// Takes the blocks for `len` numbers: the part of the stream they are drawn from.
    pub fn take(&mut self, len: usize) -> Self {
        let taken = *self;
        self.block = self.block.wrapping_add(len.div_ceil(4) as u64);
        taken
    }
}

impl Draw {
    fn flag(self) -> &'static str {
        match self {
            Self::Uniform { .. } => "UNIFORM",
            Self::Normal { .. } => "NORMAL",
            Self::Bernoulli { .. } => "BERNOULLI",
            Self::Ints { .. } => "INTS",
        }
    }

    /// The largest float below the upper end of a uniform draw, which rounding must not reach.
    fn top(self) -> f32 {
        match self {
            Self::Uniform { low, high } => high.next_down().max(low),
            _ => f32::INFINITY,
        }
    }

    fn scalars(self) -> [u32; 2] {
        match self {
            Self::Uniform { low, high } => [low.to_bits(), (high - low).to_bits()],
            Self::Normal { mean, deviation } => [mean.to_bits(), deviation.to_bits()],
            Self::Bernoulli { probability } => {
                [(probability.clamp(0.0, 1.0) * 4_294_967_296.0).min(4_294_967_295.0) as u32, 0]
            }
            Self::Ints { low, width } => [low as u32, width],
        }
    }

    fn variant(self, out: DType) -> Variant {
        Variant::new(&RANDOM).ty("O", out.wgsl()).flag(self.flag(), true)
    }
}

/// A tensor of random numbers from a part of a stream.
///
/// # Errors
///
/// When the memory is not there.
pub fn fill(
    runtime: &Arc<Runtime>,
    shape: &[usize],
    draw: Draw,
    out: DType,
    stream: Stream,
) -> Result<Tensor> {
    let tensor = Tensor::empty(runtime, shape, out, &[])?;
    let [s, t] = draw.scalars();
    let len = tensor.len();
    let halves = |x: u64| [x as u32, (x >> 32) as u32];
    let (block, seed) = (halves(stream.block), halves(stream.seed));
    Launch {
        variant: &draw.variant(out),
        inputs: &[],
        outputs: &[&tensor],
        params: &[len as u32, draw.top().to_bits(), block[0], block[1], seed[0], seed[1], s, t],
        groups: div_up(len, 64 * 4),
        work: len as u64 * 20,
    }
    .run()?;
    Ok(tensor)
}

/// The kernel's twin for floats.
pub fn floats(len: usize, draw: Draw, stream: Stream) -> Vec<f32> {
    let [s, t] = draw.scalars().map(f32::from_bits);
    let value = |bits: [u32; 4], k: usize| match draw {
        Draw::Uniform { .. } => unit(bits[k]).mul_add(t, s).min(draw.top()),
        Draw::Normal { .. } => {
            let pair = k & !1;
            let radius = (-2.0 * (1.0 - unit(bits[pair])).ln()).sqrt();
            let angle = std::f32::consts::TAU * unit(bits[pair + 1]);
            radius * (if k.is_multiple_of(2) { angle.cos() } else { angle.sin() }) * t + s
        }
        Draw::Bernoulli { .. } => f32::from(bits[k] < draw.scalars()[0]),
        Draw::Ints { .. } => integer(bits[k], draw) as f32,
    };
    blocks(len, stream, value)
}

/// The kernel's twin for integers.
pub fn integers(len: usize, draw: Draw, stream: Stream) -> Vec<i32> {
    blocks(len, stream, |bits, k| integer(bits[k], draw))
}

/// Integers in `low .. low + width` for types that no kernel knows, from the same stream.
pub fn wide_integers(len: usize, low: i64, width: u64, stream: Stream) -> Vec<i64> {
    let value = |bits: [u32; 4], k: usize| {
        low.wrapping_add(((u128::from(bits[k]) * u128::from(width)) >> 32) as i64)
    };
    blocks(len, stream, value)
}

fn integer(bits: u32, draw: Draw) -> i32 {
    let [s, t] = draw.scalars();
    match draw {
        Draw::Bernoulli { .. } => i32::from(bits < s),
        _ => s.wrapping_add(((u64::from(bits) * u64::from(t)) >> 32) as u32) as i32,
    }
}

fn blocks<T>(len: usize, stream: Stream, value: impl Fn([u32; 4], usize) -> T) -> Vec<T> {
    let mut out = Vec::with_capacity(len);
    for index in 0..len.div_ceil(4) {
        let bits = philox(stream.block.wrapping_add(index as u64), stream.seed);
        out.extend((0..4.min(len - index * 4)).map(|k| value(bits, k)));
    }
    out
}

fn unit(bits: u32) -> f32 {
    (bits >> 8) as f32 * 5.960_464_5e-8
}

/// Philox 4x32-10: four random words from a block number and a key.
fn philox(block: u64, seed: u64) -> [u32; 4] {
    let mut x = [block as u32, (block >> 32) as u32, 0, 0];
    let mut key = [seed as u32, (seed >> 32) as u32];
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

/// Every variant that can be asked for.
pub fn variants() -> Vec<Variant> {
    let float = |draw: Draw| draw.variant(DType::F32);
    vec![
        float(Draw::Uniform { low: 0.0, high: 1.0 }),
        float(Draw::Normal { mean: 0.0, deviation: 1.0 }),
        float(Draw::Bernoulli { probability: 0.5 }),
        Draw::Bernoulli { probability: 0.5 }.variant(DType::I32),
        Draw::Ints { low: 0, width: 1 }.variant(DType::I32),
    ]
}

/// None: what a draw gives is no function of its arguments. `tests/behaviour.rs` holds the kernel to its twin.
pub const CASES: &[super::cases::Case] = &[];

#[cfg(test)]
mod tests {
    use super::*;

    /// The known answers that the generator's authors publish.
    #[test]
    fn philox_known_answers() {
        assert_eq!(philox(0, 0), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
    }

    #[test]
    fn moments() {
        let n = 1 << 16;
        let mean = |v: &[f32]| v.iter().map(|&x| f64::from(x)).sum::<f64>() / n as f64;
        let uniform = floats(n, Draw::Uniform { low: -1.0, high: 3.0 }, Stream::new(7));
        assert!((mean(&uniform) - 1.0).abs() < 0.02);
        assert!(uniform.iter().all(|x| (-1.0..=3.0).contains(x)));
        let normal = floats(n, Draw::Normal { mean: 2.0, deviation: 3.0 }, Stream::new(7));
        let spread: Vec<f32> = normal.iter().map(|x| (x - 2.0).powi(2)).collect();
        assert!((mean(&normal) - 2.0).abs() < 0.05 && (mean(&spread).sqrt() - 3.0).abs() < 0.05);
        let coins = integers(n, Draw::Bernoulli { probability: 0.3 }, Stream::new(7));
        assert!((coins.iter().sum::<i32>() as f64 / n as f64 - 0.3).abs() < 0.01);
        let dice = integers(n, Draw::Ints { low: 1, width: 6 }, Stream::new(7));
        assert!(dice.iter().all(|d| (1..=6).contains(d)));
    }
}
