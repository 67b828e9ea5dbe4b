//! Reductions of lines with the ops around them: few launches, and the results of separate ops.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use burn::tensor::activation::{log_softmax, softmax};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::module::linear;
use burn::tensor::{
    Bool, DType, Distribution, FloatDType, Tensor, TensorData, TensorPrimitive, Tolerance, s,
};
use burn_wgsl::{Autodiff, Wgsl, WgslDevice, set_fusion};

use crate::common;
use crate::fusion::{device_of, launches};

type Burns = burn::backend::Autodiff<Wgsl>;

/// Lengths of lines: of one invocation and of teams, with and without vec4s.
const LENGTHS: [usize; 11] = [2, 3, 10, 31, 32, 35, 100, 256, 1000, 1027, 4096];

fn random<const D: usize>(shape: [usize; D], device: &WgslDevice) -> Tensor<Wgsl, D> {
    Tensor::random(shape, Distribution::Normal(0.0, 1.0), device)
}

fn layer_norm<B: Backend>(
    x: Tensor<B, 3>,
    gamma: Tensor<B, 1>,
    beta: Tensor<B, 1>,
) -> Tensor<B, 3> {
    let [gamma, beta] = [gamma, beta].map(|parameter| parameter.into_primitive().tensor());
    let y = B::layer_norm(x.into_primitive().tensor(), gamma, Some(beta), 1e-5);
    Tensor::from_primitive(TensorPrimitive::Float(y))
}

type Op = fn(Tensor<Burns, 3>, [Tensor<Burns, 1>; 2]) -> Tensor<Burns, 3>;

/// An op whose gradient Burn's automatic differentiation composes, and the launches of the gradients.
struct Composed {
    name: &'static str,
    op: Op,
    backward: usize,
}

const COMPOSED: [Composed; 5] = [
    Composed { name: "softmax", op: |x, _| softmax(x, 2), backward: 1 },
    Composed { name: "log_softmax", op: |x, _| log_softmax(x, 2), backward: 1 },
    // The sums for gamma and beta are two.
    Composed { name: "layer_norm", op: |x, [gamma, beta]| layer_norm(x, gamma, beta), backward: 3 },
    Composed {
        name: "rms_norm",
        op: |x, [gamma, _]| {
            let squares = x.clone().powi_scalar(2).mean_dim(2);
            x / (squares + 1e-5).sqrt() * gamma.reshape([1, 1, -1])
        },
        backward: 2,
    },
    Composed {
        name: "standardised",
        op: |x, _| {
            let (variance, mean) = x.clone().var_mean(2);
            (x - mean) / (variance + 1e-3).sqrt()
        },
        backward: 1,
    },
];

/// The inputs of an op, and a gradient of its result.
struct Inputs<B: AutodiffBackend> {
    x: Tensor<B, 3>,
    parameters: [Tensor<B, 1>; 2],
    gradient: Tensor<B, 3>,
}

impl Inputs<Burns> {
    fn new(shape: [usize; 3], dtype: FloatDType, device: &WgslDevice) -> Self {
        let [x, gradient] = [(); 2].map(|()| random(shape, device).cast(dtype));
        let parameters = [(); 2].map(|()| random([shape[2]], device).cast(dtype));
        Self {
            x: Tensor::from_inner(x).require_grad(),
            parameters: parameters.map(|tensor| Tensor::from_inner(tensor).require_grad()),
            gradient: Tensor::from_inner(gradient),
        }
    }

    /// Returns the result of an op. Burn differentiates the maximum of a parameter, too: `x` is none.
    fn forward(&self, op: Op) -> Tensor<Burns, 3> {
        op(-self.x.clone(), self.parameters.clone())
    }

    /// Returns the gradients of the inputs.
    fn backward(&self, y: Tensor<Burns, 3>) -> Vec<TensorData> {
        let gradients = (y * self.gradient.clone()).sum().backward();
        let of_parameters =
            self.parameters.iter().filter_map(|parameter| parameter.grad(&gradients));
        let mut results: Vec<TensorData> = of_parameters.map(|tensor| tensor.into_data()).collect();
        results.extend(self.x.grad(&gradients).map(|tensor| tensor.into_data()));
        results
    }
}

