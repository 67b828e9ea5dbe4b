//! Adapter properties, limits and features as plain data.

use std::fmt;

use serde::Serialize;

use super::units::{MatrixUnit, Units};
use super::vulkan::VulkanInfo;

/// The properties, limits and features of an adapter.
///
/// Plain data without driver handles, so tests can construct adapters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdapterInfo {
    /// The adapter's name as reported by the driver.
    pub name: String,
    /// The PCI vendor id; 0 if the API does not report it (Metal, browsers).
    pub vendor_id: u32,
    /// The vendor's name; its id in hexadecimal, or `unknown`, if the name is not known.
    pub vendor: String,
    /// The PCI device id; 0 if the API does not report it.
    pub device_id: u32,
    /// The kind of the adapter.
    pub kind: AdapterKind,
    /// The API that exposes the adapter.
    pub api: Api,
    /// The driver's name.
    pub driver: String,
    /// The driver's description of itself, usually its version.
    pub driver_info: String,
    /// The PCI address (`domain:bus:device.function`), if known. It distinguishes identical GPUs.
    pub pci_bus_id: Option<String>,
    /// The size of the adapter's largest heap of its own memory in bytes, if the API reports it. For
    /// adapters that share the memory of the host, a part of it.
    pub memory: Option<u64>,
    /// The number of processors that run workgroups independently (compute units, streaming multiprocessors,
    /// shader cores), if the driver reports it.
    pub processors: Option<u32>,
    /// The matrix units (tensor cores) that the kernels can use.
    pub matrix_units: Vec<MatrixUnit>,
    /// The limits that matter for compute.
    pub limits: Limits,
    /// The features that matter for compute.
    pub features: Features,
}

impl AdapterInfo {
    /// Returns the matrix units for floats of so many bits, in subgroups that the adapter has.
    pub fn units(&self, bits: u32) -> impl Iterator<Item = Units> {
        let subgroups = self.limits.min_subgroup_size..=self.limits.max_subgroup_size;
        Units::ALL.into_iter().filter(move |units| {
            self.matrix_units.contains(&MatrixUnit { size: units.size, bits })
                && subgroups.contains(&units.subgroup_size)
        })
    }

    /// Returns the most rounds of loops that one invocation of a kernel may take, those of nested loops counted
    /// together.
    ///
    /// Mesa's software adapter ends the loops of an invocation after 65,535 rounds, without an error; some are left
    /// for loops of constant length. On a GPU, which a driver resets after seconds, a million rounds take up to
    /// half a second.
    #[must_use]
    pub fn max_rounds(&self) -> u64 {
        match self.kind {
            AdapterKind::Software => 60_000,
            _ => 1 << 20,
        }
    }
}

impl AsRef<AdapterInfo> for AdapterInfo {
    fn as_ref(&self) -> &AdapterInfo {
        self
    }
}

/// The kind of an adapter, in the order in which `auto` prefers them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AdapterKind {
    /// A GPU with dedicated memory.
    Discrete,
    /// A GPU that shares the CPU's memory.
    Integrated,
    /// A GPU of a virtual machine.
    Virtual,
    /// A GPU whose kind the API does not report, as in a browser.
    #[default]
    Other,
    /// A software adapter: a driver that runs on the CPU.
    Software,
}

impl fmt::Display for AdapterKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Discrete => "discrete",
            Self::Integrated => "integrated",
            Self::Virtual => "virtual",
            Self::Other => "unknown kind",
            Self::Software => "software",
        })
    }
}

/// The API that exposes an adapter, in descending order of compute capabilities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Api {
    /// Vulkan (Linux, Windows, Android).
    Vulkan,
    /// Metal (macOS, iOS).
    Metal,
    /// Direct3D 12 (Windows).
    Dx12,
    /// WebGPU in a browser.
    WebGpu,
    /// Any other API.
    #[default]
    Other,
}

impl fmt::Display for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Vulkan => "Vulkan",
            Self::Metal => "Metal",
            Self::Dx12 => "DX12",
            Self::WebGpu => "WebGPU",
            Self::Other => "other",
        })
    }
}

