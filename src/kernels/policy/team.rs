//! Teams: how the invocations of a workgroup share lines. The Rust side of `shaders/lib/team.wgsl`.

use crate::runtime::{Variant, div_up};

/// The shape of a workgroup whose invocations reduce lines in teams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Team {
    /// Invocations of the workgroup.
    pub workgroup_size: u32,
    /// Invocations that reduce one line together.
    pub size: u32,
    /// Distance between the local indices of neighbouring members.
    pub stride: u32,
    /// Whether a team is a subgroup of eight, which exchanges values without workgroup memory.
    pub subgroup: bool,
}

impl Team {
    /// One invocation per line.
    pub const SINGLE: Self = Self { workgroup_size: 64, size: 1, stride: 1, subgroup: false };

    /// Returns whether each team is one invocation, and the teams of a subgroup share loads.
    pub fn shares(self) -> bool {
        self.subgroup && self.size == 1
    }

    /// Returns the team without subgroup operations, for types that they do not support. Such a
    /// team is a workgroup of its own, whose barriers are cheap.
    pub fn without_subgroups(self) -> Self {
        if self.subgroup {
            Self { workgroup_size: self.size, subgroup: false, ..self }
        } else {
            self
        }
    }

    /// Specialises a kernel for this team.
    pub fn define(self, variant: Variant) -> Variant {
        if self == Self::SINGLE {
            return variant;
        }
        variant
            .flag("TEAM", true)
            .flag("SUBGROUP", self.subgroup)
            .int("WORKGROUP_SIZE", self.workgroup_size)
            .int("TEAM_SIZE", self.size)
            .int("TEAM_STRIDE", self.stride)
    }

    /// Specialises a kernel for this team, of which each member holds `held` loads of a line in
    /// registers; 0 if the kernel reads lines again.
    pub fn define_holding(self, held: u32, variant: Variant) -> Variant {
        let variant = self.define(variant);
        match held {
            0 => variant,
            held => variant.flag("HOLD", true).int("HELD", held),
        }
    }

    /// Returns the number of workgroups for `lines` lines.
    pub fn workgroups(self, lines: usize) -> u64 {
        div_up(lines, (self.workgroup_size / self.size) as usize)
    }
}
