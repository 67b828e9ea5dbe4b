//! Elementwise ops on packed, broadcast and transposed operands, and on 16-bit floats.

use burn::tensor::FloatDType;
use burn::tensor::activation::{gelu, relu, sigmoid};
use burn_wgsl::kernels::elementwise::CASES;
use criterion::Criterion;

use crate::measure::{measure, measure_cases, measure_gradients, measure_op, random};

const LEN: usize = 1 << 22;
const SIDE: usize = 2048;

pub fn benches(criterion: &mut Criterion) {
    measure_cases(criterion, "elementwise", CASES);
    measure_op(criterion, "elementwise/add/2^22", LEN, [[LEN]; 2], |[a, b]| a + b);
    measure_op(criterion, "elementwise/add_scalar/2^22", LEN, [[LEN]], |[a]| a + 1.0);
    measure_op(criterion, "elementwise/greater/2^22", LEN, [[LEN]; 2], |[a, b]| a.greater(b));
    measure_op(criterion, "elementwise/relu/2^22", LEN, [[LEN]], |[a]| relu(a));
    measure_op(criterion, "elementwise/gelu/2^22", LEN, [[LEN]], |[a]| gelu(a));
    measure_op(criterion, "elementwise/sigmoid/2^22", LEN, [[LEN]], |[a]| sigmoid(a));
    measure_op(criterion, "elementwise/powf_scalar/2^22", LEN, [[LEN]], |[a]| a.powf_scalar(1.5));
    measure_gradients(criterion, "elementwise/gelu_gradient/2^22", LEN, [[LEN]], |[a]| gelu(a));
    for (name, shape) in [("add_row", [1, SIDE]), ("add_column", [SIDE, 1])] {
        let name = format!("elementwise/{name}/2048x2048");
        measure_op(criterion, &name, LEN, [[SIDE, SIDE], shape], |[a, b]| a + b);
    }
    measure_op(
        criterion,
        "elementwise/add_transposed/2048x2048",
        LEN,
        [[SIDE, SIDE]; 2],
        |[a, b]| a + b.transpose(),
    );
    measure(criterion, "elementwise/add_f16/2^22", LEN, |device| {
        let [a, b] = [0; 2].map(|_| random([LEN], device).cast(FloatDType::F16));
        move || a.clone() + b.clone()
    });
}
