//! `burn-wgsl doctor`: is there a usable GPU, why not, are its results right, how fast is it?

mod classes;
mod diagnosis;
mod self_test;
mod system;

use std::path::PathBuf;
use std::time::Duration;

use burn_wgsl::WgslDevice;
use burn_wgsl::device::{AdapterInfo, DEVICE_VARIABLE, ResolvedDevice, adapters, automatic};
use burn_wgsl::runtime::Runtime;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::bench::{Ceilings, Machine, Sampling, silence_caught_panics};
use crate::output::{check_writable, print, wrap, write};
use crate::{CliError, devices};
use classes::Class;
use diagnosis::{Finding, Level, diagnose};
use self_test::{Failure, SelfTest};
use system::System;

#[derive(clap::Args)]
pub struct Arguments {
    /// Device to test [default: the device that `auto` selects; if that is the CPU, the software
    /// adapter, if there is one]
    #[arg(long, value_name = "DEVICE")]
    device: Option<WgslDevice>,
    /// Only diagnose: no self-test, no speed test
    #[arg(long)]
    quick: bool,
    /// Write a report for a bug report as JSON; `-` is standard output
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

/// The version of the report's format.
const FORMAT: u32 = 1;

/// The report. Its fields are JSON keys.
#[derive(Serialize)]
struct DoctorReport {
    format: u32,
    version: &'static str,
    machine: Machine,
    system: System,
    devices: serde_json::Value,
    findings: Vec<Finding>,
    /// The tested device.
    device: Option<String>,
    /// The kernels that its driver refused in their fast form.
    refused_kernels: Vec<String>,
    /// Where these are kept.
    #[serde(skip)]
    refusals_file: Option<PathBuf>,
    self_test: Vec<SelfTest>,
    speed: Option<Ceilings>,
    /// What the GPU reaches by its vendor.
    class: Option<Class>,
    /// Why the device could not be asked, as text.
    #[serde(skip)]
    failure: Option<String>,
}

/// The most ops of a type that are listed.
const MAX_LISTED: usize = 10;

/// Returns the lines of a finding.
fn lines(Finding { level, text, code, fixes }: &Finding) -> String {
    let mark = match level {
        Level::Good => "good:    ",
        Level::Note => "note:    ",
        Level::Problem => "problem: ",
    };
    let code = code.map_or_else(String::new, |code| format!(" [{code}]"));
    let fixes = fixes.iter().map(|fix| format!("         -> {}", wrap(fix)));
    wrap(&format!("{mark}{text}{code}")) + &fixes.collect::<String>()
}

/// Prints what was found. Returns whether a GPU, or the device that was asked for, can be used and its results are
/// right.
pub fn run(arguments: &Arguments) -> Result<bool, CliError> {
    if let Some(path) = &arguments.report {
        check_writable(path)?;
    }
    silence_caught_panics();
    let to_stdout = arguments.report.as_deref().is_some_and(crate::output::is_stdout);
    let say = |text: &str| if to_stdout { Ok(()) } else { print(text) };
    let mut report = DoctorReport::of_machine()?;
    report.findings.iter().try_for_each(|finding| say(&lines(finding)))?;
    let tested = tested_device(arguments.device)?;
    if let Some(device) = tested
        && !arguments.quick
    {
        say(&format!("\ntesting {}\n", device.describe()?))?;
        report.test(&device)?;
        say(&report.tests())?;
        report.measure(&device)?;
        say(&report.measurements())?;
    }
    if report.has_codes() {
        say("\n`burn-wgsl explain CODE` prints more about a code in brackets\n")?;
    }
    if let Some(path) = &arguments.report {
        write(path, &(serde_json::to_string_pretty(&report)? + "\n"))?;
        say(&format!("the report was written to {}\n", path.display()))?;
    }
    // A device that was asked for may also be a software adapter.
    let is_usable = report.has_gpu() || (arguments.device.is_some() && tested.is_some());
    Ok(is_usable && report.has_right_results())
}

impl DoctorReport {
    /// Returns what there is to say without using a device.
    fn of_machine() -> Result<Self, CliError> {
        let infos: Vec<AdapterInfo> =
            adapters().iter().map(|adapter| adapter.info.clone()).collect();
        let system = System::current();
        let mut findings = diagnose(&system, &infos);
        if let Err(error) = automatic() {
            let finding = Finding::problem("BW05", format!("{DEVICE_VARIABLE}: {error}"));
            findings.push(finding.fixed_by(format!("unset {DEVICE_VARIABLE}")));
        }
        Ok(Self {
            format: FORMAT,
            version: burn_wgsl::VERSION,
            machine: Machine::current(),
            system,
            devices: devices::as_json()?,
            findings,
            device: None,
            refused_kernels: Vec::new(),
            refusals_file: None,
            self_test: Vec::new(),
            speed: None,
            class: None,
            failure: None,
        })
    }

