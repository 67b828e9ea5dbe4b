//! The contract of Burn 0.23.

#[macro_use]
mod release;
mod added;
#[path = "../../../tests/cases.rs"]
mod cases;
#[path = "../../../tests/through/mod.rs"]
mod through;

/// The crate, under names that tests of all releases use.
mod port {
    pub use burn_flex::*;
    pub use burn_flex::{Flex as Port, PortDevice};
}
