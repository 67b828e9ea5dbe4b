//! What is wrong, and what fixes it: a pure function of what the drivers and the system say.

use burn_wgsl::device::{AdapterInfo, AdapterKind, Api, install_hint};
use serde::Serialize;

use super::system::{PciGpu, Problem, System};

/// Ids of vendors on the PCI bus.
const AMD: u32 = 0x1002;
const NVIDIA: u32 = 0x10de;

/// How serious a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    Good,
    Note,
    Problem,
}

/// Something that was found, and the commands or steps that fix it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub level: Level,
    pub text: String,
    /// The entry of `docs/symptoms.md` that has more about it.
    pub code: Option<&'static str>,
    pub fixes: Vec<String>,
}

impl Finding {
    pub fn new(level: Level, text: impl Into<String>) -> Self {
        Self { level, text: text.into(), code: None, fixes: Vec::new() }
    }

    /// Returns a problem that has an entry in `docs/symptoms.md`.
    pub fn problem(code: &'static str, text: impl Into<String>) -> Self {
        Self { code: Some(code), ..Self::new(Level::Problem, text) }
    }

    pub fn fixed_by(mut self, fix: impl Into<String>) -> Self {
        self.fixes.push(fix.into());
        self
    }
}

/// Returns what was found, in the order in which it should be read.
pub fn diagnose(system: &System, adapters: &[AdapterInfo]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let is_gpu = |info: &&AdapterInfo| info.kind != AdapterKind::Software;
    for info in adapters.iter().filter(is_gpu) {
        let driver = format!("{} {}", info.driver, info.driver_info);
        let name = format!("{} ({}, {})", info.name, info.api, driver.trim());
        let shortfalls = info.limits.shortfalls();
        if shortfalls.is_empty() {
            findings.push(Finding::new(Level::Good, format!("{name} can be used")));
            findings.extend(old_driver(info));
            continue;
        }
        let lacks: Vec<String> = shortfalls.iter().map(ToString::to_string).collect();
        let text = format!("{name} cannot be used: {}", lacks.join("; "));
        findings.push(
            Finding::problem("BW06", text)
                .fixed_by("update the driver: it offers less than WebGPU requires"),
        );
    }
    let has_gpu = findings.iter().any(|finding| finding.level == Level::Good);
    let hiding = [
        "VK_DRIVER_FILES",
        "VK_ICD_FILENAMES",
        "VK_LOADER_DRIVERS_DISABLE",
        "VK_LOADER_DRIVERS_SELECT",
    ];
    for name in hiding {
        if let Some(value) = system.variables.get(name) {
            let level = if has_gpu { Level::Note } else { Level::Problem };
            let text = format!("{name}={value} hides Vulkan drivers");
            let finding = Finding { code: Some("BW01"), ..Finding::new(level, text) };
            findings.push(finding.fixed_by(format!("unset {name}")));
        }
    }
    if !adapters.iter().any(|info| is_gpu(&info)) {
        missing_gpu(system, &mut findings);
    }
    if let Some(software) = adapters.iter().find(|info| info.kind == AdapterKind::Software) {
        let text = format!(
            "{} is a software adapter: it computes on the CPU, and is used only if `software` is \
             selected",
            software.name
        );
        findings.push(Finding::new(Level::Note, text));
    }
    findings
}

/// The first version of Mesa that offers more, and what that is.
const MESA_DRIVER: ([u32; 2], &str) = ([23, 3], "the matrix units of AMD's RX 7000 and newer GPUs");
/// The same of NVIDIA's driver.
const NVIDIA_DRIVER: ([u32; 2], &str) = ([550, 0], "the matrix units of NVIDIA's RTX GPUs");

