//! Burn's backend traits, one line per method.
//!
//! The contract is written down as tables (`float.rs`, `int.rs`, ...): each row is a method's signature
//! and, where there is a kernel, the launch. From the tables come the trait implementations and a
//! way to call an op by its name ([`call`]), which tests and benches use. Whether an op runs on the GPU
//! or on the CPU twin is decided in one place, `context.rs`.

pub mod call;
mod context;
mod contract;
pub mod coverage;
mod data;
mod fallback;
mod kinds;
mod random;
mod tensor;

mod activation;
mod boolean;
mod extension;
mod float;
mod int;
mod module;
mod quantized;

use burn_backend::{
    Backend, BackendTypes, DType, DTypeUsage, DTypeUsageSet, DeviceId, DeviceOps, ExecutionError,
};
use burn_ir::{BackendIr, HandleKind, TensorHandle};
use burn_std::BoolStore;

pub use extension::apply;
pub use fallback::{fallbacks, reset_fallbacks};
pub use tensor::{WgslQuantizedTensor, WgslTensor};

use crate::device::{DeviceError, ResolvedDevice, WgslDevice};
use crate::kernels::tuning::{self, Trial};
use crate::runtime::{MemoryUsage, Profile, ProfileError, Runtime};

/// The backend. `Autodiff<Wgsl>` trains; tensors live on a [`WgslDevice`].
#[derive(Debug, Clone, Copy, Default)]
pub struct Wgsl;

impl burn_std::device::Device for WgslDevice {
    fn from_id(id: DeviceId) -> Self {
        Self::from_code((id.type_id, u32::from(id.index_id)))
    }

    /// The id of the device by its preferred word: what is kept by id, such as the types that tensors are created in, is
    /// the same under every name.
    fn to_id(&self) -> DeviceId {
        let (type_id, index) = self.preferred().to_code();
        DeviceId::new(type_id, u16::try_from(index).unwrap_or(u16::MAX))
    }
}

impl DeviceOps for WgslDevice {}

impl BackendTypes for Wgsl {
    type Device = WgslDevice;
    type FloatTensorPrimitive = WgslTensor;
    type FloatElem = f32;
    type IntTensorPrimitive = WgslTensor;
    type IntElem = i32;
    type BoolTensorPrimitive = WgslTensor;
    type BoolElem = u32;
    type QuantizedTensorPrimitive = WgslQuantizedTensor;
}

impl Backend for Wgsl {
    fn name(device: &Self::Device) -> String {
        format!("wgsl<{}>", device.describe().unwrap_or_else(|_| device.to_string()))
    }

    fn seed(device: &Self::Device, seed: u64) {
        random::seed(context::resolve(device, "seed"), seed);
    }

    fn sync(device: &Self::Device) -> Result<(), ExecutionError> {
        match context::runtime(device, "sync") {
            Some(runtime) => runtime.sync().map_err(|error| data::execution_error(&error)),
            None => Ok(()),
        }
    }

    fn memory_cleanup(device: &Self::Device) {
        if let Some(runtime) = context::runtime(device, "memory_cleanup") {
            runtime.trim();
        }
    }

    fn dtype_usage(device: &Self::Device, dtype: DType) -> DTypeUsageSet {
        let on_gpu = !matches!(device.resolve(), Ok(ResolvedDevice::Cpu));
        match dtype {
            // Reference values are 32-bit words on a GPU and Rust's own on the CPU.
            DType::Bool(BoolStore::U32) if on_gpu => DTypeUsage::general(),
            DType::Bool(BoolStore::U32 | BoolStore::U8) if !on_gpu => DTypeUsageSet::empty(),
            dtype => burn_flex::Flex::dtype_usage(&burn_flex::FlexDevice, dtype),
        }
    }

    fn device_count(type_id: u16) -> usize {
        let is_gpu =
            |kind: &crate::device::AdapterKind| *kind != crate::device::AdapterKind::Software;
        match WgslDevice::from_code((type_id, 0)) {
            WgslDevice::Gpu(_) => {
                crate::device::adapters().iter().filter(|found| is_gpu(&found.info.kind)).count()
            }
            device => (0..)
                .take_while(|&index| {
                    let (kind, _) = device.to_code();
                    let one = WgslDevice::from_code((kind, index));
                    one.to_code().1 == index && one.resolve().is_ok()
                })
                .count(),
        }
    }
}

impl BackendIr for Wgsl {
    type Handle = HandleKind<Self>;

    fn float_tensor(handle: TensorHandle<Self::Handle>) -> WgslTensor {
        match handle.handle {
            HandleKind::Float(tensor) => tensor,
            other => wrong_handle("float", &other),
        }
    }

    fn int_tensor(handle: TensorHandle<Self::Handle>) -> WgslTensor {
        match handle.handle {
            HandleKind::Int(tensor) => tensor,
            other => wrong_handle("int", &other),
        }
    }

    fn bool_tensor(handle: TensorHandle<Self::Handle>) -> WgslTensor {
        match handle.handle {
            HandleKind::Bool(tensor) => tensor,
            other => wrong_handle("bool", &other),
        }
    }

    fn quantized_tensor(handle: TensorHandle<Self::Handle>) -> WgslQuantizedTensor {
        match handle.handle {
            HandleKind::Quantized(tensor) => tensor,
            other => wrong_handle("quantized", &other),
        }
    }

    fn float_tensor_handle(tensor: WgslTensor) -> Self::Handle {
        HandleKind::Float(tensor)
    }

