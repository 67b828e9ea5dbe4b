//! The sensors of GPUs: NVIDIA's management library, and Linux's files for AMD and Intel.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use nvml_wrapper::Nvml;
use nvml_wrapper::enum_wrappers::device::TemperatureSensor;
use serde::Serialize;

/// What is known of a GPU now. `None` is what its driver does not report.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Reading {
    pub name: String,
    /// The address on the PCI bus.
    pub pci_bus_id: Option<String>,
    /// The share of time in which the GPU computed, in percent.
    pub utilisation: Option<f64>,
    /// Bytes.
    pub memory_used: Option<u64>,
    /// Bytes.
    pub memory_total: Option<u64>,
    /// Degrees Celsius.
    pub temperature: Option<f64>,
    /// Watts.
    pub power: Option<f64>,
    /// Watts.
    pub power_limit: Option<f64>,
    /// What is not known, and why.
    pub note: Option<String>,
}

/// Reads the GPUs of the system.
pub struct Gpus {
    /// NVIDIA's management library, or why there is none.
    nvml: Result<Nvml, String>,
    cards: Vec<Card>,
}

impl Gpus {
    /// Finds the GPUs. `names` are the names of adapters by their addresses.
    pub fn find(names: &[(String, String)]) -> Self {
        let nvml = Nvml::init().map_err(|error| error.to_string());
        Self { nvml, cards: cards(Path::new("/sys/class/drm"), names) }
    }

    /// Reads all GPUs.
    pub fn read(&mut self) -> Vec<Reading> {
        let mut readings: Vec<Reading> = self.nvml.iter().flat_map(nvidia).collect();
        for card in &mut self.cards {
            let address = card.pci_bus_id.clone();
            let known = |reading: &Reading| same_address(&reading.pci_bus_id, &address);
            if !readings.iter().any(known) {
                readings.push(card.read(self.nvml.as_ref().err()));
            }
        }
        readings
    }
}

/// Compares addresses such as `0000:03:00.0` and `00000000:03:00.0`.
pub fn same_address(a: &Option<String>, b: &Option<String>) -> bool {
    let parts = |address: &str| {
        let (domain, rest) = address.split_once(':')?;
        Some((u32::from_str_radix(domain, 16).ok()?, rest.to_ascii_lowercase()))
    };
    match (a, b) {
        (Some(a), Some(b)) => a == b || parts(a).is_some_and(|a| Some(a) == parts(b)),
        _ => false,
    }
}

/// Reads the GPUs of NVIDIA's driver.
fn nvidia(nvml: &Nvml) -> Vec<Reading> {
    let count = nvml.device_count().unwrap_or(0);
    let devices = (0..count).filter_map(|index| nvml.device_by_index(index).ok());
    devices
        .map(|device| {
            let memory = device.memory_info().ok();
            let watts = |milliwatts: u32| f64::from(milliwatts) / 1e3;
            Reading {
                name: device.name().unwrap_or_else(|_| "NVIDIA".to_owned()),
                pci_bus_id: device.pci_info().ok().map(|info| info.bus_id),
                utilisation: device.utilization_rates().ok().map(|rates| rates.gpu.into()),
                memory_used: memory.as_ref().map(|memory| memory.used),
                memory_total: memory.as_ref().map(|memory| memory.total),
                temperature: device.temperature(TemperatureSensor::Gpu).ok().map(f64::from),
                power: device.power_usage().ok().map(watts),
                power_limit: device.enforced_power_limit().ok().map(watts),
                note: None,
            }
        })
        .collect()
}

/// A GPU in `/sys/class/drm`.
struct Card {
    name: String,
    pci_bus_id: Option<String>,
    vendor: u32,
    /// The folder of its device.
    folder: PathBuf,
    /// When its energy was read last, and how many microjoules it had used.
    energy: Option<(Instant, f64)>,
}

const AMD: u32 = 0x1002;
const NVIDIA: u32 = 0x10de;
const INTEL: u32 = 0x8086;

/// Finds the GPUs of Linux.
fn cards(folder: &Path, names: &[(String, String)]) -> Vec<Card> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            // The connectors of a card are named `card0-DP-1`.
            let digits = name.strip_prefix("card").unwrap_or_default();
            !digits.is_empty() && digits.chars().all(|c| c.is_ascii_digit())
        })
        .collect();
    paths.sort();
    let card = |path: PathBuf| {
        let folder = path.join("device");
        let vendor = text(&folder.join("vendor"))?;
        let vendor = u32::from_str_radix(vendor.trim_start_matches("0x"), 16).ok()?;
        let events = text(&folder.join("uevent")).unwrap_or_default();
        let address = events.lines().find_map(|line| line.strip_prefix("PCI_SLOT_NAME="));
        let pci_bus_id = address.map(str::to_owned);
        let known = names.iter().find(|(known, _)| same_address(&Some(known.clone()), &pci_bus_id));
        let name = known.map(|(_, name)| name.clone()).unwrap_or_else(|| {
            let vendor = match vendor {
                AMD => "AMD",
                NVIDIA => "NVIDIA",
                INTEL => "Intel",
                _ => "GPU",
            };
            format!("{vendor} {}", address.unwrap_or_default())
        });
        Some(Card { name, pci_bus_id, vendor, folder, energy: None })
    };
    paths.into_iter().filter_map(card).collect()
}

