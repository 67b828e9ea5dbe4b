//! The choices for GPUs.

use super::listed_units;
use super::partition::{LANES, Partition, Throughput};
use super::strategy::{GemmSizes, Strategy};
use super::team::Team;
use super::{BUSY, Policy, max_rounds};
use crate::device::{AdapterKind, Api};
use crate::runtime::Runtime;
use crate::tensor::DType;

/// Teams for contiguous lines, each with the most loads of a line that it is for. Neighbouring
/// members read neighbouring addresses of their line.
const ALONG: [(usize, Team); 3] =
    [(16, team_along_of(8)), (128, team_along_of(32)), (usize::MAX, team_along_of(128))];
/// The team that holds lines which are too long for those of [`ALONG`]. 256 invocations are the default limit of
/// WebGPU.
const WIDE: Team = Team { workgroup_size: 256, size: 256, stride: 1, subgroup: false };
/// Sizes of teams, and how many loads of a line a member holds in registers. 16 vec4s are 64
/// registers, with which 10 to 18 waves or warps fit on a processor of AMD or NVIDIA.
const HELD: [(u32, u32); 5] = [(8, 2), (32, 4), (128, 4), (128, 8), (128, 16)];
/// The team for lines that are neighbours in memory. 32 neighbouring invocations read 32
/// neighbouring lines: 128 bytes at a time.
const ACROSS: Team = Team { workgroup_size: 256, size: 8, stride: 32, subgroup: false };
/// [`ACROSS`] with vec4 loads: eight neighbouring invocations read 128 bytes at a time.
const ACROSS_VEC4: Team = Team { workgroup_size: 256, size: 32, stride: 8, subgroup: false };
/// The maximum of [`Policy::max_vectors`].
pub(crate) const MAX_VECTORS: usize = 16;
/// Size of the workgroups that compute a recursion.
pub(super) const RECURSION_WORKGROUP_SIZE: u32 = 64;

const fn team_along_of(size: u32) -> Team {
    Team { workgroup_size: 128, size, stride: 1, subgroup: false }
}

const fn attention_team_of(size: u32) -> Team {
    Team { workgroup_size: 64, size, stride: 1, subgroup: false }
}

/// Returns the teams for contiguous lines of at least `min_loads` loads.
pub(super) fn teams_along(min_loads: usize) -> impl Iterator<Item = Team> {
    let long_enough = move |&(max_loads, _): &(usize, Team)| max_loads >= min_loads;
    ALONG.into_iter().filter(long_enough).map(|(_, team)| team)
}

/// Returns every choice of [`Policy::team_of_integers`] here: a few teams, of which each has a kernel for every number
/// of vectors.
pub(super) fn teams_of_integers() -> impl Iterator<Item = Team> {
    teams_along(ALONG[1].0)
}

/// Returns the words of a load of integers: eight of these, so that neighbours read neighbouring vec4s of the vectors.
pub(super) fn words_per_load(bits: u32) -> u32 {
    bits / 4
}

/// Returns the team for lines that are neighbours in memory.
pub(super) fn team_across(vec4: bool) -> Team {
    if vec4 { ACROSS_VEC4 } else { ACROSS }
}

/// Returns the numbers of loads that a member of a team may hold, in ascending order.
fn held_by(team: Team, max: u32) -> impl Iterator<Item = u32> {
    let held = HELD.into_iter().filter(move |&(size, held)| size == team.size && held <= max);
    held.map(|(_, held)| held)
}

/// Returns the teams that hold contiguous lines of at least `min_loads` loads, and the one that reads them again.
pub(super) fn holding_teams(min_loads: usize, max: u32) -> impl Iterator<Item = (Team, u32)> {
    let holding = move |team| held_by(team, max).map(move |held| (team, held));
    let reads_again = (ALONG[2].1, 0);
    teams_along(min_loads).flat_map(holding).chain([(WIDE, max), reads_again])
}

/// Returns every team of attention, with its columns.
pub(super) fn attention_teams() -> impl Iterator<Item = (Team, u32)> {
    [8, 16, 32, 64].map(|size| (attention_team_of(size), 1)).into_iter()
}

/// The choices for a GPU.
pub(crate) struct GpuPolicy<'a> {
    pub(super) runtime: &'a Runtime,
}

impl GpuPolicy<'_> {
    /// Returns how fast the GPU multiplies operands of a type. The number of processors is an assumption, where the
    /// driver does not report it, and so is the speed of matrix units.
    fn throughput(&self, dtype: DType) -> Throughput {
        let info = self.runtime.info();
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
}

