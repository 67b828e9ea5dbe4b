//! Attention that a program composes of ops, as Burn's `MultiHeadAttention` does:
//!
//! ```text
//! scores  = query @ key^T                  a pending product, which knows its operands
//! scores  = scores / s, * s                pending elementwise ops
//! scores  = scores.mask_fill(mask, fill)   the same, any number of masks with one fill
//! weights = softmax(scores)                replaceable: nothing is launched yet
//! result  = weights @ value                attention, if all of this was found
//! ```
//!
//! The scores and weights are not computed then, unless the program uses them otherwise.

use std::cell::Cell;
use std::sync::Arc;

use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::kernels::launch::parts;
use crate::kernels::ops::map::ScalarValue;
use crate::kernels::ops::options::AttentionOptions;
use crate::kernels::ops::table::rows;
use crate::kernels::{attention, elementwise, matmul, policy, softmax, views};
use crate::tensor::{Arg, DType, Expression, Layout, Lazy, Replaceable, Result, Tensor};

thread_local! {
    static IS_ON: Cell<bool> = const { Cell::new(true) };
}

/// Calls a function in which no attention is found: for a backward pass that needs the weights.
#[cfg(feature = "autodiff")]
pub(crate) fn without<R>(work: impl FnOnce() -> R) -> R {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            IS_ON.set(self.0);
        }
    }
    let _restore = Restore(IS_ON.replace(false));
    work()
}

/// The weights of attention, which are the softmax of scores.
struct Weights {
    /// `[batch, heads, queries, keys]`, until attention has replaced them.
    scores: Mutex<Option<Tensor>>,
    pattern: AttentionPattern,
}

/// What scores are computed from.
#[derive(Clone)]
pub(crate) struct AttentionPattern {
    /// `[batch, heads, queries, width]`.
    pub query: Tensor,
    /// `[batch, heads, keys, width]`.
    pub key: Tensor,
    /// Booleans that broadcast to `[batch, heads, queries, keys]`.
    pub mask: Option<Tensor>,
    pub options: AttentionOptions,
}

impl Replaceable for Weights {
    fn compute(&self) -> Result<Tensor> {
        let scores = self.scores.lock().clone();
        let scores = scores.map_or_else(|| self.pattern.scores(), Ok)?;
        softmax::softmax(scores, 3).and_then(views::packed)
    }

    fn set_replaced(&self) {
        let scores = self.scores.lock().take();
        let mut next = scores.as_ref().and_then(|scores| scores.pending().cloned());
        while let Some(lazy) = next {
            lazy.set_replaced();
            next = first_pending(&lazy);
        }
    }
}

impl AttentionPattern {
    /// Computes the scores.
    fn scores(&self) -> Result<Tensor> {
        let Self { query, key, mask, options } = self;
        let scores = matmul::matmul(query.clone(), views::swap_dims(key.clone(), 2, 3)?)?;
        let scale = ScalarValue::Float(options.scale.unwrap_or(1.0));
        let scores = elementwise::scalar(&rows::float_mul_scalar, scores, &[scale])?;
        let Some(mask) = mask else { return Ok(scores) };
        let fill = ScalarValue::Float(options.hidden_score());
        elementwise::mask_fill(scores, mask.clone(), fill)
    }

    /// Returns the shape of the scores.
    fn shape(&self) -> [usize; 4] {
        let (query, key) = (self.query.shape(), self.key.shape());
        [query[0], query[1], query[2], key[2]]
    }

    /// Returns whether attention takes these values, whose result and gradients must fit a binding.
    pub fn takes(&self, value: &Tensor) -> bool {
        let [batch, heads, queries, keys] = self.shape();
        if value.shape().len() != 4 || value.shape()[..3] != [batch, heads, keys] {
            return false;
        }
        let result = [batch, heads, queries, value.shape()[3]];
        let exceeds = |shape: &[usize]| parts::exceed_binding(value.runtime(), shape, DType::F32);
        ![self.query.shape(), self.key.shape(), value.shape(), &result].into_iter().any(exceeds)
    }
}

/// Computes a product, or the attention that it is the last op of.
///
/// # Errors
///
/// Returns an error if the shapes do not fit or the memory is not available; so do the functions below.
pub fn product(lhs: Tensor, rhs: Tensor) -> Result<Tensor> {
    if let Some(pattern) = of_weights(&lhs).filter(|pattern| pattern.takes(&rhs)) {
        let AttentionPattern { query, key, mask, options } = pattern;
        let result = attention::attention(query, key, stored(&rhs), mask, None, options)?;
        set_replaced(&lhs);
        return Ok(result);
    }
    let (lhs, rhs) = (lhs.by_itself()?, rhs.by_itself()?);
    let is_of_heads = lhs.shape().len() == 4 && IS_ON.get();
    let operands = is_of_heads.then(|| [stored(&lhs), stored(&rhs)]);
    let operands = operands.filter(|[query, transposed]| may_be_scores(query, transposed));
    let result = matmul::matmul(lhs, rhs)?;
    if let (Some(operands), Some(lazy)) = (operands, result.pending())
        && lazy.expression().len == result.len()
    {
        lazy.set_product(operands);
    }
    Ok(result)
}

/// Computes the softmax of a tensor along an axis, or leaves it to the attention that it may be a part of.
pub fn softmax_or_weights(tensor: Tensor, dim: usize) -> Result<Tensor> {
    let pattern = (dim == 3).then(|| of_scores(&tensor)).flatten();
    let Some(pattern) = pattern else { return softmax::softmax(tensor, dim) };
    let expression = Expression::named("weights", DType::F32, tensor.len());
    let (runtime, shape) = (tensor.runtime().clone(), tensor.shape().to_vec());
    let weights = Arc::new(Weights { scores: Mutex::new(Some(tensor)), pattern });
    Tensor::of_replaceable(&runtime, &shape, expression, weights)
}

