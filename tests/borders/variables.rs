//! Environment variables with wrong values and misspelled names get a message, once.

use burn::tensor::Tensor;
use burn_wgsl::Wgsl;

use crate::common::{assert_success, devices, run_child, test_alone};

#[test]
fn wrong_values_and_names_get_one_message_each() {
    for (name, value, expected) in [
        ("BURN_WGSL_FUSION", "maybe", "BURN_WGSL_FUSION=\"maybe\" is ignored: use 0 or 1"),
        (
            "BURN_WGSL_FUSSION",
            "0",
            "there is no variable BURN_WGSL_FUSSION; did you mean BURN_WGSL_FUSION?",
        ),
        ("BURN_WGSL_CHECKED", "2", "BURN_WGSL_CHECKED=\"2\" is ignored: use 0 or 1"),
        (
            "BURN_WGSL_TIMEOUT",
            "soon",
            "BURN_WGSL_TIMEOUT=\"soon\" is ignored: use a number of seconds",
        ),
        ("BURN_WGSL_TIMEOUT", "-1", "BURN_WGSL_TIMEOUT=\"-1\" is ignored"),
        ("BURN_WGSL_TUNING", "fast", "BURN_WGSL_TUNING=\"fast\" is ignored: use off, cached"),
        ("BURN_WGSL_TILING", "huge", "BURN_WGSL_TILING=\"huge\" is ignored"),
        ("BURN_WGSL_AUTOCAST", "f8", "BURN_WGSL_AUTOCAST=\"f8\" is ignored: use f32, f16 or bf16"),
        ("BURN_WGSL_DEBUG", "ops,all", "BURN_WGSL_DEBUG=\"all\" is ignored: use ops, nan"),
        ("BURN_WGSL_MATRIX_UNITS", "none", "BURN_WGSL_MATRIX_UNITS=\"none\" is ignored"),
    ] {
        let output = run_child(test_alone!("computes_a_product"), &[(name, value)]);
        assert_success(&output);
        let text = String::from_utf8_lossy(&output.stderr);
        let needs_gpu =
            !["BURN_WGSL_FUSSION", "BURN_WGSL_DEBUG", "BURN_WGSL_AUTOCAST"].contains(&name);
        if needs_gpu && devices().len() == 1 {
            continue;
        }
        assert_eq!(text.matches(expected).count(), 1, "{name}={value}: {text}");
        assert_eq!(text.matches("burn-wgsl: ").count(), 1, "{name}={value}: {text}");
    }
}

#[test]
#[ignore = "runs in a child process"]
fn computes_a_product() {
    for device in devices() {
        let x = Tensor::<Wgsl, 2>::ones([64, 64], &device);
        let sum = (x.clone().matmul(x) + 1.0).sum().into_scalar();
        assert_eq!(sum, 64.0 * 64.0 * 65.0);
        burn_wgsl::close(&device).expect("the device exists");
    }
}
