//! Choices that depend on the class of the adapter: teams, splits and strategies.
//!
//! The values here are for GPUs. For a software adapter, each function returns the choice of
//! `software.rs`.

pub(crate) mod listed_units;
pub(crate) mod partition;
pub(crate) mod software;
pub(crate) mod strategy;
pub(crate) mod team;

use self::partition::{LANES, Partition, Throughput};
use self::software::software_policy;
use self::strategy::{GemmSizes, Strategy};
use self::team::Team;
use crate::device::{AdapterKind, Api};
use crate::runtime::Runtime;
use crate::tensor::DType;

/// Number of teams, or of groups of 32 neighbouring lines, that keeps a GPU busy.
const BUSY: usize = 2048;

/// Teams for contiguous lines, each with the most loads of a line that it is for. Neighbouring
/// members read neighbouring addresses of their line.
const ALONG: [(usize, Team); 3] =
    [(16, team_along_of(8)), (128, team_along_of(32)), (usize::MAX, team_along_of(128))];
/// Sizes of teams, and how many loads of a line a member holds in registers. 16 vec4s are 64
/// registers, with which 10 to 18 waves or warps fit on a processor of AMD or NVIDIA.
const HELD: [(u32, u32); 4] = [(8, 2), (32, 4), (128, 8), (128, 16)];
/// The team for lines that are neighbours in memory. 32 neighbouring invocations read 32
/// neighbouring lines: 128 bytes at a time.
const ACROSS: Team = Team { workgroup_size: 256, size: 8, stride: 32, subgroup: false };
/// [`ACROSS`] with vec4 loads: eight neighbouring invocations read 128 bytes at a time.
const ACROSS_VEC4: Team = Team { workgroup_size: 256, size: 32, stride: 8, subgroup: false };

const fn team_along_of(size: u32) -> Team {
    Team { workgroup_size: 128, size, stride: 1, subgroup: false }
}

/// Returns the team for `lines` lines of `loads` loads each. Either the lines are contiguous, or
/// they are too few for one invocation per line.
pub(crate) fn team_along(runtime: &Runtime, lines: usize, loads: usize) -> Team {
    if let Some(software) = software_policy(runtime) {
        return software.team_along(lines);
    }
    let fits = |&(max_loads, _): &(usize, Team)| loads <= max_loads;
    ALONG.into_iter().find(fits).unwrap_or(ALONG[2]).1
}

/// Returns the team for lines that are neighbours in memory, of `loads` loads each.
pub(crate) fn team_across(runtime: &Runtime, vec4: bool, loads: usize) -> Team {
    if software_policy(runtime).is_some() || loads < 64 {
        return Team::SINGLE;
    }
    if vec4 { ACROSS_VEC4 } else { ACROSS }
}

/// Returns the most rounds of loops that an invocation may take: see [`AdapterInfo::max_rounds`].
///
/// [`AdapterInfo::max_rounds`]: crate::device::AdapterInfo::max_rounds
pub(crate) fn max_rounds(runtime: &Runtime) -> usize {
    runtime.info().max_rounds() as usize
}

/// Returns whether the softmax or norm of `lines` lines is computed by several workgroups for each line. In the
/// kernels, one computes a line, and its invocations take `rounds` rounds.
pub(crate) fn splits_lines(runtime: &Runtime, lines: usize, len: usize, rounds: usize) -> bool {
    let is_long = software_policy(runtime).is_none() && len > 8192 && lines <= 64;
    is_long || rounds > max_rounds(runtime)
}

/// Returns every team that [`team_along`] can return for at least `min_loads` loads.
pub(crate) fn all_teams_along(min_loads: usize) -> impl Iterator<Item = Team> {
    let long_enough = move |&(max_loads, _): &(usize, Team)| max_loads >= min_loads;
    ALONG.into_iter().filter(long_enough).map(|(_, team)| team).chain(software::TEAMS_ALONG)
}

