//! Autocast: types of results and gradients, where it holds, and that it trains.

use std::panic::{AssertUnwindSafe, catch_unwind};

use burn::backend::Autodiff as BurnAutodiff;
use burn::backend::autodiff::checkpoint::strategy::BalancedCheckpointing;
use burn::module::Module;
use burn::nn::{LayerNorm, LayerNormConfig, Linear, LinearConfig};
use burn::optim::{AdamConfig, GradientsParams, Optimizer};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::module::{attention, conv2d, linear, unfold4d};
use burn::tensor::ops::{AttentionModuleOptions, ConvOptions, UnfoldOptions};
use burn::tensor::{DType, FloatDType, Tensor, TensorData, TensorPrimitive, activation};
use burn_wgsl::{
    Autodiff, MatmulPrecision, Precision, ProductPath, Wgsl, WgslDevice, autocast,
    current_precision, matmul_precision, product_path,
};

use crate::common::{
    Launches, devices, failure, gpus, is_alone, runtime_of, serial_guard, test_alone,
};

/// The rows of 8 elements with which products are large enough for 16 bits.
const LARGE: usize = 1 << 16;
const LOWER: [(Precision, DType); 2] =
    [(Precision::F16, DType::F16), (Precision::Bf16, DType::BF16)];

/// Returns numbers from -1 to 1.
fn tensor<B: Backend, const D: usize>(
    seed: usize,
    shape: [usize; D],
    device: &B::Device,
) -> Tensor<B, D> {
    let element = |i: usize| ((i * 7919 + seed * 104_729) % 2003) as f32 / 1001.0 - 1.0;
    let values: Vec<f32> = (0..shape.iter().product()).map(element).collect();
    Tensor::from_data(TensorData::new(values, shape), device)
}

#[test]
fn results_have_the_types_of_the_rules() {
    for device in devices() {
        let x = tensor::<Wgsl, 2>(1, [4, 8], &device);
        let y = tensor::<Wgsl, 2>(2, [8, 4], &device);
        for (precision, lower) in LOWER {
            let _scope = autocast(&device, precision);
            let product = x.clone().matmul(y.clone());
            assert_eq!(product.dtype(), lower, "{device}");
            // As its operand.
            assert_eq!(activation::relu(product.clone()).dtype(), lower, "{device}");
            // In f32.
            assert_eq!(activation::softmax(product.clone(), 1).dtype(), DType::F32, "{device}");
            assert_eq!(product.clone().exp().dtype(), DType::F32, "{device}");
            assert_eq!(product.clone().sum().dtype(), DType::F32, "{device}");
            // The wider type.
            let sum = product.clone() + tensor::<Wgsl, 2>(3, [4, 4], &device);
            assert_eq!(sum.dtype(), DType::F32, "{device}");
            let other = match lower {
                DType::F16 => FloatDType::BF16,
                _ => FloatDType::F16,
            };
            assert_eq!((product.clone() + product.clone().cast(other)).dtype(), DType::F32);
            // Views and conversions.
            assert_eq!(product.clone().transpose().dtype(), lower, "{device}");
            assert_eq!(product.cast(FloatDType::F32).dtype(), DType::F32, "{device}");
            let image = tensor::<Wgsl, 4>(4, [1, 3, 5, 5], &device);
            let weight = tensor::<Wgsl, 4>(5, [4, 3, 3, 3], &device);
            let options = ConvOptions::new([1, 1], [1, 1], [1, 1], 1);
            assert_eq!(conv2d(image, weight, None, options).dtype(), lower, "{device}");
            let heads = tensor::<Wgsl, 4>(6, [1, 2, 5, 8], &device);
            let out = attention(
                heads.clone(),
                heads.clone(),
                heads,
                None,
                None,
                AttentionModuleOptions::default(),
            );
            assert_eq!(out.dtype(), lower, "{device}");
        }
        assert_eq!(x.matmul(y).dtype(), DType::F32, "{device}");
    }
}

