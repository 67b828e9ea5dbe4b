//! `burn-wgsl top`: the GPUs of this machine, and the processes of this crate that share their
//! status, as they change.

mod csv;
mod gpus;
mod view;

use std::collections::HashMap;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use burn_wgsl::device::adapters;
use burn_wgsl::runtime::shared_statuses;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::widgets::Paragraph;
use serde::Serialize;

use crate::CliError;
use crate::output::{WIDTH, print};
use gpus::{Gpus, Reading};

#[derive(clap::Args)]
pub struct Arguments {
    /// Print one reading and exit
    #[arg(long)]
    once: bool,
    /// Print the reading as JSON
    #[arg(long, requires = "once")]
    json: bool,
    /// Seconds between two readings
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = parse_interval)]
    interval: f64,
    /// Write each reading to a CSV file, with a line for each GPU and process, in place of showing it; `-` is standard
    /// output
    #[arg(long, value_name = "FILE", conflicts_with = "once")]
    csv: Option<PathBuf>,
    /// End after this many seconds [default: when it is interrupted]
    #[arg(long = "for", value_name = "SECONDS", conflicts_with = "once", value_parser = parse_time)]
    time: Option<f64>,
}

/// The most seconds of a recording: ten years.
const MAX_TIME: f64 = 3.2e8;

fn parse_time(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.1..=MAX_TIME).contains(&seconds) => Ok(seconds),
        _ => Err("expected a number of seconds from 0.1 to 320000000".to_owned()),
    }
}

fn parse_interval(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.1..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("expected a number of seconds from 0.1 to 3600".to_owned()),
    }
}

/// What a process does with a device. Sizes are in bytes.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Process {
    process: u32,
    program: String,
    device: String,
    pci_bus_id: Option<String>,
    in_use: u64,
    reserved: u64,
    peak: u64,
    /// Operations per second since the last reading; `None` in the first.
    operations_per_second: Option<f64>,
}

/// One reading of everything.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
struct Snapshot {
    gpus: Vec<Reading>,
    processes: Vec<Process>,
}

/// A process, the position of a device in its status, and the name of the device.
type DeviceKey = (u32, usize, String);

/// Takes readings, and remembers what the next one is compared with.
struct Monitor {
    gpus: Gpus,
    /// For each process and device: the time and the number of operations of the last status, and
    /// the speed then.
    operations: HashMap<DeviceKey, (u64, u64, Option<f64>)>,
}

impl Monitor {
    fn new() -> Self {
        let names: Vec<(String, String)> = adapters()
            .iter()
            .filter_map(|adapter| {
                Some((adapter.info.pci_bus_id.clone()?, adapter.info.name.clone()))
            })
            .collect();
        Self { gpus: Gpus::find(&names), operations: HashMap::new() }
    }

    fn read(&mut self) -> Snapshot {
        let mut processes = Vec::new();
        for status in shared_statuses() {
            for (index, device) in status.devices.into_iter().enumerate() {
                // The names of two GPUs may be equal.
                let key = (status.process, index, device.device.clone());
                let speed = self.speed(key, status.millis, device.operations);
                processes.push(Process {
                    process: status.process,
                    program: status.program.clone(),
                    device: device.device,
                    pci_bus_id: device.pci_bus_id,
                    in_use: device.in_use,
                    reserved: device.reserved,
                    peak: device.peak,
                    operations_per_second: speed,
                });
            }
        }
        Snapshot { gpus: self.gpus.read(), processes }
    }

    /// Returns the operations per second between the last two different statuses.
    fn speed(&mut self, key: DeviceKey, millis: u64, operations: u64) -> Option<f64> {
        let last = self.operations.entry(key).or_insert((millis, operations, None));
        let elapsed = millis.saturating_sub(last.0);
        if elapsed > 0 {
            // The count begins anew if the device was opened again.
            let done = operations.checked_sub(last.1).unwrap_or(operations);
            *last = (millis, operations, Some(done as f64 / elapsed as f64 * 1e3));
        }
        last.2
    }
}

/// Shows the readings until the user ends it, or prints one.
pub fn run(arguments: &Arguments) -> Result<(), CliError> {
    let interval = Duration::from_secs_f64(arguments.interval);
    let time = arguments.time.map(Duration::from_secs_f64);
    let mut monitor = Monitor::new();
    if let Some(path) = &arguments.csv {
        return csv::record(&mut monitor, path, interval, time);
    }
    if arguments.once {
        // Speeds and the power of some GPUs are differences.
        monitor.read();
        sleep(interval);
        let snapshot = monitor.read();
        return print(&match arguments.json {
            true => serde_json::to_string_pretty(&snapshot)? + "\n",
            false => view::lines(&snapshot, usize::from(WIDTH)).join("\n") + "\n",
        });
    }
    if !std::io::stdout().is_terminal() {
        let message = "standard output is not a terminal; `--once` prints one reading, `--csv FILE` writes them all";
        return Err(CliError::Usage(message.to_owned()));
    }
    let mut terminal = ratatui::try_init().map_err(terminal_error)?;
    let result = show(&mut terminal, &mut monitor, interval, time);
    ratatui::restore();
    result
}

