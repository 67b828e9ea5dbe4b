//! `cargo xtask release`: the version, the changelog, a check of the package, a commit, a tag and the notes of a
//! release.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use semver::Version;
use xtask::process::{cargo, root, run_command, target_dir};

use crate::arguments;

/// The manifests with the version of a release.
const MANIFESTS: [&str; 2] = ["Cargo.toml", "mpi/Cargo.toml"];
/// Workspaces of their own, whose lock files have the version, too.
const LOCKED: [&str; 6] = [
    "benches/peers",
    "ecosystem/burn-0.21",
    "ecosystem/burn-0.22",
    "ecosystem/burn-0.23",
    "ports/burn-0.22",
    "ports/burn-0.23",
];
/// The largest package, in bytes.
const MAX_PACKAGE: u64 = 5_000_000;

/// The options of `cargo xtask release`.
pub struct Options {
    version: Version,
    /// Whether nothing is changed: the package of the version that is here is checked.
    is_check: bool,
}

impl Options {
    /// Parses the arguments of `cargo xtask release`.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no version, or an argument is unknown.
    pub fn parse(args: &[String]) -> Result<Self, String> {
        let current = current_version(&read(&root().join("Cargo.toml"))?)?;
        let flags: Vec<String> = args.iter().filter(|arg| arg.starts_with('-')).cloned().collect();
        let is_check =
            !arguments::parse("cargo xtask release", &flags, &["--check"], &[])?.is_empty();
        match args.iter().filter(|arg| !arg.starts_with('-')).collect::<Vec<_>>().as_slice() {
            [] if is_check => Ok(Self { version: current, is_check }),
            [version] if !is_check => {
                let parsed =
                    Version::parse(version).map_err(|error| format!("`{version}`: {error}"))?;
                match parsed >= current {
                    true => Ok(Self { version: parsed, is_check }),
                    false => Err(format!("{parsed} is before {current}, the version that is here")),
                }
            }
            _ => Err("expected the version of the release, or `--check`".to_owned()),
        }
    }
}

/// Makes a release, or checks the package.
///
/// # Errors
///
/// Returns an error if there are changes without a commit, the changelog has nothing new, the package is too large or
/// does not build, or a command fails.
pub fn run(Options { version, is_check }: &Options) -> Result<(), String> {
    if *is_check {
        return check_package(&[]);
    }
    let changes = output(Command::new("git").args(["status", "--porcelain"]))?;
    if !changes.is_empty() {
        return Err(format!("commit these changes first:\n{changes}"));
    }
    let tag = format!("v{version}");
    if !output(Command::new("git").args(["tag", "--list", &tag]))?.is_empty() {
        return Err(format!("the tag {tag} is there"));
    }
    change_files(version)
        .map_err(|error| format!("{error}\nto undo the changes: git restore ."))?;
    let message = format!("Release {version}");
    let git = |args: &[&str]| run_command(Command::new("git").args(args).current_dir(root()));
    git(&["commit", "--all", "--message", &message])?;
    git(&["tag", "--annotate", &tag, "--message", &message])?;
    println!("committed and tagged {tag}");
    println!("to publish: git push --follow-tags; cargo publish; then cargo publish in mpi/");
    Ok(())
}

/// Writes the version and the changelog, checks the package, and writes the notes.
fn change_files(version: &Version) -> Result<(), String> {
    let changelog = root().join("CHANGELOG.md");
    let today = output(Command::new("date").args(["-u", "+%F"]))?;
    let (text, notes) = released(&read(&changelog)?, version, today.trim())?;
    write(&changelog, &text)?;
    for name in MANIFESTS {
        let manifest = root().join(name);
        write(&manifest, &with_version(&read(&manifest)?, version)?)?;
    }
    let locked = LOCKED.map(|folder| format!("{folder}/Cargo.toml"));
    for manifest in MANIFESTS.into_iter().chain(locked.iter().map(String::as_str)) {
        let update = ["update", "--package", "burn-wgsl", "--manifest-path", manifest];
        run_command(cargo(&update).current_dir(root()))?;
    }
    check_package(&["--allow-dirty"])?;
    let file = target_dir().join("release-notes.md");
    println!("the notes are in {}", file.display());
    write(&file, &notes)
}

