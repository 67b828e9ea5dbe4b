//! The elementwise table: one row is one op.
//!
//! A row consists of a form, the method of Burn's contract, the WGSL expression, and the type and
//! code of a reference implementation in Rust. Macros expand the table to the rows as values
//! ([`rows`]), the list that tests, benchmarks and docs iterate over ([`ALL`]), and the trait
//! methods (in `backend`). The letter in front of the rows is the kind of their tensors: `F` float,
//! `I` integer, `B` boolean.
//!
//! | form | operands | result |
//! |---|---|---|
//! | `unary` | a tensor | the same type |
//! | `predicate` | a tensor | boolean |
//! | `binary` | two tensors that broadcast | the same type |
//! | `compare` | two tensors that broadcast | boolean |
//! | `scalar` | a tensor and a scalar | the same type |
//! | `compare_scalar` | a tensor and a scalar | boolean |
//! | `two_scalars` | a tensor and two scalars | the same type |
//! | `limit` | a tensor and a limit, which may be outside the range of its type | the same type |
//! | `limits` | a tensor and two limits | the same type |
//!
//! `under Full` after the name is the op's rule of autocast (`autocast::rules`); without it, the op follows
//! `Promote`.
//!
//! In the expression, `a` and `b` are elements, `s` and `t` scalars. It can call the functions of
//! `shaders/lib/math.wgsl` and `shaders/lib/integer.wgsl`; a kernel contains only the functions
//! that it calls. For floats write `!(a == b)`, not `a != b`: on Vulkan the latter is false for
//! NaN.

/// The reference implementation of a row: floats in f64, integers in i32.
#[derive(Debug, Clone, Copy)]
pub enum Reference {
    /// A function of a float.
    Float1(fn(f64) -> f64),
    /// A function of two floats; the second may be the scalar.
    Float2(fn(f64, f64) -> f64),
    /// A function of three floats; the last two are the scalars.
    Float3(fn(f64, f64, f64) -> f64),
    /// A predicate on a float.
    FloatTest(fn(f64) -> bool),
    /// A comparison of two floats; the second may be the scalar.
    FloatComparison(fn(f64, f64) -> bool),
    /// A function of an integer.
    Int1(fn(i32) -> i32),
    /// A function of two integers; the second may be the scalar.
    Int2(fn(i32, i32) -> i32),
    /// A function of three integers; the last two are the scalars.
    Int3(fn(i32, i32, i32) -> i32),
    /// A comparison of two integers; the second may be the scalar.
    IntComparison(fn(i32, i32) -> bool),
    /// A function of a boolean.
    Bool1(fn(bool) -> bool),
    /// A function of two booleans; the second may be the scalar.
    Bool2(fn(bool, bool) -> bool),
}

/// The operands of an op.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OperandForm {
    /// A tensor.
    Unary,
    /// Two tensors that broadcast.
    Binary,
    /// A tensor and a scalar.
    Scalar,
    /// A tensor and two scalars.
    TwoScalars,
}

/// An elementwise op.
#[derive(Debug)]
pub struct Row {
    /// The name of the method in Burn's contract, or of the extension.
    pub name: &'static str,
    /// The operands.
    pub form: OperandForm,
    /// The WGSL expression.
    pub wgsl: &'static str,
    /// The reference implementation.
    pub reference: Reference,
}

