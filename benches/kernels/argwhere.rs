//! The locations of the true elements of a mask.

use criterion::Criterion;

use crate::measure::{measure, random};

const SIDE: usize = 1024;

pub fn benches(criterion: &mut Criterion) {
    measure(criterion, "argwhere/1024x1024", SIDE * SIDE, |device| {
        let mask = random([SIDE, SIDE], device).greater_elem(0.0);
        move || mask.clone().argwhere()
    });
}
