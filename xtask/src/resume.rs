//! Kills example programs at many points, resumes them, and compares the trained weights with those of a run that was
//! not interrupted.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use xtask::process::{cargo, run_command, target_dir};

use crate::adapter;
use crate::options::Options;
use crate::step::Outcome;

/// How long a program may take to save a checkpoint.
const LIMIT: Duration = Duration::from_secs(120);

/// The programs, with arguments for a short run in f16, and where the report has the checksum of the weights.
const PROGRAMS: [(&str, &str, &str); 2] = [
    ("digits", "--precision f16 --epochs 5 --batch 128", "/fingerprint"),
    (
        "gpt",
        "--precision f16 --steps 60 --batch 8 --context 16 --width 16 --heads 2 --layers 1 --sample 0",
        "/runs/0/fingerprint",
    ),
];

/// Kills each program at `points` points, a quarter of them while it saves.
pub fn step(options: &Options, device: Option<&str>, points: u32) -> Result<Outcome, String> {
    let build = "build --workspace --locked --all-features --example digits --example gpt";
    run_command(&mut cargo(&build.split(' ').collect::<Vec<_>>()))?;
    for (name, arguments, fingerprint) in PROGRAMS {
        let program = Program {
            name,
            arguments,
            fingerprint,
            device: device.unwrap_or("cpu"),
            folder: target_dir().join(format!("resume-{name}")),
            options,
        };
        let expected = program.finish(false)?;
        let start = Instant::now();
        for point in 0..points {
            program.kill(point, point % 4 == 3)?;
        }
        let found = program.finish(true)?;
        if found != expected {
            return Err(format!(
                "{name} has the weights {found} after {points} kills, not {expected}"
            ));
        }
        let seconds = start.elapsed().as_secs();
        println!("    {name}: killed {points} times in {seconds} s, then the same bits ({found})");
    }
    Ok(Outcome::Passed)
}

struct Program<'a> {
    name: &'a str,
    arguments: &'a str,
    fingerprint: &'a str,
    device: &'a str,
    /// The folder of its checkpoints and of its report.
    folder: PathBuf,
    options: &'a Options,
}

impl Program<'_> {
    fn command(&self) -> Command {
        let mut command = Command::new(target_dir().join("debug/examples").join(self.name));
        command.args(["--device", self.device]).args(self.arguments.split(' '));
        command.arg("--json").arg(self.folder.join("report.json"));
        command.envs(adapter::environment(self.options));
        // The first second on a software adapter has other kernels, which round in another way.
        command.env("BURN_WGSL_WARM", "1");
        command
    }

    fn checkpoints(&self) -> PathBuf {
        self.folder.join("checkpoints")
    }

    /// Runs the program to its end, after what was killed or from the beginning. Returns the checksum of its weights.
    fn finish(&self, resumes: bool) -> Result<Value, String> {
        let mut command = self.command();
        if resumes {
            command.arg("--checkpoints").arg(self.checkpoints()).arg("--resume");
        } else {
            let _ = std::fs::remove_dir_all(&self.folder);
            std::fs::create_dir_all(&self.folder)
                .map_err(|error| format!("cannot create {}: {error}", self.folder.display()))?;
        }
        run_command(command.stdout(Stdio::null()))?;
        let report = std::fs::read_to_string(self.folder.join("report.json"))
            .map_err(|error| format!("{} wrote no report: {error}", self.name))?;
        let report: Value = serde_json::from_str(&report)
            .map_err(|error| format!("the report of {} is invalid: {error}", self.name))?;
        let fingerprint = report.pointer(self.fingerprint).filter(|value| value.is_u64());
        fingerprint.cloned().ok_or_else(|| format!("the report of {} has no checksum", self.name))
    }

    /// Runs the program until it has saved a checkpoint, and kills it a moment later; with `saving`, while it saves the
    /// next one.
    fn kill(&self, point: u32, saving: bool) -> Result<(), String> {
        let before = newest(&self.checkpoints());
        let mut command = self.command();
        command.arg("--checkpoints").arg(self.checkpoints()).args(["--checkpoint-every", "1"]);
        if before.is_some() {
            command.arg("--resume");
        }
        let mut child = command
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| format!("cannot run {}: {error}", self.name))?;
        let killed = self.wait(&mut child, before, saving);
        if killed.is_ok() {
            std::thread::sleep(Duration::from_micros(u64::from(point) * 731));
        }
        let _ = child.kill();
        let status =
            child.wait().map_err(|error| format!("{} does not end: {error}", self.name))?;
        killed?;
        match status.success() {
            true => Err(format!("{} ended before it was killed for the {point}th time", self.name)),
            false => Ok(()),
        }
    }

    fn wait(&self, child: &mut Child, before: Option<u64>, saving: bool) -> Result<(), String> {
        let folder = self.checkpoints();
        let start = Instant::now();
        while newest(&folder) <= before || saving && being_saved(&folder) <= newest(&folder) {
            if let Ok(Some(status)) = child.try_wait() {
                return Err(format!("{} ended with {status} before it was killed", self.name));
            }
            if start.elapsed() > LIMIT {
                return Err(format!("{} saved no checkpoint", self.name));
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        Ok(())
    }
}

/// Returns the names in a folder, and in the folders in it: some programs have one for each run.
fn names(folder: &Path) -> Vec<String> {
    let entries = |folder: &Path| std::fs::read_dir(folder).into_iter().flatten().flatten();
    let below = entries(folder).flat_map(|entry| entries(&entry.path()));
    let names = entries(folder).chain(below).map(|entry| entry.file_name());
    names.filter_map(|name| name.into_string().ok()).collect()
}

/// Returns the step of the newest checkpoint.
fn newest(folder: &Path) -> Option<u64> {
    newest_of(folder, |name| !name.starts_with('.'))
}

/// Returns the newest step of which a checkpoint is being written, or an older one removed.
fn being_saved(folder: &Path) -> Option<u64> {
    newest_of(folder, |name| name.starts_with(".incomplete-"))
}

fn newest_of(folder: &Path, is_wanted: impl Fn(&str) -> bool) -> Option<u64> {
    let names = names(folder);
    let names = names.iter().filter(|name| is_wanted(name));
    names.filter_map(|name| name.split_once("-step-")?.1.parse().ok()).max()
}
