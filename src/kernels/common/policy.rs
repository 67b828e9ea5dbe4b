//! Choices that depend on the class of the adapter: shapes of workgroups, splits, strategies.
//!
//! The answers here are for GPUs; those for software adapters are in `software.rs`.

use super::software::{self, has_subgroups_of_8, software};
use super::strategy::{GemmSizes, SplitK, Strategy};
use super::team::Team;
use crate::runtime::Runtime;

/// Teams or single invocations that keep a GPU busy.
const BUSY: usize = 2048;

/// Teams whose members read neighbouring addresses of their line, by the length of the line.
const ALONG: [Team; 3] = [along_of(8), along_of(32), along_of(128)];
/// Neighbouring invocations read neighbouring lines: 32 floats (128 bytes) at a time.
const ACROSS: Team = Team { workgroup_size: 256, size: 8, stride: 32, subgroup: false };
/// The same in vec4 loads: eight of them are 128 bytes.
const ACROSS_VEC4: Team = Team { workgroup_size: 256, size: 32, stride: 8, subgroup: false };

const fn along_of(size: u32) -> Team {
    Team { workgroup_size: 128, size, stride: 1, subgroup: false }
}

/// The team for `lines` lines of `loads` loads each, whose elements are contiguous, or which are
/// too few for one invocation each.
pub(crate) fn team_along(runtime: &Runtime, lines: usize, loads: usize) -> Team {
    if let Some(software) = software(runtime) {
        return software.team_along(lines);
    }
    match loads {
        0..=16 => ALONG[0],
        17..=128 => ALONG[1],
        _ => ALONG[2],
    }
}

/// The team for lines that are neighbours in memory, of `loads` loads each.
pub(crate) fn team_across(runtime: &Runtime, vec4: bool, loads: usize) -> Team {
    match vec4 {
        _ if software(runtime).is_some() || loads < 64 => Team::SINGLE,
        true => ACROSS_VEC4,
        false => ACROSS,
    }
}

/// Every team that [`team_along`] can choose.
pub(crate) fn all_teams_along() -> impl Iterator<Item = Team> {
    ALONG.into_iter().chain(software::TEAMS)
}

/// Every team that [`team_across`] can choose.
pub(crate) fn all_teams_across(vec4: bool) -> [Team; 2] {
    [Team::SINGLE, if vec4 { ACROSS_VEC4 } else { ACROSS }]
}

/// The elements of a line of `len` that one team reduces: all of it, or less where `outputs` lines
/// are too few to keep the device busy. `along`: the elements of a line are contiguous.
pub(crate) fn split_len(runtime: &Runtime, along: bool, outputs: usize, len: usize) -> usize {
    let outputs = outputs.max(1);
    // Shorter splits do not pay for the second pass. A single invocation also gets short ones,
    // which keeps the rounding error of its sum small.
    let (min_len, max_splits) = match along {
        true => (4096, BUSY.div_ceil(outputs)),
        false => match software(runtime) {
            Some(software) => software.splits_across(outputs),
            None => (256, BUSY.div_ceil(outputs.div_ceil(32)).max(64)),
        },
    };
    if len <= 1024 {
        return len;
    }
    len.div_ceil(len.div_ceil(min_len).min(max_splits))
}

/// The built-in strategy for a product.
pub(crate) fn gemm_strategy(runtime: &Runtime, sizes: GemmSizes, warmed_up: bool) -> Strategy {
    if let Some(software) = software(runtime) {
        return software.gemm_strategy(sizes.work(), warmed_up);
    }
    // Large tiles read less, small tiles keep more of the GPU busy.
    let GemmSizes { batch, m, n, .. } = sizes;
    let tiles = batch * m.div_ceil(128) * n.div_ceil(128);
    if tiles >= 128 && m > 64 && n > 64 { Strategy::Tiled128 } else { Strategy::Tiled64 }
}

/// The strategies to try when tuning an adapter; the scalar one, the reference, comes first.
pub(crate) fn gemm_candidates(runtime: &Runtime) -> Vec<Strategy> {
    let software = software(runtime).is_some();
    let applies = |strategy: &Strategy| match strategy {
        Strategy::Scalar | Strategy::Tiled64 => true,
        Strategy::Vec4 => software || has_subgroups_of_8(runtime),
        Strategy::Tiled128 => !software,
    };
    Strategy::ALL.into_iter().map(|(each, _)| each).filter(applies).collect()
}

/// When to split a product along k.
pub(crate) fn split_k(runtime: &Runtime) -> SplitK {
    match software(runtime) {
        Some(software) => software.split_k(),
        None => SplitK { tile: 64, enough_tiles: 256, min_k: 256 },
    }
}

/// How many vec4s each invocation of an elementwise kernel computes.
pub(crate) fn elementwise_rounds(runtime: &Runtime, vec4s: usize) -> usize {
    match software(runtime) {
        Some(software) => software.elementwise_rounds(vec4s),
        None if vec4s >= 1 << 18 => 4,
        None => 1,
    }
}

/// Whether an elementwise kernel that serves only one case pays for its compilation.
pub(crate) fn pays_for_special_case(runtime: &Runtime, len: usize) -> bool {
    software(runtime).is_none_or(|software| software.pays_for_special_case(len))
}

/// Whether sorting `rows` updates of `lines` elements each by location beats walking each line.
/// Both add in the same order, so the result has the same bits.
pub(crate) fn pays_to_sort_updates(runtime: &Runtime, rows: usize, lines: usize) -> bool {
    match software(runtime) {
        Some(software) => software.pays_to_sort_updates(rows, lines),
        None => rows >= 512,
    }
}

/// Invocations that keep the device busy, for kernels whose invocations can be split further.
pub(crate) fn busy_invocations(runtime: &Runtime) -> usize {
    software(runtime).map_or(1 << 16, |software| software.busy_invocations())
}

/// Bands of rows that keep the device busy, for kernels that repeat work per band.
pub(crate) fn busy_bands(runtime: &Runtime) -> usize {
    software(runtime).map_or(16384, |software| software.busy_bands())
}

/// The team that computes the columns of a row in attention, for values of `width` vec4s, and the
/// vec4 columns of each member. Widths are rounded up to powers of two, so that few variants serve
/// all.
pub(crate) fn attention_team(runtime: &Runtime, width: usize) -> (Team, u32) {
    let width = width.next_power_of_two() as u32;
    match software(runtime) {
        Some(software) => software.attention_team(width),
        None => (attention_team_of(width.clamp(8, 64)), 1),
    }
}

const fn attention_team_of(size: u32) -> Team {
    Team { workgroup_size: 64, size, stride: 1, subgroup: false }
}

/// Every choice of [`attention_team`].
pub(crate) fn all_attention_teams() -> impl Iterator<Item = (Team, u32)> {
    let gpu = [8, 16, 32, 64].map(|size| (attention_team_of(size), 1));
    gpu.into_iter().chain(software::ATTENTION_TEAMS)
}

/// The size of the workgroups of a GPU that compute a recursion.
const RECURSION_WORKGROUP_SIZE: u32 = 64;

/// The size of a workgroup that computes a recursion, with a barrier after each step.
pub(crate) fn recursion_workgroup_size(runtime: &Runtime) -> u32 {
    software(runtime)
        .map_or(RECURSION_WORKGROUP_SIZE, |software| software.recursion_workgroup_size())
}

/// Every choice of [`recursion_workgroup_size`].
pub(crate) fn all_recursion_workgroup_sizes() -> [u32; 2] {
    [software::RECURSION_WORKGROUP_SIZE, RECURSION_WORKGROUP_SIZE]
}
