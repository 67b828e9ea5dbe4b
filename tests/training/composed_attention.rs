//! Attention that a program composes of products and a softmax: on GPUs, the kernels of attention and of its gradients
//! compute it, and the results are those of the ops. Each test has a process of its own: the wait of another thread
//! would compute ops that are pending, one by one.

use burn::backend::autodiff::checkpoint::strategy::BalancedCheckpointing;
use burn::module::Module;
use burn::nn::attention::{MhaInput, MultiHeadAttention, MultiHeadAttentionConfig};
use burn::tensor::activation::softmax;
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{Bool, Tensor};
use burn_wgsl::{Autodiff, Precision, Wgsl, WgslDevice, autocast};

use crate::batch_norm::{assert_close, numbers, values};
use crate::common::{Launches, gpus, is_alone, runtime_of, test_alone};

type Ours = Autodiff<Wgsl>;
type Checkpointed = Autodiff<Wgsl, BalancedCheckpointing>;
type Burns = burn::backend::Autodiff<Wgsl>;

const BATCH: usize = 3;
const HEADS: usize = 2;
const QUERIES: usize = 20;
const KEYS: usize = 36;
const WIDTH: usize = 8;

/// What a program does besides `softmax(query @ key^T / s) @ value`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Program {
    Plain,
    ScaledTwice,
    /// Keys at the end are hidden, and all keys of one sequence.
    Padded,
    /// Later keys are hidden.
    Causal,
    PaddedAndCausal,
    /// The gradient of the weights is needed, too.
    UsesWeights,
    /// The weights have two values.
    UsesWeightsTwice,
    /// No gradient goes through the weights.
    Detached,
    /// The masked scores are scaled.
    ScaledAfterMask,
    /// Masks with different fills.
    TwoFills,
    /// An op between the product and the softmax.
    Shifted,
    /// A mask for each head, and a factor below zero.
    MaskedByHead,
    /// The fill is the largest score.
    PositiveFill,
    /// A row of hidden keys is NaN then.
    InfiniteFill,
    /// The weights are multiplied, as by dropout.
    Dropped,
    /// The weights of the first sequence, for all.
    Sliced,
    /// The scores are masked in another shape.
    MaskedInRows,
    /// Another attention begins before this one ends.
    Interleaved,
}

use Program::*;

const PROGRAMS: [Program; 18] = [
    Plain,
    ScaledTwice,
    Padded,
    Causal,
    PaddedAndCausal,
    UsesWeights,
    UsesWeightsTwice,
    Detached,
    ScaledAfterMask,
    TwoFills,
    Shifted,
    MaskedByHead,
    PositiveFill,
    InfiniteFill,
    Dropped,
    Sliced,
    MaskedInRows,
    Interleaved,
];

impl Program {
    /// Whether kernels of attention compute the result, and the gradients.
    fn is_attention(self) -> bool {
        !matches!(
            self,
            ScaledAfterMask | TwoFills | Shifted | InfiniteFill | Dropped | Sliced | MaskedInRows
        )
    }

    /// Whether the program needs the weights besides, in training.
    fn needs_weights(self) -> bool {
        !self.is_attention() || matches!(self, UsesWeights | UsesWeightsTwice | Detached)
    }

    fn fill(self) -> f32 {
        match self {
            TwoFills => -5.0,
            PositiveFill => 30.0,
            InfiniteFill => f32::NEG_INFINITY,
            _ => -1.0e4,
        }
    }

    /// Returns the mask of keys, and the causal one.
    fn masks<B: Backend<Device = WgslDevice>>(
        self,
        queries: usize,
        device: &WgslDevice,
    ) -> [Option<Tensor<B, 4, Bool>>; 2] {
        let of_keys = |visible: [usize; BATCH]| {
            let positions = Tensor::<B, 1, burn::tensor::Int>::arange(0..KEYS as i64, device);
            let rows = visible.map(|count| {
                positions.clone().greater_equal_elem(count as i64).reshape([1, 1, 1, KEYS])
            });
            Tensor::cat(rows.to_vec(), 0)
        };
        let causal = Tensor::<B, 2, Bool>::tril_mask([queries, KEYS], 16, device);
        let causal = causal.reshape([1, 1, queries, KEYS]);
        match self {
            MaskedByHead => {
                let numbers = numbers::<B, 4>(9, [KEYS, queries, HEADS, BATCH], device);
                [Some(numbers.permute([3, 2, 1, 0]).greater_elem(0.5)), None]
            }
            InfiniteFill | PositiveFill => [None, Some(causal)],
            Padded => [Some(of_keys([KEYS, 0, 7])), None],
            Causal | ScaledAfterMask => [None, Some(causal)],
            PaddedAndCausal | TwoFills => [Some(of_keys([30, 0, 7])), Some(causal)],
            _ => [None, None],
        }
    }

