//! What autocast does with the float operands of each op.

/// What an op does with its float operands under autocast.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// Converts them to 16 bits; the result is 16-bit.
    Lower,
    /// Converts them to 16 bits; the result is f32.
    Gradient,
    /// Converts them to f32; the result is f32.
    Full,
    /// Converts them to the widest of their types, or leaves them if they have the same.
    Promote,
}

/// Products. Their sums are f32 in any case, and matrix units multiply 16 bits fastest.
pub const LOWER: &[&str] = &[
    "float_matmul",
    "linear",
    "linear_x_backward",
    "conv1d",
    "conv1d_x_backward",
    "conv2d",
    "conv2d_x_backward",
    "conv3d",
    "conv3d_x_backward",
    "conv_transpose1d",
    "conv_transpose1d_x_backward",
    "conv_transpose2d",
    "conv_transpose2d_x_backward",
    "conv_transpose3d",
    "conv_transpose3d_x_backward",
    "attention",
];

/// Products that are gradients of parameters, which optimizers add up in f32.
pub const GRADIENTS: &[&str] = &[
    "linear_weight_backward",
    "conv1d_weight_backward",
    "conv2d_weight_backward",
    "conv3d_weight_backward",
    "conv_transpose1d_weight_backward",
    "conv_transpose2d_weight_backward",
    "conv_transpose3d_weight_backward",
];

/// Ops whose results overflow f16 easily, or that add up many elements.
pub const FULL: &[&str] = &[
    "float_exp",
    "float_log",
    "float_log1p",
    "float_recip",
    "float_powf",
    "float_powf_scalar_impl",
    "float_powi",
    "float_powi_scalar",
    "float_powi_scalar_impl",
    "float_tan",
    "float_sinh",
    "float_cosh",
    "float_asin",
    "float_acos",
    "float_acosh",
    "float_atanh",
    "float_sum",
    "float_sum_dim",
    "float_mean",
    "float_mean_dim",
    "float_prod",
    "float_prod_dim",
    "float_cumsum",
    "float_cumprod",
    "softmax",
    "softmax_backward",
    "log_softmax",
    "log_softmax_backward",
    "layer_norm",
    "layer_norm_backward",
    "rms_norm",
    "rms_norm_backward",
    "ctc_loss",
    "ctc_loss_backward",
    "linear_bias_backward",
    "conv1d_bias_backward",
    "conv2d_bias_backward",
    "conv3d_bias_backward",
    "conv_transpose1d_bias_backward",
    "conv_transpose2d_bias_backward",
    "conv_transpose3d_bias_backward",
];

/// Returns the rule of an op. Ops that are not listed are [`Rule::Promote`].
pub const fn rule_of(op: &str) -> Rule {
    if lists(LOWER, op) {
        Rule::Lower
    } else if lists(GRADIENTS, op) {
        Rule::Gradient
    } else if lists(FULL, op) {
        Rule::Full
    } else {
        Rule::Promote
    }
}

/// Returns whether an op leaves an optional operand as it is: the bias of a product, which is added to f32 sums.
pub const fn keeps_bias(op: &str) -> bool {
    lists(LOWER, op) && !equal(op.as_bytes(), b"attention")
}

/// What a float tensor is to an op.
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

#[cfg(feature = "autodiff")]
impl Role {
    /// Returns the role of an argument of an op.
    pub const fn of(op: &str, argument: &str, is_optional: bool) -> Self {
        if !keeps_bias(op) {
            Self::Operand
        } else if is_optional {
            Self::Bias
        } else if equal(argument.as_bytes(), b"weight") {
            Self::Weight
        } else {
            Self::Operand
        }
    }
}

/// Returns whether an op computes the gradient of the bias of a product.
pub fn is_bias_gradient(op: &str) -> bool {
    op.ends_with("_bias_backward")
}

/// Returns whether a list contains a name; at compile time, too.
const fn lists(mut list: &[&str], name: &str) -> bool {
    while let [first, rest @ ..] = list {
        if equal(first.as_bytes(), name.as_bytes()) {
            return true;
        }
        list = rest;
    }
    false
}

const fn equal(mut a: &[u8], mut b: &[u8]) -> bool {
    while let ([first_of_a, rest_of_a @ ..], [first_of_b, rest_of_b @ ..]) = (a, b) {
        if *first_of_a != *first_of_b {
            return false;
        }
        (a, b) = (rest_of_a, rest_of_b);
    }
    a.is_empty() && b.is_empty()
}
