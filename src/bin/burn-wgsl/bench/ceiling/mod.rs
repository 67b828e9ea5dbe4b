//! What a device can do at best, measured on it: the rates that results are shown as shares of.
//!
//! On a GPU two small kernels of this folder, on the CPU matrix products and plain copies.

use std::hint::black_box;
use std::sync::Arc;
use std::thread::available_parallelism;

use burn::tensor::FloatDType;
use burn_wgsl::WgslDevice;
use burn_wgsl::device::{AdapterKind, ResolvedDevice};
use burn_wgsl::runtime::{Allocation, Dispatch, Runtime, RuntimeError, Source, Variant};
use serde::Serialize;

use super::job::{Job, op};
use super::runner::{self, Plan};
use super::stats::Summary;
use super::workload;

static COPY: Source = Source { name: "copy", text: include_str!("copy.wgsl") };
static MULTIPLY_ADD: Source =
    Source { name: "multiply_add", text: include_str!("multiply_add.wgsl") };

/// Invocations of a workgroup, in both kernels.
const LANES: u64 = 256;
/// Operations of one invocation: 32 steps of 8 times 8 chains, a product and a sum each.
const OPERATIONS: u64 = 32 * 8 * 8 * 2;

/// The best rates found on a device. `None` where the probe failed.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Ceilings {
    /// Floating-point operations a second, in f32.
    pub flops_per_second: Option<f64>,
    /// Bytes read and written a second.
    pub bytes_per_second: Option<f64>,
    /// What was measured.
    pub how: String,
}

impl Ceilings {
    /// Measures a device.
    pub fn of(device: &WgslDevice, plan: &Plan, done: impl Fn(&WgslDevice, f64)) -> Self {
        let Probes { compute, copy, how } = match probes(device) {
            Ok(probes) => probes,
            Err(how) => return Self { how, ..Self::default() },
        };
        let part = 1.0 / (compute.len() + copy.len()) as f64;
        let fastest = |probe: &Probe| {
            let done = |device: &WgslDevice, share| done(device, share * part);
            let timing =
                runner::measure(&[*device], plan, |_| (probe.prepare)(), done).pop()?.ok()?;
            Some(Summary::of(&timing.samples)?.min)
        };
        let best = |probes: &[Probe]| {
            let mut best: Option<f64> = None;
            for probe in probes {
                let Some(seconds) = fastest(probe) else { break };
                let rate = probe.amount / seconds;
                best = Some(best.map_or(rate, |best| best.max(rate)));
                // What fills a sample is large enough, and the next one would only take longer.
                if seconds > plan.sample.as_secs_f64() {
                    break;
                }
            }
            best
        };
        Self { flops_per_second: best(&compute), bytes_per_second: best(&copy), how }
    }
}

/// What is timed, and what that is in words.
///
/// Each list goes from small to large, and its best rate counts.
struct Probes {
    compute: Vec<Probe>,
    copy: Vec<Probe>,
    how: String,
}

/// Something to time, and how many operations or bytes one run of it is.
struct Probe {
    amount: f64,
    prepare: Box<dyn Fn() -> Box<dyn Job>>,
}

fn probes(device: &WgslDevice) -> Result<Probes, String> {
    let place = device.resolve().map_err(|error| error.to_string())?;
    match place {
        ResolvedDevice::Cpu => Ok(cpu_probes()),
        ResolvedDevice::Adapter(index) => {
            Ok(gpu_probes(&Runtime::of(index).map_err(|error| error.to_string())?))
        }
    }
}

fn cpu_probes() -> Probes {
    let matmul = |side: usize| Probe {
        amount: 2.0 * (side as f64).powi(3),
        prepare: Box::new(move || workload::product(side, &WgslDevice::Cpu, FloatDType::F32)),
    };
    let words: usize = 8 << 20;
    let copy = move || {
        let (from, mut to) = (vec![1_u64; words], vec![0_u64; words]);
        let part = words.div_ceil(available_parallelism().map_or(1, usize::from));
        op(move || {
            std::thread::scope(|threads| {
                for (from, to) in from.chunks(part).zip(to.chunks_mut(part)) {
                    threads.spawn(|| to.copy_from_slice(from));
                }
            });
            black_box(&mut to);
        })
    };
    Probes {
        compute: [256, 512, 1024].map(matmul).into(),
        copy: vec![Probe { amount: 16.0 * words as f64, prepare: Box::new(copy) }],
        how: "the CPU device's best f32 matmul of 256, 512 or 1024, and a copy of 64 MiB by all threads".to_owned(),
    }
}

fn gpu_probes(runtime: &Arc<Runtime>) -> Probes {
    let info = runtime.info();
    let software = info.kind == AdapterKind::Software;
    // Enough for a fast GPU to be busy, and for a slow one not to be busy for long.
    let groups: u64 = if software { 512 } else { 16_384 };
    // Past the caches, where the device can hold that much.
    let most = info.limits.max_storage_binding_size.min(info.limits.max_buffer_size);
    let bytes: u64 =
        (if software { 64 << 20 } else { 512 << 20 }).min(most / (16 * LANES) * (16 * LANES));
    let how = format!(
        "multiply-adds in registers ({:.2} GFLOP a run), and a copy of {} MiB from one buffer to another",
        (groups * LANES * OPERATIONS) as f64 / 1e9,
        bytes >> 20
    );
    let multiply = {
        let runtime = runtime.clone();
        move || {
            let out = memory(&runtime, groups * LANES * 4);
            let params = [0.999_f32, 0.001].map(f32::to_ne_bytes).concat();
            kernel(&runtime, &MULTIPLY_ADD, None, out, params, groups, groups * LANES * OPERATIONS)
        }
    };
    let copy = {
        let runtime = runtime.clone();
        move || {
            let [x, out] = [0; 2].map(|_| memory(&runtime, bytes));
            let count = bytes / 16;
            let params = (count as u32).to_ne_bytes().to_vec();
            kernel(&runtime, &COPY, Some(x), out, params, count.div_ceil(LANES), count)
        }
    };
    let compute =
        Probe { amount: (groups * LANES * OPERATIONS) as f64, prepare: Box::new(multiply) };
    // Each byte is read and written.
    let copy = Probe { amount: 2.0 * bytes as f64, prepare: Box::new(copy) };
    Probes { compute: vec![compute], copy: vec![copy], how }
}

/// Panics as Burn's ops do: what is timed is guarded.
fn memory(runtime: &Runtime, bytes: u64) -> Allocation {
    runtime.alloc(bytes, &[]).unwrap_or_else(|error| refuse(&error))
}

fn refuse(error: &RuntimeError) -> ! {
    panic!("{error}")
}

fn kernel(
    runtime: &Arc<Runtime>,
    source: &'static Source,
    input: Option<Allocation>,
    output: Allocation,
    params: Vec<u8>,
    groups: u64,
    work: u64,
) -> Box<dyn Job> {
    let (runtime, variant) = (runtime.clone(), Variant::new(source));
    op(move || {
        let inputs: Vec<&Allocation> = input.iter().collect();
        let (variant, outputs, params) = (&variant, &[&output][..], params.as_slice());
        let dispatch = Dispatch { variant, inputs: &inputs, outputs, params, groups, work };
        runtime.dispatch(&dispatch).unwrap_or_else(|error| refuse(&error));
    })
}
