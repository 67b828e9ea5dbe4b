//! Products of a matrix and a vector: limited by reading the matrix once, which a tile of a product would not make up for.

use super::cases::{Arg, Case, case, normal, permuted};
use super::reduce::{self, Reduction};
use super::team::{Team, part_of};
use super::{Launch, Params, walk};
use crate::runtime::{Source, Variant};
use crate::tensor::{DType, Layout, Result, Tensor};

static MATVEC: Source =
    Source { name: "matvec", text: include_str!("../../shaders/matmul/matvec.wgsl") };

fn variant(across: bool, team: Team) -> Variant {
    team.define(Variant::new(&MATVEC).flag("QUADS", true).flag("ACROSS", across))
}

/// The products of matrices of f32, which lie `[.., rows, k]`, and a vector for each, which lie `[.., k]`: all the sums in a row.
/// Nothing where the matrices cannot be read four elements at a time.
///
/// # Errors
///
/// When the memory is not there.
pub(crate) fn matvec(
    matrices: (&Tensor, &Layout),
    vectors: (&Tensor, &Layout),
) -> Result<Option<Tensor>> {
    let ((a, a_layout), (x, x_layout)) = (matrices, vectors);
    let batch = a_layout.rank() - 2;
    let starts = |layout: &Layout| Layout {
        shape: layout.shape[..batch].into(),
        strides: layout.strides[..batch].into(),
        offset: layout.offset,
    };
    let (a_starts, x_starts) = (starts(a_layout), starts(x_layout));
    let (rows, len) = (a_layout.shape[batch], a_layout.shape[batch + 1]);
    let (row, step, x_step) =
        (a_layout.strides[batch], a_layout.strides[batch + 1], x_layout.strides[batch]);
    let whole = |stride: isize, size: usize| size == 1 || stride % 4 == 0;
    let in_quads = |layout: &Layout| {
        let mut axes = layout.strides.iter().zip(&layout.shape);
        layout.offset.is_multiple_of(4) && axes.all(|(&stride, &size)| whole(stride, size))
    };
    let outputs = a_starts.len() * rows;
    let along = len.is_multiple_of(4)
        && (step, x_step) == (1, 1)
        && whole(row, rows)
        && in_quads(&x_starts);
    let across = rows.is_multiple_of(4) && row == 1 && whole(step, len);
    if outputs == 0 || len == 0 || !in_quads(&a_starts) || !(along || across) {
        return Ok(None);
    }
    let runtime = a.runtime();
    let chunk = part_of(runtime, along, outputs, len).next_multiple_of(4);
    let splits = len.div_ceil(chunk);
    let fours = rows.div_ceil(4);
    let lines = a_starts.len() * fours;
    let (team, unit) = match along {
        true => (Team::along(runtime, lines * splits, chunk / 4), 4),
        false => (Team::across(runtime, true, chunk), 1),
    };
    let steps = if along { [row / 4, 1, 1] } else { [0, step / 4, x_step] };
    let out = Tensor::empty(runtime, &[splits, outputs], DType::F32, &[a, x])?;
    let mut params = Params::new();
    params
        .extend([rows, fours, lines, splits, len / unit, chunk.min(len) / unit].map(|v| v as u32));
    params.extend(steps.map(|step| step as i32 as u32));
    params.extend([outputs as u32, 0, 0]);
    params.extend_from_slice(&walk(&[&a_starts, &x_starts])?.0);
    Launch {
        variant: &variant(!along, team),
        inputs: &[a, x],
        outputs: &[&out],
        params: &params,
        groups: team.groups(lines * splits),
        work: 2 * (outputs * len) as u64,
    }
    .run()?;
    Ok(Some(if splits == 1 { out } else { reduce::dim(Reduction::Sum, out, 0)? }))
}

/// Every variant that can be asked for.
pub fn variants() -> Vec<Variant> {
    let along = Team::all_along().map(|team| variant(false, team));
    along.chain(Team::all_across(true).map(|team| variant(true, team))).collect()
}

/// What the family must pass.
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
    case("linear", &[normal(&[1, 64]), normal(&[64, 12]), Arg::Without]),
];
