//! Matrix units (tensor cores): what adapters list, and how kernels use them.

use serde::Serialize;

/// A matrix unit: it multiplies square matrices of 16-bit or 32-bit floats, and adds up in f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct MatrixUnit {
    /// The number of rows and columns.
    pub size: u32,
    /// The number of bits of the floats that are multiplied.
    pub bits: u32,
}

impl MatrixUnit {
    /// Returns the units that wgpu reports, in ascending order, as far as the kernels can use them.
    pub(super) fn all(adapter: &wgpu::Adapter) -> Vec<Self> {
        use wgpu::CooperativeScalarType as Scalar;
        let units = adapter.cooperative_matrix_properties().into_iter().filter_map(|unit| {
            let bits = match unit.ab_type {
                Scalar::F16 => 16,
                Scalar::F32 => 32,
                _ => return None,
            };
            let is_square = unit.m_size == unit.n_size && unit.n_size == unit.k_size;
            let size = unit.m_size;
            let usable = is_square && unit.cr_type == Scalar::F32 && matches!(size, 8 | 16);
            (usable && !unit.saturating_accumulation).then_some(Self { size, bits })
        });
        let mut units: Vec<_> = units.collect();
        units.sort_unstable_by_key(|unit| (unit.bits, unit.size));
        units.dedup();
        units
    }
}

/// How a kernel uses matrix units.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Units {
    /// The rows and columns of the matrices that a unit multiplies.
    pub size: u32,
    /// The size of the subgroups that hold them in their registers.
    pub subgroup_size: u32,
}

impl Units {
    /// The sizes of units and subgroups that kernels are written for, the fastest first. AMD's GPUs have
    /// subgroups of 64 or 32, the others of 32, and software adapters of 8.
    pub const ALL: [Self; 4] = [
        Self { size: 16, subgroup_size: 64 },
        Self { size: 16, subgroup_size: 32 },
        Self { size: 8, subgroup_size: 32 },
        Self { size: 8, subgroup_size: 8 },
    ];

    /// Returns whether matrices are loaded from workgroup memory by rows and by columns with the same number of
    /// instructions. AMD's GPUs, whose subgroups of 64 come first, need 16 loads instead of two where steps of k are
    /// not contiguous; NVIDIA's do not, and of the others nothing is known.
    pub fn loads_both_orders(self) -> bool {
        self.subgroup_size <= 32
    }
}
