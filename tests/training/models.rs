//! Trains four small models of stock Burn modules, in the style of Burn's examples. From the same
//! initial weights, every device must have the same losses as burn-flex, without fallbacks.

use burn::backend::Autodiff;
use burn::grad_clipping::GradientClippingConfig;
use burn::lr_scheduler::LrScheduler;
use burn::lr_scheduler::noam::NoamLrSchedulerConfig;
use burn::module::{AutodiffModule, Module};
use burn::nn::conv::{Conv2d, Conv2dConfig, ConvTranspose2d, ConvTranspose2dConfig};
use burn::nn::loss::{BinaryCrossEntropyLossConfig, CrossEntropyLossConfig};
use burn::nn::loss::{HuberLossConfig, MseLoss, Reduction};
use burn::nn::transformer::{
    TransformerEncoder, TransformerEncoderConfig, TransformerEncoderInput,
};
use burn::nn::{BatchNorm, BatchNormConfig, BiLstm, BiLstmConfig};
use burn::nn::{Embedding, EmbeddingConfig, Linear, LinearConfig, PaddingConfig2d};
use burn::optim::momentum::MomentumConfig;
use burn::optim::{AdamConfig, AdamWConfig, GradientsParams, LearningRate, Optimizer, SgdConfig};
use burn::record::{BinBytesRecorder, FullPrecisionSettings, Recorder};
use burn::tensor::activation::{leaky_relu, relu, tanh};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{Bool, Distribution, ElementConversion, Int, Tensor, TensorData};
use burn_flex::{Flex, FlexDevice};
use burn_std::rand::{SeedableRng, StdRng};
use burn_wgsl::Wgsl;

use crate::common::{Tolerance, devices, serial_guard, values_are_ignored, without_fallbacks};

const STEPS: usize = 50;

