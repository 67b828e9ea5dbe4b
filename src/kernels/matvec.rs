//! Products of a matrix and a few vectors. They are memory-bound: the matrix is read once.

use smallvec::SmallVec;

use crate::kernels::fusion::{epilogue, prologue};
use crate::kernels::launch::walk::Walk;
use crate::kernels::launch::{Launch, PendingResult, Reads, variants_of};
use crate::kernels::ops::cases::{Case, cases, permuted};
use crate::kernels::policy::team::Team;
use crate::kernels::reduce::{self, Reduction};
use crate::kernels::{dequantize, policy};
use crate::params;
use crate::runtime::{Fragment, Kernel, Source, Variant, wgsl};
use crate::tensor::{DType, Layout, Result, Tensor};

/// The fragments of the shaders.
pub(super) const FRAGMENTS: &[Fragment] = &[("lib/matvec", wgsl!("../../shaders/lib/matvec.wgsl"))];

static MATVEC: Source =
    Source::new::<MatvecParams>("matvec", wgsl!("../../shaders/matvec/matvec.wgsl"))
        .with_fragments(FRAGMENTS);

params! {
    struct MatvecParams {
        count: u32,
        rows: u32,
        row_blocks: u32,
        lines: u32,
        len: u32,
        split_len: u32,
        a_row: i32,
        a_step: i32,
        x_step: i32,
        x_vector: i32,
        vectors: u32,
        out_row: u32,
        walk: Walk,
    }
}

/// The kernel of matrix-vector products.
#[derive(Debug, Clone, Copy, Hash)]
struct MatvecKernel {
    /// Whether the columns of the matrices, not the rows, are contiguous.
    across: bool,
    /// The invocations that reduce a row.
    team: Team,
    /// The number of vectors, rounded up to a power of two.
    vectors: u32,
    /// Whether four rows of the result are stored at once.
    out_vec4: bool,
}

impl Kernel for MatvecKernel {
    type Params = MatvecParams;

    fn variant(&self) -> Variant {
        let variant = Variant::new(&MATVEC).flag("ACROSS", self.across);
        define_sums(variant, self.team, self.vectors, self.out_vec4)
    }
}

/// Specialises a kernel for a team that has the sums of so many vectors, a power of two: the Rust side of
/// `shaders/lib/matvec.wgsl`. With `out_vec4`, four rows of the result are stored at once.
pub(super) fn define_sums(variant: Variant, team: Team, vectors: u32, out_vec4: bool) -> Variant {
    let combined = vectors.min(team.size);
    let variant = variant
        .flag("VEC4", true)
        .flag("EXCHANGES", true)
        .int("VECTORS", vectors)
        .int("COMBINED", combined)
        .int("BLOCKS", vectors / combined)
        .flag("HALVES_8", combined > 8)
        .flag("HALVES_4", combined > 4)
        .flag("HALVES_2", combined > 2)
        .flag("HALVES_1", combined > 1)
        .flag("OUT_VEC4", out_vec4);
    team.define(variant)
}

/// The order of the results of [`matvec`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// `[.., vectors, rows]`.
    VectorsFirst,
    /// `[.., rows, vectors]`.
    RowsFirst,
}

