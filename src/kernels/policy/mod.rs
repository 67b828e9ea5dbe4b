//! Choices that depend on the adapter: teams, splits and strategies.
//!
//! A launcher asks the [`Policy`] of its device, and not what the device is. `gpu.rs` has the choices for GPUs, and
//! `software.rs` those for software adapters.

mod gpu;
pub(crate) mod listed_units;
pub(crate) mod partition;
mod software;
pub(crate) mod strategy;
pub(crate) mod team;

use std::ops::Deref;

use self::gpu::GpuPolicy;
use self::software::SoftwarePolicy;
use self::strategy::{GemmSizes, Strategy};
use self::team::Team;
use crate::runtime::Runtime;
use crate::tensor::DType;

pub(crate) use self::gpu::MAX_VECTORS;

/// Number of teams, or of groups of 32 neighbouring lines, that keeps a GPU busy.
const BUSY: usize = 2048;

/// Contiguous lines of at least this many elements are reduced by a team, others by one invocation.
pub(crate) const MIN_TEAM_LEN: usize = 32;

/// The choices for an adapter.
pub(crate) trait Policy {
    /// Returns the team for `lines` lines of `loads` loads each. Either the lines are contiguous, or
    /// they are too few for one invocation per line.
    fn team_along(&self, lines: usize, loads: usize) -> Team;

    /// Returns the team for contiguous lines of `len` elements in `loads` loads: short lines are reduced by one
    /// invocation.
    fn team_of_line(&self, lines: usize, len: usize, loads: usize) -> Team {
        if len >= MIN_TEAM_LEN { self.team_along(lines, loads) } else { Team::SINGLE }
    }

    /// Returns the team for lines that are neighbours in memory, of `loads` loads each.
    fn team_across(&self, vec4: bool, loads: usize) -> Team;

    /// Returns whether the softmax or norm of `lines` lines is computed by several workgroups for each line. In the
    /// kernels, one computes a line, and its invocations take `rounds` rounds.
    fn splits_lines(&self, lines: usize, len: usize, rounds: usize) -> bool;

    /// Returns the team for contiguous lines that it reads twice, and how many loads of a line each member holds in
    /// registers, at most `max`, so that the line is read once; 0 if it is read again.
    fn holding_team(&self, lines: usize, loads: usize, max: u32) -> (Team, u32);

    /// Returns up to how many rows or columns of a product are computed as vectors, which read the
    /// other operand once. A tile would be mostly empty.
    fn max_vectors(&self) -> usize;

    /// Returns the minimum length and the maximum number of splits of a line that single invocations reduce, of
    /// `outputs` lines.
    fn splits_across(&self, outputs: usize) -> (usize, usize);

    /// Returns the number of elements of a line of `len` that one team reduces: `len`, or the length of
    /// a split if `outputs` lines are too few to keep the device busy. With `along`, teams are those of
    /// [`team_along`](Self::team_along), otherwise those of [`team_across`](Self::team_across).
    fn split_len(&self, along: bool, outputs: usize, len: usize) -> usize {
        let outputs = outputs.max(1);
        // Shorter splits do not pay off, because they need a second pass. Splits of single invocations
        // are shorter, which keeps the rounding error of their sums small.
        let (min_len, max_splits) = match along {
            true => (4096, BUSY.div_ceil(outputs)),
            false => self.splits_across(outputs),
        };
        if len <= 1024 {
            return len;
        }
        len.div_ceil(len.div_ceil(min_len).min(max_splits))
    }

    /// Returns the most loads that an invocation adds up one after the other, so that their rounding errors stay small:
    /// its sum of ones is exact. The sums of splits are added without such errors.
    fn max_summed(&self) -> usize;

    /// Returns the built-in strategy for a product of operands of a type.
    fn gemm_strategy(&self, sizes: GemmSizes, dtype: DType, warmed_up: bool) -> Strategy;

    /// Returns the number of splits of k of a product of operands of a type.
    fn splits_of_k(&self, sizes: GemmSizes, dtype: DType, strategy: Strategy) -> usize;

    /// Returns the candidates for tuning. The first one, `Scalar`, is the reference for the results.
    fn gemm_candidates(&self) -> Vec<Strategy>;

    /// Returns the number of operations above which a product pays for copies of its operands that can
    /// be read in vec4s, if they need no padding.
    fn repack_min_work(&self) -> u64;

    /// Returns whether rows with this stride evict each other from a cache, so that a product pads them.
    fn rows_alias(&self, stride: isize) -> bool;

