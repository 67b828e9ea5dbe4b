//! Every way to combine updates in every type, with few and with many updates of a location.

use burn_wgsl::kernels::ops::options::ScatterOp;
use burn_wgsl::kernels::scatter_nd::scatter_nd;
use burn_wgsl::tensor::DType;

use super::{Number, assert_equal, numbers, read, runtimes, types, upload};

const OPS: [ScatterOp; 5] =
    [ScatterOp::Assign, ScatterOp::Add, ScatterOp::Mul, ScatterOp::Min, ScatterOp::Max];

/// Returns an element combined with an update.
fn combine(op: ScatterOp, a: Number, b: Number, dtype: DType) -> Number {
    let number = match (op, a, b) {
        (ScatterOp::Assign, _, b) => return b,
        (ScatterOp::Add, Number::Int(a), Number::Int(b)) if dtype == DType::Bool => {
            Number::Int(a | b)
        }
        (ScatterOp::Add, Number::Float(a), Number::Float(b)) => return Number::Float(a + b),
        (ScatterOp::Mul, Number::Float(a), Number::Float(b)) => return Number::Float(a * b),
        (ScatterOp::Min, Number::Float(a), Number::Float(b)) => return Number::Float(a.min(b)),
        (ScatterOp::Max, Number::Float(a), Number::Float(b)) => return Number::Float(a.max(b)),
        (ScatterOp::Add, a, b) => Number::Int(a.int() + b.int()),
        (ScatterOp::Mul, a, b) => Number::Int(a.int().wrapping_mul(b.int())),
        (ScatterOp::Min, a, b) => Number::Int(a.int().min(b.int())),
        (ScatterOp::Max, a, b) => Number::Int(a.int().max(b.int())),
    };
    number.wrapped(dtype)
}

#[test]
fn updates_are_combined_as_on_the_host_in_every_type() {
    for runtime in runtimes() {
        for dtype in types(&runtime) {
            // One, two and three levels.
            for updates in [20, 300, 5000] {
                let locations = 3;
                let mut expected = numbers(locations * 2, dtype, 5);
                let tensor = upload(&runtime, &[locations, 2], dtype, &expected);
                let values = numbers(updates * 2, dtype, 6);
                let indices: Vec<Number> =
                    (0..updates).map(|n| Number::Int((n * n % locations) as i128)).collect();
                let first = expected.clone();
                for op in OPS {
                    if dtype == DType::Bool && op != ScatterOp::Add {
                        continue;
                    }
                    expected.clone_from(&first);
                    for (update, index) in indices.iter().enumerate() {
                        for part in 0..2 {
                            let place = &mut expected[index.int() as usize * 2 + part];
                            *place = combine(op, *place, values[update * 2 + part], dtype);
                        }
                    }
                    let result = scatter_nd(
                        tensor.clone(),
                        upload(&runtime, &[updates, 1], DType::I32, &indices),
                        upload(&runtime, &[updates, 2], dtype, &values),
                        op,
                    );
                    let label = format!("{op:?} of {updates} updates in {dtype:?}");
                    let values = read(result.expect("the kernel runs"));
                    match (op, dtype) {
                        // The sum of many floats of both signs is small.
                        (ScatterOp::Add, DType::F32) => {
                            for (value, expected) in values.iter().zip(&expected) {
                                let error = (value.float() - expected.float()).abs();
                                assert!(error < 1e-3, "{label}: {value:?}, expected {expected:?}");
                            }
                        }
                        _ => assert_equal(&label, &values, &expected),
                    }
                }
            }
        }
    }
}
