//! Kernels that a driver refuses: their plain form computes the same, also in later processes.
//!
//! Each test has its own cache folder and runs its steps in separate processes.

use std::path::Path;

use burn::backend::Autodiff;
use burn::tensor::{Tensor, TensorData, activation};
use burn_wgsl::device::ResolvedDevice;
use burn_wgsl::runtime::{Fault, Runtime};
use burn_wgsl::{Wgsl, WgslDevice};

use crate::common::{self, test_alone};

/// Set in the processes of steps.
const STEP_VARIABLE: &str = "BURN_WGSL_TEST_STEP";

/// Runs one of the ignored tests below in a new process, and returns its output.
fn run_step(step: &str, cache: &Path) -> String {
    let output = test_alone!(step)
        .env("BURN_WGSL_CACHE", cache)
        .env(STEP_VARIABLE, "1")
        .output()
        .expect("the test program starts");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{step}: {stderr}");
    stderr + &String::from_utf8_lossy(&output.stdout)
}

fn software() -> Option<WgslDevice> {
    common::devices().into_iter().find(|device| *device == WgslDevice::Software)
}

fn runtime() -> std::sync::Arc<Runtime> {
    match WgslDevice::Software.resolve().expect("the device exists") {
        ResolvedDevice::Adapter(index) => Runtime::of(index).expect("the device opens"),
        ResolvedDevice::Cpu => panic!("the software adapter is not the CPU"),
    }
}

/// Computes a loss and its gradients with products, norms, gathers, reductions and fused ops.
fn compute() -> Vec<f32> {
    let device = &WgslDevice::Software;
    let values = |len: usize| -> Vec<f32> {
        (0..len).map(|i| (i * 7919 % 1009) as f32 / 1009.0 - 0.5).collect()
    };
    let tensor = |shape: [usize; 2]| {
        let data = TensorData::new(values(shape[0] * shape[1]), shape);
        Tensor::<Autodiff<Wgsl>, 2>::from_data(data, device).require_grad()
    };
    let (x, w) = (tensor([96, 64]), tensor([64, 40]));
    let logits = activation::gelu(x.clone().matmul(w.clone())) * 3.0;
    let rows = Tensor::from_data(TensorData::new(vec![5, 90, 5, 7], [4]), device);
    let loss = activation::log_softmax(logits, 1).select(0, rows).sum();
    let gradients = loss.backward();
    let read = |data: TensorData| data.to_vec::<f32>().expect("the elements are f32");
    let mut results = read(loss.into_data());
    for tensor in [&x, &w] {
        results.extend(read(tensor.grad(&gradients).expect("it has a gradient").into_data()));
    }
    results
}

#[test]
fn refused_kernels_are_compiled_in_their_plain_form_from_then_on() {
    let Some(_) = software() else {
        return;
    };
    let cache = std::env::temp_dir().join(format!("burn-wgsl-refusals-{}", std::process::id()));
    let output = run_step("refuse", &cache);
    let refused = |output: &str| -> Vec<String> {
        output.lines().filter_map(|line| Some(line.strip_prefix("refused: ")?.to_owned())).collect()
    };
    let kernels = refused(&output);
    assert!(kernels.len() > 3, "{output}");
    assert!(kernels.iter().any(|name| name.starts_with("matmul-")), "{kernels:?}");
    assert!(output.contains("its plain form is used from now on"), "{output}");
    let later = run_step("compute_later", &cache);
    assert_eq!(refused(&later), kernels);
    assert!(!later.contains("its plain form is used"), "the kernel was tried again: {later}");
    std::fs::remove_dir_all(&cache).expect("the cache folder can be removed");
}

/// A driver that refuses a kernel and loses the device: after the next opening, the kernel runs in
/// its plain form.
#[test]
fn a_kernel_that_loses_the_device_is_plain_after_the_next_opening() {
    let Some(_) = software() else {
        return;
    };
    let cache = std::env::temp_dir().join(format!("burn-wgsl-losses-{}", std::process::id()));
    let output = run_step("lose", &cache);
    assert!(output.contains("the driver refused it, and the device was lost"), "{output}");
    assert!(output.contains("refused: "), "{output}");
    std::fs::remove_dir_all(&cache).expect("the cache folder can be removed");
}

/// Returns whether this process is a step: with `--include-ignored`, it is not, and would write to
/// the user's own cache.
fn is_step() -> bool {
    let is_step = std::env::var_os(STEP_VARIABLE).is_some();
    if is_step {
        let level = "warn".parse().expect("warn is a log level");
        env_logger::Builder::new().filter_level(level).init();
    }
    is_step
}

/// Loses the device at each kernel of a computation.
#[test]
#[ignore = "a step of the tests above"]
fn lose() {
    if !is_step() {
        return;
    }
    let expected = compute();
    for _ in 0..100 {
        burn_wgsl::close(&WgslDevice::Software).expect("the device exists");
        runtime().plan_fault(Fault::RefuseAndLose, 0);
        let results = std::panic::catch_unwind(compute);
        let happened = !runtime().cancel_fault();
        match results {
            Ok(results) => assert_eq!(results, expected),
            Err(_) => assert!(happened, "the computation failed without a refusal"),
        }
        if !happened {
            break;
        }
    }
    burn_wgsl::close(&WgslDevice::Software).expect("the device exists");
    assert_eq!(compute(), expected);
    for kernel in runtime().refusals().stored_names() {
        println!("\nrefused: {kernel}");
    }
}

/// Refuses every kernel of a computation once.
#[test]
#[ignore = "a step of the tests above"]
fn refuse() {
    if !is_step() {
        return;
    }
    let expected = compute();
    for _ in 0..100 {
        burn_wgsl::close(&WgslDevice::Software).expect("the device exists");
        runtime().plan_fault(Fault::Refuse, 0);
        let results = compute();
        let happened = !runtime().cancel_fault();
        assert_eq!(results, expected, "{:?}", runtime().refusals().stored_names());
        if !happened {
            break;
        }
    }
    for kernel in runtime().refusals().stored_names() {
        println!("\nrefused: {kernel}");
    }
}

#[test]
#[ignore = "a step of the tests above"]
fn compute_later() {
    if !is_step() {
        return;
    }
    runtime().plan_fault(Fault::Refuse, 0);
    let results = compute();
    assert!(runtime().cancel_fault(), "a kernel was compiled in its fast form");
    for kernel in runtime().refusals().stored_names() {
        println!("\nrefused: {kernel}");
    }
    assert!(results.iter().all(|value| value.is_finite()), "{results:?}");
}
