//! How each op of Burn's contract is computed, read from the tables that generate the methods.
//! `docs/coverage.md` is generated from it.

use std::fmt::Write;

use super::activation::activation_contract;
use super::boolean::bool_contract;
use super::extension::extension_contract;
use super::float::float_contract;
use super::int::int_contract;
use super::module::module_contract;
use super::quantized::quantized_contract;
use crate::autocast::rules::{Rule, rule_of};
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
        $name:ident($($arg:ident: $kind:ident),* $(,)?) -> $ret:ident $(as $conversion:ident)?
            $(= $launch:expr $(, else $cpu:ident)?)?;
    )*) => {
        vec![$(ContractOp {
            name: stringify!($name),
            route: rows!(@route $($launch)?),
        }),*]
    };
    (@route) => {
        Route::Cpu
    };
    (@route $launch:expr) => {
        Route::Kernel
    };
}

/// Lists the rows of the elementwise table.
macro_rules! elementwise {
    ($kind:ident: $($form:ident $name:ident $wgsl:literal $reference:ident $function:expr;)*) => {
        vec![$(ContractOp { name: stringify!($name), route: Route::Kernel }),*]
    };
}

/// Lists ops that are not in a table.
fn ops(route: Route, names: &'static [&'static str]) -> Vec<ContractOp> {
    names.iter().map(|&name| ContractOp { name, route }).collect()
}

/// Returns the whole contract.
pub fn contract() -> Vec<OpTrait> {
    vec![
        OpTrait {
            name: "FloatTensorOps",
            elements: Elements::Floats,
            ops: [
                float_rows!(elementwise),
                float_contract!(rows),
                ops(Route::Composed, &["float_random", "float_powi_scalar", "float_powf_scalar"]),
                ops(
                    Route::Host,
                    &[
                        "float_from_data",
                        "float_into_data",
                        "float_device",
                        "float_to_device",
                        "float_detach",
                        "float_set_require_grad",
                        "float_is_require_grad",
                    ],
                ),
            ]
            .concat(),
        },
        OpTrait {
            name: "IntTensorOps",
            elements: Elements::Integers,
            ops: [
                int_rows!(elementwise),
                int_contract!(rows),
                ops(Route::Composed, &["int_random", "int_powi_scalar"]),
                ops(
                    Route::Host,
                    &["int_from_data", "int_into_data", "int_device", "int_to_device"],
                ),
            ]
            .concat(),
        },
        OpTrait {
            name: "BoolTensorOps",
            elements: Elements::Bools,
            ops: [
                bool_rows!(elementwise),
                bool_contract!(rows),
                ops(Route::Kernel, &["bool_argwhere"]),
                ops(
                    Route::Host,
                    &["bool_from_data", "bool_into_data", "bool_device", "bool_to_device"],
                ),
            ]
            .concat(),
        },
        OpTrait {
            name: "ActivationOps",
            elements: Elements::Floats,
            ops: [
                activation_rows!(elementwise),
                activation_contract!(rows),
                ops(Route::Composed, &["prelu", "softmin"]),
            ]
            .concat(),
        },
        OpTrait {
            name: "ModuleOps",
            elements: Elements::Floats,
            ops: [
                module_contract!(rows),
                ops(
                    Route::Composed,
                    &[
                        "avg_pool1d",
                        "avg_pool1d_backward",
                        "adaptive_avg_pool1d",
                        "adaptive_avg_pool1d_backward",
                        "max_pool1d",
                        "max_pool1d_with_indices",
                        "max_pool1d_with_indices_backward",
                    ],
                ),
                ops(Route::Host, &["has_ctc_loss_backward"]),
            ]
            .concat(),
        },
        OpTrait {
            name: "QTensorOps",
            elements: Elements::Quantised,
            ops: [
                quantized_contract!(rows),
                ops(
                    Route::Host,
                    &[
                        "q_from_data",
                        "q_into_data",
                        "q_device",
                        "q_to_device",
                        "q_detach",
                        "q_set_require_grad",
                        "q_is_require_grad",
                    ],
                ),
                ops(Route::Composed, COMPOSED_QUANTISED),
            ]
            .concat(),
        },
        OpTrait {
            name: "TransactionOps",
            elements: Elements::Floats,
            ops: ops(Route::Host, &["tr_execute"]),
        },
    ]
}

