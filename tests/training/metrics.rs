//! Metrics on the device, and readbacks that are taken later.

use burn::tensor::backend::Backend;
use burn::tensor::{Int, Tensor, TensorData};
use burn_wgsl::train::{Accuracy, Confusion, Mean, Readback};
use burn_wgsl::{Wgsl, WgslDevice, waits_on_thread};

use crate::common::{devices, gpus, serial_guard};

fn labels(values: &[i32], device: &WgslDevice) -> Tensor<Wgsl, 1, Int> {
    Tensor::from_data(TensorData::new(values.to_vec(), [values.len()]), device)
}

/// Scores of 3 classes, of which these are the largest.
fn scores(predicted: &[usize], device: &WgslDevice) -> Tensor<Wgsl, 2> {
    let row = |class: usize| (0..3).map(move |other| if other == class { 2.0 } else { 0.5 });
    let values: Vec<f32> = predicted.iter().flat_map(|&class| row(class)).collect();
    Tensor::from_data(TensorData::new(values, [predicted.len(), 3]), device)
}

#[test]
fn metrics_are_those_of_all_batches() {
    for device in devices() {
        let (mut mean, mut accuracy) = (Mean::new(), Accuracy::new());
        let mut confusion = Confusion::new(3, &device);
        assert!(mean.read().expect("the device works").is_none());
        let batches: [(&[i32], &[usize], f32); 3] =
            [(&[0, 1, 2, 2], &[0, 1, 2, 0], 1.5), (&[1], &[2], 4.0), (&[], &[], f32::NAN)];
        for (truth, predicted, loss) in batches {
            mean.add(Tensor::from_floats([loss], &device), truth.len());
            if truth.is_empty() {
                continue;
            }
            accuracy.add(scores(predicted, &device), labels(truth, &device));
            confusion.add(scores(predicted, &device), labels(truth, &device));
        }
        assert_eq!((mean.samples(), accuracy.samples()), (5, 5));
        let mean_of =
            |mean: &mut Mean| mean.read().expect("the device works").expect("it has values");
        assert_eq!(mean_of(&mut mean).take().expect("as above"), 2.0);
        // A reading begins again.
        mean.add(Tensor::from_floats([7.0], &device), 3);
        assert_eq!(mean_of(&mut mean).take().expect("as above"), 7.0);
        let reading = accuracy.read().expect("the device works").expect("it has samples");
        assert_eq!(reading.take().expect("as above"), 3.0 / 5.0);
        let matrix = confusion.read().expect("the device works").take().expect("as above");
        let counts: Vec<u64> = (0..9).map(|at| matrix.count(at / 3, at % 3)).collect();
        assert_eq!(counts, [1, 0, 0, 0, 1, 1, 1, 0, 1]);
        assert_eq!((matrix.samples(), matrix.classes(), matrix.accuracy()), (5, 3, 0.6));
        let table = matrix.to_string();
        assert!(table.lines().count() == 4 && table.contains("predicted"), "{table}");
    }
}

#[test]
fn a_readback_has_the_values_of_its_start() {
    for device in devices() {
        let x = Tensor::<Wgsl, 2>::ones([300, 40], &device) * 2.0;
        let started = Readback::start(x.clone().transpose()).expect("the device works");
        // What comes later changes nothing, also if it could reuse the memory.
        let mut y = x;
        for _ in 0..10 {
            y = y * 1.5;
        }
        Wgsl::sync(&device).expect("the device works");
        assert!(started.is_ready());
        let waits = waits_on_thread();
        let data = started.take().expect("the device works");
        assert_eq!((data.shape.as_slice(), waits_on_thread()), (&[40, 300][..], waits));
        assert!(data.iter::<f32>().all(|value| value == 2.0));
        let truth = labels(&[1, 2], &device);
        let read =
            |readback: Result<Readback, _>| readback.and_then(Readback::take).expect("as above");
        assert_eq!(read(Readback::start(truth.clone())).iter::<i32>().collect::<Vec<_>>(), [1, 2]);
        let two = read(Readback::start(truth.equal_elem(2))).iter::<bool>().collect::<Vec<_>>();
        assert_eq!(two, [false, true]);
        let empty = Tensor::<Wgsl, 1>::zeros([0], &device);
        assert!(read(Readback::start(empty)).bytes.is_empty());
    }
    for device in gpus() {
        let large = Tensor::<Wgsl, 1>::zeros([(8 << 18) + 1], &device);
        assert!(Readback::start(large).is_err_and(|error| error.to_string().contains("8 MiB")));
    }
}

#[test]
fn a_loop_that_reports_every_20_steps_waits_at_most_5_times_in_100() {
    let _guard = serial_guard();
    for device in gpus() {
        let x = Tensor::<Wgsl, 2>::ones([64, 64], &device);
        let mut weights = x.clone() / 64.0;
        let mut loss = Mean::new();
        let mut reading = None;
        let mut values = Vec::new();
        Wgsl::sync(&device).expect("the device works");
        let waits = waits_on_thread();
        for step in 1..=100 {
            weights = weights.clone() - weights.clone().matmul(x.clone()) / 6400.0;
            loss.add(weights.clone().mean(), 64);
            if step % 20 == 0 {
                let next = loss.read().expect("the device works");
                values.extend(std::mem::replace(&mut reading, next).map(|reading| reading.take()));
            }
        }
        let waits = waits_on_thread() - waits;
        assert!(waits <= 5, "{waits} waits on {device}");
        values.extend(reading.map(|reading| reading.take()));
        let values: Vec<f64> = values.into_iter().map(|value| value.expect("it is read")).collect();
        assert_eq!(values.len(), 5);
        assert!(values.windows(2).all(|pair| pair[1] < pair[0]), "{values:?}");
    }
}
