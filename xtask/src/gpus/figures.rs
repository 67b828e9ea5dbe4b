//! What a driver's compiler reports of a kernel.

use serde_json::Value;

use super::table::Row;

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

/// The instructions between two barriers in the loop of a product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InnerLoop {
    pub multiply_adds: u64,
    pub instructions: u64,
}

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

    /// Returns whether the kernel keeps values in memory that were meant for registers.
    pub fn uses_memory(&self) -> bool {
        self.spills > 0 || self.scratch > 0
    }
}

impl Row for Figures {
    const COLUMNS: &'static [&'static str] = &[
        "registers",
        "spills",
        "moves",
        "scratch",
        "workgroup",
        "occupancy",
        "instructions",
        "matrix",
        "inner",
    ];
    const NAME: &'static str = "kernel";

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

    fn to_columns(&self) -> Vec<String> {
        let numbers = [
            self.registers,
            self.spills,
            self.moves,
            self.scratch,
            self.workgroup,
            self.occupancy,
            self.instructions,
        ];
        let matrix = self.matrix.map_or("-".to_owned(), |count| count.to_string());
        let inner = self.inner.map_or("-".to_owned(), |inner| inner.to_string());
        numbers.iter().map(u64::to_string).chain([matrix, inner]).collect()
    }
}

impl std::fmt::Display for InnerLoop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.multiply_adds, self.instructions)
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_from_json() {
        let line = r#"{"registers":96,"spills":0,"moves":0,"scratch":0,"workgroup":8320,
                       "occupancy":16,"instructions":2260,"matrix":0,"inner":[512,725],"kernel":"x"}"#;
        let mut line: Value = serde_json::from_str(line).unwrap();
        let figures = Figures::from_json(&line).unwrap();
        assert_eq!(figures.to_columns().join(" "), "96 0 0 0 8320 16 2260 0 512/725");
        line["inner"] = Value::Null;
        assert_eq!(Figures::from_json(&line).unwrap().inner, None);
        line["spills"] = Value::Null;
        assert_eq!(Figures::from_json(&line), None);
    }

    #[test]
    fn columns_without_matrix_units_and_loop_are_read_as_they_are_written() {
        let figures = Figures { matrix: None, ..Figures::sample(32, None) };
        let columns = figures.to_columns();
        let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
        assert_eq!(columns[7..], ["-", "-"]);
        assert_eq!(Figures::from_columns(&columns), Some(figures));
        assert_eq!(Figures::from_columns(&columns[1..]), None);
    }
}
