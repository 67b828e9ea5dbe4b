//! The header of a results file: machine, commit, command and peers.

use std::path::Path;
use std::process::Command;
use std::time::SystemTime;

use crate::Device;
use crate::process::Launcher;

/// Returns the title and the list of run parameters as Markdown.
pub fn header<'a>(device: Device, launchers: impl Iterator<Item = &'a Launcher>) -> String {
    let arguments = std::env::args().skip(1).collect::<Vec<_>>().join(" ");
    let mut text = format!("# burn-wgsl and its peers, {} adapter\n\n", device.name());
    text += &format!("- Date: {}\n", humantime::format_rfc3339_seconds(SystemTime::now()));
    text += &format!("- Commit: {}\n", commit().unwrap_or_else(|| "unknown".into()));
    text += &format!("- CPU: {}\n", cpu());
    text += &format!("- Command, in `benches/peers`: `cargo run --release -- {arguments}`\n");
    for Launcher { peer, about, .. } in launchers {
        let version = peer.version().map(|version| format!(" {version};")).unwrap_or_default();
        text += &format!("- {}:{version} {}; on {about}\n", peer.title, peer.features);
    }
    text
}

/// Runs git in this package's folder. Returns its trimmed output, or `None` if it fails.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git")
        .args(["-C", env!("CARGO_MANIFEST_DIR")])
        .args(arguments)
        .output()
        .ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Returns the short hash of the commit, marked if the working tree has changes. Copied to a machine
/// without the repository, the runner is in a folder of a kit, whose `about.txt` has it.
fn commit() -> Option<String> {
    let runner = std::env::current_exe().ok()?;
    if let Some(kit) = runner.parent().and_then(Path::parent)
        && let Ok(about) = std::fs::read_to_string(kit.join("about.txt"))
    {
        return Some(about.trim().to_owned());
    }
    let commit = git(&["rev-parse", "--short", "HEAD"])?;
    let clean = git(&["status", "--porcelain", "--untracked-files=no"])?.is_empty();
    Some(if clean { commit } else { format!("{commit}, with changes") })
}

/// Returns the CPU model and its number of threads.
fn cpu() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{}, {threads} threads", model.map_or(std::env::consts::ARCH, |(_, name)| name))
}