    /// Computes the result and the weights.
    fn run<B: Backend<Device = WgslDevice>>(
        self,
        [query, key, value]: [Tensor<B, 4>; 3],
        device: &WgslDevice,
    ) -> [Tensor<B, 4>; 2] {
        let [_, _, queries, width] = query.dims();
        let other = (self == Interleaved)
            .then(|| softmax(query.clone().mul_scalar(2.0).matmul(key.clone().transpose()), 3));
        let mut scores = query.matmul(key.transpose()).div_scalar((width as f32).sqrt());
        match self {
            ScaledTwice => scores = scores.mul_scalar(3.0),
            MaskedByHead => scores = scores.mul_scalar(-0.5),
            Shifted => scores = scores.add_scalar(1.0),
            MaskedInRows => {
                let mask = Tensor::<B, 3, Bool>::tril_mask([BATCH * HEADS, queries, 1], 0, device);
                let rows = scores.reshape([BATCH * HEADS, queries, KEYS]);
                scores = rows.mask_fill(mask, -1.0e4).reshape([BATCH, HEADS, queries, KEYS]);
            }
            _ => {}
        }
        for (index, mask) in self.masks(queries, device).into_iter().enumerate() {
            let fill = if index == 0 || self != TwoFills { self.fill() } else { -1.0e4 };
            scores = mask.map_or(scores.clone(), |mask| scores.mask_fill(mask, fill));
        }
        if self == ScaledAfterMask {
            scores = scores.mul_scalar(0.5);
        }
        let mut weights = softmax(scores, 3);
        match self {
            Detached => weights = weights.detach(),
            Dropped => {
                let kept = numbers(8, [BATCH, HEADS, queries, KEYS], device);
                weights = weights * kept;
            }
            Sliced => weights = weights.narrow(0, 0, 1).expand([BATCH, HEADS, queries, KEYS]),
            _ => {}
        }
        let mut result = match self {
            // One sequence of weights, for the values of all.
            Sliced => weights.clone().narrow(0, 0, 1).matmul(value.clone()),
            _ => weights.clone().matmul(value.clone()),
        };
        if self == UsesWeightsTwice {
            result = result + weights.clone().matmul(value.clone().mul_scalar(2.0));
        }
        if let Some(other) = other {
            result = result + other.matmul(value);
        }
        [result, weights]
    }
}

fn operands<B: Backend<Device = WgslDevice>>(
    [queries, width]: [usize; 2],
    device: &WgslDevice,
) -> [Tensor<B, 4>; 3] {
    // As projections are divided into heads.
    let heads = |seed, len| {
        let projection = numbers::<B, 4>(seed, [BATCH, len, HEADS, width], device);
        projection.swap_dims(1, 2)
    };
    [heads(1, queries), heads(2, KEYS), heads(3, KEYS)]
}

/// The result, and the gradients of queries, keys and values.
fn trained<B: AutodiffBackend<Device = WgslDevice>>(
    program: Program,
    device: &WgslDevice,
) -> Vec<Vec<f64>> {
    let operands = operands::<B>([QUERIES, WIDTH], device).map(Tensor::require_grad);
    let inputs = operands.clone().map(|operand| operand * 1.0);
    let [result, weights] = program.run(inputs, device);
    let mut loss = (result.clone() * numbers(4, [BATCH, HEADS, QUERIES, WIDTH], device)).sum();
    if program == UsesWeights {
        loss = loss + (weights * numbers(5, [BATCH, HEADS, QUERIES, KEYS], device)).sum();
    }
    let gradients = loss.backward();
    let of = |operand: &Tensor<B, 4>| match operand.grad(&gradients) {
        Some(gradient) => values(gradient),
        None => Vec::new(),
    };
    [vec![values(result.inner())], operands.iter().map(of).collect()].concat()
}

/// Counts the launches of the kernels of attention, and of softmax; `None` where all ops are computed by themselves.
fn launches_of_attention(device: &WgslDevice, work: impl FnOnce()) -> Option<[usize; 2]> {
    let runtime = runtime_of(device);
    let launches = ["attention", "softmax"].map(Launches::containing);
    let observations = launches.clone().map(|launches| runtime.observe(launches));
    work();
    drop(observations);
    (!runtime.is_software()).then(|| launches.map(|launches| launches.count()))
}

