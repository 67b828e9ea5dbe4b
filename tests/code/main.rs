//! The code itself: its public API, layers, style, shader variants, generated pages, links of pages, pages that name
//! tests, and codes of symptoms.

mod api;
mod coverage;
mod layers;
mod pages;
mod safety;
mod style;
mod symptoms;
mod variants;
