//! The elementwise table: one row is one op.
//!
//! A row names the shape of the op, the method, the WGSL expression that computes it and the Rust
//! closure that is its truth. Macros read the table to make the launchable rows (here), the trait
//! methods (`backend`), and the list that tests, benches and docs walk ([`ALL`]).
//!
//! In the expression, `a` and `b` are elements, `s` and `t` scalars. Functions of
//! `shaders/lib/math.wgsl` can be called; only those a kernel calls are compiled into it. For floats write
//! `!(a == b)`, not `a != b`: on Vulkan the latter is false for NaN.

/// The truth of a row, in plain Rust: floats in f64, integers in i32, truth values as bool.
#[derive(Debug, Clone, Copy)]
pub enum Reference {
    /// From one float.
    F1(fn(f64) -> f64),
    /// From two floats, the second of which may be the scalar.
    F2(fn(f64, f64) -> f64),
    /// From three floats, the last two of which may be scalars.
    F3(fn(f64, f64, f64) -> f64),
    /// A question about one float.
    Fq1(fn(f64) -> bool),
    /// A question about two floats.
    Fq2(fn(f64, f64) -> bool),
    /// From one integer.
    I1(fn(i32) -> i32),
    /// From two integers.
    I2(fn(i32, i32) -> i32),
    /// From three integers.
    I3(fn(i32, i32, i32) -> i32),
    /// A question about two integers.
    Iq2(fn(i32, i32) -> bool),
    /// From one truth value.
    B1(fn(bool) -> bool),
    /// From two truth values.
    B2(fn(bool, bool) -> bool),
}

/// How an op's operands are given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operands {
    /// One tensor.
    Unary,
    /// Two tensors that broadcast.
    Binary,
    /// A tensor and a scalar.
    Scalar,
    /// A tensor and two scalars.
    Scalars,
}

/// One elementwise op.
#[derive(Debug)]
pub struct Row {
    /// The method's name.
    pub name: &'static str,
    /// How the operands are given.
    pub operands: Operands,
    /// The WGSL expression.
    pub wgsl: &'static str,
    /// The op in plain Rust.
    pub reference: Reference,
}

