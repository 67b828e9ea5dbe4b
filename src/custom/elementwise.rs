//! Elementwise expressions of a program.

use std::sync::OnceLock;

use burn_tensor::Tensor;

use super::error::KernelError;
use super::tensors::{Operand, float};
use crate::backend::custom::{compile_expression, is_on_cpu};
use crate::backend::{Wgsl, WgslTensor, apply};
use crate::kernels::common::table::{OperandForm, Reference, Row};
use crate::runtime::{RuntimeError, tokens};

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
#[derive(Debug)]
pub struct Binary {
    row: Row,
    checked: OnceLock<Result<(), RuntimeError>>,
}

impl Unary {
    /// Creates an op. `wgsl` is an expression of the element `a`, an `f32`: operators, numbers, float functions of WGSL, and
    /// those of `shaders/lib/math.wgsl` for Burn's ops, such as `exp_` and `erf`. `reference` computes the same on the CPU.
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
    /// Returns an error if the expression does not compile.
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
const ALLOWED: &str =
    "an operand, a float function of WGSL or of lib/math, a number or an operator";

/// The functions that expressions may call. Kernels with expressions run without checks: they must not index anything, nor
/// divide integers.
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
fn unknown_token<'a>(wgsl: &'a str, operands: &[&str]) -> Option<&'a str> {
    let is_number = |token: &str| {
        let digits = token.trim_end_matches('f').replace(['e', 'E'], "");
        !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
    };
    tokens(wgsl)
        .find(|(token, is_identifier)| match is_identifier {
            true => !operands.contains(token) && !FUNCTIONS.contains(token) && !is_number(token),
            false => !token.chars().all(|c| c.is_whitespace() || "+-*/().,<>=!&|".contains(c)),
        })
        .map(|(token, _)| token)
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
