//! What workers copy through the host, workers whose device fails, and workers beside a device that is observed.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::optim::{GradientsParams, Optimizer, SgdConfig};
use burn::tensor::{Distribution, Tensor};
use burn_wgsl::memory;
use burn_wgsl::parallel::{self, ParallelError, Workers};
use burn_wgsl::runtime::Fault;
use burn_wgsl::{Autodiff, WgslDevice, scope};

use crate::common::{Copies, gpus, runtime_of, serial_guard};

type B = Autodiff<burn_wgsl::Wgsl>;

/// Trains on two devices of an adapter. The second fails in the fourth step, if a fault is planned.
fn train(device: WgslDevice, fault: Option<Fault>) -> Result<Vec<f32>, ParallelError> {
    let workers = Workers::threads([device; 2]).oversubscribed(true);
    parallel::run(workers, |worker| {
        let device = worker.device();
        let mut model: Linear<B> = worker.broadcast(LinearConfig::new(300, 200).init(&device))?;
        let mut optimizer = SgdConfig::new().init();
        for step in 0..8 {
            if let (Some(fault), 1, 4) = (fault, worker.rank(), step) {
                runtime_of(&device).plan_fault(fault, 0);
            }
            let x = Tensor::<B, 2>::random([16, 300], Distribution::Default, &device);
            let loss = model.forward(x).powi_scalar(2).mean();
            let gradients = GradientsParams::from_grads(loss.backward(), &model);
            let gradients = worker.mean(gradients, &model, 16)?;
            model = optimizer.step(0.01, model, gradients);
        }
        assert_eq!(model.num_params(), 300 * 200 + 200);
        Ok::<_, ParallelError>(model.weight.val().sum().into_scalar())
    })
}

#[test]
fn a_device_that_fails_ends_all_workers_and_the_next_run_has_another() {
    let _guard = serial_guard();
    for device in gpus() {
        for fault in [Fault::Loss, Fault::Submit, Fault::Map] {
            let Err(error) = train(device, Some(fault)) else { panic!("{fault:?} on {device}") };
            let is_of_second = match &error {
                ParallelError::DeviceFailed { rank, step, .. }
                | ParallelError::Panicked { rank, step, .. } => (*rank, *step) == (1, 4),
                _ => false,
            };
            assert!(is_of_second, "{fault:?} on {device}: {error}");
            let sums = train(device, None).expect("the devices work");
            assert_eq!(sums[0], sums[1], "after {fault:?} on {device}");
        }
    }
}

/// The gradients go to the host and back. Parameters do not.
#[test]
fn a_step_copies_the_gradients_once_each_way() {
    let _guard = serial_guard();
    for device in gpus() {
        let workers = Workers::threads([device; 2]).oversubscribed(true);
        let counts = parallel::run(workers, |worker| {
            let device = worker.device();
            // More than a bucket.
            let layers = || [(1100, 1000), (1000, 30)].map(|(x, y)| LinearConfig::new(x, y));
            let layers = layers().map(|config| config.init::<B>(&device)).to_vec();
            let mut layers: Vec<Linear<B>> = worker.broadcast(layers)?;
            let mut optimizer = SgdConfig::new().init();
            let x = Tensor::<B, 2>::ones([8, 1100], &device);
            let copies = Arc::new(Copies::default());
            let observation = runtime_of(&device).observe(copies.clone());
            const STEPS: u64 = 3;
            for watches in [true, false, true] {
                let used = if watches { worker.watch(&layers, 8)? } else { layers.clone() };
                let y = used.iter().fold(x.clone(), |x, layer| layer.forward(x));
                let gradients = GradientsParams::from_grads(y.mean().backward(), &layers);
                let gradients = worker.mean::<B, _>(gradients, &layers, 8)?;
                layers = optimizer.step(0.1, layers, gradients);
            }
            drop(observation);
            let gradients = layers.num_params() as u64 * 4 * STEPS;
            let [to_host, to_device] =
                [&copies.read_back, &copies.uploaded].map(|bytes| bytes.load(Ordering::Relaxed));
            Ok::<_, ParallelError>((gradients, to_host, to_device))
        });
        for (gradients, to_host, to_device) in counts.expect("they train") {
            // Copies are a multiple of 16 bytes.
            let is_once = |bytes: u64| bytes >= gradients && bytes < gradients + gradients / 1000;
            assert!(is_once(to_host), "{to_host} of {gradients} bytes on {device}");
            assert!(is_once(to_device), "{to_device} of {gradients} bytes on {device}");
        }
    }
}

/// Burn's graph keeps what no backward pass reaches for as long as its operands.
#[test]
fn watched_parameters_that_are_not_used_leave_nothing_in_the_graph() {
    let _guard = serial_guard();
    for device in gpus() {
        let waiting = || memory::report(&device).expect("the device opens").waiting_nodes;
        let before = waiting();
        let workers = Workers::threads([device; 2]).oversubscribed(true);
        let trained = parallel::run(workers, |worker| {
            let device = worker.device();
            let layers = vec![LinearConfig::new(4, 4).init::<B>(&device); 2];
            let layers: Vec<Linear<B>> = worker.broadcast(layers)?;
            for _ in 0..50 {
                let used = worker.watch(&layers, 1)?;
                let y = used[0].forward(Tensor::<B, 2>::ones([1, 4], &device));
                let gradients = GradientsParams::from_grads(y.sum().backward(), &layers);
                worker.mean::<B, _>(gradients, &layers, 1)?;
            }
            // The first layer's, those of the second in two steps of each worker, and what this process had.
            let count = waiting();
            assert!(count <= before + 16, "{count} nodes after {before} on {device}");
            Ok::<_, ParallelError>(())
        });
        trained.expect("they train");
    }
}

/// A recording of one device changes nothing of how others fuse ops.
#[test]
fn scopes_compute_pending_results_of_observed_devices_only() {
    let _guard = serial_guard();
    for device in gpus() {
        let workers = Workers::threads([device; 2]).oversubscribed(true);
        // The second device is the worker's own: nothing else observes it.
        let device = workers.open().expect("the device works")[1];
        let in_use = || memory::usage(&device).expect("the device works").in_use;
        let placed_by_scope = || {
            let before = in_use();
            drop(scope("layer"));
            in_use() - before
        };
        let other = memory::record(&WgslDevice::Cpu).expect("the CPU can be recorded");
        let x = Tensor::<burn_wgsl::Wgsl, 1>::random([1 << 18], Distribution::Default, &device);
        let y = x.clone().exp();
        assert_eq!(placed_by_scope(), 0, "{device}");
        let recording = memory::record(&device).expect("nothing else records it");
        let z = y.clone() + 1.0;
        assert_eq!(placed_by_scope(), 1 << 20, "{device}");
        drop((other, recording, x, y, z));
    }
}
