//! The pages, used in a real browser.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

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
}

pub fn run(options: &Options) -> Result<()> {
    let browser = find_browser()?;
    let folder = match options.no_build {
        true => target().join("web-checks"),
        false => bundle::build(Kind::WithChecks)?,
    };
    let modules = npm_packages("web/tests")?;
    let server = serve::listen(0)?;
    let address = format!("http://{}", server.local_addr()?);
    std::thread::spawn(move || serve::answer(&server, &folder));
    let mut node = Command::new("node");
    node.arg(root().join("web/tests/run.mjs")).args(&options.only);
    node.env("PAGES", address).env("BROWSER", browser).env("MODULES", modules);
    node.env("RESULTS", target().join("web-tests"));
    run_command(&mut node)
}

/// Chromium: one that is here, else Debian's if it can be installed.
fn find_browser() -> Result<PathBuf> {
    if let Some(browser) = std::env::var_os(BROWSER_VARIABLE) {
        return Ok(browser.into());
    }
    let known = || {
        let folders = std::env::var_os("PATH").unwrap_or_default();
        let names = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"];
        let folders: Vec<PathBuf> = std::env::split_paths(&folders).collect();
        names.iter().find_map(|name| folders.iter().map(|folder| folder.join(name)).find(|file| file.is_file()))
    };
    if let Some(browser) = known() {
        return Ok(browser);
    }
    let install = "apt-get update && apt-get install -y --no-install-recommends chromium";
    println!("    no Chromium here: trying Debian's");
    let _ = run_command(Command::new("sh").args(["-c", install]));
    let missing = || Missing(format!("install Chromium or Chrome, or name it in {BROWSER_VARIABLE}"));
    Ok(known().ok_or_else(missing)?)
}
