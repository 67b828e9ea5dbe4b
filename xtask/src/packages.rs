//! Unpacks Debian packages into a private folder, with all their dependencies. Nothing is
//! installed, and root is not needed.

use std::env::{consts::ARCH, var_os};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use xtask::debian::{apt_get, is_debian, os_release};
use xtask::process::run_command;

use crate::apt_sources::system_sources;

/// Unpacked packages.
pub struct Packages {
    root: PathBuf,
    architecture: Architecture,
}

/// The names that Debian's packages use for an architecture.
#[derive(Clone, Copy)]
struct Architecture {
    library_folder: &'static str,
    dynamic_linker: &'static str,
}

impl Packages {
    /// Returns the packages of the set `name`, which are downloaded at first use. On Debian they
    /// are those of its development suite, which has the newest drivers and tools.
    ///
    /// # Errors
    ///
    /// Returns an error on systems other than Debian and Ubuntu, without a network, or if a package
    /// does not exist.
    pub fn unpack(name: &str, packages: &[&str]) -> Result<Self, String> {
        let architecture = Architecture::current()?;
        let folder = cache_folder()?.join(name);
        let unpacked = Self { root: folder.join("root"), architecture };
        let ready = folder.join("ready");
        if ready.exists() {
            return Ok(unpacked);
        }
        if !is_debian() {
            return Err("the packages exist for Debian and Ubuntu only".to_owned());
        }
        println!("    unpacking {} into {}", packages.join(", "), folder.display());
        unpacked.download_and_unpack(&folder, packages)?;
        fs::write(&ready, "").map_err(|error| cannot_write(&ready, &error))?;
        Ok(unpacked)
    }

    fn download_and_unpack(&self, folder: &Path, packages: &[&str]) -> Result<(), String> {
        let archives = folder.join("cache/archives");
        for subfolder in ["sources", "lists/partial", "cache/archives/partial", "root"] {
            let subfolder = folder.join(subfolder);
            fs::create_dir_all(&subfolder).map_err(|error| cannot_write(&subfolder, &error))?;
        }
        let (source, extension) = package_source()?;
        let file = folder.join(format!("sources/source.{extension}"));
        fs::write(&file, source).map_err(|error| cannot_write(&file, &error))?;
        let failed = |_| "apt-get could not download the packages: see its messages".to_owned();
        run_command(&mut private_apt_get(folder, &["update"])).map_err(failed)?;
        let mut args = vec!["install", "--yes", "--no-install-recommends", "--download-only"];
        args.extend(packages);
        run_command(&mut private_apt_get(folder, &args)).map_err(failed)?;
        let entries = fs::read_dir(&archives)
            .map_err(|error| format!("cannot read {}: {error}", archives.display()))?;
        for file in entries.flatten().map(|entry| entry.path()) {
            if file.extension().is_some_and(|extension| extension == "deb") {
                let mut unpack = Command::new("dpkg-deb");
                let status = unpack.arg("-x").arg(&file).arg(&self.root).status();
                if !status.is_ok_and(|status| status.success()) {
                    return Err(format!("dpkg-deb cannot unpack {}", file.display()));
                }
            }
        }
        Ok(())
    }

    /// Returns the folder of the libraries.
    pub fn library_folder(&self) -> PathBuf {
        self.root.join("usr/lib").join(self.architecture.library_folder)
    }

    /// Returns the folder of the files that do not depend on the architecture.
    pub fn share_folder(&self) -> PathBuf {
        self.root.join("usr/share")
    }

    /// Returns the path of a program in the packages.
    pub fn program(&self, name: &str) -> PathBuf {
        self.root.join("usr/bin").join(name)
    }

    /// Returns a command that runs a program with the libraries of the packages, which may need a
    /// newer C library than this system's. The libraries `preload` are loaded before all others.
    pub fn command(&self, program: &Path, preload: &[&Path]) -> Command {
        let libraries = self.library_folder();
        let mut command = Command::new(libraries.join(self.architecture.dynamic_linker));
        if !preload.is_empty() {
            let names: Vec<&OsStr> = preload.iter().map(|library| library.as_os_str()).collect();
            command.arg("--preload").arg(names.join(OsStr::new(":")));
        }
        command.arg("--library-path").arg(&libraries).arg(program);
        command
    }
}

impl Architecture {
    fn current() -> Result<Self, String> {
        let (library_folder, dynamic_linker) = match ARCH {
            "x86_64" => ("x86_64-linux-gnu", "ld-linux-x86-64.so.2"),
            "aarch64" => ("aarch64-linux-gnu", "ld-linux-aarch64.so.1"),
            other => return Err(format!("the packages are not used on {other}")),
        };
        Ok(Self { library_folder, dynamic_linker })
    }
}

/// Returns the folder for unpacked packages and other tools that are kept between runs.
///
/// # Errors
///
/// Returns an error if the system has no cache folder.
pub fn cache_folder() -> Result<PathBuf, String> {
    let caches = var_os("XDG_CACHE_HOME")
        .filter(|folder| !folder.is_empty())
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(var_os("HOME")?).join(".cache")))
        .ok_or("this system has no cache folder: neither XDG_CACHE_HOME nor HOME is set")?;
    Ok(caches.join("burn-wgsl/xtask"))
}

/// Returns an `apt-get` command whose state is in `folder`, so that it neither reads nor changes
/// the packages of the system.
fn private_apt_get(folder: &Path, args: &[&str]) -> Command {
    let mut command = apt_get(&["-qq"]);
    let option = |name: &str, value: &Path| format!("-o{name}={}", value.display());
    command.args([
        option("Dir::Etc::SourceList", Path::new("/dev/null")),
        option("Dir::Etc::SourceParts", &folder.join("sources")),
        option("Dir::State::Lists", &folder.join("lists")),
        option("Dir::Cache", &folder.join("cache")),
        option("Dir::State::status", Path::new("/dev/null")),
        // The lock of the system's packages can be taken by root only.
        "-oDebug::NoLocking=true".to_owned(),
        // The user for downloads as root cannot write to the folder.
        "-oAPT::Sandbox::User=root".to_owned(),
    ]);
    command.args(args);
    command
}

/// Returns a source of the newest packages for this system, and the extension of its file: Debian's
/// development suite, or the release of a derivative.
fn package_source() -> Result<(String, &'static str), String> {
    let release = os_release();
    let codename = release.get("VERSION_CODENAME").map(String::as_str);
    let is_debian = release.get("ID").is_some_and(|id| id == "debian");
    let sources = system_sources();
    // A system of the development suite may have no codename.
    let suites = codename.into_iter().chain(["sid", "unstable", "testing", "stable"]);
    suites
        .flat_map(|suite| sources.iter().map(move |source| (suite, source)))
        .find_map(|(suite, source)| {
            let wanted = if is_debian { "sid" } else { suite };
            Some((source.with_suite(suite, wanted)?, source.extension()))
        })
        .ok_or_else(|| "found no package source of this system's release in /etc/apt".to_owned())
}

fn cannot_write(path: &Path, error: &std::io::Error) -> String {
    format!("cannot write {}: {error}", path.display())
}
