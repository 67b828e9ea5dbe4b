//! Output: tables and wrapped text of one width, byte counts with units, and writing to files or
//! standard output.

use std::io::{ErrorKind, Write, stdout};
use std::path::Path;

use burn_wgsl::runtime;
use comfy_table::{ContentArrangement, LineStyle, Table, presets};

use crate::CliError;

/// The maximum width of tables and wrapped text, in characters.
pub const WIDTH: u16 = 100;

/// Returns an empty table with a header row and a line between rows.
pub fn table<'a>(header: impl IntoIterator<Item = &'a str>) -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::UTF8_HORIZONTAL_ONLY)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(WIDTH)
        .set_header(header);
    // The style already puts a space between columns.
    for column in table.column_iter_mut() {
        column.set_padding((0, 1));
    }
    table
}

/// Returns an empty table with a header row and no lines between rows. For many one-line rows.
pub fn dense_table<'a>(header: impl IntoIterator<Item = &'a str>) -> Table {
    let mut table = table(header);
    table.style_mut().row_separator = LineStyle::none();
    table
}

/// Wraps text between words at [`WIDTH`] and ends it with a newline.
pub fn wrap(text: &str) -> String {
    let mut lines = String::new();
    let mut length = 0;
    for word in text.split_whitespace() {
        let word_length = word.chars().count();
        if length > 0 && length + 1 + word_length > usize::from(WIDTH) {
            lines += "\n";
            length = 0;
        } else if length > 0 {
            lines += " ";
            length += 1;
        }
        lines += word;
        length += word_length;
    }
    lines + "\n"
}

/// Writes to standard output. A closed pipe, as with `| head`, is not an error.
pub fn print(text: &str) -> Result<(), CliError> {
    match stdout().write_all(text.as_bytes()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(CliError::Write { to: "standard output".to_owned(), error }),
    }
}

/// Writes to a file, or to standard output if the path is `-`.
pub fn write(path: &Path, text: &str) -> Result<(), CliError> {
    if is_stdout(path) {
        return print(text);
    }
    runtime::write_file(path, text)
        .map_err(|error| CliError::Write { to: path.display().to_string(), error })
}

/// Checks that [`write`] can write to a path, before the work for its contents.
pub fn check_writable(path: &Path) -> Result<(), CliError> {
    if is_stdout(path) {
        return Ok(());
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let cause = match folder.is_dir() {
        false => format!("the directory {} does not exist", folder.display()),
        true if path.is_dir() => "it is a directory".to_owned(),
        true => match runtime::check_writable(path) {
            Ok(()) => return Ok(()),
            Err(error) => error.to_string(),
        },
    };
    Err(CliError::Usage(format!("cannot write {}: {cause}", path.display())))
}

/// Returns whether a path is `-`, which means standard output.
pub fn is_stdout(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Quotes a CSV field if it needs quotes.
pub fn csv_field(field: &str) -> String {
    if field.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_fields_with_commas_or_quotes_are_quoted() {
        assert_eq!(csv_field("plain"), "plain");
        assert_eq!(csv_field("a, \"b\""), "\"a, \"\"b\"\"\"");
    }
}
