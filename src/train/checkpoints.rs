//! Checkpoints of a run: folders that are complete or not there.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use serde::{Deserialize, Serialize};

use super::state::{State, check_name};
use super::{CheckpointError, message_of};

/// The file that lists the parts of a checkpoint.
const MANIFEST: &str = "manifest.json";
/// The format of checkpoints.
const VERSION: u32 = 1;
/// What the names of checkpoints start with; the step follows.
const PREFIX: &str = "step-";
/// What the names of folders that are not complete start with.
const INCOMPLETE: &str = ".incomplete-";
/// What the name of a checkpoint starts with while another of the same step takes its place.
const REPLACED: &str = ".replaced-";
/// A manifest or a part of more bytes is damaged.
const MAX_BYTES: u64 = 1 << 40;

/// The checkpoints of a run in a folder.
///
/// A thread writes a checkpoint to a new folder, which gets its name when all of its files are on the disk: a process
/// that is killed leaves the checkpoints before. The newest and the best ones stay.
///
/// ```no_run
/// use burn_wgsl::train::{Checkpoints, State};
///
/// let mut checkpoints = Checkpoints::open("run", 2)?;
/// let mut first = 0;
/// if let Some(checkpoint) = checkpoints.latest()? {
///     first = checkpoint.step;
///     println!("resumed after {first} steps");
/// }
/// for step in first..100 {
///     // ... a training step; then:
///     let mut state = State::new();
///     state.set_value("rate", &0.1)?;
///     checkpoints.save(step + 1, state, None)?;
/// }
/// checkpoints.finish()?;
/// # Ok::<(), burn_wgsl::train::CheckpointError>(())
/// ```
#[derive(Debug)]
pub struct Checkpoints {
    folder: PathBuf,
    keep: usize,
    /// Writes the checkpoint that was saved last.
    writer: Option<JoinHandle<Result<(), CheckpointError>>>,
}

