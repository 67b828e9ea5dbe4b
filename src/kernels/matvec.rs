//! Products of a matrix and a vector. They are memory-bound: the matrix is read once.

use super::common::cases::{Arg, Case, case, normal, permuted};
use super::common::launch::{Launch, PendingResult, Reads, variants_of};
use super::common::policy;
use super::common::team::Team;
use super::common::walk::Walk;
use super::fusion::{epilogue, prologue};
use super::reduce::{self, Reduction};
use crate::params;
use crate::runtime::{Kernel, Source, Variant, wgsl};
use crate::tensor::{DType, Layout, Result, Tensor};

static MATVEC: Source =
    Source::new::<MatvecParams>("matvec", wgsl!("../../shaders/matvec/matvec.wgsl"));

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
        outputs: u32,
        pad0: u32,
        pad1: u32,
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
}

impl Kernel for MatvecKernel {
    type Params = MatvecParams;

    fn variant(&self) -> Variant {
        let variant = Variant::new(&MATVEC).flag("VEC4", true).flag("ACROSS", self.across);
        self.team.define(variant)
    }
}

/// Multiplies f32 matrices of a layout `[.., rows, k]` by one vector each, of a layout `[.., k]`.
/// Returns one element per row of every matrix, in row-major order; `None` if the matrices cannot
/// be read in vec4s.
///
/// # Errors
///
/// Returns an error if the memory is not available.
pub(crate) fn matvec(
    matrices: (&Tensor, &Layout),
    vectors: (&Tensor, &Layout),
) -> Result<Option<Tensor>> {
    let ((a, a_layout), (x, x_layout)) = (matrices, vectors);
    // The number of axes before the matrices.
    let batch = a_layout.rank() - 2;
    let (a_starts, x_starts) = (leading_axes(a_layout, batch), leading_axes(x_layout, batch));
    let (rows, len) = (a_layout.shape[batch], a_layout.shape[batch + 1]);
    let (a_row, a_step) = (a_layout.strides[batch], a_layout.strides[batch + 1]);
    let x_step = x_layout.strides[batch];
    let aligned = |stride: isize, size: usize| size == 1 || stride % 4 == 0;
    let all_aligned = |layout: &Layout| {
        let mut axes = layout.strides.iter().zip(&layout.shape);
        layout.offset.is_multiple_of(4) && axes.all(|(&stride, &size)| aligned(stride, size))
    };
    let outputs = a_starts.len() * rows;
    // Along: a row is contiguous. Across: a column is.
    let steps_contiguous = (a_step, x_step) == (1, 1) && len.is_multiple_of(4);
    let along = steps_contiguous && aligned(a_row, rows) && all_aligned(&x_starts);
    let across = rows.is_multiple_of(4) && a_row == 1 && aligned(a_step, len);
    if outputs == 0 || len == 0 || !all_aligned(&a_starts) || !(along || across) {
        return Ok(None);
    }
    let runtime = a.runtime();
    let split_len = policy::split_len(runtime, along, outputs, len).next_multiple_of(4);
    let splits = len.div_ceil(split_len);
    let row_blocks = rows.div_ceil(4);
    let lines = a_starts.len() * row_blocks;
    // Elements of a row per load.
    let (team, per_load) = match along {
        true => (policy::team_along(runtime, lines * splits, split_len / 4), 4),
        false => (policy::team_across(runtime, true, split_len), 1),
    };
    let [a_row, a_step, x_step] = if along { [a_row / 4, 1, 1] } else { [0, a_step / 4, x_step] };
    let out = Launch {
        kernel: &MatvecKernel { across: !along, team },
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
            outputs: outputs as u32,
            pad0: 0,
            pad1: 0,
            walk: Walk::new(&[&a_starts, &x_starts])?,
        },
        workgroups: team.workgroups(lines * splits),
        work: 2 * (outputs * len) as u64,
    }
    .defer(&PendingResult {
        prologues: &[(0, Reads::AnyNumber), (1, Reads::AnyNumber)],
        ..PendingResult::scalars(runtime, &[splits, outputs], DType::F32)
    })?;
    Ok(Some(if splits == 1 { out } else { reduce::dim(Reduction::Sum, out, 0)? }))
}

/// Returns the layout of the first `count` axes: where the rest of the tensor starts.
pub(super) fn leading_axes(layout: &Layout, count: usize) -> Layout {
    Layout {
        shape: layout.shape[..count].into(),
        strides: layout.strides[..count].into(),
        offset: layout.offset,
    }
}

/// Returns every variant that the family can dispatch.
pub fn variants() -> Vec<Variant> {
    let along = policy::all_teams_along(0).map(|team| MatvecKernel { across: false, team });
    let across = policy::all_teams_across(true).map(|team| MatvecKernel { across: true, team });
    let kernels: Vec<_> = along.chain(across).collect();
    let mut variants = variants_of(kernels.iter().copied());
    variants.extend(epilogue::samples(kernels.iter().copied()));
    for input in [0, 1] {
        variants.extend(prologue::samples(kernels.iter().copied(), input));
    }
    variants
}

/// The cases that the family must pass.
pub const CASES: &[Case] = &[
    case("float_matmul", &[normal(&[70, 64]), normal(&[64, 1])]),
    case("float_matmul", &[normal(&[3, 260]), normal(&[260, 1])]),
    case("float_matmul", &[normal(&[2, 3, 9, 600]), normal(&[2, 3, 600, 1])]),
    case("float_matmul", &[permuted(&[300, 72], &[1, 0]), normal(&[300, 1])]),
    case("float_matmul", &[normal(&[1, 70]), normal(&[70, 12])]),
    case("float_matmul", &[normal(&[1, 5000]), normal(&[5000, 8])]),
    case("float_matmul", &[normal(&[1, 9000]), normal(&[9000, 1])]),
    case("float_matmul", &[normal(&[1, 1, 64]), normal(&[4, 64, 8])]),
    case("float_matmul", &[normal(&[1, 64]), permuted(&[10, 64], &[1, 0])]),
    case("float_matmul", &[normal(&[6, 65]), normal(&[65, 1])]),
    case("linear", &[normal(&[1, 64]), normal(&[64, 12]), normal(&[12])]),
    case("linear", &[normal(&[2, 3, 64]), normal(&[64, 1]), normal(&[1])]),
    case("linear", &[normal(&[1, 64]), normal(&[64, 12]), Arg::Absent]),
];
