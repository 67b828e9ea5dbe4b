//! The precisions, and the words that name them.

use std::fmt;
use std::str::FromStr;

/// The type in which [`autocast`](fn@super::autocast) computes products.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Precision {
    /// 32 bits: autocast is off.
    #[default]
    F32,
    /// Half precision: 11 significant bits, up to 65504. Small gradients need a loss scale. Matrix
    /// units multiply it.
    F16,
    /// The upper 16 bits of f32: 8 significant bits, and the same range. Needs no loss scale.
    Bf16,
}

/// How exactly products of f32 are computed: see [`matmul_precision`](super::matmul_precision). The names
/// are PyTorch's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum MatmulPrecision {
    /// In f32.
    #[default]
    Highest,
    /// In f32: WGSL has no type between f32 and 16 bits, and three products of 16-bit parts would take
    /// longer.
    High,
    /// Operands are rounded to bf16, and their products are added up in f32.
    Medium,
}

/// A word that names no [`Precision`] or [`MatmulPrecision`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownPrecision {
    word: String,
    /// The words that do.
    known: String,
}

impl fmt::Display for UnknownPrecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there is no precision {:?}; use {}", self.word, self.known)
    }
}

impl std::error::Error for UnknownPrecision {}

/// Returns words as a list: `a, b or c`.
fn listed(words: &[&str]) -> String {
    let (last, first) = words.split_last().unwrap_or((&"", &[]));
    format!("{} or {last}", first.join(", "))
}

/// Gives each value of a type a word.
macro_rules! words {
    ($ty:ident: $($value:ident $word:literal)*) => {
        impl fmt::Display for $ty {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $(Self::$value => $word),*
                })
            }
        }

        impl FromStr for $ty {
            type Err = UnknownPrecision;

            fn from_str(word: &str) -> Result<Self, UnknownPrecision> {
                match word {
                    $($word => Ok(Self::$value),)*
                    _ => Err(UnknownPrecision { word: word.to_owned(), known: listed(&[$($word),*]) }),
                }
            }
        }
    };
}

words!(Precision: F32 "f32" F16 "f16" Bf16 "bf16");
words!(MatmulPrecision: Highest "highest" High "high" Medium "medium");
