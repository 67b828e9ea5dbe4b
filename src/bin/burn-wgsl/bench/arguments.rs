//! The command-line arguments of `bench`.

use std::path::PathBuf;
use std::time::Duration;

use burn_wgsl::WgslDevice;

use super::runner::Sampling;
use super::workload::{Suite, WORKLOADS, Workload};
use crate::CliError;
use crate::output::{check_writable, is_stdout};

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Suite of workloads to measure
    #[arg(value_name = "SUITE")]
    pub suite: Suite,

    /// Device to measure, such as `gpu:1` (see `burn-wgsl devices`); repeat to compare several
    /// [default: auto and cpu]
    #[arg(long = "device", value_name = "DEVICE")]
    pub devices: Vec<WgslDevice>,

    /// Workloads of the suite to measure, by their names in the report [default: all of them]
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub only: Vec<String>,

    /// Sizes to measure instead of the default ones; their meaning depends on the suite
    #[arg(
        long,
        value_name = "N,N,...",
        value_delimiter = ',',
        allow_hyphen_values = true,
        value_parser = parse_size
    )]
    pub sizes: Vec<usize>,

    /// Number of samples per measurement [default: 15, or 5 with --quick]
    #[arg(
        long,
        value_name = "N",
        allow_negative_numbers = true,
        value_parser = clap::value_parser!(u32).range(1..=10_000)
    )]
    pub rounds: Option<u32>,

    /// Measure fewer sizes with fewer and shorter samples
    #[arg(long)]
    pub quick: bool,

    /// List the GPU time of each kernel at the largest size
    #[arg(long)]
    pub profile: bool,

    /// Write all results as JSON; `-` writes to standard output instead of the tables
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Compare the times with those of an earlier run, which `--json` wrote
    #[arg(long, value_name = "FILE")]
    pub against: Option<PathBuf>,

    /// Write one line per measurement as CSV; `-` writes to standard output instead of the tables
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,

    /// Plot times and speedups as SVG; `-` writes to standard output instead of the tables
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
}

fn parse_size(text: &str) -> Result<usize, String> {
    match text.trim().parse() {
        Ok(0) => Err("a size must be at least 1".to_owned()),
        Ok(size) => Ok(size),
        Err(_) => Err("a size must be a positive integer".to_owned()),
    }
}

/// The suites that are measured only if they are named.
const LARGE: [Suite; 2] = [Suite::Networks, Suite::Decode];

impl Arguments {
    /// Returns the workloads of the suite, each with its sizes in ascending order.
    pub fn workloads(&self) -> Result<Vec<(&'static Workload, Vec<usize>)>, CliError> {
        if self.suite == Suite::All && !self.sizes.is_empty() {
            return Err(CliError::Usage(
                "--sizes cannot be used with `all`, because a size means something different in \
                 each suite; name one suite instead"
                    .to_owned(),
            ));
        }
        let is_in_suite = |workload: &&Workload| {
            workload.suite == self.suite
                || self.suite == Suite::All && !LARGE.contains(&workload.suite)
        };
        let in_suite = || WORKLOADS.iter().filter(is_in_suite);
        let is_missing = |name: &&String| in_suite().all(|workload| workload.name != **name);
        if let Some(missing) = self.only.iter().find(is_missing) {
            let names: Vec<&str> = in_suite().map(|workload| workload.name).collect();
            return Err(CliError::Usage(format!(
                "the suite has no workload `{missing}`; it has {}",
                names.join(", ")
            )));
        }
        let is_selected = |workload: &&Workload| {
            self.only.is_empty() || self.only.iter().any(|name| name == workload.name)
        };
        in_suite()
            .filter(is_selected)
            .map(|workload| Ok((workload, self.sizes_of(workload)?)))
            .collect()
    }

    fn sizes_of(&self, workload: &Workload) -> Result<Vec<usize>, CliError> {
        if self.sizes.is_empty() {
            return Ok(if self.quick { workload.quick_sizes } else { workload.sizes }.to_vec());
        }
        let mut sizes = self.sizes.clone();
        sizes.sort_unstable();
        sizes.dedup();
        match sizes.last() {
            Some(size) if *size > workload.max_size => Err(CliError::Usage(format!(
                "size {size} is too large for {} ({}); the maximum is {}",
                workload.name, workload.description, workload.max_size
            ))),
            _ => Ok(sizes),
        }
    }

    /// Returns the sampling plan for workloads.
    pub fn plan(&self) -> Sampling {
        let (rounds, sample_ms, budget_ms) =
            if self.quick { (5, 20, 1000) } else { (15, 100, 10_000) };
        Sampling {
            rounds: self.rounds.map_or(rounds, |rounds| rounds as usize),
            sample_time: Duration::from_millis(sample_ms),
            budget: Duration::from_millis(budget_ms),
        }
    }

    /// Returns the sampling plan for the measured peak rates.
    pub fn ceiling_plan(&self) -> Sampling {
        Sampling { rounds: if self.quick { 3 } else { 7 }, ..self.plan() }
    }

