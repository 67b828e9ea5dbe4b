//! `cargo xtask watch`: builds and tests with the newest releases of Burn, wgpu and naga, in a copy of the last
//! commit, and writes a report for the maintainers.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use semver::Version;
use xtask::process::{cargo, root, run_command, target_dir};

use crate::adapter;
use crate::options::Options;

/// The lines of a failed command that the report shows.
const SHOWN_LINES: usize = 60;

/// What came of a release.
enum Outcome {
    NothingNewer,
    Passed,
    /// The end of what a build or a test printed, or why the release could not be tried.
    Broke(String),
}

/// A row of the report.
struct Row {
    /// What was built, such as `wgpu`.
    what: String,
    here: String,
    newest: String,
    outcome: Outcome,
}

/// Runs the command.
///
/// # Errors
///
/// Returns an error if there is no software adapter, the copy cannot be made, a release cannot be tried, or a newer
/// release breaks something.
pub fn run() -> Result<(), String> {
    let options = Options::default();
    adapter::ensure(&options)?;
    let folder = target_dir().join("watch");
    let copy = Checkout::new(folder.join("tree"))?;
    let mut rows = vec![graphics(&copy)];
    rows.extend(burn(&copy)?);
    let text = report(&rows);
    let file = folder.join("report.md");
    std::fs::write(&file, &text).map_err(|error| format!("{}: {error}", file.display()))?;
    println!("\n{text}\nwritten to {}", file.display());
    match rows.iter().any(|row| matches!(row.outcome, Outcome::Broke(_))) {
        true => Err("a newer release breaks something: see the report".to_owned()),
        false => Ok(()),
    }
}

/// A copy of the last commit, which is removed when this is dropped. Changes that are not committed are not in it.
struct Checkout(PathBuf);

impl Checkout {
    fn new(tree: PathBuf) -> Result<Self, String> {
        let copy = Self(tree);
        copy.remove();
        let mut add = Command::new("git");
        run_command(add.args(["worktree", "add", "--detach"]).arg(&copy.0).arg("HEAD"))?;
        Ok(copy)
    }

    fn remove(&self) {
        // There may be none, or a registered one whose folder is gone.
        let _ = std::fs::remove_dir_all(&self.0);
        let _ = Command::new("git").args(["worktree", "prune"]).current_dir(root()).status();
    }

    /// Takes back what the last release changed.
    fn reset(&self) -> Result<(), String> {
        let mut command = Command::new("git");
        let status = command.args(["reset", "--hard", "--quiet"]).current_dir(&self.0).status();
        let is_done = status.is_ok_and(|status| status.success());
        is_done.then_some(()).ok_or_else(|| "`git reset` failed".to_owned())
    }
}

