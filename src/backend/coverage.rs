//! Which op of Burn's contract runs where: read from the tables that make the methods, and printed as the table of
//! `docs/coverage.md`.

use std::fmt::Write;

use super::activation::activation_contract;
use super::boolean::bool_contract;
use super::float::float_contract;
use super::int::int_contract;
use super::module::module_contract;
use super::quantized::quantized_contract;
use crate::kernels::table::{activation_rows, bool_rows, float_rows, int_rows};

/// How an op is computed on a GPU device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// By a kernel, or as a view of the same memory.
    Kernel,
    /// By Burn's own composition of ops that have kernels, or by a method that calls them.
    Composed,
    /// It moves data between host and device, or asks something of a tensor.
    Host,
    /// By the CPU twin.
    Cpu,
}

/// An op of the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Op {
    /// The method's name.
    pub name: &'static str,
    /// How it is computed on a GPU device.
    pub route: Route,
}

/// A trait of the contract.
#[derive(Debug)]
pub struct Part {
    /// The trait's name.
    pub name: &'static str,
    /// What its tensors hold.
    pub holds: Holds,
    /// Its ops, in the contract's tables' order.
    pub ops: Vec<Op>,
}

/// What the tensors of a trait hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holds {
    /// Floats.
    Floats,
    /// Integers.
    Integers,
    /// Reference values.
    Truths,
    /// Quantised floats.
    Quantised,
}

/// The rows of a table of the contract: those with a launch have a kernel.
macro_rules! rows {
    ($($name:ident($($arg:ident: $kind:ident),* $(,)?) -> $ret:ident $(as $types:ident)? $(= $gpu:expr $(, else $twin:expr)?)?;)*) => {
        vec![$(Op {
            name: stringify!($name),
            route: [Route::Cpu, $(rows!(@kernel $gpu))?].last().copied().unwrap_or(Route::Cpu),
        }),*]
    };
    (@kernel $gpu:expr) => {
        Route::Kernel
    };
}

/// The rows of the elementwise table.
macro_rules! elementwise {
    ($kind:ident: $($form:ident $name:ident $wgsl:literal $truth:ident $closure:expr;)*) => {
        vec![$(Op { name: stringify!($name), route: Route::Kernel }),*]
    };
}

fn by(route: Route, names: &'static [&'static str]) -> Vec<Op> {
    names.iter().map(|&name| Op { name, route }).collect()
}

/// The whole contract.
pub fn contract() -> Vec<Part> {
    vec![
        Part {
            name: "FloatTensorOps",
            holds: Holds::Floats,
            ops: [
                float_rows!(elementwise),
                float_contract!(rows),
                by(
                    Route::Composed,
                    &["float_argtopk", "float_random", "float_powi_scalar", "float_powf_scalar"],
                ),
                by(
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
        Part {
            name: "IntTensorOps",
            holds: Holds::Integers,
            ops: [
                int_rows!(elementwise),
                int_contract!(rows),
                by(Route::Composed, &["int_argtopk", "int_random", "int_powi_scalar"]),
                by(Route::Host, &["int_from_data", "int_into_data", "int_device", "int_to_device"]),
            ]
            .concat(),
        },
        Part {
            name: "BoolTensorOps",
            holds: Holds::Truths,
            ops: [
                bool_rows!(elementwise),
                bool_contract!(rows),
                by(Route::Kernel, &["bool_argwhere"]),
                by(
                    Route::Host,
                    &["bool_from_data", "bool_into_data", "bool_device", "bool_to_device"],
                ),
            ]
            .concat(),
        },
        Part {
            name: "ActivationOps",
            holds: Holds::Floats,
            ops: [
                activation_rows!(elementwise),
                activation_contract!(rows),
                by(Route::Composed, &["prelu", "softmin"]),
            ]
            .concat(),
        },
        Part {
            name: "ModuleOps",
            holds: Holds::Floats,
            ops: [
                module_contract!(rows),
                by(
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
                by(Route::Host, &["has_ctc_loss_backward"]),
            ]
            .concat(),
        },
        Part {
            name: "QTensorOps",
            holds: Holds::Quantised,
            ops: [
                quantized_contract!(rows),
                by(
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
                by(Route::Composed, COMPOSED_QUANTISED),
            ]
            .concat(),
        },
        Part {
            name: "TransactionOps",
            holds: Holds::Floats,
            ops: by(Route::Host, &["tr_execute"]),
        },
    ]
}

/// Burn dequantises, computes and, where the result is quantised, quantises.
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

Every op of Burn 0.21's contract on every kind of device. This file is generated from the tables that make the methods, and a test
compares it with them: `BURN_WGSL_BLESS=1 cargo test --test coverage` writes it anew.

- **kernel**: computed on the GPU, or a view of the same memory. Nothing is read back.
- **composed**: Burn's own composition of ops that have kernels, or a method that calls them. Nothing is read back.
- **host**: moves data between host and device, or asks something of a tensor.
- **cpu**: computed by burn-flex. On a GPU device the operands are read back first, which a browser cannot do.

Element types, on a GPU and in browsers:

| types | stored | computed in | GPU | browser |
|---|---|---|---|---|
| f32 | 32 bits | f32 | yes | yes |
| f16, bf16 | 16 bits | f32, rounded to the nearest even at the end of each op | yes | yes |
| i32, u32 | 32 bits | themselves | yes | yes |
| i8, i16, u8, u16 | 32 bits | i32, wrapping to their width at the end of each op | yes | yes |
| i64, u64 | 64 bits | themselves | where the adapter has 64-bit integers, else cpu | as 32 bits; what does not fit is refused |
| f64 | on the host | f64 | cpu | no |
| bool | 32 bits | u32 | yes | yes |
| quantised to 8 bits, one scale or one for each block | 8 bits | f32 | yes | yes |
| quantised otherwise | on the host | f32 | cpu | no |
";

/// The text of `docs/coverage.md`.
pub fn table() -> String {
    let mut out = String::from(INTRODUCTION);
    for part in contract() {
        let types = match part.holds {
            Holds::Floats => "f32, f16, bf16",
            Holds::Integers => "i32, u32, i16, i8, u16, u8; i64 and u64 where the GPU has them",
            Holds::Truths => "bool",
            Holds::Quantised => "quantised to 8 bits",
        };
        let _ = write!(
            out,
            "\n## {}\n\n{} ops, on tensors of {types}.\n\n| op | GPU | browser | CPU |\n|---|---|---|---|\n",
            part.name,
            part.ops.len(),
        );
        for op in part.ops {
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
