//! The figures of every kernel on one GPU, and their form in the repository: one line per kernel,
//! sorted by name, with tabs between the columns.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

/// The figures of a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Figures {
    /// Registers per invocation.
    pub registers: u64,
    /// Instructions or registers that are spilled to memory, as the driver counts them.
    pub spills: u64,
    /// Registers that are kept in registers of another kind.
    pub moves: u64,
    /// Bytes of memory per invocation.
    pub scratch: u64,
    /// Bytes of workgroup memory.
    pub workgroup: u64,
    pub occupancy: u64,
    pub instructions: u64,
    /// Instructions of matrix units; `None` if the driver lists no instructions.
    pub matrix: Option<u64>,
    /// The inner loop of a product.
    pub inner: Option<InnerLoop>,
}

#[cfg(test)]
impl Figures {
    /// Returns figures for tests.
    pub fn sample(registers: u64, inner: Option<InnerLoop>) -> Self {
        Self {
            registers,
            spills: 0,
            moves: 0,
            scratch: 0,
            workgroup: 0,
            occupancy: 16,
            instructions: 100,
            matrix: Some(0),
            inner,
        }
    }
}

/// The instructions between two barriers in the loop of a product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InnerLoop {
    pub multiply_adds: u64,
    pub instructions: u64,
}

/// The figures of one GPU.
#[derive(Debug, PartialEq, Eq)]
pub struct Table {
    /// The adapter and the version of its driver.
    pub adapter: String,
    /// The figures by the short name of the kernel.
    pub kernels: BTreeMap<String, Figures>,
}

/// The names of the columns.
pub const HEADER: &str =
    "registers\tspills\tmoves\tscratch\tworkgroup\toccupancy\tinstructions\tmatrix\tinner\tkernel";

impl Figures {
    /// Returns the figures in a line of `gpu-stats`; `None` if one is missing.
    pub fn from_json(line: &Value) -> Option<Self> {
        let number = |name: &str| line[name].as_u64();
        Some(Self {
            registers: number("registers")?,
            spills: number("spills")?,
            moves: number("moves")?,
            scratch: number("scratch")?,
            workgroup: number("workgroup")?,
            occupancy: number("occupancy")?,
            instructions: number("instructions")?,
            matrix: number("matrix"),
            inner: line["inner"].as_array().and_then(|pair| {
                let [multiply_adds, instructions] = pair.as_slice() else { return None };
                Some(InnerLoop {
                    multiply_adds: multiply_adds.as_u64()?,
                    instructions: instructions.as_u64()?,
                })
            }),
        })
    }

    /// Parses the columns of a line, without the kernel; `None` if they are malformed.
    fn from_columns(columns: &[&str]) -> Option<Self> {
        let [figures @ .., matrix, inner] = columns else { return None };
        let [registers, spills, moves, scratch, workgroup, occupancy, instructions] = figures
        else {
            return None;
        };
        let number = |column: &str| column.parse().ok();
        let inner = match inner.split_once('/') {
            None if *inner == "-" => None,
            None => return None,
            Some((multiply_adds, instructions)) => Some(InnerLoop {
                multiply_adds: number(multiply_adds)?,
                instructions: number(instructions)?,
            }),
        };
        Some(Self {
            registers: number(registers)?,
            spills: number(spills)?,
            moves: number(moves)?,
            scratch: number(scratch)?,
            workgroup: number(workgroup)?,
            occupancy: number(occupancy)?,
            instructions: number(instructions)?,
            matrix: if *matrix == "-" { None } else { Some(number(matrix)?) },
            inner,
        })
    }

    /// Returns the columns of a line, without the kernel.
    pub fn to_columns(&self) -> String {
        let Self { registers, spills, moves, scratch, workgroup, occupancy, .. } = self;
        let instructions = self.instructions;
        let matrix = self.matrix.map_or("-".to_owned(), |count| count.to_string());
        let inner = self.inner.map_or("-".to_owned(), |inner| inner.to_string());
        format!(
            "{registers}\t{spills}\t{moves}\t{scratch}\t{workgroup}\t{occupancy}\t{instructions}\t\
             {matrix}\t{inner}"
        )
    }

    /// Returns whether the kernel keeps values in memory that were meant for registers.
    pub fn uses_memory(&self) -> bool {
        self.spills > 0 || self.scratch > 0
    }
}

impl std::fmt::Display for InnerLoop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.multiply_adds, self.instructions)
    }
}

impl Table {
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
        if lines.next() != Some(HEADER) {
            return Err("the second line must name the columns".to_owned());
        }
        let parse_line = |line: &str| {
            let (columns, kernel) = line.rsplit_once('\t')?;
            let columns: Vec<&str> = columns.split('\t').collect();
            Some((kernel.to_owned(), Figures::from_columns(&columns)?))
        };
        let kernels = lines
            .map(|line| parse_line(line).ok_or_else(|| format!("malformed line: {line}")))
            .collect::<Result<_, _>>()?;
        Ok(Self { adapter: adapter.to_owned(), kernels })
    }

    /// Returns the text of the file.
    pub fn to_text(&self) -> String {
        let mut text = format!("# {}\n{HEADER}\n", self.adapter);
        for (kernel, figures) in &self.kernels {
            text += &format!("{}\t{kernel}\n", figures.to_columns());
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_read_as_they_are_written() {
        let figures = Figures {
            registers: 96,
            spills: 0,
            moves: 3,
            scratch: 0,
            workgroup: 8320,
            occupancy: 16,
            instructions: 2260,
            matrix: Some(32),
            inner: Some(InnerLoop { multiply_adds: 512, instructions: 725 }),
        };
        let kernels = BTreeMap::from([
            ("matmul TILE=128".to_owned(), figures.clone()),
            ("elementwise `a + b`".to_owned(), Figures { matrix: None, inner: None, ..figures }),
        ]);
        let table = Table { adapter: "NAVI31, Mesa 26.2.6".to_owned(), kernels };
        let text = table.to_text();
        assert!(text.ends_with("\n96\t0\t3\t0\t8320\t16\t2260\t32\t512/725\tmatmul TILE=128\n"));
        assert_eq!(Table::parse(&text).unwrap(), table);
    }

    #[test]
    fn malformed_tables_are_rejected() {
        assert!(Table::parse("").unwrap_err().contains("adapter"));
        assert!(Table::parse("# x\nkernel").unwrap_err().contains("columns"));
        let text = format!("# x\n{HEADER}\n1\t2\tcast\n");
        assert!(Table::parse(&text).unwrap_err().contains("malformed line: 1"));
    }

    #[test]
    fn figures_are_read_from_json() {
        let line = r#"{"registers":96,"spills":0,"moves":0,"scratch":0,"workgroup":8320,
                       "occupancy":16,"instructions":2260,"matrix":0,"inner":[512,725],"kernel":"x"}"#;
        let mut line: Value = serde_json::from_str(line).unwrap();
        let figures = Figures::from_json(&line).unwrap();
        assert_eq!(figures.to_columns(), "96\t0\t0\t0\t8320\t16\t2260\t0\t512/725");
        line["inner"] = Value::Null;
        assert_eq!(Figures::from_json(&line).unwrap().inner, None);
        line["spills"] = Value::Null;
        assert_eq!(Figures::from_json(&line), None);
    }
}
