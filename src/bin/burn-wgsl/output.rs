//! Output: tables and wrapped text of one width, byte counts with units, and writing to files or
//! standard output.

use std::fs;
use std::io::{ErrorKind, Write, stdout};
use std::path::Path;

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

/// Formats a byte count in the largest unit that fits. A count that is not a multiple of the unit
/// gets one decimal.
pub fn format_bytes(count: u64) -> String {
    let units = [(1_u64 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    // The tolerance shows limits just below a unit, such as 2^30 - 1, in that unit.
    let fits = |(unit, _): &&(u64, &str)| count.saturating_add(8) >= *unit;
    match units.iter().find(fits) {
        Some((unit, name)) if count.is_multiple_of(*unit) => format!("{} {name}", count / unit),
        Some((unit, name)) => format!("{:.1} {name}", count as f64 / *unit as f64),
        None => format!("{count} B"),
    }
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
    fs::write(path, text).map_err(|error| CliError::Write { to: path.display().to_string(), error })
}

/// Returns whether a path is `-`, which means standard output.
pub fn is_stdout(path: &Path) -> bool {
    path.as_os_str() == "-"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn format_bytes_uses_the_largest_unit_that_fits() {
        let cases = [
            (0, "0 B"),
            (1000, "1000 B"),
            (32 << 10, "32 KiB"),
            (128 << 20, "128 MiB"),
            ((1 << 31) - 1, "2.0 GiB"),
            (3 << 29, "1.5 GiB"),
            (1 << 52, "4096 TiB"),
        ];
        for (count, text) in cases {
            assert_eq!(format_bytes(count), text);
        }
    }
}
