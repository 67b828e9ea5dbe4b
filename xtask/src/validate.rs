//! `cargo xtask validate`: checks every kernel as other compilers than naga and Mesa see it.
//!
//! Vulkan: `spirv-val` checks the SPIR-V. Direct3D 12: DXC compiles the HLSL to DXIL. Metal's
//! compiler exists on macOS only: `tests/code/variants` translates to Metal with naga, and nothing
//! else checks the result.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

use xtask::process::{cargo, run_command, target_dir};

use crate::packages::{Packages, cache_folder};
use crate::shaders;

/// The Python package that contains DXC for Linux, and its version.
const DXC_PACKAGE: &str = "compushady-lrtu==0.18.0";
/// DXC's library in the package.
const DXC_LIBRARY: &str = "libdxcompiler_x86_64.so";

/// The environment whose rules `spirv-val` applies.
const TARGET_ENVIRONMENT: &str = "vulkan1.3";

/// Runs the command. A tool that cannot be had is reported, and the others check the kernels.
///
/// # Errors
///
/// Returns an error if a kernel is invalid, or if no tool can be had.
pub fn run() -> Result<(), String> {
    let spirv_val = available("spirv-val", SpirvVal::find());
    let dxc = available("DXC", find_dxc());
    if spirv_val.is_none() && dxc.is_none() {
        return Err("no tool could be had, so nothing was checked".to_owned());
    }
    let work = target_dir().join("validate");
    let shaders = shaders::write_all(&work.join("shaders"))?;
    let list = work.join("kernels.txt");
    shaders::write_list(&list, &shaders)?;
    let spirv = work.join("spirv");
    std::fs::create_dir_all(&spirv)
        .map_err(|error| format!("cannot create {}: {error}", spirv.display()))?;

    let args = "run --locked --quiet --package xtask-compilers --bin shader-check --";
    let mut command = cargo(&args.split(' ').collect::<Vec<_>>());
    command.arg(&list).arg(&spirv).args(&dxc);
    let translated = run_command(&mut command);
    let mut failed: Vec<String> = translated.err().into_iter().collect();
    if let Some(spirv_val) = &spirv_val {
        let files: Vec<PathBuf> = shaders
            .iter()
            .map(|shader| {
                spirv.join(shader.file.with_extension("spv").file_name().unwrap_or_default())
            })
            .collect();
        failed.extend(spirv_val.check_all(&files));
    }
    let tools = [("spirv-val", spirv_val.is_some()), ("DXC", dxc.is_some())];
    let used: Vec<&str> = tools.iter().filter(|(_, used)| *used).map(|(name, _)| *name).collect();
    println!("    {} kernels checked with {}", shaders.len(), used.join(" and "));
    println!("    Metal is checked through naga only, by tests/code/variants");
    match failed.as_slice() {
        [] => Ok(()),
        failed => Err(failed.join("\n")),
    }
}

/// Returns the tool, or reports why it cannot be had.
fn available<T>(name: &str, found: Result<T, String>) -> Option<T> {
    found.inspect_err(|reason| println!("    {name} is not used: {reason}")).ok()
}

/// The validator of SPIR-V: that of this system, or of the unpacked packages.
enum SpirvVal {
    Installed,
    Unpacked(Packages),
}

impl SpirvVal {
    fn find() -> Result<Self, String> {
        let mut installed = Command::new("spirv-val");
        installed.arg("--version").stdout(Stdio::null());
        if installed.status().is_ok_and(|status| status.success()) {
            return Ok(Self::Installed);
        }
        Packages::unpack("spirv-tools", &["spirv-tools"]).map(Self::Unpacked)
    }

    fn command(&self) -> Command {
        match self {
            Self::Installed => Command::new("spirv-val"),
            Self::Unpacked(packages) => packages.command(&packages.program("spirv-val"), &[]),
        }
    }

    /// Checks every file and returns a message for each that is invalid.
    fn check_all(&self, files: &[PathBuf]) -> Vec<String> {
        let failed = Mutex::new(Vec::new());
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        std::thread::scope(|scope| {
            for share in files.chunks(files.len().div_ceil(threads).max(1)) {
                scope.spawn(|| {
                    for message in share.iter().filter_map(|file| self.check(file).err()) {
                        failed
                            .lock()
                            .unwrap_or_else(|poisoned| poisoned.into_inner())
                            .push(message);
                    }
                });
            }
        });
        failed.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn check(&self, file: &Path) -> Result<(), String> {
        let output = self.command().args(["--target-env", TARGET_ENVIRONMENT]).arg(file).output();
        let output = output.map_err(|error| format!("spirv-val could not be started: {error}"))?;
        if output.status.success() {
            return Ok(());
        }
        let messages = [output.stdout, output.stderr].concat();
        Err(format!("{}: {}", file.display(), String::from_utf8_lossy(&messages).trim_end()))
    }
}

/// Returns the path of DXC's library, which is downloaded at first use.
fn find_dxc() -> Result<PathBuf, String> {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        return Err("its package contains the compiler for Linux on x86-64 only".to_owned());
    }
    let folder = cache_folder()?.join("dxc");
    if let Some(library) = find_file(&folder, DXC_LIBRARY) {
        return Ok(library);
    }
    std::fs::create_dir_all(&folder)
        .map_err(|error| format!("cannot create {}: {error}", folder.display()))?;
    // The options make the choice of the file independent of this system's Python.
    let args = "-m pip download --quiet --no-deps --only-binary=:all: --python-version 3.11 \
                --platform manylinux_2_28_x86_64 --dest";
    let mut download = Command::new("python3");
    download.args(args.split_whitespace()).arg(&folder).arg(DXC_PACKAGE);
    run_command(&mut download)
        .map_err(|error| format!("{error}; the download needs Python's pip and the network"))?;
    let wheel = find_file(&folder, ".whl").ok_or("pip downloaded no file")?;
    run_command(Command::new("python3").args(["-m", "zipfile", "-e"]).arg(&wheel).arg(&folder))?;
    find_file(&folder, DXC_LIBRARY)
        .ok_or_else(|| format!("{} contains no {DXC_LIBRARY}", wheel.display()))
}

/// Returns a file in a folder or its subfolders whose name ends with `suffix`.
fn find_file(folder: &Path, suffix: &str) -> Option<PathBuf> {
    let entries = std::fs::read_dir(folder).ok()?.flatten();
    entries.map(|entry| entry.path()).find_map(|path| {
        if path.is_dir() {
            return find_file(&path, suffix);
        }
        path.file_name()?.to_string_lossy().ends_with(suffix).then_some(path)
    })
}
