//! Measured peak rates of a device (ceilings). Reports show rates as fractions of them.
//!
//! A GPU runs the kernels of `burn_wgsl::profiler::peaks`. The CPU runs matrix products and memory copies.

use std::hint::black_box;
use std::sync::Arc;
use std::thread::available_parallelism;

use burn::tensor::FloatDType;
use burn_wgsl::device::ResolvedDevice;
use burn_wgsl::profiler::peaks;
use burn_wgsl::runtime::Runtime;
use burn_wgsl::{Summary, WgslDevice};
use serde::Serialize;

use super::job::{Job, op};
use super::runner::{self, Sampling};
use super::workload;

/// The measured peak rates of a device. A rate is `None` if its probe failed.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Ceilings {
    /// f32 FLOPs per second.
    pub flops_per_second: Option<f64>,
    /// Bytes read and written per second.
    pub bytes_per_second: Option<f64>,
    /// What the probes ran, in words, or why they could not run.
    #[serde(rename = "how")]
    pub method: String,
}

impl Ceilings {
    /// Measures the peak rates of a device. Calls `on_progress` like [`runner::measure`].
    pub fn measure(
        device: &WgslDevice,
        plan: &Sampling,
        on_progress: impl Fn(&WgslDevice, f64),
    ) -> Self {
        let Probes { compute, copy, method } = match probes(device) {
            Ok(probes) => probes,
            Err(reason) => return Self { method: reason, ..Self::default() },
        };
        let probe_share = 1.0 / (compute.len() + copy.len()) as f64;
        let min_seconds = |probe: &Probe| {
            let on_progress =
                |device: &WgslDevice, fraction| on_progress(device, fraction * probe_share);
            let timing = runner::measure(&[*device], plan, |_| (probe.prepare)(), on_progress)
                .pop()?
                .ok()?;
            Some(Summary::of(&timing.samples)?.min)
        };
        let peak_rate = |probes: &[Probe]| {
            let mut peak: Option<f64> = None;
            for probe in probes {
                let Some(seconds) = min_seconds(probe) else { break };
                let rate = probe.amount / seconds;
                peak = Some(peak.map_or(rate, |peak| peak.max(rate)));
                // This probe is large enough. Larger ones would only take longer.
                if seconds > plan.sample_time.as_secs_f64() {
                    break;
                }
            }
            peak
        };
        Self { flops_per_second: peak_rate(&compute), bytes_per_second: peak_rate(&copy), method }
    }
}

/// The probes of a device and their description. Each list is in ascending order of size, and its
/// highest rate counts.
struct Probes {
    compute: Vec<Probe>,
    copy: Vec<Probe>,
    method: String,
}

/// A job to time, with its FLOPs or bytes per run.
struct Probe {
    amount: f64,
    prepare: Box<dyn Fn() -> Box<dyn Job>>,
}

fn probes(device: &WgslDevice) -> Result<Probes, String> {
    match device.resolve().map_err(|error| error.to_string())? {
        ResolvedDevice::Cpu => Ok(cpu_probes()),
        ResolvedDevice::Adapter(index) => {
            Ok(gpu_probes(&Runtime::of(index).map_err(|error| error.to_string())?))
        }
    }
}

fn cpu_probes() -> Probes {
    let matmul = |n: usize| Probe {
        amount: 2.0 * (n as f64).powi(3),
        prepare: Box::new(move || workload::matmul(n, &WgslDevice::Cpu, FloatDType::F32)),
    };
    // 64 MiB of u64 elements.
    let elements: usize = 8 << 20;
    let copy = move || {
        let (source, mut target) = (vec![1_u64; elements], vec![0_u64; elements]);
        let chunk = elements.div_ceil(available_parallelism().map_or(1, usize::from));
        op(move || {
            std::thread::scope(|threads| {
                for (source, target) in source.chunks(chunk).zip(target.chunks_mut(chunk)) {
                    threads.spawn(|| target.copy_from_slice(source));
                }
            });
            black_box(&mut target);
        })
    };
    // Each 8-byte element is read and written.
    let copied_bytes = 16.0 * elements as f64;
    Probes {
        compute: [256, 512, 1024].map(matmul).into(),
        copy: vec![Probe { amount: copied_bytes, prepare: Box::new(copy) }],
        method: "the fastest f32 matmul of n = 256, 512 and 1024; a copy of 64 MiB by all threads"
            .to_owned(),
    }
}

fn gpu_probes(runtime: &Arc<Runtime>) -> Probes {
    let probes = peaks::probes(runtime);
    let method = probes.each_ref().map(peaks::Probe::describe).join("; ");
    let [compute, copy] = probes.map(|probe| Probe {
        amount: probe.amount as f64,
        // The runner catches panics.
        prepare: Box::new(move || {
            let launch = probe.prepare().unwrap_or_else(|error| panic!("{error}"));
            op(move || launch().unwrap_or_else(|error| panic!("{error}")))
        }),
    });
    Probes { compute: vec![compute], copy: vec![copy], method }
}
