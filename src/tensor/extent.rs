//! What is known of the kernel of a pending result before it is made.

use super::DType;

/// How large the kernel of a result becomes, with the pending results that lead to it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Extent {
    /// Expressions; one that several others use is counted several times.
    pub ops: u32,
    /// Tensors in memory: their number, and the addresses of their memory.
    pub leaves: u8,
    pub addresses: [usize; Self::MAX_LEAVES],
    /// The size of the tensors in memory in bytes, about.
    pub kept: u64,
    /// The shape, if tensors in memory are read through their strides.
    pub walked: Option<Box<[usize]>>,
    /// Equal for results that are likely to differ only in the tensors in memory.
    pub signature: u64,
    /// The integer type of the arguments, if any are integers.
    pub integer: Option<DType>,
    /// Whether a pending launch is among the results, or an op that a larger one may replace.
    pub has_launch: bool,
    /// The lines of the results, if some of them have one element for each line: reductions, or what broadcasts.
    pub lines: Option<Lines>,
}

impl Extent {
    /// The maximum number of tensors in memory that a kernel reads. One binding remains for the
    /// result, of the eight that every adapter has.
    pub const MAX_LEAVES: usize = 7;

    /// Adds a tensor in memory, unless it is known. Returns whether there was room.
    pub fn add_leaf(&mut self, address: usize) -> bool {
        let count = usize::from(self.leaves);
        if self.addresses[..count].contains(&address) {
            return true;
        }
        match self.addresses.get_mut(count) {
            Some(place) => *place = address,
            None => return false,
        }
        self.leaves += 1;
        true
    }
}

/// How a pending result is related to the lines that a pending reduction reduces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lines {
    /// The number of elements of a line.
    pub len: u32,
    /// Whether the result has one element for each line; otherwise it has all.
    pub is_reduced: bool,
}
