//! Choices for an adapter, kept in a file: tuning results, and how to compile the kernels that its
//! driver refused.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use parking_lot::{Mutex, RwLock};

use super::cache::{adapter_file, adapter_key, cache_folder, read_own, write_atomically};
use crate::device::{AdapterInfo, CAN_BLOCK};

/// Choices for an adapter: a map from names to choices.
///
/// The first line of the file is a key of crate version, adapter and driver. Each further line is
/// `name = choice`.
#[derive(Debug, Default)]
pub struct Choices {
    file: Option<PathBuf>,
    /// The first line of the file, see [`adapter_key`].
    key: String,
    /// Choices that are also in the file, if there is one.
    stored: RwLock<BTreeMap<String, String>>,
    /// Orders the writes of the file: whether the last of them failed.
    write_failed: Mutex<bool>,
    /// Choices for this process only.
    process_only: RwLock<BTreeMap<String, String>>,
}

impl Choices {
    /// Opens the choices of a kind for an adapter, and loads their file if there is a valid one.
    /// The kind is the extension of the file.
    pub(crate) fn open(info: &AdapterInfo, kind: &str) -> Self {
        let Some(folder) = cache_folder() else { return Self::default() };
        let (file, key) = (adapter_file(&folder, info, kind), adapter_key(info));
        let stored = RwLock::new(parse_choices(&read_text(&file), &key).unwrap_or_default());
        Self { file: Some(file), key, stored, ..Self::default() }
    }

    /// Returns whether there are no choices.
    pub fn is_empty(&self) -> bool {
        self.stored.read().is_empty() && self.process_only.read().is_empty()
    }

    /// Returns the names of the choices in the file.
    pub fn stored_names(&self) -> Vec<String> {
        self.stored.read().keys().cloned().collect()
    }

    /// Returns the choice for `name`. A stored choice takes precedence.
    pub fn get(&self, name: &str) -> Option<String> {
        let stored = self.stored.read().get(name).cloned();
        stored.or_else(|| self.process_only.read().get(name).cloned())
    }

    /// Sets the choice for `name` in this process, without writing it to the file.
    pub fn set_for_process(&self, name: &str, choice: &str) {
        self.process_only.write().insert(name.to_owned(), choice.to_owned());
    }

    /// Sets the choice for `name` and writes it to the file.
    pub fn store(&self, name: &str, choice: &str) {
        self.stored.write().insert(name.to_owned(), choice.to_owned());
        let Some(file) = self.file.as_ref().filter(|_| CAN_BLOCK) else { return };
        // Threads that read choices do not wait for the disk.
        let mut write_failed = self.write_failed.lock();
        // Other processes may have added choices to the file.
        let mut choices = self.stored.read().clone();
        let of_others = parse_choices(&read_text(file), &self.key).unwrap_or_default();
        choices.extend(of_others.clone());
        choices.insert(name.to_owned(), choice.to_owned());
        // Such a name of the program would be read as another choice.
        let is_readable = |name: &str| !name.contains('\n') && !name.contains(" = ");
        let lines =
            choices.iter().filter(|(name, choice)| is_readable(name) && !choice.contains('\n'));
        let lines = lines.map(|(name, choice)| format!("{name} = {choice}\n"));
        let text = format!("{}\n{}", self.key, lines.collect::<String>());
        let written = write_atomically(file, text.as_bytes());
        *write_failed = written.is_err();
        if let Err(error) = written {
            log::warn!(
                "cannot write choices to {} ({error}): they apply to this process only",
                file.display()
            );
        }
        let mut stored = self.stored.write();
        for (name, choice) in of_others {
            stored.entry(name).or_insert(choice);
        }
    }

    /// Returns the path of the file, or `None` if the cache is disabled.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Returns whether the last choice could not be written to the file.
    pub fn write_failed(&self) -> bool {
        *self.write_failed.lock()
    }
}

/// The largest file of choices, in bytes.
const MAX_FILE: u64 = 4 << 20;

/// Returns the text of a file of choices; empty if it cannot be read.
fn read_text(file: &Path) -> String {
    read_own(file, MAX_FILE).and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default()
}

/// Parses the lines of a file of choices. Returns `None` if its first line is not `key`.
fn parse_choices(text: &str, key: &str) -> Option<BTreeMap<String, String>> {
    let (first, rest) = text.split_once('\n')?;
    let pair = |line: &str| {
        line.split_once(" = ").map(|(name, choice)| (name.to_owned(), choice.to_owned()))
    };
    (first == key).then(|| rest.lines().filter_map(pair).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_with_any_contents_have_no_more_than_choices() {
        bolero::check!().for_each(|bytes: &[u8]| {
            let text = format!("key\n{}", String::from_utf8_lossy(bytes));
            let choices = parse_choices(&text, "key").expect("the key matches");
            assert!(choices.len() <= text.lines().count());
            assert!(
                choices.iter().all(|(name, choice)| text.contains(&format!("{name} = {choice}")))
            );
            let _ = parse_choices(&String::from_utf8_lossy(bytes), "key");
        });
    }

    #[test]
    fn files_with_another_key_are_ignored() {
        let text = "key\na name = one choice\nno choice\nanother name = another choice\n";
        let choices = parse_choices(text, "key").expect("the key matches");
        assert_eq!(choices.len(), 2);
        assert_eq!(choices["a name"], "one choice");
        assert!(parse_choices(text, "another key").is_none());
        assert!(parse_choices("", "key").is_none());
    }
}
