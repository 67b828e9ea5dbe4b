//! Matrix units: which of them the kernels use, after a test on the device.

use std::any::TypeId;
use std::sync::Arc;

use crate::device::{Limits, Units};
use crate::kernels::policy::listed_units::listed;
use crate::runtime::Runtime;
use crate::tensor::{DType, Result, Tensor};

/// A kernel with matrix units that is tested before its first use.
pub(crate) trait UnitsKernel: 'static {
    /// Returns whether an adapter with these limits can run it.
    fn fits(&self, limits: &Limits, units: Units, dtype: DType) -> bool;

    /// Returns a number for operands of this type, which no other kernel of the Rust type has.
    fn number(&self, dtype: DType) -> u32;

    /// Returns a name that is unique among kernels with matrix units, for messages and stored
    /// failures.
    fn name(&self) -> String;

    /// Returns whether it computes right results with these units.
    fn is_right(&self, runtime: &Arc<Runtime>, dtype: DType, units: Units) -> Result<bool>;
}

/// Returns the units for a kernel: the first that the adapter lists and that pass the test, which runs
/// before the kernel's first use. Units with a wrong result are not tried again with the same driver.
pub(crate) fn units_for<K: UnitsKernel>(
    runtime: &Arc<Runtime>,
    dtype: DType,
    kernel: &K,
) -> Option<Units> {
    let info = runtime.info();
    let mut usable =
        listed(info, dtype).filter(|units| kernel.fits(&info.limits, *units, dtype)).peekable();
    usable.peek()?;
    let passes = |units: &Units| passes(runtime, dtype, *units, kernel);
    let tested = runtime.tested_units(TypeId::of::<K>(), kernel.number(dtype));
    *tested.get_or_init(|| usable.find(passes))
}

/// Tests a kernel with these units, unless it failed with the same driver before. Remembers a wrong
/// result, and the loss of the device, which would take the tensors of the program with it again.
fn passes(runtime: &Arc<Runtime>, dtype: DType, units: Units, kernel: &impl UnitsKernel) -> bool {
    let Units { size, subgroup_size } = units;
    let kernel_name = kernel.name();
    let name = format!(
        "matrix units {size}x{size} {dtype:?} in subgroups of {subgroup_size}, {kernel_name}"
    );
    if runtime.refusals().get(&name).is_some() || runtime.lost().is_some() {
        return false;
    }
    match kernel.is_right(runtime, dtype, units) {
        Ok(true) => {
            log::info!("{}: uses {name}", runtime.name());
            true
        }
        Ok(false) => {
            log::info!("{}: {name} computes a wrong result, and is not used", runtime.name());
            runtime.refusals().store(&name, "wrong result");
            false
        }
        Err(error) => {
            log::warn!("{}: {name} fails, and is not used: {error}", runtime.name());
            // Without memory, the loss says nothing about the kernel.
            let lost = runtime.lost().filter(|reason| !reason.to_lowercase().contains("memory"));
            if lost.is_some() {
                runtime.refusals().store(&name, "lost the device");
            }
            false
        }
    }
}

/// Returns an element of a test, for two numbers that locate it. Products and sums of such integers are
/// exact in f32. Sums of f16 exceed 2048, so sums in f16 are wrong. A large element of f32 needs 12
/// bits, so factors of fewer bits are wrong; one factor of each product must be small.
pub(crate) fn integer(dtype: DType, [i, j]: [usize; 2], seed: usize, is_large: bool) -> f32 {
    let value = ((i * 7 + j * 13 + i * j * seed) % 31) as f32;
    match (dtype, is_large) {
        (DType::F32, true) => 2049.0 + 2.0 * value,
        (DType::F32, false) => value % 4.0,
        _ => value - 15.0,
    }
}

/// Uploads f32 elements in row-major order as a tensor of f16 or f32, for a test.
pub(crate) fn upload(
    runtime: &Arc<Runtime>,
    shape: &[usize],
    dtype: DType,
    values: impl Iterator<Item = f32>,
) -> Result<Tensor> {
    let bytes: Vec<u8> = match dtype.is_half() {
        true => values.flat_map(|value| half::f16::from_f32(value).to_le_bytes()).collect(),
        false => values.flat_map(f32::to_le_bytes).collect(),
    };
    Tensor::upload(runtime, shape, dtype, &bytes)
}

/// Returns the elements of a tensor of f32, for a test.
pub(crate) fn download(tensor: &Tensor) -> Result<Vec<f32>> {
    let read = tensor.runtime().read_blocking(&[tensor.readback_range()?])?;
    Ok(read.iter().flat_map(|bytes| bytemuck::pod_collect_to_vec(bytes)).collect())
}

/// Returns whether results differ from what is expected by at most `tolerance`, for a test. Logs what differs.
pub(crate) fn are_close(found: &[f32], expected: &[f64], tolerance: f64) -> bool {
    let is_far = |found: f32, expected: f64| {
        let error = (f64::from(found) - expected).abs();
        error.is_nan() || error > tolerance
    };
    let pairs = found.iter().zip(expected).enumerate();
    let wrong: Vec<_> =
        pairs.filter(|(_, (found, expected))| is_far(**found, **expected)).collect();
    if let Some((at, (found, expected))) = wrong.first() {
        let count = wrong.len();
        log::info!("{count} elements are wrong: {at} is {found}, expected {expected}");
    }
    wrong.is_empty() && found.len() == expected.len()
}
