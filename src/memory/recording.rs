//! Recordings: the history of a device's memory.

use std::collections::VecDeque;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use serde::Serialize;
use web_time::Instant;

use super::MemoryError;
use crate::pages;
use crate::runtime::{
    Bytes, Event, Location, MemoryUsage, Observation, ObservedDevice, Observer, Origin,
    current_scope, write_file,
};

/// The page of a snapshot.
const PAGE: &str = include_str!("page.html");

/// The number of events that a recording keeps.
const MAX_EVENTS: usize = 1 << 20;
/// The number of marks that a recording keeps.
const MAX_MARKS: usize = 4096;
/// The number of holders that a message lists.
const LISTED_HOLDERS: usize = 3;

/// Memory of an op in a scope.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Holder {
    /// The op whose results are in the memory.
    pub op: &'static str,
    /// The scopes in which it was allocated, from the outermost on, separated by slashes. Empty
    /// outside of all.
    pub scope: String,
    /// The line of the program that called the op, if [`debug::set_lines`](crate::debug::set_lines) is on.
    pub line: &'static str,
    /// Number of allocations; 0 for those before the recording, which were not counted.
    pub allocations: u64,
    /// Their size in bytes, including padding.
    pub bytes: u64,
}

/// Memory that was allocated or released.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct MemoryEvent {
    /// Microseconds since the recording began.
    pub micros: u64,
    /// The index of the op and scope in [`Snapshot::holders`].
    pub holder: u32,
    /// The size in bytes, including padding; negative if it was released.
    pub bytes: i64,
}

/// A named point in time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Mark {
    /// The name.
    pub name: String,
    /// Microseconds since the recording began.
    pub micros: u64,
}

/// What an op in a scope held more of at one mark than at another. Differences are negative if it
/// held less.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Growth {
    /// The op.
    pub op: &'static str,
    /// The scopes, separated by slashes.
    pub scope: String,
    /// The line of the program, if lines were recorded.
    pub line: &'static str,
    /// The difference in the number of allocations.
    pub allocations: i64,
    /// The difference in bytes.
    pub bytes: i64,
}

impl fmt::Display for Growth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { op, scope, line, allocations, bytes } = self;
        let sign = if *bytes < 0 { "-" } else { "+" };
        write!(f, "{sign}{}, {allocations:+} tensors: {op}", Bytes(bytes.unsigned_abs()))?;
        write_place(f, scope, line)
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { op, scope, line, allocations, bytes } = self;
        write!(f, "{}", Bytes(*bytes))?;
        if *allocations > 0 {
            write!(f, ", {allocations} tensors")?;
        }
        write!(f, ": {op}")?;
        write_place(f, scope, line)
    }
}

/// Writes where an op was called: its scopes and its line, as far as they are known.
fn write_place(f: &mut fmt::Formatter<'_>, scope: &str, line: &str) -> fmt::Result {
    for (word, place) in [("in", scope), ("by", line)] {
        if !place.is_empty() {
            write!(f, " {word} {place}")?;
        }
    }
    Ok(())
}

/// The history of a device's memory up to a point in time.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Snapshot {
    /// The adapter's name.
    pub device: String,
    /// How much memory was in use in the end.
    #[serde(skip)]
    pub usage: MemoryUsage,
    /// Bytes that were allocated before the recording and are still in use.
    pub before: u64,
    /// The number of events before the first of `events`, which are forgotten.
    pub forgotten: u64,
    /// Bytes that each holder had before the first of `events`.
    pub at_start: Vec<u64>,
    /// The duration of the recording in microseconds.
    pub micros: u64,
    /// The ops and scopes that allocated memory, with what they held in the end. The first stands
    /// for everything that was allocated before the recording.
    pub holders: Vec<Holder>,
    /// The allocations and releases, in order: the last million.
    pub events: Vec<MemoryEvent>,
    /// The marks, in order.
    pub marks: Vec<Mark>,
}

