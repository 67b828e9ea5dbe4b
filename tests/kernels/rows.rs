//! Softmax, its logarithm, norms and gradients along rows of the lengths at which teams, and what they hold in
//! registers, change.

use burn::tensor::activation::{log_softmax, softmax};
use burn::tensor::{Tensor, TensorData, TensorPrimitive};
use burn_backend::TensorMetadata;
use burn_backend::ops::{FloatTensorOps, ModuleOps};
use burn_wgsl::{Wgsl, WgslDevice, WgslTensor};

use crate::common::devices;

/// Around the ends of teams of 8, 32, 128 and 256, of scalars and of vectors.
const LENGTHS: [usize; 15] =
    [31, 67, 68, 129, 513, 516, 1025, 2049, 2052, 4097, 4100, 8192, 8193, 8196, 16_388];

/// Rows of numbers between -4 and 4. Long rows are so many that a workgroup computes each.
fn rows(len: usize, seed: usize, device: &WgslDevice) -> (Vec<f64>, Tensor<Wgsl, 2>) {
    let count = if len > 8192 { 65 } else { 3 };
    let number = |i: usize| ((i + seed).wrapping_mul(7919) % 1009) as f32 / 126.0 - 4.0;
    let numbers: Vec<f32> = (0..count * len).map(number).collect();
    let exact = numbers.iter().map(|x| f64::from(*x)).collect();
    (exact, Tensor::from_data(TensorData::new(numbers, [count, len]), device))
}

/// Checks each row against a function of its numbers and those of another tensor.
fn check(
    what: &str,
    found: Tensor<Wgsl, 2>,
    inputs: [&[f64]; 2],
    expected: impl Fn(&[f64], &[f64]) -> Vec<f64>,
) {
    let [count, len] = found.dims();
    let found: Vec<f64> = found.into_data().iter::<f64>().collect();
    for row in 0..count {
        let range = row * len..(row + 1) * len;
        let expected = expected(&inputs[0][range.clone()], &inputs[1][range.clone()]);
        let largest = expected.iter().fold(0.0, |largest: f64, x| largest.max(x.abs()));
        for (k, (found, expected)) in found[range].iter().zip(&expected).enumerate() {
            // Sums of many numbers are rounded more.
            let tolerance = 1e-5 * (len as f64 / 8192.0).max(1.0);
            let is_close = (found - expected).abs() <= tolerance * largest;
            assert!(is_close, "{what} of {len}: ({row}, {k}) is {found}, expected {expected}");
        }
    }
}

fn tensor(primitive: WgslTensor) -> Tensor<Wgsl, 2> {
    Tensor::from_primitive(TensorPrimitive::Float(primitive))
}

fn softmax_of(x: &[f64]) -> Vec<f64> {
    let sum: f64 = x.iter().map(|x| x.exp()).sum();
    x.iter().map(|x| x.exp() / sum).collect()
}

#[test]
fn rows_of_every_length_are_right() {
    for device in devices() {
        for len in LENGTHS {
            let (x, of_x) = rows(len, 0, &device);
            let (g, of_g) = rows(len, 500, &device);
            let both = [x.as_slice(), g.as_slice()];
            let g_primitive = of_g.into_primitive().tensor();
            let y = softmax(of_x.clone(), 1);
            let grad =
                Wgsl::softmax_backward(y.clone().into_primitive().tensor(), g_primitive.clone(), 1);
            check("softmax", y, both, |x, _| softmax_of(x));
            check("its gradient", tensor(grad), both, |x, g| {
                let y = softmax_of(x);
                let sum: f64 = y.iter().zip(g).map(|(y, g)| y * g).sum();
                y.iter().zip(g).map(|(y, g)| y * (g - sum)).collect()
            });
            let y = log_softmax(of_x.clone(), 1);
            let grad = Wgsl::log_softmax_backward(
                y.clone().into_primitive().tensor(),
                g_primitive.clone(),
                1,
            );
            check("log softmax", y, both, |x, _| softmax_of(x).into_iter().map(f64::ln).collect());
            check("its gradient", tensor(grad), both, |x, g| {
                let sum: f64 = g.iter().sum();
                softmax_of(x).iter().zip(g).map(|(y, g)| g - y * sum).collect()
            });
            let gamma = Tensor::<Wgsl, 1>::ones([len], &device).into_primitive().tensor();
            let of_x = of_x.into_primitive().tensor();
            let root = Wgsl::rms_norm(of_x.clone(), gamma.clone(), 1e-5);
            check("rms norm", tensor(root), both, |x, _| {
                let mean = x.iter().map(|x| x.powi(2)).sum::<f64>() / len as f64;
                x.iter().map(|x| x / (mean + 1e-5).sqrt()).collect()
            });
            let normalised = Wgsl::layer_norm(of_x.clone(), gamma, None, 1e-5);
            check("layer norm", tensor(normalised), both, |x, _| {
                let mean = x.iter().sum::<f64>() / len as f64;
                let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / len as f64;
                x.iter().map(|x| (x - mean) / (variance + 1e-5).sqrt()).collect()
            });
            check_norm_gradients(of_x, g_primitive, both);
        }
    }
}

