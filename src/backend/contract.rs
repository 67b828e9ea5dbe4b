//! The macros that turn the tables of Burn's contract into trait methods.
//!
//! A row is the signature of a method, in the kinds of `kinds.rs`, and its launch on a GPU:
//!
//! ```text
//! float_sum_dim(tensor: F, dim: Axis) -> F = reduce::dim(Sum, tensor, dim), else cpu;
//! ```
//!
//! - `-> F as Stored` selects how operands are converted, a
//!   [`Conversion`](super::context::Conversion); the default is `Compute`.
//! - The CPU backend runs burn-flex's method of the same name, or with `else cpu` the function of
//!   that name in `crate::cpu`, where burn-flex lacks the method or differs from the kernels.
//! - An argument of kind `FloatType` or `IntType` is the requested type of the result. The context
//!   converts the result to it, except in rows `as Stored`.
//! - `under Full` is the op's rule of autocast, a [`Rule`](crate::autocast::rules::Rule); the default is `Promote`.
//!   The kinds `Weight` and `Bias` are operands of products.
//! - `gradient norm` names the module of `crate::autodiff` that has the op's gradient, in the place of Burn's;
//!   `gradient by_hand` is for methods that it writes out.
//! - A row without a launch always falls back to the CPU.
//!
//! The rows of the elementwise table (`kernels/ops/table.rs`) become methods by their form.

/// Turns rows of the contract into methods.
macro_rules! methods {
    ($(
        $name:ident($($arg:ident: $kind:ident),* $(,)?) -> $ret:ident $(as $conversion:ident)?
            $(under $rule:ident)? $(gradient $gradient:ident)?
            $(= $launch:expr $(, else $cpu:ident)?)?;
    )*) => {
        $(methods!(
            @method $name [$($arg: $kind),*] $ret [$($conversion)?] [$($rule)?]
                [$($launch $(, $cpu)?)?]
        );)*
    };
    (
        @method $name:ident [$($arg:ident: $kind:ident),*] $ret:ident [$($conversion:ident)?]
            [$($rule:ident)?] [$launch:expr $(, $cpu:ident)?]
    ) => {
        fn $name($($arg: $kind),*) -> $ret {
            run!(
                $name [$($arg: $kind)*] [$($conversion)?] [$($rule)?] $launch,
                else methods!(@cpu $name [$($arg)*] $($cpu)?)
            )
        }
    };
    (
        @method $name:ident [$($arg:ident: $kind:ident),*] $ret:ident [] [$($rule:ident)?] []
    ) => {
        fn $name($($arg: $kind),*) -> $ret {
            run!($name [$($arg: $kind)*] [$($rule)?] else Flex::$name($($arg),*))
        }
    };
    (@cpu $name:ident [$($arg:ident)*]) => {
        Flex::$name($($arg),*)
    };
    (@cpu $name:ident [$($arg:ident)*] $cpu:ident) => {
        $cpu::$name($($arg),*)
    };
}

