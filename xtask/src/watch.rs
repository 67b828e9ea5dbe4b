//! `cargo xtask watch`: builds and tests with the newest releases of Burn, wgpu and naga, in a copy of the last
//! commit, and writes a report for people who keep this crate.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use semver::Version;
use xtask::process::{cargo, run_command, target_dir};

/// The lines of a failed command that the report shows.
const SHOWN_LINES: usize = 60;

/// The result of a release.
struct Row {
    /// What was built, such as `wgpu`.
    what: String,
    here: Version,
    newest: Version,
    /// `None` if there is nothing newer; else what the build and the tests said.
    tried: Option<Result<(), String>>,
}

/// Runs the command.
///
/// # Errors
///
/// Returns an error if a newer release breaks something, and if the registry cannot be asked or the copy cannot be
/// made.
pub fn run() -> Result<(), String> {
    let folder = target_dir().join("watch");
    let tree = checkout(&folder.join("tree"))?;
    let mut rows = Vec::new();
    for package in ["wgpu", "naga"] {
        rows.push(locked_package(&tree, package)?);
    }
    rows.extend(ports(&tree)?);
    remove(&tree)?;
    let text = report(&rows);
    let file = folder.join("report.md");
    std::fs::write(&file, &text).map_err(|error| format!("{}: {error}", file.display()))?;
    println!("\n{text}\nwritten to {}", file.display());
    match rows.iter().any(|row| matches!(row.tried, Some(Err(_)))) {
        true => Err("a newer release breaks something: see the report".to_owned()),
        false => Ok(()),
    }
}

/// Makes a copy of the last commit. Changes that are not committed are not in it.
fn checkout(tree: &Path) -> Result<PathBuf, String> {
    if tree.exists() {
        remove(tree)?;
    }
    run_command(Command::new("git").args(["worktree", "add", "--detach"]).arg(tree).arg("HEAD"))?;
    Ok(tree.to_path_buf())
}

fn remove(tree: &Path) -> Result<(), String> {
    run_command(Command::new("git").args(["worktree", "remove", "--force"]).arg(tree))
}

/// Returns the newest published release of a package, also one before a release, or of a line such as `0.22`.
fn newest(package: &str, line: Option<&str>) -> Result<Version, String> {
    let name = line.map_or(package.to_owned(), |line| format!("{package}@{line}"));
    let mut command = cargo(&["info", &name]);
    // In a package, cargo would tell the release that its lock file has.
    let output = command.current_dir(std::env::temp_dir()).output();
    let output = output.map_err(|error| format!("cargo cannot be started: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let version = text.lines().find_map(|line| line.strip_prefix("version: "));
    let word = version.and_then(|line| line.split_whitespace().next());
    word.and_then(|word| Version::parse(word).ok()).ok_or_else(|| {
        let error = String::from_utf8_lossy(&output.stderr);
        format!("the registry does not tell the newest release of {name}: {error}")
    })
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// Tries the newest release of a package that the lock file has.
fn locked_package(tree: &Path, package: &str) -> Result<Row, String> {
    let lock = read(&tree.join("Cargo.lock"))?;
    let entry = format!("name = \"{package}\"\nversion = \"");
    let versions = lock.split(&entry).skip(1);
    let versions = versions.filter_map(|rest| Version::parse(rest.split('"').next()?).ok());
    // Dependencies may have older ones.
    let here = versions.max().ok_or_else(|| format!("Cargo.lock has no {package}"))?;
    let newest = newest(package, None)?;
    let tried = (newest > here).then(|| {
        replace(
            tree,
            &[(
                format!("{package} = {{ version = \"{}\"", here.major),
                format!("{package} = {{ version = \"{}\"", newest.major),
            )],
        )?;
        attempt(tree, &["update", &format!("{package}@{here}")])?;
        attempt(tree, &["check", "--all-targets", "--all-features"])?;
        attempt(tree, &["test", "--lib", "--all-features"])
    });
    Ok(Row { what: package.to_owned(), here, newest, tried })
}

/// Tries the newest release of each line of Burn that a port is for, and the newest of all with the newest port.
fn ports(tree: &Path) -> Result<Vec<Row>, String> {
    let entries = std::fs::read_dir(tree.join("ports")).map_err(|error| error.to_string())?;
    let mut ports = Vec::new();
    for folder in entries.flatten().map(|entry| entry.path()) {
        let manifest = folder.join("Cargo.toml");
        if !manifest.is_file() {
            continue;
        }
        let text = read(&manifest)?;
        let version = text.lines().find_map(|line| line.strip_prefix("version = \""));
        let version = version.and_then(|rest| Version::parse(rest.split('"').next()?).ok());
        ports.push((version.ok_or_else(|| format!("{}: no version", manifest.display()))?, folder));
    }
    ports.sort();
    let newest_of_all = newest("burn", None)?;
    let Some((newest_port, _)) = ports.last() else { return Err("there is no port".to_owned()) };
    let newest_port = newest_port.clone();
    let mut rows = Vec::new();
    for (here, folder) in ports {
        let newest = match here == newest_port {
            true => newest_of_all.clone(),
            false => newest("burn", Some(&format!("{}.{}", here.major, here.minor)))?,
        };
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        let what = format!("Burn, with ports/{name}");
        let tried = (newest > here).then(|| {
            let versions = [here.to_string(), newest.to_string()];
            let quoted = |prefix: &str| {
                let [old, new] =
                    versions.each_ref().map(|version| format!("\"{prefix}{version}\""));
                (old, new)
            };
            replace(&folder, &[quoted("="), quoted("")])?;
            attempt(&folder, &["update"])?;
            attempt(&folder, &["check", "--workspace", "--all-targets"])?;
            attempt(&folder, &["test", "--test", "contract"])
        });
        rows.push(Row { what, here, newest, tried });
    }
    Ok(rows)
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
    let output = command.output().map_err(|error| format!("cargo cannot be started: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    let lines: Vec<&str> = text.lines().collect();
    let shown = &lines[lines.len().saturating_sub(SHOWN_LINES)..];
    Err(format!("$ cargo {}\n{}", args.join(" "), shown.join("\n")))
}

fn report(rows: &[Row]) -> String {
    let mut text = String::from("| release | here | newest | result |\n|---|---|---|---|\n");
    for Row { what, here, newest, tried } in rows {
        let result = match tried {
            None => "nothing newer",
            Some(Ok(())) => "builds, tests pass",
            Some(Err(_)) => "**breaks**",
        };
        let _ = writeln!(text, "| {what} | {here} | {newest} | {result} |");
    }
    for Row { what, newest, tried, .. } in rows {
        if let Some(Err(output)) = tried {
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
        let row = |what: &str, newest: &str, tried| Row {
            what: what.to_owned(),
            here: Version::new(1, 0, 0),
            newest: Version::parse(newest).expect("it is a version"),
            tried,
        };
        let text = report(&[
            row("a", "1.0.0", None),
            row("b", "1.1.0", Some(Ok(()))),
            row("c", "2.0.0-pre.1", Some(Err("$ cargo check\nerror: no method".to_owned()))),
        ]);
        assert!(text.contains("| a | 1.0.0 | 1.0.0 | nothing newer |"), "{text}");
        assert!(text.contains("| b | 1.0.0 | 1.1.0 | builds, tests pass |"), "{text}");
        assert!(text.contains("| c | 1.0.0 | 2.0.0-pre.1 | **breaks** |"), "{text}");
        assert!(
            text.contains("c 2.0.0-pre.1:\n\n```text\n$ cargo check\nerror: no method"),
            "{text}"
        );
    }
}
