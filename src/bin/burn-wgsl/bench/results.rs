//! Everything that a run of `bench` found out. All reports are made from this; as JSON it is the document that
//! `docs/bench.md` describes.

use burn_wgsl::WgslDevice;
use burn_wgsl::device::{AdapterInfo, ResolvedDevice, adapters};
use serde::Serialize;

use super::ceiling::Ceilings;
use super::machine::Machine;
use super::runner::Timing;
use super::stats::{Crossover, Summary};
use super::workload::{Cost, Suite, Workload};

/// Changes when a field changes its meaning or goes away.
pub const FORMAT: u32 = 1;

#[derive(Debug, Serialize)]
pub struct Report {
    pub format: u32,
    pub version: &'static str,
    /// UTC.
    pub date: String,
    pub command: Vec<String>,
    pub rounds: usize,
    pub machine: Machine,
    pub devices: Vec<Subject>,
    pub results: Vec<Measurement>,
    pub comparisons: Vec<Comparison>,
}

/// A device that was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Subject {
    /// The word that names it.
    pub device: String,
    pub name: String,
    pub kind: String,
    pub api: String,
    pub driver: String,
    /// Whether GPU time can be told.
    pub timestamps: bool,
    pub ceilings: Ceilings,
    #[serde(skip)]
    pub is_cpu: bool,
    #[serde(skip)]
    pub wgsl: WgslDevice,
    /// The largest tensor it can hold, in bytes; what counts on the CPU is the memory of the machine.
    #[serde(skip)]
    pub largest_tensor: Option<u64>,
    /// Whether its memory is that of the machine.
    #[serde(skip)]
    pub in_host_memory: bool,
}

impl Subject {
    /// A device at its place, not measured yet.
    pub fn at(wgsl: WgslDevice, place: ResolvedDevice, machine: &Machine) -> Self {
        let info = match place {
            ResolvedDevice::Cpu => None,
            ResolvedDevice::Adapter(index) => adapters().get(index).map(|found| &found.info),
        };
        let text = |of: fn(&AdapterInfo) -> String| info.map_or("-".to_owned(), of);
        let software = burn_wgsl::device::AdapterKind::Software;
        Self {
            device: wgsl.to_string(),
            name: info.map_or_else(|| machine.cpu.clone(), |info| info.name.clone()),
            kind: info.map_or("cpu".to_owned(), |info| info.kind.to_string()),
            api: text(|info| info.api.to_string()),
            driver: text(|info| format!("{} {}", info.driver, info.driver_info).trim().to_owned()),
            timestamps: info.is_some_and(|info| info.features.timestamps),
            ceilings: Ceilings::default(),
            is_cpu: info.is_none(),
            wgsl,
            largest_tensor: info
                .map(|info| info.limits.max_storage_binding_size.min(info.limits.max_buffer_size)),
            in_host_memory: info.is_none_or(|info| info.kind == software),
        }
    }
}

/// One workload at one size on one device.
#[derive(Debug, Serialize)]
pub struct Measurement {
    pub suite: Suite,
    pub workload: &'static str,
    pub what: &'static str,
    pub unit: &'static str,
    pub size: usize,
    pub device: String,
    #[serde(flatten)]
    pub outcome: Outcome,
}

#[derive(Debug, Serialize)]
#[serde(tag = "status", rename_all = "lowercase")]
pub enum Outcome {
    Measured(Box<Numbers>),
    /// It was not tried.
    Skipped {
        reason: String,
    },
    /// It was tried in vain.
    Failed {
        reason: String,
    },
}

/// Times are seconds for one run; rates are those of the median.
#[derive(Debug, Serialize)]
pub struct Numbers {
    /// The first run, compiling included.
    pub first_seconds: f64,
    pub seconds: Summary,
    pub samples: Vec<f64>,
    pub runs_per_sample: usize,
    /// The time of the kernels alone.
    pub gpu_seconds: Option<f64>,
    pub flops: Option<f64>,
    pub bytes: Option<f64>,
    pub flops_per_second: Option<f64>,
    pub bytes_per_second: Option<f64>,
    /// Shares of the device's own ceilings, 1 for all of it.
    pub flops_share: Option<f64>,
    pub bytes_share: Option<f64>,
    pub relative_error: Option<f64>,
    /// Kernels of one run, the longest first; only where `--profile` asks for them.
    pub kernels: Option<Vec<Kernel>>,
}

#[derive(Debug, Serialize)]
pub struct Kernel {
    pub name: String,
    /// In one run.
    pub calls: f64,
    pub seconds: f64,
}

