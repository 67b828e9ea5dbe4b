//! Mixed precision: products in 16 bits, the rest of a program in f32.
//!
//! Parameters stay f32. Inside a scope of [`autocast`], large products, convolutions and attention convert
//! their operands to 16 bits, so that matrix units multiply them and their results need half the
//! memory. Exponentials, logarithms, powers, softmax, norms, losses and sums convert them to f32.
//! Other ops compute in the type of their operands, or in the wider one if they differ.
//! `docs/autocast.md` lists every op.

mod path;
mod precision;
pub mod rules;
mod scope;

pub use path::ProductPath;
pub use precision::{MatmulPrecision, Precision, UnknownPrecision};
pub(crate) use scope::FloatOperands;
use scope::PrecisionPolicy;
pub use scope::PrecisionScope;
#[cfg(feature = "autodiff")]
pub(crate) use scope::{at_end, off, wide_gradients};

use crate::device::{DeviceError, WgslDevice};

/// Computes products on a device in a lower precision until the returned scope is dropped.
///
/// Scopes belong to a thread: ops of other threads are not affected, such as those of a trainer with
/// several devices. Of nested scopes of a device the innermost counts, so [`Precision::F32`] switches
/// autocast off for a part of a program; results from outside of it may need a cast there.
/// `BURN_WGSL_AUTOCAST=f16` or `bf16` is a scope around every thread and device. In a browser, open
/// the device first, and do not hold a scope across an `await`.
///
/// Biases of products stay f32: they are added to f32 sums. Operands of small products stay f32, too, because
/// conversions would take longer than they save; the type of the result does not depend on that.
///
/// With [`Autodiff`](crate::Autodiff), gradients of f32 parameters are f32. Its backward pass computes in
/// the types of the forward pass, inside or outside the scope. In a scope, 16-bit copies of parameters are
/// kept for their next use, until the last scope of the thread ends, a backward pass begins on the thread
/// (with the variable, only then), or a step of an optimizer in the scope replaces the parameters. In a scope
/// that is open during the optimizer's step too, one launch computes parameters and their copies. If parameters
/// are 16-bit, end the scope before that step: the optimizer's powers are f32 in it, and the new parameters
/// would be too.
///
/// With Burn's own `Autodiff`, the backward pass must be in the scope, and f32 operands are kept for
/// it. Gradients of f32 parameters of Burn's layers are f32; those of a plain `matmul` are 16-bit,
/// which is too few for most optimizers. It does not keep copies, and 16-bit parameters need this crate's.
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
pub fn autocast(device: &WgslDevice, precision: Precision) -> PrecisionScope {
    PrecisionScope::open(Some(device), PrecisionPolicy::Autocast(precision))
}

/// Returns the precision in which ops of this thread compute products on a device: that of the innermost scope of
/// [`autocast`](fn@autocast), else of `BURN_WGSL_AUTOCAST`, else f32.
///
/// ```
/// use burn_wgsl::{Precision, WgslDevice, autocast, current_precision};
///
/// let device = WgslDevice::default();
/// let _scope = autocast(&device, Precision::F16);
/// assert_eq!(current_precision(&device), Precision::F16);
/// ```
pub fn current_precision(device: &WgslDevice) -> Precision {
    scope::precision(&device.canonical())
}

/// Lets products and convolutions of f32 on a device round their operands until the returned scope is
/// dropped, for programs that stay in f32: results and gradients are f32. A backward pass in the scope
/// rounds too.
///
/// Scopes are as those of [`autocast`](fn@autocast), which comes first where both are open.
/// `BURN_WGSL_MATMUL_PRECISION=medium` is a scope around every thread and device. `product_path` says how
/// bf16 is multiplied. Operands are rounded for each product; biases are not.
///
/// ```
/// use burn::tensor::{DType, Tensor};
/// use burn_wgsl::{MatmulPrecision, Wgsl, WgslDevice, matmul_precision};
///
/// let device = WgslDevice::default();
/// let _scope = matmul_precision(&device, MatmulPrecision::Medium);
/// let x = Tensor::<Wgsl, 2>::ones([8, 8], &device);
/// assert_eq!(x.clone().matmul(x).dtype(), DType::F32);
/// ```
pub fn matmul_precision(device: &WgslDevice, precision: MatmulPrecision) -> PrecisionScope {
    PrecisionScope::open(Some(device), PrecisionPolicy::Products(precision))
}

/// Returns how products are computed on a device with this precision.
///
/// ```
/// use burn_wgsl::{Precision, WgslDevice, product_path};
///
/// let path = product_path(&WgslDevice::default(), Precision::F16)?;
/// println!("products of f16: {path:?}");
/// # Ok::<(), burn_wgsl::device::DeviceError>(())
/// ```
///
/// # Errors
///
/// Returns an error if the device is missing or cannot be opened.
pub fn product_path(device: &WgslDevice, precision: Precision) -> Result<ProductPath, DeviceError> {
    ProductPath::of(device, precision)
}
