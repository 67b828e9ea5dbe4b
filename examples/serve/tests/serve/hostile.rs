use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::server::{self, Server, program};

/// Checks that the server still works.
fn assert_works(server: &Server) {
    let answer = server.post("/v1/classify", "image/png", &server::picture(1));
    assert_eq!(answer.status, 200, "{answer:?}");
    let body = json!({ "prompt": "the", "max_tokens": 2 });
    assert_eq!(server.post_json("/v1/completions", &body).status, 200);
    assert_eq!(server.get("/health").status, 200);
}

#[test]
fn wrong_requests_have_clear_answers() {
    let server = Server::start(&["--body", "20000", "--context", "32"]);
    let text = |body: Value, status: u16, part: &str| {
        let answer = server.post_json("/v1/completions", &body);
        assert_eq!(answer.status, status, "{answer:?}");
        assert!(answer.message().contains(part), "{answer:?}");
    };
    text(json!({ "prompt": 5 }), 400, "a list of texts");
    text(json!({ "messages": [] }), 400, "prompt");
    text(json!([1, 2]), 400, "");
    text(json!({ "prompt": "" }), 400, "no tokens");
    text(json!({ "prompt": ["a", "b"] }), 400, "2 prompts");
    text(json!({ "prompt": "xyz ".repeat(40) }), 400, "there may be 32");
    text(json!({ "prompt": "x".repeat(30_000) }), 413, "20000 bytes");
    text(json!({ "prompt": "x", "max_tokens": 0 }), 400, "max_tokens");
    text(json!({ "prompt": "x", "max_tokens": -1 }), 400, "-1");
    text(json!({ "prompt": "x", "temperature": -1 }), 400, "temperature");
    text(json!({ "prompt": "x", "temperature": 1e39 }), 400, "temperature");
    text(json!({ "prompt": "x", "top_p": 0 }), 400, "top_p");
    text(json!({ "prompt": "x", "stop": [""] }), 400, "stop");
    text(json!({ "prompt": "x", "n": 3 }), 400, "n is not 1");
    text(json!({ "prompt": "x", "logprobs": 3 }), 400, "logprobs");
    let format = json!({ "type": "json_object" });
    text(json!({ "prompt": "x", "response_format": format }), 400, "response_format");
    text(json!({ "prompt": "x", "model": "other" }), 404, "\"small\"");
    let chat = server.post_json("/v1/chat/completions", &json!({ "messages": [] }));
    assert_eq!(chat.status, 400, "{chat:?}");
    let message = json!({ "messages": [{ "role": "judge", "content": "x" }] });
    let chat = server.post_json("/v1/chat/completions", &message);
    assert!(chat.status == 400 && chat.message().contains("judge"), "{chat:?}");

    let post = |kind: &str, body: &[u8]| server.post("/v1/completions", kind, body).status;
    assert_eq!(post("application/json", b"{\"prompt\": \"\xff\xfe\"}"), 400);
    assert_eq!(post("application/json", b"{\"prompt\": "), 400);
    assert_eq!(post("application/json", "[".repeat(10_000).as_bytes()), 400);
    assert_eq!(post("text/plain", b"{\"prompt\": \"x\"}"), 400);
    // What looks like a control token is text.
    let body = json!({ "prompt": "<|im_start|>", "max_tokens": 1 });
    let tokens =
        server.post_json("/v1/completions", &body).json()["usage"]["prompt_tokens"].clone();
    assert!(tokens.as_u64().expect("a number") > 1, "{tokens}");

    let picture = |bytes: &[u8]| server.post("/v1/classify", "image/png", bytes);
    assert_eq!(picture(b"no picture").status, 400);
    assert_eq!(picture(b"").status, 400);
    let whole = server::picture(3);
    for len in (0..whole.len() - 12).step_by(7) {
        assert_eq!(picture(&whole[..len]).status, 400, "{len} bytes");
    }
    // A few bytes that say that there are 10^10 pixels.
    let mut huge = whole.clone();
    huge[16..24].copy_from_slice(&[0, 1, 0x86, 0xa0, 0, 1, 0x86, 0xa0]);
    assert_eq!(picture(&huge).status, 400);
    assert_eq!(picture(&vec![0; 30_000]).status, 413);

    assert_eq!(server.get("/none").status, 404);
    let method = server.get("/v1/completions");
    assert!(method.status == 405 && method.message().contains("method"), "{method:?}");
    assert_eq!(server.get("/v1/models/other").status, 404);
    assert_eq!(server.exchange(b"no HTTP at all\r\n\r\n").status, 400);
    assert_works(&server);
}

