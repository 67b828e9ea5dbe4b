//! What is kept between runs, in a folder per user: it may be deleted at any time, and nothing in it is believed
//! before it is checked.

use std::collections::BTreeMap;
use std::hash::Hasher;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::{env, fs, io, process};

use parking_lot::RwLock;
use rustc_hash::FxHasher;

use crate::device::AdapterInfo;

/// The environment variable that names another folder, or with `off` none.
pub const CACHE_VARIABLE: &str = "BURN_WGSL_CACHE";

/// The folder for what is kept between runs; none where the system has no such place or the user wants none.
pub fn cache_folder() -> Option<PathBuf> {
    match env::var_os(CACHE_VARIABLE) {
        Some(word) if word == "off" => None,
        Some(folder) if !folder.is_empty() => Some(folder.into()),
        _ => dirs::cache_dir().map(|folder| folder.join("burn-wgsl")),
    }
}

/// What a file kept for an adapter is good for: this version of the crate on this driver.
pub(crate) fn adapter_key(info: &AdapterInfo) -> String {
    let AdapterInfo { name, driver, driver_info, vendor_id, device_id, .. } = info;
    format!(
        "burn-wgsl {} on {name} {vendor_id:x}:{device_id:x} {driver} {driver_info}",
        env!("CARGO_PKG_VERSION")
    )
}

/// The file of an adapter, named by what it is good for.
pub(crate) fn adapter_file(folder: &Path, info: &AdapterInfo, extension: &str) -> PathBuf {
    let name: String =
        info.name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    folder.join(format!("{name}-{:08x}.{extension}", checksum(adapter_key(info).as_bytes()) as u32))
}

/// Writes a file whole or not at all: readers never see half of it.
pub(crate) fn replace(file: &Path, bytes: &[u8]) -> io::Result<()> {
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder)?;
    }
    // Nobody else writes there: not another file's writer, process or thread.
    static WRITES: AtomicUsize = AtomicUsize::new(0);
    let mut beside = file.as_os_str().to_owned();
    beside.push(format!(".{}-{}.new", process::id(), WRITES.fetch_add(1, Ordering::Relaxed)));
    let written = fs::write(&beside, bytes).and_then(|()| fs::rename(&beside, file));
    if written.is_err() {
        let _ = fs::remove_file(&beside);
    }
    written
}

fn checksum(bytes: &[u8]) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write(bytes);
    hasher.finish()
}

/// The pipelines that the driver has compiled, kept in a file.
pub(crate) struct PipelineCache {
    raw: wgpu::PipelineCache,
    file: PathBuf,
    /// The pipelines made since the file was written, and before.
    unsaved: AtomicUsize,
    saved: AtomicUsize,
    /// The checksum of what the file holds.
    in_file: AtomicU64,
}

impl PipelineCache {
    /// The cache of an adapter, filled from its file if there is one that is whole.
    pub fn open(device: &wgpu::Device, info: &AdapterInfo) -> Option<Self> {
        if !info.features.pipeline_cache {
            return None;
        }
        let file = adapter_file(&cache_folder()?, info, "pipelines");
        let kept = fs::read(&file).ok();
        let data = kept.as_deref().and_then(verified);
        if kept.is_some() && data.is_none() {
            log::warn!("{} is damaged and will be written anew", file.display());
        }
        // SAFETY: the data passed its checksum, so it is what this function's counterpart was given by the driver; wgpu
        // compares the driver's own header, and `fallback` starts empty where that does not fit.
        let raw = unsafe {
            device.create_pipeline_cache(&wgpu::PipelineCacheDescriptor {
                label: None,
                data,
                fallback: true,
            })
        };
        let in_file = AtomicU64::new(data.map_or(0, checksum));
        Some(Self { raw, file, unsaved: AtomicUsize::new(0), saved: AtomicUsize::new(0), in_file })
    }

    pub fn raw(&self) -> &wgpu::PipelineCache {
        &self.raw
    }

    /// Called for each pipeline that was made.
    pub fn grew(&self) {
        self.unsaved.fetch_add(1, Ordering::Relaxed);
    }

    /// Writes the file, if enough is new. Called where the host waits anyway.
    pub fn save(&self) {
        let (unsaved, saved) =
            (self.unsaved.load(Ordering::Relaxed), self.saved.load(Ordering::Relaxed));
        if unsaved == 0 || unsaved * 8 < saved {
            return;
        }
        self.unsaved.store(0, Ordering::Relaxed);
        self.saved.store(saved + unsaved, Ordering::Relaxed);
        let Some(data) = self.raw.get_data() else {
            return;
        };
        // A process that made only pipelines it found in the file has nothing to add.
        let sum = checksum(&data);
        if self.in_file.swap(sum, Ordering::Relaxed) == sum {
            return;
        }
        if let Err(error) = replace(&self.file, &with_checksum(&data)) {
            log::warn!(
                "cannot keep compiled kernels in {} ({error}): they are compiled again next time",
                self.file.display()
            );
        }
    }
}

