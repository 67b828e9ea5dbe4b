//! Matrix units: which of them the kernels use, after a test on the device.

use std::sync::Arc;

use super::gemm;
use super::strategy::Strategy;
use crate::device::{CAN_BLOCK, MatrixUnit, Units};
use crate::runtime::Runtime;
use crate::tensor::{DType, Result, Tensor};

/// The sizes of units and subgroups that kernels are written for, the fastest first. AMD's GPUs have
/// subgroups of 64 or 32, the others of 32, and software adapters of 8.
const ALL: [Units; 4] = [
    Units { size: 16, subgroup_size: 64 },
    Units { size: 16, subgroup_size: 32 },
    Units { size: 8, subgroup_size: 32 },
    Units { size: 8, subgroup_size: 8 },
];

/// A function that multiplies two matrices with given units.
pub(crate) type Product = fn(Tensor, Tensor, Strategy, Units) -> Result<Tensor>;

/// What decides, beside the units and the type of the operands, which kernel computes a product.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UnitsKernel {
    pub strategy: Strategy,
    /// Whether each operand is transposed.
    pub transposed: [bool; 2],
}

impl UnitsKernel {
    /// Returns the index of the kernel for f16 or f32 among all.
    fn index(self, dtype: DType) -> usize {
        let [a, b] = self.transposed;
        [dtype == DType::F32, self.strategy == Strategy::Tiled128, a, b]
            .into_iter()
            .fold(0, |index, bit| index << 1 | usize::from(bit))
    }
}

/// Returns every choice of [`units_for`], with the type of the operands.
pub(crate) fn all_units() -> impl Iterator<Item = (DType, Units)> {
    // Units for f32 are Apple's.
    let of_f32 = |units: &Units| (units.size, units.subgroup_size) == (8, 32);
    let f16 = ALL.into_iter().map(|units| (DType::F16, units));
    f16.chain(ALL.into_iter().filter(of_f32).map(|units| (DType::F32, units)))
}

/// Returns the units for a kernel: the first that the adapter lists and that pass the test, which runs
/// before the kernel's first use. Units with a wrong result are not tried again with the same driver.
pub(crate) fn units_for(
    runtime: &Arc<Runtime>,
    dtype: DType,
    kernel: UnitsKernel,
    product: Product,
) -> Option<Units> {
    let info = runtime.info();
    if !CAN_BLOCK || info.matrix_units.is_empty() || !matches!(dtype, DType::F16 | DType::F32) {
        return None;
    }
    let limits = info.limits;
    let is_usable = |units: &Units| {
        let bytes = dtype.size() as u32;
        let unit = MatrixUnit { size: units.size, bits: 8 * bytes };
        info.matrix_units.contains(&unit)
            && (limits.min_subgroup_size..=limits.max_subgroup_size).contains(&units.subgroup_size)
            && all_units().any(|known| known == (dtype, *units))
            && gemm::units_fit(runtime, 64, *units, bytes)
    };
    let test = |units: &Units| Test { runtime, dtype, kernel, product, units: *units }.passes();
    let slot = runtime.tested_units(kernel.index(dtype));
    *slot.get_or_init(|| ALL.into_iter().filter(is_usable).find(test))
}

/// The test of a kernel with matrix units.
struct Test<'a> {
    runtime: &'a Arc<Runtime>,
    dtype: DType,
    kernel: UnitsKernel,
    product: Product,
    units: Units,
}

impl Test<'_> {
    /// Returns whether the kernel computes right results. Remembers if it does not.
    fn passes(&self) -> bool {
        let Self { runtime, dtype, kernel, units, .. } = self;
        let Units { size, subgroup_size } = units;
        let layouts = kernel.transposed.map(|transposed| if transposed { "t" } else { "n" });
        let name = format!(
            "matrix units {size}x{size} {dtype:?} in subgroups of {subgroup_size}, {:?} {}",
            kernel.strategy,
            layouts.concat()
        );
        if runtime.refusals().get(&name).is_some() {
            return false;
        }
        match self.is_exact() {
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
                false
            }
        }
    }

    /// Multiplies matrices of integers, whose products and sums are exact in f32. Those of f16 are too
    /// large for sums in f16, those of f32 for factors of fewer than 12 bits. Their sizes are not
    /// multiples of a tile.
    fn is_exact(&self) -> Result<bool> {
        let (m, n, k) = (148, 140, 84);
        let value = |i: usize, j: usize, seed: usize| ((i * 7 + j * 13 + i * j * seed) % 31) as f32;
        // One factor of each product of f32 is large.
        let element = |value: f32, is_large: bool| match (self.dtype, is_large) {
            (DType::F32, true) => 2049.0 + 2.0 * value,
            (DType::F32, false) => value % 4.0,
            _ => value - 15.0,
        };
        let a = |i, k| element(value(i, k, 3), k % 2 == 0);
        let b = |k, j| element(value(k, j, 5), k % 2 == 1);
        let [a_transposed, b_transposed] = self.kernel.transposed;
        let left = self.matrix([m, k], &a, a_transposed)?;
        let right = self.matrix([k, n], &b, b_transposed)?;
        let out = (self.product)(left, right, self.kernel.strategy, self.units)?;
        let read = self.runtime.read_blocking(&[out.readback_range()?])?;
        let found: Vec<f32> =
            read.iter().flat_map(|bytes| bytemuck::pod_collect_to_vec(bytes)).collect();
        let sum = |i, j| (0..k).map(|k| a(i, k) * b(k, j)).sum::<f32>();
        let expected = (0..m * n).map(|at| sum(at / n, at % n));
        Ok(found.len() == m * n && expected.zip(found).all(|(expected, found)| expected == found))
    }

    /// Returns a matrix with given elements, stored with rows and columns swapped if `transposed`.
    fn matrix(
        &self,
        [rows, cols]: [usize; 2],
        element: &dyn Fn(usize, usize) -> f32,
        transposed: bool,
    ) -> Result<Tensor> {
        let stored = if transposed { [cols, rows] } else { [rows, cols] };
        let values = (0..rows * cols).map(|at| {
            let (outer, inner) = (at / stored[1], at % stored[1]);
            if transposed { element(inner, outer) } else { element(outer, inner) }
        });
        let bytes: Vec<u8> = match self.dtype.is_half() {
            true => values.flat_map(|value| half::f16::from_f32(value).to_le_bytes()).collect(),
            false => values.flat_map(f32::to_le_bytes).collect(),
        };
        let tensor = Tensor::upload(self.runtime, &stored, self.dtype, &bytes)?;
        let layout = tensor.layout().clone();
        Ok(tensor.view(if transposed { layout.swap(0, 1) } else { layout }))
    }
}
