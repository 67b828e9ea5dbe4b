//! Attention and its gradient from matrix products, for adapters on which these are much faster
//! than the kernels of attention. Queries are taken in blocks, so that the memory for scores grows
//! linearly with the number of keys.

use crate::kernels::attention::sizes::Sizes;
use crate::kernels::matmul::matmul;
use crate::kernels::ops::map::ScalarValue;
use crate::kernels::ops::options::AttentionOptions;
use crate::kernels::ops::table::rows;
use crate::kernels::reduce::{self, Reduction};
use crate::kernels::{create, elementwise, views};
use crate::tensor::{DType, Result, Tensor};

/// Queries of a block, at most.
const MAX_BLOCK: usize = 1024;
/// Scores of a block, unless a single query has more.
const BLOCK_SCORES: usize = 1 << 24;

/// What the scores of attention depend on besides the queries.
pub(crate) struct Scores {
    pub sizes: Sizes,
    pub key: Tensor,
    /// Broadcasts to all scores; -inf hides a key.
    pub bias: Option<Tensor>,
    pub options: AttentionOptions,
}

fn scaled(tensor: Tensor, factor: f32) -> Result<Tensor> {
    elementwise::scalar(&rows::float_mul_scalar, tensor, &[ScalarValue::Float(factor)])
}

fn transposed(tensor: &Tensor) -> Result<Tensor> {
    views::swap_dims(tensor.clone(), 2, 3)
}

impl Scores {
    /// Returns the number of queries of a block.
    fn block(&self) -> usize {
        let Sizes { batch, heads, keys, .. } = self.sizes;
        (BLOCK_SCORES / (batch * heads * keys)).clamp(1, MAX_BLOCK)
    }

    /// Returns the block of queries that starts at `first`.
    fn block_of(&self, tensor: &Tensor, first: usize) -> Result<Tensor> {
        let len = self.block().min(tensor.shape()[2] - first);
        views::narrow(tensor.clone(), 2, first, len)
    }

    fn scale(&self) -> f32 {
        self.options.scale.unwrap_or_else(|| 1.0 / (self.sizes.width as f32).sqrt())
    }

    /// Returns the scores of a block of queries, and the hyperbolic tangents of a softcap.
    fn of_block(&self, query: Tensor, first: usize) -> Result<(Tensor, Option<Tensor>)> {
        let Sizes { batch, heads, queries, keys, .. } = self.sizes;
        let len = query.shape()[2];
        let mut scores = scaled(matmul(query, transposed(&self.key)?)?, self.scale())?;
        let mut bounded = None;
        if let Some(softcap) = self.options.softcap {
            let tanh = elementwise::unary(&rows::float_tanh, scaled(scores, 1.0 / softcap)?)?;
            scores = scaled(tanh.clone(), softcap)?;
            bounded = Some(tanh);
        }
        let hidden = ScalarValue::Float(f32::NEG_INFINITY);
        if self.options.causal {
            // Query i attends to the keys j with j + queries <= i + keys.
            let runtime = scores.runtime();
            let last_key = (first + keys) as i64 - queries as i64;
            let last_keys = create::arange(runtime, last_key, 1, len, DType::I32)?;
            let last_keys = views::reshape(last_keys, &[1, 1, len, 1])?;
            let all_keys = create::arange(runtime, 0, 1, keys, DType::I32)?;
            let all_keys = views::reshape(all_keys, &[1, 1, 1, keys])?;
            let mask = elementwise::compare(&rows::int_greater, all_keys, last_keys)?;
            scores = elementwise::mask_fill(scores, mask, hidden)?;
        }
        if let Some(bias) = &self.bias {
            let bias = views::expand(bias.clone(), &[batch, heads, queries, keys])?;
            scores = elementwise::binary(&rows::float_add, scores, self.block_of(&bias, first)?)?;
        }
        Ok((scores, bounded))
    }
}

