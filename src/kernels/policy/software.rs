//! Policy for software adapters: Vulkan and WebGPU drivers that run on the CPU (lavapipe,
//! SwiftShader).
//!
//! Their costs differ from those of a GPU. Compiling a kernel takes tens of milliseconds or more.
//! Barriers and accesses to workgroup memory cost more than the arithmetic between them. Idle
//! invocations take as long as busy ones. `policy.rs` and `gemm.rs` apply this policy; the
//! launchers have no code of their own for software adapters.

use crate::device::CAN_BLOCK;
use crate::kernels::policy::strategy::{GemmSizes, Strategy};
use crate::kernels::policy::team::Team;
use crate::runtime::Runtime;

/// Eight teams per workgroup; each is a subgroup.
const SUBGROUP_TEAM: Team = Team { workgroup_size: 64, size: 8, stride: 1, subgroup: true };
/// One team per workgroup, so that barriers are cheap.
const WORKGROUP_TEAM: Team = Team { workgroup_size: 8, size: 8, stride: 1, subgroup: false };
/// One team per workgroup, which is a subgroup.
const SINGLE_SUBGROUP_TEAM: Team = Team { subgroup: true, ..WORKGROUP_TEAM };
/// Every team that [`SoftwarePolicy::team_along`] can return.
pub(crate) const TEAMS_ALONG: [Team; 2] = [WORKGROUP_TEAM, SUBGROUP_TEAM];

/// Every choice of [`SoftwarePolicy::attention_team`].
pub(crate) const ATTENTION_TEAMS: [(Team, u32); 4] = [
    (WORKGROUP_TEAM, 1),
    (WORKGROUP_TEAM, 2),
    (SINGLE_SUBGROUP_TEAM, 1),
    (SINGLE_SUBGROUP_TEAM, 2),
];

/// Size of the workgroups that compute a recursion.
pub(crate) const RECURSION_WORKGROUP_SIZE: u32 = 8;

/// Above this many operations, a kernel that takes a second to compile pays off. Software adapters
/// in browsers are slower.
const SLOW_COMPILE_WORK: u64 = if CAN_BLOCK { 1 << 31 } else { 1 << 28 };
/// [`SLOW_COMPILE_WORK`] on a warmed-up device.
const SLOW_COMPILE_WORK_WARMED_UP: u64 = if CAN_BLOCK { 1 << 18 } else { 1 << 20 };
/// From this many elements on, an elementwise kernel for a special case pays off.
const SPECIAL_CASE_LEN: usize = 1 << 18;

/// Row strides that are multiples of this many floats alias in a CPU's L1 cache.
const ALIASING_STRIDE: usize = 512;

/// The choices for a software adapter.
pub(crate) struct SoftwarePolicy<'a> {
    runtime: &'a Runtime,
}

/// Returns the policy for a software adapter, or `None` for a GPU.
pub(crate) fn software_policy(runtime: &Runtime) -> Option<SoftwarePolicy<'_>> {
    runtime.is_software().then_some(SoftwarePolicy { runtime })
}

