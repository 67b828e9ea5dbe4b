//! Checkpoints of a run: folders that are complete or not there.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::CheckpointError;
use super::state::{State, check_name};
use crate::runtime::panic_message;

/// The file that lists the parts of a checkpoint.
const MANIFEST: &str = "manifest.json";
/// The format of checkpoints.
const VERSION: u32 = 1;
/// What the names of folders that are not complete start with.
const INCOMPLETE: &str = ".incomplete-";
/// The file that a process that saves has locked.
const LOCK: &str = ".lock";
/// What the file names of parts start with: some systems reserve other names.
const PART: &str = "part-";
/// How often a reader looks again for the newest checkpoint.
const READS: usize = 3;
/// A manifest of more bytes is damaged.
const MAX_MANIFEST: u64 = 16 << 20;

/// The checkpoints of a run in a folder.
///
/// A thread writes a checkpoint to a new folder, which gets its name when all of its files are on the disk: a process
/// that is killed leaves the checkpoints before. The newest and the best ones stay. The newest is the one that was
/// saved last, also if a run went back to an earlier step. One process saves to a folder at a time; others may read
/// it by [`Checkpoint::latest`] and [`Checkpoint::best`].
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
    /// Locked, as long as it is open.
    _lock: File,
    /// Writes the checkpoint that was saved last.
    writer: Option<JoinHandle<Result<(), CheckpointError>>>,
}

/// A checkpoint that was read.
///
/// ```no_run
/// use burn_wgsl::train::Checkpoint;
///
/// if let Some(best) = Checkpoint::best("run")? {
///     println!("step {}, score {:?}", best.step, best.score);
/// }
/// # Ok::<(), burn_wgsl::train::CheckpointError>(())
/// ```
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

/// What a manifest of any format has.
#[derive(Debug, Deserialize)]
struct Format {
    version: u32,
}

#[derive(Debug, Serialize, Deserialize)]
struct Part {
    bytes: u64,
    crc32: u32,
}

impl Checkpoints {
    /// Opens a folder, which is created if it is not there. `keep` of the newest checkpoints stay, at least one, and
    /// that with the best score. Removes what a process that was killed left incomplete. The folder is
    /// locked: one process, and one value of this type, writes it at a time.
    ///
    /// # Errors
    ///
    /// Returns an error if the folder cannot be created or read, or if it is locked.
    pub fn open(folder: impl Into<PathBuf>, keep: usize) -> Result<Self, CheckpointError> {
        let folder = folder.into();
        fs::create_dir_all(&folder)
            .map_err(|error| CheckpointError::io("create", &folder, &error))?;
        let lock = lock(&folder)?;
        for path in entries(&folder)?.filter(|path| name_of(path).starts_with(INCOMPLETE)) {
            fs::remove_dir_all(&path)
                .map_err(|error| CheckpointError::io("remove", &path, &error))?;
        }
        Ok(Self { folder, keep: keep.max(1), _lock: lock, writer: None })
    }

    /// Returns the folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns whether there are no checkpoints, whole or damaged.
    ///
    /// # Errors
    ///
    /// Returns an error if the folder cannot be read, or the error of [`finish`](Self::finish).
    pub fn is_empty(&mut self) -> Result<bool, CheckpointError> {
        self.finish()?;
        Ok(checkpoints(&self.folder)?.is_empty())
    }

    /// Saves the state after `step` steps. A thread writes it; this waits only for the checkpoint before. Call
    /// [`finish`](Self::finish) before the process ends.
    ///
    /// # Errors
    ///
    /// Returns an error if the checkpoint before could not be written, such as to a full disk. This one is written
    /// all the same.
    pub fn save(
        &mut self,
        step: u64,
        state: State,
        score: Option<f64>,
    ) -> Result<(), CheckpointError> {
        let before = self.finish();
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
        before
    }

    /// Waits until the last checkpoint is written.
    ///
    /// # Errors
    ///
    /// Returns an error if it could not be written.
    pub fn finish(&mut self) -> Result<(), CheckpointError> {
        let Some(writer) = self.writer.take() else { return Ok(()) };
        writer.join().unwrap_or_else(|panic| {
            Err(CheckpointError::unusable("the checkpoint", &panic_message(&*panic)))
        })
    }

    /// Reads the newest checkpoint that is whole: see [`Checkpoint::latest`].
    ///
    /// # Errors
    ///
    /// Returns the error of [`finish`](Self::finish) or of [`Checkpoint::latest`].
    pub fn latest(&mut self) -> Result<Option<Checkpoint>, CheckpointError> {
        self.finish()?;
        Checkpoint::latest(&self.folder)
    }

