//! The elementwise table: one row is one op.
//!
//! A row has the form of the operands, the method in Burn's contract, the WGSL expression, and a
//! reference implementation as a Rust closure. Macros read the table to make the rows as values
//! (here), the trait methods (`backend`), and the list that tests, benchmarks and docs iterate over
//! ([`ALL`]).
//!
//! In the expression, `a` and `b` are elements, `s` and `t` scalars. It can call the functions of
//! `shaders/lib/math.wgsl`; a kernel contains only those that it calls. For floats write `!(a ==
//! b)`, not `a != b`: on Vulkan the latter is false for NaN.

/// The reference implementation of a row: floats in f64, integers in i32.
#[derive(Debug, Clone, Copy)]
pub enum Reference {
    /// Of one float.
    Float1(fn(f64) -> f64),
    /// Of two floats; the second may be the scalar.
    Float2(fn(f64, f64) -> f64),
    /// Of three floats; the last two may be scalars.
    Float3(fn(f64, f64, f64) -> f64),
    /// A predicate on one float.
    FloatTest(fn(f64) -> bool),
    /// A comparison of two floats.
    FloatComparison(fn(f64, f64) -> bool),
    /// Of one integer.
    Int1(fn(i32) -> i32),
    /// Of two integers.
    Int2(fn(i32, i32) -> i32),
    /// Of three integers.
    Int3(fn(i32, i32, i32) -> i32),
    /// A comparison of two integers.
    IntComparison(fn(i32, i32) -> bool),
    /// Of one boolean.
    Bool1(fn(bool) -> bool),
    /// Of two booleans.
    Bool2(fn(bool, bool) -> bool),
}

/// The operands of an op.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OperandForm {
    /// One tensor.
    Unary,
    /// Two tensors that broadcast.
    Binary,
    /// A tensor and a scalar.
    Scalar,
    /// A tensor and two scalars.
    TwoScalars,
}

/// One elementwise op.
#[derive(Debug)]
pub struct Row {
    /// The name of the method.
    pub name: &'static str,
    /// The operands.
    pub form: OperandForm,
    /// The WGSL expression.
    pub wgsl: &'static str,
    /// The reference implementation.
    pub reference: Reference,
}

