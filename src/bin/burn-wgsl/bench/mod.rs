//! `burn-wgsl bench`: benchmarks ops and training steps on several devices and compares them.
//!
//! Workloads are rows of data (`workload`). One runner times all of them (`runner`). Every report
//! format is produced from the same results (`results`).

mod allreduce;
mod arguments;
mod ceiling;
mod cost;
mod crossover;
mod job;
mod loader;
mod machine;
mod progress;
mod report;
mod results;
mod runner;
mod train;
mod workload;

use burn::tensor::backend::Backend;
use burn_wgsl::device::{ResolvedDevice, automatic, install_hint};
use burn_wgsl::runtime::Bytes;
use burn_wgsl::{Wgsl, WgslDevice};

pub use arguments::Arguments;
pub use ceiling::Ceilings;
pub use machine::{Machine, now};
pub use runner::{Sampling, catch_panic, silence_caught_panics};

use crate::CliError;
use crate::output::{self, wrap};
use cost::Cost;
use progress::Progress;
use results::{FORMAT, MeasuredDevice, Measurement, Metrics, Outcome, Report};
use workload::{Suite, Workload};

/// Measures the workloads on the command line and writes the reports.
pub fn run(arguments: &Arguments) -> Result<(), CliError> {
    arguments.check_against()?;
    match arguments.suite {
        Suite::Loader => return loader::run(arguments),
        Suite::Allreduce => return allreduce::run(arguments),
        _ => {}
    }
    let workloads = arguments.workloads()?;
    let stdout_is_taken = arguments.stdout_is_taken()?;
    arguments.check_files()?;
    let earlier = arguments.against.as_deref().map(report::Earlier::read).transpose()?;
    let machine = Machine::current();
    let devices = resolve_devices(&arguments.devices, &machine)?;
    let report = measure(arguments, &workloads, machine, devices);
    if let Some(file) = &arguments.json {
        output::write(file, &report::json(&report)?)?;
    }
    if let Some(file) = &arguments.csv {
        output::write(file, &report::csv(&report)?)?;
    }
    if let Some(file) = &arguments.plot {
        output::write(file, &report::plot(&report)?)?;
    }
    if !stdout_is_taken {
        output::print(&report::terminal(&report))?;
        if let Some(earlier) = &earlier {
            output::print(&report::against(&report, earlier))?;
        }
    }
    if report.is_empty() { Err(CliError::NothingMeasured) } else { Ok(()) }
}

/// Resolves the requested devices and removes duplicates. Each gets its canonical selector.
fn resolve_devices(
    requested: &[WgslDevice],
    machine: &Machine,
) -> Result<Vec<MeasuredDevice>, CliError> {
    let requested =
        if requested.is_empty() { &[WgslDevice::Auto, WgslDevice::Cpu][..] } else { requested };
    let mut devices: Vec<MeasuredDevice> = Vec::new();
    for device in requested {
        let resolved = device.resolve()?;
        if *device == WgslDevice::Auto && resolved == ResolvedDevice::Cpu {
            let automatic = automatic()?;
            let install_hint = if automatic.no_usable_gpu {
                format!("; {}", install_hint())
            } else {
                String::new()
            };
            let reason = &automatic.reason;
            let note = format!("note: `auto` selects the CPU: {reason}{install_hint}.");
            eprint!("{}", wrap(&note));
        }
        let device = MeasuredDevice::new(device.canonical(), resolved, machine);
        if devices.iter().all(|other| other.selector != device.selector) {
            devices.push(device);
        }
    }
    Ok(devices)
}