    /// Returns whether every subgroup consists of eight invocations with consecutive local indices, and kernels may
    /// depend on it.
    fn has_subgroups_of_8(&self) -> bool;

    /// Returns whether kernels read operands of 16 bits as they are stored where others convert them to f32 first.
    fn keeps_halves(&self) -> bool;

    /// Returns the team for rows of packed integers.
    fn team_of_integers(&self, lines: usize, loads: usize) -> Team;

    /// Returns the words of a load of integers of 4 or 8 bits.
    fn words_per_load(&self, bits: u32) -> u32;

    /// Returns whether a kernel computes pending vectors again for each of `blocks` blocks of rows.
    fn computes_again(&self, blocks: usize) -> bool;

    /// Returns whether an invocation computes four neighbours and stores them as a vec4. Otherwise neighbouring
    /// invocations compute neighbours.
    fn computes_neighbours(&self) -> bool;

    /// Returns whether a kernel can read `count` tensors and write one more.
    fn reads_many_tensors(&self, count: usize) -> bool;

    /// Returns whether a product is too small for the tiles of a workgroup.
    fn is_small_product(&self, sizes: GemmSizes) -> bool;

    /// Returns whether a product of quantised matrices is computed in integers. Products of few rows read their
    /// weights once in any case, and unpack them in registers.
    fn multiplies_integers(&self, sizes: GemmSizes) -> bool;

    /// Returns whether a convolution of these channels takes less time by Winograd's algorithm, which moves
    /// more data. `tiles` are those of 4 x 4 for all `pixels` of the result.
    fn pays_for_winograd(&self, channels: [usize; 2], tiles: usize, pixels: usize) -> bool;

    /// Returns whether kernels go on computing with their results.
    fn has_epilogue(&self, large_kernel: bool) -> bool;

    /// Returns the maximum number of GPU buffers of a kernel that computes many small tensors.
    fn batched_pages(&self) -> usize;

    /// Returns the number of vec4s that each invocation of an elementwise kernel computes.
    fn elementwise_rounds(&self, vec4s: usize) -> usize;

    /// Returns whether an elementwise kernel for a special case (in place, or in vec4s along the
    /// innermost axis) pays off for `len` elements, although it must be compiled.
    fn pays_for_special_case(&self, len: usize) -> bool;

    /// Returns whether it is faster to sort the `rows` updates of each of `lines` lines by location
    /// than to apply all updates of a line in one invocation.
    fn pays_to_sort_lines(&self, rows: usize, lines: usize) -> bool;

    /// Returns whether it is faster to sort `rows` updates by location than to apply all updates of an element in one
    /// invocation.
    fn pays_to_sort_updates(&self, rows: usize) -> bool;

    /// Returns the most updates that one invocation applies in a launch: fewer than [`max_rounds`].
    fn updates_per_launch(&self) -> usize;

    /// Returns whether kernels are fast whose invocations exchange data through workgroup memory, with
    /// several barriers.
    fn has_fast_barriers(&self) -> bool;

    /// Returns the number of invocations that keeps the device busy, for kernels that can split their
    /// work further.
    fn busy_invocations(&self) -> usize;

    /// Returns the number of bands of rows that keeps the device busy, for kernels that repeat work in
    /// each band.
    fn busy_bands(&self) -> usize;

    /// Returns the team that computes the columns of a row in attention, for values of `width` vec4s,
    /// and the number of vec4 columns per member. Widths are rounded up to powers of two to limit the
    /// number of variants.
    fn attention_team(&self, width: usize) -> (Team, u32);

    /// Returns whether attention is computed in tiles of 64 queries.
    fn tiles_attention(&self, queries: usize) -> bool {
        self.has_fast_barriers() && queries > 16
    }

    /// Returns the number of keys that a workgroup of attention goes over, of `keys`, if it takes
    /// `workgroups` for all of them: fewer than all if that keeps more of the device busy.
    fn attention_split_len(&self, workgroups: usize, keys: usize) -> usize;

    /// Returns whether attention with this many scores per head is computed by matrix products. In the kernels for few
    /// rows, an invocation takes `rounds` rounds.
    fn composes_attention(&self, scores: usize, rounds: usize) -> bool;

    /// Returns whether gradients of attention are computed by matrix products.
    fn composes_attention_gradients(&self) -> bool;