/// Float ops of Burn's contract.
macro_rules! float_rows {
    ($apply:ident) => {
        $apply! { F:
            unary float_abs "abs(a)" Float1 |a| a.abs();
            unary float_neg "-a" Float1 |a| -a;
            unary float_recip under Full "div(1.0, a)" Float1 |a| 1.0 / a;
            unary float_sign "sign_of(a)" Float1 reference::sign;
            unary float_sqrt "sqrt(a)" Float1 |a| a.sqrt();
            unary float_exp under Full "exp_(a)" Float1 |a| a.exp();
            unary float_log under Full "ln(a)" Float1 |a| a.ln();
            unary float_log1p under Full "log1p(a)" Float1 |a| a.ln_1p();
            unary float_sin "sin_(a)" Float1 |a| a.sin();
            unary float_cos "cos_(a)" Float1 |a| a.cos();
            unary float_tan under Full "tan_(a)" Float1 |a| a.tan();
            unary float_sinh under Full "sinh_(a)" Float1 |a| a.sinh();
            unary float_cosh under Full "cosh_(a)" Float1 |a| a.cosh();
            unary float_tanh "tanh_(a)" Float1 |a| a.tanh();
            unary float_asin under Full "asin_(a)" Float1 |a| a.asin();
            unary float_acos under Full "acos_(a)" Float1 |a| a.acos();
            unary float_atan "atan_(a)" Float1 |a| a.atan();
            unary float_asinh "asinh_(a)" Float1 |a| a.asinh();
            unary float_acosh under Full "acosh_(a)" Float1 |a| a.acosh();
            unary float_atanh under Full "atanh_(a)" Float1 |a| a.atanh();
            unary float_erf "erf(a)" Float1 reference::erf;
            unary float_floor "floor(a)" Float1 |a| a.floor();
            unary float_ceil "ceil(a)" Float1 |a| a.ceil();
            unary float_round "round(a)" Float1 |a| a.round_ties_even();
            unary float_trunc "trunc(a)" Float1 |a| a.trunc();
            binary float_add "a + b" Float2 |a, b| a + b;
            binary float_sub "a - b" Float2 |a, b| a - b;
            binary float_mul "a * b" Float2 |a, b| a * b;
            binary float_div "div(a, b)" Float2 |a, b| a / b;
            binary float_remainder "rem(a, b)" Float2 reference::floored_remainder;
            binary float_powf under Full "pow_(a, b)" Float2 |a, b| a.powf(b);
            binary float_atan2 "atan2_(a, b)" Float2 |a, b| a.atan2(b);
            scalar float_add_scalar "a + s" Float2 |a, s| a + s;
            scalar float_sub_scalar "a - s" Float2 |a, s| a - s;
            scalar float_mul_scalar "a * s" Float2 |a, s| a * s;
            scalar float_div_scalar "div(a, s)" Float2 |a, s| a / s;
            scalar float_remainder_scalar "rem(a, s)" Float2 reference::floored_remainder;
            scalar float_powf_scalar_impl under Full "pow_(a, s)" Float2 |a, s| a.powf(s);
            scalar float_powi_scalar_impl under Full "pow_(a, s)" Float2 |a, s| a.powf(s);
            limit float_clamp_min "nan_max(a, s)" Float2 reference::clamp_min;
            limit float_clamp_max "nan_min(a, s)" Float2 reference::clamp_max;
            limits float_clamp "nan_min(nan_max(a, s), t)" Float3 |a, s, t| a.clamp(s, t);
            predicate float_is_nan "is_nan(a)" FloatTest |a| a.is_nan();
            predicate float_is_inf "is_inf(a)" FloatTest |a| a.is_infinite();
            compare float_equal "a == b" FloatComparison |a, b| a == b;
            compare float_not_equal "!(a == b)" FloatComparison |a, b| a != b;
            compare float_greater "a > b" FloatComparison |a, b| a > b;
            compare float_greater_equal "a >= b" FloatComparison |a, b| a >= b;
            compare float_lower "a < b" FloatComparison |a, b| a < b;
            compare float_lower_equal "a <= b" FloatComparison |a, b| a <= b;
            compare_scalar float_equal_elem "a == s" FloatComparison |a, s| a == s;
            compare_scalar float_not_equal_elem "!(a == s)" FloatComparison |a, s| a != s;
            compare_scalar float_greater_elem "a > s" FloatComparison |a, s| a > s;
            compare_scalar float_greater_equal_elem "a >= s" FloatComparison |a, s| a >= s;
            compare_scalar float_lower_elem "a < s" FloatComparison |a, s| a < s;
            compare_scalar float_lower_equal_elem "a <= s" FloatComparison |a, s| a <= s;
        }
    };
}

