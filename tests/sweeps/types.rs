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
