//! Crates around Burn 0.21 that the other tests do not use. burn-train is in the example `learner`, burn-vision in the
//! tests of the crate.

mod exchange;
mod replay;