/// Returns how many loads of a line each member of a team holds in registers, so that the line is
/// read once; 0 if it is read again. At most `max`: one of [`HELD`].
pub(crate) fn held_loads(runtime: &Runtime, team: Team, loads: usize, max: u32) -> u32 {
    if software_policy(runtime).is_some() {
        return 0;
    }
    let fits = |held: &u32| *held <= max && (*held * team.size) as usize >= loads;
    let of_team = HELD.into_iter().filter(|(size, _)| *size == team.size).map(|(_, held)| held);
    of_team.into_iter().find(fits).unwrap_or(0)
}

/// Returns every result of [`held_loads`] for a team and lines of at least `min_loads` loads.
pub(crate) fn all_held_loads(team: Team, max: u32) -> impl Iterator<Item = u32> {
    let held = HELD.into_iter().filter(move |(size, held)| {
        *size == team.size && *held <= max && gpu_teams_along().any(|other| other == team)
    });
    let reads_again = !gpu_teams_along().any(|other| other == team) || team == ALONG[2].1;
    held.map(|(_, held)| held).chain(reads_again.then_some(0))
}

/// Returns the teams of [`team_along`] on GPUs.
pub(crate) fn gpu_teams_along() -> impl Iterator<Item = Team> {
    ALONG.into_iter().map(|(_, team)| team)
}

/// The maximum of [`max_vectors`].
pub(crate) const MAX_VECTORS: usize = 16;

/// Returns up to how many rows or columns of a product are computed as vectors, which read the
/// other operand once. A tile would be mostly empty.
pub(crate) fn max_vectors(runtime: &Runtime) -> usize {
    software_policy(runtime).map_or(MAX_VECTORS, |_| 1)
}

/// Returns every team that [`team_across`] can return.
pub(crate) fn all_teams_across(vec4: bool) -> [Team; 2] {
    [Team::SINGLE, if vec4 { ACROSS_VEC4 } else { ACROSS }]
}

/// Returns the number of elements of a line of `len` that one team reduces: `len`, or the length of
/// a split if `outputs` lines are too few to keep the device busy. With `along`, teams are those of
/// [`team_along`], otherwise those of [`team_across`].
pub(crate) fn split_len(runtime: &Runtime, along: bool, outputs: usize, len: usize) -> usize {
    let outputs = outputs.max(1);
    // Shorter splits do not pay off, because they need a second pass. Splits of single invocations
    // are shorter, which keeps the rounding error of their sums small.
    let (min_len, max_splits) = match along {
        true => (4096, BUSY.div_ceil(outputs)),
        false => match software_policy(runtime) {
            Some(software) => software.splits_across(outputs),
            None => (256, BUSY.div_ceil(outputs.div_ceil(32)).max(64)),
        },
    };
    if len <= 1024 {
        return len;
    }
    len.div_ceil(len.div_ceil(min_len).min(max_splits))
}

/// Returns the most loads that an invocation adds up one after the other, so that their rounding errors stay small: its
/// sum of ones is exact. The sums of splits are added without such errors.
pub(crate) fn max_summed(runtime: &Runtime) -> usize {
    software_policy(runtime).map_or(256, |_| 1024)
}

/// Returns the built-in strategy for a product of operands of a type.
pub(crate) fn gemm_strategy(
    runtime: &Runtime,
    sizes: GemmSizes,
    dtype: DType,
    warmed_up: bool,
) -> Strategy {
    if let Some(software) = software_policy(runtime) {
        return software.gemm_strategy(sizes.work(), warmed_up);
    }
    // Tiles of 128 x 128 leave Apple's GPUs few waves, and convolutions in them keep registers in memory
    // (`benches/gpus`).
    let tiled = [Strategy::Tiled64, Strategy::Tiled64x128, Strategy::Tiled128];
    let count = if runtime.info().vendor == "Apple" { 2 } else { 3 };
    let fastest = Partition::fastest(throughput(runtime, dtype), sizes, &tiled[..count]);
    fastest.map_or(Strategy::Tiled64, |fastest| fastest.strategy)
}

