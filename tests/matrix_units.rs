//! Products and attention with matrix units, on adapters that have them.
//!
//! The elements of products are small integers, so that every product and sum is exact, and results are
//! compared bit by bit. Attention is compared with f32.

mod common;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use burn::tensor::module::{attention, conv_transpose2d, conv2d, linear};
use burn::tensor::ops::{AttentionModuleOptions, ConvOptions, ConvTransposeOptions};
use burn::tensor::{DType, FloatDType, Int, Tensor, TensorData};
use burn_wgsl::runtime::{Event, Observer, Origin};
use burn_wgsl::{
    Autodiff, Precision, ProductPath, Wgsl, WgslDevice, autocast, product_path, set_fusion,
};

use common::{gpus, runtime_of};

/// The kernels with matrix units that were launched, with the ops that launched them.
#[derive(Default)]
struct UnitsUsed(Mutex<BTreeSet<(&'static str, String)>>);

impl UnitsUsed {
    fn ops(&self) -> BTreeSet<&'static str> {
        self.0.lock().expect("no holder panics").iter().map(|&(op, _)| op).collect()
    }

    /// Whether the kernels of convolutions, or of their transposes, have a uniform tap: both values if
    /// some have.
    fn uniform_taps(&self, is_transposed: bool) -> BTreeSet<bool> {
        let kernels = self.0.lock().expect("no holder panics");
        let names = kernels.iter().map(|(_, name)| name).filter(|name| {
            name.starts_with("conv_tiled ") && name.contains(" TRANSPOSED") == is_transposed
        });
        names.map(|name| name.contains(" UNIFORM_TAP")).collect()
    }
}

impl Observer for UnitsUsed {
    fn event(&self, Origin { op, .. }: Origin, event: Event<'_>) {
        if let Event::Dispatch { kernel, .. } = event {
            let name = kernel.to_string();
            if name.contains(" UNITS ") {
                self.0.lock().expect("no holder panics").insert((op, name));
            }
        }
    }
}

/// Checks that a kernel with matrix units was launched. Units that fail their test are not used, and
/// refused with a message; those of the adapter that the tests require must pass.
fn assert_used(device: &WgslDevice, used: &UnitsUsed) {
    let runtime = runtime_of(device);
    let refusals = runtime.refusals();
    let is_required =
        std::env::var("BURN_WGSL_TEST_REQUIRE").is_ok_and(|name| name == "matrix units");
    assert!(!is_required || refusals.is_empty(), "{device} refuses {refusals:?}");
    assert!(!used.ops().is_empty() || !refusals.is_empty(), "{device} did not use its units");
}

/// The test that needs the names of its own ops runs alone: an op of another thread may launch what they left pending.
static THREADS: RwLock<()> = RwLock::new(());

fn with_others() -> RwLockReadGuard<'static, ()> {
    THREADS.read().unwrap_or_else(PoisonError::into_inner)
}

fn alone() -> RwLockWriteGuard<'static, ()> {
    THREADS.write().unwrap_or_else(PoisonError::into_inner)
}

/// The GPUs whose matrix units multiply f16.
fn gpus_with_units() -> Vec<WgslDevice> {
    let has_units = |device: &WgslDevice| {
        let runtime = runtime_of(device);
        let has = runtime.info().matrix_units.iter().any(|unit| unit.bits == 16);
        has && !runtime.is_software()
    };
    let found: Vec<_> = gpus().into_iter().filter(has_units).collect();
    if found.is_empty() {
        let required = std::env::var("BURN_WGSL_TEST_REQUIRE").unwrap_or_default();
        assert!(required != "matrix units", "no GPU with matrix units");
        eprintln!("skipped: no GPU with matrix units, or BURN_WGSL_AS_GPU is not set");
    }
    found
}

/// The element of a matrix: an integer from -15 to 15.
fn value(seed: usize, batch: usize, row: usize, col: usize) -> i32 {
    let mixed = (batch * 131 + row * 31 + col * 17 + row * col * (seed + 2) + seed) % 31;
    mixed as i32 - 15
}