    /// Reads the checkpoint with the best score: see [`Checkpoint::best`].
    ///
    /// # Errors
    ///
    /// Returns the error of [`finish`](Self::finish) or of [`Checkpoint::best`].
    pub fn best(&mut self) -> Result<Option<Checkpoint>, CheckpointError> {
        self.finish()?;
        Checkpoint::best(&self.folder)
    }
}

impl Checkpoint {
    /// Reads the newest checkpoint in a folder that is whole; `None` if there are no checkpoints. Changes nothing in
    /// the folder.
    ///
    /// # Errors
    ///
    /// Returns an error if the folder or a file cannot be read, if a checkpoint has another format, or if all are
    /// damaged.
    pub fn latest(folder: impl AsRef<Path>) -> Result<Option<Self>, CheckpointError> {
        let folder = folder.as_ref();
        // A run that saves meanwhile may remove what is being read; then a newer one is there.
        for _ in 0..READS {
            match latest(folder) {
                Err(error) if error.is_of_missing_folder() => {}
                result => return result,
            }
        }
        latest(folder)
    }

    /// Reads a value of the newest checkpoint in a folder that is whole, such as a setting that a run takes over when
    /// it is resumed.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`latest`](Self::latest) and of [`State::value`], and an error if there are no
    /// checkpoints.
    pub fn latest_value<T: DeserializeOwned>(
        folder: impl AsRef<Path>,
        name: &str,
    ) -> Result<T, CheckpointError> {
        let folder = folder.as_ref();
        let nothing = || CheckpointError::NothingToResume { folder: folder.to_owned() };
        Self::latest(folder)?.ok_or_else(nothing)?.state.value(name)
    }

    /// Reads the checkpoint in a folder with the best score; `None` if none has a score. Changes nothing in the folder.
    ///
    /// # Errors
    ///
    /// Returns an error if the folder or the checkpoint cannot be read.
    pub fn best(folder: impl AsRef<Path>) -> Result<Option<Self>, CheckpointError> {
        best(folder.as_ref())?.map(|saved| read(&saved)).transpose()
    }
}

/// Reads the newest checkpoint in a folder that is whole.
fn latest(folder: &Path) -> Result<Option<Checkpoint>, CheckpointError> {
    let mut damaged = Vec::new();
    for saved in checkpoints(folder)?.into_iter().rev() {
        match read(&saved) {
            Ok(checkpoint) => return Ok(Some(Checkpoint { damaged, ..checkpoint })),
            Err(error @ CheckpointError::Damaged { .. }) if saved.path.exists() => {
                log::warn!("{error}; it is passed over");
                damaged.push(error);
            }
            // It may be whole: the run must not go back in silence.
            Err(error) => return Err(error),
        }
    }
    damaged.into_iter().next().map_or(Ok(None), Err)
}

impl Drop for Checkpoints {
    fn drop(&mut self) {
        if let Err(error) = self.finish() {
            log::error!("{error}");
        }
    }
}

/// Locks a folder until the file is closed, also by the end of the process.
fn lock(folder: &Path) -> Result<File, CheckpointError> {
    let path = folder.join(LOCK);
    let file = File::create(&path).map_err(|error| CheckpointError::io("create", &path, &error))?;
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => Err(CheckpointError::InUse { folder: folder.to_owned() }),
        // Some network file systems have no locks.
        Err(TryLockError::Error(error)) => {
            log::warn!(
                "{} cannot be locked ({error}): only one run may save to it",
                path.display()
            );
            Ok(file)
        }
        Ok(()) => Ok(file),
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

/// A folder of a checkpoint, named `000007-step-00000123`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Saved {
    /// The checkpoints of the folder that were saved before it.
    order: u64,
    step: u64,
    path: PathBuf,
}

impl Saved {
    fn new(folder: &Path, order: u64, step: u64) -> Self {
        Self { order, step, path: folder.join(format!("{order:06}-step-{step:08}")) }
    }

    fn of(path: PathBuf) -> Option<Self> {
        let (order, step) = name_of(&path).split_once("-step-")?;
        Some(Self { order: order.parse().ok()?, step: step.parse().ok()?, path })
    }
}

/// Returns the checkpoints of a folder in the order in which they were saved.
fn checkpoints(folder: &Path) -> Result<Vec<Saved>, CheckpointError> {
    let mut saved: Vec<Saved> = entries(folder)?.filter_map(Saved::of).collect();
    saved.sort();
    Ok(saved)
}

/// Returns the checkpoint with the best score; of equal ones, the newest.
fn best(folder: &Path) -> Result<Option<Saved>, CheckpointError> {
    let mut best: Option<(f64, Saved)> = None;
    for saved in checkpoints(folder)? {
        let Some(score) = read_manifest(&saved.path).ok().and_then(|manifest| manifest.score)
        else {
            continue;
        };
        if best.as_ref().is_none_or(|(other, _)| score.total_cmp(other).is_ge()) {
            best = Some((score, saved));
        }
    }
    Ok(best.map(|(_, saved)| saved))
}

