//! Fourier transforms, whose results can be of any size.

use burn_backend::TensorMetadata;
use burn_backend::ops::ModuleOps;
use burn_flex::{Flex, FlexTensor};

use super::memory::check_memory;

pub(crate) fn rfft(signal: FlexTensor, dim: usize, n: Option<usize>) -> (FlexTensor, FlexTensor) {
    check_size("rfft", &signal, dim, n.unwrap_or_else(|| signal.shape()[dim]));
    Flex::rfft(signal, dim, n)
}

pub(crate) fn irfft(re: FlexTensor, im: FlexTensor, dim: usize, n: Option<usize>) -> FlexTensor {
    let length = || re.shape()[dim].saturating_sub(1).saturating_mul(2);
    check_size("irfft", &re, dim, n.unwrap_or_else(length));
    Flex::irfft(re, im, dim, n)
}

fn check_size(op: &str, tensor: &FlexTensor, dim: usize, n: usize) {
    let mut shape = tensor.shape().to_vec();
    shape[dim] = n;
    check_memory(op, &shape, tensor.dtype().size());
}
