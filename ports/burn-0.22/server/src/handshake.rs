//! Which HTTP requests may become connections. Any web page can send requests to servers on the
//! same machine: the browser names the page in `Origin`, and the address it used in `Host`.

use std::net::{Ipv4Addr, Ipv6Addr};

use tokio_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request};
use tokio_tungstenite::tungstenite::http::StatusCode;

/// What a request may name.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    /// The origins of web pages that may connect, such as `https://example.org`.
    pub origins: Vec<String>,
    /// The names by which clients may address the server, beside `localhost`.
    pub hosts: Vec<String>,
}

/// Why a request is refused.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub status: StatusCode,
    pub reason: &'static str,
}

impl Refusal {
    pub fn response(&self) -> ErrorResponse {
        let mut response = ErrorResponse::new(Some(format!("{}\n", self.reason)));
        *response.status_mut() = self.status;
        response
    }
}

impl Rules {
    /// Checks the path, the origin and the host of a request.
    pub(crate) fn check(&self, request: &Request) -> Result<(), Refusal> {
        let refused = |status, reason| Err(Refusal { status, reason });
        if *request.uri() != "/session" {
            return refused(StatusCode::NOT_FOUND, "the only path is /session");
        }
        // Burn's client sends no origin, browsers always do.
        if !headers(request, "origin").all(|origin| self.allows_origin(origin)) {
            let reason = "web pages of this origin may not connect; --allow-origin allows one";
            return refused(StatusCode::FORBIDDEN, reason);
        }
        // A page can give its own name any address. An address has no name that could change.
        let mut hosts = headers(request, "host");
        match (hosts.next(), hosts.next()) {
            (Some(host), None) if self.allows_host(host) => Ok(()),
            _ => refused(
                StatusCode::FORBIDDEN,
                "the host is neither an IP address nor localhost; --allow-host allows a name",
            ),
        }
    }

    fn allows_origin(&self, origin: &[u8]) -> bool {
        self.origins.iter().any(|allowed| allowed.as_bytes() == origin)
    }

    fn allows_host(&self, host: &[u8]) -> bool {
        let Ok(host) = str::from_utf8(host) else { return false };
        let (is_allowed, port) = match host.strip_prefix('[').and_then(|ip| ip.split_once(']')) {
            Some((ip, port)) => (ip.parse::<Ipv6Addr>().is_ok(), port),
            None => {
                let (name, port) = host.split_at(host.find(':').unwrap_or(host.len()));
                let mut names = self.hosts.iter().map(String::as_str).chain(["localhost"]);
                let is_name = names.any(|allowed| allowed.eq_ignore_ascii_case(name));
                (is_name || name.parse::<Ipv4Addr>().is_ok(), port)
            }
        };
        let is_port = |port: &str| port.parse::<u16>().is_ok();
        is_allowed && (port.is_empty() || port.strip_prefix(':').is_some_and(is_port))
    }
}

fn headers<'a>(request: &'a Request, name: &'static str) -> impl Iterator<Item = &'a [u8]> {
    request.headers().get_all(name).into_iter().map(|value| value.as_bytes())
}

/// Parses the origin of web pages: scheme, host, and port if it is not the scheme's.
///
/// # Errors
///
/// Returns an error if the text has not the form of an origin, or if it is `null`, which all local files
/// and sandboxed pages have.
pub fn parse_origin(text: &str) -> Result<String, String> {
    match text.split_once("://") {
        Some((scheme, host)) if !scheme.is_empty() && is_host(host) => Ok(text.to_owned()),
        _ => Err(format!("{text:?} is not an origin such as https://example.org:8080")),
    }
}

/// Parses the name of a host, without a port.
///
/// # Errors
///
/// Returns an error if the text is not a name.
pub fn parse_host(text: &str) -> Result<String, String> {
    match is_host(text) && !text.contains(':') {
        true => Ok(text.to_owned()),
        false => {
            Err(format!("{text:?} is not the name of a host; leave out scheme, port and path"))
        }
    }
}

fn is_host(text: &str) -> bool {
    let is_known = |c: char| c.is_ascii_alphanumeric() || "-._:[]".contains(c);
    !text.is_empty() && text.chars().all(is_known)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(rules: &Rules, path: &str, headers: &[(&'static str, &str)]) -> u16 {
        let mut request = Request::new(());
        *request.uri_mut() = path.parse().expect("a path");
        for (name, value) in headers {
            request.headers_mut().append(*name, value.parse().expect("a header"));
        }
        rules.check(&request).map_or_else(|refusal| refusal.status.as_u16(), |()| 101)
    }

    #[test]
    fn hosts_are_addresses_or_allowed_names() {
        let rules = Rules { hosts: vec!["gpu-box".to_owned()], ..Rules::default() };
        for (host, expected) in [
            ("127.0.0.1:3000", 101),
            ("127.0.0.1", 101),
            ("192.168.1.7:3000", 101),
            ("[::1]:3000", 101),
            ("[fe80::1]", 101),
            ("localhost:3000", 101),
            ("LOCALHOST", 101),
            ("gpu-box:3000", 101),
            ("gpu-box.example", 403),
            ("localhost.example:3000", 403),
            ("127.0.0.1.example:3000", 403),
            ("user@127.0.0.1", 403),
            ("127.0.0.1:3000:80", 403),
            ("127.0.0.1:", 403),
            ("::1", 403),
            ("[localhost]", 403),
            ("", 403),
        ] {
            assert_eq!(status(&rules, "/session", &[("host", host)]), expected, "{host}");
        }
        assert_eq!(status(&rules, "/session", &[]), 403);
        let twice = [("host", "127.0.0.1"), ("host", "127.0.0.1")];
        assert_eq!(status(&rules, "/session", &twice), 403);
    }

    #[test]
    fn origins_must_be_equal_to_an_allowed_one() {
        let rules = Rules { origins: vec!["https://a.example".to_owned()], ..Rules::default() };
        for (origin, expected) in [
            ("https://a.example", 101),
            ("http://a.example", 403),
            ("https://a.example:444", 403),
            ("https://a.example.b", 403),
            ("http://127.0.0.1:3000", 403),
            ("null", 403),
        ] {
            let headers = [("host", "127.0.0.1"), ("origin", origin)];
            assert_eq!(status(&rules, "/session", &headers), expected, "{origin}");
        }
    }

    #[test]
    fn other_paths_do_not_exist() {
        for path in ["/", "/data", "/session/", "/session?x", "http://127.0.0.1/session"] {
            let headers = [("host", "127.0.0.1")];
            assert_eq!(status(&Rules::default(), path, &headers), 404, "{path}");
        }
    }

    #[test]
    fn options_are_checked() {
        assert!(parse_origin("https://example.org:8080").is_ok());
        for text in ["null", "*", "example.org", "https://example.org/", "https://"] {
            assert!(parse_origin(text).is_err(), "{text}");
        }
        assert!(parse_host("gpu-box.example").is_ok());
        for text in ["", "*", "gpu:3000", "ws://gpu", "gpu/session"] {
            assert!(parse_host(text).is_err(), "{text}");
        }
    }
}
