//! A socket whose reads and writes fail after a time without progress.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep};

use crate::limits::SILENCE;

/// A socket that fails if the other end neither sends nor receives for [`SILENCE`]. A large message
/// over a slow network can take longer.
pub(crate) struct Deadline {
    tcp: TcpStream,
    read: Timer,
    write: Timer,
}

impl Deadline {
    /// Wraps a socket. Must be called within a runtime.
    pub fn new(tcp: TcpStream) -> Self {
        Self { tcp, read: Timer::new(), write: Timer::new() }
    }

    /// Restarts the time for reads, after a while in which nothing was read.
    pub fn restart(&mut self) {
        self.read.runs = false;
    }
}

/// The time since a read or a write began to wait.
struct Timer {
    sleep: Pin<Box<Sleep>>,
    runs: bool,
}

impl Timer {
    fn new() -> Self {
        Self { sleep: Box::pin(sleep(SILENCE)), runs: false }
    }

    /// Passes on what a poll returned, or an error if it has waited for too long.
    fn check<T>(
        &mut self,
        polled: Poll<io::Result<T>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.runs = false;
            return polled;
        }
        if !self.runs {
            self.sleep.as_mut().reset(Instant::now() + SILENCE);
            self.runs = true;
        }
        ready!(self.sleep.as_mut().poll(context));
        let seconds = SILENCE.as_secs();
        let reason = format!("the client neither sent nor received anything for {seconds} s");
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, reason)))
    }
}

impl AsyncRead for Deadline {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.tcp).poll_read(context, buffer);
        this.read.check(polled, context)
    }
}

impl AsyncWrite for Deadline {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.tcp).poll_write(context, bytes);
        this.write.check(polled, context)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().tcp).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().tcp).poll_shutdown(context)
    }
}
