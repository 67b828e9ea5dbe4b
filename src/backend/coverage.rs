//! How each op of Burn's contract is computed, read from the tables that generate the methods.
//! `docs/coverage.md` is generated from it.

use std::fmt::Write;

use super::activation::{activation_contract, activation_written};
use super::boolean::{bool_contract, bool_written};
use super::extension::extension_contract;
use super::float::{float_contract, float_written};
use super::int::{int_contract, int_written};
use super::module::{module_contract, module_written};
use super::quantized::{quantized_contract, quantized_written};
use crate::autocast::rules::Rule;
use crate::kernels::ops::table::{activation_rows, bool_rows, float_rows, int_rows};

/// How an op is computed on a GPU device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// A kernel, or a view of the same memory.
    Kernel,
    /// Burn's composition of ops that have kernels, or a method that calls such ops.
    Composed,
    /// A transfer between host and device, or a query of a tensor's properties.
    Host,
    /// The CPU backend.
    Cpu,
}

/// An op of the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContractOp {
    /// The method's name.
    pub name: &'static str,
    /// How it is computed on a GPU device.
    pub route: Route,
    /// Its rule of autocast; `None` if it has no float operands, or takes any types and returns f32.
    pub rule: Option<Rule>,
}

/// A trait of the contract.
#[derive(Debug)]
pub struct OpTrait {
    /// The trait's name.
    pub name: &'static str,
    /// The elements of its tensors.
    pub elements: Elements,
    /// Its ops, in the order of the tables.
    pub ops: Vec<ContractOp>,
}

/// The elements of a trait's tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Elements {
    /// Floats.
    Floats,
    /// Integers.
    Integers,
    /// Booleans.
    Bools,
    /// Quantised floats.
    Quantised,
}

