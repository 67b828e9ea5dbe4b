//! Matrix units that kernels are written for.

use crate::device::{AdapterInfo, CAN_BLOCK, Units};
use crate::tensor::DType;

/// Returns every choice of units, with the type of the operands.
pub(crate) fn all_units() -> impl Iterator<Item = (DType, Units)> {
    // Units for f32 are Apple's.
    let of_f32 = |units: &Units| (units.size, units.subgroup_size) == (8, 32);
    let f16 = Units::ALL.into_iter().map(|units| (DType::F16, units));
    f16.chain(Units::ALL.into_iter().filter(of_f32).map(|units| (DType::F32, units)))
}

/// Returns the units that an adapter lists for operands of a type, as far as kernels are written for them. A
/// browser has none.
pub(crate) fn listed(info: &AdapterInfo, dtype: DType) -> impl Iterator<Item = Units> {
    let known = move |units: &Units| CAN_BLOCK && all_units().any(|each| each == (dtype, *units));
    info.units(8 * dtype.size() as u32).filter(known)
}
