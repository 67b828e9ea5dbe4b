//! Servers, Burn's client, and clients that send what they like.
#![allow(dead_code, reason = "each test uses some of it")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, process, thread};

use burn_backend::ops::FloatTensorOps;
use burn_backend::{DType, ExecutionError, Scalar, Shape, TensorData};
use burn_ir::{OperationIr, TensorId, TensorIr, TensorStatus};
use burn_remote::{HostSpec, RemoteBackend, RemoteDevice};
use burn_tch::LibTorchDevice;
use burn_tch::wgsl::WgslDevice;
use burn_wgsl_server::{Limits, Rules, Server};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use tokio_tungstenite::tungstenite::{Message, WebSocket, client};

/// How long tests wait for what must happen.
const PATIENCE: Duration = Duration::from_secs(20);

/// The program, until it is dropped.
pub struct Program {
    process: Child,
    pub address: String,
    /// What it has printed before its address.
    pub output: String,
}

impl Program {
    /// Starts the program on a free port, with a token in its environment or none.
    pub fn start(options: &[&str], token: Option<&str>) -> Self {
        let mut command = program(options);
        if let Some(token) = token {
            command.env("BURN_WGSL_SERVER_TOKEN", token);
        }
        let mut process = command
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the program starts");
        let lines = BufReader::new(process.stdout.take().expect("it is piped")).lines();
        let mut output = String::new();
        let address = lines.map(|line| line.expect("the output is text")).find_map(|line| {
            output += &line;
            Some(line.strip_prefix("listening on ")?.to_owned())
        });
        Self { process, address: address.expect("it prints its address"), output }
    }

