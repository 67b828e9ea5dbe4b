//! Tests the pages in Chromium.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use xtask::debian::{apt_get, can_install};

use crate::bundle::{self, BuildKind};
use crate::serve;
use crate::tools::{ToolMissing, npm_packages, root, run_command, target_dir};

/// The environment variable with the path of the browser, for browsers that are not in `PATH`.
const BROWSER_VARIABLE: &str = "BURN_WGSL_BROWSER";

/// The options of `cargo xtask test-web`.
#[derive(Default)]
pub struct Options {
    only: Vec<String>,
    no_build: bool,
}

impl Options {
    /// Parses the arguments; `None` if they are invalid.
    pub fn parse(args: &[&str]) -> Option<Self> {
        let mut options = Self::default();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            match *arg {
                "--only" => options.only.push((*args.next()?).to_owned()),
                "--no-build" => options.no_build = true,
                _ => return None,
            }
        }
        Some(options)
    }

    /// Returns whether `--only` selects a test.
    fn selects(&self, test: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| test.contains(name))
    }
}

/// Checks the scripts, builds the pages, unless the options forbid it, and runs the tests of `web/tests`.
///
/// # Errors
///
/// Returns an error if a tool is missing, a script has a fault, the build fails, or a test fails.
pub fn run(options: &Options) -> Result<()> {
    let browser = find_browser()?;
    lint()?;
    let kind = BuildKind::Test;
    let folder = if options.no_build { kind.folder() } else { bundle::build(kind)? };
    let node_modules = npm_packages("web/tests")?;
    let results = target_dir().join("web-tests");
    fs::create_dir_all(&results)?;
    if options.selects("native") {
        let saved = results.join("native.mpk");
        run_digits(1, results.join("native.json"), &["--save".as_ref(), saved.as_os_str()])?;
    }
    let server = serve::listen(0)?;
    let address = format!("http://{}", server.local_addr()?);
    std::thread::spawn(move || serve::serve_folder(&server, &folder));
    let mut node = Command::new("node");
    node.arg(root().join("web/tests/run.mjs")).args(&options.only);
    node.env("PAGES", address).env("BROWSER", browser).env("MODULES", node_modules);
    node.env("RESULTS", &results);
    run_command(&mut node)?;
    if options.selects("train") { compare_saved_model(&results) } else { Ok(()) }
}

/// Checks the scripts that `biome.json` lists; warnings are errors.
fn lint() -> Result<()> {
    let mut node = Command::new("node");
    node.arg(npm_packages("web/tests")?.join("@biomejs/biome/bin/biome"));
    run_command(node.args(["lint", "--error-on-warnings"]))
}

/// Checks that the native example reaches the accuracy of the Train page with the model that the
/// page saved.
fn compare_saved_model(results: &Path) -> Result<()> {
    let page_report: Value = serde_json::from_slice(&fs::read(results.join("train.json"))?)?;
    let saved = results.join("digits.mpk");
    let native_report =
        run_digits(0, results.join("loaded.json"), &["--load".as_ref(), saved.as_os_str()])?;
    let number = |report: &Value, key: &str| {
        report[key].as_f64().with_context(|| format!("the report has no number {key}"))
    };
    let browser_accuracy = number(&page_report, "loadedAccuracy")?;
    let native_accuracy = number(&native_report, "test_accuracy")?;
    println!(
        "    test accuracy of the saved model: {browser_accuracy} in the browser, \
         {native_accuracy} natively"
    );
    // Rounding can change the prediction of one image.
    let images = number(&native_report, "test_images")?;
    ensure!(
        (browser_accuracy - native_accuracy).abs() * images < 1.5,
        "the accuracy of the saved model differs natively by more than one image"
    );
    Ok(())
}

/// Runs the native example on the CPU and returns its report.
fn run_digits(epochs: usize, json: PathBuf, args: &[&OsStr]) -> Result<Value> {
    let options = xtask::digits::RunOptions { device: Some("cpu"), epochs, json };
    xtask::digits::run(options, |command| command.args(args)).map_err(anyhow::Error::msg)
}

/// Returns the path of Chromium or Chrome. Installs Debian's Chromium if there is none and this
/// process runs as root on a Debian-based system.
///
/// # Errors
///
/// Returns [`ToolMissing`] if there is no browser.
fn find_browser() -> Result<PathBuf> {
    if let Some(browser) = std::env::var_os(BROWSER_VARIABLE) {
        return Ok(browser.into());
    }
    let find_in_path = || {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let names =
            ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"];
        let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
        names.iter().find_map(|name| {
            folders.iter().map(|folder| folder.join(name)).find(|file| file.is_file())
        })
    };
    if let Some(browser) = find_in_path() {
        return Ok(browser);
    }
    if can_install() {
        println!("    no Chromium found; installing Debian's with apt-get");
        run_command(&mut apt_get(&["update"]))?;
        run_command(&mut apt_get(&["install", "--yes", "--no-install-recommends", "chromium"]))?;
    }
    let missing = || {
        ToolMissing(format!(
            "no Chromium or Chrome in PATH; install one, or set {BROWSER_VARIABLE} to its path"
        ))
    };
    Ok(find_in_path().ok_or_else(missing)?)
}
