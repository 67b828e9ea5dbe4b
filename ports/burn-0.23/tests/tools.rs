//! burn-wgsl's own functions, from a program for Burn 0.23.

use burn_flex as port;

/// Calls a macro with the name that the backend has in this release.
macro_rules! backend_of_release {
    ($macro:ident) => {
        $macro!(Flex);
    };
}
use backend_of_release;

#[path = "../../tests/tools.rs"]
mod tools;