    fn int_tensor_handle(tensor: WgslTensor) -> Self::Handle {
        HandleKind::Int(tensor)
    }

    fn bool_tensor_handle(tensor: WgslTensor) -> Self::Handle {
        HandleKind::Bool(tensor)
    }

    fn quantized_tensor_handle(tensor: WgslQuantizedTensor) -> Self::Handle {
        HandleKind::Quantized(tensor)
    }
}

fn wrong_handle(wanted: &str, handle: &HandleKind<Wgsl>) -> ! {
    panic!("a {wanted} tensor was asked for, but the handle holds a {} tensor", handle.name())
}

/// Memory held on a device: in use, reserved, peak. `None` on the CPU.
///
/// # Errors
///
/// When there is no such device.
pub fn memory(device: &WgslDevice) -> Result<Option<MemoryUsage>, crate::device::DeviceError> {
    match device.resolve()? {
        ResolvedDevice::Cpu => Ok(None),
        // What is not open holds nothing.
        ResolvedDevice::Adapter(index) => {
            Ok(Some(Runtime::opened(index).map_or_else(MemoryUsage::default, |it| it.memory())))
        }
    }
}

/// Finds the device and opens it, and says what it is: never [`WgslDevice::Auto`]. In a browser this must have been awaited before
/// tensors are made on a GPU, and again after the GPU was lost; elsewhere the first use of a device does it.
///
/// ```
/// # pollster::block_on(async {
/// use burn_wgsl::WgslDevice;
///
/// let device = match burn_wgsl::open(&WgslDevice::Auto).await {
///     Ok(device) => device,
///     Err(error) => {
///         println!("{error}");
///         WgslDevice::Cpu
///     }
/// };
/// println!("{}", device.describe()?);
/// # Ok::<(), burn_wgsl::device::DeviceError>(()) }).unwrap();
/// ```
///
/// # Errors
///
/// When there is no such device, it refuses to open, or it is the CPU in a program that was built without it.
pub async fn open(device: &WgslDevice) -> Result<WgslDevice, DeviceError> {
    if !matches!(device, WgslDevice::Cpu) {
        crate::device::discover().await;
    }
    match device.resolve()? {
        ResolvedDevice::Adapter(index) => Runtime::open(index).await.map(drop)?,
        ResolvedDevice::Cpu if !context::OpContext::HAS_CPU => return Err(DeviceError::NoCpu),
        ResolvedDevice::Cpu => {}
    }
    Ok(device.preferred())
}

/// Gives the device's GPU back to the driver: tensors on it are gone. Its next use opens it anew, in a browser the next [`open`].
/// Nothing to do on the CPU.
///
/// # Errors
///
/// When there is no such device.
pub fn close(device: &WgslDevice) -> Result<(), DeviceError> {
    if let ResolvedDevice::Adapter(index) = device.resolve()? {
        Runtime::close(index);
    }
    Ok(())
}

/// Does `work` and tells the GPU time of every kernel that was launched on the device meanwhile. Waits for the GPU at
/// the end; a device that is not profiled pays nothing.
///
/// ```
/// use burn::tensor::{Distribution, Tensor};
/// use burn_wgsl::{Wgsl, WgslDevice};
///
/// let device = WgslDevice::default();
/// let x = Tensor::<Wgsl, 2>::random([64, 64], Distribution::Default, &device);
/// match burn_wgsl::profile(&device, || x.clone().matmul(x).exp()) {
///     Ok((_result, profile)) => {
///         for kernel in &profile.kernels {
///             println!("{:>9.1?} in {} calls: {}", kernel.time, kernel.calls, kernel.variant);
///         }
///     }
///     Err(error) => println!("{error}"), // the CPU, or an adapter without timestamps
/// }
/// ```
///
/// # Errors
///
/// When there is no such device, it is the CPU or has no timestamps, or another profile of it is being taken.
pub fn profile<R>(
    device: &WgslDevice,
    work: impl FnOnce() -> R,
) -> Result<(R, Profile), ProfileError> {
    match device.resolve()? {
        ResolvedDevice::Cpu => Err(ProfileError::Cpu),
        ResolvedDevice::Adapter(index) => Runtime::of(index)?.profile(work),
    }
}

/// Tries the ways in which matrix products and convolutions can be computed on a device, and keeps the fastest of
/// each class of sizes for this adapter and driver, in a file of the user's cache folder. Takes seconds to minutes.
/// `heard` is told of each class when it is done. The CPU has nothing to try: the list is empty.
///
/// What was kept is used from then on, by later processes too, unless `BURN_WGSL_TUNING=off` or
/// [`set_tuning`](crate::set_tuning) says otherwise.
///
/// # Errors
///
/// When there is no such device, or it fails or is lost, and in a browser, where nothing can wait. A candidate that cannot run, or
/// computes something else than the plain kernel, does not win, and is named in the log.
pub fn tune(device: &WgslDevice, heard: impl FnMut(&Trial)) -> Result<Vec<Trial>, TuneError> {
    match device.resolve()? {
        ResolvedDevice::Cpu => Ok(Vec::new()),
        ResolvedDevice::Adapter(index) => Ok(tuning::tune(&Runtime::of(index)?, heard)?),
    }
}

/// Why a device could not be tuned.
#[derive(Debug, thiserror::Error)]
pub enum TuneError {
    /// There is no such device.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The device failed.
    #[error(transparent)]
    Tensor(#[from] crate::tensor::Error),
}
