//! Layer norm and RMS norm.

use burn_autodiff::checkpoint::strategy::CheckpointStrategy;
use burn_backend::ops::ModuleOps;

use super::Autodiff;
use super::cast::cast;
use super::kinds::{F, OptF, Real};
use super::node::node;
use crate::autocast::rules::{Role, Rule};
use crate::backend::Wgsl;

impl<C: CheckpointStrategy> Autodiff<Wgsl, C> {
    /// Divides each row of `x` `[.., width]` by its root mean square and multiplies it by `gamma`
    /// `[width]`.
    ///
    /// # Panics
    ///
    /// Panics if the shapes do not fit or the device fails.
    pub fn rms_norm(mut x: F, mut gamma: F, epsilon: f64) -> F {
        cast::<C>(Rule::Full, &mut |f| {
            f(&mut x, Role::Operand);
            f(&mut gamma, Role::Operand);
        });
        let output = Wgsl::rms_norm(x.primitive.clone(), gamma.primitive.clone(), epsilon);
        node::<C, _, 2, 2>([x, gamma], output, epsilon, |[x, gamma], epsilon, grad| {
            Wgsl::rms_norm_backward(x, gamma, grad, epsilon).into()
        })
    }
}

pub(super) fn layer_norm<C: CheckpointStrategy>(
    tensor: F,
    gamma: F,
    beta: OptF,
    epsilon: Real,
) -> F {
    let output = Wgsl::layer_norm(
        tensor.primitive.clone(),
        gamma.primitive.clone(),
        beta.as_ref().map(|beta| beta.primitive.clone()),
        epsilon,
    );
    match beta {
        Some(beta) => node::<C, _, 3, 2>(
            [tensor, gamma, beta],
            output,
            epsilon,
            |[tensor, gamma], epsilon, grad| {
                Wgsl::layer_norm_backward(tensor, gamma, grad, epsilon).into()
            },
        ),
        None => node::<C, _, 2, 2>(
            [tensor, gamma],
            output,
            epsilon,
            |[tensor, gamma], epsilon, grad| {
                let (tensor, gamma, _) = Wgsl::layer_norm_backward(tensor, gamma, grad, epsilon);
                [tensor, gamma]
            },
        ),
    }
}
