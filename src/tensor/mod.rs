//! GPU tensors: an allocation, a layout and an element type.

mod description;
mod dtype;
mod error;
mod extent;
mod layout;
mod lazy;
mod reduction;

use std::fmt;
use std::sync::Arc;

use smallvec::SmallVec;

pub use dtype::DType;
pub use error::{Error, Result};
#[cfg(feature = "internals")]
pub use layout::Axes;
pub use layout::{
    Layout, MAX_RANK, Shape, SliceAxis, Strides, broadcast, checked_len, collapse, strided_len,
};

pub(crate) use description::{describe, described, description};
pub(crate) use extent::{Extent, Lines};
pub(crate) use lazy::{
    Arg, Compute, Elements, Epilogue, Expression, Lazy, Padding, PendingLaunch, Replaceable,
};
pub(crate) use reduction::{PendingReduction, ReduceByItself, ReduceOp};

use crate::runtime::{Allocation, PART_ALIGN, Runtime, RuntimeError};

/// A tensor on the GPU. Clones share the storage.
#[derive(Clone)]
pub struct Tensor {
    runtime: Arc<Runtime>,
    storage: Storage,
    layout: Layout,
    dtype: DType,
}

// Ops move tensors often. Larger ones are moved by calls of memcpy.
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Tensor>() <= 48);

/// The memory of a tensor.
#[derive(Clone)]
pub(crate) enum Storage {
    /// Memory that recorded or submitted commands write, or that has undefined content.
    Memory(Arc<Allocation>),
    /// Memory that is computed when it is first needed.
    Lazy(Arc<Lazy>),
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

impl Storage {
    /// Returns the memory, which is computed first if it is pending.
    ///
    /// # Errors
    ///
    /// Returns an error if the memory cannot be computed.
    pub fn computed(&self) -> Result<&Arc<Allocation>, RuntimeError> {
        match self {
            Self::Memory(memory) => Ok(memory),
            Self::Lazy(lazy) => lazy.computed(),
        }
    }

    /// Returns the memory; `None` while it is pending.
    pub fn memory(&self) -> Option<&Arc<Allocation>> {
        match self {
            Self::Memory(memory) => Some(memory),
            Self::Lazy(lazy) => lazy.memory(),
        }
    }

    /// Returns the pending memory; `None` if it was computed.
    pub fn pending(&self) -> Option<&Arc<Lazy>> {
        match self {
            Self::Lazy(lazy) if lazy.memory().is_none() => Some(lazy),
            _ => None,
        }
    }

    /// Returns the number of owners of the lazy result, if it is one.
    pub fn lazy_owners(&self) -> Option<usize> {
        match self {
            Self::Memory(_) => None,
            Self::Lazy(lazy) => Some(Arc::strong_count(lazy)),
        }
    }

    /// Returns whether there is one owner of the storage and of its memory.
    pub fn has_one_owner(&self) -> bool {
        match self {
            Self::Memory(memory) => Arc::strong_count(memory) == 1 && !memory.is_part(),
            Self::Lazy(lazy) => {
                let is_owned = |memory: &Arc<_>| Arc::strong_count(memory) == 1;
                Arc::strong_count(lazy) == 1 && lazy.memory().is_none_or(is_owned)
            }
        }
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
        let storage = Storage::Memory(Arc::new(runtime.alloc(bytes)?));
        Ok(Self { runtime: runtime.clone(), storage, layout, dtype })
    }

    /// Creates a packed tensor in memory that has its elements.
    ///
    /// # Errors
    ///
    /// Returns an error if the memory is too small.
    pub(crate) fn in_memory(
        runtime: &Arc<Runtime>,
        memory: Allocation,
        shape: &[usize],
        dtype: DType,
    ) -> Result<Self> {
        let (expected, found) = (checked_bytes(shape, dtype)?, memory.bytes());
        if found < expected {
            return Err(Error::DataSize { shape: shape.to_vec(), expected, found });
        }
        let (storage, layout) = (Storage::Memory(Arc::new(memory)), Layout::contiguous(shape));
        Ok(Self { runtime: runtime.clone(), storage, layout, dtype })
    }