fn assert_close(name: &str, [fused, separate]: [Vec<TensorData>; 2], tolerance: f32) {
    assert_eq!(fused.len(), separate.len(), "{name}");
    for (fused, separate) in fused.into_iter().zip(separate) {
        assert_eq!((&fused.shape, fused.dtype), (&separate.shape, separate.dtype), "{name}");
        let [fused, separate] = [fused, separate].map(|data| data.convert::<f32>());
        fused.assert_approx_eq(&separate, Tolerance::<f32>::rel_abs(1e-3, tolerance));
    }
}

/// Returns the results of a program with fusion and without.
fn with_and_without(mut program: impl FnMut() -> Vec<TensorData>) -> [Vec<TensorData>; 2] {
    let results = [true, false].map(|is_fused| {
        set_fusion(is_fused);
        program()
    });
    set_fusion(true);
    results
}

#[test]
fn gradients_below_burns_autodiff_are_those_of_separate_ops() {
    let _guard = common::serial_guard();
    for device in common::gpus() {
        for (dtype, tolerance) in [(FloatDType::F32, 2e-5), (FloatDType::F16, 2e-2)] {
            for length in LENGTHS {
                let inputs = Inputs::new([3, 5, length], dtype, &device);
                for Composed { name, op, .. } in COMPOSED {
                    let name = format!("{name} of {length} in {dtype:?} on {device}");
                    let run = || {
                        let y = inputs.forward(op);
                        let mut results = vec![y.to_data()];
                        results.extend(inputs.backward(y));
                        results
                    };
                    assert_close(&name, with_and_without(run), tolerance);
                }
            }
        }
    }
}

#[test]
fn ops_below_burns_autodiff_are_few_launches() {
    let _guard = common::serial_guard();
    for runtime in common::runtimes() {
        let device = device_of(&runtime);
        let inputs = Inputs::new([4, 16, 64], FloatDType::F32, &device);
        for Composed { name, op, backward } in COMPOSED {
            let mut y = None;
            let forward = launches(&runtime, &device, || y = Some(inputs.forward(op)));
            assert_eq!(forward.values().sum::<usize>(), 1, "{name}: {forward:#?}");
            let y = y.expect("the op has run");
            let launched = launches(&runtime, &device, || drop(inputs.backward(y)));
            // The loss, of which nothing else is needed, and the gradients.
            assert_eq!(launched.values().sum::<usize>(), 1 + backward, "{name}: {launched:#?}");
        }
    }
}

type Program = fn(&Tensor<Wgsl, 2>, &Tensor<Wgsl, 2>) -> Vec<TensorData>;

