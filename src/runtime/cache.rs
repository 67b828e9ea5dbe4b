//! What is kept between runs, in a folder per user: it may be deleted at any time, and nothing in it is believed
//! before it is checked.

use std::hash::Hasher;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{env, fs, io, process};

use rustc_hash::FxHasher;

use crate::device::AdapterFacts;

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
pub(crate) fn adapter_key(facts: &AdapterFacts) -> String {
    let AdapterFacts { name, driver, driver_info, vendor_id, device_id, .. } = facts;
    format!("burn-wgsl {} on {name} {vendor_id:x}:{device_id:x} {driver} {driver_info}", env!("CARGO_PKG_VERSION"))
}

/// The file of an adapter, named by what it is good for.
pub(crate) fn adapter_file(folder: &Path, facts: &AdapterFacts, extension: &str) -> PathBuf {
    let name: String = facts.name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    folder.join(format!("{name}-{:08x}.{extension}", checksum(adapter_key(facts).as_bytes()) as u32))
}

/// Writes a file whole or not at all: readers never see half of it.
pub(crate) fn replace(file: &Path, bytes: &[u8]) -> io::Result<()> {
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder)?;
    }
    let beside = file.with_extension(format!("{}.new", process::id()));
    fs::write(&beside, bytes)?;
    fs::rename(&beside, file)
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
}

impl PipelineCache {
    /// The cache of an adapter, filled from its file if there is one that is whole.
    pub fn open(device: &wgpu::Device, facts: &AdapterFacts) -> Option<Self> {
        if !facts.features.pipeline_cache {
            return None;
        }
        let file = adapter_file(&cache_folder()?, facts, "pipelines");
        let kept = fs::read(&file).ok();
        let data = kept.as_deref().and_then(unsealed);
        if kept.is_some() && data.is_none() {
            log::warn!("{} is damaged and will be written anew", file.display());
        }
        // SAFETY: the data passed its checksum, so it is what this function's counterpart was given by the driver; wgpu
        // compares the driver's own header, and `fallback` starts empty where that does not fit.
        let raw = unsafe {
            device.create_pipeline_cache(&wgpu::PipelineCacheDescriptor { label: None, data, fallback: true })
        };
        Some(Self { raw, file, unsaved: AtomicUsize::new(0), saved: AtomicUsize::new(0) })
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
        let (unsaved, saved) = (self.unsaved.load(Ordering::Relaxed), self.saved.load(Ordering::Relaxed));
        if unsaved == 0 || unsaved * 8 < saved {
            return;
        }
        self.unsaved.store(0, Ordering::Relaxed);
        self.saved.store(saved + unsaved, Ordering::Relaxed);
        let Some(data) = self.raw.get_data() else {
            return;
        };
        if let Err(error) = replace(&self.file, &sealed(&data)) {
            log::warn!("cannot keep compiled kernels in {} ({error}): they are compiled again next time", self.file.display());
        }
    }
}

fn sealed(data: &[u8]) -> Vec<u8> {
    [&checksum(data).to_le_bytes(), data].concat()
}

fn unsealed(file: &[u8]) -> Option<&[u8]> {
    let (sum, data) = file.split_first_chunk::<8>()?;
    (u64::from_le_bytes(*sum) == checksum(data)).then_some(data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_damaged_is_not_believed() {
        let whole = sealed(b"pipelines");
        assert_eq!(unsealed(&whole), Some(&b"pipelines"[..]));
        for damaged in [&whole[..whole.len() - 1], &whole[..4], &[], &[whole.as_slice(), b"x"].concat()] {
            assert_eq!(unsealed(damaged), None);
        }
    }

    #[test]
    fn another_driver_has_another_file() {
        let facts = AdapterFacts { name: "Some GPU (tm)".to_owned(), ..AdapterFacts::default() };
        let newer = AdapterFacts { driver_info: "2".to_owned(), ..facts.clone() };
        let file = |facts| adapter_file(Path::new("folder"), facts, "pipelines");
        assert_ne!(file(&facts), file(&newer));
        assert!(file(&facts).to_string_lossy().contains("Some-GPU--tm-"));
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
