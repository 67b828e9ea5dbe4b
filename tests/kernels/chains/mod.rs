//! Random chains of ops on random shapes and views: GPU results must match the CPU's.
//!
//! - `exact`: whole numbers in floats, and integers up to the extremes. Every result is exact.
//! - `special`: NaN, infinities, signed zeros, subnormal and huge floats, mostly in ops
//!   whose results IEEE 754 fixes.
//! - `smooth`: functions of bounded slope, with the error bound that follows from the slopes.
//!
//! `PROPTEST_CASES=5000` runs more cases. proptest shrinks and prints a failing chain, and adds its
//! seed to `tests/kernels/chains/mod.regressions`. Commit that file: every run starts with its seeds.

mod exact;
mod program;
mod smooth;
mod special;
mod view;

use std::sync::LazyLock;

use burn_backend::tensor::{Float, Int};
use burn_wgsl::WgslDevice;
use exact::Exact;
use program::{Outcome, programs, run};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use smooth::Smooth;
use special::Special;

use crate::common;

static GPUS: LazyLock<Vec<WgslDevice>> = LazyLock::new(common::gpus);

/// Runs 300 cases unless `PROPTEST_CASES` is set.
fn config() -> ProptestConfig {
    let default = ProptestConfig::default();
    let has_cases_variable = std::env::var_os("PROPTEST_CASES").is_some();
    ProptestConfig {
        cases: if has_cases_variable { default.cases } else { 300 },
        max_shrink_time: 60_000,
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..default
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn whole_float_chains_match_the_cpu(program in programs(Exact::ALL)) {
        let step = exact::step::<Float>;
        check(|device| run::<Float, _>(&program, device, exact::whole_float, step))?;
    }

    #[test]
    fn integer_chains_match_the_cpu(program in programs(Exact::ALL)) {
        let step = exact::step::<Int>;
        check(|device| run::<Int, _>(&program, device, exact::integer, step))?;
    }

    #[test]
    fn smooth_chains_match_the_cpu(program in programs(Smooth::ALL)) {
        check(|device| run::<Float, _>(&program, device, smooth::element, smooth::step))?;
    }

    #[test]
    fn special_float_chains_match_the_cpu(program in programs(Special::ALL)) {
        // A GPU may flush subnormal numbers to zero. Elements that depend on it are not compared.
        let flushed = special::run(&program, &WgslDevice::Cpu, true);
        let expected = special::run(&program, &WgslDevice::Cpu, false);
        for device in GPUS.iter() {
            compare(device, &special::run(&program, device, false), &expected, &flushed)?;
        }
    }
}

/// Compares the results of every GPU with those of the CPU.
fn check(run: impl Fn(&WgslDevice) -> Vec<Outcome>) -> Result<(), TestCaseError> {
    let expected = run(&WgslDevice::Cpu);
    GPUS.iter().try_for_each(|device| compare(device, &run(device), &expected, &expected))
}

/// Compares `values` with `expected`, except the elements where `expected` and `flushed` differ.
fn compare(
    device: &WgslDevice,
    values: &[Outcome],
    expected: &[Outcome],
    flushed: &[Outcome],
) -> Result<(), TestCaseError> {
    for ((value, expected), flushed) in values.iter().zip(expected).zip(flushed) {
        let (step, shape) = (expected.step, &expected.data.shape);
        let tolerance = expected.tolerance;
        if common::values_are_ignored() {
            continue;
        }
        prop_assert_eq!(&value.data.shape, shape, "the shape after step {} on {}", step, device);
        let [values, expected, flushed] = [value, expected, flushed]
            .map(|outcome| outcome.data.iter::<f64>().collect::<Vec<_>>());
        for (index, (value, expected)) in values.iter().zip(&expected).enumerate() {
            let depends_on_flushing = !tolerance.holds(flushed[index], *expected);
            prop_assert!(
                depends_on_flushing || tolerance.holds(*value, *expected),
                "after step {step}, element {index} of {shape:?} on {device} is {value:e}, \
                 on the CPU {expected:e}"
            );
        }
    }
    Ok(())
}
