//! Batch normalisation, which Burn composes of a dozen ops. They are found as the program calls them, and the last one
//! gets the gradient of all:
//!
//! ```text
//! means     = mean of x                        over all axes but the second
//! deviation = sqrt(mean of (x - means)^2 + s)
//! h         = (x - means) / deviation
//! y         = h * gamma + beta
//!
//! beta's gradient  = sum of g
//! gamma's gradient = sum of g * h
//! x's gradient     = gamma / deviation * (g - mean of g - h * mean of (g * h))
//! ```
//!
//! (S. Ioffe and C. Szegedy, Batch Normalization, 2015). Each intermediate node has the gradient of its own op: a
//! program may use the results otherwise, or may compute something else in the end. The nodes keep `x`, the means and
//! the deviations, and compute the results between them again. So no result but `y` needs memory. The graph frees the
//! intermediate nodes, and with them `x`, at the end of the backward pass.

#![allow(
    clippy::extra_unused_type_parameters,
    reason = "the methods of the contract call all functions alike"
)]

use std::any::TypeId;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;

use burn_autodiff::checkpoint::strategy::{CheckpointStrategy, NoCheckpointing};
use burn_backend::TensorMetadata;
use burn_backend::ops::FloatTensorOps;
use burn_std::Shape;
use smallvec::SmallVec;

use super::kinds::{Axis, F, Scalar};
use super::node::node;
use super::notes::{Identity, Input};
use crate::backend::{Wgsl, WgslTensor};

/// The maximum number of notes. One normalisation has 15.
const MAX_PARTS: usize = 16;

thread_local! {
    /// Notes of what tensors are, the latest first.
    static PARTS: RefCell<VecDeque<(Identity, Part)>> = const { RefCell::new(VecDeque::new()) };
}

/// What a tensor is in the normalisation of `x`.
#[derive(Debug, Clone)]
struct Part {
    stage: Stage,
    x: Input,
    means: Option<WgslTensor>,
    deviation: Option<WgslTensor>,
    gamma: Option<Input>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Something with its first two axes swapped.
    Swapped(Of),
    /// The same in a row for each channel.
    Rows(Of),
    /// The mean of each row, `[channels, 1]`.
    MeanOfRows(Of),
    /// The same in the shape of `x`, with one element for each channel.
    Mean(Of),
    /// `x - means`.
    Centred,
    /// `(x - means)^2`.
    Squares,
    /// The variance, and a scalar.
    WithEpsilon,
    Deviation,
    Normalised,
    /// `h * gamma`.
    Scaled,
}

/// What is averaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Of {
    X,
    Squares,
}

/// Returns what is known of a tensor.
fn part_of(tensor: &F) -> Option<Part> {
    let identity = Identity::of(tensor);
    let (found, interrupted) = PARTS.with_borrow_mut(|parts| {
        // Other programs swap axes, too. In this one, the ops on swapped axes follow each other.
        let is_interrupted = parts.front().is_some_and(|(latest, part)| {
            *latest != identity && matches!(part.stage, Stage::Swapped(Of::X) | Stage::Rows(Of::X))
        });
        let interrupted = is_interrupted.then(|| std::mem::take(parts));
        let found = parts.iter().find(|(noted, _)| *noted == identity);
        (found.map(|(_, part)| part.clone()), interrupted)
    });
    // Not while the list is borrowed.
    drop(interrupted);
    found
}

impl Part {
    /// Notes that a tensor is the next stage.
    fn becomes(self, stage: Stage, tensor: F) -> F {
        let part = (Identity::of(&tensor), Self { stage, ..self });
        let oldest = PARTS.with_borrow_mut(|parts| {
            parts.push_front(part);
            if parts.len() > MAX_PARTS { parts.pop_back() } else { None }
        });
        // Not while the list is borrowed.
        drop(oldest);
        tensor
    }

    /// Returns the shape of what has an element for each channel.
    fn shape_of_means(&self) -> Shape {
        let mut shape = vec![1; self.x.primitive().rank()];
        shape[1] = self.x.primitive().shape()[1];
        Shape::from(shape)
    }

    fn centred(&self) -> Option<Centred> {
        Some(Centred { x: self.x.primitive().clone(), means: self.means.clone()? })
    }

