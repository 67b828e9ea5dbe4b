//! The threads of the models, when the device is lost.

use std::sync::Arc;
use std::time::Duration;

use burn_wgsl::WgslDevice;
use burn_wgsl::generate::Sampling;
use burn_wgsl::serve::{JoinConfig, PaddedSizes};
use llama::linear::Form;
use serve::classifier::Classify;
use serve::device::SharedDevice;
use serve::http::Status;
use serve::models::{self, Sizes};
use serve::writer::{self, Event, Write};
use tokio::sync::mpsc::{Receiver, channel};
use tokio::sync::oneshot;

use crate::server::{self, FILES};

const JOIN: JoinConfig = JoinConfig { batch: 4, wait: Duration::ZERO, waiting: 64 };

/// A software adapter, or the CPU.
fn device() -> WgslDevice {
    match WgslDevice::Software.resolve() {
        Ok(_) => WgslDevice::Software,
        Err(_) => WgslDevice::Cpu,
    }
}

fn sizes() -> Sizes {
    Sizes {
        pictures: PaddedSizes::up_to(JOIN.batch),
        texts: writer::Sizes { sequences: 3, capacity: 128 },
        form: Form::Stored,
    }
}

/// Returns the tokens of a text, and calls `at` after each.
fn tokens(mut events: Receiver<Event>, mut at: impl FnMut(usize)) -> Vec<u32> {
    let mut tokens = Vec::new();
    loop {
        match events.blocking_recv().expect("the text ends before its events") {
            Event::Token(token) => tokens.push(token),
            Event::End(_) => return tokens,
            Event::Failed(failure) => panic!("{failure}"),
        }
        at(tokens.len());
    }
}

/// Writes five texts in three places, and loses the device after so many tokens of the first.
fn texts(lose_at: Option<usize>) -> Vec<Vec<u32>> {
    let device = device();
    let status = Arc::new(Status::new(1));
    let (model, thread) = models::start_text(
        &FILES.path("small.gguf"),
        &SharedDevice::new(device),
        sizes(),
        JOIN,
        &status,
    )
    .expect("it is right");
    let begin = |number: usize| {
        let limit = 20 + 10 * number;
        let (sender, events) = channel(limit + 1);
        let prompt = model.tokens.prompt(&format!("the other {number}")).expect("it has tokens");
        // Random choices, too, go on as if nothing had happened.
        let temperature = if number.is_multiple_of(2) { 0.0 } else { 0.8 };
        let sampling = Sampling { temperature, ..Sampling::GREEDY };
        let write = Write { prompt, limit, sampling, seed: number as u64, events: sender };
        model.requests.send(write).expect("there is room");
        events
    };
    let texts: Vec<Receiver<Event>> = (0..5).map(begin).collect();
    let found = texts.into_iter().enumerate().map(|(number, events)| {
        tokens(events, |count| {
            if number == 0 && lose_at == Some(count) {
                burn_wgsl::close(&device).expect("the device exists");
            }
        })
    });
    let found: Vec<Vec<u32>> = found.collect();
    model.requests.close();
    thread.join().expect("it ends").expect("the device works");
    assert_eq!(lose_at.is_some(), status.metrics.reopened.get() > 0);
    found
}

#[test]
fn texts_go_on_after_the_device_is_lost() {
    let expected = texts(None);
    assert!(expected.iter().all(|tokens| !tokens.is_empty()));
    // The CPU cannot be lost.
    if device() == WgslDevice::Cpu {
        return;
    }
    assert_eq!(texts(Some(7)), expected);
}

#[test]
fn pictures_are_classified_after_the_device_is_lost() {
    let device = device();
    let status = Arc::new(Status::new(1));
    let (requests, thread) = models::start_classifier(
        &FILES.path("digits.mpk"),
        &SharedDevice::new(device),
        sizes(),
        JOIN,
        &status,
    )
    .expect("a thread is started");
    let picture = serve::picture::decode(&server::picture(2)).expect("it is a picture");
    let classify = || {
        let (reply, answer) = oneshot::channel();
        let request = Classify { picture: picture.clone(), reply };
        requests.send(request).unwrap_or_else(|_| panic!("there is room"));
        answer.blocking_recv().expect("it is answered").expect("the device works")
    };
    let before = classify();
    if device != WgslDevice::Cpu {
        burn_wgsl::close(&device).expect("the device exists");
    }
    assert_eq!(classify(), before);
    drop(requests);
    thread.join().expect("it ends").expect("the device works");
}

/// The thread that loads its model first must not lose the device of the other.
#[test]
fn models_of_one_device_are_loaded_again_once() {
    let device = device();
    let shared = SharedDevice::new(device);
    let status = Arc::new(Status::new(2));
    let files = [FILES.path("digits.mpk"), FILES.path("small.gguf")];
    let (pictures, classifier) =
        models::start_classifier(&files[0], &shared, sizes(), JOIN, &status).expect("it starts");
    let (text, writer) =
        models::start_text(&files[1], &shared, sizes(), JOIN, &status).expect("it starts");
    let picture = serve::picture::decode(&server::picture(2)).expect("it is a picture");
    let answer = || {
        let (reply, answer) = oneshot::channel();
        let request = Classify { picture: picture.clone(), reply };
        pictures.send(request).unwrap_or_else(|_| panic!("there is room"));
        let (sender, events) = channel(9);
        let prompt = text.tokens.prompt("the other").expect("it has tokens");
        let sampling = Sampling::GREEDY;
        let write = Write { prompt, limit: 8, sampling, seed: 0, events: sender };
        text.requests.send(write).expect("there is room");
        let probabilities = answer.blocking_recv().expect("it is answered").expect("it works");
        (probabilities, tokens(events, |_| ()))
    };
    let before = answer();
    if device != WgslDevice::Cpu {
        burn_wgsl::close(&device).expect("the device exists");
    }
    for _ in 0..5 {
        assert_eq!(answer(), before);
    }
    assert!(status.metrics.reopened.get() <= 2, "{}", status.metrics.reopened.get());
    drop((pictures, text));
    classifier.join().expect("it ends").expect("the device works");
    writer.join().expect("it ends").expect("the device works");
}