/// Checks the launches of a training step.
fn check_launches(launches: Option<[usize; 2]>, program: Program, what: &str) {
    let Some([attention, softmax]) = launches else { return };
    match program {
        // The result, and two gradients or more. No gradient of queries and keys is needed without that of weights.
        _ if program.is_attention() && program != Detached => {
            assert!(attention >= 3, "{attention} launches of {program:?}, {what}");
        }
        _ => assert_eq!(attention, 0, "{program:?}, {what}"),
    }
    assert_eq!(softmax > 0, program.needs_weights(), "{softmax} of {program:?}, {what}");
}

#[test]
fn gradients_are_those_of_the_ops() {
    if !is_alone(test_alone!("gradients_are_those_of_the_ops")) {
        return;
    }
    for device in gpus() {
        for program in PROGRAMS {
            let expected = trained::<Burns>(program, &WgslDevice::Cpu);
            let launches = launches_of_attention(&device, || {
                let found = trained::<Ours>(program, &device);
                assert_close(&found, &expected, 1e-4, &format!("{program:?} on {device}"));
            });
            check_launches(launches, program, "in f32");
            if !matches!(program, Plain | UsesWeights) {
                continue;
            }
            for (name, found) in [
                ("checkpointed", trained::<Checkpointed>(program, &device)),
                ("Burn's", trained::<Burns>(program, &device)),
            ] {
                assert_close(&found, &expected, 1e-4, &format!("{name}, {program:?}, {device}"));
            }
        }
    }
}

#[test]
fn results_are_those_of_the_ops() {
    if !is_alone(test_alone!("results_are_those_of_the_ops")) {
        return;
    }
    for device in gpus() {
        for program in PROGRAMS {
            // The last ones are few queries with widths that are no vec4s.
            for sizes in [[QUERIES, WIDTH], [1, 6]] {
                check_results(program, sizes, &device);
            }
        }
    }
}

fn check_results(program: Program, sizes: [usize; 2], device: &WgslDevice) {
    let what = format!("{program:?} on {device}, {sizes:?}");
    let run = |device: &WgslDevice| program.run(operands::<Wgsl>(sizes, device), device);
    let expected = run(&WgslDevice::Cpu).map(values);
    let mut results = None;
    let launches = launches_of_attention(device, || results = Some(run(device)));
    let [result, weights] = results.expect("it ran");
    if let Some([attention, _]) = launches {
        assert_eq!(attention > 0, program.is_attention(), "{what}");
    }
    // The weights after the result, and before it.
    let found = [values(result), values(weights)];
    assert_close(&found, &expected, 1e-4, &what);
    let [result, weights] = run(device);
    let weights = values(weights);
    assert_close(&[values(result), weights], &expected, 1e-4, &format!("{what}, reversed"));
}

#[test]
fn autocast_computes_it_in_16_bits() {
    if !is_alone(test_alone!("autocast_computes_it_in_16_bits")) {
        return;
    }
    for device in gpus() {
        for program in [Plain, PaddedAndCausal, Detached, Shifted] {
            let expected = trained::<Burns>(program, &WgslDevice::Cpu);
            for (precision, tolerance) in [(Precision::F16, 1e-2), (Precision::Bf16, 6e-2)] {
                let _scope = autocast(&device, precision);
                let launches = launches_of_attention(&device, || {
                    let found = trained::<Ours>(program, &device);
                    let what = format!("{precision}: {program:?} on {device}");
                    assert_close(&found, &expected, tolerance, &what);
                });
                check_launches(launches, program, &precision.to_string());
            }
        }
    }
}

/// Burn's module, without dropout: its result, and the gradient of its input.
#[test]
fn multi_head_attention_is_attention() {
    if !is_alone(test_alone!("multi_head_attention_is_attention")) {
        return;
    }
    let config = MultiHeadAttentionConfig::new(32, 4).with_dropout(0.0);
    let module: MultiHeadAttention<Ours> = config.init(&WgslDevice::Cpu);
    // Parameters are random numbers, of the device of their first use.
    let _ = module.forward(MhaInput::self_attn(numbers(1, [1, 1, 32], &WgslDevice::Cpu)));
    let run = |device: &WgslDevice| {
        let module = module.clone().to_device(device);
        let x = numbers::<Ours, 3>(1, [2, 24, 32], device).require_grad();
        let context = module.forward(MhaInput::self_attn(x.clone())).context;
        let gradients = (context.clone() * numbers(2, [2, 24, 32], device)).sum().backward();
        [values(context.inner()), values(x.grad(&gradients).expect("it is there"))]
    };
    let expected = run(&WgslDevice::Cpu);
    for device in gpus() {
        let launches = launches_of_attention(&device, || {
            assert_close(&run(&device), &expected, 1e-4, &format!("{device}"));
        });
        check_launches(launches, Plain, &device.to_string());
    }
}
