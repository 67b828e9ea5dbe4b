//! The command line of `cargo xtask vulkan`.

use crate::arguments;

/// The options of `cargo xtask vulkan`.
#[derive(Debug, Default)]
pub struct Options {
    /// Run only the test programs, modules and the example with these names; all if empty.
    pub only: Vec<String>,
}

impl Options {
    /// Parses the arguments.
    ///
    /// # Errors
    ///
    /// Returns an error if an option is unknown or a value is missing.
    pub fn parse(args: &[String]) -> Result<Self, String> {
        let mut options = Self::default();
        for (_, list) in arguments::parse("cargo xtask vulkan", args, &[], &["--only"])? {
            options.only.extend(list.split(',').map(str::to_owned));
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, String> {
        let args: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        Options::parse(&args)
    }

    #[test]
    fn only_selects_tests() {
        assert_eq!(parse("--only ops,models --only=digits").unwrap().only.len(), 3);
        assert!(parse("").unwrap().only.is_empty());
    }

    #[test]
    fn invalid_arguments_are_rejected() {
        assert!(parse("--only").unwrap_err().contains("needs a value"));
        assert!(parse("--bless").unwrap_err().contains("unknown argument"));
        assert!(parse("ops").is_err());
    }
}
