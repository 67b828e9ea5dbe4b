//! `burn-wgsl top --csv`: a line for each GPU and process of each reading.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::{Monitor, Process, Reading, Snapshot};
use crate::CliError;
use crate::bench::now;
use crate::output::{check_writable, csv_field, is_stdout};

/// The columns. Fields that are not known, or are those of the other kind, are empty.
const COLUMNS: [&str; 17] = [
    "date",
    "seconds",
    "kind",
    "name",
    "pci_bus_id",
    "utilisation_percent",
    "memory_used_bytes",
    "memory_total_bytes",
    "temperature_celsius",
    "power_watts",
    "power_limit_watts",
    "process",
    "program",
    "in_use_bytes",
    "reserved_bytes",
    "peak_bytes",
    "operations_per_second",
];

/// Writes a reading after each interval, until the time is up or standard output is closed.
///
/// # Errors
///
/// Returns an error if the file cannot be written, as to a full disk. The readings before it are there.
pub fn record(
    monitor: &mut Monitor,
    path: &Path,
    interval: Duration,
    time: Option<Duration>,
) -> Result<(), CliError> {
    check_writable(path)?;
    let error = |error: io::Error| CliError::Write { to: path.display().to_string(), error };
    let mut out: Box<dyn Write> = match is_stdout(path) {
        true => Box::new(io::stdout()),
        false => Box::new(File::create(path).map_err(error)?),
    };
    match write_readings(monitor, &mut out, interval, time) {
        // As with `| head`.
        Err(reason) if is_stdout(path) && reason.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result.map_err(error),
    }
}

fn write_readings(
    monitor: &mut Monitor,
    out: &mut impl Write,
    interval: Duration,
    time: Option<Duration>,
) -> io::Result<()> {
    writeln!(out, "{}", COLUMNS.join(","))?;
    // Speeds and the power of some GPUs are differences.
    monitor.read();
    let start = Instant::now();
    let mut next = start;
    loop {
        next += interval;
        if time.is_some_and(|time| next > start + time) {
            return Ok(());
        }
        sleep(next.saturating_duration_since(Instant::now()));
        let elapsed = start.elapsed();
        // A reading is whole, or not there.
        out.write_all(lines(&monitor.read(), &now(), elapsed).as_bytes())?;
        out.flush()?;
    }
}

/// Returns the lines of a reading.
fn lines(snapshot: &Snapshot, date: &str, elapsed: Duration) -> String {
    let gpus = snapshot.gpus.iter().map(|gpu| ("gpu", gpu_fields(gpu)));
    let processes = snapshot.processes.iter().map(|process| ("process", process_fields(process)));
    let seconds = elapsed.as_secs_f64();
    let line = |(kind, fields)| format!("{date},{seconds:.3},{kind},{fields}\n");
    gpus.chain(processes).map(line).collect()
}

/// Returns fields, separated by commas.
fn joined<const N: usize>(fields: [String; N]) -> String {
    fields.map(|field| csv_field(&field)).join(",")
}

/// Returns a number, or nothing.
fn number(value: Option<impl ToString>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

/// Returns the fields of a GPU. Those of a process are empty.
fn gpu_fields(gpu: &Reading) -> String {
    let fields = [
        gpu.name.clone(),
        number(gpu.pci_bus_id.as_ref()),
        number(gpu.utilisation),
        number(gpu.memory_used),
        number(gpu.memory_total),
        number(gpu.temperature),
        number(gpu.power),
        number(gpu.power_limit),
    ];
    joined(fields) + &",".repeat(6)
}

/// Returns the fields of a process. Those of a GPU are empty.
fn process_fields(process: &Process) -> String {
    let device = [process.device.clone(), number(process.pci_bus_id.as_ref())];
    let fields = [
        process.process.to_string(),
        process.program.clone(),
        process.in_use.to_string(),
        process.reserved.to_string(),
        process.peak.to_string(),
        number(process.operations_per_second),
    ];
    joined(device) + &",".repeat(6) + "," + &joined(fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_has_all_columns() {
        let gpu = Reading {
            name: "GPU, 8 GB".to_owned(),
            utilisation: Some(87.5),
            memory_used: Some(1 << 30),
            ..Reading::default()
        };
        let process = Process {
            process: 4711,
            program: "digits".to_owned(),
            device: "GPU".to_owned(),
            pci_bus_id: Some("0000:03:00.0".to_owned()),
            in_use: 1,
            reserved: 2,
            peak: 3,
            operations_per_second: None,
        };
        let snapshot = Snapshot { gpus: vec![gpu], processes: vec![process] };
        let text = lines(&snapshot, "2026-01-01T00:00:00Z", Duration::from_millis(1500));
        assert_eq!(
            text,
            "2026-01-01T00:00:00Z,1.500,gpu,\"GPU, 8 GB\",,87.5,1073741824,,,,,,,,,,\n\
             2026-01-01T00:00:00Z,1.500,process,GPU,0000:03:00.0,,,,,,,4711,digits,1,2,3,\n"
        );
        let commas = |line: &str| line.replace("\"GPU, 8 GB\"", "").matches(',').count();
        assert!(text.lines().all(|line| commas(line) + 1 == COLUMNS.len()), "{text}");
    }

    #[test]
    fn readings_end_with_the_time() {
        let mut monitor = Monitor::new();
        let (mut out, interval) = (Vec::new(), Duration::from_millis(10));
        let time = Some(Duration::from_millis(35));
        write_readings(&mut monitor, &mut out, interval, time).expect("memory is there");
        let text = String::from_utf8(out).expect("it is text");
        assert_eq!(text.lines().next(), Some(&*COLUMNS.join(",")));
        // A full disk.
        struct Full;
        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(ErrorKind::StorageFull.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let error =
            write_readings(&mut monitor, &mut Full, interval, None).expect_err("it is full");
        assert_eq!(error.kind(), ErrorKind::StorageFull);
    }
}
