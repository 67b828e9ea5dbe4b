//! `burn-wgsl devices`: lists the devices with their limits and features.

use std::thread::available_parallelism;

use burn_wgsl::device::{
    AdapterInfo, Automatic, DEVICE_VARIABLE, Features, Limits, WgslDevice, adapters, automatic,
    install_hint, selectors,
};
use burn_wgsl::runtime::Bytes;
use serde::Serialize;

use crate::CliError;
use crate::output::{print, table, wrap};

/// Prints the devices as tables or as one JSON document.
pub fn run(json: bool) -> Result<(), CliError> {
    let report = DevicesReport::new(adapters(), Some(automatic()?));
    let text = if json { serde_json::to_string_pretty(&report)? + "\n" } else { report.to_text() };
    print(&text)
}

/// Returns the JSON document of `devices --json`. Without `automatic` if a variable selects a device
/// that is not there.
pub fn as_json() -> Result<serde_json::Value, CliError> {
    Ok(serde_json::to_value(DevicesReport::new(adapters(), automatic().ok()))?)
}

/// The JSON document. Field names are JSON keys unless renamed.
#[derive(Serialize)]
struct DevicesReport {
    automatic: Option<AutomaticReport>,
    devices: Vec<DeviceReport>,
    /// What to install; `None` unless `auto` selects the CPU because no GPU is usable.
    install_hint: Option<String>,
}

#[derive(Serialize)]
struct AutomaticReport {
    device: String,
    reason: String,
    /// The value of the environment variable [`DEVICE_VARIABLE`].
    environment: Option<String>,
}

#[derive(Serialize)]
struct DeviceReport {
    /// The selectors that resolve to the device, the canonical one first.
    #[serde(rename = "words")]
    selectors: Vec<String>,
    name: String,
    vendor: String,
    kind: String,
    api: String,
    driver: String,
    driver_info: String,
    vendor_id: Option<u32>,
    device_id: Option<u32>,
    pci_bus_id: Option<String>,
    /// The memory of the device in bytes, if known.
    memory: Option<u64>,
    /// The number of compute units, streaming multiprocessors or shader cores, if known.
    processors: Option<u32>,
    limits: Option<Limits>,
    features: Option<Features>,
    /// Limits that are too low for the kernels; empty if the device is usable.
    #[serde(rename = "lacks")]
    shortfalls: Vec<String>,
}

impl DevicesReport {
    fn new<A: AsRef<AdapterInfo>>(adapters: &[A], automatic: Option<&Automatic>) -> Self {
        let of_adapter = |(index, adapter): (usize, &A)| {
            DeviceReport::of_adapter(&selectors(adapters, index), adapter.as_ref())
        };
        let mut devices: Vec<DeviceReport> = adapters.iter().enumerate().map(of_adapter).collect();
        devices.push(DeviceReport::of_cpu());
        Self {
            automatic: automatic.map(|automatic| AutomaticReport {
                device: automatic.device.to_string(),
                reason: automatic.reason.clone(),
                environment: automatic.environment.clone(),
            }),
            devices,
            install_hint: automatic
                .filter(|automatic| automatic.no_usable_gpu)
                .map(|_| install_hint()),
        }
    }

    fn to_text(&self) -> String {
        let with_limits = || self.devices.iter().filter(|device| device.limits.is_some());
        let mut text = devices_table(&self.devices);
        if with_limits().count() > 0 {
            text += "\nCompute limits\n";
            text += &limits_table(with_limits());
            text += "\nCompute features\n";
            text += &features_table(with_limits());
        }
        text += "\n";
        for device in self.devices.iter().filter(|device| !device.shortfalls.is_empty()) {
            let shortfalls = device.shortfalls.join("; ");
            text += &wrap(&format!("{} cannot be used: {shortfalls}.", device.name));
        }
        if let Some(AutomaticReport { device, reason, .. }) = &self.automatic {
            text += &wrap(&format!("`auto` selects {device}: {reason}."));
        }
        text += &wrap(&format!(
            "To select another device, set {DEVICE_VARIABLE} to a device from the first column."
        ));
        if let Some(install_hint) = &self.install_hint {
            text += &wrap(&format!("Hint: {install_hint}."));
        }
        text
    }
}

impl DeviceReport {
    fn of_adapter(selectors: &[WgslDevice], info: &AdapterInfo) -> Self {
        Self {
            selectors: selectors.iter().map(WgslDevice::to_string).collect(),
            name: info.name.clone(),
            vendor: info.vendor.clone(),
            kind: info.kind.to_string(),
            api: info.api.to_string(),
            driver: info.driver.clone(),
            driver_info: info.driver_info.clone(),
            vendor_id: Some(info.vendor_id),
            device_id: Some(info.device_id),
            pci_bus_id: info.pci_bus_id.clone(),
            memory: info.memory,
            processors: info.processors,
            limits: Some(info.limits),
            features: Some(info.features),
            shortfalls: info.limits.shortfalls().iter().map(ToString::to_string).collect(),
        }
    }