/// A checkpoint that was read.
#[derive(Debug, Clone, PartialEq)]
pub struct Checkpoint {
    /// The steps of the run before it.
    pub step: u64,
    /// Its score, of which the largest is the best. A score that is not finite counts as none.
    pub score: Option<f64>,
    /// Its parts.
    pub state: State,
    /// Why newer checkpoints were passed over: they are damaged.
    pub damaged: Vec<CheckpointError>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Manifest {
    version: u32,
    step: u64,
    score: Option<f64>,
    parts: BTreeMap<String, Part>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Part {
    bytes: u64,
    crc32: u32,
}

impl Checkpoints {
    /// Opens a folder, which is created if it is not there. `keep` of the newest checkpoints stay, at least one, and
    /// that with the best score. Removes what a process that was killed left incomplete: one process writes a folder
    /// at a time.
    ///
    /// # Errors
    ///
    /// Returns an error if the folder cannot be created or read.
    pub fn open(folder: impl Into<PathBuf>, keep: usize) -> Result<Self, CheckpointError> {
        let folder = folder.into();
        fs::create_dir_all(&folder)
            .map_err(|error| CheckpointError::io("create", &folder, &error))?;
        for path in entries(&folder)? {
            clean_up(&path)?;
        }
        Ok(Self { folder, keep: keep.max(1), writer: None })
    }

    /// Saves the state after `step` steps. A thread writes it; this waits only for the checkpoint before.
    ///
    /// # Errors
    ///
    /// Returns an error if the checkpoint before could not be written, such as to a full disk.
    pub fn save(
        &mut self,
        step: u64,
        state: State,
        score: Option<f64>,
    ) -> Result<(), CheckpointError> {
        self.finish()?;
        let (folder, keep) = (self.folder.clone(), self.keep);
        let thread = std::thread::Builder::new().name("checkpoint".to_owned());
        let write = move || {
            write(&folder, step, &state, score)?;
            remove_old(&folder, keep)
        };
        let started = thread.spawn(write);
        self.writer =
            Some(started.map_err(|error| {
                CheckpointError::io("start a thread for", &self.folder, &error)
            })?);
        Ok(())
    }

    /// Waits until the last checkpoint is written.
    ///
    /// # Errors
    ///
    /// Returns an error if it could not be written.
    pub fn finish(&mut self) -> Result<(), CheckpointError> {
        let Some(writer) = self.writer.take() else { return Ok(()) };
        writer.join().unwrap_or_else(|panic| {
            Err(CheckpointError::unusable("the checkpoint", &message_of(&*panic)))
        })
    }

    /// Reads the newest checkpoint that is whole; `None` if there are no checkpoints.
    ///
    /// # Errors
    ///
    /// Returns an error if the folder cannot be read, or if all checkpoints are damaged.
    pub fn latest(&mut self) -> Result<Option<Checkpoint>, CheckpointError> {
        self.finish()?;
        let mut damaged = Vec::new();
        for (_, path) in checkpoints(&self.folder)?.into_iter().rev() {
            match read(&path) {
                Ok(checkpoint) => return Ok(Some(Checkpoint { damaged, ..checkpoint })),
                Err(error) => {
                    log::warn!("{error}; the checkpoint before it is used");
                    damaged.push(error);
                }
            }
        }
        damaged.into_iter().next().map_or(Ok(None), Err)
    }

    /// Reads the checkpoint with the best score; `None` if none has a score.
    ///
    /// # Errors
    ///
    /// Returns an error if the folder or the checkpoint cannot be read.
    pub fn best(&mut self) -> Result<Option<Checkpoint>, CheckpointError> {
        self.finish()?;
        best(&self.folder)?.map(|path| read(&path)).transpose()
    }
}

impl Drop for Checkpoints {
    fn drop(&mut self) {
        if let Err(error) = self.finish() {
            log::error!("{error}");
        }
    }
}

fn entries(folder: &Path) -> Result<impl Iterator<Item = PathBuf> + use<>, CheckpointError> {
    let entries =
        fs::read_dir(folder).map_err(|error| CheckpointError::io("read", folder, &error))?;
    Ok(entries.flatten().map(|entry| entry.path()))
}

fn name_of(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

/// Returns the checkpoints of a folder by their steps.
fn checkpoints(folder: &Path) -> Result<BTreeMap<u64, PathBuf>, CheckpointError> {
    let step = |path: &Path| name_of(path).strip_prefix(PREFIX)?.parse().ok();
    Ok(entries(folder)?.filter_map(|path| Some((step(&path)?, path))).collect())
}

/// Returns the checkpoint with the best score; of equal ones, the newest.
fn best(folder: &Path) -> Result<Option<PathBuf>, CheckpointError> {
    let mut best: Option<(f64, PathBuf)> = None;
    for path in checkpoints(folder)?.into_values() {
        let Some(score) = read_manifest(&path).ok().and_then(|manifest| manifest.score) else {
            continue;
        };
        if best.as_ref().is_none_or(|(other, _)| score.total_cmp(other).is_ge()) {
            best = Some((score, path));
        }
    }
    Ok(best.map(|(_, path)| path))
}

fn write(
    folder: &Path,
    step: u64,
    state: &State,
    score: Option<f64>,
) -> Result<(), CheckpointError> {
    let incomplete = folder.join(format!("{INCOMPLETE}{step:08}"));
    let complete = folder.join(format!("{PREFIX}{step:08}"));
    let failed = |path: &Path, error: &io::Error| CheckpointError::io("write", path, error);
    fs::create_dir_all(&incomplete).map_err(|error| failed(&incomplete, &error))?;
    let mut parts = BTreeMap::new();
    for (name, bytes) in &state.parts {
        let path = incomplete.join(name);
        write_file(&path, bytes).map_err(|error| failed(&path, &error))?;
        parts.insert(
            name.clone(),
            Part { bytes: bytes.len() as u64, crc32: crc32fast::hash(bytes) },
        );
    }
    let manifest = Manifest { version: VERSION, step, score, parts };
    let manifest = serde_json::to_vec_pretty(&manifest)
        .map_err(|error| CheckpointError::unusable(MANIFEST, &error))?;
    let path = incomplete.join(MANIFEST);
    write_file(&path, &manifest).map_err(|error| failed(&path, &error))?;
    sync_folder(&incomplete).map_err(|error| failed(&incomplete, &error))?;
    // A checkpoint of the same step is replaced: a resumed run saves it again.
    let replaced = folder.join(format!("{REPLACED}{}", name_of(&complete)));
    if complete.exists() {
        fs::rename(&complete, &replaced).map_err(|error| failed(&complete, &error))?;
    }
    fs::rename(&incomplete, &complete).map_err(|error| failed(&complete, &error))?;
    sync_folder(folder).map_err(|error| failed(folder, &error))?;
    if replaced.exists() { clean_up(&replaced) } else { Ok(()) }
}

/// Removes what a process that was killed left, and gives a checkpoint that was being replaced its name again.
fn clean_up(path: &Path) -> Result<(), CheckpointError> {
    let failed = |error: io::Error| CheckpointError::io("remove", path, &error);
    if name_of(path).starts_with(INCOMPLETE) {
        return fs::remove_dir_all(path).map_err(failed);
    }
    let Some(name) = name_of(path).strip_prefix(REPLACED) else { return Ok(()) };
    let complete = path.with_file_name(name);
    match complete.exists() {
        true => fs::remove_dir_all(path).map_err(failed),
        false => fs::rename(path, complete).map_err(failed),
    }
}

fn write_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Waits until the names in a folder are on the disk.
fn sync_folder(folder: &Path) -> io::Result<()> {
    // Windows opens no folders, and writes names in order.
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}

/// Removes all but the newest checkpoints and the best.
fn remove_old(folder: &Path, keep: usize) -> Result<(), CheckpointError> {
    let best = best(folder)?;
    let old = checkpoints(folder)?.into_values().rev().skip(keep);
    for path in old.filter(|path| Some(path) != best.as_ref()) {
        // Without its name, it is no checkpoint, even if not all of it can be removed.
        let hidden = folder.join(format!("{INCOMPLETE}{}", name_of(&path)));
        fs::rename(&path, &hidden)
            .and_then(|()| fs::remove_dir_all(&hidden))
            .map_err(|error| CheckpointError::io("remove", &path, &error))?;
    }
    Ok(())
}

fn read_manifest(folder: &Path) -> Result<Manifest, CheckpointError> {
    let path = folder.join(MANIFEST);
    let bytes = read_file(&path, None)?;
    let manifest: Manifest = serde_json::from_slice(&bytes)
        .map_err(|error| CheckpointError::damaged(&path, &error.to_string()))?;
    match manifest.version {
        VERSION => Ok(manifest),
        version => Err(CheckpointError::Version { path, version }),
    }
}

fn read(folder: &Path) -> Result<Checkpoint, CheckpointError> {
    let Manifest { step, score, parts, .. } = read_manifest(folder)?;
    let mut state = State::new();
    for (name, Part { bytes, crc32 }) in parts {
        // A manifest that was altered must not read files elsewhere.
        check_name(&name)?;
        let path = folder.join(&name);
        let read = read_file(&path, Some(bytes))?;
        if crc32fast::hash(&read) != crc32 {
            return Err(CheckpointError::damaged(&path, "its checksum is another"));
        }
        state.parts.insert(name, read);
    }
    Ok(Checkpoint { step, score, state, damaged: Vec::new() })
}

/// Reads a file, of the size that is expected.
fn read_file(path: &Path, expected: Option<u64>) -> Result<Vec<u8>, CheckpointError> {
    let failed = |error: io::Error| CheckpointError::io("read", path, &error);
    let metadata = fs::symlink_metadata(path).map_err(failed)?;
    if !metadata.is_file() {
        return Err(CheckpointError::damaged(path, "it is no file"));
    }
    let found = metadata.len();
    if let Some(expected) = expected.filter(|expected| *expected != found) {
        let reason = format!("it has {found} bytes, not {expected}");
        return Err(CheckpointError::damaged(path, &reason));
    }
    if found > MAX_BYTES {
        return Err(CheckpointError::damaged(path, &format!("it has {found} bytes")));
    }
    let mut bytes = Vec::new();
    File::open(path).and_then(|file| file.take(found).read_to_end(&mut bytes)).map_err(failed)?;
    Ok(bytes)
}
