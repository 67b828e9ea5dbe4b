//! Calling an op of the contract by its name, on any backend: how the case list becomes a test, a gradient
//! check or a benchmark.
//!
//! The arguments of an op are read one after another from [`Arguments`], each by its kind. The calls are
//! made from the tables of the contract: an op that is in a table can be called without another line.

#![expect(non_snake_case, reason = "readers and writers are named after the kinds of the tables")]

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
use crate::kernels::cases::Case;

/// What is done to a float tensor before an op sees it: a gradient check tracks it here.
pub type Prepare<'a, T> = &'a mut dyn FnMut(FloatTensor<T>) -> FloatTensor<T>;

/// The arguments of a case, made into a backend's tensors as they are read.
pub struct Arguments<'a, T: Backend> {
    case: &'a Case,
    next: usize,
    device: &'a T::Device,
    types: Types,
    prepare: Prepare<'a, T>,
    kept: Option<&'a mut Kept<T>>,
}

/// The tensors of a case, made once for many calls: what a benchmark must not measure.
#[derive(Debug)]
pub struct Kept<T: Backend>(BTreeMap<usize, Value<T>>);

impl<T: Backend> Default for Kept<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

/// The element types in which a case is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Types {
    /// Of float tensors.
    pub float: FloatDType,
    /// Whose numbers float tensors are filled with.
    pub rounded: FloatDType,
    /// Of integer tensors, indices among them.
    pub int: IntDType,
}

impl Types {
    /// A device's own.
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
    /// A tensor of truth values.
    Bool(BoolTensor<T>),
}

impl<T: Backend> Value<T> {
    /// Reads the tensor back.
    ///
    /// # Errors
    ///
    /// When the device fails.
    pub async fn into_data(self) -> Result<TensorData, burn_backend::ExecutionError> {
        match self {
            Self::Float(tensor) => T::float_into_data(tensor).await,
            Self::Int(tensor) => T::int_into_data(tensor).await,
            Self::Bool(tensor) => T::bool_into_data(tensor).await,
        }
    }
}

/// Calls the op of a case. `None` when no table of the contract has it.
///
/// # Panics
///
/// When the case's arguments are not those of the op, or the op itself panics.
pub fn call<T: Backend>(
    case: &Case,
    device: &T::Device,
    prepare: Prepare<'_, T>,
) -> Option<Vec<Value<T>>> {
    call_as(case, device, Types::of::<T>(device), prepare)
}

/// The same, with tensors of these element types.
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
    call_with(Arguments { case, next: 0, device, types, prepare, kept: None })
}

/// The same as [`call`], with the tensors of the first such call.
///
/// # Panics
///
/// As [`call`].
pub fn call_again<T: Backend>(
    case: &Case,
    device: &T::Device,
    kept: &mut Kept<T>,
) -> Option<Vec<Value<T>>> {
    call_with(Arguments {
        case,
        next: 0,
        device,
        types: Types::of::<T>(device),
        prepare: &mut |tensor| tensor,
        kept: Some(kept),
    })
}

fn call_with<T: Backend>(mut arguments: Arguments<'_, T>) -> Option<Vec<Value<T>>> {
    let values = named(&mut arguments)?;
    let case = arguments.case;
    assert_eq!(arguments.next, case.args.len(), "{case:?} has arguments that the op does not take");
    Some(values)
}