    fn of_cpu() -> Self {
        let threads = available_parallelism().map_or(1, usize::from);
        Self {
            selectors: vec![WgslDevice::Cpu.to_string()],
            name: format!("all ops on the CPU ({threads} threads)"),
            vendor: "-".to_owned(),
            kind: "cpu".to_owned(),
            api: "-".to_owned(),
            driver: "-".to_owned(),
            driver_info: String::new(),
            vendor_id: None,
            device_id: None,
            pci_bus_id: None,
            memory: None,
            processors: None,
            limits: None,
            features: None,
            shortfalls: Vec::new(),
        }
    }

    fn canonical_selector(&self) -> &str {
        self.selectors.first().map_or("-", String::as_str)
    }
}

fn devices_table(devices: &[DeviceReport]) -> String {
    let mut table = table(["device", "name", "vendor", "kind", "API", "driver"]);
    for device in devices {
        let selectors = match device.selectors.as_slice() {
            [] => "-".to_owned(),
            selectors => selectors.join("\n"),
        };
        let driver = format!("{} {}", device.driver, device.driver_info);
        let memory = device.memory.map(|bytes| format!(", {}", Bytes(bytes)));
        let processors = device.processors.map(|count| format!(", {count} processors"));
        let name = [Some(device.name.clone()), processors, memory].into_iter().flatten();
        table.add_row([
            selectors.as_str(),
            &name.collect::<String>(),
            &device.vendor,
            &device.kind,
            &device.api,
            driver.trim(),
        ]);
    }
    table.trim_fmt() + "\n"
}

fn limits_table<'a>(devices: impl Iterator<Item = &'a DeviceReport>) -> String {
    let mut table = table([
        "device",
        "max\nbuffer",
        "max\nbinding",
        "workgroup\nmemory",
        "invocations/\nworkgroup",
        "workgroups/\ndimension",
        "storage\nbuffers",
        "offset\nalignment",
        "subgroup\nsize",
    ]);
    for device in devices {
        let Some(limits) = &device.limits else {
            continue;
        };
        table.add_row([
            device.canonical_selector().to_owned(),
            Bytes(limits.max_buffer_size).to_string(),
            Bytes(limits.max_storage_binding_size).to_string(),
            Bytes(limits.workgroup_memory.into()).to_string(),
            limits.invocations_per_workgroup.to_string(),
            limits.workgroups_per_dimension.to_string(),
            limits.storage_buffers_per_stage.to_string(),
            joined(limits.storage_offset_alignment, limits.uniform_offset_alignment, "/"),
            joined(limits.min_subgroup_size, limits.max_subgroup_size, " to "),
        ]);
    }
    table.trim_fmt() + "\n"
}

fn features_table<'a>(devices: impl Iterator<Item = &'a DeviceReport>) -> String {
    let mut table = table(["device", "supported", "not supported"]);
    for device in devices {
        let Some(features) = &device.features else {
            continue;
        };
        let features = [
            ("f16", features.f16),
            ("subgroups", features.subgroups),
            ("immediates", features.immediates),
            ("timestamps", features.timestamps),
            ("timestamps inside passes", features.timestamps_inside_passes),
            ("pipeline cache", features.pipeline_cache),
            ("int64", features.int64),
            ("float atomics", features.float_atomics),
            ("cooperative matrices", features.cooperative_matrix),
        ];
        let names = |supported: bool| {
            let matching = features.iter().filter(|(_, value)| *value == supported);
            let names: Vec<&str> = matching.map(|(name, _)| *name).collect();
            names.join(", ")
        };
        table.add_row([device.canonical_selector().to_owned(), names(true), names(false)]);
    }
    table.trim_fmt() + "\n"
}

/// Joins two numbers with a separator; equal numbers are written once.
fn joined(first: u32, second: u32, separator: &str) -> String {
    if first == second { first.to_string() } else { format!("{first}{separator}{second}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::WIDTH;
    use burn_wgsl::device::{AdapterKind, Api, ResolvedDevice};

    #[test]
    fn long_names_and_many_devices_fit_the_width() {
        let mut gpu = AdapterInfo {
            name: "NVIDIA GeForce RTX 4090 Laptop GPU with a long name".to_owned(),
            vendor: "NVIDIA".to_owned(),
            kind: AdapterKind::Integrated,
            api: Api::Vulkan,
            driver: "NVIDIA".to_owned(),
            driver_info: "Mesa 25.0.7-2~bpo12+1 (git-0123456789abcdef)".to_owned(),
            ..AdapterInfo::default()
        };
        gpu.limits.max_buffer_size = (1 << 40) - (1 << 29);
        gpu.memory = Some((1 << 40) - (1 << 29));
        gpu.limits.storage_buffers_per_stage = 4;
        gpu.limits.workgroup_memory = 1000;
        gpu.features = Features { f16: true, ..Features::default() };
        let automatic = Automatic {
            device: WgslDevice::Cpu,
            resolved: ResolvedDevice::Cpu,
            reason: "a long reason ".repeat(12),
            environment: None,
            no_usable_gpu: true,
        };
        let text = DevicesReport::new(&vec![gpu; 12], Some(&automatic)).to_text();
        for line in text.lines() {
            assert!(line.chars().count() <= usize::from(WIDTH), "{line}");
        }
        assert!(text.contains("gpu:11 "), "{text}");
        assert!(text.contains("integrated:11"), "{text}");
        assert!(text.contains("1023.5 GiB"), "{text}");
    }
}
