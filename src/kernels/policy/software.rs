//! Policy for software adapters: Vulkan and WebGPU drivers that run on the CPU (lavapipe,
//! SwiftShader).
//!
//! Their costs differ from those of a GPU. Compiling a kernel takes tens of milliseconds or more.
//! Barriers and accesses to workgroup memory cost more than the arithmetic between them. Idle
//! invocations take as long as busy ones. Launchers have no code of their own for software adapters.

use super::strategy::{GemmSizes, Strategy};
use super::team::Team;
use super::{Policy, gpu, max_rounds, recursion_rounds};
use crate::device::CAN_BLOCK;
use crate::runtime::Runtime;
use crate::tensor::DType;

/// Eight teams per workgroup; each is a subgroup.
const SUBGROUP_TEAM: Team = Team { workgroup_size: 64, size: 8, stride: 1, subgroup: true };
/// One team per workgroup, so that barriers are cheap.
const WORKGROUP_TEAM: Team = Team { workgroup_size: 8, size: 8, stride: 1, subgroup: false };
/// One team per workgroup, which is a subgroup.
const SINGLE_SUBGROUP_TEAM: Team = Team { subgroup: true, ..WORKGROUP_TEAM };
/// Every team that [`Policy::team_along`] here can return.
pub(super) const TEAMS_ALONG: [Team; 2] = [WORKGROUP_TEAM, SUBGROUP_TEAM];

/// Single invocations of a subgroup: each reads lines of its own, and what they have in common once.
const SHARING_TEAM: Team = Team { workgroup_size: 8, size: 1, stride: 1, subgroup: true };
/// Every choice of [`Policy::team_of_integers`] here.
pub(super) const TEAMS_OF_INTEGERS: [Team; 2] = [WORKGROUP_TEAM, SHARING_TEAM];
/// The words of a load of integers.
pub(super) const WORDS_PER_LOAD: u32 = 4;

/// Every choice of [`Policy::attention_team`] here.
pub(super) const ATTENTION_TEAMS: [(Team, u32); 4] = [
    (WORKGROUP_TEAM, 1),
    (WORKGROUP_TEAM, 2),
    (SINGLE_SUBGROUP_TEAM, 1),
    (SINGLE_SUBGROUP_TEAM, 2),
];

/// Size of the workgroups that compute a recursion.
pub(super) const RECURSION_WORKGROUP_SIZE: u32 = 8;

/// Above this many operations, a kernel that takes a second to compile pays off. Software adapters
/// in browsers are slower.
const SLOW_COMPILE_WORK: u64 = if CAN_BLOCK { 1 << 31 } else { 1 << 28 };
/// [`SLOW_COMPILE_WORK`] on a warmed-up device.
const SLOW_COMPILE_WORK_WARMED_UP: u64 = if CAN_BLOCK { 1 << 18 } else { 1 << 20 };
/// From this many elements on, an elementwise kernel for a special case pays off.
const SPECIAL_CASE_LEN: usize = 1 << 18;

/// Row strides that are multiples of this many floats alias in a CPU's L1 cache.
const ALIASING_STRIDE: usize = 512;

/// Returns a row stride for rows of `len` elements that does not alias.
pub(super) fn padded_stride(len: usize) -> usize {
    len.next_multiple_of(ALIASING_STRIDE) + 16
}

/// The choices for a software adapter.
pub(crate) struct SoftwarePolicy<'a> {
    pub(super) runtime: &'a Runtime,
}

