//! GPUs that are not there: Mesa's Vulkan drivers on Mesa's stand-ins for the kernel drivers.
//!
//! The stand-in is a library (`drm-shim`) that is loaded first and answers the system calls. The
//! driver's compiler works as on a machine with the GPU. Memory is host memory, and dispatches do
//! nothing: results are zeros, which show nothing about correctness.

use std::fs;
use std::path::Path;
use std::process::Command;

use xtask::process::target_dir;

use crate::packages::Packages;

/// The packages with the drivers, the stand-ins and the Vulkan loader.
pub const PACKAGES: [&str; 3] = ["mesa-vulkan-drivers", "mesa-drm-shim", "libvulkan1"];

/// A GPU that a driver can be made to see.
#[derive(Debug)]
pub struct PretendedGpu {
    /// The name in options and files.
    pub name: &'static str,
    /// The generation of GPUs that it stands for.
    pub generation: &'static str,
    /// The driver's library is `libvulkan_DRIVER.so`.
    driver: &'static str,
    /// The stand-in is `libSHIM_noop_drm_shim.so`.
    shim: &'static str,
    /// Environment variables that select the GPU.
    variables: &'static [(&'static str, &'static str)],
    /// The unit of registers in the driver's statistics.
    pub register_unit: &'static str,
    /// The unit of occupancy in the driver's statistics.
    pub occupancy_unit: &'static str,
}

/// A GPU of AMD with the driver RADV.
const fn amd(
    name: &'static str,
    generation: &'static str,
    variables: &'static [(&'static str, &'static str)],
) -> PretendedGpu {
    PretendedGpu {
        name,
        generation,
        driver: "radeon",
        shim: "amdgpu",
        variables,
        register_unit: "VGPRs",
        occupancy_unit: "waves per SIMD",
    }
}

/// Every GPU that this command knows. NVK comes first because its compiler takes the longest.
pub const GPUS: [PretendedGpu; 6] = [
    PretendedGpu {
        name: "ada",
        generation: "NVIDIA Ada, driver NVK",
        driver: "nouveau",
        shim: "nouveau",
        variables: &[("NOUVEAU_CHIPSET", "0x192"), ("NVK_I_WANT_A_BROKEN_VULKAN_DRIVER", "1")],
        register_unit: "registers",
        occupancy_unit: "warps per SM",
    },
    amd("navi21", "AMD RDNA 2, driver RADV", &[("AMDGPU_GPU_ID", "navi21")]),
    amd("navi31", "AMD RDNA 3, driver RADV", &[("AMDGPU_GPU_ID", "navi31")]),
    amd("gfx1201", "AMD RDNA 4, driver RADV", &[("AMDGPU_GPU_ID", "gfx1201")]),
    PretendedGpu {
        name: "m1",
        generation: "Apple M1, driver Honeykrisp",
        driver: "asahi",
        shim: "asahi",
        variables: &[],
        register_unit: "registers of 16 bits",
        occupancy_unit: "threads per core",
    },
    PretendedGpu {
        name: "adreno740",
        generation: "Qualcomm Adreno 740, driver Turnip",
        driver: "freedreno",
        shim: "freedreno",
        variables: &[("FD_GPU_ID", "740")],
        register_unit: "registers of 4 x 32 bits",
        occupancy_unit: "waves per core",
    },
];

impl PretendedGpu {
    /// Returns a command that runs a program on this GPU.
    ///
    /// # Errors
    ///
    /// Returns an error if the packages lack the driver or the stand-in.
    pub fn command(&self, packages: &Packages, program: &Path) -> Result<Command, String> {
        self.command_with(packages, program, None)
    }

    /// Does the same as [`Self::command`], and loads the library `patch` after the stand-in.
    ///
    /// # Errors
    ///
    /// As [`Self::command`].
    pub fn command_with(
        &self,
        packages: &Packages,
        program: &Path,
        patch: Option<&Path>,
    ) -> Result<Command, String> {
        let shim = packages.library_folder().join(format!("lib{}_noop_drm_shim.so", self.shim));
        let preload: Vec<&Path> = [shim.as_path()].into_iter().chain(patch).collect();
        let mut command = driver_command(packages, self.name, self.driver, program, &preload)?;
        command.envs(self.variables.iter().copied());
        Ok(command)
    }
}

/// Returns a command that runs a program with the Vulkan driver `libvulkan_DRIVER.so` only, and
/// with the libraries `preload`. The driver's manifest is named after the adapter.
///
/// # Errors
///
/// Returns an error if one of the libraries does not exist.
pub fn driver_command(
    packages: &Packages,
    name: &str,
    driver: &str,
    program: &Path,
    preload: &[&Path],
) -> Result<Command, String> {
    let library = packages.library_folder().join(format!("libvulkan_{driver}.so"));
    for library in preload.iter().copied().chain([library.as_path()]) {
        if !library.exists() {
            return Err(format!("there is no {}", library.display()));
        }
    }
    let folder = target_dir().join("gpus");
    let manifest = folder.join(format!("{name}.icd.json"));
    let icd = serde_json::json!({ "library_path": library, "api_version": "1.3.0" });
    let text = serde_json::json!({ "file_format_version": "1.0.0", "ICD": icd });
    fs::create_dir_all(&folder)
        .and_then(|()| fs::write(&manifest, text.to_string()))
        .map_err(|error| format!("cannot write {}: {error}", manifest.display()))?;
    let mut command = packages.command(program, preload);
    // Variables in the user's shell must not change what the drivers do.
    command.env_clear();
    command.env("VK_DRIVER_FILES", &manifest);
    command.env("MESA_SHADER_CACHE_DISABLE", "true");
    Ok(command)
}
