//! A server for the built pages on this machine.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::bundle::{self, Kind};
use crate::places::dist;

pub struct Options {
    port: u16,
    build: bool,
}

impl Options {
    pub fn parse(words: &[&str]) -> Option<Self> {
        let mut options = Self { port: 8000, build: true };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match *word {
                "--port" => options.port = words.next()?.parse().ok()?,
                "--no-build" => options.build = false,
                _ => return None,
            }
        }
        Some(options)
    }
}

pub fn run(options: &Options) -> Result<()> {
    let folder = if options.build { bundle::build(Kind::Pages)? } else { dist() };
    if !folder.join("index.html").exists() {
        bail!("{} has no pages yet: leave out --no-build", folder.display());
    }
    let server = listen(options.port)?;
    println!("    http://{}/  (Ctrl-C ends it)", server.local_addr()?);
    answer(&server, &folder);
    Ok(())
}

/// A server of this machine alone: browsers allow WebGPU there without https. Port 0 takes a free one.
pub fn listen(port: u16) -> Result<TcpListener> {
    TcpListener::bind(("127.0.0.1", port)).with_context(|| format!("port {port} cannot be had"))
}

/// Answers for ever. Each connection has a thread and one request: browsers keep more of them open than small servers have threads.
pub fn answer(server: &TcpListener, folder: &Path) {
    for connection in server.incoming().flatten() {
        let folder = folder.to_path_buf();
        // A browser that goes away in the middle is nothing to report.
        std::thread::spawn(move || drop(respond(connection, &folder)));
    }
}

fn respond(mut connection: TcpStream, folder: &Path) -> std::io::Result<()> {
    let mut lines = BufReader::new(connection.try_clone()?).lines();
    let request = lines.next().transpose()?.unwrap_or_default();
    // The rest of the request says nothing that matters here, but must be read.
    for line in lines {
        if line?.is_empty() {
            break;
        }
    }
    let file = request.split(' ').nth(1).and_then(|url| place(folder, url));
    let (status, kind, bytes) = match file.as_ref().map(std::fs::read) {
        Some(Ok(bytes)) => {
            ("200 OK", content_type(file.as_deref().unwrap_or(Path::new(""))), bytes)
        }
        _ => ("404 Not Found", "text/plain", b"not found".to_vec()),
    };
    let len = bytes.len();
    let common = "Cache-Control: no-cache\r\nConnection: close";
    write!(
        connection,
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len}\r\n{common}\r\n\r\n"
    )?;
    connection.write_all(&bytes)
}

/// The file that an address names, if it is inside of the folder.
fn place(folder: &Path, url: &str) -> Option<PathBuf> {
    let path = url.split(['?', '#']).next()?.trim_start_matches('/');
    let path = if path.is_empty() { "index.html" } else { path };
    let inside = Path::new(path).components().all(|part| matches!(part, Component::Normal(_)));
    inside.then(|| folder.join(path)).filter(|file| file.is_file())
}

fn content_type(file: &Path) -> &'static str {
    match file.extension().and_then(|extension| extension.to_str()) {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("wasm") => "application/wasm",
        Some("svg") => "image/svg+xml",
        Some("json") => "application/json",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_outside_of_the_folder_is_served() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        assert_eq!(place(folder, "/Cargo.toml?x=1"), Some(folder.join("Cargo.toml")));
        for outside in
            ["/../Cargo.toml", "//etc/passwd", "/src/../../Cargo.toml", "/src", "/none.html"]
        {
            assert_eq!(place(folder, outside), None, "{outside}");
        }
    }
}
