//! Profiles as tables.

use std::collections::HashMap;
use std::fmt::Write;
use std::time::Duration;

use super::{OpMemory, Peaks, Profile, Span};
use crate::runtime::Bytes;

/// What the launches of a profile are grouped by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// The kernel: the name of its WGSL file.
    Kernel,
    /// The variant of the kernel.
    Variant,
    /// The op.
    Op,
    /// The scope.
    Scope,
    /// The line of the program, if [`debug::set_lines`](crate::debug::set_lines) is on.
    Line,
}

/// A column of a table, by which it is sorted in descending order; names in ascending order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Column {
    /// What the launches are grouped by.
    Name,
    /// Number of launches.
    Calls,
    /// GPU time.
    Time,
    /// GPU time of a launch, on average.
    Mean,
    /// Bytes of the operands per second.
    Bandwidth,
    /// Operations per second.
    Rate,
}

/// The longest name that is not shortened.
const MAX_NAME: usize = 60;

/// A row of a table.
#[derive(Debug, Clone, Default)]
struct Row {
    name: String,
    calls: u64,
    time: Duration,
    bytes: u64,
    work: u64,
}

impl Row {
    fn add(&mut self, span: &Span) {
        self.calls += 1;
        self.time += span.time;
        self.bytes += span.bytes;
        self.work += span.work;
    }

    fn per_second(&self, count: u64) -> f64 {
        let seconds = self.time.as_secs_f64();
        if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
    }

    fn value(&self, column: Column) -> f64 {
        match column {
            Column::Name => 0.0,
            Column::Calls => self.calls as f64,
            Column::Time => self.time.as_secs_f64(),
            Column::Mean => self.time.as_secs_f64() / self.calls.max(1) as f64,
            Column::Bandwidth => self.per_second(self.bytes),
            Column::Rate => self.per_second(self.work),
        }
    }
}

impl Profile {
    /// Returns a table of the launches, grouped and sorted: for each group the number of launches,
    /// the GPU time, its share, the time of a launch, the bytes of the operands, and the bytes and
    /// operations per second, also as shares of the device's [peaks](super::Peaks) if they are known.
    pub fn table(&self, by: By, sorted_by: Column) -> String {
        let mut rows = self.rows(by);
        rows.sort_by(|a, b| {
            let (value, other) = (a.value(sorted_by), b.value(sorted_by));
            other.total_cmp(&value).then_with(|| a.name.cmp(&b.name))
        });
        let total = self.time().as_secs_f64();
        let width = rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0);
        let width = width.clamp(6, MAX_NAME);
        let heading = match by {
            By::Kernel | By::Variant if self.of_host => "op",
            By::Kernel => "kernel",
            By::Variant => "variant",
            By::Op => "op",
            By::Scope => "scope",
            By::Line => "line",
        };
        let time_heading = if self.of_host { "time" } else { "GPU time" };
        let of_peak = if self.peaks.is_some() { "  of peak" } else { "" };
        let mut out = format!(
            "{heading:<width$} {:>7} {:>10} {:>6} {:>10} {:>9} {:>8}{of_peak}",
            "calls", time_heading, "share", "per call", "bytes", "GB/s"
        );
        // The operations of ops on the CPU are not known.
        out += &if self.of_host { "\n".to_owned() } else { format!(" {:>9}{of_peak}\n", "Gop/s") };
        for row in &rows {
            let seconds = row.time.as_secs_f64();
            let share = if total > 0.0 { 100.0 * seconds / total } else { 0.0 };
            let (bandwidth, rate) = (row.per_second(row.bytes), row.per_second(row.work));
            let of = |rate: f64, peak: fn(&Peaks) -> f64| {
                let share = self.peaks.map(|peaks| 100.0 * rate / peak(&peaks));
                share.map_or_else(String::new, |share| format!(" {share:>7.1}%"))
            };
            let operations = match self.of_host {
                true => String::new(),
                false => format!(" {:>9.2}{}", rate / 1e9, of(rate, |peaks| peaks.operations)),
            };
            // Writing to a string cannot fail.
            let _ = writeln!(
                out,
                "{:<width$} {:>7} {:>10} {:>5.1}% {:>10} {:>9} {:>8.2}{}{operations}",
                shortened(&row.name),
                row.calls,
                time(seconds),
                share,
                time(row.value(Column::Mean)),
                Bytes(row.bytes),
                bandwidth / 1e9,
                of(bandwidth, |peaks| peaks.bytes),
            );
        }
        let _ = writeln!(
            out,
            "{:<width$} {:>7} {:>10} on {}, {} of wall time",
            "total",
            self.calls(),
            time(total),
            self.device,
            time(self.wall.as_secs_f64())
        );
        out
    }

    /// Returns a table of the memory that ops allocated, by descending size.
    pub fn memory_table(&self) -> String {
        let widths = self.memory.iter().map(|memory| memory.op.len());
        let width = widths.max().unwrap_or(0).clamp(6, MAX_NAME);
        let mut out =
            format!("{:<width$} {:>7} {:>10} {:>10}\n", "op", "tensors", "allocated", "kept");
        for OpMemory { op, allocations, bytes, kept } in &self.memory {
            let _ = writeln!(
                out,
                "{:<width$} {allocations:>7} {:>10} {:>10}",
                shortened(if op.is_empty() { "no op" } else { op }),
                Bytes(*bytes),
                Bytes(*kept),
            );
        }
        out
    }

    fn rows(&self, by: By) -> Vec<Row> {
        let mut rows: Vec<Row> = Vec::new();
        let mut indices = HashMap::new();
        for span in &self.spans {
            let name = match by {
                By::Kernel => span.kernel,
                By::Variant => &self.kernels[span.variant].variant,
                By::Op => span.op,
                By::Scope if span.scope.is_empty() => "no scope",
                By::Scope => &span.scope,
                By::Line if span.line.is_empty() => "no line",
                By::Line => span.line,
            };
            let index = *indices.entry(name).or_insert_with(|| {
                rows.push(Row { name: name.to_owned(), ..Row::default() });
                rows.len() - 1
            });
            rows[index].add(span);
        }
        rows
    }
}

