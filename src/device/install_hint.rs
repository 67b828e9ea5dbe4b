//! What to do where no GPU was found.

/// One line that says what to install so that a GPU is found, on this operating system.
pub fn install_hint() -> String {
    let line = if cfg!(target_os = "linux") {
        "to use a GPU, install its Vulkan driver and the Vulkan loader (AMD, Intel: \
         mesa-vulkan-drivers and libvulkan1; NVIDIA: NVIDIA's own driver and libvulkan1; in a \
         container, also pass the GPU in), then see what `vulkaninfo --summary` lists"
    } else if cfg!(target_os = "windows") {
        "to use a GPU, install or update the driver from its maker (AMD, Intel, NVIDIA, Qualcomm): \
         it brings Vulkan and DirectX 12; a remote session may hide the GPU"
    } else if cfg!(target_vendor = "apple") {
        "to use a GPU, run where Metal works: it comes with the system, but a virtual machine may \
         hide the GPU"
    } else if cfg!(target_arch = "wasm32") {
        "to use a GPU, open the page over https or on localhost in a browser with WebGPU switched on"
    } else {
        "to use a GPU, install its Vulkan driver and the Vulkan loader"
    };
    line.to_owned()
}
