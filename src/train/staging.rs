//! Batches that are put together in memory that the device copies from.

use std::fmt;
use std::marker::PhantomData;

use burn::tensor::backend::ExecutionError;
use burn::tensor::{BasicOps, Element, Float, Int, Tensor, TensorPrimitive};
use half::{bf16, f16};

use crate::backend::{StagedData, Wgsl, WgslTensor};
use crate::device::WgslDevice;

/// A tensor to which a batcher copies its samples, one after the other, in memory from which the device copies them:
/// the host copies each byte once. A batch that is first put together in a `Vec` is copied twice.
///
/// 8-bit integers stay bytes on their way, as with `from_data`. On the CPU device, the memory is that of the tensor. A
/// batch of at most 256 KiB shares an upload with other small ones, and one of 16-bit integers is widened: these are
/// copied more often.
///
/// ```
/// use burn::tensor::Tensor;
/// use burn_wgsl::train::Staging;
/// use burn_wgsl::{Autodiff, Wgsl, WgslDevice};
///
/// let device = WgslDevice::default();
/// let samples = vec![vec![7u8; 3 * 32 * 32]; 16];
/// let mut images = Staging::<u8, 4>::new([samples.len(), 3, 32, 32], &device)?;
/// for sample in &samples {
///     images.push(sample)?;
/// }
/// let images = images.finish()?.float() / 127.5 - 1.0;
/// // For training:
/// let images = Tensor::<Autodiff<Wgsl>, 4>::from_inner(images);
/// # assert_eq!(images.dims(), [16, 3, 32, 32]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Staging<T, const D: usize> {
    data: StagedData,
    element: PhantomData<T>,
}

impl<T: StagedElement, const D: usize> Staging<T, D> {
    /// Begins a tensor of a shape.
    ///
    /// # Errors
    ///
    /// Returns an error if it is too large for the device, the host has no memory for it, or the device was lost.
    ///
    /// # Panics
    ///
    /// Panics if there is no such device.
    pub fn new(shape: [usize; D], device: &WgslDevice) -> Result<Self, ExecutionError> {
        let data = StagedData::begin(device, &shape, T::dtype())?;
        Ok(Self { data, element: PhantomData })
    }

    /// Copies the next elements, in row-major order.
    ///
    /// # Errors
    ///
    /// Returns an error if there are more than the tensor has, the device has no memory for it, or it fails.
    pub fn push(&mut self, elements: &[T]) -> Result<(), ExecutionError> {
        self.data.push(bytemuck::cast_slice(elements))
    }

    /// Returns the tensor.
    ///
    /// # Errors
    ///
    /// Returns an error if elements are missing, or the device fails.
    pub fn finish(self) -> Result<Tensor<Wgsl, D, T::Kind>, ExecutionError> {
        Ok(T::tensor(self.data.finish()?))
    }
}

impl<T, const D: usize> fmt::Debug for Staging<T, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Staging").finish_non_exhaustive()
    }
}

/// An element of a staged tensor: f32, f16, bf16, and integers of 8, 16 and 32 bits.
pub trait StagedElement: Element + bytemuck::Pod + sealed::Sealed {
    /// The kind of the tensor.
    type Kind: BasicOps<Wgsl>;

    #[doc(hidden)]
    fn tensor<const D: usize>(tensor: WgslTensor) -> Tensor<Wgsl, D, Self::Kind>;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! staged {
    ($($kind:ident: $($element:ty)*, $tensor:expr;)*) => {
        $($(
            impl sealed::Sealed for $element {}

            impl StagedElement for $element {
                type Kind = $kind;

                fn tensor<const D: usize>(tensor: WgslTensor) -> Tensor<Wgsl, D, $kind> {
                    Tensor::from_primitive($tensor(tensor))
                }
            }
        )*)*
    };
}

staged! {
    Float: f32 f16 bf16, TensorPrimitive::Float;
    Int: i8 i16 i32 u8 u16 u32, |tensor| tensor;
}
