//! Every scan in every type, over lines that are split and that are not.

use burn_wgsl::kernels::scan::{ScanOp, scan};
use burn_wgsl::tensor::DType;

use super::{Number, numbers, read, runtimes, types, upload};

/// Returns an element combined with the next one.
fn combine(op: ScanOp, a: Number, b: Number, dtype: DType) -> Number {
    match (op, a, b) {
        (ScanOp::Sum, Number::Float(a), Number::Float(b)) => Number::Float(a + b),
        (ScanOp::Prod, Number::Float(a), Number::Float(b)) => Number::Float(a * b),
        (ScanOp::Max, Number::Float(a), Number::Float(b)) => Number::Float(a.max(b)),
        (ScanOp::Min, Number::Float(a), Number::Float(b)) => Number::Float(a.min(b)),
        (ScanOp::Sum, a, b) => Number::Int(a.int() + b.int()).wrapped(dtype),
        (ScanOp::Prod, a, b) => Number::Int(a.int().wrapping_mul(b.int())).wrapped(dtype),
        (ScanOp::Max, a, b) => Number::Int(a.int().max(b.int())),
        (ScanOp::Min, a, b) => Number::Int(a.int().min(b.int())),
    }
}

#[test]
fn scans_match_the_host_in_every_type() {
    for runtime in runtimes() {
        for dtype in types(&runtime).filter(|&dtype| dtype != DType::Bool) {
            for len in [9, 600, 1024, 9000] {
                let elements = numbers(2 * len, dtype, 3);
                let tensor = upload(&runtime, &[2, len], dtype, &elements);
                for op in [ScanOp::Sum, ScanOp::Prod, ScanOp::Max, ScanOp::Min] {
                    let mut expected = elements.clone();
                    for line in expected.chunks_mut(len) {
                        for index in 1..len {
                            line[index] = combine(op, line[index - 1], line[index], dtype);
                        }
                    }
                    let result = scan(op, tensor.clone(), 1).expect("the kernel runs");
                    let label = format!("{op:?} of {dtype:?} [2, {len}] on {}", runtime.name());
                    // The sum of many floats of both signs is small: compare with its error bound.
                    let close = |(value, expected): (&Number, &Number)| match op {
                        ScanOp::Sum if dtype == DType::F32 => {
                            (value.float() - expected.float()).abs() < 1e-3
                        }
                        _ => value.is_close(*expected),
                    };
                    let values = read(result);
                    let wrong = values.iter().zip(&expected).position(|pair| !close(pair));
                    assert_eq!(wrong, None, "{label}: the first wrong element");
                }
            }
        }
    }
}
