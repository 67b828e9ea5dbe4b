//! Elementwise expressions of a program.

use std::sync::OnceLock;

use burn_tensor::Tensor;

use super::error::KernelError;
use super::limits::check_expressions;
use super::tensors::{Operand, float};
use crate::backend::custom::{compile_expression, is_on_cpu};
use crate::backend::{Wgsl, WgslTensor, apply};
use crate::kernels::ops::table::{OperandForm, Reference, Row};
use crate::runtime::RuntimeError;

/// An elementwise expression of one float tensor.
///
/// It joins the elementwise ops around it in one kernel, as Burn's own do.
///
/// ```
/// use burn::tensor::Tensor;
/// use burn_wgsl::custom::Unary;
/// use burn_wgsl::{Wgsl, WgslDevice};
///
/// static SQUARED_RELU: Unary =
///     Unary::new("squared_relu", "max(a, 0.0) * max(a, 0.0)", |a| a.max(0.0) * a.max(0.0));
///
/// let x = Tensor::<Wgsl, 1>::from_floats([-2.0, 3.0], &WgslDevice::default());
/// let y = SQUARED_RELU.apply(x)?;
/// assert_eq!(y.into_data().to_vec::<f32>().unwrap(), [0.0, 9.0]);
/// # Ok::<(), burn_wgsl::custom::KernelError>(())
/// ```
#[derive(Debug)]
pub struct Unary {
    row: Row,
    checked: OnceLock<Result<(), RuntimeError>>,
}

/// An elementwise expression of two float tensors, which broadcast: see [`Unary`].
///
/// ```
/// use burn::tensor::Tensor;
/// use burn_wgsl::custom::Binary;
/// use burn_wgsl::{Wgsl, WgslDevice};
///
/// static HYPOTENUSE: Binary = Binary::new("hypotenuse", "sqrt(a * a + b * b)", f64::hypot);
///
/// let device = WgslDevice::default();
/// let legs = [[3.0], [5.0]].map(|leg| Tensor::<Wgsl, 1>::from_floats(leg, &device));
/// let [a, b] = legs;
/// let y = HYPOTENUSE.apply(a, b + 7.0)?;
/// assert!((y.into_scalar() - 12.369_317).abs() < 1e-4);
/// # Ok::<(), burn_wgsl::custom::KernelError>(())
/// ```
#[derive(Debug)]
pub struct Binary {
    row: Row,
    checked: OnceLock<Result<(), RuntimeError>>,
}

impl Unary {
    /// Creates an op. `wgsl` is an expression of the element `a`, an `f32`: operators, numbers, float functions of
    /// WGSL, and those of `shaders/lib/math.wgsl` for Burn's ops, such as `exp_` and `erf`. Numbers have a decimal
    /// point, an exponent or the suffix `f`: a kernel without checks must not divide integers. `reference` computes
    /// the same on the CPU.
    pub const fn new(name: &'static str, wgsl: &'static str, reference: fn(f64) -> f64) -> Self {
        let (form, reference) = (OperandForm::Unary, Reference::Float1(reference));
        Self { row: Row { name, form, wgsl, reference }, checked: OnceLock::new() }
    }

    /// Computes the expression for each element.
    ///
    /// # Errors
    ///
    /// Returns an error if the expression contains anything else, or does not compile.
    ///
    /// # Panics
    ///
    /// Panics where an op of Burn does, for example if the device is out of memory.
    pub fn apply<const D: usize>(
        &'static self,
        x: Tensor<Wgsl, D>,
    ) -> Result<Tensor<Wgsl, D>, KernelError> {
        let x = x.to_primitive();
        check(&self.row, &self.checked, &x)?;
        Ok(float(apply(&self.row, [x])))
    }
}

impl Binary {
    /// Creates an op. `wgsl` is an expression of the elements `a` and `b`.
    pub const fn new(
        name: &'static str,
        wgsl: &'static str,
        reference: fn(f64, f64) -> f64,
    ) -> Self {
        let (form, reference) = (OperandForm::Binary, Reference::Float2(reference));
        Self { row: Row { name, form, wgsl, reference }, checked: OnceLock::new() }
    }

    /// Computes the expression for each pair of elements. The tensors broadcast.
    ///
    /// # Errors
    ///
    /// Returns an error if the expression contains anything else, or does not compile.
    ///
    /// # Panics
    ///
    /// Panics where an op of Burn does, for example if the shapes do not broadcast.
    pub fn apply<const D: usize>(
        &'static self,
        lhs: Tensor<Wgsl, D>,
        rhs: Tensor<Wgsl, D>,
    ) -> Result<Tensor<Wgsl, D>, KernelError> {
        let [lhs, rhs] = [lhs.to_primitive(), rhs.to_primitive()];
        check(&self.row, &self.checked, &lhs)?;
        Ok(float(apply(&self.row, [lhs, rhs])))
    }
}

/// What an expression may consist of.
const ALLOWED: &str = "an operand, a float function of WGSL or of lib/math, an operator, or a number with a \
     decimal point such as `2.0`";

