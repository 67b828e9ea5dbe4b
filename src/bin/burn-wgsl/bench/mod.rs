//! `burn-wgsl bench`: how fast the devices of this machine are, side by side.
//!
//! Workloads are data (`workload`), one runner times them (`runner`), and every report is made from one set of results
//! (`results`).

mod arguments;
mod ceiling;
mod job;
mod machine;
mod progress;
mod report;
mod results;
mod runner;
mod stats;
mod train;
mod workload;

use burn::tensor::backend::Backend;
use burn_wgsl::device::{ResolvedDevice, automatic, install_hint};
use burn_wgsl::{Wgsl, WgslDevice};

pub use arguments::Arguments;

use crate::Failure;
use crate::text::{self, bytes, wrapped};
use ceiling::Ceilings;
use machine::Machine;
use progress::Progress;
use results::{FORMAT, Measurement, Numbers, Outcome, Report, Subject};
use runner::{guarded, hush_guarded_panics};
use workload::{Cost, Workload};

/// Measures what the command line asks for and reports it.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let workloads = arguments.workloads()?;
    let stdout_is_taken = arguments.stdout_is_taken()?;
    arguments.check_files()?;
    let machine = Machine::here();
    let devices = subjects(&arguments.devices, &machine)?;
    let report = measure(arguments, &workloads, machine, devices);
    for (file, make) in
        [(&arguments.json, report::json as fn(&Report) -> _), (&arguments.csv, report::csv)]
    {
        if let Some(file) = file {
            text::write(file, &make(&report)?).map_err(|error| Failure::write(file, error))?;
        }
    }
    if let Some(file) = &arguments.plot {
        text::write(file, &report::plot(&report)?).map_err(|error| Failure::write(file, error))?;
    }
    if !stdout_is_taken {
        text::print(&report::terminal(&report))
            .map_err(|error| Failure::write("standard output", error))?;
    }
    if report.is_empty() { Err(Failure::Nothing) } else { Ok(()) }
}

/// The devices to measure, each once and by its preferred word.
fn subjects(asked: &[WgslDevice], machine: &Machine) -> Result<Vec<Subject>, Failure> {
    let asked = if asked.is_empty() { &[WgslDevice::Auto, WgslDevice::Cpu][..] } else { asked };
    let mut subjects: Vec<Subject> = Vec::new();
    for device in asked {
        let place = device.resolve()?;
        if *device == WgslDevice::Auto && place == ResolvedDevice::Cpu {
            let automatic = automatic()?;
            let install_hint = if automatic.no_gpu_found {
                format!("; {}", install_hint())
            } else {
                String::new()
            };
            let reason = &automatic.reason;
            let note = format!(
                "There is no GPU to compare with, so the CPU runs alone: {reason}{install_hint}."
            );
            eprint!("{}", wrapped(&note));
        }
        let subject = Subject::at(device.preferred(), place, machine);
        if subjects.iter().all(|other| other.device != subject.device) {
            subjects.push(subject);
        }
    }
    Ok(subjects)
}

fn measure(
    arguments: &Arguments,
    workloads: &[(&'static Workload, Vec<usize>)],
    machine: Machine,
    mut devices: Vec<Subject>,
) -> Report {
    hush_guarded_panics();
    let date = machine::now();
    let cases = workloads.iter().map(|(_, sizes)| sizes.len()).sum::<usize>() + 1;
    let progress = Progress::new(cases * devices.len());
    for subject in &mut devices {
        progress.say("ceilings", &subject.device);
        subject.ceilings = Ceilings::of(&subject.wgsl, &arguments.ceiling_plan(), |_, part| {
            progress.advance(part)
        });
    }
    let mut results = Vec::new();
    for (workload, sizes) in workloads {
        for size in sizes {
            results.extend(case(arguments, workload, *size, &devices, &progress));
        }
    }
    progress.finish();
    let mut report = Report {
        format: FORMAT,
        version: env!("CARGO_PKG_VERSION"),
        date,
        command: std::env::args().skip(1).collect(),
        rounds: arguments.plan().rounds,
        machine,
        devices,
        results,
        comparisons: Vec::new(),
    };
    let workloads: Vec<&Workload> = workloads.iter().map(|(workload, _)| *workload).collect();
    report.compare(&workloads);
    report
}

/// One workload at one size on every device.
fn case(
    arguments: &Arguments,
    workload: &Workload,
    size: usize,
    devices: &[Subject],
    progress: &Progress,
) -> Vec<Measurement> {
    let cost = (workload.cost)(size);
    let obstacles: Vec<Option<String>> =
        devices.iter().map(|subject| obstacle(workload, &cost, subject)).collect();
    let able = || devices.iter().zip(&obstacles).filter(|(_, obstacle)| obstacle.is_none());
    progress.advance(obstacles.iter().flatten().count() as f64);
    let prepare = |device: &WgslDevice| {
        Wgsl::seed(device, 1);
        (workload.prepare)(size, device)
    };
    let label = format!("{} {size}", workload.name);
    let able_devices: Vec<WgslDevice> = able().map(|(subject, _)| subject.wgsl).collect();
    let mut timings = runner::measure(&able_devices, &arguments.plan(), prepare, |device, part| {
        progress.say(&label, &device.to_string());
        progress.advance(part);
    })
    .into_iter();
    let outcomes = devices.iter().zip(obstacles).map(|(subject, obstacle)| {
        if let Some(reason) = obstacle {
            return Outcome::Skipped { reason };
        }
        let timing = timings.next().unwrap_or_else(|| Err("it was not run".to_owned()));
        let numbers = timing.and_then(|timing| {
            let error =
                workload.error.map(|error| guarded(|| error(size, &subject.wgsl))).transpose()?;
            let numbers = Numbers::of(timing, &cost, &subject.ceilings, error, arguments.profile);
            numbers.ok_or_else(|| "there are no samples".to_owned())
        });
        match numbers {
            Ok(numbers) => Outcome::Measured(Box::new(numbers)),
            Err(reason) => Outcome::Failed { reason },
        }
    });
    let (suite, name, what, unit) = (workload.suite, workload.name, workload.what, workload.unit);
    let measurement = |(subject, outcome): (&Subject, Outcome)| {
        let device = subject.device.clone();
        Measurement { suite, workload: name, what, unit, size, device, outcome }
    };
    devices.iter().zip(outcomes.collect::<Vec<_>>()).map(measurement).collect()
}

/// Why a workload cannot be run on a device, as far as that is known before.
fn obstacle(workload: &Workload, cost: &Cost, subject: &Subject) -> Option<String> {
    if workload.gpu_only && subject.is_cpu {
        return Some("the CPU device has no memory of its own, so nothing is copied".to_owned());
    }
    if let Some(limit) = subject.largest_tensor
        && cost.largest > limit as f64
    {
        let size = bytes(cost.largest as u64);
        return Some(format!(
            "a tensor of {size} is more than the {} that the device can bind at once",
            bytes(limit)
        ));
    }
    if !subject.is_cpu && cost.largest / 4.0 > f64::from(u32::MAX) {
        return Some("it has more elements than a 32-bit index reaches".to_owned());
    }
    // Something has to be left for the rest of the machine.
    let left = machine::available_memory().map(|available| available / 4 * 3);
    match left {
        Some(left) if subject.in_host_memory && cost.memory > left as f64 => {
            let (needs, left) = (bytes(cost.memory as u64), bytes(left));
            Some(format!("it needs some {needs} of memory, and the machine has {left} to spare"))
        }
        _ => None,
    }
}