/// Multiplies f32 matrices of a layout `[.., rows, k]` by vectors of a layout `[.., vectors, k]`.
/// Returns a result per row of every matrix and vector; `None` if the operands cannot be read in
/// vec4s, or are empty.
///
/// # Errors
///
/// Returns an error if the memory is not available.
pub(crate) fn matvec(
    matrices: (&Tensor, &Layout),
    vectors: (&Tensor, &Layout),
    order: Order,
) -> Result<Option<Tensor>> {
    let ((a, a_layout), (x, x_layout)) = (matrices, vectors);
    // The number of axes before the matrices.
    let batch = a_layout.rank() - 2;
    let (a_starts, x_starts) = (a_layout.leading(batch), x_layout.leading(batch));
    let (rows, len) = (a_layout.shape[batch], a_layout.shape[batch + 1]);
    let (a_row, a_step) = (a_layout.strides[batch], a_layout.strides[batch + 1]);
    let vectors = x_layout.shape[batch];
    let (x_vector, x_step) = (x_layout.strides[batch], x_layout.strides[batch + 1]);
    let aligned = |stride: isize, size: usize| size == 1 || stride % 4 == 0;
    let all_aligned = |layout: &Layout| {
        let mut axes = layout.strides.iter().zip(&layout.shape);
        layout.offset.is_multiple_of(4) && axes.all(|(&stride, &size)| aligned(stride, size))
    };
    let outputs = a_starts.len() * rows * vectors;
    // Along: a row is contiguous. Across: a column is.
    let steps_contiguous = (a_step, x_step) == (1, 1) && len.is_multiple_of(4);
    let along = steps_contiguous
        && aligned(a_row, rows)
        && aligned(x_vector, vectors)
        && all_aligned(&x_starts);
    let across = rows.is_multiple_of(4) && a_row == 1 && aligned(a_step, len);
    if outputs == 0 || len == 0 || !all_aligned(&a_starts) || !(along || across) {
        return Ok(None);
    }
    let runtime = a.runtime();
    // Elements of a row per load.
    let per_load = if along { 4 } else { 1 };
    let max_len = policy::max_rounds(runtime) * per_load;
    let split_len = policy::of(runtime).split_len(along, outputs / vectors, len);
    let split_len = split_len.min(max_len).next_multiple_of(4);
    let (splits, row_blocks) = (len.div_ceil(split_len), rows.div_ceil(4));
    let lines = a_starts.len() * row_blocks;
    let team = match along {
        true => policy::of(runtime).team_along(lines * splits, split_len / 4),
        false => policy::of(runtime).team_across(true, split_len),
    };
    let [a_row, a_step, x_step, x_vector] = match along {
        true => [a_row / 4, 1, 1, x_vector / 4],
        false => [0, a_step / 4, x_step, x_vector],
    };
    let rows_are_neighbours = vectors == 1 || order == Order::VectorsFirst;
    let kernel = MatvecKernel {
        across: !along,
        team,
        vectors: vectors.next_power_of_two() as u32,
        out_vec4: rows.is_multiple_of(4) && rows_are_neighbours,
    };
    let prologues = prologues(Some(0), (1, x), row_blocks)?;
    let out = Launch {
        kernel: &kernel,
        inputs: &[a, x],
        outputs: &[],
        params: &MatvecParams {
            count: (lines * splits) as u32,
            rows: rows as u32,
            row_blocks: row_blocks as u32,
            lines: lines as u32,
            len: (len / per_load) as u32,
            split_len: (split_len.min(len) / per_load) as u32,
            a_row: a_row as i32,
            a_step: a_step as i32,
            x_step: x_step as i32,
            x_vector: x_vector as i32,
            vectors: vectors as u32,
            out_row: if order == Order::VectorsFirst { 1 } else { vectors as u32 },
            walk: Walk::new(&[&a_starts, &x_starts])?,
        },
        workgroups: team.workgroups(lines * splits),
        work: 2 * outputs as u64 * len as u64,
        rounds: Some((split_len / per_load).div_ceil(team.size as usize) as u64),
    }
    .defer(&PendingResult {
        vec4: kernel.out_vec4,
        reads_parameter: a_starts.len() == 1,
        prologues: &prologues,
        ..PendingResult::scalars(runtime, &[splits, outputs], DType::F32)
    })?;
    Ok(Some(if splits == 1 { out } else { reduce::dim(Reduction::Sum, out, 0)? }))
}

/// Returns the inputs that the kernel of a product may compute: `matrix`, if given, and the vectors, which it reads
/// once for each of `blocks` blocks of rows. On some devices, the vectors are computed first.
///
/// # Errors
///
/// Returns an error if the memory is not available.
pub(super) fn prologues(
    matrix: Option<usize>,
    (index, vectors): (usize, &Tensor),
    blocks: usize,
) -> Result<SmallVec<[(usize, Reads); 2]>> {
    let mut inputs: SmallVec<[usize; 2]> = matrix.into_iter().collect();
    match policy::of(vectors.runtime()).computes_again(blocks) {
        true => inputs.push(index),
        false => drop(vectors.buffer()?),
    }
    Ok(inputs.into_iter().map(|input| (input, Reads::AnyNumber)).collect())
}

/// Returns every variant that the family can dispatch.
pub fn variants() -> Vec<Variant> {
    let of = |across, team, vectors| {
        [false, true].map(|out_vec4| MatvecKernel { across, team, vectors, out_vec4 })
    };
    let along = policy::all_teams_along(0).map(|team| of(false, team, 1));
    let across = policy::all_teams_across(true).map(|team| of(true, team, 1));
    let several = [2, 4, 8, policy::MAX_VECTORS as u32].into_iter().flat_map(|vectors| {
        let along = policy::gpu_teams_along().map(move |team| of(false, team, vectors));
        along.chain(policy::all_teams_across(true).map(move |team| of(true, team, vectors)))
    });
    // Across, there are whole blocks of four rows: one vector is always stored at once.
    let exists = |kernel: &MatvecKernel| kernel.out_vec4 || !kernel.across || kernel.vectors > 1;
    let kernels: Vec<_> = along.chain(across).chain(several).flatten().filter(exists).collect();
    let mut variants = variants_of(kernels.iter().copied());
    variants.extend(epilogue::samples(kernels.iter().copied()));
    for input in [0, 1] {
        variants.extend(prologue::samples(kernels.iter().copied(), input));
    }
    // Matrices quantised to 4 bits.
    let (map, leaves) = dequantize::in_registers(4);
    variants.extend(prologue::samples_of(&kernels, 0, &map, &leaves));
    variants
}

