//! Four workers with a device each train a network: their gradients are exchanged in each step.

use std::time::Instant;

use burn::module::Module;
use burn::optim::{AdamConfig, GradientsParams, Optimizer};
use burn::tensor::backend::Backend;
use burn_wgsl::memory::{self, MemoryUsage};
use burn_wgsl::parallel::{self, ParallelError, Worker, Workers};
use burn_wgsl::{Autodiff, Wgsl};

use crate::cnn::{Cnn, Fill, numbers};
use crate::common::{self, serial_guard};
use crate::{GROWTH, PERIODS, minutes, period};

type B = Autodiff<Wgsl>;

const WORKERS: usize = 4;
/// Samples of a worker in a step.
const SAMPLES: usize = 32;
/// Steps between two looks at the clock of the first worker, which all follow.
const STEPS: usize = 20;

/// What a worker saw at the end of a period.
struct Period {
    steps: usize,
    seconds: f64,
    usage: MemoryUsage,
    resident: usize,
}

/// Trains for as long as a period takes on the first worker.
fn train(
    worker: &Worker,
    model: &mut Cnn<B>,
    optimizer: &mut impl Optimizer<Cnn<B>, B>,
) -> Result<Period, ParallelError> {
    let device = worker.device();
    let (start, mut steps) = (Instant::now(), 0);
    loop {
        let mut last = 0.0;
        for step in steps..steps + STEPS {
            let images = numbers(step * WORKERS + worker.rank(), [SAMPLES, 1, 8, 8], &device);
            let labels = images.clone().slice([0..SAMPLES, 0..1, 2..3, 1..4]).flatten(1, 3);
            // Both ways to exchange gradients.
            let used = match step % 2 {
                0 => worker.watch(&*model, SAMPLES)?,
                _ => model.clone(),
            };
            let loss = (used.forward(images) - labels).powi_scalar(2).mean();
            let gradients = GradientsParams::from_grads(loss.backward(), &*model);
            let gradients = worker.mean(gradients, &*model, SAMPLES)?;
            *model = optimizer.step(1e-3, model.clone(), gradients);
            if step + 1 == steps + STEPS {
                last = loss.into_scalar();
            }
        }
        steps += STEPS;
        let ends = worker.is_first() && start.elapsed() >= period();
        let sums = worker.sum(&[f64::from(last), f64::from(u8::from(ends))])?;
        assert!(sums[0].is_finite(), "the loss is {}", sums[0]);
        if sums[1] > 0.0 {
            break;
        }
    }
    assert!(worker.are_equal::<B, _>(&*model)?, "the workers have other weights");
    // A device that fails shows in the results.
    let _ = Wgsl::sync(&device);
    let usage = memory::usage(&device).unwrap_or_default();
    let (seconds, resident) = (start.elapsed().as_secs_f64(), common::resident_bytes());
    Ok(Period { steps, seconds, usage, resident })
}

#[test]
fn four_workers_train_for_long_with_flat_memory() {
    let _guard = serial_guard();
    for device in common::gpus() {
        println!("{device}: {} minutes, {WORKERS} workers", minutes());
        let workers = Workers::threads([device; WORKERS]).oversubscribed(true);
        let all = parallel::run(workers, |worker| {
            let mut model = worker.broadcast(Cnn::<B>::new(&worker.device()).map(&mut Fill(0)))?;
            let mut optimizer = AdamConfig::new().init();
            let periods = (0..PERIODS).map(|_| train(worker, &mut model, &mut optimizer));
            periods.collect::<Result<Vec<_>, _>>()
        });
        let all = all.expect("they train");
        println!("period   steps/s   in use and reserved by each worker's device       process");
        for index in 0..PERIODS {
            let Period { steps, seconds, resident, .. } = &all[0][index];
            let usage = all.iter().map(|periods| {
                let MemoryUsage { in_use, reserved, .. } = periods[index].usage;
                format!("{in_use} {reserved}")
            });
            let (usage, speed) = (usage.collect::<Vec<_>>().join(", "), *steps as f64 / seconds);
            println!("{index:>6} {speed:>9.1}   {usage}   {resident:>13}");
        }
        // The first periods compile kernels and fill the pool.
        for periods in &all {
            let (warm, last) = (&periods[PERIODS / 2 - 1], &periods[PERIODS - 1]);
            assert_eq!(last.usage.in_use, warm.usage.in_use, "bytes in use on {device}");
            assert!(
                last.usage.reserved <= warm.usage.reserved + GROWTH as u64,
                "reserved memory grew from {} to {} on {device}",
                warm.usage.reserved,
                last.usage.reserved
            );
            let grown = last.resident.saturating_sub(warm.resident);
            assert!(grown < GROWTH, "the process grew by {grown} bytes on {device}");
        }
    }
}
