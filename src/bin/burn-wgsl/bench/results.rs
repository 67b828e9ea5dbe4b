//! The results of a run of `bench`. Every report format is produced from [`Report`].
//!
//! `docs/bench.md` describes its JSON form. Field names are JSON keys unless renamed.

use std::fmt;

use burn_wgsl::device::{AdapterInfo, AdapterKind, ResolvedDevice, adapters};
use burn_wgsl::{Summary, WgslDevice};
use serde::Serialize;

use super::ceiling::Ceilings;
use super::cost::Cost;
use super::crossover::Crossover;
use super::machine::Machine;
use super::runner::Timing;
use super::workload::{Suite, Workload};

/// The version of the JSON format. Raised when a field is removed or changes its meaning.
pub const FORMAT: u32 = 1;

/// All results of a run.
#[derive(Debug, Serialize)]
pub struct Report {
    pub format: u32,
    pub version: &'static str,
    /// UTC, formatted as `2026-11-21T06:04:05Z`.
    pub date: String,
    /// The command-line arguments.
    pub command: Vec<String>,
    /// The requested number of samples per measurement.
    pub rounds: usize,
    pub machine: Machine,
    pub devices: Vec<MeasuredDevice>,
    pub results: Vec<Measurement>,
    pub comparisons: Vec<Comparison>,
}

/// A device that is measured.
#[derive(Clone, Debug, Serialize)]
pub struct MeasuredDevice {
    /// The canonical selector of the device.
    #[serde(rename = "device")]
    pub selector: String,
    pub name: String,
    pub kind: String,
    pub api: String,
    pub driver: String,
    /// Whether GPU time can be measured.
    pub timestamps: bool,
    pub ceilings: Ceilings,
    #[serde(skip)]
    pub is_cpu: bool,
    #[serde(skip)]
    pub wgsl_device: WgslDevice,
    /// Maximum bytes of a tensor. `None` for the CPU, which is limited by host memory.
    #[serde(skip)]
    pub max_tensor_bytes: Option<u64>,
    /// Whether tensors are in host memory: on the CPU and on software adapters.
    #[serde(skip)]
    pub uses_host_memory: bool,
}

impl MeasuredDevice {
    /// Describes a device whose ceilings are not measured yet.
    pub fn new(wgsl_device: WgslDevice, resolved: ResolvedDevice, machine: &Machine) -> Self {
        let info = match resolved {
            ResolvedDevice::Cpu => None,
            ResolvedDevice::Adapter(index) => adapters().get(index).map(|adapter| &adapter.info),
        };
        let text = |of: fn(&AdapterInfo) -> String| info.map_or("-".to_owned(), of);
        Self {
            selector: wgsl_device.to_string(),
            name: info.map_or_else(|| machine.cpu.clone(), |info| info.name.clone()),
            kind: info.map_or("cpu".to_owned(), |info| info.kind.to_string()),
            api: text(|info| info.api.to_string()),
            driver: text(|info| format!("{} {}", info.driver, info.driver_info).trim().to_owned()),
            timestamps: info.is_some_and(|info| info.features.timestamps),
            ceilings: Ceilings::default(),
            is_cpu: info.is_none(),
            wgsl_device,
            max_tensor_bytes: info
                .map(|info| info.limits.max_storage_binding_size.min(info.limits.max_buffer_size)),
            uses_host_memory: info.is_none_or(|info| info.kind == AdapterKind::Software),
        }
    }
}

