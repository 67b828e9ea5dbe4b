//! What the coverage table says, and that it is so.

mod common;

use std::collections::BTreeSet;

use burn_wgsl::backend::coverage::{Holds, Op, Route, contract, table};
use burn_wgsl::kernels::{cases, table as rows};

fn ops() -> impl Iterator<Item = (Holds, Op)> {
    contract().into_iter().flat_map(|part| part.ops.into_iter().map(move |op| (part.holds, op)))
}

#[test]
fn the_table_is_that_of_the_code() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/coverage.md");
    if std::env::var_os("BURN_WGSL_BLESS").is_some() {
        std::fs::write(path, table()).expect("docs can be written");
    }
    let written = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        written == table(),
        "docs/coverage.md is out of date: run BURN_WGSL_BLESS=1 cargo test --test coverage and look at what changed"
    );
}

/// Burn 0.21's contract, whole: as many methods as each of its traits has, none twice.
#[test]
fn the_whole_contract_is_listed() {
    let counts: Vec<(&str, usize)> =
        contract().iter().map(|part| (part.name, part.ops.len())).collect();
    assert_eq!(
        counts,
        [
            ("FloatTensorOps", 124),
            ("IntTensorOps", 104),
            ("BoolTensorOps", 39),
            ("ActivationOps", 14),
            ("ModuleOps", 56),
            ("QTensorOps", 80),
            ("TransactionOps", 1),
        ]
    );
    let names: BTreeSet<&str> = ops().map(|(_, op)| op.name).collect();
    assert_eq!(names.len(), ops().count(), "an op is listed twice");
}

/// Nothing that once had a kernel loses it.
#[test]
fn no_op_is_left_to_the_cpu() {
    let left: Vec<&str> =
        ops().filter(|(_, op)| op.route == Route::Cpu).map(|(_, op)| op.name).collect();
    assert_eq!(left, LEFT);
}

const LEFT: [&str; 0] = [];

/// An op that runs on the GPU has a case or a row, so that tests/ops.rs and tests/types.rs have seen that it does not
/// leave it. Those of quantised tensors are in tests/quantized.rs.
#[test]
fn what_runs_on_the_gpu_is_tested_there() {
    let mut tested: BTreeSet<&str> = cases::all().map(|case| case.op).collect();
    tested.extend(rows::ALL.iter().copied().flatten().map(|row| row.name));
    // Called by other names: in tests/behaviour.rs, or by the gradients of their forward ops.
    tested.extend(TESTED_ELSEWHERE);
    let untested: Vec<&str> = ops()
        .filter(|(holds, op)| {
            *holds != Holds::Quantised && matches!(op.route, Route::Kernel | Route::Composed)
        })
        .map(|(_, op)| op.name)
        .filter(|name| !tested.contains(name))
        .collect();
    assert!(untested.is_empty(), "no case calls {untested:?}");
}

const TESTED_ELSEWHERE: &[&str] = &[
    "float_random",
    "int_random",
    "bool_argwhere",
    "float_argtopk",
    "int_argtopk",
    "avg_pool1d_backward",
    "adaptive_avg_pool1d_backward",
    "max_pool1d_with_indices_backward",
    "max_pool2d_with_indices_backward",
    "ctc_loss_backward",
];
