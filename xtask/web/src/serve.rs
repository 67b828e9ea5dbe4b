//! A server for the built pages on this machine.

use std::fs::File;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use anyhow::{Result, anyhow, bail};
use tiny_http::{Header, Request, Response, Server};

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
    println!("    http://{}/  (Ctrl-C ends it)", server.server_addr());
    answer(&server, &folder);
    Ok(())
}

/// A server of this machine alone: browsers allow WebGPU on localhost without https. Port 0 takes a free one.
pub fn listen(port: u16) -> Result<Arc<Server>> {
    let server = Server::http(("localhost", port)).map_err(|error| anyhow!("port {port} cannot be had: {error}"))?;
    Ok(Arc::new(server))
}

/// Answers until the server is told to stop. Each request has a thread: a browser may take its time to read, or stop reading.
pub fn answer(server: &Server, folder: &Path) {
    for request in server.incoming_requests() {
        let folder = folder.to_path_buf();
        // A browser that goes away in the middle is nothing to report.
        std::thread::spawn(move || drop(respond(request, &folder)));
    }
}

fn respond(request: Request, folder: &Path) -> std::io::Result<()> {
    let file = place(folder, request.url());
    match file.as_ref().and_then(|file| File::open(file).ok()) {
        Some(open) => {
            let kind = content_type(file.as_deref().unwrap_or(Path::new("")));
            let header = |name: &str, value: &str| Header::from_bytes(name, value).ok();
            let headers = [header("Content-Type", kind), header("Cache-Control", "no-cache")];
            let mut response = Response::from_file(open);
            for header in headers.into_iter().flatten() {
                response.add_header(header);
            }
            request.respond(response)
        }
        None => request.respond(Response::from_string("not found").with_status_code(404)),
    }
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
        for outside in ["/../Cargo.toml", "//etc/passwd", "/src/../../Cargo.toml", "/src", "/none.html"] {
            assert_eq!(place(folder, outside), None, "{outside}");
        }
    }
}