fn shortened(name: &str) -> String {
    if name.chars().count() <= MAX_NAME {
        return name.to_owned();
    }
    name.chars().take(MAX_NAME - 3).chain("...".chars()).collect()
}

/// Returns a time with three digits and a unit.
fn time(seconds: f64) -> String {
    let (value, unit) = match seconds {
        s if s >= 1.0 => (s, "s"),
        s if s >= 1e-3 => (s * 1e3, "ms"),
        s => (s * 1e6, "us"),
    };
    let digits = if value >= 100.0 {
        0
    } else if value >= 10.0 {
        1
    } else {
        2
    };
    format!("{value:.digits$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profiler::KernelTime;

    #[test]
    fn rows_are_grouped_and_sorted() {
        let span = |kernel, op, scope: &str, micros: u64| Span {
            kernel,
            variant: 0,
            op,
            ops: Vec::new(),
            line: "",
            scope: scope.to_owned(),
            operands: String::new(),
            recorded: Duration::ZERO,
            start: Duration::ZERO,
            time: Duration::from_micros(micros),
            workgroups: 1,
            bytes: 2000,
            work: 8000,
        };
        let time = Duration::from_micros(40);
        let kernels =
            vec![KernelTime { name: "fused", variant: "fused x".to_owned(), calls: 3, time }];
        let profile = Profile {
            device: "a GPU".to_owned(),
            kernels,
            spans: vec![
                span("fused", "float_add", "b", 10),
                span("matmul", "linear", "a", 20),
                span("fused", "float_exp", "", 10),
            ],
            ..Profile::default()
        };
        let names = |by, column| -> Vec<String> {
            let table = profile.table(by, column);
            let lines = table.lines().skip(1).take_while(|line| !line.starts_with("total"));
            lines.map(|line| line.split("  ").next().unwrap_or_default().to_owned()).collect()
        };
        assert_eq!(names(By::Kernel, Column::Name), ["fused", "matmul"]);
        assert_eq!(names(By::Kernel, Column::Mean), ["matmul", "fused"]);
        assert_eq!(names(By::Op, Column::Time), ["linear", "float_add", "float_exp"]);
        assert_eq!(names(By::Scope, Column::Name), ["a", "b", "no scope"]);
        let table = profile.table(By::Kernel, Column::Calls);
        let fused = "fused        2    20.0 us  50.0%    10.0 us   3.9 KiB     0.20      0.80";
        assert!(table.contains(fused), "{table}");
        let profile = profile.with_peaks(Peaks { operations: 16e8, bytes: 8e8 });
        let table = profile.table(By::Kernel, Column::Calls);
        let fused = "3.9 KiB     0.20    25.0%      0.80    50.0%";
        assert!(table.contains(fused), "{table}");
    }
}
