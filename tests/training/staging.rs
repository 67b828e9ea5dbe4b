//! Batches that are put together in memory that the device copies from.

use burn::tensor::{Int, Tensor, TensorData};
use burn_wgsl::train::Staging;
use burn_wgsl::{Wgsl, WgslDevice};
use half::f16;

use crate::common::devices;

/// Puts a tensor together from parts of several sizes.
fn staged(bytes: &[u8], device: &WgslDevice) -> Tensor<Wgsl, 1, Int> {
    let mut staging = Staging::<u8, 1>::new([bytes.len()], device).expect("there is memory");
    let (mut rest, mut part) = (bytes, 1);
    while !rest.is_empty() {
        let (now, later) = rest.split_at(part.min(rest.len()));
        staging.push(now).expect("the device works");
        (rest, part) = (later, part * 7 % 1_000_003 + 1);
    }
    staging.finish().expect("the device works")
}

/// Small ones share an upload; large ones are several pieces.
#[test]
fn a_staged_batch_has_the_elements_of_its_parts() {
    for device in devices() {
        for len in [0, 1, 1000, (256 << 10) + 1, (300 << 10) + 2, (16 << 20) + 3] {
            let bytes: Vec<u8> = (0..len).map(|i: usize| (i * 131 / 7 % 256) as u8).collect();
            let found = staged(&bytes, &device).into_data();
            assert_eq!(found.to_vec::<u8>().expect("it is u8"), bytes, "{len} bytes on {device}");
        }
    }
}

#[test]
fn elements_of_all_types_are_staged() {
    for device in devices() {
        macro_rules! check {
            ($($element:ty: $rank:literal $shape:expr, $from:expr;)*) => {$({
                let shape: [usize; $rank] = $shape;
                let count: usize = shape.iter().product();
                let values: Vec<$element> = (0..count).map($from).collect();
                let mut staging = Staging::new(shape, &device).expect("there is memory");
                values.chunks(1000).try_for_each(|part| staging.push(part)).expect("it works");
                let found = staging.finish().expect("it works").into_data();
                assert_eq!(found, TensorData::new(values, shape), "on {device}");
            })*};
        }
        check! {
            f32: 2 [300, 500], |i| i as f32 - 0.5;
            f16: 1 [200_001], |i| f16::from_f32((i % 2000) as f32);
            i32: 3 [4, 100, 200], |i| -(i as i32);
            u32: 1 [90_000], |i| i as u32 * 40_000;
            i8: 2 [600, 501], |i| i as i8;
            i16: 1 [150_000], |i| (i % 60_000) as i16;
            u16: 1 [10], |i| i as u16;
        }
    }
}

#[test]
fn a_staged_batch_computes_in_a_step() {
    for device in devices() {
        let item: Vec<f32> = (0..1000).map(|i| i as f32).collect();
        let mut staging = Staging::<f32, 2>::new([200, 1000], &device).expect("there is memory");
        // Other work of the device is recorded meanwhile.
        let mut sum = Tensor::<Wgsl, 1>::zeros([1000], &device);
        for _ in 0..200 {
            staging.push(&item).expect("the device works");
            sum = sum + Tensor::from_floats(&item[..], &device);
        }
        let batch = staging.finish().expect("the device works");
        let difference = (batch.sum_dim(0).squeeze_dim::<1>(0) - sum).abs().max();
        assert!(difference.into_scalar() < 1e-2, "on {device}");
    }
}

#[test]
fn workers_stage_batches_at_the_same_time() {
    for device in devices() {
        std::thread::scope(|scope| {
            for worker in 0..6u8 {
                let device = &device;
                scope.spawn(move || {
                    for round in 0..4u8 {
                        let value = worker * 16 + round;
                        let bytes = vec![value; 700 << 10];
                        let found = staged(&bytes, device).float().mean().into_scalar();
                        assert_eq!(found, f32::from(value), "on {device}");
                    }
                });
            }
        });
    }
}

#[test]
fn a_batch_of_another_size_is_an_error() {
    for device in devices() {
        for shape in [[10, 10], [1000, 1000]] {
            let count = shape[0] * shape[1];
            let begin = || Staging::<f32, 2>::new(shape, &device).expect("there is memory");
            let mut staging = begin();
            let error = staging.push(&vec![0.0; count + 1]).expect_err("it is one too many");
            let expected = format!("shape {shape:?} has {count} elements, not {}", count + 1);
            assert!(error.to_string().contains(&expected), "{error}");
            let mut staging = begin();
            staging.push(&vec![0.0; count - 1]).expect("the device works");
            let error = staging.finish().expect_err("one is missing");
            let expected = format!("shape {shape:?} has {count} elements, not {}", count - 1);
            assert!(error.to_string().contains(&expected), "{error}");
            // One that is dropped leaves the device as it was.
            let mut staging = begin();
            staging.push(&vec![1.0; count / 2]).expect("the device works");
            drop(staging);
        }
        let huge = Staging::<f32, 1>::new([usize::MAX / 8], &device);
        assert!(huge.is_err(), "on {device}");
    }
}