/// Returns the number of splits of k of a product of operands of a type.
pub(crate) fn splits_of_k(
    runtime: &Runtime,
    sizes: GemmSizes,
    dtype: DType,
    strategy: Strategy,
) -> usize {
    if let Some(software) = software_policy(runtime) {
        return software.splits_of_k(sizes);
    }
    let fastest = Partition::fastest(throughput(runtime, dtype), sizes, &[strategy]);
    fastest.map_or(1, |fastest| fastest.splits)
}

/// Returns how fast a GPU multiplies operands of a type. The number of processors is an assumption, where the
/// driver does not report it, and so is the speed of matrix units.
fn throughput(runtime: &Runtime, dtype: DType) -> Throughput {
    let info = runtime.info();
    let processors = match info.processors {
        Some(processors) => processors as usize,
        None if info.kind == AdapterKind::Integrated => 16,
        None => 64,
    };
    let units = listed_units::listed(info, dtype).next();
    let per_clock = match (units, info.vendor.as_str()) {
        (Some(_), "AMD") => 256.0,
        // By instructions for subgroups: 1,270, measured on an H200. On a 4090 256, by its vendor.
        (Some(_), "NVIDIA") => 1024.0,
        (Some(_), "Intel") => 1024.0,
        _ => LANES,
    };
    Throughput { processors, per_clock, units: units.map(|units| (units, dtype.size() as f64)) }
}

/// Returns whether kernels read operands of 16 bits as they are stored where others convert them to f32 first.
pub(crate) fn keeps_halves(runtime: &Runtime) -> bool {
    software_policy(runtime).is_none()
}

/// Returns whether an invocation computes four neighbours and stores them as a vec4. On software
/// adapters, neighbouring invocations compute neighbours.
pub(crate) fn computes_neighbours(runtime: &Runtime) -> bool {
    software_policy(runtime).is_none()
}

/// Returns whether a kernel can read `count` tensors and write one more. Software adapters compile a kernel with many
/// bindings slowly.
pub(crate) fn reads_many_tensors(runtime: &Runtime, count: usize) -> bool {
    let limit = runtime.info().limits.storage_buffers_per_stage as usize;
    limit > count && software_policy(runtime).is_none()
}

/// Returns whether a product is too small for the tiles of a workgroup.
pub(crate) fn is_small_product(runtime: &Runtime, sizes: GemmSizes) -> bool {
    let GemmSizes { m, n, k, .. } = sizes;
    software_policy(runtime).is_none() && m <= 32 && n <= 32 && k <= 256
}

/// Returns whether a product of quantised matrices is computed in integers. Products of few rows read their
/// weights once in any case, and unpack them in registers. Not every browser has packed products; Metal, and Mesa
/// on Apple's and Qualcomm's GPUs, compute them by a dozen instructions.
pub(crate) fn multiplies_integers(runtime: &Runtime, sizes: GemmSizes) -> bool {
    let GemmSizes { batch, m, n, k } = sizes;
    let is_large = m.min(n) > MAX_VECTORS && k > 0 && batch > 0;
    let info = runtime.info();
    let emulates = info.api == Api::Metal || ["Apple", "Qualcomm"].contains(&info.vendor.as_str());
    !cfg!(target_family = "wasm") && !emulates && software_policy(runtime).is_none() && is_large
}

/// Returns the candidates for tuning. The first one, `Scalar`, is the reference for the results.
pub(crate) fn gemm_candidates(runtime: &Runtime) -> Vec<Strategy> {
    let is_software = software_policy(runtime).is_some();
    let applies = |strategy: &Strategy| match strategy {
        Strategy::Scalar | Strategy::Tiled64 => true,
        Strategy::Vec4 => is_software,
        Strategy::Tiled64x128 | Strategy::Tiled128 => !is_software,
        Strategy::Small => false,
    };
    Strategy::ALL.into_iter().map(|(each, _)| each).filter(applies).collect()
}

