//! A table of one GPU and its form as a file: a line with the adapter, the names of the columns, and one
//! line per row, sorted by name, with tabs between the columns. The name is the last column.

use std::collections::BTreeMap;
use std::path::Path;

/// The row of a table without its name.
pub trait Row: Sized {
    /// The names of the columns.
    const COLUMNS: &'static [&'static str];
    /// What the name of a row names: the title of the last column.
    const NAME: &'static str;

    /// Parses the columns; `None` if they are malformed.
    fn from_columns(columns: &[&str]) -> Option<Self>;

    /// Formats the columns, as many as `COLUMNS`.
    fn to_columns(&self) -> Vec<String>;
}

/// The rows of one GPU.
#[derive(Debug, PartialEq, Eq)]
pub struct Table<R> {
    /// The adapter and the version of its driver.
    pub adapter: String,
    /// The rows by their names: kernels have their short names.
    pub rows: BTreeMap<String, R>,
}

impl<R: Row> Table<R> {
    /// Reads a file; `None` if it does not exist.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read or is malformed.
    pub fn read(file: &Path) -> Result<Option<Self>, String> {
        if !file.exists() {
            return Ok(None);
        }
        std::fs::read_to_string(file)
            .map_err(|error| error.to_string())
            .and_then(|text| Self::parse(&text))
            .map(Some)
            .map_err(|error| format!("cannot read {}: {error}", file.display()))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let mut lines = text.lines();
        let adapter = lines.next().and_then(|line| line.strip_prefix("# "));
        let adapter = adapter.ok_or("the first line must be `# ` and the adapter")?;
        if lines.next() != Some(header::<R>().as_str()) {
            return Err(format!("the second line must name the columns: {}", header::<R>()));
        }
        let parse_line = |line: &str| {
            let (columns, name) = line.rsplit_once('\t')?;
            let columns: Vec<&str> = columns.split('\t').collect();
            Some((name.to_owned(), R::from_columns(&columns)?))
        };
        let rows = lines
            .map(|line| parse_line(line).ok_or_else(|| format!("malformed line: {line}")))
            .collect::<Result<_, _>>()?;
        Ok(Self { adapter: adapter.to_owned(), rows })
    }

    /// Returns the text of the file.
    pub fn to_text(&self) -> String {
        let mut text = format!("# {}\n{}\n", self.adapter, header::<R>());
        for (name, row) in &self.rows {
            text += &format!("{}\t{name}\n", row.to_columns().join("\t"));
        }
        text
    }
}

/// Returns the line with the names of the columns.
fn header<R: Row>() -> String {
    format!("{}\t{}", R::COLUMNS.join("\t"), R::NAME)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A row of two words.
    #[derive(Debug, PartialEq, Eq)]
    struct Words(String, String);

    impl Row for Words {
        const COLUMNS: &'static [&'static str] = &["first", "second"];
        const NAME: &'static str = "name";

        fn from_columns(columns: &[&str]) -> Option<Self> {
            let [first, second] = columns else { return None };
            Some(Self((*first).to_owned(), (*second).to_owned()))
        }

        fn to_columns(&self) -> Vec<String> {
            vec![self.0.clone(), self.1.clone()]
        }
    }

    #[test]
    fn tables_are_read_as_they_are_written() {
        let row = |first: &str| Words(first.to_owned(), "-".to_owned());
        let rows = BTreeMap::from([
            ("matmul TILE=128".to_owned(), row("96")),
            ("elementwise `a + b`".to_owned(), row("12")),
        ]);
        let table = Table { adapter: "NAVI31, Mesa 26.2.6".to_owned(), rows };
        let text = table.to_text();
        let lines = "first\tsecond\tname\n12\t-\telementwise `a + b`\n96\t-\tmatmul TILE=128\n";
        assert_eq!(text, format!("# NAVI31, Mesa 26.2.6\n{lines}"));
        assert_eq!(Table::parse(&text).unwrap(), table);
    }

    #[test]
    fn malformed_tables_are_rejected() {
        let error = |text: &str| Table::<Words>::parse(text).unwrap_err();
        assert!(error("").contains("adapter"));
        assert!(error("# x\nname").contains("columns: first\tsecond\tname"));
        assert!(error("# x\nfirst\tsecond\tname\n1\tcast\n").contains("malformed line: 1"));
    }
}
