//! The source keeps its layers: an import or a path may run downward only, wgpu stays in the two lowest layers and
//! Burn in the two highest. This reads the source as text, so that it also sees what is compiled for other systems.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// From the bottom to the top: each may name itself and what stands before it.
const LAYERS: [&str; 6] = ["device", "runtime", "tensor", "kernels", "cpu", "backend"];
const MAY_NAME_WGPU: [&str; 2] = ["device", "runtime"];
const MAY_NAME_BURN: [&str; 2] = ["cpu", "backend"];
/// This crate by its outside name, as its binary and its macros may call it.
const THIS_CRATE: &str = "burn_wgsl";

#[test]
fn the_source_keeps_its_layers() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    read_folder(root, "src", &mut files);
    for layer in LAYERS {
        assert!(
            files.iter().any(|file| file.layer() == Some(layer)),
            "no source in src/{layer}: if the layer has moved, this test must follow"
        );
    }
    let complaints = check(&files);
    assert!(
        complaints.is_empty(),
        "{} against the layers (see ARCHITECTURE.md):\n{}",
        complaints.len(),
        complaints.join("\n")
    );
}

fn read_folder(root: &Path, folder: &str, files: &mut Vec<File>) {
    let entries = fs::read_dir(root.join(folder)).expect("the source can be read");
    let mut names: Vec<String> = entries
        .map(|entry| entry.expect("the source can be read").file_name())
        .map(|name| name.into_string().expect("source files have plain names"))
        .collect();
    names.sort();
    for name in names {
        let path = format!("{folder}/{name}");
        if root.join(&path).is_dir() {
            read_folder(root, &path, files);
        } else if name.ends_with(".rs") {
            let text = fs::read_to_string(root.join(&path)).expect("source files are UTF-8");
            files.push(File::new(&path, &text));
        }
    }
}

// --- The rules ---

/// A source file and every path that it names.
struct File {
    path: String,
    /// Where it stands in the crate: src/runtime/pool.rs is runtime, pool. Empty for src/lib.rs.
    module: Vec<String>,
    /// A program beside the library: a user of it, above all layers.
    program: bool,
    named: Vec<Named>,
}

impl File {
    fn new(path: &str, text: &str) -> Self {
        let stem = path.trim_start_matches("src/").trim_end_matches(".rs");
        let stem = stem.strip_suffix("/mod").unwrap_or(stem);
        let program = stem == "main" || stem == "bin" || stem.starts_with("bin/");
        let module: Vec<String> = match stem {
            "lib" | "main" => Vec::new(),
            _ => stem.split('/').map(str::to_owned).collect(),
        };
        Self { path: path.to_owned(), named: paths(&tokens(text), &module), module, program }
    }

    /// The name by which the crate's root knows this file's contents.
    fn home(&self) -> Option<&str> {
        self.module.first().map(String::as_str)
    }

    fn layer(&self) -> Option<&str> {
        self.home().filter(|home| rank(home).is_some())
    }
}

fn rank(name: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| *layer == name)
}

/// What is wrong, one line each.
fn check(files: &[File]) -> Vec<String> {
    let reach = reach(files);
    let mut complaints = Vec::new();
    for file in files {
        for named in &file.named {
            if let Some(what) = wrong(file, named, &reach) {
                complaints.push(format!(
                    "{}:{}: `{}`: {what}",
                    file.path,
                    named.line,
                    named.path.join("::")
                ));
            }
        }
    }
    complaints.dedup();
    complaints
}

fn wrong(file: &File, named: &Named, reach: &Reach) -> Option<String> {
    let head = named.path[0].as_str();
    let home = file.home().unwrap_or_default();
    if is_of(head, "wgpu") && !MAY_NAME_WGPU.contains(&home) {
        return Some(format!("only {} may name wgpu", MAY_NAME_WGPU.join(", ")));
    }
    // src/lib.rs may hand Burn's types on, and a program uses Burn as any user of the crate does.
    if is_of(head, "burn")
        && !MAY_NAME_BURN.contains(&home)
        && file.path != "src/lib.rs"
        && !file.program
    {
        return Some(format!("only {} may name Burn", MAY_NAME_BURN.join(", ")));
    }
    if head != "crate" || file.program {
        return None;
    }
    let own = rank(file.layer()?)?;
    let may = format!("{home} may name only {}", LAYERS[..=own].join(", "));
    let target = named.path.get(1)?.as_str();
    match (target, rank(target)) {
        ("*", _) => Some(format!("takes in every layer at once; {may}")),
        (_, Some(rank)) => (rank > own).then_some(may),
        (_, None) => {
            let above = reach.get(target)?.iter().find(|layer| **layer > own)?;
            Some(format!("leads to {}; {may}", LAYERS[*above]))
        }
    }
}

