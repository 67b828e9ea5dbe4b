//! Products. The gradient for an element is the product of the other elements: the whole product
//! divided by the element, or computed separately if the element is zero. It is computed in f32,
//! and is wrong where the whole product overflows or underflows.

use burn_autodiff::checkpoint::strategy::CheckpointStrategy;
use burn_backend::TensorMetadata;
use burn_backend::get_device_settings;
use burn_backend::ops::{BoolTensorOps, FloatTensorOps};
use burn_std::{Shape, Slice};

use super::kinds::{Axis, B, F};
use super::node::{in_f32, node};
use crate::backend::{Wgsl, WgslTensor};

pub(super) fn float_prod<C: CheckpointStrategy>(tensor: F) -> F {
    let output = Wgsl::float_prod(tensor.primitive.clone());
    node::<C, _, 1, 1>([tensor], output, (), |[x], (), grad| {
        let shape = x.shape();
        let line = Shape::from([shape.num_elements()]);
        let x = Wgsl::float_reshape(x, line);
        let gradient = in_f32([x, grad], |[x, grad]| product_gradient(x, grad, 0));
        [Wgsl::float_reshape(gradient, shape)]
    })
}

pub(super) fn float_prod_dim<C: CheckpointStrategy>(tensor: F, dim: Axis) -> F {
    let output = Wgsl::float_prod_dim(tensor.primitive.clone(), dim);
    node::<C, _, 1, 1>([tensor], output, dim, |[x], dim, grad| {
        [in_f32([x, grad], |[x, grad]| product_gradient(x, grad, dim))]
    })
}

/// Returns the gradient of the product along an axis: the product of the other elements. In a line
/// with one zero only the zero has a gradient, in a line with several none has.
fn product_gradient(x: WgslTensor, grad: WgslTensor, dim: usize) -> WgslTensor {
    let is_zero = equals(x.clone(), 0.0);
    let factors = Wgsl::float_mask_fill(x.clone(), is_zero.clone(), 1.0.into());
    let product = Wgsl::float_prod_dim(factors.clone(), dim);
    let zeros = Wgsl::float_sum_dim(as_float(is_zero.clone(), &x), dim);
    let scaled = Wgsl::float_mul(grad, product);
    let for_others = Wgsl::float_mul(scaled.clone(), as_float(equals(zeros.clone(), 0.0), &x));
    let for_zero = Wgsl::float_mul(scaled, as_float(equals(zeros, 1.0), &x));
    // A product by zero could be NaN.
    let for_zero = Wgsl::float_expand(for_zero, x.shape());
    Wgsl::float_mask_where(Wgsl::float_div(for_others, factors), is_zero, for_zero)
}

pub(super) fn float_cumprod<C: CheckpointStrategy>(tensor: F, dim: Axis) -> F {
    let output = Wgsl::float_cumprod(tensor.primitive.clone(), dim);
    node::<C, _, 1, 1>([tensor], output, dim, |[x], dim, grad| {
        [in_f32([x, grad], |[x, grad]| cumprod_gradient(x, grad, dim))]
    })
}

/// Returns the gradient of the cumulative products of `x`.
///
/// Before the first zero of a line it is the sum of grad * product from the element on, divided by
/// the element. At the first zero it is that sum for the products without this zero. After it,
/// every product contains the zero and the gradient is zero.
fn cumprod_gradient(x: WgslTensor, grad: WgslTensor, dim: usize) -> WgslTensor {
    let is_zero = equals(x.clone(), 0.0);
    let zeros = Wgsl::float_cumsum(as_float(is_zero.clone(), &x), dim);
    let is_first_zero = Wgsl::bool_and(is_zero.clone(), equals(zeros.clone(), 1.0));
    let without_zero = Wgsl::float_mask_fill(x.clone(), is_first_zero.clone(), 1.0.into());
    let at_zero = Wgsl::float_cumprod(without_zero, dim);
    let at_zero = sums_from_each_on(Wgsl::float_mul(grad.clone(), at_zero), dim);
    let products = Wgsl::float_cumprod(x.clone(), dim);
    let before = sums_from_each_on(Wgsl::float_mul(grad, products), dim);
    let divisors = Wgsl::float_mask_fill(x.clone(), is_zero, 1.0.into());
    let before = Wgsl::float_div(before, divisors);
    let is_after = Wgsl::bool_not(equals(zeros, 0.0));
    let result = Wgsl::float_mask_fill(before, is_after, 0.0.into());
    Wgsl::float_mask_where(result, is_first_zero, at_zero)
}

/// Returns for each element the sum of the elements of its line from it on.
fn sums_from_each_on(tensor: WgslTensor, dim: usize) -> WgslTensor {
    let mut slices = vec![Slice::full(); tensor.rank()];
    slices[dim] = Slice::with_step(0, None, -1);
    let reversed = Wgsl::float_slice(tensor, &slices);
    Wgsl::float_slice(Wgsl::float_cumsum(reversed, dim), &slices)
}

fn equals(tensor: WgslTensor, value: f64) -> B {
    let dtype = get_device_settings::<Wgsl>(&tensor.device()).bool_dtype;
    Wgsl::float_equal_elem(tensor, value.into(), dtype)
}

/// Converts booleans to ones and zeros of the element type of `like`.
fn as_float(mask: B, like: &WgslTensor) -> WgslTensor {
    Wgsl::bool_into_float(mask, like.dtype().into())
}
