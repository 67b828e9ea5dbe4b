//! What a device does: launches, memory, transfers, failures. The tests observe the device, change its settings or
//! break it. Thus they run one at a time (`serial_guard`), but for those in a process of their own.

#[path = "../common/mod.rs"]
mod common;

#[cfg(feature = "train")]
mod advice;
#[cfg(feature = "train")]
mod batch_size;
mod bytes;
mod debug;
mod dispatch;
mod events;
mod faults;
mod fusion;
mod indices;
mod lines;
mod lost;
mod memory;
mod planted;
mod profile;
mod recording;
mod refusals;
mod stalls;
mod threads;
mod transfers;
mod tuning;
#[cfg(feature = "train")]
mod workers;
