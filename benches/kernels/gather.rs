//! Gather, select and embeddings.

use burn::tensor::module::embedding;
use burn_wgsl::kernels::gather::CASES;
use criterion::Criterion;

use crate::measure::{measure, measure_cases, random, random_indices};

const ROWS: usize = 4096;
const WIDTH: usize = 512;
const VOCABULARY: usize = 32_000;
/// Shape of the token indices, `[batch, sequence]`.
const TOKENS: [usize; 2] = [8, 256];

pub fn benches(criterion: &mut Criterion) {
    measure_cases(criterion, "gather", CASES);
    measure(criterion, "gather/gather/4096x512", ROWS * WIDTH, |device| {
        let (x, indices) =
            (random([ROWS, WIDTH], device), random_indices(WIDTH, [ROWS, WIDTH], device));
        move || x.clone().gather(1, indices.clone())
    });
    measure(criterion, "gather/select/4096x512", ROWS * WIDTH, |device| {
        let (x, indices) = (random([ROWS, WIDTH], device), random_indices(ROWS, [ROWS], device));
        move || x.clone().select(0, indices.clone())
    });
    let elements = TOKENS[0] * TOKENS[1] * WIDTH;
    measure(criterion, "gather/embedding/32000x512-8x256", elements, |device| {
        let (weights, tokens) =
            (random([VOCABULARY, WIDTH], device), random_indices(VOCABULARY, TOKENS, device));
        move || embedding(weights.clone(), tokens.clone())
    });
}