impl Snapshot {
    /// Returns what was held when most memory was in use, the largest first. Of several such moments, it is the first
    /// one among `events`.
    ///
    /// ```
    /// use burn::tensor::Tensor;
    /// use burn_wgsl::{Wgsl, WgslDevice, memory};
    ///
    /// let device = WgslDevice::default();
    /// let recording = memory::record(&device)?;
    /// let x = Tensor::<Wgsl, 2>::ones([256, 256], &device);
    /// let _ = x.clone().matmul(x).into_data();
    /// for holder in recording.snapshot()?.at_peak() {
    ///     println!("{holder}"); // such as: 256 KiB, 1 tensors: float_matmul
    /// }
    /// # Ok::<(), memory::MemoryError>(())
    /// ```
    pub fn at_peak(&self) -> Vec<Holder> {
        // Back from the end, where all that is held is known.
        let mut in_use: i64 = self.holders.iter().map(|holder| holder.bytes.cast_signed()).sum();
        let (mut peak, mut since) = (in_use, self.events.len());
        for (index, event) in self.events.iter().enumerate().rev() {
            in_use -= event.bytes;
            if in_use >= peak {
                (peak, since) = (in_use, index);
            }
        }
        let mut held = self.holders.clone();
        for event in self.events[since..].iter().rev() {
            let holder = &mut held[event.holder as usize];
            holder.bytes = holder.bytes.saturating_add_signed(-event.bytes);
            holder.allocations = holder.allocations.saturating_add_signed(-event.bytes.signum());
        }
        // Those before the recording were not counted.
        held[0].allocations = 0;
        held.retain(|holder| holder.bytes > 0);
        held.sort_by_key(|holder| std::cmp::Reverse(holder.bytes));
        held
    }

    /// Returns the snapshot as JSON: the fields of this struct but `usage`.
    pub fn to_json(&self) -> String {
        // Strings and numbers can always be written.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Returns an HTML page with a chart of the memory over time, stacked by op or by scope, and a
    /// table of what is held at a point in time. It needs no other files.
    pub fn to_html(&self) -> String {
        pages::html(PAGE, &self.to_json())
    }

    /// Writes [`to_json`](Self::to_json) to a file.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be written. What was written in part is removed.
    pub fn write_json(&self, path: impl AsRef<Path>) -> Result<(), MemoryError> {
        write(path.as_ref(), &self.to_json())
    }

    /// Writes [`to_html`](Self::to_html) to a file.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be written. What was written in part is removed.
    pub fn write_html(&self, path: impl AsRef<Path>) -> Result<(), MemoryError> {
        write(path.as_ref(), &self.to_html())
    }
}

fn write(path: &Path, text: &str) -> Result<(), MemoryError> {
    write_file(path, text).map_err(|error| MemoryError::Write { path: path.to_owned(), error })
}

/// A recording of a device's memory: see [`record`](super::record). It ends when it is dropped.
pub struct Recording {
    device: ObservedDevice,
    tracker: Arc<Tracker>,
    /// Ends when it is dropped.
    _observation: Observation,
}

impl Recording {
    pub(super) fn begin(device: ObservedDevice) -> Self {
        let tracker = Arc::new(Tracker(Mutex::new(History::new())));
        let (_observation, in_use) = device.observe_memory(tracker.clone());
        tracker.0.lock().before += in_use.cast_signed();
        Self { device, tracker, _observation }
    }

    /// Names this point in time, for [`growth`](Self::growth) and the chart. A later mark replaces
    /// an earlier one of the same name, and the oldest of more than 4096 is forgotten. Computes pending
    /// results first.
    ///
    /// # Errors
    ///
    /// Returns an error if the computation of pending results fails.
    pub fn mark(&self, name: impl Into<String>) -> Result<(), MemoryError> {
        self.device.record_deferred()?;
        let mut history = self.tracker.0.lock();
        let mark = Mark { name: name.into(), micros: history.micros() };
        let held = history.held.iter().enumerate();
        let held = held.filter(|(_, held)| **held != Held::default());
        let held = held.map(|(index, held)| (index as u32, *held)).collect();
        history.marks.retain(|(other, _)| other.name != mark.name);
        if history.marks.len() >= MAX_MARKS {
            history.marks.remove(0);
        }
        history.marks.push((mark, held));
        Ok(())
    }

