//! Loops as long as the largest tensors make them: some software adapters end the loops of an invocation after 65,535
//! rounds, and drivers reset a GPU that is busy for seconds. Each family is tried where its longest loop is at the
//! limit of the device, below it and beyond.

use burn::nn::loss::{CTCLossConfig, Reduction};
use burn::tensor::activation::{log_softmax, softmax};
use burn::tensor::module::{
    adaptive_avg_pool2d, attention, avg_pool2d, conv1d, conv2d, deform_conv2d, interpolate,
    max_pool2d, max_pool2d_with_indices,
};
use burn::tensor::ops::{
    AttentionModuleOptions, ConvOptions, DeformConvOptions, InterpolateMode, InterpolateOptions,
};
use burn::tensor::{Distribution, IndexingUpdateOp, Int, Tensor, TensorData};
use burn_wgsl::custom::Kernel;
use burn_wgsl::{Autodiff, Wgsl, WgslDevice, kernel_params};

use crate::common::{self, gpus, runtime_of};

type Grad = Autodiff<Wgsl>;

/// Returns lengths whose loops are at the limit of a device, where an invocation goes over `per_round` elements in a
/// round: one less, the limit, one more; and beyond those of Mesa's software adapter.
fn lengths(device: &WgslDevice, per_round: usize) -> impl Iterator<Item = usize> {
    let limit = runtime_of(device).info().max_rounds().min(1 << 16) as usize;
    let rounds = [limit - 1, limit, limit + 1, 65_536, 140_000];
    rounds.into_iter().map(move |rounds| rounds * per_round)
}

fn ones<const D: usize>(shape: [usize; D], device: &WgslDevice) -> Tensor<Wgsl, D> {
    // In memory, not a pending constant.
    let len = shape.iter().product();
    Tensor::from_data(TensorData::new(vec![1_f32; len], shape), device)
}

fn assert_all<const D: usize>(found: &Tensor<Wgsl, D>, expected: f32, what: &str) {
    let found = found.to_data().to_vec::<f32>().expect("f32");
    assert!(!found.is_empty(), "{what}");
    let wrong = found.iter().find(|value| (**value - expected).abs() > expected.abs() * 1e-6);
    assert_eq!(wrong, None, "{what}: expected {expected}");
}

/// Asserts that results agree with those of the CPU device, relative to the largest.
fn assert_close<const D: usize>(found: &Tensor<Wgsl, D>, expected: &Tensor<Wgsl, D>, what: &str) {
    let values = |tensor: &Tensor<Wgsl, D>| tensor.to_data().to_vec::<f32>().expect("f32");
    let (found, expected) = (values(found), values(expected));
    let scale = expected.iter().fold(f32::MIN_POSITIVE, |scale, value| scale.max(value.abs()));
    let far = |(found, expected): &(&f32, &f32)| {
        let error = (*found - *expected).abs();
        error.is_nan() || error > 2e-4 * scale
    };
    let wrong = found.iter().zip(&expected).enumerate().find(|(_, pair)| far(pair));
    assert_eq!((wrong, found.len()), (None, expected.len()), "{what}");
}

fn normal<const D: usize>(shape: [usize; D], device: &WgslDevice) -> Tensor<Wgsl, D> {
    let cpu = common::random(shape, Distribution::Normal(0.0, 1.0), &WgslDevice::Cpu);
    cpu.to_device(device)
}