fn write(
    folder: &Path,
    step: u64,
    state: &State,
    score: Option<f64>,
) -> Result<(), CheckpointError> {
    let order = checkpoints(folder)?.last().map_or(0, |last| last.order + 1);
    let complete = Saved::new(folder, order, step).path;
    let incomplete = folder.join(format!("{INCOMPLETE}{}", name_of(&complete)));
    let failed = |path: &Path, error: &io::Error| CheckpointError::io("write", path, error);
    let written = write_parts(&incomplete, step, state, score).and_then(|()| {
        fs::rename(&incomplete, &complete).map_err(|error| failed(&complete, &error))
    });
    if written.is_err() {
        // It must not keep a full disk full.
        let _ = fs::remove_dir_all(&incomplete);
    }
    written?;
    sync_folder(folder).map_err(|error| failed(folder, &error))
}

/// Writes the files of a checkpoint to a new folder.
fn write_parts(
    folder: &Path,
    step: u64,
    state: &State,
    score: Option<f64>,
) -> Result<(), CheckpointError> {
    let failed = |path: &Path, error: &io::Error| CheckpointError::io("write", path, error);
    fs::create_dir_all(folder).map_err(|error| failed(folder, &error))?;
    let mut parts = BTreeMap::new();
    for (name, bytes) in &state.parts {
        let path = folder.join(format!("{PART}{name}"));
        write_file(&path, bytes).map_err(|error| failed(&path, &error))?;
        let part = Part { bytes: bytes.len() as u64, crc32: crc32fast::hash(bytes) };
        parts.insert(name.clone(), part);
    }
    let manifest = Manifest { version: VERSION, step, score, parts };
    let manifest = serde_json::to_vec_pretty(&manifest)
        .map_err(|error| CheckpointError::unusable(MANIFEST, &error))?;
    let path = folder.join(MANIFEST);
    write_file(&path, &manifest).map_err(|error| failed(&path, &error))?;
    sync_folder(folder).map_err(|error| failed(folder, &error))
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
    let old = checkpoints(folder)?.into_iter().rev().skip(keep);
    for Saved { path, .. } in old.filter(|saved| Some(saved) != best.as_ref()) {
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
    let damaged = |error: serde_json::Error| CheckpointError::damaged(&path, &error.to_string());
    // Another format may have other fields.
    let Format { version } = serde_json::from_slice(&bytes).map_err(damaged)?;
    if version != VERSION {
        return Err(CheckpointError::Version { path, version });
    }
    serde_json::from_slice(&bytes).map_err(damaged)
}

fn read(saved: &Saved) -> Result<Checkpoint, CheckpointError> {
    let folder = &saved.path;
    let Manifest { step, score, parts, .. } = read_manifest(folder)?;
    if step != saved.step {
        let reason = format!("it is that of step {step}");
        return Err(CheckpointError::damaged(&folder.join(MANIFEST), &reason));
    }
    let mut state = State::new();
    for (name, Part { bytes, crc32 }) in parts {
        // A manifest that was altered must not read files elsewhere.
        let path = folder.join(MANIFEST);
        check_name(&name).map_err(|error| CheckpointError::damaged(&path, &error.to_string()))?;
        let path = folder.join(format!("{PART}{name}"));
        let read = read_file(&path, Some(bytes))?;
        if crc32fast::hash(&read) != crc32 {
            return Err(CheckpointError::damaged(&path, "checksum mismatch"));
        }
        state.parts.insert(name, read);
    }
    Ok(Checkpoint { step, score, state, damaged: Vec::new() })
}

/// Reads a file, of the size that is expected.
fn read_file(path: &Path, expected: Option<u64>) -> Result<Vec<u8>, CheckpointError> {
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => CheckpointError::damaged(path, "it is missing"),
        _ => CheckpointError::io("read", path, &error),
    };
    let metadata = fs::symlink_metadata(path).map_err(failed)?;
    if !metadata.is_file() {
        return Err(CheckpointError::damaged(path, "it is no file"));
    }
    let found = metadata.len();
    if let Some(expected) = expected.filter(|expected| *expected != found) {
        let reason = format!("it has {found} bytes, not {expected}");
        return Err(CheckpointError::damaged(path, &reason));
    }
    if expected.is_none() && found > MAX_MANIFEST {
        return Err(CheckpointError::damaged(path, &format!("it has {found} bytes")));
    }
    let mut bytes = Vec::new();
    File::open(path).and_then(|file| file.take(found).read_to_end(&mut bytes)).map_err(failed)?;
    Ok(bytes)
}