    /// Creates a tensor of a packed layout that is computed when its memory is first needed.
    ///
    /// # Errors
    ///
    /// Returns an error if the tensor is too large for the device, or the device was lost.
    #[inline(always)]
    pub(crate) fn lazy(
        runtime: &Arc<Runtime>,
        layout: Layout,
        expression: Expression,
        args: SmallVec<[Arg; 2]>,
        extent: Extent,
        compute: Compute,
    ) -> Result<Self> {
        debug_assert_eq!(layout, Layout::contiguous(&layout.shape));
        Self::of_lazy(runtime, layout, expression.dtype, |bytes| {
            Lazy::new(runtime, bytes, expression, args, extent, compute)
        })
    }

    /// Creates a tensor of a packed layout in the memory of its size that `lazy` returns.
    #[inline(always)]
    fn of_lazy(
        runtime: &Arc<Runtime>,
        layout: Layout,
        dtype: DType,
        lazy: impl FnOnce(u64) -> Arc<Lazy>,
    ) -> Result<Self> {
        let bytes = checked_bytes(&layout.shape, dtype)?;
        runtime.check_binding(bytes)?;
        let storage = Storage::Lazy(lazy(bytes));
        Ok(Self { runtime: runtime.clone(), storage, layout, dtype })
    }

    /// Creates a packed tensor that a launch writes when its memory is first needed.
    ///
    /// # Errors
    ///
    /// As [`Tensor::lazy`].
    pub(crate) fn of_launch(
        runtime: &Arc<Runtime>,
        shape: &[usize],
        expression: Expression,
        launch: Arc<dyn PendingLaunch>,
        extent: Extent,
        compute: Compute,
    ) -> Result<Self> {
        Self::of_lazy(runtime, Layout::contiguous(shape), expression.dtype, |bytes| {
            Lazy::of_launch(runtime, bytes, expression, launch, extent, compute)
        })
    }

    /// Returns a tensor of elements in a storage.
    pub(crate) fn of_storage(
        runtime: &Arc<Runtime>,
        storage: Storage,
        layout: Layout,
        dtype: DType,
    ) -> Self {
        Self { runtime: runtime.clone(), storage, layout, dtype }
    }

    /// Creates the packed result of an op that a larger one may replace.
    ///
    /// # Errors
    ///
    /// As [`Tensor::lazy`].
    pub(crate) fn of_replaceable(
        runtime: &Arc<Runtime>,
        shape: &[usize],
        expression: Expression,
        op: Arc<dyn Replaceable>,
    ) -> Result<Self> {
        Self::of_lazy(runtime, Layout::contiguous(shape), expression.dtype, |bytes| {
            Lazy::of_replaceable(runtime, bytes, expression, op)
        })
    }

    /// Creates the packed result of a reduction of `arg`, which is computed when its memory is first needed.
    ///
    /// # Errors
    ///
    /// As [`Tensor::lazy`].
    pub(crate) fn of_reduction(
        runtime: &Arc<Runtime>,
        shape: &[usize],
        expression: Expression,
        reduction: (PendingReduction, Arg),
        extent: Extent,
        compute: Compute,
    ) -> Result<Self> {
        Self::of_lazy(runtime, Layout::contiguous(shape), expression.dtype, |bytes| {
            Lazy::of_reduction(runtime, bytes, expression, reduction, extent, compute)
        })
    }

    /// Returns the result of an op that a larger one may replace, of which this is the pending conversion.
    #[inline]
    pub(crate) fn converts_replaceable(&self) -> Option<Self> {
        let lazy = self.pending().filter(|lazy| lazy.expression().is_conversion())?;
        let args = lazy.args();
        let [Arg { storage: Storage::Lazy(op), dtype, layout: None, padding: None }] = &args[..]
        else {
            return None;
        };
        (op.is_replaceable() && self.is_packed()).then(|| Self {
            runtime: self.runtime.clone(),
            storage: Storage::Lazy(op.clone()),
            layout: self.layout.clone(),
            dtype: *dtype,
        })
    }

    /// Returns whether the tensor is pending, and is not computed together with other results.
    #[inline]
    pub(crate) fn is_computed_alone(&self) -> bool {
        self.pending().is_some_and(|lazy| lazy.is_computed_alone())
    }

    /// Returns the tensor; of an op that a larger one may replace, or a reduction that nothing else refers to, its
    /// result by itself, which may be pending.
    ///
    /// # Errors
    ///
    /// Returns an error if the device cannot compute it.
    pub(crate) fn by_itself(self) -> Result<Self> {
        let result = match &self.storage {
            Storage::Lazy(lazy) if lazy.is_replaceable() => lazy.result_by_itself()?,
            Storage::Lazy(lazy) => match self.take_reduced() {
                Some((input, reduction)) => Some(lazy.reduced(reduction, &input)?),
                None => None,
            },
            Storage::Memory(_) => None,
        };
        Ok(match result {
            Some(result) => result.view_as(self.layout, self.dtype),
            None => self,
        })
    }

