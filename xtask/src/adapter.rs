//! A software Vulkan adapter (Mesa's lavapipe): finding it, installing it, showing it to the tests.

use crate::test::{Done, Options};
use std::env::{consts::ARCH, var_os};
use std::fs;
use std::path::{Path, PathBuf};
use xtask::debian::{apt, can_install, system};
use xtask::run::run as run_command;

/// Whether this system can have lavapipe as a matter of course. Elsewhere the tests take the GPU that is there.
pub const EXISTS_HERE: bool = cfg!(not(any(target_os = "macos", target_os = "windows")));

/// The names of the loader's variable for driver files. Loaders before 1.3.207 know only the second.
const DRIVER_VARIABLES: [&str; 2] = ["VK_DRIVER_FILES", "VK_ICD_FILENAMES"];

const MISSING: &str = "\
no software Vulkan adapter: lvp_icd*.json or libvulkan.so.1 is missing. To install it:
    Debian, Ubuntu   sudo apt-get install mesa-vulkan-drivers libvulkan1
                     (or run this command as root)
    Fedora           sudo dnf install mesa-vulkan-drivers vulkan-loader
    Arch             sudo pacman -S vulkan-swrast vulkan-icd-loader
Or test on a GPU of this machine:  cargo xtask test --device gpu:0
Or only what needs no adapter:     cargo xtask test --no-adapter";

/// The step: finds lavapipe or installs it.
pub fn ensure(options: &Options) -> Result<Done, String> {
    if options.no_adapter {
        return Ok(Done::Skipped("--no-adapter".to_owned()));
    }
    if let Some(word) = &options.device {
        return Ok(Done::Skipped(format!("testing on `{word}`")));
    }
    if !EXISTS_HERE {
        return Ok(Done::Skipped(
            "lavapipe is for Linux: GPU tests run on the GPU that is here, or are shown as skipped"
                .to_owned(),
        ));
    }
    if let Some(name) = chosen_by_user() {
        println!("    {name} is set and stays as it is");
        return Ok(Done::Passed);
    }
    if !present() && can_install() {
        install()?;
    }
    if !present() {
        return Err(MISSING.to_owned());
    }
    if let Some(file) = driver_file() {
        println!("    found {}", file.display());
    }
    Ok(Done::Passed)
}

/// What shows lavapipe, and it alone, to a child process: the tests then mean the same on every machine.
pub fn settings(options: &Options) -> Vec<(&'static str, PathBuf)> {
    if options.no_adapter || options.device.is_some() || chosen_by_user().is_some() {
        return Vec::new();
    }
    let file = driver_file();
    DRIVER_VARIABLES.into_iter().filter_map(|name| Some((name, file.clone()?))).collect()
}

fn chosen_by_user() -> Option<&'static str> {
    DRIVER_VARIABLES.into_iter().find(|name| var_os(name).is_some_and(|value| !value.is_empty()))
}

fn present() -> bool {
    driver_file().is_some() && loader().is_some()
}