/// Lists the rows of a table of the contract. Rows with a launch have a kernel.
macro_rules! rows {
    ($(
        $(#[$doc:meta])*
        $name:ident($($arg:ident: $kind:ident),* $(,)?) -> $ret:ident $(as $conversion:ident)?
            $(under $rule:ident)? $(gradient $gradient:ident)?
            $(= $launch:expr $(, else $cpu:ident)?)?;
    )*) => {
        vec![$(ContractOp {
            name: stringify!($name),
            route: rows!(@route $($launch)?),
            rule: rows!(@rule [$($conversion)?] [$($rule)?] [$($kind)*]),
        }),*]
    };
    (@route) => { Route::Cpu };
    (@route $launch:expr) => { Route::Kernel };
    (@rule [Wide] [] $kinds:tt) => { None };
    (@rule [$($conversion:ident)?] [] [$($kind:ident)*]) => {
        (false $(|| rows!(@is_float $kind))*).then_some(Rule::Promote)
    };
    (@rule [$($conversion:ident)?] [$rule:ident] $kinds:tt) => { Some(Rule::$rule) };
    (@is_float F) => { true };
    (@is_float OptF) => { true };
    (@is_float VecF) => { true };
    (@is_float $kind:ident) => { false };
}

/// Lists the rows of the elementwise table.
macro_rules! elementwise {
    ($kind:ident: $($form:ident $name:ident $(under $rule:ident)? $wgsl:literal $reference:ident $function:expr;)*) => {
        vec![$(ContractOp {
            name: stringify!($name),
            route: Route::Kernel,
            rule: rows!(@rule [] [$($rule)?] [$kind]),
        }),*]
    };
}

/// Lists methods without a row.
macro_rules! written {
    ($($route:ident $name:ident $(under $rule:ident)?;)*) => {
        vec![$(ContractOp {
            name: stringify!($name),
            route: written!(@$route),
            rule: rows!(@rule [] [$($rule)?] [F]),
        }),*]
    };
    (@kernel) => { Route::Kernel };
    (@composed) => { Route::Composed };
    (@host) => { Route::Host };
}

/// Returns the whole contract.
pub fn contract() -> Vec<OpTrait> {
    let op_trait = |name, elements, tables: &[Vec<ContractOp>]| OpTrait {
        name,
        elements,
        ops: tables.concat(),
    };
    let transactions = ContractOp { name: "tr_execute", route: Route::Host, rule: None };
    vec![
        op_trait(
            "FloatTensorOps",
            Elements::Floats,
            &[float_rows!(elementwise), float_contract!(rows), float_written!(written)],
        ),
        op_trait(
            "IntTensorOps",
            Elements::Integers,
            &[int_rows!(elementwise), int_contract!(rows), int_written!(written)],
        ),
        op_trait(
            "BoolTensorOps",
            Elements::Bools,
            &[bool_rows!(elementwise), bool_contract!(rows), bool_written!(written)],
        ),
        op_trait(
            "ActivationOps",
            Elements::Floats,
            &[
                activation_rows!(elementwise),
                activation_contract!(rows),
                activation_written!(written),
            ],
        ),
        op_trait(
            "ModuleOps",
            Elements::Floats,
            &[module_contract!(rows), module_written!(written)],
        ),
        op_trait(
            "QTensorOps",
            Elements::Quantised,
            &[quantized_contract!(rows), quantized_written!(written)],
        ),
        op_trait("TransactionOps", Elements::Floats, &[vec![transactions]]),
    ]
}

/// Returns the ops with kernels of their own beyond the contract: functions of [`Wgsl`](super::Wgsl).
pub fn extensions() -> Vec<ContractOp> {
    extension_contract!(rows)
}

const INTRODUCTION: &str = "\
# Coverage

How each op of Burn 0.21's contract is computed, by kind of device. This file is generated from the
tables that generate the methods, and a test compares it with them. To write it again:
`BURN_WGSL_BLESS=1 cargo test --test code coverage`.

- **kernel**: computed on the GPU, or a view of the same memory. Nothing is read back.
- **composed**: Burn's composition of ops that have kernels, or a method that calls such ops.
  Nothing is read back.
- **host**: a transfer between host and device, or a query of a tensor's properties.
- **cpu**: computed by burn-flex. On a GPU device the operands are read back first, which a browser
  cannot do.

Element types, on a GPU and in browsers:

| types | stored | computed in | GPU | browser |
|---|---|---|---|---|
| f32 | 32 bits | f32 | yes | yes |
| f16, bf16 | 16 bits | f32, rounded to nearest even at the end of each op | yes | yes |
| i32, u32 | 32 bits | themselves | yes | yes |
| i8, i16, u8, u16 | 32 bits | i32, wrapped to their width at the end of each op | yes | yes |
| i64, u64 | 64 bits | themselves | on adapters with 64-bit integers, else cpu | in 32 bits; larger values are errors |
| f64 | on the host | f64 | cpu | no |
| bool | 32 bits | u32 | yes | yes |
| quantised to 8, 4 or 2 bits, one f32 scale per tensor or block | 8, 4 or 2 bits | f32 | yes | yes |
| other quantised | on the host | f32 | cpu | no |
";

/// Returns the text of `docs/coverage.md`.
pub fn table() -> String {
    let mut out = String::from(INTRODUCTION);
    for op_trait in contract() {
        let types = match op_trait.elements {
            Elements::Floats => "f32, f16, bf16",
            Elements::Integers => "i32, u32, i16, i8, u16, u8; i64 and u64 where the GPU has them",
            Elements::Bools => "bool",
            Elements::Quantised => "quantised to 8, 4 or 2 bits",
        };
        let _ = write!(
            out,
            "\n## {}\n\n{} ops, on tensors of {types}.\n\n| op | GPU | browser | CPU |\n\
             |---|---|---|---|\n",
            op_trait.name,
            op_trait.ops.len(),
        );
        for op in op_trait.ops {
            let (gpu, browser) = match op.route {
                Route::Kernel => ("kernel", "kernel"),
                Route::Composed => ("composed", "composed"),
                Route::Host => ("host", "host"),
                Route::Cpu => ("cpu", "no"),
            };
            let cpu = if op.route == Route::Host { "host" } else { "cpu" };
            let _ = writeln!(out, "| {} | {gpu} | {browser} | {cpu} |", op.name);
        }
    }
    out
}

const AUTOCAST_INTRODUCTION: &str = "\
# Autocast

What each op does with its float operands in a scope of `burn_wgsl::autocast`. This file is generated
from the rules, and a test compares it with them. To write it again:
`BURN_WGSL_BLESS=1 cargo test --test code coverage`.
";

/// Returns the text of `docs/autocast.md`.
pub fn autocast_table() -> String {
    let is_float = |op_trait: &OpTrait| op_trait.elements == Elements::Floats;
    let ops: Vec<ContractOp> =
        contract().into_iter().filter(is_float).flat_map(|op_trait| op_trait.ops).collect();
    let of_route = |route| ops.iter().copied().filter(move |op: &ContractOp| op.route == route);
    // Some methods that call other ops have a rule themselves.
    let (composed, with_rule): (Vec<ContractOp>, Vec<ContractOp>) =
        of_route(Route::Composed).partition(|op| op.rule == Some(Rule::Promote));
    let all: Vec<ContractOp> =
        of_route(Route::Kernel).chain(with_rule).chain(extensions()).collect();
    let list = |ops: &[ContractOp]| {
        ops.iter().map(|op| format!("`{}`", op.name)).collect::<Vec<_>>().join(", ")
    };
    let mut out = String::from(AUTOCAST_INTRODUCTION);
    for (rules, title, text) in [
        (
            &[Rule::Product, Rule::Lower][..],
            "In 16 bits",
            "Operands are converted to the type of the scope, except the bias of a product. Products are \
             added up in f32, and the result is rounded to 16 bits. If an operand of a product is f32 \
             and all operands have fewer than 2^19 elements together, they are multiplied in f32: conversions would \
             take longer than they save.",
        ),
        (
            &[Rule::Gradient],
            "In 16 bits, with a result in f32",
            "Gradients of parameters, which are added up in f32; those of parameters of 16 bits are rounded to their \
             type at the end. Small products are multiplied in f32, as above. The backward pass of \
             `burn_wgsl::Autodiff` follows this rule outside of the scope, too.",
        ),
        (
            &[Rule::Full, Rule::BiasGradient],
            "In f32",
            "16-bit operands are converted to f32, and the result is f32.",
        ),
        (
            &[Rule::Promote],
            "In the type of the operands",
            "If operands have different types, they are converted to the wider one: f32, also for \
             f16 and bf16.",
        ),
    ] {
        let is_under = |op: &&ContractOp| op.rule.is_some_and(|rule| rules.contains(&rule));
        let of_rule: Vec<ContractOp> = all.iter().filter(is_under).copied().collect();
        let _ = write!(out, "\n## {title}\n\n{text}\n\n{}\n", list(&of_rule));
    }
    let _ = write!(
        out,
        "\n## Composed of other ops\n\nOps that Burn composes, and methods that call other ops, follow the rules of \
         these.\n\n{}\n",
        list(&composed)
    );
    out
}
