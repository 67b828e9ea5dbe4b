//! Connections, of which there may be many that send nothing.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_io_timeout::TimeoutStream;

use super::Status;

/// The limits of connections.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The most open connections. Others wait until one is closed.
    pub connections: usize,
    /// How long a connection may send nothing, take for the head of a request, or read nothing of an answer.
    pub silence: Duration,
    /// How long the server waits for answers that are being written when it ends.
    pub drain: Duration,
}

/// Serves until `stop` is ready, and then until all answers are written.
pub async fn serve(
    listener: TcpListener,
    routes: Router,
    limits: Limits,
    status: Arc<Status>,
    stop: impl Future<Output = ()>,
) {
    let graceful = GracefulShutdown::new();
    let places = Arc::new(Semaphore::new(limits.connections));
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(limits.silence);
    tokio::pin!(stop);
    let mut tasks = JoinSet::new();
    loop {
        // Those that have ended.
        while tasks.try_join_next().is_some() {}
        let next = async {
            let place = places.clone().acquire_owned().await.expect("it is never closed");
            (place, listener.accept().await)
        };
        let (place, accepted) = tokio::select! {
            () = &mut stop => break,
            next = next => next,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                wait_after(&error).await;
                continue;
            }
        };
        // Tokens are small, and must not wait for others.
        let _ = stream.set_nodelay(true);
        let service = TowerToHyperService::new(routes.clone());
        let mut stream = Box::pin(TimeoutStream::new(stream));
        stream.as_mut().set_write_timeout_pinned(Some(limits.silence));
        let connection = graceful.watch(http.serve_connection(TokioIo::new(stream), service));
        let open = Open::new(status.clone());
        tasks.spawn(async move {
            if let Err(error) = connection.await {
                log::debug!("a connection ended: {error}");
            }
            drop((place, open));
        });
    }
    drop(listener);
    if tokio::time::timeout(limits.drain, graceful.shutdown()).await.is_err() {
        log::warn!("answers were not read within {} seconds", limits.drain.as_secs());
        tasks.shutdown().await;
    }
}

/// Counts a connection while it is open.
struct Open(Arc<Status>);

impl Open {
    fn new(status: Arc<Status>) -> Self {
        status.metrics.connections.inc();
        Self(status)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.metrics.connections.dec();
    }
}

/// Waits after an error that would come again at once: the process has too many open files.
async fn wait_after(error: &io::Error) {
    let of_client = [
        io::ErrorKind::ConnectionAborted,
        io::ErrorKind::ConnectionRefused,
        io::ErrorKind::ConnectionReset,
    ];
    if !of_client.contains(&error.kind()) {
        log::warn!("no connection can be accepted: {error}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
