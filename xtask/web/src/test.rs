//! The pages, used in a real browser.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use xtask::debian::{apt, can_install};

use crate::bundle::{self, Kind};
use crate::places::{Missing, npm_packages, root, run as run_command, target};
use crate::serve;

/// The browser's program, where it is in none of the usual places.
const BROWSER_VARIABLE: &str = "BURN_WGSL_BROWSER";

#[derive(Default)]
pub struct Options {
    only: Vec<String>,
    no_build: bool,
}

impl Options {
    pub fn parse(words: &[&str]) -> Option<Self> {
        let mut options = Self::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match *word {
                "--only" => options.only.push((*words.next()?).to_owned()),
                "--no-build" => options.no_build = true,
                _ => return None,
            }
        }
        Some(options)
    }

    /// Whether a test is among those that were asked for.
    fn takes(&self, test: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|word| test.contains(word))
    }
}

pub fn run(options: &Options) -> Result<()> {
    let browser = find_browser()?;
    let folder = match options.no_build {
        true => target().join("web-checks"),
        false => bundle::build(Kind::WithChecks)?,
    };
    let modules = npm_packages("web/tests")?;
    let results = target().join("web-tests");
    fs::create_dir_all(&results)?;
    if options.takes("native") {
        let saved = results.join("native.mpk");
        digits(1, results.join("native.json"), &["--save".as_ref(), saved.as_os_str()])?;
    }
    let server = serve::listen(0)?;
    let address = format!("http://{}", server.local_addr()?);
    std::thread::spawn(move || serve::answer(&server, &folder));
    let mut node = Command::new("node");
    node.arg(root().join("web/tests/run.mjs")).args(&options.only);
    node.env("PAGES", address).env("BROWSER", browser).env("MODULES", modules);
    node.env("RESULTS", &results);
    run_command(&mut node)?;
    if options.takes("train") { same_predictions(&results) } else { Ok(()) }
}

/// What the Train page saved sees as much in the native example.
fn same_predictions(results: &Path) -> Result<()> {
    let page: Value = serde_json::from_slice(&fs::read(results.join("train.json"))?)?;
    let saved = results.join("digits.mpk");
    let native = digits(0, results.join("loaded.json"), &["--load".as_ref(), saved.as_os_str()])?;
    let right = |share: &Value| share.as_f64().context("an accuracy is missing");
    let (there, here) = (right(&page["accuracyOfFile"])?, right(&native["test_accuracy"])?);
    println!("    saved in the browser: {there} right there, {here} right in the native example");
    // One image may lie on the border between two digits.
    let images = native["test_images"].as_f64().context("the count of test images is missing")?;
    ensure!((there - here).abs() * images < 1.5, "the same weights see other digits natively");
    Ok(())
}

/// Runs the native example on the CPU, and reads what it measured.
fn digits(epochs: usize, json: PathBuf, words: &[&OsStr]) -> Result<Value> {
    let run = xtask::digits::Run { device: Some("cpu"), epochs, json };
    xtask::digits::run(run, |command| command.args(words)).map_err(anyhow::Error::msg)
}

/// Chromium: one that is here, else Debian's where it can be installed.
fn find_browser() -> Result<PathBuf> {
    if let Some(browser) = std::env::var_os(BROWSER_VARIABLE) {
        return Ok(browser.into());
    }
    let known = || {
        let folders = std::env::var_os("PATH").unwrap_or_default();
        let names =
            ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"];
        let folders: Vec<PathBuf> = std::env::split_paths(&folders).collect();
        names.iter().find_map(|name| {
            folders.iter().map(|folder| folder.join(name)).find(|file| file.is_file())
        })
    };
    if let Some(browser) = known() {
        return Ok(browser);
    }
    if can_install() {
        println!("    no Chromium here; installing Debian's as root");
        run_command(&mut apt(&["update"]))?;
        run_command(&mut apt(&["install", "--yes", "--no-install-recommends", "chromium"]))?;
    }
    let missing =
        || Missing(format!("install Chromium or Chrome, or name it in {BROWSER_VARIABLE}"));
    Ok(known().ok_or_else(missing)?)
}
