//! The gradient of batch normalisation, which is found among the ops of a program, beside that of its parts.

use burn::backend::autodiff::checkpoint::strategy::BalancedCheckpointing;
use burn::module::{AutodiffModule, Module};
use burn::nn::{BatchNorm, BatchNormConfig};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{Distribution, Tensor, TensorData};
use burn_wgsl::{Autodiff, Precision, Wgsl, WgslDevice, autocast};

use crate::common::devices;

type Ours = Autodiff<Wgsl>;
type Checkpointed = Autodiff<Wgsl, BalancedCheckpointing>;
type Burns = burn::backend::Autodiff<Wgsl>;

/// A tensor of fixed numbers.
pub(super) fn numbers<B: Backend<Device = WgslDevice>, const D: usize>(
    seed: usize,
    shape: [usize; D],
    device: &WgslDevice,
) -> Tensor<B, D> {
    let number = |i: usize| ((i + seed).wrapping_mul(7919) % 1009) as f32 / 300.0 - 1.5;
    let numbers = (0..shape.iter().product()).map(number).collect::<Vec<f32>>();
    Tensor::from_data(TensorData::new(numbers, shape), device)
}

pub(super) fn values<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> Vec<f64> {
    tensor.into_data().iter::<f64>().collect()
}

pub(super) fn assert_close(found: &[Vec<f64>], expected: &[Vec<f64>], tolerance: f64, what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert_eq!(found.len(), expected.len(), "{what}: {index}");
        let largest = expected.iter().fold(1e-2, |largest: f64, x| largest.max(x.abs()));
        for (found, expected) in found.iter().zip(expected) {
            let is_close = (found - expected).abs() <= tolerance * largest;
            assert!(is_close, "{what}: {index}: {found}, expected {expected}");
        }
    }
}

/// The result, the gradients of the input, `gamma` and `beta`, and the running statistics.
fn of_module<B, const D: usize>(shape: [usize; D], device: &WgslDevice) -> Vec<Vec<f64>>
where
    B: AutodiffBackend<Device = WgslDevice>,
{
    let mut norm: BatchNorm<B> = BatchNormConfig::new(shape[1]).init(device);
    let parameter = |seed| numbers::<B, 1>(seed, [shape[1]], device).require_grad();
    norm.gamma = norm.gamma.map(|_| parameter(3));
    norm.beta = norm.beta.map(|_| parameter(4));
    let x = numbers::<B, D>(1, shape, device).require_grad();
    let y = norm.forward(x.clone() * 2.0 + 0.5);
    let gradients = (y.clone() * numbers(2, shape, device)).sum().backward();
    let trained = norm.valid();
    vec![
        values(y.inner()),
        values(x.grad(&gradients).expect("it is there")),
        values(norm.gamma.val().grad(&gradients).expect("it is there")),
        values(norm.beta.val().grad(&gradients).expect("it is there")),
        values(trained.running_mean.value()),
        values(trained.running_var.value()),
    ]
}

fn compare<const D: usize>(shape: [usize; D], device: &WgslDevice) {
    let (found, expected) =
        (of_module::<Ours, D>(shape, device), of_module::<Burns, D>(shape, device));
    assert_close(&found, &expected, 2e-5, &format!("{shape:?} on {device:?}"));
    let found = of_module::<Checkpointed, D>(shape, device);
    assert_close(&found, &expected, 2e-5, &format!("{shape:?}, checkpointed, on {device:?}"));
}

#[test]
fn the_gradient_is_that_of_its_parts() {
    for device in devices() {
        compare([5, 3], &device);
        compare([64, 7], &device);
        compare([4, 3, 10], &device);
        compare([2, 1, 3, 5], &device);
        compare([6, 5, 4, 8], &device);
        compare([3, 16, 17, 9], &device);
        compare([2, 3, 4, 3, 2], &device);
        compare([1, 4, 3, 2], &device);
    }
}

/// A program that is nearly a batch normalisation, or does more with its parts.
type Program<B> = fn(Tensor<B, 4>, Tensor<B, 4>, Tensor<B, 4>) -> Tensor<B, 4>;

