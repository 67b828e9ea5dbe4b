//! Softmax, log-softmax and their gradients.

use burn::tensor::activation::{log_softmax, softmax};
use burn_wgsl::kernels::softmax::CASES;
use criterion::Criterion;

use crate::measure::{measure_cases, measure_gradients, measure_op};

const SHAPE: [usize; 2] = [4096, 1024];
const LEN: usize = 4096 * 1024;

pub fn benches(criterion: &mut Criterion) {
    measure_cases(criterion, "softmax", CASES);
    measure_op(criterion, "softmax/4096x1024", LEN, [SHAPE], |[x]| softmax(x, 1));
    measure_op(criterion, "softmax/columns/4096x1024", LEN, [SHAPE], |[x]| softmax(x, 0));
    // The size of a language model's vocabulary.
    measure_op(criterion, "softmax/128x32000", 128 * 32_000, [[128, 32_000]], |[x]| softmax(x, 1));
    measure_op(criterion, "softmax/log/4096x1024", LEN, [SHAPE], |[x]| log_softmax(x, 1));
    measure_gradients(criterion, "softmax/gradient/4096x1024", LEN, [SHAPE], |[x]| softmax(x, 1));
    measure_gradients(criterion, "softmax/log_gradient/4096x1024", LEN, [SHAPE], |[x]| {
        log_softmax(x, 1)
    });
}
