//! The cross product of vectors along an axis.

use smallvec::SmallVec;

use crate::kernels::launch::walk::Walk;
use crate::kernels::launch::{Launch, variants_of, workgroups_for};
use crate::kernels::ops::cases::{Case, cases, permuted};
use crate::params;
use crate::runtime::{Kernel, Source, Variant, wgsl};
use crate::tensor::{DType, Error, Layout, Result, Tensor, broadcast};

static CROSS: Source = Source::new::<CrossParams>("cross", wgsl!("../../shaders/cross/cross.wgsl"));

params! {
    struct CrossParams {
        count: u32,
        out_stride: i32,
        lhs_stride: i32,
        rhs_stride: i32,
        walk: Walk,
    }
}

/// The kernel, which has a single variant.
#[derive(Debug, Clone, Copy, Hash)]
struct CrossKernel;

impl Kernel for CrossKernel {
    type Params = CrossParams;

    fn variant(&self) -> Variant {
        Variant::new(&CROSS)
    }
}

/// Computes the cross products of the vectors along `axis`. It must have size 3 in both operands;
/// the other axes broadcast.
///
/// # Errors
///
/// Returns an error if the shapes do not fit or the memory is not available.
pub fn cross(lhs: Tensor, rhs: Tensor, axis: usize) -> Result<Tensor> {
    lhs.same_device(&rhs)?;
    let error = || Error::Shape {
        lhs: lhs.shape().to_vec(),
        rhs: rhs.shape().to_vec(),
        rule: "both must have the same rank, size 3 along the axis of the product, and broadcast",
    };
    let has_vectors = |tensor: &Tensor| tensor.shape().get(axis) == Some(&3);
    if !has_vectors(&lhs) || !has_vectors(&rhs) || lhs.shape().len() != rhs.shape().len() {
        return Err(error());
    }
    let shape = broadcast(lhs.shape(), rhs.shape()).ok_or_else(error)?;
    let out = Tensor::empty(lhs.runtime(), &shape, DType::F32)?;
    if out.is_empty() {
        return Ok(out);
    }
    let expanded = |tensor: &Tensor| tensor.layout().expand(&shape).ok_or_else(error);
    let layouts = [out.layout().clone(), expanded(&lhs)?, expanded(&rhs)?];
    // The walk is over the vectors: the axes other than `axis`.
    let others: SmallVec<[usize; 6]> = (0..shape.len()).filter(|&other| other != axis).collect();
    let vectors: [Layout; 3] = [0, 1, 2].map(|i: usize| layouts[i].permute(&others));
    let count = out.len() / 3;
    let [out_stride, lhs_stride, rhs_stride] =
        [0, 1, 2].map(|i: usize| layouts[i].strides[axis] as i32);
    Launch {
        kernel: &CrossKernel,
        inputs: &[&lhs, &rhs],
        outputs: &[&out],
        params: &CrossParams {
            count: count as u32,
            out_stride,
            lhs_stride,
            rhs_stride,
            walk: Walk::new(&[&vectors[0], &vectors[1], &vectors[2]])?,
        },
        workgroups: workgroups_for(count),
        work: out.len() as u64,
        rounds: None,
    }
    .run()?;
    Ok(out)
}

/// Returns every variant that the family can dispatch.
pub fn variants() -> Vec<Variant> {
    variants_of([CrossKernel])
}

/// The cases that the family must pass.
pub const CASES: &[Case] = cases! {
    float_cross([5, 3], [5, 3], 1);
    float_cross([3, 70], [3, 70], 0);
    float_cross([2, 3, 4], permuted(&[4, 3, 2], &[2, 1, 0]), 1);
    float_cross([2, 1, 3], [1, 4, 3], 2);
    float_cross([3], [3], 0);
    float_cross([0, 3], [0, 3], 1);
};