/// What was found to be best on this adapter, by name, kept in a file of lines `name = choice`.
#[derive(Debug, Default)]
pub struct TuningCache {
    file: Option<PathBuf>,
    /// The file's first line: what it is good for.
    key: String,
    found: RwLock<BTreeMap<String, String>>,
    /// What holds for this process only.
    held: RwLock<BTreeMap<String, String>>,
}

impl TuningCache {
    pub(crate) fn open(info: &AdapterInfo) -> Self {
        let file = cache_folder().map(|folder| adapter_file(&folder, info, "tuning"));
        let key = adapter_key(info);
        let text = file.as_ref().and_then(|file| fs::read_to_string(file).ok()).unwrap_or_default();
        let found = RwLock::new(lines(&text, &key).unwrap_or_default());
        Self { file, key, found, held: RwLock::default() }
    }

    /// Whether nothing was found out yet.
    pub fn is_empty(&self) -> bool {
        self.found.read().is_empty() && self.held.read().is_empty()
    }

    /// What was found best for `name`.
    pub fn get(&self, name: &str) -> Option<String> {
        self.found.read().get(name).cloned().or_else(|| self.held.read().get(name).cloned())
    }

    /// Has `choice` hold for `name` in this process.
    pub fn hold(&self, name: &str, choice: &str) {
        self.held.write().insert(name.to_owned(), choice.to_owned());
    }

    /// Keeps what was found best for `name`, in the file too.
    pub fn keep(&self, name: &str, choice: &str) {
        let mut found = self.found.write();
        let Some(file) = &self.file else {
            found.insert(name.to_owned(), choice.to_owned());
            return;
        };
        // Other processes may have found something since.
        let text = fs::read_to_string(file).unwrap_or_default();
        found.extend(lines(&text, &self.key).unwrap_or_default());
        found.insert(name.to_owned(), choice.to_owned());
        let lines = found.iter().map(|(name, choice)| format!("{name} = {choice}\n"));
        let text = format!("{}\n{}", self.key, lines.collect::<String>());
        if let Err(error) = replace(file, text.as_bytes()) {
            log::warn!(
                "cannot keep what was found out in {} ({error}): it holds for this process",
                file.display()
            );
        }
    }

    /// The file, where there is one.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }
}

/// The lines below a first one that must be `key`.
fn lines(text: &str, key: &str) -> Option<BTreeMap<String, String>> {
    let (first, rest) = text.split_once('\n')?;
    let pair = |line: &str| {
        line.split_once(" = ").map(|(name, choice)| (name.to_owned(), choice.to_owned()))
    };
    (first == key).then(|| rest.lines().filter_map(pair).collect())
}

fn with_checksum(data: &[u8]) -> Vec<u8> {
    [&checksum(data).to_le_bytes(), data].concat()
}

fn verified(file: &[u8]) -> Option<&[u8]> {
    let (sum, data) = file.split_first_chunk::<8>()?;
    (u64::from_le_bytes(*sum) == checksum(data)).then_some(data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_damaged_is_not_believed() {
        let whole = with_checksum(b"pipelines");
        assert_eq!(verified(&whole), Some(&b"pipelines"[..]));
        for damaged in
            [&whole[..whole.len() - 1], &whole[..4], &[], &[whole.as_slice(), b"x"].concat()]
        {
            assert_eq!(verified(damaged), None);
        }
    }

    #[test]
    fn choices_are_those_of_this_driver() {
        let text = "key\na thing = this\nno choice\nanother = that\n";
        let found = lines(text, "key").expect("the key is right");
        assert_eq!(found.len(), 2);
        assert_eq!(found["a thing"], "this");
        assert!(lines(text, "another key").is_none() && lines("", "key").is_none());
    }

    #[test]
    fn another_driver_has_another_file() {
        let info = AdapterInfo { name: "Some GPU (tm)".to_owned(), ..AdapterInfo::default() };
        let newer = AdapterInfo { driver_info: "2".to_owned(), ..info.clone() };
        let file = |info| adapter_file(Path::new("folder"), info, "pipelines");
        assert_ne!(file(&info), file(&newer));
        assert!(file(&info).to_string_lossy().contains("Some-GPU--tm-"));
    }

    #[test]
    fn a_file_is_replaced_as_a_whole() {
        let folder = env::temp_dir().join(format!("burn-wgsl-cache-{}", process::id()));
        let file = folder.join("deep").join("a.pipelines");
        replace(&file, b"one").expect("the folder is made");
        replace(&file, b"two").expect("the file is there");
        assert_eq!(fs::read(&file).expect("it was written"), b"two");
        assert_eq!(fs::read_dir(folder.join("deep")).expect("it was made").count(), 1);
        fs::remove_dir_all(folder).expect("it is ours");
    }
}
