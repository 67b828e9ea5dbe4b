//! Reads the kernels that `tests/variants.rs` writes.

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
    }
}
