//! The codes of `docs/symptoms.md`: each that the program or a page names has an entry.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::style::sources;

/// Returns the codes in a text, such as `BW11`.
fn codes(text: &str) -> BTreeSet<String> {
    let parts = text.split("BW").skip(1);
    let digits =
        parts.map(|part| part.chars().take_while(char::is_ascii_digit).collect::<String>());
    digits.filter(|digits| digits.len() == 2).map(|digits| format!("BW{digits}")).collect()
}

#[test]
fn each_code_has_an_entry() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("docs/symptoms.md")).expect("the page is there");
    let entries: Vec<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("### ")?.split_once(": "))
        .map(|(code, _)| code)
        .collect();
    let numbered: Vec<String> =
        (1..=entries.len()).map(|number| format!("BW{number:02}")).collect();
    assert_eq!(entries, numbered, "entries are numbered in their order");

    let mut named = BTreeSet::new();
    for file in
        sources(&["src", "docs", "examples", "ports", "web", "mpi"], &["rs", "md", "html", "js"])
    {
        let text = fs::read_to_string(&file).expect("sources are UTF-8");
        let codes = codes(&text);
        for code in &codes {
            assert!(entries.contains(&&**code), "{}: {code} has no entry", file.display());
        }
        if file.starts_with(root.join("src")) && !file.ends_with("explain.rs") {
            named.extend(codes);
        }
    }
    assert!(named.len() >= 20, "errors and findings name only {named:?}");
}
