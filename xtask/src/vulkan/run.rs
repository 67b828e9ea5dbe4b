//! Runs a program and reads the layer's messages from a named pipe.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use xtask::process::root;

use super::messages::{self, Message};

/// A program that runs longer hangs.
const TIME_LIMIT: Duration = Duration::from_secs(30 * 60);

/// The time between two looks at a running program.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The byte after the last message. The layer writes text, which does not contain it.
const END: u8 = 0;

/// What a program did.
pub struct Outcome {
    pub messages: Vec<Message>,
    /// Why the program failed, with the names of the tests that failed.
    pub failure: Option<String>,
    /// The file with the program's output.
    pub output: PathBuf,
}

impl Outcome {
    /// Returns `passed` or `FAILED`.
    pub fn result(&self) -> &'static str {
        if self.failure.is_none() { "passed" } else { "FAILED" }
    }
}

/// Runs a program in the repository root. Its output is written to `files` with the extension
/// `txt`, and the layer's messages, which come through `pipe`, with the extension `messages.txt`.
///
/// # Errors
///
/// Returns an error if the program cannot be started, or a file cannot be read or written.
pub fn run(command: &mut Command, files: &Path, pipe: &Path) -> Result<Outcome, String> {
    let output = files.with_extension("txt");
    let cannot_write = |error| format!("cannot write {}: {error}", output.display());
    let file = File::create(&output).map_err(cannot_write)?;
    command.stderr(file.try_clone().map_err(cannot_write)?).stdout(file).current_dir(root());
    let mut end = open_pipe(pipe)?;
    let mut reader = end.try_clone().map_err(|error| format!("{}: {error}", pipe.display()))?;
    let reader = thread::spawn(move || read_to_end(&mut reader));
    let status = command
        .spawn()
        .map_err(|error| format!("the program could not be started: {error}"))
        .and_then(|mut child| wait(&mut child));
    let ended = end.write_all(&[END]);
    let text = reader.join().map_err(|_| "the reader of the messages panicked".to_owned())?;
    ended.map_err(|error| format!("cannot write to {}: {error}", pipe.display()))?;
    let status = status?;
    fs::write(files.with_extension("messages.txt"), &text).map_err(cannot_write)?;
    let printed =
        fs::read(&output).map_err(|error| format!("cannot read {}: {error}", output.display()))?;
    Ok(Outcome {
        messages: messages::parse(&String::from_utf8_lossy(&text)),
        failure: failure(status, &String::from_utf8_lossy(&printed)),
        output,
    })
}

/// Creates the pipe, and opens it for reading and writing: opening it for one of them would wait
/// for the other.
fn open_pipe(pipe: &Path) -> Result<File, String> {
    let _ = fs::remove_file(pipe);
    let status = Command::new("mkfifo").arg(pipe).status();
    if !status.is_ok_and(|status| status.success()) {
        return Err(format!("`mkfifo {}` failed", pipe.display()));
    }
    File::options()
        .read(true)
        .write(true)
        .open(pipe)
        .map_err(|error| format!("cannot open {}: {error}", pipe.display()))
}

/// Reads up to the byte [`END`].
fn read_to_end(pipe: &mut File) -> Vec<u8> {
    let mut text = Vec::new();
    let mut buffer = [0; 1 << 16];
    while let Ok(count) = pipe.read(&mut buffer) {
        text.extend(&buffer[..count]);
        if text.last() == Some(&END) {
            text.pop();
            break;
        }
    }
    text
}

/// Waits for the program, and stops it at the time limit. Returns `None` then.
fn wait(child: &mut Child) -> Result<Option<ExitStatus>, String> {
    let start = Instant::now();
    loop {
        let status = child.try_wait().map_err(|error| format!("cannot wait: {error}"))?;
        if status.is_some() {
            return Ok(status);
        }
        if start.elapsed() > TIME_LIMIT {
            // The program may have ended in the meantime.
            let _ = child.kill();
            let _ = child.wait();
            return Ok(None);
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// Returns why the program failed. `printed` is its output, which names the tests that failed.
fn failure(status: Option<ExitStatus>, printed: &str) -> Option<String> {
    let reason = match status {
        Some(status) if status.success() && printed.contains("running 0 tests") => {
            return Some("it ran no test".to_owned());
        }
        Some(status) if status.success() => return None,
        Some(status) => status.to_string(),
        None => format!("it was stopped after {} minutes", TIME_LIMIT.as_secs() / 60),
    };
    let failed: Vec<&str> = printed
        .lines()
        .filter_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... FAILED"))
        .collect();
    let tests = if failed.is_empty() { String::new() } else { format!(": {}", failed.join(", ")) };
    Some(format!("{reason}{tests}"))
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    #[test]
    fn failures_name_the_tests() {
        let printed = "running 2 tests\ntest a ... ok\ntest b ... FAILED\ntest c ... FAILED\n";
        let status = |code: i32| Some(ExitStatus::from_raw(code << 8));
        assert_eq!(failure(status(0), printed), None);
        assert!(failure(status(101), printed).unwrap().ends_with(": b, c"));
        assert!(failure(None, "").unwrap().contains("stopped"));
    }
}
