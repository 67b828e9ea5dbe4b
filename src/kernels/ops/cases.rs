//! Test cases as plain data: an op and its arguments. Correctness tests, gradient checks and
//! benchmarks iterate over them.

use std::borrow::Cow;

use crate::kernels::ops::options::{GridPadding, InterpolateMode, ScatterOp};

/// The contents and layout of a tensor argument.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Input {
    /// The elements.
    pub fill: Fill,
    /// The shape in memory.
    pub shape: &'static [usize],
    /// The permutation of the axes that is applied before the op; empty for none.
    pub axes: &'static [usize],
}

/// The elements of a tensor argument. Random elements depend only on the position of the argument
/// in its case.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fill {
    /// Normally distributed floats, a few of them zero.
    Normal,
    /// Floats in (0.1, 1.1).
    Positive,
    /// Integers in -9..=9.
    Ints,
    /// Integers in `0..n`.
    Below(usize),
    /// Booleans.
    Bools,
    /// The given integers.
    Given(&'static [i64]),
}

impl Fill {
    /// Returns whether the elements are floats.
    pub fn is_float(self) -> bool {
        matches!(self, Self::Normal | Self::Positive)
    }

    /// Returns whether the elements are random integers; `false` for [`Fill::Given`].
    pub fn is_integer(self) -> bool {
        matches!(self, Self::Ints | Self::Below(_))
    }
}