/// Builds the package as `cargo publish` does, and checks its size.
fn check_package(flags: &[&str]) -> Result<(), String> {
    let publish = ["publish", "--dry-run", "--locked", "--all-features", "--package", "burn-wgsl"];
    run_command(cargo(&[&publish[..], flags].concat()).current_dir(root()))?;
    let version = current_version(&read(&root().join("Cargo.toml"))?)?;
    // Newer releases of Cargo keep a package that is not published apart.
    let folders = ["package/tmp-crate", "package"].map(|folder| target_dir().join(folder));
    let packages = folders.map(|folder| folder.join(format!("burn-wgsl-{version}.crate")));
    let changed = |package: &PathBuf| fs::metadata(package).and_then(|it| it.modified()).ok();
    let package = packages.into_iter().filter(|package| package.exists()).max_by_key(changed);
    let package = package.ok_or("the package is not in the target folder")?;
    let bytes =
        fs::metadata(&package).map_err(|error| format!("{}: {error}", package.display()))?.len();
    println!("{}: {bytes} bytes", package.display());
    match bytes <= MAX_PACKAGE {
        true => Ok(()),
        false => Err(format!(
            "the package has more than {MAX_PACKAGE} bytes: see `exclude` in Cargo.toml"
        )),
    }
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

/// Returns what a command prints.
fn output(command: &mut Command) -> Result<String, String> {
    let output = command.current_dir(root()).output().map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns the line of a manifest with the version of its package.
fn version_line(manifest: &str) -> Result<&str, String> {
    let package = manifest.split("[package]").nth(1).unwrap_or_default();
    let line = package.lines().find(|line| line.starts_with("version = \""));
    line.ok_or_else(|| "a manifest has no version".to_owned())
}

/// Returns the version of a manifest.
fn current_version(manifest: &str) -> Result<Version, String> {
    let text = version_line(manifest)?.trim_start_matches("version = ").trim_matches('"');
    Version::parse(text).map_err(|error| format!("`{text}`: {error}"))
}

/// Returns a manifest with another version of its package, and of burn-wgsl among its dependencies.
fn with_version(manifest: &str, version: &Version) -> Result<String, String> {
    let line = version_line(manifest)?;
    let old = current_version(manifest)?;
    let manifest = manifest.replacen(line, &format!("version = \"{version}\""), 1);
    let dependency = |of: &Version| format!("burn-wgsl = {{ version = \"{of}\"");
    Ok(manifest.replace(&dependency(&old), &dependency(version)))
}

/// Returns the changelog with what is unreleased under a version, and that part by itself.
fn released(changelog: &str, version: &Version, date: &str) -> Result<(String, String), String> {
    const UNRELEASED: &str = "## [Unreleased]\n";
    let (before, after) =
        changelog.split_once(UNRELEASED).ok_or("CHANGELOG.md has no part `[Unreleased]`")?;
    let end = after.find("\n## [").unwrap_or(after.len());
    let notes = after[..end].trim();
    if notes.is_empty() {
        return Err("CHANGELOG.md lists nothing that is unreleased".to_owned());
    }
    let text = format!("{before}{UNRELEASED}\n## [{version}] - {date}\n{after}");
    Ok((text, format!("{notes}\n")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(text: &str) -> Version {
        Version::parse(text).expect("it is a version")
    }

    #[test]
    fn the_unreleased_part_gets_the_version() {
        let changelog = "# Changelog\n\n## [Unreleased]\n\n### Added\n\n- A.\n\n## [0.1.0] - 2026-01-01\n\n- B.\n";
        let (text, notes) =
            released(changelog, &version("0.2.0"), "2026-02-01").expect("there is something new");
        assert_eq!(notes, "### Added\n\n- A.\n");
        assert!(
            text.contains(
                "## [Unreleased]\n\n## [0.2.0] - 2026-02-01\n\n### Added\n\n- A.\n\n## [0.1.0]"
            ),
            "{text}"
        );
        // All of it is released now.
        assert!(released(&text, &version("0.3.0"), "2026-03-01").is_err());
        assert!(released("# Changelog\n", &version("0.3.0"), "2026-03-01").is_err());
    }

    #[test]
    fn versions_of_the_package_and_of_the_dependency_change() {
        let manifest = "# version = \"9\"\n[package]\nname = \"a\"\nversion = \"0.1.0\"\n\n[dependencies]\n\
                        serde = { version = \"0.1.0\" }\n\
                        burn-wgsl = { version = \"0.1.0\", path = \"..\" }\n";
        let changed = with_version(manifest, &version("0.2.0")).expect("there is a version");
        assert_eq!(changed.matches("0.2.0").count(), 2, "{changed}");
        assert!(changed.contains("serde = { version = \"0.1.0\" }"), "{changed}");
        assert_eq!(current_version(&changed), Ok(version("0.2.0")));
    }
}