/// Says what the driver of a usable GPU lacks because it is old.
fn old_driver(info: &AdapterInfo) -> Option<Finding> {
    if !info.matrix_units.is_empty() || info.api != Api::Vulkan {
        return None;
    }
    let (version, (least, what)) = match info.driver_info.strip_prefix("Mesa ") {
        Some(version) if info.vendor_id == AMD => (version, MESA_DRIVER),
        Some(_) => return None,
        None if info.vendor_id == NVIDIA => (&*info.driver_info, NVIDIA_DRIVER),
        None => return None,
    };
    let mut numbers = version.split(['.', '-', ' ']).map(|number| number.parse::<u32>().ok());
    let version = [numbers.next()??, numbers.next().flatten().unwrap_or(0)];
    let [major, minor] = least;
    (version < least).then(|| {
        let text = format!("the driver is old: from version {major}.{minor} on, it offers {what}, for products of f16");
        let finding = Finding { code: Some("BW22"), ..Finding::new(Level::Note, text) };
        finding.fixed_by("update the driver; Debian: Mesa from its backports")
    })
}

/// Finds out why there is no usable GPU.
fn missing_gpu(system: &System, findings: &mut Vec<Finding>) {
    let has_known = system.gpus.iter().any(|gpu| gpu.vendor().is_some());
    if !cfg!(target_os = "linux") && system.gpus.is_empty() {
        let text = "no usable GPU was found";
        findings.push(Finding::problem("BW01", text).fixed_by(install_hint()));
        return;
    }
    if system.wsl {
        let text = "this is Windows' subsystem for Linux, where GPUs are reached through Windows";
        findings.push(
            Finding::problem("BW08", text)
                .fixed_by("run the program in Windows")
                .fixed_by(
                    "or update the GPU's driver in Windows, run `wsl --update` there, install a Mesa with `dzn`, \
                     which runs Vulkan on Direct3D 12, and set \
                     WGPU_ALLOW_UNDERLYING_NONCOMPLIANT_ADAPTER=1",
                ),
        );
    } else if !has_known {
        let text = "there is no GPU of AMD, Intel or NVIDIA on the PCI bus of this machine";
        findings.push(
            Finding::problem("BW01", text)
                .fixed_by("in a virtual machine: pass the GPU through to it"),
        );
    }
    for gpu in &system.gpus {
        driver_of(gpu, system, findings);
    }
    let render: Vec<_> = system.nodes.iter().filter(|node| node.path.contains("renderD")).collect();
    let is_bound = system.gpus.iter().any(|gpu| gpu.vendor().is_some() && gpu.driver.is_some());
    let has_nvidia = system.gpus.iter().any(|gpu| gpu.vendor() == Some("NVIDIA"));
    if system.container && render.is_empty() && has_known {
        let mut finding = Finding::problem(
            "BW02",
            "this container has no access to the GPU: /dev/dri is missing",
        )
        .fixed_by("start it with `--device /dev/dri` (docker, podman)");
        if has_nvidia {
            finding = finding.fixed_by(
                "NVIDIA: install nvidia-container-toolkit on the host, and start it with `--gpus \
                 all -e NVIDIA_DRIVER_CAPABILITIES=all`",
            );
        }
        findings.push(finding);
    } else if render.is_empty() && is_bound && !system.wsl {
        let text = "the kernel driver offers no /dev/dri/renderD* file";
        findings.push(Finding::problem("BW01", text).fixed_by("sudo dmesg | grep -i drm"));
    }
    for node in &system.nodes {
        match &node.problem {
            None => {}
            Some(Problem::Denied) => findings.push(
                Finding::problem("BW09", format!("you may not open {}", node.path))
                    .fixed_by("sudo usermod -aG render,video $USER")
                    .fixed_by("then log in again; in a container add `--group-add render`"),
            ),
            Some(Problem::Other(error)) => findings.push(
                Finding::problem("BW01", format!("{} cannot be opened: {error}", node.path))
                    .fixed_by("sudo dmesg | tail"),
            ),
        }
    }
    if findings.iter().all(|finding| finding.level != Level::Problem) {
        let text = "the Vulkan loader lists no GPU, although a driver for one is installed";
        findings.push(
            Finding::problem("BW01", text)
                .fixed_by("install the loader (Debian, Ubuntu: libvulkan1; others: vulkan-loader)")
                .fixed_by("VK_LOADER_DEBUG=error,driver vulkaninfo --summary"),
        );
    }
}

