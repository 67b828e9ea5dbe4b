//! Debug groups around the recorded launches, for tools that list commands: RenderDoc, Nsight, Radeon GPU Profiler,
//! Xcode.

use super::events::current_scope;
use super::origin::current_op;
use crate::variables::has_debug_groups;

/// The groups that are open in a compute pass: a group for each scope of the program, and one for the op.
#[derive(Debug, Default)]
pub(super) struct DebugGroups {
    open: Vec<String>,
}

impl DebugGroups {
    /// Returns the groups of a device; `None` unless they are on.
    pub fn new() -> Option<Self> {
        has_debug_groups().then(Self::default)
    }

    /// Opens the groups of the launch that this thread records next, and closes those of other scopes and ops.
    pub fn enter(&mut self, pass: &mut wgpu::ComputePass<'_>) {
        let scope = current_scope();
        let names = scope.split('/').chain([current_op()]);
        let path: Vec<&str> = names.filter(|name| !name.is_empty()).collect();
        let kept = self.open.iter().zip(&path).take_while(|(open, name)| open == *name).count();
        self.close(pass, kept);
        for name in &path[kept..] {
            pass.push_debug_group(name);
            self.open.push((*name).to_owned());
        }
    }

    /// Closes all but the outermost `kept` groups. A pass must not end with open ones.
    pub fn close(&mut self, pass: &mut wgpu::ComputePass<'_>, kept: usize) {
        for _ in self.open.drain(kept..) {
            pass.pop_debug_group();
        }
    }
}