    /// Returns whether a report option writes to standard output, which suppresses the tables.
    pub fn stdout_is_taken(&self) -> Result<bool, CliError> {
        let files = [&self.json, &self.csv, &self.plot];
        let to_stdout = files.iter().filter(|file| file.as_deref().is_some_and(is_stdout)).count();
        match to_stdout {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(CliError::Usage(
                "only one of --json, --csv and --plot can write to standard output".to_owned(),
            )),
        }
    }

    /// Checks that `--against` has a table to print.
    pub fn check_against(&self) -> Result<(), CliError> {
        let message = match self.suite {
            _ if self.against.is_none() => return Ok(()),
            Suite::Loader | Suite::Allreduce => "--against cannot be used with this suite",
            _ if self.stdout_is_taken()? => {
                "--against prints a table; write --json, --csv and --plot to files"
            }
            _ => return Ok(()),
        };
        Err(CliError::Usage(message.to_owned()))
    }

    /// Checks before any measurement that the report files can be created.
    pub fn check_files(&self) -> Result<(), CliError> {
        let mut files = [&self.json, &self.csv, &self.plot].into_iter().flatten();
        files.try_for_each(|file| check_writable(file))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct CommandLine {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn parse(line: &str) -> Result<Arguments, String> {
        let arguments = ["bench"].into_iter().chain(line.split_whitespace());
        CommandLine::try_parse_from(arguments)
            .map(|line| line.arguments)
            .map_err(|error| error.to_string())
    }

    /// Returns the error message of an invalid command line.
    fn error_of(line: &str) -> String {
        match parse(line) {
            Err(message) => message,
            Ok(arguments) => {
                let against = arguments.check_against();
                match (arguments.workloads(), arguments.stdout_is_taken(), arguments.check_files())
                {
                    (Err(error), ..) | (_, Err(error), _) | (_, _, Err(error)) => error.to_string(),
                    _ => against.expect_err("the line is wrong").to_string(),
                }
            }
        }
    }

    #[test]
    fn sizes_are_sorted_and_deduplicated() {
        let arguments =
            parse("matmul --sizes 512,64,64 --sizes 128 --device cpu --device software").unwrap();
        let workloads = arguments.workloads().unwrap();
        assert_eq!(workloads.len(), 1);
        assert_eq!(
            (workloads[0].0.name, workloads[0].1.as_slice()),
            ("matmul", &[64, 128, 512][..])
        );
        assert_eq!(arguments.devices, [WgslDevice::Cpu, WgslDevice::Software]);
    }

    #[test]
    fn quick_runs_are_shorter_and_rounds_can_be_set() {
        let (quick, full) = (parse("all --quick").unwrap(), parse("all").unwrap());
        assert!(quick.plan().rounds < full.plan().rounds);
        assert!(quick.plan().sample_time < full.plan().sample_time);
        assert_eq!(parse("conv --rounds 7").unwrap().plan().rounds, 7);
        let large = LARGE.map(|suite| WORKLOADS.iter().filter(|row| row.suite == suite).count());
        let large: usize = large.iter().sum();
        assert_eq!(full.workloads().unwrap().len() + large, WORKLOADS.len());
        assert_eq!(parse("decode").unwrap().workloads().unwrap().len(), 4);
        let two = parse("train --only lstm,mlp").unwrap().workloads().unwrap();
        assert_eq!(two.iter().map(|(row, _)| row.name).collect::<Vec<_>>(), ["mlp", "lstm"]);
    }

    #[test]
    fn invalid_arguments_are_rejected_with_a_specific_message() {
        for (line, expected) in [
            ("", "SUITE"),
            ("matmull", "matmul"),
            ("matmul --sizes 0", "must be at least 1"),
            ("matmul --sizes -4", "must be a positive integer"),
            ("matmul --sizes 64,x", "must be a positive integer"),
            ("matmul --sizes 99999999", "the maximum is 32768"),
            ("transfer --sizes 1000000", "the maximum is 65536"),
            ("all --sizes 64", "cannot be used with `all`"),
            ("train --only mlp,mpl", "no workload `mpl`; it has mlp, cnn, transformer, lstm"),
            ("matmul --rounds 0", "1..=10000"),
            ("matmul --device fpga", "Devices here"),
            ("matmul --json - --csv -", "only one of"),
            ("matmul --json - --against x.json", "prints a table"),
            ("loader --against x.json", "this suite"),
            ("matmul --json no/such/folder/x.json", "the directory no/such/folder does not exist"),
        ] {
            let message = error_of(line);
            assert!(message.contains(expected), "{line}: {message}");
        }
    }

    #[test]
    fn a_report_on_standard_output_suppresses_the_tables() {
        assert!(!parse("matmul --json x.json").unwrap().stdout_is_taken().unwrap());
        assert!(parse("matmul --json x.json --csv -").unwrap().stdout_is_taken().unwrap());
    }
}