impl Card {
    /// Reads the sensors. `no_nvml` is why there is no NVIDIA library.
    fn read(&mut self, no_nvml: Option<&String>) -> Reading {
        let file = |name: &str| number(&self.folder.join(name));
        let sensors: Vec<PathBuf> = fs::read_dir(self.folder.join("hwmon"))
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
            .collect();
        let sensor = |names: &[&str]| {
            let files =
                sensors.iter().flat_map(|folder| names.iter().map(|name| folder.join(name)));
            files.map(|file| number(&file)).find_map(|value| value)
        };
        let energy = sensor(&["energy1_input"]).map(|joules| (Instant::now(), joules));
        let power = sensor(&["power1_average", "power1_input"]).map(|micros| micros / 1e6);
        let by_energy = self.energy.zip(energy).map(|((then, before), (now, after))| {
            (after - before) / 1e6 / (now - then).as_secs_f64().max(1e-3)
        });
        let reading = Reading {
            name: self.name.clone(),
            pci_bus_id: self.pci_bus_id.clone(),
            utilisation: file("gpu_busy_percent"),
            memory_used: file("mem_info_vram_used").map(|bytes| bytes as u64),
            memory_total: file("mem_info_vram_total").map(|bytes| bytes as u64),
            temperature: sensor(&["temp1_input"]).map(|milli| milli / 1e3),
            power: power.or(by_energy),
            power_limit: sensor(&["power1_cap", "power1_max"]).map(|micros| micros / 1e6),
            note: match self.vendor {
                INTEL => Some("Intel's driver reports neither utilisation nor memory".to_owned()),
                NVIDIA => Some(match no_nvml {
                    Some(error) => format!("NVIDIA's management library (NVML): {error}"),
                    None => "NVIDIA's management library (NVML) does not list it".to_owned(),
                }),
                _ => None,
            },
        };
        self.energy = energy;
        reading
    }
}

fn text(file: &Path) -> Option<String> {
    fs::read_to_string(file).ok().map(|text| text.trim().to_owned())
}

fn number(file: &Path) -> Option<f64> {
    text(file)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes files of a GPU as Linux has them.
    fn write(folder: &Path, files: &[(&str, &str)]) {
        for (name, text) in files {
            let file = folder.join(name);
            fs::create_dir_all(file.parent().expect("it is in a folder")).expect("it is writable");
            fs::write(file, text).expect("it is writable");
        }
    }

    #[test]
    fn the_files_of_linux_are_read() {
        let folder = std::env::temp_dir().join(format!("burn-wgsl-top-{}", std::process::id()));
        write(
            &folder,
            &[
                ("card0/device/vendor", "0x1002\n"),
                ("card0/device/uevent", "DRIVER=amdgpu\nPCI_SLOT_NAME=0000:03:00.0\n"),
                ("card0/device/gpu_busy_percent", "87\n"),
                ("card0/device/mem_info_vram_used", "1073741824\n"),
                ("card0/device/mem_info_vram_total", "17163091968\n"),
                ("card0/device/hwmon/hwmon3/temp1_input", "61000\n"),
                ("card0/device/hwmon/hwmon3/power1_average", "215000000\n"),
                ("card0/device/hwmon/hwmon3/power1_cap", "303000000\n"),
                ("card0-DP-1/status", "connected\n"),
                ("card1/device/vendor", "0x8086\n"),
                ("card1/device/uevent", "PCI_SLOT_NAME=0000:00:02.0\n"),
                ("card1/device/hwmon/hwmon1/energy1_input", "5000000\n"),
                ("renderD128/device/vendor", "0x1002\n"),
            ],
        );
        let names = [("00000000:03:00.0".to_owned(), "Radeon RX 7900 XTX".to_owned())];
        let mut cards = cards(&folder, &names);
        assert_eq!(cards.len(), 2);
        assert_eq!(
            cards[0].read(None),
            Reading {
                name: "Radeon RX 7900 XTX".to_owned(),
                pci_bus_id: Some("0000:03:00.0".to_owned()),
                utilisation: Some(87.0),
                memory_used: Some(1 << 30),
                memory_total: Some(17_163_091_968),
                temperature: Some(61.0),
                power: Some(215.0),
                power_limit: Some(303.0),
                note: None,
            }
        );
        let intel = cards[1].read(None);
        assert_eq!((&intel.name[..], intel.power), ("Intel 0000:00:02.0", None));
        assert!(intel.note.is_some_and(|note| note.contains("neither utilisation nor memory")));
        write(&folder, &[("card1/device/hwmon/hwmon1/energy1_input", "9000000\n")]);
        assert!(cards[1].read(None).power.is_some_and(|watts| watts > 0.0));
        fs::remove_dir_all(&folder).expect("the folder is removable");
        assert!(super::cards(&folder, &[]).is_empty());
    }

    #[test]
    fn addresses_of_both_lengths_are_compared() {
        let same = |a: &str, b: &str| same_address(&Some(a.to_owned()), &Some(b.to_owned()));
        assert!(same("0000:03:00.0", "00000000:03:00.0") && same("0000:0A:00.0", "0000:0a:00.0"));
        assert!(!same("0000:03:00.0", "0000:04:00.0") && !same_address(&None, &None));
    }
}
