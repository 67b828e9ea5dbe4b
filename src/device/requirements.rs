//! What every kernel of this crate counts on.

use std::fmt;

use super::Limits;

/// A limit of an adapter that is below what the kernels count on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortfall {
    /// The limit, in words.
    pub limit: &'static str,
    /// What the adapter has.
    pub has: u32,
    /// What the kernels need.
    pub needs: u32,
}

impl fmt::Display for Shortfall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: has {}, needs {}", self.limit, self.has, self.needs)
    }
}

impl Limits {
    /// The limits that are too low; empty for an adapter that can be used.
    pub fn shortfalls(&self) -> Vec<Shortfall> {
        // All of it is within what WebGPU promises: only unfinished drivers fall short.
        let least = Self::default();
        let needs = [
            (
                "storage buffers per shader stage",
                self.storage_buffers_per_stage,
                least.storage_buffers_per_stage,
            ),
            (
                "invocations per workgroup",
                self.invocations_per_workgroup,
                least.invocations_per_workgroup,
            ),
            ("bytes of workgroup memory", self.workgroup_memory, least.workgroup_memory),
            (
                "workgroups per dimension",
                self.workgroups_per_dimension,
                least.workgroups_per_dimension,
            ),
        ];
        needs
            .into_iter()
            .filter(|(_, has, needs)| has < needs)
            .map(|(limit, has, needs)| Shortfall { limit, has, needs })
            .collect()
    }
}

/// Shortfalls as one line.
pub(super) fn joined(shortfalls: &[Shortfall]) -> String {
    let lines: Vec<String> = shortfalls.iter().map(Shortfall::to_string).collect();
    lines.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_low_limit_is_named_with_what_it_has_and_needs() {
        let limits =
            Limits { storage_buffers_per_stage: 4, workgroup_memory: 1024, ..Limits::default() };
        assert_eq!(
            joined(&limits.shortfalls()),
            "storage buffers per shader stage: has 4, needs 8; \
             bytes of workgroup memory: has 1024, needs 16384"
        );
        assert!(Limits::default().shortfalls().is_empty());
    }
}
