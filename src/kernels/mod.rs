//! Kernel launchers: `NAME.rs` launches the shaders in `shaders/NAME/`.
//!
//! A launcher checks shapes, chooses the kernel and the workgroups, and decides whether the result
//! overwrites an operand. It works on tensors and does not use Burn.
//!
//! The folders are layers. Each uses only those above it in this list:
//!
//! - `ops`: ops as data, and the cases that they must pass;
//! - `policy`: the choices that depend on the adapter;
//! - `fusion`: pending results, and the kernels that compute several of them;
//! - `launch`: a launch of a kernel on tensors;
//! - `elementwise`, `transpose`, `copy`, `create`, `cast`, `views`, `gather`, `reduce` and `random`, which most
//!   others use;
//! - `gemm`, `conv` and `attention`: what the launchers of these kernels share;
//! - `attention_pattern`: which products and softmax are attention;
//! - all others: the families, and in `software` what they use on software adapters only.
//!
//! Each family lists every variant that it can dispatch ([`variants`]), so that tests validate all
//! of them without a GPU, and the cases that it must pass ([`cases`]).

pub(crate) mod attention_pattern;
pub(crate) mod copy;
pub mod fusion;
pub mod gemm;
pub(crate) mod launch;
pub mod ops;
pub(crate) mod policy;
pub mod quantized;
pub(crate) mod software;
pub mod views;

use std::collections::HashSet;

use self::ops::cases::Case;
use crate::runtime::{Source, Variant};

/// Declares the modules of the families and collects their variants and cases.
macro_rules! families {
    ($($family:ident)*) => {
        $(pub mod $family;)*

        static VARIANTS: &[fn() -> Vec<Variant>] =
            &[$($family::variants),*, copy::variants, fusion::fused::variants, fusion::lines::variants];

        static CASES: &[&[Case]] =
            &[$($family::CASES),*, views::CASES];
    };
}

families! {
    argwhere
    attention
    attention_backward
    cast
    conv
    conv_tiled
    create
    cross
    ctc
    deform
    depthwise
    dequantize
    elementwise
    fft
    finite
    gather
    gather_nd
    grid_sample
    interpolate
    matmul
    matmul_int8
    matvec
    matvec_quantized
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
    winograd
}

/// Returns every variant that any launcher can dispatch, once.
pub fn variants() -> Vec<Variant> {
    let mut variants: Vec<Variant> = VARIANTS.iter().flat_map(|family| family()).collect();
    let mut listed = HashSet::new();
    variants.retain(|variant| listed.insert(variant.clone()));
    variants
}

/// Returns the cases of every family. Rows of the elementwise table have none: a test compares
/// each row with its reference.
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
