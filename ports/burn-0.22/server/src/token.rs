//! The token that clients must send, and its file.

use std::fs::{DirBuilder, File};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

/// The environment variable with the token.
pub const TOKEN_VARIABLE: &str = "BURN_WGSL_SERVER_TOKEN";

/// The bytes that a token file can have.
const LONGEST: u64 = 4096;

/// What clients must send with `RemoteHost::with_credential`. Only its hash is kept.
#[derive(Clone)]
pub struct Token(blake3::Hash);

impl Token {
    /// Creates a token from its text.
    ///
    /// # Errors
    ///
    /// Returns an error if the text is empty, which is what clients without a token send.
    pub fn new(text: &[u8]) -> Result<Self, String> {
        if text.is_empty() {
            return Err(
                "the token is empty; write one, or delete the file for a new one".to_owned()
            );
        }
        Ok(Self(blake3::hash(text)))
    }

    /// Reads the token from a file, which is created with a random one if it does not exist.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read or created, belongs to another user, or can be
    /// read by others.
    pub fn from_file(path: &Path) -> Result<Self, String> {
        let text = match read(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => match create(path) {
                // Another server was faster.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => read(path),
                created => created,
            },
            result => result,
        };
        text.map_err(|error| error.to_string())
            .and_then(|text| Self::new(text.trim().as_bytes()))
            .map_err(|error| format!("cannot use the token file {}: {error}", path.display()))
    }

    /// Returns whether a client sent this token. The time does not depend on what it sent, except
    /// on the length.
    pub(crate) fn accepts(&self, sent: &[u8]) -> bool {
        // The comparison of hashes takes constant time.
        blake3::hash(sent) == self.0
    }
}

/// Returns the path of the token file that is used if no other is given.
pub fn default_token_file() -> Option<PathBuf> {
    Some(dirs::config_dir()?.join("burn-wgsl").join("server-token"))
}

fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    open_private(path)?.take(LONGEST + 1).read_to_string(&mut text)?;
    if text.len() as u64 > LONGEST {
        return Err(io::Error::other(format!("it has more than {LONGEST} bytes")));
    }
    Ok(text)
}

/// Creates a token file that only this user can read, and returns the token.
fn create(path: &Path) -> io::Result<String> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();

    let (mut folders, mut options) = (DirBuilder::new(), File::options());
    folders.recursive(true);
    options.write(true).create_new(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
        folders.mode(0o700);
        options.mode(0o600);
    }
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        folders.create(folder)?;
    }
    // Other processes never see a partly written file.
    let mut suffix = [0; 8];
    getrandom::fill(&mut suffix).map_err(|error| io::Error::other(error.to_string()))?;
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(format!(".{:016x}.new", u64::from_ne_bytes(suffix)));
    let temporary = PathBuf::from(temporary);
    let written = options
        .open(&temporary)?
        .write_all(text.as_bytes())
        .and_then(|()| std::fs::hard_link(&temporary, path));
    std::fs::remove_file(&temporary)?;
    written.map(|()| text)
}

/// Opens a file that only this user can read or write.
#[cfg(unix)]
fn open_private(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::{MetadataExt, OpenOptionsExt};

    // A link could lead to a file of another user; a pipe would block.
    let flags = (rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK).bits();
    let file = File::options().read(true).custom_flags(flags.cast_signed()).open(path)?;
    let metadata = file.metadata()?;
    let problem = if !metadata.is_file() {
        "it is not a file".to_owned()
    } else if metadata.uid() != rustix::process::geteuid().as_raw() {
        "it belongs to another user; choose another with --token-file".to_owned()
    } else if metadata.mode() & 0o077 != 0 {
        format!("other users can access it; run chmod 600 {}", path.display())
    } else {
        return Ok(file);
    };
    Err(io::Error::other(problem))
}

/// Opens a file. The folder of a user's settings is private on these systems.
#[cfg(not(unix))]
fn open_private(path: &Path) -> io::Result<File> {
    let file = File::open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("it is not a file")),
    }
}
