//! GPU tensors: an allocation, a layout and an element type.

mod dtype;
mod error;
mod layout;

use std::fmt;
use std::sync::Arc;

pub use dtype::DType;
pub use error::{Error, Result};
pub use layout::{Layout, MAX_RANK, Shape, SliceAxis, Strides, broadcast, checked_len, collapse};

use crate::runtime::{Allocation, Runtime};

/// A tensor on the GPU. Clones share the allocation.
#[derive(Clone)]
pub struct Tensor {
    runtime: Arc<Runtime>,
    allocation: Arc<Allocation>,
    layout: Layout,
    dtype: DType,
}

/// Prints shape, element type and adapter, not the state of the memory pool.
impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tensor")
            .field("shape", &self.shape())
            .field("dtype", &self.dtype)
            .field("device", &self.runtime.info().name)
            .finish()
    }
}

impl Tensor {
    /// Creates a packed tensor with undefined content. It gets memory when a kernel first uses it.
    ///
    /// # Errors
    ///
    /// Returns an error if the tensor is too large for the device, or the device was lost.
    pub fn empty(runtime: &Arc<Runtime>, shape: &[usize], dtype: DType) -> Result<Self> {
        let layout = Layout::contiguous(shape);
        let bytes = checked_bytes(shape, dtype)?;
        let allocation = Arc::new(runtime.alloc(bytes)?);
        Ok(Self { runtime: runtime.clone(), allocation, layout, dtype })
    }

    /// Uploads elements in row-major order. `bytes` holds them in their storage type, padded to a
    /// multiple of four bytes.
    ///
    /// # Errors
    ///
    /// Returns an error if `bytes` does not have the size of the tensor, and the errors of
    /// [`Tensor::empty`].
    pub fn upload(
        runtime: &Arc<Runtime>,
        shape: &[usize],
        dtype: DType,
        bytes: &[u8],
    ) -> Result<Self> {
        let (expected, found) = (checked_bytes(shape, dtype)?, bytes.len() as u64);
        if expected != found {
            return Err(Error::DataSize { shape: shape.to_vec(), expected, found });
        }
        let allocation = Arc::new(runtime.upload(bytes)?);
        let layout = Layout::contiguous(shape);
        Ok(Self { runtime: runtime.clone(), allocation, layout, dtype })
    }

    /// Returns the allocation, for binding.
    ///
    /// Every binding must use this function: if elementwise results become lazy, it will compute
    /// them.
    pub fn buffer(&self) -> &Allocation {
        &self.allocation
    }

    /// Returns the allocation and the number of bytes to read back for a packed tensor.
    ///
    /// The number is rounded up to a multiple of four.
    pub fn readback_range(&self) -> (Arc<Allocation>, u64) {
        (self.allocation.clone(), (self.len() as u64 * self.dtype.size()).next_multiple_of(4))
    }

    /// Returns the runtime of the tensor's device.
    pub fn runtime(&self) -> &Arc<Runtime> {
        &self.runtime
    }

    /// Returns the layout.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Returns the sizes of the axes.
    pub fn shape(&self) -> &[usize] {
        &self.layout.shape
    }

    /// Returns the element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.layout.len()
    }

    /// Returns whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns whether the allocation has a single owner, so that it can be written in place.
    pub fn is_unique(&self) -> bool {
        Arc::strong_count(&self.allocation) == 1
    }

    /// Returns whether the elements are in row-major order without gaps, at offset zero.
    pub fn is_packed(&self) -> bool {
        self.layout.is_packed()
    }

    /// Returns a view: the same allocation with another layout.
    ///
    /// # Panics
    ///
    /// Panics if an element of the view is outside the allocation.
    #[must_use]
    pub fn view(&self, layout: Layout) -> Self {
        let (runtime, allocation) = (self.runtime.clone(), self.allocation.clone());
        Self { runtime, allocation, layout, dtype: self.dtype }.checked()
    }

    /// Reinterprets the elements as another type, with the same allocation and layout.
    ///
    /// # Panics
    ///
    /// Panics if an element of the result is outside the allocation.
    #[must_use]
    pub fn bitcast(mut self, dtype: DType) -> Self {
        let grows = dtype.size() > self.dtype.size();
        self.dtype = dtype;
        if grows { self.checked() } else { self }
    }

    /// Panics if an element is outside the allocation, because kernels do not check their indices.
    fn checked(self) -> Self {
        let end = self.layout.end().and_then(|end| end.checked_mul(self.dtype.size()));
        assert!(
            end.is_some_and(|end| end <= self.allocation.bytes()),
            "a view of shape {:?}, strides {:?} and offset {} exceeds {} bytes",
            self.layout.shape,
            self.layout.strides,
            self.layout.offset,
            self.allocation.bytes()
        );
        self
    }

    /// Checks that `other` is on the same device.
    ///
    /// # Errors
    ///
    /// Returns [`Error::DeviceMismatch`] if it is on another device.
    pub fn same_device(&self, other: &Tensor) -> Result<()> {
        if Arc::ptr_eq(&self.runtime, &other.runtime) {
            return Ok(());
        }
        Err(Error::DeviceMismatch { lhs: self.runtime.name(), rhs: other.runtime.name() })
    }
}

/// Returns the size of a packed tensor in bytes, rounded up to a multiple of four.
///
/// # Errors
///
/// Returns an error if the tensor has too many elements for a 32-bit index.
fn checked_bytes(shape: &[usize], dtype: DType) -> Result<u64> {
    let too_many = || Error::TooManyElements { shape: shape.to_vec() };
    let len = checked_len(shape).and_then(|len| u32::try_from(len).ok()).ok_or_else(too_many)?;
    Ok((u64::from(len) * dtype.size()).next_multiple_of(4))
}
