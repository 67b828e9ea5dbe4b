//! Fourier transforms of real numbers along an axis, and back.
//!
//! A line of n real numbers is taken for n / 2 complex ones, whose transform is a few passes over the whole
//! tensor; one more pass goes between their spectrum and that of the real numbers.

use super::cases::{Arg, Case, case, normal, permuted};
use super::elementwise::Number;
use super::{Launch, copy, create, div_up};
use crate::runtime::{Source, Variant};
use crate::tensor::{DType, Error, Result, Shape, Tensor};

static FFT: Source = Source { name: "fft", text: include_str!("../../shaders/fft/fft.wgsl") };
static FFT_REAL: Source =
    Source { name: "fft_real", text: include_str!("../../shaders/fft/fft_real.wgsl") };

fn pass_variant(radix: usize) -> Variant {
    Variant::new(&FFT).flag("FOUR", radix == 4)
}

fn real_variant(inverse: bool) -> Variant {
    Variant::new(&FFT_REAL).flag("INVERSE", inverse)
}

/// Which way a transform goes: the sign of its angles, turned round.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Direction {
    Forward,
    Inverse,
}

/// The spectrum of real numbers along `axis`, cut or filled with zeros to `n` where that is given: the real and the
/// imaginary part of its first `n / 2 + 1` elements. The others are their conjugates.
///
/// # Errors
///
/// When the length is not a power of two or the memory is not there.
pub fn rfft(signal: Tensor, axis: usize, n: Option<usize>) -> Result<(Tensor, Tensor)> {
    let n = power_of_two(&signal, n.unwrap_or(signal.shape()[axis]))?;
    let lines = lines(signal, axis, n)?;
    if n == 1 {
        let zeros = create::full(lines.runtime(), lines.shape(), Number::Float(0.0), DType::F32)?;
        return Ok((exchanged(lines, axis)?, exchanged(zeros, axis)?));
    }
    let z = transform(lines, n / 2, Direction::Forward)?;
    let shape = with_last(&z, n / 2 + 1);
    let re = Tensor::empty(z.runtime(), &shape, DType::F32, &[&z])?;
    let im = Tensor::empty(z.runtime(), &shape, DType::F32, &[&z])?;
    Launch {
        variant: &real_variant(false),
        inputs: &[&z],
        outputs: &[&re, &im],
        params: &[re.len() as u32, (n / 2) as u32, (n / 2).ilog2(), 0],
        groups: div_up(re.len(), 64),
        work: re.len() as u64 * 16,
    }
    .run()?;
    Ok((exchanged(re, axis)?, exchanged(im, axis)?))
}

/// The `n` real numbers along `axis` that have a spectrum: the inverse of [`rfft`]. The spectrum is cut or filled with
/// zeros to `n / 2 + 1` elements; without `n` it says how many numbers there are.
///
/// # Errors
///
/// As [`rfft`].
pub fn irfft(re: Tensor, im: Tensor, axis: usize, n: Option<usize>) -> Result<Tensor> {
    re.same_device(&im)?;
    if re.shape() != im.shape() {
        return Err(Error::Shape {
            lhs: re.shape().to_vec(),
            rhs: im.shape().to_vec(),
            rule: "the real and the imaginary part have one shape",
        });
    }
    let n = power_of_two(&re, n.unwrap_or(re.shape()[axis].saturating_sub(1) * 2))?;
    let re = lines(re, axis, n / 2 + 1)?;
    if n == 1 {
        return exchanged(re, axis);
    }
    let im = lines(im, axis, n / 2 + 1)?;
    let z = Tensor::empty(re.runtime(), &with_last(&re, n), DType::F32, &[&re, &im])?;
    Launch {
        variant: &real_variant(true),
        inputs: &[&re, &im],
        outputs: &[&z],
        params: &[(z.len() / 2) as u32, (n / 2) as u32, (n / 2).ilog2(), 0],
        groups: div_up(z.len() / 2, 64),
        work: z.len() as u64 * 16,
    }
    .run()?;
    exchanged(transform(z, n / 2, Direction::Inverse)?, axis)
}

fn power_of_two(tensor: &Tensor, n: usize) -> Result<usize> {
    if n.is_power_of_two() {
        return Ok(n);
    }
    Err(Error::Shape {
        lhs: tensor.shape().to_vec(),
        rhs: vec![n],
        rule: "the length of a Fourier transform is a power of two",
    })
}

