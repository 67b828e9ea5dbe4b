//! Training steps of common networks: ResNet (K. He et al., Deep Residual Learning for Image Recognition,
//! 2015) and a GPT of the size of GPT-2 (A. Radford et al., Language Models are Unsupervised Multitask Learners, 2019),
//! without dropout. Beside this module are `models` and `burn_api`.

use super::burn_api::*;
use super::models::{Step, classification, training};

/// A convolution without bias and a normalisation.
type Normalised = (Conv2d, BatchNorm);

/// A residual block: the convolutions, with ReLU between them, and the projection of its input if the shape changes.
type Block = (Vec<Normalised>, Option<Normalised>);

fn normalised(from: usize, to: usize, kernel: usize, stride: usize, device: &Device) -> Normalised {
    let pad = kernel / 2;
    let conv = Conv2dConfig::new([from, to], [kernel, kernel])
        .with_stride([stride, stride])
        .with_padding(PaddingConfig2d::Explicit(pad, pad, pad, pad))
        .with_bias(false);
    (conv.init(device), BatchNormConfig::new(to).init(device))
}

fn convolve((conv, norm): &Normalised, x: Tracked<4>) -> Tracked<4> {
    norm.forward(conv.forward(x))
}

/// The sizes of a ResNet.
#[derive(Clone, Copy)]
pub struct ResNetSizes {
    /// The blocks of each stage.
    pub blocks: [usize; 4],
    /// Whether a block has three convolutions, not two.
    pub is_deep: bool,
}

pub const RESNET18: ResNetSizes = ResNetSizes { blocks: [2, 2, 2, 2], is_deep: false };
pub const RESNET50: ResNetSizes = ResNetSizes { blocks: [3, 4, 6, 3], is_deep: true };

/// Returns training steps of a ResNet on images `[batch, 3, height, width]`.
pub fn resnet(x: Tracked<4>, sizes: ResNetSizes, device: &Device) -> Step {
    let ResNetSizes { blocks, is_deep } = sizes;
    let stem = normalised(3, 64, 7, 2, device);
    let mut layers: Vec<Block> = Vec::new();
    let mut from = 64;
    for (stage, blocks) in blocks.into_iter().enumerate() {
        let width = 64 << stage;
        let to = if is_deep { 4 * width } else { width };
        for block in 0..blocks {
            let stride = if stage > 0 && block == 0 { 2 } else { 1 };
            let body = match is_deep {
                true => vec![
                    normalised(from, width, 1, 1, device),
                    normalised(width, width, 3, stride, device),
                    normalised(width, to, 1, 1, device),
                ],
                false => vec![
                    normalised(from, width, 3, stride, device),
                    normalised(width, to, 3, 1, device),
                ],
            };
            let changes = from != to || stride > 1;
            layers.push((body, changes.then(|| normalised(from, to, 1, stride, device))));
            from = to;
        }
    }
    let model: (Normalised, Vec<Block>, Linear) =
        (stem, layers, LinearConfig::new(from, IMAGE_CLASSES).init(device));
    let pool = MaxPool2dConfig::new([3, 3])
        .with_strides([2, 2])
        .with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1))
        .init();
    classification(model, x, device, move |(stem, layers, out), x| {
        let mut x = pool.forward(activation::relu(convolve(stem, x)));
        for (body, projection) in layers {
            let beside = projection.as_ref().map_or_else(|| x.clone(), |p| convolve(p, x.clone()));
            let (last, first) = body.split_last().expect("a block has convolutions");
            let y = first.iter().fold(x, |x, layer| activation::relu(convolve(layer, x)));
            x = activation::relu(convolve(last, y) + beside);
        }
        out.forward(x.mean_dim(3).mean_dim(2).flatten::<2>(1, 3))
    })
}

/// The classes of ResNet's images.
const IMAGE_CLASSES: usize = 1000;

/// The sizes of a GPT.
#[derive(Clone, Copy)]
pub struct GptSizes {
    pub vocabulary: usize,
    pub width: usize,
    pub layers: usize,
    pub heads: usize,
    pub length: usize,
}

/// The sizes of GPT-2, with half of its context.
pub const GPT2: GptSizes =
    GptSizes { vocabulary: 50_257, width: 768, layers: 12, heads: 12, length: 512 };

/// A layer of a GPT: normalisation, the projections of attention, normalisation, the projections of the feed-forward
/// block.
type GptLayer = (LayerNorm, Linear, Linear, LayerNorm, Linear, Linear);

/// Returns training steps of a GPT on `batch` sequences of tokens. Each token is predicted from those before it.
pub fn gpt(batch: usize, sizes: GptSizes, device: &Device) -> Step {
    let GptSizes { vocabulary, width, layers, heads, length } = sizes;
    let linear = |from, to| LinearConfig::new(from, to).init(device);
    let norm = || LayerNormConfig::new(width).init(device);
    let layer = |_| -> GptLayer {
        let (qkv, out) = (linear(width, 3 * width), linear(width, width));
        (norm(), qkv, out, norm(), linear(width, 4 * width), linear(4 * width, width))
    };
    let embed = |count: usize| EmbeddingConfig::new(count, width).init(device);
    let model: (Embedding, Embedding, Vec<GptLayer>, LayerNorm, Linear) = (
        embed(vocabulary),
        embed(length),
        (0..layers).map(layer).collect(),
        norm(),
        LinearConfig::new(width, vocabulary).with_bias(false).init(device),
    );
    let rotating = |count: usize, factor: usize, below: usize| {
        (0..count).map(|index| (index * factor % below) as i32).collect::<Vec<i32>>()
    };
    let ids = |values: Vec<i32>, shape: [usize; 2]| {
        Ids::<2>::from_data(TensorData::new(values, shape), device)
    };
    let tokens = ids(rotating(batch * length, 7919, vocabulary), [batch, length]);
    let next = ids(rotating(batch * length, 7907, vocabulary), [batch, length]).flatten::<1>(0, 1);
    let positions = ids(rotating(length, 1, length), [1, length]);
    let loss = CrossEntropyLoss::new(None, device);
    training(model, move |(embedding, position, layers, norm, out)| {
        let mut x = embedding.forward(tokens.clone()) + position.forward(positions.clone());
        for (norm1, qkv, projection, norm2, up, down) in layers {
            let heads_of =
                |x: Tracked<3>| x.reshape([batch, length, heads, width / heads]).swap_dims(1, 2);
            let [q, k, v]: [Tracked<3>; 3] = qkv
                .forward(norm1.forward(x.clone()))
                .chunk(3, 2)
                .try_into()
                .expect("three parts of equal width");
            let options = AttentionModuleOptions { is_causal: true, ..Default::default() };
            let y = attention(heads_of(q), heads_of(k), heads_of(v), None, None, options);
            let y = y.swap_dims(1, 2).reshape([batch, length, width]);
            x = x + projection.forward(y);
            x = x.clone() + down.forward(activation::gelu(up.forward(norm2.forward(x))));
        }
        let logits = out.forward(norm.forward(x)).reshape([batch * length, vocabulary]);
        loss.forward(logits, next.clone())
    })
}
