//! Gradients that Burn's automatic differentiation lacks or gets wrong.

mod common;

use burn::backend::autodiff::checkpoint::strategy::BalancedCheckpointing;
use burn::tensor::activation::softmax;
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::module::attention;
use burn::tensor::ops::AttentionModuleOptions;
use burn::tensor::{Bool, Distribution, Tensor, TensorData, TensorPrimitive};
use burn_backend::ops::{FloatTensorOps, ModuleOps};
use burn_wgsl::{Autodiff, Wgsl, WgslDevice};
use common::{CLOSE, Tolerance, devices};

type B = Autodiff<Wgsl>;

/// Returns the gradient with respect to `x` of the sum of `f(x)`, weighted by 1, 2, 3, ...
fn gradient<T, const D: usize, const E: usize>(
    x: TensorData,
    device: &WgslDevice,
    f: impl Fn(Tensor<T, D>) -> Tensor<T, E>,
) -> Vec<f64>
where
    T: AutodiffBackend<Device = WgslDevice>,
{
    let x = Tensor::<T, D>::from_data(x, device).require_grad();
    let y = f(x.clone());
    let count = y.shape().num_elements();
    let weights: Vec<f32> = (1..=count).map(|i| i as f32).collect();
    let weights = Tensor::<T, E>::from_data(TensorData::new(weights, y.shape()), device);
    let grads = (y * weights).sum().backward();
    x.grad(&grads).expect("x has a gradient").into_data().iter::<f64>().collect()
}

fn check(label: &str, values: &[f64], expected: &[f64]) {
    assert_eq!(values.len(), expected.len(), "{label}");
    for (i, (&value, &expected)) in values.iter().zip(expected).enumerate() {
        assert!(CLOSE.holds(value, expected), "{label}: element {i} is {value}, not {expected}");
    }
}

fn line(values: &[f32]) -> TensorData {
    TensorData::new(values.to_vec(), [values.len()])
}

/// A line without zeros, with one zero, and with two.
const LINES: [[f32; 4]; 3] = [[2.0, -1.0, 0.5, 3.0], [2.0, 0.0, 0.5, 3.0], [0.0, 2.0, 0.0, 3.0]];

/// Returns the product of the elements `range` of a line without element `i`.
fn product_without(line: &[f32], i: usize, end: usize) -> f64 {
    (0..end).filter(|&k| k != i).map(|k| f64::from(line[k])).product()
}

#[test]
fn gradients_of_products_are_exact_for_zeros_and_negative_numbers() {
    for device in devices() {
        for values in LINES {
            let expected: Vec<f64> = (0..4).map(|i| product_without(&values, i, 4)).collect();
            let grad = gradient::<B, 1, 1>(line(&values), &device, Tensor::prod);
            check(&format!("prod of {values:?} on {device}"), &grad, &expected);

            let grad = gradient::<Autodiff<Wgsl, BalancedCheckpointing>, 1, 1>(
                line(&values),
                &device,
                |x| x.mul_scalar(1.0).prod(),
            );
            check(&format!("checkpointed prod of {values:?} on {device}"), &grad, &expected);

            let expected: Vec<f64> = (0..4)
                .map(|i| {
                    let of = |j: usize| (j + 1) as f64 * product_without(&values, i, j + 1);
                    (i..4).map(of).sum()
                })
                .collect();
            let grad = gradient::<B, 1, 1>(line(&values), &device, |x| x.cumprod(0));
            check(&format!("cumprod of {values:?} on {device}"), &grad, &expected);
        }
        let both: Vec<f32> = LINES[0].into_iter().chain(LINES[1]).collect();
        let data = TensorData::new(both, [2, 4]);
        let expected: Vec<f64> =
            (0..8).map(|i| (i / 4 + 1) as f64 * product_without(&LINES[i / 4], i % 4, 4)).collect();
        let grad = gradient::<B, 2, 2>(data, &device, |x| x.prod_dim(1));
        check(&format!("prod_dim on {device}"), &grad, &expected);
    }
}

#[test]
fn largest_elements_have_gradients() {
    for device in devices() {
        let x = line(&[3.0, -1.0, 5.0, 4.0]);
        let grad = gradient::<B, 1, 1>(x, &device, |x| x.topk(2, 0));
        check(&format!("topk on {device}"), &grad, &[0.0, 0.0, 1.0, 2.0]);
    }
}

