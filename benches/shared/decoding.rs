//! Text from a GPT, one token at a time: the keys and values of the tokens before it are kept, so that a step reads
//! each weight once. Beside this module are `burn_api` and `networks`.

use super::burn_api::*;
use super::networks::GptSizes;

/// The form of the weights.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Weights {
    F32,
    F16,
    /// Matrices of 8-bit integers in blocks of 32 that share a scale. The rest is in f32.
    Q8,
    /// The same with 4 bits.
    Q4,
}

impl Weights {
    fn activation_type(self) -> DType {
        if self == Self::F16 { DType::F16 } else { DType::F32 }
    }

    fn scheme(self) -> Option<QuantScheme> {
        match self {
            Self::F32 | Self::F16 => None,
            Self::Q8 => Some(blocks_of_32(QuantValue::Q8S)),
            Self::Q4 => Some(blocks_of_32(QuantValue::Q4S)),
        }
    }

    fn linear(self, from: usize, to: usize, device: &Device) -> untracked::Linear {
        let mut linear: untracked::Linear =
            LinearConfig::new(from, to).with_bias(true).init(device);
        linear.weight = linear.weight.map(|weight| self.matrix(weight));
        let dtype = self.activation_type();
        linear.bias = linear.bias.map(|bias| bias.map(|bias| bias.cast(dtype)));
        linear
    }

    fn matrix(self, matrix: Untracked<2>) -> Untracked<2> {
        match self.scheme() {
            Some(scheme) => matrix.quantize_dynamic(&scheme),
            None => matrix.cast(self.activation_type()),
        }
    }

    fn norm(self, width: usize, device: &Device) -> untracked::LayerNorm {
        let dtype = self.activation_type();
        let mut norm: untracked::LayerNorm = LayerNormConfig::new(width).init(device);
        norm.gamma = norm.gamma.map(|gamma| gamma.cast(dtype));
        norm.beta = norm.beta.map(|beta| beta.map(|beta| beta.cast(dtype)));
        norm
    }
}

/// The most elements of a part of the last matrix.
pub const MAX_ELEMENTS: usize = 1 << 25;

/// A layer: normalisation, the projections of attention, normalisation, the projections of the feed-forward block.
struct Layer {
    norms: [untracked::LayerNorm; 2],
    qkv: untracked::Linear,
    projection: untracked::Linear,
    up: untracked::Linear,
    down: untracked::Linear,
    /// `[2, heads, length, width of a head]`. An `Option`, because `slice_assign` takes it by value.
    keys_and_values: Option<Untracked<4>>,
}

/// Returns steps that read a token after `length - 1` others, and return the most likely token after it.
pub fn gpt_tokens(
    length: usize,
    sizes: GptSizes,
    weights: Weights,
    device: &Device,
) -> Box<dyn FnMut() -> UntrackedIds<1>> {
    let GptSizes { vocabulary, width, layers, heads, .. } = sizes;
    let dtype = weights.activation_type();
    let linear = |from, to| weights.linear(from, to, device);
    let mut layers: Vec<Layer> = (0..layers)
        .map(|_| Layer {
            norms: [(); 2].map(|()| weights.norm(width, device)),
            qkv: linear(width, 3 * width),
            projection: linear(width, width),
            up: linear(width, 4 * width),
            down: linear(4 * width, width),
            keys_and_values: Some(zeros([2, heads, length, width / heads], dtype, device)),
        })
        .collect();
    // A step reads one row of each: their type does not matter.
    let embed = |count: usize| zeros([count, width], DType::F16, device);
    let (embedding, positions) = (embed(vocabulary), embed(length));
    let norm = weights.norm(width, device);
    // Of GPT-2, two: adapters may bind only 2^27 bytes, and quantised weights are read as f32.
    let rows = MAX_ELEMENTS / width;
    let out: Vec<Untracked<2>> = (0..vocabulary)
        .step_by(rows)
        .map(|row| weights.matrix(zeros([rows.min(vocabulary - row), width], DType::F32, device)))
        .collect();
    let position = UntrackedIds::<1>::from_data([length as i32 - 1], device);
    let mut token = UntrackedIds::<1>::from_data([0], device);
    Box::new(move || {
        let row = |table: &Untracked<2>, index| table.clone().select(0, index).cast(dtype);
        let mut x = row(&embedding, token.clone()) + row(&positions, position.clone());
        for layer in &mut layers {
            let [norm1, norm2] = &layer.norms;
            let qkv = layer.qkv.forward(norm1.forward(x.clone()));
            let [q, kv] = [0..1, 1..3]
                .map(|part| qkv.clone().reshape([3, heads, 1, width / heads]).slice([part]));
            let kept = layer.keys_and_values.take().expect("the step before left them");
            let kept = kept.slice_assign([0..2, 0..heads, length - 1..length], kv);
            let [k, v] = [0..1, 1..2].map(|part| kept.clone().slice([part]));
            layer.keys_and_values = Some(kept);
            let y = attention(q, k, v, None, None, AttentionModuleOptions::default());
            x = x + layer.projection.forward(y.reshape([1, width]));
            x = x.clone()
                + layer.down.forward(activation::gelu(layer.up.forward(norm2.forward(x))));
        }
        let x = norm.forward(x).reshape([width, 1]);
        let logits = out.iter().map(|rows| rows.clone().matmul(x.clone())).collect();
        token = Untracked::<2>::cat(logits, 0).argmax(0).reshape([1]);
        token.clone()
    })
}

fn zeros<const D: usize>(shape: [usize; D], dtype: DType, device: &Device) -> Untracked<D> {
    Untracked::<D>::zeros(shape, (device, dtype))
}
