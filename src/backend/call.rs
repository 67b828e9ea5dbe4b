//! Calling an op of the contract by its name, on any backend: how the case list becomes a test, a gradient
//! check or a benchmark.
//!
//! The arguments of an op are read one after another from [`Arguments`], each by its kind. The calls are
//! made from the tables of the contract: an op that is in a table can be called without another line.

#![expect(
    non_snake_case,
    reason = "readers and writers are named after the kinds of the tables"
)]

use std::collections::BTreeMap;

use burn_backend::ops::{
    AttentionModuleOptions, ConvOptions, ConvTransposeOptions, DeformConv2dBackward,
    DeformConvOptions, GridSampleOptions, InterpolateOptions, MaxPool1dWithIndices,
    MaxPool2dBackward, MaxPool2dWithIndices,
};
use burn_backend::tensor::{BoolTensor, FloatTensor, IndexingUpdateOp, IntTensor};
use burn_backend::{Backend, DType, Scalar, TensorData, get_device_settings};
use burn_std::{BoolDType, FloatDType, IntDType, Slice};

use super::contract::prelude::*;
use crate::kernels::cases::{Arg, Case, Fill, Input};
use crate::kernels::random::{Draw, Stream, floats, integers};

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
        Self {
            float: settings.float_dtype,
            rounded: settings.float_dtype,
            int: settings.int_dtype,
        }
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
    call_with(Arguments {
        case,
        next: 0,
        device,
        types,
        prepare,
        kept: None,
    })
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
    assert_eq!(
        arguments.next,
        case.args.len(),
        "{case:?} has arguments that the op does not take"
    );
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
    (@limit $kind:ident $name:ident $args:ident) => {
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

/// An input's elements: the same for every backend.
pub fn content(input: &Input, place: usize) -> TensorData {
    let len: usize = input.shape.iter().product();
    let stream = Stream::new(place as u64 + 1);
    let shape = input.shape.to_vec();
    match input.fill {
        Fill::Normal => {
            let mut values = floats(
                len,
                Draw::Normal {
                    mean: 0.0,
                    deviation: 1.0,
                },
                stream,
            );
            values
                .iter_mut()
                .skip(5)
                .step_by(17)
                .for_each(|value| *value = 0.0);
            TensorData::new(values, shape)
        }
        Fill::Positive => TensorData::new(
            floats(
                len,
                Draw::Uniform {
                    low: 0.1,
                    high: 1.1,
                },
                stream,
            ),
            shape,
        ),
        Fill::Ints => TensorData::new(
            integers(len, Draw::Ints { low: -9, width: 19 }, stream),
            shape,
        ),
        Fill::Below(n) => TensorData::new(
            integers(
                len,
                Draw::Ints {
                    low: 0,
                    width: n as u32,
                },
                stream,
            ),
            shape,
        ),
        Fill::Truths => {
            let coins = integers(len, Draw::Bernoulli { probability: 0.5 }, stream);
            TensorData::new(
                coins
                    .into_iter()
                    .map(|coin| coin == 1)
                    .collect::<Vec<bool>>(),
                shape,
            )
        }
        Fill::Given(values) => {
            TensorData::new(values.iter().map(|&value| value as i32).collect(), shape)
        }
    }
}

impl<'a, T: Backend> Arguments<'a, T> {
    fn take(&mut self) -> Arg {
        let arg = self.case.args.get(self.next).copied();
        self.next += 1;
        arg.unwrap_or_else(|| self.wrong("another argument"))
    }

    fn wrong(&self, wanted: &str) -> ! {
        panic!(
            "argument {} of {:?} should be {wanted}",
            self.next, self.case
        )
    }

    fn input(&mut self) -> Input {
        match self.take() {
            Arg::Tensor(input) => input,
            _ => self.wrong("a tensor"),
        }
    }

    fn inputs(&mut self) -> &'static [Input] {
        match self.take() {
            Arg::Tensors(inputs) => inputs,
            _ => self.wrong("tensors"),
        }
    }

    /// The tensor kept from an earlier call, or the one that is made now.
    fn keep(&mut self, place: usize, make: impl FnOnce(&mut Self) -> Value<T>) -> Value<T> {
        let kept = self.kept.as_ref().and_then(|kept| kept.0.get(&place));
        if let Some(value) = kept {
            return value.clone();
        }
        let value = make(self);
        if let Some(kept) = &mut self.kept {
            kept.0.insert(place, value.clone());
        }
        value
    }

    fn float(&mut self, input: &Input, place: usize) -> FloatTensor<T> {
        let value = self.keep(place, |args| {
            let data = content(input, place).convert_dtype(args.types.rounded.into());
            let data = data.convert_dtype(args.types.float.into());
            let tensor = T::float_from_data(data, args.device);
            Value::Float(if input.axes.is_empty() {
                tensor
            } else {
                T::float_permute(tensor, input.axes)
            })
        });
        match value {
            Value::Float(tensor) => (self.prepare)(tensor),
            _ => self.wrong("a float tensor"),
        }
    }

    fn int(&mut self, input: &Input, place: usize) -> IntTensor<T> {
        let value = self.keep(place, |args| {
            let mut data = content(input, place);
            if DType::from(args.types.int).is_uint() {
                // What a type without a sign cannot hold.
                let magnitudes = data.iter::<i32>().map(|x| x.unsigned_abs() as i32);
                data = TensorData::new(magnitudes.collect::<Vec<i32>>(), data.shape.clone());
            }
            let data = data.convert_dtype(args.types.int.into());
            let tensor = T::int_from_data(data, args.device);
            Value::Int(if input.axes.is_empty() {
                tensor
            } else {
                T::int_permute(tensor, input.axes)
            })
        });
        match value {
            Value::Int(tensor) => tensor,
            _ => self.wrong("an integer tensor"),
        }
    }

    fn truths(&mut self, input: &Input, place: usize) -> BoolTensor<T> {
        let value = self.keep(place, |args| {
            let tensor = T::bool_from_data(content(input, place), args.device);
            Value::Bool(if input.axes.is_empty() {
                tensor
            } else {
                T::bool_permute(tensor, input.axes)
            })
        });
        match value {
            Value::Bool(tensor) => tensor,
            _ => self.wrong("a tensor of truth values"),
        }
    }

    fn F(&mut self) -> FloatTensor<T> {
        let input = self.input();
        self.float(&input, self.next)
    }

    fn I(&mut self) -> IntTensor<T> {
        let input = self.input();
        self.int(&input, self.next)
    }

    fn B(&mut self) -> BoolTensor<T> {
        let input = self.input();
        self.truths(&input, self.next)
    }

    fn OptF(&mut self) -> Option<FloatTensor<T>> {
        if self.case.args.get(self.next) == Some(&Arg::Without) {
            self.next += 1;
            return None;
        }
        Some(self.F())
    }

    fn OptB(&mut self) -> Option<BoolTensor<T>> {
        if self.case.args.get(self.next) == Some(&Arg::Without) {
            self.next += 1;
            return None;
        }
        Some(self.B())
    }

    fn ManyF(&mut self) -> Vec<FloatTensor<T>> {
        let inputs = self.inputs();
        inputs
            .iter()
            .enumerate()
            .map(|(place, input)| self.float(input, 100 + place))
            .collect()
    }

    fn ManyI(&mut self) -> Vec<IntTensor<T>> {
        let inputs = self.inputs();
        inputs
            .iter()
            .enumerate()
            .map(|(place, input)| self.int(input, 100 + place))
            .collect()
    }

    fn ManyB(&mut self) -> Vec<BoolTensor<T>> {
        let inputs = self.inputs();
        inputs
            .iter()
            .enumerate()
            .map(|(place, input)| self.truths(input, 100 + place))
            .collect()
    }

    fn Size(&mut self) -> usize {
        match self.take() {
            Arg::Int(value) => value as usize,
            _ => self.wrong("a size"),
        }
    }

    fn OptSize(&mut self) -> Option<usize> {
        match self.take() {
            Arg::Int(value) => Some(value as usize),
            Arg::Without => None,
            _ => self.wrong("a size or none"),
        }
    }

    fn Real(&mut self) -> f64 {
        match self.take() {
            Arg::Float(value) => value,
            _ => self.wrong("a number"),
        }
    }

    fn Number(&mut self) -> Scalar {
        match self.take() {
            Arg::Int(value) => Scalar::Int(value),
            Arg::Float(value) => Scalar::Float(value),
            Arg::Switch(value) => Scalar::Bool(value),
            _ => self.wrong("a scalar"),
        }
    }

    fn Switch(&mut self) -> bool {
        match self.take() {
            Arg::Switch(value) => value,
            _ => self.wrong("a switch"),
        }
    }

    fn Axes(&mut self) -> &'static [usize] {
        match self.take() {
            Arg::Sizes(sizes) => sizes,
            _ => self.wrong("sizes"),
        }
    }

    fn Shape(&mut self) -> burn_std::Shape {
        burn_std::Shape::from(self.Axes().to_vec())
    }

    fn Pair(&mut self) -> [usize; 2] {
        match self.Axes() {
            [first, second] => [*first, *second],
            _ => self.wrong("two sizes"),
        }
    }

    fn Range(&mut self) -> std::ops::Range<i64> {
        match (self.take(), self.take()) {
            (Arg::Int(start), Arg::Int(end)) => start..end,
            _ => self.wrong("the ends of a range"),
        }
    }

    /// Slices live as long as the program: a case list is short.
    fn Slices(&mut self) -> &'static [Slice] {
        match self.take() {
            Arg::Slices(slices) => {
                let slices = slices
                    .iter()
                    .map(|&(start, end, step)| Slice::new(start, end, step));
                Vec::leak(slices.collect())
            }
            _ => self.wrong("slices"),
        }
    }

    fn Device(&self) -> &'a T::Device {
        self.device
    }

    fn FloatType(&mut self) -> FloatDType {
        match self.take() {
            Arg::FloatType => self.types.float,
            _ => self.wrong("the float type"),
        }
    }

    fn IntType(&mut self) -> IntDType {
        match self.take() {
            Arg::IntType => self.types.int,
            _ => self.wrong("the integer type"),
        }
    }

    fn BoolType(&mut self) -> BoolDType {
        match self.take() {
            Arg::BoolType => get_device_settings::<T>(self.device).bool_dtype,
            _ => self.wrong("the type of truth values"),
        }
    }

    fn conv<const N: usize>(&mut self) -> ConvOptions<N> {
        match self.take() {
            Arg::Conv(stride, padding, dilation, groups) => ConvOptions::new(
                self.per_axis(stride),
                self.per_axis(padding),
                self.per_axis(dilation),
                groups,
            ),
            _ => self.wrong("a convolution's options"),
        }
    }

    fn conv_transposed<const N: usize>(&mut self) -> ConvTransposeOptions<N> {
        match self.take() {
            Arg::ConvTransposed(stride, padding, extra, dilation, groups) => {
                ConvTransposeOptions::new(
                    self.per_axis(stride),
                    self.per_axis(padding),
                    self.per_axis(extra),
                    self.per_axis(dilation),
                    groups,
                )
            }
            _ => self.wrong("a transposed convolution's options"),
        }
    }

    fn per_axis<const N: usize>(&self, sizes: &[usize]) -> [usize; N] {
        match sizes.try_into() {
            Ok(sizes) => sizes,
            Err(_) => self.wrong("options with a number for each axis"),
        }
    }

    fn Unfold(&mut self) -> burn_backend::ops::UnfoldOptions {
        let ConvOptions {
            stride,
            padding,
            dilation,
            ..
        } = self.Conv2();
        burn_backend::ops::UnfoldOptions::new(stride, padding, dilation)
    }

    fn Conv1(&mut self) -> ConvOptions<1> {
        self.conv()
    }

    fn Conv2(&mut self) -> ConvOptions<2> {
        self.conv()
    }

    fn Conv3(&mut self) -> ConvOptions<3> {
        self.conv()
    }

    fn ConvT1(&mut self) -> ConvTransposeOptions<1> {
        self.conv_transposed()
    }

    fn ConvT2(&mut self) -> ConvTransposeOptions<2> {
        self.conv_transposed()
    }

    fn ConvT3(&mut self) -> ConvTransposeOptions<3> {
        self.conv_transposed()
    }

    fn Deform(&mut self) -> DeformConvOptions<2> {
        match self.take() {
            Arg::Deform(stride, padding, dilation, groups, offset_groups) => {
                DeformConvOptions::new(
                    self.per_axis(stride),
                    self.per_axis(padding),
                    self.per_axis(dilation),
                    groups,
                    offset_groups,
                )
            }
            _ => self.wrong("a deformable convolution's options"),
        }
    }

    fn Interpolate(&mut self) -> InterpolateOptions {
        match self.take() {
            Arg::Interpolate(mode, align_corners) => {
                InterpolateOptions::new(mode.into()).with_align_corners(align_corners)
            }
            _ => self.wrong("the options of resizing"),
        }
    }

    fn GridSample(&mut self) -> GridSampleOptions {
        match self.take() {
            Arg::GridSample(mode, padding, align_corners) => GridSampleOptions::new(mode.into())
                .with_padding_mode(padding.into())
                .with_align_corners(align_corners),
            _ => self.wrong("the options of sampling on a grid"),
        }
    }

    fn Attention(&mut self) -> AttentionModuleOptions {
        match self.take() {
            Arg::Attention(scale, softcap, is_causal) => AttentionModuleOptions {
                scale,
                softcap,
                is_causal,
            },
            _ => self.wrong("options of attention"),
        }
    }

    fn Update(&mut self) -> IndexingUpdateOp {
        use crate::kernels::index_nd::Update;
        match self.take() {
            Arg::Update(Update::Assign) => IndexingUpdateOp::Assign,
            Arg::Update(Update::Add) => IndexingUpdateOp::Add,
            Arg::Update(Update::Mul) => IndexingUpdateOp::Mul,
            Arg::Update(Update::Min) => IndexingUpdateOp::Min,
            Arg::Update(Update::Max) => IndexingUpdateOp::Max,
            _ => self.wrong("how a scatter combines"),
        }
    }
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
        always
            .into_iter()
            .chain(grads.mask_grad)
            .chain(grads.bias_grad)
            .map(Value::Float)
            .collect()
    }
}