/// The mean of each channel, as Burn takes it.
fn means<B: Backend>(x: Tensor<B, 4>) -> Tensor<B, 4> {
    let [n, c, h, w] = x.dims();
    x.swap_dims(0, 1).reshape([c, n * h * w]).mean_dim(1).reshape([1, c, 1, 1])
}

fn centred<B: Backend>(x: &Tensor<B, 4>) -> Tensor<B, 4> {
    x.clone() - means(x.clone())
}

fn deviation<B: Backend>(x: &Tensor<B, 4>) -> Tensor<B, 4> {
    (means(centred(x).square()) + 1e-3).sqrt()
}

fn programs<B: Backend>() -> Vec<(&'static str, Program<B>)> {
    vec![
        ("itself", |x, a, b| centred(&x) / deviation(&x) * a + b),
        ("a mean without gradient", |x, a, b| {
            (x.clone() - means(x.clone()).detach()) / deviation(&x) * a + b
        }),
        ("a deviation without gradient", |x, a, b| centred(&x) / deviation(&x).detach() * a + b),
        ("the deviation of another tensor", |x, a, b| {
            centred(&x) / deviation(&(x.clone() * x)) * a + b
        }),
        ("the mean of another tensor", |x, a, b| {
            (x.clone() - means(x.clone() * x.clone())) / deviation(&x) * a + b
        }),
        ("a third power", |x, a, b| {
            let variance = means(centred(&x).powi_scalar(3).abs());
            centred(&x) / (variance + 1e-3).sqrt() * a + b
        }),
        ("parts that are results, too", |x, a, b| {
            let (mean, deviation, centred) = (means(x.clone()), deviation(&x), centred(&x));
            let y = centred.clone() / deviation.clone() * a + b;
            y * mean + deviation * centred
        }),
        ("a result that is used twice", |x, a, b| {
            let y = centred(&x) / deviation(&x) * a.clone() + b;
            y.clone() * y * a + x
        }),
        ("no factor", |x, _, b| centred(&x) / deviation(&x) + b),
        ("no summand", |x, a, _| centred(&x) / deviation(&x) * a),
        ("a summand of the shape of x", |x, a, _| centred(&x) / deviation(&x) * a + x),
        ("a variance", |x, a, b| means(centred(&x).square()) * a + b + x),
        ("rows", |x, a, b| {
            let [n, c, h, w] = x.dims();
            let rows = centred(&x).square().swap_dims(0, 1).reshape([c, n * h * w]);
            let rows = rows.clone() - rows.mean_dim(1);
            rows.reshape([c, n, h, w]).swap_dims(0, 1) * a + b
        }),
    ]
}

fn of_program<B>(program: Program<B>, device: &WgslDevice) -> Vec<Vec<f64>>
where
    B: AutodiffBackend<Device = WgslDevice>,
{
    let x = numbers::<B, 4>(1, [4, 3, 5, 6], device).require_grad();
    let [a, b] = [2, 3].map(|seed| numbers::<B, 4>(seed, [1, 3, 1, 1], device).require_grad());
    let y = program(x.clone() * 1.5, a.clone(), b.clone());
    let gradients = (y.clone() * numbers(9, [4, 3, 5, 6], device)).sum().backward();
    let grads = [x, a, b].map(|leaf| leaf.grad(&gradients).map_or(Vec::new(), values));
    [vec![values(y.inner())], grads.to_vec()].concat()
}

/// Programs that differ in one op, or use parts otherwise, have their own gradients.
#[test]
fn what_nearly_fits_is_composed() {
    for device in devices() {
        for ((what, ours), (_, burns)) in programs::<Ours>().into_iter().zip(programs::<Burns>()) {
            let (found, expected) = (of_program(ours, &device), of_program(burns, &device));
            assert_close(&found, &expected, 3e-5, &format!("{what} on {device:?}"));
        }
    }
}

/// A program that makes a leaf of a tensor in a normalisation: the leaf and the result, from an input without gradient.
type WithLeaf<B> = fn(Tensor<B, 4>, Tensor<B, 4>, Tensor<B, 4>) -> [Tensor<B, 4>; 2];