/// Ops on floats, as Burn names them.
macro_rules! float_rows {
    ($apply:ident) => {
        $apply! { F:
            unary float_abs "abs(a)" F1 |a| a.abs();
            unary float_neg "-a" F1 |a| -a;
            unary float_recip "1.0 / a" F1 |a| 1.0 / a;
            unary float_sign "sign_of(a)" F1 |a| if a == 0.0 || a.is_nan() { a } else { a.signum() };
            unary float_sqrt "sqrt(a)" F1 |a| a.sqrt();
            unary float_exp "exp_(a)" F1 |a| a.exp();
            unary float_log "ln(a)" F1 |a| a.ln();
            unary float_log1p "log1p(a)" F1 |a| a.ln_1p();
            unary float_sin "sin_(a)" F1 |a| a.sin();
            unary float_cos "cos_(a)" F1 |a| a.cos();
            unary float_tan "tan_(a)" F1 |a| a.tan();
            unary float_sinh "sinh_(a)" F1 |a| a.sinh();
            unary float_cosh "cosh_(a)" F1 |a| a.cosh();
            unary float_tanh "tanh_(a)" F1 |a| a.tanh();
            unary float_asin "asin_(a)" F1 |a| a.asin();
            unary float_acos "acos_(a)" F1 |a| a.acos();
            unary float_atan "atan_(a)" F1 |a| a.atan();
            unary float_asinh "asinh_(a)" F1 |a| a.asinh();
            unary float_acosh "acosh_(a)" F1 |a| a.acosh();
            unary float_atanh "atanh_(a)" F1 |a| a.atanh();
            unary float_erf "erf(a)" F1 |a| crate::kernels::table::erf(a);
            unary float_floor "floor(a)" F1 |a| a.floor();
            unary float_ceil "ceil(a)" F1 |a| a.ceil();
            unary float_round "round(a)" F1 |a| a.round_ties_even();
            unary float_trunc "trunc(a)" F1 |a| a.trunc();
            binary float_add "a + b" F2 |a, b| a + b;
            binary float_sub "a - b" F2 |a, b| a - b;
            binary float_mul "a * b" F2 |a, b| a * b;
            binary float_div "a / b" F2 |a, b| a / b;
            binary float_remainder "rem(a, b)" F2 |a, b| a - b * (a / b).floor();
            binary float_powf "pow_(a, b)" F2 |a, b| a.powf(b);
            binary float_atan2 "atan2_(a, b)" F2 |a, b| a.atan2(b);
            scalar float_add_scalar "a + s" F2 |a, s| a + s;
            scalar float_sub_scalar "a - s" F2 |a, s| a - s;
            scalar float_mul_scalar "a * s" F2 |a, s| a * s;
            scalar float_div_scalar "a / s" F2 |a, s| a / s;
            scalar float_remainder_scalar "rem(a, s)" F2 |a, s| a - s * (a / s).floor();
            scalar float_powf_scalar_impl "pow_(a, s)" F2 |a, s| a.powf(s);
            scalar float_powi_scalar_impl "pow_(a, s)" F2 |a, s| a.powf(s);
            least float_clamp_min "nan_max(a, s)" F2 |a, s| if a.is_nan() { a } else { a.max(s) };
            most float_clamp_max "nan_min(a, s)" F2 |a, s| if a.is_nan() { a } else { a.min(s) };
            limits float_clamp "nan_min(nan_max(a, s), t)" F3 |a, s, t| a.clamp(s, t);
            query float_is_nan "is_nan(a)" Fq1 |a| a.is_nan();
            query float_is_inf "is_inf(a)" Fq1 |a| a.is_infinite();
            compare float_equal "a == b" Fq2 |a, b| a == b;
            compare float_not_equal "!(a == b)" Fq2 |a, b| a != b;
            compare float_greater "a > b" Fq2 |a, b| a > b;
            compare float_greater_equal "a >= b" Fq2 |a, b| a >= b;
            compare float_lower "a < b" Fq2 |a, b| a < b;
            compare float_lower_equal "a <= b" Fq2 |a, b| a <= b;
            compare_scalar float_equal_elem "a == s" Fq2 |a, s| a == s;
            compare_scalar float_not_equal_elem "!(a == s)" Fq2 |a, s| a != s;
            compare_scalar float_greater_elem "a > s" Fq2 |a, s| a > s;
            compare_scalar float_greater_equal_elem "a >= s" Fq2 |a, s| a >= s;
            compare_scalar float_lower_elem "a < s" Fq2 |a, s| a < s;
            compare_scalar float_lower_equal_elem "a <= s" Fq2 |a, s| a <= s;
        }
    };
}

