//! The contract of Burn 0.23.

use burn_flex as port;

#[macro_use]
mod release;
mod added;
#[path = "../../../tests/batch_norm.rs"]
mod batch_norm;
#[path = "../../../tests/cases.rs"]
mod cases;
#[path = "../../../tests/through/mod.rs"]
mod through;
