//! Finds or installs Mesa's lavapipe, a software Vulkan adapter, and selects it for the tests.

use std::env::{consts::ARCH, var_os};
use std::fs;
use std::path::{Path, PathBuf};

use xtask::debian::{apt_get, can_install, os_release};
use xtask::process::run_command;

use crate::apt_sources::{SOURCES_FOLDER, system_sources};
use crate::options::Options;
use crate::step::Outcome;

/// Whether packages of lavapipe exist for this operating system. Without them, the tests use the
/// GPU of the machine.
const LAVAPIPE_SUPPORTED: bool = cfg!(not(any(target_os = "macos", target_os = "windows")));

/// The environment variables that list driver manifests for the Vulkan loader. Loaders before
/// 1.3.207 support only the second.
const DRIVER_VARIABLES: [&str; 2] = ["VK_DRIVER_FILES", "VK_ICD_FILENAMES"];

const LAVAPIPE_MISSING: &str = "\
no software Vulkan adapter found: lvp_icd*.json or libvulkan.so.1 is missing. To install it:
    Debian, Ubuntu   sudo apt-get install mesa-vulkan-drivers libvulkan1
                     (or run this command as root)
    Fedora           sudo dnf install mesa-vulkan-drivers vulkan-loader
    Arch             sudo pacman -S vulkan-swrast vulkan-icd-loader
To test a GPU of this machine instead:  cargo xtask test --device gpu:0
To test without an adapter:             cargo xtask test --no-adapter";

/// Runs the step `adapter`: finds lavapipe, or installs it as root on a Debian-based system.
///
/// # Errors
///
/// Returns an error if lavapipe is missing and cannot be installed.
pub fn ensure(options: &Options) -> Result<Outcome, String> {
    if options.no_adapter {
        return Ok(Outcome::Skipped("--no-adapter was given".to_owned()));
    }
    if let Some(selector) = &options.device {
        return Ok(Outcome::Skipped(format!("testing the device `{selector}`")));
    }
    if !LAVAPIPE_SUPPORTED {
        return Ok(Outcome::Skipped(
            "this system has no lavapipe: GPU tests use the GPU of this machine, if there is one"
                .to_owned(),
        ));
    }
    if let Some(name) = user_driver_variable() {
        println!("    using the driver that {name} selects");
        return Ok(Outcome::Passed);
    }
    if !is_installed() && can_install() {
        install()?;
    }
    if !is_installed() {
        return Err(LAVAPIPE_MISSING.to_owned());
    }
    if let Some(manifest) = driver_manifest() {
        println!("    found {}", manifest.display());
    }
    Ok(Outcome::Passed)
}

/// Returns the environment variables that make lavapipe the only Vulkan driver of a child process,
/// so that every machine runs the same tests. Empty if the options or the user select a device.
pub fn environment(options: &Options) -> Vec<(&'static str, PathBuf)> {
    if options.no_adapter || options.device.is_some() || user_driver_variable().is_some() {
        return Vec::new();
    }
    let manifest = driver_manifest();
    DRIVER_VARIABLES.into_iter().filter_map(|name| Some((name, manifest.clone()?))).collect()
}

/// Returns the selector of the device that the GPU tests must find, or `None` if they may be
/// skipped.
pub fn required_device(options: &Options) -> Option<&str> {
    match &options.device {
        Some(selector) => Some(selector),
        None if options.no_adapter || !LAVAPIPE_SUPPORTED => None,
        None => Some("software"),
    }
}

/// Returns the driver variable that the user has set, if any.
fn user_driver_variable() -> Option<&'static str> {
    DRIVER_VARIABLES.into_iter().find(|name| var_os(name).is_some_and(|value| !value.is_empty()))
}

/// Returns whether lavapipe and the Vulkan loader are installed.
fn is_installed() -> bool {
    driver_manifest().is_some() && vulkan_loader().is_some()
}

