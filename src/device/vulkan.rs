//! Properties of adapters that only Vulkan reports.

#[cfg(any(target_os = "linux", target_os = "android", windows))]
use ash::vk;
#[cfg(any(target_os = "linux", target_os = "android", windows))]
use wgpu::hal::vulkan::Adapter;

/// The properties of an adapter that wgpu does not report. All are unknown with another API.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct VulkanInfo {
    /// The size of the largest memory heap that is local to the adapter, in bytes.
    pub memory: Option<u64>,
    /// The number of compute units, streaming multiprocessors or shader cores.
    pub processors: Option<u32>,
}

#[cfg(not(any(target_os = "linux", target_os = "android", windows)))]
impl VulkanInfo {
    pub fn new(_adapter: &wgpu::Adapter) -> Self {
        Self::default()
    }
}

#[cfg(any(target_os = "linux", target_os = "android", windows))]
impl VulkanInfo {
    pub fn new(adapter: &wgpu::Adapter) -> Self {
        // SAFETY: the driver's handles are only read, while the adapter is borrowed.
        let vulkan = unsafe { adapter.as_hal::<wgpu::hal::api::Vulkan>() };
        vulkan.map_or_else(Self::default, |vulkan| Self {
            memory: Self::memory(&vulkan),
            processors: Self::processors(&vulkan),
        })
    }

    fn memory(adapter: &Adapter) -> Option<u64> {
        let instance = adapter.shared_instance().raw_instance();
        let device = adapter.raw_physical_device();
        // SAFETY: the physical device is one of the instance's.
        let properties = unsafe { instance.get_physical_device_memory_properties(device) };
        let heaps = &properties.memory_heaps[..properties.memory_heap_count as usize];
        let is_local =
            |heap: &&vk::MemoryHeap| heap.flags.contains(vk::MemoryHeapFlags::DEVICE_LOCAL);
        heaps.iter().filter(is_local).map(|heap| heap.size).max()
    }

    /// AMD, NVIDIA and Arm have extensions for it.
    fn processors(adapter: &Adapter) -> Option<u32> {
        let capabilities = adapter.physical_device_capabilities();
        let instance_version = adapter.shared_instance().instance_api_version();
        if capabilities.properties().api_version.min(instance_version) < vk::API_VERSION_1_1 {
            return None;
        }
        let has = |extension| capabilities.supports_extension(extension);
        let mut amd = vk::PhysicalDeviceShaderCoreProperties2AMD::default();
        let mut nvidia = vk::PhysicalDeviceShaderSMBuiltinsPropertiesNV::default();
        let mut arm = vk::PhysicalDeviceShaderCoreBuiltinsPropertiesARM::default();
        let mut properties = vk::PhysicalDeviceProperties2::default();
        if has(ash::amd::shader_core_properties2::NAME) {
            properties = properties.push_next(&mut amd);
        }
        if has(ash::nv::shader_sm_builtins::NAME) {
            properties = properties.push_next(&mut nvidia);
        }
        if has(ash::arm::shader_core_builtins::NAME) {
            properties = properties.push_next(&mut arm);
        }
        let instance = adapter.shared_instance().raw_instance();
        // SAFETY: the physical device is one of the instance's. Both have the function, and the device
        // has the extensions of the structures.
        unsafe {
            instance
                .get_physical_device_properties2(adapter.raw_physical_device(), &mut properties);
        }
        let counts = [amd.active_compute_unit_count, nvidia.shader_sm_count, arm.shader_core_count];
        counts.into_iter().find(|count| *count > 0)
    }
}
