//! The test programs in `tests/`, and the modules that they consist of.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;

use xtask::process::{root, run_command};

use crate::cargo_test::cargo_test;
use crate::options::Options;

/// The folder of what the programs share.
const SHARED: &str = "common";

/// A file or folder of tests that is run on its own. Displayed as `kernels::ops`, or as `half` if it is a program
/// of one file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TestModule {
    /// The name of the program.
    pub program: String,
    /// The name of the module in the program.
    module: Option<String>,
}

impl TestModule {
    fn new(program: &str, module: Option<&str>) -> Self {
        Self { program: program.to_owned(), module: module.map(str::to_owned) }
    }

    /// Returns whether a name is that of the program, of the module, or of both.
    pub fn is_named(&self, name: &str) -> bool {
        self.program == name || self.module.as_deref() == Some(name) || self.to_string() == name
    }

    /// Returns whether a test of the module has a name that starts with `test`.
    pub fn has_test(&self, test: &str) -> bool {
        let folder = root().join("tests").join(&self.program);
        let path = match &self.module {
            Some(module) => folder.join(module),
            None => folder,
        };
        let texts = [path.with_extension("rs"), path.join("mod.rs")];
        let has_test = |path| {
            let text = fs::read_to_string(path).unwrap_or_default();
            text.contains(&format!("]\nfn {test}"))
        };
        texts.into_iter().any(has_test)
    }

    /// Returns the path of a test in the program, or what the paths of all tests start with if `test` is empty.
    pub fn path(&self, test: &str) -> String {
        self.module.as_ref().map_or_else(String::new, |module| format!("{module}::")) + test
    }
}

impl fmt::Display for TestModule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.module {
            Some(module) => write!(f, "{}::{module}", self.program),
            None => f.write_str(&self.program),
        }
    }
}

/// Returns all test modules, sorted.
///
/// # Errors
///
/// Returns an error if a folder cannot be read.
pub fn all() -> Result<Vec<TestModule>, String> {
    modules_in(&root().join("tests"))
}

/// Returns the modules that `only` names, or all if it is empty, without those that are left out. `others` are names
/// of other things that `only` may have.
///
/// # Errors
///
/// Returns an error if a name in `only` is that of no module.
pub fn selected(
    only: &[String],
    is_left_out: impl Fn(&TestModule) -> bool,
    others: &[&str],
) -> Result<Vec<TestModule>, String> {
    let mut modules = all()?;
    modules.retain(|module| !is_left_out(module));
    let is_unknown = |name: &&String| {
        !others.contains(&name.as_str()) && !modules.iter().any(|module| module.is_named(name))
    };
    if let Some(unknown) = only.iter().find(is_unknown) {
        return Err(format!("`{unknown}` is no test program or module that runs here"));
    }
    let is_wanted = |module: &TestModule| only.iter().any(|name| module.is_named(name));
    modules.retain(|module| only.is_empty() || is_wanted(module));
    Ok(modules)
}

fn modules_in(folder: &Path) -> Result<Vec<TestModule>, String> {
    let mut modules = Vec::new();
    for (program, has_folder) in names(folder)? {
        if !has_folder {
            modules.push(TestModule::new(&program, None));
        } else if program != SHARED {
            let inner = names(&folder.join(&program))?;
            let inner = inner.keys().filter(|name| *name != "main");
            modules.extend(inner.map(|module| TestModule::new(&program, Some(module))));
        }
    }
    modules.sort();
    Ok(modules)
}

/// Returns the names of the Rust files and of the folders of Rust files in a folder, and whether each is a folder.
fn names(folder: &Path) -> Result<BTreeMap<String, bool>, String> {
    let cannot_read = |error| format!("cannot read {}: {error}", folder.display());
    let paths = fs::read_dir(folder).map_err(cannot_read)?.flatten().map(|entry| entry.path());
    let name = |path: &Path| Some(path.file_stem()?.to_str()?.to_owned());
    let is_rust = |path: &Path| path.extension().is_some_and(|extension| extension == "rs");
    let has_rust = |path: &Path| path.join("main.rs").is_file() || path.join("mod.rs").is_file();
    let paths = paths.filter(|path| is_rust(path) || has_rust(path));
    Ok(paths.filter_map(|path| Some((name(&path)?, path.is_dir()))).collect())
}

/// Runs the tests with the paths `PROGRAM`, `PROGRAM::MODULE` or `PROGRAM::MODULE::TEST`, with one command for each
/// program, and with environment variables.
///
/// # Errors
///
/// Returns an error if a test fails, or a path is that of no module.
pub fn run(options: &Options, paths: &[&str], variables: &[(&str, &str)]) -> Result<(), String> {
    for (program, filters) in by_program(&all()?, paths, TestModule::has_test)? {
        let mut command = cargo_test(options, &["--test", &program]);
        if !filters.is_empty() {
            command.arg("--").args(filters);
        }
        run_command(command.envs(variables.iter().copied()))?;
    }
    Ok(())
}

/// Returns the programs of paths, each with its filters. Without filters, all tests of a program run.
fn by_program(
    modules: &[TestModule],
    paths: &[&str],
    has_test: impl Fn(&TestModule, &str) -> bool,
) -> Result<BTreeMap<String, Vec<String>>, String> {
    let mut programs = BTreeMap::<String, Option<Vec<String>>>::new();
    for path in paths {
        let mut parts = path.splitn(3, "::");
        let [program, module, test] = [(); 3].map(|()| parts.next().unwrap_or_default());
        let is_named = |found: &&TestModule| {
            found.program == program
                && (module.is_empty() || found.module.as_deref() == Some(module))
        };
        let found = modules.iter().find(is_named);
        let found = found.filter(|found| test.is_empty() || has_test(found, test));
        let found = found.ok_or_else(|| format!("there are no tests `{path}`"))?;
        let filters = programs.entry(program.to_owned()).or_insert_with(|| Some(Vec::new()));
        match (filters, module) {
            (filters, "") => *filters = None,
            (Some(filters), _) => filters.push(found.path(test)),
            // The whole program runs.
            (None, _) => {}
        }
    }
    Ok(programs.into_iter().map(|(name, filters)| (name, filters.unwrap_or_default())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_and_module_is_found() {
        let modules = all().expect("the tests are there");
        let found = |name: &str| modules.iter().any(|module| module.to_string() == name);
        assert!(found("kernels::ops") && found("kernels::chains") && found("half"));
        assert!(!modules.iter().any(|module| module.program == SHARED));
        assert!(!modules.iter().any(|module| module.is_named("main") || module.is_named("mod")));
        let types = modules.iter().filter(|module| module.is_named("types"));
        assert_eq!(
            types.map(ToString::to_string).collect::<Vec<_>>(),
            ["kernels::types", "sweeps::types"]
        );
    }

    #[test]
    fn paths_become_filters_of_their_program() {
        let modules = [("a", Some("one")), ("a", Some("two")), ("b", None), ("c", Some("one"))]
            .map(|(program, module)| TestModule::new(program, module));
        let has_test = |_: &TestModule, test: &str| test == "test";
        let paths = ["a::one", "b", "a::two::test", "c::one", "c"];
        let programs = by_program(&modules, &paths, has_test).expect("they exist");
        assert_eq!(programs["a"], ["one::", "two::test"]);
        assert!(programs["b"].is_empty() && programs["c"].is_empty());
        for wrong in ["d", "a::three", "b::one", "a::one::other"] {
            assert!(by_program(&modules, &[wrong], has_test).is_err(), "{wrong}");
        }
    }
}
