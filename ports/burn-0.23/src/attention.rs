//! Attention with fewer heads of keys and values than of queries, and causal attention whose diagonal begins at the
//! first key, which Burn 0.21 does not have, and the gradients that Burn 0.23 asks for.

use burn_backend::ops::{
    AttentionBackward, AttentionModuleOptions, CausalAlignment, attention as composed,
};
use burn_backend_021 as old;
use burn_backend_021::ops::{BoolTensorOps, FloatTensorOps, ModuleOps};
use burn_backend_021::{DType, FloatDType, Shape, Slice, TensorData, TensorMetadata};
use burn_wgsl::{Precision, Wgsl, WgslTensor, current_precision};

use crate::backend::Port;
use crate::contract::Convert;
use crate::tensor::Tensor;

impl Convert for AttentionModuleOptions {
    type Other = old::ops::AttentionModuleOptions;

    /// The alignment is not converted: [`attention`] hides what it hides.
    fn converted(self) -> Self::Other {
        let Self { scale, softcap, is_causal, causal_alignment: _ } = self;
        old::ops::AttentionModuleOptions { scale, softcap, is_causal }
    }
}

impl Convert for old::ops::AttentionModuleOptions {
    type Other = AttentionModuleOptions;

    fn converted(self) -> Self::Other {
        let Self { scale, softcap, is_causal } = self;
        let causal_alignment = CausalAlignment::BottomRight;
        AttentionModuleOptions { scale, softcap, is_causal, causal_alignment }
    }
}

/// Computes attention of queries `[batch, heads, rows, width]` to keys and values `[batch, heads / n, columns, ..]`.
pub(crate) fn attention(
    [query, key, value]: [WgslTensor; 3],
    mask: Option<WgslTensor>,
    bias: Option<WgslTensor>,
    options: AttentionModuleOptions,
) -> WgslTensor {
    let heads = query.shape()[1];
    let (key, value) = (repeated(key, heads), repeated(value, heads));
    let (rows, columns) = (query.shape()[2], key.shape()[2]);
    let begins_at_first = options.causal_alignment == CausalAlignment::TopLeft;
    if !options.is_causal || !begins_at_first || rows == columns {
        return Wgsl::attention(query, key, value, mask, bias, options.converted());
    }
    if rows < columns {
        // No query sees the last keys.
        let mask = mask.map(|mask| match mask.shape()[3] {
            // One for all keys.
            1 => mask,
            _ => Wgsl::bool_slice(mask, &first_of(3, rows)),
        });
        let bias = bias.map(|bias| match bias.shape()[3] {
            1 => bias,
            _ => Wgsl::float_slice(bias, &first_of(3, rows)),
        });
        let [key, value] = [key, value].map(|of| Wgsl::float_slice(of, &first_of(2, rows)));
        return Wgsl::attention(query, key, value, mask, bias, options.converted());
    }
    // With more queries than keys, Burn 0.21 hides every key from the first of them.
    let hidden: Vec<bool> =
        (0..rows).flat_map(|row| (0..columns).map(move |key| key > row)).collect();
    let hidden = TensorData::new(hidden, [1, 1, rows, columns]);
    let hidden = Wgsl::bool_from_data(hidden, &Wgsl::float_device(&query));
    let shape = Shape::new([query.shape()[0], heads, rows, columns]);
    let hidden = Wgsl::bool_expand(hidden, shape.clone());
    let mask = match mask {
        Some(mask) => Wgsl::bool_or(Wgsl::bool_expand(mask, shape), hidden),
        None => hidden,
    };
    let options = AttentionModuleOptions { is_causal: false, ..options };
    Wgsl::attention(query, key, value, Some(mask), bias, options.converted())
}

/// Returns whether kernels compute the gradients of attention: not of f64, and not if the diagonal begins at the first
/// key, and there are more or fewer keys than queries.
fn has_kernels(query: &WgslTensor, key: &WgslTensor, options: &AttentionModuleOptions) -> bool {
    let hides_as_kernels = !options.is_causal
        || options.causal_alignment == CausalAlignment::BottomRight
        || query.shape()[2] == key.shape()[2];
    query.dtype() != DType::F64 && hides_as_kernels
}

/// Returns operands of attention in the type of autocast, which the kernels with gradients leave to the caller.
fn autocast(operands: [WgslTensor; 3]) -> [WgslTensor; 3] {
    let lower = match current_precision(&Wgsl::float_device(&operands[0])) {
        Precision::F32 => return operands,
        Precision::F16 => FloatDType::F16,
        Precision::Bf16 => FloatDType::BF16,
    };
    operands.map(|operand| Wgsl::float_cast(operand, lower))
}

