//! Profiles as HTML pages.

use std::path::Path;

use serde_json::json;

use super::trace::micros;
use super::{OpMemory, Profile, ProfileError};
use crate::pages;
use crate::runtime::write_file;

const PAGE: &str = include_str!("page.html");

impl Profile {
    /// Returns the data of the page of [`to_html`](Self::to_html) as JSON. Times are in microseconds.
    pub fn to_json(&self) -> String {
        let launches: Vec<_> = self
            .spans
            .iter()
            .map(|span| {
                json!({
                    "kernel": span.kernel, "op": span.op, "ops": span.ops, "scope": span.scope,
                    "line": span.line,
                    "operands": span.operands,
                    "recorded": micros(span.recorded), "start": micros(span.start),
                    "time": micros(span.time), "bytes": span.bytes, "work": span.work,
                })
            })
            .collect();
        let host: Vec<_> = self
            .host
            .iter()
            .map(|span| {
                json!({
                    "name": span.name, "thread": span.thread, "start": micros(span.start),
                    "time": micros(span.time),
                })
            })
            .collect();
        let memory: Vec<_> = self
            .memory
            .iter()
            .map(|OpMemory { op, allocations, bytes, kept }| {
                json!({ "op": op, "tensors": allocations, "bytes": bytes, "kept": kept })
            })
            .collect();
        let peaks =
            self.peaks.map(|peaks| json!({ "operations": peaks.operations, "bytes": peaks.bytes }));
        json!({
            "device": self.device, "of_host": self.of_host, "wall": micros(self.wall),
            "launches": launches, "host": host,
            "memory": memory, "peaks": peaks,
        })
        .to_string()
    }

    /// Returns the profile as one HTML page: the host and the GPU along time, tables of the
    /// launches by kernel, op and scope, and the memory that ops allocated. It needs no network.
    pub fn to_html(&self) -> String {
        pages::html(PAGE, &self.to_json())
    }

    /// Writes [`to_html`](Self::to_html) to a file.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be written. What was written in part is removed.
    pub fn write_html(&self, path: impl AsRef<Path>) -> Result<(), ProfileError> {
        let path = path.as_ref();
        write_file(path, &self.to_html())
            .map_err(|error| ProfileError::Write { path: path.to_owned(), error })
    }
}
