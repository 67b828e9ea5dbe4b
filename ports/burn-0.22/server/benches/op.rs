//! The time of an op on this device and through a server on the same machine:
//! `BURN_WGSL_DEVICE=... cargo bench -p burn-wgsl-server`.
//!
//! Chains of small ops, which end with a readback, and readbacks alone.

use std::time::{Duration, Instant};

use burn_backend::{Backend, Scalar, TensorData};
use burn_remote::{HostSpec, RemoteBackend};
use burn_tch::{LibTorch, LibTorchDevice};
use burn_wgsl_server::{Limits, Rules, Server};

const OPS: usize = 1000;
const TURNS: usize = 21;

/// Returns the time of a number of ops and a readback.
fn chain<B: Backend>(device: &B::Device, ops: usize) -> Duration {
    let x = B::float_from_data(TensorData::from([1.0f32; 8]), device);
    let start = Instant::now();
    let x = (0..ops).fold(x, |x, _| B::float_mul_scalar(x, Scalar::Float(0.99)));
    pollster::block_on(B::float_into_data(x)).expect("readback succeeds");
    start.elapsed()
}

/// Returns the medians of a readback and of an op in a chain, in microseconds.
fn measure<B: Backend>(device: &B::Device) -> [f64; 2] {
    let median = |ops| {
        let mut times: Vec<_> = (0..TURNS).map(|_| chain::<B>(device, ops)).collect();
        times.sort_unstable();
        times[TURNS / 2].as_secs_f64() * 1e6
    };
    let read = median(0);
    [read, (median(OPS) - read) / OPS as f64]
}

fn main() {
    let device = LibTorchDevice::default();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = format!("ws://{}", listener.local_addr().expect("it is bound"));
    let server = Server::new(vec![device], None, Rules::default(), Limits::default());
    std::thread::spawn(move || server.serve(listener));
    let remote = HostSpec::websocket(&address).connect(0).expect("the server is there");
    for _ in 0..2 {
        let [read, op] = measure::<LibTorch>(&device);
        println!("in the program:     readback {read:.0} us, op {op:.2} us");
        let [read, op] = measure::<RemoteBackend>(&remote);
        println!("through the server: readback {read:.0} us, op {op:.2} us");
    }
}
