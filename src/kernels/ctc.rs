//! The connectionist temporal classification (CTC) loss and its gradient.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::kernels::launch::{Launch, variants_of, workgroups_for};
use crate::kernels::ops::cases::{Arg, Case, below, cases, given, permuted};
use crate::kernels::ops::map::{Map, ScalarValue};
use crate::kernels::{cast, policy, views};
use crate::params;
use crate::runtime::{Fragment, IndexedAxis, Kernel, Runtime, Source, Variant, wgsl};
use crate::tensor::{DType, Error, Result, Tensor};

/// The fragments of the shaders.
const FRAGMENTS: &[Fragment] = &[("lib/ctc", wgsl!("../../shaders/lib/ctc.wgsl"))];

static CTC: Source =
    Source::new::<CtcParams>("ctc", wgsl!("../../shaders/ctc/ctc.wgsl")).with_fragments(FRAGMENTS);
static CTC_BACKWARD: Source =
    Source::new::<CtcParams>("ctc_backward", wgsl!("../../shaders/ctc/ctc_backward.wgsl"))
        .with_fragments(FRAGMENTS);

params! {
    struct CtcParams {
        count: u32,
        steps: u32,
        batch: u32,
        classes: u32,
        labels: u32,
        blank: u32,
        rows: u32,
        pad0: u32,
    }
}

/// The kernel of the recursions; a workgroup computes one.
#[derive(Debug, Clone, Copy, Hash)]
struct CtcKernel {
    /// Invocations of a workgroup.
    workgroup_size: u32,
}

impl Kernel for CtcKernel {
    type Params = CtcParams;

    fn variant(&self) -> Variant {
        Variant::new(&CTC).int("WORKGROUP_SIZE", self.workgroup_size)
    }
}

/// The kernel of the gradient, which has a single variant.
#[derive(Debug, Clone, Copy, Hash)]
struct CtcBackwardKernel;

impl Kernel for CtcBackwardKernel {
    type Params = CtcParams;

    fn variant(&self) -> Variant {
        Variant::new(&CTC_BACKWARD)
    }
}

/// The target sequences, and the lengths of inputs and targets.
#[derive(Debug, Clone)]
pub struct Sequences {
    /// The labels, `[batch, labels]`. A label outside the classes is reported, and clamped to them.
    pub targets: Tensor,
    /// The steps of each input, `[batch]`.
    pub input_lengths: Tensor,
    /// The labels of each target, `[batch]`.
    pub target_lengths: Tensor,
    /// The index of the blank class.
    pub blank: usize,
}

/// The packed operands and their sizes.
struct CtcProblem {
    log_probs: Tensor,
    sequences: Sequences,
    steps: usize,
    batch: usize,
    classes: usize,
    labels: usize,
}

impl CtcProblem {
    /// Checks the shapes and packs the operands.
    fn new(log_probs: Tensor, sequences: Sequences) -> Result<Self> {
        let mismatch = |rhs: &Tensor, rule| Error::Shape {
            lhs: log_probs.shape().to_vec(),
            rhs: rhs.shape().to_vec(),
            rule,
        };
        let Sequences { targets, input_lengths, target_lengths, blank } = sequences;
        let &[steps, batch, classes] = log_probs.shape() else {
            return Err(mismatch(&targets, "log_probs must be [steps, batch, classes]"));
        };
        if targets.shape().len() != 2 || targets.shape()[0] != batch {
            return Err(mismatch(&targets, "targets must be [batch, labels]"));
        }
        for lengths in [&input_lengths, &target_lengths] {
            if lengths.shape() != [batch] {
                return Err(mismatch(lengths, "lengths must be [batch]"));
            }
        }
        if blank >= classes {
            return Err(Error::Shape {
                lhs: log_probs.shape().to_vec(),
                rhs: vec![blank],
                rule: "the blank must be one of the classes",
            });
        }
        for tensor in [&targets, &input_lengths, &target_lengths] {
            log_probs.same_device(tensor)?;
        }
        let labels = targets.shape()[1];
        let sequences = Sequences {
            targets: views::packed(cast::indices(targets)?)?,
            input_lengths: views::packed(cast::indices(input_lengths)?)?,
            target_lengths: views::packed(cast::indices(target_lengths)?)?,
            blank,
        };
        let log_probs = views::packed(log_probs)?;
        Ok(Self { log_probs, sequences, steps, batch, classes, labels })
    }

    fn runtime(&self) -> &Arc<Runtime> {
        self.log_probs.runtime()
    }

    /// Returns the operands in binding order.
    fn inputs(&self) -> SmallVec<[&Tensor; 6]> {
        let Sequences { targets, input_lengths, target_lengths, .. } = &self.sequences;
        SmallVec::from_slice(&[&self.log_probs, targets, input_lengths, target_lengths])
    }

    /// Returns the parameters for `count` recursions or invocations; a recursion keeps `rows` rows.
    fn params(&self, count: usize, rows: usize) -> CtcParams {
        CtcParams {
            count: count as u32,
            steps: self.steps as u32,
            batch: self.batch as u32,
            classes: self.classes as u32,
            labels: self.labels as u32,
            blank: self.sequences.blank as u32,
            rows: rows as u32,
            pad0: 0,
        }
    }

