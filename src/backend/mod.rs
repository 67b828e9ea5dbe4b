//! Burn's backend traits, one row per method.
//!
//! The contract is a set of tables (`float.rs`, `int.rs`, ...). A row is a method's signature and
//! its launch. Macros turn the rows into trait methods (`contract.rs`), into calls by name for
//! tests and benches ([`call`]), and into the coverage table ([`coverage`]). `context.rs` decides
//! whether an op runs on the GPU or on the CPU backend.
//!
//! The modules in order; each uses only earlier ones:
//!
//! 1. `fallback` counts fallbacks; `resolve` resolves the device of an op.
//! 2. `tensor` defines the tensor types; `transfer` uploads tensors and reads them back.
//! 3. `context` converts operands and results.
//! 4. `kinds` names the types in the rows; `launchers` converts Burn's arguments.
//! 5. `contract` defines the macros that read the tables, and the names that the rows use.
//! 6. The tables: `float`, `int`, `boolean`, `activation`, `module`, `quantized`, `extension`.
//!    `float` and `int` use `random`, which uses their methods.
//! 7. `call` and `coverage` read the tables for tests and tools.

#![cfg_attr(not(feature = "cpu"), allow(dead_code, reason = "the rest is for the CPU backend"))]

pub mod debug;
mod fallback;
mod host_data;
mod resolve;
mod tensor;
mod transfer;

mod computing;
mod context;
mod contract;
pub(crate) mod custom;
pub(crate) mod kinds;
mod launchers;

pub(crate) mod activation;
#[cfg(feature = "autodiff")]
pub(crate) mod attention_pattern;
pub(crate) mod boolean;
mod extension;
pub(crate) mod float;
pub(crate) mod int;
#[cfg(feature = "train")]
mod later;
pub(crate) mod module;
pub(crate) mod quantized;
mod random;
#[cfg(feature = "train")]
mod staging;

#[cfg(feature = "internals")]
pub mod call;
#[cfg(feature = "internals")]
pub mod coverage;

use burn_backend::{
    Backend, BackendTypes, DType, DTypeUsage, DTypeUsageSet, DeviceId, DeviceOps, ExecutionError,
};
use burn_ir::{BackendIr, HandleKind, TensorHandle};
use burn_std::BoolStore;

pub use extension::apply;
#[cfg(feature = "internals")]
pub use fallback::fallbacks_on_thread;
pub use fallback::{fallbacks, reset_fallbacks};
#[cfg(feature = "train")]
pub(crate) use later::LaterData;
#[cfg(feature = "train")]
pub(crate) use random::use_stream;
pub use random::{RandomState, random_state, set_random_state};
#[cfg(feature = "train")]
pub(crate) use staging::StagedData;
pub use tensor::{WgslQuantizedTensor, WgslTensor};

use crate::device::{
    AdapterKind, DeviceError, ResolvedDevice, WgslDevice, adapters, automatic_devices, discover,
};
use crate::kernels::gemm::tuning::Trial;
use crate::kernels::matmul;
use crate::runtime::{Runtime, RuntimeError};

/// The backend. `Autodiff<Wgsl>` trains; tensors live on a [`WgslDevice`].
#[derive(Debug, Clone, Copy, Default)]
pub struct Wgsl;

/// Burn programs that use several devices count those of a type id, usually 0, and create each one
/// from its id. Type id 0 stands for [`automatic_devices`]; the others are those of
/// [`WgslDevice::to_code`].
impl burn_std::device::Device for WgslDevice {
    fn from_id(id: DeviceId) -> Self {
        let index = usize::from(id.index_id);
        match Self::from_code((id.type_id, u32::from(id.index_id))) {
            Self::Auto => {
                let devices = automatic_devices().unwrap_or_default();
                let missing = if index == 0 { Self::Auto } else { Self::Gpu(index) };
                devices.get(index).copied().unwrap_or(missing)
            }
            device => device,
        }
    }

