//! Layer norm and its gradients, and RMS norm.

use burn::tensor::backend::Backend;
use burn::tensor::{Tensor, TensorPrimitive};
use burn_wgsl::Wgsl;
use burn_wgsl::kernels::norm::CASES;
use criterion::Criterion;

use crate::measure::{measure, measure_cases, random, tracked};

const ROWS: usize = 4096;
const WIDTH: usize = 1024;
const EPSILON: f64 = 1e-5;

pub fn benches(criterion: &mut Criterion) {
    measure_cases(criterion, "norm", CASES);
    measure(criterion, "norm/layer_norm/4096x1024", ROWS * WIDTH, |device| {
        let (x, [gamma, beta]) =
            (random([ROWS, WIDTH], device), [0; 2].map(|_| random([WIDTH], device)));
        move || layer_norm(x.clone(), gamma.clone(), beta.clone())
    });
    measure(criterion, "norm/layer_norm_gradients/4096x1024", ROWS * WIDTH, |device| {
        let (x, [gamma, beta]) =
            (tracked([ROWS, WIDTH], device), [0; 2].map(|_| tracked([WIDTH], device)));
        move || layer_norm(x.clone(), gamma.clone(), beta.clone()).sum().backward()
    });
    measure(criterion, "norm/rms_norm/4096x1024", ROWS * WIDTH, |device| {
        let x = random([ROWS, WIDTH], device).into_primitive().tensor();
        let gamma = random([WIDTH], device).into_primitive().tensor();
        move || Wgsl::rms_norm(x.clone(), gamma.clone(), EPSILON)
    });
}

/// Calls the backend directly, because Burn exposes layer norm only as a module.
fn layer_norm<B: Backend>(
    x: Tensor<B, 2>,
    gamma: Tensor<B, 1>,
    beta: Tensor<B, 1>,
) -> Tensor<B, 2> {
    let [gamma, beta] = [gamma, beta].map(|tensor| tensor.into_primitive().tensor());
    let out = B::layer_norm(x.into_primitive().tensor(), gamma, Some(beta), EPSILON);
    Tensor::from_primitive(TensorPrimitive::Float(out))
}
