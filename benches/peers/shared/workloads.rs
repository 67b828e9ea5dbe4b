//! The workloads as Burn code, shared by all Rust peers. The crate root has a module `burn_api`
//! with the types of its Burn version and backend, and the module `models`.

use peer_protocol::{Output, Work, input_values};

use crate::burn_api::*;
use crate::decoding::{Weights, gpt_tokens};
use crate::networks::{self, GPT2, RESNET18, RESNET50, ResNetSizes};
use crate::{autocast, models};

type Prepare = fn(&Device) -> Work;

/// Marks workloads that compute products in f16.
const AUTOCAST: &str = "-autocast";

/// Uploads the inputs of the workload `name` and returns the workload. Returns `None` if the name
/// is unknown, or the backend has no autocast.
pub fn prepare(name: &str, device: &Device) -> Option<Work> {
    match name.strip_suffix(AUTOCAST) {
        Some(name) => autocast(prepare_in_f32(name, device)?, device),
        None => prepare_in_f32(name, device),
    }
}

fn prepare_in_f32(name: &str, device: &Device) -> Option<Work> {
    let table: &[(&str, Prepare)] = &[
        ("matmul-256", |device| matmul([256, 256, 256], device)),
        ("matmul-512", |device| matmul([512, 512, 512], device)),
        ("matmul-1024", |device| matmul([1024, 1024, 1024], device)),
        ("matmul-2048", |device| matmul([2048, 2048, 2048], device)),
        ("matmul-4096", |device| matmul([4096, 4096, 4096], device)),
        ("matmul-4096-f16", |device| matmul_f16(4096, device)),
        ("matmul-column", |device| matmul([4096, 4096, 1], device)),
        ("matmul-row", |device| matmul([16, 4096, 4096], device)),
        ("matmul-outer", |device| matmul([4096, 64, 4096], device)),
        ("matmul-batched", |device| {
            let (a, b) =
                (untracked([16, 256, 256], 1, device), untracked([16, 256, 256], 2, device));
            Box::new(move || output(a.clone().matmul(b.clone())))
        }),
        ("add", |device| {
            let (a, b) = (untracked([1 << 24], 1, device), untracked([1 << 24], 2, device));
            Box::new(move || output(a.clone() + b.clone()))
        }),
        ("gelu", |device| unary([1 << 24], device, activation::gelu)),
        ("sum-last", |device| unary([4096, 4096], device, |x| x.sum_dim(1))),
        ("sum-first", |device| unary([4096, 4096], device, |x| x.sum_dim(0))),
        ("softmax", |device| unary([4096, 1024], device, |x| activation::softmax(x, 1))),
        ("transpose", |device| {
            unary([4096, 4096], device, |x| x.transpose().reshape([4096 * 4096]))
        }),
        ("conv2d", |device| {
            let (x, weight) =
                (untracked([16, 16, 64, 64], 1, device), untracked([32, 16, 3, 3], 2, device));
            Box::new(move || output(conv2d(x.clone(), weight.clone(), None, same_3x3())))
        }),
        ("conv2d-backward", conv2d_backward),
        ("small-adds", |device| {
            let (start, step) = (untracked([16], 1, device), untracked([16], 2, device));
            Box::new(move || output((0..10_000).fold(start.clone(), |sum, _| sum + step.clone())))
        }),
        ("mlp-step", |device| {
            training(models::mlp(tracked([256, 784], 1, device), &autodiff_device(device)))
        }),
        ("cnn-step", |device| {
            training(models::cnn(tracked([64, 1, 28, 28], 1, device), &autodiff_device(device)))
        }),
        ("lstm-step", |device| {
            training(models::lstm(tracked([32, 64, 128], 1, device), &autodiff_device(device)))
        }),
        ("transformer-step", |device| transformer_step([16, 64, 128], [2, 4, 512], device)),
        ("large-matmul-f16", |device| matmul_f16(8192, device)),
        ("large-attention", |device| attention_of(DType::F32, false, device)),
        ("large-attention-f16", |device| attention_of(DType::F16, false, device)),
        ("large-attention-causal-f16", |device| attention_of(DType::F16, true, device)),
        ("large-conv2d", |device| large_conv2d(DType::F32, device)),
        ("large-conv2d-f16", |device| large_conv2d(DType::F16, device)),
        ("large-copy", |device| large_unary([1 << 14, 1 << 14], device, |x| x * 1.0)),
        ("large-add", |device| {
            let (a, b) =
                (repeated([1 << 14, 1 << 14], 1, device), repeated([1 << 14, 1 << 14], 2, device));
            Box::new(move || large_output(a.clone() + b.clone()))
        }),
        ("large-sum-last", |device| large_unary([1 << 14, 1 << 14], device, |x| x.sum_dim(1))),
        ("large-sum-first", |device| large_unary([1 << 14, 1 << 14], device, |x| x.sum_dim(0))),
        ("large-softmax", |device| {
            large_unary([1 << 16, 1 << 12], device, |x| activation::softmax(x, 1))
        }),
        ("large-transformer-step", |device| transformer_step([16, 256, 512], [6, 8, 2048], device)),
        ("resnet18-step", |device| resnet(RESNET18, device)),
        ("resnet50-step", |device| resnet(RESNET50, device)),
        ("gpt2-step", |device| training(networks::gpt(4, GPT2, &autodiff_device(device)))),
        ("gpt2-token", |device| gpt2_token(Weights::F32, device)),
        ("gpt2-token-f16", |device| gpt2_token(Weights::F16, device)),
        ("gpt2-token-q8", |device| gpt2_token(Weights::Q8, device)),
        ("gpt2-token-q4", |device| gpt2_token(Weights::Q4, device)),
    ];
    let (_, prepare) = table.iter().find(|row| row.0 == name)?;
    Some(prepare(device))
}