/// Computes attention without a mask or a bias, and the logarithms of the sums of `e^score`
/// `[batch, heads, queries]`.
pub(crate) fn attention_with_log_sums(
    [query, key, value]: [WgslTensor; 3],
    options: AttentionModuleOptions,
) -> [WgslTensor; 2] {
    if !has_kernels(&query, &key, &options) {
        let [query, key, value] = [query, key, value].map(Tensor);
        let (out, log_sums) =
            composed::attention_with_logsumexp_default::<Port>(query, key, value, options);
        return [out.0, log_sums.0];
    }
    let [query, key, value] = autocast([query, key, value]);
    let (dtype, heads) = (query.dtype(), query.shape()[1]);
    let (key, value) = (repeated(key, heads), repeated(value, heads));
    let options = options.converted();
    let (out, log_sums) = Wgsl::attention_with_log_sums(query, key, value, None, None, options);
    // The second column is what is rounded away of the first.
    let log_sums = Wgsl::float_slice(log_sums, &first_of(3, 1));
    let shape = Shape::new([0, 1, 2].map(|axis| log_sums.shape()[axis]));
    [Wgsl::float_cast(out, dtype.into()), Wgsl::float_reshape(log_sums, shape)]
}

/// Computes the gradients of queries, keys and values from the results of [`attention_with_log_sums`].
pub(crate) fn attention_backward(
    [query, key, value]: [WgslTensor; 3],
    [out, log_sums]: [WgslTensor; 2],
    grad: WgslTensor,
    options: AttentionModuleOptions,
) -> AttentionBackward<Port> {
    if !has_kernels(&query, &key, &options) {
        let [query, key, value, out, log_sums, grad] =
            [query, key, value, out, log_sums, grad].map(Tensor);
        return composed::attention_backward_default(
            query, key, value, out, log_sums, grad, options,
        );
    }
    let types = [query.dtype(), key.dtype(), value.dtype()];
    let (heads, own) = (query.shape()[1], key.shape()[1]);
    let [query, key, value] = autocast([query, key, value]);
    let (key, value) = (repeated(key, heads), repeated(value, heads));
    let mut shape = log_sums.shape();
    shape.push(1);
    let log_sums = Wgsl::float_reshape(log_sums, shape);
    let device = Wgsl::float_device(&log_sums);
    let nothing = Wgsl::float_zeros(log_sums.shape(), &device, FloatDType::F32);
    let log_sums = Wgsl::float_cat(vec![log_sums, nothing], 3);
    let (query_grad, key_grad, value_grad) = Wgsl::attention_backward(
        query,
        key,
        value,
        None,
        None,
        out,
        log_sums,
        grad,
        options.converted(),
    );
    let gradients = [query_grad, summed(key_grad, own), summed(value_grad, own)];
    let [query_grad, key_grad, value_grad] = [0, 1, 2]
        .map(|index| Tensor(Wgsl::float_cast(gradients[index].clone(), types[index].into())));
    AttentionBackward { query_grad, key_grad, value_grad }
}

/// Sums the gradients of repeated heads `[batch, heads, rows, width]`, so that there are `own`.
fn summed(gradient: WgslTensor, own: usize) -> WgslTensor {
    let [batch, heads, rows, width] = [0, 1, 2, 3].map(|axis| gradient.shape()[axis]);
    if own == heads || own == 0 {
        return gradient;
    }
    let groups = Shape::new([batch, own, heads / own, rows, width]);
    let sums = Wgsl::float_sum_dim(Wgsl::float_reshape(gradient, groups), 2);
    Wgsl::float_reshape(sums, Shape::new([batch, own, rows, width]))
}

/// Returns the first `len` indices of an axis, and all of the axes before it.
fn first_of(axis: usize, len: usize) -> Vec<Slice> {
    let before = std::iter::repeat_n(Slice::full(), axis);
    before.chain([Slice::new(0, Some(len as isize), 1)]).collect()
}

/// Repeats each head of `[batch, heads, rows, width]`, so that there are `heads`.
fn repeated(tensor: WgslTensor, heads: usize) -> WgslTensor {
    let [batch, own, rows, width] = [0, 1, 2, 3].map(|axis| tensor.shape()[axis]);
    if own == heads || own == 0 {
        return tensor;
    }
    assert!(
        heads.is_multiple_of(own),
        "attention: {heads} heads of queries are not a multiple of {own} heads of keys and values"
    );
    let groups = Wgsl::float_reshape(tensor, Shape::new([batch, own, 1, rows, width]));
    let groups = Wgsl::float_expand(groups, Shape::new([batch, own, heads / own, rows, width]));
    Wgsl::float_reshape(groups, Shape::new([batch, heads, rows, width]))
}