/// The functions that expressions may call. Kernels with expressions run without checks: they must not index
/// anything, nor divide integers.
const FUNCTIONS: &[&str] = &[
    "abs",
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "ceil",
    "clamp",
    "cos",
    "cosh",
    "degrees",
    "exp",
    "exp2",
    "floor",
    "fma",
    "fract",
    "inverseSqrt",
    "log",
    "log2",
    "max",
    "min",
    "mix",
    "pow",
    "radians",
    "round",
    "saturate",
    "select",
    "sign",
    "sin",
    "sinh",
    "smoothstep",
    "sqrt",
    "step",
    "tan",
    "tanh",
    "trunc",
    "true",
    "false",
    "f32",
    "exp_",
    "ln",
    "log1p",
    "tanh_",
    "erf",
    "pow_",
    "rem",
    "sign_of",
    "sin_",
    "cos_",
    "tan_",
    "sinh_",
    "cosh_",
    "asin_",
    "acos_",
    "atan_",
    "asinh_",
    "acosh_",
    "atanh_",
    "atan2_",
];

/// Returns the first token of an expression that is not allowed.
///
/// Numbers must be written as floats. The operands are floats, and so are the results of all functions: an
/// expression then has no integer anywhere, and cannot divide one.
fn unknown_token<'a>(wgsl: &'a str, operands: &[&str]) -> Option<&'a str> {
    let mut rest = wgsl;
    while let Some(first) = rest.chars().next() {
        let number = number_len(rest);
        let len = if number > 0 {
            number
        } else if first.is_ascii_alphabetic() || first == '_' {
            rest.bytes().position(|byte| !is_name_byte(byte)).unwrap_or(rest.len())
        } else {
            first.len_utf8()
        };
        let (token, tail) = rest.split_at(len);
        let is_allowed = if number > 0 {
            is_float(token)
        } else if is_name_byte(token.as_bytes()[0]) {
            operands.contains(&token) || FUNCTIONS.contains(&token)
        } else {
            first.is_whitespace() || "+-*/(),<>=!&|".contains(first)
        };
        if !is_allowed {
            return Some(token);
        }
        rest = tail;
    }
    None
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Returns the length of the number with which a text begins, with its exponent and suffix; 0 if it begins with
/// something else.
fn number_len(text: &str) -> usize {
    let bytes = text.as_bytes();
    let is_digit = |index: usize| bytes.get(index).is_some_and(u8::is_ascii_digit);
    let begins_number = is_digit(0) || (bytes.first() == Some(&b'.') && is_digit(1));
    if !begins_number {
        return 0;
    }
    let mut end = 0;
    while let Some(&byte) = bytes.get(end) {
        let is_sign = (byte == b'+' || byte == b'-') && matches!(bytes[end - 1], b'e' | b'E');
        if !is_name_byte(byte) && byte != b'.' && !is_sign {
            break;
        }
        end += 1;
    }
    end
}

/// Returns whether a number is a decimal float of WGSL, such as `1.0`, `.5`, `1e-5` and `2f`.
fn is_float(number: &str) -> bool {
    let digits = number.strip_suffix('f').unwrap_or(number);
    digits.parse::<f32>().is_ok() && (digits.contains(['.', 'e', 'E']) || digits != number)
}

/// Compiles an expression in a kernel of its own the first time, so that an error names the expression and not the op
/// that needs the result.
fn check(
    row: &'static Row,
    checked: &OnceLock<Result<(), RuntimeError>>,
    operand: &WgslTensor,
) -> Result<(), KernelError> {
    let operands = if row.form == OperandForm::Unary { &["a"][..] } else { &["a", "b"] };
    if let Some(token) = unknown_token(row.wgsl, operands) {
        let message =
            format!("has the expression `{}` with `{token}`, which is not {ALLOWED}", row.wgsl);
        return Err(KernelError::Declaration { kernel: row.name, file: row.name, message });
    }
    check_expressions(row.wgsl).map_err(|message| KernelError::Declaration {
        kernel: row.name,
        file: row.name,
        message,
    })?;
    if is_on_cpu(operand)? {
        return Ok(());
    }
    if let Some(known) = checked.get() {
        return Ok(known.clone()?);
    }
    let compiled = compile_expression(operand, row.name, row.wgsl);
    match &compiled {
        // Says nothing about the expression.
        Err(error) if !matches!(error, RuntimeError::Wgsl { .. }) => {}
        _ => {
            let _ = checked.set(compiled.clone());
        }
    }
    Ok(compiled?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unknown(wgsl: &str) -> Option<&str> {
        unknown_token(wgsl, &["a", "b"])
    }

    #[test]
    fn expressions_of_floats_are_allowed() {
        for wgsl in [
            "max(a, 0.0) * .5 + 1e-5",
            "select(a, -b, a<=b || !(a > 2f)) / 1.5E+3f",
            "fma(a, b, exp_(a)) - 3.",
        ] {
            assert_eq!(unknown(wgsl), None, "{wgsl}");
        }
    }

    #[test]
    fn integers_and_what_makes_them_are_found() {
        for (wgsl, token) in [
            ("f32(select(1, 0, a > 0.0) / select(0.0, 1.0, a > 1.0))", "1"),
            ("a * 2", "2"),
            ("f32(5i % 3i)", "5i"),
            ("f32(7u)", "7u"),
            ("0x1p3 * a", "0x1p3"),
            ("f32(bitcast<i32>(a) / 2)", "bitcast"),
            ("f32(u32(a))", "u32"),
            ("vec2(a, b).x", "vec2"),
            ("a.x", "."),
            ("a % b", "%"),
            ("a + \u{3b1}", "\u{3b1}"),
            ("1.0h", "1.0h"),
            ("1e", "1e"),
            ("a[0]", "["),
        ] {
            assert_eq!(unknown(wgsl), Some(token), "{wgsl}");
        }
    }
}
