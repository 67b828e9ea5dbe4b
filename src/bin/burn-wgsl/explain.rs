//! `burn-wgsl explain`: the entries of `docs/symptoms.md`, to which errors and `doctor` refer by a code.

use crate::CliError;
use crate::output::{print, wrap};

/// The page with the entries.
const PAGE: &str = include_str!("../../../docs/symptoms.md");
/// What is in front of a code in the heading of an entry.
const HEADING: &str = "### ";

#[derive(clap::Args)]
pub struct Arguments {
    /// Code of an entry, such as `BW11`, or words that it contains [default: list all entries]
    #[arg(value_name = "CODE|WORD")]
    words: Vec<String>,
}

/// An entry of the page.
struct Entry {
    code: &'static str,
    title: &'static str,
    text: &'static str,
}

/// Returns the entries in their order.
fn entries() -> impl Iterator<Item = Entry> {
    let sections = PAGE.split("\n## ").skip(1);
    sections
        .flat_map(|section| section.split(&format!("\n{HEADING}")).skip(1).collect::<Vec<_>>())
        .map(|entry| {
            let (heading, text) = entry.split_once('\n').unwrap_or((entry, ""));
            let (code, title) = heading.split_once(": ").unwrap_or((heading, ""));
            Entry { code, title, text }
        })
}

/// Prints the entry with a code, or lists those that contain all words.
pub fn run(Arguments { words }: &Arguments) -> Result<(), CliError> {
    let given = words.join(" ");
    // As errors print it, a code is in brackets.
    let words: Vec<String> =
        words.iter().map(|word| word.trim_matches(['[', ']', '.']).to_lowercase()).collect();
    if let [code] = words.as_slice()
        && let Some(entry) = entries().find(|entry| entry.code.eq_ignore_ascii_case(code))
    {
        return print(&whole(&entry));
    }
    let found: Vec<Entry> = entries().filter(|entry| contains(entry, &words)).collect();
    match found.as_slice() {
        [] => Err(CliError::Usage(format!(
            "no entry has the code or the words `{given}`; `burn-wgsl explain` lists all"
        ))),
        [entry] => print(&whole(entry)),
        entries => {
            let lines =
                entries.iter().map(|Entry { code, title, .. }| format!("{code}  {title}\n"));
            print(&(lines.collect::<String>() + "\n`burn-wgsl explain CODE` prints one of them.\n"))
        }
    }
}

/// Returns whether an entry contains all words, in any case.
fn contains(Entry { code, title, text }: &Entry, words: &[String]) -> bool {
    let text = format!("{code} {title} {text}").to_lowercase();
    words.iter().all(|word| text.contains(word))
}

/// Returns an entry as plain text.
fn whole(Entry { code, title, text }: &Entry) -> String {
    let items = text.split("\n- ").skip(1).map(|item| wrap(&plain(item)));
    format!("{code}: {title}\n\n{}", items.collect::<Vec<_>>().join("\n"))
}

/// Returns Markdown without emphasis and links. A link is followed by its page.
fn plain(markdown: &str) -> String {
    let mut out = String::new();
    let mut rest = markdown;
    while let Some((before, (label, target, after))) = next_link(rest) {
        out += before;
        out += label;
        if target.contains("://") {
            out += &format!(" ({target})");
        } else if Some(label) != target.split('#').next() {
            out += &format!(" (docs/{target})");
        }
        rest = after;
    }
    (out + rest).replace("**", "").replace("docs/../", "")
}

/// Returns what is before the first link, and its label, its target and what follows.
fn next_link(text: &str) -> Option<(&str, (&str, &str, &str))> {
    let (before_label, after) = text.split_once("](")?;
    let (before, label) = before_label.rsplit_once('[')?;
    let (target, after) = after.split_once(')')?;
    Some((before, (label, target, after)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_become_their_pages() {
        assert_eq!(plain("see [memory.md](memory.md#limits)."), "see memory.md.");
        assert_eq!(
            plain("**Cure.** [A](a.md) and [e](../examples/e)"),
            "Cure. A (docs/a.md) and e (examples/e)"
        );
        assert_eq!(plain("an index [0, 1]"), "an index [0, 1]");
    }

    #[test]
    fn words_select_entries_in_any_case() {
        let of = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
            entries()
                .filter(|entry| contains(entry, &words))
                .map(|entry| entry.code)
                .collect::<Vec<_>>()
        };
        assert!(of(&[]).len() >= 40);
        assert!(of(&["out of memory"]).contains(&"BW11"));
        assert_eq!(of(&["webgpu", "chrome://gpu"]), ["BW43"]);
        assert!(of(&["no such words"]).is_empty());
    }

    #[test]
    fn an_entry_is_printed_without_markdown() {
        for entry in entries() {
            let text = whole(&entry);
            assert!(text.starts_with(&format!("{}: ", entry.code)), "{text}");
            for part in ["\nCause. ", "\nSee it. ", "\nCure. "] {
                assert!(text.contains(part), "no {part:?} in {text}");
            }
            assert!(!text.contains("**") && !text.contains("]("), "{text}");
        }
    }
}
