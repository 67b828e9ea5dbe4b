//! Matrix units: which of them the kernels use, after a test on the device.

use std::sync::Arc;

use crate::device::{CAN_BLOCK, MatrixUnit, Units};
use crate::runtime::Runtime;
use crate::tensor::{DType, Result, Tensor};

/// The sizes of units and subgroups that kernels are written for, the fastest first. Subgroups of 64 and
/// of 32 are those of AMD; of 32, all other GPUs; of 8, software adapters.
const ALL: [Units; 4] = [
    Units { size: 16, subgroup_size: 64 },
    Units { size: 16, subgroup_size: 32 },
    Units { size: 8, subgroup_size: 32 },
    Units { size: 8, subgroup_size: 8 },
];

/// A function that multiplies two matrices with given units.
pub(crate) type Product = fn(Tensor, Tensor, Units) -> Result<Tensor>;

/// Returns every choice of [`units_for`], with the type of the operands.
pub(crate) fn all_units() -> impl Iterator<Item = (DType, Units)> {
    // Units for f32 are Apple's.
    let of_f32 = |units: &Units| (units.size, units.subgroup_size) == (8, 32);
    let f16 = ALL.into_iter().map(|units| (DType::F16, units));
    f16.chain(ALL.into_iter().filter(of_f32).map(|units| (DType::F32, units)))
}

/// Returns the units for a product of operands of a type: the first that the adapter lists and that pass
/// the test, which runs before the first product. Units that fail are not tried again with the same
/// driver.
pub(crate) fn units_for(runtime: &Arc<Runtime>, dtype: DType, product: Product) -> Option<Units> {
    let info = runtime.info();
    if !CAN_BLOCK || info.matrix_units.is_empty() || !matches!(dtype, DType::F16 | DType::F32) {
        return None;
    }
    let limits = info.limits;
    let is_listed = |units: &Units| {
        let unit = MatrixUnit { size: units.size, bits: 8 * dtype.size() as u32 };
        info.matrix_units.contains(&unit)
            && (limits.min_subgroup_size..=limits.max_subgroup_size).contains(&units.subgroup_size)
            && all_units().any(|known| known == (dtype, *units))
    };
    let slot = runtime.tested_units(dtype.size());
    *slot.get_or_init(|| {
        ALL.into_iter().filter(is_listed).find(|units| works(runtime, *units, dtype, product))
    })
}

/// Returns whether units compute right results. Remembers those that do not.
fn works(runtime: &Arc<Runtime>, units: Units, dtype: DType, product: Product) -> bool {
    let Units { size, subgroup_size } = units;
    let name = format!("matrix units {size}x{size} {dtype:?} in subgroups of {subgroup_size}");
    if runtime.refusals().get(&name).is_some() {
        return false;
    }
    let outcome = [false, true].into_iter().try_fold(true, |works, transposed| {
        Ok(works && is_exact(runtime, units, dtype, product, transposed)?)
    });
    match outcome {
        Ok(true) => {
            log::info!("{}: uses {name}", runtime.name());
            true
        }
        Ok(false) => {
            log::info!("{}: {name} computes a wrong result, and is not used", runtime.name());
            runtime.refusals().store(&name, "wrong result");
            false
        }
        Err::<bool, crate::tensor::Error>(error) => {
            log::warn!("{}: {name} fails, and is not used: {error}", runtime.name());
            false
        }
    }
}

/// Multiplies matrices of small integers, whose products and sums are exact in f32, but not in f16.
/// Their sizes are not multiples of a tile.
fn is_exact(
    runtime: &Arc<Runtime>,
    units: Units,
    dtype: DType,
    product: Product,
    transposed: bool,
) -> Result<bool> {
    let (m, n, k) = (76, 68, 84);
    let value =
        |i: usize, j: usize, seed: usize| ((i * 7 + j * 13 + i * j * seed) % 31) as f32 - 15.0;
    let (a, b) = (|i, k| value(i, k, 3), |k, j| value(k, j, 5));
    let tensor = |shape: [usize; 2], value: &dyn Fn(usize, usize) -> f32| {
        let values = (0..shape[0] * shape[1]).map(|at| value(at / shape[1], at % shape[1]));
        let bytes: Vec<u8> = match dtype.is_half() {
            true => values.flat_map(|value| half::f16::from_f32(value).to_le_bytes()).collect(),
            false => values.flat_map(f32::to_le_bytes).collect(),
        };
        Tensor::upload(runtime, &shape, dtype, &bytes)
    };
    let swapped = |tensor: Tensor| {
        let layout = tensor.layout().swap(0, 1);
        tensor.view(layout)
    };
    let out = match transposed {
        false => product(tensor([m, k], &a)?, tensor([k, n], &b)?, units),
        true => {
            let (a, b) = (tensor([k, m], &|k, i| a(i, k))?, tensor([n, k], &|j, k| b(k, j))?);
            product(swapped(a), swapped(b), units)
        }
    }?;
    let read = runtime.read_blocking(&[out.readback_range()?])?;
    let found: Vec<f32> =
        read.iter().flat_map(|bytes| bytemuck::pod_collect_to_vec(bytes)).collect();
    let sum = |i, j| (0..k).map(|k| a(i, k) * b(k, j)).sum::<f32>();
    let expected = (0..m * n).map(|at| sum(at / n, at % n));
    Ok(found.len() == m * n && expected.zip(found).all(|(expected, found)| expected == found))
}
