//! `burn-wgsl devices`: what this crate sees of this machine.

use std::thread::available_parallelism;

use burn_wgsl::device::{
    AdapterInfo, Automatic, DEVICE_VARIABLE, Features, Limits, WgslDevice, adapters, automatic,
    install_hint, selectors,
};
use serde::Serialize;

use crate::Failure;
use crate::text::{bytes, print, table, wrapped};

/// Lists the devices, as tables or as one JSON document.
pub fn run(json: bool) -> Result<(), Failure> {
    let report = Report::new(adapters(), automatic()?);
    let text = if json { serde_json::to_string_pretty(&report)? + "\n" } else { report.to_text() };
    print(&text).map_err(|error| Failure::write("standard output", error))
}

/// Everything the command tells; its fields are the JSON document.
#[derive(Serialize)]
struct Report {
    automatic: AutomaticReport,
    devices: Vec<DeviceReport>,
    /// What to install, where no GPU can be used.
    install_hint: Option<String>,
}

#[derive(Serialize)]
struct AutomaticReport {
    device: String,
    reason: String,
    /// What the environment variable is set to.
    environment: Option<String>,
}

#[derive(Serialize)]
struct DeviceReport {
    /// The words that name it, the preferred one first.
    words: Vec<String>,
    name: String,
    vendor: String,
    kind: String,
    api: String,
    driver: String,
    driver_info: String,
    vendor_id: Option<u32>,
    device_id: Option<u32>,
    pci_bus_id: Option<String>,
    limits: Option<Limits>,
    features: Option<Features>,
    /// Limits too low for the kernels; empty where the device can be used.
    lacks: Vec<String>,
}

impl Report {
    fn new<F: AsRef<AdapterInfo>>(adapters: &[F], automatic: &Automatic) -> Self {
        let report = |(index, info): (usize, &F)| {
            DeviceReport::of_adapter(&selectors(adapters, index), info.as_ref())
        };
        let mut devices: Vec<DeviceReport> = adapters.iter().enumerate().map(report).collect();
        devices.push(DeviceReport::of_cpu());
        Self {
            automatic: AutomaticReport {
                device: automatic.device.to_string(),
                reason: automatic.reason.clone(),
                environment: automatic.environment.clone(),
            },
            devices,
            install_hint: automatic.no_gpu_found.then(install_hint),
        }
    }

    fn to_text(&self) -> String {
        let with_limits = || self.devices.iter().filter(|device| device.limits.is_some());
        let mut text = devices_table(&self.devices);
        if with_limits().count() > 0 {
            text += "\nLimits that matter for compute\n";
            text += &limits_table(with_limits());
            text += "\nFeatures that matter for compute\n";
            text += &features_table(with_limits());
        }
        text += "\n";
        for device in self.devices.iter().filter(|device| !device.lacks.is_empty()) {
            let lacks = device.lacks.join("; ");
            text += &wrapped(&format!("{} cannot be used: {lacks}", device.name));
        }
        let AutomaticReport { device, reason, .. } = &self.automatic;
        text += &wrapped(&format!("auto takes {device}: {reason}."));
        text += &wrapped(&format!(
            "To change that, set {DEVICE_VARIABLE} to another of the words in the first column."
        ));
        if let Some(install_hint) = &self.install_hint {
            text += &wrapped(&format!("Advice: {install_hint}."));
        }
        text
    }
}

impl DeviceReport {
    fn of_adapter(words: &[WgslDevice], info: &AdapterInfo) -> Self {
        Self {
            words: words.iter().map(WgslDevice::to_string).collect(),
            name: info.name.clone(),
            vendor: info.vendor.clone(),
            kind: info.kind.to_string(),
            api: info.api.to_string(),
            driver: info.driver.clone(),
            driver_info: info.driver_info.clone(),
            vendor_id: Some(info.vendor_id),
            device_id: Some(info.device_id),
            pci_bus_id: info.pci_bus_id.clone(),
            limits: Some(info.limits),
            features: Some(info.features),
            lacks: info.limits.shortfalls().iter().map(ToString::to_string).collect(),
        }
    }

