//! Reads the package sources of apt, and derives sources of other suites from them.

use std::fs;
use std::path::{Path, PathBuf};

/// The folder with a file per package source.
pub const SOURCES_FOLDER: &str = "/etc/apt/sources.list.d";

/// The text of a file of apt package sources, in one of its two formats.
pub enum AptSources {
    /// `.list`: one source per line.
    Lines(String),
    /// `.sources`: stanzas of fields, in the deb822 format.
    Stanzas(String),
}

/// Returns the package sources of this system.
pub fn system_sources() -> Vec<AptSources> {
    let entries = fs::read_dir(SOURCES_FOLDER).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    files.sort();
    files.push("/etc/apt/sources.list".into());
    files.iter().filter_map(|file| AptSources::read(file)).collect()
}

impl AptSources {
    /// Reads a file; `None` if its extension is unknown or it cannot be read.
    fn read(file: &Path) -> Option<Self> {
        let text = || fs::read_to_string(file).ok();
        match file.extension()?.to_str()? {
            "list" => Some(Self::Lines(text()?)),
            "sources" => Some(Self::Stanzas(text()?)),
            _ => None,
        }
    }

    /// Returns the file extension of the format.
    pub fn extension(&self) -> &'static str {
        match self {
            Self::Lines(_) => "list",
            Self::Stanzas(_) => "sources",
        }
    }

    /// Returns whether an enabled source offers binary packages of `suite`.
    pub fn has_suite(&self, suite: &str) -> bool {
        self.with_suite(suite, suite).is_some()
    }

    /// Returns the first enabled source of binary packages of `suite`, with `suite` replaced by
    /// `new_suite`.
    pub fn with_suite(&self, suite: &str, new_suite: &str) -> Option<String> {
        match self {
            Self::Lines(text) => text.lines().find_map(|line| {
                let mut fields: Vec<&str> = line.split_whitespace().collect();
                let index = fields.iter().position(|field| *field == suite)?;
                fields[index] = new_suite;
                (fields[0] == "deb").then(|| fields.join(" ") + "\n")
            }),
            Self::Stanzas(text) => {
                // A stanza can contain comments and ends at a blank line.
                let lines = text.lines().filter(|line| !line.starts_with('#'));
                let text: Vec<&str> = lines.map(str::trim_end).collect();
                text.split(|line| line.is_empty())
                    .find_map(|stanza| stanza_with_suite(stanza, suite, new_suite))
            }
        }
    }
}

/// [`AptSources::with_suite`] of one stanza.
fn stanza_with_suite(stanza: &[&str], suite: &str, new_suite: &str) -> Option<String> {
    let field = |field_name: &str| {
        stanza.iter().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case(field_name).then(|| value.trim())
        })
    };
    let contains = |field_name: &str, word: &str| {
        field(field_name).is_some_and(|value| value.split_whitespace().any(|item| item == word))
    };
    if !contains("Types", "deb") || !contains("Suites", suite) || contains("Enabled", "no") {
        return None;
    }
    let mut text = String::new();
    for line in stanza {
        let is_suites =
            line.split_once(':').is_some_and(|(name, _)| name.eq_ignore_ascii_case("Suites"));
        if is_suites {
            text += &format!("Suites: {new_suite}");
        } else {
            text += line;
        }
        text += "\n";
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BACKPORTS: &str = "bookworm-backports";

    #[test]
    fn with_suite_rewrites_a_stanza() {
        let text = "# a comment\nTypes: deb\n# http://old.example\n\
                    URIs: http://mirror.example/debian\n\
                    Suites: bookworm bookworm-updates\nComponents: main\nSigned-By: /k.gpg\n\n\
                    Types: deb\nURIs: http://mirror.example/security\nSuites: bookworm-security\n";
        let source = AptSources::Stanzas(text.to_owned());
        assert_eq!(
            source.with_suite("bookworm", BACKPORTS).unwrap(),
            "Types: deb\nURIs: http://mirror.example/debian\nSuites: bookworm-backports\n\
             Components: main\nSigned-By: /k.gpg\n"
        );
        assert!(source.has_suite("bookworm-security"));
        assert!(!source.has_suite(BACKPORTS));
    }

    #[test]
    fn with_suite_rewrites_a_line() {
        let text = "# deb http://mirror.example/debian bookworm-backports main\n\
                    deb-src http://mirror.example/debian bookworm main\n\
                    deb [signed-by=/k.gpg] http://mirror.example/debian bookworm main contrib\n";
        let source = AptSources::Lines(text.to_owned());
        assert_eq!(
            source.with_suite("bookworm", BACKPORTS).unwrap(),
            "deb [signed-by=/k.gpg] http://mirror.example/debian bookworm-backports main contrib\n"
        );
        assert!(!source.has_suite(BACKPORTS));
    }

    #[test]
    fn disabled_and_source_only_entries_are_ignored() {
        let text = "Enabled: no\nTypes: deb\nURIs: x\nSuites: bookworm-backports\n\n\
                    Types: deb-src\nURIs: x\nSuites: bookworm-backports\n";
        assert!(!AptSources::Stanzas(text.to_owned()).has_suite(BACKPORTS));
    }
}
