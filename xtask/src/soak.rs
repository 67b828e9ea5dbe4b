//! `cargo xtask soak`: the long runs of `tests/soak/`, for an hour each or as long as asked for.

use xtask::process::{cargo, run_command};

use crate::arguments;

/// The options of `cargo xtask soak`.
#[derive(Debug, PartialEq)]
pub struct Options {
    minutes: f64,
}

impl Options {
    /// Parses the arguments of `cargo xtask soak`.
    ///
    /// # Errors
    ///
    /// Returns an error if an option is unknown, a value is missing, or the time is not a positive
    /// number.
    pub fn parse(args: &[String]) -> Result<Self, String> {
        let mut minutes = 60.0;
        for (_, value) in arguments::parse("cargo xtask soak", args, &[], &["--minutes"])? {
            minutes = match value.parse::<f64>() {
                Ok(minutes) if minutes > 0.0 && minutes.is_finite() => minutes,
                _ => return Err(format!("`--minutes {value}`: expected a number above 0")),
            };
        }
        Ok(Self { minutes })
    }
}

/// Runs the command, on the GPU of this machine and on a software adapter, where there are.
///
/// # Errors
///
/// Returns an error if the run fails: a wrong result, or memory that grows.
pub fn run(options: &Options) -> Result<(), String> {
    for tests in ["soak --", "training -- graphs::"] {
        let args = format!("test --release --locked --all-features --test {tests} --nocapture");
        let mut command = cargo(&args.split(' ').collect::<Vec<_>>());
        run_command(command.env("BURN_WGSL_SOAK_MINUTES", options.minutes.to_string()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_an_hour_or_as_asked_for() {
        let parse = |line: &str| {
            Options::parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
        };
        assert_eq!(parse(""), Ok(Options { minutes: 60.0 }));
        assert_eq!(parse("--minutes 0.5"), Ok(Options { minutes: 0.5 }));
        for line in ["--minutes", "--minutes 0", "--minutes long", "--hours 1"] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
