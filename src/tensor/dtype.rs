//! Element types.

/// The element type of a tensor on the GPU.
///
/// Kernels compute in the types of [`DType::COMPUTE_TYPES`]. The other types are only stored: two
/// 16-bit floats share a 32-bit word, and an 8- or 16-bit integer is stored as an i32.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DType {
    /// 32-bit floating point.
    F32,
    /// IEEE 754 half precision, computed in f32.
    F16,
    /// bfloat16, the upper 16 bits of an f32, computed in f32.
    BF16,
    /// 32-bit signed integer.
    I32,
    /// 32-bit unsigned integer.
    U32,
    /// 64-bit signed integer, on adapters that support 64-bit integers.
    I64,
    /// 64-bit unsigned integer, on adapters that support 64-bit integers.
    U64,
    /// 16-bit signed integer, stored and computed in an i32.
    I16,
    /// 8-bit signed integer, stored and computed in an i32.
    I8,
    /// 16-bit unsigned integer, stored and computed in an i32.
    U16,
    /// 8-bit unsigned integer, stored and computed in an i32.
    U8,
    /// Boolean, stored as a 32-bit 0 or 1.
    Bool,
}

impl DType {
    /// The compute types.
    pub const COMPUTE_TYPES: [Self; 6] =
        [Self::F32, Self::I32, Self::U32, Self::I64, Self::U64, Self::Bool];
    /// The integer compute types.
    pub const INTEGERS: [Self; 4] = [Self::I32, Self::U32, Self::I64, Self::U64];
    /// The 16-bit floats.
    pub const HALF_TYPES: [Self; 2] = [Self::F16, Self::BF16];

    /// Returns the size of an element in bytes.
    pub fn size(self) -> u64 {
        match self {
            Self::F16 | Self::BF16 => 2,
            Self::I64 | Self::U64 => 8,
            _ => 4,
        }
    }

    /// Returns the WGSL storage type of an element, or of two elements for 16-bit floats.
    pub fn wgsl(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::I32 | Self::I16 | Self::I8 | Self::U16 | Self::U8 => "i32",
            Self::U32 | Self::Bool | Self::F16 | Self::BF16 => "u32",
            Self::I64 => "i64",
            Self::U64 => "u64",
        }
    }

    /// Returns the compute type.
    #[must_use]
    pub fn compute_type(self) -> Self {
        match self {
            Self::F16 | Self::BF16 => Self::F32,
            Self::I16 | Self::I8 | Self::U16 | Self::U8 => Self::I32,
            other => other,
        }
    }

    /// Returns whether this is a 16-bit float.
    pub fn is_half(self) -> bool {
        matches!(self, Self::F16 | Self::BF16)
    }

    /// Returns whether this is a floating-point type.
    pub fn is_float(self) -> bool {
        self.compute_type() == Self::F32
    }

    /// Returns whether this is an integer type.
    pub fn is_integer(self) -> bool {
        Self::INTEGERS.contains(&self.compute_type())
    }

    /// Returns whether elements have 64 bits.
    pub fn is_64_bit(self) -> bool {
        self.size() == 8
    }

    /// Returns the smallest and the largest value of an integer or boolean type, or the full range
    /// of i128 for a floating-point type.
    pub fn range(self) -> (i128, i128) {
        match self {
            Self::I8 => (i8::MIN.into(), i8::MAX.into()),
            Self::I16 => (i16::MIN.into(), i16::MAX.into()),
            Self::I32 => (i32::MIN.into(), i32::MAX.into()),
            Self::I64 => (i64::MIN.into(), i64::MAX.into()),
            Self::U8 => (0, u8::MAX.into()),
            Self::U16 => (0, u16::MAX.into()),
            Self::U32 => (0, u32::MAX.into()),
            Self::U64 => (0, u64::MAX.into()),
            Self::Bool => (0, 1),
            Self::F32 | Self::F16 | Self::BF16 => (i128::MIN, i128::MAX),
        }
    }
}
