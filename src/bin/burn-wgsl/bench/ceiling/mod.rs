//! What a device can do at best, measured on it: the rates that results are shown as shares of.
//!
//! On a GPU two small kernels of this folder, on the CPU the ops that come nearest to them.

use std::sync::Arc;

use burn::tensor::{FloatDType, Tensor};
use burn_wgsl::device::{AdapterKind, Place};
use burn_wgsl::runtime::{Dispatch, Runtime, RuntimeError, Slice, Source, Variant};
use burn_wgsl::{Wgsl, WgslDevice};
use serde::Serialize;

use super::job::{Job, op};
use super::runner::{self, Plan};
use super::stats::Summary;
use super::workload;

static COPY: Source = Source { name: "copy", text: include_str!("copy.wgsl") };
static MULTIPLY_ADD: Source = Source { name: "multiply_add", text: include_str!("multiply_add.wgsl") };

/// Invocations of a workgroup, in both kernels.
const LANES: u64 = 256;
/// Operations of one invocation: 64 steps of 8 chains of 4 lanes, a product and a sum each.
const OPERATIONS: u64 = 64 * 8 * 4 * 2;

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
        let (compute, copy, how) = match probes(device) {
            Ok(probes) => probes,
            Err(how) => return Self { how, ..Self::default() },
        };
        let rate = |Probe { amount, prepare }: Probe| {
            let timings = runner::measure(&[*device], plan, |_| prepare(), |device, part| done(device, part / 2.0));
            let fastest = timings.into_iter().next()?.ok().and_then(|timing| Summary::of(&timing.samples))?.min;
            Some(amount / fastest)
        };
        Self { flops_per_second: rate(compute), bytes_per_second: rate(copy), how }
    }
}

/// Something to time, and how many operations or bytes one run of it is.
struct Probe {
    amount: f64,
    prepare: Box<dyn Fn() -> Box<dyn Job>>,
}

/// A probe of multiply-adds, one of copies, and what they are in words.
fn probes(device: &WgslDevice) -> Result<(Probe, Probe, String), String> {
    let place = device.place().map_err(|error| error.to_string())?;
    match place {
        Place::Cpu => Ok(cpu_probes()),
        Place::Adapter(index) => Ok(gpu_probes(&Runtime::of(index).map_err(|error| error.to_string())?)),
    }
}

fn cpu_probes() -> (Probe, Probe, String) {
    let (side, elements) = (1024, 1 << 24);
    let multiply = move || workload::product(side, &WgslDevice::Cpu, FloatDType::F32);
    let copy = move || {
        let x = Tensor::<Wgsl, 1>::ones([elements], &WgslDevice::Cpu);
        op(move || x.clone() + 1.0)
    };
    let how = "a matmul of 1024 by 1024 in f32 for multiply-adds, and x + 1 on 64 MiB for copies, both by the CPU \
               device's own ops: other ops or sizes can come out above 100 %";
    let compute = Probe { amount: 2.0 * (side as f64).powi(3), prepare: Box::new(multiply) };
    (compute, Probe { amount: 8.0 * elements as f64, prepare: Box::new(copy) }, how.to_owned())
}

fn gpu_probes(runtime: &Arc<Runtime>) -> (Probe, Probe, String) {
    let facts = runtime.facts();
    let software = facts.kind == AdapterKind::Software;
    // Enough for a fast GPU to be busy, and for a slow one not to be busy for long.
    let groups: u64 = if software { 512 } else { 16_384 };
    // Past the caches, where the device can hold that much.
    let most = facts.limits.max_storage_binding_size.min(facts.limits.max_buffer_size);
    let bytes: u64 = (if software { 64 << 20 } else { 512 << 20 }).min(most / (16 * LANES) * (16 * LANES));
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
    let compute = Probe { amount: (groups * LANES * OPERATIONS) as f64, prepare: Box::new(multiply) };
    // Each byte is read and written.
    (compute, Probe { amount: 2.0 * bytes as f64, prepare: Box::new(copy) }, how)
}

/// Panics as Burn's ops do: what is timed is guarded.
fn memory(runtime: &Runtime, bytes: u64) -> Slice {
    runtime.alloc(bytes, &[]).unwrap_or_else(|error| refuse(&error))
}

fn refuse(error: &RuntimeError) -> ! {
    panic!("{error}")
}

fn kernel(
    runtime: &Arc<Runtime>,
    source: &'static Source,
    input: Option<Slice>,
    output: Slice,
    params: Vec<u8>,
    groups: u64,
    work: u64,
) -> Box<dyn Job> {
    let (runtime, variant) = (runtime.clone(), Variant::new(source));
    op(move || {
        let inputs: Vec<&Slice> = input.iter().collect();
        let (variant, outputs, params) = (&variant, &[&output][..], params.as_slice());
        let dispatch = Dispatch { variant, inputs: &inputs, outputs, params, groups, work };
        runtime.dispatch(&dispatch).unwrap_or_else(|error| refuse(&error));
    })
}
