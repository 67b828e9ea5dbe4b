//! Answers requests over HTTP with trained models.
//!
//! `cargo run --release -p serve -- --help` lists the commands.

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use burn_wgsl::WgslDevice;
use burn_wgsl::serve::{JoinConfig, PaddedSizes};
use clap::{Parser, Subcommand};
use llama::linear::Form;
use serve::device::SharedDevice;
use serve::http::{self, App, Limits, Status};
use serve::load::{self, Load};
use serve::models::{self, Sizes};
use serve::predict;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// Answer requests with trained models.
#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Answer requests over HTTP: /v1/classify, /v1/completions, /v1/chat/completions, /health, /ready, /metrics
    Http(Http),
    /// Answer files, a JSON line for each: pictures, or texts of which each line is a prompt
    Predict(Predict),
    /// Send requests to a server, and print how long the answers took
    Load(Load),
}

#[derive(clap::Args)]
struct Models {
    /// Digits in pictures: a model file of the example digits
    #[arg(long, value_name = "FILE")]
    digits: Option<PathBuf>,

    /// Text: a GGUF file of a model of the Llama family
    #[arg(long, value_name = "FILE")]
    text: Option<PathBuf>,

    /// Device: auto, cpu, software, gpu:0, discrete:0, ... [default: BURN_WGSL_DEVICE, else auto]
    #[arg(long, value_name = "SELECTOR")]
    device: Option<WgslDevice>,

    /// Form of the weights of the text model: stored (integers and scales as in the file), f16 or f32 [default: stored;
    /// f16 on the CPU, or f32 for several sequences]
    #[arg(long, value_name = "FORM")]
    weights: Option<Form>,

    /// Pictures that are classified together at most
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=1024))]
    batch: u16,

    /// Texts that are written together at most
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=256))]
    sequences: u16,

    /// Tokens of a text at most, with its prompt
    #[arg(long, value_name = "N", default_value_t = 2048, value_parser = clap::value_parser!(u32).range(2..=1_048_576))]
    context: u32,
}

#[derive(clap::Args)]
struct Http {
    #[command(flatten)]
    models: Models,

    /// Address on which the server listens
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,

    /// Milliseconds that a picture waits for others that are classified with it
    #[arg(long, value_name = "MS", default_value_t = 2)]
    wait: u16,

    /// Requests that wait for a model at most; others are refused
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..))]
    queue: u32,

    /// Bytes of a request at most
    #[arg(long, value_name = "N", default_value_t = 4 << 20)]
    body: usize,

    /// Seconds until the answer to a request begins, and until a text ends, at most
    #[arg(long, value_name = "S", default_value_t = 120, value_parser = clap::value_parser!(u32).range(1..))]
    timeout: u32,

    /// Open connections at most; others wait
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    connections: u32,

    /// Seconds that a connection may send nothing, or read nothing of its answer
    #[arg(long, value_name = "S", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    silence: u32,
}

#[derive(clap::Args)]
struct Predict {
    #[command(flatten)]
    models: Models,

    /// Tokens that are written for each prompt at most
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    tokens: u32,

    /// Pictures, or text files
    #[arg(required = true)]
    files: Vec<PathBuf>,
}