    fn normalised(&self) -> Option<Normalised> {
        Some(Normalised { centred: self.centred()?, deviation: self.deviation.clone()? })
    }
}

/// Forgets all parts, which keep tensors.
pub(super) fn clear() {
    drop(PARTS.take());
}

/// Forgets the parts of other normalisations than that of `x`, so that only one input is kept.
fn forget_others(x: &F) {
    let is_other = |(_, part): &(Identity, Part)| part.x.identity() != Identity::of(x);
    if PARTS.with_borrow(|parts| parts.iter().any(is_other)) {
        clear();
    }
}

/// `x - means`, which is computed again where it is needed.
#[derive(Debug, Clone)]
struct Centred {
    x: WgslTensor,
    means: WgslTensor,
}

impl Centred {
    fn value(&self) -> WgslTensor {
        // Under autocast, x is of 16 bits.
        let x = Wgsl::float_cast(self.x.clone(), self.means.dtype().into());
        Wgsl::float_sub(x, self.means.clone())
    }
}

/// `(x - means) / deviation`, which is computed again where it is needed.
#[derive(Debug, Clone)]
struct Normalised {
    centred: Centred,
    deviation: WgslTensor,
}

impl Normalised {
    fn value(&self) -> WgslTensor {
        Wgsl::float_div(self.centred.value(), self.deviation.clone())
    }

    /// Returns the elements that each mean is of.
    fn count(&self) -> f64 {
        let shape = self.centred.x.shape();
        shape.num_elements() as f64 / shape[1] as f64
    }

    /// Returns the sum of each channel.
    fn sum(&self, grad: WgslTensor) -> WgslTensor {
        Wgsl::float_mul_scalar(means_of(grad), self.count().into())
    }
}

/// Returns the mean of each channel, over all other axes.
fn means_of(tensor: WgslTensor) -> WgslTensor {
    let axes: SmallVec<[usize; 6]> = (0..tensor.rank()).filter(|axis| *axis != 1).collect();
    Wgsl::mean_axes(tensor, &axes)
}

/// Computes an op of one tensor as Burn does.
type Unary = fn(F) -> F;
/// Computes an op of two tensors as Burn does.
type Binary = fn(F, F) -> F;

/// Returns whether a tensor may be the input of a normalisation that gets one gradient.
fn may_be_input<C: CheckpointStrategy>(x: &F) -> bool {
    // Strategies that compute results again decide by themselves what is kept.
    TypeId::of::<C>() == TypeId::of::<NoCheckpointing>()
        // On the CPU, the ops by themselves take a seventh less time.
        && x.primitive.is_on_gpu()
        // The program may write it before the backward pass reads it again.
        && !x.primitive.is_foreign()
}

pub(super) fn float_swap_dims<C: CheckpointStrategy>(
    x: F,
    dim1: Axis,
    dim2: Axis,
    op: fn(F, Axis, Axis) -> F,
) -> F {
    if dim1.min(dim2) != 0 || dim1.max(dim2) != 1 || !may_be_input::<C>(&x) {
        return op(x, dim1, dim2);
    }
    let part = match part_of(&x) {
        Some(part) if part.stage == Stage::Squares => {
            Part { stage: Stage::Swapped(Of::Squares), ..part }
        }
        _ => {
            forget_others(&x);
            Part {
                stage: Stage::Swapped(Of::X),
                x: Input::new(&x),
                means: None,
                deviation: None,
                gamma: None,
            }
        }
    };
    let stage = part.stage;
    part.becomes(stage, op(x, dim1, dim2))
}

pub(super) fn float_reshape<C>(tensor: F, shape: Shape, op: fn(F, Shape) -> F) -> F {
    let Some(part) = part_of(&tensor) else { return op(tensor, shape) };
    let stage = match part.stage {
        Stage::Swapped(of) => {
            let channels = tensor.primitive.shape()[0];
            let rows = Shape::from([channels, shape.num_elements() / channels.max(1)]);
            (shape == rows).then_some(Stage::Rows(of))
        }
        Stage::MeanOfRows(of) => (shape == part.shape_of_means()).then_some(Stage::Mean(of)),
        _ => None,
    };
    let tensor = match stage {
        Some(Stage::Rows(of)) => as_expression(&part, of, tensor),
        _ => tensor,
    };
    let result = op(tensor, shape);
    match stage {
        Some(Stage::Mean(Of::X)) => {
            let means = Some(result.primitive.clone());
            Part { means, ..part }.becomes(Stage::Mean(Of::X), result)
        }
        Some(stage) => part.becomes(stage, result),
        None => result,
    }
}

