//! The measurements of a run as they come: a CSV file, and one for TensorBoard.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use prost::Message;

use crate::output::OutputFile;

/// The scalars that are logged.
#[derive(Debug, Clone, Copy)]
pub enum Scalar {
    /// Mean training loss.
    Loss,
    /// Test accuracy, from 0 to 1.
    Accuracy,
    /// Share of an epoch's time that steps waited for data.
    Waited,
    /// Seconds of an epoch.
    Seconds,
}

impl Scalar {
    fn name(self) -> &'static str {
        match self {
            Self::Loss => "train/loss",
            Self::Accuracy => "test/accuracy",
            Self::Waited => "time/waited_for_data",
            Self::Seconds => "time/epoch_seconds",
        }
    }
}

/// The files of a run in a folder: `scalars.csv`, and `events.out.tfevents.*`, which `tensorboard --logdir FOLDER`
/// shows.
pub struct Log {
    csv: csv::Writer<File>,
    events: File,
    folder: PathBuf,
}

impl Log {
    /// Creates the files, or goes on with those of a run that is resumed after `step` steps: what was logged of later
    /// steps is dropped.
    ///
    /// # Errors
    ///
    /// Returns an error if the files cannot be read or written.
    pub fn open(folder: &Path, step: u64) -> Result<Self> {
        let place = || format!("--log {}", folder.display());
        fs::create_dir_all(folder).with_context(place)?;
        let path = folder.join("scalars.csv");
        ensure!(
            step > 0 || !path.exists(),
            "{} has the log of a run; choose another folder, or --resume",
            folder.display()
        );
        let kept = if step > 0 && path.exists() {
            rows(&path, step).with_context(place)?
        } else {
            Vec::new()
        };
        let mut text = csv::Writer::from_writer(Vec::new());
        text.write_record(["step", "name", "value"])?;
        kept.iter().try_for_each(|row| text.write_record(row))?;
        // Replaces the file at once: a process that is killed loses no rows.
        OutputFile::new("--log", &path)?.write(&text.into_inner()?)?;
        let file = File::options().append(true).open(&path).with_context(place)?;
        let csv = csv::Writer::from_writer(file);
        let now = now();
        // The name of a file begins with a time in seconds, and no file is there twice.
        let names = (0..).map(|n| format!("events.out.tfevents.{:010}.{n}", now as u64));
        let free = names.map(|name| folder.join(name)).find(|path| !path.exists());
        let events = File::create_new(free.with_context(place)?).with_context(place)?;
        let mut log = Self { csv, events, folder: folder.to_owned() };
        log.event(&Event { file_version: Some("brain.Event:2".into()), ..Event::at(0) })?;
        if step > 0 {
            // TensorBoard drops what earlier files have from this step on.
            let session_log = Some(SessionLog { status: SESSION_START });
            log.event(&Event { session_log, ..Event::at(step + 1) })?;
        }
        Ok(log)
    }

    /// Adds a value after a step.
    ///
    /// # Errors
    ///
    /// Returns an error if it cannot be written.
    pub fn add(&mut self, step: u64, scalar: Scalar, value: f64) -> Result<()> {
        let written = self
            .csv
            .write_record([&step.to_string(), scalar.name(), &value.to_string()])
            .map_err(anyhow::Error::from)
            .and_then(|()| Ok(self.csv.flush()?));
        written.with_context(|| format!("--log {}", self.folder.display()))?;
        let value = Value { tag: scalar.name().into(), simple_value: Some(value as f32) };
        let summary = Some(Summary { values: vec![value] });
        self.event(&Event { summary, ..Event::at(step) })
    }

    /// Writes a record of TensorFlow's format: the length, its checksum, the bytes, and their checksum.
    fn event(&mut self, event: &Event) -> Result<()> {
        let bytes = event.encode_to_vec();
        let length = (bytes.len() as u64).to_le_bytes();
        let [of_length, of_bytes] = [&length[..], &bytes].map(|part| masked(part).to_le_bytes());
        let record = [&length[..], &of_length, &bytes, &of_bytes].concat();
        self.events.write_all(&record).with_context(|| format!("--log {}", self.folder.display()))
    }
}