fn main() -> ExitCode {
    let filter = env_logger::Env::default().default_filter_or("warn");
    env_logger::Builder::from_env(filter).init();
    let result = match Args::parse().command {
        Command::Http(args) => run_http(&args),
        Command::Predict(args) => run_predict(&args),
        Command::Load(args) => load::run(&args).and_then(|report| {
            write!(std::io::stdout(), "{report}").context("the report cannot be written")
        }),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

impl Models {
    fn device(&self) -> Result<WgslDevice> {
        ensure!(
            self.digits.is_some() || self.text.is_some(),
            "there is no model: --digits or --text names one"
        );
        let device = self.device.unwrap_or_default();
        eprintln!("on {}", device.describe()?);
        Ok(device)
    }

    fn sizes(&self, device: WgslDevice) -> Result<Sizes> {
        let sequences = self.sequences.into();
        Ok(Sizes {
            pictures: PaddedSizes::up_to(self.batch.into()),
            texts: serve::writer::Sizes { sequences, capacity: self.context as usize },
            form: self.weights.unwrap_or(Form::for_device(device.resolve()?, sequences)),
        })
    }
}

fn run_http(args: &Http) -> Result<()> {
    let device = args.models.device()?;
    let sizes = args.models.sizes(device)?;
    let runtime = tokio::runtime::Runtime::new().context("no threads can be started")?;
    let result = runtime.block_on(async {
        let listener = TcpListener::bind(args.listen).await;
        let listener = listener.with_context(|| format!("cannot listen on {}", args.listen))?;
        let stop = stop_signal()?;
        serve_models(args, device, sizes, listener, stop).await
    });
    // A thread that hangs is not waited for.
    runtime.shutdown_background();
    result
}

async fn serve_models(
    args: &Http,
    device: WgslDevice,
    sizes: Sizes,
    listener: TcpListener,
    stop: impl Future<Output = ()>,
) -> Result<()> {
    let count = [&args.models.digits, &args.models.text].into_iter().flatten().count();
    let status = Arc::new(Status::new(count));
    let join = JoinConfig {
        batch: sizes.pictures.largest(),
        wait: Duration::from_millis(args.wait.into()),
        waiting: args.queue as usize,
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let device = SharedDevice::new(device);
    let mut threads: Vec<JoinHandle<Result<()>>> = Vec::new();
    let mut app = App {
        status: status.clone(),
        classifier: None,
        text: None,
        body: args.body,
        timeout: Duration::from_secs(args.timeout.into()),
        silence: Duration::from_secs(args.silence.into()),
        preparing: Arc::new(Semaphore::new(cores)),
    };
    if let Some(path) = &args.models.digits {
        let (requests, thread) = models::start_classifier(path, &device, sizes, join, &status)?;
        app.classifier = Some(requests);
        threads.push(thread);
    }
    if let Some(path) = &args.models.text {
        let (model, thread) = models::start_text(path, &device, sizes, join, &status)?;
        app.text = Some(Arc::new(model));
        threads.push(thread);
    }
    let address = listener.local_addr()?;
    eprintln!("listening on http://{address}");
    let limits =
        Limits { connections: args.connections as usize, silence: app.silence, drain: app.timeout };
    let app = Arc::new(app);
    let ending = status.clone();
    let stop = async move {
        tokio::select! {
            () = stop => {
                eprintln!("ending: what was accepted is answered; another signal ends at once");
                tokio::spawn(async {
                    if let Ok(stop) = stop_signal() {
                        stop.await;
                        std::process::exit(1);
                    }
                });
            }
            () = failed(&ending) => {}
        }
        ending.set_ending();
    };
    http::serve(listener, http::routes(app.clone()), limits, status, stop).await;
    // The threads end when nobody can send more requests.
    if let Some(requests) = &app.classifier {
        requests.close();
    }
    if let Some(text) = &app.text {
        text.requests.close();
    }
    let joined = tokio::task::spawn_blocking(|| {
        let results = threads.into_iter().map(|thread| {
            thread.join().unwrap_or_else(|_| Err(anyhow!("the thread of a model panicked")))
        });
        // All are waited for.
        results.collect::<Vec<_>>().into_iter().collect::<Result<()>>()
    });
    // A driver may hang.
    let joined = tokio::time::timeout(limits.drain, joined).await;
    joined.context("the thread of a model does not end")??
}

/// Ends once the thread of a model has failed: a supervisor then starts another process.
async fn failed(status: &Status) {
    while status.health() != http::Health::Failed {
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Returns what ends at Ctrl-C, and at SIGTERM.
fn stop_signal() -> Result<impl Future<Output = ()>> {
    #[cfg(unix)]
    let mut terminated = {
        use tokio::signal::unix::{SignalKind, signal};
        signal(SignalKind::terminate()).context("no signals can be received")?
    };
    Ok(async move {
        #[cfg(unix)]
        tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            _ = terminated.recv() => {}
        }
        #[cfg(not(unix))]
        let _ = tokio::signal::ctrl_c().await;
    })
}

fn run_predict(args: &Predict) -> Result<()> {
    let device = args.models.device()?;
    let sizes = args.models.sizes(device)?;
    let mut out = std::io::stdout().lock();
    let failed = match (&args.models.digits, &args.models.text) {
        (Some(_), Some(_)) => anyhow::bail!("there are two models: name --digits or --text"),
        (Some(path), None) => predict::pictures(path, device, sizes, &args.files, &mut out)?,
        (None, Some(path)) => {
            predict::texts(path, device, sizes, args.tokens as usize, &args.files, &mut out)?
        }
        (None, None) => 0,
    };
    ensure!(failed == 0, "{failed} inputs have no answer");
    Ok(())
}