    /// Returns what grew or shrank between two marks, the largest growth first. What was allocated
    /// before the recording is not listed.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such mark.
    pub fn growth(&self, from: &str, to: &str) -> Result<Vec<Growth>, MemoryError> {
        let history = self.tracker.0.lock();
        let [from, to] = [history.held_at(from)?, history.held_at(to)?];
        let mut out = Vec::new();
        for (index, label) in history.labels.iter().enumerate().skip(1) {
            let at = |held: &[(u32, Held)]| {
                let found = held.binary_search_by_key(&index, |(label, _)| *label as usize);
                found.map_or_else(|_| Held::default(), |found| held[found].1)
            };
            let [from, to] = [at(from), at(to)];
            let growth = Growth {
                op: label.origin.op,
                scope: label.scope.clone(),
                line: label.origin.line,
                allocations: to.allocations.cast_signed() - from.allocations.cast_signed(),
                bytes: to.bytes.cast_signed() - from.bytes.cast_signed(),
            };
            if (growth.allocations, growth.bytes) != (0, 0) {
                out.push(growth);
            }
        }
        out.sort_by_key(|growth| std::cmp::Reverse(growth.bytes));
        Ok(out)
    }

    /// Returns the history so far. The recording goes on. Computes pending results first.
    ///
    /// # Errors
    ///
    /// Returns an error if the computation of pending results fails.
    pub fn snapshot(&self) -> Result<Snapshot, MemoryError> {
        self.device.record_deferred()?;
        let usage = self.device.memory();
        let mut history = self.tracker.0.lock();
        let before = history.before.max(0).cast_unsigned();
        let mut at_start = history.held_at_start.clone();
        at_start[0] = before + history.released_before;
        let micros = history.micros();
        let held = history.held.clone();
        let holders = history.labels.iter().zip(&held).enumerate();
        Ok(Snapshot {
            device: self.device.name(),
            usage: usage.unwrap_or_else(|| history.usage()),
            before,
            forgotten: history.forgotten,
            at_start,
            micros,
            holders: holders
                .map(|(index, (label, held))| Holder {
                    bytes: if index == 0 { before } else { held.bytes },
                    ..label.holder(*held)
                })
                .collect(),
            events: history.events.make_contiguous().to_vec(),
            marks: history.marks.iter().map(|(mark, _)| mark.clone()).collect(),
        })
    }
}

impl fmt::Debug for Recording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recording").field("device", &self.device.name()).finish_non_exhaustive()
    }
}

/// Receives the events of a device.
struct Tracker(Mutex<History>);

impl Observer for Tracker {
    fn event(&self, origin: Origin, event: Event<'_>) {
        match event {
            Event::Allocate { location, bytes, .. } => {
                self.0.lock().allocate(origin, location, bytes);
            }
            Event::Release { location, bytes } => self.0.lock().release(location, bytes),
            _ => {}
        }
    }

    fn holders(&self) -> Option<String> {
        let history = self.0.lock();
        let mut holders: Vec<Holder> = history
            .labels
            .iter()
            .zip(&history.held)
            .map(|(label, held)| label.holder(*held))
            .collect();
        holders.retain(|holder| holder.bytes > 0);
        holders.sort_by_key(|holder| std::cmp::Reverse(holder.bytes));
        let text = |holder: &Holder| {
            let place = match holder.scope.is_empty() {
                true => String::new(),
                false => format!(" in {}", holder.scope),
            };
            format!(
                "{}{place} ({} in {} tensors)",
                holder.op,
                Bytes(holder.bytes),
                holder.allocations
            )
        };
        let texts: Vec<String> = holders.iter().take(LISTED_HOLDERS).map(text).collect();
        (!texts.is_empty()).then(|| texts.join(", "))
    }
}

/// An op, its line and its scope.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Label {
    origin: Origin,
    scope: String,
}

impl Label {
    fn holder(&self, Held { allocations, bytes }: Held) -> Holder {
        let Origin { op, line } = self.origin;
        Holder { op, line, scope: self.scope.clone(), allocations, bytes }
    }
}

/// What an op in a scope holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Held {
    allocations: u64,
    bytes: u64,
}

struct History {
    start: Instant,
    labels: Vec<Label>,
    indices: FxHashMap<Label, u32>,
    /// What each label holds now.
    held: Vec<Held>,
    /// What they hold together, and the most of it so far.
    total: u64,
    peak: u64,
    /// What is left of the allocations before the recording, in bytes.
    before: i64,
    /// Bytes of such allocations that were released in `events`.
    released_before: u64,
    /// The number of events before the first of `events`.
    forgotten: u64,
    /// What each label held before the first of `events`.
    held_at_start: Vec<u64>,
    live: FxHashMap<(u64, u64), u32>,
    events: VecDeque<MemoryEvent>,
    /// The marks, with what the labels held that held anything.
    marks: Vec<(Mark, Vec<(u32, Held)>)>,
}

