//! Softmax and norms over lines of every size class, few and many.

use burn_wgsl::kernels::{norm, softmax};
use burn_wgsl::tensor::DType;

use super::{Number, assert_equal, numbers, read, runtimes, upload};

/// Numbers of lines, and their lengths.
const LINES: [(usize, usize); 13] = [
    (3, 4),
    (3, 7),
    (3, 16),
    (3, 13),
    (3, 33),
    (3, 101),
    (3, 200),
    (2, 2001),
    (2, 2048),
    (300, 17),
    (300, 20),
    (300, 33),
    (300, 36),
];

/// Returns the results of `f` for each line.
fn of_lines(elements: &[Number], len: usize, f: impl Fn(&[f64]) -> Vec<f64>) -> Vec<Number> {
    let line = |line: &[Number]| {
        let line: Vec<f64> = line.iter().map(|x| x.float().into()).collect();
        f(&line).into_iter().map(|x| Number::Float(x as f32)).collect::<Vec<_>>()
    };
    elements.chunks(len).flat_map(line).collect()
}

#[test]
fn softmax_and_norms_match_the_host_on_every_line_length() {
    const EPSILON: f64 = 1e-5;
    for runtime in runtimes() {
        for (lines, len) in LINES {
            let elements = numbers(lines * len, DType::F32, 11);
            let x = upload(&runtime, &[lines, len], DType::F32, &elements);
            let [gamma_values, beta_values] = [12, 13].map(|seed| numbers(len, DType::F32, seed));
            let vector = |values: &[Number]| upload(&runtime, &[len], DType::F32, values);
            let (gamma, beta) = (vector(&gamma_values), vector(&beta_values));
            let label = |op: &str| format!("{op} of [{lines}, {len}] on {}", runtime.name());

            let exponentials = |line: &[f64]| line.iter().map(|x| x.exp()).sum::<f64>();
            let expected =
                of_lines(&elements, len, |l| l.iter().map(|x| x.exp() / exponentials(l)).collect());
            let result = softmax::softmax(x.clone(), 1).expect("the kernel runs");
            assert_equal(&label("softmax"), &read(result), &expected);
            let expected =
                of_lines(&elements, len, |l| l.iter().map(|x| x - exponentials(l).ln()).collect());
            let result = softmax::log_softmax(x.clone(), 1).expect("the kernel runs");
            assert_equal(&label("log_softmax"), &read(result), &expected);

            let scaled = |l: &[f64], center: bool| -> Vec<f64> {
                let mean = if center { l.iter().sum::<f64>() / len as f64 } else { 0.0 };
                let squares = l.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / len as f64;
                let factor = 1.0 / (squares + EPSILON).sqrt();
                let normalised = l.iter().map(|x| (x - mean) * factor);
                let parameters = gamma_values.iter().zip(&beta_values);
                let affine = |(x, (gamma, beta)): (f64, (&Number, &Number))| {
                    let beta = if center { f64::from(beta.float()) } else { 0.0 };
                    x * f64::from(gamma.float()) + beta
                };
                normalised.zip(parameters).map(affine).collect()
            };
            let expected = of_lines(&elements, len, |line| scaled(line, false));
            let result = norm::rms_norm(x.clone(), gamma.clone(), EPSILON as f32);
            assert_equal(&label("rms_norm"), &read(result.expect("the kernel runs")), &expected);
            let expected = of_lines(&elements, len, |line| scaled(line, true));
            let result = norm::layer_norm(x, gamma, Some(beta), EPSILON as f32);
            assert_equal(&label("layer_norm"), &read(result.expect("the kernel runs")), &expected);
        }
    }
}