/// Runs an op: as a kernel if there is one for its operands, otherwise on the CPU backend.
macro_rules! run {
    (
        $name:ident [$($arg:ident: $kind:ident)*] [$($conversion:ident)?] [$($rule:ident)?]
            $launch:expr,
        else $cpu:expr
    ) => {{
        let context = run!(@context $name [$($arg: $kind)*] [$($conversion)?] [$($rule)?]);
        let inspection = run!(@inspect [$($arg)*]);
        let result = if context.has_kernel() {
            // The launch need not use every argument.
            $(let $arg = $arg.into_gpu(&context); let _ = &$arg;)*
            context.finish($launch)
        } else {
            run!(@cpu context $name [$($arg)*] $cpu)
        };
        inspection.end(&context, result)
    }};
    ($name:ident [$($arg:ident: $kind:ident)*] [$($rule:ident)?] else $cpu:expr) => {{
        let context = run!(@context $name [$($arg: $kind)*] [] [$($rule)?]);
        let inspection = run!(@inspect [$($arg)*]);
        inspection.end(&context, run!(@cpu context $name [$($arg)*] $cpu))
    }};
    (@inspect [$($arg:ident)*]) => {
        Inspection::begin(|_operands| {
            $($arg.inspect_operand(stringify!($arg), _operands);)*
        })
    };
    (
        @context $name:ident [$($arg:ident: $kind:ident)*] [$($conversion:ident)?]
            [$($rule:ident)?]
    ) => {{
        let conversion = run!(@conversion $($conversion)?);
        let mut context = OpContext::new(stringify!($name), conversion, run!(@rule $($rule)?));
        $(run!(@operand context $arg $kind);)*
        context.settle_types();
        $(run!(@axis context $arg $kind);)*
        context
    }};
    (@cpu $context:ident $name:ident [$($arg:ident)*] $cpu:expr) => {
        on_cpu!($context $name [$($arg)*] $cpu)
    };
    (@conversion) => {
        Conversion::Compute
    };
    (@conversion $conversion:ident) => {
        Conversion::$conversion
    };
    (@rule) => {
        Rule::Promote
    };
    (@rule $rule:ident) => {
        Rule::$rule
    };
    (@operand $context:ident $arg:ident Bias) => {
        $context.register_bias(&$arg);
    };
    (@operand $context:ident $arg:ident Indices) => {
        $context.register_indices(&$arg);
    };
    (@operand $context:ident $arg:ident Axis) => {};
    (@operand $context:ident $arg:ident $kind:ident) => {
        $context.register(&$arg, run!(@kind $kind));
    };
    // Burn's type of tensors does not say which elements they have.
    (@kind F) => { Some(DataKind::Float) };
    (@kind Weight) => { Some(DataKind::Float) };
    (@kind Uncast) => { Some(DataKind::Float) };
    (@kind OptF) => { Some(DataKind::Float) };
    (@kind VecF) => { Some(DataKind::Float) };
    (@kind QParams) => { Some(DataKind::Float) };
    (@kind I) => { Some(DataKind::Int) };
    (@kind VecI) => { Some(DataKind::Int) };
    (@kind B) => { Some(DataKind::Bool) };
    (@kind OptB) => { Some(DataKind::Bool) };
    (@kind VecB) => { Some(DataKind::Bool) };
    (@kind $other:ident) => { None };
    // The tensor's rank is known once all operands are registered.
    (@axis $context:ident $arg:ident Axis) => {
        $context.check_axis($arg);
    };
    (@axis $context:ident $arg:ident $kind:ident) => {};
}

/// Runs an op on the CPU backend.
#[cfg(feature = "cpu")]
macro_rules! on_cpu {
    ($context:ident $name:ident [$($arg:ident)*] $cpu:expr) => {{
        $context.record_fallback();
        let mut result = ResultSize::default();
        $($arg.size_result(&mut result);)*
        $context.check_host_memory(&result);
        let computing = Computing::begin(&$context, |_operands| {
            $($arg.inspect_operand(stringify!($arg), _operands);)*
        });
        $(let $arg = $arg.into_cpu(&$context);)*
        computing.end(OpOutput::from_cpu($cpu, &$context))
    }};
}

/// Panics, in a build without the CPU backend.
#[cfg(not(feature = "cpu"))]
macro_rules! on_cpu {
    ($context:ident $name:ident [$($arg:ident)*] $cpu:expr) => {{
        $(let _ = $arg;)*
        fail_without_cpu(stringify!($name))
    }};
}