/// An argument of an op.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Arg {
    /// A tensor; its fill determines the kind.
    Tensor(Input),
    /// A list of tensors.
    Tensors(&'static [Input]),
    /// An optional argument that is absent.
    Absent,
    /// A size, axis or count, or an integer scalar.
    Int(i64),
    /// A float scalar.
    Float(f64),
    /// A flag.
    Flag(bool),
    /// Sizes: a shape, axes, a kernel size, strides.
    Sizes(&'static [usize]),
    /// Slices: start, end (negative from the end) and step of each axis.
    Slices(&'static [(isize, Option<isize>, isize)]),
    /// Options of a convolution: stride, padding, dilation, groups.
    Conv(PerAxis, PerAxis, PerAxis, usize),
    /// Options of a transposed convolution: stride, padding, output padding, dilation, groups.
    ConvTransposed(PerAxis, PerAxis, PerAxis, PerAxis, usize),
    /// Options of a deformable convolution: stride, padding, dilation, groups of the weight and of
    /// the offset.
    Deform(PerAxis, PerAxis, PerAxis, usize, usize),
    /// How a scatter combines values.
    Scatter(ScatterOp),
    /// Options of interpolation: mode and `align_corners`.
    Interpolate(InterpolateMode, bool),
    /// Options of grid sampling: mode, padding and `align_corners`.
    GridSample(InterpolateMode, GridPadding, bool),
    /// Options of attention: scale, softcap, causal.
    Attention(Option<f64>, Option<f64>, bool),
    /// The device's default float type.
    FloatType,
    /// The device's default integer type.
    IntType,
    /// The device's default boolean type.
    BoolType,
}

/// A number for each spatial axis of a convolution.
pub type PerAxis = &'static [usize];

/// An op and its arguments.
#[derive(Debug, Clone, PartialEq)]
pub struct Case {
    /// The name of the method in Burn's contract.
    pub op: &'static str,
    /// The arguments in the order of the method, without the device.
    pub args: Cow<'static, [Arg]>,
}

/// Returns the case of an op and its arguments.
pub const fn case(op: &'static str, args: &'static [Arg]) -> Case {
    Case { op, args: Cow::Borrowed(args) }
}

/// Returns cases, each written as `op(arguments);`.
///
/// An argument is a shape in brackets (a tensor of normally distributed floats), `_` (absent), an integer, a flag, a
/// constant, or a call of a function of this module or of a variant of [`Arg`].
macro_rules! cases {
    ($($op:ident($($args:tt)*);)*) => {
        &[$($crate::kernels::ops::cases::case(stringify!($op), cases!(@args [] $($args)*))),*]
    };
    (@args [$($done:expr,)*]) => {
        &[$($done),*]
    };
    (@args [$($done:expr,)*] [$($shape:tt)*] $(, $($rest:tt)*)?) => {
        cases!(@args [$($done,)* $crate::kernels::ops::cases::normal(&[$($shape)*]),] $($($rest)*)?)
    };
    (@args [$($done:expr,)*] _ $(, $($rest:tt)*)?) => {
        cases!(@args [$($done,)* $crate::kernels::ops::cases::Arg::Absent,] $($($rest)*)?)
    };
    (@args [$($done:expr,)*] true $(, $($rest:tt)*)?) => {
        cases!(@args [$($done,)* $crate::kernels::ops::cases::Arg::Flag(true),] $($($rest)*)?)
    };
    (@args [$($done:expr,)*] false $(, $($rest:tt)*)?) => {
        cases!(@args [$($done,)* $crate::kernels::ops::cases::Arg::Flag(false),] $($($rest)*)?)
    };
    (@args [$($done:expr,)*] $int:literal $(, $($rest:tt)*)?) => {
        cases!(@args [$($done,)* $crate::kernels::ops::cases::Arg::Int($int),] $($($rest)*)?)
    };
    (@args [$($done:expr,)*] $arg:expr $(, $($rest:tt)*)?) => {
        cases!(@args [$($done,)* $arg,] $($($rest)*)?)
    };
}
pub(crate) use cases;

const fn input(fill: Fill, shape: &'static [usize]) -> Arg {
    Arg::Tensor(Input { fill, shape, axes: &[] })
}

/// Floats from the standard normal distribution, in a list of tensors.
pub const fn floats(shape: &'static [usize]) -> Input {
    Input { fill: Fill::Normal, shape, axes: &[] }
}

/// Returns an argument of normally distributed floats.
pub const fn normal(shape: &'static [usize]) -> Arg {
    input(Fill::Normal, shape)
}

/// Returns an argument of floats in (0.1, 1.1).
pub const fn positive(shape: &'static [usize]) -> Arg {
    input(Fill::Positive, shape)
}

/// Returns an argument of integers in -9..=9.
pub const fn ints(shape: &'static [usize]) -> Arg {
    input(Fill::Ints, shape)
}

/// Returns an argument of random indices in `0..n`.
pub const fn below(n: usize, shape: &'static [usize]) -> Arg {
    input(Fill::Below(n), shape)
}

/// Returns an argument of random booleans.
pub const fn bools(shape: &'static [usize]) -> Arg {
    input(Fill::Bools, shape)
}

/// Returns an argument of the given integers.
pub const fn given(values: &'static [i64], shape: &'static [usize]) -> Arg {
    input(Fill::Given(values), shape)
}

/// Returns an argument of normally distributed floats: a tensor of `shape`, permuted by `axes`.
pub const fn permuted(shape: &'static [usize], axes: &'static [usize]) -> Arg {
    Arg::Tensor(Input { fill: Fill::Normal, shape, axes })
}

impl Case {
    /// Returns whether implementations agree on the case in 16-bit floats: it has floats, and
    /// rounding them makes no ties. Implementations order equal elements differently, and choose
    /// differently between two pixels at the same distance.
    pub fn agrees_in_half(&self) -> bool {
        let has_floats = |arg: &Arg| match arg {
            Arg::Tensor(input) => input.fill.is_float(),
            Arg::Tensors(inputs) => inputs.iter().any(|input| input.fill.is_float()),
            Arg::FloatType => true,
            _ => false,
        };
        let is_nearest = |arg: &Arg| matches!(arg, Arg::GridSample(InterpolateMode::Nearest, ..));
        let sorts = self.op.contains("argsort") || self.op.contains("sort_with_indices");
        self.args.iter().any(has_floats) && !sorts && !self.args.iter().any(is_nearest)
    }
}
