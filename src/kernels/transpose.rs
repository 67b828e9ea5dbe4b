//! Copies between layouts whose innermost axes differ, in blocks of 4 x 4.

use smallvec::SmallVec;

use super::cases::{Arg, Case, case, normal, permuted};
use super::{Launch, Params, walk};
use crate::runtime::{Source, Variant};
use crate::tensor::{Layout, Result, Tensor};

static TRANSPOSE: Source =
    Source { name: "transpose", text: include_str!("../../shaders/transpose/transpose.wgsl") };

/// A block's side.
const BLOCK: usize = 4;
/// Blocks along the side of what a workgroup turns.
const TILE: usize = 8;

/// Writes the elements of `tensor` to `out`, a view of the same shape in another buffer, if they are words of 32 bits
/// whose innermost axes differ and can be read and written four at a time. Whether it did.
///
/// # Errors
///
/// When the device fails.
pub fn transpose(tensor: &Tensor, out: &Tensor) -> Result<bool> {
    let Some((i, j)) = turned(tensor, out) else {
        return Ok(false);
    };
    let others: SmallVec<[usize; 6]> =
        (0..out.shape().len()).filter(|&axis| axis != i && axis != j).collect();
    let starts = |layout: &Layout| layout.permute(&others);
    let (to, from) = (starts(out.layout()), starts(tensor.layout()));
    let [blocks_i, blocks_j] = [i, j].map(|axis| out.shape()[axis] / BLOCK);
    let [tiles_i, tiles_j] = [blocks_i, blocks_j].map(|blocks| blocks.div_ceil(TILE));
    let tiles = to.len() * tiles_i * tiles_j;
    let mut params: Params = SmallVec::new();
    params.extend([blocks_i, blocks_j, tiles_i, tiles_j, tiles].map(|v| v as u32));
    params.extend([
        tensor.layout().strides[i] as i32 as u32,
        out.layout().strides[j] as i32 as u32,
        0,
    ]);
    params.extend_from_slice(&walk(&[&to, &from])?.0);
    Launch {
        variant: &Variant::new(&TRANSPOSE),
        inputs: &[tensor],
        outputs: &[out],
        params: &params,
        groups: tiles as u64,
        work: out.len() as u64,
    }
    .run()?;
    Ok(true)
}

/// The axes that are innermost in the memory of `out` and of `tensor`, if they differ and suit blocks.
fn turned(tensor: &Tensor, out: &Tensor) -> Option<(usize, usize)> {
    if tensor.dtype().size() != 4 || tensor.shape() != out.shape() || out.is_empty() {
        return None;
    }
    let (x, o) = (tensor.layout(), out.layout());
    let innermost = |layout: &Layout| {
        (0..layout.rank()).find(|&a| layout.strides[a] == 1 && layout.shape[a] > 1)
    };
    let (i, j) = (innermost(o)?, innermost(x)?);
    let suits = |layout: &Layout, inner: usize| {
        let others = (0..layout.rank()).filter(|&axis| axis != inner && layout.shape[axis] > 1);
        let aligned = others.into_iter().all(|axis| layout.strides[axis] % BLOCK as isize == 0);
        aligned && layout.offset.is_multiple_of(BLOCK)
    };
    let whole = [i, j].iter().all(|&axis| o.shape[axis].is_multiple_of(BLOCK));
    (i != j && whole && suits(o, i) && suits(x, j)).then_some((i, j))
}

/// Every variant that can be asked for.
pub fn variants() -> Vec<Variant> {
    vec![Variant::new(&TRANSPOSE)]
}

/// What the family must pass.
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
    // A size that is no multiple of four, and an offset that is none.
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
