//! The kernels' launchers: one file per shader family.
//!
//! A launcher checks shapes, chooses the variant and the grid, and decides whether the result is
//! written in place. It knows tensors, not Burn. Each family also lists every variant it can ask for
//! ([`variants`]), so that all of them can be validated without a GPU, and the cases it must pass.

pub mod cases;
pub(crate) mod gemm;
pub(crate) mod geometry;
pub mod table;
pub(crate) mod team;
pub mod tuning;

/// The families: a file each, with its launchers, its `variants()` and its `CASES`.
macro_rules! families {
    ($($family:ident)*) => {
        $(pub mod $family;)*

        /// Every variant that any launcher can ask for.
        pub fn variants() -> Vec<Variant> {
            [$($family::variants()),*].concat()
        }

        /// The cases of every family.
        pub(crate) static FAMILY_CASES: &[&[cases::Case]] = &[$($family::CASES),*];
    };
}

families! {
    attention
    cast
    conv
    copy
    create
    cross
    ctc
    deform
    depthwise
    elementwise
    fft
    grid_sample
    index
    index_nd
    interpolate
    matmul
    matvec
    norm
    pool
    quantized
    random
    reduce
    scan
    softmax
    sort
    transpose
}

use smallvec::SmallVec;

use crate::runtime::{Allocation, Dispatch, Source, Variant};
use crate::tensor::{Error, Layout, MAX_RANK, Result, Tensor, collapse};

/// Every kernel's text, once.
pub fn sources() -> Vec<&'static Source> {
    let mut sources: Vec<&'static Source> =
        variants().iter().map(|variant| variant.source).collect();
    sources.sort_by_key(|source| source.name);
    sources.dedup_by_key(|source| source.name);
    sources
}

/// The words of a kernel's `Params`.
pub(crate) type Params = SmallVec<[u32; 112]>;

/// What a launch runs on and how large it is.
pub(crate) struct Launch<'a> {
    pub variant: &'a Variant,
    pub inputs: &'a [&'a Tensor],
    pub outputs: &'a [&'a Tensor],
    pub params: &'a [u32],
    /// Workgroups.
    pub groups: u64,
    /// A rough count of operations.
    pub work: u64,
}

impl Launch<'_> {
    pub fn run(self) -> Result<()> {
        let runtime = self.outputs[0].runtime();
        let inputs: SmallVec<[&Allocation; 6]> = self.inputs.iter().map(|t| t.buffer()).collect();
        let outputs: SmallVec<[&Allocation; 2]> = self.outputs.iter().map(|t| t.buffer()).collect();
        runtime.dispatch(&Dispatch {
            variant: self.variant,
            inputs: &inputs,
            outputs: &outputs,
            params: bytemuck::cast_slice(self.params),
            groups: self.groups,
            work: self.work,
        })?;
        Ok(())
    }
}

/// The words of the shaders' `Walk`: where an element of a shape lies in up to four tensors.
/// All layouts have the same shape.
pub(crate) fn walk(layouts: &[&Layout]) -> Result<(Params, usize)> {
    let (shape, strides) = collapse(layouts);
    if shape.len() > MAX_RANK {
        return Err(Error::TooManyAxes { shape: shape.to_vec() });
    }
    // A tensor of one element still has one axis to walk.
    let rank = shape.len().max(1);
    let mut words: Params = SmallVec::from_elem(0, MAX_RANK * 5 + 8);
    for axis in 0..rank {
        words[axis] = shape.get(axis).map_or(1, |&size| size as u32);
        for (tensor, strides) in strides.iter().enumerate() {
            words[MAX_RANK + 8 + axis * 4 + tensor] =
                strides.get(axis).map_or(0, |&s| s as i32 as u32);
        }
    }
    for (tensor, layout) in layouts.iter().enumerate() {
        words[MAX_RANK + tensor] = layout.offset as u32;
    }
    words[MAX_RANK + 4] = rank as u32;
    Ok((words, shape.last().copied().unwrap_or(1)))
}

/// `a / b`, rounded up, in 64 bits: the count of workgroups for `a` elements.
pub(crate) fn div_up(a: usize, b: usize) -> u64 {
    a.div_ceil(b) as u64
}
