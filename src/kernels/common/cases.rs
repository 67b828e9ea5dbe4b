//! Test cases as plain data: an op and its arguments. Correctness tests, gradient checks and
//! benchmarks iterate over them.

use super::options::{GridPadding, InterpolateMode, ScatterOp};
use crate::tensor::Shape;

/// The contents and layout of a tensor argument.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Input {
    /// The elements.
    pub fill: Fill,
    /// The shape in memory.
    pub shape: &'static [usize],
    /// The permutation of the axes that the op sees; empty for none.
    pub axes: &'static [usize],
}

/// The elements of a tensor. Random ones depend only on the position of the argument in its case.
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
    /// Whether the elements are floats.
    pub fn is_float(self) -> bool {
        matches!(self, Self::Normal | Self::Positive)
    }

    /// Whether the elements are integers.
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
    Without,
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
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Case {
    /// The name of the method in Burn's contract.
    pub op: &'static str,
    /// The arguments in the order of the method, without the device.
    pub args: &'static [Arg],
}

/// A case.
pub const fn case(op: &'static str, args: &'static [Arg]) -> Case {
    Case { op, args }
}

const fn input(fill: Fill, shape: &'static [usize]) -> Arg {
    Arg::Tensor(Input { fill, shape, axes: &[] })
}

/// Normally distributed floats.
pub const fn normal(shape: &'static [usize]) -> Arg {
    input(Fill::Normal, shape)
}

/// Random positive floats.
pub const fn positive(shape: &'static [usize]) -> Arg {
    input(Fill::Positive, shape)
}

/// Random integers.
pub const fn ints(shape: &'static [usize]) -> Arg {
    input(Fill::Ints, shape)
}

/// Random indices below `n`.
pub const fn below(n: usize, shape: &'static [usize]) -> Arg {
    input(Fill::Below(n), shape)
}

/// Random booleans.
pub const fn bools(shape: &'static [usize]) -> Arg {
    input(Fill::Bools, shape)
}

/// The given integers.
pub const fn given(values: &'static [i64], shape: &'static [usize]) -> Arg {
    input(Fill::Given(values), shape)
}

/// Normally distributed floats of `shape`, whose axes the op sees permuted.
pub const fn permuted(shape: &'static [usize], axes: &'static [usize]) -> Arg {
    Arg::Tensor(Input { fill: Fill::Normal, shape, axes })
}

impl Case {
    /// Whether the case is meaningful in 16-bit floats: it has floats, and rounding them makes no
    /// ties (of sorted elements, or of positions between two pixels), which implementations break
    /// differently.
    pub fn holds_in_half(&self) -> bool {
        let floats = |arg: &Arg| match arg {
            Arg::Tensor(input) => input.fill.is_float(),
            Arg::Tensors(inputs) => inputs.iter().any(|input| input.fill.is_float()),
            Arg::FloatType => true,
            _ => false,
        };
        let nearest = |arg: &Arg| matches!(arg, Arg::GridSample(InterpolateMode::Nearest, ..));
        let sorts = self.op.contains("argsort") || self.op.contains("sort_with_indices");
        self.args.iter().any(floats) && !sorts && !self.args.iter().any(nearest)
    }
}

impl Input {
    /// The shape that the op sees.
    pub fn visible_shape(&self) -> Shape {
        if self.axes.is_empty() {
            return self.shape.into();
        }
        self.axes.iter().map(|&axis| self.shape[axis]).collect()
    }
}