    /// Takes what a reduction that is computed alone reduces, if nothing but this tensor refers to it.
    pub(crate) fn take_reduced(&self) -> Option<(Self, &PendingReduction)> {
        let lazy = self.pending().filter(|lazy| lazy.is_computed_alone())?;
        let reduction = lazy.reduction()?;
        // A thread that waits for the device refers to it meanwhile.
        let _locked = self.runtime.lock_deferred();
        if Arc::strong_count(lazy) > 1 {
            return None;
        }
        lazy.set_replaced();
        Some((lazy.take_reduced()?, reduction))
    }

    /// Creates a packed tensor of elements that arrive from another device, and are waited for when its memory is first
    /// needed.
    ///
    /// # Errors
    ///
    /// As [`Tensor::lazy`].
    pub(crate) fn of_arrival(
        runtime: &Arc<Runtime>,
        shape: &[usize],
        dtype: DType,
        elements: Elements,
    ) -> Result<Self> {
        Self::of_lazy(runtime, Layout::contiguous(shape), dtype, |bytes| {
            let expression = Expression::named("arrival", dtype, shape.iter().product());
            Lazy::of_arrival(runtime, bytes, expression, elements)
        })
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
        let storage = Storage::Memory(Arc::new(runtime.upload(bytes)?));
        let layout = Layout::contiguous(shape);
        Ok(Self { runtime: runtime.clone(), storage, layout, dtype })
    }

    /// Returns the memory, for binding. It is computed first if it is pending.
    ///
    /// # Errors
    ///
    /// Returns an error if the memory cannot be computed.
    pub fn buffer(&self) -> Result<&Arc<Allocation>> {
        Ok(self.storage.computed()?)
    }

    /// Returns what computes the memory; `None` if it was computed.
    pub(crate) fn pending(&self) -> Option<&Arc<Lazy>> {
        self.storage.pending()
    }

    /// Returns the memory; `None` while it is pending.
    pub(crate) fn memory(&self) -> Option<&Arc<Allocation>> {
        self.storage.memory()
    }

    /// Returns the tensor as an argument of an expression with a result of this shape.
    ///
    /// # Errors
    ///
    /// Returns an error if the tensor does not broadcast to the shape.
    #[inline]
    pub(crate) fn into_arg(self, shape: &[usize]) -> Result<Arg> {
        let Self { storage, layout, dtype, .. } = self;
        let same_shape = layout.shape[..] == *shape;
        if same_shape && layout.is_packed() {
            return Ok(Arg { storage, dtype, layout: None, padding: None });
        }
        let expanded = if same_shape { Some(layout.clone()) } else { layout.expand(shape) };
        let layout = expanded.ok_or_else(|| Error::Shape {
            lhs: shape.to_vec(),
            rhs: layout.shape.to_vec(),
            rule: "the second must broadcast to the first",
        })?;
        let layout = (!layout.is_packed()).then_some(layout);
        Ok(Arg { storage, dtype, layout, padding: None })
    }

    /// Returns the tensor with other strides of which this is the pending conversion.
    pub(crate) fn converted_from(&self) -> Option<Self> {
        let lazy = self.pending().filter(|lazy| lazy.expression().is_conversion())?;
        let args = lazy.args();
        let [Arg { storage, dtype, layout: Some(layout), padding: None }] = &args[..] else {
            return None;
        };
        let is_whole = self.is_packed() && layout.shape == self.layout.shape;
        is_whole.then(|| Self {
            runtime: self.runtime.clone(),
            storage: storage.clone(),
            layout: layout.clone(),
            dtype: *dtype,
        })
    }

    /// Returns the packed tensor, which is computed first if it is pending, as an argument that is
    /// a part of each line of the result.
    ///
    /// # Errors
    ///
    /// Returns an error if the memory cannot be computed.
    pub(crate) fn into_padded_arg(self, padding: Padding) -> Result<Arg> {
        debug_assert!(self.is_packed());
        self.buffer()?;
        let Self { storage, dtype, .. } = self;
        Ok(Arg { storage, dtype, layout: None, padding: Some(Box::new(padding)) })
    }

