//! The step `as-gpu` of `cargo xtask test`: the kernel variants that a software adapter does not use by default.

use crate::adapter::required_device;
use crate::options::Options;
use crate::step::Outcome;
use crate::test_modules;

/// The cases of matrix products.
const PRODUCTS: &str = "matmul,linear,conv";

/// The paths of tests, and environment variables.
type Run = (&'static [&'static str], &'static [(&'static str, &'static str)]);

const RUNS: [Run; 11] = [
    // The kernel variants for GPUs. Every chain and many sizes compile kernels of their own; the
    // step `strategies` tries more.
    (
        &[
            "kernels::ops",
            "kernels::attention",
            "kernels::quantized",
            "kernels::chains",
            "kernels::rows",
            "device::indices",
            "sweeps",
        ],
        &[("BURN_WGSL_AS_GPU", "1"), ("PROPTEST_CASES", "30")],
    ),
    // Gradients of pooling, which are fused with what follows, and which are not.
    (
        &["training::gradients"],
        &[("BURN_WGSL_AS_GPU", "1"), ("BURN_WGSL_TEST_CASES", "pool"), ("BURN_WGSL_FUSION", "1")],
    ),
    (
        &["training::gradients"],
        &[("BURN_WGSL_AS_GPU", "1"), ("BURN_WGSL_TEST_CASES", "pool"), ("BURN_WGSL_FUSION", "0")],
    ),
    // GPUs fuse more.
    (
        &[
            "device::fusion::a_training_step_launches_few_kernels",
            "device::fusion::batch_normalisation_launches_few_kernels",
            "training::batch_norm",
            "training::composed_attention",
            "device::fusion::autocast_adds_few_launches",
            "device::fusion::a_graph_of_two_launches_is_two_launches",
            "device::fusion::dropped_launches_run",
            "device::fusion::copies_compute_what_they_copy",
            "device::fusion::attention_computes_its_queries",
        ],
        &[("BURN_WGSL_AS_GPU", "1")],
    ),
    // Ops that are not fused, in the variants that a software adapter uses after warm-up.
    (
        &[
            "kernels::ops",
            "kernels::elementwise",
            "kernels::types",
            "kernels::chains",
            "training::models",
        ],
        &[("BURN_WGSL_WARM", "1"), ("BURN_WGSL_FUSION", "0")],
    ),
    // Larger tiles, which are otherwise used for large products only.
    (
        &["kernels::ops", "kernels::types"],
        &[("BURN_WGSL_TILING", "tiled64x128"), ("BURN_WGSL_TEST_CASES", PRODUCTS)],
    ),
    (
        &["kernels::ops", "kernels::types"],
        &[("BURN_WGSL_TILING", "tiled128"), ("BURN_WGSL_TEST_CASES", PRODUCTS)],
    ),
    // The other tiles without an epilogue, in 16-bit types.
    (&["kernels::types"], &[("BURN_WGSL_TILING", "tiled64"), ("BURN_WGSL_TEST_CASES", "linear")]),
    // The variants without subgroups, as in browsers.
    (&["kernels::ops", "sweeps"], &[("BURN_WGSL_NO_SUBGROUPS", "1"), ("BURN_WGSL_WARM", "1")]),
    (
        &["kernels::types"],
        &[
            ("BURN_WGSL_NO_SUBGROUPS", "1"),
            ("BURN_WGSL_WARM", "1"),
            ("BURN_WGSL_TEST_CASES", "linear"),
        ],
    ),
    // Matrix products, attention and pooling for GPUs, in every element type.
    (
        &["kernels::types"],
        &[("BURN_WGSL_AS_GPU", "1"), ("BURN_WGSL_TEST_CASES", "matmul,linear,conv,attention,pool")],
    ),
];

/// Runs the step.
///
/// # Errors
///
/// Returns an error if a test fails.
pub fn step(options: &Options) -> Result<Outcome, String> {
    if required_device(options) != Some("software") {
        return Ok(Outcome::Skipped("this step needs the software adapter".to_owned()));
    }
    for (paths, variables) in RUNS {
        test_modules::run(options, paths, variables)?;
    }
    Ok(Outcome::Passed)
}