fn programs_with_leaves<B: AutodiffBackend>() -> Vec<(&'static str, WithLeaf<B>)> {
    vec![
        ("the input, after its means", |x, a, b| {
            let means = means(x.clone());
            let x = x.require_grad();
            [x.clone(), (x.clone() - means) / deviation(&x) * a + b]
        }),
        ("the normalised input", |x, a, b| {
            let leaf = (centred(&x) / deviation(&x)).require_grad();
            [leaf.clone(), leaf * a + b]
        }),
        ("the deviation", |x, a, b| {
            let leaf = deviation(&x).require_grad();
            [leaf.clone(), centred(&x) / leaf * a + b]
        }),
        ("one of two equal factors", |x, _, b| {
            let centred = centred(&x);
            let leaf = centred.clone().require_grad();
            [leaf.clone(), leaf * centred + b]
        }),
    ]
}

fn of_leaf<B>(program: WithLeaf<B>, device: &WgslDevice) -> Vec<Vec<f64>>
where
    B: AutodiffBackend<Device = WgslDevice>,
{
    let [a, b] = [2, 3].map(|seed| numbers::<B, 4>(seed, [1, 3, 1, 1], device).require_grad());
    let [leaf, y] = program(numbers(1, [4, 3, 5, 6], device), a.clone(), b.clone());
    let gradients = (y.clone() * numbers(9, [4, 3, 5, 6], device)).sum().backward();
    let grads = [leaf, a, b].map(|leaf| leaf.grad(&gradients).map_or(Vec::new(), values));
    [vec![values(y.inner())], grads.to_vec()].concat()
}

/// `require_grad` keeps the id of a tensor's node.
#[test]
fn tensors_that_become_leaves_have_their_own_gradients() {
    for device in devices() {
        let programs = programs_with_leaves::<Ours>().into_iter();
        for ((what, ours), (_, burns)) in programs.zip(programs_with_leaves::<Burns>()) {
            let (found, expected) = (of_leaf(ours, &device), of_leaf(burns, &device));
            assert_close(&found, &expected, 3e-5, &format!("{what} on {device:?}"));
        }
    }
}

/// Under autocast, the input may be of 16 bits, and the statistics are f32.
#[test]
fn inputs_of_16_bits_have_gradients() {
    for device in devices() {
        let shape = [4, 6, 5, 8];
        let expected = of_module::<Ours, 4>(shape, &device);
        let norm: BatchNorm<Ours> = BatchNormConfig::new(6).init(&device);
        let gradient = |precision: Precision| {
            let scope = autocast(&device, precision);
            let weight = numbers::<Ours, 2>(5, [8, 8], &device);
            let x = numbers::<Ours, 4>(1, shape, &device).require_grad();
            // A product makes it of 16 bits.
            let y = norm.forward(x.clone().matmul(weight.unsqueeze()));
            let loss = (y * numbers(2, shape, &device)).sum();
            drop(scope);
            values(x.grad(&loss.backward()).expect("it is there"))
        };
        let exact = gradient(Precision::F32);
        assert_eq!(exact.len(), expected[1].len());
        for precision in [Precision::F16, Precision::Bf16] {
            let tolerance = if precision == Precision::F16 { 1e-2 } else { 6e-2 };
            let what = format!("{precision:?} on {device:?}");
            assert_close(&[gradient(precision)], std::slice::from_ref(&exact), tolerance, &what);
        }
    }
}

/// Frozen parameters have no gradients, and the input has its own.
#[test]
fn frozen_parameters_have_no_gradients() {
    for device in devices() {
        let norm: BatchNorm<Ours> = BatchNormConfig::new(3).init(&device);
        let norm = norm.no_grad();
        let x = Tensor::<Ours, 4>::random([2, 3, 4, 4], Distribution::Default, &device);
        let leaf = x.require_grad();
        let gradients = norm.forward(leaf.clone()).powi_scalar(3).sum().backward();
        let gradient = values(leaf.grad(&gradients).expect("it is there"));
        // The mean of a channel does not matter.
        for channel in 0..3 {
            let of_channel = |n: usize| &gradient[(n * 3 + channel) * 16..][..16];
            let sum: f64 = (0..2).flat_map(of_channel).sum();
            assert!(sum.abs() < 1e-3, "{sum} on {device:?}");
        }
        assert!(norm.gamma.val().grad(&gradients).is_none());
    }
}