    /// Returns the number of rows, of `rows` in all and at most `max_rows`, that each team of a
    /// workgroup of `teams` teams computes in turn, for gradients of norms. Workgroups with more rows
    /// leave fewer sums to add up. For each row, an invocation takes `rounds_per_row` rounds of loops.
    fn norm_rounds(
        &self,
        rows: usize,
        teams: usize,
        max_rows: usize,
        rounds_per_row: usize,
    ) -> usize;

    /// Returns the size of the workgroups that compute a recursion (CTC) of so many steps and states, with a barrier
    /// after each step.
    fn recursion_workgroup_size(&self, steps: usize, states: usize) -> u32;
}

/// The policy of a device.
pub(crate) enum PolicyOf<'a> {
    Gpu(GpuPolicy<'a>),
    Software(SoftwarePolicy<'a>),
}

impl<'a> Deref for PolicyOf<'a> {
    type Target = dyn Policy + 'a;

    fn deref(&self) -> &Self::Target {
        match self {
            Self::Gpu(policy) => policy,
            Self::Software(policy) => policy,
        }
    }
}

/// Returns the policy of a device.
pub(crate) fn of(runtime: &Runtime) -> PolicyOf<'_> {
    match runtime.is_software() {
        true => PolicyOf::Software(SoftwarePolicy { runtime }),
        false => PolicyOf::Gpu(GpuPolicy { runtime }),
    }
}

/// Returns the most rounds of loops that an invocation may take: see [`AdapterInfo::max_rounds`].
///
/// [`AdapterInfo::max_rounds`]: crate::device::AdapterInfo::max_rounds
pub(crate) fn max_rounds(runtime: &Runtime) -> usize {
    runtime.info().max_rounds() as usize
}

/// Returns the rounds of the loops of an invocation in a recursion.
pub(crate) fn recursion_rounds(workgroup_size: u32, steps: usize, states: usize) -> usize {
    steps.saturating_mul(states.div_ceil(workgroup_size as usize) + 2)
}

/// Returns a row stride for rows of `len` elements that does not [alias](Policy::rows_alias).
pub(crate) fn padded_stride(len: usize) -> usize {
    software::padded_stride(len)
}

/// Returns every team that [`Policy::team_along`] can return for at least `min_loads` loads.
pub(crate) fn all_teams_along(min_loads: usize) -> impl Iterator<Item = Team> {
    gpu::teams_along(min_loads).chain(software::TEAMS_ALONG)
}

/// Returns every team that [`Policy::team_across`] can return.
pub(crate) fn all_teams_across(vec4: bool) -> [Team; 2] {
    [Team::SINGLE, gpu::team_across(vec4)]
}

/// Returns every result of [`Policy::holding_team`] for lines of at least `min_loads` loads.
pub(crate) fn all_holding_teams(min_loads: usize, max: u32) -> impl Iterator<Item = (Team, u32)> {
    gpu::holding_teams(min_loads, max).chain(software::TEAMS_ALONG.map(|team| (team, 0)))
}

/// Returns every choice of [`Policy::team_of_integers`] and [`Policy::words_per_load`] on software adapters.
pub(crate) fn software_loads_of_integers() -> impl Iterator<Item = (Team, u32)> {
    software::TEAMS_OF_INTEGERS.map(|team| (team, software::WORDS_PER_LOAD)).into_iter()
}

/// Returns every choice of [`Policy::team_of_integers`] and [`Policy::words_per_load`] on GPUs.
pub(crate) fn gpu_loads_of_integers(bits: u32) -> impl Iterator<Item = (Team, u32)> {
    gpu::teams_of_integers().map(move |team| (team, gpu::words_per_load(bits)))
}

/// Returns the teams of [`Policy::team_along`] on GPUs.
pub(crate) fn gpu_teams_along() -> impl Iterator<Item = Team> {
    gpu::teams_along(0)
}

/// Returns every choice of [`Policy::attention_team`] on software adapters.
pub(crate) fn software_attention_teams() -> impl Iterator<Item = (Team, u32)> {
    software::ATTENTION_TEAMS.into_iter()
}

/// Returns every choice of [`Policy::attention_team`] on GPUs.
pub(crate) fn gpu_attention_teams() -> impl Iterator<Item = (Team, u32)> {
    gpu::attention_teams()
}

/// Returns every choice of [`Policy::recursion_workgroup_size`].
pub(crate) fn all_recursion_workgroup_sizes() -> [u32; 2] {
    [software::RECURSION_WORKGROUP_SIZE, gpu::RECURSION_WORKGROUP_SIZE]
}
