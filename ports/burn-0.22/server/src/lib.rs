//! A server for the remote backend of Burn 0.22 that computes with burn-wgsl.
//!
//! It speaks the protocol of Burn's own server over websockets, and adds what a server needs that
//! other people's programs, or web pages, can reach: README.md lists it. The layers, from the
//! outside:
//!
//! - `handshake` decides which HTTP requests may become connections, `token` which clients may go
//!   on.
//! - `session` is a connection. It moves messages to the client's thread, and replies back; both
//!   have limited room. `deadline` ends connections whose other end has vanished.
//! - `wire` has the messages, and checks what they declare before they are decoded.
//! - `worker` is the thread of a client: it computes with Burn's interpreter of ops. An op that
//!   panics ends its session only, and its memory is freed.
//! - `budget` counts what a client holds, `transfers` moves tensors between devices of the server,
//!   `limits` has the limits.
//!
//! ```no_run
//! use burn_tch::LibTorchDevice;
//! use burn_wgsl_server::{Limits, Rules, Server, Token};
//!
//! let token = Token::from_file("server-token".as_ref())?;
//! let devices = vec![LibTorchDevice::default()];
//! let server = Server::new(devices, Some(token), Rules::default(), Limits::default());
//! server.serve(std::net::TcpListener::bind("127.0.0.1:3000")?)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What a client can do
//!
//! A client that is authorised can run any op on the devices that are offered, for as long as it
//! likes, and hold as many bytes as the limits allow. It learns how many devices there are, and
//! their settings. `Seed` seeds a device for all clients, and `SyncBackend` can return the error of
//! another client's index, whose results are errors for that client in any case. It cannot run
//! shaders of its own, open connections, or read or write files. It can read its own tensors, and
//! those that another client at the same IP address moves from one device to another at the moment.
//!
//! Clients share the process and the memory of the device. Kernels check shapes but not each
//! access, unless `BURN_WGSL_CHECKED=1` is set: an error in a kernel could show one client's memory
//! to another. A failure of the device ends all sessions. Connections are not encrypted.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod budget;
mod deadline;
mod handshake;
mod limits;
mod session;
mod token;
mod transfers;
mod wire;
mod worker;

use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use burn_tch::LibTorchDevice;
use tokio::sync::{Semaphore, oneshot};

pub use handshake::{Rules, parse_host, parse_origin};
pub use limits::{Limits, parse_bytes, parse_time};
pub use token::{TOKEN_VARIABLE, Token, default_token_file};

use transfers::Transfers;

/// A server. Clones are the same server.
#[derive(Clone)]
pub struct Server(Arc<Shared>);

/// What all connections share.
struct Shared {
    devices: Vec<LibTorchDevice>,
    token: Option<Token>,
    rules: Rules,
    limits: Limits,
    /// The clients that there can be beside those that there are.
    clients: Arc<Semaphore>,
    /// The number of the next session.
    sessions: AtomicU64,
    /// Bytes of the tensors of all clients.
    bytes: Arc<AtomicU64>,
    transfers: Transfers,
}

/// What clients use at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Connections whose memory is not freed yet.
    pub clients: usize,
    /// Bytes of their tensors.
    pub bytes: u64,
}

impl Server {
    /// Creates a server that offers devices. Without a token, everybody who reaches it is
    /// authorised.
    pub fn new(
        devices: Vec<LibTorchDevice>,
        token: Option<Token>,
        rules: Rules,
        mut limits: Limits,
    ) -> Self {
        limits.clients = limits.clients.min(Semaphore::MAX_PERMITS);
        Self(Arc::new(Shared {
            devices,
            token,
            rules,
            clients: Arc::new(Semaphore::new(limits.clients)),
            limits,
            sessions: AtomicU64::new(0),
            bytes: Arc::default(),
            transfers: Transfers::default(),
        }))
    }

    /// Returns what clients use.
    pub fn usage(&self) -> Usage {
        let shared = &self.0;
        let clients = shared.limits.clients - shared.clients.available_permits();
        Usage { clients, bytes: shared.bytes.load(Ordering::Relaxed) }
    }

    /// Serves clients, for as long as the process runs.
    ///
    /// # Errors
    ///
    /// Returns an error if the server cannot begin. Errors of single connections are written to
    /// standard error.
    pub fn serve(&self, listener: TcpListener) -> io::Result<()> {
        listener.set_nonblocking(true)?;
        // Threads of clients compute. These only move bytes.
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        runtime.block_on(self.accept(listener))
    }

    async fn accept(&self, listener: TcpListener) -> io::Result<()> {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let pending = Pending::default();
        loop {
            match listener.accept().await {
                Ok((tcp, peer)) => {
                    // Replies are small, and clients wait for them.
                    let _ = tcp.set_nodelay(true);
                    let replaced = pending.add(peer.ip());
                    tokio::spawn(session::run(self.0.clone(), tcp, peer, replaced));
                }
                Err(error) => {
                    write_line(&format!("cannot accept a connection: {error}"));
                    // There may be too many open files.
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }
}

/// The connections that have not sent an authorised first message yet. Those that say nothing must not
/// keep others out.
#[derive(Default)]
struct Pending(Mutex<Vec<(IpAddr, oneshot::Sender<()>)>>);

impl Pending {
    /// Adds a connection, which is closed when the result is ready. If there are too many, the oldest
    /// of the address with the most of them is.
    fn add(&self, address: IpAddr) -> oneshot::Receiver<()> {
        let (close, replaced) = oneshot::channel();
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Those that are authorised, or closed.
        all.retain(|(_, close)| !close.is_closed());
        if all.len() >= limits::PENDING {
            let count = |address| all.iter().filter(|(other, _)| *other == address).count();
            let most = all.iter().map(|(address, _)| count(*address)).max();
            let oldest = all.iter().position(|(address, _)| Some(count(*address)) == most);
            if let Some(index) = oldest {
                let _ = all.remove(index).1.send(());
            }
        }
        all.push((address, close));
        replaced
    }
}

/// Shortens the messages of panics, which can have what a client sent.
pub fn set_panic_hook() {
    std::panic::set_hook(Box::new(|info| {
        let place = info.location().map(ToString::to_string).unwrap_or_default();
        write_line(&format!("panic at {place}: {}", shorten(worker::panic_text(info.payload()))));
    }));
}

/// Writes what happened to a client. The reason can have what the client sent.
fn report(peer: SocketAddr, reason: &str) {
    write_line(&format!("client {peer}: {}", shorten(reason)));
}

/// Writes a line to standard error, which may be closed.
fn write_line(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// Returns the start of a text, without characters that control a terminal.
fn shorten(text: &str) -> String {
    let is_shown = |c: char| c.is_alphanumeric() || c.is_ascii_graphic() || c == ' ';
    let shown = text.chars().map(|c| if is_shown(c) { c } else { ' ' });
    let mut shortened: String = shown.take(200).collect();
    if text.chars().nth(200).is_some() {
        shortened.push_str(" ...");
    }
    shortened
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_lines_are_short_and_plain() {
        assert_eq!(shorten("shape [1, 2]\n\x1b[31m\u{202e}"), "shape [1, 2]  [31m ");
        assert_eq!(shorten(&"x".repeat(1000)).len(), 204);
    }
}