    pub fn runs(&mut self) -> bool {
        self.process.try_wait().expect("it can be asked").is_none()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns the program on a free port, without a token in its environment.
pub fn program(options: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_burn-wgsl-server"));
    command.args(["--listen", "127.0.0.1:0"]).args(options).env_remove("BURN_WGSL_SERVER_TOKEN");
    command
}

/// Starts a server in this process, and returns its address too.
pub fn serve(device: WgslDevice, limits: Limits) -> (Server, String) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = format!("ws://{}", listener.local_addr().expect("it is bound"));
    let server = Server::new(vec![LibTorchDevice(device)], None, Rules::default(), limits);
    let serving = server.clone();
    thread::spawn(move || serving.serve(listener));
    (server, address)
}

/// Returns a path for a test's file, at which there is nothing.
pub fn free_path(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", process::id()));
    let _ = fs::remove_file(&path);
    path
}

/// Waits until something is so.
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Connects Burn's client to the first device, waiting until there is room for it.
pub fn connect(address: &str) -> RemoteDevice {
    let start = Instant::now();
    loop {
        match HostSpec::websocket(address).connect(0) {
            Ok(device) => return device,
            Err(error) => assert!(start.elapsed() < PATIENCE, "{error}"),
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// Panics if a device does not compute.
pub fn compute(device: &RemoteDevice) {
    type B = RemoteBackend;
    let x = B::float_from_data(TensorData::from([[1.0f32, 2.0], [3.0, 4.0]]), device);
    let y = B::float_matmul(x.clone(), B::float_add_scalar(x, Scalar::Float(1.0)));
    let y = pollster::block_on(B::float_into_data(y)).expect("readback succeeds");
    assert_eq!(y.iter::<f32>().collect::<Vec<_>>(), [10.0, 13.0, 22.0, 29.0]);
}

/// Returns the status of the answer to a request for a websocket.
pub fn status(address: &str, path: &str, headers: &str) -> u16 {
    let mut tcp = TcpStream::connect(address.trim_start_matches("ws://")).expect("it listens");
    tcp.set_read_timeout(Some(PATIENCE)).expect("it can be set");
    let request = format!(
        "GET {path} HTTP/1.1\r\n{headers}Connection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    tcp.write_all(request.as_bytes()).expect("it is read");
    let mut line = String::new();
    BufReader::new(tcp).read_line(&mut line).expect("it answers");
    line.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status")
}

/// A client that sends what a test likes.
pub struct Raw(WebSocket<TcpStream>);

/// What the server answers, as far as tests look at it.
#[derive(Debug, Deserialize)]
pub enum Content {
    Init(IgnoredAny),
    InitRefused(IgnoredAny),
    ReadTensor(Result<TensorData, ExecutionError>),
    SyncBackend(Result<(), ExecutionError>),
    DTypeUsage(IgnoredAny),
    ProfileStart(IgnoredAny),
    ProfileEnd(IgnoredAny),
}

impl Raw {
    /// Opens a websocket, or returns why not.
    pub fn open(address: &str) -> Result<Self, String> {
        let tcp = TcpStream::connect(address.trim_start_matches("ws://"));
        let tcp = tcp.map_err(|error| error.to_string())?;
        tcp.set_nodelay(true).map_err(|error| error.to_string())?;
        tcp.set_read_timeout(Some(PATIENCE)).map_err(|error| error.to_string())?;
        let opened = client(format!("{address}/session"), tcp);
        opened.map(|(socket, _)| Self(socket)).map_err(|error| error.to_string())
    }

    /// Opens a websocket, waiting until there is room for it.
    pub fn wait(address: &str) -> Self {
        let start = Instant::now();
        loop {
            match Self::open(address) {
                Ok(raw) => return raw,
                Err(error) => assert!(start.elapsed() < PATIENCE, "{error}"),
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Opens a session on the first device, waiting until there is room for it.
    pub fn session(address: &str) -> Self {
        let start = Instant::now();
        loop {
            let answered = Self::open(address).and_then(|mut raw| {
                raw.send(init(b"")).and_then(|()| raw.receive()).map(|answer| (raw, answer))
            });
            match answered {
                Ok((raw, Content::Init(_))) => return raw,
                answered => assert!(start.elapsed() < PATIENCE, "{:?}", answered.map(|it| it.1)),
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn send(&mut self, bytes: Vec<u8>) -> Result<(), String> {
        self.send_message(Message::Binary(bytes.into()))
    }

    pub fn send_message(&mut self, message: Message) -> Result<(), String> {
        self.0.send(message).map_err(|error| error.to_string())
    }

    /// Returns the next answer, or why there is none.
    pub fn receive(&mut self) -> Result<Content, String> {
        loop {
            match self.0.read().map_err(|error| error.to_string())? {
                Message::Binary(bytes) => {
                    let answer: Result<(Content, u64), _> = rmp_serde::from_slice(&bytes);
                    return answer.map(|(content, _)| content).map_err(|error| error.to_string());
                }
                Message::Close(_) => return Err("closed".to_owned()),
                _ => {}
            }
        }
    }

    /// Waits until everything is computed, and returns why not.
    pub fn sync(&mut self) -> Result<(), String> {
        self.send(task("SyncBackend", (7u64, STREAM)))?;
        loop {
            if let Content::SyncBackend(result) = self.receive()? {
                return result.map_err(|error| error.to_string());
            }
        }
    }

    /// Reads a tensor back, or returns why not.
    pub fn read(&mut self, tensor: TensorIr) -> Result<(), String> {
        self.send(task("ReadTensor", (7u64, STREAM, tensor)))?;
        loop {
            if let Content::ReadTensor(result) = self.receive()? {
                return result.map(drop).map_err(|error| error.to_string());
            }
        }
    }

    /// Uploads zeros.
    pub fn upload(&mut self, id: u64, len: usize) {
        let data = TensorData::new(vec![0f32; len], [len]);
        let upload = task("RegisterTensor", (STREAM, TensorId::new(id), data));
        self.send(upload).expect("it is read");
    }
}

/// The id of a stream.
pub const STREAM: (u64,) = (0,);
/// The id of the sessions.
const SESSION: (u64,) = (17,);

/// Returns a variant of an enum as it is encoded.
fn variant<T>(name: &'static str, value: T) -> BTreeMap<&'static str, T> {
    BTreeMap::from([(name, value)])
}

fn message<T: Serialize>(name: &'static str, value: T) -> Vec<u8> {
    rmp_serde::to_vec(&[variant(name, value)]).expect("it can be encoded")
}

/// Returns the first message of a client.
pub fn init(token: &[u8]) -> Vec<u8> {
    message("Init", (2u16, SESSION, 0u32, serde_bytes::Bytes::new(token)))
}

/// Returns a message that closes a session.
pub fn close(session: u64) -> Vec<u8> {
    message("Close", (session,))
}

/// Returns a message with a task.
pub fn task<T: Serialize>(name: &'static str, fields: T) -> Vec<u8> {
    message("Task", variant(name, fields))
}

/// Returns a message with an op.
pub fn op(op: OperationIr) -> Vec<u8> {
    task("RegisterOperation", (STREAM, op))
}

/// Returns what an op says about a tensor of 32-bit floats.
pub fn tensor(id: u64, shape: &[usize], status: TensorStatus) -> TensorIr {
    let shape = Shape::from(shape.to_vec());
    TensorIr { id: TensorId::new(id), shape, status, dtype: DType::F32 }
}
