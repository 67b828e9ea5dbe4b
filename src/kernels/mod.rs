//! Kernel launchers: `NAME.rs` launches the shaders in `shaders/NAME/`.
//!
//! A launcher checks shapes, chooses the variant and the workgroups, and decides whether the result
//! overwrites an operand. It works on tensors and does not use Burn. Each family also lists every
//! variant that it can ask for ([`variants`]), so that all can be validated without a GPU, and the
//! cases that it must pass ([`cases`]).

pub mod common;
pub mod composed;

use std::collections::HashSet;

use self::common::cases::Case;
use crate::runtime::{Source, Variant};

macro_rules! families {
    ($($family:ident)*) => {
        $(pub mod $family;)*

        static VARIANTS: &[fn() -> Vec<Variant>] =
            &[$($family::variants),*, composed::create::variants, composed::views::variants];

        static CASES: &[&[Case]] =
            &[$($family::CASES),*, composed::create::CASES, composed::views::CASES];
    };
}

families! {
    argwhere
    attention
    cast
    conv
    cross
    ctc
    deform
    depthwise
    dequantize
    elementwise
    fft
    gather
    gather_nd
    grid_sample
    interpolate
    matmul
    matvec
    norm
    pool
    quantize
    random
    reduce
    scan
    scatter
    scatter_nd
    softmax
    sort
    transpose
}

/// Returns every variant that any launcher can ask for, once.
pub fn variants() -> Vec<Variant> {
    let mut variants: Vec<Variant> = VARIANTS.iter().flat_map(|variants| variants()).collect();
    let mut listed = HashSet::new();
    variants.retain(|variant| listed.insert(variant.clone()));
    variants
}

/// Returns the cases of every family. Rows of the elementwise table are tested by their form
/// instead.
pub fn cases() -> impl Iterator<Item = &'static Case> {
    CASES.iter().copied().flatten()
}

/// Returns every kernel source once, by name.
pub fn sources() -> Vec<&'static Source> {
    let mut sources: Vec<_> = variants().iter().map(|variant| variant.source).collect();
    sources.sort_by_key(|source| source.name);
    sources.dedup_by_key(|source| source.name);
    sources
}
