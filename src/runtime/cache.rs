//! The cache folder and its files, which are kept between runs: compiled pipelines, tuning results,
//! and what a driver refused.
//!
//! The files may be deleted at any time. A file that another user could have written is not read.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use std::{env, fs, io, process};

use rustc_hash::FxHasher;

use crate::device::{AdapterInfo, CAN_BLOCK};
use crate::variables::{self, warn_once};

/// The environment variable that sets the cache folder. `off` disables the cache.
pub const CACHE_VARIABLE: &str = variables::CACHE.name;

/// Returns the cache folder, or `None` if the cache is disabled or the system has no cache folder.
pub fn cache_folder() -> Option<PathBuf> {
    // A browser has no files.
    if !CAN_BLOCK {
        return None;
    }
    match variables::CACHE.value() {
        Some(value)
            if ["off", "0", "no", "false"].contains(&value.trim().to_lowercase().as_str()) =>
        {
            None
        }
        // Not its value as a text, which may have lost bytes.
        Some(_) => env::var_os(CACHE_VARIABLE).map(PathBuf::from),
        None => dirs::cache_dir().map(|folder| folder.join("burn-wgsl")),
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

/// Writes a file of this user alone atomically: readers see either the old or the new contents.
pub(crate) fn write_atomically(file: &Path, bytes: &[u8]) -> io::Result<()> {
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder)?;
    }
    let temporary = temporary_name(file);
    let created = create_own(&temporary)?;
    replace(file, &temporary, created, bytes)
}

/// Returns the name of a temporary file. It is unique among processes, also those of containers, whose ids may be
/// the same.
fn temporary_name(file: &Path) -> PathBuf {
    let mut temporary = file.as_os_str().to_owned();
    temporary.push(format!(".{:016x}.new", RandomState::new().hash_one(process::id())));
    temporary.into()
}

