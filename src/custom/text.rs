//! The text of a kernel: in the program, or in a file that may change while the program runs.

use std::path::Path;
use std::sync::LazyLock;
use std::time::SystemTime;

use parking_lot::Mutex;

use crate::runtime::{Source, read_limited};
use crate::variables;

/// Whether changed files of kernels are read again.
static RELOADS: LazyLock<bool> = LazyLock::new(|| variables::RELOAD.is_on());

/// A file with the WGSL text of a kernel: see [`wgsl_file!`](crate::wgsl_file).
#[derive(Debug, Clone, Copy)]
pub struct WgslFile {
    /// The path relative to the package, for errors.
    pub name: &'static str,
    /// The path on the machine that compiled the program.
    pub path: &'static str,
    /// The text when the program was compiled.
    pub text: &'static str,
}

/// Includes a WGSL file in the program. The path is relative to the folder of the package's `Cargo.toml`.
///
/// If `BURN_WGSL_RELOAD=1` is set, a kernel reads its file again where it has changed, each time it is called. It
/// then runs with all checks, also if it was [trusted](crate::custom::Kernel::trusted). If the new text does not
/// compile, the error is logged, and the kernel goes on with the last text that did. Each version of a text stays in
/// memory.
#[macro_export]
macro_rules! wgsl_file {
    ($path:literal) => {
        $crate::custom::WgslFile {
            name: $path,
            path: concat!(env!("CARGO_MANIFEST_DIR"), "/", $path),
            text: include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/", $path)),
        }
    };
}

/// The versions of a file.
#[derive(Debug)]
struct Versions {
    /// When the file was changed last.
    modified: Option<SystemTime>,
    latest: &'static Source,
    /// The version before, if the latest is not known to compile.
    before: Option<&'static Source>,
}

/// The text of a kernel, with changes of its file.
#[derive(Debug)]
pub(super) struct Text {
    path: Option<&'static str>,
    versions: Mutex<Option<Versions>>,
}

/// The largest text of a kernel, in bytes.
const MAX_TEXT: u64 = 1 << 20;

fn read_text(path: &str) -> std::io::Result<String> {
    // The path may name something else than a file by now.
    let bytes = read_limited(Path::new(path), MAX_TEXT)?;
    String::from_utf8(bytes).map_err(std::io::Error::other)
}

impl Text {
    pub const fn new(path: Option<&'static str>) -> Self {
        Self { path, versions: Mutex::new(None) }
    }

    /// Returns the latest version of a source. Reads the file if it has changed and the program is told to.
    pub fn latest(&self, compiled: &'static Source) -> &'static Source {
        match self.path {
            Some(path) if *RELOADS => self.read_if_changed(path, compiled),
            _ => compiled,
        }
    }

    fn read_if_changed(&self, path: &str, compiled: &'static Source) -> &'static Source {
        let modified = Path::new(path).metadata().and_then(|metadata| metadata.modified()).ok();
        let mut versions = self.versions.lock();
        let versions = versions.get_or_insert_with(|| Versions {
            modified: None,
            latest: compiled,
            before: None,
        });
        if modified.is_none() || modified == versions.modified {
            return versions.latest;
        }
        versions.modified = modified;
        match read_text(path) {
            Ok(text) if text != versions.latest.text => {
                log::info!("the kernel {} is read again from {path}", compiled.name);
                let good = versions.before.unwrap_or(versions.latest);
                versions.before = Some(good);
                versions.latest = Box::leak(Box::new(compiled.with_text(text.leak())));
            }
            Ok(_) => {}
            Err(error) => log::error!("the kernel {}: cannot read {path}: {error}", compiled.name),
        }
        versions.latest
    }

    /// Goes back to the version before `source`, which does not compile. Returns `None` if there is none.
    pub fn reject(&self, source: &'static Source) -> Option<&'static Source> {
        let mut versions = self.versions.lock();
        let versions = versions.as_mut()?;
        if !std::ptr::eq(versions.latest, source) {
            return Some(versions.latest);
        }
        versions.latest = versions.before.take()?;
        Some(versions.latest)
    }

    /// Notes that a version compiles.
    pub fn accept(&self, source: &'static Source) {
        if *RELOADS
            && let Some(versions) = self.versions.lock().as_mut()
            && std::ptr::eq(versions.latest, source)
        {
            versions.before = None;
        }
    }
}