/// A batch of matrices `[batch, rows, cols]`, stored with rows and columns swapped if `transposed`.
fn matrices(
    device: &WgslDevice,
    seed: usize,
    [batch, rows, cols]: [usize; 3],
    transposed: bool,
) -> Tensor<Wgsl, 3> {
    let (outer, inner) = if transposed { (cols, rows) } else { (rows, cols) };
    let mut values = Vec::with_capacity(batch * rows * cols);
    for b in 0..batch {
        for i in 0..outer {
            for j in 0..inner {
                let (row, col) = if transposed { (j, i) } else { (i, j) };
                values.push(half::f16::from_f32(value(seed, b, row, col) as f32));
            }
        }
    }
    let data = TensorData::new(values, [batch, outer, inner]);
    let tensor = Tensor::<Wgsl, 3>::from_data(data, (device, DType::F16));
    if transposed { tensor.swap_dims(1, 2) } else { tensor }
}

/// Compares a product with sums of integers. Results beyond 2048 are not exact in f16, so they are
/// converted in the same way.
fn check(device: &WgslDevice, [batch, m, n, k]: [usize; 4], [a_t, b_t]: [bool; 2]) {
    let a = matrices(device, 1, [batch, m, k], a_t);
    let b = matrices(device, 2, [batch, k, n], b_t);
    let product = a.matmul(b).cast(FloatDType::F32).into_data();
    let found = product.to_vec::<f32>().expect("the result is f32");
    for (at, found) in found.into_iter().enumerate() {
        let (image, row, col) = (at / (m * n), at / n % m, at % n);
        let sum: i32 = (0..k).map(|i| value(1, image, row, i) * value(2, image, i, col)).sum();
        let expected = half::f16::from_f32(sum as f32).to_f32();
        assert_eq!(
            found, expected,
            "[{image}, {row}, {col}] of {batch} x [{m}, {k}] x [{k}, {n}], \
             transposed: {a_t}, {b_t}, on {device}"
        );
    }
}

/// At, below and above the edges of tiles, of units and of the steps in workgroup memory.
const SIZES: &[[usize; 4]] = &[
    [1, 64, 64, 64],
    [1, 4, 4, 4],
    [1, 60, 68, 12],
    [1, 68, 60, 36],
    [1, 128, 132, 32],
    [1, 8, 64, 20],
    [3, 20, 12, 28],
    // Split over k.
    [1, 20, 20, 1100],
    // Several bands of tiles.
    [1, 1100, 132, 8],
    // Tiles of 128, where units are large enough.
    [130, 68, 68, 4],
];

#[test]
fn products_with_units_are_exact_in_every_layout() {
    let _guard = with_others();
    for device in gpus_with_units() {
        let used = Arc::new(UnitsUsed::default());
        let observation = runtime_of(&device).observe(used.clone());
        for &sizes in SIZES {
            for layout in [[false, false], [true, false], [false, true], [true, true]] {
                check(&device, sizes, layout);
            }
        }
        drop(observation);
        assert_used(&device, &used);
    }
}

/// Columns and steps of k that are no multiples of four, as those of many vocabularies, are padded in 16 bits.
#[test]
fn large_products_of_odd_sizes_use_units() {
    let _guard = with_others();
    for device in gpus_with_units() {
        for layout in [[false, false], [true, true]] {
            let used = Arc::new(UnitsUsed::default());
            let observation = runtime_of(&device).observe(used.clone());
            check(&device, [1, 260, 250, 131], layout);
            drop(observation);
            assert_used(&device, &used);
        }
    }
}