/// Burn composes these ops: it dequantises, computes, and quantises if the result is quantised.
const COMPOSED_QUANTISED: &[&str] = &[
    "q_transpose",
    "q_repeat_dim",
    "q_add",
    "q_add_scalar",
    "q_clamp_min",
    "q_clamp_max",
    "q_clamp",
    "q_sub",
    "q_sub_scalar",
    "q_mul",
    "q_mul_scalar",
    "q_div",
    "q_div_scalar",
    "q_matmul",
    "q_neg",
    "q_recip",
    "q_sum",
    "q_sum_dim",
    "q_prod",
    "q_prod_dim",
    "q_mean",
    "q_mean_dim",
    "q_cumsum",
    "q_cumprod",
    "q_cummin",
    "q_cummax",
    "q_exp",
    "q_log",
    "q_log1p",
    "q_powf",
    "q_powi",
    "q_powi_scalar",
    "q_powf_scalar",
    "q_sqrt",
    "q_abs",
    "q_cos",
    "q_sin",
    "q_tan",
    "q_cosh",
    "q_sinh",
    "q_tanh",
    "q_erf",
    "q_cat",
    "q_argtopk",
    "q_topk",
    "q_max",
    "q_max_dim",
    "q_max_dim_with_indices",
    "q_min",
    "q_min_dim",
    "q_min_dim_with_indices",
    "q_max_abs",
    "q_max_abs_dim",
    "q_any",
    "q_any_dim",
    "q_all",
    "q_all_dim",
    "q_sort",
    "q_sort_with_indices",
    "q_argsort",
];

const INTRODUCTION: &str = "\
# Coverage

How each op of Burn 0.21's contract is computed, by kind of device. This file is generated from the
tables that generate the methods, and a test compares it with them. To write it again:
`BURN_WGSL_BLESS=1 cargo test --test coverage`.

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
`BURN_WGSL_BLESS=1 cargo test --test coverage`.
";

/// Returns the text of `docs/autocast.md`.
pub fn autocast_table() -> String {
    let is_float = |op_trait: &OpTrait| op_trait.elements == Elements::Floats;
    let ops: Vec<ContractOp> =
        contract().into_iter().filter(is_float).flat_map(|op_trait| op_trait.ops).collect();
    let of_route =
        |route| ops.iter().filter(move |op| op.route == route).map(|op: &ContractOp| op.name);
    // Some methods that call other ops have a rule themselves.
    let (composed, with_rule): (Vec<&str>, Vec<&str>) =
        of_route(Route::Composed).partition(|name| rule_of(name) == Rule::Promote);
    let all = of_route(Route::Kernel).chain(with_rule).chain(EXTENSIONS.iter().copied());
    let names: Vec<&str> = all.filter(|name| !WITHOUT_RULE.contains(name)).collect();
    let list = |names: &[&str]| {
        names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
    };
    let mut out = String::from(AUTOCAST_INTRODUCTION);
    for (rule, title, text) in [
        (
            Rule::Lower,
            "In 16 bits",
            "Operands are converted to the type of the scope, except the bias of a product. Products are \
             added up in f32, and the result is rounded to 16 bits.",
        ),
        (
            Rule::Gradient,
            "In 16 bits, with a result in f32",
            "Gradients of parameters, which are added up in f32; those of parameters of 16 bits are rounded to their \
             type at the end. The backward pass of `burn_wgsl::Autodiff` follows this rule outside of the scope, too.",
        ),
        (Rule::Full, "In f32", "16-bit operands are converted to f32, and the result is f32."),
        (
            Rule::Promote,
            "In the type of the operands",
            "If operands have different types, they are converted to the wider one: f32, also for \
             f16 and bf16.",
        ),
    ] {
        let of_rule: Vec<&str> =
            names.iter().copied().filter(|name| rule_of(name) == rule).collect();
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

/// Ops that autocast leaves alone: they have no float operands, or take any types and return f32.
const WITHOUT_RULE: &[&str] = &[
    "float_zeros",
    "float_ones",
    "float_full",
    "float_empty",
    "any_not_finite",
    "attention_with_log_sums",
    "attention_backward",
];

/// The functions of [`Wgsl`](super::Wgsl) beyond the contract.
macro_rules! extension_names {
    ($(
        $(#[$doc:meta])*
        $name:ident($($arg:ident: $kind:ident),* $(,)?) -> $ret:ident $(as $conversion:ident)?
            = $launch:expr, else $cpu:ident;
    )*) => {
        &[$(stringify!($name)),*]
    };
}

/// The ops with kernels of their own beyond the contract.
pub const EXTENSIONS: &[&str] = extension_contract!(extension_names);