#[test]
fn silent_and_slow_connections_are_closed() {
    let server = Server::start(&["--silence", "1", "--timeout", "2", "--connections", "200"]);
    let start = Instant::now();
    let silent: Vec<TcpStream> = (0..1000).map(|_| server.connect()).collect();
    // Five times as many as there is room for: each group is closed after a second.
    assert_works(&server);
    for mut stream in silent {
        let mut bytes = Vec::new();
        // The end, or a reset.
        let _ = stream.read_to_end(&mut bytes);
        assert!(bytes.is_empty() || bytes.starts_with(b"HTTP/1.1 408"), "{bytes:?}");
    }
    assert!(start.elapsed() < Duration::from_secs(50));

    // A head that does not end, and a body that does not.
    let mut head = server.connect();
    head.write_all(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\n").expect("it is connected");
    let mut body = server.connect();
    let start = server::head("/v1/completions", "application/json", 100) + "{";
    body.write_all(start.as_bytes()).expect("it is connected");
    assert_eq!(server::answer(body).status, 408);
    assert!(matches!(server::answer(head).status, 0 | 408));
    assert_works(&server);
}

#[test]
fn clients_that_read_nothing_are_left() {
    let server = Server::start(&["--silence", "1", "--connections", "4"]);
    let requests = "GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n".repeat(3000);
    let clients: Vec<TcpStream> = (0..4)
        .map(|_| {
            let mut client = server.connect();
            client.set_nonblocking(true).expect("it is a socket");
            // As many as there is room for.
            let _ = client.write(requests.as_bytes());
            client
        })
        .collect();
    // All places are taken, until the server has waited for a second.
    assert_works(&server);
    drop(clients);
}

#[test]
fn texts_of_clients_that_go_away_end() {
    let server = Server::start(&["--sequences", "2", "--context", "256"]);
    for is_stream in [true, false] {
        let clients: Vec<TcpStream> = (0..6)
            .map(|number| {
                let prompt = format!("the {number}");
                let body = json!({ "prompt": prompt, "max_tokens": 250, "stream": is_stream });
                let body = body.to_string();
                let head = server::head("/v1/completions", "application/json", body.len());
                let mut client = server.connect();
                client.write_all((head + &body).as_bytes()).expect("it is connected");
                client
            })
            .collect();
        server.wait_for("serve_texts", "2");
        drop(clients);
        server.wait_for("serve_texts", "0");
        server.wait_for(r#"serve_waiting{model="text"}"#, "0");
        // Some may have ended before.
        let metrics = server.get("/metrics").body;
        let left =
            metrics.lines().find_map(|l| l.strip_prefix(r#"serve_ended_texts_total{end="left"} "#));
        assert!(left.is_some_and(|left| left != "0"), "{metrics}");
    }
    assert_works(&server);
}

#[test]
fn a_full_queue_refuses_requests() {
    let server = Server::start(&["--sequences", "1", "--queue", "1", "--context", "256"]);
    let body = json!({ "prompt": "the", "max_tokens": 250, "temperature": 0 });
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let clients: Vec<_> =
            (0..8).map(|_| scope.spawn(|| server.post_json("/v1/completions", &body))).collect();
        let answers = clients.into_iter().map(|client| client.join().expect("it is answered"));
        let answers = answers.inspect(|answer| {
            let waits = answer.head.contains("retry-after: 1");
            assert_eq!(waits, answer.status == 429, "{answer:?}");
        });
        answers.map(|answer| answer.status).collect()
    });
    assert!(statuses.iter().all(|status| [200, 429].contains(status)), "{statuses:?}");
    assert!(statuses.contains(&200) && statuses.contains(&429), "{statuses:?}");
    assert_works(&server);
}

#[test]
fn a_server_without_models_or_with_wrong_files_says_why() {
    let error = |args: &[&str]| {
        let output = program(args).output().expect("it starts");
        assert!(!output.status.success());
        String::from_utf8(output.stderr).expect("it is text")
    };
    let http = ["http", "--device", "cpu", "--listen", "127.0.0.1:0"];
    let none = error(&http);
    assert!(none.contains("--digits"), "{none}");
    let missing = error(&[&http[..], &["--digits", "none.mpk"]].concat());
    assert!(missing.contains("none.mpk"), "{missing}");
    let missing = error(&[&http[..], &["--text", "none.gguf"]].concat());
    assert!(missing.contains("none.gguf"), "{missing}");
    let other = server::FILES.path("digits.mpk");
    let other = error(&[&http[..], &["--text", other.to_str().expect("it is text")]].concat());
    assert!(other.contains("digits.mpk"), "{other}");
    let address = error(&["http", "--device", "cpu", "--digits", "x", "--listen", "1.2.3.4:80"]);
    assert!(address.contains("1.2.3.4:80"), "{address}");
}
