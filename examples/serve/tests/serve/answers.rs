use std::io::Read;
use std::io::Write;
use std::time::Duration;

use burn_wgsl::generate::{Sampler, Sampling};
use burn_wgsl::serve::PaddedSizes;
use burn_wgsl::{Wgsl, WgslDevice};
use llama::gguf::Gguf;
use llama::linear::Form;
use llama::model::Llama;
use llama::text;
use llama::tokenizer::Tokens;
use serde_json::{Value, json};
use serve::classifier::Classifier;
use serve::picture;

use crate::server::{self, FILES, Server, program};

/// Returns the text of the model alone, of at most so many tokens, and their number.
fn text_alone(prompt: &str, limit: usize) -> (String, usize) {
    let mut file = Gguf::open(&FILES.path("small.gguf")).expect("it is right");
    let tokens = Tokens::read(file.header()).expect("they are right");
    let model: Llama<Wgsl> =
        Llama::load(&mut file, 256, Form::F32, &WgslDevice::Cpu).expect("it is right");
    let mut cache = model.cache(1, 256);
    let mut sampler = Sampler::new(Sampling::GREEDY, 0);
    let prompt = tokens.prompt(prompt).expect("it has tokens");
    let (mut stream, mut out, mut count) = (tokens.stream(), String::new(), 0);
    text::write(&model, &mut cache, &prompt, limit, &mut sampler, |token| {
        let goes_on = !tokens.is_end(token);
        if goes_on {
            out += &stream.push(token);
            count += 1;
        }
        goes_on
    })
    .expect("there is room");
    (out + &stream.finish(), count)
}

fn prompt(number: usize) -> String {
    "the other theme ".repeat(1 + number % 5) + &number.to_string()
}

#[test]
fn joined_texts_are_those_of_texts_alone() {
    // Fewer places than texts, and more than one.
    let server = Server::start(&["--sequences", "3", "--context", "256"]);
    std::thread::scope(|scope| {
        for number in 0..10 {
            let server = &server;
            scope.spawn(move || {
                let limit = 5 + 3 * number;
                let body =
                    json!({ "prompt": prompt(number), "max_tokens": limit, "temperature": 0 });
                let answer = server.post_json("/v1/completions", &body);
                assert_eq!(answer.status, 200, "{answer:?}");
                let answer = answer.json();
                let (expected, count) = text_alone(&prompt(number), limit);
                assert_eq!(answer["choices"][0]["text"], *expected, "{number}");
                assert_eq!(answer["usage"]["completion_tokens"], count);
                let finish = if count < limit { "stop" } else { "length" };
                assert_eq!(answer["choices"][0]["finish_reason"], finish);
            });
        }
    });
    server.wait_for("serve_texts", "0");
}

#[test]
fn joined_pictures_have_the_probabilities_of_pictures_alone() {
    let server = Server::start(&["--batch", "5", "--wait", "20"]);
    let sizes = PaddedSizes::up_to(1);
    let alone = Classifier::open(&FILES.path("digits.mpk"), WgslDevice::Cpu, sizes);
    let alone = alone.expect("it is right");
    std::thread::scope(|scope| {
        for client in 0..8 {
            let (server, alone) = (&server, &alone);
            scope.spawn(move || {
                for seed in (0..40).skip(client).step_by(8) {
                    let bytes = server::picture(seed);
                    let answer = server.post("/v1/classify", "image/png", &bytes);
                    assert_eq!(answer.status, 200, "{answer:?}");
                    let decoded = picture::decode(&bytes).expect("it is a picture");
                    let expected = alone.classify(&[&decoded]).expect("the device works");
                    let found = &answer.json()["probabilities"];
                    for (digit, expected) in expected[0].iter().enumerate() {
                        let found = found[digit].as_f64().expect("a number");
                        assert!((found - f64::from(*expected)).abs() < 1e-5, "{seed}");
                    }
                }
            });
        }
    });
    let metrics = server.get("/metrics").body;
    let counted = r#"serve_requests_total{path="/v1/classify",status="200"} 40"#;
    assert!(metrics.lines().any(|line| line == counted), "{metrics}");
    // They were joined: there were fewer batches than pictures.
    let batches = metrics.lines().find_map(|line| line.strip_prefix("serve_batch_size_count "));
    let batches: u32 = batches.expect("it is counted").parse().expect("a number");
    assert!((8..40).contains(&batches), "{batches}");
}