#[test]
fn reductions_of_long_lines() {
    for device in gpus() {
        for len in lengths(&device, 1) {
            let what = format!("{len} on {device}");
            // Lines that are neighbours in memory, of which an invocation reads one or four.
            for lines in [9, 2100] {
                if lines * len > 1 << 27 {
                    continue;
                }
                let x = ones([len, lines], &device);
                assert_all(&x.clone().sum_dim(0), len as f32, &what);
                assert_all(&x.clone().max_dim(0), 1.0, &what);
                // The last element is the largest, and the only one that is not one.
                let last = x.clone().slice([len - 1..len, 0..lines]).mul_scalar(2.0);
                let x = x.slice_assign([len - 1..len, 0..lines], last);
                assert_all(&x.clone().max_dim(0), 2.0, &what);
                assert_all(&x.clone().argmax(0).float(), (len - 1) as f32, &what);
                assert_all(&x.clone().greater_elem(1.5).any_dim(0).float(), 1.0, &what);
                assert_all(&x.mean_dim(0), 1.0 + 1.0 / len as f32, &what);
            }
            // Several axes, and a line whose elements are not neighbours.
            let x = ones([7, len / 7, 3], &device).swap_dims(0, 2);
            assert_all(&x.clone().sum(), (len / 7 * 21) as f32, &what);
            assert_all(&x.sum_dim(1), (len / 7) as f32, &what);
            let x = Tensor::<Wgsl, 2, Int>::ones([len, 3], &device);
            assert_all(&x.clone().sum_dim(0).float(), len as f32, &what);
            assert_all(&x.prod_dim(0).float(), 1.0, &what);
        }
        for len in lengths(&device, 32) {
            let x = ones([2, len], &device);
            assert_all(&x.clone().sum_dim(1), len as f32, "along");
            assert_all(&x.clone().argmax(1).float(), 0.0, "along");
            // Computed where it is read, with a loop for each element.
            assert_all(&x.powf_scalar(3.0).sum_dim(1), len as f32, "powers");
        }
    }
}

#[test]
fn softmax_of_long_lines() {
    for device in gpus() {
        for len in lengths(&device, 1) {
            let what = format!("{len} on {device}");
            let x = ones([len / 2, 8], &device);
            assert_all(&softmax(x.clone(), 0), 2.0 / (len / 2 * 2) as f32, &what);
            assert_all(&log_softmax(x, 0), -((len / 2) as f32).ln(), &what);
            let x = Tensor::<Grad, 2>::from_inner(normal([len / 2, 8], &device)).require_grad();
            let weights = Tensor::from_inner(normal([len / 2, 8], &device));
            let gradients = |x: Tensor<Grad, 2>, weights: Tensor<Grad, 2>| {
                let loss = (softmax(x.clone(), 0) * weights.clone()).sum() * 1e3
                    + (log_softmax(x.clone(), 0) * weights).sum();
                x.grad(&loss.backward()).expect("a gradient")
            };
            let found = gradients(x.clone(), weights.clone());
            let cpu = WgslDevice::Cpu;
            let x = x.to_device(&cpu).detach().require_grad();
            let expected = gradients(x, weights.to_device(&cpu));
            assert_close(&found, &expected.to_device(&device), &what);
        }
    }
}

#[test]
fn norms_of_wide_rows() {
    for device in gpus() {
        // 64 rows of a workgroup, and rows beyond the limit.
        for [rows, width] in [[64, 8192], [70, 9000], [65, 33_001], [3, 520_000], [2, 530_001]] {
            let gradients = |device: &WgslDevice, x: &Tensor<Wgsl, 2>, w: &Tensor<Wgsl, 2>| {
                let x = Tensor::<Grad, 2>::from_inner(x.clone().to_device(device)).require_grad();
                let norm = burn::nn::LayerNormConfig::new(width).init::<Grad>(device);
                let y = norm.forward(x.clone());
                let loss = (y.clone() * Tensor::from_inner(w.clone().to_device(device))).sum();
                let grads = loss.backward();
                let gamma = norm.gamma.grad(&grads).expect("a gradient");
                (y.inner(), x.grad(&grads).expect("a gradient"), gamma)
            };
            let (x, w) = (normal([rows, width], &device), normal([rows, width], &device));
            let (found, expected) =
                (gradients(&device, &x, &w), gradients(&WgslDevice::Cpu, &x, &w));
            let what = format!("{rows} x {width} on {device}");
            assert_close(&found.0, &expected.0, &what);
            assert_close(&found.1, &expected.1, &what);
            assert_close(&found.2, &expected.2, &what);
        }
    }
}

