//! Integers of 8 bits travel to the device as bytes.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use burn::tensor::{DType, Int, Tensor, TensorData};
#[cfg(feature = "train")]
use burn_wgsl::train::Staging;
use burn_wgsl::{Wgsl, WgslDevice};

use crate::common::{Copies, Launches, devices, gpus, runtime_of, serial_guard};

fn image(shape: [usize; 4], device: &WgslDevice) -> Tensor<Wgsl, 4, Int> {
    let bytes: Vec<u8> = (0..shape.iter().product()).map(|i: usize| (i * 37 % 256) as u8).collect();
    Tensor::from_data(TensorData::new(bytes, shape), (device, DType::U8))
}

#[test]
fn images_are_uploaded_as_bytes_and_normalised_in_one_launch() {
    let _guard = serial_guard();
    for device in gpus() {
        let copies = Arc::new(Copies::default());
        let observation = runtime_of(&device).observe(copies.clone());
        let images = image([8, 3, 32, 32], &device);
        assert_eq!(copies.uploaded.load(Ordering::Relaxed), 8 * 3 * 32 * 32);
        drop(observation);
        let launches = Launches::containing("");
        let observation = runtime_of(&device).observe(launches.clone());
        let normalised = images.float() / 255.0 - 0.5;
        let data = normalised.into_data();
        drop(observation);
        assert_eq!(launches.count(), 1, "on {device}");
        let expected = |i: usize| (i * 37 % 256) as f32 / 255.0 - 0.5;
        let values = data.as_slice::<f32>().expect("the elements are f32");
        let is_near = |(i, value): (usize, &f32)| (value - expected(i)).abs() < 1e-6;
        assert!(values.iter().enumerate().all(is_near));
    }
}

/// Each sample is copied when it is pushed, and nothing more when the batch is complete.
#[cfg(feature = "train")]
#[test]
fn a_staged_batch_is_copied_once_by_the_host() {
    let _guard = serial_guard();
    let item = vec![3u8; 3 * 64 * 64];
    let shape = [32, 3, 64, 64];
    let size = shape.iter().product::<usize>() as u64;
    for device in gpus() {
        let copies = Arc::new(Copies::default());
        let observation = runtime_of(&device).observe(copies.clone());
        let copied = || copies.staged.load(Ordering::Relaxed);
        let mut staging = Staging::<u8, 4>::new(shape, &device).expect("there is memory");
        for count in 1..=32 {
            staging.push(&item).expect("the device works");
            assert_eq!(copied(), count * item.len() as u64, "on {device}");
        }
        let images = staging.finish().expect("the device works");
        assert_eq!(
            (copied(), copies.uploaded.load(Ordering::Relaxed)),
            (size, size),
            "on {device}"
        );
        drop(observation);
        assert_eq!(images.float().mean().into_scalar(), 3.0, "on {device}");
    }
}

#[test]
fn bytes_of_any_number_and_layout_are_right() {
    let _guard = serial_guard();
    for device in devices() {
        for width in [1023, 1024, 1025, 1026, 1027, 4099] {
            let unsigned: Vec<u8> = (0..width).map(|i| (i * 101 % 256) as u8).collect();
            let signed: Vec<i8> = unsigned.iter().map(|byte| byte.cast_signed()).collect();
            let of =
                |data: TensorData, dtype| Tensor::<Wgsl, 1, Int>::from_data(data, (&device, dtype));
            let data = TensorData::new(unsigned.clone(), [width]);
            let tensor = of(data.clone(), DType::U8);
            tensor.clone().into_data().assert_eq(&data, true);
            let data = TensorData::new(signed.clone(), [width]);
            of(data.clone(), DType::I8).into_data().assert_eq(&data, true);
            // Views, and as indices.
            let flipped = tensor.clone().flip([0]).into_data();
            let expected: Vec<u8> = unsigned.iter().rev().copied().collect();
            flipped.assert_eq(&TensorData::new(expected, [width]), true);
            let part = tensor.slice_dim(0, 3..1000).unsqueeze_dim::<2>(0).repeat_dim(0, 2);
            let sum: f64 = unsigned[3..1000].iter().map(|&byte| f64::from(byte)).sum();
            let found = part.float().sum_dim(1).into_data();
            assert!(found.iter::<f64>().all(|found| found == sum), "{found} on {device}");
        }
    }
}
