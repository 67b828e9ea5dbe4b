//! The environment variables of this crate.
//!
//! Every variable is listed here and read through this module, so that a wrong value and a misspelled name
//! get a message, once.

use std::collections::BTreeSet;
use std::io::Write;
use std::sync::{LazyLock, Mutex, Once, PoisonError};
use std::{env, io};

/// Whether there are an environment and standard error, which browsers lack.
const HAS_ENVIRONMENT: bool = cfg!(not(target_arch = "wasm32"));

/// An environment variable.
#[derive(Debug)]
pub(crate) struct Variable {
    pub name: &'static str,
    /// The values that it accepts, for messages.
    expects: &'static str,
}

macro_rules! variables {
    ($($(#[$doc:meta])* $constant:ident = $name:literal: $expects:expr;)*) => {
        $(
            $(#[$doc])*
            pub(crate) const $constant: Variable = Variable { name: $name, expects: $expects };
        )*

        /// The names of all variables.
        const NAMES: &[&str] = &[$($name),*];
    };
}

const SWITCH: &str = "0 or 1";

variables! {
    /// Runs the kernels for GPUs on a software adapter, for tests.
    AS_GPU = "BURN_WGSL_AS_GPU": SWITCH;
    /// The precision of products.
    AUTOCAST = "BURN_WGSL_AUTOCAST": "f32, f16 or bf16";
    /// The cache folder.
    CACHE = "BURN_WGSL_CACHE": "a folder or off";
    /// Compiles shaders with all runtime checks.
    CHECKED = "BURN_WGSL_CHECKED": SWITCH;
    /// What is checked after each op, whether waits and lines are named, and whether launches are in debug groups.
    DEBUG = "BURN_WGSL_DEBUG": "ops, nan, finite, waits, lines and groups, separated by commas";
    /// The device of `auto`.
    DEVICE = "BURN_WGSL_DEVICE": "a device selector";
    /// Computes elementwise ops with those around them.
    FUSION = "BURN_WGSL_FUSION": SWITCH;
    /// Reports indices out of range.
    INDEX_REPORTS = "BURN_WGSL_INDEX_REPORTS": SWITCH;
    /// The precision of the operands of products.
    MATMUL_PRECISION = "BURN_WGSL_MATMUL_PRECISION": "highest, high or medium";
    /// Uses matrix units.
    MATRIX_UNITS = "BURN_WGSL_MATRIX_UNITS": SWITCH;
    /// Simulates a browser without subgroups, for tests.
    NO_SUBGROUPS = "BURN_WGSL_NO_SUBGROUPS": SWITCH;
    /// Prints each kernel that is compiled.
    PRINT_KERNELS = "BURN_WGSL_PRINT_KERNELS": SWITCH;
    /// Hides the message that there is no GPU.
    QUIET = "BURN_WGSL_QUIET": SWITCH;
    /// Reads changed files of kernels.
    RELOAD = "BURN_WGSL_RELOAD": SWITCH;
    /// Shares the status of the process.
    STATUS = "BURN_WGSL_STATUS": SWITCH;
    /// Forces a strategy of products.
    TILING = "BURN_WGSL_TILING": "the name of a strategy";
    /// How long a wait for a GPU may last without progress.
    TIMEOUT = "BURN_WGSL_TIMEOUT": "a number of seconds, or 0 for no limit";
    /// How tuning results are used.
    TUNING = "BURN_WGSL_TUNING": "off, cached or first-use";
    /// Skips the warm-up of software adapters.
    WARM = "BURN_WGSL_WARM": SWITCH;
    /// Computes convolutions with Winograd's algorithm.
    WINOGRAD = "BURN_WGSL_WINOGRAD": SWITCH;
}

/// Returns whether launches are in debug groups. wgpu passes these on if its instance has `InstanceFlags::DEBUG`.
pub(crate) fn has_debug_groups() -> bool {
    static HAS_GROUPS: LazyLock<bool> = LazyLock::new(|| DEBUG.has_word("groups"));
    *HAS_GROUPS
}

/// The variables of the project's tests, tools and other programs.
const OF_OTHERS: &[&str] = &[
    "BURN_WGSL_BLESS",
    "BURN_WGSL_BROWSER",
    "BURN_WGSL_SERVER_TOKEN",
    "BURN_WGSL_SHADERS",
    "BURN_WGSL_SOAK_MINUTES",
];
const OF_TESTS: &str = "BURN_WGSL_TEST_";

impl Variable {
    /// Returns the value; `None` if it is not set, or empty.
    pub fn value(&self) -> Option<String> {
        check_names();
        // A lossy text contains U+FFFD, which no value does.
        let value = env::var_os(self.name)?.to_string_lossy().into_owned();
        (!value.is_empty()).then_some(value)
    }

    /// Returns the value that `parse` finds. A value that it does not know is ignored, with a message.
    pub fn parse<T>(&self, parse: impl FnOnce(&str) -> Option<T>) -> Option<T> {
        let value = self.value()?;
        let parsed = parse(value.trim());
        if parsed.is_none() {
            self.ignore(&value);
        }
        parsed
    }

    /// Returns whether a word is in the value, a list that is separated by commas.
    pub fn has_word(&self, word: &str) -> bool {
        self.value().is_some_and(|words| words.split(',').any(|other| other.trim() == word))
    }

    /// Returns whether a switch is on or off; `None` if it is not set.
    pub fn switch(&self) -> Option<bool> {
        self.parse(|value| match value.to_ascii_lowercase().as_str() {
            "1" | "on" | "true" | "yes" => Some(true),
            "0" | "off" | "false" | "no" => Some(false),
            _ => None,
        })
    }

    /// Returns whether a switch is on, which is off by default.
    pub fn is_on(&self) -> bool {
        self.switch() == Some(true)
    }

    /// Returns whether a switch is off, which is on by default.
    pub fn is_off(&self) -> bool {
        self.switch() == Some(false)
    }

    /// Prints that a value is ignored, once.
    pub fn ignore(&self, value: &str) {
        let Self { name, expects } = self;
        warn_once(format!("{name}={value:?} is ignored: use {expects}"));
    }
}

/// Prints which variables with the prefix of this crate do not exist, once.
fn check_names() {
    static CHECKED: Once = Once::new();
    if !HAS_ENVIRONMENT {
        return;
    }
    CHECKED.call_once(|| {
        for (name, _) in env::vars_os() {
            if let Some(message) = name.to_str().and_then(unknown_name) {
                warn_once(message);
            }
        }
    });
}

/// Returns a message about a name that has the prefix of this crate, and is not one of its variables.
fn unknown_name(name: &str) -> Option<String> {
    let is_known = NAMES.contains(&name) || OF_OTHERS.contains(&name) || name.starts_with(OF_TESTS);
    if is_known || !name.starts_with("BURN_WGSL_") {
        return None;
    }
    let nearest = NAMES.iter().map(|known| (distance(name, known), known)).min();
    let hint = nearest.filter(|(distance, _)| *distance <= 3);
    let hint = hint.map_or_else(String::new, |(_, known)| format!("; did you mean {known}?"));
    Some(format!("there is no variable {name}{hint}"))
}

/// Returns how many characters must be inserted, removed or replaced to turn one text into the other.
fn distance(from: &str, to: &str) -> usize {
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.bytes().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, b) in to.bytes().enumerate() {
            let replaced = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}

/// Logs a warning, or prints it if nothing takes logs. Each message appears once.
pub(crate) fn warn_once(message: String) {
    static PRINTED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let mut printed = PRINTED.lock().unwrap_or_else(PoisonError::into_inner);
    if !printed.insert(message.clone()) {
        return;
    }
    drop(printed);
    if log::log_enabled!(log::Level::Warn) {
        log::warn!("{message}");
    } else if HAS_ENVIRONMENT {
        // `eprintln!` panics if standard error is closed.
        let _ = writeln!(io::stderr(), "burn-wgsl: {message}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_names_get_a_hint() {
        for name in ["BURN_WGSL_FUSION", "BURN_WGSL_TEST_CASES", "PATH", "BURN_WGSL_BLESS"] {
            assert_eq!(unknown_name(name), None);
        }
        let message = unknown_name("BURN_WGSL_FUSSION").expect("it is misspelled");
        assert!(message.ends_with("did you mean BURN_WGSL_FUSION?"), "{message}");
        let message = unknown_name("BURN_WGSL_SOMETHING_ELSE").expect("it does not exist");
        assert!(!message.contains("did you mean"), "{message}");
    }

    #[test]
    fn distance_counts_edits() {
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("abc", "abc"), 0);
    }

    /// Names that messages and docs have, too. Other modules do not read variables of this crate by themselves.
    #[test]
    fn every_variable_is_listed() {
        let mut folders = vec![std::path::PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src")];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).expect("the folder exists") {
                let path = entry.expect("it is read").path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                let text = std::fs::read_to_string(&path).expect("sources are UTF-8");
                let reads = ["var(\"BURN_WGSL_", "var_os(\"BURN_WGSL_"];
                let is_here = path.ends_with("variables.rs");
                assert!(is_here || !reads.iter().any(|it| text.contains(it)), "{}", path.display());
                let names = text.split(|c: char| !c.is_ascii_uppercase() && c != '_');
                for name in names.filter(|name| name.starts_with("BURN_WGSL_")) {
                    let is_prefix = name == "BURN_WGSL_" || name == OF_TESTS;
                    let is_test = path.ends_with("variables.rs");
                    let known = unknown_name(name).is_none();
                    assert!(known || is_prefix || is_test, "{name} in {}", path.display());
                }
            }
        }
    }
}
