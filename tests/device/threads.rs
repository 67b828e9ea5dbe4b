//! One device shared by several threads.

use std::sync::mpsc;
use std::thread;

use burn::tensor::{Tensor, TensorData};
use burn_wgsl::Wgsl;

use crate::common;

/// A tensor and the value of all its elements.
type Parcel = (Tensor<Wgsl, 1>, f32);

#[test]
fn eight_threads_compute_read_and_exchange_tensors() {
    let _guard = common::serial_guard();
    const THREADS: usize = 8;
    for device in common::gpus() {
        let (senders, receivers): (Vec<_>, Vec<_>) =
            (0..THREADS).map(|_| mpsc::channel::<Parcel>()).unzip();
        thread::scope(|scope| {
            for (index, receiver) in receivers.into_iter().enumerate() {
                let next = senders[(index + 1) % THREADS].clone();
                let device = &device;
                scope.spawn(move || {
                    for round in 0..40 {
                        let len = 10 + (index * 131 + round * 977) % 4000;
                        let value = (index * 100 + round) as f32;
                        let data = TensorData::new(vec![value; len], [len]);
                        let x = Tensor::<Wgsl, 1>::from_data(data, device);
                        let kept = x.clone();
                        let y = x * 2.0 + kept.clone();
                        drop(kept);
                        // Every other result is read by the next thread.
                        match round % 2 {
                            0 => check(y, value * 3.0),
                            _ => next.send((y, value * 3.0)).expect("the next thread receives"),
                        }
                        while let Ok((tensor, value)) = receiver.try_recv() {
                            check(tensor - 1.0, value - 1.0);
                        }
                    }
                    drop(next);
                    receiver.iter().for_each(|(tensor, value)| check(tensor, value));
                });
            }
            drop(senders);
        });
    }
}

fn check(tensor: Tensor<Wgsl, 1>, value: f32) {
    let values = tensor.into_data().to_vec::<f32>().expect("the elements are f32");
    assert!(
        values.iter().all(|&x| x == value),
        "{value}, not {:?}",
        &values[..3.min(values.len())]
    );
}

#[test]
fn threads_that_need_the_same_new_kernel_compile_it_once() {
    // This test closes the device.
    let _guard = common::serial_guard();
    for device in common::gpus() {
        burn_wgsl::close(&device).expect("the device exists");
        let results: Vec<f32> = thread::scope(|scope| {
            let compute = || {
                let x = Tensor::<Wgsl, 1>::ones([1000], &device);
                (x.cos() * 3.0).sum().into_scalar()
            };
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(compute)).collect();
            threads.into_iter().map(|thread| thread.join().expect("the thread ends")).collect()
        });
        assert!(results.iter().all(|&result| result == results[0]), "{results:?}");
    }
}
