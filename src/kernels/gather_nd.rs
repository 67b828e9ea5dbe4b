//! Reads slices of a tensor at multi-dimensional indices.

use smallvec::SmallVec;

use crate::kernels::launch::walk::shape_words;
use crate::kernels::launch::{Launch, variants_of, workgroups_for};
use crate::kernels::ops::cases::{Case, below, cases, ints, permuted};
use crate::kernels::{cast, views};
use crate::params;
use crate::runtime::{IndexedAxis, Kernel, Source, Variant, wgsl};
use crate::tensor::{DType, Error, MAX_RANK, Result, Shape, Tensor};

static GATHER_ND: Source =
    Source::new::<GatherNdParams>("gather_nd", wgsl!("../../shaders/gather_nd/gather_nd.wgsl"));

params! {
    struct GatherNdParams {
        count: u32,
        indexed_axes: u32,
        slice_len: u32,
        line_len: u32,
        shape: [[u32; 4]; MAX_RANK / 4],
    }
}

/// The kernel that reads slices, or computes their locations.
#[derive(Debug, Clone, Copy, Hash)]
struct GatherNdKernel {
    /// The type of the elements.
    dtype: DType,
    /// Whether the result is the locations instead of the elements there.
    locations: bool,
}

impl Kernel for GatherNdKernel {
    type Params = GatherNdParams;

    fn variant(&self) -> Variant {
        Variant::new(&GATHER_ND).ty("E", self.dtype.wgsl()).flag("LOCATIONS", self.locations)
    }
}

/// The kernel that computes locations.
const LOCATIONS: GatherNdKernel = GatherNdKernel { dtype: DType::I32, locations: true };

/// Returns the number of axes that each row of indices addresses, and the number of elements at
/// each location. The arguments are the shapes of the tensor and of the indices.
///
/// # Errors
///
/// Returns an error if there are more indices in a row than axes.
pub(super) fn indexed_axes(shape: &[usize], indices: &[usize]) -> Result<(usize, usize)> {
    let axes = indices.last().copied().unwrap_or(0);
    if axes > shape.len() || indices.is_empty() || axes > MAX_RANK {
        return Err(Error::Shape {
            lhs: shape.to_vec(),
            rhs: indices.to_vec(),
            rule: "the last axis of the indices must have at most one index for each axis of the \
                   tensor",
        });
    }
    Ok((axes, shape[axes..].iter().product()))
}

/// Returns the slices of `tensor` at `indices` `[.., k]`: `[.., remaining axes of the tensor]`.
/// Each row of indices is a location in the first `k` axes. An index outside its axis is reported,
/// and clamped to it.
///
/// # Errors
///
/// Returns an error if the shapes do not fit or the memory is not available.
pub fn gather_nd(tensor: Tensor, indices: Tensor) -> Result<Tensor> {
    tensor.same_device(&indices)?;
    let (axes, slice_len) = indexed_axes(tensor.shape(), indices.shape())?;
    let (tensor, indices) = (views::packed(tensor)?, views::packed(cast::indices(indices)?)?);
    let mut shape: Shape = indices.shape()[..indices.shape().len() - 1].into();
    shape.extend_from_slice(&tensor.shape()[axes..]);
    let out = Tensor::empty(tensor.runtime(), &shape, tensor.dtype())?;
    if out.is_empty() {
        return Ok(out);
    }
    if tensor.is_empty() {
        return Err(Error::Shape {
            lhs: tensor.shape().to_vec(),
            rhs: indices.shape().to_vec(),
            rule: "the gathered axes must not be empty",
        });
    }
    Launch {
        kernel: &GatherNdKernel { dtype: tensor.dtype(), locations: false },
        inputs: &[&indices, &tensor],
        outputs: &[&out],
        params: &GatherNdParams {
            count: out.len() as u32,
            indexed_axes: axes as u32,
            slice_len: slice_len as u32,
            line_len: 1,
            shape: shape_words(&tensor.shape()[..axes])?,
        },
        workgroups: workgroups_for(out.len()),
        work: out.len() as u64,
        rounds: Some(MAX_RANK as u64),
    }
    .run_indexed(&first_axes(&tensor.shape()[..axes]), &[])?;
    Ok(out)
}

/// Returns consecutive axes, from the first one on.
pub(super) fn first_axes(sizes: &[usize]) -> SmallVec<[IndexedAxis; MAX_RANK]> {
    sizes.iter().enumerate().map(|(axis, &size)| IndexedAxis { axis, size }).collect()
}

/// Computes the location of each row of `indices` `[.., axes]`, as i32 `[rows]`: the row-major
/// index over the axes, or -1 if an index is outside its axis, which is reported. The rows are
/// divided into lines of `line_len`; the locations of a line follow those of the line before.
///
/// # Errors
///
/// Returns an error if the memory is not available.
pub(super) fn locations(axes: &[IndexedAxis], indices: Tensor, line_len: usize) -> Result<Tensor> {
    let rows = indices.shape()[..indices.shape().len() - 1].iter().product::<usize>();
    let sizes: Shape = axes.iter().map(|axis| axis.size).collect();
    let indices = views::packed(cast::indices(indices)?)?;
    let out = Tensor::empty(indices.runtime(), &[rows], DType::I32)?;
    Launch {
        kernel: &LOCATIONS,
        inputs: &[&indices],
        outputs: &[&out],
        params: &GatherNdParams {
            count: rows as u32,
            indexed_axes: axes.len() as u32,
            slice_len: 1,
            line_len: line_len as u32,
            shape: shape_words(&sizes)?,
        },
        workgroups: workgroups_for(rows),
        work: rows as u64,
        rounds: Some(MAX_RANK as u64),
    }
    .run_indexed(axes, &[])?;
    Ok(out)
}

/// Returns every variant that the family can dispatch.
pub fn variants() -> Vec<Variant> {
    let gathers = DType::COMPUTE_TYPES.map(|dtype| GatherNdKernel { dtype, locations: false });
    variants_of([LOCATIONS].into_iter().chain(gathers))
}

/// The cases that the family must pass.
pub const CASES: &[Case] = cases! {
    float_gather_nd([5, 6, 4], below(5, &[7, 2]));
    float_gather_nd(permuted(&[5, 6, 4], &[2, 0, 1]), below(4, &[3, 2, 3]));
    float_gather_nd([5, 6], below(5, &[9, 1]));
    int_gather_nd(ints(&[5, 6]), below(5, &[3, 2]));
};
