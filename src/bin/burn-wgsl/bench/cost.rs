//! The theoretical cost of a workload.

/// The cost of one run, by the definition of the op. Extra work of a kernel does not count.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Floating-point operations; 0 if there is no generally accepted count.
    pub flops: f64,
    /// Bytes moved if every operand is read once and every result is written once; 0 if that count
    /// is not meaningful.
    pub bytes: f64,
    /// Bytes of the largest tensor.
    pub largest_tensor: f64,
    /// Bytes of all tensors that are alive at the same time.
    pub memory: f64,
}

impl Cost {
    /// Returns the cost of an op on f32 tensors, given the number of elements of each tensor. All
    /// of them are alive at the same time.
    pub fn of_f32_op<const N: usize>(flops: f64, elements: [f64; N]) -> Self {
        let bytes = 4.0 * elements.iter().sum::<f64>();
        let largest_tensor = 4.0 * elements.iter().copied().fold(0.0, f64::max);
        Self { flops, bytes, largest_tensor, memory: bytes }
    }
}
