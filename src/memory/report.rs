//! The report as a table.

use std::fmt;

use crate::runtime::{Bytes, MemoryReport};

impl fmt::Display for MemoryReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.of_host {
            writeln!(
                f,
                "Memory of {}: tensors are in the host's memory, and are not counted",
                self.device
            )?;
            return self.fmt_waiting(f);
        }
        let usage = self.usage;
        let rows = [
            ("in use", Some(usage.in_use)),
            ("  as requested", Some(usage.requested)),
            ("  peak", Some(usage.peak)),
            ("reserved for tensors", Some(usage.reserved)),
            ("  largest free block", Some(self.largest_free)),
            ("  limit", self.limit),
            ("all buffers of the device", self.driver_allocated),
            ("  in blocks of", self.driver_reserved),
            ("memory of the device", self.device_memory),
        ];
        writeln!(f, "Memory of {}, {} tensors", self.device, usage.allocations)?;
        for (name, bytes) in rows.iter().filter_map(|(name, bytes)| Some((name, (*bytes)?))) {
            writeln!(f, "  {name:<26}{:>10}", Bytes(bytes))?;
        }
        if !self.sizes.is_empty() {
            writeln!(f, "  {:<26}{:>10}{:>10}", "by size", "tensors", "bytes")?;
        }
        for range in &self.sizes {
            let name = format!("  {} to {}", Bytes(range.from), Bytes(range.from * 2));
            writeln!(f, "  {name:<26}{:>10}{:>10}", range.allocations, Bytes(range.bytes))?;
        }
        self.fmt_waiting(f)
    }
}

impl MemoryReport {
    /// Writes how many operations keep memory for a backward pass.
    fn fmt_waiting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.waiting_nodes {
            0 => Ok(()),
            nodes => writeln!(f, "  {nodes} nodes wait for a backward pass"),
        }
    }
}
