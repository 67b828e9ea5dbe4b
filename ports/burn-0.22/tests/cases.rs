//! burn-wgsl's case list, through the contract of Burn 0.22 and without it: results have the same bytes.

mod through;

use burn_backend_021::{Backend, TensorData};
use burn_wgsl::backend::call::{Value, call};
use burn_wgsl::kernels::cases;
use burn_wgsl::{Wgsl, WgslDevice};
use through::Through;

fn read<B: Backend>(values: Vec<Value<B>>) -> Vec<TensorData> {
    let read = |value: Value<B>| pollster::block_on(value.into_data()).expect("readback succeeds");
    values.into_iter().map(read).collect()
}

fn run<B: Backend<Device = WgslDevice>>(device: &WgslDevice) -> Vec<(String, Vec<TensorData>)> {
    // Some ops are burn-wgsl's own: no contract has them.
    let results = cases().filter_map(|case| {
        B::seed(device, 1);
        let values = call::<B>(case, device, &mut |tensor| tensor)?;
        Some((format!("{case:?}"), read(values)))
    });
    results.collect()
}

#[test]
fn cases_have_the_same_results() {
    for device in [WgslDevice::Software, WgslDevice::Cpu] {
        let [found, expected] = [run::<Through>(&device), run::<Wgsl>(&device)];
        assert!(found.len() > 500, "{} cases", found.len());
        for ((case, found), (_, expected)) in found.iter().zip(&expected) {
            for (found, expected) in found.iter().zip(expected) {
                assert_eq!(found.dtype, expected.dtype, "{case} on {device}");
                assert_eq!(found.shape, expected.shape, "{case} on {device}");
                assert_eq!(found.as_bytes(), expected.as_bytes(), "{case} on {device}");
            }
        }
    }
}
