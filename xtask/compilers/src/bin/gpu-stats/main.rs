//! Compiles kernels with the first Vulkan driver and prints what its compiler reports, as lines of
//! JSON.
//!
//! Usage: `gpu-stats LIST [ASSEMBLY]`. `LIST` is a file with the paths of the kernels. `ASSEMBLY`
//! is a folder for the driver's listings of instructions.
//!
//! The first line of the output describes the adapter. Each of the others describes a kernel, or
//! the error of its compilation. Kernels that need a feature which the adapter lacks are left out.
//!
//! wgpu cannot request the statistics of a pipeline. This program gives wgpu a device whose
//! pipelines keep them, so the driver compiles exactly the code that it gets in a program.

#[cfg(target_os = "linux")]
mod capture;
#[cfg(target_os = "linux")]
mod report;

#[cfg(target_os = "linux")]
fn main() -> anyhow::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.as_slice() {
        [list] => report::run(list, None),
        [list, assembly] => report::run(list, Some(assembly.as_ref())),
        _ => anyhow::bail!("usage: gpu-stats LIST [ASSEMBLY]"),
    }
}

#[cfg(not(target_os = "linux"))]
fn main() -> anyhow::Result<()> {
    anyhow::bail!("gpu-stats runs on Linux only, as the drivers do whose statistics it knows")
}
