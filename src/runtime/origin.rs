//! What runs on this thread: the op, and on request the line of the program that called it.

use std::cell::Cell;
use std::collections::HashSet;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::callers::program_lines;
use crate::device::CAN_BLOCK;
use crate::variables;

/// An op, and the line of the program that called it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Origin {
    /// The op; empty before the first.
    pub op: &'static str,
    /// The function and the line; empty unless lines are recorded ([`record_lines`]).
    pub line: &'static str,
}

thread_local! {
    static CURRENT: Cell<Origin> = const { Cell::new(Origin { op: "", line: "" }) };
}

/// Whether the line of each op is found.
static LINES_ARE_RECORDED: LazyLock<AtomicBool> =
    LazyLock::new(|| AtomicBool::new(variables::DEBUG.has_word("lines")));

/// The lines so far, which are never freed: a program has few of them.
static LINES: LazyLock<Mutex<HashSet<&'static str>>> = LazyLock::new(Mutex::default);

/// Finds the line of each op from now on, or no longer.
pub fn record_lines(recorded: bool) {
    LINES_ARE_RECORDED.store(recorded, Ordering::Relaxed);
}

/// Returns the innermost line of the program that is being run.
fn current_line() -> &'static str {
    // A browser has neither names nor lines: the code is left out of its pages.
    if !CAN_BLOCK {
        return "";
    }
    let Some(line) = program_lines(1).pop() else { return "" };
    let mut lines = LINES.lock();
    if let Some(known) = lines.get(&*line) {
        return known;
    }
    let line: &'static str = line.leak();
    lines.insert(line);
    line
}

/// Names the op that the program calls on this thread now.
pub fn begin_op(op: &'static str) {
    let line = if LINES_ARE_RECORDED.load(Ordering::Relaxed) { current_line() } else { "" };
    CURRENT.set(Origin { op, line });
}

/// Names the op that runs on this thread from now on, at the line of the last one.
pub fn set_current_op(op: &'static str) {
    CURRENT.set(Origin { op, ..CURRENT.get() });
}

/// Goes on with work of an earlier op.
pub fn set_origin(origin: Origin) {
    CURRENT.set(origin);
}

/// Returns the op that runs on this thread, or ran last, with its line.
pub fn current_origin() -> Origin {
    CURRENT.get()
}

/// Returns the op that runs on this thread, or ran last. Empty before the first.
pub fn current_op() -> &'static str {
    CURRENT.get().op
}
