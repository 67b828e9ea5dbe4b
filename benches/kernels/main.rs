//! Speed of every kernel family on every device; of one family: `cargo bench --bench kernels -- '^conv/'`.

use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};

mod attention;
mod cast;
mod conv;
mod copy;
mod create;
mod cross;
mod ctc;
mod deform;
mod depthwise;
mod elementwise;
mod fft;
mod grid_sample;
mod index;
mod index_nd;
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
mod softmax;
mod sort;
mod transpose;

/// Several hundred measurements in some minutes: enough to see what a change does; the command line can ask for more.
fn brief() -> Criterion {
    Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(50))
        .measurement_time(Duration::from_millis(200))
        .nresamples(10_000)
}

criterion_group! {
    name = kernels;
    config = brief();
    targets =
        attention::benches,
        cast::benches,
        conv::benches,
        copy::benches,
        create::benches,
        cross::benches,
        ctc::benches,
        deform::benches,
        depthwise::benches,
        elementwise::benches,
        fft::benches,
        grid_sample::benches,
        index::benches,
        index_nd::benches,
        interpolate::benches,
        matmul::benches,
        matvec::benches,
        norm::benches,
        pool::benches,
        quantized::benches,
        random::benches,
        reduce::benches,
        scan::benches,
        softmax::benches,
        sort::benches,
        transpose::benches,
}
criterion_main!(kernels);
