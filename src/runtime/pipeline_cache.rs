//! The driver's cache of compiled pipelines, kept in a file.
//!
//! The file begins with a checksum of its data and of the adapter, driver and crate version that
//! wrote it. A damaged or foreign file is ignored, and rewritten.

use std::path::PathBuf;

use parking_lot::Mutex;

use super::cache::{
    adapter_file, adapter_key, cache_folder, checksum, prune, read_own, write_atomically,
};
use super::gpu::Gpu;
use crate::device::CAN_BLOCK;

/// The driver's cache of compiled pipelines, kept in a file.
pub(crate) struct PipelineCache {
    raw: wgpu::PipelineCache,
    file: PathBuf,
    /// Adapter, driver and crate version.
    key: String,
    state: Mutex<State>,
}

/// What has been saved.
struct State {
    /// Number of pipelines created since the last save.
    unsaved: usize,
    /// Number of pipelines that this process created before the last save.
    saved: usize,
    /// The data in the file as its checksum; `None` without a valid file.
    checksum: Option<u64>,
}

/// The largest file, in bytes: several times that of every kernel of this crate.
const MAX_FILE: u64 = 1 << 30;

impl PipelineCache {
    /// Opens the cache of an adapter and loads its file if there is a valid one.
    ///
    /// Returns `None` if the adapter does not support pipeline caches, the cache is disabled, or
    /// the driver cannot create one.
    pub fn open(gpu: &Gpu) -> Option<Self> {
        if !gpu.info.features.pipeline_cache {
            return None;
        }
        let file = adapter_file(&cache_folder()?, &gpu.info, "pipelines");
        let key = adapter_key(&gpu.info);
        let contents = read_own(&file, MAX_FILE);
        let data = contents.as_deref().and_then(|contents| verify(contents, &key));
        if contents.is_some() && data.is_none() {
            log::warn!(
                "ignoring the pipeline cache {}: it is damaged or belongs to another driver; it \
                 will be rewritten",
                file.display()
            );
        }
        // If the driver rejects the data all the same, the cache starts empty.
        let loaded = data.and_then(|data| Some((create(gpu, Some(data))?, checksum(data))));
        let (raw, checksum) = match loaded {
            Some((raw, checksum)) => (raw, Some(checksum)),
            None => (create(gpu, None)?, None),
        };
        Some(Self { raw, file, key, state: Mutex::new(State { unsaved: 0, saved: 0, checksum }) })
    }

    pub fn raw(&self) -> &wgpu::PipelineCache {
        &self.raw
    }

    /// Counts a new pipeline as not yet saved.
    pub fn mark_dirty(&self) {
        self.state.lock().unsaved += 1;
    }

    /// Writes the file if the unsaved pipelines are at least an eighth of the saved ones.
    ///
    /// Called where the host waits for the GPU anyway.
    pub fn save(&self) {
        let mut state = self.state.lock();
        // A browser has no files.
        if !CAN_BLOCK || state.unsaved == 0 || state.unsaved * 8 < state.saved {
            return;
        }
        let Some(data) = self.raw.get_data() else { return };
        state.saved += std::mem::take(&mut state.unsaved);
        // The data is unchanged if all new pipelines were loaded from the file.
        let new = Some(checksum(&data));
        if std::mem::replace(&mut state.checksum, new) == new {
            return;
        }
        drop(state);
        if let Err(error) = write_atomically(&self.file, &seal(&data, &self.key)) {
            log::warn!(
                "cannot write compiled kernels to {} ({error}): they are compiled again next time",
                self.file.display()
            );
        }
        prune(&self.file);
    }
}

/// Creates a cache; `None` if the driver cannot.
fn create(gpu: &Gpu, data: Option<&[u8]>) -> Option<wgpu::PipelineCache> {
    let descriptor = wgpu::PipelineCacheDescriptor { label: None, data, fallback: true };
    let filters = [wgpu::ErrorFilter::Validation, wgpu::ErrorFilter::Internal];
    // SAFETY: the data passed its checksum in a file that only this user can write, so it is what
    // `save` got from this driver. wgpu checks the driver's header, and `fallback` starts with an
    // empty cache on a mismatch.
    gpu.with_error_scopes(&filters, || unsafe { gpu.device.create_pipeline_cache(&descriptor) })
        .ok()
}

/// Returns the contents of a file: the checksum of `key` and `data`, and `data`.
fn seal(data: &[u8], key: &str) -> Vec<u8> {
    [&checksum(&[key.as_bytes(), data].concat()).to_le_bytes(), data].concat()
}

/// Returns the data of a file made by [`seal`]; `None` if the checksum does not match.
fn verify<'a>(file: &'a [u8], key: &str) -> Option<&'a [u8]> {
    let (expected, data) = file.split_first_chunk::<8>()?;
    let actual = checksum(&[key.as_bytes(), data].concat());
    (u64::from_le_bytes(*expected) == actual).then_some(data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_with_any_contents_are_ignored() {
        bolero::check!().for_each(|bytes: &[u8]| {
            assert_eq!(verify(bytes, "this GPU"), None);
            assert_eq!(verify(&seal(bytes, "this GPU"), "this GPU"), Some(bytes));
        });
    }

    #[test]
    fn damaged_and_foreign_files_fail_the_checksum() {
        let valid = seal(b"pipelines", "this GPU");
        assert_eq!(verify(&valid, "this GPU"), Some(&b"pipelines"[..]));
        assert_eq!(verify(&valid, "another GPU"), None);
        for damaged in
            [&valid[..valid.len() - 1], &valid[..4], &[], &[valid.as_slice(), b"x"].concat()]
        {
            assert_eq!(verify(damaged, "this GPU"), None);
        }
    }
}
