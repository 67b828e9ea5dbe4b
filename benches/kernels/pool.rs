//! Pooling and its gradients.

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use burn::tensor::module::{adaptive_avg_pool2d, avg_pool2d, max_pool2d};
use burn_wgsl::kernels::pool::CASES;
use criterion::Criterion;

use crate::measure::{measure_cases, measure_gradients, measure_op};

const X: [usize; 4] = [8, 64, 56, 56];

pub fn benches(criterion: &mut Criterion) {
    measure_cases(criterion, "pool", CASES);
    let elements = X.iter().product();
    measure_op(criterion, "pool/max/8x64x56x56-3x3-stride2", elements, [X], max);
    measure_gradients(criterion, "pool/max_gradient/8x64x56x56-3x3-stride2", elements, [X], max);
    measure_op(criterion, "pool/avg/8x64x56x56-2x2", elements, [X], avg);
    measure_gradients(criterion, "pool/avg_gradient/8x64x56x56-2x2", elements, [X], avg);
    for side in [7, 1] {
        let name = format!("pool/adaptive_avg/8x64x56x56-{side}x{side}");
        measure_op(criterion, &name, elements, [X], |[x]| adaptive_avg_pool2d(x, [side; 2]));
    }
    measure_gradients(
        criterion,
        "pool/adaptive_avg_gradient/8x64x56x56-1x1",
        elements,
        [X],
        |[x]| adaptive_avg_pool2d(x, [1; 2]),
    );
}

fn max<B: Backend>([x]: [Tensor<B, 4>; 1]) -> Tensor<B, 4> {
    max_pool2d(x, [3; 2], [2; 2], [1; 2], [1; 2], false)
}

fn avg<B: Backend>([x]: [Tensor<B, 4>; 1]) -> Tensor<B, 4> {
    avg_pool2d(x, [2; 2], [2; 2], [0; 2], false, false)
}
