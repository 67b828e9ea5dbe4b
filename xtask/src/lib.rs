//! What the project's commands share with those for the pages, which are a program of their own.

pub mod debian;
pub mod digits;
pub mod npm;
pub mod run;

/// What the program for the pages ends with where something has to be installed first.
pub const MISSING: u8 = 3;
