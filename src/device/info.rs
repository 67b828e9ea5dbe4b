//! What is known of an adapter, as plain data.

use std::fmt;

/// What an adapter is and can do.
///
/// Nothing in it refers to a driver, so tests can invent adapters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdapterInfo {
    /// The name the driver gives it.
    pub name: String,
    /// The maker's PCI number; 0 where the API does not tell (Metal, browsers).
    pub vendor_id: u32,
    /// The maker in words, or its number where it is not a known one.
    pub vendor: String,
    /// The model's PCI number; 0 where the API does not tell.
    pub device_id: u32,
    /// What kind of device it is.
    pub kind: AdapterKind,
    /// The API it is reached through.
    pub api: Api,
    /// The driver's name.
    pub driver: String,
    /// The driver's own words about itself, mostly its version.
    pub driver_info: String,
    /// Where it sits (`domain:bus:device.function`), if known: it tells equal cards apart.
    pub pci_bus_id: Option<String>,
    /// The limits that matter for compute.
    pub limits: Limits,
    /// The features that matter for compute.
    pub features: Features,
}

impl AsRef<AdapterInfo> for AdapterInfo {
    fn as_ref(&self) -> &AdapterInfo {
        self
    }
}

/// The kind of an adapter, in the order in which the automatic choice takes them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AdapterKind {
    /// A GPU with memory of its own.
    Discrete,
    /// A GPU that shares the CPU's memory.
    Integrated,
    /// A GPU lent to a virtual machine.
    Virtual,
    /// A GPU whose kind the API does not tell, as in a browser.
    #[default]
    Other,
    /// A program on the CPU that behaves like a GPU.
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

/// The API an adapter is reached through, the most capable for compute first.
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
    /// Any other.
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
/// The default is what every WebGPU implementation promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Limits {
    /// The largest buffer, in bytes.
    pub max_buffer_size: u64,
    /// The largest part of a buffer that a shader can be given, in bytes.
    pub max_storage_binding_size: u64,
    /// The workgroup memory of one workgroup, in bytes.
    pub workgroup_memory: u32,
    /// The invocations of one workgroup.
    pub invocations_per_workgroup: u32,
    /// The workgroups of a dispatch, in each of its three dimensions.
    pub workgroups_per_dimension: u32,
    /// The storage buffers one shader can be given.
    pub storage_buffers_per_stage: u32,
    /// The multiple at which a storage binding must start in its buffer, in bytes.
    pub storage_offset_alignment: u32,
    /// The multiple at which a uniform binding must start in its buffer, in bytes.
    pub uniform_offset_alignment: u32,
    /// The smallest subgroup the driver may choose.
    pub min_subgroup_size: u32,
    /// The largest subgroup the driver may choose.
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Features {
    /// 16-bit floats in shaders.
    pub f16: bool,
    /// Subgroup operations.
    pub subgroups: bool,
    /// Small parameters handed over with a dispatch, at least 128 bytes of them.
    pub immediates: bool,
    /// Timestamps at the start and the end of a pass.
    pub timestamps: bool,
    /// Timestamps between the dispatches of a pass.
    pub timestamps_inside_passes: bool,
    /// Compiled pipelines that can be kept on disk.
    pub pipeline_cache: bool,
    /// 64-bit integers in shaders.
    pub int64: bool,
    /// Atomic addition of 32-bit floats in storage buffers.
    pub float_atomics: bool,
    /// Cooperative matrices (tensor cores, matrix units of a subgroup).
    pub cooperative_matrix: bool,
}

/// The bytes of immediates that [`Features::immediates`] promises.
pub const IMMEDIATE_BYTES: u32 = 128;

impl AdapterInfo {
    /// The info of a real adapter.
    pub(super) fn of(adapter: &wgpu::Adapter) -> Self {
        Self::from_parts(adapter.get_info(), &adapter.limits(), adapter.features())
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
            limits: Limits {
                max_buffer_size: limits.max_buffer_size,
                max_storage_binding_size: limits.max_storage_buffer_binding_size,
                workgroup_memory: limits.max_compute_workgroup_storage_size,
                invocations_per_workgroup: limits.max_compute_invocations_per_workgroup,
                workgroups_per_dimension: limits.max_compute_workgroups_per_dimension,
                storage_buffers_per_stage: limits.max_storage_buffers_per_shader_stage,
                storage_offset_alignment: limits.min_storage_buffer_offset_alignment,
                uniform_offset_alignment: limits.min_uniform_buffer_offset_alignment,
                min_subgroup_size: info.subgroup_min_size,
                max_subgroup_size: info.subgroup_max_size,
            },
            features: Features::of(features, limits),
            // Browsers may keep the name to themselves.
            name: if info.name.is_empty() { "unnamed adapter".to_owned() } else { info.name },
        }
    }
}

impl Features {
    /// The features within a set of wgpu's, with the limits that go with it.
    pub(super) fn of(features: wgpu::Features, limits: &wgpu::Limits) -> Self {
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

/// Makers by PCI number, and the two software ones that the Vulkan registry numbers beyond PCI.
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

/// The maker in words. Metal gives no number, so there the adapter's name has to tell.
fn vendor_name(id: u32, adapter: &str) -> String {
    let named = |(_, vendor): &&(u32, &str)| {
        id == 0 && adapter.to_lowercase().contains(&vendor.to_lowercase())
    };
    let known =
        VENDORS.iter().find(|(number, _)| *number == id).or_else(|| VENDORS.iter().find(named));
    match known {
        Some((_, vendor)) => (*vendor).to_owned(),
        None if id == 0 => "unknown".to_owned(),
        None => format!("{id:#06x}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn makers_are_known_by_number_else_by_the_name_of_the_adapter() {
        assert_eq!(vendor_name(0x10de, "GeForce"), "NVIDIA");
        assert_eq!(vendor_name(0, "Apple M2 Max"), "Apple");
        assert_eq!(vendor_name(0, "?"), "unknown");
        assert_eq!(vendor_name(0xbeef, "Apple-like"), "0xbeef");
    }

    #[test]
    fn default_limits_are_the_promise_of_webgpu() {
        let info = wgpu::AdapterInfo::new(wgpu::DeviceType::Other, wgpu::Backend::Noop);
        let info =
            AdapterInfo::from_parts(info, &wgpu::Limits::defaults(), wgpu::Features::empty());
        assert_eq!(info.limits, Limits::default());
        assert_eq!(info.features, Features::default());
    }
}
