//! Attention with what its gradient needs, and its gradient, in f32. Both store the scores.

use burn_backend::TensorMetadata;
use burn_backend::ops::{AttentionModuleOptions, BoolTensorOps, FloatTensorOps, IntTensorOps};
use burn_flex::{Flex, FlexDevice, FlexTensor};
use burn_std::{BoolDType, BoolStore, FloatDType, IntDType, Shape, Slice};

use super::reduce::float_sum_dim;

/// The operands of the scores.
struct Arguments {
    query: FlexTensor,
    key: FlexTensor,
    mask: Option<FlexTensor>,
    bias: Option<FlexTensor>,
    options: AttentionModuleOptions,
}

impl Arguments {
    fn scale(&self) -> f64 {
        let width = self.query.shape()[3];
        self.options.scale.unwrap_or_else(|| 1.0 / (width as f64).sqrt())
    }

    /// Returns the scores `[batch, heads, queries, keys]`, and the hyperbolic tangents of the
    /// softcap if there is one.
    fn scores(&self) -> (FlexTensor, Option<FlexTensor>) {
        let products = Flex::float_matmul(self.query.clone(), transposed(self.key.clone()));
        let mut scores = Flex::float_mul_scalar(products, self.scale().into());
        let mut bounded = None;
        if let Some(softcap) = self.options.softcap {
            let tanh = Flex::float_tanh(Flex::float_div_scalar(scores, softcap.into()));
            scores = Flex::float_mul_scalar(tanh.clone(), softcap.into());
            bounded = Some(tanh);
        }
        let shape = scores.shape();
        let mut hide = |mask: FlexTensor| {
            let mask = Flex::bool_expand(mask, shape.clone());
            scores = Flex::float_mask_fill(scores.clone(), mask, f64::NEG_INFINITY.into());
        };
        if let Some(mask) = &self.mask {
            hide(mask.clone());
        }
        if self.options.is_causal {
            hide(later_keys(shape[2], shape[3]));
        }
        if let Some(bias) = &self.bias {
            scores = Flex::float_add(scores, bias.clone());
        }
        (scores, bounded)
    }
}

fn in_f32(tensor: FlexTensor) -> FlexTensor {
    Flex::float_cast(tensor, FloatDType::F32)
}

/// Computes attention, and the logarithm of the sum of `e^score` of each query with what is rounded away of it.
pub(crate) fn attention_with_log_sums(
    query: FlexTensor,
    key: FlexTensor,
    value: FlexTensor,
    mask: Option<FlexTensor>,
    attn_bias: Option<FlexTensor>,
    options: AttentionModuleOptions,
) -> (FlexTensor, FlexTensor) {
    let [query, key, value] = [query, key, value].map(in_f32);
    let attn_bias = attn_bias.map(in_f32);
    let [batch, heads, queries, _] = query.shape().dims();
    let [_, _, keys, value_width] = value.shape().dims();
    let dtype = query.dtype().into();
    let full = |shape: Shape, value: f64| Flex::float_full(shape, value.into(), &FlexDevice, dtype);
    let sums_shape = Shape::from([batch, heads, queries, 2]);
    if batch * heads * queries * keys * value_width == 0 {
        let out = full(Shape::from([batch, heads, queries, value_width]), 0.0);
        return (out, full(sums_shape, f64::INFINITY));
    }
    let (scores, _) = Arguments { query, key, mask, bias: attn_bias, options }.scores();
    // A row of -inf has a finite maximum.
    let maxima = Flex::float_max_dim(scores.clone(), 3);
    let maxima = Flex::float_clamp_min(maxima, f64::from(f32::MIN).into());
    let exponentials = Flex::float_exp(Flex::float_sub(scores.clone(), maxima.clone()));
    let log = Flex::float_log(float_sum_dim(exponentials, 3));
    let hidden = Flex::float_equal_elem(
        log.clone(),
        f64::NEG_INFINITY.into(),
        BoolDType::from(BoolStore::Native),
    );
    let rounded = Flex::float_add(maxima.clone(), log.clone());
    let rest = Flex::float_add(Flex::float_sub(maxima, rounded.clone()), log);
    let rounded = Flex::float_mask_fill(rounded, hidden.clone(), f64::INFINITY.into());
    let log_sums =
        Flex::float_cat(vec![rounded, Flex::float_mask_fill(rest, hidden, 0.0.into())], 3);
    let weights = weights(scores, log_sums.clone());
    (Flex::float_matmul(weights, value), log_sums)
}