    /// Runs the self-test of a device.
    fn test(&mut self, device: &WgslDevice) -> Result<(), CliError> {
        self.device = Some(device.describe()?);
        let bar = ProgressBar::new(1000);
        if let Ok(style) = ProgressStyle::with_template("self-test [{bar:40}] {percent} %") {
            bar.set_style(style);
        }
        self.self_test = self_test::run(device, |share| bar.set_position((1000.0 * share) as u64));
        bar.finish_and_clear();
        Ok(())
    }

    /// Returns the results of the self-test.
    fn tests(&self) -> String {
        let mut out = String::new();
        for SelfTest { dtype, cases, failures } in &self.self_test {
            let right = cases - failures.len();
            out += &format!("{dtype:<5} {right} of {cases} cases are right\n");
            let mut failures: Vec<&Failure> = failures.iter().collect();
            failures.sort_by_key(|failure| failure.op);
            let by_op: Vec<&[&Failure]> = failures.chunk_by(|a, b| a.op == b.op).collect();
            for cases in by_op.iter().take(MAX_LISTED) {
                let (Failure { op, text }, count) = (&cases[0], cases.len());
                let problem =
                    format!("problem: {op} is wrong in {count} cases [BW35]; the first: {text}");
                out += &wrap(&problem);
            }
            if by_op.len() > MAX_LISTED {
                out += &format!("problem: and {} other ops\n", by_op.len() - MAX_LISTED);
            }
        }
        out
    }

    /// Measures a device, and asks its driver what it refused.
    fn measure(&mut self, device: &WgslDevice) -> Result<(), CliError> {
        let plan = Sampling {
            rounds: 3,
            sample_time: Duration::from_millis(100),
            budget: Duration::from_secs(5),
        };
        self.speed = Some(Ceilings::measure(device, &plan, |_, _| {}));
        let runtime = match device.resolve()? {
            ResolvedDevice::Adapter(index) => Runtime::of(index),
            ResolvedDevice::Cpu => return Ok(()),
        };
        match runtime {
            Err(error) => {
                let finding = Finding::new(Level::Problem, format!("the device fails: {error}"));
                let finding = finding.fixed_by("update the driver");
                self.failure = Some(lines(&finding));
                self.findings.push(finding);
            }
            Ok(runtime) => {
                self.class = classes::class_of(&runtime.info().name);
                self.refused_kernels = runtime.refusals().stored_names();
                self.refusals_file = runtime.refusals().file().map(Into::into);
            }
        }
        Ok(())
    }

    /// Returns the results of the measurements.
    fn measurements(&self) -> String {
        let Some(speed) = &self.speed else { return String::new() };
        let rate = |rate: Option<f64>, unit: &str| {
            rate.map_or_else(
                || "not measured".to_owned(),
                |rate| format!("{:.1} {unit}", rate / 1e9),
            )
        };
        let mut out = format!(
            "speed: {} of multiply-adds, {} of copies\n",
            rate(speed.flops_per_second, "GFLOP/s"),
            rate(speed.bytes_per_second, "GB/s"),
        );
        out += self.failure.as_deref().unwrap_or_default();
        if let Some(class) = self.class {
            let giga = |rate: Option<f64>| rate.map(|rate| rate / 1e9);
            let (gflops, gigabytes) = (giga(speed.flops_per_second), giga(speed.bytes_per_second));
            out += &wrap(&format!("note:    {}", class.compare(gflops, gigabytes)));
        }
        if let (count @ 1.., Some(file)) = (self.refused_kernels.len(), &self.refusals_file) {
            out += &wrap(&format!(
                "note:    the driver refused {count} kernels, which run in their plain form: slower, \
                 with the same results. A newer driver tries them again; to try them now, delete {} [BW40]",
                file.display()
            ));
        }
        out
    }

    /// Returns whether what is printed refers to entries of `docs/symptoms.md`.
    fn has_codes(&self) -> bool {
        self.findings.iter().any(|finding| finding.code.is_some())
            || self.self_test.iter().any(|test| !test.failures.is_empty())
            || !self.refused_kernels.is_empty()
    }

    /// Returns whether there is a usable GPU.
    fn has_gpu(&self) -> bool {
        self.findings.iter().any(|finding| finding.level == Level::Good)
    }

    fn has_right_results(&self) -> bool {
        self.self_test.iter().all(|test| test.failures.is_empty())
    }
}

/// Returns the device to test; `None` for the CPU.
fn tested_device(selected: Option<WgslDevice>) -> Result<Option<WgslDevice>, CliError> {
    let device = match selected {
        Some(device) => device,
        None => match automatic().map(|automatic| automatic.resolved) {
            Ok(ResolvedDevice::Adapter(_)) => WgslDevice::Auto,
            // Also if a variable selects what is not there.
            Ok(ResolvedDevice::Cpu) | Err(_) => WgslDevice::Software,
        },
    };
    match (device.resolve(), selected) {
        (Ok(ResolvedDevice::Adapter(_)), _) => Ok(Some(device.canonical())),
        (Ok(ResolvedDevice::Cpu), _) | (Err(_), None) => Ok(None),
        (Err(error), Some(_)) => Err(error.into()),
    }
}