#[test]
fn the_innermost_scope_of_the_thread_and_device_counts() {
    let device = WgslDevice::Cpu;
    let product = || {
        let x = tensor::<Wgsl, 2>(1, [4, 4], &WgslDevice::Cpu);
        let dtype = x.clone().matmul(x).dtype();
        let of_precision = match current_precision(&WgslDevice::Cpu) {
            Precision::F16 => DType::F16,
            Precision::Bf16 => DType::BF16,
            Precision::F32 => DType::F32,
        };
        assert_eq!(dtype, of_precision);
        dtype
    };
    let outer = autocast(&device, Precision::F16);
    let inner = autocast(&device, Precision::Bf16);
    assert_eq!(product(), DType::BF16);
    {
        let _off = autocast(&device, Precision::F32);
        assert_eq!(product(), DType::F32);
    }
    // Scopes may end in any order.
    drop(outer);
    assert_eq!(product(), DType::BF16);
    let of_thread = std::thread::spawn(product).join().expect("the thread ends");
    assert_eq!(of_thread, DType::F32);
    drop(inner);
    assert_eq!(product(), DType::F32);
}

#[test]
fn other_types_are_not_mixed_outside_of_a_scope() {
    let device = WgslDevice::Cpu;
    let x = tensor::<Wgsl, 1>(1, [4], &device);
    let sum = catch_unwind(AssertUnwindSafe(|| x.clone().cast(FloatDType::F16) + x));
    let message = failure("sum", sum.expect_err("the types differ"));
    assert!(message.contains("cast one to the other's type"), "{message}");
}

#[test]
fn unknown_words_name_the_known_ones() {
    let error = "fp16".parse::<Precision>().expect_err("it is unknown");
    assert_eq!(error.to_string(), "there is no precision \"fp16\"; use f32, f16 or bf16");
    for precision in [Precision::F32, Precision::F16, Precision::Bf16] {
        assert_eq!(precision.to_string().parse(), Ok(precision));
    }
}

/// A part of [`the_variable_is_a_scope_around_the_program`], in a process of its own.
#[test]
#[ignore = "another test runs it with the variable"]
fn prints_the_type_of_a_product() {
    let x = tensor::<Wgsl, 2>(1, [4, 4], &WgslDevice::Cpu);
    println!("type: {:?}", x.clone().matmul(x).dtype());
}

