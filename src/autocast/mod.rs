//! Mixed precision: products in 16 bits, the rest of a program in f32.
//!
//! Parameters stay f32. Inside a scope of [`autocast`], products, convolutions and attention convert
//! their operands to 16 bits, so that matrix units multiply them and their results need half the
//! memory. Exponentials, logarithms, powers, softmax, norms, losses and sums convert them to f32.
//! Other ops compute in the type of their operands, or in the wider one if they differ.
//! `docs/autocast.md` lists every op.

mod path;
pub mod rules;
mod scope;

use std::fmt;
use std::str::FromStr;

pub use path::ProductPath;
pub use scope::Autocast;
pub(crate) use scope::Operands;
#[cfg(feature = "autodiff")]
pub(crate) use scope::{at_end, off};

use crate::device::{DeviceError, WgslDevice};

/// The type in which [`autocast`] computes products.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Precision {
    /// 32 bits: autocast is off.
    #[default]
    F32,
    /// Half precision: 11 significant bits, up to 65504. Small gradients need a loss scale. Matrix
    /// units multiply it.
    F16,
    /// The upper 16 bits of f32: 8 significant bits, and the same range. Needs no loss scale.
    Bf16,
}

impl Precision {
    /// Every precision with the word that names it.
    const ALL: [(Self, &'static str); 3] =
        [(Self::F32, "f32"), (Self::F16, "f16"), (Self::Bf16, "bf16")];
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word =
            Self::ALL.into_iter().find(|(each, _)| each == self).map_or("", |(_, word)| word);
        f.write_str(word)
    }
}

/// A word that names no [`Precision`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownPrecision(String);

impl fmt::Display for UnknownPrecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there is no precision {:?}; use f32, f16 or bf16", self.0)
    }
}

impl std::error::Error for UnknownPrecision {}

impl FromStr for Precision {
    type Err = UnknownPrecision;

    fn from_str(word: &str) -> Result<Self, UnknownPrecision> {
        let named = Self::ALL.into_iter().find(|(_, name)| *name == word);
        named.map(|(precision, _)| precision).ok_or_else(|| UnknownPrecision(word.to_owned()))
    }
}

/// Computes products on a device in a lower precision until the returned scope is dropped.
///
/// Scopes belong to a thread: ops of other threads are not affected, such as those of a trainer with
/// several devices. Of nested scopes of a device the innermost counts, so [`Precision::F32`] switches
/// autocast off for a part of a program; results from outside of it may need a cast there.
/// `BURN_WGSL_AUTOCAST=f16` or `bf16` is a scope around every thread and device. In a browser, open
/// the device first, and do not hold a scope across an `await`.
///
/// With [`Autodiff`](crate::Autodiff), gradients of f32 parameters are f32, rounded to 16 bits where a
/// product computes them. Its backward pass computes in the types of the forward pass, inside or
/// outside the scope. In a scope, 16-bit copies of parameters are kept for their next use, until the
/// last scope of the thread ends or a backward pass begins.
///
/// With Burn's own `Autodiff`, the backward pass must be in the scope, and f32 operands are kept for
/// it. Gradients of the parameters of Burn's layers are f32; those of a plain `matmul` are 16-bit,
/// which is too few for most optimizers.
///
/// ```
/// use burn::tensor::{DType, Distribution, Tensor};
/// use burn_wgsl::{Autodiff, Precision, Wgsl, WgslDevice, autocast};
///
/// type B = Autodiff<Wgsl>;
///
/// let device = WgslDevice::default();
/// let x = Tensor::<B, 2>::random([4, 8], Distribution::Default, &device);
/// let weight = Tensor::<B, 2>::random([8, 4], Distribution::Default, &device).require_grad();
/// let loss = {
///     let _scope = autocast(&device, Precision::Bf16);
///     let y = x.matmul(weight.clone());
///     assert_eq!(y.dtype(), DType::BF16);
///     y.sum()
/// };
/// assert_eq!(loss.dtype(), DType::F32);
/// let grads = loss.backward();
/// assert_eq!(weight.grad(&grads).unwrap().dtype(), DType::F32);
/// ```
pub fn autocast(device: &WgslDevice, precision: Precision) -> Autocast {
    Autocast::open(Some(device), precision)
}

/// Returns how products are computed on a device with this precision.
///
/// # Errors
///
/// Returns an error if the device is missing or cannot be opened.
pub fn product_path(device: &WgslDevice, precision: Precision) -> Result<ProductPath, DeviceError> {
    ProductPath::of(device, precision)
}