#[test]
fn pooling_of_large_windows() {
    for device in gpus() {
        for size in [31, 122, 123, 128, 260] {
            let what = format!("{size} on {device}");
            let x = ones([1, 16, size, size], &device);
            assert_all(&adaptive_avg_pool2d(x.clone(), [1, 1]), 1.0, &what);
            assert_all(&adaptive_avg_pool2d(x.clone(), [1, 3]), 1.0, &what);
            let kernel = [size, size - 1];
            assert_all(&avg_pool2d(x.clone(), kernel, [1, 1], [0, 0], false, false), 1.0, &what);
            let whole = ((size - 1) * size) as f32;
            let padded = avg_pool2d(x.clone(), kernel, [1, 1], [1, 0], true, false);
            let expected = Tensor::<Wgsl, 1>::from_floats(
                [
                    (size - 1) as f32 * (size - 1) as f32 / whole,
                    1.0,
                    (size - 1) as f32 * (size - 1) as f32 / whole,
                ],
                &device,
            );
            let first = padded.slice([0..1, 0..1, 0..3, 0..1]).reshape([3]);
            assert_close(&first, &expected, &what);
            let x = normal([2, 3, size, size], &device);
            for (kernel, stride, padding, dilation) in [
                ([size, size], [1, 1], [0, 0], [1, 1]),
                ([size / 2, size - 3], [2, 1], [size / 4, 5], [1, 1]),
                ([size / 2, size / 3], [1, 3], [3, 1], [2, 3]),
            ] {
                let [found, expected] = [device, WgslDevice::Cpu].map(|device| {
                    let x = x.clone().to_device(&device);
                    max_pool2d_with_indices(x, kernel, stride, padding, dilation, false)
                });
                assert_close(&found.0, &expected.0.to_device(&device), &what);
                let indices = |indices: Tensor<Wgsl, 4, Int>| {
                    indices.into_data().iter::<i64>().collect::<Vec<_>>()
                };
                assert_eq!(indices(found.1), indices(expected.1), "{what}");
            }
        }
        // Windows along one axis, longer than a loop.
        let shorter = [5_000, 5_001, 20_000, 29_999].into_iter();
        for len in lengths(&device, 1).chain(shorter) {
            let what = format!("{len} on {device}");
            for along_rows in [false, true] {
                let of = |x: Tensor<Wgsl, 4>| if along_rows { x.swap_dims(2, 3) } else { x };
                let size = |across: usize, along: usize| match along_rows {
                    true => [along, across],
                    false => [across, along],
                };
                let x = of(ones([1, 2, 3, len], &device));
                assert_all(&adaptive_avg_pool2d(x.clone(), size(3, 1)), 1.0, &what);
                assert_all(&adaptive_avg_pool2d(x.clone(), size(1, 2)), 1.0, &what);
                let (kernel, stride, padding) = (size(1, len - 1), size(2, 1), size(0, 2));
                let ceil = along_rows;
                let y = avg_pool2d(x.clone(), kernel, stride, padding, false, ceil);
                assert_all(&y, 1.0, &what);
                let y = avg_pool2d(x, kernel, stride, padding, true, ceil);
                let first = y.slice([0..1, 0..1, 0..1, 0..1]);
                assert_all(&first, (len - 3) as f32 / (len - 1) as f32, &what);
                // The maximum is in the second half; padding is no element.
                let at = len / 2 + 7;
                let mut elements = vec![-2.0_f32; 3 * len];
                (0..3).for_each(|row| elements[row * len + at] = -1.0);
                let x = Tensor::<Wgsl, 4>::from_data(
                    TensorData::new(elements, [1, 1, 3, len]),
                    &device,
                );
                let (y, indices) =
                    max_pool2d_with_indices(of(x), kernel, stride, padding, [1, 1], ceil);
                assert_all(&y, -1.0, &what);
                let row_start = if along_rows { 0 } else { 2 * len };
                let [_, _, rows, columns] = y.dims();
                let last = indices.slice([0..1, 0..1, rows - 1..rows, columns - 1..columns]);
                let expected = if along_rows { at * 3 + 2 } else { row_start + at };
                assert_eq!(last.into_scalar(), expected as i32, "{what}");
            }
        }
        // No images have no windows.
        let x = Tensor::<Wgsl, 4>::zeros([0, 3, 600, 600], &device);
        assert_eq!(adaptive_avg_pool2d(x, [1, 1]).dims(), [0, 3, 1, 1]);
    }
}

