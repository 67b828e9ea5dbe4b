//! A tensor on the GPU: a slice of memory, how its elements lie there, and what they are.

mod layout;

use std::sync::Arc;

use thiserror::Error;

pub use layout::{Layout, Shape, SliceAxis, Strides, broadcast, collapse};

use crate::runtime::{Allocation, Runtime, RuntimeError};

/// The element types of tensors on the GPU.
///
/// Kernels compute in [`DType::compute_type`] types. The others are stored: 16-bit floats two to a word, 8- and
/// 16-bit integers widened to a word each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DType {
    /// 32-bit floating point.
    F32,
    /// IEEE half precision, computed in f32.
    F16,
    /// The upper half of an f32, computed in f32.
    BF16,
    /// 32-bit signed integer.
    I32,
    /// 32-bit unsigned integer.
    U32,
    /// 64-bit signed integer, on adapters that have it.
    I64,
    /// 64-bit unsigned integer, on adapters that have it.
    U64,
    /// 16-bit signed integer, stored and computed in an i32.
    I16,
    /// 8-bit signed integer, stored and computed in an i32.
    I8,
    /// 16-bit unsigned integer, stored and computed in an i32.
    U16,
    /// 8-bit unsigned integer, stored and computed in an i32.
    U8,
    /// A truth value, stored as a 32-bit 0 or 1.
    Bool,
}

impl DType {
    /// The types that kernels compute in.
    pub const COMPUTE_TYPES: [Self; 6] =
        [Self::F32, Self::I32, Self::U32, Self::I64, Self::U64, Self::Bool];
    /// The types that kernels compute integers in.
    pub const INTEGERS: [Self; 4] = [Self::I32, Self::U32, Self::I64, Self::U64];
    /// Floats of 16 bits.
    pub const HALVES: [Self; 2] = [Self::F16, Self::BF16];

    /// Bytes per element.
    pub fn size(self) -> u64 {
        match self {
            Self::F16 | Self::BF16 => 2,
            Self::I64 | Self::U64 => 8,
            _ => 4,
        }
    }

    /// The WGSL type that an element is stored as; a word of two elements for 16-bit floats.
    pub fn wgsl(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::I32 | Self::I16 | Self::I8 | Self::U16 | Self::U8 => "i32",
            Self::U32 | Self::Bool | Self::F16 | Self::BF16 => "u32",
            Self::I64 => "i64",
            Self::U64 => "u64",
        }
    }

    /// The type that kernels compute in.
    #[must_use]
    pub fn compute_type(self) -> Self {
        match self {
            Self::F16 | Self::BF16 => Self::F32,
            Self::I16 | Self::I8 | Self::U16 | Self::U8 => Self::I32,
            other => other,
        }
    }

    /// Whether two elements share a word.
    pub fn is_half(self) -> bool {
        matches!(self, Self::F16 | Self::BF16)
    }

    /// Whether elements are numbers with a fraction.
    pub fn is_float(self) -> bool {
        self.compute_type() == Self::F32
    }

    /// Whether elements are whole numbers.
    pub fn is_integer(self) -> bool {
        Self::INTEGERS.contains(&self.compute_type())
    }

    /// Whether elements have 64 bits.
    pub fn is_64_bit(self) -> bool {
        self.size() == 8
    }

    /// The least and the greatest integer.
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

/// What can go wrong when a kernel is launched.
#[derive(Debug, Clone, Error)]
pub enum Error {
    /// The device could not do it.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// The shapes of the operands do not fit together.
    #[error("shapes {lhs:?} and {rhs:?} do not fit: {rule}")]
    Shape {
        /// The first operand's shape.
        lhs: Vec<usize>,
        /// The second operand's shape.
        rhs: Vec<usize>,
        /// What would fit.
        rule: &'static str,
    },
    /// More elements than a 32-bit index can tell apart.
    #[error(
        "a tensor of shape {shape:?} has more elements than a 32-bit index can address; split it"
    )]
    TooManyElements {
        /// The shape.
        shape: Vec<usize>,
    },
    /// An option that no kernel has.
    #[error("{0} is not supported")]
    Unsupported(&'static str),
    /// More axes than kernels walk.
    #[error(
        "a view of shape {shape:?} has more than {MAX_RANK} axes that cannot be merged; reshape it first"
    )]
    TooManyAxes {
        /// The shape after merging.
        shape: Vec<usize>,
    },
    /// The operands live on two devices.
    #[error("the operands are on two devices, {lhs} and {rhs}; move one with to_device")]
    Devices {
        /// The first operand's adapter.
        lhs: String,
        /// The second operand's adapter.
        rhs: String,
    },
}