/// Named measurements of a training run, one value per step. The first curve must fall.
type Curves = Vec<(&'static str, Vec<f32>)>;

/// A model, its data and its training loop, for any backend.
trait Example {
    type Model<B: AutodiffBackend>: AutodiffModule<B>;

    fn model<B: AutodiffBackend>(device: &B::Device) -> Self::Model<B>;

    fn train<B: AutodiffBackend>(model: Self::Model<B>, device: &B::Device) -> Curves;
}

/// Trains an example on every device and with burn-flex.
///
/// Every value must be within 1% of burn-flex's. The first curve must fall below `ratio` of its
/// start, and no op may fall back to the CPU.
fn check_training<E: Example>(ratio: f32) {
    let weights = weights::<E>();
    let expected = run::<E, Autodiff<Flex>>(&weights, &FlexDevice);
    let tolerance = Tolerance { relative: 0.01, absolute: 0.0 };
    for device in devices() {
        let curves = without_fallbacks(&device.to_string(), || {
            run::<E, burn_wgsl::Autodiff<Wgsl>>(&weights, &device)
        });
        for ((name, values), (_, expected)) in curves.iter().zip(&expected) {
            assert_eq!((values.len(), expected.len()), (STEPS, STEPS));
            for (step, (value, expected)) in values.iter().zip(expected).enumerate() {
                assert!(
                    tolerance.holds((*value).into(), (*expected).into()),
                    "{name} on {device} is {value} at step {step}, {expected} with burn-flex"
                );
            }
        }
        let (name, values) = &curves[0];
        let mean = |part: &[f32]| part.iter().sum::<f32>() / part.len() as f32;
        let (first, last) = (mean(&values[..5]), mean(&values[STEPS - 5..]));
        let falls = last < ratio * first || values_are_ignored();
        assert!(falls, "{name} on {device} falls only from {first} to {last}");
    }
}

fn recorder() -> BinBytesRecorder<FullPrecisionSettings> {
    BinBytesRecorder::default()
}

/// Returns the initial weights, the same for all devices.
fn weights<E: Example>() -> Vec<u8> {
    // burn-flex has one random stream per process. Models are created one at a time, because each
    // draws from it, even if its weights are then loaded from a record.
    let _guard = serial_guard();
    Flex::seed(&FlexDevice, 1);
    let model = E::model::<Autodiff<Flex>>(&FlexDevice);
    let record = recorder().record(model.into_record(), ());
    record.expect("recording to memory succeeds")
}

fn run<E: Example, B: AutodiffBackend>(weights: &[u8], device: &B::Device) -> Curves {
    let record = recorder().load(weights.to_vec(), device);
    let record = record.expect("the record is one of the same model");
    let model = {
        let _guard = serial_guard();
        E::model::<B>(device).load_record(record)
    };
    E::train(model, device)
}

/// Runs a plain training loop and returns the loss of every step.
fn fit<B: AutodiffBackend, M: AutodiffModule<B>>(
    mut model: M,
    mut optimizer: impl Optimizer<M, B>,
    mut learning_rate: impl FnMut() -> LearningRate,
    loss: impl Fn(&M) -> Tensor<B, 1>,
) -> Curves {
    let step = |_| {
        let loss = loss(&model);
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(learning_rate(), model.clone(), gradients);
        scalar(loss)
    };
    vec![("the loss", (0..STEPS).map(step).collect())]
}

fn scalar<B: Backend>(tensor: Tensor<B, 1>) -> f32 {
    tensor.into_scalar().elem()
}

/// Returns normally distributed numbers. The host generates them, so they are the same on every
/// device.
fn normal<B: Backend, const D: usize>(
    shape: [usize; D],
    seed: u64,
    device: &B::Device,
) -> Tensor<B, D> {
    let mut rng = StdRng::seed_from_u64(seed);
    let data = TensorData::random::<f32, _, _>(shape, Distribution::Normal(0.0, 1.0), &mut rng);
    Tensor::from_data(data, device)
}

// --- Regression: a multilayer perceptron on tabular data with outliers ---

struct Regression;

#[derive(Module, Debug)]
struct Mlp<B: Backend> {
    layers: [Linear<B>; 3],
}

impl Example for Regression {
    type Model<B: AutodiffBackend> = Mlp<B>;

    fn model<B: AutodiffBackend>(device: &B::Device) -> Mlp<B> {
        let sizes = [(5, 24), (24, 24), (24, 1)];
        Mlp { layers: sizes.map(|(from, to)| LinearConfig::new(from, to).init(device)) }
    }

    fn train<B: AutodiffBackend>(model: Mlp<B>, device: &B::Device) -> Curves {
        let x = normal::<B, 2>([48, 5], 1, device);
        let column = |index: usize| x.clone().slice([0..48, index..index + 1]);
        let target = column(0) * column(1) + x.clone().sum_dim(1).sin();
        // A few targets are outliers, as in real data.
        let noise = normal([48, 1], 2, device);
        let y = target.clone().mask_where(noise.clone().greater_elem(1.5), target + noise * 5);
        let loss = HuberLossConfig::new(1.0).init();
        let sgd = SgdConfig::new()
            .with_momentum(Some(MomentumConfig::new().with_momentum(0.8)))
            .with_gradient_clipping(Some(GradientClippingConfig::Norm(1.0)))
            .init();
        fit(
            model,
            sgd,
            || 0.1,
            |model| {
                let [first, second, last] = &model.layers;
                let hidden = tanh(second.forward(relu(first.forward(x.clone()))));
                loss.forward(last.forward(hidden), y.clone(), Reduction::Mean)
            },
        )
    }
}

#[test]
fn regression_training_matches_burn_flex() {
    check_training::<Regression>(0.7);
}

// --- Sequences: a bidirectional LSTM ---

struct Sequences;

#[derive(Module, Debug)]
struct Recurrent<B: Backend> {
    lstm: BiLstm<B>,
    head: Linear<B>,
}

impl Example for Sequences {
    type Model<B: AutodiffBackend> = Recurrent<B>;

    fn model<B: AutodiffBackend>(device: &B::Device) -> Recurrent<B> {
        Recurrent {
            lstm: BiLstmConfig::new(2, 8, true).init(device),
            head: LinearConfig::new(16, 1).init(device),
        }
    }

    fn train<B: AutodiffBackend>(model: Recurrent<B>, device: &B::Device) -> Curves {
        const LENGTH: usize = 3;
        let x = normal::<B, 3>([12, LENGTH, 2], 3, device);
        // The target is the correlation of a sequence's two signals.
        let signal = |index: usize| x.clone().slice([0..12, 0..LENGTH, index..index + 1]);
        let y = (signal(0) * signal(1)).mean_dim(1).squeeze_dim::<2>(2);
        let adam = AdamConfig::new().init();
        fit(
            model,
            adam,
            || 0.02,
            |model| {
                let (hidden, _) = model.lstm.forward(x.clone(), None);
                let pooled = hidden.mean_dim(1).squeeze_dim(1);
                MseLoss::new().forward(model.head.forward(pooled), y.clone(), Reduction::Mean)
            },
        )
    }
}

#[test]
fn sequence_training_matches_burn_flex() {
    check_training::<Sequences>(0.5);
}

// --- Text: a transformer encoder over padded token sequences ---

struct Text;

#[derive(Module, Debug)]
struct Classifier<B: Backend> {
    tokens: Embedding<B>,
    positions: Embedding<B>,
    encoder: TransformerEncoder<B>,
    head: Linear<B>,
}

const TEXTS: usize = 12;
const WORDS: usize = 7;
const CLASSES: usize = 3;

/// Returns texts of different lengths, padded with token 0, and their classes. Most tokens of a
/// text belong to its class.
fn texts<B: Backend>(device: &B::Device) -> (Tensor<B, 2, Int>, Tensor<B, 1, Int>) {
    let mut tokens = Vec::new();
    let mut labels = Vec::new();
    for text in 0..TEXTS {
        let length = WORDS - text % 5;
        let label = text % CLASSES;
        labels.push(label as i32);
        for position in 0..WORDS {
            let class = if position % 3 == 2 { text * position % CLASSES } else { label };
            let token = 1 + class + CLASSES * ((text + 2 * position) % 4);
            tokens.push(if position < length { token as i32 } else { 0 });
        }
    }
    let tokens = Tensor::<B, 1, Int>::from_ints(tokens.as_slice(), device);
    let labels = Tensor::from_ints(labels.as_slice(), device);
    (tokens.reshape([TEXTS, WORDS]), labels)
}

impl Example for Text {
    type Model<B: AutodiffBackend> = Classifier<B>;

    fn model<B: AutodiffBackend>(device: &B::Device) -> Classifier<B> {
        const SIZE: usize = 16;
        Classifier {
            tokens: EmbeddingConfig::new(1 + CLASSES * 4, SIZE).init(device),
            positions: EmbeddingConfig::new(WORDS, SIZE).init(device),
            // No dropout: devices draw different random numbers than burn-flex.
            encoder: TransformerEncoderConfig::new(SIZE, 32, 4, 1)
                .with_dropout(0.0)
                .with_norm_first(true)
                .init(device),
            head: LinearConfig::new(SIZE, CLASSES).init(device),
        }
    }

    fn train<B: AutodiffBackend>(model: Classifier<B>, device: &B::Device) -> Curves {
        let (tokens, labels) = texts::<B>(device);
        let padding: Tensor<B, 2, Bool> = tokens.clone().equal_elem(0);
        let positions = Tensor::arange(0..WORDS as i64, device).unsqueeze::<2>();
        let loss = CrossEntropyLossConfig::new().with_smoothing(Some(0.05)).init(device);
        let adam = AdamWConfig::new().with_weight_decay(0.01).init();
        let mut schedule = NoamLrSchedulerConfig::new(0.1)
            .with_warmup_steps(20)
            .with_model_size(16)
            .init()
            .expect("the schedule's configuration is valid");
        fit(
            model,
            adam,
            || schedule.step(),
            |model| {
                let x = model.tokens.forward(tokens.clone())
                    + model.positions.forward(positions.clone());
                let x = TransformerEncoderInput::new(x).mask_pad(padding.clone());
                let x = model.encoder.forward(x);
                let first = x.slice([0..TEXTS, 0..1]).squeeze_dim(1);
                loss.forward(model.head.forward(first), labels.clone())
            },
        )
    }
}

#[test]
fn text_training_matches_burn_flex() {
    check_training::<Text>(0.7);
}

// --- Images: a generative adversarial network ---

struct Images;

#[derive(Module, Debug)]
struct Generator<B: Backend> {
    project: Linear<B>,
    upsample: [ConvTranspose2d<B>; 2],
    norms: [BatchNorm<B>; 2],
}

#[derive(Module, Debug)]
struct Discriminator<B: Backend> {
    downsample: [Conv2d<B>; 2],
    norm: BatchNorm<B>,
    head: Linear<B>,
}

#[derive(Module, Debug)]
struct Gan<B: Backend> {
    generator: Generator<B>,
    discriminator: Discriminator<B>,
}

const IMAGES: usize = 16;

impl<B: Backend> Generator<B> {
    /// Returns images `[IMAGES, 1, 8, 8]` from noise `[IMAGES, 4]`.
    fn forward(&self, noise: Tensor<B, 2>) -> Tensor<B, 4> {
        let x = self.project.forward(noise).reshape([IMAGES, 8, 2, 2]);
        let x = self.upsample[0].forward(relu(self.norms[0].forward(x)));
        tanh(self.upsample[1].forward(relu(self.norms[1].forward(x))))
    }
}

impl<B: Backend> Discriminator<B> {
    /// Returns a score `[IMAGES]`. Real images should get high scores.
    fn forward(&self, images: Tensor<B, 4>) -> Tensor<B, 1> {
        let x = leaky_relu(self.downsample[0].forward(images), 0.2);
        let x = leaky_relu(self.norm.forward(self.downsample[1].forward(x)), 0.2);
        self.head.forward(x.flatten::<2>(1, 3)).squeeze_dim(1)
    }
}

impl Example for Images {
    type Model<B: AutodiffBackend> = Gan<B>;

    fn model<B: AutodiffBackend>(device: &B::Device) -> Gan<B> {
        let upsample = |channels| {
            ConvTranspose2dConfig::new(channels, [4, 4])
                .with_stride([2, 2])
                .with_padding([1, 1])
                .with_bias(false)
                .init(device)
        };
        let downsample = |channels| {
            Conv2dConfig::new(channels, [3, 3])
                .with_stride([2, 2])
                .with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1))
                .with_bias(false)
                .init(device)
        };
        let norm = |channels| BatchNormConfig::new(channels).init(device);
        Gan {
            generator: Generator {
                project: LinearConfig::new(4, 8 * 2 * 2).init(device),
                upsample: [upsample([8, 6]), upsample([6, 1])],
                norms: [norm(8), norm(6)],
            },
            discriminator: Discriminator {
                downsample: [downsample([1, 6]), downsample([6, 8])],
                norm: norm(8),
                head: LinearConfig::new(8 * 2 * 2, 1).init(device),
            },
        }
    }

    fn train<B: AutodiffBackend>(model: Gan<B>, device: &B::Device) -> Curves {
        let Gan { mut generator, mut discriminator } = model;
        // Adversarial training is chaotic. With a learning rate of 0.01, rounding alone makes two
        // devices differ by 4% before step 40. With this rate they differ by less than a thousandth
        // of that.
        const RATE: f64 = 0.004;
        let config = AdamConfig::new().with_beta_1(0.5);
        let (mut generator_adam, mut discriminator_adam) = (config.init(), config.init());
        let loss = BinaryCrossEntropyLossConfig::new().with_logits(true).init(device);
        let real_labels = || Tensor::<B, 1, Int>::ones([IMAGES], device);
        let fake_labels = || Tensor::<B, 1, Int>::zeros([IMAGES], device);
        // Real images are one picture with a little noise. Its left half is bright and its right
        // half is dark.
        let picture = Tensor::cat(
            vec![
                Tensor::<B, 4>::full([1, 1, 8, 4], 0.8, device),
                Tensor::full([1, 1, 8, 4], -0.8, device),
            ],
            3,
        );
        let (mut distances, mut discriminator_losses, mut generator_losses) =
            (vec![], vec![], vec![]);
        for step in 0..STEPS as u64 {
            let real =
                normal::<B, 4>([IMAGES, 1, 8, 8], 100 + step, device) * 0.1 + picture.clone();
            let fake = generator.forward(normal([IMAGES, 4], 200 + step, device));

            let scores = discriminator.forward(fake.clone().detach());
            let discriminator_loss = loss.forward(discriminator.forward(real), real_labels())
                + loss.forward(scores, fake_labels());
            let gradients =
                GradientsParams::from_grads(discriminator_loss.backward(), &discriminator);
            discriminator = discriminator_adam.step(RATE, discriminator, gradients);

            let generator_loss = loss.forward(discriminator.forward(fake.clone()), real_labels());
            let gradients = GradientsParams::from_grads(generator_loss.backward(), &generator);
            generator = generator_adam.step(RATE, generator, gradients);

            distances.push(scalar((fake - picture.clone()).square().mean()));
            discriminator_losses.push(scalar(discriminator_loss));
            generator_losses.push(scalar(generator_loss));
        }
        vec![
            ("the distance from the picture", distances),
            ("the discriminator's loss", discriminator_losses),
            ("the generator's loss", generator_losses),
        ]
    }
}

#[test]
fn image_training_matches_burn_flex() {
    check_training::<Images>(0.75);
}
