//! Reads the kernels that `tests/code/variants` writes.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

/// An expanded kernel.
pub struct Kernel {
    /// The source and the definitions of the variant.
    pub name: String,
    /// The WGSL text.
    pub text: String,
}

/// Returns the paths in the file `list`, one per line.
///
/// # Errors
///
/// Returns an error if the file cannot be read.
pub fn read_list(list: &str) -> Result<Vec<PathBuf>> {
    let text = fs::read_to_string(list).with_context(|| format!("cannot read {list}"))?;
    Ok(text.lines().map(PathBuf::from).collect())
}

/// Matrix units as a kernel uses them.
#[derive(Debug, PartialEq, Eq)]
pub struct MatrixUnits {
    /// The rows and columns of the matrices.
    pub size: u32,
    /// The bits of the floats that are multiplied.
    pub bits: u32,
    /// The size of the subgroups.
    pub subgroup_size: u32,
}

impl Kernel {
    /// Reads a file whose first line is a comment with the kernel's name.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read or does not begin with a comment.
    pub fn read(file: &PathBuf) -> Result<Self> {
        let text =
            fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        let name =
            text.lines().next().and_then(|line| line.strip_prefix("// ")).with_context(|| {
                format!("{} does not begin with a kernel's name", file.display())
            })?;
        Ok(Self { name: name.to_owned(), text })
    }

    /// Returns whether the kernel uses 64-bit integers, which are an optional feature.
    pub fn has_64_bit_integers(&self) -> bool {
        let mut words = self.words();
        words.any(|word| matches!(word, "i64" | "u64"))
    }

    /// Returns whether the kernel uses subgroup operations, which are an optional feature.
    pub fn has_subgroup_operations(&self) -> bool {
        self.words().any(|word| word.starts_with("subgroup"))
    }

    /// Returns the matrix units that the kernel uses, which are an optional feature.
    pub fn matrix_units(&self) -> Option<MatrixUnits> {
        let constant = |name: &str| {
            let mut words = self.name.split_whitespace();
            words.find_map(|word| word.strip_prefix(name)?.strip_prefix('=')?.parse().ok())
        };
        self.words().find(|word| word.starts_with("coop_mat"))?;
        let bits = if self.words().any(|word| word == "f16") { 16 } else { 32 };
        Some(MatrixUnits {
            size: constant("UNIT")?,
            bits,
            subgroup_size: constant("SUBGROUP_SIZE")?,
        })
    }

    /// Returns the identifiers and numbers of the text, without comments.
    fn words(&self) -> impl Iterator<Item = &str> {
        let code = self.text.lines().filter_map(|line| line.split("//").next());
        code.flat_map(|line| line.split(|c: char| !c.is_alphanumeric() && c != '_'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_are_found_in_code_but_not_in_comments() {
        let kernel = |text: &str| Kernel { name: String::new(), text: text.to_owned() };
        assert!(kernel("alias E = vec2<u64>;").has_64_bit_integers());
        assert!(!kernel("// u64\nlet u64_ = 1;").has_64_bit_integers());
        assert!(kernel("x = subgroupAdd(x);").has_subgroup_operations());
        assert!(!kernel("// x O=i64 SUBGROUP").has_subgroup_operations());
        assert_eq!(kernel("let x = 1;").matrix_units(), None);
        let units = Kernel {
            name: "matmul UNITS UNIT=16 SUBGROUP_SIZE=32 STEP=8".to_owned(),
            text: "alias Left = coop_mat16x16<f16, A>;".to_owned(),
        };
        let expected = MatrixUnits { size: 16, bits: 16, subgroup_size: 32 };
        assert_eq!(units.matrix_units(), Some(expected));
    }
}
