//! Quantisation to 8-bit integers and dequantisation, with one scale per tensor or per block.

use burn::tensor::quantization::{QuantLevel, QuantScheme, QuantStore};
use burn_wgsl::kernels::quantize::CASES;
use criterion::Criterion;

use crate::measure::{measure, measure_cases, measure_op, random};

const SIDE: usize = 2048;

pub fn benches(criterion: &mut Criterion) {
    measure_cases(criterion, "quantized", CASES);
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
