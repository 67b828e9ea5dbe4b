//! The search for a batch size within a limit of memory.

use burn::nn::{Linear, LinearConfig};
use burn::optim::{GradientsParams, Optimizer, SgdConfig};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use burn_wgsl::train::BatchSearch;
use burn_wgsl::{Autodiff, Wgsl, memory};

use crate::common::{gpus, serial_guard};

type B = Autodiff<Wgsl>;

#[test]
fn a_batch_that_fits_is_found_and_the_memory_is_as_before() {
    let _guard = serial_guard();
    for device in gpus() {
        let model: Linear<B> = LinearConfig::new(12, 24).init(&device);
        let step = |batch: usize| {
            let x = Tensor::<B, 2>::ones([batch, 12], &device) * 0.5;
            let loss = model.forward(x).tanh().mean();
            let gradients = GradientsParams::from_grads(loss.backward(), &model);
            drop(SgdConfig::new().init::<B, Linear<B>>().step(0.1, model.clone(), gradients));
        };
        // Parameters are created at their first use.
        step(1);
        Wgsl::sync(&device).expect("the device works");
        let before = memory::usage(&device).expect("the device exists").in_use;
        let search = BatchSearch { limit: Some(4 << 20), max: 1 << 15, ..Default::default() };
        let found = search.find(&device, step).expect("a batch of 1 fits");
        let after = memory::usage(&device).expect("the device exists").in_use;
        assert_eq!(after, before, "on {device}: {found}");
        let peak = |batch: usize| memory::measure(&device, || step(batch)).expect("it fits").1.peak;
        let (largest, next) = (found.largest, found.largest + found.largest / 4);
        assert!(peak(largest) <= 4 << 20 && peak(next) > 4 << 20, "on {device}: {found}");
        let fits = found.trials.iter().filter(|trial| trial.speed.is_ok());
        assert!(fits.clone().all(|trial| trial.batch <= largest), "on {device}: {found}");
        assert!(fits.clone().any(|trial| trial.batch == found.fastest), "on {device}: {found}");
        let speed = |batch| {
            fits.clone().find(|trial| trial.batch == batch).map(|trial| trial.speed.clone())
        };
        assert!(fits.clone().all(|trial| speed(found.fastest).unwrap() >= trial.speed));
        assert!(found.to_string().contains("does not fit"), "{found}");
    }
}
