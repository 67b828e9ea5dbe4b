//! Measured peak rates of a device (ceilings). Reports show rates as fractions of them.
//!
//! A GPU runs the two kernels of this directory. The CPU runs matrix products and memory copies.

use std::hint::black_box;
use std::sync::Arc;
use std::thread::available_parallelism;

use burn::tensor::FloatDType;
use burn_wgsl::WgslDevice;
use burn_wgsl::device::{AdapterKind, ResolvedDevice};
use burn_wgsl::runtime::{Allocation, Dispatch, Kernel, KernelKey, Runtime, Source, Variant};
use serde::Serialize;

use super::job::{Job, op};
use super::runner::{self, Plan};
use super::stats::Summary;
use super::workload;

// SAFETY: each invocation of both kernels accesses at most the element with its own index, and
// compares the index with the number of elements unless there are as many invocations. The loop of
// `multiply_add` has a constant number of steps.
static COPY: Source = unsafe { Source::trusted::<u32>("copy", include_str!("copy.wgsl")) };
static MULTIPLY_ADD: Source =
    unsafe { Source::trusted::<[f32; 2]>("multiply_add", include_str!("multiply_add.wgsl")) };

/// The kernel in `copy.wgsl`.
#[derive(Debug, Clone, Hash)]
struct Copy;

impl Kernel for Copy {
    type Params = u32;

    fn variant(&self) -> Variant {
        Variant::new(&COPY)
    }
}

/// The kernel in `multiply_add.wgsl`.
#[derive(Debug, Clone, Hash)]
struct MultiplyAdd;

impl Kernel for MultiplyAdd {
    type Params = [f32; 2];

    fn variant(&self) -> Variant {
        Variant::new(&MULTIPLY_ADD)
    }
}

/// Invocations per workgroup of both kernels.
const WORKGROUP_SIZE: u64 = 256;
/// FLOPs per invocation of `multiply_add`: 32 steps of 8 repetitions on 8 chains, 2 FLOPs each.
const FLOPS_PER_INVOCATION: u64 = 32 * 8 * 8 * 2;

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
        plan: &Plan,
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
    let info = runtime.info();
    let is_software = info.kind == AdapterKind::Software;
    // Keeps a fast GPU busy without taking long on a slow one.
    let groups: u64 = if is_software { 512 } else { 16_384 };
    let flops = groups * WORKGROUP_SIZE * FLOPS_PER_INVOCATION;
    // Larger than the caches, as far as the limits of the device allow.
    let max_bytes = info.limits.max_storage_binding_size.min(info.limits.max_buffer_size);
    let bytes_per_group = 16 * WORKGROUP_SIZE;
    let bytes: u64 = (if is_software { 64 << 20 } else { 512 << 20 })
        .min(max_bytes / bytes_per_group * bytes_per_group);
    let method = format!(
        "multiply-adds in registers ({:.2} GFLOP per run); a copy of {} MiB between two buffers",
        flops as f64 / 1e9,
        bytes >> 20
    );
    let multiply_add = {
        let runtime = runtime.clone();
        move || {
            let out = allocate(&runtime, groups * WORKGROUP_SIZE * 4);
            launch_job(&runtime, MultiplyAdd, None, out, [0.999, 0.001], groups, flops)
        }
    };
    let copy = {
        let runtime = runtime.clone();
        move || {
            let [x, out] = [0; 2].map(|_| allocate(&runtime, bytes));
            let vec4_count = bytes / 16;
            let groups = vec4_count.div_ceil(WORKGROUP_SIZE);
            launch_job(&runtime, Copy, Some(x), out, vec4_count as u32, groups, vec4_count)
        }
    };
    let multiply_add = Probe { amount: flops as f64, prepare: Box::new(multiply_add) };
    // Each byte is read and written.
    let copy = Probe { amount: 2.0 * bytes as f64, prepare: Box::new(copy) };
    Probes { compute: vec![multiply_add], copy: vec![copy], method }
}

/// Allocates GPU memory. Panics if that fails: the runner catches the panic.
fn allocate(runtime: &Runtime, bytes: u64) -> Allocation {
    runtime.alloc(bytes).unwrap_or_else(|error| panic!("{error}"))
}

/// Returns a job that launches a kernel. Panics if the launch fails.
fn launch_job<K: Kernel + Send>(
    runtime: &Arc<Runtime>,
    kernel: K,
    input: Option<Allocation>,
    output: Allocation,
    params: K::Params,
    groups: u64,
    work: u64,
) -> Box<dyn Job> {
    let runtime = runtime.clone();
    op(move || {
        let inputs: Vec<&Allocation> = input.iter().collect();
        let dispatch = Dispatch {
            key: KernelKey::of(&kernel),
            kernel: &|| kernel.variant(),
            inputs: &inputs,
            outputs: &[&output],
            params: bytemuck::bytes_of(&params),
            groups,
            work,
            indexed_axes: None,
            also_read: &[],
            also_written: &[],
        };
        runtime.dispatch(&dispatch).unwrap_or_else(|error| panic!("{error}"));
    })
}