/// Returns the 16-bit tensor that a tensor is converted from, or the tensor itself.
fn stored(tensor: &Tensor) -> Tensor {
    let is_half = |stored: &Tensor| stored.dtype().is_half() && tensor.dtype() == DType::F32;
    tensor.converted_from().filter(is_half).unwrap_or_else(|| tensor.clone())
}

/// Returns whether a product may be the scores of attention, on a device with kernels for attention and its gradients.
fn may_be_scores(query: &Tensor, transposed: &Tensor) -> bool {
    let ([q_batch, q_heads, _, width], [batch, heads, _, _]) = (query.shape(), transposed.shape())
    else {
        return false;
    };
    let is_transposed = transposed.layout().strides[2] == 1 && *width > 1;
    query.dtype().is_float()
        && (q_batch, q_heads) == (batch, heads)
        && is_transposed
        && !policy::of(query.runtime()).composes_attention_gradients()
        // The program may write them before the scores are needed.
        && !query.is_foreign()
        && !transposed.is_foreign()
}

/// Returns the attention whose weights a tensor is, if nothing has computed them.
pub(crate) fn of_weights(tensor: &Tensor) -> Option<AttentionPattern> {
    let lazy = unconverted(tensor).filter(|_| IS_ON.get())?;
    let pattern = lazy.replaceable::<Weights>().map(|weights| weights.pattern.clone());
    // Some other views are packed, too.
    pattern.filter(|pattern| tensor.shape() == pattern.shape())
}

/// Notes that attention has replaced weights, and the scores that they are computed from.
pub(crate) fn set_replaced(weights: &Tensor) {
    if let Some(lazy) = unconverted(weights) {
        lazy.set_replaced();
    }
}

/// Returns the pending result that is the first argument of another, in the same order.
fn first_pending(lazy: &Lazy) -> Option<Arc<Lazy>> {
    let args = lazy.args();
    let arg = args.first().filter(|arg| arg.layout.is_none() && arg.padding.is_none())?;
    arg.storage.pending().cloned()
}

/// Returns the pending result that a tensor is, or that it converts to another float type.
fn unconverted(tensor: &Tensor) -> Option<Arc<Lazy>> {
    let mut lazy = tensor.pending().filter(|_| tensor.is_packed())?.clone();
    while lazy.expression().is_conversion() {
        lazy = first_pending(&lazy)?;
    }
    Some(lazy)
}

/// Returns what scores are computed from, if they are those of attention.
pub(crate) fn of_scores(tensor: &Tensor) -> Option<AttentionPattern> {
    let is_whole = tensor.shape().len() == 4 && tensor.is_packed() && IS_ON.get();
    let mut lazy = tensor.pending().filter(|_| is_whole)?.clone();
    let (mut scale, mut masks, mut fill) = (1.0, SmallVec::<[Tensor; 2]>::new(), None);
    while !lazy.is_launch() {
        let expression = lazy.expression();
        let scalar = expression.scalars.first().map(|&bits| f32::from_bits(bits as u32));
        match (expression.wgsl, scalar) {
            _ if expression.is_conversion() => {}
            // Masked scores must not be scaled, and these ops are found last first.
            (wgsl, Some(factor)) if wgsl == rows::float_mul_scalar.wgsl => scale *= factor,
            (wgsl, Some(divisor)) if wgsl == rows::float_div_scalar.wgsl => scale /= divisor,
            (elementwise::MASK_FILL, Some(value)) if scale == 1.0 => {
                // A row of nothing but -inf is NaN for a softmax, and zero for attention.
                let fits = value.is_finite() && fill.is_none_or(|fill| fill == value);
                fits.then(|| fill = Some(value))?;
                masks.push(mask_of(&lazy, tensor)?);
            }
            _ => return None,
        }
        lazy = first_pending(&lazy)?;
    }
    // The program may write what a launch reads before the scores are needed.
    let launch = lazy.launch().filter(|_| scale.is_finite())?;
    (!launch.inputs().iter().any(|input| input.is_foreign())).then_some(())?;
    let product = lazy.product()?;
    let [query, transposed] = &*product;
    let key = views::swap_dims(transposed.clone(), 2, 3).ok()?;
    let mask = masks.into_iter().map(Ok).reduce(either).transpose().ok()?;
    let options = AttentionOptions { scale: Some(scale), hidden_score: fill, ..Default::default() };
    let pattern = AttentionPattern { query: query.clone(), key, mask, options };
    (tensor.shape() == pattern.shape()).then_some(pattern)
}

/// Returns the mask of a pending `mask_fill` of scores.
fn mask_of(filled: &Lazy, scores: &Tensor) -> Option<Tensor> {
    let args = filled.args();
    let [_, Arg { storage, dtype, layout, padding: None }] = &args[..] else { return None };
    let layout = match layout {
        Some(layout) => layout.clone(),
        None => Layout::contiguous(scores.shape()),
    };
    // The op may have had another shape.
    (layout.shape[..] == *scores.shape()).then_some(())?;
    // One row for all heads, for example.
    let layout = layout.edited(|shape, strides| {
        let repeated = shape.iter_mut().zip(strides).filter(|(_, stride)| **stride == 0);
        repeated.for_each(|(size, _)| *size = 1);
    });
    let mask = Tensor::of_storage(scores.runtime(), storage.clone(), layout, *dtype);
    (!mask.is_foreign()).then_some(mask)
}

/// Returns the mask that hides what one of two masks hides.
fn either(lhs: Result<Tensor>, rhs: Result<Tensor>) -> Result<Tensor> {
    elementwise::binary(&rows::bool_or, lhs?, rhs?)
}
