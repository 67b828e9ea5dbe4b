//! Builds the programs that run with the layer.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use xtask::process::{cargo, root, run_command, target_dir};

use super::adapter::Adapter;
use crate::test_modules::{self, TestModule};

/// The example that runs besides the tests.
const EXAMPLE: &str = "digits";

/// The epochs of the example.
const EPOCHS: &str = "2";

/// The tests that are left out: they use no adapter, or start programs without the driver and the layer.
const LEFT_OUT: [&str; 6] = ["code", "command", "host_memory", "refusals", "selection", "tuning"];

/// Tests that are left out, because they start programs without the driver and the layer.
const LEFT_OUT_TESTS: [&str; 5] = [
    "a_training_loop_compiles_nothing_after_its_first_steps",
    "modes_are_set_by_a_variable",
    "reports_can_be_switched_off",
    "running_out_of_memory_is_an_error",
    "with_all_checks_the_op_itself_fails",
];

/// The test modules and the example that run on the pretended GPU, and the tests of a module, if not all run there.
/// They walk the case list or train models, and compare values only where `BURN_WGSL_TEST_VALUES` turns it off.
const ON_PRETENDED: [(&str, &[&str]); 7] = [
    ("kernels::chains", &[]),
    ("kernels::elementwise", &["rows_match", "float_rows_match"]),
    ("kernels::ops", &[]),
    ("kernels::types", &["f16_and_bf16_match_burn_flex", "all_integer_types_match_burn_flex"]),
    ("training::gradients", &[]),
    ("training::models", &[]),
    (EXAMPLE, &[]),
];

/// What `cargo xtask vulkan` itself needs.
pub struct Tools {
    /// The program whose mistake the layer must find.
    pub missing_barriers: PathBuf,
    /// The library that hides the timelines of stand-ins.
    pub patch: PathBuf,
}

/// A program that was built.
#[derive(Debug)]
pub struct Program {
    pub name: String,
    pub path: PathBuf,
}

/// A run of a test module, or of the example.
#[derive(Debug)]
pub struct Run {
    pub path: PathBuf,
    /// `None`: the example.
    module: Option<TestModule>,
}

impl Run {
    /// Returns the name of the module or of the example.
    pub fn name(&self) -> String {
        self.module.as_ref().map_or_else(|| EXAMPLE.to_owned(), ToString::to_string)
    }

    /// Returns whether it is one of the runs on an adapter.
    pub fn is_on(&self, adapter: Adapter) -> bool {
        adapter == Adapter::Lavapipe || self.tests_on_pretended().is_some()
    }

    /// Returns the names of tests for the pretended GPU; `None` if there are none.
    fn tests_on_pretended(&self) -> Option<&'static [&'static str]> {
        let (_, tests) = ON_PRETENDED.iter().find(|(name, _)| *name == self.name())?;
        Some(tests)
    }

    /// Returns the path of a test in the program, or what the paths of all tests start with if `test` is empty.
    pub fn test(&self, test: &str) -> String {
        self.module.as_ref().map_or_else(String::new, |module| module.path(test))
    }

    /// Adds the arguments and the variables for an adapter.
    pub fn configure<'a>(&self, command: &'a mut Command, adapter: Adapter) -> &'a mut Command {
        command.env("BURN_WGSL_TUNING", "off").env("BURN_WGSL_CACHE", "off");
        if self.module.is_none() {
            return command.args(["--device", adapter.selector(), "--epochs", EPOCHS]);
        }
        // A missing device must not skip the tests.
        command.env("BURN_WGSL_TEST_REQUIRE", adapter.selector());
        for test in LEFT_OUT_TESTS {
            command.args(["--skip", test]);
        }
        let mut tests: &[&str] = &[];
        if adapter == Adapter::Pretended {
            command.env("BURN_WGSL_TEST_VALUES", "ignore");
            tests = self.tests_on_pretended().unwrap_or_default();
        }
        match tests {
            [] => command.args(Some(self.test("")).filter(|path| !path.is_empty())),
            tests => command.args(tests.iter().map(|test| self.test(test))),
        }
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

/// Builds the test programs and the example, and returns the runs that `only` names, or all if it is empty.
///
/// # Errors
///
/// Returns an error if one does not compile, or `only` has a name that none has.
pub fn runs(only: &[String]) -> Result<Vec<Run>, String> {
    let is_left_out = |module: &TestModule| LEFT_OUT.iter().any(|name| module.is_named(name));
    let modules = test_modules::selected(only, is_left_out, &[EXAMPLE])?;
    let names: BTreeSet<&str> = modules.iter().map(|module| &*module.program).collect();
    let mut programs = Vec::new();
    if !names.is_empty() {
        let args = "test --workspace --all-features --locked --no-run".split(' ');
        let args = args.chain(names.into_iter().flat_map(|name| ["--test", name]));
        programs = built(&args.collect::<Vec<_>>(), &root().join("tests"))?;
    }
    let run = |module: TestModule| {
        let program = programs.iter().find(|program| program.name == module.program);
        let path = program.ok_or(format!("cargo built no test program `{}`", module.program))?;
        Ok(Run { path: path.path.clone(), module: Some(module) })
    };
    let mut runs = modules.into_iter().map(run).collect::<Result<Vec<_>, String>>()?;
    if only.is_empty() || only.iter().any(|name| name == EXAMPLE) {
        let args = "build --release --locked --all-features --example digits";
        let examples = built(&args.split(' ').collect::<Vec<_>>(), &root().join("examples"))?;
        let examples = examples.into_iter().filter(|program| program.name == EXAMPLE);
        runs.extend(examples.map(|program| Run { path: program.path, module: None }));
    }
    Ok(runs)
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
    }

    #[test]
    fn every_name_in_the_lists_is_that_of_a_test() {
        let modules = test_modules::all().expect("the tests are there");
        for name in LEFT_OUT {
            assert!(modules.iter().any(|module| module.is_named(name)), "{name}");
        }
        for (name, tests) in ON_PRETENDED.iter().filter(|(name, _)| *name != EXAMPLE) {
            let module = modules.iter().find(|module| module.to_string() == *name);
            let module = module.unwrap_or_else(|| panic!("there is no module {name}"));
            assert!(tests.iter().all(|test| module.has_test(test)), "{name}: {tests:?}");
        }
        for test in LEFT_OUT_TESTS {
            assert!(modules.iter().any(|module| module.has_test(test)), "{test}");
        }
    }

    #[test]
    fn values_are_compared_on_lavapipe_only() {
        let modules = test_modules::all().expect("the tests are there");
        let module = modules.into_iter().find(|module| module.is_named("kernels::ops"));
        let ops = Run { path: PathBuf::new(), module };
        assert!(ops.is_on(Adapter::Pretended));
        let ignores = |adapter| {
            let mut command = Command::new("kernels");
            ops.configure(&mut command, adapter);
            assert!(command.get_args().any(|argument| argument == "ops::"));
            command.get_envs().any(|(name, _)| name == "BURN_WGSL_TEST_VALUES")
        };
        assert!(ignores(Adapter::Pretended));
        assert!(!ignores(Adapter::Lavapipe));
    }
}
