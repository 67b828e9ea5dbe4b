//! What the operating system knows of GPUs, for a diagnosis where no driver answers.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::Serialize;

/// What the operating system knows of GPUs. Most of it is known on Linux only.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct System {
    /// The name and version of the distribution.
    pub distribution: Option<String>,
    /// The version of the kernel.
    pub kernel: Option<String>,
    /// Whether this is a container.
    pub container: bool,
    /// Whether this is Windows' subsystem for Linux.
    pub wsl: bool,
    /// The display controllers on the PCI bus.
    pub gpus: Vec<PciGpu>,
    /// The files through which programs use GPUs.
    pub nodes: Vec<RenderNode>,
    /// The version of NVIDIA's kernel driver.
    pub nvidia_driver: Option<String>,
    /// The names of the Vulkan drivers' manifests.
    pub manifests: Vec<String>,
    /// Environment variables that select drivers or devices.
    pub variables: BTreeMap<String, String>,
}

/// A display controller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PciGpu {
    /// Its address on the bus.
    pub address: String,
    pub vendor_id: u32,
    pub device_id: u32,
    /// The kernel driver that uses it.
    pub driver: Option<String>,
}

impl PciGpu {
    /// Returns the vendor's name, if it is one of the usual ones.
    pub fn vendor(&self) -> Option<&'static str> {
        match self.vendor_id {
            0x1002 => Some("AMD"),
            0x10de => Some("NVIDIA"),
            0x8086 => Some("Intel"),
            _ => None,
        }
    }
}

/// A file through which programs use GPUs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RenderNode {
    pub path: String,
    /// Why this user cannot open it; `None` if it can be opened.
    pub problem: Option<Problem>,
}

/// Why a file cannot be opened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Problem {
    /// The user lacks the permission.
    Denied,
    /// Another reason.
    Other(String),
}

/// The variables that select drivers or devices.
const VARIABLES: [&str; 7] = [
    "BURN_WGSL_DEVICE",
    "MESA_VK_DEVICE_SELECT",
    "VK_DRIVER_FILES",
    "VK_ICD_FILENAMES",
    "VK_LOADER_DRIVERS_SELECT",
    "VK_LOADER_DRIVERS_DISABLE",
    "WGPU_BACKEND",
];

/// The folders of the Vulkan drivers' manifests.
const MANIFEST_FOLDERS: [&str; 6] = [
    // NixOS.
    "run/opengl-driver/share/vulkan/icd.d",
    "usr/share/vulkan/icd.d",
    "etc/vulkan/icd.d",
    "usr/local/share/vulkan/icd.d",
    "usr/local/etc/vulkan/icd.d",
    "etc/xdg/vulkan/icd.d",
];

impl System {
    /// Reads what this system knows.
    pub fn current() -> Self {
        let variables = VARIABLES
            .iter()
            .filter_map(|name| Some(((*name).to_owned(), without_home(&std::env::var(name).ok()?))))
            .collect();
        if !cfg!(target_os = "linux") {
            return Self { variables, ..Self::default() };
        }
        let mut system = Self { variables, ..Self::below(Path::new("/")) };
        // Kubernetes, systemd-nspawn and LXC.
        let names = ["KUBERNETES_SERVICE_HOST", "container"];
        system.container |= names.iter().any(|name| std::env::var_os(name).is_some());
        system.manifests = manifests(manifest_folders(Path::new("/")).chain(users_folders()));
        system
    }

    /// Reads what the files of a Linux system say. `root` is its root folder.
    fn below(root: &Path) -> Self {
        let text = |path: &str| fs::read_to_string(root.join(path)).ok();
        let kernel = text("proc/sys/kernel/osrelease").map(|text| text.trim().to_owned());
        let release = text("etc/os-release").unwrap_or_default();
        let distribution = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
        let exists = |path: &str| root.join(path).exists();
        let nvidia = text("proc/driver/nvidia/version").unwrap_or_default();
        let version = nvidia.split_whitespace().find(|word| {
            word.contains('.') && word.chars().all(|c| c.is_ascii_digit() || c == '.')
        });
        Self {
            distribution: distribution.map(|name| name.trim_matches('"').to_owned()),
            container: exists(".dockerenv") || exists("run/.containerenv"),
            wsl: kernel.as_ref().is_some_and(|kernel| kernel.to_lowercase().contains("microsoft")),
            kernel,
            gpus: gpus(&root.join("sys/bus/pci/devices")),
            nodes: nodes(root),
            nvidia_driver: version.map(str::to_owned),
            manifests: manifests(manifest_folders(root)),
            variables: BTreeMap::new(),
        }
    }
}

/// Returns a text with `~` for the home folder, whose name may be the user's.
fn without_home(text: &str) -> String {
    match std::env::home_dir() {
        Some(home) if home.as_os_str().len() > 1 => text.replace(&*home.to_string_lossy(), "~"),
        _ => text.to_owned(),
    }
}