    /// Computes the recursions of all sequences: forward, and backward too if `directions` is 2.
    /// Returns the last `rows` rows of each, `[directions * batch, rows, states]`, and the losses
    /// `[batch]`.
    fn recursions(&self, directions: usize, rows: usize) -> Result<(Tensor, Tensor)> {
        let inputs = self.inputs();
        let count = directions * self.batch;
        let states = 2 * self.labels + 1;
        let table = Tensor::empty(self.runtime(), &[count, rows, states], DType::F32)?;
        let loss = Tensor::empty(self.runtime(), &[self.batch], DType::F32)?;
        let workgroup_size =
            policy::of(self.runtime()).recursion_workgroup_size(self.steps, states);
        Launch {
            kernel: &CtcKernel { workgroup_size },
            inputs: &inputs,
            outputs: &[&table, &loss],
            params: &self.params(count, rows),
            workgroups: count as u64,
            work: count as u64 * self.steps as u64 * states as u64 * 64,
            rounds: Some(policy::recursion_rounds(workgroup_size, self.steps, states) as u64),
        }
        .run_indexed(&[IndexedAxis { axis: 2, size: self.classes }], &[])?;
        Ok((table, loss))
    }
}

/// Computes minus the log probability of each target, `[batch]`, for `log_probs` `[steps, batch,
/// classes]`.
///
/// A path has one class per step. It matches the target if the target remains after repeated labels
/// are merged and blanks are removed. The probability of the target is the sum over all matching
/// paths. The loss is infinite if no path matches.
///
/// # Errors
///
/// Returns an error if the shapes do not fit or the memory is not available.
pub fn ctc_loss(log_probs: Tensor, sequences: Sequences) -> Result<Tensor> {
    let problem = CtcProblem::new(log_probs, sequences)?;
    Ok(problem.recursions(1, 2)?.1)
}

/// Computes the gradient of [`ctc_loss`] with respect to `log_probs` from `grad` `[batch]`, the
/// gradient of the losses.
///
/// It is minus the probability of each class at each step, given the target, times `grad`.
/// It is zero for steps beyond the input length, and where the loss is infinite.
///
/// # Errors
///
/// Returns an error if the shapes do not fit or the memory is not available.
pub fn ctc_loss_backward(log_probs: Tensor, sequences: Sequences, grad: Tensor) -> Result<Tensor> {
    log_probs.same_device(&grad)?;
    let problem = CtcProblem::new(log_probs, sequences)?;
    if grad.shape() != [problem.batch] {
        return Err(Error::Shape {
            lhs: problem.log_probs.shape().to_vec(),
            rhs: grad.shape().to_vec(),
            rule: "the gradient must have one element per sequence",
        });
    }
    let (table, _) = problem.recursions(2, problem.steps)?;
    let grad = views::packed(grad)?;
    let mut inputs = problem.inputs();
    inputs.extend([&table, &grad]);
    let shape = problem.log_probs.shape();
    let out = Tensor::empty(problem.runtime(), shape, DType::F32)?;
    Map::new("s", DType::F32).with(&[ScalarValue::Float(0.0)], DType::F32).write_to(&[], &out)?;
    let count = problem.steps * problem.batch;
    Launch {
        kernel: &CtcBackwardKernel,
        inputs: &inputs,
        outputs: &[&out],
        params: &problem.params(count, problem.steps),
        workgroups: workgroups_for(count),
        work: count as u64 * (2 * problem.labels + 1) as u64 * 64,
        rounds: Some(3 * (2 * problem.labels + 2) as u64),
    }
    .run()?;
    Ok(out)
}

/// Returns every variant that the family can dispatch.
pub fn variants() -> Vec<Variant> {
    let workgroup_sizes = policy::all_recursion_workgroup_sizes();
    let recursions =
        variants_of(workgroup_sizes.map(|workgroup_size| CtcKernel { workgroup_size }));
    [recursions, variants_of([CtcBackwardKernel])].concat()
}

/// The cases that the family must pass.
pub const CASES: &[Case] = {
    const BLANK: Arg = Arg::Int(0);
    cases! {
        ctc_loss([7, 3, 5], below(5, &[3, 3]), given(&[7, 5, 6], &[3]), given(&[3, 1, 2], &[3]),
            BLANK);
        // Repeated labels, which need a blank between them: a single path for the first target.
        ctc_loss([6, 4, 4], given(&[1, 1, 1, 1, 2, 2, 3, 3, 3, 2, 2, 2], &[4, 3]),
            given(&[5, 6, 6, 4], &[4]), given(&[3, 3, 3, 2], &[4]), BLANK);
        // Empty targets, another blank, a view.
        ctc_loss(permuted(&[3, 9, 6], &[1, 0, 2]), given(&[0, 1, 5, 3, 4, 0], &[3, 2]),
            given(&[9, 1, 4], &[3]), given(&[0, 0, 2], &[3]), 2);
        ctc_loss([5, 2, 3], below(3, &[2, 0]), given(&[5, 2], &[2]), given(&[0, 0], &[2]), BLANK);
        ctc_loss([1, 2, 3], given(&[1, 2], &[2, 1]), given(&[1, 1], &[2]), given(&[1, 0], &[2]),
            BLANK);
        ctc_loss([60, 2, 30], below(30, &[2, 25]), given(&[60, 55], &[2]), given(&[25, 20], &[2]),
            BLANK);
    }
};
