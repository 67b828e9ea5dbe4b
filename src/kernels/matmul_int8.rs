//! Products of quantised matrices: 8-bit integers are multiplied four at a time, and their sums are exact.

use crate::kernels::launch::walk::Walk;
use crate::kernels::launch::{Launch, parts, variants_of};
use crate::kernels::ops::cases::{Case, cases};
use crate::kernels::policy;
use crate::kernels::policy::strategy::GemmSizes;
use crate::params;
use crate::runtime::{Kernel, Source, Variant, wgsl};
use crate::tensor::{DType, Layout, Result, Shape, Strides, Tensor, broadcast};

static MATMUL_INT8: Source = Source::new::<MatmulInt8Params>(
    "matmul_int8",
    wgsl!("../../shaders/matmul_int8/matmul_int8.wgsl"),
);

params! {
    struct MatmulInt8Params {
        m: u32,
        n: u32,
        words: u32,
        row_tiles: u32,
        matrix_tiles: u32,
        tiles: u32,
        a_row: i32,
        b_line: i32,
        walk: Walk,
    }
}

/// Rows and columns that a workgroup computes.
const TILE: usize = 64;
/// Sums of as many products of 8-bit integers, each of at most 2^14, fit 32 bits.
const MAX_K: usize = (1 << 17) - 1;

/// The kernel of a product.
#[derive(Debug, Clone, Copy, Hash)]
struct MatmulInt8Kernel {
    /// Whether the right operand is contiguous along k instead of n.
    b_transposed: bool,
}

impl Kernel for MatmulInt8Kernel {
    type Params = MatmulInt8Params;

    fn variant(&self) -> Variant {
        Variant::new(&MATMUL_INT8).flag("B_TRANSPOSED", self.b_transposed)
    }
}

/// Matrices of 8-bit integers with one scale.
#[derive(Debug, Clone, Copy)]
pub struct Int8<'a> {
    /// The integers, four in a word.
    pub words: &'a Tensor,
    /// The position of each integer in the words: `[.., rows, columns]`.
    pub layout: &'a Layout,
    /// The scale.
    pub scale: &'a Tensor,
}

impl Int8<'_> {
    /// Returns the layout of the words, if neighbours along `axis` are in the same word.
    fn words_along(&self, axis: usize) -> Option<Layout> {
        let layout = &self.layout;
        let others =
            || (0..layout.rank()).filter(|&other| other != axis && layout.shape[other] != 1);
        let is_whole = layout.strides[axis] == 1
            && layout.shape[axis].is_multiple_of(4)
            && layout.offset.is_multiple_of(4)
            && others().all(|other| layout.strides[other] % 4 == 0);
        let in_words = |shape: &mut Shape, strides: &mut Strides| {
            shape[axis] /= 4;
            others().for_each(|other| strides[other] /= 4);
        };
        is_whole.then(|| layout.edited(in_words).at(layout.offset / 4))
    }
}

/// Computes `a @ b` over the last two axes, broadcast over the others, in f32. Returns `None` if other kernels
/// are faster, or the integers that are multiplied together are not in the same words.
///
/// # Errors
///
/// Returns an error if the memory is not available.
pub fn matmul_int8(a: Int8<'_>, b: Int8<'_>) -> Result<Option<Tensor>> {
    let rank = a.layout.rank();
    if rank < 2 || b.layout.rank() != rank {
        return Ok(None);
    }
    let (m, k) = (a.layout.shape[rank - 2], a.layout.shape[rank - 1]);
    let n = b.layout.shape[rank - 1];
    let batch = broadcast(&a.layout.shape[..rank - 2], &b.layout.shape[..rank - 2]);
    let (Some(batch), true) = (batch, b.layout.shape[rank - 2] == k && k <= MAX_K) else {
        return Ok(None);
    };
    let count: usize = batch.iter().product();
    let sizes = GemmSizes { batch: count, m, n, k };
    let runtime = a.words.runtime();
    if !policy::of(runtime).multiplies_integers(sizes) {
        return Ok(None);
    }
    let shape: Shape = batch.iter().copied().chain([m, n]).collect();
    if parts::any_oversized([a.words, b.words])
        || parts::exceed_binding(runtime, &shape, DType::F32)
    {
        return Ok(None);
    }
    let Some(a_words) = a.words_along(rank - 1) else { return Ok(None) };
    let along_k = b.words_along(rank - 2);
    let b_transposed = along_k.is_some();
    let Some(b_words) = along_k.or_else(|| b.words_along(rank - 1)) else { return Ok(None) };
    let starts = |words: &Layout| words.leading(rank - 2).expand(&batch);
    let (Some(a_starts), Some(b_starts)) = (starts(&a_words), starts(&b_words)) else {
        return Ok(None);
    };
    let b_line = b_words.strides[if b_transposed { rank - 1 } else { rank - 2 }];
    let [row_tiles, col_tiles] = [m, n].map(|size| size.div_ceil(TILE));
    let tiles = count * row_tiles * col_tiles;
    let out = Tensor::empty(runtime, &shape, DType::F32)?;
    Launch {
        kernel: &MatmulInt8Kernel { b_transposed },
        inputs: &[a.words, a.scale, b.words, b.scale],
        outputs: &[&out],
        params: &MatmulInt8Params {
            m: m as u32,
            n: n as u32,
            words: (k / 4) as u32,
            row_tiles: row_tiles as u32,
            matrix_tiles: (row_tiles * col_tiles) as u32,
            tiles: tiles as u32,
            a_row: a_words.strides[rank - 2] as i32,
            b_line: b_line as i32,
            walk: Walk::new(&[&Layout::contiguous(&batch), &a_starts, &b_starts])?,
        },
        workgroups: tiles as u64,
        work: sizes.work(),
        // A word has four steps of k. The words are read in tiles of 16, with two loops.
        rounds: Some((k / 4 + 2 * (k / 4).div_ceil(16)) as u64),
    }
    .run()?;
    Ok(Some(out))
}

/// Returns every variant that the family can dispatch.
pub fn variants() -> Vec<Variant> {
    variants_of([false, true].map(|b_transposed| MatmulInt8Kernel { b_transposed }))
}

/// No cases: arguments of a case cannot be quantised tensors. `tests/kernels/quantized.rs` tests them.
pub const CASES: &[Case] = cases! {};