/// Integer ops of Burn's contract. Overflow wraps. The expressions apply to every integer compute
/// type: `A` is the type of the operand, `BITS` its width.
macro_rules! int_rows {
    ($apply:ident) => {
        $apply! { I:
            unary int_abs "select(a, A(0) - a, a < A(0))" Int1 |a| a.wrapping_abs();
            // An opaque zero, since no index is so large: NVIDIA's compiler takes max(max(x, 0 - a), 0 - b) wrongly for
            // the smallest integer.
            unary int_neg "A(u32(i == 0xffffffffu)) - a" Int1 |a| a.wrapping_neg();
            unary int_sign "int_sign(a)" Int1 |a| a.signum();
            unary bitwise_not "~a" Int1 |a| !a;
            binary int_add "a + b" Int2 |a, b| a.wrapping_add(b);
            binary int_sub "a - b" Int2 |a, b| a.wrapping_sub(b);
            binary int_mul "a * b" Int2 |a, b| a.wrapping_mul(b);
            binary int_div "idiv(a, b)" Int2 reference::int_quotient;
            binary int_remainder "irem(a, b)" Int2 reference::int_remainder;
            binary int_powi "ipow(a, b)" Int2 reference::int_power;
            binary bitwise_and "a & b" Int2 |a, b| a & b;
            binary bitwise_or "a | b" Int2 |a, b| a | b;
            binary bitwise_xor "a ^ b" Int2 |a, b| a ^ b;
            binary bitwise_left_shift "a << (u32(b) & (BITS - 1u))" Int2 reference::shl;
            binary bitwise_right_shift "a >> (u32(b) & (BITS - 1u))" Int2 reference::shr;
            scalar int_add_scalar "a + s" Int2 |a, s| a.wrapping_add(s);
            scalar int_sub_scalar "a - s" Int2 |a, s| a.wrapping_sub(s);
            scalar int_mul_scalar "a * s" Int2 |a, s| a.wrapping_mul(s);
            scalar int_div_scalar "idiv(a, s)" Int2 reference::int_quotient;
            scalar int_remainder_scalar "irem(a, s)" Int2 reference::int_remainder;
            scalar int_powi_scalar_impl "ipow(a, s)" Int2 reference::int_power;
            limit int_clamp_min "max(a, s)" Int2 |a, s| a.max(s);
            limit int_clamp_max "min(a, s)" Int2 |a, s| a.min(s);
            scalar bitwise_and_scalar "a & s" Int2 |a, s| a & s;
            scalar bitwise_or_scalar "a | s" Int2 |a, s| a | s;
            scalar bitwise_xor_scalar "a ^ s" Int2 |a, s| a ^ s;
            scalar bitwise_left_shift_scalar "a << (u32(s) & (BITS - 1u))" Int2 reference::shl;
            scalar bitwise_right_shift_scalar "a >> (u32(s) & (BITS - 1u))" Int2 reference::shr;
            limits int_clamp "min(max(a, s), t)" Int3 |a, s, t| a.max(s).min(t);
            compare int_equal "a == b" IntComparison |a, b| a == b;
            compare int_not_equal "a != b" IntComparison |a, b| a != b;
            compare int_greater "a > b" IntComparison |a, b| a > b;
            compare int_greater_equal "a >= b" IntComparison |a, b| a >= b;
            compare int_lower "a < b" IntComparison |a, b| a < b;
            compare int_lower_equal "a <= b" IntComparison |a, b| a <= b;
            compare_scalar int_equal_elem "a == s" IntComparison |a, s| a == s;
            compare_scalar int_not_equal_elem "a != s" IntComparison |a, s| a != s;
            compare_scalar int_greater_elem "a > s" IntComparison |a, s| a > s;
            compare_scalar int_greater_equal_elem "a >= s" IntComparison |a, s| a >= s;
            compare_scalar int_lower_elem "a < s" IntComparison |a, s| a < s;
            compare_scalar int_lower_equal_elem "a <= s" IntComparison |a, s| a <= s;
        }
    };
}

/// Boolean ops of Burn's contract. An element is 0 or 1 in a u32.
macro_rules! bool_rows {
    ($apply:ident) => {
        $apply! { B:
            unary bool_not "1u - a" Bool1 |a| !a;
            binary bool_and "a & b" Bool2 |a, b| a && b;
            binary bool_or "a | b" Bool2 |a, b| a || b;
            binary bool_xor "a ^ b" Bool2 |a, b| a ^ b;
            binary bool_equal "u32(a == b)" Bool2 |a, b| a == b;
            binary bool_not_equal "u32(a != b)" Bool2 |a, b| a != b;
            scalar bool_equal_elem "u32(a == s)" Bool2 |a, s| a == s;
            scalar bool_not_equal_elem "u32(a != s)" Bool2 |a, s| a != s;
        }
    };
}

