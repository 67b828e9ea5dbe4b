//! Waits for a device that makes no progress end with an error.

use std::time::Instant;

use burn::tensor::Tensor;
use burn_wgsl::Wgsl;
use burn_wgsl::custom::Kernel;

use crate::common::{assert_success, gpus, run_child, test_alone};

/// Takes seconds on the processor of a software adapter.
static SLOW: Kernel = Kernel::new(
    "slow",
    "x: f32[n] -> y: f32[n]",
    "@group(0) @binding(auto) var<storage, read> x: array<f32>;
@group(0) @binding(auto) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= arrayLength(&y)) { return; }
    var sum = x[id.x];
    for (var k = 0u; k < 30000u; k++) { sum = sin(sum) + 1.0; }
    y[id.x] = sum;
}
",
);

#[test]
fn a_wait_without_progress_is_an_error_that_names_the_kernel() {
    assert_success(&run_child(test_alone!("waits_briefly"), &[("BURN_WGSL_TIMEOUT", "0.1")]));
}

#[test]
#[ignore = "runs in a child process"]
fn waits_briefly() {
    // A GPU would finish the kernel in time.
    let Some(device) = gpus().into_iter().find(|device| *device == burn_wgsl::WgslDevice::Software)
    else {
        return;
    };
    const LEN: usize = 1 << 16;
    let x = Tensor::<Wgsl, 1>::ones([LEN], &device);
    let other = (x.clone() + 1.0).into_data();
    let y: Tensor<Wgsl, 1> = SLOW.call(&x, ()).work(1).run(LEN / 64).expect("it is launched");
    let start = Instant::now();
    let error = y.clone().try_into_data().expect_err("the kernel runs for longer").to_string();
    let waited = start.elapsed();
    assert!(error.contains("has made no progress") && error.contains("slow"), "{error}");
    assert!(error.contains("BURN_WGSL_TIMEOUT"), "{error}");
    eprintln!("the wait ended after {waited:?}");
    // The device goes on: when the kernel has finished, its result can be read, and so can others.
    let result = std::iter::repeat_with(|| y.clone().try_into_data()).find_map(Result::ok);
    assert_eq!(result.expect("it finishes").num_elements(), LEN);
    let again = (x + 1.0).into_data();
    assert_eq!(again, other);
}

#[test]
fn a_wait_without_a_limit_takes_as_long_as_the_kernel() {
    assert_success(&run_child(test_alone!("waits_for_ever"), &[("BURN_WGSL_TIMEOUT", "0")]));
}

#[test]
#[ignore = "runs in a child process"]
fn waits_for_ever() {
    for device in gpus() {
        let x = Tensor::<Wgsl, 1>::ones([64], &device);
        let y: Tensor<Wgsl, 1> = SLOW.call(&x, ()).run(1).expect("it is launched");
        assert_eq!(y.into_data().num_elements(), 64);
    }
}

/// Ends when the first element of `x` is greater than 100, which it never is.
static ENDLESS: Kernel = Kernel::new(
    "endless",
    "x: f32[n] -> y: f32[n]",
    "@group(0) @binding(auto) var<storage, read> x: array<f32>;
@group(0) @binding(auto) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(1)
fn main() {
    loop {
        if (x[0] > 100.0) { break; }
        y[0] += 1.0;
    }
}
",
);

#[test]
fn every_wait_for_an_endless_kernel_ends() {
    let variables = [("BURN_WGSL_TIMEOUT", "0.3")];
    assert_success(&run_child(test_alone!("waits_for_an_endless_kernel"), &variables));
}

#[test]
#[ignore = "runs in a child process"]
fn waits_for_an_endless_kernel() {
    // A GPU would be reset.
    let Some(device) = gpus().into_iter().find(|device| *device == burn_wgsl::WgslDevice::Software)
    else {
        return;
    };
    let x = Tensor::<Wgsl, 1>::ones([4], &device);
    let kept = x.clone() + 1.0;
    assert_eq!(kept.clone().into_data().num_elements(), 4);
    let y: Tensor<Wgsl, 1> = ENDLESS.call(&x, ()).run(1).expect("it is launched");
    let start = Instant::now();
    let mut reads = vec![y];
    // More than the submissions that the driver takes.
    reads.extend((0..5).map(|_| kept.clone()));
    for tensor in reads {
        let error = tensor.try_into_data().expect_err("the device is busy").to_string();
        assert!(error.contains("has made no progress"), "{error}");
    }
    eprintln!("the waits ended after {:?}", start.elapsed());
    // The threads of the driver would be waited for.
    std::process::exit(0);
}