/// The measurement of one workload at one size on one device.
#[derive(Debug, Serialize)]
pub struct Measurement {
    pub suite: Suite,
    pub workload: &'static str,
    #[serde(rename = "what")]
    pub description: &'static str,
    pub unit: &'static str,
    pub size: usize,
    /// The selector of the device.
    pub device: String,
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// Whether a workload ran, with its metrics or the reason why not.
#[derive(Debug, Serialize)]
#[serde(tag = "status", rename_all = "lowercase")]
pub enum Outcome {
    Measured(Box<Metrics>),
    /// The workload was not run.
    Skipped {
        reason: String,
    },
    /// The workload failed while running.
    Failed {
        reason: String,
    },
}

/// The metrics of a measurement. Times are seconds per run. Rates are based on the median time.
#[derive(Debug, Serialize)]
pub struct Metrics {
    /// Time of the first run, which includes shader compilation.
    pub first_seconds: f64,
    pub seconds: Summary,
    /// Mean time per run of each sample.
    pub samples: Vec<f64>,
    pub runs_per_sample: usize,
    /// Median time of a run that the host waits for; `None` if only the host's time counts.
    pub latency_seconds: Option<f64>,
    /// Total GPU time of the kernels; `None` if the device has no timestamps.
    pub gpu_seconds: Option<f64>,
    /// What limits the runs of a sample; `None` if the device has no timestamps.
    pub limit: Option<Limit>,
    /// `Cost::flops`; `None` if it is 0.
    pub flops: Option<f64>,
    /// `Cost::bytes`; `None` if it is 0.
    pub bytes: Option<f64>,
    pub flops_per_second: Option<f64>,
    pub bytes_per_second: Option<f64>,
    /// `flops_per_second` as a fraction of the device's ceiling.
    pub flops_share: Option<f64>,
    /// `bytes_per_second` as a fraction of the device's ceiling.
    pub bytes_share: Option<f64>,
    /// Error of the result, for workloads that check it: see `Workload::error`.
    pub relative_error: Option<f64>,
    /// The kernels of one run by descending time; `None` without `--profile`.
    pub kernels: Option<Vec<Kernel>>,
}

/// What limits a run of many that are waited for together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Limit {
    /// The kernels.
    Gpu,
    /// What comes before them: the host, which records and submits commands.
    Host,
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Gpu => "GPU",
            Self::Host => "host",
        })
    }
}

impl Limit {
    /// The share of the GPU's time from which it is the limit.
    const SHARE: f64 = 0.8;

    fn of(gpu_seconds: f64, seconds: f64) -> Self {
        if gpu_seconds >= Self::SHARE * seconds { Self::Gpu } else { Self::Host }
    }
}

/// The GPU time of one kernel.
#[derive(Debug, Serialize)]
pub struct Kernel {
    pub name: String,
    /// Dispatches per run.
    pub calls: f64,
    /// GPU time per run.
    pub seconds: f64,
}

impl Metrics {
    /// Computes the metrics of a measurement. Returns `None` if it has no samples.
    pub fn from_timing(
        timing: Timing,
        cost: &Cost,
        ceilings: &Ceilings,
        relative_error: Option<f64>,
        with_kernels: bool,
    ) -> Option<Self> {
        let seconds = Summary::of(&timing.samples)?;
        // A cost of 0 is unknown.
        let known = |amount: f64| (amount > 0.0).then_some(amount);
        let (flops, bytes) = (known(cost.flops), known(cost.bytes));
        let rate = |amount: Option<f64>| amount.map(|amount| amount / seconds.median);
        let share = |rate: Option<f64>, ceiling: Option<f64>| Some(rate? / ceiling?);
        let (flops_per_second, bytes_per_second) = (rate(flops), rate(bytes));
        let profiled = timing.profile.filter(|profiled| !profiled.profile.kernels.is_empty());
        let per_run = |total: f64, runs: usize| total / runs as f64;
        let gpu_seconds =
            profiled.as_ref().map(|p| per_run(p.profile.time().as_secs_f64(), p.runs));
        let latency = Summary::of(&timing.latencies).map(|latencies| latencies.median);
        Some(Self {
            first_seconds: timing.first,
            seconds,
            samples: timing.samples,
            runs_per_sample: timing.runs,
            latency_seconds: latency,
            gpu_seconds,
            // The host's time has no such limit.
            limit: latency.and(gpu_seconds).map(|gpu| Limit::of(gpu, seconds.median)),
            flops,
            bytes,
            flops_per_second,
            bytes_per_second,
            flops_share: share(flops_per_second, ceilings.flops_per_second),
            bytes_share: share(bytes_per_second, ceilings.bytes_per_second),
            relative_error,
            kernels: profiled.filter(|_| with_kernels).map(|p| {
                let by_name = p.profile.by_name().into_iter();
                let kernel = |kernel: burn_wgsl::KernelTime| Kernel {
                    name: kernel.name.to_owned(),
                    calls: per_run(kernel.calls as f64, p.runs),
                    seconds: per_run(kernel.time.as_secs_f64(), p.runs),
                };
                by_name.map(kernel).collect()
            }),
        })
    }
}