    /// Returns the allocation and the number of bytes to read back for a packed tensor.
    ///
    /// The number is rounded up to a multiple of four.
    ///
    /// # Errors
    ///
    /// Returns an error if the memory is pending and cannot be computed.
    pub fn readback_range(&self) -> Result<(Arc<Allocation>, u64)> {
        let bytes = (self.len() as u64 * self.dtype.size()).next_multiple_of(4);
        Ok((self.buffer()?.clone(), bytes))
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

    /// Returns whether the memory has a single owner, so that it can be written in place.
    pub fn is_unique(&self) -> bool {
        self.storage.has_one_owner()
    }

    /// Returns whether the elements are in row-major order without gaps, at offset zero.
    pub fn is_packed(&self) -> bool {
        self.layout.is_packed()
    }

    /// Returns whether the program owns the memory, and may write it.
    pub(crate) fn is_foreign(&self) -> bool {
        self.memory().is_some_and(|memory| memory.is_foreign())
    }

    /// Returns whether the memory is larger than a binding. Kernels cannot use such a tensor, but
    /// they can use views of it that are small enough.
    pub fn is_oversized(&self) -> bool {
        self.memory().is_some_and(|memory| memory.bytes() > self.runtime.max_binding())
    }

    /// Returns a view: the same allocation with another layout, or a part of the allocation if that
    /// is larger than a binding and the view is not.
    ///
    /// # Panics
    ///
    /// Panics if an element of the view is outside the allocation.
    #[must_use]
    pub fn view(&self, layout: Layout) -> Self {
        self.view_as(layout, self.dtype)
    }

    /// Returns a view with another element type.
    ///
    /// # Panics
    ///
    /// As [`Tensor::view`].
    #[must_use]
    pub fn view_as(&self, layout: Layout, dtype: DType) -> Self {
        let (runtime, storage) = (self.runtime.clone(), self.storage.clone());
        let view = Self { runtime, storage, layout, dtype }.checked();
        let is_part = view.memory().is_some_and(|memory| memory.is_part());
        if is_part || view.is_oversized() { view.with_part() } else { view }
    }

    /// Replaces the memory by the part of it that has the elements, if that fits a binding. Then the
    /// first element is aligned for kernels more often.
    fn with_part(mut self) -> Self {
        let (Some(memory), Some((first, end))) = (self.memory(), self.layout.range()) else {
            return self;
        };
        let size = self.dtype.size();
        let start = first * size / PART_ALIGN * PART_ALIGN;
        let bytes = (end * size).next_multiple_of(4).max(start + 4) - start;
        if bytes > self.runtime.max_binding() {
            return self;
        }
        if let Some(part) = Allocation::part(memory, start, bytes) {
            self.storage = Storage::Memory(Arc::new(part));
            self.layout.offset -= (start / size) as usize;
        }
        self
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
        let bytes = match &self.storage {
            Storage::Memory(memory) => memory.bytes(),
            Storage::Lazy(lazy) => lazy.bytes(),
        };
        let end = self.layout.range().and_then(|(_, end)| end.checked_mul(self.dtype.size()));
        assert!(
            end.is_some_and(|end| end <= bytes),
            "a view of shape {:?}, strides {:?} and offset {} exceeds {bytes} bytes",
            self.layout.shape,
            self.layout.strides,
            self.layout.offset
        );
        self
    }

    /// Returns whether `other` is in the same memory, or will be when both are computed.
    #[cfg(feature = "train")]
    pub fn shares_memory(&self, other: &Tensor) -> bool {
        match (self.memory(), other.memory(), self.pending(), other.pending()) {
            (Some(own), Some(other), ..) => Arc::ptr_eq(own, other),
            (None, None, Some(own), Some(other)) => Arc::ptr_eq(own, other),
            _ => false,
        }
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

/// The most elements of a tensor or a view: 2^32 but for some, so that a kernel can add the size of a workgroup, and
/// the surplus workgroups of a grid, to an index of 32 bits.
pub const MAX_LEN: usize = u32::MAX as usize - (1 << 23);

/// Returns the size of a packed tensor in bytes, rounded up to a multiple of four.
///
/// # Errors
///
/// Returns an error if the tensor has too many elements for a 32-bit index.
fn checked_bytes(shape: &[usize], dtype: DType) -> Result<u64> {
    let too_many = || Error::TooManyElements { shape: shape.to_vec() };
    let len = checked_len(shape).filter(|&len| len <= MAX_LEN).ok_or_else(too_many)?;
    Ok((len as u64 * dtype.size()).next_multiple_of(4))
}
