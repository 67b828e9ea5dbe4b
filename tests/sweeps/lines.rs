//! Softmax and norms over lines of every size class, few and many.

use burn_wgsl::kernels::{norm, softmax};
use burn_wgsl::tensor::DType;

use super::{Number, assert_equal, numbers, read, runtimes, upload};

/// Numbers of lines, and their lengths.
const LINES: [(usize, usize); 20] = [
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
    // Held in registers by GPU kernels, and too long for that.
    (3, 1001),
    (2, 2051),
    (2, 4096),
    (2, 8192),
    (65, 8196),
    // Reduced by several workgroups each.
    (2, 8200),
    (1, 20_001),
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
            let expected = of_lines(&elements, len, |l| {
                let sum = exponentials(l);
                l.iter().map(|x| x.exp() / sum).collect()
            });
            let result = softmax::softmax(x.clone(), 1).expect("the kernel runs");
            assert_equal(&label("softmax"), &read(result), &expected);
            let expected = of_lines(&elements, len, |l| {
                let log_sum = exponentials(l).ln();
                l.iter().map(|x| x - log_sum).collect()
            });
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

/// Returns the gradients of softmax or its logarithm in a line, from its result and the gradient.
fn softmax_gradient(out: &[f64], grad: &[f64], log: bool) -> Vec<f64> {
    let sum: f64 = out.iter().zip(grad).map(|(y, g)| if log { *g } else { y * g }).sum();
    let of = |(y, g): (&f64, &f64)| if log { g - y.exp() * sum } else { y * (g - sum) };
    out.iter().zip(grad).map(of).collect()
}

/// Returns the gradient of a norm with respect to a line, and the normalised line.
fn norm_gradient(x: &[f64], d: &[f64], center: bool, epsilon: f64) -> (Vec<f64>, Vec<f64>) {
    let mean_of = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let mean = if center { mean_of(x) } else { 0.0 };
    let squares: Vec<f64> = x.iter().map(|x| (x - mean).powi(2)).collect();
    let scale = 1.0 / (mean_of(&squares) + epsilon).sqrt();
    let h: Vec<f64> = x.iter().map(|x| (x - mean) * scale).collect();
    let d_mean = if center { mean_of(d) } else { 0.0 };
    let dh: Vec<f64> = d.iter().zip(&h).map(|(d, h)| d * h).collect();
    let dh_mean = mean_of(&dh);
    let gradient = d.iter().zip(&h).map(|(d, h)| (d - d_mean - h * dh_mean) * scale).collect();
    (gradient, h)
}

#[test]
fn gradients_of_softmax_and_norms_match_the_host_on_every_line_length() {
    const EPSILON: f64 = 1e-2;
    let floats =
        |values: &[Number]| -> Vec<f64> { values.iter().map(|x| f64::from(x.float())).collect() };
    let rounded = |values: Vec<f64>| -> Vec<Number> {
        values.into_iter().map(|x| Number::Float(x as f32)).collect()
    };
    for runtime in runtimes() {
        for (lines, len) in LINES {
            let [x_values, grad_values] =
                [21, 22].map(|seed| numbers(lines * len, DType::F32, seed));
            let gamma_values = numbers(len, DType::F32, 23);
            let matrix = |values: &[Number]| upload(&runtime, &[lines, len], DType::F32, values);
            let (x, grad) = (matrix(&x_values), matrix(&grad_values));
            let gamma = upload(&runtime, &[len], DType::F32, &gamma_values);
            let label = |op: &str| format!("{op} of [{lines}, {len}] on {}", runtime.name());
            let (x_values, grad_values) = (floats(&x_values), floats(&grad_values));
            let gamma_values = floats(&gamma_values);
            let pairs = || x_values.chunks(len).zip(grad_values.chunks(len));

            // The gradient of the logarithm subtracts a sum over the line, whose rounding grows with it.
            let logs = if len <= 8192 { &[false, true][..] } else { &[false] };
            for &log in logs {
                // Results are small, as those of softmax and its logarithm.
                let out: Vec<f64> = x_values.iter().map(|x| f64::from((x * 0.01) as f32)).collect();
                let result = matrix(&rounded(out.clone()));
                let lines = out.chunks(len).zip(grad_values.chunks(len));
                let expected = lines.flat_map(|(y, g)| softmax_gradient(y, g, log)).collect();
                let result = match log {
                    false => softmax::softmax_backward(result, grad.clone(), 1),
                    true => softmax::log_softmax_backward(result, grad.clone(), 1),
                };
                let result = read(result.expect("the kernel runs"));
                assert_equal(
                    &label(&format!("softmax_backward, log {log}")),
                    &result,
                    &rounded(expected),
                );
            }
            for center in [false, true] {
                let (mut expected, mut of_gamma, mut of_beta) =
                    (Vec::new(), vec![0.0; len], vec![0.0; len]);
                for (x, grad) in pairs() {
                    let d: Vec<f64> = grad.iter().zip(&gamma_values).map(|(g, c)| g * c).collect();
                    let (gradient, h) = norm_gradient(x, &d, center, EPSILON);
                    expected.extend(gradient);
                    for k in 0..len {
                        of_gamma[k] += grad[k] * h[k];
                        of_beta[k] += grad[k];
                    }
                }
                let (x, gamma, grad) = (x.clone(), gamma.clone(), grad.clone());
                let epsilon = EPSILON as f32;
                let (result, gamma_grad, beta_grad) = match center {
                    true => norm::layer_norm_backward(x, gamma, grad, epsilon)
                        .map(|(x, gamma, beta)| (x, gamma, Some(beta))),
                    false => norm::rms_norm_backward(x, gamma, grad, epsilon)
                        .map(|(x, gamma)| (x, gamma, None)),
                }
                .expect("the kernel runs");
                let label = |part: &str| label(&format!("norm_backward {part}, center {center}"));
                assert_equal(&label("x"), &read(result), &rounded(expected));
                assert_equal(&label("gamma"), &read(gamma_grad), &rounded(of_gamma));
                if let Some(beta_grad) = beta_grad {
                    assert_equal(&label("beta"), &read(beta_grad), &rounded(of_beta));
                }
            }
        }
    }
}

/// What one element of a line is replaced by, in tests of softmax.
const REPLACEMENTS: [f32; 5] = [90.0, 1e30, f32::NEG_INFINITY, f32::INFINITY, f32::NAN];

/// Members of a team that hold their line find maxima of their own, which may be far apart.
#[test]
fn softmax_follows_a_maximum_that_one_member_holds() {
    for runtime in runtimes() {
        for len in [33, 516, 8192] {
            // One line for each replacement and place, and a line of -inf.
            let places = [0, len / 3, len - 1];
            let replaced = REPLACEMENTS.iter().flat_map(|x| places.map(|place| (*x, place)));
            let line = |(x, place)| {
                let mut line = numbers(len, DType::F32, 31);
                line[place] = Number::Float(x);
                line
            };
            let mut elements: Vec<Number> = replaced.flat_map(line).collect();
            elements.extend(std::iter::repeat_n(Number::Float(f32::NEG_INFINITY), len));
            let lines = elements.len() / len;
            let x = upload(&runtime, &[lines, len], DType::F32, &elements);
            let label = |op: &str| format!("{op} of {len} on {}", runtime.name());
            let shifted = |l: &[f64]| -> (Vec<f64>, f64) {
                let max = l.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let shifted: Vec<f64> = l.iter().map(|x| x - max).collect();
                let sum = shifted.iter().map(|x| x.exp()).sum();
                (shifted, sum)
            };
            let expected = of_lines(&elements, len, |l| {
                let (shifted, sum) = shifted(l);
                shifted.into_iter().map(|x| x.exp() / sum).collect()
            });
            let result = softmax::softmax(x.clone(), 1).expect("the kernel runs");
            assert_equal(&label("softmax"), &read(result), &expected);
            let expected = of_lines(&elements, len, |l| {
                let (shifted, sum) = shifted(l);
                shifted.into_iter().map(|x| x - sum.ln()).collect()
            });
            let result = softmax::log_softmax(x, 1).expect("the kernel runs");
            assert_equal(&label("log_softmax"), &read(result), &expected);
        }
    }
}
