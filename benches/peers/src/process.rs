//! A peer's process: started with caches of its own, asked a line at a time, and given up when it takes too long.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use peer_protocol::Reply;

use crate::Device;
use crate::peers::Peer;

/// How to start a peer.
pub struct Launcher {
    pub peer: &'static Peer,
    pub program: PathBuf,
    pub script: Option<PathBuf>,
    pub device: Device,
    /// Where its caches and its log are.
    pub caches: PathBuf,
    /// What it says about itself.
    pub about: String,
}

impl Launcher {
    /// Starts the peer with its caches in the folder `caches`, which is also its working folder.
    pub fn start(&self, caches: &Path) -> Result<Process> {
        std::fs::create_dir_all(caches)
            .with_context(|| format!("cannot make {}", caches.display()))?;
        let log = caches.join("stderr.log");
        let mut command = Command::new(&self.program);
        command
            .args(&self.script)
            .arg(self.device.word())
            .current_dir(caches)
            // cubecl's tuning and kernels; Mesa's and NVIDIA's compiled shaders; CUDA's kernels.
            .env("XDG_CACHE_HOME", caches)
            .env("MESA_SHADER_CACHE_DIR", caches.join("mesa"))
            .env("__GL_SHADER_DISK_CACHE_PATH", caches.join("nvidia"))
            .env("CUDA_CACHE_PATH", caches.join("cuda"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(&log)?);
        std::fs::create_dir_all(caches.join("nvidia"))?; // the driver does not make it
        let mut child =
            command.spawn().with_context(|| format!("cannot start {}", self.program.display()))?;
        let stdout = child.stdout.take().context("the peer has no stdout")?;
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(Process { child, lines, log })
    }
}

/// A running peer. Dropping it ends it.
pub struct Process {
    child: Child,
    lines: Receiver<String>,
    log: PathBuf,
}

impl Process {
    /// Sends a command and waits for its answer; after an error the process is of no more use. Between answers it
    /// stands still: some peers keep a thread that polls their device, and would take time from whose turn it is.
    pub fn ask(&mut self, command: &str, limit: Duration) -> Result<Reply> {
        self.stand_still(false);
        let answer = self.answer(command, limit);
        self.stand_still(true);
        answer
    }

    #[cfg(unix)]
    fn stand_still(&self, still: bool) {
        use rustix::process::{Pid, Signal, kill_process};
        // It may have ended, which the next answer tells.
        let _ = kill_process(
            Pid::from_child(&self.child),
            if still { Signal::STOP } else { Signal::CONT },
        );
    }

    #[cfg(not(unix))]
    fn stand_still(&self, _still: bool) {}

    fn answer(&mut self, command: &str, limit: Duration) -> Result<Reply> {
        let sent = self
            .child
            .stdin
            .as_mut()
            .map(|stdin| writeln!(stdin, "{command}").and_then(|()| stdin.flush()));
        if !matches!(sent, Some(Ok(()))) {
            return Err(self.ended());
        }
        loop {
            match self.lines.recv_timeout(limit) {
                // What drivers and libraries print is not an answer.
                Ok(line) if !line.starts_with('{') => {}
                Ok(line) => match serde_json::from_str(&line)? {
                    Reply::Error(why) => bail!(why),
                    reply => return Ok(reply),
                },
                Err(RecvTimeoutError::Timeout) => bail!("took more than {} s", limit.as_secs()),
                Err(RecvTimeoutError::Disconnected) => return Err(self.ended()),
            }
        }
    }

    /// Why the process is gone: what it said last.
    fn ended(&mut self) -> anyhow::Error {
        let status = self.child.wait().map_or("gone".into(), |status| status.to_string());
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let panic = log.lines().skip_while(|line| !line.contains("panicked at")).nth(1);
        let said = panic.or(log.lines().last()).unwrap_or("it left no message");
        anyhow!("crashed ({status}): {}", said.chars().take(200).collect::<String>())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
