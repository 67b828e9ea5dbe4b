//! Workers whose device fails.

use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::optim::{GradientsParams, Optimizer, SgdConfig};
use burn::tensor::{Distribution, Tensor};
use burn_wgsl::parallel::{self, ParallelError, Workers};
use burn_wgsl::runtime::Fault;
use burn_wgsl::{Autodiff, WgslDevice};

use crate::common::{gpus, runtime_of, serial_guard};

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