/// Ops on integers, as Burn names them. Overflow wraps. The expressions serve every type of integer: `A` is the
/// operand's type, `BITS` its width.
macro_rules! int_rows {
    ($apply:ident) => {
        $apply! { I:
            unary int_abs "select(a, A(0) - a, a < A(0))" I1 |a| a.wrapping_abs();
            unary int_neg "A(0) - a" I1 |a| a.wrapping_neg();
            unary int_sign "int_sign(a)" I1 |a| a.signum();
            unary bitwise_not "~a" I1 |a| !a;
            binary int_add "a + b" I2 |a, b| a.wrapping_add(b);
            binary int_sub "a - b" I2 |a, b| a.wrapping_sub(b);
            binary int_mul "a * b" I2 |a, b| a.wrapping_mul(b);
            binary int_div "idiv(a, b)" I2 |a, b| if b == 0 { 0 } else { a.wrapping_div(b) };
            binary int_remainder "irem(a, b)" I2 |a, b| crate::kernels::table::floor_remainder(a, b);
            binary int_powi "ipow(a, b)" I2 |a, b| crate::kernels::table::whole_power(a, b);
            binary bitwise_and "a & b" I2 |a, b| a & b;
            binary bitwise_or "a | b" I2 |a, b| a | b;
            binary bitwise_xor "a ^ b" I2 |a, b| a ^ b;
            binary bitwise_left_shift "a << (u32(b) & (BITS - 1u))" I2 |a, b| a.wrapping_shl(b as u32);
            binary bitwise_right_shift "a >> (u32(b) & (BITS - 1u))" I2 |a, b| a.wrapping_shr(b as u32);
            scalar int_add_scalar "a + s" I2 |a, s| a.wrapping_add(s);
            scalar int_sub_scalar "a - s" I2 |a, s| a.wrapping_sub(s);
            scalar int_mul_scalar "a * s" I2 |a, s| a.wrapping_mul(s);
            scalar int_div_scalar "idiv(a, s)" I2 |a, s| if s == 0 { 0 } else { a.wrapping_div(s) };
            scalar int_remainder_scalar "irem(a, s)" I2 |a, s| crate::kernels::table::floor_remainder(a, s);
            scalar int_powi_scalar_impl "ipow(a, s)" I2 |a, s| crate::kernels::table::whole_power(a, s);
            least int_clamp_min "max(a, s)" I2 |a, s| a.max(s);
            most int_clamp_max "min(a, s)" I2 |a, s| a.min(s);
            scalar bitwise_and_scalar "a & s" I2 |a, s| a & s;
            scalar bitwise_or_scalar "a | s" I2 |a, s| a | s;
            scalar bitwise_xor_scalar "a ^ s" I2 |a, s| a ^ s;
            scalar bitwise_left_shift_scalar "a << (u32(s) & (BITS - 1u))" I2 |a, s| a.wrapping_shl(s as u32);
            scalar bitwise_right_shift_scalar "a >> (u32(s) & (BITS - 1u))" I2 |a, s| a.wrapping_shr(s as u32);
            limits int_clamp "min(max(a, s), t)" I3 |a, s, t| a.max(s).min(t);
            compare int_equal "a == b" Iq2 |a, b| a == b;
            compare int_not_equal "a != b" Iq2 |a, b| a != b;
            compare int_greater "a > b" Iq2 |a, b| a > b;
            compare int_greater_equal "a >= b" Iq2 |a, b| a >= b;
            compare int_lower "a < b" Iq2 |a, b| a < b;
            compare int_lower_equal "a <= b" Iq2 |a, b| a <= b;
            compare_scalar int_equal_elem "a == s" Iq2 |a, s| a == s;
            compare_scalar int_not_equal_elem "a != s" Iq2 |a, s| a != s;
            compare_scalar int_greater_elem "a > s" Iq2 |a, s| a > s;
            compare_scalar int_greater_equal_elem "a >= s" Iq2 |a, s| a >= s;
            compare_scalar int_lower_elem "a < s" Iq2 |a, s| a < s;
            compare_scalar int_lower_equal_elem "a <= s" Iq2 |a, s| a <= s;
        }
    };
}

/// Ops on truth values, as Burn names them.
macro_rules! bool_rows {
    ($apply:ident) => {
        $apply! { B:
            unary bool_not "1u - a" B1 |a| !a;
            binary bool_and "a & b" B2 |a, b| a && b;
            binary bool_or "a | b" B2 |a, b| a || b;
            binary bool_xor "a ^ b" B2 |a, b| a ^ b;
            binary bool_equal "u32(a == b)" B2 |a, b| a == b;
            binary bool_not_equal "u32(a != b)" B2 |a, b| a != b;
            scalar bool_equal_elem "u32(a == s)" B2 |a, s| a == s;
            scalar bool_not_equal_elem "u32(a != s)" B2 |a, s| a != s;
        }
    };
}