impl Policy for GpuPolicy<'_> {
    fn team_along(&self, _: usize, loads: usize) -> Team {
        let fits = |&(max_loads, _): &(usize, Team)| loads <= max_loads;
        ALONG.into_iter().find(fits).unwrap_or(ALONG[2]).1
    }

    fn team_across(&self, vec4: bool, loads: usize) -> Team {
        if loads < 64 { Team::SINGLE } else { team_across(vec4) }
    }

    fn splits_lines(&self, lines: usize, len: usize, rounds: usize) -> bool {
        len > 8192 && lines <= 64 || rounds > max_rounds(self.runtime)
    }

    fn holding_team(&self, lines: usize, loads: usize, max: u32) -> (Team, u32) {
        let team = self.team_along(lines, loads);
        let fits = |&(team, held): &(Team, u32)| (held * team.size) as usize >= loads;
        let mut holding = held_by(team, max).map(|held| (team, held)).chain([(WIDE, max)]);
        holding.find(fits).unwrap_or((team, 0))
    }

    fn max_vectors(&self) -> usize {
        MAX_VECTORS
    }

    fn splits_across(&self, outputs: usize) -> (usize, usize) {
        (256, BUSY.div_ceil(outputs.div_ceil(32)).max(64))
    }

    fn max_summed(&self) -> usize {
        256
    }

    fn gemm_strategy(&self, sizes: GemmSizes, dtype: DType, _: bool) -> Strategy {
        // Tiles of 128 x 128 leave Apple's GPUs few waves, and convolutions in them keep registers in memory
        // (`benches/gpus`).
        let tiled = [Strategy::Tiled64, Strategy::Tiled64x128, Strategy::Tiled128];
        let count = if self.runtime.info().vendor == "Apple" { 2 } else { 3 };
        let fastest = Partition::fastest(self.throughput(dtype), sizes, &tiled[..count]);
        fastest.map_or(Strategy::Tiled64, |fastest| fastest.strategy)
    }

    fn splits_of_k(&self, sizes: GemmSizes, dtype: DType, strategy: Strategy) -> usize {
        let fastest = Partition::fastest(self.throughput(dtype), sizes, &[strategy]);
        fastest.map_or(1, |fastest| fastest.splits)
    }

    fn gemm_candidates(&self) -> Vec<Strategy> {
        let applies = |strategy: &Strategy| !matches!(strategy, Strategy::Vec4 | Strategy::Small);
        Strategy::ALL.into_iter().map(|(each, _)| each).filter(applies).collect()
    }

    fn repack_min_work(&self) -> u64 {
        1 << 24
    }

    fn rows_alias(&self, _: isize) -> bool {
        false
    }

    fn has_subgroups_of_8(&self) -> bool {
        false
    }

    fn keeps_halves(&self) -> bool {
        true
    }

    fn team_of_integers(&self, lines: usize, loads: usize) -> Team {
        self.team_along(lines, loads.max(ALONG[1].0))
    }

    fn words_per_load(&self, bits: u32) -> u32 {
        words_per_load(bits)
    }

    /// A launch costs more.
    fn computes_again(&self, _: usize) -> bool {
        true
    }

    fn computes_neighbours(&self) -> bool {
        true
    }

    fn reads_many_tensors(&self, count: usize) -> bool {
        self.runtime.info().limits.storage_buffers_per_stage as usize > count
    }

    fn is_small_product(&self, GemmSizes { m, n, k, .. }: GemmSizes) -> bool {
        m <= 32 && n <= 32 && k <= 256
    }

    /// Not every browser has packed products; Metal, and Mesa on Apple's and Qualcomm's GPUs, compute them by a dozen
    /// instructions.
    fn multiplies_integers(&self, GemmSizes { batch, m, n, k }: GemmSizes) -> bool {
        let is_large = m.min(n) > MAX_VECTORS && k > 0 && batch > 0;
        let info = self.runtime.info();
        let emulates =
            info.api == Api::Metal || ["Apple", "Qualcomm"].contains(&info.vendor.as_str());
        !cfg!(target_family = "wasm") && !emulates && is_large
    }

    fn pays_for_winograd(&self, channels: [usize; 2], tiles: usize, pixels: usize) -> bool {
        let fits = |channels: usize| channels >= 128 && channels.is_multiple_of(4);
        // At most half the multiply-adds: a tile takes 36 for each pair of channels, a pixel 9.
        let is_cheaper = 2 * 36 * tiles <= 9 * pixels;
        channels.into_iter().all(fits) && tiles >= 128 && is_cheaper
    }

    fn has_epilogue(&self, _: bool) -> bool {
        true
    }

    fn batched_pages(&self) -> usize {
        usize::MAX
    }

    fn elementwise_rounds(&self, vec4s: usize) -> usize {
        if vec4s >= 1 << 18 { 4 } else { 1 }
    }

    fn pays_for_special_case(&self, _: usize) -> bool {
        true
    }

    fn pays_to_sort_lines(&self, rows: usize, lines: usize) -> bool {
        rows >= 512 && lines < 256
    }

    fn pays_to_sort_updates(&self, rows: usize) -> bool {
        rows >= 512
    }

    /// Each waits for memory twice.
    fn updates_per_launch(&self) -> usize {
        1 << 12
    }

    fn has_fast_barriers(&self) -> bool {
        true
    }

    fn busy_invocations(&self) -> usize {
        1 << 16
    }

    fn busy_bands(&self) -> usize {
        16384
    }

    fn attention_team(&self, width: usize) -> (Team, u32) {
        (attention_team_of((width.next_power_of_two() as u32).clamp(8, 64)), 1)
    }

    fn attention_split_len(&self, workgroups: usize, keys: usize) -> usize {
        let max_splits = 512 / workgroups.clamp(1, 512);
        let splits = keys.div_ceil(256).min(max_splits).min(64);
        if splits < 2 {
            return keys;
        }
        keys.div_ceil(splits).next_multiple_of(64)
    }

    fn composes_attention(&self, _: usize, _: usize) -> bool {
        false
    }

    fn composes_attention_gradients(&self) -> bool {
        false
    }

    fn norm_rounds(
        &self,
        rows: usize,
        teams: usize,
        max_rows: usize,
        rounds_per_row: usize,
    ) -> usize {
        let max_rows = max_rows.min(max_rounds(self.runtime) / rounds_per_row).max(1);
        (rows / (teams * 512)).clamp(1, max_rows)
    }

    fn recursion_workgroup_size(&self, _: usize, _: usize) -> u32 {
        RECURSION_WORKGROUP_SIZE
    }
}
