//! Fourier transforms of real numbers along an axis, and their inverses.
//!
//! A line of n real numbers is transformed as n / 2 complex numbers, in a few passes over the whole
//! tensor. One more pass converts between their spectrum and the spectrum of the real numbers.

use crate::kernels::launch::{Launch, variants_of, workgroups_for};
use crate::kernels::ops::cases::{Case, cases, permuted};
use crate::kernels::ops::map::ScalarValue;
use crate::kernels::{create, views};
use crate::params;
use crate::runtime::{Kernel, Source, Variant, wgsl};
use crate::tensor::{DType, Error, Result, Shape, Tensor};

static FFT: Source = Source::new::<FftParams>("fft", wgsl!("../../shaders/fft/fft.wgsl"));
static FFT_REAL: Source =
    Source::new::<FftRealParams>("fft_real", wgsl!("../../shaders/fft/fft_real.wgsl"));

params! {
    struct FftParams {
        count: u32,
        line_bits: u32,
        stride_bits: u32,
        direction: f32,
    }
}

params! {
    struct FftRealParams {
        count: u32,
        half: u32,
        half_bits: u32,
        pad0: u32,
    }
}

/// The kernel of a pass of a complex transform.
#[derive(Debug, Clone, Copy, Hash)]
struct FftKernel {
    /// Complex numbers that an invocation transforms: 2 or 4.
    radix: usize,
}

impl Kernel for FftKernel {
    type Params = FftParams;

    fn variant(&self) -> Variant {
        Variant::new(&FFT).flag("RADIX_4", self.radix == 4)
    }
}

/// The kernel that converts between the spectrum of the complex numbers and that of the real ones.
#[derive(Debug, Clone, Copy, Hash)]
struct FftRealKernel {
    /// Whether the result is the spectrum of the complex numbers.
    inverse: bool,
}

impl Kernel for FftRealKernel {
    type Params = FftRealParams;

    fn variant(&self) -> Variant {
        Variant::new(&FFT_REAL).flag("INVERSE", self.inverse)
    }
}

/// The sign of the exponents of a complex transform.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Direction {
    Forward,
    Inverse,
}

/// Computes the spectrum of real numbers along `axis`: the real and the imaginary parts of its
/// first `n / 2 + 1` elements. The others are their conjugates. If `n` is given, the axis is first
/// cropped or padded with zeros to that length.
///
/// # Errors
///
/// Returns an error if the length is not a power of two or the memory is not available.
pub fn rfft(signal: Tensor, axis: usize, n: Option<usize>) -> Result<(Tensor, Tensor)> {
    let n = check_power_of_two(&signal, n.unwrap_or(signal.shape()[axis]))?;
    let lines = as_lines(signal, axis, n)?;
    if n == 1 {
        let zeros =
            create::full(lines.runtime(), lines.shape(), ScalarValue::Float(0.0), DType::F32)?;
        return Ok((swap_with_last(lines, axis)?, swap_with_last(zeros, axis)?));
    }
    let z = transform(lines, n / 2, Direction::Forward)?;
    let shape = with_last(&z, n / 2 + 1);
    let re = Tensor::empty(z.runtime(), &shape, DType::F32)?;
    let im = Tensor::empty(z.runtime(), &shape, DType::F32)?;
    let count = re.len();
    Launch {
        kernel: &FftRealKernel { inverse: false },
        inputs: &[&z],
        outputs: &[&re, &im],
        params: &real_params(count, n / 2),
        workgroups: workgroups_for(count),
        work: count as u64 * 16,
        rounds: None,
    }
    .run()?;
    Ok((swap_with_last(re, axis)?, swap_with_last(im, axis)?))
}

/// Computes the `n` real numbers along `axis` that have a spectrum: the inverse of [`rfft`]. The
/// spectrum is cropped or padded with zeros to `n / 2 + 1` elements. Without `n`, its length
/// determines `n`.
///
/// # Errors
///
/// Returns an error if the shapes differ, the length is not a power of two or the memory is not
/// available.
pub fn irfft(re: Tensor, im: Tensor, axis: usize, n: Option<usize>) -> Result<Tensor> {
    re.same_device(&im)?;
    if re.shape() != im.shape() {
        return Err(Error::Shape {
            lhs: re.shape().to_vec(),
            rhs: im.shape().to_vec(),
            rule: "the real and the imaginary parts must have the same shape",
        });
    }
    let n = check_power_of_two(&re, n.unwrap_or(re.shape()[axis].saturating_sub(1) * 2))?;
    let re = as_lines(re, axis, n / 2 + 1)?;
    if n == 1 {
        return swap_with_last(re, axis);
    }
    let im = as_lines(im, axis, n / 2 + 1)?;
    let z = Tensor::empty(re.runtime(), &with_last(&re, n), DType::F32)?;
    let count = z.len() / 2;
    Launch {
        kernel: &FftRealKernel { inverse: true },
        inputs: &[&re, &im],
        outputs: &[&z],
        params: &real_params(count, n / 2),
        workgroups: workgroups_for(count),
        work: z.len() as u64 * 16,
        rounds: None,
    }
    .run()?;
    swap_with_last(transform(z, n / 2, Direction::Inverse)?, axis)
}