/// Returns the names of the files in a folder, in order.
fn files_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn gpus(devices: &Path) -> Vec<PciGpu> {
    let hexadecimal = |path: &Path| {
        let text = fs::read_to_string(path).ok()?;
        u32::from_str_radix(text.trim().trim_start_matches("0x"), 16).ok()
    };
    let gpu = |address: String| {
        let folder = devices.join(&address);
        // Class 3: display controllers.
        if hexadecimal(&folder.join("class"))? >> 16 != 3 {
            return None;
        }
        let driver = fs::read_link(folder.join("driver")).ok();
        Some(PciGpu {
            vendor_id: hexadecimal(&folder.join("vendor"))?,
            device_id: hexadecimal(&folder.join("device"))?,
            driver: driver.and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned())),
            address,
        })
    };
    files_in(devices).into_iter().filter_map(gpu).collect()
}

fn nodes(root: &Path) -> Vec<RenderNode> {
    let render = files_in(&root.join("dev/dri"))
        .into_iter()
        .filter(|name| name.starts_with("renderD"))
        .map(|name| format!("dev/dri/{name}"));
    let others = ["dev/nvidiactl", "dev/nvidia0", "dev/dxg"].map(str::to_owned);
    let paths = render.chain(others).filter(|path| root.join(path).exists());
    paths
        .map(|path| {
            let opened = fs::OpenOptions::new().read(true).write(true).open(root.join(&path));
            let problem = opened.err().map(|error| match error.kind() {
                ErrorKind::PermissionDenied => Problem::Denied,
                _ => Problem::Other(error.to_string()),
            });
            RenderNode { path: format!("/{path}"), problem }
        })
        .collect()
}

/// Returns the folders of manifests that all users share.
fn manifest_folders(root: &Path) -> impl Iterator<Item = PathBuf> {
    MANIFEST_FOLDERS.iter().map(|folder| root.join(folder))
}

/// Returns the folders of manifests that the user's variables name, as the Vulkan loader reads them.
fn users_folders() -> impl Iterator<Item = PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let own = |name: &str, default: &str| {
        let folder = variable(name).map(PathBuf::from);
        folder.or_else(|| Some(std::env::home_dir()?.join(default)))
    };
    let single = [own("XDG_CONFIG_HOME", ".config"), own("XDG_DATA_HOME", ".local/share")];
    let lists = ["XDG_CONFIG_DIRS", "XDG_DATA_DIRS"].into_iter().filter_map(variable);
    let listed: Vec<_> =
        lists.flat_map(|list| std::env::split_paths(&list).collect::<Vec<_>>()).collect();
    single.into_iter().flatten().chain(listed).map(|folder| folder.join("vulkan/icd.d"))
}

/// Returns the names of the manifests in some folders, in order.
fn manifests(folders: impl Iterator<Item = PathBuf>) -> Vec<String> {
    let files = folders.flat_map(|folder| files_in(&folder));
    let mut names: Vec<String> = files.filter(|name| name.ends_with(".json")).collect();
    names.sort();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(unix)]
    fn a_system_is_read_from_its_files() {
        let root = std::env::temp_dir().join(format!("doctor-{}", std::process::id()));
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().expect("it is in a folder")).expect("it is writable");
            fs::write(path, text).expect("it is writable");
        };
        let device = "sys/bus/pci/devices/0000:03:00.0";
        write(&format!("{device}/class"), "0x030000\n");
        write(&format!("{device}/vendor"), "0x1002\n");
        write(&format!("{device}/device"), "0x744c\n");
        std::os::unix::fs::symlink("../../../drivers/amdgpu", root.join(device).join("driver"))
            .expect("it is writable");
        write("sys/bus/pci/devices/0000:00:1f.0/class", "0x060100\n");
        write("dev/dri/renderD128", "");
        write("etc/os-release", "ID=debian\nPRETTY_NAME=\"Debian 13\"\n");
        write("proc/sys/kernel/osrelease", "6.1.0-microsoft-standard\n");
        write("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64  550.54.14  Thu\n");
        write("usr/share/vulkan/icd.d/radeon_icd.json", "{}");
        write(".dockerenv", "");
        let system = System::below(&root);
        fs::remove_dir_all(&root).expect("it is writable");
        assert_eq!(
            system,
            System {
                distribution: Some("Debian 13".to_owned()),
                kernel: Some("6.1.0-microsoft-standard".to_owned()),
                container: true,
                wsl: true,
                gpus: vec![PciGpu {
                    address: "0000:03:00.0".to_owned(),
                    vendor_id: 0x1002,
                    device_id: 0x744c,
                    driver: Some("amdgpu".to_owned()),
                }],
                nodes: vec![RenderNode { path: "/dev/dri/renderD128".to_owned(), problem: None }],
                nvidia_driver: Some("550.54.14".to_owned()),
                manifests: vec!["radeon_icd.json".to_owned()],
                variables: BTreeMap::new(),
            }
        );
    }

    #[test]
    fn an_empty_system_is_no_error() {
        let system = System::below(Path::new("/no/such/root"));
        assert_eq!(system, System::default());
    }
}
