//! The profiler: kernel names, counts and times. It must not change results.
//!
//! These tests have their own process, because a profile records everything that runs on the
//! device. They run one at a time, because only one profile can be recorded at a time.

mod common;

use std::time::{Duration, Instant};

use burn::tensor::backend::Backend;
use burn::tensor::{Tensor, TensorData};
use burn_wgsl::device::ResolvedDevice;
use burn_wgsl::runtime::Runtime;
use burn_wgsl::{Profile, ProfileError, Wgsl, WgslDevice, profile};
use common::serial_guard;

/// Returns the GPUs of this machine that support timestamp queries.
fn gpus_with_timestamps() -> impl Iterator<Item = WgslDevice> {
    let has_timestamps = |device: &WgslDevice| match device.resolve() {
        Ok(ResolvedDevice::Adapter(index)) => {
            Runtime::of(index).expect("the device opens").info().features.timestamps
        }
        _ => false,
    };
    common::gpus().into_iter().filter(move |device| {
        let supported = has_timestamps(device);
        if !supported {
            eprintln!("skipped: {device} has no timestamps");
        }
        supported
    })
}

fn numbers(count: usize, device: &WgslDevice) -> Tensor<Wgsl, 1> {
    let values: Vec<f32> = (0..count).map(|i| (i % 97) as f32 / 97.0 - 0.5).collect();
    Tensor::from_data(TensorData::new(values, [count]), device)
}

/// Returns how often kernels with this name were dispatched.
fn calls(profile: &Profile, name: &str) -> u64 {
    profile.kernels.iter().filter(|kernel| kernel.name == name).map(|kernel| kernel.calls).sum()
}

#[test]
fn profile_counts_and_times_kernels_by_name() {
    let _guard = serial_guard();
    for device in gpus_with_timestamps() {
        let a = numbers(256 * 256, &device).reshape([256, 256]);
        let work = || {
            let mut x = a.clone();
            for _ in 0..3 {
                x = x.matmul(a.clone());
            }
            x.sum_dim(1).into_data()
        };
        let unprofiled = work();
        let start = Instant::now();
        let (result, profile) = profile(&device, work).expect("the device supports timestamps");
        let wall = start.elapsed();

        result.assert_eq(&unprofiled, true);
        assert_eq!(calls(&profile, "matmul"), 3, "{profile:?}");
        assert_eq!(calls(&profile, "reduce"), 1, "{profile:?}");
        assert_eq!(profile.calls(), 4, "{profile:?}");
        for kernel in &profile.kernels {
            assert!(
                kernel.time > Duration::ZERO && kernel.variant.starts_with(kernel.name),
                "{kernel:?}"
            );
        }
        // Each matmul depends on the previous one, so the kernels do not overlap.
        assert!(profile.time() < wall, "{profile:?} in {wall:?}");
        assert!(profile.kernels.is_sorted_by(|a, b| a.time >= b.time));
        assert_eq!(profile.kernels[0].name, "matmul", "{profile:?}");
    }
}

#[test]
fn profile_counts_more_dispatches_than_a_query_set_holds() {
    let _guard = serial_guard();
    for device in gpus_with_timestamps() {
        // One launch for each op.
        burn_wgsl::set_fusion(false);
        let add = |times: usize| (0..times).fold(numbers(64, &device), |x, _| x + 1.0);
        let (sum, profile) =
            profile(&device, || add(1000)).expect("the device supports timestamps");
        assert_eq!(profile.calls(), 1000);
        assert!(profile.kernels.iter().all(|kernel| kernel.time > Duration::ZERO), "{profile:?}");
        sum.into_data().assert_eq(&add(1000).into_data(), true);
        burn_wgsl::set_fusion(true);
    }
}

#[test]
fn profile_records_only_the_ops_of_its_closure() {
    let _guard = serial_guard();
    for device in gpus_with_timestamps() {
        let _before = numbers(64, &device) * 2.0;
        let ((), profile) = profile(&device, || ()).expect("the device supports timestamps");
        assert_eq!(profile, Profile::default());
        // A panic in the closure ends the recording, so that the next profile can start.
        let panics = || burn_wgsl::profile(&device, || panic!("on purpose"));
        std::panic::catch_unwind(panics)
            .map(|_: Result<((), Profile), _>| ())
            .expect_err("the panic of the closure propagates");
        let _after = numbers(64, &device) * 2.0;
        let (_, profile) = burn_wgsl::profile(&device, || numbers(64, &device) * 3.0)
            .expect("the last recording has ended");
        assert_eq!(profile.calls(), 1);
    }
}

#[test]
fn invalid_profile_calls_return_an_error_with_the_reason() {
    let _guard = serial_guard();
    let error = profile(&WgslDevice::Cpu, || ()).expect_err("the CPU runs no kernels");
    assert!(matches!(error, ProfileError::Cpu), "{error}");
    let error = profile(&WgslDevice::Gpu(99), || ()).expect_err("gpu:99 does not exist");
    assert!(
        matches!(error, ProfileError::Device(_)) && error.to_string().contains("Devices here"),
        "{error}"
    );
    for device in gpus_with_timestamps() {
        let (inner, _) = profile(&device, || profile(&device, || ()))
            .expect("no other profile is being recorded");
        assert!(matches!(inner, Err(ProfileError::Busy { .. })), "{inner:?}");
        Wgsl::sync(&device).expect("the device is alive");
    }
}
