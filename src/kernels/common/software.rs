//! Policy for software adapters: Vulkan and WebGPU drivers that run on the CPU (lavapipe,
//! SwiftShader).
//!
//! Their costs are not a GPU's. A compiled kernel costs tens of milliseconds, a barrier or a trip
//! through workgroup memory costs more than the arithmetic between two of them, and idle
//! invocations take as long as busy ones. `policy.rs` asks here first; launchers read as if only
//! GPUs existed.

use super::strategy::{SplitK, Strategy};
use super::team::Team;
use crate::device::CAN_BLOCK;
use crate::runtime::Runtime;

/// Whether every subgroup has eight lanes, numbered by local index. No API guarantees the
/// numbering; the software adapters with subgroups of eight have it.
pub(crate) fn has_subgroups_of_8(runtime: &Runtime) -> bool {
    let info = runtime.info();
    let eight = info.limits.min_subgroup_size == 8 && info.limits.max_subgroup_size == 8;
    info.features.subgroups && eight
}

/// A workgroup of eight subgroups, each a team.
const SUBGROUP_TEAM: Team = Team { workgroup_size: 64, size: 8, stride: 1, subgroup: true };
/// A workgroup of eight, which is one team: its barriers are cheap.
const WORKGROUP_TEAM: Team = Team { workgroup_size: 8, size: 8, stride: 1, subgroup: false };
/// A workgroup of one subgroup, which is one team.
const SINGLE_SUBGROUP_TEAM: Team = Team { subgroup: true, ..WORKGROUP_TEAM };
/// Every team that this policy chooses for contiguous lines.
pub(crate) const TEAMS: [Team; 2] = [WORKGROUP_TEAM, SUBGROUP_TEAM];

/// Every team that this policy chooses for attention, with the vec4 columns of each member.
pub(crate) const ATTENTION_TEAMS: [(Team, u32); 4] = [
    (WORKGROUP_TEAM, 1),
    (WORKGROUP_TEAM, 2),
    (SINGLE_SUBGROUP_TEAM, 1),
    (SINGLE_SUBGROUP_TEAM, 2),
];

/// The size of workgroups that compute a recursion.
pub(crate) const RECURSION_WORKGROUP_SIZE: u32 = 8;

/// Operations that pay for a kernel that takes a second to compile, in any program. Software
/// adapters in browsers are slower.
const PAYS_FOR_SLOW_COMPILE: u64 = if CAN_BLOCK { 1 << 31 } else { 1 << 28 };
/// Operations that pay for it once the program is warmed up.
const PAYS_WHEN_WARM: u64 = 1 << 20;
/// Elements that pay for an elementwise kernel that serves one case only.
const PAYS_FOR_SPECIAL_CASE: usize = 1 << 18;

/// Row strides that are multiples of this many floats alias in a CPU's L1 cache.
const ALIASING: usize = 512;

/// A software adapter's answers to the launchers' questions.
pub(crate) struct Software<'a> {
    runtime: &'a Runtime,
}

/// The answers for `runtime` if it is a software adapter.
pub(crate) fn software(runtime: &Runtime) -> Option<Software<'_>> {
    runtime.is_software().then_some(Software { runtime })
}

impl Software<'_> {
    /// The strategy for a product of `work` operations: the scalar one compiles fast, the vec4 one
    /// runs fast.
    pub fn gemm_strategy(&self, work: u64, warmed_up: bool) -> Strategy {
        let pays = work > PAYS_FOR_SLOW_COMPILE || warmed_up && work > PAYS_WHEN_WARM;
        if pays { Strategy::Vec4 } else { Strategy::Scalar }
    }

    /// When to split a product along k.
    pub fn split_k(&self) -> SplitK {
        SplitK { tile: 32, enough_tiles: 16, min_k: 512 }
    }

    /// Whether rows with this stride evict each other from the L1 cache.
    pub fn rows_alias(&self, stride: isize) -> bool {
        stride != 0 && stride.unsigned_abs().is_multiple_of(ALIASING)
    }

    /// A row stride for rows of `len` elements that does not alias.
    pub fn padded_stride(len: usize) -> usize {
        len.next_multiple_of(ALIASING) + 16
    }

    /// The team for contiguous lines. Few lines get small workgroups: a partly idle workgroup takes
    /// as long as a full one, and few workgroups leave cores idle.
    pub fn team_along(&self, lines: usize) -> Team {
        let subgroups = has_subgroups_of_8(self.runtime) && lines >= 128;
        if subgroups { SUBGROUP_TEAM } else { WORKGROUP_TEAM }
    }

    /// The minimum length and the maximum count of splits of lines that single invocations reduce.
    pub fn splits_across(&self, outputs: usize) -> (usize, usize) {
        (1024, 2048usize.div_ceil(outputs).max(64))
    }

    /// How many vec4s each invocation of an elementwise kernel computes: a workgroup has a fixed
    /// cost.
    pub fn elementwise_rounds(&self, vec4s: usize) -> usize {
        (vec4s >> 12).clamp(1, 64)
    }

    /// Whether an elementwise kernel that serves only one case pays for its compilation.
    pub fn pays_for_special_case(&self, len: usize) -> bool {
        self.runtime.is_warmed_up() || len >= PAYS_FOR_SPECIAL_CASE
    }

    /// Whether sorting `rows` updates of `lines` elements each beats walking each line of them.
    pub fn pays_to_sort_updates(&self, rows: usize, lines: usize) -> bool {
        rows >= 4096 && lines < 8
    }

    /// Invocations that keep the adapter busy, for kernels whose invocations can be split further.
    pub fn busy_invocations(&self) -> usize {
        1 << 10
    }

    /// Bands of rows that keep the adapter busy, for kernels that repeat work per band.
    pub fn busy_bands(&self) -> usize {
        16
    }

    /// The team that computes the columns of a row in attention, for values of `width` vec4s, and
    /// the vec4 columns of each member.
    pub fn attention_team(&self, width: u32) -> (Team, u32) {
        let subgroup = has_subgroups_of_8(self.runtime);
        let team = if subgroup { SINGLE_SUBGROUP_TEAM } else { WORKGROUP_TEAM };
        (team, (width / 8).clamp(1, 2))
    }

    /// The size of a workgroup that computes a recursion: barriers of small workgroups are cheap.
    pub fn recursion_workgroup_size(&self) -> u32 {
        RECURSION_WORKGROUP_SIZE
    }
}
