//! Quantisation to 8-bit integers and dequantisation, with one scale per tensor or per block, and
//! products of one row with quantised weights.

use burn::tensor::quantization::{QuantLevel, QuantScheme, QuantStore, QuantValue};
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
    // Compare with `matvec/1x4096x4096`.
    for (bits, value) in [(8, QuantValue::Q8S), (4, QuantValue::Q4S)] {
        let scheme = QuantScheme::default()
            .with_value(value)
            .with_level(QuantLevel::block([32]))
            .with_store(QuantStore::Native);
        let name = format!("quantized/product_q{bits}_block32/1x4096x4096");
        measure(criterion, &name, 2 * 4096 * 4096, |device| {
            let x = random([1, 4096], device);
            let weight = random([4096, 4096], device).quantize_dynamic(&scheme);
            move || x.clone().matmul(weight.clone().dequantize())
        });
    }
}