/// Measures the peak rates of every device, then every workload, and compares the devices.
fn measure(
    arguments: &Arguments,
    workloads: &[(&'static Workload, Vec<usize>)],
    machine: Machine,
    mut devices: Vec<MeasuredDevice>,
) -> Report {
    silence_caught_panics();
    let date = now();
    // The ceilings count as one more measurement per device.
    let measurements = workloads.iter().map(|(_, sizes)| sizes.len()).sum::<usize>() + 1;
    let progress = Progress::new(measurements * devices.len());
    for device in &mut devices {
        progress.set_message("peak rates", &device.selector);
        device.ceilings =
            Ceilings::measure(&device.wgsl_device, &arguments.ceiling_plan(), |_, fraction| {
                progress.advance(fraction)
            });
    }
    let mut results = Vec::new();
    for (workload, sizes) in workloads {
        for size in sizes {
            results.extend(measure_size(arguments, workload, *size, &devices, &progress));
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

/// Measures one workload at one size on every device. Returns one measurement per device.
fn measure_size(
    arguments: &Arguments,
    workload: &Workload,
    size: usize,
    devices: &[MeasuredDevice],
    progress: &Progress,
) -> Vec<Measurement> {
    let cost = (workload.cost)(size);
    let skip_reasons: Vec<Option<String>> =
        devices.iter().map(|device| skip_reason(workload, &cost, device)).collect();
    let runnable = || devices.iter().zip(&skip_reasons).filter(|(_, reason)| reason.is_none());
    progress.advance(skip_reasons.iter().flatten().count() as f64);
    let prepare = |device: &WgslDevice| {
        Wgsl::seed(device, 1);
        (workload.prepare)(size, device)
    };
    let label = format!("{} {size}", workload.name);
    let runnable_devices: Vec<WgslDevice> =
        runnable().map(|(device, _)| device.wgsl_device).collect();
    let on_progress = |device: &WgslDevice, fraction| {
        progress.set_message(&label, &device.to_string());
        progress.advance(fraction);
    };
    let mut timings =
        runner::measure(&runnable_devices, &arguments.plan(), prepare, on_progress).into_iter();
    let outcomes = devices.iter().zip(skip_reasons).map(|(device, skip_reason)| {
        if let Some(reason) = skip_reason {
            return Outcome::Skipped { reason };
        }
        let timing = timings.next().unwrap_or_else(|| Err("the workload did not run".to_owned()));
        let metrics = timing.and_then(|timing| {
            let error = workload
                .error
                .map(|error| catch_panic(|| error(size, &device.wgsl_device)))
                .transpose()?;
            let metrics =
                Metrics::from_timing(timing, &cost, &device.ceilings, error, arguments.profile);
            metrics.ok_or_else(|| "no samples were taken".to_owned())
        });
        match metrics.map(|metrics| Metrics {
            // Each run waits, for the device or for a copy.
            limit: metrics.limit.filter(|_| !workload.waits()),
            ..metrics
        }) {
            Ok(metrics) => Outcome::Measured(Box::new(metrics)),
            Err(reason) => Outcome::Failed { reason },
        }
    });
    let measurement = |(device, outcome): (&MeasuredDevice, Outcome)| Measurement {
        suite: workload.suite,
        workload: workload.name,
        description: workload.description,
        unit: workload.unit,
        size,
        device: device.selector.clone(),
        outcome,
    };
    devices.iter().zip(outcomes.collect::<Vec<_>>()).map(measurement).collect()
}

/// Returns why a workload cannot run on a device, or `None` if no known limit prevents it.
fn skip_reason(workload: &Workload, cost: &Cost, device: &MeasuredDevice) -> Option<String> {
    if workload.gpu_only && device.is_cpu {
        let reason = match workload.suite {
            Suite::Host => "the CPU device computes while it records",
            _ => "the CPU device uses host memory, so there is nothing to transfer",
        };
        return Some(reason.to_owned());
    }
    if let Some(limit) = device.max_tensor_bytes
        && cost.largest_tensor > limit as f64
    {
        let size = Bytes(cost.largest_tensor as u64);
        let limit = Bytes(limit);
        return Some(format!(
            "a tensor of {size} exceeds the device's limit of {limit} per buffer binding"
        ));
    }
    if !device.is_cpu && cost.largest_tensor / 4.0 > f64::from(u32::MAX) {
        return Some("a tensor has more than 2^32 - 1 elements, the 32-bit index limit".to_owned());
    }
    // A quarter of the available memory is left for other programs.
    let allowed = machine::available_memory().map(|available| available / 4 * 3);
    match allowed {
        Some(allowed) if device.uses_host_memory && cost.memory > allowed as f64 => {
            let (needed, allowed) = (Bytes(cost.memory as u64), Bytes(allowed));
            Some(format!(
                "the workload needs about {needed} of memory, but only {allowed} may be used \
                 (three quarters of the available memory)"
            ))
        }
        _ => None,
    }
}
