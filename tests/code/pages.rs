//! The pages of `docs/` and the README: links lead to files and headings, the book lists each page, and each block of
//! Rust is compiled.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::style::sources;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns all pages that users read.
fn pages() -> Vec<PathBuf> {
    let mut pages =
        sources(&["docs", "ports", "mpi", "examples", "benches/runs", "benches/ladder"], &["md"]);
    let of_root = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md"];
    pages.extend(of_root.map(|name| root().join(name)));
    pages
}

/// Returns the lines of a page that are not in a block of code.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut in_block = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        in_block ^= is_fence;
        !in_block && !is_fence
    })
}

/// Returns the targets of the links in a page.
fn links(text: &str) -> Vec<String> {
    let joined = prose(text).collect::<Vec<_>>().join("\n");
    // A link in a span of code is none.
    let outside = joined.split('`').step_by(2).collect::<Vec<_>>().join("`");
    let targets = outside.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    targets.map(str::to_owned).collect()
}

/// Returns the anchors of the headings of a page, as GitHub and mdBook make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = prose(text).filter_map(|line| line.strip_prefix('#'));
    let mut anchors = BTreeSet::new();
    for heading in headings {
        let heading = heading.trim_start_matches('#').trim().to_lowercase();
        let is_kept = |c: &char| c.is_alphanumeric() || [' ', '-', '_'].contains(c);
        let anchor: String = heading.chars().filter(is_kept).collect::<String>().replace(' ', "-");
        let repeated = (1..).map(|number| format!("{anchor}-{number}"));
        let free =
            std::iter::once(anchor.clone()).chain(repeated).find(|name| !anchors.contains(name));
        anchors.extend(free);
    }
    anchors
}

#[test]
fn links_lead_to_files_and_headings() {
    let mut broken = Vec::new();
    for page in pages() {
        let text = read(&page);
        for link in links(&text) {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            let (path, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = match path {
                "" => page.clone(),
                path => page.parent().expect("a page is in a folder").join(path),
            };
            let is_heading = || anchors(&read(&target)).contains(anchor);
            let is_line = || target.extension().is_none_or(|end| end != "md");
            if !target.exists() || !(anchor.is_empty() || is_line() || is_heading()) {
                broken.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(broken.is_empty(), "links that lead nowhere:\n{}", broken.join("\n"));
}

#[test]
fn the_book_and_the_list_have_all_pages() {
    let docs = root().join("docs");
    let (summary, list) =
        (links(&read(&docs.join("SUMMARY.md"))), links(&read(&docs.join("README.md"))));
    for page in sources(&["docs"], &["md"]) {
        let name =
            page.strip_prefix(&docs).expect("it is in docs").to_string_lossy().replace('\\', "/");
        if name == "SUMMARY.md" {
            continue;
        }
        assert_eq!(summary.iter().filter(|link| **link == name).count(), 1, "{name} in SUMMARY.md");
        assert!(name == "README.md" || list.contains(&name), "{name} is not in docs/README.md");
    }
}

#[test]
fn blocks_of_rust_are_compiled_or_marked() {
    let library = read(&root().join("src/lib.rs"));
    for page in sources(&["docs"], &["md"]) {
        let text = read(&page);
        let fences = text.lines().map(str::trim_start).filter(|line| line.starts_with("```rust"));
        let is_compiled = |fence: &str| !fence.contains("ignore");
        if fences.filter(|fence| is_compiled(fence)).count() == 0 {
            continue;
        }
        let name = page.strip_prefix(root().join("docs")).expect("it is in docs").display();
        let is_included = library.contains(&format!("include_str!(\"../docs/{name}\")"));
        assert!(is_included, "no test compiles the code of docs/{name}");
    }
}

#[test]
fn anchors_are_those_of_headings() {
    let page = "# A page: `code`, and more\n```sh\n# a comment\n```\n## Two words\n## Two words\n";
    let expected = ["a-page-code-and-more", "two-words", "two-words-1"].map(str::to_owned);
    assert_eq!(anchors(page), expected.into());
}
