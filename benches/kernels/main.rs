//! Benchmarks of every kernel family on every device.
//!
//! A filter selects one family: `cargo bench --bench kernels -- '^conv/'`.

use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};

mod argwhere;
mod attention;
mod cast;
mod conv;
mod create;
mod cross;
mod ctc;
mod deform;
mod depthwise;
mod elementwise;
mod fft;
mod gather;
mod gather_nd;
mod gradients;
mod grid_sample;
mod interpolate;
mod matmul;
mod matvec;
mod measure;
mod norm;
mod pool;
mod quantized;
mod random;
mod reduce;
mod scan;
mod scatter;
mod scatter_nd;
mod softmax;
mod sort;
mod transpose;
mod views;

/// Returns a short configuration: several hundred measurements take a few minutes. Command-line
/// options override it.
fn short_config() -> Criterion {
    Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(50))
        .measurement_time(Duration::from_millis(200))
        .nresamples(10_000)
}

criterion_group! {
    name = kernels;
    config = short_config();
    targets =
        argwhere::benches,
        attention::benches,
        cast::benches,
        conv::benches,
        create::benches,
        cross::benches,
        ctc::benches,
        deform::benches,
        depthwise::benches,
        elementwise::benches,
        fft::benches,
        gather::benches,
        gather_nd::benches,
        gradients::benches,
        grid_sample::benches,
        interpolate::benches,
        matmul::benches,
        matvec::benches,
        norm::benches,
        pool::benches,
        quantized::benches,
        random::benches,
        reduce::benches,
        scan::benches,
        scatter::benches,
        scatter_nd::benches,
        softmax::benches,
        sort::benches,
        transpose::benches,
        views::benches,
}
criterion_main!(kernels);
