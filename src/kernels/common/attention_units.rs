//! How attention uses matrix units: the sizes of `shaders/attention/attention_units.wgsl`.

use super::units::all_units;
use crate::device::{Limits, Units};
use crate::runtime::Variant;
use crate::tensor::DType;

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

    /// Returns the rows that a subgroup computes: fewer if workgroup memory is full with elements of
    /// 32 bits, or the registers of a small subgroup with matrices.
    fn subgroup_rows(self) -> u32 {
        if self.dtype.is_half() && self.units.subgroup_size >= 32 { 16 } else { 8 }
    }

    /// Returns the rows that a workgroup computes.
    pub fn rows(self) -> usize {
        (SUBGROUPS * self.subgroup_rows()) as usize
    }

    /// Returns the keys of a block.
    fn keys(self) -> u32 {
        2 * self.subgroup_rows()
    }

    /// Returns whether workgroup memory has room for keys and values, scores, weights, scales and a
    /// few flags.
    pub fn fits(self, limits: &Limits) -> bool {
        let bytes = self.dtype.size() as u32;
        let keys = self.keys();
        let row = (self.width + 8) * bytes + (keys + 4) * 4 + (keys + 8) * bytes + 4;
        self.rows() as u32 * row + 32 <= limits.workgroup_memory
    }

    /// Specialises the shader.
    pub fn define(self, variant: Variant) -> Variant {
        let Units { size: unit, subgroup_size } = self.units;
        let (rows, keys) = (self.subgroup_rows(), self.keys());
        let row_lanes = (subgroup_size / rows).max(1);
        variant
            .flag("F16", self.dtype == DType::F16)
            .flag("UNITS", true)
            .flag("UNIT_8", unit == 8)
            .flag("UNIT_16", unit == 16)
            .int("UNIT", unit)
            .int("SUBGROUP_SIZE", subgroup_size)
            .int("WIDTH", self.width)
            .int("ROWS", rows)
            .int("ROW_UNITS", rows / unit)
            .int("KEY_UNITS", keys / unit)
            .int("WIDTH_UNITS", self.width / unit)
            .int("ROW_LANES", row_lanes)
            .int("LANE_ROWS", (rows / subgroup_size).max(1))
            .int("LANE_VEC4S", keys / 4 / row_lanes)
            .int("LOADS", keys * (self.width / 4) / (SUBGROUPS * subgroup_size))
            .int("PARTS", self.width / keys)
    }
}