    /// Returns the id of the canonical selector: selectors of the same device share their settings.
    fn to_id(&self) -> DeviceId {
        let (type_id, index) = self.canonical().to_code();
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
    type BoolElem = bool;
    type QuantizedTensorPrimitive = WgslQuantizedTensor;
}

impl Backend for Wgsl {
    fn name(device: &Self::Device) -> String {
        format!("wgsl<{}>", device.describe().unwrap_or_else(|_| device.to_string()))
    }

    fn seed(device: &Self::Device, seed: u64) {
        random::seed(resolve::resolve(device, "seed"), seed);
    }

    fn sync(device: &Self::Device) -> Result<(), ExecutionError> {
        let error = |error: DeviceError| transfer::execution_error(&error);
        match device.resolve().map_err(error)? {
            ResolvedDevice::Cpu => Ok(()),
            ResolvedDevice::Adapter(index) => {
                let runtime = Runtime::of(index).map_err(error)?;
                runtime.sync().map_err(|error| transfer::execution_error(&error))
            }
        }
    }

    fn memory_cleanup(device: &Self::Device) {
        if let Some(runtime) = resolve::runtime(device, "memory_cleanup") {
            runtime.trim(0);
        }
    }

    fn dtype_usage(_device: &Self::Device, dtype: DType) -> DTypeUsageSet {
        match dtype {
            // Every boolean tensor reports and reads back as `Native`.
            DType::Bool(BoolStore::U32 | BoolStore::U8) => DTypeUsageSet::empty(),
            DType::QFloat(_) => DTypeUsage::Storage.into(),
            DType::Flex32 => DTypeUsageSet::empty(),
            _ => DTypeUsage::Storage | DTypeUsage::Arithmetic,
        }
    }