/// Returns whether a convolution of these channels takes less time by Winograd's algorithm, which moves
/// more data. `tiles` are those of 4 x 4 for all `pixels` of the result.
pub(crate) fn pays_for_winograd(
    runtime: &Runtime,
    channels: [usize; 2],
    tiles: usize,
    pixels: usize,
) -> bool {
    let fits = |channels: usize| channels >= 128 && channels.is_multiple_of(4);
    // At most half the multiply-adds: a tile takes 36 for each pair of channels, a pixel 9.
    let is_cheaper = 2 * 36 * tiles <= 9 * pixels;
    software_policy(runtime).is_none()
        && channels.into_iter().all(fits)
        && tiles >= 128
        && is_cheaper
}

/// Returns the number of operations above which a product pays for copies of its operands that can
/// be read in vec4s, if they need no padding.
pub(crate) fn repack_min_work(runtime: &Runtime) -> u64 {
    software_policy(runtime).map_or(1 << 24, |software| software.repack_min_work())
}

/// Returns whether kernels go on computing with their results.
pub(crate) fn has_epilogue(runtime: &Runtime, large_kernel: bool) -> bool {
    !large_kernel || software_policy(runtime).is_none()
}

/// Returns the maximum number of GPU buffers of a kernel that computes many small tensors.
pub(crate) fn batched_pages(runtime: &Runtime) -> usize {
    software_policy(runtime).map_or(usize::MAX, |software| software.batched_pages())
}

/// Returns the number of vec4s that each invocation of an elementwise kernel computes.
pub(crate) fn elementwise_rounds(runtime: &Runtime, vec4s: usize) -> usize {
    match software_policy(runtime) {
        Some(software) => software.elementwise_rounds(vec4s),
        None if vec4s >= 1 << 18 => 4,
        None => 1,
    }
}

/// Returns whether an elementwise kernel for a special case (in place, or in vec4s along the
/// innermost axis) pays off for `len` elements, although it must be compiled.
pub(crate) fn pays_for_special_case(runtime: &Runtime, len: usize) -> bool {
    software_policy(runtime).is_none_or(|software| software.pays_for_special_case(len))
}

/// Returns whether it is faster to sort the `rows` updates of each of `lines` lines by location
/// than to apply all updates of a line in one invocation.
pub(crate) fn pays_to_sort_lines(runtime: &Runtime, rows: usize, lines: usize) -> bool {
    software_policy(runtime).is_none() && rows >= 512 && lines < 256
}

/// Returns whether it is faster to sort `rows` updates by location than to apply all updates of an element in one
/// invocation.
pub(crate) fn pays_to_sort_updates(runtime: &Runtime, rows: usize) -> bool {
    software_policy(runtime).is_none() && rows >= 512
}

/// Returns the most updates that one invocation applies in a launch: fewer than [`max_rounds`], because on a GPU each
/// waits for memory twice.
pub(crate) fn updates_per_launch(runtime: &Runtime) -> usize {
    software_policy(runtime).map_or(1 << 12, |_| 1 << 15)
}

/// Returns whether kernels are fast whose invocations exchange data through workgroup memory, with
/// several barriers.
pub(crate) fn has_fast_barriers(runtime: &Runtime) -> bool {
    software_policy(runtime).is_none()
}

/// Returns the number of invocations that keeps the device busy, for kernels that can split their
/// work further.
pub(crate) fn busy_invocations(runtime: &Runtime) -> usize {
    software_policy(runtime).map_or(1 << 16, |software| software.busy_invocations())
}

/// Returns the number of bands of rows that keeps the device busy, for kernels that repeat work in
/// each band.
pub(crate) fn busy_bands(runtime: &Runtime) -> usize {
    software_policy(runtime).map_or(16384, |software| software.busy_bands())
}

/// Returns the team that computes the columns of a row in attention, for values of `width` vec4s,
/// and the number of vec4 columns per member. Widths are rounded up to powers of two to limit the
/// number of variants.
pub(crate) fn attention_team(runtime: &Runtime, width: usize) -> (Team, u32) {
    let width = width.next_power_of_two() as u32;
    match software_policy(runtime) {
        Some(software) => software.attention_team(width),
        None => (attention_team_of(width.clamp(8, 64)), 1),
    }
}

