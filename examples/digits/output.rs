//! Output files that are written completely or not at all.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};

/// An output file. It is written to a temporary file in the same folder, which is then renamed.
pub struct OutputFile {
    path: PathBuf,
    temporary: PathBuf,
}

impl OutputFile {
    /// Checks that the file can be written, so that a long run does not fail at its end. `option`
    /// is the command line option of the file, for error messages.
    ///
    /// # Errors
    ///
    /// Returns an error if the folder is missing or read-only, or if the path is a read-only file
    /// or not a file.
    pub fn new(option: &str, path: &Path) -> Result<Self> {
        let path_error = |reason: String| anyhow!("{option} {}: {reason}", path.display());
        let name =
            path.file_name().ok_or_else(|| path_error("the path has no file name".into()))?;
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let meta = folder
            .metadata()
            .map_err(|error| path_error(format!("the folder {}: {error}", folder.display())))?;
        // The read-only flag of a folder has another meaning on Windows. Elsewhere it is respected,
        // although root could write.
        if cfg!(not(windows)) && meta.permissions().readonly() {
            return Err(path_error(format!("the folder {} is read-only", folder.display())));
        }
        if let Ok(existing) = path.metadata() {
            if !existing.is_file() {
                return Err(path_error("the path exists and is not a file".into()));
            }
            if existing.permissions().readonly() {
                return Err(path_error("the file is read-only".into()));
            }
        }
        let mut temporary_name = name.to_os_string();
        temporary_name.push(format!(".partial-{}", std::process::id()));
        let temporary = folder.join(temporary_name);
        std::fs::write(&temporary, []).and_then(|()| std::fs::remove_file(&temporary)).map_err(
            |error| path_error(format!("cannot write to the folder {}: {error}", folder.display())),
        )?;
        Ok(Self { path: path.to_path_buf(), temporary })
    }

    /// Replaces the file by one with these contents.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be written. An existing file is then unchanged.
    pub fn write(&self, bytes: &[u8]) -> Result<()> {
        let result = std::fs::write(&self.temporary, bytes)
            .and_then(|()| std::fs::rename(&self.temporary, &self.path));
        if result.is_err() {
            // Remove the incomplete file. The caller gets the error of the write.
            let _ = std::fs::remove_file(&self.temporary);
        }
        result.with_context(|| format!("cannot write {}", self.path.display()))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn create_folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("digits-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn write_replaces_the_file_and_leaves_no_temporary_file() {
        let folder = create_folder("write");
        let output = OutputFile::new("--save", &folder.join("file")).unwrap();
        output.write(b"one").unwrap();
        output.write(b"two").unwrap();
        assert_eq!(std::fs::read(folder.join("file")).unwrap(), b"two");
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn new_rejects_paths_that_cannot_be_written() {
        let folder = create_folder("paths");
        let error = |path: &Path| match OutputFile::new("--save", path) {
            Ok(_) => panic!("{} was accepted", path.display()),
            Err(error) => format!("{error:#}"),
        };
        let file = folder.join("file");
        std::fs::write(&file, "old").unwrap();
        let mut permissions = file.metadata().unwrap().permissions();
        permissions.set_readonly(true);
        std::fs::set_permissions(&file, permissions).unwrap();
        assert!(error(&file).contains("the file is read-only"));
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "old");
        assert!(error(&folder.join("missing/file")).contains("the folder"));
        assert!(error(&folder).contains("not a file"));
        assert!(error(Path::new("/")).contains("no file name"));
        std::fs::remove_dir_all(folder).unwrap();
    }
}