/// Turns rows of the elementwise table into methods.
macro_rules! elementwise_methods {
    ($kind:ident: $($form:ident $name:ident $(under $rule:ident)? $wgsl:literal $reference:ident $function:expr;)*) => {
        $(elementwise_methods!(@$form $kind $name [$($rule)?]);)*
    };
    (@unary $kind:ident $name:ident [$($rule:ident)?]) => {
        methods!($name(tensor: $kind) -> $kind $(under $rule)? = elementwise::unary(&rows::$name, tensor););
    };
    (@predicate $kind:ident $name:ident [$($rule:ident)?]) => {
        methods!($name(tensor: $kind, out_dtype: BoolType) -> B $(under $rule)? =
            elementwise::predicate(&rows::$name, tensor););
    };
    // burn-flex panics if a divisor is zero.
    (@binary I int_div [$($rule:ident)?]) => {
        elementwise_methods!(@divide int_div);
    };
    (@binary I int_remainder [$($rule:ident)?]) => {
        elementwise_methods!(@divide int_remainder);
    };
    (@scalar I int_div_scalar [$($rule:ident)?]) => {
        elementwise_methods!(@divide_by_scalar int_div_scalar);
    };
    (@scalar I int_remainder_scalar [$($rule:ident)?]) => {
        elementwise_methods!(@divide_by_scalar int_remainder_scalar);
    };
    (@divide $name:ident) => {
        methods!($name(lhs: I, rhs: I) -> I =
            elementwise::binary(&rows::$name, lhs, rhs), else cpu;);
    };
    (@divide_by_scalar $name:ident) => {
        methods!($name(lhs: I, rhs: Scalar) -> I =
            elementwise::scalar(&rows::$name, lhs, &[scalar_value::I(rhs)]), else cpu;);
    };
    (@binary $kind:ident $name:ident [$($rule:ident)?]) => {
        methods!($name(lhs: $kind, rhs: $kind) -> $kind $(under $rule)? =
            elementwise::binary(&rows::$name, lhs, rhs););
    };
    (@scalar $kind:ident $name:ident [$($rule:ident)?]) => {
        methods!($name(lhs: $kind, rhs: Scalar) -> $kind $(under $rule)? =
            elementwise::scalar(&rows::$name, lhs, &[scalar_value::$kind(rhs)]););
    };
    (@two_scalars $kind:ident $name:ident [$($rule:ident)?]) => {
        methods!($name(tensor: $kind, first: Scalar, second: Scalar) -> $kind $(under $rule)? =
            elementwise::scalar(
                &rows::$name,
                tensor,
                &[scalar_value::$kind(first), scalar_value::$kind(second)],
            ););
    };
    // burn-flex differs in its clamps of NaN floats.
    (@limit F $name:ident [$($rule:ident)?]) => {
        methods!($name(tensor: F, limit: Scalar) -> F $(under $rule)? =
            elementwise::clamp(&rows::$name, tensor, &[scalar_value::F(limit)]), else cpu;);
    };
    (@limit $kind:ident $name:ident [$($rule:ident)?]) => {
        methods!($name(tensor: $kind, limit: Scalar) -> $kind $(under $rule)? =
            elementwise::clamp(&rows::$name, tensor, &[scalar_value::$kind(limit)]););
    };
    (@limits F $name:ident [$($rule:ident)?]) => {
        methods!($name(tensor: F, min: Scalar, max: Scalar) -> F $(under $rule)? =
            elementwise::clamp(
                &rows::$name,
                tensor,
                &[scalar_value::F(min), scalar_value::F(max)],
            ), else cpu;);
    };
    (@limits $kind:ident $name:ident [$($rule:ident)?]) => {
        methods!($name(tensor: $kind, min: Scalar, max: Scalar) -> $kind $(under $rule)? =
            elementwise::clamp(
                &rows::$name,
                tensor,
                &[scalar_value::$kind(min), scalar_value::$kind(max)],
            ););
    };
    (@compare $kind:ident $name:ident [$($rule:ident)?]) => {
        methods!($name(lhs: $kind, rhs: $kind, out_dtype: BoolType) -> B $(under $rule)? =
            elementwise::compare(&rows::$name, lhs, rhs););
    };
    (@compare_scalar $kind:ident $name:ident [$($rule:ident)?]) => {
        methods!($name(lhs: $kind, rhs: Scalar, out_dtype: BoolType) -> B as Compare $(under $rule)? =
            elementwise::compare_scalar(&rows::$name, lhs, scalar_value::$kind(rhs)););
    };
}

pub(crate) use {elementwise_methods, methods, on_cpu, run};

/// The names that the tables and their trait implementations use.
pub(crate) mod prelude {
    pub(crate) use burn_backend::ops::{
        ActivationOps, BoolTensorOps, FloatTensorOps, IntTensorOps, ModuleOps, QTensorOps,
    };
    pub(crate) use burn_backend::{ExecutionError, TensorData};

    pub(crate) use super::super::Wgsl;
    pub(crate) use super::super::computing::Computing;
    pub(crate) use super::super::context::{
        Conversion, OpContext, OpOutput, ResultSize, RowOperand,
    };
    pub(crate) use super::super::debug::Inspection;
    pub(crate) use super::super::host_data::DataKind;
    pub(crate) use super::super::kinds::*;
    pub(crate) use super::super::launchers::*;
    #[allow(unused_imports, reason = "the macros of a build without the CPU backend use it")]
    pub(crate) use super::super::resolve::{HAS_CPU, fail_without_cpu};
    pub(crate) use super::super::transfer::{flex_tensor, into_data, to_device, upload};
    pub(crate) use super::{elementwise_methods, methods, on_cpu, run};
    pub(crate) use crate::autocast::rules::Rule;
    pub(crate) use crate::cpu::{self, Flex};
    pub(crate) use crate::device::WgslDevice;
    pub(crate) use crate::kernels::ops::map::ScalarValue;
    pub(crate) use crate::kernels::ops::table::rows;
    pub(crate) use crate::kernels::reduce::Reduction;
    pub(crate) use crate::kernels::scan::ScanOp;
    pub(crate) use crate::kernels::views;
    pub(crate) use crate::kernels::{
        argwhere, attention, attention_backward, attention_pattern, conv, cross, ctc, deform,
        elementwise, fft, finite, gather, gather_nd, grid_sample, interpolate, matmul, norm, pool,
        reduce, scan, scatter, scatter_nd, softmax, sort,
    };
    pub(crate) use crate::tensor::DType;
}