/// Activations of Burn's contract and their gradients. The second operand of a gradient is the
/// gradient of the output.
macro_rules! activation_rows {
    ($apply:ident) => {
        $apply! { F:
            unary gelu "gelu(a)" Float1 reference::gelu;
            unary sigmoid "sigmoid(a)" Float1 |a| 1.0 / (1.0 + (-a).exp());
            unary log_sigmoid "log_sigmoid(a)" Float1 |a| a.min(0.0) - (-a.abs()).exp().ln_1p();
            binary relu_backward "select(0.0, b, a > 0.0)" Float2 reference::relu_backward;
            binary gelu_backward "gelu_slope(a) * b" Float2 |a, b| reference::gelu_slope(a) * b;
            binary sigmoid_backward "a * (1.0 - a) * b" Float2 |a, b| a * (1.0 - a) * b;
            binary log_sigmoid_backward "sigmoid(-a) * b" Float2 |a, b| b / (1.0 + a.exp());
            scalar leaky_relu "select(a * s, a, a >= 0.0)" Float2 reference::leaky_relu;
            two_scalars hard_sigmoid "nan_min(nan_max(a * s + t, 0.0), 1.0)"
                Float3 reference::hard_sigmoid;
        }
    };
}

/// Extensions: ops beyond Burn's contract. They are functions of the backend: `Wgsl::silu(tensor)`.
macro_rules! extension_rows {
    ($apply:ident) => {
        $apply! { F:
            unary silu "a * sigmoid(a)" Float1 |a| a / (1.0 + (-a).exp());
        }
    };
}

pub(crate) use {activation_rows, bool_rows, extension_rows, float_rows, int_rows};

/// The rows as values. Each has the name of its method.
#[expect(non_upper_case_globals, reason = "a row has the name of its method")]
pub mod rows {
    use super::{OperandForm, Reference, Row, reference};

    macro_rules! form {
        (unary) => {
            OperandForm::Unary
        };
        (predicate) => {
            OperandForm::Unary
        };
        (binary) => {
            OperandForm::Binary
        };
        (compare) => {
            OperandForm::Binary
        };
        (scalar) => {
            OperandForm::Scalar
        };
        (compare_scalar) => {
            OperandForm::Scalar
        };
        (two_scalars) => {
            OperandForm::TwoScalars
        };
        (limit) => {
            OperandForm::Scalar
        };
        (limits) => {
            OperandForm::TwoScalars
        };
    }
    macro_rules! declare {
        (
            $kind:ident:
            $($form:ident $name:ident $(under $rule:ident)? $wgsl:literal $reference:ident $function:expr;)*
        ) => {
            $(
                #[doc = concat!("`", $wgsl, "`")]
                pub static $name: Row = Row {
                    name: stringify!($name),
                    form: form!($form),
                    wgsl: $wgsl,
                    reference: Reference::$reference($function),
                };
            )*
        };
    }
    float_rows!(declare);
    int_rows!(declare);
    bool_rows!(declare);
    activation_rows!(declare);
    extension_rows!(declare);
}

/// Every row.
pub static ALL: &[&[&Row]] = {
    macro_rules! list {
        (
            $kind:ident:
            $($form:ident $name:ident $(under $rule:ident)? $wgsl:literal $reference:ident $function:expr;)*
        ) => {
            &[$(&rows::$name),*]
        };
    }
    &[
        float_rows!(list),
        int_rows!(list),
        bool_rows!(list),
        activation_rows!(list),
        extension_rows!(list),
    ]
};

/// Elementwise ops that are not rows.
const OTHERS: [&str; 4] = ["float_mask_where", "int_mask_where", "bool_mask_where", "float_powi"];

/// Returns whether an op computes each element from those in the same place of its operands, which are broadcast.
pub fn is_elementwise(op: &str) -> bool {
    OTHERS.contains(&op) || ALL.iter().copied().flatten().any(|row| row.name == op)
}

/// Returns whether a row is an extension: a function of the backend, not a method of Burn's
/// contract.
pub fn is_extension(row: &Row) -> bool {
    macro_rules! names {
        (
            $kind:ident:
            $($form:ident $name:ident $(under $rule:ident)? $wgsl:literal $reference:ident $function:expr;)*
        ) => {
            [$(stringify!($name)),*]
        };
    }
    extension_rows!(names).contains(&row.name)
}

/// Reference implementations that are too long for a row.
pub mod reference {
    /// Returns the sign; `x` for zeros and NaN.
    pub fn sign(x: f64) -> f64 {
        if x == 0.0 || x.is_nan() { x } else { x.signum() }
    }