/// Computes the results of
/// [`attention_with_log_sums`](super::super::attention::attention_with_log_sums), of which the second is `None` unless
/// `has_sums`.
///
/// # Errors
///
/// Returns an error if the memory is not available.
pub(crate) fn attention(
    query: &Tensor,
    value: &Tensor,
    scores: &Scores,
    has_sums: bool,
) -> Result<(Tensor, Option<Tensor>)> {
    let queries = scores.sizes.queries;
    let (mut outs, mut log_sums) = (Vec::new(), Vec::new());
    for first in (0..queries).step_by(scores.block()) {
        let (of_block, _) = scores.of_block(scores.block_of(query, first)?, first)?;
        let maxima = reduce::dim(Reduction::Max, of_block.clone(), 3)?;
        // Finite where all keys are hidden.
        let lowest = [ScalarValue::Float(f32::MIN)];
        let maxima = elementwise::clamp(&rows::float_clamp_min, maxima, &lowest)?;
        let differences = elementwise::binary(&rows::float_sub, of_block, maxima.clone())?;
        let weights = elementwise::unary(&rows::float_exp, differences)?;
        let sums = reduce::dim(Reduction::Sum, weights.clone(), 3)?;
        let no_key = elementwise::compare_scalar(
            &rows::float_equal_elem,
            sums.clone(),
            ScalarValue::Float(0.0),
        )?;
        let divisors =
            elementwise::mask_fill(sums.clone(), no_key.clone(), ScalarValue::Float(1.0))?;
        outs.push(elementwise::binary(
            &rows::float_div,
            matmul(weights, value.clone())?,
            divisors,
        )?);
        if !has_sums {
            continue;
        }
        let logs = elementwise::unary(&rows::float_log, sums)?;
        let rounded = elementwise::binary(&rows::float_add, maxima.clone(), logs.clone())?;
        // In memory: a compiler would know that the rest is zero but for rounding.
        rounded.buffer()?;
        let rest = elementwise::binary(&rows::float_sub, maxima, rounded.clone())?;
        let rest = elementwise::binary(&rows::float_add, rest, logs)?;
        let filled = |tensor, value| {
            elementwise::mask_fill(tensor, no_key.clone(), ScalarValue::Float(value))
        };
        log_sums.push(views::cat(vec![filled(rounded, f32::INFINITY)?, filled(rest, 0.0)?], 3)?);
    }
    let log_sums = if has_sums { Some(joined(log_sums)?) } else { None };
    Ok((joined(outs)?, log_sums))
}

/// Computes the gradients with respect to query, key and value. `log_sums` are `[batch, heads, queries, 2]` and `means`
/// `[batch, heads, queries, 1]`: see `shaders/lib/attention_backward.wgsl`.
///
/// # Errors
///
/// Returns an error if the memory is not available.
pub(crate) fn attention_backward(
    query: &Tensor,
    value: &Tensor,
    scores: &Scores,
    log_sums: &Tensor,
    means: &Tensor,
    grad: &Tensor,
) -> Result<(Tensor, Tensor, Tensor)> {
    let mut query_grads = Vec::new();
    let (mut key_grad, mut value_grad) = (None, None);
    for first in (0..scores.sizes.queries).step_by(scores.block()) {
        let query = scores.block_of(query, first)?;
        let grad = scores.block_of(grad, first)?;
        let (of_block, bounded) = scores.of_block(query.clone(), first)?;
        let log_sums = scores.block_of(log_sums, first)?;
        let [rounded, rest] = [0, 1].map(|at| views::narrow(log_sums.clone(), 3, at, 1));
        let differences = elementwise::binary(&rows::float_sub, of_block, rounded?)?;
        let differences = elementwise::binary(&rows::float_sub, differences, rest?)?;
        let weights = elementwise::unary(&rows::float_exp, differences)?;
        elementwise::accumulate(&mut value_grad, matmul(transposed(&weights)?, grad.clone())?)?;
        let products = matmul(grad, transposed(value)?)?;
        let differences =
            elementwise::binary(&rows::float_sub, products, scores.block_of(means, first)?)?;
        let mut d = elementwise::binary(&rows::float_mul, weights, differences)?;
        if let Some(tanh) = bounded {
            let squares = elementwise::binary(&rows::float_mul, tanh.clone(), tanh)?;
            let one = [ScalarValue::Float(1.0)];
            let slopes =
                elementwise::scalar(&rows::float_add_scalar, scaled(squares, -1.0)?, &one)?;
            d = elementwise::binary(&rows::float_mul, d, slopes)?;
        }
        let d = scaled(d, scores.scale())?;
        query_grads.push(matmul(d.clone(), scores.key.clone())?);
        elementwise::accumulate(&mut key_grad, matmul(transposed(&d)?, query)?)?;
    }
    let zeros = |tensor: &Tensor| {
        create::full(tensor.runtime(), tensor.shape(), ScalarValue::Float(0.0), DType::F32)
    };
    Ok((
        joined(query_grads)?,
        key_grad.map_or_else(|| zeros(&scores.key), Ok)?,
        value_grad.map_or_else(|| zeros(value), Ok)?,
    ))
}

/// Joins blocks of queries.
fn joined(mut blocks: Vec<Tensor>) -> Result<Tensor> {
    match blocks.len() {
        1 => Ok(blocks.remove(0)),
        _ => views::cat(blocks, 2),
    }
}
