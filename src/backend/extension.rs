//! Ops beyond Burn's contract, as functions of the backend: `Wgsl::silu(tensor)`.
//!
//! Where an elementwise row has no kernel for its operands, its reference implementation computes
//! the result.

use super::contract::prelude::*;
use crate::kernels::ops::table::Row;

/// Turns rows of the extension table into functions of the backend.
macro_rules! extension_methods {
    ($kind:ident: $($form:ident $name:ident $wgsl:literal $reference:ident $function:expr;)*) => {
        $(extension_methods!(@$form $kind $name $wgsl);)*
    };
    (@unary $kind:ident $name:ident $wgsl:literal) => {
        #[doc = concat!("Computes `", $wgsl, "` elementwise.")]
        pub fn $name(tensor: $kind) -> $kind {
            apply(&rows::$name, [tensor])
        }
    };
    (@binary $kind:ident $name:ident $wgsl:literal) => {
        #[doc = concat!("Computes `", $wgsl, "` elementwise. The tensors broadcast.")]
        pub fn $name(lhs: $kind, rhs: $kind) -> $kind {
            apply(&rows::$name, [lhs, rhs])
        }
    };
}

/// Ops with kernels of their own.
macro_rules! extension_contract {
    ($apply:ident) => {
        $apply! {
            /// Returns whether an element of a tensor is infinite or NaN, `[1]`.
            any_not_finite(tensors: VecF) -> B = finite::any_not_finite(tensors), else cpu;
            /// Returns the means over several axes, which remain with one element each.
            mean_axes(tensor: F, axes: Axes) -> F under Full =
                reduce::axes(reduce::Reduction::Mean, tensor, axes), else cpu;
            /// Divides each row of `x` `[.., width]` by its root mean square and multiplies it by
            /// `gamma` `[width]`.
            rms_norm(x: F, gamma: F, epsilon: Real) -> F under Full =
                norm::rms_norm(x, gamma, epsilon as f32), else cpu;
            /// Computes the gradients of `rms_norm` with respect to `x` `[.., width]` and `gamma`
            /// `[width]` from the gradient of its result `[.., width]`.
            rms_norm_backward(x: F, gamma: F, output_grad: F, epsilon: Real) -> FF under Full =
                norm::rms_norm_backward(x, gamma, output_grad, epsilon as f32), else cpu;
            /// Computes the gradients of `layer_norm` with respect to `tensor` `[.., width]`,
            /// `gamma` and `beta` `[width]` from the gradient of its result `[.., width]`.
            layer_norm_backward(tensor: F, gamma: F, output_grad: F, epsilon: Real) -> F3 under Full =
                norm::layer_norm_backward(tensor, gamma, output_grad, epsilon as f32), else cpu;
            /// Computes the gradient of `softmax` from its result and the gradient of the result.
            softmax_backward(output: F, output_grad: F, dim: Axis) -> F under Full =
                softmax::softmax_backward(output, output_grad, dim), else cpu;
            /// Computes the gradient of `log_softmax` from its result and the gradient of the
            /// result.
            log_softmax_backward(output: F, output_grad: F, dim: Axis) -> F under Full =
                softmax::log_softmax_backward(output, output_grad, dim), else cpu;
            /// Computes `attention` `[batch, heads, queries, value width]`, and for
            /// `attention_backward` the logarithm of the sum of `e^score` of each query and what is
            /// rounded away of it, `[batch, heads, queries, 2]`. It is infinite if all keys are
            /// masked. Both are f32.
            attention_with_log_sums(
                query: F, key: F, value: F, mask: OptB, attn_bias: OptF, options: Attention,
            ) -> FF as Wide = {
                let options = attention_options(&options);
                attention::attention_with_log_sums(query, key, value, mask, attn_bias, options)
            }, else cpu;
            /// Computes the gradients of `attention` with respect to `query`, `key` and `value`, in
            /// f32, from its arguments, the results of `attention_with_log_sums`, and the gradient
            /// of the first. There is no gradient of the bias.
            ///
            /// The memory that it needs on a GPU grows linearly with the numbers of queries and
            /// keys, except for a bias with the shape of the mask if there is a mask.
            attention_backward(
                query: F, key: F, value: F, mask: OptB, attn_bias: OptF, output: F, log_sums: F,
                output_grad: F, options: Attention,
            ) -> F3 as Wide = {
                let options = attention_options(&options);
                let forward = attention_backward::Forward {
                    query, key, value, mask, bias: attn_bias, out: output, log_sums,
                };
                attention_backward::attention_backward(forward, output_grad, options)
            }, else cpu;
        }
    };
}

pub(crate) use extension_contract;

/// Turns rows of the extension contract into functions of the backend.
macro_rules! extension_functions {
    ($(
        $(#[$doc:meta])*
        $name:ident($($arg:ident: $kind:ident),* $(,)?) -> $ret:ident $(as $conversion:ident)?
            $(under $rule:ident)? $(gradient $gradient:ident)?
            = $launch:expr, else $cpu:ident;
    )*) => {
        $(
            $(#[$doc])*
            ///
            /// # Panics
            ///
            /// Panics if the shapes do not fit, if the device fails, and if no kernel supports the
            /// tensors in a build without the CPU backend.
            #[allow(clippy::too_many_arguments, reason = "rows have the operands of their kernels")]
            pub fn $name($($arg: $kind),*) -> $ret {
                run!($name [$($arg: $kind)*] [$($conversion)?] [$($rule)?] $launch, else $cpu::$name($($arg),*))
            }
        )*
    };
}

impl Wgsl {
    crate::kernels::ops::table::extension_rows!(extension_methods);
    extension_contract!(extension_functions);
}

/// Computes a unary or binary row of the elementwise table.
///
/// # Panics
///
/// Panics if the row takes another number of tensors, if the device fails, and if no kernel
/// supports the tensors in a build without the CPU backend.
pub fn apply<const N: usize>(row: &'static Row, tensors: [F; N]) -> F {
    let mut context = OpContext::new(row.name, Conversion::Compute, Rule::Promote);
    tensors.iter().for_each(|tensor| context.register(tensor, Some(DataKind::Float)));
    context.settle_types();
    if context.has_kernel() {
        let mut inputs = tensors.into_iter().map(|tensor| tensor.into_gpu(&context));
        return match (inputs.next(), inputs.next()) {
            (Some(lhs), Some(rhs)) => context.finish(elementwise::binary(row, lhs, rhs)),
            (Some(tensor), None) => context.finish(elementwise::unary(row, tensor)),
            (None, _) => panic!("{}: an op needs an operand", row.name),
        };
    }
    if !HAS_CPU {
        fail_without_cpu(row.name);
    }
    context.record_fallback();
    let computing = Computing::begin(&context, |operands| {
        operands.extend(tensors.iter().map(|tensor| ("tensor", tensor.clone())));
    });
    let mut inputs = tensors.into_iter().map(|tensor| tensor.into_cpu(&context));
    let out = match (inputs.next(), inputs.next()) {
        (Some(lhs), Some(rhs)) => cpu::map2(row, lhs, rhs),
        (Some(tensor), None) => cpu::map(row, tensor),
        (None, _) => panic!("{}: an op needs an operand", row.name),
    };
    computing.end(OpOutput::from_cpu(out, &context))
}
