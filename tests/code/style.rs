//! The limits of lines, functions and conditionals that CONTRIBUTING.md states.

use std::fs;
use std::path::{Path, PathBuf};

use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// The most columns of a line.
const COLUMNS: usize = 120;
/// The most lines of a function.
const LINES: usize = 80;

/// Folders with the sources of programs. Tests are lists of cases.
const PROGRAMS: [&str; 6] = ["src", "examples", "web", "xtask/src", "ports", "ecosystem"];

pub fn sources(names: &[&str], extensions: &[&str]) -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut folders: Vec<PathBuf> = names.iter().map(|name| root.join(name)).collect();
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("the folder is readable") {
            let path = entry.expect("the folder is readable").path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() && !["target", "node_modules", "dist"].contains(&&*name) {
                folders.push(path);
            } else if extensions.iter().any(|end| name.ends_with(&format!(".{end}"))) {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

#[test]
fn lines_are_not_too_long() {
    let mut long = Vec::new();
    for file in sources(
        &[&PROGRAMS[..], &["shaders", "tests", "benches", "xtask"]].concat(),
        &["rs", "wgsl"],
    ) {
        let text = fs::read_to_string(&file).expect("sources are UTF-8");
        let lines = text.lines().enumerate().filter(|(_, line)| line.chars().count() > COLUMNS);
        long.extend(lines.map(|(index, _)| format!("{}:{}", file.display(), index + 1)));
    }
    assert!(long.is_empty(), "more than {COLUMNS} columns:\n{}", long.join("\n"));
}

/// The most conditionals of a shader that are within each other.
const DEPTH: usize = 2;

/// Returns the numbers of the lines that begin a conditional in too many others.
fn deep_conditionals(text: &str) -> Vec<usize> {
    let mut depth = 0;
    let mut deep = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        match line.trim().strip_prefix("//#").and_then(|line| line.split(' ').next()) {
            Some("if") => depth += 1,
            Some("endif") => depth -= 1,
            _ => continue,
        }
        deep.extend((depth > DEPTH).then_some(number));
    }
    deep
}

#[test]
fn conditionals_of_shaders_are_not_deep() {
    let mut deep = Vec::new();
    for file in sources(&["shaders"], &["wgsl"]) {
        let text = fs::read_to_string(&file).expect("sources are UTF-8");
        let lines = deep_conditionals(&text);
        deep.extend(lines.iter().map(|number| format!("{}:{number}", file.display())));
    }
    assert!(deep.is_empty(), "more than {DEPTH} deep:\n{}", deep.join("\n"));
    let nested =
        "//#if A\n//#if B\n//#else\n//#endif\n//#if C\n//#if D\n//#endif\n//#endif\n//#endif";
    assert_eq!(deep_conditionals(nested), [6]);
}

/// The functions of a file, with their lines.
#[derive(Default)]
struct Functions(Vec<(String, usize)>);

impl Functions {
    fn add(&mut self, name: &syn::Ident, block: &syn::Block) {
        let span = block.span();
        self.0.push((name.to_string(), span.end().line - span.start().line + 1));
    }

    /// Returns the names of those that have more lines than they may.
    fn long(text: &str) -> Vec<String> {
        let mut functions = Self::default();
        functions.visit_file(&syn::parse_file(text).expect("it is Rust"));
        let is_long = |(_, lines): &(String, usize)| *lines > LINES;
        functions.0.into_iter().filter(is_long).map(|(name, _)| name).collect()
    }
}

impl<'ast> Visit<'ast> for Functions {
    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.add(&function.sig.ident, &function.block);
        visit::visit_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        if let Some(block) = &function.default {
            self.add(&function.sig.ident, block);
        }
        visit::visit_trait_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.add(&function.sig.ident, &function.block);
        visit::visit_impl_item_fn(self, function);
    }
}

#[test]
fn functions_are_not_too_long() {
    let mut long = Vec::new();
    for file in sources(&PROGRAMS, &["rs"]) {
        let text = fs::read_to_string(&file).expect("sources are UTF-8");
        let names = Functions::long(&text);
        long.extend(names.iter().map(|name| format!("{}: {name}", file.display())));
    }
    assert!(long.is_empty(), "more than {LINES} lines:\n{}", long.join("\n"));
}

#[test]
fn long_functions_are_found() {
    let of_lines = |count: usize| format!("fn short() {{}}\nfn f() {{{}}}", "\n".repeat(count - 1));
    assert_eq!(Functions::long(&of_lines(LINES)), [""; 0]);
    assert_eq!(Functions::long(&of_lines(LINES + 1)), ["f"]);
}
