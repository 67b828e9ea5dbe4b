//! What autocast does with the float operands of each op. The rows of the ops say which rule they are under:
//! `-> F under Full`.

/// What an op does with its float operands under autocast.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// Converts them to 16 bits; the result is 16-bit. Sums of products are f32 in any case, and matrix units multiply
    /// 16 bits fastest. If an operand is f32 and they have few elements, all become f32.
    Product,
    /// As [`Product`](Self::Product), but products of f32 are never rounded outside of autocast: attention.
    Lower,
    /// As [`Product`](Self::Product), but the result is f32: gradients of parameters, which optimizers add up in f32.
    Gradient,
    /// Converts them to f32; the result is f32: ops whose results overflow f16 easily, or that add up many elements.
    Full,
    /// As [`Full`](Self::Full): the gradient of the bias of a product, of which only the shape counts.
    BiasGradient,
    /// Converts them to the widest of their types, or leaves them if they have the same: all ops whose rows say
    /// nothing.
    Promote,
}

/// What a float tensor is to an op, as the kind of the argument in its row says.
#[cfg(feature = "autodiff")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// An operand without a rule of its own.
    Operand,
    /// Of a product. Like a bias, it has a gradient in f32 whatever the types of the operands.
    Weight,
    /// Of a product: it is left as it is.
    Bias,
}