/// The limits that matter for compute.
///
/// The default values are the minimum that WebGPU guarantees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Limits {
    /// The maximum size of a buffer, in bytes.
    pub max_buffer_size: u64,
    /// The maximum size of a storage buffer binding, in bytes.
    pub max_storage_binding_size: u64,
    /// The maximum workgroup memory of a workgroup, in bytes.
    pub workgroup_memory: u32,
    /// The maximum number of invocations in a workgroup.
    pub invocations_per_workgroup: u32,
    /// The maximum number of workgroups of a dispatch in each dimension.
    pub workgroups_per_dimension: u32,
    /// The maximum number of storage buffer bindings of a shader.
    pub storage_buffers_per_stage: u32,
    /// The required alignment of storage binding offsets, in bytes.
    pub storage_offset_alignment: u32,
    /// The required alignment of uniform binding offsets, in bytes.
    pub uniform_offset_alignment: u32,
    /// The minimum subgroup size.
    pub min_subgroup_size: u32,
    /// The maximum subgroup size.
    pub max_subgroup_size: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_buffer_size: 256 << 20,
            max_storage_binding_size: 128 << 20,
            workgroup_memory: 16 << 10,
            invocations_per_workgroup: 256,
            workgroups_per_dimension: 65_535,
            storage_buffers_per_stage: 8,
            storage_offset_alignment: 256,
            uniform_offset_alignment: 256,
            min_subgroup_size: 4,
            max_subgroup_size: 128,
        }
    }
}

/// The optional features that matter for compute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Features {
    /// 16-bit floats in shaders.
    pub f16: bool,
    /// Subgroup operations.
    pub subgroups: bool,
    /// Immediates (push constants) of at least 128 bytes.
    pub immediates: bool,
    /// Timestamps at the start and the end of a pass.
    pub timestamps: bool,
    /// Timestamps between the dispatches of a pass.
    pub timestamps_inside_passes: bool,
    /// Pipeline caches that can be stored on disk.
    pub pipeline_cache: bool,
    /// 64-bit integers in shaders.
    pub int64: bool,
    /// Atomic addition of 32-bit floats in storage buffers.
    pub float_atomics: bool,
    /// Cooperative matrices (tensor cores).
    pub cooperative_matrix: bool,
}

/// The size of the immediates that [`Features::immediates`] guarantees, in bytes.
pub const IMMEDIATE_BYTES: u32 = 128;

impl AdapterInfo {
    /// Reads the info of a wgpu adapter.
    pub(super) fn from_wgpu(adapter: &wgpu::Adapter) -> Self {
        let info = Self::from_parts(adapter.get_info(), &adapter.limits(), adapter.features());
        let VulkanInfo { memory, processors } = VulkanInfo::new(adapter);
        Self { memory, processors, matrix_units: MatrixUnit::all(adapter), ..info }
    }

    fn from_parts(
        info: wgpu::AdapterInfo,
        limits: &wgpu::Limits,
        features: wgpu::Features,
    ) -> Self {
        Self {
            vendor: vendor_name(info.vendor, &info.name),
            vendor_id: info.vendor,
            device_id: info.device,
            kind: match info.device_type {
                wgpu::DeviceType::DiscreteGpu => AdapterKind::Discrete,
                wgpu::DeviceType::IntegratedGpu => AdapterKind::Integrated,
                wgpu::DeviceType::VirtualGpu => AdapterKind::Virtual,
                wgpu::DeviceType::Cpu => AdapterKind::Software,
                wgpu::DeviceType::Other => AdapterKind::Other,
            },
            api: match info.backend {
                wgpu::Backend::Vulkan => Api::Vulkan,
                wgpu::Backend::Metal => Api::Metal,
                wgpu::Backend::Dx12 => Api::Dx12,
                wgpu::Backend::BrowserWebGpu => Api::WebGpu,
                wgpu::Backend::Gl | wgpu::Backend::Noop => Api::Other,
            },
            driver: info.driver,
            driver_info: info.driver_info,
            pci_bus_id: Some(info.device_pci_bus_id).filter(|id| !id.is_empty()),
            memory: None,
            processors: None,
            matrix_units: Vec::new(),
            limits: Limits {
                min_subgroup_size: info.subgroup_min_size,
                max_subgroup_size: info.subgroup_max_size,
                ..Limits::default()
            }
            .of_device(limits),
            features: Features::from_wgpu(features, limits),
            // A browser may report no name.
            name: if info.name.is_empty() { "unnamed adapter".to_owned() } else { info.name },
        }
    }
}