/// Lavapipe's description file, from the folders in which the Vulkan loader looks.
fn driver_file() -> Option<PathBuf> {
    let home = |rest: &str| var_os("HOME").map(|home| Path::new(&home).join(rest));
    let bases = var_os("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .or_else(|| home(".config"))
        .into_iter()
        .chain(listed("XDG_CONFIG_DIRS", "/etc/xdg"))
        .chain(["/usr/local/etc".into(), "/etc".into()])
        .chain(var_os("XDG_DATA_HOME").map(PathBuf::from).or_else(|| home(".local/share")))
        .chain(listed("XDG_DATA_DIRS", "/usr/local/share:/usr/share"))
        // NixOS keeps its drivers here.
        .chain(["/run/opengl-driver/share".into()]);
    bases
        .flat_map(|base| entries(&base.join("vulkan/icd.d")))
        .filter(|file| is_ours(file) && has_its_library(file))
        // A name without an architecture is second choice: it may be a leftover beside the real one.
        .min_by_key(|file| !file_name(file).contains(ARCH))
}

/// A list of folders from a variable, or its default.
fn listed(variable: &str, default: &str) -> Vec<PathBuf> {
    let list = var_os(variable).filter(|list| !list.is_empty());
    std::env::split_paths(&list.unwrap_or_else(|| default.into())).collect()
}

/// `lvp_icd.json`, or `lvp_icd.<architecture>.json` of this machine's architecture.
fn is_ours(file: &Path) -> bool {
    let name = file_name(file);
    name == "lvp_icd.json" || name == format!("lvp_icd.{ARCH}.json")
}

/// A description may outlive its driver; one that gives only a library's bare name is believed.
fn has_its_library(file: &Path) -> bool {
    let Ok(text) = fs::read_to_string(file) else {
        return false;
    };
    let json: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
    match (json["ICD"]["library_path"].as_str(), file.parent()) {
        (Some(library), Some(folder)) => !library.contains('/') || folder.join(library).exists(),
        _ => false,
    }
}

/// The Vulkan loader, from the folders in which the dynamic linker usually looks.
fn loader() -> Option<PathBuf> {
    let plain = ["/usr/local/lib", "/usr/lib64", "/usr/lib", "/lib64", "/lib"];
    let folders = plain.iter().flat_map(|folder| {
        // Debian's folders per architecture, such as x86_64-linux-gnu.
        let own = entries(Path::new(folder))
            .into_iter()
            .filter(|inner| file_name(inner).starts_with(&format!("{ARCH}-")));
        own.chain([PathBuf::from(folder)])
    });
    listed("LD_LIBRARY_PATH", "")
        .into_iter()
        .chain(folders)
        .map(|folder| folder.join("libvulkan.so.1"))
        .find(|file| file.exists())
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> =
        fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    found.sort();
    found
}

fn file_name(file: &Path) -> String {
    let name = file.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

fn install() -> Result<(), String> {
    println!("    no software Vulkan adapter here; installing Mesa's as root");
    let system = system();
    let debian_12 = system.get("ID").is_some_and(|id| id == "debian")
        && system.get("VERSION_ID").is_some_and(|id| id == "12");
    if debian_12 {
        match install_from_backports() {
            Ok(()) => return Ok(()),
            Err(reason) => println!("    {reason}: taking the release's own, older one"),
        }
    }
    run_command(&mut apt(&["update"]))?;
    run_command(&mut apt(&PACKAGES))
}

const PACKAGES: [&str; 5] =
    ["install", "--yes", "--no-install-recommends", "mesa-vulkan-drivers", "libvulkan1"];

/// Debian 12's own Mesa (22.3) works, but its backports have 25.0, which is faster and knows more features.
fn install_from_backports() -> Result<(), String> {
    const SUITE: &str = "bookworm-backports";
    let folder = Path::new("/etc/apt/sources.list.d");
    let mut files = entries(folder);
    files.push("/etc/apt/sources.list".into());
    let sources: Vec<Source> = files.iter().filter_map(|file| Source::read(file)).collect();
    let mut added = None;
    if !sources.iter().any(|source| source.names(SUITE)) {
        let (text, kind) = sources
            .iter()
            .find_map(|source| Some((source.with_suite("bookworm", SUITE)?, source.kind())))
            .ok_or("no package source of Debian 12 to derive its backports from")?;
        let file = folder.join(format!("{SUITE}.{kind}"));
        fs::write(&file, text)
            .map_err(|error| format!("{} cannot be written: {error}", file.display()))?;
        println!("    added {}: what is already installed stays as it is", file.display());
        added = Some(file);
    }
    // Other sources may fail to update without harm: the install tells whether enough is there.
    let _ = run_command(&mut apt(&["update"]));
    let mut words = PACKAGES.to_vec();
    words.extend(["--target-release", SUITE]);
    run_command(&mut apt(&words)).inspect_err(|_| {
        if let Some(file) = &added {
            let _ = fs::remove_file(file);
        }
    })
}

/// A file of apt's package sources, in one of its two forms.
enum Source {
    /// One source a line.
    Lines(String),
    /// Stanzas of fields.
    Stanzas(String),
}

impl Source {
    fn read(file: &Path) -> Option<Self> {
        let text = || fs::read_to_string(file).ok();
        match file.extension()?.to_str()? {
            "list" => Some(Self::Lines(text()?)),
            "sources" => Some(Self::Stanzas(text()?)),
            _ => None,
        }
    }

    /// The ending of such a file's name.
    fn kind(&self) -> &'static str {
        match self {
            Self::Lines(_) => "list",
            Self::Stanzas(_) => "sources",
        }
    }

    fn names(&self, suite: &str) -> bool {
        self.with_suite(suite, suite).is_some()
    }

    /// The first source in use that offers binary packages of `suite`, rewritten to offer `other` instead.
    fn with_suite(&self, suite: &str, other: &str) -> Option<String> {
        match self {
            Self::Lines(text) => text.lines().find_map(|line| {
                let words: Vec<&str> = line.split_whitespace().collect();
                let at = words.iter().position(|word| *word == suite)?;
                let mut words = words;
                words[at] = other;
                (words[0] == "deb").then(|| words.join(" ") + "\n")
            }),
            Self::Stanzas(text) => {
                // Comments may stand inside a stanza; a blank line ends it.
                let lines = text.lines().filter(|line| !line.starts_with('#'));
                let text: Vec<&str> = lines.map(str::trim_end).collect();
                text.split(|line| line.is_empty())
                    .find_map(|stanza| stanza_with_suite(stanza, suite, other))
            }
        }
    }
}

fn stanza_with_suite(stanza: &[&str], suite: &str, other: &str) -> Option<String> {
    let field = |wanted: &str| {
        stanza.iter().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case(wanted).then(|| value.trim())
        })
    };
    let holds = |name: &str, word: &str| {
        field(name).is_some_and(|value| value.split_whitespace().any(|one| one == word))
    };
    if !holds("Types", "deb") || !holds("Suites", suite) || holds("Enabled", "no") {
        return None;
    }
    let mut text = String::new();
    for line in stanza {
        let is_suites =
            line.split_once(':').is_some_and(|(name, _)| name.eq_ignore_ascii_case("Suites"));
        if is_suites {
            text += &format!("Suites: {other}");
        } else {
            text += line;
        }
        text += "\n";
    }
    Some(text)
}