/// `wgpu` and `wgpu_hal`, `burn` and `burn_flex`.
fn is_of(name: &str, family: &str) -> bool {
    name.strip_prefix(family).is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
}

/// The layers behind each name of the crate's root that is not itself a layer: a re-export of src/lib.rs, or a module
/// that belongs to no layer. Without this they would be a way around.
type Reach = BTreeMap<String, BTreeSet<usize>>;

fn reach(files: &[File]) -> Reach {
    let mut edges: Vec<(String, String)> = Vec::new();
    for file in files {
        if file.program || file.layer().is_some() {
            continue;
        }
        for named in &file.named {
            let (Some("crate"), Some(target)) =
                (named.path.first().map(String::as_str), named.path.get(1))
            else {
                continue;
            };
            match named.module.first() {
                Some(module) => edges.push((module.clone(), target.clone())),
                None => {
                    edges.extend(named.import.iter().map(|name| (name.clone(), target.clone())))
                }
            }
        }
    }
    let mut reach = Reach::new();
    loop {
        let before: usize = reach.values().map(BTreeSet::len).sum();
        for (from, to) in &edges {
            let beyond = match rank(to) {
                Some(layer) => BTreeSet::from([layer]),
                None => reach.get(to).cloned().unwrap_or_default(),
            };
            reach.entry(from.clone()).or_default().extend(beyond);
        }
        if reach.values().map(BTreeSet::len).sum::<usize>() == before {
            return reach;
        }
    }
}

// --- Reading paths ---

/// A path of two or more names, or an import, with `self` and `super` resolved: `crate` first, or another crate.
struct Named {
    line: usize,
    path: Vec<String>,
    /// The module in which it stands.
    module: Vec<String>,
    /// For an import, the name that it brings in.
    import: Option<String>,
}

fn paths(tokens: &[Token], module: &[String]) -> Vec<Named> {
    let text = |at: usize| tokens.get(at).map_or("", |token: &Token| token.text);
    let mut reader = Reader { tokens, module: module.to_vec(), named: Vec::new() };
    // One entry an open brace: whether it opened an inline module.
    let mut braces = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let before = if at == 0 { "" } else { text(at - 1) };
        match text(at) {
            "mod" if is_name(text(at + 1)) && text(at + 2) == "{" => {
                reader.module.push(text(at + 1).to_owned());
                braces.push(true);
                at += 3;
            }
            "{" => {
                braces.push(false);
                at += 1;
            }
            "}" => {
                if braces.pop() == Some(true) {
                    reader.module.pop();
                }
                at += 1;
            }
            // Not the `use<'a>` of a return type.
            "use" if text(at + 1) != "<" => at = reader.import(at + 1, &[]),
            "extern" if text(at + 1) == "crate" => {
                reader.name(at + 2, vec![text(at + 2).to_owned()], None);
                at += 3;
            }
            // A field or a method is no path, whatever its name.
            name if is_name(name) && before != "." => at = reader.path(at),
            _ => at += 1,
        }
    }
    reader.named
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c == '_' || c.is_alphabetic())
}

struct Reader<'a> {
    tokens: &'a [Token<'a>],
    module: Vec<String>,
    named: Vec<Named>,
}

