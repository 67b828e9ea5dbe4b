//! Calls an op of the contract by name, on any backend. Tests, gradient checks and benchmarks run
//! the cases of the case list through it.
//!
//! The arguments are read one after another from [`CaseArguments`], each by its kind. The calls are
//! generated from the tables of the contract: an op in a table can be called without further code.

#![expect(non_snake_case, reason = "functions are named after the kinds of the tables")]

use std::collections::BTreeMap;

use burn_backend::ops::{
    DeformConv2dBackward, MaxPool1dWithIndices, MaxPool2dBackward, MaxPool2dWithIndices,
};
use burn_backend::tensor::{BoolTensor, FloatTensor, IntTensor};
use burn_backend::{Backend, TensorData, get_device_settings};
use burn_std::{FloatDType, IntDType};

mod arguments;

pub use arguments::content;

use super::contract::prelude::*;
use crate::kernels::ops::cases::Case;

/// Transforms each float tensor before the call. A gradient check tracks the tensors here.
pub type Prepare<'a, T> = &'a mut dyn FnMut(FloatTensor<T>) -> FloatTensor<T>;

/// The arguments of a case, converted to tensors of a backend as they are read.
pub struct CaseArguments<'a, T: Backend> {
    case: &'a Case,
    /// The number of arguments read so far.
    next: usize,
    device: &'a T::Device,
    types: Types,
    prepare: Prepare<'a, T>,
    /// Tensors of earlier calls, which are reused.
    inputs: Option<&'a mut CaseInputs<T>>,
}

/// The tensors of a case, created once for many calls. Benchmarks do not measure their creation.
///
/// The keys are the positions of the inputs among the arguments.
#[derive(Debug)]
pub struct CaseInputs<T: Backend>(BTreeMap<usize, Value<T>>);

impl<T: Backend> Default for CaseInputs<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

/// The element types of a case's tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Types {
    /// The type of float tensors.
    pub float: FloatDType,
    /// The type to which their values are rounded first.
    pub rounded: FloatDType,
    /// The type of integer tensors, including indices.
    pub int: IntDType,
}

impl Types {
    /// Returns the default types of a device.
    pub fn of<T: Backend>(device: &T::Device) -> Self {
        let settings = get_device_settings::<T>(device);
        Self { float: settings.float_dtype, rounded: settings.float_dtype, int: settings.int_dtype }
    }
}

/// A result of an op.
#[derive(Debug, Clone)]
pub enum Value<T: Backend> {
    /// A float tensor.
    Float(FloatTensor<T>),
    /// An integer tensor.
    Int(IntTensor<T>),
    /// A boolean tensor.
    Bool(BoolTensor<T>),
}

impl<T: Backend> Value<T> {
    /// Reads the tensor back.
    ///
    /// # Errors
    ///
    /// Returns an error if the device fails.
    pub async fn into_data(self) -> Result<TensorData, burn_backend::ExecutionError> {
        match self {
            Self::Float(tensor) => T::float_into_data(tensor).await,
            Self::Int(tensor) => T::int_into_data(tensor).await,
            Self::Bool(tensor) => T::bool_into_data(tensor).await,
        }
    }
}

/// Calls the op of a case. Returns `None` if no table of the contract has the op.
///
/// # Panics
///
/// Panics if the op takes other arguments, or the op panics.
pub fn call<T: Backend>(
    case: &Case,
    device: &T::Device,
    prepare: Prepare<'_, T>,
) -> Option<Vec<Value<T>>> {
    call_as(case, device, Types::of::<T>(device), prepare)
}

/// Calls the op of a case with tensors of the given element types.
///
/// # Panics
///
/// As [`call`].
pub fn call_as<T: Backend>(
    case: &Case,
    device: &T::Device,
    types: Types,
    prepare: Prepare<'_, T>,
) -> Option<Vec<Value<T>>> {
    call_with(CaseArguments { case, next: 0, device, types, prepare, inputs: None })
}

/// Calls the op of a case with the tensors of the first such call.
///
/// # Panics
///
/// As [`call`].
pub fn call_with_inputs<T: Backend>(
    case: &Case,
    device: &T::Device,
    inputs: &mut CaseInputs<T>,
) -> Option<Vec<Value<T>>> {
    call_with(CaseArguments {
        case,
        next: 0,
        device,
        types: Types::of::<T>(device),
        prepare: &mut |tensor| tensor,
        inputs: Some(inputs),
    })
}

fn call_with<T: Backend>(mut arguments: CaseArguments<'_, T>) -> Option<Vec<Value<T>>> {
    let values = dispatch(&mut arguments)?;
    let case = arguments.case;
    assert_eq!(arguments.next, case.args.len(), "{case:?} has more arguments than the op");
    Some(values)
}

