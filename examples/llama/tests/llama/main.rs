//! Files, tokens and models against their definitions.

mod blocks;
mod files;
mod fixture;
mod models;
mod texts;
