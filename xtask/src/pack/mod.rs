//! `cargo xtask pack`: a folder with the tests, the benches, the command and the comparison with other
//! backends, which runs on a machine without Rust.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use xtask::process::{root, target_dir};

use crate::arguments;
use crate::packages::Packages;
use crate::test_modules::{self, TestModule};
use crate::vulkan::build::{self, Program};

/// What `about.txt`, which marks a kit, starts with.
const MARK: &str = "burn-wgsl ";
/// The tests that need this repository.
const LEFT_OUT: [&str; 3] = ["code", "command", "fuzz"];

/// The workspace of the comparison, and its packages: the runner, and the peers that are always built.
const PEERS: &str = "benches/peers";
const PEERS_PACKAGES: [&str; 2] = ["peers", "peer-ours"];
/// The script of the peer that is not built.
const TORCH: &str = "torch_peer.py";
/// Peers that are built on request: each takes half an hour.
const MORE_PEERS: [&str; 3] = ["wgpu21", "wgpu22", "wgpu22-wgsl"];

/// The Vulkan loader, for machines without one.
const LOADER: &str = "libvulkan.so.1";

/// The options of `cargo xtask pack`.
#[derive(Debug, PartialEq)]
pub struct Options {
    /// The folder.
    out: PathBuf,
    /// The test programs and modules; all if empty.
    only: Vec<String>,
    /// Peers besides those that are always built.
    peers: Vec<String>,
}

impl Options {
    /// Parses the arguments of `cargo xtask pack`.
    ///
    /// # Errors
    ///
    /// Returns an error if an option is unknown or a value is missing.
    pub fn parse(args: &[String]) -> Result<Self, String> {
        let out = target_dir().join("burn-wgsl-kit");
        let mut options = Self { out, only: Vec::new(), peers: Vec::new() };
        let flags = ["--out", "--only", "--peers"];
        for (flag, value) in arguments::parse("cargo xtask pack", args, &[], &flags)? {
            let names = value.split(',').map(str::to_owned);
            match flag {
                "--out" => options.out = value.into(),
                "--only" => options.only.extend(names),
                _ => options.peers.extend(names),
            }
        }
        match options.peers.iter().find(|peer| !MORE_PEERS.contains(&peer.as_str())) {
            Some(peer) => Err(format!(
                "there is no peer `{peer}` to build: use some of {}; burn-wgsl, burn-flex and PyTorch \
                 are always there",
                MORE_PEERS.join(", ")
            )),
            None => Ok(options),
        }
    }
}

/// Builds the programs and fills the folder, which must not exist or be an earlier kit.
///
/// # Errors
///
/// Returns an error if a program does not compile, `--only` names none, the folder has other files,
/// or a file cannot be written.
pub fn run(options: &Options) -> Result<(), String> {
    let folder = &options.out;
    let about = folder.join("about.txt");
    let is_empty = fs::read_dir(folder).map_or(true, |mut entries| entries.next().is_none());
    let is_kit = fs::read_to_string(&about).is_ok_and(|text| text.starts_with(MARK));
    if !is_empty && !is_kit {
        return Err(format!(
            "{} has files that are no kit; choose another --out",
            folder.display()
        ));
    }
    let is_left_out = |module: &TestModule| LEFT_OUT.iter().any(|name| module.is_named(name));
    let modules = test_modules::selected(&options.only, is_left_out, &[])?;
    let tests = test_programs(&modules)?;
    let others = [
        ("bench --bench kernels --no-run", "benches"),
        ("build --bin burn-wgsl", "src"),
        ("build --example digits", "examples"),
    ];
    let mut programs = Vec::new();
    for (args, sources) in others {
        programs.extend(build::built(&arguments_of(args), &root().join(sources))?);
    }
    let peers = peers(&options.peers)?;
    // The first file: a kit that was not finished can be made again.
    fs::create_dir_all(folder).map_err(|error| cannot_write(folder, &error))?;
    fs::write(&about, description()).map_err(|error| cannot_write(&about, &error))?;
    for subfolder in ["bin", "lib", "peers", "programs", "tests"] {
        let subfolder = folder.join(subfolder);
        if subfolder.exists() {
            fs::remove_dir_all(&subfolder).map_err(|error| cannot_write(&subfolder, &error))?;
        }
        fs::create_dir_all(&subfolder).map_err(|error| cannot_write(&subfolder, &error))?;
    }
    let mut bytes = 0;
    for (subfolder, programs) in [("programs", &tests), ("bin", &programs), ("peers", &peers)] {
        for Program { name, path } in programs {
            bytes += copy(path, &folder.join(subfolder).join(name))?;
        }
    }
    add_scripts(&modules, &folder.join("tests"))?;
    bytes += copy(&root().join(PEERS).join(TORCH), &folder.join("peers").join(TORCH))?;
    add_loader(folder)?;
    let script = folder.join("run");
    fs::write(&script, include_str!("run.sh")).map_err(|error| cannot_write(&script, &error))?;
    make_executable(&script)?;
    println!(
        "    {} test modules, {} programs, {} MB, in {}\n    copy it to a machine with a GPU and start ./run",
        modules.len(),
        tests.len() + programs.len() + peers.len(),
        bytes / 1_000_000,
        folder.display()
    );
    Ok(())
}

