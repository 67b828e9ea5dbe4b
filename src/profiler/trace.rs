//! Profiles as traces in Chrome's format, which Perfetto (ui.perfetto.dev) and Chrome
//! (chrome://tracing) show.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use super::{Profile, ProfileError, Span};
use crate::runtime::write_file;

/// The lanes: processes, as the format calls them.
const HOST: u64 = 1;
const GPU: u64 = 2;
/// The threads of the host that record launches are numbered from here on, below those of scopes.
const RECORDING: u64 = 1000;

pub(super) fn micros(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e3
}

/// How long the recording of a launch is shown at most: its end is not known.
const RECORDING_TIME: Duration = Duration::from_nanos(500);

/// Returns the lane of each launch on the GPU, from 1 on: viewers drop what overlaps in a lane
/// without being within it. Launches that do not use each other's results can overlap.
fn lanes(spans: &[Span]) -> Vec<u64> {
    let mut order: Vec<usize> = (0..spans.len()).collect();
    order.sort_by_key(|&index| spans[index].start);
    let mut ends: Vec<Duration> = Vec::new();
    let mut lanes = vec![0; spans.len()];
    for index in order {
        let Span { start, time, .. } = spans[index];
        let free = ends.iter().position(|&end| end <= start).unwrap_or(ends.len());
        if free == ends.len() {
            ends.push(Duration::ZERO);
        }
        ends[free] = start + time;
        lanes[index] = free as u64 + 1;
    }
    lanes
}

impl Profile {
    /// Returns a trace in Chrome's format: the scopes and transfers of the host, the recording of
    /// each launch, and the launches on the GPU, on one clock. Each launch names its ops, scope,
    /// variant, workgroups, bytes and operations.
    pub fn to_trace(&self) -> String {
        let name = |pid: u64, tid: u64, what: &str, name: &str| {
            let args = json!({ "name": name });
            json!({ "ph": "M", "pid": pid, "tid": tid, "name": what, "args": args })
        };
        let mut events = vec![
            name(HOST, 0, "process_name", "host"),
            name(GPU, 0, "process_name", &self.device),
            name(GPU, 1, "thread_name", if self.of_host { "ops" } else { "kernels" }),
        ];
        if !self.of_host {
            events.push(name(HOST, RECORDING, "thread_name", "recording"));
        }
        for thread in 0..=self.host.iter().map(|span| span.thread).max().unwrap_or(0) {
            events.push(name(HOST, thread + 1, "thread_name", &format!("thread {thread}")));
        }
        for span in &self.host {
            let innermost = span.name.rsplit('/').next().unwrap_or_default();
            let mut event = json!({
                "pid": HOST, "tid": span.thread + 1, "cat": "host", "name": innermost,
                "ts": micros(span.start), "args": { "scope": span.name },
            });
            // A point in time is an instant of a thread.
            let shape = match span.time.is_zero() {
                true => [("ph", json!("i")), ("s", json!("t"))],
                false => [("ph", json!("X")), ("dur", json!(micros(span.time)))],
            };
            shape.into_iter().for_each(|(key, value)| event[key] = value);
            events.push(event);
        }
        let lanes = lanes(&self.spans);
        for lane in 1..lanes.iter().copied().max().unwrap_or(0) {
            events.push(name(GPU, lane + 1, "thread_name", "kernels at the same time"));
        }
        let mut recorded: Vec<Duration> = self.spans.iter().map(|span| span.recorded).collect();
        recorded.sort_unstable();
        for (index, (span, lane)) in self.spans.iter().zip(lanes).enumerate() {
            let seconds = span.time.as_secs_f64().max(1e-9);
            let variant = &self.kernels[span.variant].variant;
            let args: Value = json!({
                "op": span.op, "ops": span.ops.join(", "), "scope": span.scope,
                "line": span.line, "operands": span.operands, "variant": variant,
                "workgroups": span.workgroups, "bytes": span.bytes,
                "GB/s": span.bytes as f64 / seconds / 1e9, "operations": span.work,
                "Gop/s": span.work as f64 / seconds / 1e9,
            });
            events.push(json!({
                "ph": "X", "pid": GPU, "tid": lane, "cat": "kernel", "name": span.kernel,
                "ts": micros(span.start), "dur": micros(span.time), "args": args,
            }));
            if self.of_host {
                continue;
            }
            // An arrow leads from the recording to the kernel.
            let arrow = |phase: &str, pid: u64, tid: u64, time: Duration| {
                json!({
                    "ph": phase, "id": index, "cat": "launch", "name": "launch", "bp": "e",
                    "pid": pid, "tid": tid, "ts": micros(time),
                })
            };
            let next = recorded.partition_point(|&time| time <= span.recorded);
            let until_next = recorded.get(next).map(|&time| time - span.recorded);
            let shown = until_next.map_or(RECORDING_TIME, |time| time.min(RECORDING_TIME));
            events.push(json!({
                "ph": "X", "pid": HOST, "tid": RECORDING, "cat": "recording", "name": span.op,
                "ts": micros(span.recorded), "dur": micros(shown), "args": { "kernel": span.kernel },
            }));
            events.push(arrow("s", HOST, RECORDING, span.recorded));
            events.push(arrow("f", GPU, lane, span.start));
        }
        json!({ "displayTimeUnit": "ms", "traceEvents": events }).to_string()
    }

    /// Writes [`to_trace`](Self::to_trace) to a file.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be written. What was written in part is removed.
    pub fn write_trace(&self, path: impl AsRef<Path>) -> Result<(), ProfileError> {
        let path = path.as_ref();
        write_file(path, &self.to_trace())
            .map_err(|error| ProfileError::Write { path: path.to_owned(), error })
    }
}