/// The comparison of a device with the reference device on one workload.
#[derive(Debug, Serialize)]
pub struct Comparison {
    pub workload: &'static str,
    pub unit: &'static str,
    /// The selector of the device.
    pub device: String,
    /// The selector of the reference device.
    pub reference: String,
    /// Pairs of size and speedup: the reference's median time divided by the device's.
    pub speedups: Vec<(usize, f64)>,
    /// `None` for fewer than two sizes.
    pub crossover: Option<Crossover>,
}

impl Report {
    /// Returns the metrics of a workload on a device, with their sizes in ascending order.
    pub fn measured<'a>(
        &'a self,
        workload: &'a str,
        device: &'a str,
    ) -> impl Iterator<Item = (usize, &'a Metrics)> {
        let matching = self.results.iter().filter(move |measurement| {
            measurement.workload == workload && measurement.device == device
        });
        matching.filter_map(|measurement| match &measurement.outcome {
            Outcome::Measured(metrics) => Some((measurement.size, &**metrics)),
            _ => None,
        })
    }

    /// Returns whether no measurement succeeded.
    pub fn is_empty(&self) -> bool {
        let is_measured =
            |measurement: &Measurement| matches!(measurement.outcome, Outcome::Measured(_));
        !self.results.iter().any(is_measured)
    }

    /// Returns the device that the others are compared with: the CPU device, or else the last one.
    pub fn reference(&self) -> Option<&MeasuredDevice> {
        self.devices.iter().find(|device| device.is_cpu).or(self.devices.last())
    }

    /// Returns the first measurement of each workload, in order.
    pub fn workloads(&self) -> Vec<&Measurement> {
        let mut workloads: Vec<&Measurement> = Vec::new();
        for measurement in &self.results {
            if workloads.iter().all(|first| first.workload != measurement.workload) {
                workloads.push(measurement);
            }
        }
        workloads
    }

    /// Returns the speedup of a device over the reference device at a size.
    pub fn speedup(&self, workload: &str, size: usize, device: &str) -> Option<f64> {
        let matches = |comparison: &&Comparison| {
            comparison.workload == workload && comparison.device == device
        };
        let comparison = self.comparisons.iter().find(matches)?;
        comparison.speedups.iter().find(|(other, _)| *other == size).map(|(_, speedup)| *speedup)
    }

    /// Compares every device with the reference device.
    pub fn compare(&mut self, workloads: &[&Workload]) {
        let Some(reference) = self.reference().map(|device| device.selector.clone()) else {
            return;
        };
        let mut comparisons = Vec::new();
        for workload in workloads {
            for device in self.devices.iter().filter(|device| device.selector != reference) {
                let reference_metrics: Vec<_> = self.measured(workload.name, &reference).collect();
                let speedups: Vec<(usize, f64)> = self
                    .measured(workload.name, &device.selector)
                    .filter_map(|(size, metrics)| {
                        let (_, of_reference) =
                            reference_metrics.iter().find(|(other, _)| *other == size)?;
                        Some((size, of_reference.seconds.median / metrics.seconds.median))
                    })
                    .collect();
                if speedups.is_empty() {
                    continue;
                }
                let points: Vec<(f64, f64)> =
                    speedups.iter().map(|(size, speedup)| (*size as f64, *speedup)).collect();
                comparisons.push(Comparison {
                    workload: workload.name,
                    unit: workload.unit,
                    device: device.selector.clone(),
                    reference: reference.clone(),
                    speedups,
                    crossover: Crossover::of(&points),
                });
            }
        }
        self.comparisons = comparisons;
    }
}
