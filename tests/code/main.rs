//! The code itself: layers, style, shader variants, and pages that are generated or name tests.

mod coverage;
mod layers;
mod safety;
mod style;
mod variants;