#[test]
fn rms_norm_has_the_gradient_of_its_composition() {
    const EPSILON: f64 = 1e-3;
    fn composed(x: Tensor<B, 2>, gamma: Tensor<B, 1>) -> Tensor<B, 2> {
        let mean = (x.clone() * x.clone()).mean_dim(1) + EPSILON;
        x / mean.sqrt() * gamma.unsqueeze()
    }
    fn kernel(x: Tensor<B, 2>, gamma: Tensor<B, 1>) -> Tensor<B, 2> {
        let [x, gamma] = [x.into_primitive().tensor(), gamma.into_primitive().tensor()];
        Tensor::from_primitive(TensorPrimitive::Float(B::rms_norm(x, gamma, EPSILON)))
    }
    for device in devices() {
        let random = |shape: [usize; 2]| {
            Tensor::<Wgsl, 2>::random(shape, Distribution::Normal(0.0, 1.0), &device)
        };
        let (x, gamma) = (random([7, 36]), random([1, 36]).reshape([36]));
        let gradients = |f: fn(Tensor<B, 2>, Tensor<B, 1>) -> Tensor<B, 2>| {
            let x = Tensor::<B, 2>::from_inner(x.clone()).require_grad();
            let gamma = Tensor::<B, 1>::from_inner(gamma.clone()).require_grad();
            let y = f(x.clone(), gamma.clone());
            let grads = (y.clone() * y.exp()).sum().backward();
            let of_x = x.grad(&grads).expect("x has a gradient").into_data();
            (of_x, gamma.grad(&grads).expect("gamma has a gradient").into_data())
        };
        let (values, expected) = (gradients(kernel), gradients(composed));
        let tolerance = Tolerance { relative: 1e-4, absolute: 1e-4 };
        common::assert_close("x", &values.0, &expected.0, tolerance);
        common::assert_close("gamma", &values.1, &expected.1, tolerance);
    }
}

/// A parameter that is frozen, and inputs without gradients.
#[test]
fn only_tracked_inputs_get_gradients() {
    for device in devices() {
        let x = Tensor::<B, 2>::ones([3, 8], &device).require_grad();
        let [gamma, beta] = [2.0, 1.0].map(|value| Tensor::<B, 1>::full([8], value, &device));
        let y = B::layer_norm(
            x.clone().into_primitive().tensor(),
            gamma.clone().into_primitive().tensor(),
            Some(beta.into_primitive().tensor()),
            1e-5,
        );
        let y = Tensor::<B, 2>::from_primitive(TensorPrimitive::Float(y));
        let grads = y.sum().backward();
        assert!(x.grad(&grads).is_some(), "x on {device}");
        assert!(gamma.grad(&grads).is_none(), "gamma on {device}");
        let untracked = softmax(gamma, 0);
        assert!(!B::float_is_require_grad(&untracked.into_primitive().tensor()));
    }
}

/// Queries whose keys are all masked, and a bias with gradients.
#[test]
fn attention_handles_hidden_queries_and_biases() {
    for device in devices() {
        let random = |seed: u64, shape: [usize; 4]| {
            <Wgsl as Backend>::seed(&device, seed);
            Tensor::<B, 4>::random(shape, Distribution::Normal(0.0, 1.0), &device).require_grad()
        };
        let [q, k, v] = [1, 2, 3].map(|seed| random(seed, [1, 2, 3, 4]));
        let mask = Tensor::<B, 2, Bool>::from_data([[true; 3], [false; 3], [false; 3]], &device);
        let mask = mask.reshape([1, 1, 3, 3]);
        let options = AttentionModuleOptions { scale: None, softcap: None, is_causal: false };
        let attend = |bias: Option<Tensor<B, 4>>| {
            let mask = Some(mask.clone());
            let out = attention(q.clone(), k.clone(), v.clone(), mask, bias, options);
            (out.clone() * out).sum().backward()
        };
        let grads = attend(None);
        let of_q = q.grad(&grads).expect("q has a gradient").into_data();
        let of_q: Vec<f32> = of_q.iter().collect();
        assert!(of_q.iter().all(|x| x.is_finite()), "{of_q:?} on {device}");
        assert!(of_q[..4].iter().all(|&x| x == 0.0), "{of_q:?} on {device}");
        // A bias of zeros changes nothing, and has a gradient.
        let bias = Tensor::<B, 4>::zeros([1, 1, 3, 3], &device).require_grad();
        let with_bias = attend(Some(bias.clone()));
        let tolerance = Tolerance { relative: 1e-4, absolute: 1e-5 };
        for tensor in [&q, &k, &v] {
            let [expected, value] = [&grads, &with_bias]
                .map(|grads| tensor.grad(grads).expect("it has a gradient").into_data());
            common::assert_close("with a bias", &value, &expected, tolerance);
        }
        assert!(bias.grad(&with_bias).is_some(), "the bias on {device}");
    }
}
