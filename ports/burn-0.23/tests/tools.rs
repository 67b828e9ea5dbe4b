//! burn-wgsl's own functions, from a program for Burn 0.23.

use burn_flex as port;

/// Calls a macro with the name that the backend has in this release.
macro_rules! with_backend_name {
    ($macro:ident) => {
        $macro!(Flex);
    };
}
use with_backend_name;

#[path = "../../tests/tools.rs"]
mod tools;
