//! The contract of Burn 0.22.

#[macro_use]
mod release;
#[path = "../../../tests/cases.rs"]
mod cases;
#[path = "../../../tests/differing.rs"]
mod differing;
#[path = "../../../tests/through/mod.rs"]
mod through;

/// The crate, under names that tests of all releases use.
mod port {
    pub use burn_tch::*;
    pub use burn_tch::{LibTorch as Port, LibTorchDevice as PortDevice};
}