impl Drop for Checkout {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Returns the newest published release of a package, including pre-releases, or of a line such as `0.22`.
fn newest(package: &str, line: Option<&str>) -> Result<Version, String> {
    let name = line.map_or(package.to_owned(), |line| format!("{package}@{line}"));
    let mut command = cargo(&["info", &name]);
    // In a package, cargo would report the release that its lock file has.
    let output = command.current_dir(std::env::temp_dir()).output();
    let output = output.map_err(|error| format!("cargo cannot be started: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let Some(version) = text.lines().find_map(|line| line.strip_prefix("version: ")) else {
        let error = String::from_utf8_lossy(&output.stderr);
        return Err(format!("the newest release of {name} is not known: {error}"));
    };
    newest_of_line(version, line.is_some())
        .ok_or_else(|| format!("`{version}` is not the version of {name}"))
}

/// Returns the version in a line of `cargo info` such as `30.0.1 (latest 30.0.2)`: the latest, unless a line of
/// releases was asked for.
fn newest_of_line(text: &str, of_line: bool) -> Option<Version> {
    let (version, latest) = text.split_once(" (latest ").unwrap_or((text, text));
    let chosen = if of_line { version } else { latest };
    Version::parse(chosen.split([' ', ')']).next()?).ok()
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// Returns the newest version of a package in a lock file: dependencies may have older ones.
fn locked(folder: &Path, package: &str) -> Result<Version, String> {
    let lock = read(&folder.join("Cargo.lock"))?;
    let entry = format!("name = \"{package}\"\nversion = \"");
    let versions = lock.split(&entry).skip(1);
    let versions = versions.filter_map(|rest| Version::parse(rest.split('"').next()?).ok());
    versions.max().ok_or_else(|| format!("the lock file has no {package}"))
}

/// Tries the newest wgpu with its naga.
fn graphics(copy: &Checkout) -> Row {
    let packages = ["wgpu", "naga"];
    let versions = || -> Result<[[Version; 2]; 2], String> {
        let [wgpu, naga] = packages;
        Ok([
            [locked(&copy.0, wgpu)?, newest(wgpu, None)?],
            [locked(&copy.0, naga)?, newest(naga, None)?],
        ])
    };
    let what = packages.join(", ");
    let versions = match versions() {
        Ok(versions) => versions,
        Err(error) => return Row::unknown(what, error),
    };
    let list =
        |side: usize| versions.each_ref().map(|versions| versions[side].to_string()).join(", ");
    let outcome = match versions.iter().any(|[here, newest]| newest > here) {
        false => Outcome::NothingNewer,
        true => Outcome::of(|| {
            copy.reset()?;
            let mut specs = Vec::new();
            for (package, [here, newest]) in packages.iter().zip(&versions) {
                let line =
                    |version: &Version| format!("{package} = {{ version = \"{}\"", version.major);
                replace(&copy.0, &[(line(here), line(newest))])?;
                specs.push(format!("{package}@{here}"));
            }
            let specs = specs.iter().map(String::as_str);
            attempt(&copy.0, &["update"].into_iter().chain(specs).collect::<Vec<_>>())?;
            for (package, [_, newest]) in packages.iter().zip(&versions) {
                check_locked(&copy.0, package, newest)?;
            }
            attempt(&copy.0, &["check", "--all-targets", "--all-features"])?;
            attempt(&copy.0, &["test", "--quiet", "--lib", "--all-features"])
        }),
    };
    Row { what, here: list(0), newest: list(1), outcome }
}

/// Tries the newest release of the line that the crate is for, of each line that a port is for, and the newest of all
/// with the newest port.
fn burn(copy: &Checkout) -> Result<Vec<Row>, String> {
    let mut ports = Vec::new();
    let entries = std::fs::read_dir(copy.0.join("ports")).map_err(|error| error.to_string())?;
    for folder in entries.flatten().map(|entry| entry.path()) {
        let Ok(text) = read(&folder.join("Cargo.toml")) else { continue };
        let version = text.lines().find_map(|line| line.strip_prefix("version = \""));
        let version = version.and_then(|rest| Version::parse(rest.split('"').next()?).ok());
        ports.push((version.ok_or_else(|| format!("{}: no version", folder.display()))?, folder));
    }
    ports.sort();
    let newest_port = ports.last().map(|(version, _)| version.clone());
    let mut rows = Vec::new();
    let own = pinned_burn(&copy.0)?;
    let tests: &[&[&str]] = &[
        &["check", "--all-targets", "--all-features"],
        &["test", "--quiet", "--lib", "--all-features"],
    ];
    rows.push(of_burn(copy, "Burn", &copy.0, &own, false, tests));
    for (here, folder) in ports {
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let what = format!("Burn, with ports/{name}");
        let is_newest = newest_port.as_ref() == Some(&here);
        let tests: &[&[&str]] = &[
            &["check", "--workspace", "--all-targets"],
            &["test", "--quiet", "--test", "contract"],
        ];
        rows.push(of_burn(copy, &what, &folder, &here, is_newest, tests));
    }
    Ok(rows)
}

/// Returns the release of Burn that the crate's manifest names.
fn pinned_burn(tree: &Path) -> Result<Version, String> {
    let text = read(&tree.join("Cargo.toml"))?;
    let pinned = text.split("burn-backend = { version = \"=").nth(1);
    let version = pinned.and_then(|rest| Version::parse(rest.split('"').next()?).ok());
    version.ok_or_else(|| "Cargo.toml names no release of burn-backend".to_owned())
}

/// Tries the newest release of Burn's line, or of all, in a folder.
fn of_burn(
    copy: &Checkout,
    what: &str,
    folder: &Path,
    here: &Version,
    of_all: bool,
    tests: &[&[&str]],
) -> Row {
    let line = format!("{}.{}", here.major, here.minor);
    let newest = match newest("burn", (!of_all).then_some(line.as_str())) {
        Ok(newest) => newest,
        Err(error) => return Row::unknown(what.to_owned(), error),
    };
    let outcome = match newest > *here {
        false => Outcome::NothingNewer,
        true => Outcome::of(|| {
            copy.reset()?;
            let quoted =
                |prefix: &str| (format!("\"{prefix}{here}\""), format!("\"{prefix}{newest}\""));
            replace(folder, &[quoted("="), quoted("")])?;
            // Resolves what changed, and nothing else.
            attempt(folder, &["update", "--workspace"])?;
            check_locked(folder, "burn-backend", &newest)?;
            tests.iter().try_for_each(|args| attempt(folder, args))
        }),
    };
    Row { what: what.to_owned(), here: here.to_string(), newest: newest.to_string(), outcome }
}

/// Checks that a lock file has a release: another dependency may have prevented it.
fn check_locked(folder: &Path, package: &str, newest: &Version) -> Result<(), String> {
    match locked(folder, package)? {
        found if found == *newest => Ok(()),
        found => Err(format!("cargo chose {package} {found} in place of {newest}")),
    }
}

/// Replaces texts in all manifests of a folder.
fn replace(folder: &Path, texts: &[(String, String)]) -> Result<(), String> {
    let mut list = Command::new("git");
    list.current_dir(folder).args(["ls-files", "*Cargo.toml"]);
    let output = list.output().map_err(|error| format!("git cannot be started: {error}"))?;
    for name in String::from_utf8_lossy(&output.stdout).lines() {
        let path = folder.join(name);
        let mut text = read(&path)?;
        for (old, new) in texts {
            text = text.replace(old, new);
        }
        std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(())
}

/// Runs cargo in a folder of the copy. The error is the end of what it printed.
fn attempt(folder: &Path, args: &[&str]) -> Result<(), String> {
    println!("    $ cargo {} ({})", args.join(" "), folder.display());
    let mut command = cargo(args);
    command.current_dir(folder).env("CARGO_TARGET_DIR", target_dir().join("watch/target"));
    let options = Options::default();
    command.envs(adapter::environment(&options)).env("BURN_WGSL_DEVICE", "software");
    command.envs(adapter::required_device(&options).map(|it| ("BURN_WGSL_TEST_REQUIRE", it)));
    let output = command.output().map_err(|error| format!("cargo cannot be started: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    // Tests print to the first of them what failed.
    let mut text = String::from_utf8_lossy(&output.stderr).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stdout));
    let lines: Vec<&str> = text.lines().collect();
    let shown = &lines[lines.len().saturating_sub(SHOWN_LINES)..];
    Err(format!("$ cargo {}\n{}", args.join(" "), shown.join("\n")))
}

impl Outcome {
    fn of(work: impl FnOnce() -> Result<(), String>) -> Self {
        match work() {
            Ok(()) => Self::Passed,
            Err(output) => Self::Broke(output),
        }
    }
}

impl Row {
    /// The row of a release that cannot be tried.
    fn unknown(what: String, error: String) -> Self {
        let (here, newest) = (String::new(), "unknown".to_owned());
        Self { what, here, newest, outcome: Outcome::Broke(error) }
    }
}

fn report(rows: &[Row]) -> String {
    let mut text = String::from("| release | here | newest | result |\n|---|---|---|---|\n");
    for Row { what, here, newest, outcome } in rows {
        let result = match outcome {
            Outcome::NothingNewer => "nothing newer",
            Outcome::Passed => "builds, tests pass",
            Outcome::Broke(_) => "**breaks**",
        };
        let _ = writeln!(text, "| {what} | {here} | {newest} | {result} |");
    }
    for Row { what, newest, outcome, .. } in rows {
        if let Outcome::Broke(output) = outcome {
            let _ = write!(text, "\n{what} {newest}:\n\n```text\n{output}\n```\n");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_shows_what_broke() {
        let row = |what: &str, newest: &str, outcome| Row {
            what: what.to_owned(),
            here: "1.0.0".to_owned(),
            newest: newest.to_owned(),
            outcome,
        };
        let broke = Outcome::Broke("$ cargo check\nerror: no method".to_owned());
        let text = report(&[
            row("a", "1.0.0", Outcome::NothingNewer),
            row("b", "1.1.0", Outcome::Passed),
            row("c", "2.0.0-pre.1", broke),
        ]);
        assert!(text.contains("| a | 1.0.0 | 1.0.0 | nothing newer |"), "{text}");
        assert!(text.contains("| b | 1.0.0 | 1.1.0 | builds, tests pass |"), "{text}");
        assert!(text.contains("| c | 1.0.0 | 2.0.0-pre.1 | **breaks** |"), "{text}");
        let shown = "c 2.0.0-pre.1:\n\n```text\n$ cargo check\nerror: no method";
        assert!(text.contains(shown), "{text}");
    }

    #[test]
    fn the_latest_release_is_chosen_unless_a_line_was_asked_for() {
        let version = |text| Some(Version::parse(text).expect("it is a version"));
        assert_eq!(newest_of_line("30.0.1 (latest 30.0.2)", false), version("30.0.2"));
        assert_eq!(newest_of_line("0.22.1 (latest 0.23.0-pre.1)", true), version("0.22.1"));
        assert_eq!(newest_of_line("0.23.0-pre.1", false), version("0.23.0-pre.1"));
        assert_eq!(newest_of_line("what", false), None);
    }
}
