//! A device that is lost is an error, and can be opened again. In a process of its own: it takes the device away.

mod common;

use std::sync::Mutex;

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use burn_wgsl::{Wgsl, WgslDevice};

/// Tests take turns: each takes the device away.
static TURN: Mutex<()> = Mutex::new(());

#[test]
fn a_lost_device_is_an_error_and_opens_again() {
    let _turn = TURN.lock();
    for device in common::gpus() {
        let x = Tensor::<Wgsl, 1>::ones([3], &device);
        Wgsl::sync(&device).expect("the device is alive");
        burn_wgsl::close(&device).expect("it is there");

        let error = x.try_into_data().expect_err("its memory is gone").to_string();
        assert!(error.contains("lost") && error.contains("opened again"), "{error}");

        let x = Tensor::<Wgsl, 1>::ones([3], &device) * 2.0;
        assert_eq!(x.into_data().to_vec::<f32>().expect("floats"), [2.0; 3]);
    }
}

#[test]
fn opening_and_closing_can_be_repeated() {
    let _turn = TURN.lock();
    for device in common::gpus() {
        let opened = pollster::block_on(burn_wgsl::open(&device)).expect("it opens");
        assert_eq!(opened.resolve().expect("it is there"), device.resolve().expect("it is there"));
        let x = Tensor::<Wgsl, 1>::ones([3], &opened);
        burn_wgsl::close(&device).expect("it is there");
        burn_wgsl::close(&device).expect("closing what is closed is no error");
        let memory = burn_wgsl::memory(&device).expect("it is there").expect("it is no CPU");
        assert_eq!((memory.in_use, memory.reserved), (0, 0), "asking opens nothing");
        pollster::block_on(burn_wgsl::open(&device)).expect("it opens again");
        x.try_into_data().expect_err("its memory went with the first device");
        let y = Tensor::<Wgsl, 1>::ones([3], &device) + 1.0;
        assert_eq!(y.into_data().to_vec::<f32>().expect("floats"), [2.0; 3]);
    }
    assert_eq!(
        pollster::block_on(burn_wgsl::open(&WgslDevice::Cpu)).expect("always there"),
        WgslDevice::Cpu
    );
    burn_wgsl::close(&WgslDevice::Cpu).expect("nothing to do");
}