impl Policy for SoftwarePolicy<'_> {
    /// Few lines get small workgroups: a partly idle workgroup takes as long as a full one, and few workgroups leave
    /// cores idle.
    fn team_along(&self, lines: usize, _: usize) -> Team {
        let subgroups = self.has_subgroups_of_8() && lines >= 128;
        if subgroups { SUBGROUP_TEAM } else { WORKGROUP_TEAM }
    }

    fn team_across(&self, _: bool, _: usize) -> Team {
        Team::SINGLE
    }

    fn splits_lines(&self, _: usize, _: usize, rounds: usize) -> bool {
        rounds > max_rounds(self.runtime)
    }

    fn holding_team(&self, lines: usize, loads: usize, _: u32) -> (Team, u32) {
        (self.team_along(lines, loads), 0)
    }

    fn max_vectors(&self) -> usize {
        1
    }

    fn splits_across(&self, outputs: usize) -> (usize, usize) {
        (1024, 2048usize.div_ceil(outputs).max(64))
    }

    fn max_summed(&self) -> usize {
        1024
    }

    /// `Scalar` compiles fast, `Vec4` runs fast.
    fn gemm_strategy(&self, sizes: GemmSizes, _: DType, warmed_up: bool) -> Strategy {
        let work = sizes.work();
        let pays_off = work > SLOW_COMPILE_WORK || warmed_up && work > SLOW_COMPILE_WORK_WARMED_UP;
        if pays_off { Strategy::Vec4 } else { Strategy::Scalar }
    }

    /// It does not depend on the strategy, so that every strategy sums in the same order.
    fn splits_of_k(&self, sizes: GemmSizes, _: DType, _: Strategy) -> usize {
        let GemmSizes { batch, m, n, k } = sizes;
        let tiles = batch * m.div_ceil(32) * n.div_ceil(32);
        (16 / tiles.max(1)).min(k / 512).max(1)
    }

    fn gemm_candidates(&self) -> Vec<Strategy> {
        let candidates = [Strategy::Scalar, Strategy::Vec4, Strategy::Tiled64];
        let all = Strategy::ALL.into_iter().map(|(each, _)| each);
        all.filter(|strategy| candidates.contains(strategy)).collect()
    }

    /// A copy takes little longer than any launch.
    fn repack_min_work(&self) -> u64 {
        1 << 19
    }

    fn rows_alias(&self, stride: isize) -> bool {
        stride != 0 && stride.unsigned_abs().is_multiple_of(ALIASING_STRIDE)
    }

    /// Software adapters with subgroups of eight have this order. No API guarantees it, so kernels for GPUs must not
    /// depend on it.
    fn has_subgroups_of_8(&self) -> bool {
        let info = self.runtime.info();
        let eight = info.limits.min_subgroup_size == 8 && info.limits.max_subgroup_size == 8;
        info.features.subgroups && eight
    }

    fn keeps_halves(&self) -> bool {
        false
    }

    fn team_of_integers(&self, lines: usize, _: usize) -> Team {
        let shares = self.has_subgroups_of_8() && lines >= 16;
        if shares { SHARING_TEAM } else { WORKGROUP_TEAM }
    }

    fn words_per_load(&self, _: u32) -> u32 {
        WORDS_PER_LOAD
    }

    /// A launch costs as much as a few dozen operations of a thousand elements.
    fn computes_again(&self, blocks: usize) -> bool {
        blocks < 16
    }

    fn computes_neighbours(&self) -> bool {
        false
    }

    /// A kernel with many bindings is compiled slowly.
    fn reads_many_tensors(&self, _: usize) -> bool {
        false
    }

    fn is_small_product(&self, _: GemmSizes) -> bool {
        false
    }

    fn multiplies_integers(&self, _: GemmSizes) -> bool {
        false
    }

    fn pays_for_winograd(&self, _: [usize; 2], _: usize, _: usize) -> bool {
        false
    }

    fn has_epilogue(&self, large_kernel: bool) -> bool {
        !large_kernel
    }

    /// Each access to an operand is compiled for every buffer.
    fn batched_pages(&self) -> usize {
        3
    }

    /// Several per invocation amortise the fixed cost of a workgroup.
    fn elementwise_rounds(&self, vec4s: usize) -> usize {
        (vec4s >> 12).clamp(1, 64)
    }

    fn pays_for_special_case(&self, len: usize) -> bool {
        self.runtime.is_warmed_up() || len >= SPECIAL_CASE_LEN
    }

    fn pays_to_sort_lines(&self, _: usize, _: usize) -> bool {
        false
    }

    fn pays_to_sort_updates(&self, _: usize) -> bool {
        false
    }

    fn updates_per_launch(&self) -> usize {
        1 << 15
    }

    fn has_fast_barriers(&self) -> bool {
        false
    }

    fn busy_invocations(&self) -> usize {
        1 << 10
    }

    fn busy_bands(&self) -> usize {
        16
    }

    fn attention_team(&self, width: usize) -> (Team, u32) {
        let subgroup = self.has_subgroups_of_8();
        let team = if subgroup { SINGLE_SUBGROUP_TEAM } else { WORKGROUP_TEAM };
        (team, (width.next_power_of_two() as u32 / 8).clamp(1, 2))
    }

    fn attention_split_len(&self, _: usize, keys: usize) -> usize {
        keys
    }

    /// Products are several times faster than the kernels of attention, whose loads are one per lane, but they are more
    /// launches. The kernels go over all keys.
    fn composes_attention(&self, scores: usize, rounds: usize) -> bool {
        scores >= 1 << 14 || rounds > max_rounds(self.runtime)
    }

    /// The kernels take minutes to compile on some software adapters.
    fn composes_attention_gradients(&self) -> bool {
        true
    }

    fn norm_rounds(&self, _: usize, _: usize, max_rows: usize, rounds_per_row: usize) -> usize {
        max_rows.min(max_rounds(self.runtime) / rounds_per_row).max(1)
    }

    /// Barriers of small workgroups are cheap.
    fn recursion_workgroup_size(&self, steps: usize, states: usize) -> u32 {
        let rounds = recursion_rounds(RECURSION_WORKGROUP_SIZE, steps, states);
        match rounds <= max_rounds(self.runtime) {
            true => RECURSION_WORKGROUP_SIZE,
            false => gpu::RECURSION_WORKGROUP_SIZE,
        }
    }
}
