//! Cases as plain data: which op, on what. Tests, gradient checks and benches walk them.

use super::grid_sample::Padding;
use super::interpolate::Mode;
use crate::tensor::Shape;

/// The content and layout of a tensor that a case calls for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Input {
    /// What the elements are.
    pub fill: Fill,
    /// The shape in memory.
    pub shape: &'static [usize],
    /// The order in which the op sees the axes; empty for as they are.
    pub axes: &'static [usize],
}

/// What a tensor's elements are. Random content depends on the place of the argument in its case alone.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fill {
    /// Floats from a normal distribution, a few of them zero.
    Normal,
    /// Floats in (0.1, 1.1).
    Positive,
    /// Integers in -9..=9.
    Ints,
    /// Integers in `0..n`.
    Below(usize),
    /// Reference values.
    Truths,
    /// These integers.
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

/// One argument of an op.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Arg {
    /// A tensor, whose fill tells its kind.
    Tensor(Input),
    /// Several tensors, joined by one argument.
    Tensors(&'static [Input]),
    /// No tensor where one is optional.
    Without,
    /// A size, axis or count, or an integer scalar.
    Int(i64),
    /// A float scalar.
    Float(f64),
    /// A switch.
    Switch(bool),
    /// Sizes: a shape, axes, a kernel's size, strides.
    Sizes(&'static [usize]),
    /// Slices: start, end (negative from the end), step for each axis.
    Slices(&'static [(isize, Option<isize>, isize)]),
    /// A convolution's options: stride, padding, dilation, groups.
    Conv(PerAxis, PerAxis, PerAxis, usize),
    /// A transposed convolution's options: stride, padding, extra padding, dilation, groups.
    ConvTransposed(PerAxis, PerAxis, PerAxis, PerAxis, usize),
    /// A deformable convolution's options: stride, padding, dilation, groups of the weight and of the offset.
    Deform(PerAxis, PerAxis, PerAxis, usize, usize),
    /// How a scatter combines.
    Update(super::index_nd::Update),
    /// Options of resizing: how, and whether corners are aligned.
    Interpolate(Mode, bool),
    /// Options of sampling on a grid: how, what lies outside, and whether corners are aligned.
    GridSample(Mode, Padding, bool),
    /// Options of attention: scale, softcap, whether it is causal.
    Attention(Option<f64>, Option<f64>, bool),
    /// The device's default float type.
    FloatType,
    /// The device's default integer type.
    IntType,
    /// The device's default type for truth values.
    BoolType,
}

/// A number for each axis that a convolution moves along.
pub type PerAxis = &'static [usize];

/// An op and its arguments.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Case {
    /// The method's name in Burn's contract.
    pub op: &'static str,
    /// The arguments in the method's order, without the device.
    pub args: &'static [Arg],
}

/// A case.
pub const fn case(op: &'static str, args: &'static [Arg]) -> Case {
    Case { op, args }
}

const fn input(fill: Fill, shape: &'static [usize]) -> Arg {
    Arg::Tensor(Input { fill, shape, axes: &[] })
}

/// Random floats.
pub const fn normal(shape: &'static [usize]) -> Arg {
    input(Fill::Normal, shape)
}

/// Random floats above zero.
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

/// Random truth values.
pub const fn truths(shape: &'static [usize]) -> Arg {
    input(Fill::Truths, shape)
}

/// These integers.
pub const fn given(values: &'static [i64], shape: &'static [usize]) -> Arg {
    input(Fill::Given(values), shape)
}

/// Random floats of `shape` whose axes the op sees in another order.
pub const fn permuted(shape: &'static [usize], axes: &'static [usize]) -> Arg {
    Arg::Tensor(Input { fill: Fill::Normal, shape, axes })
}

/// Every case of every family. Rows of the elementwise table need none: their shapes are cases enough.
pub fn all() -> impl Iterator<Item = &'static Case> {
    super::FAMILY_CASES.iter().copied().flatten()
}

impl Case {
    /// Whether the case says something in floats of 16 bits: it has floats, and rounding them makes no ties, of elements or of
    /// places between two pixels, which each implementation decides in its own way.
    pub fn holds_in_half(&self) -> bool {
        let floats = |arg: &Arg| match arg {
            Arg::Tensor(input) => input.fill.is_float(),
            Arg::Tensors(inputs) => inputs.iter().any(|input| input.fill.is_float()),
            Arg::FloatType => true,
            _ => false,
        };
        let nearest = |arg: &Arg| matches!(arg, Arg::GridSample(Mode::Nearest, ..));
        let sorts = self.op.contains("argsort") || self.op.contains("sort_with_indices");
        self.args.iter().any(floats) && !sorts && !self.args.iter().any(nearest)
    }
}

impl Input {
    /// The shape that the op sees.
    pub fn seen(&self) -> Shape {
        if self.axes.is_empty() {
            return self.shape.into();
        }
        self.axes.iter().map(|&axis| self.shape[axis]).collect()
    }
}