/// The complex transform of packed lines of `len` complex numbers.
fn transform(mut z: Tensor, len: usize, direction: Direction) -> Result<Tensor> {
    let complex = z.len() / 2;
    let mut stride: usize = 1;
    while stride < len {
        let radix = if len / stride >= 4 { 4 } else { 2 };
        let out = Tensor::empty(z.runtime(), z.shape(), DType::F32, &[&z])?;
        let count = complex / radix;
        let sign = if direction == Direction::Forward { 1.0f32 } else { -1.0 };
        Launch {
            variant: &pass_variant(radix),
            inputs: &[&z],
            outputs: &[&out],
            params: &[count as u32, (len / radix).ilog2(), stride.ilog2(), sign.to_bits()],
            groups: div_up(count, 64),
            work: complex as u64 * 16,
        }
        .run()?;
        z = out;
        stride *= radix;
    }
    Ok(z)
}

/// The tensor packed, `axis` last and cut or filled with zeros to `len`.
fn lines(tensor: Tensor, axis: usize, len: usize) -> Result<Tensor> {
    let last = tensor.shape().len() - 1;
    copy::packed(copy::resized(exchanged(tensor, axis)?, last, len)?)
}

/// Exchanges `axis` and the last one.
fn exchanged(tensor: Tensor, axis: usize) -> Result<Tensor> {
    let last = tensor.shape().len() - 1;
    copy::swap_dims(tensor, axis, last)
}

/// The tensor's shape with another last axis.
fn with_last(tensor: &Tensor, len: usize) -> Shape {
    let mut shape: Shape = tensor.shape().into();
    let last = shape.len() - 1;
    shape[last] = len;
    shape
}

/// Every variant that can be asked for.
pub fn variants() -> Vec<Variant> {
    vec![pass_variant(2), pass_variant(4), real_variant(false), real_variant(true)]
}

/// What the family must pass.
pub const CASES: &[Case] = {
    const WHOLE: Arg = Arg::Without;
    &[
        case("rfft", &[normal(&[8]), Arg::Int(0), WHOLE]),
        case("rfft", &[normal(&[3, 1]), Arg::Int(1), WHOLE]),
        case("rfft", &[normal(&[3, 2]), Arg::Int(1), WHOLE]),
        case("rfft", &[normal(&[3, 4]), Arg::Int(1), WHOLE]),
        case("rfft", &[normal(&[5, 64]), Arg::Int(1), WHOLE]),
        case("rfft", &[normal(&[2, 128, 3]), Arg::Int(1), WHOLE]),
        case("rfft", &[permuted(&[32, 5], &[1, 0]), Arg::Int(1), WHOLE]),
        case("rfft", &[normal(&[2, 4096]), Arg::Int(1), WHOLE]),
        // Cut and filled up.
        case("rfft", &[normal(&[3, 50]), Arg::Int(1), Arg::Int(16)]),
        case("rfft", &[normal(&[3, 50]), Arg::Int(1), Arg::Int(64)]),
        case("rfft", &[normal(&[2, 1000]), Arg::Int(1), Arg::Int(1024)]),
        case("rfft", &[normal(&[5, 3]), Arg::Int(0), Arg::Int(1)]),
        case("rfft", &[normal(&[0, 16]), Arg::Int(1), WHOLE]),
        case("irfft", &[normal(&[5]), normal(&[5]), Arg::Int(0), WHOLE]),
        case("irfft", &[normal(&[3, 2]), normal(&[3, 2]), Arg::Int(1), WHOLE]),
        case("irfft", &[normal(&[3, 3]), normal(&[3, 3]), Arg::Int(1), WHOLE]),
        case("irfft", &[normal(&[2, 33, 3]), normal(&[2, 33, 3]), Arg::Int(1), WHOLE]),
        case("irfft", &[permuted(&[17, 5], &[1, 0]), normal(&[5, 17]), Arg::Int(1), WHOLE]),
        case("irfft", &[normal(&[2, 2049]), normal(&[2, 2049]), Arg::Int(1), WHOLE]),
        case("irfft", &[normal(&[3, 40]), normal(&[3, 40]), Arg::Int(1), Arg::Int(16)]),
        case("irfft", &[normal(&[3, 40]), normal(&[3, 40]), Arg::Int(1), Arg::Int(128)]),
        case("irfft", &[normal(&[3, 5]), normal(&[3, 5]), Arg::Int(1), Arg::Int(1)]),
    ]
};
