//! The memory of adapters.

/// Returns the size of the largest memory heap of an adapter that is local to it. Only Vulkan tells.
#[cfg(any(target_os = "linux", target_os = "android", windows))]
pub(super) fn device_memory(adapter: &wgpu::Adapter) -> Option<u64> {
    // SAFETY: the driver's handles are only read, while the adapter is borrowed.
    let vulkan = unsafe { adapter.as_hal::<wgpu::hal::api::Vulkan>() }?;
    let instance = vulkan.shared_instance().raw_instance();
    let device = vulkan.raw_physical_device();
    // SAFETY: the physical device is one of the instance's.
    let properties = unsafe { instance.get_physical_device_memory_properties(device) };
    let heaps = &properties.memory_heaps[..properties.memory_heap_count as usize];
    const DEVICE_LOCAL: u32 = 1;
    let local = heaps.iter().filter(|heap| heap.flags.as_raw() & DEVICE_LOCAL != 0);
    local.map(|heap| heap.size).max()
}

/// No other API tells.
#[cfg(not(any(target_os = "linux", target_os = "android", windows)))]
pub(super) fn device_memory(_adapter: &wgpu::Adapter) -> Option<u64> {
    None
}
