//! Gradients that Burn's automatic differentiation lacks or gets wrong.

use burn::backend::Autodiff as BurnAutodiff;
use burn::backend::autodiff::checkpoint::strategy::BalancedCheckpointing;
use burn::tensor::activation::softmax;
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::module::attention;
use burn::tensor::ops::{
    AttentionModuleOptions, GridSampleOptions, GridSamplePaddingMode, InterpolateMode,
};
use burn::tensor::{Bool, Distribution, FloatDType, Tensor, TensorData, TensorPrimitive};
use burn_std::rand::{SeedableRng, StdRng};
use burn_wgsl::{Autodiff, Wgsl, WgslDevice};

use crate::common::{self, CLOSE, Tolerance, devices};

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
    check_within(CLOSE, label, values, expected);
}

fn check_within(tolerance: Tolerance, label: &str, values: &[f64], expected: &[f64]) {
    assert_eq!(values.len(), expected.len(), "{label}");
    for (i, (&value, &expected)) in values.iter().zip(expected).enumerate() {
        assert!(
            tolerance.holds(value, expected),
            "{label}: element {i} is {value}, not {expected}"
        );
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

/// A loop that fills a tensor and goes on with its parts.
fn filled<T: AutodiffBackend>(x: Tensor<T, 2>) -> Tensor<T, 3> {
    let [rows, width] = x.dims();
    let mut out = Tensor::<T, 3>::empty([rows, 5, width], &x.device());
    let mut state = x;
    for step in 0..5 {
        state = state.tanh() * 1.5;
        let value = state.clone().unsqueeze_dim(1);
        out = out.slice_assign([0..rows, step..step + 1, 0..width], value);
    }
    // Overwrites an earlier value, which has no gradient then.
    out.slice_assign([1..2, 0..5, 0..3], Tensor::ones([1, 5, 3], &state.device()))
}

#[test]
fn gradients_of_assignments_to_slices_equal_burns() {
    let values: Vec<f32> = (0..3 * 8).map(|i| (i as f32 - 11.0) / 7.0).collect();
    let x = TensorData::new(values, [3, 8]);
    for device in devices() {
        let expected = gradient::<BurnAutodiff<Wgsl>, 2, 3>(x.clone(), &device, filled);
        let grad = gradient::<B, 2, 3>(x.clone(), &device, filled);
        check(&format!("assignments on {device}"), &grad, &expected);
        type Checkpointed = Autodiff<Wgsl, BalancedCheckpointing>;
        let grad = gradient::<Checkpointed, 2, 3>(x.clone(), &device, filled);
        check(&format!("assignments with checkpoints on {device}"), &grad, &expected);
    }
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

/// Samples depend on the images linearly: the gradient of a pixel is what an image of zeros with a
/// one there contributes. Gradients of coordinates, about 10 here, are compared with central
/// differences.
#[test]
fn bicubic_samples_have_gradients() {
    use GridSamplePaddingMode::{Border, Reflection, Zeros};
    const ROUNDING: Tolerance = Tolerance { relative: 1e-5, absolute: 1e-4 };
    const DIFFERENCE: Tolerance = Tolerance { relative: 1e-2, absolute: 0.1 };
    const STEP: f32 = 1e-3;
    let normal = |shape: &[usize]| {
        TensorData::random::<f32, _, _>(
            shape.to_vec(),
            Distribution::Normal(0.0, 1.0),
            &mut StdRng::seed_from_u64(3),
        )
    };
    for device in devices() {
        for (padding, align_corners, [h, w]) in [
            (Zeros, true, [4, 6]),
            (Zeros, false, [4, 6]),
            (Border, false, [3, 1]),
            (Reflection, true, [4, 3]),
            (Reflection, false, [2, 5]),
            (Reflection, true, [1, 1]),
        ] {
            let label = format!("{padding:?}, {align_corners}, {h} x {w} on {device}");
            let options = GridSampleOptions::new(InterpolateMode::Bicubic)
                .with_padding_mode(padding)
                .with_align_corners(align_corners);
            let (image, points) = (normal(&[2, 3, h, w]), normal(&[2, 5, 3, 2]));
            let grid = Tensor::<B, 4>::from_data(points.clone(), &device);
            let found = gradient(image.clone(), &device, |x: Tensor<B, 4>| {
                x.grid_sample_2d(grid.clone(), options.clone())
            });
            // The weighted sum that `gradient` differentiates.
            let loss = |image: TensorData, points: TensorData| {
                let x = Tensor::<Wgsl, 4>::from_data(image, &device);
                let y = x.grid_sample_2d(Tensor::from_data(points, &device), options.clone());
                let y = y.into_data();
                y.iter::<f64>().zip(1..).map(|(y, i)| y * f64::from(i)).sum::<f64>()
            };
            let expected: Vec<f64> = (0..found.len())
                .map(|index| {
                    let mut one = vec![0.0f32; found.len()];
                    one[index] = 1.0;
                    loss(TensorData::new(one, [2, 3, h, w]), points.clone())
                })
                .collect();
            check_within(ROUNDING, &format!("image: {label}"), &found, &expected);

            let x = Tensor::<B, 4>::from_data(image.clone(), &device);
            let found = gradient(points.clone(), &device, |grid: Tensor<B, 4>| {
                x.clone().grid_sample_2d(grid, options.clone())
            });
            let values: Vec<f32> = points.iter().collect();
            let expected: Vec<f64> = (0..found.len())
                .map(|index| {
                    let moved = |by: f32| {
                        let mut values = values.clone();
                        values[index] += by;
                        loss(image.clone(), TensorData::new(values, [2, 5, 3, 2]))
                    };
                    (moved(STEP) - moved(-STEP)) / f64::from(2.0 * STEP)
                })
                .collect();
            check_within(DIFFERENCE, &format!("grid: {label}"), &found, &expected);
        }
    }
}

/// A coordinate that is not a number reads the first pixel, which gets its gradient.
#[test]
fn bicubic_samples_at_nan_have_finite_gradients_of_the_image() {
    let options = GridSampleOptions::new(InterpolateMode::Bicubic)
        .with_padding_mode(GridSamplePaddingMode::Border);
    for device in devices() {
        let grid = Tensor::<B, 4>::from_floats([[[[f32::NAN, f32::NAN]]]], &device);
        let image = TensorData::new(vec![1.0f32, 2.0, 3.0, 4.0], [1, 1, 2, 2]);
        let found = gradient(image, &device, |x: Tensor<B, 4>| {
            x.grid_sample_2d(grid.clone(), options.clone())
        });
        check(&format!("{device}"), &found, &[1.0, 0.0, 0.0, 0.0]);
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
        let random =
            |shape: [usize; 2]| common::random(shape, Distribution::Normal(0.0, 1.0), &device);
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
    fn layer_norm<T: Backend>(
        x: Tensor<T, 2>,
        gamma: Tensor<T, 1>,
        beta: Tensor<T, 1>,
    ) -> Tensor<T, 2> {
        let [gamma, beta] = [gamma, beta].map(|tensor| tensor.into_primitive().tensor());
        let y = T::layer_norm(x.into_primitive().tensor(), gamma, Some(beta), 1e-5);
        Tensor::from_primitive(TensorPrimitive::Float(y))
    }
    fn gradient_of_x<T>(x: &Tensor<Wgsl, 2>) -> TensorData
    where
        T: AutodiffBackend<Device = WgslDevice, InnerBackend = Wgsl>,
    {
        let x = Tensor::<T, 2>::from_inner(x.clone()).require_grad();
        let gamma = Tensor::<T, 1>::from_floats([2.0, -1.0, 0.5, 3.0], &x.device());
        // The input of the norm is the result of an op that checkpointing computes again.
        let y = layer_norm(x.clone().exp(), gamma.clone(), gamma.clone());
        let grads = (y.clone() * y).sum().backward();
        assert!(gamma.grad(&grads).is_none());
        x.grad(&grads).expect("x has a gradient").into_data()
    }
    let tolerance = Tolerance { relative: 1e-3, absolute: 1e-4 };
    for device in devices() {
        let x = common::random([3, 4], Distribution::Normal(0.0, 1.0), &device);
        let expected = gradient_of_x::<BurnAutodiff<Wgsl>>(&x);
        common::assert_close("x", &gradient_of_x::<B>(&x), &expected, tolerance);
        let checkpointed = gradient_of_x::<Autodiff<Wgsl, BalancedCheckpointing>>(&x);
        common::assert_close("checkpointed", &checkpointed, &expected, tolerance);
        let untracked = softmax(Tensor::<B, 2>::from_inner(x), 1);
        assert!(!untracked.into_primitive().tensor().is_tracked());
    }
}

/// Returns the gradients of attention with respect to its inputs, among which may be a bias.
fn attention_gradients<T, const N: usize>(
    inputs: &[Tensor<Wgsl, 4>; N],
    bias: Option<&Tensor<Wgsl, 4>>,
    mask: Option<&Tensor<Wgsl, 4, Bool>>,
    options: AttentionModuleOptions,
) -> [TensorData; N]
where
    T: AutodiffBackend<Device = WgslDevice, InnerBackend = Wgsl>,
{
    let inputs = inputs.each_ref().map(|input| Tensor::<T, 4>::from_inner(input.clone()));
    let inputs = inputs.map(Tensor::require_grad);
    let bias = bias.map(|bias| Tensor::<T, 4>::from_inner(bias.clone()));
    let mask = mask.map(|mask| Tensor::<T, 4, Bool>::from_inner(mask.clone()));
    // With one input, it is query, key and value; a fourth is the bias.
    let [q, k, v] = [0, 1, 2].map(|index| inputs[index.min(N - 1)].clone());
    let out = attention(q, k, v, mask, inputs.get(3).cloned().or(bias), options);
    let grads = (out.clone() * out).sum().backward();
    inputs.map(|input| {
        let grad = input.grad(&grads).expect("every input has a gradient");
        grad.cast(FloatDType::F32).into_data()
    })
}

/// Queries whose keys are all masked, a softcap, a bias with and without gradients, and one tensor
/// as query, key and value.
#[test]
fn attention_has_the_gradients_of_its_composition() {
    let tolerance = Tolerance { relative: 1e-3, absolute: 1e-4 };
    for device in devices() {
        let random =
            |shape: [usize; 4]| common::random(shape, Distribution::Normal(0.0, 1.0), &device);
        let inputs = [(); 3].map(|()| random([1, 2, 5, 4]));
        let bias = random([1, 2, 5, 5]);
        let mut rows = [[false; 5]; 5];
        rows[1] = [true; 5];
        rows[3] = [true, false, true, false, false];
        let mask = Tensor::<Wgsl, 2, Bool>::from_data(rows, &device).reshape([1, 1, 5, 5]);
        for softcap in [None, Some(1.5)] {
            let options = AttentionModuleOptions { scale: Some(0.7), softcap, is_causal: false };
            for (bias, mask) in [(None, None), (Some(&bias), None), (Some(&bias), Some(&mask))] {
                let values = attention_gradients::<B, 3>(&inputs, bias, mask, options);
                let expected =
                    attention_gradients::<BurnAutodiff<Wgsl>, 3>(&inputs, bias, mask, options);
                for (value, expected) in values.iter().zip(&expected) {
                    common::assert_close("attention", value, expected, tolerance);
                }
            }
            let [q, k, v] = inputs.clone();
            let with_bias = [q.clone(), k, v, bias.clone()];
            let values = attention_gradients::<B, 4>(&with_bias, None, Some(&mask), options);
            let expected = attention_gradients::<BurnAutodiff<Wgsl>, 4>(
                &with_bias,
                None,
                Some(&mask),
                options,
            );
            common::assert_close("the bias", &values[3], &expected[3], tolerance);
            let values = attention_gradients::<B, 1>(std::array::from_ref(&q), None, None, options);
            let expected = attention_gradients::<BurnAutodiff<Wgsl>, 1>(
                std::array::from_ref(&q),
                None,
                None,
                options,
            );
            common::assert_close("one tensor", &values[0], &expected[0], tolerance);
        }
    }
}

/// Scores around 50, whose sums of exponentials would be a quarter wrong in bf16.
#[test]
fn attention_in_16_bits_has_exact_sums() {
    for device in devices() {
        for dtype in [FloatDType::BF16, FloatDType::F16] {
            let inputs = [(); 3].map(|()| {
                let normal = Distribution::Normal(2.5, 0.25);
                common::random([1, 1, 6, 8], normal, &device).cast(dtype)
            });
            let options =
                AttentionModuleOptions { scale: Some(1.0), softcap: None, is_causal: true };
            let values = attention_gradients::<B, 3>(&inputs, None, None, options);
            let exact = inputs.map(|input| input.cast(FloatDType::F32));
            let expected = attention_gradients::<B, 3>(&exact, None, None, options);
            // The gradients of values are weighted sums of gradients of the result.
            let relative = if dtype == FloatDType::BF16 { 0.02 } else { 0.003 };
            let tolerance = Tolerance { relative, absolute: 1e-3 };
            let label = format!("{dtype:?} on {device}");
            common::assert_close(&label, &values[2], &expected[2], tolerance);
        }
    }
}

#[test]
fn products_in_16_bits_have_gradients_beyond_their_range() {
    for device in devices() {
        let x = Tensor::<B, 1>::from_floats([300.0, 400.0], &device).cast(FloatDType::F16);
        let x = x.detach().require_grad();
        let scaled = x.clone().prod().cast(FloatDType::F32) * 0.001;
        let grads = scaled.backward();
        let grad = x.grad(&grads).expect("x has a gradient").cast(FloatDType::F32).into_data();
        let expected = TensorData::from([0.4f32, 0.3]);
        let tolerance = Tolerance { relative: 2e-3, absolute: 0.0 };
        common::assert_close(&format!("prod on {device}"), &grad, &expected, tolerance);
    }
}