#[test]
fn gradients_of_pooling_with_many_windows() {
    for device in gpus() {
        for kernel in [40, 300] {
            // With the large kernel, an element is in 131 x 131 windows, and an invocation may compute four.
            let size = kernel + 130;
            let gradients = |device: &WgslDevice, x: &Tensor<Wgsl, 4>, largest: bool| {
                let x = Tensor::<Grad, 4>::from_inner(x.clone().to_device(device)).require_grad();
                let (kernel, one, zero) = ([kernel; 2], [1, 1], [0, 0]);
                let y = match largest {
                    true => max_pool2d(x.clone(), kernel, one, zero, one, false),
                    false => avg_pool2d(x.clone(), kernel, one, [3, 1], kernel[0] > 99, false),
                };
                let w = Tensor::<Wgsl, 1, Int>::arange(0..y.shape().num_elements() as i64, device);
                let w = Tensor::from_inner((w.float() * 1e-3).sin().reshape(y.shape()));
                x.grad(&(y * w).sum().backward()).expect("a gradient").to_device(&WgslDevice::Cpu)
            };
            let x = normal([1, 1, size, size], &device);
            for largest in [false, true] {
                let what = format!("{kernel} on {device}, maxima: {largest}");
                let expected = gradients(&WgslDevice::Cpu, &x, largest);
                assert_close(&gradients(&device, &x, largest), &expected, &what);
            }
        }
        // Adaptive windows, of which each has the only element.
        for size in [100, 300] {
            let x = Tensor::<Grad, 4>::from_inner(ones([1, 2, 1, 1], &device)).require_grad();
            let y = adaptive_avg_pool2d(x.clone(), [size, size]);
            let grad = x.grad(&y.sum().backward()).expect("a gradient");
            assert_all(&grad, (size * size) as f32, "adaptive");
        }
    }
}

#[test]
fn convolutions_of_large_images() {
    for device in gpus() {
        for (batch, channels, size, groups) in
            [(16, 3, 128, 1), (2, 4, 300, 4), (1, 4, 350, 2), (8, 2, 250, 2)]
        {
            let what = format!("{batch} x {channels} x {size} in {groups} on {device}");
            let x = Tensor::<Grad, 4>::from_inner(ones([batch, channels, size, size], &device));
            let weight = ones([channels, channels / groups, 3, 3], &device);
            let weight = Tensor::<Grad, 4>::from_inner(weight).require_grad();
            let bias = Tensor::<Grad, 1>::from_inner(ones([channels], &device)).require_grad();
            let options = ConvOptions::new([1, 1], [1, 1], [1, 1], groups);
            let y = conv2d(x, weight.clone(), Some(bias.clone()), options);
            let grads = y.sum().backward();
            let grad = weight.grad(&grads).expect("a gradient");
            let at = |row: usize, col: usize| {
                grad.clone().slice([0..channels, 0..1, row..row + 1, col..col + 1])
            };
            assert_all(&at(1, 1), (batch * size * size) as f32, &what);
            assert_all(&at(0, 1), (batch * size * (size - 1)) as f32, &what);
            assert_all(&at(2, 2), (batch * (size - 1) * (size - 1)) as f32, &what);
            let bias = bias.grad(&grads).expect("a gradient");
            assert_all(&bias, (batch * size * size) as f32, &what);
        }
        for len in lengths(&device, 1) {
            let what = format!("{len} on {device}");
            let x = Tensor::<Grad, 3>::from_inner(ones([1, 2, len], &device)).require_grad();
            let weight = Tensor::<Grad, 3>::from_inner(ones([3, 2, 3], &device)).require_grad();
            let y = conv1d(x, weight.clone(), None, ConvOptions::new([1], [0], [1], 1));
            let grad = weight.grad(&y.sum().backward()).expect("a gradient");
            assert_all(&grad, (len - 2) as f32, &what);
            let weight = Tensor::<Grad, 3>::from_inner(ones([2, 1, 3], &device)).require_grad();
            let x = Tensor::<Grad, 3>::from_inner(ones([1, 2, len], &device)).require_grad();
            let y = conv1d(x, weight.clone(), None, ConvOptions::new([1], [0], [1], 2));
            let grad = weight.grad(&y.sum().backward()).expect("a gradient");
            assert_all(&grad, (len - 2) as f32, &what);
            // A window as long as the signal.
            let x = ones([1, 1, len], &device);
            let y =
                conv1d(x.clone(), x, Some(ones([1], &device)), ConvOptions::new([1], [0], [1], 1));
            assert_all(&y, (len + 1) as f32, &what);
        }
    }
}