/// A bias, and ops after the product in its kernel.
#[test]
fn linear_layers_with_units_are_exact() {
    let _guard = with_others();
    for device in gpus_with_units() {
        let (m, n, k) = (72, 100, 40);
        let x = matrices(&device, 1, [1, m, k], false).squeeze_dim::<2>(0);
        let weight = matrices(&device, 2, [1, k, n], false).squeeze_dim::<2>(0);
        let bias = matrices(&device, 3, [1, 1, n], false).reshape([n]);
        let out = burn::tensor::module::linear(x, weight, Some(bias));
        let out = burn::tensor::activation::relu(out * 0.5).cast(FloatDType::F32).into_data();
        for (at, found) in out.to_vec::<f32>().expect("it is f32").into_iter().enumerate() {
            let (row, col) = (at / n, at % n);
            let sum: i32 = (0..k).map(|i| value(1, 0, row, i) * value(2, 0, i, col)).sum();
            // The steps of the program, each rounded to f16.
            let sum = half::f16::from_f32((sum + value(3, 0, 0, col)) as f32).to_f32();
            let expected = half::f16::from_f32((sum * 0.5).max(0.0)).to_f32();
            assert_eq!(found, expected, "[{row}, {col}] on {device}");
        }
    }
}

/// Returns the results of a convolution or its transpose, and of their gradients, as f32.
fn convolved(
    device: &WgslDevice,
    dtype: DType,
    [x, weight]: [[usize; 4]; 2],
    options: &ConvOptions<2>,
    is_transposed: bool,
) -> Vec<Vec<f32>> {
    let tensor = |seed: usize, shape: [usize; 4]| {
        let values =
            (0..shape.iter().product()).map(|i: usize| value(seed, i / 77, i % 77, i % 13) as f32);
        let data = TensorData::new(values.collect::<Vec<_>>(), shape);
        Tensor::<Autodiff<Wgsl>, 4>::from_data(data, (device, dtype))
    };
    let (x, weight) = (tensor(1, x).require_grad(), tensor(2, weight).require_grad());
    let out = if is_transposed {
        let ConvOptions { stride, padding, dilation, groups } = options.clone();
        let options = ConvTransposeOptions::new(stride, padding, [0, 0], dilation, groups);
        conv_transpose2d(x.clone(), weight.clone(), None, options)
    } else {
        let channels = weight.dims()[0];
        let bias = tensor(3, [1, 1, 1, channels]).reshape([channels]);
        conv2d(x.clone(), weight.clone(), Some(bias), options.clone())
    };
    let grads = (out.clone() * tensor(4, out.dims())).sum().backward();
    let found = [Some(out.inner()), x.grad(&grads), weight.grad(&grads)];
    found
        .into_iter()
        .map(|tensor| tensor.expect("it has a gradient").cast(FloatDType::F32).into_data())
        .map(|data| data.to_vec().expect("it is f32"))
        .collect()
}

/// Checks a convolution, or its transpose, and their gradients. The channels of a transposed
/// convolution's input are the first axis of its weight.
fn assert_exact(
    device: &WgslDevice,
    [mut x, weight]: [[usize; 4]; 2],
    options: &ConvOptions<2>,
    is_transposed: bool,
) {
    if is_transposed {
        x[1] = weight[0];
    }
    let found = convolved(device, DType::F16, [x, weight], options, is_transposed);
    let expected = convolved(&WgslDevice::Cpu, DType::F32, [x, weight], options, is_transposed);
    for (found, expected) in found.into_iter().zip(expected) {
        assert_eq!(found.len(), expected.len());
        for (at, (found, expected)) in found.into_iter().zip(expected).enumerate() {
            let expected = half::f16::from_f32(expected).to_f32();
            assert_eq!(
                found, expected,
                "{at} of {x:?} and {weight:?}, {options:?}, transposed: {is_transposed}, on {device}"
            );
        }
    }
}

