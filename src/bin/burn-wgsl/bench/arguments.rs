//! The command line of `bench`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use burn_wgsl::WgslDevice;

use super::runner::Plan;
use super::workload::{Suite, WORKLOADS, Workload};
use crate::Failure;
use crate::text::is_stdout;

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// What to measure
    #[arg(value_name = "WHAT")]
    pub suite: Suite,

    /// A device to measure, by its word; may be repeated [default: the automatic choice, and cpu]
    #[arg(long = "device", value_name = "WORD")]
    pub devices: Vec<WgslDevice>,

    /// Sizes instead of the usual ones; what a size is depends on what is measured
    #[arg(long, value_name = "N,N,...", value_delimiter = ',', allow_hyphen_values = true, value_parser = size)]
    pub sizes: Vec<usize>,

    /// Samples of each measurement [default: 15, with --quick 5]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub rounds: Option<u32>,

    /// Fewer sizes and shorter samples: a first look
    #[arg(long)]
    pub quick: bool,

    /// Also list the kernels of one run at the largest size, with their time on the GPU
    #[arg(long)]
    pub profile: bool,

    /// Write everything as JSON; - writes it, and nothing else, to standard output
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Write one line a measurement as CSV; - writes it, and nothing else, to standard output
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,

    /// Draw times and speedups as an SVG picture
    #[arg(long, value_name = "FILE.svg")]
    pub plot: Option<PathBuf>,
}

fn size(text: &str) -> Result<usize, String> {
    match text.trim().parse() {
        Ok(0) => Err("a size of 0 leaves nothing to measure".to_owned()),
        Ok(size) => Ok(size),
        Err(_) => Err("a size is a whole number above 0".to_owned()),
    }
}

impl Arguments {
    /// The workloads asked for, each with its sizes in order.
    pub fn workloads(&self) -> Result<Vec<(&'static Workload, Vec<usize>)>, Failure> {
        if self.suite == Suite::All && !self.sizes.is_empty() {
            let text = "--sizes means another thing for each kind of workload: use it with one of them, not with `all`";
            return Err(Failure::Usage(text.to_owned()));
        }
        let wanted =
            WORKLOADS.iter().filter(|one| self.suite == Suite::All || one.suite == self.suite);
        wanted.map(|workload| Ok((workload, self.sizes_of(workload)?))).collect()
    }

    fn sizes_of(&self, workload: &Workload) -> Result<Vec<usize>, Failure> {
        if self.sizes.is_empty() {
            return Ok(if self.quick { workload.quick } else { workload.sizes }.to_vec());
        }
        let mut sizes = self.sizes.clone();
        sizes.sort_unstable();
        sizes.dedup();
        match sizes.last() {
            Some(size) if *size > workload.largest => Err(Failure::Usage(format!(
                "a size of {size} is too much for {} ({}): the largest is {}",
                workload.name, workload.what, workload.largest
            ))),
            _ => Ok(sizes),
        }
    }

    /// How much time to take.
    pub fn plan(&self) -> Plan {
        let (rounds, sample, budget) = if self.quick { (5, 20, 1000) } else { (15, 100, 10_000) };
        let (sample, budget) = (Duration::from_millis(sample), Duration::from_millis(budget));
        Plan { rounds: self.rounds.map_or(rounds, |rounds| rounds as usize), sample, budget }
    }

    /// How much time to take for what a device can do at best.
    pub fn ceiling_plan(&self) -> Plan {
        Plan { rounds: if self.quick { 3 } else { 7 }, ..self.plan() }
    }

    /// Whether standard output is taken by a document for programs.
    pub fn stdout_is_taken(&self) -> Result<bool, Failure> {
        let files = [&self.json, &self.csv, &self.plot];
        let taken = files.iter().filter(|file| file.as_deref().is_some_and(is_stdout)).count();
        match taken {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Failure::Usage(
                "only one of --json, --csv and --plot can go to standard output".to_owned(),
            )),
        }
    }

    /// Looks whether the files can be written before anything takes its time.
    pub fn check_files(&self) -> Result<(), Failure> {
        let files = [&self.json, &self.csv, &self.plot].into_iter().flatten();
        for file in files.filter(|file| !is_stdout(file)) {
            let folder = file
                .parent()
                .filter(|folder| !folder.as_os_str().is_empty())
                .unwrap_or(Path::new("."));
            if !folder.is_dir() {
                let text = format!(
                    "cannot write {}: there is no folder {}",
                    file.display(),
                    folder.display()
                );
                return Err(Failure::Usage(text));
            }
            if file.is_dir() {
                return Err(Failure::Usage(format!(
                    "cannot write {}: it is a folder",
                    file.display()
                )));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn parse(line: &str) -> Result<Arguments, String> {
        let words = ["bench"].into_iter().chain(line.split_whitespace());
        Line::try_parse_from(words).map(|line| line.arguments).map_err(|error| error.to_string())
    }

    fn refusal(line: &str) -> String {
        match parse(line) {
            Err(text) => text,
            Ok(arguments) => {
                match (arguments.workloads(), arguments.stdout_is_taken(), arguments.check_files())
                {
                    (Err(error), ..) | (_, Err(error), _) | (_, _, Err(error)) => error.to_string(),
                    _ => panic!("{line} is accepted"),
                }
            }
        }
    }

    #[test]
    fn sizes_are_sorted_and_each_is_measured_once() {
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
    fn a_quick_run_is_shorter_and_rounds_can_be_chosen() {
        let (quick, full) = (parse("all --quick").unwrap(), parse("all").unwrap());
        assert!(
            quick.plan().rounds < full.plan().rounds && quick.plan().sample < full.plan().sample
        );
        assert_eq!(parse("conv --rounds 7").unwrap().plan().rounds, 7);
        assert_eq!(full.workloads().unwrap().len(), WORKLOADS.len());
    }

    #[test]
    fn what_makes_no_sense_is_refused_in_a_sentence() {
        for (line, says) in [
            ("", "WHAT"),
            ("matmull", "matmul"),
            ("matmul --sizes 0", "a size of 0 leaves nothing to measure"),
            ("matmul --sizes -4", "a whole number above 0"),
            ("matmul --sizes 64,x", "a whole number above 0"),
            ("matmul --sizes 99999999", "the largest is 32768"),
            ("transfer --sizes 1000000", "the largest is 65536"),
            ("all --sizes 64", "not with `all`"),
            ("matmul --rounds 0", "1..=10000"),
            ("matmul --device fpga", "Devices here"),
            ("matmul --json - --csv -", "only one of"),
            ("matmul --json no/such/folder/x.json", "there is no folder no/such/folder"),
        ] {
            let text = refusal(line);
            assert!(text.contains(says), "{line}: {text}");
        }
    }

    #[test]
    fn standard_output_is_one_document() {
        assert!(!parse("matmul --json x.json").unwrap().stdout_is_taken().unwrap());
        assert!(parse("matmul --json x.json --csv -").unwrap().stdout_is_taken().unwrap());
    }
}
