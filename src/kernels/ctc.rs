//! The connectionist temporal classification loss and its gradient.

use smallvec::SmallVec;

use super::cases::{Arg, Case, below, case, given, normal, permuted};
use super::elementwise::{Map, Number};
use super::{Launch, Params, cast, copy, div_up};
use crate::runtime::{Runtime, Source, Variant};
use crate::tensor::{DType, Error, Result, Tensor};

static CTC: Source = Source { name: "ctc", text: include_str!("../../shaders/ctc/ctc.wgsl") };
static CTC_BACKWARD: Source =
    Source { name: "ctc_backward", text: include_str!("../../shaders/ctc/ctc_backward.wgsl") };

fn variant(lanes: u32) -> Variant {
    Variant::new(&CTC).int("LANES", lanes)
}

/// What was to be recognised.
#[derive(Debug, Clone)]
pub struct Sequences {
    /// The labels, `[batch, labels]`. One that is no class is clamped to those.
    pub targets: Tensor,
    /// How many steps of each input count, `[batch]`.
    pub input_lengths: Tensor,
    /// How many labels of each target count, `[batch]`.
    pub target_lengths: Tensor,
    /// The class that is no label.
    pub blank: usize,
}

/// The operands, packed, and their sizes.
struct Problem {
    log_probs: Tensor,
    sequences: Sequences,
    steps: usize,
    batch: usize,
    classes: usize,
    labels: usize,
}

impl Problem {
    fn new(log_probs: Tensor, sequences: Sequences) -> Result<Self> {
        let fits = |rhs: &Tensor, rule| Error::Shape {
            lhs: log_probs.shape().to_vec(),
            rhs: rhs.shape().to_vec(),
            rule,
        };
        let Sequences { targets, input_lengths, target_lengths, blank } = sequences;
        let &[steps, batch, classes] = log_probs.shape() else {
            return Err(fits(&targets, "log_probs are [steps, batch, classes]"));
        };
        if targets.shape().len() != 2 || targets.shape()[0] != batch {
            return Err(fits(&targets, "targets are [batch, labels]"));
        }
        for lengths in [&input_lengths, &target_lengths] {
            if lengths.shape() != [batch] {
                return Err(fits(lengths, "lengths are [batch]"));
            }
        }
        if blank >= classes {
            return Err(Error::Shape {
                lhs: log_probs.shape().to_vec(),
                rhs: vec![blank],
                rule: "the blank is one of the classes",
            });
        }
        for tensor in [&targets, &input_lengths, &target_lengths] {
            log_probs.same_device(tensor)?;
        }
        let labels = targets.shape()[1];
        let sequences = Sequences {
            targets: copy::packed(cast::indices(targets)?)?,
            input_lengths: copy::packed(cast::indices(input_lengths)?)?,
            target_lengths: copy::packed(cast::indices(target_lengths)?)?,
            blank,
        };
        let log_probs = copy::packed(log_probs)?;
        Ok(Self { log_probs, sequences, steps, batch, classes, labels })
    }

    fn runtime(&self) -> &std::sync::Arc<Runtime> {
        self.log_probs.runtime()
    }

    fn inputs(&self) -> SmallVec<[&Tensor; 6]> {
        let Sequences { targets, input_lengths, target_lengths, .. } = &self.sequences;
        SmallVec::from_slice(&[&self.log_probs, targets, input_lengths, target_lengths])
    }

    fn params(&self, directions: usize, rows: usize) -> Params {
        let sizes = [self.steps, self.batch, self.classes, self.labels, self.sequences.blank];
        let recursions = [directions * self.batch, rows, 0];
        sizes.into_iter().chain(recursions).map(|size| size as u32).collect()
    }

    /// The recursions of all sequences in one direction or both, the last so many rows of each, and the losses.
    fn recursions(&self, directions: usize, rows: usize) -> Result<(Tensor, Tensor)> {
        let inputs = self.inputs();
        let states = 2 * self.labels + 1;
        let shape = [directions * self.batch, rows, states];
        let table = Tensor::empty(self.runtime(), &shape, DType::F32, &inputs)?;
        let loss = Tensor::empty(self.runtime(), &[self.batch], DType::F32, &inputs)?;
        Launch {
            variant: &variant(if self.runtime().is_software() { 8 } else { 64 }),
            inputs: &inputs,
            outputs: &[&table, &loss],
            params: &self.params(directions, rows),
            groups: (directions * self.batch) as u64,
            work: (directions * self.batch) as u64 * (self.steps * states) as u64 * 64,
        }
        .run()?;
        Ok((table, loss))
    }
}

