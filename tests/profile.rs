//! The profiler: right labels and counts, times that mean something, and results that it does not change. In a process of
//! its own, since it records whatever runs on the device.

mod common;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use burn::tensor::backend::Backend;
use burn::tensor::{Tensor, TensorData};
use burn_wgsl::device::ResolvedDevice;
use burn_wgsl::runtime::Runtime;
use burn_wgsl::{Profile, ProfileError, Wgsl, WgslDevice, profile};

/// One profile at a time.
static TURN: Mutex<()> = Mutex::new(());

fn take_turns() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The GPUs of this machine that have timestamps.
fn timed() -> impl Iterator<Item = WgslDevice> {
    let has_timestamps = |device: &WgslDevice| match device.resolve() {
        Ok(ResolvedDevice::Adapter(index)) => {
            Runtime::of(index).expect("it opens").info().features.timestamps
        }
        _ => false,
    };
    common::gpus().into_iter().filter(move |device| {
        let has = has_timestamps(device);
        if !has {
            eprintln!("skipped: {device} has no timestamps");
        }
        has
    })
}

fn numbers(count: usize, device: &WgslDevice) -> Tensor<Wgsl, 1> {
    let values: Vec<f32> = (0..count).map(|i| (i % 97) as f32 / 97.0 - 0.5).collect();
    Tensor::from_data(TensorData::new(values, [count]), device)
}

fn calls(profile: &Profile, name: &str) -> u64 {
    profile.kernels.iter().filter(|kernel| kernel.name == name).map(|kernel| kernel.calls).sum()
}

#[test]
fn kernels_are_counted_by_name_and_have_times() {
    let _turn = take_turns();
    for device in timed() {
        let a = numbers(256 * 256, &device).reshape([256, 256]);
        let work = || {
            let mut x = a.clone();
            for _ in 0..3 {
                x = x.matmul(a.clone());
            }
            x.sum_dim(1).into_data()
        };
        let alone = work();
        let start = Instant::now();
        let (result, profile) = profile(&device, work).expect("it has timestamps");
        let wall = start.elapsed();

        result.assert_eq(&alone, true);
        assert_eq!(calls(&profile, "matmul"), 3, "{profile:?}");
        assert_eq!(calls(&profile, "reduce"), 1, "{profile:?}");
        assert_eq!(profile.calls(), 4, "{profile:?}");
        for kernel in &profile.kernels {
            assert!(
                kernel.time > Duration::ZERO && kernel.variant.starts_with(kernel.name),
                "{kernel:?}"
            );
        }
        // Each matmul needs the one before, so nothing runs side by side.
        assert!(profile.time() < wall, "{profile:?} in {wall:?}");
        assert!(profile.kernels.is_sorted_by(|a, b| a.time >= b.time));
        assert_eq!(profile.kernels[0].name, "matmul", "{profile:?}");
    }
}

#[test]
fn more_dispatches_than_the_query_set_holds_are_all_counted() {
    let _turn = take_turns();
    for device in timed() {
        let add = |times: usize| (0..times).fold(numbers(64, &device), |x, _| x + 1.0);
        let (sum, profile) = profile(&device, || add(1000)).expect("it has timestamps");
        assert_eq!(profile.calls(), 1000);
        assert!(profile.kernels.iter().all(|kernel| kernel.time > Duration::ZERO), "{profile:?}");
        sum.into_data().assert_eq(&add(1000).into_data(), true);
    }
}

#[test]
fn nothing_is_recorded_before_or_after() {
    let _turn = take_turns();
    for device in timed() {
        let _before = numbers(64, &device) * 2.0;
        let (kept, profile) = profile(&device, || ()).expect("it has timestamps");
        let () = kept;
        assert_eq!(profile, Profile::default());
        // A panic inside ends the recording, so that the next profile can be taken.
        let panics = || burn_wgsl::profile(&device, || panic!("on purpose"));
        std::panic::catch_unwind(panics)
            .map(|_: Result<((), Profile), _>| ())
            .expect_err("it panics");
        let _after = numbers(64, &device) * 2.0;
        let again = burn_wgsl::profile(&device, || numbers(64, &device) * 3.0)
            .expect("the last one has ended");
        assert_eq!(again.1.calls(), 1);
    }
}

#[test]
fn what_cannot_be_profiled_says_why() {
    let _turn = take_turns();
    let error = profile(&WgslDevice::Cpu, || ()).expect_err("the CPU runs no kernels");
    assert!(matches!(error, ProfileError::Cpu), "{error}");
    let error = profile(&WgslDevice::Gpu(99), || ()).expect_err("there is none");
    assert!(
        matches!(error, ProfileError::Device(_)) && error.to_string().contains("Devices here"),
        "{error}"
    );
    for device in timed() {
        let (inner, _) =
            profile(&device, || profile(&device, || ())).expect("the outer one is alone");
        assert!(matches!(inner, Err(ProfileError::Busy { .. })), "{inner:?}");
        Wgsl::sync(&device).expect("the device is alive");
    }
}