#[test]
fn products_over_many_steps() {
    for device in gpus() {
        for k in lengths(&device, 1).chain([2_000_000]) {
            let what = format!("{k} on {device}");
            for [m, n] in [[8, 2], [1, 4], [3, 33], [40, 40]] {
                if m * k > 1 << 24 {
                    continue;
                }
                let (a, b) = (ones([m, k], &device), ones([k, n], &device));
                assert_all(&a.clone().matmul(b.clone()), k as f32, &what);
                let transposed = ones([n, k], &device).transpose();
                assert_all(&a.matmul(transposed), k as f32, &what);
                let a = Tensor::<Wgsl, 2, Int>::ones([m, k], &device);
                let b = Tensor::<Wgsl, 2, Int>::ones([k, n], &device);
                assert_all(&a.matmul(b).float(), k as f32, &what);
            }
        }
    }
}

#[test]
fn scans_and_scatters_of_long_lines() {
    for device in gpus() {
        for len in lengths(&device, 1) {
            let what = format!("{len} on {device}");
            let x = ones([len, 3], &device);
            let last = x.clone().cumsum(0).slice([len - 1..len, 0..3]);
            assert_all(&last, len as f32, &what);
            let last = ones([3, len], &device).cumsum(1).slice([0..3, len - 1..len]);
            assert_all(&last, len as f32, &what);
            let zeros = Tensor::<Wgsl, 2>::zeros([2, 3], &device);
            let indices = Tensor::<Wgsl, 2, Int>::ones([len, 3], &device);
            let sums = zeros.scatter(0, indices, x.clone(), IndexingUpdateOp::Add);
            assert_all(&sums.slice([1..2, 0..3]), len as f32, &what);
            let zeros = Tensor::<Wgsl, 2>::zeros([2, 3], &device);
            let indices = Tensor::<Wgsl, 1, Int>::zeros([len], &device);
            let sums = zeros.select_assign(0, indices, x, IndexingUpdateOp::Add);
            assert_all(&sums.slice([0..1, 0..3]), len as f32, &what);
        }
    }
}

#[test]
fn attention_over_many_keys() {
    for device in gpus() {
        for (queries, keys, width) in
            [(1, 16_383, 64), (1, 15_000, 256), (3, 5400, 512), (40, 70_000, 16)]
        {
            let what = format!("{queries} x {keys} of {width} on {device}");
            let q = normal([1, 1, queries, width], &device);
            let k = ones([1, 1, keys, width], &device);
            let v = ones([1, 1, keys, width], &device);
            let out = attention(q, k, v, None, None, AttentionModuleOptions::default());
            assert_all(&out, 1.0, &what);
        }
    }
}

#[test]
fn gradients_of_resizing_from_few_pixels() {
    for device in gpus() {
        for output in [[300, 300], [1, 64_000], [131_000, 1]] {
            for mode in [InterpolateMode::Nearest, InterpolateMode::Bilinear] {
                let what = format!("{output:?} {mode:?} on {device}");
                let x = Tensor::<Grad, 4>::from_inner(ones([1, 2, 1, 1], &device)).require_grad();
                let y = interpolate(x.clone(), output, InterpolateOptions::new(mode));
                let grad = x.grad(&y.sum().backward()).expect("a gradient");
                assert_all(&grad, (output[0] * output[1]) as f32, &what);
            }
        }
        // An infinity affects its own pixel only.
        let x = Tensor::<Grad, 4>::from_inner(ones([1, 1, 1, 2], &device)).require_grad();
        let y =
            interpolate(x.clone(), [1, 140_000], InterpolateOptions::new(InterpolateMode::Nearest));
        let infinite = y.clone().slice([0..1, 0..1, 0..1, 0..1]) * f32::INFINITY;
        let grads = (y.sum() + infinite.sum()).backward();
        let grad = x.grad(&grads).expect("a gradient").into_data().to_vec::<f32>().expect("f32");
        assert_eq!(grad, [f32::INFINITY, 70_000.0]);
    }
}

