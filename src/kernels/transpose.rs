//! Copies between layouts with different contiguous axes: in blocks of 4 x 4 or, on
//! GPUs, in tiles for any size.

use smallvec::SmallVec;

use crate::kernels::launch::walk::Walk;
use crate::kernels::launch::{Launch, variants_of};
use crate::kernels::ops::cases::{Arg, Case, cases, permuted};
use crate::kernels::policy;
use crate::params;
use crate::runtime::{Kernel, Source, Variant, wgsl};
use crate::tensor::{Layout, Result, Tensor};

static TRANSPOSE: Source =
    Source::new::<TransposeParams>("transpose", wgsl!("../../shaders/transpose/transpose.wgsl"));

static TRANSPOSE_TILE: Source = Source::new::<TransposeTileParams>(
    "transpose_tile",
    wgsl!("../../shaders/transpose/transpose_tile.wgsl"),
);

params! {
    struct TransposeTileParams {
        len_i: u32,
        len_j: u32,
        tiles_i: u32,
        tiles_j: u32,
        tiles: u32,
        x_stride: i32,
        out_stride: i32,
        pad0: u32,
        walk: Walk,
    }
}

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

/// The transposing copy in tiles, which has a single variant.
#[derive(Debug, Clone, Copy, Hash)]
struct TransposeTileKernel;

impl Kernel for TransposeTileKernel {
    type Params = TransposeTileParams;

    fn variant(&self) -> Variant {
        Variant::new(&TRANSPOSE_TILE)
    }
}

/// The transposing copy in blocks, which has a single variant.
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
/// Side of the tile that a workgroup transposes, in elements.
const TILE: usize = 32;

/// Copies `tensor` to `out`, a view of the same shape in another buffer, if their contiguous axes
/// differ and there is a kernel for their sizes. Elements have 32 bits. Returns whether it did.
///
/// # Errors
///
/// Returns an error if the device fails.
pub fn transpose(tensor: &Tensor, out: &Tensor) -> Result<bool> {
    let Some((i, j)) = contiguous_axes(tensor, out) else { return Ok(false) };
    let in_blocks = consists_of_blocks(tensor, out, i, j);
    let fills_tiles = [i, j].iter().all(|&axis| out.shape()[axis] >= TILE / 4);
    let in_tiles = fills_tiles && policy::of(tensor.runtime()).has_fast_barriers();
    if !in_blocks && !in_tiles {
        return Ok(false);
    }
    let others: SmallVec<[usize; 6]> =
        (0..out.shape().len()).filter(|&axis| axis != i && axis != j).collect();
    let starts = |layout: &Layout| layout.permute(&others);
    let (out_starts, x_starts) = (starts(out.layout()), starts(tensor.layout()));
    let [len_i, len_j] = [i, j].map(|axis| out.shape()[axis]);
    let [tiles_i, tiles_j] = [len_i, len_j].map(|len| len.div_ceil(TILE));
    let tiles = out_starts.len() * tiles_i * tiles_j;
    let walk = Walk::new(&[&out_starts, &x_starts])?;
    let [x_stride, out_stride] =
        [tensor.layout().strides[i] as i32, out.layout().strides[j] as i32];
    let workgroups = tiles as u64;
    let [tiles_i, tiles_j, tiles] = [tiles_i, tiles_j, tiles].map(|count| count as u32);
    if in_blocks {
        let [blocks_i, blocks_j] = [len_i, len_j].map(|len| (len / BLOCK) as u32);
        let params = TransposeParams {
            blocks_i,
            blocks_j,
            tiles_i,
            tiles_j,
            tiles,
            x_stride,
            out_stride,
            pad0: 0,
            walk,
        };
        launch(&TransposeKernel, &params, workgroups, tensor, out)?;
    } else {
        let params = TransposeTileParams {
            len_i: len_i as u32,
            len_j: len_j as u32,
            tiles_i,
            tiles_j,
            tiles,
            x_stride,
            out_stride,
            pad0: 0,
            walk,
        };
        launch(&TransposeTileKernel, &params, workgroups, tensor, out)?;
    }
    Ok(true)
}

fn launch<K: Kernel>(
    kernel: &K,
    params: &K::Params,
    workgroups: u64,
    tensor: &Tensor,
    out: &Tensor,
) -> Result<()> {
    Launch {
        kernel,
        inputs: &[tensor],
        outputs: &[out],
        params,
        workgroups,
        work: out.len() as u64,
        rounds: None,
    }
    .run()
}

/// Returns the contiguous axes of `out` and of `tensor`, if they differ.
fn contiguous_axes(tensor: &Tensor, out: &Tensor) -> Option<(usize, usize)> {
    if tensor.dtype().size() != 4 || tensor.shape() != out.shape() || out.is_empty() {
        return None;
    }
    let contiguous_axis = |layout: &Layout| {
        (0..layout.rank()).find(|&axis| layout.strides[axis] == 1 && layout.shape[axis] > 1)
    };
    let (i, j) = (contiguous_axis(out.layout())?, contiguous_axis(tensor.layout())?);
    (i != j).then_some((i, j))
}

/// Returns whether both layouts, contiguous along `i` and `j`, consist of aligned blocks.
fn consists_of_blocks(tensor: &Tensor, out: &Tensor, i: usize, j: usize) -> bool {
    let aligned = |layout: &Layout, contiguous: usize| {
        let mut others =
            (0..layout.rank()).filter(|&axis| axis != contiguous && layout.shape[axis] > 1);
        layout.offset.is_multiple_of(BLOCK)
            && others.all(|axis| layout.strides[axis] % BLOCK as isize == 0)
    };
    let whole_blocks = [i, j].iter().all(|&axis| out.shape()[axis].is_multiple_of(BLOCK));
    whole_blocks && aligned(out.layout(), i) && aligned(tensor.layout(), j)
}

/// Returns every variant that the family can dispatch.
pub fn variants() -> Vec<Variant> {
    [variants_of([TransposeKernel]), variants_of([TransposeTileKernel])].concat()
}

/// The cases that the family must pass.
pub const CASES: &[Case] = cases! {
    float_reshape(permuted(&[36, 40], &[1, 0]), Arg::Sizes(&[1440]));
    float_reshape(permuted(&[3, 8, 5, 44], &[0, 2, 3, 1]), Arg::Sizes(&[3, 220, 8]));
    float_reshape(permuted(&[2, 4, 3, 4], &[3, 2, 1, 0]), Arg::Sizes(&[96]));
    float_slice_assign([20, 24], Arg::Slices(&[(4, Some(16), 1), (8, Some(24), 1)]),
        permuted(&[16, 12], &[1, 0]));
    // The edges of tiles.
    float_reshape(permuted(&[33, 65], &[1, 0]), Arg::Sizes(&[2145]));
    float_reshape(permuted(&[3, 31, 2, 35], &[0, 2, 3, 1]), Arg::Sizes(&[6510]));
    // A size, and an offset, that are not multiples of four.
    float_reshape(permuted(&[8, 6], &[1, 0]), Arg::Sizes(&[48]));
    float_slice_assign([20, 24], Arg::Slices(&[(4, Some(16), 1), (2, Some(18), 1)]),
        permuted(&[16, 12], &[1, 0]));
};
