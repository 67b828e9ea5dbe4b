//! Many clients at once, and how long their requests took.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// Send requests to a server, and print how long the answers took.
#[derive(Debug, Clone, clap::Args)]
pub struct Load {
    /// Address of the server
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    pub server: String,

    /// Path of the requests
    #[arg(long, value_name = "PATH", default_value = "/v1/classify")]
    pub path: String,

    /// The body of a request: a picture, or JSON
    pub body: PathBuf,

    /// Requests in all
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub requests: usize,

    /// Clients, each of which sends a request after the answer to the one before
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..))]
    pub clients: u16,

    /// Requests per second of all clients; 0: as many as are answered
    #[arg(long, value_name = "X", default_value_t = 0.0)]
    pub rate: f64,
}

/// What a load showed.
#[derive(Debug)]
pub struct Report {
    /// Answers with the status 200.
    pub answered: usize,
    /// Other answers.
    pub refused: usize,
    /// Different bodies of the answers with the status 200.
    pub different: usize,
    /// From the first request to the last answer.
    pub elapsed: Duration,
    /// Times of the answers with the status 200, in ascending order.
    pub times: Vec<Duration>,
}

impl Report {
    /// Returns the time within which this share of the requests was answered.
    pub fn quantile(&self, share: f64) -> Duration {
        let last = self.times.len().saturating_sub(1);
        self.times.get((last as f64 * share).round() as usize).copied().unwrap_or_default()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Self { answered, refused, different, elapsed, .. } = self;
        let rate = *answered as f64 / elapsed.as_secs_f64().max(1e-9);
        writeln!(f, "{answered} answers ({different} different), {refused} others")?;
        writeln!(f, "{rate:.1} answers per second")?;
        let [median, late] = [0.5, 0.99].map(|share| self.quantile(share).as_secs_f64() * 1e3);
        writeln!(f, "p50 {median:.2} ms, p99 {late:.2} ms")
    }
}

/// Sends the requests.
///
/// # Errors
///
/// Returns an error if the body cannot be read, or a connection fails.
pub fn run(load: &Load) -> Result<Report> {
    let runtime = tokio::runtime::Runtime::new().context("no threads can be started")?;
    let body = std::fs::read(&load.body);
    let body = body.with_context(|| format!("cannot read {}", load.body.display()))?;
    runtime.block_on(send_all(load, body.into()))
}

async fn send_all(load: &Load, body: Bytes) -> Result<Report> {
    ensure!(load.rate >= 0.0 && load.rate.is_finite(), "--rate must be at least 0");
    let next = Arc::new(AtomicUsize::new(0));
    let start = Instant::now();
    let clients: Vec<_> = (0..load.clients)
        .map(|_| tokio::spawn(client(load.clone(), body.clone(), next.clone(), start)))
        .collect();
    let mut report = Report {
        answered: 0,
        refused: 0,
        different: 0,
        elapsed: Duration::ZERO,
        times: Vec::new(),
    };
    let mut bodies = std::collections::HashSet::new();
    for client in clients {
        for (status, body, time) in client.await?? {
            match status {
                StatusCode::OK => {
                    report.answered += 1;
                    report.times.push(time);
                    bodies.insert(body);
                }
                _ => report.refused += 1,
            }
        }
    }
    report.elapsed = start.elapsed();
    report.different = bodies.len();
    report.times.sort_unstable();
    Ok(report)
}

/// Sends requests until all are sent. Returns the answers, and the time of each.
async fn client(
    load: Load,
    body: Bytes,
    next: Arc<AtomicUsize>,
    start: Instant,
) -> Result<Vec<(StatusCode, Bytes, Duration)>> {
    let mut connection: Option<SendRequest<Full<Bytes>>> = None;
    let mut answers = Vec::new();
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= load.requests {
            return Ok(answers);
        }
        // With a rate, a request that is sent late has waited since it was due.
        let mut due = Instant::now();
        if load.rate > 0.0 {
            due = start + Duration::from_secs_f64(number as f64 / load.rate);
            tokio::time::sleep_until(due.into()).await;
        }
        let mut sender = match connection.take() {
            Some(sender) => sender,
            None => connect(&load.server).await?,
        };
        // The server closes connections that send nothing for some time.
        if sender.ready().await.is_err() {
            sender = connect(&load.server).await?;
        }
        let request = Request::post(&load.path).header("host", &load.server);
        let request = match load.path.ends_with("classify") {
            true => request,
            false => request.header("content-type", "application/json"),
        };
        let answer = sender.send_request(request.body(Full::new(body.clone()))?).await?;
        let status = answer.status();
        let body = answer.into_body().collect().await?.to_bytes();
        answers.push((status, body, due.elapsed()));
        connection = Some(sender);
    }
}

async fn connect(server: &str) -> Result<SendRequest<Full<Bytes>>> {
    let stream = TcpStream::connect(server).await;
    let stream = stream.with_context(|| format!("cannot connect to {server}"))?;
    stream.set_nodelay(true)?;
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(sender)
}