/// Checks the kernel driver of a GPU, and the Vulkan driver that belongs to it.
fn driver_of(gpu: &PciGpu, system: &System, findings: &mut Vec<Finding>) {
    let Some(vendor) = gpu.vendor() else {
        let text = format!(
            "the display controller at {} (vendor {:04x}) is not of AMD, Intel or NVIDIA",
            gpu.address, gpu.vendor_id
        );
        findings.push(Finding::new(Level::Note, text));
        return;
    };
    let name = format!("the {vendor} GPU at {}", gpu.address);
    match gpu.driver.as_deref() {
        None => {
            let text = format!("no kernel driver uses {name}");
            findings.push(Finding::problem("BW01", text).fixed_by(match vendor {
                "AMD" => "sudo apt install firmware-amd-graphics; sudo modprobe amdgpu",
                "Intel" => {
                    "sudo apt install firmware-misc-nonfree; sudo modprobe xe || sudo modprobe i915"
                }
                _ => "install the NVIDIA driver of your distribution, and restart",
            }));
        }
        Some("vfio-pci") => {
            let text = format!("{name} is reserved for a virtual machine (vfio-pci)");
            findings.push(
                Finding::problem("BW01", text)
                    .fixed_by("run the program in that machine, or release the GPU"),
            );
        }
        Some(driver) => {
            let manifests: &[&str] = match (vendor, driver) {
                ("AMD", _) => &["radeon_icd", "amd_icd"],
                ("Intel", _) => &["intel_icd", "intel_hasvk_icd"],
                (_, "nouveau") => &["nouveau_icd"],
                _ => &["nvidia_icd", "nvidia_layers"],
            };
            let is_there = |name: &String| manifests.iter().any(|part| name.contains(part));
            if system.manifests.iter().any(is_there) {
                let text = format!("{name} has the kernel driver {driver} and a Vulkan driver");
                findings.push(Finding::new(Level::Note, text));
                return;
            }
            let text = format!("there is no Vulkan driver for {name} (kernel driver {driver})");
            let finding = Finding::problem("BW01", text);
            findings.push(match (vendor, driver) {
                ("NVIDIA", "nvidia") => finding.fixed_by(
                    "install the Vulkan part of the NVIDIA driver (Debian, Ubuntu: \
                     nvidia-vulkan-icd or libnvidia-gl-*)",
                ),
                _ => finding.fixed_by(
                    "sudo apt install mesa-vulkan-drivers libvulkan1 (Fedora: \
                     mesa-vulkan-drivers vulkan-loader; Arch: vulkan-radeon, vulkan-intel or \
                     vulkan-nouveau)",
                ),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use burn_wgsl::device::MatrixUnit;

    use super::super::system::RenderNode;
    use super::*;

    fn gpu(vendor_id: u32, driver: Option<&str>) -> PciGpu {
        let address = "0000:01:00.0".to_owned();
        PciGpu { address, vendor_id, device_id: 1, driver: driver.map(str::to_owned) }
    }

    fn node(problem: Option<Problem>) -> RenderNode {
        RenderNode { path: "/dev/dri/renderD128".to_owned(), problem }
    }

    /// Returns the problems with their fixes as one text.
    fn problems(system: &System, adapters: &[AdapterInfo]) -> String {
        let findings = diagnose(system, adapters);
        let problems = findings.iter().filter(|finding| finding.level == Level::Problem);
        problems.map(|each| format!("{}: {}\n", each.text, each.fixes.join("; "))).collect()
    }

    #[test]
    fn each_fault_has_a_fix() {
        let manifests = vec!["radeon_icd.json".to_owned()];
        let amd = System { gpus: vec![gpu(AMD, Some("amdgpu"))], ..System::default() };
        let cases = [
            (System::default(), "on the PCI bus", "virtual machine"),
            (
                // QEMU's.
                System { gpus: vec![gpu(0x1234, Some("bochs-drm"))], ..System::default() },
                "there is no GPU of AMD, Intel or NVIDIA",
                "virtual machine",
            ),
            (
                System { manifests: manifests.clone(), nodes: vec![node(None)], ..amd.clone() },
                "the Vulkan loader lists no GPU",
                "libvulkan1",
            ),
            (
                System { gpus: vec![gpu(AMD, None)], ..System::default() },
                "no kernel driver uses the AMD GPU",
                "modprobe amdgpu",
            ),
            (amd.clone(), "there is no Vulkan driver for the AMD GPU", "mesa-vulkan-drivers"),
            (
                System {
                    manifests: manifests.clone(),
                    nodes: vec![node(Some(Problem::Denied))],
                    ..amd.clone()
                },
                "you may not open /dev/dri/renderD128",
                "usermod -aG render",
            ),
            (
                System { manifests, container: true, ..amd.clone() },
                "this container has no access to the GPU",
                "--device /dev/dri",
            ),
            (
                System {
                    gpus: vec![gpu(NVIDIA, Some("nvidia"))],
                    container: true,
                    ..System::default()
                },
                "this container has no access to the GPU",
                "--gpus all",
            ),
            (
                System { gpus: vec![gpu(NVIDIA, Some("vfio-pci"))], ..System::default() },
                "reserved for a virtual machine",
                "release the GPU",
            ),
            (System { wsl: true, ..System::default() }, "subsystem for Linux", "wsl --update"),
            (
                System {
                    variables: [("VK_DRIVER_FILES".to_owned(), "lvp.json".to_owned())].into(),
                    ..amd
                },
                "VK_DRIVER_FILES=lvp.json hides",
                "unset VK_DRIVER_FILES",
            ),
        ];
        for (system, problem, fix) in cases {
            let text = problems(&system, &[]);
            assert!(text.contains(problem) && text.contains(fix), "{system:?}:\n{text}");
        }
    }

    #[test]
    fn an_old_driver_is_named_with_what_it_lacks() {
        let note = |vendor_id, driver_info: &str, matrix_units: Vec<MatrixUnit>| {
            let driver_info = driver_info.to_owned();
            let info = AdapterInfo {
                vendor_id,
                driver_info,
                matrix_units,
                api: Api::Vulkan,
                ..AdapterInfo::default()
            };
            old_driver(&info).map(|finding| finding.text)
        };
        let is = |note: Option<String>, part: &str| note.is_some_and(|text| text.contains(part));
        assert!(is(note(AMD, "Mesa 22.3.6", Vec::new()), "from version 23.3 on"));
        assert!(is(note(NVIDIA, "470.256.02", Vec::new()), "RTX"));
        for newer in
            [note(AMD, "Mesa 25.0.7-2", Vec::new()), note(NVIDIA, "580.159.04", Vec::new())]
        {
            assert_eq!(newer, None);
        }
        // Another of Mesa's drivers; one that does not tell its version; units that are there.
        assert_eq!(note(NVIDIA, "Mesa 22.3.6", Vec::new()), None);
        assert_eq!(note(AMD, "unknown", Vec::new()), None);
        let units = vec![MatrixUnit { size: 16, bits: 16 }];
        assert_eq!(note(AMD, "Mesa 22.3.6", units), None);
    }

    #[test]
    fn a_usable_gpu_has_no_problem_and_an_old_driver_has() {
        let mut info = AdapterInfo {
            name: "RX 7900".to_owned(),
            kind: AdapterKind::Discrete,
            ..AdapterInfo::default()
        };
        assert_eq!(problems(&System::default(), std::slice::from_ref(&info)), "");
        info.limits.invocations_per_workgroup = 64;
        let text = problems(&System::default(), &[info]);
        assert!(text.contains("RX 7900") && text.contains("update the driver"), "{text}");
    }
}