/// Passes an argument to a method: slices by reference, others by value.
macro_rules! operand {
    ($arg:ident Slices) => {
        &$arg
    };
    ($arg:ident $kind:ident) => {
        $arg
    };
}

/// Calls the op of a case that is beyond Burn's contract. Returns `None` if it is not in the table
/// of such ops.
///
/// # Panics
///
/// As [`call`].
pub fn call_extension(case: &Case, device: &WgslDevice) -> Option<Vec<Value<Wgsl>>> {
    macro_rules! calls {
        ($(
            $(#[$doc:meta])*
            $name:ident($($arg:ident: $kind:ident),* $(,)?) -> $ret:ident $(as $conversion:ident)?
                $(under $rule:ident)? $(gradient $gradient:ident)?
                = $launch:expr, else $cpu:ident;
        )*) => {
            |args: &mut CaseArguments<'_, Wgsl>| match args.case.op {
                $(stringify!($name) => {
                    $(let $arg = args.$kind();)*
                    Some(results::$ret::<Wgsl>(Wgsl::$name($(operand!($arg $kind)),*)))
                })*
                _ => None,
            }
        };
    }
    let mut arguments = CaseArguments {
        case,
        next: 0,
        device,
        types: Types::of::<Wgsl>(device),
        prepare: &mut |tensor| tensor,
        inputs: None,
    };
    super::extension::extension_contract!(calls)(&mut arguments)
}

/// Generates calls from the rows of a table of the contract.
macro_rules! calls {
    ($(
        $name:ident($($arg:ident: $kind:ident),* $(,)?) -> $ret:ident $(as $conversion:ident)?
            $(under $rule:ident)? $(gradient $gradient:ident)?
            $(= $launch:expr $(, else $cpu:ident)?)?;
    )*) => {
        pub(super) fn table<T: Backend>(args: &mut CaseArguments<'_, T>) -> Option<Vec<Value<T>>> {
            match args.case.op {
                $(stringify!($name) => {
                    $(let $arg = args.$kind();)*
                    Some(results::$ret::<T>(T::$name($(operand!($arg $kind)),*)))
                })*
                _ => None,
            }
        }
    };
}

/// Generates calls from the rows of the elementwise table.
macro_rules! elementwise_calls {
    ($kind:ident: $($form:ident $name:ident $(under $rule:ident)? $wgsl:literal $reference:ident $function:expr;)*) => {
        pub(super) fn elementwise<T: Backend>(
            args: &mut CaseArguments<'_, T>,
        ) -> Option<Vec<Value<T>>> {
            $(if args.case.op == stringify!($name) {
                return Some(elementwise_calls!(@$form $kind $name args));
            })*
            None
        }
    };
    (@unary $kind:ident $name:ident $args:ident) => {{
        let tensor = $args.$kind();
        results::$kind::<T>(T::$name(tensor))
    }};
    (@predicate $kind:ident $name:ident $args:ident) => {{
        let tensor = $args.$kind();
        let dtype = $args.BoolType();
        results::B::<T>(T::$name(tensor, dtype))
    }};
    (@binary $kind:ident $name:ident $args:ident) => {{
        let lhs = $args.$kind();
        let rhs = $args.$kind();
        results::$kind::<T>(T::$name(lhs, rhs))
    }};
    (@scalar $kind:ident $name:ident $args:ident) => {{
        let lhs = $args.$kind();
        let rhs = $args.Scalar();
        results::$kind::<T>(T::$name(lhs, rhs))
    }};
    (@two_scalars $kind:ident $name:ident $args:ident) => {{
        let tensor = $args.$kind();
        let first = $args.Scalar();
        let second = $args.Scalar();
        results::$kind::<T>(T::$name(tensor, first, second))
    }};
    (@limit $kind:ident $name:ident $args:ident) => {
        elementwise_calls!(@scalar $kind $name $args)
    };
    (@limits $kind:ident $name:ident $args:ident) => {
        elementwise_calls!(@two_scalars $kind $name $args)
    };
    (@compare $kind:ident $name:ident $args:ident) => {{
        let lhs = $args.$kind();
        let rhs = $args.$kind();
        let dtype = $args.BoolType();
        results::B::<T>(T::$name(lhs, rhs, dtype))
    }};
    (@compare_scalar $kind:ident $name:ident $args:ident) => {{
        let lhs = $args.$kind();
        let rhs = $args.Scalar();
        let dtype = $args.BoolType();
        results::B::<T>(T::$name(lhs, rhs, dtype))
    }};
}