/// The most axes a kernel walks, after [`collapse`].
pub const MAX_RANK: usize = 12;

/// The result of a launch.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A tensor on the GPU. Cloning shares the memory.
#[derive(Debug, Clone)]
pub struct Tensor {
    runtime: Arc<Runtime>,
    slice: Arc<Allocation>,
    layout: Layout,
    dtype: DType,
}

impl Tensor {
    /// Memory for a tensor, with undefined content, sharing no buffer with `inputs`.
    ///
    /// # Errors
    ///
    /// When it is too large for the device, or the memory is not there.
    pub fn empty(
        runtime: &Arc<Runtime>,
        shape: &[usize],
        dtype: DType,
        inputs: &[&Tensor],
    ) -> Result<Self> {
        let layout = Layout::contiguous(shape);
        let bytes = checked_bytes(shape, dtype)?;
        let avoid: smallvec::SmallVec<[&Allocation; 8]> =
            inputs.iter().map(|t| t.buffer()).collect();
        let slice = Arc::new(runtime.alloc(bytes, &avoid)?);
        Ok(Self { runtime: runtime.clone(), slice, layout, dtype })
    }

    /// Uploads elements in row-major order, as they are stored, filled up to whole words.
    ///
    /// # Errors
    ///
    /// As [`Tensor::empty`].
    pub fn upload(
        runtime: &Arc<Runtime>,
        shape: &[usize],
        dtype: DType,
        bytes: &[u8],
    ) -> Result<Self> {
        debug_assert_eq!(checked_bytes(shape, dtype)?, bytes.len() as u64);
        let slice = Arc::new(runtime.upload(bytes)?);
        Ok(Self { runtime: runtime.clone(), slice, layout: Layout::contiguous(shape), dtype })
    }

    /// This tensor's buffer, for binding. The only way to it: when elementwise results become lazy,
    /// this is where they are made real.
    pub fn buffer(&self) -> &Allocation {
        &self.slice
    }

    /// The buffer and how many of its bytes the elements take, in whole words, for reading back a contiguous tensor.
    pub fn part(&self) -> (Arc<Allocation>, u64) {
        (self.slice.clone(), (self.len() as u64 * self.dtype.size()).next_multiple_of(4))
    }

    /// The device.
    pub fn runtime(&self) -> &Arc<Runtime> {
        &self.runtime
    }

    /// How the elements lie.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Sizes of the axes.
    pub fn shape(&self) -> &[usize] {
        &self.layout.shape
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.layout.len()
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether nobody else holds the memory, so that it may be written in place.
    pub fn is_unique(&self) -> bool {
        Arc::strong_count(&self.slice) == 1
    }

    /// Whether the elements fill the buffer from its start, in row-major order.
    pub fn is_packed(&self) -> bool {
        self.layout.offset == 0 && self.layout.is_contiguous()
    }

    /// The same memory under another layout.
    #[must_use]
    pub fn view(&self, layout: Layout) -> Self {
        Self { layout, ..self.clone() }
    }

    /// The same memory and layout, its elements taken for another type.
    #[must_use]
    pub fn bitcast(mut self, dtype: DType) -> Self {
        self.dtype = dtype;
        self
    }

    /// Fails when `other` is on another device.
    ///
    /// # Errors
    ///
    /// Naming both devices.
    pub fn same_device(&self, other: &Tensor) -> Result<()> {
        if Arc::ptr_eq(&self.runtime, &other.runtime) {
            return Ok(());
        }
        Err(Error::Devices {
            lhs: self.runtime.info().name.clone(),
            rhs: other.runtime.info().name.clone(),
        })
    }
}

/// The bytes of a tensor in whole words, refused where indices of 32 bits would not do.
fn checked_bytes(shape: &[usize], dtype: DType) -> Result<u64> {
    let too_many = || Error::TooManyElements { shape: shape.to_vec() };
    let len = shape.iter().try_fold(1u64, |len, &size| len.checked_mul(size as u64));
    let len = len.filter(|&len| len <= u64::from(u32::MAX)).ok_or_else(too_many)?;
    Ok((len * dtype.size()).next_multiple_of(4))
}