/// Returns `1 / sqrt(variance + 1e-5)` and the normalised numbers of a row, whose mean is zero in RMS norm.
fn normalised_row(x: &[f64], is_centred: bool) -> (f64, Vec<f64>) {
    let mean_of = |values: &mut dyn Iterator<Item = f64>| values.sum::<f64>() / x.len() as f64;
    let mean = if is_centred { mean_of(&mut x.iter().copied()) } else { 0.0 };
    let variance = mean_of(&mut x.iter().map(|x| (x - mean).powi(2)));
    let scale = 1.0 / (variance + 1e-5).sqrt();
    (scale, x.iter().map(|x| (x - mean) * scale).collect())
}

/// Checks the gradients of both norms.
fn check_norm_gradients(x: WgslTensor, g: WgslTensor, inputs: [&[f64]; 2]) {
    let [_, len] = x.shape().dims();
    // Not all equal.
    let factor = |k: usize| 0.5 + (k % 7) as f64 / 4.0;
    let gammas: Vec<f32> = (0..len).map(|k| factor(k) as f32).collect();
    let device = Wgsl::float_device(&x);
    let gamma = Tensor::<Wgsl, 1>::from_data(TensorData::new(gammas, [len]), &device);
    let gamma = gamma.into_primitive().tensor();
    let of_x = |is_centred: bool| {
        move |x: &[f64], g: &[f64]| {
            let (scale, h) = normalised_row(x, is_centred);
            let d: Vec<f64> = g.iter().enumerate().map(|(k, g)| g * factor(k)).collect();
            let mean = if is_centred { d.iter().sum::<f64>() / len as f64 } else { 0.0 };
            let along = d.iter().zip(&h).map(|(d, h)| d * h).sum::<f64>() / len as f64;
            d.iter().zip(&h).map(|(d, h)| (d - mean - h * along) * scale).collect()
        }
    };
    // The sums of `g` and of `g * h` over all rows.
    let sums = |is_centred: bool| {
        let (mut of_gamma, mut of_beta) = (vec![0.0; len], vec![0.0; len]);
        for (x, g) in inputs[0].chunks(len).zip(inputs[1].chunks(len)) {
            let (_, h) = normalised_row(x, is_centred);
            for k in 0..len {
                of_gamma[k] += g[k] * h[k];
                of_beta[k] += g[k];
            }
        }
        [of_gamma, of_beta]
    };
    let check_sums = |what: &str, found: WgslTensor, expected: &[f64]| {
        let found =
            Tensor::<Wgsl, 1>::from_primitive(TensorPrimitive::Float(found)).reshape([1, len]);
        check(what, found, [expected; 2], |expected, _| expected.to_vec());
    };
    let (grad, gamma_grad) = Wgsl::rms_norm_backward(x.clone(), gamma.clone(), g.clone(), 1e-5);
    check("the gradient of rms norm", tensor(grad), inputs, of_x(false));
    check_sums("that of its gamma", gamma_grad, &sums(false)[0]);
    let (grad, gamma_grad, beta_grad) = Wgsl::layer_norm_backward(x, gamma, g, 1e-5);
    check("the gradient of layer norm", tensor(grad), inputs, of_x(true));
    let [of_gamma, of_beta] = sums(true);
    check_sums("that of its gamma", gamma_grad, &of_gamma);
    check_sums("that of its beta", beta_grad, &of_beta);
}

/// NaN spreads over its row only, and so does infinity; -infinity is a weight of zero in a softmax.
#[test]
fn special_numbers_stay_in_their_row() {
    for device in devices() {
        for len in LENGTHS {
            let (_, x) = rows(len, 0, &device);
            let [count, _] = x.dims();
            let special = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY];
            let mut data: Vec<f32> = x.into_data().to_vec().expect("it is f32");
            for (row, value) in special.into_iter().enumerate() {
                data[row * len + len - 1 - row] = value;
            }
            let x = Tensor::<Wgsl, 2>::from_data(TensorData::new(data, [count, len]), &device);
            let y: Vec<f32> = softmax(x.clone(), 1).into_data().to_vec().expect("it is f32");
            let log: Vec<f32> = log_softmax(x.clone(), 1).into_data().to_vec().expect("it is f32");
            let gamma = Tensor::<Wgsl, 1>::ones([len], &device).into_primitive().tensor();
            let x = x.into_primitive().tensor();
            let norms = [
                Wgsl::rms_norm(x.clone(), gamma.clone(), 1e-5),
                Wgsl::layer_norm(x, gamma, None, 1e-5),
            ];
            let norms =
                norms.map(|norm| tensor(norm).into_data().to_vec::<f32>().expect("it is f32"));
            for row in 0..count {
                let range = row * len..(row + 1) * len;
                let nans = y[range.clone()].iter().filter(|y| y.is_nan()).count();
                assert_eq!(nans, if row < 2 { len } else { 0 }, "row {row} of {len} on {device}");
                let is_nan = log[range.clone()].iter().all(|y| y.is_nan());
                assert_eq!(is_nan, row < 2, "row {row} of {len} on {device}");
                for norm in &norms {
                    let nans = norm[range.clone()].iter().filter(|y| y.is_nan()).count();
                    // The inverse deviation of infinity may be zero, and its products with other elements, too.
                    let is_right = [nans == len, nans > 0, nans > 0, nans == 0][row.min(3)];
                    assert!(is_right, "row {row} of {len} on {device}: {nans} of a norm are NaN");
                }
            }
            assert_eq!(y[3 * len - 3], 0.0, "a row of {len} on {device}");
        }
    }
}