/// Methods that Burn composes from others. They have cases, but no rows.
macro_rules! composed_contract {
    ($apply:ident) => {
        $apply! {
            prelu(tensor: F, alpha: F) -> F;
            softmin(tensor: F, dim: Axis) -> F;
            max_pool1d(
                x: F, kernel: Size, stride: Size, padding: Size, dilation: Size, ceil_mode: Flag,
            ) -> F;
            max_pool1d_with_indices(
                x: F, kernel: Size, stride: Size, padding: Size, dilation: Size, ceil_mode: Flag,
            ) -> Pooled1;
            avg_pool1d(
                x: F, kernel: Size, stride: Size, padding: Size, count_include_pad: Flag,
                ceil_mode: Flag,
            ) -> F;
            avg_pool1d_backward(
                x: F, grad: F, kernel: Size, stride: Size, padding: Size, count_include_pad: Flag,
                ceil_mode: Flag,
            ) -> F;
            adaptive_avg_pool1d(x: F, output_size: Size) -> F;
            adaptive_avg_pool1d_backward(x: F, grad: F) -> F;
            float_powi_scalar(lhs: F, rhs: Scalar) -> F;
            float_powf_scalar(lhs: F, rhs: Scalar) -> F;
            int_powi_scalar(lhs: I, rhs: Scalar) -> I;
        }
    };
}

/// Generates a module per table, because the generated functions have the same name.
macro_rules! modules {
    ($($module:ident $table:ident $generator:ident;)*) => {
        $(mod $module {
            use super::*;
            $table!($generator);
        })*
    };
}

use super::activation::activation_contract;
use super::boolean::bool_contract;
use super::float::float_contract;
use super::int::int_contract;
use super::module::module_contract;
use crate::kernels::ops::table::{activation_rows, bool_rows, float_rows, int_rows};

modules! {
    float float_contract calls;
    int int_contract calls;
    boolean bool_contract calls;
    activation activation_contract calls;
    module module_contract calls;
    composed composed_contract calls;
    float_table float_rows elementwise_calls;
    int_table int_rows elementwise_calls;
    bool_table bool_rows elementwise_calls;
    activation_table activation_rows elementwise_calls;
}

fn dispatch<T: Backend>(args: &mut CaseArguments<'_, T>) -> Option<Vec<Value<T>>> {
    float_table::elementwise(args)
        .or_else(|| int_table::elementwise(args))
        .or_else(|| bool_table::elementwise(args))
        .or_else(|| activation_table::elementwise(args))
        .or_else(|| float::table(args))
        .or_else(|| int::table(args))
        .or_else(|| boolean::table(args))
        .or_else(|| activation::table(args))
        .or_else(|| module::table(args))
        .or_else(|| composed::table(args))
}

/// Functions that convert a result to values, one per kind.
mod results {
    use super::*;

    pub fn F<T: Backend>(tensor: FloatTensor<T>) -> Vec<Value<T>> {
        vec![Value::Float(tensor)]
    }

    pub fn I<T: Backend>(tensor: IntTensor<T>) -> Vec<Value<T>> {
        vec![Value::Int(tensor)]
    }

    pub fn B<T: Backend>(tensor: BoolTensor<T>) -> Vec<Value<T>> {
        vec![Value::Bool(tensor)]
    }

    pub fn FI<T: Backend>((first, second): (FloatTensor<T>, IntTensor<T>)) -> Vec<Value<T>> {
        vec![Value::Float(first), Value::Int(second)]
    }

    pub fn II<T: Backend>((first, second): (IntTensor<T>, IntTensor<T>)) -> Vec<Value<T>> {
        vec![Value::Int(first), Value::Int(second)]
    }

    pub fn FF<T: Backend>((first, second): (FloatTensor<T>, FloatTensor<T>)) -> Vec<Value<T>> {
        vec![Value::Float(first), Value::Float(second)]
    }

    pub fn F3<T: Backend>(
        (first, second, third): (FloatTensor<T>, FloatTensor<T>, FloatTensor<T>),
    ) -> Vec<Value<T>> {
        vec![Value::Float(first), Value::Float(second), Value::Float(third)]
    }

    pub fn Pooled<T: Backend>(pooled: MaxPool2dWithIndices<T>) -> Vec<Value<T>> {
        vec![Value::Float(pooled.output), Value::Int(pooled.indices)]
    }

    pub fn PooledBackward<T: Backend>(grad: MaxPool2dBackward<T>) -> Vec<Value<T>> {
        vec![Value::Float(grad.x_grad)]
    }

    pub fn Pooled1<T: Backend>(pooled: MaxPool1dWithIndices<T>) -> Vec<Value<T>> {
        vec![Value::Float(pooled.output), Value::Int(pooled.indices)]
    }

    pub fn DeformBackward<T: Backend>(grads: DeformConv2dBackward<T>) -> Vec<Value<T>> {
        let always = [grads.x_grad, grads.offset_grad, grads.weight_grad];
        always.into_iter().chain(grads.mask_grad).chain(grads.bias_grad).map(Value::Float).collect()
    }
}