#[test]
fn convolutions_with_units_are_exact() {
    let _guard = with_others();
    let plain = |stride, padding| ConvOptions::new(stride, padding, [1, 1], 1);
    let cases = [
        ([2, 20, 9, 12], [68, 20, 3, 3], plain([1, 1], [1, 1])),
        ([3, 7, 8, 9], [7, 7, 2, 3], plain([2, 2], [1, 0])),
        ([1, 16, 12, 10], [16, 8, 3, 3], ConvOptions::new([1, 2], [2, 0], [2, 1], 2)),
        // Rows that are not read in vec4s, and weights that are stored in them.
        ([2, 8, 5, 7], [8, 8, 3, 3], plain([1, 1], [1, 1])),
        // The same, where the gradient of the weight is split over its pixels.
        ([16, 4, 9, 7], [8, 4, 3, 3], plain([1, 1], [1, 1])),
        // Some elements of the input have no taps.
        ([1, 5, 9, 9], [5, 5, 2, 1], plain([3, 2], [0, 0])),
        // Tiles of 128, where units are large enough.
        ([4, 4, 64, 64], [68, 4, 1, 1], plain([1, 1], [0, 0])),
        // The steps of k in workgroup memory are of one tap, in both directions or in one.
        ([2, 64, 8, 8], [96, 64, 3, 3], plain([1, 1], [1, 1])),
        ([1, 32, 9, 7], [36, 32, 3, 2], plain([2, 3], [1, 2])),
        ([2, 64, 6, 7], [64, 32, 3, 2], ConvOptions::new([1, 2], [2, 0], [2, 1], 2)),
        // The same, where phases of the transposed convolution have 1, 2 and 4 taps, or none.
        ([2, 32, 7, 9], [64, 32, 3, 3], plain([2, 2], [1, 1])),
        ([1, 32, 9, 9], [32, 32, 2, 1], plain([3, 2], [0, 0])),
        // The same, where k is split, and the splits have different lengths.
        ([1, 352, 4, 5], [32, 352, 1, 3], plain([1, 1], [0, 1])),
    ];
    for device in gpus_with_units() {
        let used = Arc::new(UnitsUsed::default());
        let observation = runtime_of(&device).observe(used.clone());
        for (x, weight, options) in &cases {
            for is_transposed in [false, true] {
                assert_exact(&device, [*x, *weight], options, is_transposed);
            }
        }
        drop(observation);
        assert_used(&device, &used);
        for is_transposed in [false, true] {
            let found = used.uniform_taps(is_transposed);
            let refuses = !runtime_of(&device).refusals().is_empty();
            assert!(refuses || found == BTreeSet::from([false, true]), "{found:?} on {device}");
        }
    }
}

/// Where a driver computes the kernels with a uniform tap wrong, convolutions use the others. A device
/// remembers which kernels are right, so this needs a process of its own.
#[test]
#[ignore = "`cargo xtask test --only units` runs it by itself"]
fn convolutions_without_a_uniform_tap_replace_those_with_one() {
    for device in gpus_with_units() {
        let runtime = runtime_of(&device);
        for unit in &runtime.info().matrix_units {
            let (size, bits) = (unit.size, unit.bits);
            for subgroup_size in [8, 32, 64] {
                for pass in ["convolution", "transposed convolution"] {
                    for tile in ["64", "64x128", "128"] {
                        let name = format!(
                            "matrix units {size}x{size} F{bits} in subgroups of {subgroup_size}, \
                             {pass} Tiled{tile}, uniform tap"
                        );
                        runtime.refusals().set_for_process(&name, "wrong result");
                    }
                }
            }
        }
        let used = Arc::new(UnitsUsed::default());
        let observation = runtime.observe(used.clone());
        let options = ConvOptions::new([1, 1], [1, 1], [1, 1], 1);
        for is_transposed in [false, true] {
            assert_exact(&device, [[1, 32, 6, 6], [32, 32, 3, 3]], &options, is_transposed);
        }
        drop(observation);
        for is_transposed in [false, true] {
            let found = used.uniform_taps(is_transposed);
            assert_eq!(found, BTreeSet::from([false]), "on {device}");
        }
    }
}

