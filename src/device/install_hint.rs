//! Advice for machines without a usable GPU.

use super::driver_files::driver_note;

/// Returns one line that says how to make a GPU available on this operating system.
///
/// The line starts in lower case or with the name of a variable, and has no final full stop.
///
/// ```
/// use burn_wgsl::WgslDevice;
/// use burn_wgsl::device::install_hint;
///
/// if WgslDevice::default().canonical() == WgslDevice::Cpu {
///     eprintln!("{}", install_hint());
/// }
/// ```
pub fn install_hint() -> String {
    let hint = if cfg!(target_os = "linux") {
        "to use a GPU, install its Vulkan driver and the Vulkan loader (AMD, Intel: \
         mesa-vulkan-drivers and libvulkan1; NVIDIA: the NVIDIA driver and libvulkan1), then check \
         that `vulkaninfo --summary` lists the GPU; a container must also be given access to it [BW01]"
    } else if cfg!(target_os = "windows") {
        "to use a GPU, install or update the driver of its vendor (AMD, Intel, NVIDIA, Qualcomm), \
         which includes Vulkan and DirectX 12; a remote session may hide the GPU [BW01]"
    } else if cfg!(target_vendor = "apple") {
        "to use a GPU, run on a system where Metal works; it needs no installation, but a virtual \
         machine may hide the GPU [BW01]"
    } else if cfg!(target_arch = "wasm32") {
        "to use a GPU, open the page over https or on localhost in a browser with WebGPU enabled [BW43]"
    } else {
        "to use a GPU, install its Vulkan driver and the Vulkan loader [BW01]"
    };
    let note = driver_note();
    let note = note.trim_end_matches('.');
    if note.is_empty() { hint.to_owned() } else { format!("{note}; {hint}") }
}
