//! The coverage of Burn's contract: complete, documented and tested.

use std::collections::BTreeSet;

use burn_wgsl::backend::coverage::{self, ContractOp, Elements, OpTrait, Route, contract};
use burn_wgsl::kernels;
use burn_wgsl::kernels::ops::table;

/// Returns every op of the contract with the elements of its trait's tensors.
fn ops() -> impl Iterator<Item = (Elements, ContractOp)> {
    let with_elements =
        |methods: OpTrait| methods.ops.into_iter().map(move |op| (methods.elements, op));
    contract().into_iter().flat_map(with_elements)
}

#[test]
fn the_documented_tables_match_the_code() {
    let pages = [("coverage.md", coverage::table()), ("autocast.md", coverage::autocast_table())];
    for (name, table) in pages {
        let path = format!("{}/docs/{name}", env!("CARGO_MANIFEST_DIR"));
        if std::env::var_os("BURN_WGSL_BLESS").is_some() {
            std::fs::write(&path, &table).expect("docs/ is writable");
        }
        let documented = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            documented == table,
            "docs/{name} is out of date; run `BURN_WGSL_BLESS=1 cargo test --test code coverage` and \
             review the changes"
        );
    }
}

/// The number of methods of each trait in Burn 0.21.
#[test]
fn every_method_of_the_contract_is_listed_once() {
    let counts: Vec<(&str, usize)> =
        contract().iter().map(|methods| (methods.name, methods.ops.len())).collect();
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

#[test]
fn no_op_always_falls_back_to_the_cpu() {
    let without_kernel: Vec<&str> =
        ops().filter(|(_, op)| op.route == Route::Cpu).map(|(_, op)| op.name).collect();
    assert!(without_kernel.is_empty(), "{without_kernel:?} have no kernel");
}

/// `tests/kernels/ops.rs` and `tests/kernels/types.rs` check the ops of cases and rows, and that they do not fall
/// back. `tests/kernels/quantized.rs` checks the ops of quantised tensors.
#[test]
fn every_op_with_a_kernel_has_a_case_or_a_row() {
    let mut tested: BTreeSet<&str> = kernels::cases().map(|case| case.op).collect();
    tested.extend(table::ALL.iter().copied().flatten().map(|row| row.name));
    tested.extend(TESTED_ELSEWHERE);
    let untested: Vec<&str> = ops()
        .filter(|(elements, op)| {
            *elements != Elements::Quantised && matches!(op.route, Route::Kernel | Route::Composed)
        })
        .map(|(_, op)| op.name)
        .filter(|name| !tested.contains(name))
        .collect();
    assert!(untested.is_empty(), "no case calls {untested:?}");
}

/// Tested in `tests/training/behaviour.rs`, or by the gradients of their forward ops.
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