/// Returns a tensor with swapped axes as the pending result of an elementwise op, which is not computed if its means
/// are all that is needed.
fn as_expression(part: &Part, of: Of, tensor: F) -> F {
    let primitive = match (of, part.centred()) {
        (Of::Squares, Some(Centred { x, means })) => {
            let [x, means] = [x, means].map(|tensor| Wgsl::float_swap_dims(tensor, 0, 1));
            square(&Centred { x, means })
        }
        _ => Wgsl::float_mul_scalar(tensor.primitive, 1.0.into()),
    };
    F { primitive, ..tensor }
}

/// Takes means from `x` itself, not from a copy with swapped axes.
pub(super) fn float_mean_dim<C: CheckpointStrategy>(
    tensor: F,
    dim: Axis,
    op: fn(F, Axis) -> F,
) -> F {
    let Some(part) = part_of(&tensor).filter(|_| dim == 1) else { return op(tensor, dim) };
    let (values, of) = match part.stage {
        Stage::Rows(Of::X) => (Some(part.x.primitive().clone()), Of::X),
        Stage::Rows(Of::Squares) => (part.centred().map(|centred| square(&centred)), Of::Squares),
        _ => (None, Of::X),
    };
    let Some(values) = values else { return op(tensor, dim) };
    let [channels, count] = tensor.primitive.shape().dims();
    let means = Wgsl::float_reshape(means_of(values), Shape::from([channels, 1]));
    let state = (count, tensor.dtype());
    let result = node::<C, _, 1, 0>([tensor], means, state, |[], (count, dtype), grad| {
        let channels = grad.shape()[0];
        let grad = Wgsl::float_mul_scalar(grad, (1.0 / count as f64).into());
        let grad = Wgsl::float_expand(grad, Shape::from([channels, count]));
        [Wgsl::float_cast(grad, dtype.into())]
    });
    part.becomes(Stage::MeanOfRows(of), result)
}

fn square(centred: &Centred) -> WgslTensor {
    let value = centred.value();
    Wgsl::float_mul(value.clone(), value)
}

pub(super) fn float_sub<C>(lhs: F, rhs: F, op: Binary) -> F {
    let is_centred =
        |part: &Part| part.stage == Stage::Mean(Of::X) && part.x.identity() == Identity::of(&lhs);
    match part_of(&rhs).filter(is_centred) {
        Some(part) => part.becomes(Stage::Centred, op(lhs, rhs)),
        None => op(lhs, rhs),
    }
}

/// Returns whether a tensor is `x - means`, whose square is a product.
pub(super) fn is_centred(tensor: &F) -> bool {
    part_of(tensor).is_some_and(|part| part.stage == Stage::Centred)
}

pub(super) fn float_mul<C: CheckpointStrategy>(lhs: F, rhs: F, op: Binary) -> F {
    let Some(part) = part_of(&lhs) else { return op(lhs, rhs) };
    if part.stage == Stage::Centred
        && Arc::ptr_eq(&lhs.node, &rhs.node)
        && let Some(centred) = part.centred()
    {
        let squares = Wgsl::float_mul(lhs.primitive.clone(), rhs.primitive);
        let result = node::<C, _, 1, 0>([lhs], squares, centred, |[], centred, grad| {
            let slope = Wgsl::float_mul_scalar(centred.value(), 2.0.into());
            [Wgsl::float_mul(grad, slope)]
        });
        return part.becomes(Stage::Squares, result);
    }
    if part.stage == Stage::Normalised
        && has_parameter(&part, &rhs)
        && let Some(normalised) = part.normalised()
    {
        let scaled = Wgsl::float_mul(lhs.primitive.clone(), rhs.primitive.clone());
        let part = Part { gamma: Some(Input::new(&rhs)), ..part };
        // The first input of a node is the one that it may keep.
        let result =
            node::<C, _, 2, 1>([rhs, lhs], scaled, normalised, |[gamma], normalised, grad| {
                let of_gamma = Wgsl::float_mul(grad.clone(), normalised.value());
                [normalised.sum(of_gamma), Wgsl::float_mul(grad, gamma)]
            });
        return part.becomes(Stage::Scaled, result);
    }
    op(lhs, rhs)
}