/// Activations and their gradients, as Burn names them. Of a gradient's operands, the second is the
/// gradient that arrives.
macro_rules! activation_rows {
    ($apply:ident) => {
        $apply! { F:
            unary gelu "gelu(a)" F1 |a| crate::kernels::table::gelu(a);
            unary sigmoid "sigmoid(a)" F1 |a| 1.0 / (1.0 + (-a).exp());
            unary log_sigmoid "log_sigmoid(a)" F1 |a| -(-a).exp().ln_1p();
            binary relu_backward "select(0.0, b, a > 0.0)" F2 |a, b| if a > 0.0 { b } else { 0.0 };
            binary gelu_backward "gelu_slope(a) * b" F2 |a, b| crate::kernels::table::gelu_slope(a) * b;
            binary sigmoid_backward "a * (1.0 - a) * b" F2 |a, b| a * (1.0 - a) * b;
            binary log_sigmoid_backward "sigmoid(-a) * b" F2 |a, b| b / (1.0 + a.exp());
            scalar leaky_relu "select(a * s, a, a >= 0.0)" F2 |a, s| if a >= 0.0 { a } else { a * s };
            scalars hard_sigmoid "nan_min(nan_max(a * s + t, 0.0), 1.0)" F3 |a, s, t| (a * s + t).clamp(0.0, 1.0);
        }
    };
}

/// Ops beyond Burn's contract: functions of the backend itself, `Wgsl::silu(tensor)`.
macro_rules! extension_rows {
    ($apply:ident) => {
        $apply! { F:
            unary silu "a * sigmoid(a)" F1 |a| a / (1.0 + (-a).exp());
        }
    };
}

pub(crate) use {activation_rows, bool_rows, extension_rows, float_rows, int_rows};

/// The rows as values, each under its method's name.
#[expect(non_upper_case_globals, reason = "one word names a row, its method and its test")]
pub mod rows {
    use super::{Operands, Reference, Row};

    macro_rules! operands {
        (unary) => {
            Operands::Unary
        };
        (query) => {
            Operands::Unary
        };
        (binary) => {
            Operands::Binary
        };
        (compare) => {
            Operands::Binary
        };
        (scalar) => {
            Operands::Scalar
        };
        (compare_scalar) => {
            Operands::Scalar
        };
        (scalars) => {
            Operands::Scalars
        };
        (least) => {
            Operands::Scalar
        };
        (most) => {
            Operands::Scalar
        };
        (limits) => {
            Operands::Scalars
        };
    }
    macro_rules! declare {
        ($kind:ident: $($form:ident $name:ident $wgsl:literal $truth:ident $closure:expr;)*) => {
            $(
                #[doc = concat!("`", $wgsl, "`")]
                pub static $name: Row = Row {
                    name: stringify!($name),
                    operands: operands!($form),
                    wgsl: $wgsl,
                    reference: Reference::$truth($closure),
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
        ($kind:ident: $($form:ident $name:ident $wgsl:literal $truth:ident $closure:expr;)*) => {
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
        ($kind:ident: $($form:ident $name:ident $wgsl:literal $truth:ident $closure:expr;)*) => {
            [$(stringify!($name)),*]
        };
    }
    extension_rows!(names).contains(&row.name)
}

/// erf in double precision: the Maclaurin series, and the continued fraction of the complement.
pub fn erf(x: f64) -> f64 {
    if x.is_nan() {
        return x;
    }
    let a = x.abs();
    if a > 3.0 {
        // Lentz's form of erfc(a) = exp(-a^2)/sqrt(pi) / (a + 1/2/(a + 1/(a + 3/2/(a + ...)))).
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

/// gelu, the exact form: `x Φ(x)`.
pub fn gelu(x: f64) -> f64 {
    0.5 * x * (1.0 + erf(x * std::f64::consts::FRAC_1_SQRT_2))
}

/// The derivative of [`gelu`]: `Φ(x) + x φ(x)`.
pub fn gelu_slope(x: f64) -> f64 {
    let density = (-0.5 * x * x).exp() / (2.0 * std::f64::consts::PI).sqrt();
    0.5 * (1.0 + erf(x * std::f64::consts::FRAC_1_SQRT_2)) + x * density
}

/// The remainder with the sign of the divisor; zero where the divisor is.
pub fn floor_remainder(a: i32, b: i32) -> i32 {
    if b == 0 {
        return 0;
    }
    let r = a.wrapping_rem(b);
    if r != 0 && (r < 0) != (b < 0) { r + b } else { r }
}

/// `a` to a whole power, wrapping; a negative power is rounded towards zero.
pub fn whole_power(a: i32, n: i32) -> i32 {
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
