//! The peak rates of a GPU, as two kernels reach them: what the rates of other kernels are compared
//! with.

use std::sync::Arc;

use crate::device::{AdapterKind, WgslDevice};
use crate::runtime::{
    Allocation, Dispatch, Kernel, KernelKey, ObservedDevice, Runtime, RuntimeError, Source, Variant,
};

use super::{ProfileError, profile};

static COPY: Source = Source::new::<u32>("copy", include_str!("copy.wgsl"));
static MULTIPLY_ADD: Source =
    Source::new::<[f32; 2]>("multiply_add", include_str!("multiply_add.wgsl"));

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
/// Operations per invocation of `multiply_add`: 32 steps of 8 repetitions on 8 chains, 2 each.
const OPERATIONS_PER_INVOCATION: u64 = 32 * 8 * 8 * 2;
/// How often each kernel runs. The fastest run counts.
const RUNS: usize = 8;

/// The highest rates of a GPU that two simple kernels reach. A rate that a profile shows can be
/// higher: of a kernel whose operands are in a cache, or whose operations are counted roughly.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Peaks {
    /// f32 operations per second; a multiplication and an addition are two.
    pub operations: f64,
    /// Bytes read and written per second.
    pub bytes: f64,
}

/// Measures the peak rates of a GPU, in less than a second.
///
/// ```no_run
/// use burn_wgsl::{WgslDevice, profiler};
///
/// let peaks = profiler::peaks(&WgslDevice::Gpu(0))?;
/// println!("{:.0} GFLOP/s, {:.0} GB/s", peaks.operations / 1e9, peaks.bytes / 1e9);
/// # Ok::<(), burn_wgsl::ProfileError>(())
/// ```
///
/// # Errors
///
/// As [`profile`]; also if the device is the CPU, or out of memory.
pub fn peaks(device: &WgslDevice) -> Result<Peaks, ProfileError> {
    let ObservedDevice::Gpu(runtime) = ObservedDevice::of(device)? else {
        return Err(ProfileError::Cpu);
    };
    let rate = |probe: Probe| -> Result<f64, ProfileError> {
        let launch = probe.prepare()?;
        // The first run compiles the kernel.
        launch()?;
        let (launched, profile) = profile(device, || (0..RUNS).try_for_each(|_| launch()))?;
        launched?;
        // Other threads may launch other kernels meanwhile.
        let name = probe.kernel_name();
        let spans = profile.spans.iter().filter(|span| span.kernel == name);
        let times: Vec<f64> = spans.map(|span| span.time.as_secs_f64()).collect();
        // A launch that may run too long is several spans.
        let time = match times.len() == RUNS {
            true => times.iter().copied().fold(f64::INFINITY, f64::min),
            false => times.iter().sum::<f64>() / RUNS as f64,
        };
        Ok(probe.amount as f64 / time.max(1e-9))
    };
    let [multiply_add, copy] = probes(&runtime);
    Ok(Peaks { operations: rate(multiply_add)?, bytes: rate(copy)? })
}

/// What a probe launches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Probed {
    Operations,
    Bytes,
}

/// A kernel that reaches a peak rate.
#[derive(Debug, Clone)]
pub struct Probe {
    /// Operations, or bytes read and written, per launch.
    pub amount: u64,
    probed: Probed,
    runtime: Arc<Runtime>,
}

/// Returns the probes of a GPU: for operations and for bytes.
pub fn probes(runtime: &Arc<Runtime>) -> [Probe; 2] {
    let info = runtime.info();
    let is_software = info.kind == AdapterKind::Software;
    // Keeps a fast GPU busy without taking long on a slow one.
    let groups: u64 = if is_software { 512 } else { 16_384 };
    // Larger than the caches, as far as the limits of the device allow.
    let max_bytes = info.limits.max_storage_binding_size.min(info.limits.max_buffer_size);
    let bytes_per_group = 16 * WORKGROUP_SIZE;
    let bytes: u64 = (if is_software { 64 << 20 } else { 512 << 20 })
        .min(max_bytes / bytes_per_group * bytes_per_group);
    let runtime = || runtime.clone();
    [
        Probe {
            amount: groups * WORKGROUP_SIZE * OPERATIONS_PER_INVOCATION,
            probed: Probed::Operations,
            runtime: runtime(),
        },
        // Each byte is read and written.
        Probe { amount: 2 * bytes, probed: Probed::Bytes, runtime: runtime() },
    ]
}

impl Probe {
    fn kernel_name(&self) -> &'static str {
        match self.probed {
            Probed::Operations => MULTIPLY_ADD.name,
            Probed::Bytes => COPY.name,
        }
    }

    /// Returns what the probe does, in words.
    #[cfg(feature = "internals")]
    pub fn describe(&self) -> String {
        match self.probed {
            Probed::Operations => {
                let giga = self.amount as f64 / 1e9;
                format!("multiply-adds in registers ({giga:.2} GFLOP per run)")
            }
            Probed::Bytes => {
                format!("a copy of {} MiB between two buffers", self.amount >> 21)
            }
        }
    }

    /// Allocates the operands, and returns a function that launches the kernel.
    ///
    /// # Errors
    ///
    /// Returns an error if the device is out of memory or lost. The function returns those of
    /// [`Runtime::dispatch`].
    pub fn prepare(&self) -> Result<impl Fn() -> Result<(), RuntimeError> + use<>, RuntimeError> {
        let Self { amount, probed, runtime } = self.clone();
        let (input, output, groups) = match probed {
            Probed::Operations => {
                let invocations = amount / OPERATIONS_PER_INVOCATION;
                (None, runtime.alloc(4 * invocations)?, invocations / WORKGROUP_SIZE)
            }
            Probed::Bytes => {
                let bytes = amount / 2;
                let (input, output) = (runtime.alloc(bytes)?, runtime.alloc(bytes)?);
                (Some(input), output, (bytes / 16).div_ceil(WORKGROUP_SIZE))
            }
        };
        Ok(move || match probed {
            Probed::Operations => {
                launch(&runtime, &MultiplyAdd, &[], &output, [0.999, 0.001], groups, amount)
            }
            Probed::Bytes => {
                let inputs: Vec<&Allocation> = input.iter().collect();
                let vec4s = amount / 32;
                launch(&runtime, &Copy, &inputs, &output, vec4s as u32, groups, vec4s)
            }
        })
    }
}

fn launch<K: Kernel>(
    runtime: &Runtime,
    kernel: &K,
    inputs: &[&Allocation],
    output: &Allocation,
    params: K::Params,
    groups: u64,
    work: u64,
) -> Result<(), RuntimeError> {
    runtime.dispatch(&Dispatch {
        key: KernelKey::of(kernel),
        kernel: &|| kernel.variant(),
        inputs,
        outputs: &[output],
        params: bytemuck::bytes_of(&params),
        groups,
        work,
        indexed_axes: None,
        also_read: &[],
        also_written: &[],
        separate: &[],
    })
}