/// Returns the parameters of `fft_real` for lines of `2 * half` real numbers.
fn real_params(count: usize, half: usize) -> FftRealParams {
    FftRealParams { count: count as u32, half: half as u32, half_bits: half.ilog2(), pad0: 0 }
}

/// Returns `n` if it is a power of two.
fn check_power_of_two(tensor: &Tensor, n: usize) -> Result<usize> {
    if n.is_power_of_two() {
        return Ok(n);
    }
    Err(Error::Shape {
        lhs: tensor.shape().to_vec(),
        rhs: vec![n],
        rule: "the length of a Fourier transform must be a power of two",
    })
}

/// Transforms packed lines of `len` complex numbers. The inverse is not divided by `len`.
fn transform(mut z: Tensor, len: usize, direction: Direction) -> Result<Tensor> {
    let complex_len = z.len() / 2;
    let mut stride: usize = 1;
    while stride < len {
        let radix = if len / stride >= 4 { 4 } else { 2 };
        let out = Tensor::empty(z.runtime(), z.shape(), DType::F32)?;
        let count = complex_len / radix;
        Launch {
            kernel: &FftKernel { radix },
            inputs: &[&z],
            outputs: &[&out],
            params: &FftParams {
                count: count as u32,
                line_bits: (len / radix).ilog2(),
                stride_bits: stride.ilog2(),
                direction: if direction == Direction::Forward { 1.0 } else { -1.0 },
            },
            workgroups: workgroups_for(count),
            work: complex_len as u64 * 16,
            rounds: None,
        }
        .run()?;
        z = out;
        stride *= radix;
    }
    Ok(z)
}

/// Returns the tensor packed, with `axis` last and cropped or padded with zeros to `len`.
fn as_lines(tensor: Tensor, axis: usize, len: usize) -> Result<Tensor> {
    let last = tensor.shape().len() - 1;
    views::packed(views::resized(swap_with_last(tensor, axis)?, last, len)?)
}

/// Swaps `axis` and the last axis.
fn swap_with_last(tensor: Tensor, axis: usize) -> Result<Tensor> {
    let last = tensor.shape().len() - 1;
    views::swap_dims(tensor, axis, last)
}

/// Returns the tensor's shape with a last axis of `len`.
fn with_last(tensor: &Tensor, len: usize) -> Shape {
    let mut shape: Shape = tensor.shape().into();
    let last = shape.len() - 1;
    shape[last] = len;
    shape
}

/// Returns every variant that the family can dispatch.
pub fn variants() -> Vec<Variant> {
    let passes = variants_of([2, 4].map(|radix| FftKernel { radix }));
    [passes, variants_of([false, true].map(|inverse| FftRealKernel { inverse }))].concat()
}

/// The cases that the family must pass.
pub const CASES: &[Case] = {
    cases! {
        rfft([8], 0, _);
        rfft([3, 1], 1, _);
        rfft([3, 2], 1, _);
        rfft([3, 4], 1, _);
        rfft([5, 64], 1, _);
        rfft([2, 128, 3], 1, _);
        rfft(permuted(&[32, 5], &[1, 0]), 1, _);
        rfft([2, 4096], 1, _);
        // Cropped and padded.
        rfft([3, 50], 1, 16);
        rfft([3, 50], 1, 64);
        rfft([2, 1000], 1, 1024);
        rfft([5, 3], 0, 1);
        rfft([0, 16], 1, _);
        irfft([5], [5], 0, _);
        irfft([3, 2], [3, 2], 1, _);
        irfft([3, 3], [3, 3], 1, _);
        irfft([2, 33, 3], [2, 33, 3], 1, _);
        irfft(permuted(&[17, 5], &[1, 0]), [5, 17], 1, _);
        irfft([2, 2049], [2, 2049], 1, _);
        irfft([3, 40], [3, 40], 1, 16);
        irfft([3, 40], [3, 40], 1, 128);
        irfft([3, 5], [3, 5], 1, 1);
    }
};
