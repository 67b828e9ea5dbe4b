//! Lets programs for stock Burn 0.22 run on burn-wgsl in another process or on another machine,
//! through Burn's remote backend: they need no patch.
//!
//! `burn-wgsl-server --help` lists the options. A program connects with
//! `Device::remote_options(&RemoteHost::websocket("ws://127.0.0.1:3000")).init()`.

use std::error::Error;
use std::net::{SocketAddr, TcpListener};

use burn_remote::server::{BackendServer, TokenAuthorizer, WebSocketTransport};
use burn_tch::wgsl::WgslDevice;
use burn_tch::{LibTorch, LibTorchDevice};
use clap::Parser;

/// Runs tensors of Burn 0.22 programs on GPUs of this machine.
#[derive(Parser)]
#[command(name = "burn-wgsl-server")]
struct Args {
    /// Device to offer: auto, cpu, software, gpu:0, discrete:0, ...; several times for several
    /// devices
    #[arg(long, value_name = "SELECTOR", default_value = "auto")]
    device: Vec<WgslDevice>,

    /// Address to listen on. Connections are not encrypted: do not leave a trusted network
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:3000")]
    listen: SocketAddr,

    /// What clients must send (`RemoteHost::with_credential`)
    #[arg(long, value_name = "TEXT", env = "BURN_WGSL_SERVER_TOKEN", hide_env_values = true)]
    token: Option<String>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    for device in &args.device {
        println!("offering {}", device.describe()?);
    }
    let mut server = BackendServer::<LibTorch>::new(args.device.into_iter().map(LibTorchDevice));
    if let Some(token) = args.token {
        server = server.with_authorizer(TokenAuthorizer::new(token)?);
    }
    let listener = TcpListener::bind(args.listen)
        .map_err(|error| format!("cannot listen on {}: {error}", args.listen))?;
    println!("listening on ws://{}", listener.local_addr()?);
    server.serve(WebSocketTransport::from_listener(listener))?;
    Ok(())
}
