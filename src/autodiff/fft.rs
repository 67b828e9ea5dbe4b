//! Fourier transforms of real signals.
//!
//! With n samples, `rfft` computes re[k] = sum of x[j] cos(2 pi j k / n) and im[k] = - sum of
//! x[j] sin(2 pi j k / n) for k up to n / 2. Its transpose is n `irfft` of the same numbers, except that
//! `irfft` counts every bin twice that has a mirror image, which are all but the first and, for even
//! n, the last. The transpose of `irfft` is `rfft / n` with these bins counted twice.

use burn_autodiff::Autodiff as BurnAutodiff;
use burn_autodiff::checkpoint::strategy::CheckpointStrategy;
use burn_backend::ops::{FloatTensorOps, ModuleOps};
use burn_backend::{TensorData, TensorMetadata};
use burn_std::{Shape, Slice};

use super::kinds::{Axis, F, FF, OptSize};
use super::node::from_state;
use crate::backend::{Wgsl, WgslTensor};

/// Two nodes: each part of the spectrum has its own gradient.
pub(super) fn rfft<C: CheckpointStrategy>(signal: F, dim: Axis, n: OptSize) -> FF {
    let len = signal.primitive.shape()[dim];
    let (re, im) = Wgsl::rfft(signal.primitive.clone(), dim, n);
    let state = (len, dim, n.unwrap_or(len));
    let re = from_state::<C, _>(signal.clone(), re, state, |state, grad| {
        let zeros = zeros_like(&grad);
        rfft_gradient(grad, zeros, state)
    });
    let im = from_state::<C, _>(signal, im, state, |state, grad| {
        let zeros = zeros_like(&grad);
        rfft_gradient(zeros, grad, state)
    });
    (re, im)
}

fn rfft_gradient(
    re: WgslTensor,
    im: WgslTensor,
    (len, dim, n): (usize, usize, usize),
) -> WgslTensor {
    let n_as_float = n as f64;
    let re = scale_bins(re, dim, n, n_as_float, 0.5 * n_as_float);
    let im = scale_bins(im, dim, n, n_as_float, 0.5 * n_as_float);
    resized(Wgsl::irfft(re, im, dim, Some(n)), dim, len)
}

/// One node for each part of the spectrum, and their sum: the transform is linear.
pub(super) fn irfft<C: CheckpointStrategy>(re: F, im: F, dim: Axis, n: OptSize) -> F {
    let bins = re.primitive.shape()[dim];
    let n = n.unwrap_or_else(|| 2 * bins.saturating_sub(1));
    let state = (bins, dim, n);
    let zeros = zeros_like(&re.primitive);
    let of_re = Wgsl::irfft(re.primitive.clone(), zeros.clone(), dim, Some(n));
    let of_im = Wgsl::irfft(zeros, im.primitive.clone(), dim, Some(n));
    let of_re = from_state::<C, _>(re, of_re, state, |state, grad| irfft_gradient(grad, state).0);
    let of_im = from_state::<C, _>(im, of_im, state, |state, grad| irfft_gradient(grad, state).1);
    BurnAutodiff::<Wgsl, C>::float_add(of_re, of_im)
}

fn irfft_gradient(
    grad: WgslTensor,
    (bins, dim, n): (usize, usize, usize),
) -> (WgslTensor, WgslTensor) {
    let (re, im) = Wgsl::rfft(grad, dim, Some(n));
    let scaled = |part| {
        let scaled = scale_bins(part, dim, n, 1.0 / n as f64, 2.0 / n as f64);
        resized(scaled, dim, bins)
    };
    (scaled(re), scaled(im))
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