    fn device_count(type_id: u16) -> usize {
        match WgslDevice::from_code((type_id, 0)) {
            // If `BURN_WGSL_DEVICE` is invalid, the first use of the only device reports it.
            WgslDevice::Auto => automatic_devices().map_or(1, |devices| devices.len()),
            WgslDevice::Gpu(_) => {
                let kinds = adapters().iter().map(|adapter| adapter.info.kind);
                kinds.filter(|&kind| kind != AdapterKind::Software).count()
            }
            first => {
                let (type_id, _) = first.to_code();
                let exists = |&index: &u32| {
                    let device = WgslDevice::from_code((type_id, index));
                    // `software` and `cpu` drop the index, so each is counted once.
                    device.to_code() == (type_id, index) && device.resolve().is_ok()
                };
                (0..).take_while(exists).count()
            }
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

fn wrong_handle(expected: &str, handle: &HandleKind<Wgsl>) -> ! {
    panic!("expected a {expected} tensor handle, found a {} tensor handle", handle.name())
}

/// Opens a device and returns its canonical selector, which is never [`WgslDevice::Auto`].
///
/// In a browser, await this before creating tensors on a GPU, and again after the GPU was lost. On
/// other platforms the first use of a device opens it.
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
/// Returns an error if there is no such device, it cannot be opened, or it is the CPU and this
/// build has no CPU backend.
pub async fn open(device: &WgslDevice) -> Result<WgslDevice, DeviceError> {
    if !matches!(device, WgslDevice::Cpu) {
        discover().await;
    }
    match device.resolve()? {
        ResolvedDevice::Adapter(index) => Runtime::open(index).await.map(drop)?,
        ResolvedDevice::Cpu if !resolve::HAS_CPU => return Err(DeviceError::NoCpuBackend),
        ResolvedDevice::Cpu => {}
    }
    Ok(device.canonical())
}

/// Computes the results that are pending and still held: records their kernels, without waiting.
/// Otherwise they are computed when they are read or needed by another op, and elementwise results
/// that are dropped before are not computed at all, which measurements must prevent. Does nothing
/// for the CPU.
///
/// ```
/// use burn::tensor::Tensor;
/// use burn_wgsl::{Wgsl, WgslDevice, compute};
///
/// let device = WgslDevice::default();
/// let y = Tensor::<Wgsl, 1>::ones([1000], &device).exp(); // pending
/// compute(&device)?; // recorded, and kept
/// # drop(y);
/// # Ok::<(), burn_wgsl::RuntimeError>(())
/// ```
///
/// # Errors
///
/// Returns an error if the device cannot be opened or was lost, a kernel does not compile, or the memory is
/// not available.
pub fn compute(device: &WgslDevice) -> Result<(), RuntimeError> {
    match device.resolve()? {
        ResolvedDevice::Adapter(index) => Runtime::of(index)?.record_deferred(),
        ResolvedDevice::Cpu => Ok(()),
    }
}

/// Makes a software adapter use the kernels of a warmed-up one from now on, until it is closed or lost.
///
/// Otherwise a software adapter first runs kernels that compile quickly, for about a second of
/// work, so that short programs end sooner. Then faster kernels are compiled in the middle of the
/// work, and some round differently. Call this function before the first batch in a program that
/// answers requests, and in a program whose results must not depend on how long it has run. It is
/// needed for each device that the program opens; `BURN_WGSL_WARM=1` does the same for all devices
/// of a process. GPUs and the CPU have no warm-up.
///
/// ```no_run
/// use burn_wgsl::{WgslDevice, skip_warm_up};
///
/// let device = WgslDevice::default();
/// skip_warm_up(&device)?; // before the first batch
/// # Ok::<(), burn_wgsl::device::DeviceError>(())
/// ```
///
/// # Errors
///
/// Returns an error if there is no such device, or it cannot be opened; in a browser, await
/// [`open`] first.
pub fn skip_warm_up(device: &WgslDevice) -> Result<(), DeviceError> {
    if let ResolvedDevice::Adapter(index) = device.resolve()? {
        Runtime::of(index)?.skip_warm_up();
    }
    Ok(())
}

/// Closes a device and releases its GPU. Its tensors become invalid. The next use opens the device
/// again; in a browser, only [`open`] does. Does nothing for the CPU.
///
/// ```no_run
/// use burn_wgsl::{WgslDevice, close};
///
/// // Another program needs the memory of the GPU now.
/// close(&WgslDevice::default())?;
/// # Ok::<(), burn_wgsl::device::DeviceError>(())
/// ```
///
/// # Errors
///
/// Returns an error if there is no such device.
pub fn close(device: &WgslDevice) -> Result<(), DeviceError> {
    if let ResolvedDevice::Adapter(index) = device.resolve()? {
        Runtime::close(index);
    }
    Ok(())
}

/// Measures the strategies for matrix products and convolutions on a device, and caches the fastest
/// one per class of sizes, for this adapter and driver, in the user's cache folder.
///
/// Takes seconds to minutes. `on_progress` is called after each class. The cached winners are used
/// from then on, also by later processes, unless `BURN_WGSL_TUNING=off` or
/// [`set_tuning`](crate::set_tuning) disables them. Returns an empty list for the CPU.
///
/// ```no_run
/// use burn_wgsl::{WgslDevice, tune};
///
/// for trial in tune(&WgslDevice::default(), |trial| eprintln!("{}", trial.class))? {
///     println!("{}: {} is fastest", trial.class, trial.winner);
/// }
/// # Ok::<(), burn_wgsl::TuneError>(())
/// ```
///
/// # Errors
///
/// Returns an error if there is no such device or it fails, and in a browser, where the host cannot
/// block. A candidate that fails, or whose result differs from that of the scalar kernel, is logged
/// and skipped.
pub fn tune(device: &WgslDevice, on_progress: impl FnMut(&Trial)) -> Result<Vec<Trial>, TuneError> {
    match device.resolve()? {
        ResolvedDevice::Cpu => Ok(Vec::new()),
        ResolvedDevice::Adapter(index) => Ok(matmul::tune(&Runtime::of(index)?, on_progress)?),
    }
}

/// An error of [`tune`].
#[derive(Debug, thiserror::Error)]
pub enum TuneError {
    /// There is no such device.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The device failed.
    #[error(transparent)]
    Tensor(#[from] crate::tensor::Error),
}