/// Builds the programs of the test modules.
fn test_programs(modules: &[TestModule]) -> Result<Vec<Program>, String> {
    let programs: BTreeSet<&str> = modules.iter().map(|module| &*module.program).collect();
    let mut args = arguments_of("test --no-run");
    args.extend(programs.into_iter().flat_map(|name| ["--test", name]));
    build::built(&args, &root().join("tests"))
}

/// Writes a script for each test module that runs it.
fn add_scripts(modules: &[TestModule], folder: &Path) -> Result<(), String> {
    for module in modules {
        let script = folder.join(module.to_string().replace("::", "-"));
        let text = format!(
            "#!/bin/sh\nexec \"$(dirname \"$0\")/../programs/{}\" {} \"$@\"\n",
            module.program,
            module.path("")
        );
        fs::write(&script, text).map_err(|error| cannot_write(&script, &error))?;
        make_executable(&script)?;
    }
    Ok(())
}

/// Builds the comparison: each package on its own, so that Cargo does not unify the features of peers.
fn peers(more: &[String]) -> Result<Vec<Program>, String> {
    let (manifest, target) = (root().join(PEERS).join("Cargo.toml"), target_dir().join("peers"));
    let (manifest, target) = (manifest.display().to_string(), target.display().to_string());
    let more = more.iter().map(|peer| format!("peer-{peer}"));
    let mut programs = Vec::new();
    for package in PEERS_PACKAGES.map(str::to_owned).into_iter().chain(more) {
        let args = ["build", "--release", "--locked", "--manifest-path", &manifest];
        let args = [&args[..], &["--target-dir", &target, "--package", &package]].concat();
        programs.extend(build::built(&args, &root().join(PEERS))?);
    }
    Ok(programs)
}

