//! Elementwise computations as data.

use smallvec::{SmallVec, smallvec};

use crate::tensor::DType;

/// The expression of a conversion to another type, from or to 16 bits for example.
pub(crate) const CONVERSION: &str = "a";
/// The expression of a constant.
pub(crate) const CONSTANT: &str = "s";

/// A scalar operand.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ScalarValue {
    /// A float.
    Float(f32),
    /// An integer of any type.
    Int(i128),
    /// A boolean.
    Bool(bool),
}

impl ScalarValue {
    /// Returns the bits of the value in a compute type. Integers wrap.
    pub(crate) fn bits(self, dtype: DType) -> u64 {
        match self {
            Self::Float(x) if dtype.is_float() => x.to_bits().into(),
            Self::Int(x) if dtype.is_float() => (x as f32).to_bits().into(),
            Self::Float(x) => x as i128 as u64,
            Self::Int(x) => x as u64,
            Self::Bool(x) if dtype.is_float() => f32::from(u8::from(x)).to_bits().into(),
            Self::Bool(x) => x.into(),
        }
    }
}

/// An elementwise computation: a WGSL expression of the elements `a`, `b`, `c`, the scalars `s`,
/// `t` and the element's index `i`.
#[derive(Debug, Clone)]
pub struct Map {
    /// The WGSL expression.
    pub expr: &'static str,
    /// The type of the result.
    pub out_type: DType,
    /// The scalars `s` and `t`.
    pub scalars: SmallVec<[ScalarValue; 2]>,
    /// The type of the scalars.
    pub scalar_type: DType,
}

impl Map {
    /// Creates a computation without scalars.
    pub fn new(expr: &'static str, out_type: DType) -> Self {
        Self { expr, out_type, scalars: smallvec![], scalar_type: out_type }
    }

    /// Adds scalars of a type: `s`, then `t`.
    #[must_use]
    pub fn with(mut self, scalars: &[ScalarValue], dtype: DType) -> Self {
        self.scalars = scalars.into();
        self.scalar_type = dtype;
        self
    }
}
