//! Attention: full sequences, causal masking, one query with many keys, and gradients.

use burn::tensor::module::attention;
use burn::tensor::ops::AttentionModuleOptions;
use burn_wgsl::kernels::attention::CASES;
use criterion::Criterion;

use crate::measure::{measure_cases, measure_gradients, measure_op};

pub fn benches(criterion: &mut Criterion) {
    measure_cases(criterion, "attention", CASES);
    let causal = AttentionModuleOptions { is_causal: true, ..Default::default() };
    for (name, queries, keys, options) in [
        ("attention/4x8x256x64", 256, 256, Default::default()),
        ("attention/causal/4x8x256x64", 256, 256, causal),
        ("attention/one_query/4x8x2048x64", 1, 2048, Default::default()),
    ] {
        let shapes = [[4, 8, queries, 64], [4, 8, keys, 64], [4, 8, keys, 64]];
        measure_op(criterion, name, flops(queries, keys), shapes, |[query, key, value]| {
            attention(query, key, value, None, None, options)
        });
    }
    // The backward pass has twice as many matrix products as the forward pass.
    let name = "attention/gradients/4x8x128x64";
    measure_gradients(
        criterion,
        name,
        3 * flops(128, 128),
        [[4, 8, 128, 64]; 3],
        |[query, key, value]| attention(query, key, value, None, None, causal),
    );
}

/// Counts the operations of two matrix products per head, for a batch of 4 with 8 heads of width
/// 64.
fn flops(queries: usize, keys: usize) -> usize {
    2 * 2 * 4 * 8 * queries * keys * 64
}