    fn of_cpu() -> Self {
        let threads = available_parallelism().map_or(1, usize::from);
        Self {
            words: vec![WgslDevice::Cpu.to_string()],
            name: format!("every op on the CPU ({threads} threads)"),
            vendor: "-".to_owned(),
            kind: "cpu".to_owned(),
            api: "-".to_owned(),
            driver: "-".to_owned(),
            driver_info: String::new(),
            vendor_id: None,
            device_id: None,
            pci_bus_id: None,
            limits: None,
            features: None,
            lacks: Vec::new(),
        }
    }

    fn word(&self) -> &str {
        self.words.first().map_or("-", String::as_str)
    }
}

fn devices_table(devices: &[DeviceReport]) -> String {
    let mut table = table(["device", "name", "vendor", "kind", "API", "driver"]);
    for device in devices {
        let words = match device.words.as_slice() {
            [] => "-".to_owned(),
            words => words.join("\n"),
        };
        let driver = format!("{} {}", device.driver, device.driver_info);
        table.add_row([
            words.as_str(),
            &device.name,
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
        "largest\nbuffer",
        "largest\nbinding",
        "workgroup\nmemory",
        "invocations\na workgroup",
        "workgroups\na dimension",
        "storage\nbuffers",
        "offset\nalignment",
        "subgroup\nsize",
    ]);
    for device in devices {
        let Some(limits) = &device.limits else {
            continue;
        };
        table.add_row([
            device.word().to_owned(),
            bytes(limits.max_buffer_size),
            bytes(limits.max_storage_binding_size),
            bytes(limits.workgroup_memory.into()),
            limits.invocations_per_workgroup.to_string(),
            limits.workgroups_per_dimension.to_string(),
            limits.storage_buffers_per_stage.to_string(),
            pair(limits.storage_offset_alignment, limits.uniform_offset_alignment, "/"),
            pair(limits.min_subgroup_size, limits.max_subgroup_size, " to "),
        ]);
    }
    table.trim_fmt() + "\n"
}

fn features_table<'a>(devices: impl Iterator<Item = &'a DeviceReport>) -> String {
    let mut table = table(["device", "has", "has not"]);
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
        let those = |wanted: bool| {
            let those = features.iter().filter(|(_, there)| *there == wanted);
            let names: Vec<&str> = those.map(|(name, _)| *name).collect();
            names.join(", ")
        };
        table.add_row([device.word().to_owned(), those(true), those(false)]);
    }
    table.trim_fmt() + "\n"
}

/// Two numbers, or one where they are equal.
fn pair(first: u32, second: u32, between: &str) -> String {
    if first == second { first.to_string() } else { format!("{first}{between}{second}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::WIDTH;
    use burn_wgsl::device::{AdapterKind, Api, ResolvedDevice};

    #[test]
    fn a_large_machine_fits_into_the_width() {
        let mut gpu = AdapterInfo {
            name: "NVIDIA GeForce RTX 4090 Laptop GPU with quite a name".to_owned(),
            vendor: "NVIDIA".to_owned(),
            kind: AdapterKind::Integrated,
            api: Api::Vulkan,
            driver: "NVIDIA".to_owned(),
            driver_info: "Mesa 25.0.7-2~bpo12+1 (git-0123456789abcdef)".to_owned(),
            ..AdapterInfo::default()
        };
        gpu.limits.max_buffer_size = (1 << 40) - (1 << 29);
        gpu.limits.storage_buffers_per_stage = 4;
        gpu.limits.workgroup_memory = 1000;
        gpu.features = Features { f16: true, ..Features::default() };
        let automatic = Automatic {
            device: WgslDevice::Cpu,
            place: ResolvedDevice::Cpu,
            reason: "a long reason ".repeat(12),
            environment: None,
            no_gpu_found: true,
        };
        let text = Report::new(&vec![gpu; 12], &automatic).to_text();
        for line in text.lines() {
            assert!(line.chars().count() <= usize::from(WIDTH), "{line}");
        }
        assert!(text.contains("gpu:11 "), "{text}");
        assert!(text.contains("integrated:11"), "{text}");
        assert!(text.contains("1023.5 GiB"), "{text}");
    }
}
