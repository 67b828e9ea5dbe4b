//! The CPU device: what does not fit the host's memory is an error, and does not end the process; so are shapes that
//! do not fit an op.

use std::panic::UnwindSafe;

use burn::tensor::module::{adaptive_avg_pool2d, conv2d, interpolate, linear};
use burn::tensor::ops::{ConvOptions, InterpolateMode, InterpolateOptions};
use burn::tensor::{Distribution, Int, Tensor};
use burn_wgsl::memory::{self, Limit, MemoryError};
use burn_wgsl::{Wgsl, WgslDevice};

use crate::common::panic_message;

const CPU: WgslDevice = WgslDevice::Cpu;

fn ones<const D: usize>(shape: [usize; D]) -> Tensor<Wgsl, D> {
    Tensor::ones(shape, &CPU)
}

#[test]
fn results_larger_than_memory_are_errors() {
    let column = || ones([1 << 20, 1]);
    type Op = Box<dyn FnOnce() + UnwindSafe>;
    let view = |axis: usize| ones([1]).expand([1usize << axis]);
    let image = || Tensor::<Wgsl, 4>::ones([1, 1, 2, 2], &CPU);
    let ops: [(&str, Op); 15] = [
        ("float_exp", Box::new(move || drop(view(42).exp()))),
        ("float_mul_scalar", Box::new(move || drop(view(42) * 2.0))),
        ("float_cat", Box::new(move || drop(Tensor::cat(vec![view(41), view(41)], 0)))),
        (
            "adaptive_avg_pool2d",
            Box::new(move || drop(adaptive_avg_pool2d(image(), [1 << 21, 1 << 20]))),
        ),
        (
            "interpolate",
            Box::new(move || {
                let options = InterpolateOptions::new(InterpolateMode::Nearest);
                drop(interpolate(image(), [1 << 21, 1 << 20], options));
            }),
        ),
        (
            "conv2d",
            Box::new(move || {
                let options = ConvOptions::new([1; 2], [1 << 20; 2], [1; 2], 1);
                drop(conv2d(image(), image(), None, options));
            }),
        ),
        ("float_zeros", Box::new(|| drop(Tensor::<Wgsl, 2>::zeros([1 << 22, 1 << 20], &CPU)))),
        ("int_ones", Box::new(|| drop(Tensor::<Wgsl, 2, Int>::ones([1 << 22, 1 << 20], &CPU)))),
        ("float_full", Box::new(|| drop(Tensor::<Wgsl, 1>::full([1usize << 42], 2.0, &CPU)))),
        ("float_add", Box::new(move || drop(column() + column().transpose()))),
        ("float_matmul", Box::new(move || drop(column().matmul(column().transpose())))),
        ("float_repeat_dim", Box::new(|| drop(ones([1 << 20]).repeat(&[1 << 20])))),
        ("int_arange", Box::new(|| drop(Tensor::<Wgsl, 1, Int>::arange(0..1i64 << 42, &CPU)))),
        ("linear", Box::new(move || drop(linear(column(), column().transpose(), None)))),
        (
            "float_random",
            Box::new(|| {
                drop(Tensor::<Wgsl, 1>::random([1usize << 42], Distribution::Default, &CPU));
            }),
        ),
    ];
    for (op, compute) in ops {
        let message = panic_message(compute);
        assert!(message.starts_with(&format!("{op} on cpu: out of memory")), "{message}");
        assert!(message.contains("the host has no memory"), "{message}");
    }
    let view = ones([1]).expand([1usize << 42]);
    let error = view.try_into_data().expect_err("it does not fit").to_string();
    assert!(error.contains("the host has no memory"), "{error}");
    assert_eq!(ones([2]).sum().into_scalar(), 2.0);
}

/// Ops with several tensors whose result is smaller than that to which the tensors would broadcast.
#[test]
fn small_results_of_long_tensors_are_computed() {
    const LEN: usize = 1 << 20;
    let column = || ones([LEN, 1]);
    let product = column().transpose().matmul(column());
    assert_eq!(product.into_scalar(), LEN as f32);
    let indices = Tensor::<Wgsl, 1, Int>::arange(0..LEN as i64, &CPU);
    assert_eq!(column().select(0, indices).sum().into_scalar(), LEN as f32);
}

#[test]
fn large_views_need_no_memory() {
    let view = ones([1]).expand([1 << 30]);
    assert_eq!(view.narrow(0, 7, 2).into_data().to_vec::<f32>().expect("f32"), [1.0; 2]);
}

#[test]
fn products_of_wrong_shapes_name_the_op_and_the_shapes() {
    let product = panic_message(|| drop(ones([3]).matmul(ones([3]))));
    assert!(product.contains("float_matmul on cpu: shapes [3] and [3]"), "{product}");
    let batches = panic_message(|| drop(ones([2, 2, 3]).matmul(ones([3, 3, 5]))));
    assert!(batches.contains("shapes [2, 2, 3] and [3, 3, 5]"), "{batches}");
    assert!(batches.contains("must broadcast"), "{batches}");
    let layer = panic_message(|| drop(linear(ones([2, 3]), ones([4, 5]), None)));
    assert!(layer.contains("linear on cpu: shapes [2, 3] and [4, 5]"), "{layer}");
    let bias = panic_message(|| drop(linear(ones([2, 3]), ones([3, 5]), Some(ones([4])))));
    assert!(bias.contains("a bias must have one element per column"), "{bias}");
}

#[test]
fn the_memory_of_the_cpu_is_neither_limited_nor_counted() {
    let limited = memory::set_limit(&CPU, Some(Limit::Bytes(1 << 20)));
    assert!(matches!(limited, Err(MemoryError::Cpu)));
    memory::set_limit(&CPU, None).expect("there is no limit to remove");
    let report = memory::report(&CPU).expect("the CPU is always there");
    assert!(report.of_host);
    assert!(report.to_string().contains("are not counted"), "{report}");
}
