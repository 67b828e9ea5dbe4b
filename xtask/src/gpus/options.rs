//! The command line of `cargo xtask gpus`.

use std::path::PathBuf;

use super::pretended::{GPUS, PretendedGpu};
use crate::arguments;

/// The options of `cargo xtask gpus`.
#[derive(Debug)]
pub struct Options {
    /// The GPUs to compile for.
    pub gpus: Vec<&'static PretendedGpu>,
    /// Whether to record the figures instead of comparing them.
    pub bless: bool,
    /// Compile only kernels whose name contains this text, and keep the driver's listings.
    pub kernel: Option<String>,
    /// The folder with the tables of another run: each kernel is compared with them.
    pub against: Option<PathBuf>,
}

impl Options {
    /// Parses the arguments.
    ///
    /// # Errors
    ///
    /// Returns an error if an option or a GPU is unknown, a value is missing, or two options
    /// exclude each other.
    pub fn parse(args: &[String]) -> Result<Self, String> {
        let mut options = Self { gpus: Vec::new(), bless: false, kernel: None, against: None };
        let (switches, with_value) = (["--bless"], ["--only", "--kernel", "--against"]);
        for (flag, value) in arguments::parse("cargo xtask gpus", args, &switches, &with_value)? {
            match flag {
                "--only" => options.add_gpus(value)?,
                "--kernel" => options.kernel = Some(value.to_owned()),
                "--against" => options.against = Some(PathBuf::from(value)),
                _ => options.bless = true,
            }
        }
        let is_partial = !options.gpus.is_empty() || options.kernel.is_some();
        if options.bless && (is_partial || options.against.is_some()) {
            return Err(
                "`--bless` records every kernel on every GPU: run it without other options".into(),
            );
        }
        if options.gpus.is_empty() {
            options.gpus.extend(&GPUS);
        }
        Ok(options)
    }

    /// Adds the GPUs in a comma-separated list of names, each once.
    fn add_gpus(&mut self, list: &str) -> Result<(), String> {
        for name in list.split(',') {
            let gpu = GPUS.iter().find(|gpu| gpu.name == name).ok_or_else(|| {
                let names = GPUS.each_ref().map(|gpu| gpu.name).join(", ");
                format!("unknown GPU `{name}`; the GPUs are {names}")
            })?;
            if self.gpus.iter().all(|listed| listed.name != name) {
                self.gpus.push(gpu);
            }
        }
        Ok(())
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
    fn only_selects_gpus() {
        let names = |line: &str| -> Vec<&str> {
            parse(line).unwrap().gpus.iter().map(|gpu| gpu.name).collect()
        };
        assert_eq!(names("--only navi31,ada"), ["navi31", "ada"]);
        assert_eq!(names("--only=m1 --only ada,m1 --against x"), ["m1", "ada"]);
        assert_eq!(names("--kernel matmul").len(), GPUS.len());
    }

    #[test]
    fn invalid_arguments_are_rejected() {
        assert!(parse("--only navi99").unwrap_err().contains("navi31, "));
        assert!(parse("--only").unwrap_err().contains("needs a value"));
        assert!(parse("--bless=yes").unwrap_err().contains("unknown argument"));
        assert!(parse("navi31").unwrap_err().contains("unknown argument"));
        for option in ["--kernel conv", "--only m1", "--against x"] {
            let error = parse(&format!("--bless {option}")).unwrap_err();
            assert!(error.contains("without other options"), "{error}");
        }
    }
}
