//! Fourier transforms of real signals.
//!
//! With n samples, `rfft` computes re[k] = sum of x[j] cos(2 pi j k / n) and im[k] = - sum of x[j]
//! sin(2 pi j k / n) for k up to n / 2. Its transpose is n `irfft` of the same numbers, except that
//! `irfft` counts every bin twice that has a mirror image, which are all but the first and, for
//! even n, the last. The transpose of `irfft` is `rfft / n` with these bins counted twice.

use burn_autodiff::checkpoint::strategy::CheckpointStrategy;
use burn_backend::ops::{FloatTensorOps, ModuleOps};
use burn_backend::{TensorData, TensorMetadata};
use burn_std::{FloatDType, Shape, Slice};

use super::kinds::{Axis, F, FF, OptSize};
use super::node::{in_f32, node};
use crate::backend::{Wgsl, WgslTensor};

/// Two nodes: each part of the spectrum has its own gradient.
pub(super) fn rfft<C: CheckpointStrategy>(signal: F, dim: Axis, n: OptSize) -> FF {
    let (re, im) = Wgsl::rfft(signal.primitive.clone(), dim, n);
    let len = signal.primitive.shape()[dim];
    let state = (len, dim, n.unwrap_or(len));
    let re = node::<C, _, 1, 0>([signal.clone()], re, state, |[], state, grad| {
        [in_f32([grad], |[grad]| rfft_gradient(grad.clone(), zeros_like(&grad), state))]
    });
    let im = node::<C, _, 1, 0>([signal], im, state, |[], state, grad| {
        [in_f32([grad], |[grad]| rfft_gradient(zeros_like(&grad), grad, state))]
    });
    (re, im)
}

fn rfft_gradient(
    re: WgslTensor,
    im: WgslTensor,
    (len, dim, n): (usize, usize, usize),
) -> WgslTensor {
    let [re, im] = [re, im].map(|part| scale_bins(part, dim, n, n as f64, 0.5 * n as f64));
    resized(Wgsl::irfft(re, im, dim, Some(n)), dim, len)
}

pub(super) fn irfft<C: CheckpointStrategy>(re: F, im: F, dim: Axis, n: OptSize) -> F {
    let output = Wgsl::irfft(re.primitive.clone(), im.primitive.clone(), dim, n);
    let bins = re.primitive.shape()[dim];
    let state = (bins, dim, output.shape()[dim]);
    node::<C, _, 2, 0>([re, im], output, state, |[], (bins, dim, n), grad| {
        let dtype = grad.dtype();
        let (re, im) = Wgsl::rfft(Wgsl::float_cast(grad, FloatDType::F32), dim, Some(n));
        [re, im].map(|part| {
            let scaled = scale_bins(part, dim, n, 1.0 / n as f64, 2.0 / n as f64);
            Wgsl::float_cast(resized(scaled, dim, bins), dtype.into())
        })
    })
}

/// Multiplies the bins without a mirror image by `single`, and the others by `mirrored`.
fn scale_bins(part: WgslTensor, dim: usize, n: usize, single: f64, mirrored: f64) -> WgslTensor {
    let bins = part.shape()[dim];
    let factor = |k: usize| if k == 0 || 2 * k == n { single } else { mirrored };
    let factors: Vec<f32> = (0..bins).map(|k| factor(k) as f32).collect();
    let mut shape = vec![1; part.rank()];
    shape[dim] = bins;
    let data = TensorData::new(factors, shape).convert_dtype(part.dtype());
    let factors = Wgsl::float_from_data(data, &part.device());
    Wgsl::float_mul(part, factors)
}

fn zeros_like(tensor: &WgslTensor) -> WgslTensor {
    Wgsl::float_zeros(tensor.shape(), &tensor.device(), tensor.dtype().into())
}

/// Cuts an axis to a length, or extends it by zeros.
fn resized(tensor: WgslTensor, dim: usize, len: usize) -> WgslTensor {
    let shape = tensor.shape();
    let present = shape[dim];
    if present == len {
        return tensor;
    }
    let mut slices = vec![Slice::full(); shape.num_dims()];
    slices[dim] = Slice::new(0, Some(present.min(len) as isize), 1);
    if present > len {
        return Wgsl::float_slice(tensor, &slices);
    }
    let mut sizes = shape.as_slice().to_vec();
    sizes[dim] = len;
    let dtype = tensor.dtype().into();
    let zeros = Wgsl::float_zeros(Shape::from(sizes), &tensor.device(), dtype);
    Wgsl::float_slice_assign(zeros, &slices, tensor)
}
