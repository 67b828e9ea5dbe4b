//! Ops beyond Burn's contract, as functions of the backend: `Wgsl::silu(tensor)`.
//!
//! On the CPU, and for types without a kernel, a row of the elementwise table is computed by its truth.

use super::contract::prelude::*;
use crate::kernels::table::Row;

/// Makes functions of the backend from rows of the extension table.
macro_rules! extension_methods {
    ($kind:ident: $($form:ident $name:ident $wgsl:literal $truth:ident $closure:expr;)*) => {
        $(extension_methods!(@$form $kind $name $wgsl);)*
    };
    (@unary $kind:ident $name:ident $wgsl:literal) => {
        #[doc = concat!("Elementwise `", $wgsl, "`.")]
        pub fn $name(tensor: $kind) -> $kind {
            apply(&rows::$name, [tensor])
        }
    };
    (@binary $kind:ident $name:ident $wgsl:literal) => {
        #[doc = concat!("Elementwise `", $wgsl, "`, of tensors that broadcast.")]
        pub fn $name(lhs: $kind, rhs: $kind) -> $kind {
            apply(&rows::$name, [lhs, rhs])
        }
    };
}

/// Ops with kernels of their own: after `else`, how the CPU computes it, from burn-flex's tensors.
macro_rules! extension_contract {
    ($apply:ident) => {
        $apply! {
            /// Each row of `x` `[.., width]` divided by its root mean square, times `gamma` `[width]`.
            rms_norm(x: F, gamma: F, epsilon: Real) -> F = norm::rms_norm(x, gamma, epsilon as f32), else cpu::rms_norm(x, gamma, epsilon);
        }
    };
}

pub(crate) use extension_contract;

/// Makes functions of the backend from rows of the extension contract.
macro_rules! extension_functions {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $kind:ident),* $(,)?) -> $ret:ident = $gpu:expr, else $twin:expr;)*) => {
        $(
            $(#[$doc])*
            pub fn $name($($arg: $kind),*) -> $ret {
                run!($name [$($arg: $kind)*] [] $gpu, else $twin)
            }
        )*
    };
}

impl Wgsl {
    crate::kernels::table::extension_rows!(extension_methods);
    extension_contract!(extension_functions);
}

/// Computes a row of the elementwise table from its tensors: how tests reach rows beyond Burn's contract.
///
/// # Panics
///
/// When the row takes another count of tensors, or the device fails.
pub fn apply<const N: usize>(row: &'static Row, tensors: [F; N]) -> F {
    let mut context = OpContext::new(row.name);
    tensors.iter().for_each(|tensor| tensor.register(&mut context));
    if context.has_kernel() {
        let mut inputs = tensors.into_iter().map(|tensor| tensor.into_gpu(&context));
        return match (inputs.next(), inputs.next()) {
            (Some(lhs), Some(rhs)) => context.computed(elementwise::binary(row, lhs, rhs)),
            (Some(tensor), None) => context.computed(elementwise::unary(row, tensor)),
            (None, _) => panic!("{}: an op needs an operand", row.name),
        };
    }
    context.record_fallback();
    let mut inputs = tensors.into_iter().map(|tensor| tensor.into_cpu(&context));
    let out = match (inputs.next(), inputs.next()) {
        (Some(lhs), Some(rhs)) => cpu::map2(row, lhs, rhs),
        (Some(tensor), None) => cpu::map(row, tensor),
        (None, _) => panic!("{}: an op needs an operand", row.name),
    };
    OpOutput::from_cpu(out, &context)
}