impl Reader<'_> {
    fn text(&self, at: usize) -> &str {
        self.tokens.get(at).map_or("", |token| token.text)
    }

    /// A path in code, from its first name; returns where it ends.
    fn path(&mut self, start: usize) -> usize {
        let mut path = vec![self.text(start).to_owned()];
        let mut at = start + 1;
        while self.text(at) == "::" && is_name(self.text(at + 1)) {
            path.push(self.text(at + 1).to_owned());
            at += 2;
        }
        if path.len() > 1 {
            self.name(start, path, None);
        }
        at
    }

    /// One branch of an import, after what its parents named; returns where it ends.
    fn import(&mut self, start: usize, parents: &[String]) -> usize {
        let mut path = parents.to_vec();
        let mut at = start;
        loop {
            match self.text(at) {
                "::" | "$" => at += 1,
                "{" => {
                    at += 1;
                    while !matches!(self.text(at), "}" | "") {
                        at = self.import(at, &path);
                        if self.text(at) == "," {
                            at += 1;
                        }
                    }
                    return at + 1;
                }
                "*" => {
                    path.push("*".to_owned());
                    self.name(at, path, None);
                    return at + 1;
                }
                name if is_name(name) => {
                    path.push(name.to_owned());
                    at += 1;
                    if self.text(at) == "::" {
                        continue;
                    }
                    // `a::{self}` is `a`.
                    if path.len() > 1 && path.last().is_some_and(|name| name == "self") {
                        path.pop();
                    }
                    let line_at = at - 1;
                    let mut import = path.last().cloned();
                    if self.text(at) == "as" {
                        import = Some(self.text(at + 1).to_owned());
                        at += 2;
                    }
                    self.name(line_at, path, import);
                    return at;
                }
                // Nothing of an import: a macro's own language. Step over it.
                _ => return at + 1,
            }
        }
    }

    /// Notes a path, seen from the crate's root.
    fn name(&mut self, at: usize, path: Vec<String>, import: Option<String>) {
        let supers = |path: &[String]| path.iter().take_while(|name| *name == "super").count();
        let from_here = |up: usize, rest: &[String]| {
            let kept = self.module.len().saturating_sub(up);
            let root = ["crate".to_owned()];
            [&root, &self.module[..kept], rest].concat()
        };
        let path = match path[0].as_str() {
            THIS_CRATE => [&["crate".to_owned()], &path[1..]].concat(),
            "self" => {
                let up = supers(&path[1..]);
                from_here(up, &path[1 + up..])
            }
            "super" => {
                let up = supers(&path);
                from_here(up, &path[up..])
            }
            // In src/lib.rs a layer needs no `crate::` before it.
            head if self.module.is_empty() && rank(head).is_some() => from_here(0, &path),
            _ => path,
        };
        self.named.push(Named {
            line: self.tokens.get(at).map_or(0, |token| token.line),
            path,
            module: self.module.clone(),
            import,
        });
    }
}

// --- Reading tokens ---

struct Token<'a> {
    line: usize,
    text: &'a str,
}

/// The names and signs of a Rust source, without comments, strings, characters, lifetimes and spaces.
fn tokens(source: &str) -> Vec<Token<'_>> {
    let bytes = source.as_bytes();
    let mut tokens = Vec::new();
    let (mut line, mut counted) = (1, 0);
    let mut at = 0;
    while at < bytes.len() {
        let rest = &source[at..];
        let after = &bytes[at + 1..];
        let end = match bytes[at] {
            b'/' if after.starts_with(b"/") => at + rest.find('\n').unwrap_or(rest.len()),
            b'/' if after.starts_with(b"*") => at + comment(&bytes[at..]),
            b'"' => at + quoted(&bytes[at..], b'"'),
            b'\'' => at + character_or_lifetime(rest),
            first if in_name(first) => {
                let mut end = at + name_length(&bytes[at..]);
                let next = &bytes[end..];
                let hashes = next.iter().take_while(|byte| **byte == b'#').count();
                let opens = next.get(hashes) == Some(&b'"');
                match &source[at..end] {
                    "r" | "br" | "cr" if opens => {
                        let close = format!("\"{}", "#".repeat(hashes));
                        let body = end + hashes + 1;
                        let found = source[body..].find(&close);
                        end = found.map_or(bytes.len(), |length| body + length + close.len());
                    }
                    "b" | "c" if opens && hashes == 0 => {}
                    // A name that is a keyword elsewhere: `r#type`.
                    "r" if hashes == 1 => end += 1,
                    name => {
                        line += newlines(&bytes[counted..at]);
                        counted = at;
                        tokens.push(Token { line, text: name });
                    }
                }
                end
            }
            first if first.is_ascii_whitespace() => at + 1,
            first => {
                let length = if first == b':' && after.starts_with(b":") { 2 } else { 1 };
                line += newlines(&bytes[counted..at]);
                counted = at;
                tokens.push(Token { line, text: &source[at..at + length] });
                at + length
            }
        };
        at = end;
    }
    tokens
}

/// Letters and digits; every byte of a letter outside ASCII counts.
fn in_name(byte: u8) -> bool {
    byte == b'_' || byte.is_ascii_alphanumeric() || !byte.is_ascii()
}

fn name_length(bytes: &[u8]) -> usize {
    bytes.iter().take_while(|byte| in_name(**byte)).count()
}

fn newlines(bytes: &[u8]) -> usize {
    bytes.iter().filter(|byte| **byte == b'\n').count()
}