#[test]
fn streams_are_the_parts_of_whole_answers() {
    let server = Server::start(&["--context", "256"]);
    let mut body = json!({ "prompt": "the", "max_tokens": 30, "temperature": 0 });
    let whole = server.post_json("/v1/completions", &body).json();
    body["stream"] = json!(true);
    let stream = server.post_json("/v1/completions", &body);
    assert!(stream.head.contains("text/event-stream"), "{}", stream.head);
    let mut events = stream.events();
    assert_eq!(events.pop().as_deref(), Some("[DONE]"));
    let events: Vec<Value> =
        events.iter().map(|event| serde_json::from_str(event).expect("it is JSON")).collect();
    let parts: String =
        events.iter().map(|event| event["choices"][0]["text"].as_str().expect("a text")).collect();
    assert_eq!(whole["choices"][0]["text"], *parts);
    let last = &events.last().expect("there is one")["choices"][0];
    assert_eq!(last["finish_reason"], whole["choices"][0]["finish_reason"]);

    let messages = json!([{ "role": "user", "content": "the other" }]);
    let mut body = json!({ "messages": messages, "max_tokens": 20, "seed": 5, "temperature": 0.9 });
    let whole = server.post_json("/v1/chat/completions", &body).json();
    assert_eq!(whole["object"], "chat.completion");
    let message = &whole["choices"][0]["message"];
    assert_eq!(message["role"], "assistant");
    body["stream"] = json!(true);
    let mut events = server.post_json("/v1/chat/completions", &body).events();
    assert_eq!(events.pop().as_deref(), Some("[DONE]"));
    let events: Vec<Value> =
        events.iter().map(|event| serde_json::from_str(event).expect("it is JSON")).collect();
    assert_eq!(events[0]["choices"][0]["delta"]["role"], "assistant");
    let delta = |event: &Value| {
        event["choices"][0]["delta"]["content"].as_str().map_or(String::new(), str::to_owned)
    };
    // Equal seeds lead to equal answers.
    assert_eq!(message["content"], *events.iter().map(delta).collect::<String>());
    let models = server.get("/v1/models").json();
    assert_eq!(models["data"][0]["id"], "small");
    assert_eq!(server.get("/v1/models/small").json(), models["data"][0]);
}

/// What OpenAI's clients send.
#[test]
fn requests_may_have_nulls_parts_and_newer_names() {
    let server = Server::start(&["--context", "256"]);
    let ask = |body: &Value| {
        let answer = server.post_json("/v1/chat/completions", body);
        assert_eq!(answer.status, 200, "{answer:?}");
        answer
    };
    let plain = json!({
        "messages": [{ "role": "system", "content": "the way" }, { "role": "user", "content": "the other" }],
        "max_tokens": 5,
        "seed": -1,
    });
    let parts = json!([{ "type": "text", "text": "the " }, { "type": "text", "text": "other" }]);
    let mut other = json!({
        "messages": [{ "role": "developer", "content": "the way" }, { "role": "user", "content": parts }],
        "max_completion_tokens": 5,
        "seed": -1,
        "temperature": null,
        "stop": null,
        "stream": null,
        "tools": [],
        "response_format": { "type": "text" },
    });
    let expected = ask(&plain).json()["choices"].clone();
    assert_eq!(ask(&other).json()["choices"], expected);
    other["stream"] = json!(true);
    other["stream_options"] = json!({ "include_usage": true });
    let events = ask(&other).events();
    let usage: Value = serde_json::from_str(&events[events.len() - 2]).expect("it is JSON");
    assert_eq!((&usage["choices"], &usage["usage"]["completion_tokens"]), (&json!([]), &json!(5)));
}

