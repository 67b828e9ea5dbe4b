//! burn-wgsl's case list, through the contract of a release and without it: results have the same
//! bytes.

use burn_backend_021::{Backend, TensorData};
use burn_wgsl::backend::call::{Value, call};
use burn_wgsl::kernels::cases;
use burn_wgsl::kernels::ops::cases::{Arg, Case};
use burn_wgsl::{Wgsl, WgslDevice};

use crate::through::Through;

fn read<B: Backend>(values: Vec<Value<B>>) -> Vec<TensorData> {
    let read = |value: Value<B>| pollster::block_on(value.into_data()).expect("readback succeeds");
    values.into_iter().map(read).collect()
}

/// Returns whether the two versions differ, as `differing.rs` tests: pooling whose last flag,
/// `ceil_mode`, is set.
fn differs(case: &Case) -> bool {
    let last = case.args.iter().rev().find_map(|arg| match arg {
        Arg::Flag(flag) => Some(*flag),
        _ => None,
    });
    case.op.contains("_pool") && last == Some(true)
}

fn run<B: Backend<Device = WgslDevice>>(device: &WgslDevice) -> Vec<(String, Vec<TensorData>)> {
    // Some ops are burn-wgsl's own: no contract has them.
    let results = cases().filter(|case| !differs(case)).filter_map(|case| {
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
        assert_eq!(found.len(), expected.len());
        for ((case, found), (other, expected)) in found.iter().zip(&expected) {
            assert_eq!((case, found.len()), (other, expected.len()));
            for (found, expected) in found.iter().zip(expected) {
                assert_eq!(found.dtype, expected.dtype, "{case} on {device}");
                assert_eq!(found.shape, expected.shape, "{case} on {device}");
                assert_eq!(found.as_bytes(), expected.as_bytes(), "{case} on {device}");
            }
        }
    }
}