/// Returns lavapipe's driver manifest, from the search path of the Vulkan loader.
fn driver_manifest() -> Option<PathBuf> {
    let in_home = |path: &str| var_os("HOME").map(|home| Path::new(&home).join(path));
    let base_folders = var_os("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .or_else(|| in_home(".config"))
        .into_iter()
        .chain(path_list("XDG_CONFIG_DIRS", "/etc/xdg"))
        .chain(["/usr/local/etc".into(), "/etc".into()])
        .chain(var_os("XDG_DATA_HOME").map(PathBuf::from).or_else(|| in_home(".local/share")))
        .chain(path_list("XDG_DATA_DIRS", "/usr/local/share:/usr/share"))
        // NixOS.
        .chain(["/run/opengl-driver/share".into()]);
    base_folders
        .flat_map(|base| folder_entries(&base.join("vulkan/icd.d")))
        .filter(|file| is_lavapipe_manifest(file) && library_exists(file))
        // Prefer a name with the architecture: a manifest without it may be left over.
        .min_by_key(|file| !file_name(file).contains(ARCH))
}

/// Returns the folders that an environment variable lists, or those of `default`.
fn path_list(variable: &str, default: &str) -> Vec<PathBuf> {
    let list = var_os(variable).filter(|list| !list.is_empty());
    std::env::split_paths(&list.unwrap_or_else(|| default.into())).collect()
}

/// Returns whether the file is `lvp_icd.json`, or `lvp_icd.<architecture>.json` for the
/// architecture of this machine.
fn is_lavapipe_manifest(file: &Path) -> bool {
    let name = file_name(file);
    name == "lvp_icd.json" || name == format!("lvp_icd.{ARCH}.json")
}

/// Returns whether the driver library of a manifest exists. A bare library name, without a folder,
/// is assumed to exist. A manifest can be left over from an uninstalled driver.
fn library_exists(file: &Path) -> bool {
    let Ok(text) = fs::read_to_string(file) else {
        return false;
    };
    let json: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
    match (json["ICD"]["library_path"].as_str(), file.parent()) {
        (Some(library), Some(folder)) => !library.contains('/') || folder.join(library).exists(),
        _ => false,
    }
}

/// Returns the Vulkan loader, from the usual search path of the dynamic linker.
fn vulkan_loader() -> Option<PathBuf> {
    let library_folders = ["/usr/local/lib", "/usr/lib64", "/usr/lib", "/lib64", "/lib"];
    let folders = library_folders.iter().flat_map(|folder| {
        // Debian's folders per architecture, such as x86_64-linux-gnu.
        let multiarch = folder_entries(Path::new(folder))
            .into_iter()
            .filter(|entry| file_name(entry).starts_with(&format!("{ARCH}-")));
        multiarch.chain([PathBuf::from(folder)])
    });
    path_list("LD_LIBRARY_PATH", "")
        .into_iter()
        .chain(folders)
        .map(|folder| folder.join("libvulkan.so.1"))
        .find(|file| file.exists())
}

/// Returns the sorted paths in a folder; empty if the folder cannot be read.
fn folder_entries(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> =
        fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

fn file_name(file: &Path) -> String {
    let name = file.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// Installs lavapipe and the Vulkan loader with apt-get.
fn install() -> Result<(), String> {
    println!("    no software Vulkan adapter found; installing Mesa's lavapipe with apt-get");
    let release = os_release();
    let debian_12 = release.get("ID").is_some_and(|id| id == "debian")
        && release.get("VERSION_ID").is_some_and(|id| id == "12");
    if debian_12 {
        match install_from_backports() {
            Ok(()) => return Ok(()),
            Err(reason) => {
                println!("    {reason}; installing the older Mesa of Debian 12 instead");
            }
        }
    }
    run_command(&mut apt_get(&["update"]))?;
    run_command(&mut apt_get(&INSTALL_MESA))
}

/// The arguments of `apt-get` that install lavapipe and the Vulkan loader.
const INSTALL_MESA: [&str; 5] =
    ["install", "--yes", "--no-install-recommends", "mesa-vulkan-drivers", "libvulkan1"];

/// Installs Mesa 25.0 from the backports of Debian 12. It is faster and supports more features than
/// the Mesa 22.3 of Debian 12 itself, which works too.
fn install_from_backports() -> Result<(), String> {
    const SUITE: &str = "bookworm-backports";
    let sources = system_sources();
    let mut added_file = None;
    if !sources.iter().any(|source| source.has_suite(SUITE)) {
        let (text, extension) = sources
            .iter()
            .find_map(|source| Some((source.with_suite("bookworm", SUITE)?, source.extension())))
            .ok_or("found no package source of Debian 12 from which to derive its backports")?;
        let file = Path::new(SOURCES_FOLDER).join(format!("{SUITE}.{extension}"));
        fs::write(&file, text)
            .map_err(|error| format!("cannot write {}: {error}", file.display()))?;
        println!("    added {}; installed packages are not upgraded", file.display());
        added_file = Some(file);
    }
    // Other sources may be broken, so a failed update is ignored. The installation reports missing
    // packages.
    let _ = run_command(&mut apt_get(&["update"]));
    let mut args = INSTALL_MESA.to_vec();
    args.extend(["--target-release", SUITE]);
    run_command(&mut apt_get(&args)).inspect_err(|_| {
        if let Some(file) = &added_file {
            let _ = fs::remove_file(file);
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifests_of_other_architectures_are_ignored() {
        assert!(is_lavapipe_manifest(Path::new("/x/lvp_icd.json")));
        assert!(is_lavapipe_manifest(Path::new(&format!("/x/lvp_icd.{ARCH}.json"))));
        assert!(!is_lavapipe_manifest(Path::new("/x/lvp_icd.pdp11.json")));
        assert!(!is_lavapipe_manifest(Path::new("/x/radeon_icd.json")));
    }
}
