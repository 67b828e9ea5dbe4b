//! Files kept between runs in a cache folder: compiled pipelines and tuning results.
//!
//! The files may be deleted at any time. Their contents are verified before use.

use std::collections::BTreeMap;
use std::hash::Hasher;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::{env, fs, io, process};

use parking_lot::RwLock;
use rustc_hash::FxHasher;

use crate::device::AdapterInfo;

/// The environment variable that sets the cache folder. `off` disables the cache.
pub const CACHE_VARIABLE: &str = "BURN_WGSL_CACHE";

/// Returns the cache folder, or `None` if the cache is disabled or the system has no cache folder.
pub fn cache_folder() -> Option<PathBuf> {
    match env::var_os(CACHE_VARIABLE) {
        Some(value) if value == "off" => None,
        Some(folder) if !folder.is_empty() => Some(folder.into()),
        _ => dirs::cache_dir().map(|folder| folder.join("burn-wgsl")),
    }
}

/// Returns the key that identifies a cache file: crate version, adapter and driver.
pub(crate) fn adapter_key(info: &AdapterInfo) -> String {
    let AdapterInfo { name, driver, driver_info, vendor_id, device_id, .. } = info;
    format!(
        "burn-wgsl {} on {name} {vendor_id:x}:{device_id:x} {driver} {driver_info}",
        env!("CARGO_PKG_VERSION")
    )
}

/// Returns the path of an adapter's cache file. The name contains a hash of [`adapter_key`].
pub(crate) fn adapter_file(folder: &Path, info: &AdapterInfo, extension: &str) -> PathBuf {
    let name: String =
        info.name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    folder.join(format!("{name}-{:08x}.{extension}", checksum(adapter_key(info).as_bytes()) as u32))
}

/// Writes a file atomically: readers see either the old or the new contents.
pub(crate) fn write_atomically(file: &Path, bytes: &[u8]) -> io::Result<()> {
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder)?;
    }
    // The name of the temporary file is unique among files, processes and threads.
    static WRITES: AtomicUsize = AtomicUsize::new(0);
    let mut temporary = file.as_os_str().to_owned();
    temporary.push(format!(".{}-{}.new", process::id(), WRITES.fetch_add(1, Ordering::Relaxed)));
    let result = fs::write(&temporary, bytes).and_then(|()| fs::rename(&temporary, file));
    if result.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    result
}

fn checksum(bytes: &[u8]) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write(bytes);
    hasher.finish()
}

/// The driver's cache of compiled pipelines, stored in a file.
pub(crate) struct PipelineCache {
    raw: wgpu::PipelineCache,
    file: PathBuf,
    /// Number of pipelines created since the last save.
    unsaved: AtomicUsize,
    /// Number of pipelines that this process created before the last save.
    saved: AtomicUsize,
    /// The checksum of the data in the file, or 0 without a valid file.
    saved_checksum: AtomicU64,
}

impl PipelineCache {
    /// Opens the cache of an adapter and loads its file if there is a valid one.
    ///
    /// Returns `None` if the adapter does not support pipeline caches or the cache is disabled.
    pub fn open(device: &wgpu::Device, info: &AdapterInfo) -> Option<Self> {
        if !info.features.pipeline_cache {
            return None;
        }
        let file = adapter_file(&cache_folder()?, info, "pipelines");
        let contents = fs::read(&file).ok();
        let data = contents.as_deref().and_then(verify_checksum);
        if contents.is_some() && data.is_none() {
            log::warn!(
                "ignoring the pipeline cache {}: its checksum does not match; it will be rewritten",
                file.display()
            );
        }
        // SAFETY: the data passed its checksum, so it is what `save` got from the driver. wgpu
        // checks the driver's header, and `fallback` starts with an empty cache on a mismatch.
        let raw = unsafe {
            device.create_pipeline_cache(&wgpu::PipelineCacheDescriptor {
                label: None,
                data,
                fallback: true,
            })
        };
        let saved_checksum = AtomicU64::new(data.map_or(0, checksum));
        let (unsaved, saved) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Some(Self { raw, file, unsaved, saved, saved_checksum })
    }

    pub fn raw(&self) -> &wgpu::PipelineCache {
        &self.raw
    }

    /// Counts a new pipeline as not yet saved.
    pub fn mark_dirty(&self) {
        self.unsaved.fetch_add(1, Ordering::Relaxed);
    }

    /// Writes the file if the unsaved pipelines are at least an eighth of the saved ones.
    ///
    /// Called where the host waits for the GPU anyway.
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
        // The data is unchanged if all new pipelines were loaded from the file.
        let new_checksum = checksum(&data);
        if self.saved_checksum.swap(new_checksum, Ordering::Relaxed) == new_checksum {
            return;
        }
        if let Err(error) = write_atomically(&self.file, &with_checksum(&data)) {
            log::warn!(
                "cannot write compiled kernels to {} ({error}): they are compiled again next time",
                self.file.display()
            );
        }
    }
}

/// The tuning results for an adapter: a map from name to the fastest choice.
///
/// The first line of the file is a key of crate version, adapter and driver. Each further line is
/// `name = choice`.
#[derive(Debug, Default)]
pub struct TuningCache {
    file: Option<PathBuf>,
    /// The first line of the file, see [`adapter_key`].
    key: String,
    /// Results that are also in the file, if there is one.
    stored: RwLock<BTreeMap<String, String>>,
    /// Choices for this process only.
    process_only: RwLock<BTreeMap<String, String>>,
}