impl Limits {
    /// Returns these limits with those that a device was opened with.
    #[must_use]
    pub(super) fn of_device(self, limits: &wgpu::Limits) -> Self {
        Self {
            max_buffer_size: limits.max_buffer_size,
            max_storage_binding_size: limits.max_storage_buffer_binding_size,
            workgroup_memory: limits.max_compute_workgroup_storage_size,
            invocations_per_workgroup: limits.max_compute_invocations_per_workgroup,
            workgroups_per_dimension: limits.max_compute_workgroups_per_dimension,
            storage_buffers_per_stage: limits.max_storage_buffers_per_shader_stage,
            storage_offset_alignment: limits.min_storage_buffer_offset_alignment,
            uniform_offset_alignment: limits.min_uniform_buffer_offset_alignment,
            ..self
        }
    }
}

impl Features {
    /// Returns the features in a set of wgpu features. `limits` are the limits of the same device.
    pub(super) fn from_wgpu(features: wgpu::Features, limits: &wgpu::Limits) -> Self {
        use wgpu::Features as F;
        let has = |feature| features.contains(feature);
        Self {
            f16: has(F::SHADER_F16),
            subgroups: has(F::SUBGROUP),
            immediates: has(F::IMMEDIATES) && limits.max_immediate_size >= IMMEDIATE_BYTES,
            timestamps: has(F::TIMESTAMP_QUERY),
            timestamps_inside_passes: has(F::TIMESTAMP_QUERY_INSIDE_PASSES),
            pipeline_cache: has(F::PIPELINE_CACHE),
            int64: has(F::SHADER_INT64),
            float_atomics: has(F::SHADER_FLOAT32_ATOMIC),
            cooperative_matrix: has(F::EXPERIMENTAL_COOPERATIVE_MATRIX),
        }
    }
}

/// Vendors by id. Ids above 0xffff are Khronos vendor ids of software drivers; the others are PCI
/// ids.
const VENDORS: [(u32, &str); 15] = [
    (0x1002, "AMD"),
    (0x1010, "Imagination"),
    (0x106b, "Apple"),
    (0x10de, "NVIDIA"),
    (0x13b5, "Arm"),
    (0x1414, "Microsoft"),
    (0x144d, "Samsung"),
    (0x14e4, "Broadcom"),
    (0x15ad, "VMware"),
    (0x19e5, "Huawei"),
    (0x1ae0, "Google"),
    (0x5143, "Qualcomm"),
    (0x8086, "Intel"),
    (0x1_0005, "Mesa"),
    (0x1_0006, "PoCL"),
];

/// Returns the name of a vendor. Without an id (Metal), searches for it in the adapter's name.
fn vendor_name(id: u32, adapter_name: &str) -> String {
    let in_adapter_name = |(_, name): &&(u32, &str)| {
        id == 0 && adapter_name.to_ascii_lowercase().contains(&name.to_ascii_lowercase())
    };
    let by_id = VENDORS.iter().find(|(vendor_id, _)| *vendor_id == id);
    match by_id.or_else(|| VENDORS.iter().find(in_adapter_name)) {
        Some((_, name)) => (*name).to_owned(),
        None if id == 0 => "unknown".to_owned(),
        None => format!("{id:#06x}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vendor_name_uses_the_id_or_else_the_adapter_name() {
        assert_eq!(vendor_name(0x10de, "GeForce"), "NVIDIA");
        assert_eq!(vendor_name(0, "Apple M2 Max"), "Apple");
        assert_eq!(vendor_name(0, "?"), "unknown");
        assert_eq!(vendor_name(0xbeef, "Apple-like"), "0xbeef");
    }

    #[test]
    fn default_limits_are_the_webgpu_defaults() {
        let info = wgpu::AdapterInfo::new(wgpu::DeviceType::Other, wgpu::Backend::Noop);
        let info =
            AdapterInfo::from_parts(info, &wgpu::Limits::defaults(), wgpu::Features::empty());
        assert_eq!(info.limits, Limits::default());
        assert_eq!(info.features, Features::default());
    }
}