/// Float ops, by the names of Burn's contract.
macro_rules! float_rows {
    ($apply:ident) => {
        $apply! { F:
            unary float_abs "abs(a)" Float1 |a| a.abs();
            unary float_neg "-a" Float1 |a| -a;
            unary float_recip "1.0 / a" Float1 |a| 1.0 / a;
            unary float_sign "sign_of(a)" Float1 |a| if a == 0.0 || a.is_nan() { a } else { a.signum() };
            unary float_sqrt "sqrt(a)" Float1 |a| a.sqrt();
            unary float_exp "exp_(a)" Float1 |a| a.exp();
            unary float_log "ln(a)" Float1 |a| a.ln();
            unary float_log1p "log1p(a)" Float1 |a| a.ln_1p();
            unary float_sin "sin_(a)" Float1 |a| a.sin();
            unary float_cos "cos_(a)" Float1 |a| a.cos();
            unary float_tan "tan_(a)" Float1 |a| a.tan();
            unary float_sinh "sinh_(a)" Float1 |a| a.sinh();
            unary float_cosh "cosh_(a)" Float1 |a| a.cosh();
            unary float_tanh "tanh_(a)" Float1 |a| a.tanh();
            unary float_asin "asin_(a)" Float1 |a| a.asin();
            unary float_acos "acos_(a)" Float1 |a| a.acos();
            unary float_atan "atan_(a)" Float1 |a| a.atan();
            unary float_asinh "asinh_(a)" Float1 |a| a.asinh();
            unary float_acosh "acosh_(a)" Float1 |a| a.acosh();
            unary float_atanh "atanh_(a)" Float1 |a| a.atanh();
            unary float_erf "erf(a)" Float1 |a| reference::erf(a);
            unary float_floor "floor(a)" Float1 |a| a.floor();
            unary float_ceil "ceil(a)" Float1 |a| a.ceil();
            unary float_round "round(a)" Float1 |a| a.round_ties_even();
            unary float_trunc "trunc(a)" Float1 |a| a.trunc();
            binary float_add "a + b" Float2 |a, b| a + b;
            binary float_sub "a - b" Float2 |a, b| a - b;
            binary float_mul "a * b" Float2 |a, b| a * b;
            binary float_div "a / b" Float2 |a, b| a / b;
            binary float_remainder "rem(a, b)" Float2 |a, b| reference::floored_remainder(a, b);
            binary float_powf "pow_(a, b)" Float2 |a, b| a.powf(b);
            binary float_atan2 "atan2_(a, b)" Float2 |a, b| a.atan2(b);
            scalar float_add_scalar "a + s" Float2 |a, s| a + s;
            scalar float_sub_scalar "a - s" Float2 |a, s| a - s;
            scalar float_mul_scalar "a * s" Float2 |a, s| a * s;
            scalar float_div_scalar "a / s" Float2 |a, s| a / s;
            scalar float_remainder_scalar "rem(a, s)" Float2 |a, s| reference::floored_remainder(a, s);
            scalar float_powf_scalar_impl "pow_(a, s)" Float2 |a, s| a.powf(s);
            scalar float_powi_scalar_impl "pow_(a, s)" Float2 |a, s| a.powf(s);
            limit float_clamp_min "nan_max(a, s)" Float2 |a, s| if a.is_nan() { a } else { a.max(s) };
            limit float_clamp_max "nan_min(a, s)" Float2 |a, s| if a.is_nan() { a } else { a.min(s) };
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

/// Integer ops, by the names of Burn's contract. Overflow wraps. The expressions hold for every
/// integer type: `A` is the type of the operand, `BITS` its width.
macro_rules! int_rows {
    ($apply:ident) => {
        $apply! { I:
            unary int_abs "select(a, A(0) - a, a < A(0))" Int1 |a| a.wrapping_abs();
            unary int_neg "A(0) - a" Int1 |a| a.wrapping_neg();
            unary int_sign "int_sign(a)" Int1 |a| a.signum();
            unary bitwise_not "~a" Int1 |a| !a;
            binary int_add "a + b" Int2 |a, b| a.wrapping_add(b);
            binary int_sub "a - b" Int2 |a, b| a.wrapping_sub(b);
            binary int_mul "a * b" Int2 |a, b| a.wrapping_mul(b);
            binary int_div "idiv(a, b)" Int2 |a, b| if b == 0 { 0 } else { a.wrapping_div(b) };
            binary int_remainder "irem(a, b)" Int2 |a, b| reference::int_remainder(a, b);
            binary int_powi "ipow(a, b)" Int2 |a, b| reference::int_power(a, b);
            binary bitwise_and "a & b" Int2 |a, b| a & b;
            binary bitwise_or "a | b" Int2 |a, b| a | b;
            binary bitwise_xor "a ^ b" Int2 |a, b| a ^ b;
            binary bitwise_left_shift "a << (u32(b) & (BITS - 1u))" Int2 |a, b| a.wrapping_shl(b as u32);
            binary bitwise_right_shift "a >> (u32(b) & (BITS - 1u))" Int2 |a, b| a.wrapping_shr(b as u32);
            scalar int_add_scalar "a + s" Int2 |a, s| a.wrapping_add(s);
            scalar int_sub_scalar "a - s" Int2 |a, s| a.wrapping_sub(s);
            scalar int_mul_scalar "a * s" Int2 |a, s| a.wrapping_mul(s);
            scalar int_div_scalar "idiv(a, s)" Int2 |a, s| if s == 0 { 0 } else { a.wrapping_div(s) };
            scalar int_remainder_scalar "irem(a, s)" Int2 |a, s| reference::int_remainder(a, s);
            scalar int_powi_scalar_impl "ipow(a, s)" Int2 |a, s| reference::int_power(a, s);
            limit int_clamp_min "max(a, s)" Int2 |a, s| a.max(s);
            limit int_clamp_max "min(a, s)" Int2 |a, s| a.min(s);
            scalar bitwise_and_scalar "a & s" Int2 |a, s| a & s;
            scalar bitwise_or_scalar "a | s" Int2 |a, s| a | s;
            scalar bitwise_xor_scalar "a ^ s" Int2 |a, s| a ^ s;
            scalar bitwise_left_shift_scalar "a << (u32(s) & (BITS - 1u))" Int2 |a, s| a.wrapping_shl(s as u32);
            scalar bitwise_right_shift_scalar "a >> (u32(s) & (BITS - 1u))" Int2 |a, s| a.wrapping_shr(s as u32);
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

/// Boolean ops, by the names of Burn's contract.
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

/// Activations and their gradients, by the names of Burn's contract. The second operand of a
/// gradient is the gradient of the output.
macro_rules! activation_rows {
    ($apply:ident) => {
        $apply! { F:
            unary gelu "gelu(a)" Float1 |a| reference::gelu(a);
            unary sigmoid "sigmoid(a)" Float1 |a| 1.0 / (1.0 + (-a).exp());
            unary log_sigmoid "log_sigmoid(a)" Float1 |a| -(-a).exp().ln_1p();
            binary relu_backward "select(0.0, b, a > 0.0)" Float2 |a, b| if a > 0.0 { b } else { 0.0 };
            binary gelu_backward "gelu_slope(a) * b" Float2 |a, b| reference::gelu_slope(a) * b;
            binary sigmoid_backward "a * (1.0 - a) * b" Float2 |a, b| a * (1.0 - a) * b;
            binary log_sigmoid_backward "sigmoid(-a) * b" Float2 |a, b| b / (1.0 + a.exp());
            scalar leaky_relu "select(a * s, a, a >= 0.0)" Float2 |a, s| if a >= 0.0 { a } else { a * s };
            two_scalars hard_sigmoid "nan_min(nan_max(a * s + t, 0.0), 1.0)" Float3 |a, s, t| reference::hard_sigmoid(a, s, t);
        }
    };
}

/// Ops beyond Burn's contract, which become functions of the backend: `Wgsl::silu(tensor)`.
macro_rules! extension_rows {
    ($apply:ident) => {
        $apply! { F:
            unary silu "a * sigmoid(a)" Float1 |a| a / (1.0 + (-a).exp());
        }
    };
}

pub(crate) use {activation_rows, bool_rows, extension_rows, float_rows, int_rows};

/// The rows as values, by the name of the method.
#[expect(non_upper_case_globals, reason = "a row, its method and its test share a name")]
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
        ($kind:ident: $($form:ident $name:ident $wgsl:literal $reference:ident $closure:expr;)*) => {
            $(
                #[doc = concat!("`", $wgsl, "`")]
                pub static $name: Row = Row {
                    name: stringify!($name),
                    form: form!($form),
                    wgsl: $wgsl,
                    reference: Reference::$reference($closure),
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
        ($kind:ident: $($form:ident $name:ident $wgsl:literal $reference:ident $closure:expr;)*) => {
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

/// Whether a row is beyond Burn's contract: a function of the backend, not a trait's method.
pub fn is_extension(row: &Row) -> bool {
    macro_rules! names {
        ($kind:ident: $($form:ident $name:ident $wgsl:literal $reference:ident $closure:expr;)*) => {
            [$(stringify!($name)),*]
        };
    }
    extension_rows!(names).contains(&row.name)
}

/// Reference implementations that do not fit into a row.
pub mod reference {
    /// erf: the Maclaurin series, and the continued fraction of erfc.
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

    /// The exact gelu: `x Φ(x)`.
    pub fn gelu(x: f64) -> f64 {
        0.5 * x * (1.0 + erf(x * std::f64::consts::FRAC_1_SQRT_2))
    }

    /// The derivative of [`gelu`]: `Φ(x) + x φ(x)`.
    pub fn gelu_slope(x: f64) -> f64 {
        let density = (-0.5 * x * x).exp() / (2.0 * std::f64::consts::PI).sqrt();
        0.5 * (1.0 + erf(x * std::f64::consts::FRAC_1_SQRT_2)) + x * density
    }

    /// A line clamped to 0..1.
    pub fn hard_sigmoid(x: f64, slope: f64, offset: f64) -> f64 {
        (x * slope + offset).clamp(0.0, 1.0)
    }

    /// The remainder with the sign of the divisor.
    pub fn floored_remainder(a: f64, b: f64) -> f64 {
        a - b * (a / b).floor()
    }

    /// The integer remainder with the sign of the divisor; zero if the divisor is zero.
    pub fn int_remainder(a: i32, b: i32) -> i32 {
        if b == 0 {
            return 0;
        }
        let r = a.wrapping_rem(b);
        if r != 0 && (r < 0) != (b < 0) { r + b } else { r }
    }

    /// `a` to an integer power, wrapping; a negative power is rounded towards zero.
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