#[cfg(test)]
mod checks {
    use super::*;

    const BACKPORTS: &str = "bookworm-backports";

    #[test]
    fn backports_follow_from_stanzas() {
        let text = "# a comment\nTypes: deb\n# http://old.example\nURIs: http://mirror.example/debian\n\
                    Suites: bookworm bookworm-updates\nComponents: main\nSigned-By: /k.gpg\n\n\
                    Types: deb\nURIs: http://mirror.example/security\nSuites: bookworm-security\n";
        let source = Source::Stanzas(text.to_owned());
        assert_eq!(
            source.with_suite("bookworm", BACKPORTS).unwrap(),
            "Types: deb\nURIs: http://mirror.example/debian\nSuites: bookworm-backports\n\
             Components: main\nSigned-By: /k.gpg\n"
        );
        assert!(source.names("bookworm-security"));
        assert!(!source.names(BACKPORTS));
    }

    #[test]
    fn backports_follow_from_lines() {
        let text = "# deb http://mirror.example/debian bookworm-backports main\n\
                    deb-src http://mirror.example/debian bookworm main\n\
                    deb [signed-by=/k.gpg] http://mirror.example/debian bookworm main contrib\n";
        let source = Source::Lines(text.to_owned());
        assert_eq!(
            source.with_suite("bookworm", BACKPORTS).unwrap(),
            "deb [signed-by=/k.gpg] http://mirror.example/debian bookworm-backports main contrib\n"
        );
        assert!(!source.names(BACKPORTS));
    }

    #[test]
    fn sources_out_of_use_do_not_count() {
        let text = "Enabled: no\nTypes: deb\nURIs: x\nSuites: bookworm-backports\n\n\
                    Types: deb-src\nURIs: x\nSuites: bookworm-backports\n";
        assert!(!Source::Stanzas(text.to_owned()).names(BACKPORTS));
    }

    #[test]
    fn only_this_machines_driver_counts() {
        assert!(is_ours(Path::new("/x/lvp_icd.json")));
        assert!(is_ours(Path::new(&format!("/x/lvp_icd.{ARCH}.json"))));
        assert!(!is_ours(Path::new("/x/lvp_icd.pdp11.json")));
        assert!(!is_ours(Path::new("/x/radeon_icd.json")));
    }
}