fn untracked<const D: usize>(shape: [usize; D], seed: u32, device: &Device) -> Untracked<D> {
    let count = shape.iter().product();
    Untracked::<D>::from_data(TensorData::new(input_values(seed, count), shape), device)
}

fn tracked<const D: usize>(shape: [usize; D], seed: u32, device: &Device) -> Tracked<D> {
    Tracked::<D>::from_inner(untracked(shape, seed, device))
}

fn mean_absolute(data: TensorData) -> f64 {
    let count = data.num_elements();
    data.iter::<f32>().map(|x| f64::from(x).abs()).sum::<f64>() / count as f64
}

fn output<const D: usize>(tensor: Untracked<D>) -> Output {
    Box::new(move || mean_absolute(tensor.into_data()))
}

/// The same, with the mean computed on the device, in f32.
fn large_output<const D: usize>(tensor: Untracked<D>) -> Output {
    Box::new(move || mean_absolute(tensor.cast(DType::F32).abs().mean().into_data()))
}

/// Returns a tensor of many elements: blocks of 2^24 that are equal, since values are made on the
/// host.
fn repeated([rows, columns]: [usize; 2], seed: u32, device: &Device) -> Untracked<2> {
    let block = (1 << 24) / columns;
    untracked([block, columns], seed, device).repeat_dim(0, rows / block)
}

fn large_unary(shape: [usize; 2], device: &Device, op: fn(Untracked<2>) -> Untracked<2>) -> Work {
    let x = repeated(shape, 1, device);
    Box::new(move || large_output(op(x.clone())))
}

fn unary<const D: usize, const E: usize>(
    shape: [usize; D],
    device: &Device,
    op: fn(Untracked<D>) -> Untracked<E>,
) -> Work {
    let x = untracked(shape, 1, device);
    Box::new(move || output(op(x.clone())))
}

fn matmul([m, k, n]: [usize; 3], device: &Device) -> Work {
    let (a, b) = (untracked([m, k], 1, device), untracked([k, n], 2, device));
    Box::new(move || output(a.clone().matmul(b.clone())))
}

fn matmul_f16(size: usize, device: &Device) -> Work {
    let [a, b] = [1, 2].map(|seed| untracked([size, size], seed, device).cast(DType::F16));
    Box::new(move || large_output(a.clone().matmul(b.clone())))
}

fn attention_of(dtype: DType, is_causal: bool, device: &Device) -> Work {
    let [query, key, value] =
        [1, 2, 3].map(|seed| untracked([4, 16, 2048, 64], seed, device).cast(dtype));
    let options = AttentionModuleOptions { is_causal, ..Default::default() };
    Box::new(move || {
        let (query, key, value) = (query.clone(), key.clone(), value.clone());
        large_output(attention(query, key, value, None, None, options))
    })
}

fn large_conv2d(dtype: DType, device: &Device) -> Work {
    let x = untracked([32, 128, 56, 56], 1, device).cast(dtype);
    let weight = untracked([128, 128, 3, 3], 2, device).cast(dtype);
    Box::new(move || large_output(conv2d(x.clone(), weight.clone(), None, same_3x3())))
}

fn same_3x3() -> ConvOptions<2> {
    ConvOptions::new([1, 1], [1, 1], [1, 1], 1)
}

/// Forward pass and the gradients of both operands. The output is multiplied by a constant tensor,
/// which becomes the output gradient.
fn conv2d_backward(device: &Device) -> Work {
    let x = tracked([16, 16, 64, 64], 1, device).require_grad();
    let weight = tracked([32, 16, 3, 3], 2, device).require_grad();
    let output_gradient = tracked([16, 32, 64, 64], 3, device);
    Box::new(move || {
        let y = conv2d(x.clone(), weight.clone(), None, same_3x3());
        let mut gradients = (y * output_gradient.clone()).sum().backward();
        let x_gradient = x.grad_remove(&mut gradients).expect("x requires a gradient");
        let weight_gradient =
            weight.grad_remove(&mut gradients).expect("the weight requires a gradient");
        Box::new(move || {
            mean_absolute(x_gradient.into_data()) + mean_absolute(weight_gradient.into_data())
        })
    })
}

/// Returns a workload whose repetitions are training steps.
fn training(mut step: models::Step) -> Work {
    Box::new(move || output(step().inner()))
}

/// A training step of a ResNet on 32 images of 224 x 224.
fn resnet(sizes: ResNetSizes, device: &Device) -> Work {
    let x = tracked([32, 3, 224, 224], 1, device);
    training(networks::resnet(x, sizes, &autodiff_device(device)))
}

/// A token from a GPT, after 511 others.
fn gpt2_token(weights: Weights, device: &Device) -> Work {
    let mut step = gpt_tokens(512, GPT2, weights, device);
    Box::new(move || {
        let token = step();
        Box::new(move || mean_absolute(token.into_data()))
    })
}

/// A training step of a transformer on sequences `[batch, length, width]`.
fn transformer_step(shape: [usize; 3], sizes: [usize; 3], device: &Device) -> Work {
    let [x, target] = [1, 2].map(|seed| tracked(shape, seed, device));
    training(models::transformer(x, target, sizes, &autodiff_device(device)))
}
