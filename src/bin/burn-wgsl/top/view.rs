//! A reading as lines of text.

use burn_wgsl::runtime::Bytes;

use super::gpus::Reading;
use super::{Process, Snapshot};

/// The longest bar, in characters.
const MAX_BAR: usize = 30;

/// Returns the lines of a reading, of at most `width` characters.
pub fn lines(snapshot: &Snapshot, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    if snapshot.gpus.is_empty() {
        lines.push("No sensors of a GPU were found: there is no GPU, or no driver.".to_owned());
        if cfg!(not(target_os = "linux")) {
            lines.push("On this system only those of NVIDIA's GPUs can be read.".to_owned());
        }
    }
    for gpu in &snapshot.gpus {
        lines.extend(gpu_lines(gpu, width));
    }
    lines.push(String::new());
    if snapshot.processes.is_empty() {
        lines.push("No process shares its status. To share it, set BURN_WGSL_STATUS=1".to_owned());
        lines.push("or call burn_wgsl::share_status.".to_owned());
    } else {
        lines.push(format!(
            "{:>8} {:<16} {:>10} {:>10} {:>10} {:>12}  device",
            "process", "program", "in use", "reserved", "peak", "speed"
        ));
        lines.extend(snapshot.processes.iter().map(process_line));
    }
    lines.into_iter().map(|line| line.chars().take(width).collect()).collect()
}

fn gpu_lines(gpu: &Reading, width: usize) -> Vec<String> {
    let Reading { name, utilisation, memory_used, memory_total, .. } = gpu;
    let length = (width / 3).clamp(8, MAX_BAR);
    let mut lines = vec![name.clone()];
    if let Some(percent) = utilisation {
        lines.push(format!("  busy    {} {percent:.0} %", bar(percent / 100.0, length)));
    }
    if let (Some(used), Some(total)) = (memory_used, memory_total) {
        let share = *used as f64 / (*total).max(1) as f64;
        lines.push(format!(
            "  memory  {} {} of {}",
            bar(share, length),
            Bytes(*used),
            Bytes(*total)
        ));
    }
    let power = match (gpu.power, gpu.power_limit) {
        (Some(power), Some(limit)) => Some(format!("{power:.0} of {limit:.0} W")),
        (Some(power), None) => Some(format!("{power:.0} W")),
        _ => None,
    };
    let temperature = gpu.temperature.map(|celsius| format!("{celsius:.0} C"));
    let sensors: Vec<String> = temperature.into_iter().chain(power).collect();
    if !sensors.is_empty() {
        lines.push(format!("  {}", sensors.join(", ")));
    }
    lines.extend(gpu.note.iter().map(|note| format!("  {note}")));
    lines
}

fn process_line(process: &Process) -> String {
    let speed = process.operations_per_second;
    let speed = speed.map_or_else(|| "-".to_owned(), |speed| format!("{:.0} Gop/s", speed / 1e9));
    let program: String = process.program.chars().take(16).collect();
    format!(
        "{:>8} {program:<16} {:>10} {:>10} {:>10} {speed:>12}  {}",
        process.process,
        Bytes(process.in_use),
        Bytes(process.reserved),
        Bytes(process.peak),
        process.device,
    )
}

/// Returns a bar of which a share is filled.
fn bar(share: f64, length: usize) -> String {
    let filled = ((share.clamp(0.0, 1.0) * length as f64).round() as usize).min(length);
    format!("[{}{}]", "#".repeat(filled), ".".repeat(length - filled))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_filled_by_their_share() {
        assert_eq!(bar(0.5, 4), "[##..]");
        assert_eq!((bar(-1.0, 2), bar(7.0, 2)), ("[..]".to_owned(), "[##]".to_owned()));
        assert_eq!(bar(f64::NAN, 2), "[..]");
    }

    #[test]
    fn without_a_gpu_the_lines_say_so() {
        let lines = lines(&Snapshot::default(), 40);
        assert!(lines[0].starts_with("No sensors of a GPU"));
        assert!(lines.iter().all(|line| line.chars().count() <= 40));
    }
}
