//! Where the program is: the lines of its own code among the callers.

use std::backtrace::Backtrace;

/// What the names of functions start with that are not the program's.
const OTHERS: [&str; 14] = [
    "burn",
    "std::",
    "core::",
    "alloc::",
    "wgpu",
    "naga",
    "pollster",
    "test::",
    "rust_",
    "__",
    "_start",
    "clone",
    "start_thread",
    "main",
];

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
                None => short_name(function).to_owned(),
            });
        }
    }
    found
}

fn is_of_program(function: &str, place: Option<&str>) -> bool {
    // Those of traits are `<type as trait>::function`, and those of generics may have `{`.
    let name = function.trim_start_matches(['<', '&', '{', '(', '*']);
    let is_other = OTHERS.iter().any(|other| name.starts_with(other));
    // Closures and methods may be without the name of their library.
    let own_folder = OWN_FILE.strip_suffix("runtime/callers.rs");
    let is_own =
        |place: &str| own_folder.is_some_and(|own| place.trim_start_matches("./").starts_with(own));
    let in_library = place.is_some_and(|place| {
        is_own(place) || place.contains("/registry/src/") || place.contains("/rustc/")
    });
    !is_other && !in_library
}

/// Returns the name of a function without its type parameters and the hash that the compiler adds.
fn short_name(function: &str) -> &str {
    let hash = function.rsplit_once("::h").filter(|(_, hash)| hash.len() == 16);
    let name = hash.map_or(function, |(name, _)| name);
    name.split_once('<').map_or(name, |(name, _)| name).trim_end_matches("::")
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
            \x20            at ./src/runtime/transfer.rs:1:1\n\
            \x20  6: digits::run<alloc::vec::Vec<f32>>\n\
            \x20  7: __libc_start_call_main\n";
        let found = lines_of(text, 8);
        assert_eq!(
            found,
            ["digits::train::train at ./examples/digits/train.rs:20:9", "digits::run"]
        );
        assert_eq!(lines_of(text, 1).len(), 1);
        assert!(lines_of("disabled backtrace", 8).is_empty());
    }
}
