//! How products are computed on a device.

use std::fmt;

use super::Precision;
use crate::device::{DeviceError, ResolvedDevice, WgslDevice};
use crate::runtime::Runtime;

/// How products are computed on a device: see [`product_path`](super::product_path).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProductPath {
    /// In f32.
    F32,
    /// By matrix units, unless they fail their test on the device.
    MatrixUnits,
    /// Operands are read in 16 bits and multiplied in f32: fewer bytes, but as many multiply-adds per
    /// second.
    Converted,
    /// By the CPU.
    Cpu,
}

impl ProductPath {
    pub(super) fn of(device: &WgslDevice, precision: Precision) -> Result<Self, DeviceError> {
        let ResolvedDevice::Adapter(index) = device.resolve()? else { return Ok(Self::Cpu) };
        if precision == Precision::F32 {
            return Ok(Self::F32);
        }
        let runtime = Runtime::of(index)?;
        let has_units = runtime.info().units(16).next().is_some();
        let uses_units = precision == Precision::F16 && has_units && !runtime.is_software();
        Ok(if uses_units { Self::MatrixUnits } else { Self::Converted })
    }
}

impl fmt::Display for ProductPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::F32 => "in f32",
            Self::MatrixUnits => "by matrix units",
            Self::Converted => "read in 16 bits, multiplied in f32",
            Self::Cpu => "by the CPU",
        })
    }
}