/// Returns `e^(score - log_sum)`.
fn weights(scores: FlexTensor, log_sums: FlexTensor) -> FlexTensor {
    let part = |at: usize| {
        let mut slices = vec![Slice::full(); 3];
        slices.push(Slice::from(at..at + 1));
        Flex::float_slice(log_sums.clone(), &slices)
    };
    Flex::float_exp(Flex::float_sub(Flex::float_sub(scores, part(0)), part(1)))
}

/// Computes the gradients of attention with respect to query, key and value.
#[expect(clippy::too_many_arguments, reason = "the operands of the row")]
pub(crate) fn attention_backward(
    query: FlexTensor,
    key: FlexTensor,
    value: FlexTensor,
    mask: Option<FlexTensor>,
    attn_bias: Option<FlexTensor>,
    output: FlexTensor,
    log_sums: FlexTensor,
    output_grad: FlexTensor,
    options: AttentionModuleOptions,
) -> (FlexTensor, FlexTensor, FlexTensor) {
    let [query, key, value] = [query, key, value].map(in_f32);
    let [output, log_sums, output_grad] = [output, log_sums, output_grad].map(in_f32);
    let attn_bias = attn_bias.map(in_f32);
    let [batch, heads, queries, _] = query.shape().dims();
    let [_, _, keys, value_width] = value.shape().dims();
    if batch * heads * queries * keys * value_width == 0 {
        let zeros = |tensor: &FlexTensor| {
            Flex::float_zeros(tensor.shape(), &FlexDevice, tensor.dtype().into())
        };
        return (zeros(&query), zeros(&key), zeros(&value));
    }
    let operands = Arguments { query, key, mask, bias: attn_bias, options };
    let scale = operands.scale();
    let (scores, bounded) = operands.scores();
    let weights = weights(scores, log_sums);
    let value_grad = Flex::float_matmul(transposed(weights.clone()), output_grad.clone());
    let mean = float_sum_dim(Flex::float_mul(output_grad.clone(), output), 3);
    let products = Flex::float_matmul(output_grad, transposed(value));
    let mut d = Flex::float_mul(weights, Flex::float_sub(products, mean));
    if let Some(tanh) = bounded {
        let slope = Flex::float_mul(tanh.clone(), tanh);
        let slope = Flex::float_add_scalar(Flex::float_neg(slope), 1.0.into());
        d = Flex::float_mul(d, slope);
    }
    let d = Flex::float_mul_scalar(d, scale.into());
    let Arguments { query, key, .. } = operands;
    (Flex::float_matmul(d.clone(), key), Flex::float_matmul(transposed(d), query), value_grad)
}

fn transposed(tensor: FlexTensor) -> FlexTensor {
    Flex::float_swap_dims(tensor, 2, 3)
}

/// Returns a mask `[1, 1, queries, keys]` of the keys after each query, of which the last attends
/// to all keys.
fn later_keys(queries: usize, keys: usize) -> FlexTensor {
    let rows = Flex::int_arange(0..queries as i64, &FlexDevice, IntDType::I64);
    let rows = Flex::int_add_scalar(rows, (keys as i64 - queries as i64).into());
    let cols = Flex::int_arange(0..keys as i64, &FlexDevice, IntDType::I64);
    let rows = Flex::int_reshape(rows, Shape::from([1, 1, queries, 1]));
    let cols = Flex::int_reshape(cols, Shape::from([1, 1, 1, keys]));
    Flex::int_lower(rows, cols, BoolDType::from(BoolStore::Native))
}
