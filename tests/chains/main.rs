//! Random chains of ops on random shapes and views: a GPU must give what the CPU gives.
//!
//! - `exact`: whole numbers in floats, and integers up to the extremes. Every result is exact.
//! - `special`: NaN, infinities, signed zeros, subnormal and huge floats through ops that IEEE 754 fixes.
//! - `smooth`: functions of bounded slope, with the bound on the error that follows.
//!
//! `PROPTEST_CASES=5000` searches for longer. A chain that fails is shrunk and shown, and its seed is added to
//! `tests/chains/main.regressions`. That file belongs into the repository: every run begins with the seeds in it.

#[path = "../common/mod.rs"]
mod common;

mod exact;
mod program;
mod smooth;
mod special;
mod view;

use std::sync::LazyLock;

use burn_backend::tensor::{Float, Int};
use burn_wgsl::WgslDevice;
use program::{Outcome, programs, run};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

static GPUS: LazyLock<Vec<WgslDevice>> = LazyLock::new(common::gpus);

/// Few enough for every run of the tests; the environment may ask for more.
fn config() -> ProptestConfig {
    let default = ProptestConfig::default();
    let asked = std::env::var_os("PROPTEST_CASES").is_some();
    ProptestConfig {
        cases: if asked { default.cases } else { 300 },
        max_shrink_time: 60_000,
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..default
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn whole_floats_agree(program in programs(exact::OPS)) {
        agree(|device| run::<Float, _>(&program, device, exact::whole, exact::step::<Float>))?;
    }

    #[test]
    fn integers_agree(program in programs(exact::OPS)) {
        agree(|device| run::<Int, _>(&program, device, exact::integer, exact::step::<Int>))?;
    }

    #[test]
    fn smooth_functions_agree(program in programs(smooth::OPS)) {
        agree(|device| run::<Float, _>(&program, device, smooth::content, smooth::step))?;
    }

    #[test]
    fn special_floats_agree(program in programs(special::OPS)) {
        // A GPU may take subnormal numbers for zero. What depends on that has no one truth and is left out.
        let flushed = special::run(&program, &WgslDevice::Cpu, true);
        let truths = special::run(&program, &WgslDevice::Cpu, false);
        for device in GPUS.iter() {
            compare(device, &special::run(&program, device, false), &truths, &flushed)?;
        }
    }
}

fn agree(run: impl Fn(&WgslDevice) -> Vec<Outcome>) -> Result<(), TestCaseError> {
    let truths = run(&WgslDevice::Cpu);
    GPUS.iter().try_for_each(|device| compare(device, &run(device), &truths, &truths))
}

/// Fails at the first element that differs, of those on which two versions of the truth agree.
fn compare(
    device: &WgslDevice,
    values: &[Outcome],
    truths: &[Outcome],
    others: &[Outcome],
) -> Result<(), TestCaseError> {
    for ((value, truth), other) in values.iter().zip(truths).zip(others) {
        let (step, shape) = (truth.step, &truth.data.shape);
        prop_assert_eq!(&value.data.shape, shape, "the shape after step {} on {}", step, device);
        let [values, truths, others] =
            [value, truth, other].map(|outcome| outcome.data.iter::<f64>().collect::<Vec<_>>());
        for (index, (value, expected)) in values.iter().zip(&truths).enumerate() {
            let settled = truth.tolerance.holds(others[index], *expected);
            prop_assert!(
                !settled || truth.tolerance.holds(*value, *expected),
                "after step {step}, element {index} of {shape:?} on {device} is {value:e}, on the CPU {expected:e}"
            );
        }
    }
    Ok(())
}
