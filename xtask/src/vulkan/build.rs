//! Builds the programs that run with the layer.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use xtask::process::{cargo, root, run_command, target_dir};

use super::adapter::Adapter;

/// The example that runs besides the tests.
const EXAMPLE: &str = "digits";

/// The epochs of the example.
const EPOCHS: &str = "2";

/// The files in `tests/` that are left out: they use no adapter, or start programs without the
/// driver and the layer.
const LEFT_OUT: [&str; 9] = [
    "command",
    "coverage",
    "host_memory",
    "layers",
    "refusals",
    "safety",
    "selection",
    "tuning",
    "variants",
];

/// Tests that are left out, because they start programs without the driver and the layer.
const LEFT_OUT_TESTS: [&str; 5] = [
    "a_training_loop_compiles_nothing_after_its_first_steps",
    "modes_are_set_by_a_variable",
    "reports_can_be_switched_off",
    "running_out_of_memory_is_an_error",
    "with_all_checks_the_op_itself_fails",
];

/// The programs that run on the pretended GPU, and filters for the tests in them, if not all run
/// there. The tests walk the case list or train models, and compare values only where
/// `BURN_WGSL_TEST_VALUES` turns it off.
const ON_PRETENDED: [(&str, &[&str]); 7] = [
    ("chains", &[]),
    ("elementwise", &["rows_match"]),
    ("gradients", &[]),
    ("models", &[]),
    ("ops", &[]),
    ("types", &["match_burn_flex"]),
    (EXAMPLE, &[]),
];

/// What `cargo xtask vulkan` itself needs.
pub struct Tools {
    /// The program whose mistake the layer must find.
    pub missing_barriers: PathBuf,
    /// The library that hides the timelines of stand-ins.
    pub patch: PathBuf,
}

/// A test program or the example.
#[derive(Debug)]
pub struct Program {
    pub name: String,
    pub path: PathBuf,
}

impl Program {
    /// Returns whether the program runs on an adapter.
    pub fn runs_on(&self, adapter: Adapter) -> bool {
        adapter == Adapter::Lavapipe || self.filters().is_some()
    }

    /// Returns the filters for the pretended GPU; `None` if the program does not run there.
    fn filters(&self) -> Option<&'static [&'static str]> {
        let (_, filters) = ON_PRETENDED.iter().find(|(name, _)| *name == self.name)?;
        Some(filters)
    }

    /// Adds the arguments and the variables for an adapter.
    pub fn configure<'a>(&self, command: &'a mut Command, adapter: Adapter) -> &'a mut Command {
        command.env("BURN_WGSL_TUNING", "off").env("BURN_WGSL_CACHE", "off");
        if self.name == EXAMPLE {
            return command.args(["--device", adapter.selector(), "--epochs", EPOCHS]);
        }
        // A missing device must not skip the tests.
        command.env("BURN_WGSL_TEST_REQUIRE", adapter.selector());
        for test in LEFT_OUT_TESTS {
            command.args(["--skip", test]);
        }
        if adapter == Adapter::Pretended {
            command.env("BURN_WGSL_TEST_VALUES", "ignore");
            command.args(self.filters().unwrap_or_default());
        }
        command
    }
}

/// Builds the tools.
///
/// # Errors
///
/// Returns an error if they do not compile.
pub fn tools() -> Result<Tools, String> {
    let args = "build --locked --quiet --package xtask-vulkan";
    run_command(&mut cargo(&args.split(' ').collect::<Vec<_>>()))?;
    let folder = target_dir().join("debug");
    Ok(Tools {
        missing_barriers: folder.join("missing-barriers"),
        patch: folder.join("libxtask_vulkan.so"),
    })
}

