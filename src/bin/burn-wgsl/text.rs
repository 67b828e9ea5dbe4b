//! How results look in a terminal: tables and sentences of one width, sizes in units; and where they go.

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::Path;

use comfy_table::{ContentArrangement, LineStyle, Table, presets};

/// The width that tables and sentences keep to.
pub const WIDTH: u16 = 100;

/// An empty table with a heading.
pub fn table<'a>(heading: impl IntoIterator<Item = &'a str>) -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::UTF8_HORIZONTAL_ONLY)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(WIDTH)
        .set_header(heading);
    // The style already puts a space between columns.
    for column in table.column_iter_mut() {
        column.set_padding((0, 1));
    }
    table
}

/// A table whose rows stand close together: for many rows of one line each.
pub fn dense_table<'a>(heading: impl IntoIterator<Item = &'a str>) -> Table {
    let mut table = table(heading);
    table.style_mut().row_separator = LineStyle::none();
    table
}

/// A sentence, broken between words where a line would get too long.
pub fn wrapped(sentence: &str) -> String {
    let mut lines = String::new();
    let mut length = 0;
    for word in sentence.split_whitespace() {
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

/// A number of bytes in the largest unit it fills, with one decimal where it is no whole number.
pub fn bytes(count: u64) -> String {
    let units = [(1_u64 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    // A limit of 2^31 - 1 is meant as 2 GiB.
    let filled = |(unit, _): &&(u64, &str)| count.saturating_add(8) >= *unit;
    match units.iter().find(filled) {
        Some((unit, name)) if count.is_multiple_of(*unit) => format!("{} {name}", count / unit),
        Some((unit, name)) => format!("{:.1} {name}", count as f64 / *unit as f64),
        None => format!("{count} B"),
    }
}

/// Writes to standard output. A reader that has seen enough, as `| head` has, is no error.
pub fn print(text: &str) -> io::Result<()> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// Writes to a file, or to standard output where the name is `-`.
pub fn write(path: &Path, text: &str) -> io::Result<()> {
    if is_stdout(path) { print(text) } else { fs::write(path, text) }
}

/// Whether a file's name means standard output.
pub fn is_stdout(path: &Path) -> bool {
    path.as_os_str() == "-"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_told_in_the_largest_unit() {
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
            assert_eq!(bytes(count), text);
        }
    }
}
