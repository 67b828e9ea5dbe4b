//! Scatter, select-add and the gradient of embeddings.

use burn::tensor::module::embedding;
use burn::tensor::{IndexingUpdateOp, Tensor};
use burn_wgsl::kernels::scatter::CASES;
use criterion::Criterion;

use crate::measure::{measure, measure_cases, random, random_indices, tracked};

const ROWS: usize = 4096;
const WIDTH: usize = 512;
const VOCABULARY: usize = 32_000;
/// Shape of the token indices, `[batch, sequence]`.
const TOKENS: [usize; 2] = [8, 256];

pub fn benches(criterion: &mut Criterion) {
    measure_cases(criterion, "scatter", CASES);
    measure(criterion, "scatter/scatter_add/4096x512", ROWS * WIDTH, |device| {
        let (x, indices) =
            (random([ROWS, WIDTH], device), random_indices(WIDTH, [ROWS, WIDTH], device));
        move || x.clone().scatter(1, indices.clone(), x.clone(), IndexingUpdateOp::Add)
    });
    measure(criterion, "scatter/select_add/4096x512", ROWS * WIDTH, |device| {
        let (x, indices) = (random([ROWS, WIDTH], device), random_indices(ROWS, [ROWS], device));
        move || x.clone().select_assign(0, indices.clone(), x.clone(), IndexingUpdateOp::Add)
    });
    let elements = TOKENS[0] * TOKENS[1] * WIDTH;
    measure(criterion, "scatter/embedding_gradient/32000x512-8x256", elements, |device| {
        let (weights, tokens) = (
            tracked([VOCABULARY, WIDTH], device),
            Tensor::from_inner(random_indices(VOCABULARY, TOKENS, device)),
        );
        move || embedding(weights.clone(), tokens.clone()).sum().backward()
    });
}
