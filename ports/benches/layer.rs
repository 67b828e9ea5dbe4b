//! What the port adds to the host's time of an op: `BURN_WGSL_DEVICE=... cargo bench --bench layer`.
//!
//! The same ops by burn-wgsl's methods and by the port's, in turns.

use std::time::Instant;

use crate::port::{Port, PortDevice, Tensor};
use burn_backend::ops::FloatTensorOps;
use burn_backend::{Backend, FloatDType, Shape, Slice};
use burn_backend_021::ops::FloatTensorOps as _;
use burn_wgsl::{Wgsl, WgslTensor};

/// Ops of a turn, and turns. The first turns warm up.
const OPS: usize = 1000;
const TURNS: usize = 60;
const WARM_UP: usize = 10;

/// Applies an op to its result, again and again. Returns the time of an op in nanoseconds.
fn turn<T>(device: &PortDevice, first: T, op: impl Fn(T) -> T) -> f64 {
    let start = Instant::now();
    let last = (0..OPS).fold(first, |tensor, _| op(tensor));
    let time = start.elapsed().as_secs_f64() * 1e9 / OPS as f64;
    Port::sync(device).expect("the device works");
    drop(last);
    time
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn compare(name: &str, own: impl Fn(WgslTensor) -> WgslTensor, through: impl Fn(Tensor) -> Tensor) {
    let device = PortDevice::default();
    let x = Port::float_ones(Shape::new([16, 16]), &device, FloatDType::F32);
    let mut times = [Vec::new(), Vec::new()];
    for index in 0..TURNS {
        let pair = [turn(&device, x.0.clone(), &own), turn(&device, x.clone(), &through)];
        if index >= WARM_UP {
            times.iter_mut().zip(pair).for_each(|(times, time)| times.push(time));
        }
    }
    let [own, through] = times.map(median);
    let more = through - own;
    println!("{name}: {own:.0} ns an op, through the port {through:.0} ns: {more:.0} ns more");
}

pub fn run() {
    let ones = Port::float_ones(Shape::new([16, 16]), &PortDevice::default(), FloatDType::F32);
    compare(
        "addition of [16, 16]",
        |x| Wgsl::float_add(x, ones.0.clone()),
        |x| Port::float_add(x, ones.clone()),
    );
    let own = [burn_backend_021::Slice::full(), burn_backend_021::Slice::full()];
    let slices = [Slice::full(), Slice::full()];
    compare(
        "slice of all of it",
        |x| Wgsl::float_slice(x, &own),
        |x| Port::float_slice(x, &slices),
    );
    compare(
        "reshape to [256] and back",
        |x| {
            let x = Wgsl::float_reshape(x, burn_backend_021::Shape::new([256]));
            Wgsl::float_reshape(x, burn_backend_021::Shape::new([16, 16]))
        },
        |x| {
            let x = Port::float_reshape(x, Shape::new([256]));
            Port::float_reshape(x, Shape::new([16, 16]))
        },
    );
}
