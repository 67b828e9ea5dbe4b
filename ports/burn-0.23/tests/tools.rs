//! burn-wgsl's own functions, from a program for Burn 0.23.

/// Calls a macro with the name that the backend has in this release.
macro_rules! backend_of_release {
    ($macro:ident) => {
        $macro!(Flex);
    };
}
use backend_of_release;

#[path = "../../tests/tools.rs"]
mod tools;

/// The crate, under names that tests of all releases use.
mod port {
    pub use burn_flex::*;
    pub use burn_flex::{Flex as Port, FlexTensor as Tensor};
}
