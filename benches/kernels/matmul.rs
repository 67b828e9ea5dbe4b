//! Matrix products: square, thin, batched, with a transposed operand, with 16-bit floats; linear
//! layers and their gradients.

use burn::tensor::FloatDType;
use burn::tensor::module::linear;
use burn_wgsl::kernels::matmul::CASES;
use criterion::Criterion;

use crate::measure::{measure, measure_cases, measure_op, random, tracked};

pub fn benches(criterion: &mut Criterion) {
    measure_cases(criterion, "matmul", CASES);
    for n in [256, 512, 1024, 2048] {
        measure_op(criterion, &format!("matmul/{n}"), flops(n, n, n), [[n, n]; 2], |[a, b]| {
            a.matmul(b)
        });
    }
    for (m, k, n) in [(8, 4096, 4096), (4096, 4096, 8), (64, 1 << 16, 64), (4096, 64, 1024)] {
        let name = format!("matmul/{m}x{k}x{n}");
        measure_op(criterion, &name, flops(m, k, n), [[m, k], [k, n]], |[a, b]| a.matmul(b));
    }
    let batch = [64, 128, 128];
    measure_op(
        criterion,
        "matmul/64x128x128x128",
        64 * flops(128, 128, 128),
        [batch; 2],
        |[a, b]| a.matmul(b),
    );
    let square = [1024, 1024];
    let throughput = flops(1024, 1024, 1024);
    measure_op(criterion, "matmul/left_transposed/1024", throughput, [square; 2], |[a, b]| {
        a.transpose().matmul(b)
    });
    measure_op(criterion, "matmul/right_transposed/1024", throughput, [square; 2], |[a, b]| {
        a.matmul(b.transpose())
    });
    for (name, dtype) in [("f16", FloatDType::F16), ("bf16", FloatDType::BF16)] {
        measure(criterion, &format!("matmul/{name}/1024"), throughput, |device| {
            let [a, b] = [0; 2].map(|_| random(square, device).cast(dtype));
            move || a.clone().matmul(b.clone())
        });
    }

    let throughput = flops(2048, 512, 512);
    measure(criterion, "matmul/linear/2048x512x512", throughput, |device| {
        let (x, weight, bias) =
            (random([2048, 512], device), random([512, 512], device), random([512], device));
        move || linear(x.clone(), weight.clone(), Some(bias.clone()))
    });
    measure(criterion, "matmul/linear_gradients/2048x512x512", 3 * throughput, |device| {
        let (x, weight, bias) =
            (tracked([2048, 512], device), tracked([512, 512], device), tracked([512], device));
        move || linear(x.clone(), weight.clone(), Some(bias.clone())).sum().backward()
    });
}

/// Counts the operations of a product of `[m, k]` and `[k, n]`.
fn flops(m: usize, k: usize, n: usize) -> usize {
    2 * m * k * n
}
