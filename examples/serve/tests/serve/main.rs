//! The server as its clients see it: answers, bad input, load, and the end.

#[allow(dead_code, reason = "the tests of llama use the rest")]
#[path = "../../../llama/tests/llama/fixture.rs"]
mod fixture;

mod answers;
mod hostile;
mod server;
mod threads;
