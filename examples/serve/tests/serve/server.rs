//! A server in a process of its own, and requests to it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use burn::tensor::backend::Backend;
use burn_wgsl::{Wgsl, WgslDevice};
use digits::model::Model;
use digits::weights;
use serde_json::Value;
use tempfile::TempDir;

use crate::fixture::Small;

/// The files of the models. They are removed when the machine is: `TempDir` in a static is never dropped.
pub struct Files {
    folder: TempDir,
}

pub static FILES: LazyLock<Files> = LazyLock::new(|| {
    let folder = tempfile::tempdir().expect("it is created");
    let device = WgslDevice::Cpu;
    Wgsl::seed(&device, 4);
    let digits = weights::to_bytes(Model::<Wgsl>::new(&device)).expect("it is encoded");
    std::fs::write(folder.path().join("digits.mpk"), digits).expect("it is written");
    std::fs::write(folder.path().join("small.gguf"), Small::new().file.bytes()).expect("written");
    Files { folder }
});

impl Files {
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

/// A running server.
pub struct Server {
    child: Child,
    address: String,
}

/// An answer.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The message of an error.
    pub fn message(&self) -> String {
        self.json()["error"]["message"].as_str().expect("it is a text").to_owned()
    }

    /// The events of a stream.
    pub fn events(&self) -> Vec<String> {
        let data = self.body.lines().filter_map(|line| line.strip_prefix("data: "));
        data.map(str::to_owned).collect()
    }
}

/// Returns a command of the program.
pub fn program(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_serve"));
    command.args(args).env("RUST_LOG", "warn");
    command
}

impl Server {
    /// Starts a server with both models on the CPU, and waits until it is ready.
    pub fn start(options: &[&str]) -> Self {
        let (digits, text) = (FILES.path("digits.mpk"), FILES.path("small.gguf"));
        let names = |path: &Path| path.to_str().expect("it is text").to_owned();
        let (digits, text) = (names(&digits), names(&text));
        let mut args = vec!["http", "--device", "cpu", "--listen", "127.0.0.1:0"];
        args.extend(["--digits", &digits, "--text", &text]);
        args.extend(options);
        let mut child = program(&args).stderr(Stdio::piped()).spawn().expect("it starts");
        let mut lines = BufReader::new(child.stderr.take().expect("it is piped")).lines();
        let address = lines
            .find_map(|line| Some(line.ok()?.strip_prefix("listening on http://")?.to_owned()))
            .expect("it listens");
        // The rest is read, so that the server can write.
        std::thread::spawn(move || {
            lines.map_while(Result::ok).for_each(|line| eprintln!("{line}"))
        });
        let server = Self { child, address };
        let start = Instant::now();
        while server.get("/ready").status != 200 {
            assert!(start.elapsed() < Duration::from_secs(60), "it is not ready");
            std::thread::sleep(Duration::from_millis(20));
        }
        server
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("it is a socket");
        stream
    }

    /// Returns whether new connections are refused.
    pub fn refuses(&self) -> bool {
        TcpStream::connect(&self.address).is_err()
    }

    /// Sends bytes, and returns the answer.
    pub fn exchange(&self, bytes: &[u8]) -> Answer {
        let mut stream = self.connect();
        // A server that has answered reads no more.
        let _ = stream.write_all(bytes);
        answer(stream)
    }

    pub fn get(&self, path: &str) -> Answer {
        self.exchange(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes())
    }

    pub fn post(&self, path: &str, kind: &str, body: &[u8]) -> Answer {
        self.exchange(&[head(path, kind, body.len()).as_bytes(), body].concat())
    }

    pub fn post_json(&self, path: &str, body: &Value) -> Answer {
        self.post(path, "application/json", body.to_string().as_bytes())
    }

    /// Waits until a value of the metrics is this.
    pub fn wait_for(&self, name: &str, value: &str) {
        let line = format!("{name} {value}");
        let start = Instant::now();
        loop {
            let metrics = self.get("/metrics").body;
            if metrics.lines().any(|found| found == line) {
                return;
            }
            assert!(start.elapsed() < Duration::from_secs(60), "{line} is not in\n{metrics}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Asks the server to end.
    #[cfg(unix)]
    pub fn terminate(&self) {
        let kill = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status();
        assert!(kill.expect("it starts").success());
    }

    /// Waits for its end, and returns whether it ended well.
    pub fn ended(&mut self) -> bool {
        self.child.wait().expect("it ends").success()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the head of a request. After the answer to one of HTTP/1.0, the server closes the connection.
pub fn head(path: &str, kind: &str, len: usize) -> String {
    format!("POST {path} HTTP/1.0\r\ncontent-type: {kind}\r\ncontent-length: {len}\r\n\r\n")
}

/// Reads an answer to its end.
pub fn answer(mut stream: TcpStream) -> Answer {
    let mut bytes = Vec::new();
    // A server that closes a connection with unread bytes resets it, after its answer.
    let _ = stream.read_to_end(&mut bytes);
    let text = String::from_utf8(bytes).expect("answers are text");
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    Answer { status, head: head.to_owned(), body: body.to_owned() }
}

/// Returns a PNG file of a picture with some bright pixels.
pub fn picture(seed: u32) -> Vec<u8> {
    let pixels = image::GrayImage::from_fn(8, 8, |x, y| {
        image::Luma([((x * 37 + y * 101 + seed * 59) % 251) as u8])
    });
    let mut bytes = std::io::Cursor::new(Vec::new());
    pixels.write_to(&mut bytes, image::ImageFormat::Png).expect("it is encoded");
    bytes.into_inner()
}
