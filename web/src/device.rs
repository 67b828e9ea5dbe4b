//! The browser's devices.

use burn_wgsl::WgslDevice;
use burn_wgsl::device::{self, AdapterInfo, DeviceError, Features, Limits, ResolvedDevice};
use serde::Serialize;
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;

use crate::script::{Result, error, object};

#[derive(Serialize)]
struct Open {
    /// The word to pass on.
    device: String,
    description: String,
    gpu: bool,
}

/// Finds and opens a device: `auto`, `gpu`, `software` or `cpu`.
#[wasm_bindgen]
pub async fn open(word: &str) -> Result<JsValue> {
    device::discover().await;
    let device = match burn_wgsl::open(&parsed(word)?).await {
        // The page then loads the module that has the CPU.
        Err(DeviceError::NoCpu) => WgslDevice::Cpu,
        opened => opened.map_err(error)?,
    };
    let place = device.resolve().map_err(error)?;
    let description = device.describe().map_err(error)?;
    object(&Open { device: device.to_string(), description, gpu: place != ResolvedDevice::Cpu })
}

/// Gives a device's GPU back: what is on it is gone, as when the browser takes it away.
#[wasm_bindgen]
pub fn close(device: &str) -> Result<()> {
    burn_wgsl::close(&parsed(device)?).map_err(error)
}

/// A device by its word.
pub fn parsed(word: &str) -> Result<WgslDevice> {
    word.parse().map_err(|cause: device::DeviceError| error(cause))
}

#[derive(Serialize)]
struct Memory {
    in_use: u64,
    reserved: u64,
    peak: u64,
}

/// Bytes held on a device; nothing on the CPU.
#[wasm_bindgen]
pub fn device_memory(device: &str) -> Result<JsValue> {
    let usage = burn_wgsl::memory(&parsed(device)?).map_err(error)?;
    object(&usage.map(|usage| Memory {
        in_use: usage.in_use,
        reserved: usage.reserved,
        peak: usage.peak,
    }))
}

/// What to do where there is no GPU.
#[wasm_bindgen]
pub fn install_hint() -> String {
    device::install_hint()
}

#[derive(Serialize)]
struct Adapter {
    name: String,
    kind: String,
    api: String,
    usable: bool,
    /// Which limits are too low, if any is.
    problem: Option<String>,
    limits: Limits,
    features: Features,
}

impl Adapter {
    fn of(info: &AdapterInfo) -> Self {
        let shortfalls = info.limits.shortfalls();
        let problem: Vec<String> = shortfalls.iter().map(ToString::to_string).collect();
        Self {
            name: info.name.clone(),
            kind: info.kind.to_string(),
            api: info.api.to_string(),
            usable: shortfalls.is_empty(),
            problem: Some(problem.join("; ")).filter(|problem| !problem.is_empty()),
            limits: info.limits,
            features: info.features,
        }
    }
}

/// What the browser's adapter offers: one at most.
#[wasm_bindgen]
pub async fn adapters() -> Result<JsValue> {
    let found = device::discover().await;
    object(&found.iter().map(|found| Adapter::of(&found.info)).collect::<Vec<_>>())
}
