//! Kernels with a variant for each element type: products of integers, conversions between 16-bit
//! floats, and random integers.

use burn_wgsl::kernels::random::{self, PhiloxStream, Sampler};
use burn_wgsl::kernels::{cast, matmul};
use burn_wgsl::tensor::DType;

use super::{Number, assert_equal, numbers, read, runtimes, types, upload};

#[test]
fn integer_products_match_the_host_in_every_type() {
    let (m, k, n) = (5, 7, 6);
    for runtime in runtimes() {
        for dtype in types(&runtime).filter(|dtype| dtype.is_integer()) {
            let (a, b) = (numbers(m * k, dtype, 1), numbers(k * n, dtype, 2));
            let element = |index: usize| {
                let (row, column) = (index / n, index % n);
                let product = |i: usize| a[row * k + i].int().wrapping_mul(b[i * n + column].int());
                (0..k).fold(Number::Int(0), |sum, i| {
                    Number::Int(sum.int().wrapping_add(product(i))).wrapped(dtype)
                })
            };
            let expected: Vec<Number> = (0..m * n).map(element).collect();
            let (a, b) =
                (upload(&runtime, &[m, k], dtype, &a), upload(&runtime, &[k, n], dtype, &b));
            let result = matmul::matmul(a, b).expect("the kernel runs");
            assert_equal(&format!("product in {dtype:?}"), &read(result), &expected);
        }
    }
}

/// Products of 16-bit floats are f32. These have small integers as elements, so that they are exact.
#[test]
fn small_products_of_half_types_match_the_host() {
    let (m, k) = (20, 12);
    let element = |index: usize, step: usize| (index * step % 17) as f32 - 8.0;
    for runtime in runtimes() {
        for (dtype, n) in [(DType::F16, 16), (DType::F16, 24), (DType::BF16, 16), (DType::BF16, 24)]
        {
            let matrix = |rows: usize, columns: usize, step: usize| {
                let values: Vec<Number> =
                    (0..rows * columns).map(|i| Number::Float(element(i, step))).collect();
                let matrix = upload(&runtime, &[rows, columns], DType::F32, &values);
                let half = cast::cast(matrix, dtype).expect("the kernel runs");
                // Elements that are computed later would be part of the product.
                half.buffer().expect("the kernel runs");
                half
            };
            let (a, b) = (matrix(m, k, 5), matrix(k, n, 7));
            let expected = (0..m * n).map(|at| {
                let products =
                    (0..k).map(|i| element(at / n * k + i, 5) * element(i * n + at % n, 7));
                Number::Float(products.sum())
            });
            let result = matmul::matmul(a, b).expect("the kernel runs");
            let label = format!("product in {dtype:?} with {n} columns");
            assert_equal(&label, &read(result), &expected.collect::<Vec<_>>());
        }
    }
}

#[test]
fn half_types_convert_to_each_other_as_through_f32() {
    for runtime in runtimes() {
        let values = numbers(75, DType::F32, 3);
        for (from, to) in [(DType::F16, DType::BF16), (DType::BF16, DType::F16)] {
            let x = upload(&runtime, &[75], DType::F32, &values);
            let convert = |tensor, dtype| cast::cast(tensor, dtype).expect("the kernel runs");
            let stored = convert(x, from);
            let through_f32 = convert(convert(stored.clone(), DType::F32), to);
            let expected = read(convert(through_f32, DType::F32));
            let values = read(convert(convert(stored, to), DType::F32));
            assert_equal(&format!("{from:?} to {to:?}"), &values, &expected);
        }
    }
}

#[test]
fn random_integers_match_the_host() {
    for runtime in runtimes() {
        for sampler in
            [Sampler::Bernoulli { probability: 0.3 }, Sampler::Ints { low: -3, width: 10 }]
        {
            let stream = PhiloxStream::new(5);
            let result = random::fill(&runtime, &[1001], sampler, DType::I32, stream);
            let expected = random::integers(1001, sampler, PhiloxStream::new(5));
            let expected: Vec<Number> =
                expected.into_iter().map(|x| Number::Int(x.into())).collect();
            let values = read(result.expect("the kernel runs"));
            assert_equal("random integers", &values, &expected);
        }
    }
}