/// Returns what a test prints in a process of its own, with a variable.
fn printed_with(test: &str, variable: &str, word: &str) -> String {
    let output = test_alone!(test).env(variable, word).output().expect("the program runs");
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

#[test]
fn the_variable_is_a_scope_around_the_program() {
    for (word, expected) in [
        ("bf16", "type: BF16"),
        ("", "type: F32"),
        ("half", "BURN_WGSL_AUTOCAST=\"half\" is ignored: use f32, f16 or bf16"),
        ("half", "type: F32"),
    ] {
        let text = printed_with("prints_the_type_of_a_product", "BURN_WGSL_AUTOCAST", word);
        assert!(text.contains(expected), "{text}");
    }
    let output = test_alone!("a_weight_is_converted_once_under_the_variable")
        .env("BURN_WGSL_AUTOCAST", "f16")
        .output()
        .expect("the program runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

/// A part of [`the_variable_of_products_is_a_scope_around_the_program`], in a process of its own.
#[test]
#[ignore = "another test runs it with the variable"]
fn prints_a_product() {
    let factor = |value| Tensor::<Wgsl, 2>::full([1, 1], value, &WgslDevice::Cpu);
    println!("product: {}", factor(1.0 + 2.0f32.powi(-10)).matmul(factor(1.0)).into_scalar());
}

#[test]
fn the_variable_of_products_is_a_scope_around_the_program() {
    for (word, expected) in [
        ("medium", "product: 1\n"),
        ("high", "product: 1.0009766\n"),
        ("low", "BURN_WGSL_MATMUL_PRECISION=\"low\" is ignored: use highest, high or medium"),
        ("low", "product: 1.0009766\n"),
    ] {
        let text = printed_with("prints_a_product", "BURN_WGSL_MATMUL_PRECISION", word);
        assert!(text.contains(expected), "{word}: {text}");
    }
}

/// A layer norm between two linear layers, one of whose weights is used twice.
#[derive(Module, Debug)]
struct Network<B: Backend> {
    first: Linear<B>,
    norm: LayerNorm<B>,
    middle: Linear<B>,
    last: Linear<B>,
}

impl<B: Backend> Network<B> {
    fn new(device: &B::Device) -> Self {
        B::seed(device, 5);
        Self {
            first: LinearConfig::new(8, 32).init(device),
            norm: LayerNormConfig::new(32).init(device),
            middle: LinearConfig::new(32, 32).init(device),
            last: LinearConfig::new(32, 1).init(device),
        }
    }

    fn loss(&self, x: Tensor<B, 2>, y: Tensor<B, 2>) -> Tensor<B, 1> {
        let x = activation::gelu(self.first.forward(x));
        let x = activation::gelu(self.middle.forward(self.norm.forward(x)));
        let x = self.last.forward(activation::gelu(self.middle.forward(x)));
        (x - y).powi_scalar(2).mean()
    }
}

/// Returns the gradients of the weights of the network's linear layers, with their types.
fn gradients<B: AutodiffBackend>(
    device: &B::Device,
    batch: usize,
    scope: impl Fn() -> Option<burn_wgsl::PrecisionScope>,
    in_scope: bool,
) -> Vec<(DType, Vec<f32>)> {
    let network = Network::<B>::new(device);
    let open = scope();
    // As large for each row as with few rows, or f16 would lose it.
    let scale = batch as f64 / 16.0;
    let loss = network.loss(tensor(1, [batch, 8], device), tensor(2, [batch, 1], device)) * scale;
    if !in_scope {
        drop(open);
        let grads = GradientsParams::from_grads(loss.backward(), &network);
        return of_weights(&network, &grads);
    }
    let grads = GradientsParams::from_grads(loss.backward(), &network);
    let found = of_weights(&network, &grads);
    drop(open);
    found
}

fn of_weights<B: AutodiffBackend>(
    network: &Network<B>,
    grads: &GradientsParams,
) -> Vec<(DType, Vec<f32>)> {
    let layers = [&network.first, &network.middle, &network.last];
    let grad = |layer: &&Linear<B>| {
        let grad = grads.get::<B::InnerBackend, 2>(layer.weight.id).expect("it has a gradient");
        let values = grad.clone().cast(FloatDType::F32).into_data();
        (grad.dtype(), values.to_vec::<f32>().expect("it is f32"))
    };
    layers.iter().map(grad).collect()
}

/// Checks that gradients are close to those in f32.
fn assert_close(
    label: &str,
    found: &[(DType, Vec<f32>)],
    expected: &[(DType, Vec<f32>)],
    digits: f32,
) {
    for ((_, found), (_, expected)) in found.iter().zip(expected) {
        let largest = expected.iter().fold(0.0f32, |largest, x| largest.max(x.abs()));
        for (found, expected) in found.iter().zip(expected) {
            assert!(
                (found - expected).abs() <= digits * largest,
                "{label}: {found}, expected {expected}, of at most {largest}"
            );
        }
    }
}

#[test]
fn gradients_of_parameters_are_f32_and_close_to_those_without_autocast() {
    // The random numbers of a device are those of the process.
    let _serial = serial_guard();
    for (device, batch) in devices().into_iter().flat_map(|device| [(device, 16), (device, LARGE)])
    {
        let expected = gradients::<Autodiff<Wgsl>>(&device, batch, || None, true);
        assert!(expected.iter().all(|(dtype, _)| *dtype == DType::F32), "{device}");
        for (precision, lower) in LOWER {
            let digits = if lower == DType::F16 { 1e-2 } else { 6e-2 };
            let scope = || Some(autocast(&device, precision));
            let check = |what: &str, found: Vec<(DType, Vec<f32>)>| {
                assert!(found.iter().all(|(dtype, _)| *dtype == DType::F32), "{what}, {device}");
                let label = format!("{what}, {precision} on {device}, {batch} rows");
                assert_close(&label, &found, &expected, digits);
            };
            for in_scope in [false, true] {
                let found = gradients::<Autodiff<Wgsl>>(&device, batch, scope, in_scope);
                check(if in_scope { "in the scope" } else { "after it" }, found);
            }
            // Ops whose inputs are computed again in the backward pass.
            type Again = Autodiff<Wgsl, BalancedCheckpointing>;
            check("again", gradients::<Again>(&device, batch, scope, false));
            // Burn's own autodiff, with types of its own choice.
            check("Burn's", gradients::<BurnAutodiff<Wgsl>>(&device, batch, scope, true));
        }
    }
}

/// Weights and biases that have 16 bits before the product: results of other products, and parameters.
#[test]
fn sixteen_bit_weights_get_gradients_of_their_type() {
    type T<const D: usize> = Tensor<Autodiff<Wgsl>, D>;
    for device in devices() {
        for (precision, lower) in LOWER {
            for in_scope in [false, true] {
                let leaf = |seed, shape| tensor::<Autodiff<Wgsl>, 2>(seed, shape, &device);
                let [a, b] = [1, 2].map(|seed| leaf(seed, [8, 8]).require_grad());
                let own =
                    |tensor: T<2>| tensor.cast(FloatDType::from(lower)).detach().require_grad();
                let [weight, filters] = [own(leaf(3, [8, 8])), own(leaf(4, [2, 9]))];
                let bias = own(leaf(5, [1, 8]));
                let loss = |[a, b, weight, filters, bias]: [&T<2>; 5]| {
                    let bias = bias.clone().reshape([8]);
                    let x = leaf(6, [4, 8]);
                    // A weight that is a product, and weights of its own.
                    let x = linear(x, a.clone().matmul(b.clone()), Some(bias.clone()));
                    let x = linear(x, weight.clone(), Some(bias));
                    let filters = filters.clone().reshape([2, 1, 3, 3]);
                    let options = ConvOptions::new([1, 1], [1, 1], [1, 1], 1);
                    conv2d(x.reshape([1, 1, 4, 8]), filters, None, options).powi_scalar(2).sum()
                };
                let parameters = [&a, &b, &weight, &filters, &bias];
                let scope = autocast(&device, precision);
                let total = loss(parameters);
                let open = in_scope.then_some(scope);
                let grads = total.backward();
                drop(open);
                let wide = parameters
                    .map(|tensor| tensor.clone().cast(FloatDType::F32).detach().require_grad());
                let expected = loss(wide.each_ref()).backward();
                for (index, (found, wide)) in parameters.iter().zip(&wide).enumerate() {
                    let grad = found.grad(&grads).expect("it has a gradient");
                    assert_eq!(grad.dtype(), found.dtype(), "{index}, {precision} on {device}");
                    let values = |grad: Tensor<Wgsl, 2>| {
                        let grad = grad.cast(FloatDType::F32).into_data();
                        vec![(lower, grad.to_vec::<f32>().expect("it is f32"))]
                    };
                    let expected = values(wide.grad(&expected).expect("it has a gradient"));
                    let label = format!("{index}, {precision} on {device}");
                    assert_close(&label, &values(grad), &expected, 0.05);
                }
            }
        }
    }
}

/// In f16 they would be infinite.
#[test]
fn large_gradients_of_weights_are_f32_in_any_backward_pass() {
    for device in devices() {
        let weight = Tensor::<Autodiff<Wgsl>, 2>::ones([2, 2], &device).require_grad();
        let scope = autocast(&device, Precision::F16);
        let loss = |factor: f32| {
            let x = Tensor::<Autodiff<Wgsl>, 2>::ones([300, 2], &device) * factor;
            linear(x, weight.clone(), None).sum()
        };
        let losses = [loss(1000.0), loss(2000.0), loss(3000.0)];
        drop(scope);
        let grad = |loss: Tensor<Autodiff<Wgsl>, 1>| {
            let grad = weight.grad(&loss.backward()).expect("it has a gradient").into_data();
            grad.to_vec::<f32>().expect("it is f32")[0]
        };
        let [first, second, third] = losses;
        assert_eq!([grad(first), grad(second)], [300_000.0, 600_000.0], "{device}");
        let on_other_thread = std::thread::scope(|threads| {
            threads.spawn(|| grad(third)).join().expect("it does not panic")
        });
        assert_eq!(on_other_thread, 900_000.0, "{device}");
    }
}

/// The probability of the first is 1e-8, which is 0 in f16.
#[test]
fn small_probabilities_have_gradients() {
    for device in devices() {
        for (precision, lower) in LOWER {
            let logits = Tensor::<Autodiff<Wgsl>, 2>::from_floats([[0.0, 18.4]], &device);
            let logits = logits.require_grad();
            let _scope = autocast(&device, precision);
            let lowered = logits.clone().cast(FloatDType::from(lower));
            let loss = -activation::softmax(lowered, 1).slice([0..1, 0..1]).log().sum();
            let grad = logits.grad(&loss.backward()).expect("it has a gradient").into_data();
            let grad = grad.to_vec::<f32>().expect("it is f32");
            for (found, expected) in grad.iter().zip([-1.0, 1.0]) {
                assert!((found - expected).abs() < 0.02, "{precision} on {device}: {grad:?}");
            }
        }
    }
}

/// Biases are added to sums in f32: 2049.9 is rounded once.
#[test]
fn biases_are_not_rounded() {
    for device in devices() {
        let _scope = autocast(&device, Precision::F16);
        let x = Tensor::<Wgsl, 2>::from_floats([[2048.0, 1.0]], &device).cast(FloatDType::F16);
        let bias = Tensor::<Wgsl, 1>::from_floats([0.9], &device);
        let y = linear(x, Tensor::ones([2, 1], &device), Some(bias));
        assert_eq!(y.dtype(), DType::F16, "{device}");
        let y = y.cast(FloatDType::F32).into_data().to_vec::<f32>().expect("it is f32");
        assert_eq!(y, [2050.0], "{device}");
    }
}

#[test]
fn biases_can_have_another_type_than_the_operands() {
    for device in devices() {
        for (of_operands, of_bias) in [
            (FloatDType::F32, FloatDType::F16),
            (FloatDType::F32, FloatDType::BF16),
            (FloatDType::F16, FloatDType::F32),
            (FloatDType::F64, FloatDType::F32),
        ] {
            let x = Tensor::<Wgsl, 2>::from_floats([[2.0, 1.0]], &device).cast(of_operands);
            let weight = Tensor::<Wgsl, 2>::ones([2, 1], &device).cast(of_operands);
            let bias = Tensor::<Wgsl, 1>::from_floats([0.5], &device).cast(of_bias);
            let y = linear(x, weight, Some(bias.clone()));
            let label = format!("{of_operands:?} and a bias of {of_bias:?} on {device}");
            assert_eq!(y.dtype(), of_operands.into(), "{label}");
            assert_eq!(y.into_data().iter::<f32>().collect::<Vec<_>>(), [3.5], "{label}");
            let images = Tensor::<Wgsl, 4>::ones([1, 1, 2, 2], &device).cast(of_operands);
            let kernel = Tensor::<Wgsl, 4>::ones([1, 1, 2, 2], &device).cast(of_operands);
            let y = conv2d(images, kernel, Some(bias), ConvOptions::new([1; 2], [0; 2], [1; 2], 1));
            assert_eq!(y.dtype(), of_operands.into(), "{label}");
            assert_eq!(y.into_data().iter::<f32>().collect::<Vec<_>>(), [4.5], "{label}");
        }
    }
}

/// The difference of two neighbours, which are one number in 16 bits.
#[test]
fn operands_of_small_products_are_not_rounded() {
    fn difference<B: Backend>(rows: usize, device: &B::Device) -> f32 {
        let x = Tensor::<B, 2>::ones([rows, 2], device);
        let step = Tensor::<B, 2>::from_floats([[NEIGHBOUR, 0.0]], device);
        let signs = Tensor::<B, 2>::from_floats([[1.0], [-1.0]], device);
        let product = (x + step).matmul(signs);
        assert!(matches!(product.dtype(), DType::F16 | DType::BF16));
        product.slice([0..1, 0..1]).cast(FloatDType::F32).into_data().to_vec::<f32>().unwrap()[0]
    }
    const NEIGHBOUR: f32 = 1.0 / 2048.0;
    // Tests that measure memory hold it, too.
    let _serial = serial_guard();
    for (device, (precision, _)) in devices().into_iter().flat_map(|d| LOWER.map(|of| (d, of))) {
        let _scope = autocast(&device, precision);
        for (rows, expected) in [(4, NEIGHBOUR), (LARGE * 4, 0.0)] {
            assert_eq!(difference::<Wgsl>(rows, &device), expected, "{precision}, {device}");
            let with_gradients = difference::<Autodiff<Wgsl>>(rows, &device);
            assert_eq!(with_gradients, expected, "{precision}, {device}");
        }
    }
}

/// Multiplies by a weight twice in each of `scopes` scopes that `open` opens: only the first product of a scope must
/// convert the weight.
fn a_weight_is_converted_once<S>(scopes: usize, open: impl Fn(&WgslDevice) -> S) {
    for device in gpus() {
        let weight = tensor::<Autodiff<Wgsl>, 2>(1, [64, 64], &device).require_grad();
        let x = tensor::<Autodiff<Wgsl>, 2>(2, [LARGE / 8, 64], &device).cast(FloatDType::F16);
        let _ = x.clone().into_data();
        let conversions = || {
            let conversions = Launches::containing("F16=`a`(x0:F32)");
            let observation = runtime_of(&device).observe(conversions.clone());
            let _ = x.clone().matmul(weight.clone()).into_data();
            drop(observation);
            conversions.count()
        };
        let _serial = serial_guard();
        for _ in 0..scopes {
            let scope = open(&device);
            let (first, second) = (conversions(), conversions());
            assert_eq!(first, second + 1, "the weight is converted once on {device}");
            drop(scope);
        }
    }
}

/// In a process of its own: another test could record what is pending, on its own thread.
#[test]
fn copies_of_parameters_are_kept_until_the_scope_ends() {
    if is_alone(test_alone!("copies_of_parameters_are_kept_until_the_scope_ends")) {
        a_weight_is_converted_once(2, |device| autocast(device, Precision::F16));
    }
}

#[test]
#[ignore = "another test runs it with the variable"]
fn a_weight_is_converted_once_under_the_variable() {
    a_weight_is_converted_once(1, |_| ());
}

/// Each loss has a graph of its own, though they share a parameter.
#[test]
fn losses_that_share_a_parameter_are_differentiated_one_after_the_other() {
    for device in devices() {
        let weight = tensor::<Autodiff<Wgsl>, 2>(1, [8, 8], &device).require_grad();
        let [left, right] = [2, 3].map(|seed| tensor::<Autodiff<Wgsl>, 2>(seed, [4, 8], &device));
        let grads = |losses: [Tensor<Autodiff<Wgsl>, 1>; 2]| {
            losses.map(|loss| {
                let grad = weight.grad(&loss.backward()).expect("it has a gradient");
                assert_eq!(grad.dtype(), DType::F32, "{device}");
                grad.into_data().to_vec::<f32>().expect("it is f32")
            })
        };
        let loss = |x: &Tensor<Autodiff<Wgsl>, 2>| x.clone().matmul(weight.clone()).sum();
        let expected = grads([loss(&left), loss(&right)]);
        let _scope = autocast(&device, Precision::F16);
        let found = grads([loss(&left), loss(&right)]);
        for (found, expected) in found.iter().flatten().zip(expected.iter().flatten()) {
            assert!((found - expected).abs() < 1e-2, "{device}: {found}, expected {expected}");
        }
    }
}

/// Five hundred contributions of 1: in bf16, sums would stop at 256.
#[test]
fn gradients_of_many_uses_add_up_in_f32() {
    for device in devices() {
        let weight = Tensor::<Autodiff<Wgsl>, 2>::ones([1, 1], &device).require_grad();
        let scope = autocast(&device, Precision::Bf16);
        let one = Tensor::<Autodiff<Wgsl>, 2>::ones([1, 1], &device);
        let products = (0..500).map(|_| one.clone().matmul(weight.clone()));
        let loss = Tensor::cat(products.collect(), 0).sum();
        drop(scope);
        let grad = weight.grad(&loss.backward()).expect("it has a gradient").into_data();
        assert_eq!(grad.to_vec::<f32>().expect("it is f32"), [500.0], "{device}");
    }
}

/// Ops that are composed, or that a trait does not name.
#[test]
fn composed_ops_have_gradients() {
    for device in devices() {
        let tensor4 =
            |seed| tensor::<Autodiff<Wgsl>, 4>(seed, [1, 2, 6, 8], &device).require_grad();
        for in_scope in [false, true] {
            let scope = autocast(&device, Precision::F16);
            let [q, k, v] = [1, 2, 3].map(tensor4);
            // 16-bit operands.
            let lowered = || q.clone().matmul(k.clone().swap_dims(2, 3));
            let bias = tensor::<Autodiff<Wgsl>, 4>(4, [1, 2, 6, 6], &device).require_grad();
            let options = AttentionModuleOptions::default();
            let with_bias =
                attention(q.clone(), k.clone(), v.clone(), None, Some(bias.clone()), options);
            let squares = lowered().powi_scalar(2);
            assert_eq!(squares.dtype(), DType::F32, "{device}");
            let x = lowered().reshape([12, 6]);
            let gamma = tensor::<Autodiff<Wgsl>, 1>(5, [6], &device).require_grad();
            let norm = Autodiff::<Wgsl>::rms_norm(
                x.into_primitive().tensor(),
                gamma.clone().into_primitive().tensor(),
                1e-5,
            );
            let norm = Tensor::<Autodiff<Wgsl>, 2>::from_primitive(TensorPrimitive::Float(norm));
            let windows = unfold4d(v.clone(), [2, 2], UnfoldOptions::new([1, 1], [1, 1], [1, 1]));
            assert_eq!(windows.dtype(), DType::F32, "{device}");
            let loss = with_bias.sum() + squares.sum() + norm.sum() + windows.sum();
            let open = in_scope.then_some(scope);
            let grads = loss.backward();
            for parameter in [&q, &k, &v, &bias] {
                let grad = parameter.grad(&grads).expect("it has a gradient");
                assert_eq!(grad.dtype(), DType::F32, "{device}");
                let values = grad.into_data().to_vec::<f32>().expect("it is f32");
                assert!(values.iter().all(|x| x.is_finite()), "{device}: {values:?}");
            }
            assert_eq!(gamma.grad(&grads).expect("a gradient").dtype(), DType::F32, "{device}");
            drop(open);
        }
    }
}

#[test]
fn the_path_of_products_is_known() {
    let path = |device, precision| product_path(&device, precision).expect("the device opens");
    assert_eq!(path(WgslDevice::Cpu, Precision::F16), ProductPath::Cpu);
    for device in gpus() {
        assert_eq!(path(device, Precision::F32), ProductPath::F32, "{device}");
        assert_eq!(path(device, Precision::Bf16), ProductPath::Converted, "{device}");
        let runtime = runtime_of(&device);
        let has_units = runtime.info().units(16).next().is_some();
        let f16 = match has_units && !runtime.is_software() {
            true => ProductPath::MatrixUnits,
            false => ProductPath::Converted,
        };
        assert_eq!(path(device, Precision::F16), f16, "{device}");
    }
}

/// Trains the network and returns the losses of the first and the last step.
fn train<B: AutodiffBackend>(
    device: &B::Device,
    scope: impl Fn() -> Option<burn_wgsl::PrecisionScope>,
) -> [f32; 2] {
    let mut network = Network::<B>::new(device);
    let mut optimizer = AdamConfig::new().init();
    let x = tensor::<B, 2>(1, [64, 8], device);
    // A function of the input.
    let y = (x.clone().slice([0..64, 0..1]) * 3.0).sin() * x.clone().slice([0..64, 1..2]);
    let mut losses = Vec::new();
    for _ in 0..60 {
        let open = scope();
        let loss = network.loss(x.clone(), y.clone());
        losses.push(loss.clone().into_scalar().to_string().parse::<f32>().expect("a number"));
        let grads = GradientsParams::from_grads(loss.backward(), &network);
        network = optimizer.step(0.01, network, grads);
        drop(open);
    }
    [losses[0], losses[59]]
}

#[test]
fn training_reaches_the_loss_of_f32() {
    // The random numbers of a device are those of the process.
    let _serial = serial_guard();
    for device in devices() {
        let expected = train::<Autodiff<Wgsl>>(&device, || None);
        for (precision, _) in LOWER {
            let scope = || Some(autocast(&device, precision));
            let ours = train::<Autodiff<Wgsl>>(&device, scope);
            let burns = train::<BurnAutodiff<Wgsl>>(&device, scope);
            for found in [ours, burns] {
                assert!(
                    found[1] < 0.2 * found[0] && found[1] < 1.5 * expected[1] + 1e-3,
                    "{precision} on {device}: losses {found:?}, in f32 {expected:?}"
                );
            }
        }
    }
}

#[test]
fn medium_products_round_their_operands() {
    for device in devices() {
        let [x, w] =
            [1, 2].map(|seed| tensor::<Autodiff<Wgsl>, 2>(seed, [24, 24], &device).require_grad());
        let run = |precision: MatmulPrecision| {
            let _scope = matmul_precision(&device, precision);
            let y = x.clone().matmul(w.clone());
            assert_eq!(y.dtype(), DType::F32, "{precision} on {device}");
            let grads = y.clone().powi_scalar(2).sum().backward();
            let grad = w.grad(&grads).expect("a gradient");
            assert_eq!(grad.dtype(), DType::F32, "{precision} on {device}");
            [y.inner(), grad].map(|tensor| tensor.into_data().to_vec::<f32>().expect("f32"))
        };
        let highest = run(MatmulPrecision::Highest);
        assert_eq!(run(MatmulPrecision::High), highest, "{device}");
        for (medium, highest) in run(MatmulPrecision::Medium).iter().zip(&highest) {
            let largest = highest.iter().fold(0.0f32, |largest, x| largest.max(x.abs()));
            let errors = medium.iter().zip(highest).map(|(a, b)| (a - b).abs() / largest);
            let error = errors.fold(0.0f32, f32::max);
            // Two operands of 8 bits, each rounded by up to 2^-9.
            assert!(error > 1e-5 && error < 1e-2, "{error} on {device}");
        }
        // The operands, not the result, are rounded: the sums of small integers are exact.
        let _scope = matmul_precision(&device, MatmulPrecision::Medium);
        let ones = Tensor::<Wgsl, 2>::ones([1, 1001], &device);
        let sum = ones.clone().matmul(ones.clone().transpose()).into_scalar();
        assert_eq!(sum, 1001.0, "{device}");
        // Autocast comes first; other ops do not round.
        let inner = autocast(&device, Precision::F16);
        assert_eq!(ones.clone().matmul(ones.clone().transpose()).dtype(), DType::F16, "{device}");
        drop(inner);
        let third = Tensor::<Wgsl, 1>::from_floats([1.0 / 3.0], &device) * 1.0;
        assert_eq!(third.into_scalar(), 1.0 / 3.0, "{device}");
    }
    let error = "tf32".parse::<MatmulPrecision>().expect_err("it is unknown").to_string();
    assert!(error.contains("highest, high or medium"), "{error}");
}
