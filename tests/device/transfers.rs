//! Transfers of any size need little staging memory.
//!
//! The tests run one at a time, because one measures the memory of the process.

use burn::tensor::backend::Backend;
use burn::tensor::{Tensor, TensorData, Transaction};
use burn_wgsl::Wgsl;
use burn_wgsl::device::ResolvedDevice;
use burn_wgsl::runtime::Runtime;

use crate::common::{self, serial_guard};

/// Bytes of a MiB.
const MIB: usize = 1 << 20;

/// Returns the resident memory of this process in bytes, on Linux.
fn resident() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<usize>().ok().map(|kib| kib << 10)
}

/// Returns elements of which every position has another value than its neighbours.
fn ramp(len: usize) -> Vec<f32> {
    (0..len).map(|i| (i % 65_521) as f32).collect()
}

#[test]
fn uploads_do_not_pile_up_before_a_kernel_runs() {
    let _guard = serial_guard();
    for device in common::gpus() {
        let data = TensorData::new(ramp(32 * MIB / 4), [32 * MIB / 4]);
        let upload = || {
            let tensor = Tensor::<Wgsl, 1>::from_data(data.clone(), &device);
            Wgsl::sync(&device).expect("the device works");
            tensor
        };
        drop((upload(), upload()));
        let before = resident();
        for _ in 0..40 {
            drop(upload());
        }
        if let (Some(before), Some(after)) = (before, resident()) {
            let growth = after.saturating_sub(before) / MIB;
            assert!(growth < 200, "40 uploads of 32 MiB grew the process by {growth} MiB");
        }
    }
}

#[test]
fn a_transaction_reads_more_than_the_largest_buffer() {
    let _guard = serial_guard();
    for device in common::gpus() {
        let ResolvedDevice::Adapter(index) = device.resolve().expect("the device exists") else {
            continue;
        };
        let runtime = Runtime::of(index).expect("the device opens");
        let limit = runtime.info().limits.max_buffer_size;
        // On a real GPU this would take more memory than it is worth.
        if limit > 3 << 30 {
            eprintln!("skipped on {device}: its largest buffer has {limit} bytes");
            continue;
        }
        let len = (120 * MIB) / 4;
        let count = limit as usize / (120 * MIB) + 2;
        let tensor = Tensor::<Wgsl, 1>::from_data(TensorData::new(ramp(len), [len]), &device);
        let mut transaction = Transaction::<Wgsl>::default();
        for _ in 0..count {
            transaction = transaction.register(tensor.clone());
        }
        let read = transaction.execute();
        assert_eq!(read.len(), count);
        for data in read {
            let values = data.as_slice::<f32>().expect("the elements are f32");
            for position in [0, 1, 2 * MIB - 1, 2 * MIB, len / 2, len - 1] {
                assert_eq!(values[position], (position % 65_521) as f32);
            }
        }
    }
}

#[test]
fn a_tensor_larger_than_the_largest_binding_is_computed() {
    let _guard = serial_guard();
    for device in common::gpus() {
        let ResolvedDevice::Adapter(index) = device.resolve().expect("the device exists") else {
            continue;
        };
        let runtime = Runtime::of(index).expect("the device opens");
        let bytes = runtime.max_binding() as usize + 32 * MIB;
        if bytes > 256 * MIB {
            eprintln!("skipped on {device}: its largest binding has more than 224 MiB");
            continue;
        }
        let len = bytes / 4;
        let x = Tensor::<Wgsl, 1>::from_data(TensorData::new(ramp(len), [len]), &device);
        let y = x * 2.0 + 1.0;
        assert_eq!(y.clone().max().into_scalar(), 131_041.0);
        let data = y.into_data();
        let values = data.as_slice::<f32>().expect("the elements are f32");
        let expected = |position: usize| ((position % 65_521) * 2 + 1) as f32;
        assert!((0..len).all(|position| values[position] == expected(position)));
    }
}

#[test]
fn every_element_arrives_in_both_directions() {
    let _guard = serial_guard();
    for device in common::gpus() {
        for len in [1, 3, 65_536, 65_537, 2 * MIB + 1, 5 * MIB + 3] {
            let data = TensorData::new(ramp(len), [len]);
            let tensor = Tensor::<Wgsl, 1>::from_data(data.clone(), &device);
            tensor.clone().into_data().assert_eq(&data, true);
            (tensor * 1.0).into_data().assert_eq(&data, true);
        }
    }
}

/// Keeps uploading tensors until that fails, and then uses the device again.
#[test]
#[ignore = "needs a process with little memory: the next test runs it in one"]
fn uploads_until_memory_runs_out() {
    let device = burn_wgsl::WgslDevice::Software;
    let len = 100_000_000 / 4;
    let mut kept = Vec::new();
    let error = loop {
        assert!(kept.len() < 1000, "memory never ran out");
        let upload =
            || Tensor::<Wgsl, 1>::from_data(TensorData::new(vec![1.0f32; len], [len]), &device);
        match std::panic::catch_unwind(upload) {
            Ok(tensor) => kept.push(tensor),
            Err(panic) => break common::failure("", panic),
        }
    };
    println!("after {} tensors: {error}", kept.len());
    kept.clear();
    let sum = Tensor::<Wgsl, 1>::ones([1000], &device).sum().into_scalar();
    println!("afterwards the device computes {sum}");
}

#[cfg(target_os = "linux")]
#[test]
fn running_out_of_memory_is_an_error() {
    let _guard = serial_guard();
    if !common::gpus().contains(&burn_wgsl::WgslDevice::Software) {
        return;
    }
    let child =
        "ulimit -v 4000000; exec \"$0\" --ignored --nocapture uploads_until_memory_runs_out";
    let output = std::process::Command::new("sh")
        .args(["-c", child])
        .arg(std::env::current_exe().expect("this test has a path"))
        // Without memory for a backtrace, the standard library waits for ever for the lock that it holds.
        .env("RUST_BACKTRACE", "0")
        .output()
        .expect("a shell runs");
    let text =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let text = text.concat();
    assert!(output.status.success(), "{:?}: {text}", output.status);
    assert!(text.contains("out of memory"), "{text}");
    assert!(text.contains("afterwards the device computes 1000"), "{text}");
}
