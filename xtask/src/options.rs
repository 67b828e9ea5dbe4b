//! The command line of `cargo xtask test`.

use crate::arguments;

/// The options of `cargo xtask test`.
#[derive(Debug, Default, PartialEq)]
pub struct Options {
    only: Vec<String>,
    skip: Vec<String>,
    /// List the steps instead of running them.
    pub list: bool,
    /// Fail a step that would be skipped.
    pub no_skip: bool,
    /// Require no GPU adapter: GPU tests without one are skipped.
    pub no_adapter: bool,
    /// Selector of the device to test; `None` means the software adapter.
    pub device: Option<String>,
}

impl Options {
    /// Parses the arguments of `cargo xtask test`. `--only` and `--skip` accept `known_steps`.
    ///
    /// # Errors
    ///
    /// Returns an error if an option or a step is unknown, a value is missing, or two options
    /// exclude each other.
    pub fn parse(args: &[String], known_steps: &[&str]) -> Result<Self, String> {
        let mut options = Self::default();
        let switches = ["--list", "--no-adapter", "--no-skip"];
        let with_value = ["--only", "--skip", "--device"];
        for (flag, value) in arguments::parse("cargo xtask test", args, &switches, &with_value)? {
            match flag {
                "--list" => options.list = true,
                "--no-adapter" => options.no_adapter = true,
                "--no-skip" => options.no_skip = true,
                "--only" => options.only.extend(parse_steps(value, known_steps)?),
                "--skip" => options.skip.extend(parse_steps(value, known_steps)?),
                _ => options.device = Some(value.to_owned()),
            }
        }
        if options.no_adapter && options.device.is_some() {
            return Err("`--device` and `--no-adapter` cannot be used together".to_owned());
        }
        Ok(options)
    }

    /// Returns whether `--only` and `--skip` select this step.
    pub fn selects(&self, step: &str) -> bool {
        let contains = |names: &[String]| names.iter().any(|name| name == step);
        (self.only.is_empty() || contains(&self.only)) && !contains(&self.skip)
    }

    /// Returns whether `--only` names this step, and `--skip` does not.
    pub fn names(&self, step: &str) -> bool {
        !self.only.is_empty() && self.selects(step)
    }

    /// Returns the flags to repeat when a single step is run again, each with a leading space.
    pub fn rerun_flags(&self) -> String {
        let device = self.device.iter().map(|selector| format!(" --device {selector}"));
        let no_adapter = self.no_adapter.then(|| " --no-adapter".to_owned());
        device.chain(no_adapter).collect()
    }
}

/// Splits a comma-separated list of step names.
fn parse_steps(list: &str, known_steps: &[&str]) -> Result<Vec<String>, String> {
    let names: Vec<String> = list.split(',').map(str::to_owned).collect();
    match names.iter().find(|name| !known_steps.contains(&name.as_str())) {
        None => Ok(names),
        Some(unknown) => {
            Err(format!("unknown step `{unknown}`; the steps are {}", known_steps.join(", ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEPS: [&str; 4] = ["fmt", "clippy", "docs", "cpu-only"];

    fn parse(line: &str) -> Result<Options, String> {
        let args: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        Options::parse(&args, &STEPS)
    }

    #[test]
    fn only_and_skip_select_steps() {
        let options = parse("--only fmt,docs --only=clippy --skip docs").unwrap();
        let selected: Vec<&str> = STEPS.into_iter().filter(|step| options.selects(step)).collect();
        assert_eq!(selected, ["fmt", "clippy"]);
        assert!(STEPS.iter().all(|step| parse("").unwrap().selects(step)));
        assert!(options.names("fmt") && !options.names("docs") && !options.names("cpu-only"));
        assert!(!STEPS.iter().any(|step| parse("--skip docs").unwrap().names(step)));
    }

    #[test]
    fn invalid_arguments_are_rejected() {
        assert!(parse("--only frm").unwrap_err().contains("cpu-only"));
        assert!(parse("--only").unwrap_err().contains("needs a value"));
        assert!(parse("--list=1").is_err());
        assert!(parse("fmt").is_err());
        assert!(parse("--device gpu --no-adapter").is_err());
    }

    #[test]
    fn rerun_flags_repeat_the_device_options() {
        assert_eq!(parse("--device gpu:1").unwrap().rerun_flags(), " --device gpu:1");
        assert_eq!(parse("--no-adapter").unwrap().rerun_flags(), " --no-adapter");
    }
}
