//! The host machine, its available memory, and the date of a run.

use std::thread::available_parallelism;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

/// The host machine. Its fields are JSON keys.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    pub cpu: String,
    pub threads: usize,
    pub os: &'static str,
    pub architecture: &'static str,
}

impl Machine {
    /// Returns a description of the machine that runs this process.
    pub fn current() -> Self {
        Self {
            cpu: cpu_name().unwrap_or_else(|| format!("unknown CPU ({})", std::env::consts::ARCH)),
            threads: available_parallelism().map_or(1, usize::from),
            os: std::env::consts::OS,
            architecture: std::env::consts::ARCH,
        }
    }
}

/// Returns the name of the CPU, or `None` if the operating system does not report it.
fn cpu_name() -> Option<String> {
    let name = if cfg!(target_os = "linux") {
        let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
        field(&text, "model name").or_else(|| field(&text, "Model")).map(str::to_owned)?
    } else if cfg!(target_os = "macos") {
        let output = std::process::Command::new("sysctl")
            .args(["-n", "machdep.cpu.brand_string"])
            .output()
            .ok()?;
        String::from_utf8(output.stdout).ok()?
    } else {
        std::env::var("PROCESSOR_IDENTIFIER").ok()?
    };
    let name = name.split_whitespace().collect::<Vec<_>>().join(" ");
    (!name.is_empty()).then_some(name)
}

/// Returns the bytes of available memory, or `None` on systems without `/proc/meminfo`.
pub fn available_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let kib: u64 = field(&text, "MemAvailable")?.trim_end_matches("kB").trim().parse().ok()?;
    Some(kib << 10)
}

/// Returns the value of the first line `name : value`.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let pairs = text.lines().filter_map(|line| line.split_once(':'));
    pairs
        .map(|(key, value)| (key.trim(), value.trim()))
        .find(|(key, _)| *key == name)
        .map(|(_, value)| value)
}

/// Returns the current UTC time, formatted as `2026-11-21T06:04:05Z`.
pub fn now() -> String {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH);
    format_utc(elapsed.map_or(0, |elapsed| elapsed.as_secs()))
}

/// Formats a Unix time in seconds as `2026-11-21T06:04:05Z`.
fn format_utc(seconds: u64) -> String {
    let (mut days, second) = (seconds / 86_400, seconds % 86_400);
    let is_leap =
        |year: u64| year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400);
    let mut year = 1970;
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let month_lengths = [31, 28 + u64::from(is_leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 1;
    for length in month_lengths {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year}-{month:02}-{:02}T{hour:02}:{minute:02}:{second:02}Z", days + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn format_utc_handles_leap_years_and_year_ends() {
        let cases = [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
            (1_798_761_599, "2026-12-31T23:59:59Z"),
        ];
        for (seconds, text) in cases {
            assert_eq!(format_utc(seconds), text);
        }
    }

    #[test]
    fn field_matches_the_whole_name() {
        let text = "model\t\t: 85\nmodel name\t: A CPU @ 2: fast\nMemAvailable:  1024 kB\n";
        assert_eq!(field(text, "model name"), Some("A CPU @ 2: fast"));
        assert_eq!(field(text, "MemAvailable"), Some("1024 kB"));
        assert_eq!(field(text, "name"), None);
    }
}