/// Builds the tests and the example, and returns those in `only`, or all if it is empty.
///
/// # Errors
///
/// Returns an error if one does not compile, or `only` has a name that none has.
pub fn programs(only: &[String]) -> Result<Vec<Program>, String> {
    let is_wanted = |name: &str| only.is_empty() || only.iter().any(|wanted| wanted == name);
    let mut programs = Vec::new();
    if only.iter().any(|name| name != EXAMPLE) || only.is_empty() {
        let mut args = "test --workspace --all-features --locked --no-run".split(' ').collect();
        let tests: Vec<&str> = only.iter().map(String::as_str).collect();
        add_tests(&mut args, &tests);
        programs.extend(built(&args, &root().join("tests"))?);
    }
    if is_wanted(EXAMPLE) {
        let args = "build --release --locked --all-features --example digits";
        programs.extend(built(&args.split(' ').collect::<Vec<_>>(), &root().join("examples"))?);
    }
    programs.retain(|program| {
        let is_left_out = LEFT_OUT.contains(&program.name.as_str());
        is_wanted(&program.name) && !is_left_out
    });
    programs.sort_by(|a, b| a.name.cmp(&b.name));
    match only.iter().find(|name| programs.iter().all(|program| program.name != **name)) {
        None => Ok(programs),
        Some(unknown) => Err(format!("`{unknown}` is no program that runs with the layer")),
    }
}

/// Adds the arguments that select `tests`, or all if there are none.
fn add_tests<'a>(args: &mut Vec<&'a str>, tests: &[&'a str]) {
    let selected: &[&str] = if tests.is_empty() { &["*"] } else { tests };
    let selected = selected.iter().filter(|test| **test != EXAMPLE);
    args.extend(selected.flat_map(|test| ["--test", *test]));
}

/// Runs cargo and returns the programs that it built from files in `folder`.
///
/// # Errors
///
/// Returns an error if cargo fails.
pub fn built(args: &[&str], folder: &Path) -> Result<Vec<Program>, String> {
    println!("    $ cargo {}", args.join(" "));
    let (subcommand, rest) = args.split_first().ok_or("cargo needs a subcommand")?;
    let mut command = cargo(&[subcommand, "--message-format=json-render-diagnostics"]);
    let output = command
        .args(rest)
        .current_dir(root())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("cargo could not be started: {error}"))?;
    if !output.status.success() {
        return Err(format!("cargo failed: {}", output.status));
    }
    Ok(parse(&String::from_utf8_lossy(&output.stdout), folder))
}

/// Returns the programs from files in `folder` in the messages of cargo.
fn parse(messages: &str, folder: &Path) -> Vec<Program> {
    let parse_line = |line: &str| {
        let message: Value = serde_json::from_str(line).ok()?;
        let source = Path::new(message["target"]["src_path"].as_str()?);
        let path = PathBuf::from(message["executable"].as_str()?);
        let name = message["target"]["name"].as_str()?.to_owned();
        source.starts_with(folder).then_some(Program { name, path })
    };
    messages.lines().filter_map(parse_line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_in_the_messages_of_cargo() {
        let line = |name: &str, source: &str, executable: &str| {
            let target = format!(r#"{{"name":"{name}","src_path":"{source}"}}"#);
            format!(r#"{{"target":{target},"executable":{executable}}}"#)
        };
        let messages = [
            line("ops", "/r/tests/ops.rs", "\"/t/ops-1\""),
            line("burn_wgsl", "/r/src/lib.rs", "null"),
            line("pages", "/r/web/tests/pages.rs", "\"/t/pages-1\""),
            r#"{"reason":"build-finished","success":true}"#.to_owned(),
        ];
        let programs = parse(&messages.join("\n"), Path::new("/r/tests"));
        assert_eq!(programs.len(), 1);
        assert_eq!((&*programs[0].name, &programs[0].path), ("ops", &PathBuf::from("/t/ops-1")));
        assert!(programs[0].runs_on(Adapter::Pretended));
    }

    #[test]
    fn values_are_compared_on_lavapipe_only() {
        let ops = Program { name: "ops".to_owned(), path: PathBuf::new() };
        let ignores = |adapter| {
            let mut command = Command::new("ops");
            ops.configure(&mut command, adapter);
            command.get_envs().any(|(name, _)| name == "BURN_WGSL_TEST_VALUES")
        };
        assert!(ignores(Adapter::Pretended));
        assert!(!ignores(Adapter::Lavapipe));
    }
}
