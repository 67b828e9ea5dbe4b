//! This package has tests only.