/// Returns whether a tensor has an element for each channel, in the type of the means.
fn has_parameter(part: &Part, parameter: &F) -> bool {
    let dtype = part.means.as_ref().map(|means| means.dtype());
    parameter.primitive.shape() == part.shape_of_means() && Some(parameter.dtype()) == dtype
}

pub(super) fn float_add_scalar<C>(lhs: F, rhs: Scalar, op: fn(F, Scalar) -> F) -> F {
    match part_of(&lhs).filter(|part| part.stage == Stage::Mean(Of::Squares)) {
        Some(part) => part.becomes(Stage::WithEpsilon, op(lhs, rhs)),
        None => op(lhs, rhs),
    }
}

pub(super) fn float_sqrt<C>(tensor: F, op: Unary) -> F {
    let Some(part) = part_of(&tensor).filter(|part| part.stage == Stage::WithEpsilon) else {
        return op(tensor);
    };
    let result = op(tensor);
    let deviation = Some(result.primitive.clone());
    Part { deviation, ..part }.becomes(Stage::Deviation, result)
}

pub(super) fn float_div<C: CheckpointStrategy>(lhs: F, rhs: F, op: Binary) -> F {
    let centred = part_of(&lhs).filter(|part| part.stage == Stage::Centred);
    let deviation = part_of(&rhs).filter(|part| part.stage == Stage::Deviation);
    let (Some(centred), Some(part)) = (centred, deviation) else { return op(lhs, rhs) };
    let Some(normalised) = part.normalised().filter(|_| part.x.identity() == centred.x.identity())
    else {
        return op(lhs, rhs);
    };
    let quotient = Wgsl::float_div(lhs.primitive.clone(), rhs.primitive.clone());
    let result = node::<C, _, 2, 0>([lhs, rhs], quotient, normalised, |[], normalised, grad| {
        let of_centred = Wgsl::float_div(grad, normalised.deviation.clone());
        let of_deviation = Wgsl::float_mul(of_centred.clone(), normalised.value());
        [of_centred, Wgsl::float_neg(normalised.sum(of_deviation))]
    });
    part.becomes(Stage::Normalised, result)
}

pub(super) fn float_add<C: CheckpointStrategy>(lhs: F, rhs: F, op: Binary) -> F {
    let is_last = |part: &Part| part.stage == Stage::Scaled && has_parameter(part, &rhs);
    let Some(part) = part_of(&lhs).filter(is_last) else { return op(lhs, rhs) };
    let parts = (part.normalised(), part.gamma.and_then(Input::tensor), part.x.tensor());
    let (Some(normalised), Some(gamma), Some(x)) = parts else { return op(lhs, rhs) };
    clear();
    let y = Wgsl::float_add(lhs.primitive, rhs.primitive.clone());
    node::<C, _, 3, 1>([gamma, x, rhs], y, normalised, |[gamma], normalised, grad| {
        let of_beta = means_of(grad.clone());
        let of_gamma = means_of(Wgsl::float_mul(grad.clone(), normalised.value()));
        let sum =
            |mean: &WgslTensor| Wgsl::float_mul_scalar(mean.clone(), normalised.count().into());
        let sums = [&of_gamma, &of_beta].map(sum);
        let along = Wgsl::float_mul(normalised.value(), of_gamma);
        let of_x = Wgsl::float_sub(Wgsl::float_sub(grad, of_beta), along);
        let of_x = Wgsl::float_mul(of_x, gamma);
        let of_x = Wgsl::float_div(of_x, normalised.deviation.clone());
        let [of_gamma, of_beta] = sums;
        [of_gamma, Wgsl::float_cast(of_x, normalised.centred.x.dtype().into()), of_beta]
    })
}
