//! Lost devices: errors, closing and reopening.
//!
//! These tests run one at a time, because each destroys the device.

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use burn_wgsl::{Wgsl, WgslDevice};

use crate::common::{self, serial_guard};

#[test]
fn reading_from_a_lost_device_is_an_error_and_new_tensors_reopen_it() {
    let _guard = serial_guard();
    for device in common::gpus() {
        let x = Tensor::<Wgsl, 1>::ones([3], &device);
        Wgsl::sync(&device).expect("the device is alive");
        burn_wgsl::close(&device).expect("the device exists");

        let error =
            x.try_into_data().expect_err("the memory of a closed device is lost").to_string();
        assert!(error.contains("lost") && error.contains("opened again"), "{error}");

        let x = Tensor::<Wgsl, 1>::ones([3], &device) * 2.0;
        assert_eq!(x.into_data().to_vec::<f32>().expect("the elements are f32"), [2.0; 3]);
    }
}

#[test]
fn a_device_can_be_closed_and_reopened_repeatedly() {
    let _guard = serial_guard();
    for device in common::gpus() {
        let opened = pollster::block_on(burn_wgsl::open(&device)).expect("the device opens");
        let resolved =
            [&opened, &device].map(|device| device.resolve().expect("the device exists"));
        assert_eq!(resolved[0], resolved[1]);
        let x = Tensor::<Wgsl, 1>::ones([3], &opened);
        burn_wgsl::close(&device).expect("the device exists");
        burn_wgsl::close(&device).expect("closing a closed device is not an error");
        let usage = burn_wgsl::memory::usage(&device).expect("the device exists");
        assert_eq!((usage.in_use, usage.reserved), (0, 0), "usage() must not open {device}");
        pollster::block_on(burn_wgsl::open(&device)).expect("the device reopens");
        x.try_into_data().expect_err("reopening does not restore memory");
        let y = Tensor::<Wgsl, 1>::ones([3], &device) + 1.0;
        assert_eq!(y.into_data().to_vec::<f32>().expect("the elements are f32"), [2.0; 3]);
    }
    assert_eq!(
        pollster::block_on(burn_wgsl::open(&WgslDevice::Cpu)).expect("the CPU device always opens"),
        WgslDevice::Cpu
    );
    burn_wgsl::close(&WgslDevice::Cpu).expect("closing the CPU device does nothing");
}

#[cfg(feature = "train")]
#[test]
fn a_readback_from_a_lost_device_is_ready_with_an_error() {
    use burn_wgsl::train::Readback;

    let _guard = serial_guard();
    for device in common::gpus() {
        let x = Tensor::<Wgsl, 2>::ones([512, 512], &device);
        let readback = Readback::start(x.clone().matmul(x)).expect("the device works");
        burn_wgsl::close(&device).expect("the device exists");
        assert!(readback.is_ready(), "on {device}");
        let error = readback.take().expect_err("its memory is lost").to_string();
        assert!(error.contains("lost"), "{error}");
    }
}

#[cfg(feature = "train")]
#[test]
fn a_device_that_is_lost_in_a_save_leaves_the_checkpoint_before() {
    use burn::nn::{Linear, LinearConfig};
    use burn_wgsl::train::{Parts, Run, RunConfig};

    let _guard = serial_guard();
    let _hidden = common::hide_panics_outside(file!());
    let folder = std::env::temp_dir().join(format!("burn-wgsl-lost-{}", std::process::id()));
    for device in common::gpus() {
        let _ = std::fs::remove_dir_all(&folder);
        let new = || LinearConfig::new(3, 3).init::<Wgsl>(&device);
        let mut layer: Linear<Wgsl> = new();
        let open = || Run::open(&folder, &[device], RunConfig::default());
        let mut run = open().expect("the folder is writable");
        let mut parts = |parts: &mut Parts<'_>| parts.module("layer", &mut layer);
        run.save(&mut parts, None).expect("the device works");
        run.end_step(&mut parts).expect("nothing is saved");
        burn_wgsl::close(&device).expect("the device exists");
        let error = run.save(&mut parts, None).expect_err("its tensors are lost").to_string();
        assert!(error.contains("`layer`") && error.contains("lost"), "{error}");
        drop(run);
        let mut layer = new();
        let mut parts = |parts: &mut Parts<'_>| parts.module("layer", &mut layer);
        let mut run = open().expect("the folder is writable");
        let found = run.resume(&mut parts).expect("it is whole").expect("it is there");
        assert_eq!((found.step, found.damaged.len()), (0, 0));
        assert_eq!(layer.weight.val().into_data().shape.as_slice(), [3, 3]);
    }
    let _ = std::fs::remove_dir_all(&folder);
}