/// Returns the results of attention and its gradients for 70 queries and 150 keys, as f32, where the gradient of the
/// result is multiplied by a power of two. Later keys have larger products with queries, so that running sums are
/// rescaled.
fn attended(
    device: &WgslDevice,
    dtype: DType,
    width: usize,
    causal: bool,
    scale: f32,
) -> Vec<Vec<f32>> {
    let tensor = |seed: usize, rows: usize, growth: f32, scale: f32| {
        let element = |i: usize| {
            let row = i / width % rows;
            value(seed, i / width / rows, row, i % width) as f32 / 16.0
                * (1.0 + growth * row as f32)
                * scale
        };
        let values: Vec<f32> = (0..2 * rows * width).map(element).collect();
        let data = TensorData::new(values, [1, 2, rows, width]);
        // The same numbers in each type.
        let tensor = Tensor::<Autodiff<Wgsl>, 4>::from_data(data, (device, DType::F16));
        tensor.cast(dtype).detach().require_grad()
    };
    let (q, k) = (tensor(1, 70, 0.0, 1.0), tensor(2, 150, 0.05, 1.0));
    let v = tensor(3, 150, 0.0, 1.0);
    let options = AttentionModuleOptions { is_causal: causal, ..Default::default() };
    let out = attention(q.clone(), k.clone(), v.clone(), None, None, options);
    let grads = (out.clone() * tensor(4, 70, 0.0, scale)).sum().backward();
    let found = [Some(out.inner()), q.grad(&grads), k.grad(&grads), v.grad(&grads)];
    found
        .into_iter()
        .map(|tensor| tensor.expect("it has a gradient").cast(FloatDType::F32).into_data())
        .map(|data| data.to_vec().expect("it is f32"))
        .collect()
}

#[test]
fn attention_with_units_is_close_to_f32() {
    let _guard = with_others();
    for device in gpus_with_units() {
        let used = Arc::new(UnitsUsed::default());
        let observation = runtime_of(&device).observe(used.clone());
        // Products of small gradients and small weights would vanish in f16.
        for (width, causal, scale) in
            [(48, false, 1.0), (48, true, 2.0f32.powi(-14)), (80, true, 64.0)]
        {
            let found = attended(&device, DType::F16, width, causal, scale);
            let expected = attended(&WgslDevice::Cpu, DType::F32, width, causal, scale);
            for (result, (found, expected)) in found.iter().zip(&expected).enumerate() {
                assert_eq!(found.len(), expected.len());
                let largest = expected.iter().fold(0.0f32, |largest, x| largest.max(x.abs()));
                // Gradients are differences of rounded results.
                let tolerance = if result == 0 { 2e-3 } else { 1e-2 } * largest;
                for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
                    assert!(
                        (found - expected).abs() <= tolerance,
                        "{at} of result {result} is {found}, expected {expected}, of at most \
                         {largest}, width {width}, causal: {causal}, times {scale}, on {device}"
                    );
                }
            }
        }
        drop(observation);
        assert_used(&device, &used);
    }
}

/// The shape of attention, and what hides keys.
#[derive(Debug, Clone, Copy)]
struct Attended {
    queries: usize,
    keys: usize,
    value_width: usize,
    causal: bool,
    has_mask: bool,
    has_bias: bool,
    /// Whether heads are next to the width in memory.
    permuted: bool,
    /// How many values of each head are zero: the first ones.
    zero_values: usize,
}

