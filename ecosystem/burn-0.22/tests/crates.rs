//! Crates around Burn 0.22.

#[path = "../../tests/files.rs"]
mod files;
#[path = "../../tests/replay.rs"]
mod replay;
#[path = "../../tests/training.rs"]
mod training;
