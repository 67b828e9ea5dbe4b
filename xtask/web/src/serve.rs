//! Serves the built pages on localhost.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::bundle::{self, BuildKind};

/// The options of `cargo xtask serve`.
pub struct Options {
    port: u16,
    build: bool,
}

impl Options {
    /// Parses the arguments; `None` if they are invalid.
    pub fn parse(args: &[&str]) -> Option<Self> {
        let mut options = Self { port: 8000, build: true };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            match *arg {
                "--port" => options.port = args.next()?.parse().ok()?,
                "--no-build" => options.build = false,
                _ => return None,
            }
        }
        Some(options)
    }
}

/// Builds the pages, unless the options forbid it, and serves them until the process ends.
pub fn run(options: &Options) -> Result<()> {
    let kind = BuildKind::Release;
    let folder = if options.build { bundle::build(kind)? } else { kind.folder() };
    if !folder.join("index.html").exists() {
        bail!("no pages in {}; run `cargo xtask serve` without --no-build", folder.display());
    }
    let server = listen(options.port)?;
    println!("    serving http://{}/  (press Ctrl-C to stop)", server.local_addr()?);
    serve_folder(&server, &folder);
    Ok(())
}

/// Listens on localhost, where browsers allow WebGPU without https. Port 0 means any free port.
pub fn listen(port: u16) -> Result<TcpListener> {
    TcpListener::bind(("127.0.0.1", port)).with_context(|| format!("cannot listen on port {port}"))
}

/// Serves the files of a folder, without returning.
///
/// Each connection has its own thread and serves one request. A fixed number of threads could all
/// be blocked, because browsers keep many connections open.
pub fn serve_folder(server: &TcpListener, folder: &Path) {
    for connection in server.incoming().flatten() {
        let folder = folder.to_path_buf();
        // Errors are ignored: the browser may close the connection at any time.
        std::thread::spawn(move || drop(respond(connection, &folder)));
    }
}

/// Answers one HTTP request.
fn respond(mut connection: TcpStream, folder: &Path) -> std::io::Result<()> {
    let mut lines = BufReader::new(connection.try_clone()?).lines();
    let request = lines.next().transpose()?.unwrap_or_default();
    // Skip the headers.
    for line in lines {
        if line?.is_empty() {
            break;
        }
    }
    let file = request.split(' ').nth(1).and_then(|url| resolve_url(folder, url));
    let (status, content_type, bytes) = match file.as_ref().map(std::fs::read) {
        Some(Ok(bytes)) => {
            ("200 OK", content_type_of(file.as_deref().unwrap_or(Path::new(""))), bytes)
        }
        _ => ("404 Not Found", "text/plain", b"not found".to_vec()),
    };
    let len = bytes.len();
    let common_headers = "Cache-Control: no-cache\r\nConnection: close";
    write!(
        connection,
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len}\r\n\
         {common_headers}\r\n\r\n"
    )?;
    connection.write_all(&bytes)
}

/// Returns the file of a URL, or `None` if there is no such file inside the folder.
fn resolve_url(folder: &Path, url: &str) -> Option<PathBuf> {
    let path = url.split(['?', '#']).next()?.trim_start_matches('/');
    let path = if path.is_empty() { "index.html" } else { path };
    let inside = Path::new(path).components().all(|part| matches!(part, Component::Normal(_)));
    inside.then(|| folder.join(path)).filter(|file| file.is_file())
}

/// Returns the content type of a file, by its extension.
fn content_type_of(file: &Path) -> &'static str {
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
    fn urls_outside_the_folder_are_rejected() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        assert_eq!(resolve_url(folder, "/Cargo.toml?x=1"), Some(folder.join("Cargo.toml")));
        for url in ["/../Cargo.toml", "//etc/passwd", "/src/../../Cargo.toml", "/src", "/none.html"]
        {
            assert_eq!(resolve_url(folder, url), None, "{url}");
        }
    }
}
