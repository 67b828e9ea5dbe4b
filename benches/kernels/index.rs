//! Reading and adding by one index: gather, scatter, rows by number, embeddings and their gradient.

use burn::tensor::module::embedding;
use burn::tensor::{IndexingUpdateOp, Tensor};
use burn_wgsl::kernels::index::CASES;
use criterion::Criterion;

use crate::measure::{indices, measure, random, tracked, walk};

const ROWS: usize = 4096;
const WIDTH: usize = 512;
const WORDS: usize = 32_000;
/// A batch of sentences.
const TEXT: [usize; 2] = [8, 256];

pub fn benches(criterion: &mut Criterion) {
    walk(criterion, "index", CASES);
    measure(criterion, "index/gather/4096x512", ROWS * WIDTH, |device| {
        let (x, places) = (random([ROWS, WIDTH], device), indices(WIDTH, [ROWS, WIDTH], device));
        move || x.clone().gather(1, places.clone())
    });
    measure(criterion, "index/scatter_add/4096x512", ROWS * WIDTH, |device| {
        let (x, places) = (random([ROWS, WIDTH], device), indices(WIDTH, [ROWS, WIDTH], device));
        move || x.clone().scatter(1, places.clone(), x.clone(), IndexingUpdateOp::Add)
    });
    measure(criterion, "index/select/4096x512", ROWS * WIDTH, |device| {
        let (x, places) = (random([ROWS, WIDTH], device), indices(ROWS, [ROWS], device));
        move || x.clone().select(0, places.clone())
    });
    measure(criterion, "index/select_add/4096x512", ROWS * WIDTH, |device| {
        let (x, places) = (random([ROWS, WIDTH], device), indices(ROWS, [ROWS], device));
        move || x.clone().select_assign(0, places.clone(), x.clone(), IndexingUpdateOp::Add)
    });
    let read = TEXT[0] * TEXT[1] * WIDTH;
    measure(criterion, "index/embedding/32000x512-8x256", read, |device| {
        let (weights, text) = (random([WORDS, WIDTH], device), indices(WORDS, TEXT, device));
        move || embedding(weights.clone(), text.clone())
    });
    measure(criterion, "index/embedding_gradient/32000x512-8x256", read, |device| {
        let (weights, text) =
            (tracked([WORDS, WIDTH], device), Tensor::from_inner(indices(WORDS, TEXT, device)));
        move || embedding(weights.clone(), text.clone()).sum().backward()
    });
}