impl Numbers {
    /// `None` where there are no samples.
    pub fn of(
        timing: Timing,
        cost: &Cost,
        ceilings: &Ceilings,
        error: Option<f64>,
        kernels: bool,
    ) -> Option<Self> {
        let seconds = Summary::of(&timing.samples)?;
        let counted = |amount: f64| (amount > 0.0).then_some(amount);
        let (flops, bytes) = (counted(cost.flops), counted(cost.bytes));
        let rate = |amount: Option<f64>| amount.map(|amount| amount / seconds.median);
        let share = |rate: Option<f64>, ceiling: Option<f64>| Some(rate? / ceiling?);
        let (flops_per_second, bytes_per_second) = (rate(flops), rate(bytes));
        let profiled = timing.profile.filter(|profiled| !profiled.profile.kernels.is_empty());
        let one = |total: f64, runs: usize| total / runs as f64;
        Some(Self {
            first_seconds: timing.first,
            seconds,
            samples: timing.samples,
            runs_per_sample: timing.runs,
            gpu_seconds: profiled.as_ref().map(|p| one(p.profile.time().as_secs_f64(), p.runs)),
            flops,
            bytes,
            flops_per_second,
            bytes_per_second,
            flops_share: share(flops_per_second, ceilings.flops_per_second),
            bytes_share: share(bytes_per_second, ceilings.bytes_per_second),
            relative_error: error,
            kernels: profiled.filter(|_| kernels).map(|p| {
                let by_name = p.profile.by_name().kernels.into_iter();
                let kernel = |kernel: burn_wgsl::KernelTime| Kernel {
                    name: kernel.name.to_owned(),
                    calls: one(kernel.calls as f64, p.runs),
                    seconds: one(kernel.time.as_secs_f64(), p.runs),
                };
                by_name.map(kernel).collect()
            }),
        })
    }
}

/// One device against another on one workload.
#[derive(Debug, Serialize)]
pub struct Comparison {
    pub workload: &'static str,
    pub unit: &'static str,
    pub device: String,
    /// The device that it is compared with.
    pub reference: String,
    /// Size, and how many times as fast as the reference.
    pub speedups: Vec<(usize, f64)>,
    /// `None` with fewer than two sizes.
    pub crossover: Option<Crossover>,
}

impl Report {
    /// The numbers of a workload on a device, with their sizes, in order of size.
    pub fn measured<'a>(
        &'a self,
        workload: &'a str,
        device: &'a str,
    ) -> impl Iterator<Item = (usize, &'a Numbers)> {
        let those =
            self.results.iter().filter(move |one| one.workload == workload && one.device == device);
        those.filter_map(|one| match &one.outcome {
            Outcome::Measured(numbers) => Some((one.size, &**numbers)),
            _ => None,
        })
    }

    /// Whether there is any number at all.
    pub fn is_empty(&self) -> bool {
        !self.results.iter().any(|one| matches!(one.outcome, Outcome::Measured(_)))
    }

    /// The device that others are compared with: the CPU, else the last.
    pub fn reference(&self) -> Option<&Subject> {
        self.devices.iter().find(|subject| subject.is_cpu).or(self.devices.last())
    }

    /// The workloads that were measured, in order.
    pub fn workloads(&self) -> Vec<&Measurement> {
        let mut firsts: Vec<&Measurement> = Vec::new();
        for one in &self.results {
            if firsts.iter().all(|first| first.workload != one.workload) {
                firsts.push(one);
            }
        }
        firsts
    }

    /// How many times as fast as the reference a device was at a size.
    pub fn speedup(&self, workload: &str, size: usize, device: &str) -> Option<f64> {
        let of = |one: &&Comparison| one.workload == workload && one.device == device;
        let comparison = self.comparisons.iter().find(of)?;
        comparison.speedups.iter().find(|(at, _)| *at == size).map(|(_, speedup)| *speedup)
    }

    /// Compares every device with the reference.
    pub fn compare(&mut self, workloads: &[&Workload]) {
        let Some(reference) = self.reference().map(|subject| subject.device.clone()) else {
            return;
        };
        let mut comparisons = Vec::new();
        for workload in workloads {
            for subject in self.devices.iter().filter(|subject| subject.device != reference) {
                let theirs: Vec<_> = self.measured(workload.name, &reference).collect();
                let speedups: Vec<(usize, f64)> = self
                    .measured(workload.name, &subject.device)
                    .filter_map(|(size, numbers)| {
                        let (_, other) = theirs.iter().find(|(at, _)| *at == size)?;
                        Some((size, other.seconds.median / numbers.seconds.median))
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
                    device: subject.device.clone(),
                    reference: reference.clone(),
                    speedups,
                    crossover: Crossover::of(&points),
                });
            }
        }
        self.comparisons = comparisons;
    }
}