impl SoftwarePolicy<'_> {
    /// Returns whether every subgroup consists of eight invocations with consecutive local indices.
    /// Software adapters with subgroups of eight have this order. No API guarantees it, so kernels
    /// for GPUs must not depend on it.
    pub fn has_subgroups_of_8(&self) -> bool {
        let info = self.runtime.info();
        let eight = info.limits.min_subgroup_size == 8 && info.limits.max_subgroup_size == 8;
        info.features.subgroups && eight
    }

    /// Returns the strategy for a product of `work` operations. `Scalar` compiles fast, `Vec4` runs
    /// fast.
    pub fn gemm_strategy(&self, work: u64, warmed_up: bool) -> Strategy {
        let pays_off = work > SLOW_COMPILE_WORK || warmed_up && work > SLOW_COMPILE_WORK_WARMED_UP;
        if pays_off { Strategy::Vec4 } else { Strategy::Scalar }
    }

    /// Returns the number of operations above which a product pays for copies of its operands that
    /// can be read in vec4s, if they need no padding. A copy takes little longer than any launch.
    pub fn repack_min_work(&self) -> u64 {
        1 << 19
    }

    /// Returns the number of splits of k of a product. It does not depend on the strategy, so that
    /// every strategy sums in the same order.
    pub fn splits_of_k(&self, sizes: GemmSizes) -> usize {
        let GemmSizes { batch, m, n, k } = sizes;
        let tiles = batch * m.div_ceil(32) * n.div_ceil(32);
        (16 / tiles.max(1)).min(k / 512).max(1)
    }

    /// Returns whether rows with this stride evict each other from the L1 cache.
    pub fn rows_alias(&self, stride: isize) -> bool {
        stride != 0 && stride.unsigned_abs().is_multiple_of(ALIASING_STRIDE)
    }

    /// Returns a row stride for rows of `len` elements that does not alias.
    pub fn padded_stride(len: usize) -> usize {
        len.next_multiple_of(ALIASING_STRIDE) + 16
    }

    /// Returns the team for contiguous or few lines. Few lines get small workgroups: a partly idle
    /// workgroup takes as long as a full one, and few workgroups leave cores idle.
    pub fn team_along(&self, lines: usize) -> Team {
        let subgroups = self.has_subgroups_of_8() && lines >= 128;
        if subgroups { SUBGROUP_TEAM } else { WORKGROUP_TEAM }
    }

    /// Returns the minimum length and the maximum number of splits of a line that single
    /// invocations reduce.
    pub fn splits_across(&self, outputs: usize) -> (usize, usize) {
        (1024, 2048usize.div_ceil(outputs).max(64))
    }

    /// Returns the maximum number of GPU buffers of a kernel that computes many small tensors. Each
    /// access to an operand is compiled for every buffer.
    pub fn batched_pages(&self) -> usize {
        3
    }

    /// Returns the number of vec4s that each invocation of an elementwise kernel computes. Several
    /// per invocation amortise the fixed cost of a workgroup.
    pub fn elementwise_rounds(&self, vec4s: usize) -> usize {
        (vec4s >> 12).clamp(1, 64)
    }

    /// Returns whether an elementwise kernel for a special case pays off for `len` elements.
    pub fn pays_for_special_case(&self, len: usize) -> bool {
        self.runtime.is_warmed_up() || len >= SPECIAL_CASE_LEN
    }

    /// Returns the number of invocations that keeps the adapter busy.
    pub fn busy_invocations(&self) -> usize {
        1 << 10
    }

    /// Returns the number of bands of rows that keeps the adapter busy.
    pub fn busy_bands(&self) -> usize {
        16
    }

    /// Returns the team that computes the columns of a row in attention, for values of `width`
    /// vec4s, and the number of vec4 columns per member.
    pub fn attention_team(&self, width: u32) -> (Team, u32) {
        let subgroup = self.has_subgroups_of_8();
        let team = if subgroup { SINGLE_SUBGROUP_TEAM } else { WORKGROUP_TEAM };
        (team, (width / 8).clamp(1, 2))
    }

    /// Returns whether attention with this many scores per head is computed by matrix products.
    /// They are several times faster than the kernels of attention, whose loads are one per lane,
    /// but they are more launches. The kernels go over all keys, in `rounds` rounds of an invocation.
    pub fn composes_attention(&self, scores: usize, rounds: usize) -> bool {
        scores >= 1 << 14 || rounds as u64 > self.runtime.info().max_rounds()
    }

    /// Returns the size of the workgroups that compute a recursion. Barriers of small workgroups
    /// are cheap.
    pub fn recursion_workgroup_size(&self) -> u32 {
        RECURSION_WORKGROUP_SIZE
    }
}
