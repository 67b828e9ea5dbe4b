//! The contract of Burn 0.22.

use burn_tch as port;

#[macro_use]
mod release;
#[path = "../../../tests/batch_norm.rs"]
mod batch_norm;
#[path = "../../../tests/cases.rs"]
mod cases;
#[path = "../../../tests/differing.rs"]
mod differing;
#[path = "../../../tests/through/mod.rs"]
mod through;