/// Programs of two tensors `[24, 40]`, with reductions that kernels of lines compute, that they almost compute, and
/// whose results are used in other ways.
const PROGRAMS: [(&str, Program); 31] = [
    ("two lengths", |x, y| {
        let y = y.clone().slice(s![.., 0..20]);
        vec![(y * x.clone().mean_dim(1)).sum_dim(1).into_data()]
    }),
    ("another axis between", |x, _| {
        let centred = x.clone() - x.clone().mean_dim(0);
        vec![(centred.clone() / centred.powi_scalar(2).sum_dim(1).sqrt()).into_data()]
    }),
    ("read before it is used", |x, _| {
        let sum = x.clone().sum_dim(1);
        vec![sum.to_data(), (x.clone() - sum).exp().into_data()]
    }),
    ("used and read", |x, y| {
        let maximum = (x.clone() + y.clone()).max_dim(1);
        let shifted = x.clone() - maximum.clone();
        vec![shifted.into_data(), maximum.clone().into_data(), (maximum * 2.0).into_data()]
    }),
    ("in another shape", |x, _| {
        let mean = x.clone().reshape([4, 6, 40]).mean_dim(2).reshape([24, 1]);
        vec![(x.clone() - mean).into_data()]
    }),
    ("of a transposed tensor", |x, _| vec![softmax(x.clone().transpose(), 1).into_data()]),
    ("with a transposed tensor", |x, y| {
        let y = y.clone().slice(s![.., 0..24]).transpose();
        vec![softmax(x.clone().slice(s![.., 0..24]) * y, 1).into_data()]
    }),
    ("a part of the lines", |x, _| {
        let minimum = x.clone().min_dim(1);
        vec![(x.clone().slice(s![3..9, ..]) - minimum.slice(s![3..9, ..])).into_data()]
    }),
    ("sums of sums", |x, y| {
        let x = (x.clone() * y.clone()).reshape([4, 6, 40]);
        let [first, second] = [(); 2].map(|()| x.clone().sum_dim(0));
        let both = second.clone().sum_dim(1);
        let all = x.clone().sum_dim(0).sum_dim(1).sum_dim(2);
        vec![first.sum_dim(1).into_data(), second.into_data(), both.into_data(), all.into_data()]
    }),
    ("views of sums", |x, _| {
        let x = x.clone().reshape([4, 6, 40]);
        let sum = || x.clone().sum_dim(0);
        vec![
            sum().reshape([1, 40, 6]).sum_dim(1).into_data(),
            sum().swap_dims(0, 1).sum_dim(0).into_data(),
            sum().slice(s![.., 0..1, ..]).sum_dim(2).into_data(),
            (sum() * 0.5).sum_dim(1).into_data(),
            (sum() * sum()).into_data(),
        ]
    }),
    ("sums that take turns", |x, y| {
        let [x, y] = [x, y].map(|tensor| tensor.clone().repeat_dim(0, 600).reshape([40, 60, 240]));
        let [a, b] = [x.clone().sum_dim(0), y.sum_dim(0)];
        let [c, d] = [a.sum_dim(1), x.sum_dim(0)];
        vec![c.into_data(), b.sum_dim(2).into_data(), d.into_data()]
    }),
    ("two shapes", |x, y| {
        let stacked = x.clone().reshape([4, 6, 40]);
        let mean = stacked.clone().mean_dim(2);
        let centred = (stacked - mean.clone()).reshape([24, 40]);
        let turned = y.clone().reshape([40, 24]).transpose();
        let [a, b] = [centred.clone() + turned.clone(), turned + centred];
        vec![mean.into_data(), a.into_data(), b.into_data()]
    }),
    ("gradients of a bias from a part", |x, y| {
        type B = Autodiff<Wgsl>;
        let [x, y] =
            [x, y].map(|tensor| Tensor::<B, 2>::from_inner(tensor.clone().slice(s![0..1, ..])));
        let weight = Tensor::<B, 2>::from_inner(x.clone().inner().transpose());
        let bias = [(); 2].map(|()| Tensor::<B, 1>::zeros([1], &x.device()).require_grad());
        let halves = bias.clone().map(|bias| linear(x.clone(), weight.clone(), Some(bias)));
        let all = Tensor::cat(halves.to_vec(), 1) * y.slice(s![.., 0..2]);
        let gradients = all.sum().backward();
        let of_bias = bias.map(|bias| bias.grad(&gradients).expect("it is needed").into_data());
        of_bias.to_vec()
    }),
    ("a part of 16-bit elements", |x, y| {
        let halves = y.clone().slice(s![0..1, 0..8]).reshape([8]).cast(FloatDType::F16);
        let part = halves.slice(s![0..7]).cast(FloatDType::F32).reshape([7, 1]);
        let sum = || x.clone().slice(s![0..7, ..]).mul_scalar(1.0).sum_dim(1);
        let known = sum();
        known.to_data();
        vec![(sum() + part.clone()).into_data(), (known + part).into_data()]
    }),
    ("an element", |x, _| {
        let element = x.clone().slice(s![2..3, 5..6]);
        let int = element.clone().mul_scalar(100.0).int();
        let all = [element.clone().sum(), element.clone().max(), element.mean()];
        let mut results = vec![int.slice(s![0..1, 0..1]).sum().into_data()];
        results.extend(all.map(|result| result.into_data()));
        results
    }),
    ("in place", |x, y| {
        let mut large = x.clone().repeat_dim(0, 600).repeat_dim(1, 20);
        large = large.clone() - large.mean_dim(1);
        large = large.clone() * large.clone().max_dim(1).recip() + y.clone().slice(s![0, 0..1]);
        vec![large.clone().sum_dim(0).into_data(), large.slice(s![-3.., ..]).into_data()]
    }),
    ("special values", |x, _| {
        let x = x.clone().slice_assign(s![0..1, 0..1], x.clone().slice(s![0..1, 0..1]) * f32::NAN);
        let x = x.slice_fill(s![1..2, ..], f32::NEG_INFINITY);
        let x = x.slice_fill(s![2..3, 5..6], f32::INFINITY);
        let reduced = [x.clone().max_dim(1), x.clone().min_dim(1), x.clone().mean_dim(1)];
        let used = reduced.map(|reduced| (x.clone() - reduced).into_data());
        vec![softmax(x.clone(), 1).into_data()].into_iter().chain(used).collect()
    }),
    ("written afterwards", |x, _| {
        let x = x.clone() * 2.0;
        let sum = x.clone().sum_dim(1);
        let x = x.slice_fill(s![.., 0..20], 7.0);
        vec![(x - sum).into_data()]
    }),
    ("one op of several tensors", |x, y| {
        let [x_sum, y_sum] = [x, y].map(|tensor| tensor.clone().sum_dim(1));
        vec![((x.clone() * y_sum) + (y.clone() * x_sum)).into_data()]
    }),
    ("compared and converted", |x, _| {
        let above = x.clone().greater(x.clone().mean_dim(1));
        vec![above.clone().into_data(), above.int().into_data(), x.clone().argmax(1).into_data()]
    }),
    ("elements of lines in memory", |x, y| {
        let scale = y.clone().slice(s![.., 0..1]);
        let shift = x.clone().sum_dim(1);
        shift.to_data();
        vec![(x.clone() * (scale + 1.0) + shift.exp().recip()).into_data()]
    }),
    ("too many ops", |x, y| {
        let mut x = x.clone();
        for _ in 0..30 {
            x = (x.clone() - x.mean_dim(1)) * 0.9 + y.clone();
        }
        vec![x.into_data()]
    }),
    ("too many tensors", |x, y| {
        let tensors: Vec<_> = (0..12).map(|i| (x.clone() + i).exp().to_data()).collect();
        let device = x.device();
        let mut sum = y.clone().sum_dim(1);
        for data in &tensors {
            let x = Tensor::<Wgsl, 2>::from_data(data.clone(), &device);
            sum = (x * sum).mean_dim(1);
        }
        vec![(y.clone() - sum).into_data()]
    }),
    ("a single element", |x, _| {
        let total = x.clone().sum().reshape([1, 1]);
        vec![(x.clone() / total.clone()).into_data(), (x.clone().sum_dim(1) / total).into_data()]
    }),
    ("many that are read last", |x, y| {
        let sums: Vec<_> = (0..12).map(|i| (x.clone() * y.clone() + i).sum_dim(1)).collect();
        sums.into_iter().rev().map(|sum| sum.into_data()).collect()
    }),
    ("in 16 bits", |x, _| {
        let x = x.clone().cast(FloatDType::F16);
        let mean = x.clone().mean_dim(1);
        vec![(x - mean.clone()).into_data(), mean.into_data()]
    }),
    ("with masks", |x, y| {
        let mask: Tensor<Wgsl, 2, Bool> = y.clone().greater_elem(0.0);
        let filled = x.clone().mask_fill(mask.clone(), -1e4);
        let weights = softmax(filled, 1);
        vec![weights.clone().mask_where(mask, weights.max_dim(1)).into_data()]
    }),
    ("among zeros", |x, _| {
        let zeros = Tensor::<Wgsl, 2>::zeros([24, 80], &x.device());
        let padded = zeros.slice_assign(s![.., 20..60], x.clone());
        vec![(padded.clone() - padded.mean_dim(1)).into_data()]
    }),
    ("a product", |x, y| {
        let scores = x.clone().matmul(y.clone().transpose()) + 1.0;
        vec![softmax(scores.clone() * 0.5, 1).into_data(), scores.into_data()]
    }),
    ("dropped", |x, y| {
        let used = x.clone().sum_dim(1);
        drop(y.clone().sum_dim(1));
        drop(y.clone() - used.clone());
        vec![used.into_data()]
    }),
    ("a wait between", |x, _| {
        let mean = x.clone().mean_dim(1);
        Wgsl::sync(&x.device()).expect("the device works");
        let centred = x.clone() - mean;
        Wgsl::sync(&x.device()).expect("the device works");
        vec![(centred.clone() / centred.abs().sum_dim(1)).into_data()]
    }),
];

