use burn::tensor::{Distribution, Tensor};
use burn_wgsl::{Wgsl, WgslDevice};

use crate::{B, fused, results};

/// The software adapter, or the best GPU; `None` without any.
fn gpu() -> Option<WgslDevice> {
    let is_there = |device: &WgslDevice| device.describe().is_ok();
    [WgslDevice::Software, WgslDevice::Gpu(0)].into_iter().find(is_there)
}

#[test]
fn the_kernel_and_its_gradients_are_those_of_the_composed_op() {
    let Some(device) = gpu() else {
        eprintln!("skipped: no GPU");
        return;
    };
    // Below, at and above the edges of tiles.
    for [b, m, n, k] in [[1, 1, 1, 1], [2, 16, 16, 16], [3, 17, 33, 50], [1, 5, 40, 3]] {
        let shapes = [[b, m, k], [b, k, n], [b, m, n]];
        let operands =
            shapes.map(|shape| Tensor::<B, 3>::random(shape, Distribution::Default, &device) - 0.5);
        let found = results(fused::matmul_add_relu, &operands);
        let expected = results(fused::composed, &operands);
        for (index, (found, expected)) in found.into_iter().zip(expected).enumerate() {
            assert_eq!(found.dims(), expected.dims());
            let largest = (found - expected).abs().max().into_scalar();
            assert!(largest < 1e-5, "{largest} in result {index}, {:?}", [b, m, n, k]);
        }
    }
}

#[test]
fn shapes_that_do_not_fit_are_errors() {
    let Some(device) = gpu() else { return };
    let tensor = |shape: [usize; 3]| Tensor::<Wgsl, 3>::zeros(shape, &device);
    let result = fused::forward(&tensor([1, 2, 3]), &tensor([1, 4, 5]), &tensor([1, 2, 5]));
    let message = result.expect_err("3 is not 4").to_string();
    assert!(message.contains("`rhs` has the shape [1, 4, 5]"), "{message}");
    assert!(message.contains("k is 3 in `lhs`"), "{message}");
}