/// Returns the rows of a file up to a step.
fn rows(path: &Path, step: u64) -> Result<Vec<csv::StringRecord>> {
    let mut rows = csv::Reader::from_path(path)?.into_records().collect::<Result<Vec<_>, _>>()?;
    rows.retain(|row| {
        row.get(0).and_then(|text| text.parse().ok()).is_some_and(|of: u64| of <= step)
    });
    Ok(rows)
}

/// The checksum of the format: a CRC-32C, rotated, so that checksums of data with checksums differ from it.
fn masked(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// Returns the seconds since 1970.
fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64())
}

/// What TensorBoard reads: fields of `event.proto` and `summary.proto`.
#[derive(Clone, PartialEq, Message)]
struct Event {
    #[prost(double, tag = "1")]
    wall_time: f64,
    #[prost(int64, tag = "2")]
    step: i64,
    #[prost(string, optional, tag = "3")]
    file_version: Option<String>,
    #[prost(message, optional, tag = "5")]
    summary: Option<Summary>,
    #[prost(message, optional, tag = "7")]
    session_log: Option<SessionLog>,
}

impl Event {
    fn at(step: u64) -> Self {
        Self { wall_time: now(), step: step.cast_signed(), ..Self::default() }
    }
}

#[derive(Clone, PartialEq, Message)]
struct Summary {
    #[prost(message, repeated, tag = "1")]
    values: Vec<Value>,
}

#[derive(Clone, PartialEq, Message)]
struct Value {
    #[prost(string, tag = "1")]
    tag: String,
    #[prost(float, optional, tag = "2")]
    simple_value: Option<f32>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct SessionLog {
    #[prost(int32, tag = "1")]
    status: i32,
}

const SESSION_START: i32 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    /// The events of a file. Checks the checksums.
    fn events(path: &Path) -> Vec<Event> {
        let bytes = fs::read(path).expect("it is written");
        let (mut rest, mut events) = (&bytes[..], Vec::new());
        while !rest.is_empty() {
            let length = u64::from_le_bytes(rest[..8].try_into().expect("8 bytes")) as usize;
            let sum = |at: usize| u32::from_le_bytes(rest[at..at + 4].try_into().expect("4 bytes"));
            let data = &rest[12..12 + length];
            assert_eq!([sum(8), sum(12 + length)], [masked(&rest[..8]), masked(data)]);
            events.push(Event::decode(data).expect("it is an event"));
            rest = &rest[16 + length..];
        }
        events
    }

    #[test]
    fn a_resumed_log_goes_on_after_its_step() {
        let folder = std::env::temp_dir().join(format!("images-{}-log", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        let mut log = Log::open(&folder, 0).expect("the folder is writable");
        for step in [10, 20, 30] {
            log.add(step, Scalar::Loss, 1.0 / step as f64).expect("it is written");
        }
        drop(log);
        let mut log = Log::open(&folder, 20).expect("the folder is writable");
        log.add(30, Scalar::Accuracy, 0.5).expect("it is written");
        drop(log);
        let text = fs::read_to_string(folder.join("scalars.csv")).expect("it is written");
        let expected =
            "step,name,value\n10,train/loss,0.1\n20,train/loss,0.05\n30,test/accuracy,0.5\n";
        assert_eq!(text, expected);
        let mut files: Vec<PathBuf> = fs::read_dir(&folder)
            .expect("it is there")
            .map(|entry| entry.expect("it can be read").path())
            .filter(|path| path.extension().is_none_or(|extension| extension != "csv"))
            .collect();
        files.sort();
        let [first, second] = &files[..] else { panic!("{files:?}") };
        let first = events(first);
        assert_eq!(first[0].file_version.as_deref(), Some("brain.Event:2"));
        assert_eq!(first.iter().map(|event| event.step).collect::<Vec<_>>(), [0, 10, 20, 30]);
        let second = events(second);
        assert_eq!((second[1].step, second[1].session_log.is_some()), (21, true));
        let value = &second[2].summary.as_ref().expect("it has a value").values[0];
        assert_eq!((&*value.tag, value.simple_value), ("test/accuracy", Some(0.5)));
        let other = Log::open(&folder, 0).err().map(|error| error.to_string());
        assert!(other.is_some_and(|error| error.contains("choose another folder")));
        // The check value of CRC-32C, masked.
        assert_eq!(masked(b"123456789"), 0xe306_9283u32.rotate_right(15).wrapping_add(0xa282_ead8));
        fs::remove_dir_all(&folder).expect("it is there");
    }
}
