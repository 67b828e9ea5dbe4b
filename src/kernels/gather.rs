//! Reads along one axis by a tensor of indices: gather, select and embedding.
//!
//! A select is a gather with expanded indices.

use smallvec::SmallVec;

use crate::kernels::fusion::prologue;
use crate::kernels::launch::walk::Walk;
use crate::kernels::launch::{Launch, Reads, parts, variants_of, workgroups_for};
use crate::kernels::ops::cases::{Case, below, bools, cases, ints, permuted};
use crate::kernels::{cast, copy, views};
use crate::params;
use crate::runtime::{IndexedAxis, Kernel, Source, Variant, wgsl};
use crate::tensor::{DType, Error, Result, Shape, Tensor};

static GATHER: Source =
    Source::new::<GatherParams>("gather", wgsl!("../../shaders/gather/gather.wgsl"));

params! {
    struct GatherParams {
        count: u32,
        size: u32,
        stride: i32,
        pad0: u32,
        walk: Walk,
    }
}

/// The kernel that reads elements along an axis.
#[derive(Debug, Clone, Copy, Hash)]
struct GatherKernel {
    /// The type of the elements.
    dtype: DType,
}

impl Kernel for GatherKernel {
    type Params = GatherParams;

    fn variant(&self) -> Variant {
        Variant::new(&GATHER).ty("E", self.dtype.wgsl())
    }
}

/// Computes `out[i] = tensor[.., indices[i], ..]` along `axis`. The result has the shape of the
/// indices. An index outside the axis is reported, and clamped to it.
///
/// # Errors
///
/// Returns an error if the shapes do not fit or the memory is not available; so do the functions
/// below.
pub fn gather(axis: usize, tensor: Tensor, indices: Tensor) -> Result<Tensor> {
    tensor.same_device(&indices)?;
    let indices = cast::indices(indices)?;
    let fits = tensor.shape().len() == indices.shape().len()
        && (0..tensor.shape().len()).all(|i| i == axis || indices.shape()[i] <= tensor.shape()[i]);
    if !fits {
        return Err(Error::Shape {
            lhs: tensor.shape().to_vec(),
            rhs: indices.shape().to_vec(),
            rule: "indices must have the tensor's rank and may exceed it along the gathered axis \
                   only",
        });
    }
    let out = Tensor::empty(tensor.runtime(), indices.shape(), tensor.dtype())?;
    if out.is_empty() {
        return Ok(out);
    }
    if tensor.is_empty() {
        return Err(Error::Shape {
            lhs: tensor.shape().to_vec(),
            rhs: indices.shape().to_vec(),
            rule: "the gathered axis must not be empty",
        });
    }
    // The tensor in the shape of the result: the kernel adds the position along the axis.
    let base = tensor.layout().edited(|shape, strides| {
        *shape = indices.shape().into();
        strides[axis] = 0;
    });
    Launch {
        kernel: &GatherKernel { dtype: tensor.dtype() },
        inputs: &[&indices, &tensor],
        outputs: &[&out],
        params: &GatherParams {
            count: out.len() as u32,
            size: tensor.shape()[axis] as u32,
            stride: tensor.layout().strides[axis] as i32,
            pad0: 0,
            walk: Walk::new(&[out.layout(), indices.layout(), &base])?,
        },
        workgroups: workgroups_for(out.len()),
        work: out.len() as u64,
        rounds: None,
    }
    .run_indexed(&[IndexedAxis { axis, size: tensor.shape()[axis] }], &[(1, Reads::AnyNumber)])?;
    Ok(out)
}

/// Repeats one-dimensional indices along `axis` over the other axes of `shape`. Returns a view.
pub(super) fn expand_indices(indices: Tensor, axis: usize, shape: &[usize]) -> Result<Tensor> {
    let mut along_axis: Shape = SmallVec::from_elem(1, shape.len());
    along_axis[axis] = indices.len();
    let mut full: Shape = shape.into();
    full[axis] = indices.len();
    views::expand(views::reshape(indices, &along_axis)?, &full)
}

/// Returns the slices of `tensor` along `axis` at one-dimensional `indices`. 16-bit elements are read as they
/// are stored, and the result has their type, if they are in memory as whole pairs and the axis is not the last.
/// Otherwise the result is f32.
pub fn select(tensor: Tensor, axis: usize, indices: Tensor) -> Result<Tensor> {
    if tensor.dtype().is_half() {
        let has_rows = axis + 1 < tensor.shape().len() && !tensor.is_empty();
        // The kernel computes what is pending, unless it is too large in f32.
        let is_stored = tensor.pending().is_none()
            || parts::exceed_binding(tensor.runtime(), tensor.shape(), DType::F32);
        if has_rows
            && is_stored
            && let Some(words) = copy::pairs(&tensor)?
        {
            return Ok(copy::unpaired(&select(words, axis, indices)?, tensor.dtype()));
        }
        return select(cast::to_compute_type(tensor)?, axis, indices);
    }
    let indices = expand_indices(indices, axis, tensor.shape())?;
    gather(axis, tensor, indices)
}

/// Returns the rows of `weights` `[count, width]` at `indices` `[batch, length]`:
/// `[batch, length, width]`.
pub fn embedding(weights: Tensor, indices: Tensor) -> Result<Tensor> {
    let mut shape: Shape = indices.shape().into();
    shape.push(weights.shape()[1]);
    let indices = views::reshape(indices.clone(), &[indices.len()])?;
    views::reshape(select(weights, 0, indices)?, &shape)
}

/// Returns every variant that the family can dispatch.
pub fn variants() -> Vec<Variant> {
    let mut variants = variants_of(DType::COMPUTE_TYPES.map(|dtype| GatherKernel { dtype }));
    variants.extend(prologue::samples([GatherKernel { dtype: DType::F32 }], 1));
    variants
}

/// The cases that the family must pass.
pub const CASES: &[Case] = cases! {
    float_gather(1, [4, 6], below(6, &[4, 3]));
    float_gather(0, [4, 6], below(4, &[9, 6]));
    float_gather(2, permuted(&[5, 3, 4], &[2, 1, 0]), below(5, &[4, 3, 5]));
    float_select([5, 4, 3], 1, below(4, &[7]));
    // 16-bit elements are moved in pairs.
    float_select([5, 4, 6], 1, below(4, &[7]));
    float_select(permuted(&[3, 5, 6], &[1, 0, 2]), 0, below(5, &[4]));
    int_gather(1, ints(&[4, 6]), below(6, &[4, 3]));
    int_select(ints(&[5, 4]), 0, below(5, &[9]));
    bool_gather(1, bools(&[4, 6]), below(6, &[4, 3]));
    bool_select(bools(&[5, 4]), 0, below(5, &[9]));
    embedding([11, 8], below(11, &[3, 7]));
};
