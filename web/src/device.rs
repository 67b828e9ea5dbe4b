//! Discovers, opens and closes the browser's devices.

use burn_wgsl::device::{self, AdapterInfo, DeviceError, Features, Limits, ResolvedDevice};
use burn_wgsl::{WgslDevice, memory};
use serde::Serialize;
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;

use crate::script::{Result, js_error, to_js};

#[derive(Serialize)]
struct OpenedDevice {
    /// The selector to pass to the other functions.
    device: String,
    description: String,
    is_gpu: bool,
}

/// Resolves a device selector (`auto`, `gpu`, `software` or `cpu`) and opens its device.
#[wasm_bindgen]
pub async fn open(selector: &str) -> Result<JsValue> {
    device::discover().await;
    let device = match burn_wgsl::open(&parse_device(selector)?).await {
        // This module has no CPU backend. The page then loads the module that has one.
        Err(DeviceError::NoCpuBackend) => WgslDevice::Cpu,
        opened => opened.map_err(js_error)?,
    };
    let is_gpu = device.resolve().map_err(js_error)? != ResolvedDevice::Cpu;
    let description = device.describe().map_err(js_error)?;
    to_js(&OpenedDevice { device: device.to_string(), description, is_gpu })
}

/// Closes a device. Its tensors are lost, as after a device loss in the browser.
#[wasm_bindgen]
pub fn close(device: &str) -> Result<()> {
    burn_wgsl::close(&parse_device(device)?).map_err(js_error)
}

/// Parses a device selector.
pub fn parse_device(selector: &str) -> Result<WgslDevice> {
    selector.parse().map_err(|cause: device::DeviceError| js_error(cause))
}

#[derive(Serialize)]
struct Memory {
    in_use: u64,
    reserved: u64,
    peak: u64,
}

/// Returns the memory use of a device in bytes, or `null` for the CPU.
#[wasm_bindgen]
pub fn device_memory(device: &str) -> Result<JsValue> {
    let device = parse_device(device)?;
    let is_cpu = matches!(device.resolve().map_err(js_error)?, ResolvedDevice::Cpu);
    let usage = memory::usage(&device).map_err(js_error)?;
    to_js(&(!is_cpu).then_some(Memory {
        in_use: usage.in_use,
        reserved: usage.reserved,
        peak: usage.peak,
    }))
}

/// Returns advice for a browser in which no GPU was found.
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
    /// The limits that are too low, if any.
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

/// Returns info about the browser's adapter, as a list of at most one element.
#[wasm_bindgen]
pub async fn adapters() -> Result<JsValue> {
    let adapters = device::discover().await;
    to_js(&adapters.iter().map(|adapter| Adapter::of(&adapter.info)).collect::<Vec<_>>())
}