fn terminal_error(error: std::io::Error) -> CliError {
    CliError::Write { to: "the terminal".to_owned(), error }
}

fn show(
    terminal: &mut ratatui::DefaultTerminal,
    monitor: &mut Monitor,
    interval: Duration,
    time: Option<Duration>,
) -> Result<(), CliError> {
    let (start, mut first) = (Instant::now(), 0);
    while time.is_none_or(|time| start.elapsed() < time) {
        let snapshot = monitor.read();
        let mut next = Instant::now() + interval;
        if let Some(time) = time {
            next = next.min(start + time);
        }
        loop {
            terminal.draw(|frame| draw(frame, &snapshot, &mut first)).map_err(terminal_error)?;
            if !event::poll(next.saturating_duration_since(Instant::now()))
                .map_err(terminal_error)?
            {
                break;
            }
            match event::read().map_err(terminal_error)? {
                Event::Key(key) if ends(&key) => return Ok(()),
                Event::Key(KeyEvent { code: KeyCode::Down, .. }) => first += 1,
                Event::Key(KeyEvent { code: KeyCode::Up, .. }) => first = first.saturating_sub(1),
                // Any other key reads at once; a new size only draws.
                Event::Key(key) if key.kind == KeyEventKind::Press => next = Instant::now(),
                _ => {}
            }
        }
    }
    Ok(())
}

/// Draws the lines from `first` on, as far down as there are any, and the keys below them.
fn draw(frame: &mut ratatui::Frame<'_>, snapshot: &Snapshot, first: &mut usize) {
    let area = frame.area();
    let lines = view::lines(snapshot, usize::from(area.width));
    let height = usize::from(area.height.saturating_sub(2));
    *first = (*first).min(lines.len().saturating_sub(height));
    let end = lines.len().min(*first + height);
    let keys = if lines.len() > height { "up and down scroll, q quits" } else { "q quits" };
    let shown = lines[*first..end].join("\n");
    frame.render_widget(Paragraph::new(format!("{shown}\n\n{keys}")), area);
}

fn ends(key: &KeyEvent) -> bool {
    let interrupts =
        key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    interrupts || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::backend::TestBackend;

    #[test]
    fn speeds_are_those_between_two_statuses() {
        let mut monitor = Monitor { gpus: Gpus::find(&[]), operations: HashMap::new() };
        let mut speed =
            |millis, operations| monitor.speed((1, 0, "GPU".to_owned()), millis, operations);
        assert_eq!(speed(1000, 500), None);
        assert_eq!(speed(3000, 2500), Some(1000.0));
        // The same status again.
        assert_eq!(speed(3000, 2500), Some(1000.0));
        assert_eq!(speed(4000, 200), Some(200.0));
    }

    #[test]
    fn a_small_terminal_shows_gpus_and_processes() {
        let gpu = Reading {
            name: "Radeon RX 7900 XTX".to_owned(),
            utilisation: Some(87.0),
            memory_used: Some(12 << 30),
            memory_total: Some(24 << 30),
            temperature: Some(61.0),
            power: Some(215.4),
            power_limit: Some(303.0),
            ..Reading::default()
        };
        let unknown = Reading {
            name: "Intel Arc".to_owned(),
            note: Some("Intel's driver tells neither utilisation nor memory".to_owned()),
            ..Reading::default()
        };
        let process = Process {
            process: 4711,
            program: "digits".to_owned(),
            device: gpu.name.clone(),
            pci_bus_id: None,
            in_use: 3 << 20,
            reserved: 8 << 20,
            peak: 5 << 20,
            operations_per_second: Some(2.5e12),
        };
        let many = vec![unknown.clone(); 40];
        let mut snapshot = Snapshot { gpus: vec![gpu, unknown], processes: vec![process] };
        let mut terminal =
            ratatui::Terminal::new(TestBackend::new(80, 24)).expect("the terminal is in memory");
        let mut draw_from = |snapshot: &Snapshot, mut first: usize| {
            terminal
                .draw(|frame| draw(frame, snapshot, &mut first))
                .expect("the terminal is in memory");
            terminal.backend().to_string()
        };
        let shown = draw_from(&snapshot, 0);
        for part in [
            "Radeon RX 7900 XTX",
            "87 %",
            "12 GiB of 24 GiB",
            "61 C",
            "215 of 303 W",
            "neither utilisation nor memory",
            "4711",
            "digits",
            "2500 Gop/s",
            "q quits",
        ] {
            assert!(shown.contains(part), "no {part:?} in:\n{shown}");
        }
        // More GPUs than lines.
        snapshot.gpus.extend(many);
        let shown = draw_from(&snapshot, 0);
        assert!(shown.contains("up and down scroll") && !shown.contains("4711"), "{shown}");
        let shown = draw_from(&snapshot, 1000);
        assert!(shown.contains("up and down scroll") && shown.contains("4711"), "{shown}");
    }
}