#[test]
fn gradients_of_deformable_convolutions_of_large_images() {
    for (device, channels, size) in
        gpus().into_iter().flat_map(|device| [(device, 1, 120), (device, 16, 200)])
    {
        let x = ones([1, channels, size, size], &device);
        let x = Tensor::<Grad, 4>::from_inner(x).require_grad();
        let weight = Tensor::<Grad, 4>::from_inner(ones([1, channels, 3, 3], &device));
        let offset = Tensor::<Grad, 4>::zeros([1, 18, size - 2, size - 2], &device);
        let options = DeformConvOptions::new([1, 1], [0, 0], [1, 1], 1, 1);
        let y = deform_conv2d(x.clone(), offset, weight, None, None, options);
        let grad = x.grad(&y.sum().backward()).expect("a gradient");
        let inside = grad.slice([0..1, 0..channels, 2..size - 2, 2..size - 2]);
        assert_all(&inside, 9.0, &format!("{device}"));
    }
}

#[test]
fn losses_of_long_sequences() {
    let loss = |device: &WgslDevice, steps: usize, labels: usize| {
        let log_probs = log_softmax(Tensor::<Wgsl, 3>::zeros([steps, 1, 5], device), 2);
        let targets = Tensor::<Wgsl, 1, Int>::arange(0..labels as i64, device) % 4 + 1;
        let lengths = |len: usize| Tensor::<Wgsl, 1, Int>::from_ints([len as i32], device);
        let ctc = CTCLossConfig::new().init();
        let (steps, labels) = (lengths(steps), lengths(labels));
        let targets = targets.unsqueeze();
        ctc.forward_with_reduction(log_probs, targets, steps, labels, Reduction::Sum)
    };
    for device in gpus() {
        for (steps, labels) in [(1500, 200), (4000, 100), (13_000, 8), (16_000, 30)] {
            let [found, expected] =
                [&device, &WgslDevice::Cpu].map(|device| loss(device, steps, labels));
            let what = format!("{steps} steps, {labels} labels on {device}");
            assert_close(&found, &expected.to_device(&device), &what);
        }
    }
}

#[test]
fn elementwise_kernels_of_many_loops() {
    for device in gpus() {
        // 20 powers of each element, each a loop of up to 24 rounds.
        let x = ones([1 << 21], &device);
        let y = (0..20).fold(x, |x, _| x.powf_scalar(16_777_215.0) * 1.0);
        assert_all(&y, 1.0, &format!("{device}"));
    }
}

kernel_params! {
    struct Rounds {
        rounds: u32,
    }
}

/// Counts the rounds of a loop that no compiler can replace: each reads where the next one reads.
static COUNT: Kernel<Rounds> = Kernel::new(
    "count_rounds",
    "next: i32[1] -> count: i32[1]",
    "
struct Params { rounds: u32 }
@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> next: array<i32>;
@group(0) @binding(auto) var<storage, read_write> count: array<i32>;

@compute @workgroup_size(1)
fn main() {
    var at = 0u;
    var rounds = 0u;
    for (var outer = 0u; outer < p.rounds; outer += 100u) {
        for (var inner = outer; inner < min(outer + 99u, p.rounds); inner++) {
            at = u32(next[at]);
            rounds += 1u + at;
        }
    }
    count[0u] = i32(rounds);
}
",
);

/// An adapter that ends loops earlier than this crate assumes computes wrong results, in silence.
#[test]
fn adapters_end_no_loop_below_their_limit() {
    for device in gpus() {
        let limit = runtime_of(&device).info().max_rounds();
        let next = Tensor::<Wgsl, 1, Int>::zeros([1], &device);
        let call = COUNT.call((&next,), Rounds { rounds: limit as u32 });
        let count: Tensor<Wgsl, 1, Int> = call.run(1).expect("the kernel runs");
        // The inner loop has 99 of 100 rounds.
        let expected = limit / 100 * 99 + (limit % 100).min(99);
        assert_eq!(count.into_scalar(), expected as i32, "{device}: of {limit} rounds");
    }
}