const fn attention_team_of(size: u32) -> Team {
    Team { workgroup_size: 64, size, stride: 1, subgroup: false }
}

/// Returns every choice of [`attention_team`] on software adapters.
pub(crate) fn software_attention_teams() -> impl Iterator<Item = (Team, u32)> {
    software::ATTENTION_TEAMS.into_iter()
}

/// Returns every choice of [`attention_team`] on GPUs.
pub(crate) fn gpu_attention_teams() -> impl Iterator<Item = (Team, u32)> {
    [8, 16, 32, 64].map(|size| (attention_team_of(size), 1)).into_iter()
}

/// Returns whether attention is computed in tiles of 64 queries.
pub(crate) fn tiles_attention(runtime: &Runtime, queries: usize) -> bool {
    has_fast_barriers(runtime) && queries > 16
}

/// Returns the number of keys that a workgroup of attention goes over, of `keys`, if it takes
/// `workgroups` for all of them: fewer than all if that keeps more of the device busy.
pub(crate) fn attention_split_len(runtime: &Runtime, workgroups: usize, keys: usize) -> usize {
    let max_splits = 512 / workgroups.clamp(1, 512);
    let splits = keys.div_ceil(256).min(max_splits).min(64);
    if software_policy(runtime).is_some() || splits < 2 {
        return keys;
    }
    keys.div_ceil(splits).next_multiple_of(64)
}

/// Returns whether attention with this many scores per head is computed by matrix products. In the kernels for few
/// rows, an invocation takes `rounds` rounds.
pub(crate) fn composes_attention(runtime: &Runtime, scores: usize, rounds: usize) -> bool {
    software_policy(runtime).is_some_and(|software| software.composes_attention(scores, rounds))
}

/// Returns whether gradients of attention are computed by matrix products. The kernels take minutes
/// to compile on some software adapters.
pub(crate) fn composes_attention_gradients(runtime: &Runtime) -> bool {
    software_policy(runtime).is_some()
}

/// Returns the number of rows, of `rows` in all and at most `max_rows`, that each team of a
/// workgroup of `teams` teams computes in turn, for gradients of norms. Workgroups with more rows
/// leave fewer sums to add up. For each row, an invocation takes `rounds_per_row` rounds of loops.
pub(crate) fn norm_rounds(
    runtime: &Runtime,
    rows: usize,
    teams: usize,
    max_rows: usize,
    rounds_per_row: usize,
) -> usize {
    let max_rows = max_rows.min(max_rounds(runtime) / rounds_per_row).max(1);
    match software_policy(runtime) {
        Some(_) => max_rows,
        None => (rows / (teams * 512)).clamp(1, max_rows),
    }
}

/// Size of the workgroups that compute a recursion on a GPU.
const RECURSION_WORKGROUP_SIZE: u32 = 64;

/// Returns the size of the workgroups that compute a recursion (CTC) of so many steps and states, with a barrier after
/// each step.
pub(crate) fn recursion_workgroup_size(runtime: &Runtime, steps: usize, states: usize) -> u32 {
    let software = software_policy(runtime).map(|software| software.recursion_workgroup_size());
    let is_short = |size: &u32| recursion_rounds(*size, steps, states) <= max_rounds(runtime);
    software.filter(is_short).unwrap_or(RECURSION_WORKGROUP_SIZE)
}

/// Returns the rounds of the loops of an invocation in a recursion.
pub(crate) fn recursion_rounds(workgroup_size: u32, steps: usize, states: usize) -> usize {
    steps.saturating_mul(states.div_ceil(workgroup_size as usize) + 2)
}

/// Returns every choice of [`recursion_workgroup_size`].
pub(crate) fn all_recursion_workgroup_sizes() -> [u32; 2] {
    [software::RECURSION_WORKGROUP_SIZE, RECURSION_WORKGROUP_SIZE]
}
