//! Where the program is: the lines of its own code among the callers.

use std::backtrace::Backtrace;

/// The crates whose functions are not the program's, besides those of Burn.
const OTHERS: [&str; 12] = [
    "std",
    "core",
    "alloc",
    "test",
    "burn",
    "wgpu",
    "wgpu_core",
    "wgpu_hal",
    "naga",
    "pollster",
    "log",
    "__rustc",
];
/// Functions without a crate that are not the program's.
const ENTRIES: [&str; 5] = ["main", "_start", "clone", "start_thread", "rust_begin_unwind"];

/// This file, as the compiler names it.
const OWN_FILE: &str = file!();

/// Returns the functions of the program that are being called on this thread, with their lines if the program has them:
/// the innermost first, at most `limit`.
pub fn program_lines(limit: usize) -> Vec<String> {
    lines_of(&Backtrace::force_capture().to_string(), limit)
}

/// Returns the lines of the program in the text of a backtrace.
fn lines_of(backtrace: &str, limit: usize) -> Vec<String> {
    let mut lines = backtrace.lines().peekable();
    let mut found = Vec::new();
    while let Some(line) = lines.next() {
        let Some((number, function)) = line.trim_start().split_once(": ") else { continue };
        if number.parse::<u32>().is_err() {
            continue;
        }
        let place = lines.next_if(|next| next.trim_start().starts_with("at "));
        let place = place.map(|place| place.trim_start().trim_start_matches("at "));
        if found.len() < limit && is_of_program(function, place) {
            found.push(match place {
                Some(place) => format!("{} at {place}", short_name(function)),
                None => short_name(function),
            });
        }
    }
    found
}

fn is_of_program(function: &str, place: Option<&str>) -> bool {
    let name = short_name(function);
    let is_other = match name.split_once("::") {
        Some((name, _)) => OTHERS.contains(&name) || name.starts_with("burn_"),
        None => ENTRIES.contains(&name.as_str()) || name.starts_with("__"),
    };
    // Closures and methods may be without the name of their crate.
    let own_folder = OWN_FILE.replace('\\', "/");
    let own_folder = own_folder.strip_suffix("runtime/callers.rs").unwrap_or(OWN_FILE);
    let in_library = place.is_some_and(|place| {
        let place = place.replace('\\', "/");
        place.trim_start_matches("./").starts_with(own_folder)
            || ["/registry/src/", "/git/checkouts/", "/rustc/"]
                .iter()
                .any(|part| place.contains(part))
    });
    !is_other && !in_library
}

/// Returns the name of a function without type parameters and the hash that the compiler adds; for a method of a trait,
/// `<type as trait>::method`, that of the type and the method.
fn short_name(function: &str) -> String {
    let hash = function.rsplit_once("::h").filter(|(_, hash)| hash.len() == 16);
    let function = hash.map_or(function, |(name, _)| name);
    let (mut name, mut depth) = (String::new(), 0);
    // `<type as trait>` keeps the type; other brackets are dropped with what is in them.
    let function = match function.strip_prefix('<') {
        Some(rest) => {
            let start = rest.trim_start_matches(['&', '*']);
            let end = start.find(" as ").or_else(|| start.find('>')).unwrap_or(start.len());
            let method = rest.rsplit_once(">::").map_or("", |(_, method)| method);
            format!("{}::{method}", &start[..end])
        }
        None => function.to_owned(),
    };
    for c in function.chars() {
        match c {
            '<' => depth += 1,
            '>' => depth -= 1,
            c if depth == 0 => name.push(c),
            _ => {}
        }
    }
    name.trim_end_matches(':').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_libraries_are_left_out() {
        let text = "   0: std::backtrace::Backtrace::create\n\
            \x20            at /rustc/5980/library/std/src/backtrace.rs:331:13\n\
            \x20  1: burn_wgsl::runtime::callers::program_lines\n\
            \x20            at ./src/runtime/callers.rs:17:5\n\
            \x20  2: <burn_wgsl::Wgsl as burn_backend::FloatTensorOps>::float_into_data\n\
            \x20  3: digits::train::train::h0123456789abcdef\n\
            \x20            at ./examples/digits/train.rs:20:9\n\
            \x20  4: serde::Visitor::visit\n\
            \x20            at /home/u/.cargo/registry/src/index/serde-1/lib.rs:1:1\n\
            \x20  5: {async_fn#0}\n\
            \x20            at ./src/runtime/readback.rs:1:1\n\
            \x20  6: digits::run<alloc::vec::Vec<f32>>\n\
            \x20  7: __libc_start_call_main\n";
        let found = lines_of(text, 8);
        assert_eq!(
            found,
            ["digits::train::train at ./examples/digits/train.rs:20:9", "digits::run"]
        );
        assert_eq!(lines_of(text, 1).len(), 1);
        for (name, short) in [
            ("<digits::Training<O> as burn_wgsl::train::Saved>::parts", "digits::Training::parts"),
            ("digits::run::{{closure}}::h0123456789abcdef", "digits::run::{{closure}}"),
            ("digits::train<burn::Adam<f32>>", "digits::train"),
        ] {
            assert_eq!(short_name(name), short);
        }
        for name in ["burn_mine::main", "mainframe::run", "wgpu_demo::run"] {
            assert_eq!(is_of_program(name, None), !name.starts_with("burn_"), "{name}");
        }
        assert!(lines_of("disabled backtrace", 8).is_empty());
    }
}
