//! The coordinates of the true elements of a boolean tensor.

use crate::kernels::launch::walk::shape_words;
use crate::kernels::launch::{Launch, variants_of, workgroups_for};
use crate::kernels::ops::cases::{Case, cases};
use crate::kernels::scan::{ScanOp, scan};
use crate::kernels::{cast, views};
use crate::params;
use crate::runtime::{Kernel, Source, Variant, wgsl};
use crate::tensor::{DType, MAX_RANK, Result, Tensor};

static ARGWHERE: Source =
    Source::new::<ArgwhereParams>("argwhere", wgsl!("../../shaders/argwhere/argwhere.wgsl"));

params! {
    struct ArgwhereParams {
        count: u32,
        rank: u32,
        found: u32,
        pad0: u32,
        shape: [[u32; 4]; MAX_RANK / 4],
    }
}

/// The kernel, which has a single variant.
#[derive(Debug, Clone, Copy, Hash)]
struct ArgwhereKernel;

impl Kernel for ArgwhereKernel {
    type Params = ArgwhereParams;

    fn variant(&self) -> Variant {
        Variant::new(&ARGWHERE)
    }
}

/// Counts, for each element of a boolean tensor in row-major order, the true elements up to and
/// including it. The result has one axis.
///
/// # Errors
///
/// Returns an error if the memory is not available.
pub fn counts(tensor: &Tensor) -> Result<Tensor> {
    let line = views::reshape(tensor.clone(), &[tensor.len()])?;
    scan(ScanOp::Sum, cast::cast(line, DType::I32)?, 0)
}

/// Returns the coordinates `[found, rank]` of the true elements. `counts` is the result of
/// [`counts`], and `found` is its last element.
///
/// # Errors
///
/// Returns an error if the tensor has more than [`MAX_RANK`] axes or the memory is not available.
pub fn argwhere(tensor: Tensor, counts: &Tensor, found: usize) -> Result<Tensor> {
    let rank = tensor.shape().len();
    let shape = shape_words(tensor.shape())?;
    let tensor = views::packed(tensor)?;
    let out = Tensor::empty(tensor.runtime(), &[found, rank], DType::I32)?;
    if out.is_empty() {
        return Ok(out);
    }
    Launch {
        kernel: &ArgwhereKernel,
        inputs: &[&tensor, counts],
        outputs: &[&out],
        params: &ArgwhereParams {
            count: tensor.len() as u32,
            rank: rank as u32,
            found: found as u32,
            pad0: 0,
            shape,
        },
        workgroups: workgroups_for(tensor.len()),
        work: tensor.len() as u64,
        rounds: None,
    }
    .run()?;
    Ok(out)
}

/// Returns every variant that the family can dispatch.
pub fn variants() -> Vec<Variant> {
    variants_of([ArgwhereKernel])
}

/// No cases: `bool_argwhere` is asynchronous. `tests/training/behaviour.rs` tests it.
pub const CASES: &[Case] = cases! {};