#[test]
fn a_text_ends_before_what_ends_it() {
    let server = Server::start(&["--context", "256"]);
    let ask = |stop: Value| {
        let body = json!({ "prompt": "the", "max_tokens": 30, "temperature": 0, "stop": stop });
        server.post_json("/v1/completions", &body).json()["choices"][0].clone()
    };
    let whole = ask(Value::Null);
    let whole = whole["text"].as_str().expect("a text");
    let letters: Vec<char> = whole.chars().collect();
    // A piece from the middle, of several tokens.
    let stop: String = letters[letters.len() / 2..][..4].iter().collect();
    let expected = &whole[..whole.find(&stop).expect("it is a part")];
    let choice = ask(json!(["none of this", stop]));
    assert_eq!((&choice["text"], &choice["finish_reason"]), (&json!(expected), &json!("stop")));
    server.wait_for("serve_texts", "0");
    server.wait_for(r#"serve_ended_texts_total{end="left"}"#, "1");
}

#[cfg(unix)]
#[test]
fn what_was_accepted_is_answered_after_a_signal() {
    let mut server = Server::start(&["--sequences", "1", "--context", "256"]);
    let body = json!({ "prompt": "the", "max_tokens": 200, "temperature": 0, "stream": true });
    let body = body.to_string();
    let request = server::head("/v1/completions", "application/json", body.len()) + &body;
    // One that is being written, and one that waits.
    let streams = [(); 2].map(|()| {
        let mut stream = server.connect();
        stream.write_all(request.as_bytes()).expect("it is connected");
        stream
    });
    let mut first = [0; 1];
    let mut running = &streams[0];
    running.read_exact(&mut first).expect("it is answered");
    server.terminate();
    while !server.refuses() {
        std::thread::sleep(Duration::from_millis(5));
    }
    for stream in streams {
        let answer = server::answer(stream);
        assert_eq!(answer.events().last().map(String::as_str), Some("[DONE]"), "{answer:?}");
    }
    assert!(server.ended());
}

#[test]
fn files_are_answered_with_a_line_each() {
    let folder = tempfile::tempdir().expect("it is created");
    let file = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).expect("it is written");
        path.to_str().expect("it is text").to_owned()
    };
    let pictures = [0, 1, 2].map(|seed| file(&format!("{seed}.png"), &server::picture(seed)));
    let broken = file("broken.png", b"no picture");
    let model = FILES.path("digits.mpk");
    let model = model.to_str().expect("it is text");
    let run = |args: &[&str]| {
        let mut command = program(&["predict", "--device", "cpu"]);
        let output = command.args(args).output().expect("it starts");
        let text = String::from_utf8(output.stdout).expect("it is text");
        let lines = text.lines().map(|line| serde_json::from_str(line).expect("it is JSON"));
        (output.status.success(), lines.collect::<Vec<Value>>())
    };
    let [first, second, third] = &pictures;
    let (succeeded, lines) = run(&["--digits", model, "--batch", "2", first, second, third]);
    assert!(succeeded && lines.len() == 3);
    assert!(lines.iter().zip(&pictures).all(|(line, file)| line["file"] == **file));
    assert!(lines.iter().all(|line| line["label"].is_u64()), "{lines:?}");
    let (succeeded, lines) = run(&["--digits", model, first, &broken, third]);
    assert!(!succeeded && lines[1]["error"].is_string() && lines[2]["label"].is_u64());

    let text = FILES.path("small.gguf");
    let prompts = file("prompts.txt", "the\nthe other\n".as_bytes());
    let text = text.to_str().expect("it is text");
    let (succeeded, lines) = run(&["--text", text, "--tokens", "9", "--context", "256", &prompts]);
    assert!(succeeded, "{lines:?}");
    assert_eq!(lines[1]["text"], *text_alone("the other", 9).0);
    assert_eq!((&lines[1]["line"], &lines[1]["prompt"]), (&json!(2), &json!("the other")));
}