/// Returns whether a file has such a name.
fn is_temporary(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    let hash = name.and_then(|name| name.strip_suffix(".new")?.rsplit_once('.'));
    hash.is_some_and(|(_, hash)| hash.len() == 16 && hash.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// Writes to a new temporary file, and renames it to `file`. Removes it if that fails.
fn replace(file: &Path, temporary: &Path, mut created: fs::File, bytes: &[u8]) -> io::Result<()> {
    let result = created.write_all(bytes).and_then(|()| fs::rename(temporary, file));
    if result.is_err() {
        let _ = fs::remove_file(temporary);
    }
    result
}

/// How long a temporary file is kept that its process did not rename.
const KEPT_TEMPORARY: Duration = Duration::from_secs(24 * 60 * 60);
/// How long the file of an adapter's other driver, or of another version of this crate, is kept.
const KEPT: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// Reads a file if it exists, only this user can have written it, and it has at most `limit` bytes.
pub(crate) fn read_own(path: &Path, limit: u64) -> Option<Vec<u8>> {
    let bytes = open_file(path).and_then(|(file, metadata)| match is_own(&metadata) {
        true => read_at_most(file, &metadata, limit),
        false => Err(io::Error::other("it belongs to another user, or others can write to it")),
    });
    match bytes {
        Ok(bytes) => Some(bytes),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => {
            warn_once(format!("{} is ignored: {error}", path.display()));
            None
        }
    }
}

/// Reads a file of at most `limit` bytes.
///
/// # Errors
///
/// Returns an error if the path names something else than a file, such as a pipe, which could block for ever; or if
/// the file cannot be read, or is larger.
pub(crate) fn read_limited(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let (file, metadata) = open_file(path)?;
    read_at_most(file, &metadata, limit)
}

/// Opens a file, without waiting if it is a pipe.
fn open_file(path: &Path) -> io::Result<(fs::File, fs::Metadata)> {
    let mut options = fs::File::options();
    options.read(true);
    #[cfg(unix)]
    {
        let nonblocking = rustix::fs::OFlags::NONBLOCK.bits();
        std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, nonblocking.cast_signed());
    }
    let file = options.open(path)?;
    let metadata = file.metadata()?;
    match metadata.is_file() {
        true => Ok((file, metadata)),
        false => Err(io::Error::other("it is not a file")),
    }
}

fn read_at_most(file: fs::File, metadata: &fs::Metadata, limit: u64) -> io::Result<Vec<u8>> {
    let too_large = || io::Error::other(format!("it has more than {limit} bytes"));
    if metadata.len() > limit {
        return Err(too_large());
    }
    let mut bytes = Vec::new();
    // It may grow meanwhile.
    file.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit { Err(too_large()) } else { Ok(bytes) }
}

/// Creates a folder that only this user can access, if it does not exist.
///
/// # Errors
///
/// Returns an error if it cannot be created, or if another user could have put files in it.
pub(crate) fn create_own_folder(path: &Path) -> io::Result<()> {
    #[cfg(unix)]
    let created = {
        use std::os::unix::fs::DirBuilderExt;
        fs::DirBuilder::new().mode(0o700).create(path)
    };
    #[cfg(not(unix))]
    let created = fs::create_dir(path);
    match created {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    match is_own_folder(path) {
        true => Ok(()),
        false => Err(io::Error::other(format!(
            "{} is not a folder of this user alone; run chmod 700 on it if it is yours, or delete it",
            path.display()
        ))),
    }
}

/// Returns whether a path is a folder, not a link to one, that belongs to this user, and no other user can write to it.
pub(crate) fn is_own_folder(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir() && is_own(&metadata))
}

/// Returns whether a file or folder belongs to this user, and no other user can write to it.
#[cfg(unix)]
fn is_own(metadata: &fs::Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    const WRITABLE_BY_OTHERS: u32 = 0o022;
    metadata.uid() == rustix::process::geteuid().as_raw()
        && metadata.mode() & WRITABLE_BY_OTHERS == 0
}

/// Elsewhere the cache folder is in the user's profile, which other users cannot access.
#[cfg(not(unix))]
fn is_own(_metadata: &fs::Metadata) -> bool {
    true
}

/// Creates a file that only this user can access.
fn create_own(path: &Path) -> io::Result<fs::File> {
    let mut options = fs::File::options();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Deletes the files of the same adapter and kind as `file` that belong to other drivers or
/// versions of this crate, and were not written for a month; and temporary files that a process left a day ago.
pub(crate) fn prune(file: &Path) {
    let stem = |path: &Path| {
        let stem = path.file_stem()?.to_str()?.rsplit_once('-')?.0.to_owned();
        Some((stem, path.extension()?.to_owned()))
    };
    let Some(Ok(siblings)) = file.parent().map(fs::read_dir) else { return };
    for sibling in siblings.flatten().map(|entry| entry.path()) {
        let age = fs::metadata(&sibling)
            .and_then(|metadata| metadata.modified())
            .map(|modified| SystemTime::now().duration_since(modified).unwrap_or_default());
        let other = sibling != file && stem(&sibling).is_some() && stem(&sibling) == stem(file);
        let kept = match is_temporary(&sibling) {
            true => Some(KEPT_TEMPORARY),
            false => other.then_some(KEPT),
        };
        if kept.is_some_and(|kept| age.is_ok_and(|age| age > kept)) {
            let _ = fs::remove_file(&sibling);
        }
    }
}

pub(crate) fn checksum(bytes: &[u8]) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write(bytes);
    hasher.finish()
}

/// Writes a file that a user asked for: replaces it if all of it can be written, and else leaves it as it was. What
/// cannot be replaced is overwritten: a pipe, or a file whose folder takes no new files.
///
/// # Errors
///
/// Returns an error if the file cannot be written.
pub fn write_file(path: &Path, text: &str) -> io::Result<()> {
    // Also the target of a link.
    let path = &fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    match fs::metadata(path) {
        Ok(metadata) if !metadata.is_file() => fs::write(path, text),
        // It must be writable itself, not only its folder.
        Ok(_) => fs::File::options()
            .write(true)
            .open(path)
            .map(drop)
            .and_then(|()| write_new(path, text)),
        Err(_) => write_new(path, text),
    }
}

/// Replaces a file, or creates it. A file whose folder does not allow that is overwritten.
fn write_new(path: &Path, text: &str) -> io::Result<()> {
    let temporary = temporary_name(path);
    let mut created = match fs::File::create_new(&temporary) {
        Ok(created) => created,
        Err(_) if path.exists() => return fs::write(path, text),
        Err(error) => return Err(error),
    };
    let written = match fs::metadata(path) {
        Ok(metadata) => fs::set_permissions(&temporary, metadata.permissions()),
        Err(_) => Ok(()),
    };
    let written = written.and_then(|()| created.write_all(text.as_bytes()));
    // A file that is mounted by itself cannot be replaced.
    let written = written.and_then(|()| match fs::rename(&temporary, path) {
        Err(_) if path.exists() => fs::write(path, text),
        renamed => renamed,
    });
    let _ = fs::remove_file(&temporary);
    written
}

/// Checks that [`write_file`] can write to a path, before the work for its contents. Changes nothing.
///
/// # Errors
///
/// Returns an error if it cannot.
pub fn check_writable(path: &Path) -> io::Result<()> {
    let path = &fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
        // Opening a pipe would wait for its reader.
        Ok(metadata) if !metadata.is_file() => return Ok(()),
        Ok(_) => return fs::File::options().write(true).open(path).map(drop),
        Err(_) => {}
    }
    let temporary = temporary_name(path);
    fs::File::create_new(&temporary)?;
    fs::remove_file(&temporary)
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[cfg(unix)]
    #[test]
    fn a_file_that_cannot_be_written_stays() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let folder = env::temp_dir().join(format!("burn-wgsl-write-{}", process::id()));
        create_own_folder(&folder).expect("the folder is new");
        let (file, link) = (folder.join("a.json"), folder.join("link.json"));
        for text in ["first", "second"] {
            check_writable(&file).expect("the folder is writable");
            write_file(&file, text).expect("the folder is writable");
            assert_eq!(fs::read_to_string(&file).expect("it was written"), text);
        }
        symlink(&file, &link).expect("links can be created");
        write_file(&link, "old").expect("its target is writable");
        assert_eq!(fs::read_to_string(&file).expect("it is the target"), "old");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o444)).expect("it is our own");
        // The superuser may write to every file.
        let is_writable = check_writable(&file).is_ok();
        assert_eq!(write_file(&file, "new").is_ok(), is_writable);
        let text = if is_writable { "new" } else { "old" };
        assert_eq!(fs::read_to_string(&file).expect("it is still there"), text);
        // A folder cannot be written as a file, and a missing one is not created.
        for path in [folder.clone(), folder.join("missing/a.json")] {
            check_writable(&path).expect_err("it is no file");
            write_file(&path, "new").expect_err("it is no file");
        }
        assert_eq!(fs::read_dir(&folder).expect("it exists").count(), 2, "no temporary files");
        fs::remove_dir_all(folder).expect("the folder is removable");
    }

    #[cfg(unix)]
    #[test]
    fn files_that_others_can_write_are_ignored() {
        use std::os::unix::fs::PermissionsExt;
        let folder = env::temp_dir().join(format!("burn-wgsl-own-{}", process::id()));
        let file = folder.join("a.pipelines");
        write_atomically(&file, b"data").expect("the folder is created");
        assert_eq!(read_own(&file, 4).as_deref(), Some(&b"data"[..]));
        assert_eq!(read_own(&file, 3), None);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).expect("it is our own");
        assert_eq!(read_own(&file, 4), None);
        assert_eq!(read_own(&folder.join("missing.pipelines"), 4), None);
        fs::remove_dir_all(folder).expect("the folder is removable");
    }

    #[cfg(unix)]
    #[test]
    fn pipes_folders_and_endless_files_are_ignored() {
        use std::sync::mpsc::channel;
        let folder = env::temp_dir().join(format!("burn-wgsl-odd-{}", process::id()));
        create_own_folder(&folder).expect("the folder is new");
        let pipe = folder.join("pipe");
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0)
            .expect("pipes can be created");
        let sparse = folder.join("sparse");
        let file = create_own(&sparse).expect("the folder is writable");
        file.set_len(10 << 30).expect("files can have holes");
        for path in [pipe, sparse, folder.clone(), PathBuf::from("/dev/zero")] {
            let (done, read) = channel();
            std::thread::spawn(move || {
                let _ =
                    done.send((read_own(&path, 1 << 20), read_limited(&path, 1 << 20).is_err()));
            });
            let read = read.recv_timeout(Duration::from_secs(60));
            assert_eq!(read.expect("reading ends"), (None, true));
        }
        fs::remove_dir_all(folder).expect("the folder is removable");
    }

    #[cfg(unix)]
    #[test]
    fn folders_of_others_and_links_are_refused() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let folder = env::temp_dir().join(format!("burn-wgsl-folder-{}", process::id()));
        create_own_folder(&folder).expect("it is new");
        create_own_folder(&folder).expect("it is our own");
        let mode = fs::metadata(&folder).expect("it exists").permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        let link = folder.with_extension("link");
        symlink(&folder, &link).expect("links can be created");
        create_own_folder(&link).expect_err("it is a link");
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).expect("it is our own");
        create_own_folder(&folder).expect_err("others can write to it");
        fs::remove_file(link).expect("it is our own");
        fs::remove_dir_all(folder).expect("the folder is removable");
        create_own_folder(Path::new("/dev/null")).expect_err("it is no folder");
    }

    #[test]
    fn old_files_of_other_drivers_are_deleted() {
        let folder = env::temp_dir().join(format!("burn-wgsl-prune-{}", process::id()));
        let [current, old, recent, other_kind, other_adapter] = [
            "GPU-00000001.pipelines",
            "GPU-00000002.pipelines",
            "GPU-00000003.pipelines",
            "GPU-00000002.tuning",
            "Another-GPU-00000002.pipelines",
        ]
        .map(|name| folder.join(name));
        for file in [&current, &old, &recent, &other_kind, &other_adapter] {
            write_atomically(file, b"data").expect("the folder is created");
            if file != &recent {
                let file = fs::File::options().write(true).open(file).expect("it exists");
                file.set_modified(SystemTime::now() - 2 * KEPT).expect("it is our own");
            }
        }
        prune(&current);
        let kept = [&current, &old, &recent, &other_kind, &other_adapter].map(|file| file.exists());
        assert_eq!(kept, [true, false, true, true, true]);
        fs::remove_dir_all(folder).expect("the folder is removable");
    }
}
