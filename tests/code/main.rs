//! The code itself: layers, style, shader variants, generated pages, and pages that name tests.

mod coverage;
mod layers;
mod safety;
mod style;
mod variants;