#[test]
fn programs_have_the_results_of_separate_ops() {
    let _guard = common::serial_guard();
    for device in common::gpus() {
        let [x, y] = [(); 2].map(|()| random([24, 40], &device));
        for (name, program) in PROGRAMS {
            let name = format!("{name} on {device}");
            let results = with_and_without(|| program(&x, &y));
            let is_half = results[0].iter().any(|data| data.dtype == DType::F16);
            assert_close(&name, results, if is_half { 2e-2 } else { 1e-4 });
        }
    }
}

/// A generator of pseudo-random numbers (G. Marsaglia, Xorshift RNGs, 2003).
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) as usize % end
    }
}

/// Returns the results of a random program of ops on tensors `[lines, len]` and `[lines, 1]`.
fn random_program(seed: u64, device: &WgslDevice) -> Vec<TensorData> {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let (lines, len) = (1 + random.below(9), [2, 5, 33, 64, 130][random.below(5)]);
    let data = |rows: usize, seed: usize| {
        let values = (0..lines * rows).map(|i| (((i + seed) * 7919) % 251) as f32 / 125.0 - 1.0);
        let data = TensorData::new(values.collect(), [lines, rows]);
        Tensor::<Wgsl, 2>::from_data(data, device)
    };
    let mut tensors = vec![data(len, 1), data(len, 2), data(1, 3)];
    let mut results = Vec::new();
    for _ in 0..6 + random.below(20) {
        let [a, b] = [(); 2].map(|()| tensors[random.below(tensors.len())].clone());
        tensors.push(match random.below(12) {
            0 => a.sum_dim(1) / 50.0,
            1 => a.mean_dim(1),
            2 => a.max_dim(1),
            3 => a.min_dim(1),
            4 => a.tanh(),
            5 => -a.abs(),
            6 => a * 0.5 + 0.25,
            7 => (a + b).tanh(),
            8 => a - b,
            9 => a.max_pair(b),
            10 => a.clone() * b,
            _ => a.sum_dim(0).expand([lines as i64, -1]) / 20.0,
        });
        match random.below(10) {
            0 => results.push(tensors[random.below(tensors.len())].to_data()),
            1 | 2 if tensors.len() > 3 => drop(tensors.swap_remove(random.below(tensors.len()))),
            _ => {}
        }
    }
    results.extend(tensors.into_iter().map(|tensor| tensor.into_data()));
    results
}

