//! The sizes of the operands of attention.

use crate::tensor::{Error, Layout, Result, Tensor};

/// The sizes of the operands of attention.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sizes {
    pub batch: usize,
    pub heads: usize,
    pub queries: usize,
    pub keys: usize,
    pub width: usize,
    pub value_width: usize,
}

impl Sizes {
    /// Returns the sizes, or an error if the shapes do not fit.
    pub fn of(query: &Tensor, key: &Tensor, value: &Tensor) -> Result<Self> {
        let [batch, heads, queries, width] = four_axes(query)?;
        let [_, _, keys, _] = four_axes(key)?;
        let [_, _, _, value_width] = four_axes(value)?;
        if key.shape() != [batch, heads, keys, width] || width == 0 {
            let rule = "queries and keys must have the same batch, heads and width, and a width above zero";
            return Err(mismatch(query, key, rule));
        }
        if value.shape() != [batch, heads, keys, value_width] {
            return Err(mismatch(query, value, "there must be one value per key"));
        }
        query.same_device(key)?;
        query.same_device(value)?;
        Ok(Self { batch, heads, queries, keys, width, value_width })
    }

    /// Returns the layout of a mask or bias for every score.
    pub fn broadcast(&self, query: &Tensor, tensor: &Tensor) -> Result<Layout> {
        query.same_device(tensor)?;
        let layout = tensor.layout().expand(&[self.batch, self.heads, self.queries, self.keys]);
        layout.ok_or_else(|| {
            let rule = "a mask or bias must broadcast to [batch, heads, queries, keys]";
            mismatch(query, tensor, rule)
        })
    }
}

/// Returns the error that an operand does not fit to the query.
pub(crate) fn mismatch(query: &Tensor, operand: &Tensor, rule: &'static str) -> Error {
    Error::Shape { lhs: query.shape().to_vec(), rhs: operand.shape().to_vec(), rule }
}

/// Returns the sizes of a tensor of four axes.
fn four_axes(tensor: &Tensor) -> Result<[usize; 4]> {
    tensor.shape().try_into().map_err(|_| Error::Shape {
        lhs: tensor.shape().to_vec(),
        rhs: vec![],
        rule: "attention needs tensors [batch, heads, length, width]",
    })
}
