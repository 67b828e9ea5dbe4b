//! Data on its way from a device to the host, which the program takes later.

use std::fmt;

use burn::tensor::backend::ExecutionError;
use burn::tensor::{Bool, Int, Tensor, TensorData};

use crate::backend::{LaterData, Wgsl, WgslTensor};

/// The elements of a tensor, or a value of them, which the device copies to the host while the program goes on.
///
/// `into_data()` waits until the device has computed all that was asked for, and the device then has nothing to do
/// until the next launch. A readback that starts now and is taken some steps later finds its data there.
///
/// ```
/// use burn::tensor::Tensor;
/// use burn_wgsl::train::Readback;
/// use burn_wgsl::{Wgsl, WgslDevice};
///
/// let loss = Tensor::<Wgsl, 1>::ones([1], &WgslDevice::default()) * 3.0;
/// let readback = Readback::start(loss)?;
/// // ... some steps; then:
/// assert_eq!(readback.take()?.to_vec::<f32>()?, [3.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Readback<T = TensorData> {
    data: LaterData,
    value: Box<dyn FnOnce(TensorData) -> T + Send>,
}

impl<T> fmt::Debug for Readback<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Readback").field("is_ready", &self.is_ready()).finish_non_exhaustive()
    }
}

impl Readback {
    /// Submits the copy of a tensor, and what computes it. Does not wait. The tensor has at most 8 MiB, in which
    /// booleans and integers of less than 32 bits have 4 bytes each.
    ///
    /// # Errors
    ///
    /// Returns an error if the device fails, or if the tensor is larger.
    pub fn start(tensor: impl IntoReadback) -> Result<Self, ExecutionError> {
        let data = LaterData::start(tensor.into_tensor())?;
        Ok(Self { data, value: Box::new(|data| data) })
    }
}

impl<T: 'static> Readback<T> {
    /// Returns a readback of a value that is computed from this one's.
    pub fn map<U>(self, value: impl FnOnce(T) -> U + Send + 'static) -> Readback<U> {
        let Self { data, value: first } = self;
        Readback { data, value: Box::new(move |data| value(first(data))) }
    }
}

impl<T> Readback<T> {
    /// Returns whether [`take`](Self::take) would not wait.
    pub fn is_ready(&self) -> bool {
        self.data.is_ready()
    }

    /// Returns the value. Waits for the device if it is not there yet, but not for later work. In a browser, which
    /// cannot wait, it is lost if it is not there yet.
    ///
    /// # Errors
    ///
    /// Returns an error if the device failed, if an index was out of range, and in a browser if the value is not there
    /// yet.
    pub fn take(self) -> Result<T, ExecutionError> {
        Ok((self.value)(self.data.take()?))
    }

    /// Returns the value as [`take`](Self::take) does, also in a browser.
    ///
    /// # Errors
    ///
    /// Returns an error if the device failed, or if an index was out of range.
    pub async fn take_async(self) -> Result<T, ExecutionError> {
        Ok((self.value)(self.data.take_async().await?))
    }
}

/// A tensor of this backend, of floats, integers or booleans.
pub trait IntoReadback: sealed::Sealed {
    #[doc(hidden)]
    fn into_tensor(self) -> WgslTensor;
}

mod sealed {
    pub trait Sealed {}
}

impl<const D: usize> sealed::Sealed for Tensor<Wgsl, D> {}
impl<const D: usize> sealed::Sealed for Tensor<Wgsl, D, Int> {}
impl<const D: usize> sealed::Sealed for Tensor<Wgsl, D, Bool> {}

/// Quantised tensors are dequantised.
impl<const D: usize> IntoReadback for Tensor<Wgsl, D> {
    fn into_tensor(self) -> WgslTensor {
        self.into_primitive().tensor()
    }
}

impl<const D: usize> IntoReadback for Tensor<Wgsl, D, Int> {
    fn into_tensor(self) -> WgslTensor {
        self.into_primitive()
    }
}

impl<const D: usize> IntoReadback for Tensor<Wgsl, D, Bool> {
    fn into_tensor(self) -> WgslTensor {
        self.into_primitive()
    }
}
