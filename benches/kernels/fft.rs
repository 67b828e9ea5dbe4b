//! Fourier transforms along rows, along columns, and of one long signal.

use burn::tensor::signal::{irfft, rfft};
use burn_wgsl::kernels::fft::CASES;
use criterion::Criterion;

use crate::measure::{measure_cases, measure_op};

pub fn benches(criterion: &mut Criterion) {
    measure_cases(criterion, "fft", CASES);
    for (name, shape, dim) in [
        ("fft/rfft/512x4096", [512, 4096], 1),
        ("fft/rfft_columns/4096x512", [4096, 512], 0),
        ("fft/rfft/1x2^18", [1, 1 << 18], 1),
    ] {
        measure_op(criterion, name, shape.iter().product(), [shape], |[x]| rfft(x, dim, None));
    }
    measure_op(criterion, "fft/irfft/512x4096", 512 * 4096, [[512, 2049]; 2], |[re, im]| {
        irfft(re, im, 1, None)
    });
}
