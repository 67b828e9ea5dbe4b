//! The workloads, in Burn's words: one text for all versions and backends. The crate root has a module `burn_api` that
//! names the types of its version and backend.

use peer_protocol::{Output, Work, numbers};

use crate::burn_api::*;

type Make = fn(&Device) -> Work;

/// The work called `name`, with its inputs on the device.
pub fn prepare(name: &str, device: &Device) -> Option<Work> {
    let table: &[(&str, Make)] = &[
        ("matmul-256", |device| matmul([256, 256, 256], device)),
        ("matmul-512", |device| matmul([512, 512, 512], device)),
        ("matmul-1024", |device| matmul([1024, 1024, 1024], device)),
        ("matmul-2048", |device| matmul([2048, 2048, 2048], device)),
        ("matmul-4096", |device| matmul([4096, 4096, 4096], device)),
        ("matmul-column", |device| matmul([4096, 4096, 1], device)),
        ("matmul-row", |device| matmul([16, 4096, 4096], device)),
        ("matmul-outer", |device| matmul([4096, 64, 4096], device)),
        ("matmul-batched", |device| {
            let (a, b) = (plain([16, 256, 256], 1, device), plain([16, 256, 256], 2, device));
            Box::new(move || output(a.clone().matmul(b.clone())))
        }),
        ("add", |device| {
            let (a, b) = (plain([1 << 24], 1, device), plain([1 << 24], 2, device));
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
                (plain([16, 16, 64, 64], 1, device), plain([32, 16, 3, 3], 2, device));
            Box::new(move || output(conv2d(x.clone(), weight.clone(), None, same_3x3())))
        }),
        ("conv2d-backward", conv2d_backward),
        ("small-adds", |device| {
            let (start, step) = (plain([16], 1, device), plain([16], 2, device));
            Box::new(move || output((0..10_000).fold(start.clone(), |sum, _| sum + step.clone())))
        }),
        ("mlp-step", mlp_step),
        ("cnn-step", cnn_step),
        ("transformer-step", transformer_step),
    ];
    let (_, make) = table.iter().find(|row| row.0 == name)?;
    Some(make(device))
}

fn plain<const D: usize>(shape: [usize; D], seed: u32, device: &Device) -> Plain<D> {
    let count = shape.iter().product();
    Plain::<D>::from_data(TensorData::new(numbers(seed, count), shape), device)
}

fn tracked<const D: usize>(shape: [usize; D], seed: u32, device: &Device) -> Tracked<D> {
    Tracked::<D>::from_inner(plain(shape, seed, device))
}

fn mean_of_absolutes(data: TensorData) -> f64 {
    let count = data.num_elements();
    data.iter::<f32>().map(|x| f64::from(x).abs()).sum::<f64>() / count as f64
}

fn output<const D: usize>(tensor: Plain<D>) -> Output {
    Box::new(move || mean_of_absolutes(tensor.into_data()))
}

fn unary<const D: usize, const E: usize>(
    shape: [usize; D],
    device: &Device,
    op: fn(Plain<D>) -> Plain<E>,
) -> Work {
    let x = plain(shape, 1, device);
    Box::new(move || output(op(x.clone())))
}

fn matmul([rows, depth, columns]: [usize; 3], device: &Device) -> Work {
    let (a, b) = (plain([rows, depth], 1, device), plain([depth, columns], 2, device));
    Box::new(move || output(a.clone().matmul(b.clone())))
}

fn same_3x3() -> ConvOptions<2> {
    ConvOptions::new([1, 1], [1, 1], [1, 1], 1)
}

/// Forward, and the gradients of both operands. A product with a fixed tensor is how Burn is given an output gradient.
fn conv2d_backward(device: &Device) -> Work {
    let x = tracked([16, 16, 64, 64], 1, device).require_grad();
    let weight = tracked([32, 16, 3, 3], 2, device).require_grad();
    let seed = tracked([16, 32, 64, 64], 3, device);
    Box::new(move || {
        let y = conv2d(x.clone(), weight.clone(), None, same_3x3());
        let mut gradients = (y * seed.clone()).sum().backward();
        let by_x = x.grad_remove(&mut gradients).expect("x asks for a gradient");
        let by_weight = weight.grad_remove(&mut gradients).expect("the weight asks for a gradient");
        Box::new(move || {
            mean_of_absolutes(by_x.into_data()) + mean_of_absolutes(by_weight.into_data())
        })
    })
}

/// One step of training with Adam at a time.
fn training<M: Model + 'static>(model: M, loss: impl Fn(&M) -> Tracked<1> + 'static) -> Work {
    let mut optimizer = AdamConfig::new().init();
    let mut next = Some(model);
    Box::new(move || {
        let model = next.take().expect("the step before left a model");
        let loss = loss(&model);
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        next = Some(optimizer.step(1e-3, model, gradients));
        output(loss.inner())
    })
}

/// Class labels 0 to 9 in turn.
fn labels(count: usize, device: &Device) -> Labels {
    let labels: Vec<i32> = (0..count as i32).map(|index| index % 10).collect();
    Labels::from_data(TensorData::new(labels, [count]), &with_gradients(device))
}

/// A perceptron 784-512-10 on 256 rows.
fn mlp_step(device: &Device) -> Work {
    let (x, labels, device) =
        (tracked([256, 784], 1, device), labels(256, device), with_gradients(device));
    let model: (Linear, Linear) =
        (LinearConfig::new(784, 512).init(&device), LinearConfig::new(512, 10).init(&device));
    let entropy = CrossEntropyLoss::new(None, &device);
    training(model, move |(first, second)| {
        let hidden = activation::relu(first.forward(x.clone()));
        entropy.forward(second.forward(hidden), labels.clone())
    })
}

/// Two convolutions, each with pooling, and two linear layers, on 64 images of 28x28.
fn cnn_step(device: &Device) -> Work {
    let (x, labels, device) =
        (tracked([64, 1, 28, 28], 1, device), labels(64, device), with_gradients(device));
    let conv = |from, to| {
        Conv2dConfig::new([from, to], [3, 3]).with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1))
    };
    let model: (Conv2d, Conv2d, Linear, Linear) = (
        conv(1, 32).init(&device),
        conv(32, 64).init(&device),
        LinearConfig::new(64 * 7 * 7, 128).init(&device),
        LinearConfig::new(128, 10).init(&device),
    );
    let pool = MaxPool2dConfig::new([2, 2]).with_strides([2, 2]).init();
    let entropy = CrossEntropyLoss::new(None, &device);
    training(model, move |(conv1, conv2, linear1, linear2)| {
        let x = pool.forward(activation::relu(conv1.forward(x.clone())));
        let x = pool.forward(activation::relu(conv2.forward(x)));
        let x = activation::relu(linear1.forward(x.flatten::<2>(1, 3)));
        entropy.forward(linear2.forward(x), labels.clone())
    })
}

/// Two encoder layers (model 128, 4 heads, feed-forward 512, no dropout) on 16 sequences of 64.
fn transformer_step(device: &Device) -> Work {
    let (x, target) = (tracked([16, 64, 128], 1, device), tracked([16, 64, 128], 2, device));
    let device = with_gradients(device);
    let model: (TransformerEncoder, Linear) = (
        TransformerEncoderConfig::new(128, 512, 4, 2).with_dropout(0.0).init(&device),
        LinearConfig::new(128, 128).init(&device),
    );
    training(model, move |(encoder, head)| {
        let y = head.forward(encoder.forward(TransformerEncoderInput::new(x.clone())));
        let error = y - target.clone();
        (error.clone() * error).mean()
    })
}