impl History {
    fn new() -> Self {
        let origin = Origin { op: "before the recording", line: "" };
        let before = Label { origin, scope: String::new() };
        Self {
            start: Instant::now(),
            labels: vec![before],
            indices: FxHashMap::default(),
            held: vec![Held::default()],
            total: 0,
            peak: 0,
            before: 0,
            released_before: 0,
            forgotten: 0,
            held_at_start: vec![0],
            live: FxHashMap::default(),
            events: VecDeque::new(),
            marks: Vec::new(),
        }
    }

    /// Returns what is in use of what was allocated since the recording began: what is known of the host.
    fn usage(&self) -> MemoryUsage {
        let (in_use, peak) = (self.total, self.peak);
        let allocations = self.live.values().filter(|&&label| label != 0).count() as u64;
        MemoryUsage { allocations, requested: in_use, in_use, reserved: in_use, peak }
    }

    fn micros(&self) -> u64 {
        self.start.elapsed().as_micros() as u64
    }

    fn allocate(&mut self, origin: Origin, location: Location, bytes: u64) {
        let label = Label { origin, scope: current_scope() };
        let index = match self.indices.get(&label) {
            Some(&index) => index,
            None => {
                let index = self.labels.len() as u32;
                self.labels.push(label.clone());
                self.indices.insert(label, index);
                self.held.push(Held::default());
                self.held_at_start.push(0);
                index
            }
        };
        let held = &mut self.held[index as usize];
        held.allocations += 1;
        held.bytes += bytes;
        self.total += bytes;
        self.peak = self.peak.max(self.total);
        self.live.insert((location.buffer, location.offset), index);
        self.push(index, bytes.cast_signed());
    }

    fn release(&mut self, location: Location, bytes: u64) {
        let index = self.live.remove(&(location.buffer, location.offset)).unwrap_or(0);
        if index == 0 {
            self.before -= bytes.cast_signed();
            self.released_before += bytes;
        } else {
            let held = &mut self.held[index as usize];
            held.allocations -= 1;
            held.bytes -= bytes;
            self.total -= bytes;
        }
        self.push(index, -bytes.cast_signed());
    }

    fn push(&mut self, holder: u32, bytes: i64) {
        if self.events.len() >= MAX_EVENTS
            && let Some(oldest) = self.events.pop_front()
        {
            self.forgotten += 1;
            let held = &mut self.held_at_start[oldest.holder as usize];
            *held = held.saturating_add_signed(oldest.bytes);
            if oldest.holder == 0 {
                self.released_before -= oldest.bytes.unsigned_abs();
            }
        }
        let micros = self.micros();
        self.events.push_back(MemoryEvent { micros, holder, bytes });
    }

    /// Returns what was held at a mark.
    fn held_at(&self, name: &str) -> Result<&[(u32, Held)], MemoryError> {
        let found = self.marks.iter().find(|(mark, _)| mark.name == name);
        found.map(|(_, held)| &held[..]).ok_or_else(|| {
            let names: Vec<String> =
                self.marks.iter().map(|(mark, _)| format!("{:?}", mark.name)).collect();
            let marks = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            MemoryError::UnknownMark { name: name.to_owned(), marks }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forgotten_events_are_part_of_the_start() {
        let mut history = History::new();
        history.before = 500;
        let at = |offset| Location { buffer: 1, offset };
        let of = |op| Origin { op, line: "" };
        history.allocate(of("kept"), at(0), 10);
        history.release(at(1), 200);
        for _ in 0..MAX_EVENTS / 2 {
            history.allocate(of("dropped"), at(2), 30);
            history.release(at(2), 30);
        }
        assert_eq!((history.forgotten, history.events.len()), (2, MAX_EVENTS));
        assert_eq!((history.before, history.released_before), (300, 0));
        assert_eq!(history.held_at_start[1..], [10, 0]);
        history.release(at(0), 10);
        assert_eq!(history.forgotten, 3);
        assert_eq!(history.held_at_start[1..], [10, 30]);
    }
}
