//! `docs/safety.md` names tests that exist, and every file with unsafe code.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn page() -> String {
    fs::read_to_string(root().join("docs/safety.md")).expect("the page exists")
}

/// Returns the texts in backquotes.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

#[test]
fn the_page_names_tests_that_exist() {
    let page = page();
    let tests: Vec<(&str, &str)> = quoted(&page).filter_map(|name| name.split_once("::")).collect();
    let tests: Vec<_> = tests
        .into_iter()
        .filter(|(file, _)| file.chars().all(|c| c.is_lowercase() || c == '_'))
        .collect();
    assert!(tests.len() > 20, "{tests:?}");
    for (file, name) in tests {
        let folders = ["borders", "code", "device", "kernels", "training"];
        let in_programs = folders.map(|program| format!("tests/{program}/{file}"));
        let in_programs =
            in_programs.iter().flat_map(|path| [".rs", "/mod.rs"].map(|end| path.clone() + end));
        let paths = in_programs.chain([
            format!("tests/{file}.rs"),
            format!("src/runtime/{file}.rs"),
            format!("src/custom/{file}.rs"),
        ]);
        let texts = paths.filter_map(|path| fs::read_to_string(root().join(path)).ok());
        let text: String = texts.collect();
        let test = format!("#[test]\nfn {name}()");
        let text = text.replace("\n    ", "\n");
        assert!(text.contains(&test), "there is no test {file}::{name}");
    }
}

#[test]
fn the_page_lists_every_file_with_unsafe_code() {
    let page = page();
    let listed: BTreeSet<PathBuf> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `src/")?.split('`').next())
        .map(|file| Path::new("src").join(file))
        .collect();
    let mut found = BTreeSet::new();
    let mut folders = vec![root().join("src")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("the folder exists") {
            let path = entry.expect("it is read").path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = fs::read_to_string(&path).expect("sources are UTF-8");
            let code = |line: &str| line.split("//").next().unwrap_or_default().to_owned();
            let is_unsafe = |line: String| line.contains("unsafe {") || line.contains("unsafe fn");
            if text.lines().any(|line| is_unsafe(code(line))) {
                found.insert(path.strip_prefix(root()).expect("it is below").to_path_buf());
            }
        }
    }
    assert_eq!(found, listed);
}