impl TuningCache {
    /// Opens the cache of an adapter and loads its file if there is a valid one.
    pub(crate) fn open(info: &AdapterInfo) -> Self {
        let file = cache_folder().map(|folder| adapter_file(&folder, info, "tuning"));
        let key = adapter_key(info);
        let text = file.as_ref().and_then(|file| fs::read_to_string(file).ok()).unwrap_or_default();
        let stored = RwLock::new(parse_choices(&text, &key).unwrap_or_default());
        Self { file, key, stored, process_only: RwLock::default() }
    }

    /// Returns whether there are no choices.
    pub fn is_empty(&self) -> bool {
        self.stored.read().is_empty() && self.process_only.read().is_empty()
    }

    /// Returns the choice for `name`. A stored choice takes precedence.
    pub fn get(&self, name: &str) -> Option<String> {
        let stored = self.stored.read().get(name).cloned();
        stored.or_else(|| self.process_only.read().get(name).cloned())
    }

    /// Sets the choice for `name` in this process, without writing it to the file.
    pub fn set_for_process(&self, name: &str, choice: &str) {
        self.process_only.write().insert(name.to_owned(), choice.to_owned());
    }

    /// Sets the choice for `name` and writes it to the file.
    pub fn store(&self, name: &str, choice: &str) {
        let mut stored = self.stored.write();
        let Some(file) = &self.file else {
            stored.insert(name.to_owned(), choice.to_owned());
            return;
        };
        // Other processes may have added choices to the file.
        let text = fs::read_to_string(file).unwrap_or_default();
        stored.extend(parse_choices(&text, &self.key).unwrap_or_default());
        stored.insert(name.to_owned(), choice.to_owned());
        let lines = stored.iter().map(|(name, choice)| format!("{name} = {choice}\n"));
        let text = format!("{}\n{}", self.key, lines.collect::<String>());
        if let Err(error) = write_atomically(file, text.as_bytes()) {
            log::warn!(
                "cannot write tuning results to {} ({error}): they apply to this process only",
                file.display()
            );
        }
    }

    /// Returns the path of the file, or `None` if the cache is disabled.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }
}

/// Parses the lines of a tuning file. Returns `None` if its first line is not `key`.
fn parse_choices(text: &str, key: &str) -> Option<BTreeMap<String, String>> {
    let (first, rest) = text.split_once('\n')?;
    let pair = |line: &str| {
        line.split_once(" = ").map(|(name, choice)| (name.to_owned(), choice.to_owned()))
    };
    (first == key).then(|| rest.lines().filter_map(pair).collect())
}

/// Returns `data` with its checksum as an 8-byte prefix.
fn with_checksum(data: &[u8]) -> Vec<u8> {
    [&checksum(data).to_le_bytes(), data].concat()
}

/// Returns the data of a file made by [`with_checksum`], or `None` if the checksum does not match.
fn verify_checksum(file: &[u8]) -> Option<&[u8]> {
    let (expected, data) = file.split_first_chunk::<8>()?;
    (u64::from_le_bytes(*expected) == checksum(data)).then_some(data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_files_fail_the_checksum() {
        let valid = with_checksum(b"pipelines");
        assert_eq!(verify_checksum(&valid), Some(&b"pipelines"[..]));
        for damaged in
            [&valid[..valid.len() - 1], &valid[..4], &[], &[valid.as_slice(), b"x"].concat()]
        {
            assert_eq!(verify_checksum(damaged), None);
        }
    }

    #[test]
    fn tuning_files_with_another_key_are_ignored() {
        let text = "key\na name = one choice\nno choice\nanother name = another choice\n";
        let choices = parse_choices(text, "key").expect("the key matches");
        assert_eq!(choices.len(), 2);
        assert_eq!(choices["a name"], "one choice");
        assert!(parse_choices(text, "another key").is_none());
        assert!(parse_choices("", "key").is_none());
    }

    #[test]
    fn file_names_differ_between_driver_versions() {
        let info = AdapterInfo { name: "Some GPU (tm)".to_owned(), ..AdapterInfo::default() };
        let newer = AdapterInfo { driver_info: "2".to_owned(), ..info.clone() };
        let file = |info| adapter_file(Path::new("folder"), info, "pipelines");
        assert_ne!(file(&info), file(&newer));
        assert!(file(&info).to_string_lossy().contains("Some-GPU--tm-"));
    }

    #[test]
    fn atomic_writes_create_folders_and_leave_no_temporary_files() {
        let folder = env::temp_dir().join(format!("burn-wgsl-cache-{}", process::id()));
        let file = folder.join("deep").join("a.pipelines");
        write_atomically(&file, b"one").expect("the folder is created");
        write_atomically(&file, b"two").expect("the file is replaced");
        assert_eq!(fs::read(&file).expect("the file is readable"), b"two");
        assert_eq!(fs::read_dir(folder.join("deep")).expect("the folder exists").count(), 1);
        fs::remove_dir_all(folder).expect("the folder is removable");
    }
}