/// The cases that the family must pass.
pub const CASES: &[Case] = cases! {
    float_matmul([70, 64], [64, 1]);
    float_matmul([3, 260], [260, 1]);
    float_matmul([2, 3, 9, 600], [2, 3, 600, 1]);
    float_matmul(permuted(&[300, 72], &[1, 0]), [300, 1]);
    float_matmul([1, 70], [70, 12]);
    float_matmul([1, 5000], [5000, 8]);
    float_matmul([1, 9000], [9000, 1]);
    float_matmul([1, 1, 64], [4, 64, 8]);
    float_matmul([1, 64], permuted(&[10, 64], &[1, 0]));
    float_matmul([6, 65], [65, 1]);
    linear([1, 64], [64, 12], [12]);
    linear([2, 3, 64], [64, 1], [1]);
    linear([1, 64], [64, 12], _);
    // A few rows, with teams of each size, or with the columns of the other operand contiguous.
    float_matmul([2, 64], permuted(&[10, 64], &[1, 0]));
    float_matmul([2, 260], permuted(&[10, 260], &[1, 0]));
    float_matmul([2, 600], permuted(&[10, 600], &[1, 0]));
    float_matmul([2, 40], [40, 12]);
    float_matmul([2, 100], [100, 12]);
    float_matmul([3, 64], permuted(&[10, 64], &[1, 0]));
    float_matmul([3, 260], permuted(&[10, 260], &[1, 0]));
    float_matmul([3, 600], permuted(&[10, 600], &[1, 0]));
    float_matmul([3, 40], [40, 12]);
    float_matmul([3, 100], [100, 12]);
    float_matmul([7, 64], permuted(&[10, 64], &[1, 0]));
    float_matmul([7, 260], permuted(&[10, 260], &[1, 0]));
    float_matmul([7, 600], permuted(&[10, 600], &[1, 0]));
    float_matmul([7, 40], [40, 12]);
    float_matmul([7, 100], [100, 12]);
    float_matmul([9, 64], permuted(&[40, 64], &[1, 0]));
    float_matmul([13, 260], permuted(&[40, 260], &[1, 0]));
    float_matmul([16, 600], permuted(&[10, 600], &[1, 0]));
    float_matmul([12, 40], [40, 36]);
    float_matmul([15, 100], [100, 36]);
    float_matmul([510, 64], [64, 1]);
    // Whole blocks of four rows, which are stored at once.
    float_matmul([1, 64], permuted(&[12, 64], &[1, 0]));
    float_matmul([1, 260], permuted(&[12, 260], &[1, 0]));
    float_matmul([1, 600], permuted(&[12, 600], &[1, 0]));
    float_matmul([2, 64], permuted(&[12, 64], &[1, 0]));
    float_matmul([2, 600], permuted(&[12, 600], &[1, 0]));
    float_matmul([3, 600], permuted(&[12, 600], &[1, 0]));
    float_matmul([7, 64], permuted(&[12, 64], &[1, 0]));
    float_matmul([7, 600], permuted(&[12, 600], &[1, 0]));
    float_matmul([9, 64], permuted(&[42, 64], &[1, 0]));
    float_matmul([13, 260], permuted(&[42, 260], &[1, 0]));
    float_matmul([16, 600], permuted(&[40, 600], &[1, 0]));
    // A few columns.
    float_matmul(permuted(&[40, 72], &[1, 0]), [40, 2]);
    float_matmul(permuted(&[100, 72], &[1, 0]), [100, 2]);
    float_matmul(permuted(&[40, 72], &[1, 0]), [40, 3]);
    float_matmul(permuted(&[100, 72], &[1, 0]), [100, 6]);
    float_matmul(permuted(&[100, 72], &[1, 0]), [100, 12]);
    float_matmul([10, 64], permuted(&[5, 64], &[1, 0]));
    float_matmul([70, 40], [40, 2]);
    float_matmul(permuted(&[100, 72], &[1, 0]), [100, 3]);
    float_matmul([8, 64], permuted(&[8, 64], &[1, 0]));
    // Batches, and vectors of all matrices of a batch.
    float_matmul([3, 4, 64], permuted(&[3, 10, 64], &[0, 2, 1]));
    float_matmul([1, 4, 64], permuted(&[3, 10, 64], &[0, 2, 1]));
    float_matmul([2, 1, 5, 40], [1, 3, 40, 8]);
    // Split over k.
    float_matmul([6, 9000], [9000, 8]);
    linear([4, 64], [64, 12], [12]);
    linear([2, 3, 64], [64, 12], [12]);
};