/// Calls the op of a case that is beyond Burn's contract, on this backend.
///
/// # Panics
///
/// As [`call`].
pub fn call_extension(case: &Case, device: &WgslDevice) -> Option<Vec<Value<Wgsl>>> {
    macro_rules! calls {
        ($($(#[$doc:meta])* $name:ident($($arg:ident: $kind:ident),* $(,)?) -> $ret:ident = $gpu:expr, else $twin:expr;)*) => {
            |args: &mut Arguments<'_, Wgsl>| match args.case.op {
                $(stringify!($name) => {
                    $(let $arg = args.$kind();)*
                    Some(results::$ret::<Wgsl>(Wgsl::$name($($arg),*)))
                })*
                _ => None,
            }
        };
    }
    let mut arguments = Arguments {
        case,
        next: 0,
        device,
        types: Types::of::<Wgsl>(device),
        prepare: &mut |tensor| tensor,
        kept: None,
    };
    super::extension::extension_contract!(calls)(&mut arguments)
}

/// Makes the arms of a call from rows of a table of the contract.
macro_rules! calls {
    ($($name:ident($($arg:ident: $kind:ident),* $(,)?) -> $ret:ident $(as $types:ident)? $(= $gpu:expr $(, else $twin:expr)?)?;)*) => {
        pub(super) fn table<T: Backend>(args: &mut Arguments<'_, T>) -> Option<Vec<Value<T>>> {
            match args.case.op {
                $(stringify!($name) => {
                    $(let $arg = args.$kind();)*
                    Some(results::$ret::<T>(T::$name($($arg),*)))
                })*
                _ => None,
            }
        }
    };
}

/// The same for rows of the elementwise table.
macro_rules! elementwise_calls {
    ($kind:ident: $($shape:ident $name:ident $wgsl:literal $truth:ident $closure:expr;)*) => {
        pub(super) fn elementwise<T: Backend>(args: &mut Arguments<'_, T>) -> Option<Vec<Value<T>>> {
            $(if args.case.op == stringify!($name) {
                return Some(elementwise_calls!(@$shape $kind $name args));
            })*
            None
        }
    };
    (@unary $kind:ident $name:ident $args:ident) => {{
        let tensor = $args.$kind();
        results::$kind::<T>(T::$name(tensor))
    }};
    (@query $kind:ident $name:ident $args:ident) => {{
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
        let rhs = $args.Number();
        results::$kind::<T>(T::$name(lhs, rhs))
    }};
    (@scalars $kind:ident $name:ident $args:ident) => {{
        let tensor = $args.$kind();
        let first = $args.Number();
        let second = $args.Number();
        results::$kind::<T>(T::$name(tensor, first, second))
    }};
    (@least $kind:ident $name:ident $args:ident) => {
        elementwise_calls!(@scalar $kind $name $args)
    };
    (@most $kind:ident $name:ident $args:ident) => {
        elementwise_calls!(@scalar $kind $name $args)
    };
    (@limits $kind:ident $name:ident $args:ident) => {
        elementwise_calls!(@scalars $kind $name $args)
    };
    (@compare $kind:ident $name:ident $args:ident) => {{
        let lhs = $args.$kind();
        let rhs = $args.$kind();
        let dtype = $args.BoolType();
        results::B::<T>(T::$name(lhs, rhs, dtype))
    }};
    (@compare_scalar $kind:ident $name:ident $args:ident) => {{
        let lhs = $args.$kind();
        let rhs = $args.Number();
        let dtype = $args.BoolType();
        results::B::<T>(T::$name(lhs, rhs, dtype))
    }};
}

/// Methods that are Burn's compositions of others: no row, but cases.
macro_rules! composed_contract {
    ($apply:ident) => {
        $apply! {
            prelu(tensor: F, alpha: F) -> F;
            softmin(tensor: F, dim: Size) -> F;
            max_pool1d(x: F, kernel: Size, stride: Size, padding: Size, dilation: Size, ceil_mode: Switch) -> F;
            max_pool1d_with_indices(x: F, kernel: Size, stride: Size, padding: Size, dilation: Size, ceil_mode: Switch) -> Pooled1;
            avg_pool1d(x: F, kernel: Size, stride: Size, padding: Size, count_include_pad: Switch, ceil_mode: Switch) -> F;
            adaptive_avg_pool1d(x: F, output_size: Size) -> F;
            avg_pool1d_backward(x: F, grad: F, kernel: Size, stride: Size, padding: Size, count_include_pad: Switch, ceil_mode: Switch) -> F;
            adaptive_avg_pool1d_backward(x: F, grad: F) -> F;
            float_powi_scalar(lhs: F, rhs: Number) -> F;
            float_powf_scalar(lhs: F, rhs: Number) -> F;
            int_powi_scalar(lhs: I, rhs: Number) -> I;
        }
    };
}

/// Each table gets a module, so that each can have functions of the same names.
macro_rules! modules {
    ($($module:ident $table:ident $maker:ident;)*) => {
        $(mod $module {
            use super::*;
            $table!($maker);
        })*
    };
}

use super::activation::activation_contract;
use super::boolean::bool_contract;
use super::float::float_contract;
use super::int::int_contract;
use super::module::module_contract;
use crate::kernels::table::{activation_rows, bool_rows, float_rows, int_rows};

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

fn named<T: Backend>(args: &mut Arguments<'_, T>) -> Option<Vec<Value<T>>> {
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

/// Results of each kind, as values.
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