impl Attended {
    /// Returns the result and the gradients of the operands, which are 20 wide, for two images of two heads.
    fn compute(self, device: &WgslDevice, dtype: DType) -> Vec<Vec<f32>> {
        let tensor = |seed: usize, rows: usize, width: usize| {
            let shape = if self.permuted { [2, rows, 2, width] } else { [2, 2, rows, width] };
            let element = |image: usize, head: usize, row: usize, col: usize| {
                let is_zero = seed == 3 && row < self.zero_values;
                if is_zero { 0.0 } else { value(seed, 2 * image + head, row, col) as f32 / 16.0 }
            };
            let values: Vec<f32> = (0..4 * rows * width)
                .map(|i| {
                    let [a, b] = [i / width / shape[2] % shape[1], i / width % shape[2]];
                    let [head, row] = if self.permuted { [b, a] } else { [a, b] };
                    element(i / width / rows / 2, head, row, i % width)
                })
                .collect();
            let data = TensorData::new(values, shape);
            let tensor =
                Tensor::<Autodiff<Wgsl>, 4>::from_data(data, (device, dtype)).require_grad();
            if self.permuted {
                (tensor.clone(), tensor.swap_dims(1, 2))
            } else {
                (tensor.clone(), tensor)
            }
        };
        let Self { queries, keys, value_width, .. } = self;
        let operands = [tensor(1, queries, 20), tensor(2, keys, 20), tensor(3, keys, value_width)];
        let [q, k, v] = operands.each_ref().map(|(_, operand)| operand.clone());
        let of_pairs = |seed: usize| {
            let values =
                (0..queries * keys).map(|i| value(seed, 0, i / keys, i % keys) as f32 / 4.0);
            let data = TensorData::new(values.collect::<Vec<_>>(), [1, 1, queries, keys]);
            Tensor::<Autodiff<Wgsl>, 4>::from_data(data, (device, DType::F32))
        };
        // It hides all keys of the fifth query.
        let mask = self.has_mask.then(|| {
            let row = Tensor::<Autodiff<Wgsl>, 1, Int>::arange(0..queries as i64, device);
            of_pairs(5).greater_elem(2.0).bool_or(row.equal_elem(4).reshape([1, 1, queries, 1]))
        });
        let bias = self.has_bias.then(|| of_pairs(6).cast(dtype));
        let options = AttentionModuleOptions { is_causal: self.causal, ..Default::default() };
        let out = attention(q, k, v, mask, bias, options);
        // One element of the gradient is repeated along the columns.
        let weights = tensor(4, queries, 1).1.detach();
        let grads = (out.clone() * weights).sum().backward();
        let of_operands = operands.iter().map(|(leaf, _)| leaf.grad(&grads));
        std::iter::once(Some(out.inner()))
            .chain(of_operands)
            .map(|tensor| tensor.expect("it has a gradient").cast(FloatDType::F32).into_data())
            .map(|data| data.to_vec().expect("it is f32"))
            .collect()
    }
}

#[test]
fn gradients_of_attention_with_units_in_every_shape() {
    let _guard = with_others();
    let plain = Attended {
        queries: 40,
        keys: 50,
        value_width: 20,
        causal: false,
        has_mask: false,
        has_bias: false,
        permuted: false,
        zero_values: 0,
    };
    let shapes = [
        plain,
        Attended { permuted: true, value_width: 8, ..plain },
        Attended { has_mask: true, ..plain },
        Attended { has_bias: true, causal: true, value_width: 60, ..plain },
        Attended { has_mask: true, has_bias: true, permuted: true, ..plain },
        // The first queries attend to no key: whole tiles of them.
        Attended { queries: 100, keys: 20, causal: true, ..plain },
        Attended { queries: 33, keys: 100, causal: true, ..plain },
        // A tile of keys without values, whose gradients are those of means.
        Attended { keys: 150, zero_values: 64, ..plain },
    ];
    for device in gpus_with_units() {
        let used = Arc::new(UnitsUsed::default());
        let observation = runtime_of(&device).observe(used.clone());
        for shape in shapes {
            let found = shape.compute(&device, DType::F16);
            let expected = shape.compute(&WgslDevice::Cpu, DType::F32);
            for (result, (found, expected)) in found.iter().zip(&expected).enumerate() {
                assert_eq!(found.len(), expected.len());
                let largest = expected.iter().fold(0.0f32, |largest, x| largest.max(x.abs()));
                for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
                    assert!(
                        (found - expected).abs() <= 1e-2 * largest,
                        "{at} of result {result} is {found}, expected {expected}, of at most \
                         {largest}, {shape:?} on {device}"
                    );
                }
            }
        }
        drop(observation);
        assert_used(&device, &used);
        assert!(used.ops().contains("attention_backward"), "{device}");
    }
}

