//! Attention with fewer heads of keys and values than of queries, and causal attention whose diagonal begins at the
//! first key, which Burn 0.21 does not have.

use burn_backend::ops::{AttentionModuleOptions, CausalAlignment};
use burn_backend_021 as old;
use burn_backend_021::ops::{BoolTensorOps, FloatTensorOps, ModuleOps};
use burn_backend_021::{Shape, Slice, TensorData, TensorMetadata};
use burn_wgsl::{Wgsl, WgslTensor};

use crate::contract::Convert;

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
