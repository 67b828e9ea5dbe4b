//! Peer processes: separate cache folders, one command and one reply per line, a timeout per reply.

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

/// Everything needed to start a peer.
pub struct Launcher {
    pub peer: &'static Peer,
    pub program: PathBuf,
    pub script: Option<PathBuf>,
    pub device: Device,
    /// Folder of the peer's caches and its log.
    pub caches: PathBuf,
    /// Device description from the `about` reply.
    pub about: String,
}

impl Launcher {
    /// Starts the peer with `caches` as its cache folder and working directory.
    pub fn start(&self, caches: &Path) -> Result<Process> {
        std::fs::create_dir_all(caches)
            .with_context(|| format!("cannot create {}", caches.display()))?;
        let log = caches.join("stderr.log");
        let mut command = Command::new(&self.program);
        command
            .args(&self.script)
            .arg(self.device.name())
            .current_dir(caches)
            // Tuning and kernels of cubecl; compiled shaders of Mesa and NVIDIA; CUDA kernels.
            .env("XDG_CACHE_HOME", caches)
            .env("MESA_SHADER_CACHE_DIR", caches.join("mesa"))
            .env("__GL_SHADER_DISK_CACHE_PATH", caches.join("nvidia"))
            .env("CUDA_CACHE_PATH", caches.join("cuda"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(&log)?);
        std::fs::create_dir_all(caches.join("nvidia"))?; // NVIDIA's driver does not create it
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

/// A running peer. Dropping it ends the process.
pub struct Process {
    child: Child,
    lines: Receiver<String>,
    log: PathBuf,
}

impl Process {
    /// Sends a command and waits for the reply. On Unix the process is suspended between commands,
    /// because some peers poll their device in a thread and would slow down the other peers.
    ///
    /// # Errors
    ///
    /// Returns an error if the peer reports one, crashes or exceeds `limit`. The process cannot be
    /// used afterwards.
    pub fn request(&mut self, command: &str, limit: Duration) -> Result<Reply> {
        self.set_suspended(false);
        let reply = self.exchange(command, limit);
        self.set_suspended(true);
        reply
    }

    #[cfg(unix)]
    fn set_suspended(&self, suspended: bool) {
        use rustix::process::{Pid, Signal, kill_process};
        // A failure means that the process has ended; the next command reports it.
        let _ = kill_process(
            Pid::from_child(&self.child),
            if suspended { Signal::STOP } else { Signal::CONT },
        );
    }

    #[cfg(not(unix))]
    fn set_suspended(&self, _suspended: bool) {}

    fn exchange(&mut self, command: &str, limit: Duration) -> Result<Reply> {
        let sent = self
            .child
            .stdin
            .as_mut()
            .map(|stdin| writeln!(stdin, "{command}").and_then(|()| stdin.flush()));
        if !matches!(sent, Some(Ok(()))) {
            return Err(self.exit_error());
        }
        loop {
            match self.lines.recv_timeout(limit) {
                // Skip output of drivers and libraries: a reply is a JSON object.
                Ok(line) if !line.starts_with('{') => {}
                Ok(line) => match serde_json::from_str(&line)? {
                    Reply::Error(message) => bail!(message),
                    reply => return Ok(reply),
                },
                Err(RecvTimeoutError::Timeout) => bail!("no reply within {} s", limit.as_secs()),
                Err(RecvTimeoutError::Disconnected) => return Err(self.exit_error()),
            }
        }
    }

    /// Returns an error with the exit status and the panic message, or the last line of the log.
    fn exit_error(&mut self) -> anyhow::Error {
        let status = self.child.wait().map_or("unknown status".into(), |status| status.to_string());
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let panic = log.lines().skip_while(|line| !line.contains("panicked at")).nth(1);
        let message = panic.or(log.lines().last()).unwrap_or("no message in its log");
        anyhow!("crashed ({status}): {}", message.chars().take(200).collect::<String>())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