/// Returns one head of queries, keys, values or biases in f16.
fn rows_of(
    device: &WgslDevice,
    [rows, cols]: [usize; 2],
    element: &dyn Fn(usize, usize) -> f32,
) -> Tensor<Wgsl, 4> {
    let values: Vec<f32> = (0..rows * cols).map(|i| element(i / cols, i % cols)).collect();
    Tensor::from_data(TensorData::new(values, [1, 1, rows, cols]), (device, DType::F16))
}

/// NaN in a query or a key reaches the results of the queries that attend to it, and no others.
#[test]
fn attention_with_units_propagates_nan() {
    let _guard = with_others();
    for device in gpus_with_units() {
        let used = Arc::new(UnitsUsed::default());
        let observation = runtime_of(&device).observe(used.clone());
        let tensor = |rows: usize, special: Option<(usize, f32)>| {
            rows_of(&device, [rows, 32], &|row, col| match special {
                Some((special_row, number)) if row == special_row && col == 5 => number,
                _ => value(1, 0, row, col) as f32 / 16.0,
            })
        };
        let rows_with_nan = |q, k, v| {
            let options = AttentionModuleOptions { is_causal: true, ..Default::default() };
            let out = attention(q, k, v, None, None, options).cast(FloatDType::F32).into_data();
            let out = out.to_vec::<f32>().expect("it is f32");
            out.chunks(32).map(|row| row.iter().any(|x| !x.is_finite())).collect::<Vec<_>>()
        };
        let from = |first: usize| (0..40).map(|row| row >= first).collect::<Vec<_>>();
        let clean = || tensor(40, None);
        assert_eq!(rows_with_nan(clean(), clean(), clean()), from(40));
        let of_query = rows_with_nan(tensor(40, Some((7, f32::NAN))), clean(), clean());
        assert_eq!(of_query, (0..40).map(|row| row == 7).collect::<Vec<_>>());
        let of_key = rows_with_nan(clean(), tensor(40, Some((20, f32::NAN))), clean());
        assert_eq!(of_key, from(20));
        // The last key has a weight for the last query only.
        let last = rows_with_nan(clean(), tensor(40, Some((39, f32::NAN))), clean());
        assert_eq!(last, from(39));
        drop(observation);
        assert_used(&device, &used);
    }
}

/// Scores at which floats are 4 or 16 apart: a weight relative to the row's reference must not
/// overflow f16.
#[test]
fn attention_with_units_stays_finite_for_large_scores() {
    let _guard = with_others();
    for device in gpus_with_units() {
        let used = Arc::new(UnitsUsed::default());
        let observation = runtime_of(&device).observe(used.clone());
        for (exponent, rise) in [(25, 1), (25, 2), (25, 3), (27, 1), (27, 2)] {
            // The scores of the second block of keys are larger by `rise` units in the last place.
            let step = 2.0f32.powi(exponent - 23);
            let rows = |count, element: &dyn Fn(usize, usize) -> f32| {
                rows_of(&device, [count, 8], element)
            };
            let q = rows(20, &|_, col| if col == 2 { step / 4.0 } else { 4096.0 });
            let k = rows(64, &|row, col| match col {
                0 => 2.0f32.powi(exponent - 12),
                1 => step / 256.0,
                2 if row >= 32 => 4.0 * rise as f32,
                _ => 0.0,
            });
            let v = rows(64, &|row, _| if row >= 32 { 1.0 } else { 0.0 });
            let options = AttentionModuleOptions { scale: Some(1.0), ..Default::default() };
            let out = attention(q, k, v, None, None, options).cast(FloatDType::F32).into_data();
            let expected = 1.0 / (1.0 + (-step * rise as f32).exp());
            for found in out.to_vec::<f32>().expect("it is f32") {
                assert!(
                    (found - expected).abs() < 1e-3,
                    "{found}, expected {expected}, for scores of 2^{exponent} on {device}"
                );
            }
        }
        drop(observation);
        assert_used(&device, &used);
    }
}

