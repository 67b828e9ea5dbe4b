//! A device that is lost is an error, and can be opened again. In a process of its own: it takes the device away.

mod common;

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use burn_wgsl::Wgsl;
use burn_wgsl::device::Place;
use burn_wgsl::runtime::Runtime;

#[test]
fn a_lost_device_is_an_error_and_opens_again() {
    for device in common::gpus() {
        let Ok(Place::Adapter(adapter)) = device.place() else {
            continue;
        };
        let x = Tensor::<Wgsl, 1>::ones([3], &device);
        Wgsl::sync(&device).expect("the device is alive");
        Runtime::of(adapter).expect("it is open").destroy();

        let error = x.try_into_data().expect_err("its memory is gone").to_string();
        assert!(error.contains("lost") && error.contains("opened again"), "{error}");

        let x = Tensor::<Wgsl, 1>::ones([3], &device) * 2.0;
        assert_eq!(x.into_data().to_vec::<f32>().expect("floats"), [2.0; 3]);
    }
}