/// Returns the arguments of cargo for a stripped and optimised build.
fn arguments_of(command: &'static str) -> Vec<&'static str> {
    let common = "--profile kit --locked --all-features";
    command.split(' ').chain(common.split(' ')).collect()
}

/// Copies the Vulkan loader. Without it, the kit needs one on the other machine.
fn add_loader(folder: &Path) -> Result<(), String> {
    match Packages::unpack("loader", &["libvulkan1"]) {
        Ok(packages) => {
            let library = packages.library_folder().join(LOADER);
            copy(&library, &folder.join("lib").join(LOADER)).map(|_| ())
        }
        Err(reason) => {
            println!("    without the Vulkan loader: {reason}");
            Ok(())
        }
    }
}

/// Copies a file and returns its size.
fn copy(from: &Path, to: &Path) -> Result<u64, String> {
    fs::copy(from, to).map_err(|error| cannot_write(to, &error))
}

/// Returns what the folder was made from.
fn description() -> String {
    let git = |args: &[&str]| {
        let output = Command::new("git").args(args).current_dir(root()).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let commit = git(&["rev-parse", "--short", "HEAD"]).unwrap_or_else(|| "unknown".to_owned());
    let is_changed = git(&["status", "--porcelain"]).is_some_and(|changes| !changes.is_empty());
    let changes = if is_changed { ", with changes" } else { "" };
    let (system, architecture) = (std::env::consts::OS, std::env::consts::ARCH);
    format!("{MARK}{commit}{changes}, for {system} on {architecture}\n")
}

#[cfg(unix)]
fn make_executable(path: &Path) -> Result<(), String> {
    use std::os::unix::fs::PermissionsExt;
    let permissions = fs::Permissions::from_mode(0o755);
    fs::set_permissions(path, permissions).map_err(|error| cannot_write(path, &error))
}

#[cfg(not(unix))]
fn make_executable(_: &Path) -> Result<(), String> {
    Ok(())
}

fn cannot_write(path: &Path, error: &io::Error) -> String {
    format!("cannot write {}: {error}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_and_programs_can_be_chosen() {
        let parse = |line: &str| {
            Options::parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
        };
        let options = parse("--out kit --only ops,types").expect("the options exist");
        assert_eq!(
            options,
            Options {
                out: "kit".into(),
                only: vec!["ops".into(), "types".into()],
                peers: Vec::new()
            }
        );
        assert!(parse("--peers wgpu22").is_ok_and(|options| options.peers == ["wgpu22"]));
        assert!(parse("--peers torch").is_err_and(|reason| reason.contains("always")));
        assert!(parse("").is_ok_and(|options| options.only.is_empty()));
        assert!(parse("--out").is_err());
        assert!(parse("everything").is_err());
    }

    #[cfg(unix)]
    #[test]
    fn the_script_runs_programs_and_tells_which_failed() {
        let folder = std::env::temp_dir().join(format!("burn-wgsl-kit-{}", std::process::id()));
        let write = |name: &str, text: &str| {
            let path = folder.join(name);
            fs::create_dir_all(path.parent().expect("it is in the kit")).expect("it is writable");
            fs::write(&path, text).expect("the folder is writable");
            make_executable(&path).expect("the file exists");
        };
        write("run", include_str!("run.sh"));
        write("about.txt", "burn-wgsl\n");
        write("bin/burn-wgsl", "#!/bin/sh\n[ \"$1\" = doctor ] || echo $DEVICES\n");
        write("peers/peers", "#!/bin/sh\necho \"$@\" >\"$5\"\n");
        write("tests/good", "#!/bin/sh\necho $BURN_WGSL_TEST_REQUIRE\n");
        write("tests/bad", "#!/bin/sh\nexit 101\n");
        write("tests/long", "#!/bin/sh\nexec sleep 60\n");
        let outcome_with = |devices: &str, args: &str| {
            let mut command = Command::new(folder.join("run"));
            let output = command.env("DEVICES", devices).args(args.split(' ')).output();
            let output = output.expect("there is a shell");
            (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
        };
        let outcome = |args| outcome_with("gpu:0", args);
        assert_eq!(outcome_with("cpu", "tests --only good").0, Some(1));
        let (code, text) = outcome("tests --only good");
        assert_eq!(code, Some(0), "{text}");
        assert!(
            text.contains("good") && text.contains("passed") && !text.contains("bad"),
            "{text}"
        );
        assert_eq!(outcome("tests --only nothing").0, Some(1));
        let (code, text) = outcome("tests --limit 1");
        assert_eq!(code, Some(1), "{text}");
        assert!(text.contains("FAILED") && text.contains("timed out"), "{text}");
        let (code, text) = outcome("peers --only matmul");
        assert_eq!(code, Some(0), "{text}");
        let results = text.lines().find_map(|line| line.strip_prefix("results: "));
        let results = Path::new(results.expect("the folder is printed")).join("peers.md");
        let arguments = fs::read_to_string(results).expect("the peers wrote their results");
        assert!(arguments.ends_with("--workloads matmul\n"), "{arguments}");
        for wrong in ["everything", "--limit soon", "--only"] {
            assert_eq!(outcome(wrong).0, Some(2), "{wrong}");
        }
        assert_eq!(outcome("--help").0, Some(0));
        fs::remove_dir_all(&folder).expect("the folder is writable");
    }

    #[test]
    fn a_folder_with_other_files_is_kept() {
        let folder = std::env::temp_dir().join(format!("burn-wgsl-pack-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("the folder is writable");
        fs::write(folder.join("letter.txt"), "dear").expect("the folder is writable");
        fs::write(folder.join("about.txt"), "me").expect("the folder is writable");
        let result = run(&Options { out: folder.clone(), only: Vec::new(), peers: Vec::new() });
        assert!(result.is_err_and(|reason| reason.contains("no kit")));
        assert!(folder.join("letter.txt").exists());
        fs::remove_dir_all(&folder).expect("the folder is writable");
    }
}
