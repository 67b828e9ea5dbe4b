//! How attention and its gradients use matrix units: the sizes of `shaders/lib/attention_units.wgsl`.

use crate::device::{Limits, Units};
use crate::kernels::gemm::units::{UnitsKernel, units_for};
use crate::kernels::policy::listed_units::all_units;
use crate::runtime::Variant;
use crate::tensor::{DType, Tensor};

/// Subgroups of a workgroup.
const SUBGROUPS: u32 = 4;

/// Attention with matrix units: a workgroup of four subgroups computes a few rows each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct AttentionUnits {
    pub units: Units,
    /// The type of queries, keys and values: f16 or f32.
    pub dtype: DType,
    /// Elements of a row in workgroup memory, at least those of a key and of a value.
    pub width: u32,
}

impl AttentionUnits {
    /// The widths of rows in workgroup memory.
    pub const WIDTHS: [u32; 2] = [64, 128];

    /// Returns every kernel that a launcher can request.
    pub fn all() -> impl Iterator<Item = Self> {
        let of_width = |width| all_units().map(move |(dtype, units)| Self { units, dtype, width });
        Self::WIDTHS.into_iter().flat_map(of_width)
    }

    /// Returns the choice for operands `[.., width]`: `None` if no units support them, or all fail the
    /// test of the kernel for rows of a width.
    pub fn for_operands<K: UnitsKernel>(
        operands: &[&Tensor],
        kernel: impl FnOnce(u32) -> K,
    ) -> Option<Self> {
        let (runtime, dtype) = (operands[0].runtime(), operands[0].dtype());
        let width_of = |operand: &&Tensor| operand.shape().last().copied().unwrap_or(0);
        let is_supported =
            |operand: &&Tensor| operand.dtype() == dtype && width_of(operand).is_multiple_of(4);
        if !operands.iter().all(is_supported) {
            return None;
        }
        let needed = operands.iter().map(width_of).max()? as u32;
        let width = Self::WIDTHS.into_iter().find(|width| *width >= needed)?;
        let units = units_for(runtime, dtype, &kernel(width))?;
        Some(Self { units, dtype, width })
    }

    /// Returns the number of a kernel for operands of a type and rows of one of the widths: see
    /// [`UnitsKernel::number`].
    pub fn number(width: u32, dtype: DType) -> u32 {
        width << 1 | u32::from(dtype == DType::F32)
    }

    /// Returns the rows that a subgroup computes: fewer if workgroup memory is full with elements of
    /// 32 bits, or the registers of a small subgroup with matrices.
    fn subgroup_rows(self) -> u32 {
        if self.dtype.is_half() && self.units.subgroup_size >= 32 { 16 } else { 8 }
    }

    /// Returns the rows that a workgroup computes.
    pub fn rows(self) -> usize {
        (SUBGROUPS * self.subgroup_rows()) as usize
    }

    /// Returns the keys of a block, or the other rows that weights are of.
    fn block(self) -> u32 {
        2 * self.subgroup_rows()
    }

    /// Returns whether the other rows that weights are multiplied by are stored by columns in
    /// workgroup memory. Some drivers offer 32 KiB of it, in which wide rows have no room for this.
    fn stores_columns(self) -> bool {
        !self.units.loads_both_orders() && self.width <= 64
    }

    /// Returns whether workgroup memory has room for keys and values, scores, weights, scales (or
    /// statistics of a block), bounds and a few flags.
    pub fn fits(self, limits: &Limits) -> bool {
        let bytes = self.dtype.size() as u32;
        let block = self.block();
        let row = (self.width + 8) * bytes + (block + 4) * 4 + (block + 8) * bytes + 8;
        // Gradients of queries and keys store other rows in both orders.
        let columns = if self.stores_columns() { self.width * (block + 8) * bytes } else { 0 };
        self.rows() as u32 * row + columns + 32 <= limits.workgroup_memory
    }

    /// Specialises the shader.
    pub fn define(self, variant: Variant) -> Variant {
        let Units { size: unit, subgroup_size } = self.units;
        let (rows, block) = (self.subgroup_rows(), self.block());
        let row_lanes = (subgroup_size / rows).max(1);
        variant
            .flag("F16", self.dtype == DType::F16)
            .flag("UNITS", true)
            .flag("COLUMNS", self.stores_columns())
            .flag("UNIT_8", unit == 8)
            .flag("UNIT_16", unit == 16)
            .int("UNIT", unit)
            .int("SUBGROUP_SIZE", subgroup_size)
            .int("WIDTH", self.width)
            .int("ROWS", rows)
            .int("ROW_UNITS", rows / unit)
            .int("BLOCK_UNITS", block / unit)
            .int("WIDTH_UNITS", self.width / unit)
            .int("ROW_LANES", row_lanes)
            .int("LANE_ROWS", (rows / subgroup_size).max(1))
            .int("LANE_VEC4S", block / 4 / row_lanes)
            .int("LOADS", block * (self.width / 4) / (SUBGROUPS * subgroup_size))
            .int("PARTS", self.width / block)
    }
}