    /// Returns the maximum of `x` and `min`; NaN if `x` is NaN.
    pub fn clamp_min(x: f64, min: f64) -> f64 {
        if x.is_nan() { x } else { x.max(min) }
    }

    /// Returns the minimum of `x` and `max`; NaN if `x` is NaN.
    pub fn clamp_max(x: f64, max: f64) -> f64 {
        if x.is_nan() { x } else { x.min(max) }
    }

    /// Returns erf(x), by the Maclaurin series of erf or the continued fraction of erfc.
    pub fn erf(x: f64) -> f64 {
        if x.is_nan() {
            return x;
        }
        let a = x.abs();
        if a > 3.0 {
            // erfc(a) = exp(-a^2)/sqrt(pi) / (a + 1/2/(a + 1/(a + 3/2/(a + ...)))).
            let fraction = (1..60).rev().fold(a, |f, k| a + f64::from(k) * 0.5 / f);
            let complement = (-a * a).exp() / (std::f64::consts::PI.sqrt() * fraction);
            return (1.0 - complement).copysign(x);
        }
        let (mut term, mut sum) = (a, a);
        for n in 1..80 {
            let n = f64::from(n);
            term *= -a * a / n;
            sum += term / (2.0 * n + 1.0);
        }
        (sum * std::f64::consts::FRAC_2_SQRT_PI).copysign(x)
    }

    /// Returns the exact gelu: `x Φ(x)`.
    pub fn gelu(x: f64) -> f64 {
        // The product would be NaN.
        if x == f64::NEG_INFINITY {
            return -0.0;
        }
        0.5 * x * (1.0 + erf(x * std::f64::consts::FRAC_1_SQRT_2))
    }

    /// Returns the derivative of [`gelu`]: `Φ(x) + x φ(x)`.
    pub fn gelu_slope(x: f64) -> f64 {
        let density = (-0.5 * x * x).exp() / (2.0 * std::f64::consts::PI).sqrt();
        0.5 * (1.0 + erf(x * std::f64::consts::FRAC_1_SQRT_2)) + x * density
    }

    /// Returns the gradient of relu with respect to `x`.
    pub fn relu_backward(x: f64, grad: f64) -> f64 {
        if x > 0.0 { grad } else { 0.0 }
    }

    /// Returns `x`, times `slope` if it is negative.
    pub fn leaky_relu(x: f64, slope: f64) -> f64 {
        if x >= 0.0 { x } else { x * slope }
    }

    /// Returns `slope * x + offset` clamped to 0..=1.
    pub fn hard_sigmoid(x: f64, slope: f64, offset: f64) -> f64 {
        (x * slope + offset).clamp(0.0, 1.0)
    }

    /// Returns the remainder with the sign of the divisor.
    pub fn floored_remainder(a: f64, b: f64) -> f64 {
        let r = a % b;
        if r != 0.0 && (r < 0.0) != (b < 0.0) { r + b } else { r }
    }

    /// Returns the integer quotient rounded towards zero; zero if the divisor is zero.
    pub fn int_quotient(a: i32, b: i32) -> i32 {
        if b == 0 { 0 } else { a.wrapping_div(b) }
    }

    /// Returns the integer remainder with the sign of the divisor; zero if the divisor is zero.
    pub fn int_remainder(a: i32, b: i32) -> i32 {
        if b == 0 {
            return 0;
        }
        let r = a.wrapping_rem(b);
        if r != 0 && (r < 0) != (b < 0) { r + b } else { r }
    }

    /// Shifts `a` left by `n` modulo 32 bits.
    pub fn shl(a: i32, n: i32) -> i32 {
        a.wrapping_shl(n as u32)
    }

    /// Shifts `a` right by `n` modulo 32 bits. The sign is preserved.
    pub fn shr(a: i32, n: i32) -> i32 {
        a.wrapping_shr(n as u32)
    }

    /// Returns `a` to an integer power, wrapping. The result of a negative power is rounded towards
    /// zero.
    pub fn int_power(a: i32, n: i32) -> i32 {
        match (u32::try_from(n), a) {
            (Ok(n), _) => a.wrapping_pow(n),
            (Err(_), 1) => 1,
            (Err(_), -1) => {
                if n % 2 == 0 {
                    1
                } else {
                    -1
                }
            }
            (Err(_), _) => 0,
        }
    }
}