/// The length of a block comment; these nest.
fn comment(bytes: &[u8]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < bytes.len() {
        match bytes.get(at..at + 2) {
            Some(b"/*") => {
                depth += 1;
                at += 2;
            }
            Some(b"*/") => {
                depth -= 1;
                at += 2;
                if depth == 0 {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    at
}

/// The length of a string or a character with its quotes.
fn quoted(bytes: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < bytes.len() && bytes[at] != quote {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(bytes.len())
}

/// `'x'` ends with a quote, `'static` with its name.
fn character_or_lifetime(rest: &str) -> usize {
    let mut inside = rest[1..].chars();
    let first = inside.next().unwrap_or(' ');
    if first == '\\' || inside.next() == Some('\'') {
        // A quote of its own would end `'\''` too soon, an escape does not.
        return quoted(rest.as_bytes(), b'\'');
    }
    1 + name_length(&rest.as_bytes()[1..])
}

// --- The checker itself, on invented sources ---

/// The complaints about these files, without the explanations.
fn verdict(files: &[(&str, &str)]) -> Vec<String> {
    let files: Vec<File> = files.iter().map(|(path, text)| File::new(path, text)).collect();
    check(&files)
        .iter()
        .map(|line| line.split("`: ").next().unwrap_or_default().to_owned() + "`")
        .collect()
}

#[test]
fn upward_is_found_and_downward_is_not() {
    let source =
        "use crate::device::Facts;\n\nuse crate::kernels::launch;\nfn f() { crate::tensor::g() }";
    assert_eq!(
        verdict(&[("src/runtime/pool.rs", source)]),
        [
            "src/runtime/pool.rs:3: `crate::kernels::launch`",
            "src/runtime/pool.rs:4: `crate::tensor::g`"
        ]
    );
    assert!(verdict(&[("src/backend/float.rs", source)]).is_empty());
}

#[test]
fn a_complaint_says_what_is_allowed() {
    let file = File::new("src/tensor/mod.rs", "use crate::backend::Wgsl;");
    assert_eq!(
        check(&[file]),
        [
            "src/tensor/mod.rs:1: `crate::backend::Wgsl`: tensor may name only device, runtime, tensor"
        ]
    );
}

#[test]
fn the_twin_belongs_to_the_backend_alone() {
    let calls = "fn f() { crate::cpu::sort() }";
    assert!(verdict(&[("src/backend/int.rs", calls)]).is_empty());
    for path in ["src/kernels/sort.rs", "src/device/mod.rs"] {
        assert_eq!(verdict(&[(path, calls)]).len(), 1, "{path}");
    }
    for path in ["src/cpu.rs", "src/cpu/mod.rs", "src/cpu/sort.rs"] {
        assert!(verdict(&[(path, "use burn_flex::Flex;")]).is_empty());
        assert_eq!(verdict(&[(path, "use wgpu::Buffer;")]).len(), 1, "{path}");
        assert_eq!(verdict(&[(path, "use crate::backend::X;")]).len(), 1);
    }
}

#[test]
fn groups_globs_and_other_names_are_followed() {
    let found = |source: &str| verdict(&[("src/device/mod.rs", source)]).len();
    assert_eq!(found("use crate::{device::{self, A}, tensor::{B, C as D}};"), 2);
    assert_eq!(found("use crate::kernels::*;"), 1);
    assert_eq!(found("use crate::*;"), 1);
    assert_eq!(found("use ::burn_wgsl::backend::Wgsl;"), 1);
    assert_eq!(found("pub(crate) use crate::{\n    backend\n};"), 1);
    assert_eq!(found("macro_rules! m { () => { $crate::kernels::f() } }"), 1);
    assert_eq!(found("pub(crate) struct A; use super::device::B;"), 0);
    assert_eq!(found("fn f() -> impl Iterator + use<'_> { g() }"), 0);
}

#[test]
fn super_is_counted_from_where_it_stands() {
    let found = |path: &str, source: &str| verdict(&[(path, source)]).len();
    assert_eq!(found("src/runtime/mod.rs", "use super::kernels::f;"), 1);
    assert_eq!(found("src/runtime.rs", "use super::kernels::f;"), 1);
    // A file of its own layer that has another layer's name.
    assert_eq!(found("src/runtime/pool.rs", "use super::kernels::f;"), 0);
    assert_eq!(found("src/runtime/pool.rs", "use super::super::kernels::f;"), 1);
    assert_eq!(found("src/runtime/pool.rs", "use self::super::super::kernels::f;"), 1);
    let inside = "mod tests { use super::super::kernels::f; fn g() {} }\nuse super::kernels::h;";
    assert_eq!(
        verdict(&[("src/runtime/mod.rs", inside)]),
        ["src/runtime/mod.rs:1: `crate::kernels::f`", "src/runtime/mod.rs:2: `crate::kernels::h`"]
    );
}

#[test]
fn there_is_no_way_around_through_the_root() {
    let found = |root: &str, source: &str| {
        verdict(&[("src/lib.rs", root), ("src/tensor/mod.rs", source)]).len()
    };
    let uses = "use crate::Wgsl;";
    assert_eq!(found("pub use backend::{Wgsl};", uses), 1);
    assert_eq!(found("pub use crate::backend::Other as Wgsl;", uses), 1);
    assert_eq!(found("pub use device::Wgsl;", uses), 0);
    assert_eq!(
        found("pub mod prelude { pub use crate::backend::Wgsl; }", "use crate::prelude::Wgsl;"),
        1
    );
    // A module of no layer stands as high as what it names, even through another one.
    let shared = [
        ("src/error.rs", "use crate::words::say;"),
        ("src/words.rs", "use crate::kernels::name;"),
        ("src/device/mod.rs", "use crate::error::Error;"),
        ("src/kernels/mod.rs", "use crate::error::Error;"),
    ];
    assert_eq!(verdict(&shared), ["src/device/mod.rs:1: `crate::error::Error`"]);
}

#[test]
fn wgpu_and_burn_stay_in_their_places() {
    let wgpu = [
        "use wgpu;",
        "use {std::fmt, wgpu::Limits};",
        "fn f(b: &::wgpu::Buffer) {}",
        "type A = Vec<wgpu::Buffer>;",
        "use wgpu_hal::Api;",
        "extern crate wgpu;",
    ];
    let burn = [
        "use burn::tensor::Tensor;",
        "impl burn_backend::Backend for A {}",
        "use burn_std as names;",
    ];
    let count = |path: &str, source: &str| verdict(&[(path, source)]).len();
    for source in wgpu {
        assert_eq!(count("src/device/mod.rs", source), 0, "{source}");
        assert_eq!(count("src/runtime/pool.rs", source), 0, "{source}");
        for path in ["src/tensor/mod.rs", "src/backend/mod.rs", "src/lib.rs", "src/main.rs"] {
            assert_eq!(count(path, source), 1, "{path} {source}");
        }
    }
    for source in burn {
        for path in ["src/backend/mod.rs", "src/cpu.rs", "src/lib.rs", "src/bin/x.rs"] {
            assert_eq!(count(path, source), 0, "{path} {source}");
        }
        for path in ["src/device/mod.rs", "src/kernels/mod.rs", "src/error.rs"] {
            assert_eq!(count(path, source), 1, "{path} {source}");
        }
    }
    // Fields, methods and the crate's own name are none of them.
    let harmless =
        "fn f(x: X) { x.wgpu.y(); x.burn::<u8>(); burn_wgsl::device::list(); let burn = 1; }";
    assert_eq!(count("src/tensor/mod.rs", harmless), 0);
}

#[test]
fn comments_and_strings_are_not_code() {
    let harmless = r####"
        //! See crate::kernels::a.
        /// [`crate::kernels::b`], it's wgpu::Buffer
        // crate::kernels::c
        /* crate::kernels::d /* wgpu::e */ crate::kernels::f */
        #[doc = "crate::kernels::g"]
        const A: &str = "\" crate::kernels::h \\";
        const B: &str = r#"" crate::kernels::i"#;
        const C: &[u8] = b"crate::kernels::j";
        const D: &[u8] = br##"crate::kernels::k "# wgpu::l"##;
        const E: [char; 4] = ['"', '\'', '\u{22}', 'é'];
        fn f<'a>(r#use: &'a str) -> &'static str { 'outer: loop { break 'outer; } }
    "####;
    assert_eq!(verdict(&[("src/device/mod.rs", harmless)]), Vec::<String>::new());
    // What follows them is code again, on its own line.
    let after = "const Q: char = '\"'; const R: &str = \"a\nb\";\nconst S: u8 = b'\"'; use crate::tensor::T;";
    assert_eq!(
        verdict(&[("src/device/mod.rs", after)]),
        ["src/device/mod.rs:3: `crate::tensor::T`"]
    );
    let then = format!("{harmless}\nuse crate::tensor::T;");
    assert_eq!(verdict(&[("src/device/mod.rs", &then)]).len(), 1);
}