/// Minus the logarithm of the probability of each target, `[batch]`, for `log_probs` `[steps, batch, classes]`: that of all ways to
/// spell it with one class a step, repeated labels joined and blanks left out. Infinite where there is no way.
///
/// # Errors
///
/// When the shapes do not fit or the memory is not there.
pub fn ctc_loss(log_probs: Tensor, sequences: Sequences) -> Result<Tensor> {
    let problem = Problem::new(log_probs, sequences)?;
    Ok(problem.recursions(1, 2)?.1)
}

/// The gradient of [`ctc_loss`] with respect to `log_probs`, for the gradient of the losses: minus the probability of each class at each step,
/// given the target. Zero for steps that do not count and where the loss is infinite.
///
/// # Errors
///
/// As [`ctc_loss`].
pub fn ctc_loss_backward(log_probs: Tensor, sequences: Sequences, grad: Tensor) -> Result<Tensor> {
    log_probs.same_device(&grad)?;
    let problem = Problem::new(log_probs, sequences)?;
    if grad.shape() != [problem.batch] {
        return Err(Error::Shape {
            lhs: problem.log_probs.shape().to_vec(),
            rhs: grad.shape().to_vec(),
            rule: "there is one loss for each sequence",
        });
    }
    let (rows, _) = problem.recursions(2, problem.steps)?;
    let grad = copy::packed(grad)?;
    let mut inputs = problem.inputs();
    inputs.extend([&rows, &grad]);
    let shape = problem.log_probs.shape();
    let out = Tensor::empty(problem.runtime(), shape, DType::F32, &inputs)?;
    Map::new("s", DType::F32).with(&[Number::Float(0.0)], DType::F32).write_to(&[], &out)?;
    let lines = problem.steps * problem.batch;
    Launch {
        variant: &Variant::new(&CTC_BACKWARD),
        inputs: &inputs,
        outputs: &[&out],
        params: &problem.params(2, problem.steps),
        groups: div_up(lines, 64),
        work: lines as u64 * (2 * problem.labels + 1) as u64 * 64,
    }
    .run()?;
    Ok(out)
}

/// Every variant that can be asked for.
pub fn variants() -> Vec<Variant> {
    vec![variant(8), variant(64), Variant::new(&CTC_BACKWARD)]
}

/// What the family must pass.
pub const CASES: &[Case] = {
    const FIRST: Arg = Arg::Int(0);
    &[
        case(
            "ctc_loss",
            &[
                normal(&[7, 3, 5]),
                below(5, &[3, 3]),
                given(&[7, 5, 6], &[3]),
                given(&[3, 1, 2], &[3]),
                FIRST,
            ],
        ),
        // Repeated labels, which need a blank between them: one way only, for the first.
        case(
            "ctc_loss",
            &[
                normal(&[6, 4, 4]),
                given(&[1, 1, 1, 1, 2, 2, 3, 3, 3, 2, 2, 2], &[4, 3]),
                given(&[5, 6, 6, 4], &[4]),
                given(&[3, 3, 3, 2], &[4]),
                FIRST,
            ],
        ),
        // Empty targets, another blank, a view.
        case(
            "ctc_loss",
            &[
                permuted(&[3, 9, 6], &[1, 0, 2]),
                given(&[0, 1, 5, 3, 4, 0], &[3, 2]),
                given(&[9, 1, 4], &[3]),
                given(&[0, 0, 2], &[3]),
                Arg::Int(2),
            ],
        ),
        case(
            "ctc_loss",
            &[
                normal(&[5, 2, 3]),
                below(3, &[2, 0]),
                given(&[5, 2], &[2]),
                given(&[0, 0], &[2]),
                FIRST,
            ],
        ),
        case(
            "ctc_loss",
            &[
                normal(&[1, 2, 3]),
                given(&[1, 2], &[2, 1]),
                given(&[1, 1], &[2]),
                given(&[1, 0], &[2]),
                FIRST,
            ],
        ),
        case(
            "ctc_loss",
            &[
                normal(&[60, 2, 30]),
                below(30, &[2, 25]),
                given(&[60, 55], &[2]),
                given(&[25, 20], &[2]),
                FIRST,
            ],
        ),
    ]
};