/// A bias that hides keys by a large number, as of padding on the left, or all of them alike. It is
/// of the type of the operands, in which -1e9 is infinite.
#[test]
fn attention_with_units_stays_finite_for_large_biases() {
    let _guard = with_others();
    for device in gpus_with_units() {
        let used = Arc::new(UnitsUsed::default());
        let observation = runtime_of(&device).observe(used.clone());
        let tensor = |rows, cols, element: &dyn Fn(usize, usize) -> f32| {
            rows_of(&device, [rows, cols], element)
        };
        for (bias, of_all) in [(-1e4, 0.5), (-65504.0, 0.5), (-1e9, 0.0)] {
            for (biased, expected) in [(32, 1.0), (40, 1.0), (64, of_all)] {
                let q = tensor(20, 8, &|_, _| 1.0);
                let k = tensor(64, 8, &|_, _| 0.5);
                // 1 for keys without a bias. If all have it, for half of them.
                let ones = if biased == 64 { 32 } else { biased };
                let v = tensor(64, 8, &|row, _| if row >= ones { 1.0 } else { 0.0 });
                let of_key = tensor(20, 64, &|_, col| if col < biased { bias } else { 0.0 });
                let options = AttentionModuleOptions::default();
                let out = attention(q, k, v, None, Some(of_key), options).cast(FloatDType::F32);
                for found in out.into_data().to_vec::<f32>().expect("it is f32") {
                    assert!(
                        (found - expected).abs() < 1e-3,
                        "{found}, expected {expected}: {biased} keys have {bias} on {device}"
                    );
                }
            }
        }
        drop(observation);
        assert_used(&device, &used);
    }
}

/// The products of a training step in f32, and their gradients.
#[test]
fn products_under_autocast_use_units() {
    type B = Autodiff<Wgsl>;
    const OPS: [&str; 8] = [
        "linear",
        "linear_x_backward",
        "linear_weight_backward",
        "conv2d",
        "conv2d_x_backward",
        "conv2d_weight_backward",
        "attention_with_log_sums",
        "attention_backward",
    ];
    let _guard = alone();
    // Every op launches its own kernels.
    set_fusion(false);
    for device in gpus_with_units() {
        let path = product_path(&device, Precision::F16).expect("the device opens");
        assert_eq!(path, ProductPath::MatrixUnits, "{device}");
        let used = Arc::new(UnitsUsed::default());
        let observation = runtime_of(&device).observe(used.clone());
        let tensor = |shape: [usize; 4]| {
            let values: Vec<f32> =
                (0..shape.iter().product()).map(|i| value(1, 0, i / 32, i % 32) as f32).collect();
            Tensor::<B, 4>::from_data(TensorData::new(values, shape), &device).require_grad()
        };
        // Small products of f32 are f32.
        let [images, kernels] = [tensor([32, 16, 32, 32]), tensor([32, 16, 3, 3])];
        let weights = tensor([1, 1, 32, 32]);
        let scope = autocast(&device, Precision::F16);
        let convolved = conv2d(images, kernels, None, ConvOptions::new([1, 1], [1, 1], [1, 1], 1));
        let x = convolved.reshape([128, 4, 64, 32]);
        let queries = linear(x.clone(), weights.reshape([32, 32]), None);
        let attended =
            attention(queries, x.clone(), x, None, None, AttentionModuleOptions::default());
        let gradients = attended.sum().backward();
        drop(gradients);
        drop(scope);
        drop(observation);
        assert_used(&device, &used);
        let ops = used.ops();
        for op in OPS {
            assert!(
                ops.is_empty() || ops.contains(op),
                "{op} on {device}, which used units in {ops:?}"
            );
        }
    }
    set_fusion(true);
}
