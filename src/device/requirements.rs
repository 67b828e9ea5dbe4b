//! The limits that the kernels of this crate require.

use std::fmt;

use super::Limits;

/// A limit of an adapter that is below the requirement of the kernels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortfall {
    /// The name of the limit.
    pub limit: &'static str,
    /// The adapter's value.
    pub has: u32,
    /// The required minimum.
    pub needs: u32,
}

impl fmt::Display for Shortfall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: has {}, needs {}", self.limit, self.has, self.needs)
    }
}

impl Limits {
    /// Returns the limits that are too low; empty if the adapter meets the requirements.
    pub fn shortfalls(&self) -> Vec<Shortfall> {
        // WebGPU guarantees these minimums. Only incomplete drivers are below them.
        let minimum = Self::default();
        let requirements = [
            (
                "storage buffers per shader stage",
                self.storage_buffers_per_stage,
                minimum.storage_buffers_per_stage,
            ),
            (
                "invocations per workgroup",
                self.invocations_per_workgroup,
                minimum.invocations_per_workgroup,
            ),
            ("bytes of workgroup memory", self.workgroup_memory, minimum.workgroup_memory),
            (
                "workgroups per dimension",
                self.workgroups_per_dimension,
                minimum.workgroups_per_dimension,
            ),
        ];
        requirements
            .into_iter()
            .filter(|(_, has, needs)| has < needs)
            .map(|(limit, has, needs)| Shortfall { limit, has, needs })
            .collect()
    }
}

impl Limits {
    /// Returns the limits of buffers that are below those that WebGPU guarantees. A program can open a device with
    /// such.
    pub(super) fn small_buffers(&self) -> Vec<Shortfall> {
        let minimum = Self::default();
        let word = |size: u64| u32::try_from(size).unwrap_or(u32::MAX);
        [
            ("bytes of a buffer", self.max_buffer_size, minimum.max_buffer_size),
            (
                "bytes of a storage binding",
                self.max_storage_binding_size,
                minimum.max_storage_binding_size,
            ),
        ]
        .into_iter()
        .filter(|(_, has, needs)| has < needs)
        .map(|(limit, has, needs)| Shortfall { limit, has: word(has), needs: word(needs) })
        .collect()
    }
}

/// Formats shortfalls as one line.
pub(super) fn join_shortfalls(shortfalls: &[Shortfall]) -> String {
    let texts: Vec<String> = shortfalls.iter().map(Shortfall::to_string).collect();
    texts.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shortfall_names_the_limit_the_actual_and_the_required_value() {
        let limits =
            Limits { storage_buffers_per_stage: 4, workgroup_memory: 1024, ..Limits::default() };
        assert_eq!(
            join_shortfalls(&limits.shortfalls()),
            "storage buffers per shader stage: has 4, needs 8; \
             bytes of workgroup memory: has 1024, needs 16384"
        );
        assert!(Limits::default().shortfalls().is_empty());
    }
}
