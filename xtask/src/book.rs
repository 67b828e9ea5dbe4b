//! `cargo xtask book`: the pages of `docs/` as a book with a search, built by mdBook.

use std::fs;
use std::path::Path;
use std::process::Command;

use xtask::process::{root, run_command, target_dir};

use crate::arguments;

/// mdBook's configuration.
const CONFIGURATION: &str = r#"[book]
title = "burn-wgsl"
language = "en"
src = "src"

[build]
build-dir = "html"
create-missing = false

[output.html]
smart-punctuation = false
additional-css = ["book.css"]

[output.html.playground]
runnable = false
"#;

/// What is changed in mdBook's style.
const STYLE: &str = include_str!("book.css");

/// The options of `cargo xtask book`.
pub struct Options {
    /// Where links to files that are no pages lead, without a slash at its end. Without it, they are plain text.
    files: Option<String>,
}

impl Options {
    /// Parses the arguments of `cargo xtask book`.
    ///
    /// # Errors
    ///
    /// Returns an error if an argument is unknown.
    pub fn parse(args: &[String]) -> Result<Self, String> {
        let parsed = arguments::parse("cargo xtask book", args, &[], &["--files"])?;
        let files = parsed.last().map(|(_, url)| url.trim_end_matches('/').to_owned());
        Ok(Self { files })
    }
}

/// Builds the book in `target/book/html`.
///
/// # Errors
///
/// Returns an error if the pages cannot be copied, mdBook is not installed, or it fails.
pub fn run(options: &Options) -> Result<(), String> {
    let folder = target_dir().join("book");
    let _ = fs::remove_dir_all(&folder);
    copy(&root().join("docs"), &folder.join("src"), "", options)?;
    for (name, text) in [("book.toml", CONFIGURATION), ("book.css", STYLE)] {
        let write = fs::write(folder.join(name), text);
        write.map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    let mut mdbook = Command::new("mdbook");
    if mdbook.arg("--version").output().is_err() {
        return Err("mdBook is not installed: cargo install mdbook --locked".to_owned());
    }
    run_command(Command::new("mdbook").arg("build").arg(&folder))?;
    println!("built {}", folder.join("html/index.html").display());
    Ok(())
}

/// Copies a folder of pages. `inner` is its path in `docs/`, with a slash at its end.
fn copy(from: &Path, to: &Path, inner: &str, options: &Options) -> Result<(), String> {
    let failed = |path: &Path, error: std::io::Error| format!("{}: {error}", path.display());
    fs::create_dir_all(to).map_err(|error| failed(to, error))?;
    for entry in fs::read_dir(from).map_err(|error| failed(from, error))? {
        let path = entry.map_err(|error| failed(from, error))?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        let target = to.join(name);
        if path.is_dir() {
            copy(&path, &target, &format!("{inner}{name}/"), options)?;
        } else if name.ends_with(".md") {
            let text = fs::read_to_string(&path).map_err(|error| failed(&path, error))?;
            let text = with_links_out(&text, inner, options.files.as_deref());
            let text = if name == "SUMMARY.md" { text } else { with_index_pages(&text) };
            fs::write(&target, text).map_err(|error| failed(&target, error))?;
        } else {
            fs::copy(&path, &target).map_err(|error| failed(&target, error))?;
        }
    }
    Ok(())
}

/// Returns a page whose links out of `docs/` lead to `files`, or are their text if that is not given.
fn with_links_out(text: &str, inner: &str, files: Option<&str>) -> String {
    // A page in a folder of `docs/` has as many more steps up.
    let up = "../".repeat(inner.matches('/').count() + 1);
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(&format!("]({up}")) {
        let target = &rest[at + 2 + up.len()..];
        let Some((path, after)) = target.split_once(')') else { break };
        match (files, rest[..at].rfind('[')) {
            (None, Some(label)) => {
                out += &rest[..label];
                out += &rest[label + 1..at];
            }
            (files, _) => {
                out += &format!("{}]({}/{path})", &rest[..at], files.unwrap_or_default());
            }
        }
        rest = after;
    }
    out + rest
}

/// Returns a page whose links lead to `index.md` in place of `README.md`, as mdBook names these pages. The order of the
/// book is no page.
fn with_index_pages(text: &str) -> String {
    let text = text.replace("[SUMMARY.md](SUMMARY.md)", "`docs/SUMMARY.md`");
    let is_page = |name: &str| name.ends_with("README.md") && !name.contains("://");
    let mut parts = text.split("](");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (target, rest) = part.split_at(part.find(['#', ')']).unwrap_or(part.len()));
        let target = if is_page(target) {
            target.replace("README.md", "index.md")
        } else {
            target.to_owned()
        };
        out += &format!("]({target}{rest}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_out_of_the_pages_lead_to_files_or_are_text() {
        let page = "A [page](other.md#part), a [file](../src/lib.rs) and [`two`](../a/b).";
        let to = with_links_out(page, "", Some("https://host/files"));
        assert_eq!(
            to,
            "A [page](other.md#part), a [file](https://host/files/src/lib.rs) and \
             [`two`](https://host/files/a/b)."
        );
        let plain = with_links_out(page, "", None);
        assert_eq!(plain, "A [page](other.md#part), a file and `two`.");
        let inner = with_links_out("[up](../README.md) [out](../../src)", "upstream/", None);
        assert_eq!(inner, "[up](../README.md) out");
        let index =
            with_index_pages("[a](b/README.md#c) [d](README.md) [e](https://host/README.md)");
        assert_eq!(index, "[a](b/index.md#c) [d](index.md) [e](https://host/README.md)");
    }
}
