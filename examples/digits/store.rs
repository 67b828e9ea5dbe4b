//! Files: results that appear whole or not at all.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};

/// A file to be written later: beside its place first, then renamed into it.
pub struct Output {
    path: PathBuf,
    beside: PathBuf,
}

impl Output {
    /// Makes sure, before hours of work, that the file can be written. `option` is the one that asked for it.
    pub fn new(option: &str, path: &Path) -> Result<Self> {
        let refuse = |why: String| anyhow!("{option} {}: {why}", path.display());
        let name = path.file_name().ok_or_else(|| refuse("expected the name of a file".into()))?;
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let meta = folder
            .metadata()
            .map_err(|error| refuse(format!("the folder {}: {error}", folder.display())))?;
        // On Windows the flag means something else on folders. Elsewhere it is honoured even where root could write.
        if cfg!(not(windows)) && meta.permissions().readonly() {
            return Err(refuse(format!("the folder {} is read-only", folder.display())));
        }
        if let Ok(old) = path.metadata() {
            if !old.is_file() {
                return Err(refuse("there is something else than a file".into()));
            }
            if old.permissions().readonly() {
                return Err(refuse("the file is read-only".into()));
            }
        }
        let mut beside = name.to_os_string();
        beside.push(format!(".partial-{}", std::process::id()));
        let beside = folder.join(beside);
        std::fs::write(&beside, []).and_then(|()| std::fs::remove_file(&beside)).map_err(
            |error| refuse(format!("cannot write in the folder {}: {error}", folder.display())),
        )?;
        Ok(Self { path: path.to_path_buf(), beside })
    }

    pub fn write(&self, bytes: &[u8]) -> Result<()> {
        let done = std::fs::write(&self.beside, bytes)
            .and_then(|()| std::fs::rename(&self.beside, &self.path));
        if done.is_err() {
            // Nothing half-written stays. The first error is the one worth telling.
            let _ = std::fs::remove_file(&self.beside);
        }
        done.with_context(|| format!("cannot write {}", self.path.display()))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("digits-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn a_file_appears_whole_and_leaves_nothing_beside_it() {
        let folder = folder("whole");
        let output = Output::new("--save", &folder.join("file")).unwrap();
        output.write(b"one").unwrap();
        output.write(b"two").unwrap();
        assert_eq!(std::fs::read(folder.join("file")).unwrap(), b"two");
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_place_that_cannot_be_written_is_refused_at_once() {
        let folder = folder("places");
        let refused = |path: &Path| match Output::new("--save", path) {
            Ok(_) => panic!("{} was accepted", path.display()),
            Err(error) => format!("{error:#}"),
        };
        let file = folder.join("file");
        std::fs::write(&file, "kept").unwrap();
        let mut permissions = file.metadata().unwrap().permissions();
        permissions.set_readonly(true);
        std::fs::set_permissions(&file, permissions).unwrap();
        assert!(refused(&file).contains("the file is read-only"));
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "kept");
        assert!(refused(&folder.join("nowhere/file")).contains("the folder"));
        assert!(refused(&folder).contains("something else than a file"));
        assert!(refused(Path::new("/")).contains("the name of a file"));
        std::fs::remove_dir_all(folder).unwrap();
    }
}
