//! Lets programs for stock Burn 0.22 run on burn-wgsl in another process or on another machine,
//! through Burn's remote backend: they need no patch.
//!
//! `burn-wgsl-server --help` lists the options. A program connects with
//! `Device::remote_options(&RemoteHost::websocket("ws://127.0.0.1:3000").with_credential(token))
//! .init()`.

use std::env;
use std::error::Error;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::time::Duration;

use burn_tch::LibTorchDevice;
use burn_tch::wgsl::{WgslDevice, memory};
use burn_wgsl_server::{
    Limits, Rules, Server, TOKEN_VARIABLE, Token, default_token_file, parse_bytes, parse_host,
    parse_origin, parse_time, set_panic_hook,
};
use clap::Parser;

/// Runs tensors of Burn 0.22 programs on GPUs of this machine.
///
/// Clients must send a token: that of BURN_WGSL_SERVER_TOKEN if it is set, otherwise that of a
/// file, which is created.
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

    /// File with the token. The default is burn-wgsl/server-token in the folder of your settings
    #[arg(long, value_name = "PATH")]
    token_file: Option<PathBuf>,

    /// Accept all clients, also those of other users
    #[arg(long, conflicts_with = "token_file")]
    no_token: bool,

    /// Origin of web pages that may connect: scheme, host and port; several times for several
    #[arg(long, value_name = "URL", value_parser = parse_origin)]
    allow_origin: Vec<String>,

    /// Name by which clients address the server, if it is not localhost or an IP address; several
    /// times for several
    #[arg(long, value_name = "NAME", value_parser = parse_host)]
    allow_host: Vec<String>,

    /// Largest message, which is also the largest tensor that a client can upload or read back (256MiB)
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    max_message: Option<u64>,

    /// Connections at the same time, one for each device of each client (16)
    #[arg(long, value_name = "NUMBER")]
    max_clients: Option<usize>,

    /// What the tensors of a connection may hold; views count too (8GiB)
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    max_bytes: Option<u64>,

    /// What all tensors on a GPU may reserve (no limit)
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    max_device_memory: Option<u64>,

    /// Close connections that ask for nothing for this time, such as 90s, 30m or 24h; 0 for never
    /// (24h)
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    idle: Option<Duration>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    set_panic_hook();
    for device in &args.device {
        println!("offering {}", device.describe()?);
        if let Some(bytes) = args.max_device_memory {
            memory::set_limit(device, Some(memory::Limit::Bytes(bytes)))?;
        }
    }
    let token = token(&args)?;
    let default = Limits::default();
    let limits = Limits {
        message: args.max_message.unwrap_or(default.message),
        clients: args.max_clients.unwrap_or(default.clients),
        bytes: args.max_bytes.unwrap_or(default.bytes),
        idle: args.idle.or(default.idle).filter(|idle| !idle.is_zero()),
    };
    let rules = Rules { origins: args.allow_origin, hosts: args.allow_host };
    let devices = args.device.into_iter().map(LibTorchDevice).collect();
    let listener = TcpListener::bind(args.listen)
        .map_err(|error| format!("cannot listen on {}: {error}", args.listen))?;
    println!("listening on ws://{}", listener.local_addr()?);
    Server::new(devices, token, rules, limits).serve(listener)?;
    Ok(())
}

/// Returns the token that clients must send, and tells where it is.
fn token(args: &Args) -> Result<Option<Token>, Box<dyn Error>> {
    if args.no_token {
        println!("clients need no token: every client that reaches the server can use the devices");
        return Ok(None);
    }
    if let Some(text) = env::var_os(TOKEN_VARIABLE) {
        if args.token_file.is_some() {
            return Err(format!("{TOKEN_VARIABLE} is set: unset it to use --token-file").into());
        }
        println!("clients need the token of {TOKEN_VARIABLE}");
        let token = Token::new(text.as_encoded_bytes().trim_ascii());
        return Ok(Some(token.map_err(|error| format!("{TOKEN_VARIABLE}: {error}"))?));
    }
    let file = args.token_file.clone().or_else(default_token_file);
    let file = file.ok_or("there is no folder for settings; choose a file with --token-file")?;
    let token = Token::from_file(&file)?;
    println!("clients need the token in {}", file.display());
    Ok(Some(token))
}
