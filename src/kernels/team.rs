//! How the invocations of a workgroup share lines: the Rust side of `shaders/lib/team.wgsl`.

use super::div_up;
use crate::runtime::{Runtime, Variant};

/// With fewer teams or workgroups than this, lines are cut so that the device has enough to do.
const BUSY: usize = 2048;

/// A workgroup's invocations, and how many of them walk a line together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Team {
    lanes: u32,
    span: u32,
    /// How far the members of a team are from one another.
    apart: u32,
    /// Whether a team is a subgroup.
    subgroup: bool,
}

impl Team {
    /// Each invocation walks a line of its own.
    pub const ALONE: Self = Self { lanes: 64, span: 1, apart: 1, subgroup: false };
    /// On a software adapter: subgroups of eight.
    const OCTETS: Self = Self { lanes: 64, span: 8, apart: 1, subgroup: true };
    /// The same where there are none, or for what they cannot exchange: in a workgroup that small barriers cost nothing.
    const OCTET: Self = Self { lanes: 8, span: 8, apart: 1, subgroup: false };
    /// On a GPU the members are neighbours in memory, and as many as have some reads each.
    const ALONG: [Self; 3] = [Self::gpu(8), Self::gpu(32), Self::gpu(128)];
    /// Lines that are neighbours in memory: as many at a time as make 128 bytes of floats, in words or in quads.
    const ACROSS: Self = Self { lanes: 256, span: 8, apart: 32, subgroup: false };
    const ACROSS_QUADS: Self = Self { lanes: 256, span: 32, apart: 8, subgroup: false };

    const fn gpu(span: u32) -> Self {
        Self { lanes: 128, span, apart: 1, subgroup: false }
    }

    /// For so many lines of so many reads, whose elements are neighbours, or which are too few for an invocation each.
    pub fn along(runtime: &Runtime, lines: usize, reads: usize) -> Self {
        match reads {
            // A workgroup that is not full takes as long, and few workgroups leave processors idle.
            _ if runtime.is_software() && has_octets(runtime) && lines >= 128 => Self::OCTETS,
            _ if runtime.is_software() => Self::OCTET,
            0..=16 => Self::ALONG[0],
            17..=128 => Self::ALONG[1],
            _ => Self::ALONG[2],
        }
    }

    /// For lines that lie beside one another, of `reads` each.
    pub fn across(runtime: &Runtime, quads: bool, reads: usize) -> Self {
        match quads {
            // A barrier across subgroups is dear on a software adapter.
            _ if runtime.is_software() || reads < 64 => Self::ALONE,
            true => Self::ACROSS_QUADS,
            false => Self::ACROSS,
        }
    }

    /// Every team for lines whose elements are neighbours.
    pub fn all_along() -> impl Iterator<Item = Self> {
        Self::ALONG.into_iter().chain([Self::OCTET, Self::OCTETS])
    }

    /// Every team for lines beside one another.
    pub fn all_across(quads: bool) -> [Self; 2] {
        [Self::ALONE, if quads { Self::ACROSS_QUADS } else { Self::ACROSS }]
    }

    /// The same without exchanging anything in subgroups.
    pub fn by_barriers(self) -> Self {
        if self.subgroup { Self::OCTET } else { self }
    }

    /// A kernel for such workgroups.
    pub fn define(self, variant: Variant) -> Variant {
        if self == Self::ALONE {
            return variant;
        }
        variant
            .flag("TEAM", true)
            .flag("SUBGROUP", self.subgroup)
            .int("LANES", self.lanes)
            .int("SPAN", self.span)
            .int("APART", self.apart)
    }

    /// The workgroups for so many lines.
    pub fn groups(self, lines: usize) -> u64 {
        div_up(lines, (self.lanes / self.span) as usize)
    }
}

/// Whether a workgroup of eight invocations is a subgroup, and a larger one is made of such, in the order of their numbers: no API
/// promises the latter, but the software adapters that have subgroups of eight do so.
pub(crate) fn has_octets(runtime: &Runtime) -> bool {
    let info = runtime.info();
    let eight = info.limits.min_subgroup_size == 8 && info.limits.max_subgroup_size == 8;
    info.features.subgroups && eight
}

/// How much of a line of `len` elements a team reduces at a time, along the line or across several.
pub(crate) fn part_of(runtime: &Runtime, along: bool, outputs: usize, len: usize) -> usize {
    // The least that is worth a part, and how many parts keep the device busy. One that a single invocation walks is
    // also cut to keep the rounding of a sum small.
    let (least, busy) = match along {
        true => (4096, BUSY.div_ceil(outputs.max(1))),
        false if runtime.is_software() => (1024, BUSY.div_ceil(outputs.max(1)).max(64)),
        false => (256, BUSY.div_ceil(outputs.div_ceil(32).max(1)).max(64)),
    };
    if len <= 1024 {
        return len;
    }
    len.div_ceil(len.div_ceil(least).min(busy))
}
