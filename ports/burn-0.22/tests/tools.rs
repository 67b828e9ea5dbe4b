//! burn-wgsl's own functions, from a program for Burn 0.22.

use burn::prelude::{Device, Tensor};
use burn_tch as port;

/// Calls a macro with the name that the backend has in this release.
macro_rules! with_backend_name {
    ($macro:ident) => {
        $macro!(LibTorch);
    };
}
use with_backend_name;

#[path = "../../tests/tools.rs"]
mod tools;

#[test]
#[allow(deprecated, reason = "Burn 0.22 deprecates LibTorch's names")]
fn the_device_that_programs_for_libtorch_name_is_the_default() {
    let [named, default] = [Device::libtorch(), Device::default()];
    assert_eq!(named, default);
    let sum = Tensor::<1>::ones([3], &named) + Tensor::<1>::ones([3], &default);
    assert_eq!(sum.into_data().try_to_vec::<f32>().expect("floats"), [2.0; 3]);
}
