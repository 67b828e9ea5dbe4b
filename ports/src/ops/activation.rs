//! Activation functions.

use burn_backend::ops::ActivationOps;
use burn_backend_021::ops::ActivationOps as _;

use super::prelude::*;

/// Calls a macro with the methods that both contracts have.
#[doc(hidden)]
#[macro_export]
macro_rules! activation_methods {
    ($macro:ident) => {
        $macro! {
            leaky_relu(tensor: F, negative_slope: Scalar) -> F;
            relu(tensor: F) -> F;
            relu_backward(output: F, grad: F) -> F;
            gelu(tensor: F) -> F;
            prelu(tensor: F, alpha: F) -> F;
            gelu_backward(x: F, grad: F) -> F;
            sigmoid(tensor: F) -> F;
            sigmoid_backward(output: F, grad: F) -> F;
            hard_sigmoid(tensor: F, alpha: Scalar, beta: Scalar) -> F;
            log_sigmoid(tensor: F) -> F;
            softmax(tensor: F, dim: usize) -> F;
            log_softmax(tensor: F, dim: usize) -> F;
            softmin(tensor: F, dim: usize) -> F;
            log_sigmoid_backward(x: F, grad: F) -> F;
        }
    };
}

impl ActivationOps<Self> for Port {
    activation_methods!(forward);
}
