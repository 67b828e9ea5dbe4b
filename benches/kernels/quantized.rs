//! Floats to 8-bit integers and back, with one scale and with one for each block.

use burn::tensor::quantization::{QuantLevel, QuantScheme, QuantStore};
use burn_wgsl::kernels::quantized::CASES;
use criterion::Criterion;

use crate::measure::{measure, measure_op, random, walk};

const SIDE: usize = 2048;

pub fn benches(criterion: &mut Criterion) {
    walk(criterion, "quantized", CASES);
    for (name, level) in [("tensor", QuantLevel::Tensor), ("block32", QuantLevel::block([32]))] {
        let scheme = QuantScheme::default().with_level(level).with_store(QuantStore::Native);
        let quantize = format!("quantized/quantize_{name}/2048x2048");
        measure_op(criterion, &quantize, SIDE * SIDE, [[SIDE, SIDE]], |[x]| {
            x.quantize_dynamic(&scheme)
        });
        measure(
            criterion,
            &format!("quantized/dequantize_{name}/2048x2048"),
            SIDE * SIDE,
            |device| {
                let x = random([SIDE, SIDE], device).quantize_dynamic(&scheme);
                move || x.clone().dequantize()
            },
        );
    }
}
