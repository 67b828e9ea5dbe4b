//! Copies between layouts with different contiguous axes, in blocks of 4 x 4.

use smallvec::SmallVec;

use super::common::cases::{Arg, Case, case, normal, permuted};
use super::common::launch::{Launch, variants_of};
use super::common::walk::Walk;
use crate::params;
use crate::runtime::{Kernel, Source, Variant, wgsl};
use crate::tensor::{Layout, Result, Tensor};

static TRANSPOSE: Source =
    Source::new::<TransposeParams>("transpose", wgsl!("../../shaders/transpose/transpose.wgsl"));

params! {
    struct TransposeParams {
        blocks_i: u32,
        blocks_j: u32,
        tiles_i: u32,
        tiles_j: u32,
        tiles: u32,
        x_stride: i32,
        out_stride: i32,
        pad0: u32,
        walk: Walk,
    }
}

/// The transposing copy, which has a single variant.
#[derive(Debug, Clone, Copy, Hash)]
struct TransposeKernel;

impl Kernel for TransposeKernel {
    type Params = TransposeParams;

    fn variant(&self) -> Variant {
        Variant::new(&TRANSPOSE)
    }
}

/// Side of a block, in elements.
const BLOCK: usize = 4;
/// Side of the tile that a workgroup transposes, in blocks.
const TILE: usize = 8;

/// Copies `tensor` to `out`, a view of the same shape in another buffer, if their contiguous axes
/// differ and both can be accessed in vec4s of 32-bit words. Returns whether it did.
///
/// # Errors
///
/// Returns an error if the device fails.
pub fn transpose(tensor: &Tensor, out: &Tensor) -> Result<bool> {
    let Some((i, j)) = transposed_axes(tensor, out) else {
        return Ok(false);
    };
    let others: SmallVec<[usize; 6]> =
        (0..out.shape().len()).filter(|&axis| axis != i && axis != j).collect();
    let starts = |layout: &Layout| layout.permute(&others);
    let (out_starts, x_starts) = (starts(out.layout()), starts(tensor.layout()));
    let [blocks_i, blocks_j] = [i, j].map(|axis| out.shape()[axis] / BLOCK);
    let [tiles_i, tiles_j] = [blocks_i, blocks_j].map(|blocks| blocks.div_ceil(TILE));
    let tiles = out_starts.len() * tiles_i * tiles_j;
    Launch {
        kernel: &TransposeKernel,
        inputs: &[tensor],
        outputs: &[out],
        params: &TransposeParams {
            blocks_i: blocks_i as u32,
            blocks_j: blocks_j as u32,
            tiles_i: tiles_i as u32,
            tiles_j: tiles_j as u32,
            tiles: tiles as u32,
            x_stride: tensor.layout().strides[i] as i32,
            out_stride: out.layout().strides[j] as i32,
            pad0: 0,
            walk: Walk::new(&[&out_starts, &x_starts])?,
        },
        workgroups: tiles as u64,
        work: out.len() as u64,
    }
    .run()?;
    Ok(true)
}

/// Returns the contiguous axes of `out` and of `tensor`, if they differ and both layouts consist of
/// aligned blocks.
fn transposed_axes(tensor: &Tensor, out: &Tensor) -> Option<(usize, usize)> {
    if tensor.dtype().size() != 4 || tensor.shape() != out.shape() || out.is_empty() {
        return None;
    }
    let (x, o) = (tensor.layout(), out.layout());
    let contiguous_axis = |layout: &Layout| {
        (0..layout.rank()).find(|&axis| layout.strides[axis] == 1 && layout.shape[axis] > 1)
    };
    let (i, j) = (contiguous_axis(o)?, contiguous_axis(x)?);
    let aligned = |layout: &Layout, contiguous: usize| {
        let mut others =
            (0..layout.rank()).filter(|&axis| axis != contiguous && layout.shape[axis] > 1);
        layout.offset.is_multiple_of(BLOCK)
            && others.all(|axis| layout.strides[axis] % BLOCK as isize == 0)
    };
    let whole_blocks = [i, j].iter().all(|&axis| o.shape[axis].is_multiple_of(BLOCK));
    (i != j && whole_blocks && aligned(o, i) && aligned(x, j)).then_some((i, j))
}

/// Returns every variant that the family can dispatch.
pub fn variants() -> Vec<Variant> {
    variants_of([TransposeKernel])
}

/// The cases that the family must pass.
pub const CASES: &[Case] = &[
    case("float_reshape", &[permuted(&[36, 40], &[1, 0]), Arg::Sizes(&[1440])]),
    case("float_reshape", &[permuted(&[3, 8, 5, 44], &[0, 2, 3, 1]), Arg::Sizes(&[3, 220, 8])]),
    case("float_reshape", &[permuted(&[2, 4, 3, 4], &[3, 2, 1, 0]), Arg::Sizes(&[96])]),
    case(
        "float_slice_assign",
        &[
            normal(&[20, 24]),
            Arg::Slices(&[(4, Some(16), 1), (8, Some(24), 1)]),
            permuted(&[16, 12], &[1, 0]),
        ],
    ),
    // A size, and an offset, that are not multiples of four.
    case("float_reshape", &[permuted(&[8, 6], &[1, 0]), Arg::Sizes(&[48])]),
    case(
        "float_slice_assign",
        &[
            normal(&[20, 24]),
            Arg::Slices(&[(4, Some(16), 1), (2, Some(18), 1)]),
            permuted(&[16, 12], &[1, 0]),
        ],
    ),
];