#[test]
fn random_programs_have_the_results_of_separate_ops() {
    let _guard = common::serial_guard();
    for device in common::gpus() {
        let launches = common::Launches::containing("lines ");
        let observation = common::runtime_of(&device).observe(launches.clone());
        for seed in 0..150 {
            let results = with_and_without(|| random_program(seed, &device));
            assert_close(&format!("program {seed} on {device}"), results, 1e-3);
        }
        drop(observation);
        assert!(launches.count() > 100, "{} kernels of lines on {device}", launches.count());
    }
}

/// A thread that waits for the device computes what is pending, while another adds up sums.
#[test]
fn a_wait_of_another_thread_does_not_take_sums() {
    let _guard = common::serial_guard();
    for device in common::gpus() {
        let x: Tensor<Wgsl, 3> = random([6, 8, 16], &device);
        let expected = x.clone().sum_dim(1).sum_dim(0).into_data();
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    Wgsl::sync(&device).expect("the device works");
                }
            });
            for _ in 0..200 {
                let sum = x.clone().sum_dim(0).sum_dim(1).into_data();
                sum.assert_approx_eq(&expected, Tolerance::<f32>::rel_abs(1e-4, 1e-5));
            }
            is_over.store(true, Ordering::Relaxed);
        });
    }
}

/// Threads that need the same reductions.
#[test]
fn threads_share_reductions() {
    let _guard = common::serial_guard();
    for device in common::gpus() {
        let x = random([64, 96], &device);
        let expected = softmax(x.clone(), 1).into_data();
        for _ in 0..20 {
            let maximum = x.clone().max_dim(1);
            let powers = (x.clone() - maximum).exp();
            let sum = powers.clone().sum_dim(1);
            let results: Vec<TensorData> = thread::scope(|scope| {
                let workers = [(); 4].map(|()| {
                    let (powers, sum) = (powers.clone(), sum.clone());
                    scope.spawn(move || (powers / sum).into_data())
                });
                workers.into_iter().map(|worker| worker.join().expect("it ends")).collect()
            });
            for result in results {
                result.assert_approx_eq(&expected, Tolerance::<f32>::rel_abs(1e-4, 1e-6));
            }
        }
    }
}
