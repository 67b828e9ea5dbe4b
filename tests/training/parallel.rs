//! Workers with a device each, beside one worker with all of a batch.

use std::any::type_name;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use burn::data::dataloader::batcher::Batcher;
use burn::data::dataset::InMemDataset;
use burn::module::{AutodiffModule, Module, Param, ParamId};
use burn::nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig};
use burn::optim::{AdamWConfig, GradientsParams, Optimizer, SgdConfig};
use burn::tensor::backend::Backend;
use burn::tensor::{Bool, Distribution, Int, Tensor};
use burn_wgsl::parallel::{self, ParallelError, Part, Rest, Worker, Workers};
use burn_wgsl::scaler::{GradScaler, GradScalerConfig};
use burn_wgsl::train::{
    Loader, LoaderConfig, MeanGradients, Position, Sampler, Sequential, Shuffled,
};
use burn_wgsl::{Autodiff, Wgsl, WgslDevice, device};

use crate::cnn::{Cnn, numbers};
use crate::common::{devices, is_alone, run_child, test_alone};
use crate::networks::{Exchanged, Gpt, Mlp, Network, train, worst};

type B = Autodiff<Wgsl>;

/// The devices of this machine, each with several workers, and all of them together.
fn worlds() -> Vec<Vec<WgslDevice>> {
    let devices = devices();
    let mut worlds: Vec<Vec<WgslDevice>> =
        devices.iter().flat_map(|device| [2, 4].map(|workers| vec![*device; workers])).collect();
    if devices.len() > 1 {
        worlds.push(devices);
    }
    worlds
}

fn workers(devices: &[WgslDevice]) -> Workers {
    Workers::threads(devices.iter().copied()).oversubscribed(true)
}

fn cpus(count: usize) -> Workers {
    workers(&vec![WgslDevice::Cpu; count])
}

fn floats<const D: usize>(tensor: Tensor<B, D>) -> Vec<f32> {
    tensor.into_data().to_vec().expect("it is f32")
}

/// Trains one worker with all of each batch, and several with a part each.
fn train_beside_one<N: Network>(devices: &[WgslDevice]) {
    let program = |worker: &Worker| train::<N>(worker, Exchanged::After(1));
    let one = parallel::run(Workers::alone(devices[0]), program).expect("it trains").remove(0);
    let mut after = None;
    for exchanged in [Exchanged::After(1), Exchanged::Watched, Exchanged::After(3)] {
        let all = parallel::run(workers(devices), |worker| train::<N>(worker, exchanged));
        let all = all.expect("they train");
        assert!(all.iter().all(|weights| *weights == all[0]), "equal bits on {devices:?}");
        let after = after.get_or_insert_with(|| all[0].clone());
        assert!(exchanged != Exchanged::Watched || *after == all[0], "on {devices:?}");
        let worst = worst(&one, &all[0]);
        assert!(worst <= 1e-6, "{worst} in {} on {devices:?}", type_name::<N>());
    }
}

#[test]
fn workers_take_the_steps_of_one_with_the_whole_batch() {
    for devices in worlds() {
        train_beside_one::<Cnn<B>>(&devices);
        train_beside_one::<Mlp<B>>(&devices);
        train_beside_one::<Gpt<B>>(&devices);
    }
}

#[test]
fn gradients_of_more_than_a_bucket_are_averaged() {
    for devices in worlds() {
        let world = devices.len();
        let sums = parallel::run(workers(&devices), |worker| {
            let device = worker.device();
            let layer = LinearConfig::new(1100, 1200).init::<B>(&device);
            let layer = worker.broadcast(layer)?;
            let x = Tensor::<B, 2>::ones([1, 1100], &device) * (worker.rank() + 1) as f64;
            let loss = layer.forward(x.clone()).sum();
            let gradients = GradientsParams::from_grads(loss.backward(), &layer);
            // The weights are 1, 2, ...
            let samples = worker.rank() + 1;
            let mut mean = worker.mean(gradients, &layer, samples)?;
            let mean: Tensor<Wgsl, 2> = mean.remove(layer.weight.id).expect("it has gradients");
            let watched = worker.watch(&layer, samples)?;
            let gradients = watched.forward(x).sum().backward();
            let gradients = GradientsParams::from_grads(gradients, &layer);
            let mut again = worker.mean(gradients, &layer, samples)?;
            let again: Tensor<Wgsl, 2> = again.remove(layer.weight.id).expect("it has gradients");
            again.into_data().assert_eq(&mean.to_data(), true);
            let [least, most] = [mean.clone().min(), mean.max()].map(Tensor::into_scalar);
            assert_eq!(least, most);
            Ok::<_, ParallelError>(most)
        });
        let ranks = || (1..=world).map(|rank| rank as f32);
        let expected = ranks().map(|rank| rank * rank).sum::<f32>() / ranks().sum::<f32>();
        for sum in sums.expect("they compute") {
            assert!((sum - expected).abs() < 1e-5, "{sum}, {expected} on {devices:?}");
        }
    }
}

#[test]
fn a_parameter_that_one_worker_does_not_use_has_the_gradients_of_the_others() {
    let results = parallel::run(cpus(2), |worker| {
        let device = worker.device();
        let layer = || LinearConfig::new(2, 1).init::<B>(&device);
        let layers = worker.broadcast(vec![layer(), layer()])?;
        let x = Tensor::<B, 2>::ones([1, 2], &device);
        let mut y = layers[0].forward(x.clone());
        if worker.is_first() {
            y = y + layers[1].forward(x);
        }
        let gradients = GradientsParams::from_grads(y.sum().backward(), &layers);
        let mut mean = worker.mean(gradients, &layers, 1)?;
        let mut gradient = |layer: &Linear<B>| {
            let gradient: Option<Tensor<Wgsl, 2>> = mean.remove(layer.weight.id);
            gradient.expect("it has gradients").into_data().to_vec::<f32>().expect("it is f32")
        };
        Ok::<_, ParallelError>([gradient(&layers[0]), gradient(&layers[1])])
    });
    let results = results.expect("they compute");
    assert_eq!(results[0], results[1]);
    assert_eq!(results[0], [[1.0, 1.0], [0.5, 0.5]]);
}

#[test]
fn a_watched_module_may_have_frozen_and_unused_parameters() {
    for devices in worlds() {
        let results = parallel::run(workers(&devices), |worker| {
            let device = worker.device();
            let layer = || LinearConfig::new(3, 3).with_bias(false).init::<B>(&device);
            let layers = vec![layer(), layer().no_grad(), layer(), layer()];
            let layers = worker.broadcast::<B, _>(layers)?;
            let x = numbers(worker.rank(), [4, 3], &device);
            let loss = |layers: &[Linear<B>]| {
                let y = layers[..3].iter().fold(x.clone(), |x, layer| layer.forward(x));
                y.powi_scalar(2).mean()
            };
            let mut found = Vec::new();
            for watches in [false, true] {
                let used = if watches { worker.watch(&layers, 4)? } else { layers.clone() };
                let gradients = GradientsParams::from_grads(loss(&used).backward(), &layers);
                let mut mean = worker.mean::<B, _>(gradients, &layers, 4)?;
                assert_eq!(mean.len(), 2, "a layer is frozen, and one is not used");
                let mean: Tensor<Wgsl, 2> = mean.remove(layers[0].weight.id).expect("it is there");
                found.push(mean.into_data());
            }
            found[0].assert_eq(&found[1], true);
            Ok::<_, ParallelError>(found.remove(0).to_vec::<f32>().expect("it is f32"))
        });
        let results = results.expect("they compute");
        assert!(results.iter().all(|result| *result == results[0]), "on {devices:?}");
    }
}

/// The first worker is in its backward pass, with more buckets than are under way at a time, while the second ends
/// another one, and does not use all layers.
#[test]
fn a_watched_backward_pass_does_not_wait_for_other_workers() {
    const LAYERS: usize = 12;
    for devices in worlds() {
        let deadline = Duration::from_secs(300);
        let means = parallel::run(workers(&devices).with_deadline(deadline), |worker| {
            let device = worker.device();
            let layer = || LinearConfig::new(1024, 1024).with_bias(false).init::<B>(&device);
            let layers: Vec<Linear<B>> = (0..LAYERS).map(|_| layer()).collect();
            let layers = worker.broadcast::<B, _>(layers)?;
            let x = Tensor::<B, 2>::ones([1, 1024], &device);
            let used = worker.watch(&layers, 1)?;
            let mut count = LAYERS;
            if !worker.is_first() {
                let other = Tensor::<B, 1>::ones([1], &device).require_grad();
                drop((other * 2.0).sum().backward());
                count = 2;
            }
            let y = used[..count].iter().fold(x, |x, layer| layer.forward(x));
            let gradients = GradientsParams::from_grads(y.sum().backward(), &layers);
            let mut mean = worker.mean::<B, _>(gradients, &layers, 1)?;
            assert_eq!(mean.len(), LAYERS, "on {devices:?}");
            let last: Option<Tensor<Wgsl, 2>> = mean.remove(layers[LAYERS - 1].weight.id);
            let last = last.expect("one worker uses it").slice([7..8, 0..1024]).into_data();
            Ok::<_, ParallelError>(last.to_vec::<f32>().expect("it is f32"))
        });
        let means = means.expect("they take the step");
        assert!(means.iter().all(|mean| *mean == means[0]), "on {devices:?}");
    }
}

#[test]
fn without_samples_there_are_no_gradients() {
    for count in [1, 2] {
        for watches in [false, true] {
            let lens = parallel::run(cpus(count), |worker| {
                let device = worker.device();
                let layer = worker.broadcast(LinearConfig::new(3, 2).init::<B>(&device))?;
                let used = if watches { worker.watch(&layer, 0)? } else { layer.clone() };
                let x = Tensor::<B, 2>::full([2, 3], f32::NAN, &device);
                let gradients = used.forward(x).sum().backward();
                let gradients = GradientsParams::from_grads(gradients, &layer);
                Ok::<_, ParallelError>(worker.mean(gradients, &layer, 0)?.len())
            });
            assert_eq!(lens.expect("they compute"), vec![0; count]);
        }
    }
}

#[test]
fn wrong_uses_of_a_watched_module_are_errors() {
    type Wrong = fn(&Worker, &Linear<B>, Linear<B>) -> Result<(), ParallelError>;
    let error = |wrong: Wrong| {
        let result = parallel::run(cpus(2), |worker| {
            let layer = worker.broadcast(LinearConfig::new(3, 2).init(&worker.device()))?;
            let watched = worker.watch(&layer, 2)?;
            wrong(worker, &layer, watched)
        });
        result.expect_err("it is wrong").to_string()
    };
    fn loss(layer: &Linear<B>, device: WgslDevice) -> Tensor<B, 1> {
        layer.forward(Tensor::<B, 2>::ones([2, 3], &device)).sum()
    }
    // Part of the loss does not pass the nodes.
    let both = error(|worker, layer, watched| {
        let device = worker.device();
        let gradients = (loss(layer, device) + loss(&watched, device)).backward();
        let gradients = GradientsParams::from_grads(gradients, layer);
        worker.mean(gradients, layer, 2).map(drop)
    });
    assert!(both.contains("are not those of the watched backward pass"), "{both}");
    let accumulated = error(|worker, layer, watched| {
        let mut sum = MeanGradients::new();
        for _ in 0..2 {
            let gradients = loss(&watched, worker.device()).backward();
            sum.add(layer, GradientsParams::from_grads(gradients, layer), 1);
        }
        worker.mean(sum.take(), layer, 2).map(drop)
    });
    assert!(accumulated.contains("accumulate without it"), "{accumulated}");
    let between = error(|worker, _, _| worker.sum(&[1.0]).map(drop));
    assert!(between.contains("call `Worker::mean` first"), "{between}");
    let samples = error(|worker, layer, watched| {
        let gradients = loss(&watched, worker.device()).backward();
        worker.mean(GradientsParams::from_grads(gradients, layer), layer, 3).map(drop)
    });
    assert!(samples.contains("3 samples have gradients, and 2 are watched"), "{samples}");
    let other = error(|worker, _, watched| {
        let other: Linear<B> = LinearConfig::new(3, 2).init(&worker.device());
        let gradients = loss(&watched, worker.device()).backward();
        worker.mean(GradientsParams::from_grads(gradients, &other), &other, 2).map(drop)
    });
    assert!(other.contains("of another module than the one that is watched"), "{other}");
}

#[test]
fn an_overflow_of_one_worker_skips_the_step_of_all() {
    for devices in worlds() {
        let results = parallel::run(workers(&devices), |worker| {
            let device = worker.device();
            let mut model = worker.broadcast(LinearConfig::new(3, 2).init::<B>(&device))?;
            let scaler: GradScaler = GradScalerConfig::default().init(&device);
            let mut optimizer = scaler.wrap(SgdConfig::new().init()).with_max_norm(1.0);
            for step in 0..4 {
                let x = numbers(step + 10 * worker.rank(), [8, 3], &device);
                let overflows = step == 1 && worker.rank() == worker.world() - 1;
                let x = if overflows { x * f32::INFINITY } else { x };
                let loss = model.forward(x).powi_scalar(2).mean();
                let gradients = scaler.scale(loss).backward();
                let gradients = GradientsParams::from_grads(gradients, &model);
                let gradients = worker.mean(gradients, &model, 8)?;
                model = optimizer.step(0.1, model, gradients);
            }
            let state = scaler.state();
            let scale = (state.scale, state.skipped_steps);
            assert!(worker.are_equal::<B, _>(&model)?, "on {devices:?}");
            let weights = floats(model.weight.val());
            Ok::<_, ParallelError>((scale, weights))
        });
        let results = results.expect("they train");
        assert!(results.iter().all(|result| *result == results[0]), "{results:?} on {devices:?}");
        assert_eq!(results[0].0.1, 1, "one step is skipped on {devices:?}");
        assert!(results[0].1.iter().all(|weight| weight.is_finite()), "on {devices:?}");
    }
}

#[test]
fn unlike_devices_are_kept_equal() {
    for devices in worlds() {
        let all_equal = parallel::run(workers(&devices), |worker| {
            let device = worker.device();
            worker.seed::<B>(3);
            type Model = (Linear<B>, BatchNorm<B>);
            let model: Model =
                (LinearConfig::new(6, 5).init(&device), BatchNormConfig::new(5).init(&device));
            let mut model: Model = worker.broadcast::<B, _>(model)?;
            let mut optimizer = AdamWConfig::new().init();
            for step in 0..100 {
                let x = numbers(step * 8 + worker.rank(), [16, 6], &device);
                let y = model.1.forward(model.0.forward(x).reshape([16, 5]));
                let gradients = (y - 0.5).powi_scalar(2).mean().backward();
                let gradients = GradientsParams::from_grads(gradients, &model);
                let gradients = worker.mean::<B, _>(gradients, &model, 16)?;
                model = optimizer.step(0.01, model, gradients);
                if step % 10 == 9 {
                    // The running statistics are those of each worker's samples.
                    assert!(!worker.are_equal::<B, _>(&model)?, "on {devices:?}");
                    model = worker.keep_equal::<B, _>(model)?;
                    assert!(worker.are_equal::<B, _>(&model)?, "on {devices:?}");
                }
            }
            // The running statistics, too.
            worker.are_equal::<Wgsl, _>(&model.valid())
        });
        assert!(all_equal.expect("they train").into_iter().all(|equal| equal), "{devices:?}");
    }
}

#[test]
fn sums_and_means_are_those_of_all() {
    let results = parallel::run(cpus(3), |worker| {
        let rank = worker.rank() as f64;
        let sums = worker.sum(&[1.0, rank])?;
        let mean = worker.mean_of(rank, worker.rank())?;
        worker.agree("the seed", 7)?;
        Ok::<_, ParallelError>((sums, mean, worker.world()))
    });
    for result in results.expect("they add") {
        assert_eq!(result, (vec![3.0, 3.0], 5.0 / 3.0, 3));
    }
}

/// Returns the parts of all workers, and those workers' samples in a batch.
fn parts(batch: usize, speeds: &[f64], rest: Rest) -> Vec<(Part<Shuffled>, usize)> {
    let parts = parallel::run(cpus(speeds.len()), |worker| {
        worker.balance(speeds[worker.rank()])?;
        let part = worker.part(Shuffled { seed: 5 }, batch, rest)?;
        Ok::<_, ParallelError>((part, worker.batch_size(batch)?))
    });
    parts.expect("they divide")
}

#[test]
fn parts_are_the_batches_of_one_loader() {
    for speeds in [&[1.0; 1][..], &[1.0; 2], &[1.0; 3], &[3.0, 1.0], &[1.0, 100.0, 1.0]] {
        for (len, batch) in [(100, 12), (96, 12), (98, 12), (7, 12), (2, 5)] {
            for rest in [Rest::Uneven, Rest::Drop, Rest::Pad] {
                let parts = parts(batch, speeds, rest);
                assert_eq!(parts.iter().map(|(_, size)| size).sum::<usize>(), batch);
                let whole = Shuffled { seed: 5 }.epoch(len, batch, 3);
                let orders: Vec<Vec<usize>> =
                    parts.iter().map(|(part, size)| part.epoch(len, *size, 3)).collect();
                let steps = |rank: usize| orders[rank].len().div_ceil(parts[rank].1);
                let label = format!("{speeds:?}, {len} of {batch}, {rest:?}");
                assert!((0..parts.len()).all(|rank| steps(rank) == steps(0)), "{label}");
                let mut found = Vec::new();
                for step in 0..steps(0) {
                    for (order, (part, size)) in orders.iter().zip(&parts) {
                        let items = step * size..order.len().min((step + 1) * size);
                        // The places of the rest are apart, but not next to each other.
                        if (step + 1) * batch <= len {
                            assert_eq!(part.place(items.start), found.len(), "{label}");
                        }
                        found.extend_from_slice(&order[items]);
                    }
                }
                let (full, left) = (len - len % batch, len % batch);
                let kept = match rest {
                    Rest::Uneven if left >= parts.len() => len,
                    Rest::Pad if left > 0 => full + batch,
                    _ => full,
                };
                let expected: Vec<usize> = whole.iter().copied().cycle().take(kept).collect();
                assert_eq!(found, expected, "{label}");
            }
        }
    }
}

#[test]
fn measured_speeds_divide_a_batch() {
    for devices in worlds() {
        let sizes = parallel::run(workers(&devices), |worker| {
            let device = worker.device();
            let even = worker.batch_size(64)?;
            // No worker has a speed yet.
            worker.rebalance()?;
            assert_eq!(worker.batch_size(64)?, even);
            let mut layer: Linear<B> = worker.broadcast(LinearConfig::new(8, 8).init(&device))?;
            let mut optimizer = SgdConfig::new().init();
            for step in 0..6 {
                let samples = worker.batch_size(64)?;
                let x = numbers(step, [samples, 8], &device);
                let loss = layer.forward(x).powi_scalar(2).mean();
                let gradients = GradientsParams::from_grads(loss.backward(), &layer);
                let gradients = worker.mean(gradients, &layer, samples)?;
                layer = optimizer.step(0.1, layer, gradients);
                if step % 2 == 1 {
                    worker.rebalance()?;
                }
            }
            Ok::<_, ParallelError>((worker.batch_size(64)?, worker.range(1000)))
        });
        let sizes = sizes.expect("they train");
        assert_eq!(sizes.iter().map(|(size, _)| size).sum::<usize>(), 64, "{sizes:?}");
        let mut end = 0;
        for (size, range) in &sizes {
            assert!(*size > 0 && range.start == end, "{sizes:?}");
            end = range.end;
        }
        assert_eq!(end, 1000);
    }
}

/// A sampler with more or fewer items than the dataset.
#[derive(Clone)]
struct Draws(usize);

impl Sampler for Draws {
    fn epoch(&self, len: usize, _: usize, epoch: u64) -> Vec<usize> {
        (0..self.0).map(|draw| (draw * 7 + epoch as usize) % len).collect()
    }

    fn part(&self, _: std::ops::Range<usize>) -> Arc<dyn Sampler> {
        Arc::new(self.clone())
    }
}

#[test]
fn a_position_is_that_of_any_number_of_workers() {
    const BATCH: usize = 12;
    for (dataset, items) in [(103, 103), (100, 400), (200, 97), (200, 103), (60, 60)] {
        for rest in [Rest::Uneven, Rest::Drop, Rest::Pad] {
            let world = |count| {
                let parts = parallel::run(cpus(count), |worker| {
                    let part = worker.part(Draws(items), BATCH, rest)?;
                    Ok::<_, ParallelError>((part, worker.batch_size(BATCH)?))
                });
                parts.expect("they divide")
            };
            let worlds: Vec<_> = [1, 2, 4].into_iter().map(world).collect();
            for from in &worlds {
                let (part, size) = &from[0];
                let order = part.epoch(dataset, *size, 2);
                for taken in (0..order.len()).step_by(*size).chain([order.len()]) {
                    let own =
                        Position { seed: 0, epoch: 2, items: taken, dataset, batch_size: *size };
                    let saved = part.to_all(own);
                    let label = format!("{items} of {dataset}, {rest:?}, {saved:?}");
                    for (other, size) in worlds.iter().flatten() {
                        let resumed = other.of_all(saved).expect("the batch is the same");
                        let end = other.epoch(dataset, *size, 2).len();
                        assert_eq!(resumed.batch_size, *size);
                        let left = items % BATCH;
                        if rest == Rest::Uneven
                            && (1..4).contains(&left)
                            && saved.items + BATCH > items
                        {
                            // Some workers leave them out, and are at the end before.
                            assert!(resumed.items <= end, "{label}");
                            continue;
                        }
                        assert_eq!(resumed.items == end, taken == order.len(), "{label}");
                        let steps = resumed.items.div_ceil(*size);
                        assert_eq!(steps, taken.div_ceil(own.batch_size), "{label}");
                        assert_eq!(other.to_all(resumed), saved, "{label}");
                    }
                }
            }
            let other = Position { seed: 0, epoch: 0, items: 48, dataset, batch_size: 48 };
            let error = worlds[0][0].0.of_all(other).expect_err("the batch is another");
            assert!(error.to_string().contains("batches of 48"), "{error}");
        }
    }
}

#[derive(Module, Debug)]
struct Kinds<B: Backend> {
    counts: Param<Tensor<B, 1, Int>>,
    mask: Param<Tensor<B, 1, Bool>>,
}

#[test]
fn integers_and_booleans_are_those_of_the_first_worker() {
    for devices in worlds() {
        let found = parallel::run(workers(&devices), |worker| {
            let (device, rank) = (worker.device(), worker.rank() as i32);
            let counts = Tensor::<Wgsl, 1, Int>::from_ints([rank, rank + 5], &device);
            let mask = counts.clone().equal_elem(rank + 5).bool_xor(counts.clone().equal_elem(1));
            let (counts, mask) = (
                Param::initialized(ParamId::new(), counts),
                Param::initialized(ParamId::new(), mask),
            );
            let kinds = worker.broadcast(Kinds { counts, mask })?;
            let (counts, mask) = (kinds.counts.val().into_data(), kinds.mask.val().into_data());
            Ok::<_, ParallelError>((
                counts.iter::<i32>().collect::<Vec<_>>(),
                mask.iter::<bool>().collect::<Vec<_>>(),
            ))
        });
        for kinds in found.expect("they are sent") {
            assert_eq!(kinds, (vec![0, 5], vec![false, true]), "on {devices:?}");
        }
    }
}

/// Runs workers of which one does something wrong. Returns the error of the run.
fn failed(
    workers: Workers,
    wrong: impl Fn(&Worker, usize) -> Result<bool, String> + Sync,
) -> ParallelError {
    let result = parallel::run(workers, |worker| {
        let layer: Linear<B> = LinearConfig::new(2, 1).init(&worker.device());
        for step in 0..6 {
            if wrong(worker, step)? {
                return Ok(());
            }
            let loss = layer.forward(Tensor::<B, 2>::ones([1, 2], &worker.device())).sum();
            let gradients = GradientsParams::from_grads(loss.backward(), &layer);
            let mean = worker.mean::<B, _>(gradients, &layer, 1);
            mean.map_err(|error| error.to_string())?;
        }
        Ok::<_, String>(())
    });
    result.expect_err("a worker fails")
}

#[test]
fn a_worker_that_fails_ends_all_with_its_error() {
    let is_second = |worker: &Worker, step| worker.rank() == 1 && step == 3;
    let error = failed(cpus(3), |worker, step| match is_second(worker, step) {
        true => Err("the disk is full".to_owned()),
        false => Ok(false),
    });
    assert_eq!(error.to_string(), "worker 1 failed in step 3: the disk is full");
    let error = failed(cpus(3), |worker, step| {
        assert!(!is_second(worker, step), "on purpose");
        Ok(false)
    });
    assert_eq!(error.to_string(), "worker 1 panicked in step 3: on purpose");
    let error = failed(cpus(3), |worker, step| Ok(is_second(worker, step)));
    assert!(matches!(error, ParallelError::Ended { rank: 1, steps: 3, step: 3, .. }), "{error}");
    assert!(error.to_string().contains("same number of steps"), "{error}");
    // The second worker waits until another has the error of the deadline.
    let (has_error, fails) =
        (Arc::new((Mutex::new(false), Condvar::new())), AtomicBool::new(false));
    let error = parallel::run(cpus(3).with_deadline(Duration::from_secs(3)), |worker| {
        worker.sum(&[1.0])?;
        let (flag, changed) = &*has_error;
        if worker.rank() == 1 {
            let mut flag = flag.lock().expect("no holder panics");
            while !*flag {
                flag = changed.wait(flag).expect("no holder panics");
            }
        }
        let sum = worker.sum(&[1.0]);
        *flag.lock().expect("no holder panics") = true;
        changed.notify_all();
        fails.fetch_or(sum.is_err(), Ordering::Relaxed);
        sum
    });
    let error = error.expect_err("a worker hangs");
    assert!(matches!(&error, ParallelError::Overdue { missing, .. } if *missing == [1]), "{error}");
    assert!(fails.into_inner());
    let error = failed(cpus(2), |worker, step| match is_second(worker, step) {
        true => worker.agree("x", 1).map(|()| false).map_err(|error| error.to_string()),
        false => Ok(false),
    });
    assert!(error.to_string().contains("differ in what they exchange"), "{error}");
    // Alone, too.
    let error = failed(cpus(1), |_, step| match step {
        2 => Err("no data".to_owned()),
        _ => Ok(false),
    });
    assert_eq!(error.to_string(), "worker 0 failed in step 2: no data");
}

#[test]
fn workers_that_differ_are_named() {
    let error = parallel::run(cpus(3), |worker| {
        worker.agree("the length of the data", if worker.rank() == 2 { 90 } else { 100 })
    });
    let error = error.expect_err("one differs");
    assert!(matches!(error, ParallelError::Disagree { .. }), "{error:?}");
    let error = error.to_string();
    assert!(error.contains("differ in the length of the data"), "{error}");
    assert!(error.contains("the workers 0, 1 with 100, worker 2 with 90"), "{error}");
    let error = parallel::run(cpus(2), |worker| {
        let width = 3 + worker.rank();
        worker.broadcast(LinearConfig::new(width, 2).init::<B>(&worker.device())).map(drop)
    });
    let error = error.expect_err("the shapes differ").to_string();
    assert!(error.contains("2 tensors with 8 numbers"), "{error}");
}

#[test]
fn wrong_workers_are_errors() {
    let start = |workers: Workers| {
        let started = parallel::run(workers, |_| Ok::<_, ParallelError>(()));
        started.expect_err("they cannot start").to_string()
    };
    assert!(start(Workers::threads([])).contains("name at least one"));
    let twice = start(Workers::threads([WgslDevice::Cpu; 2]));
    assert!(twice.contains("cpu is listed twice") && twice.contains("--oversubscribe"), "{twice}");
    let none = start(Workers::threads([WgslDevice::Cpu, WgslDevice::Gpu(99)]));
    assert!(none.starts_with("the device of worker 1: "), "{none}");
    assert!(start(cpus(1).with_deadline(Duration::ZERO)).contains("deadline of 0"));
    let unlimited =
        parallel::run(cpus(2).with_deadline(Duration::MAX), |worker| worker.sum(&[1.0]));
    assert_eq!(unlimited.expect("they add"), [[2.0], [2.0]]);
    assert_eq!("cpu".parse::<Workers>().expect("it is valid"), Workers::alone(WgslDevice::Cpu));
    assert!("cpu,banana".parse::<Workers>().is_err());
    let small = parallel::run(cpus(3), |worker| worker.batch_size(2)).expect_err("it is too small");
    assert!(matches!(small, ParallelError::SmallBatch { batch: 2, workers: 3 }), "{small:?}");
    assert!(small.to_string().contains("fewer workers"), "{small}");
    let speed = parallel::run(cpus(2), |worker| worker.balance(worker.rank() as f64));
    let speed = speed.expect_err("a speed is 0").to_string();
    assert!(speed.contains("the speed of worker 0 is 0"), "{speed}");
    let part = parallel::run(cpus(2), |worker| {
        let part = worker.part(Sequential, 10, Rest::Drop)?;
        Ok::<_, ParallelError>(part.epoch(100, 10, 0))
    });
    let part = part.expect_err("the loader's batch is another").to_string();
    assert!(part.contains("worker.batch_size(10)"), "{part}");
}

/// Modules, records and loaders without a device of their own are on that of the worker.
#[test]
fn the_default_device_is_that_of_the_worker() {
    for devices in worlds() {
        let found = parallel::run(workers(&devices), |worker| {
            let device = WgslDevice::default();
            let layer: Linear<Wgsl> = LinearConfig::new(2, 2).init(&device);
            let items = InMemDataset::new(vec![1.0f32; 10]);
            let loader = Loader::new(items, Floats, &device, LoaderConfig::new(4));
            let loader = loader.map_err(|error| error.to_string())?;
            for batch in loader.batches() {
                let batch = batch.map_err(|error| error.to_string())?;
                assert_eq!(batch.device(), worker.device());
            }
            Ok::<_, String>((layer.weight.val().device(), worker.device()))
        });
        for (found, expected) in found.expect("they run") {
            assert_eq!(found, expected);
        }
    }
    // The guard of a thread, inside and outside of it.
    let outside = WgslDevice::default().canonical();
    let inside = device::use_on_thread(WgslDevice::Cpu).expect("the CPU is there");
    assert_eq!(WgslDevice::default(), WgslDevice::Cpu);
    {
        let _again = device::use_on_thread(outside).expect("the device is there");
        assert_eq!(WgslDevice::default().canonical(), outside);
    }
    assert_eq!(WgslDevice::default(), WgslDevice::Cpu);
    drop(inside);
    assert_eq!(WgslDevice::default().canonical(), outside);
    assert!(device::use_on_thread(WgslDevice::Gpu(99)).is_err());
    assert!(device::set_default(WgslDevice::Gpu(99)).is_err());
}

struct Floats;

impl Batcher<Wgsl, f32, Tensor<Wgsl, 1>> for Floats {
    fn batch(&self, items: Vec<f32>, device: &WgslDevice) -> Tensor<Wgsl, 1> {
        Tensor::from_floats(&items[..], device)
    }
}

/// In a process of its own: others use the default device, too.
#[test]
fn the_default_device_can_be_set() {
    if !is_alone(test_alone!("the_default_device_can_be_set")) {
        return;
    }
    for device in devices() {
        device::set_default(device).expect("the device is there");
        let x = Tensor::<Wgsl, 1>::ones([1], &WgslDevice::Auto);
        assert_eq!(x.device(), device);
        let other = std::thread::spawn(|| WgslDevice::default().canonical());
        assert_eq!(other.join().expect("it does not panic"), device);
    }
    device::set_default(WgslDevice::Auto).expect("it is always there");
}

/// A thread cannot be stopped: the process ends.
#[test]
fn a_worker_that_hangs_ends_the_process() {
    let start = Instant::now();
    let output = run_child(test_alone!("hangs"), &[("RUST_BACKTRACE", "0")]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("has waited 1s for worker 1 with a sum"), "{error}");
    assert!(error.contains("the process ends, because workers do not: [1]"), "{error}");
    assert!(start.elapsed() < Duration::from_secs(60), "it ended");
}

#[test]
#[ignore = "runs in a child process"]
fn hangs() {
    let _ = parallel::run(cpus(2).with_deadline(Duration::from_secs(1)), |worker| {
        while worker.rank() == 1 {
            std::thread::sleep(Duration::from_secs(1));
        }
        worker.sum(&[1.0])
    });
}

/// Workers' devices stay open for the next run.
#[test]
fn runs_follow_each_other_on_the_same_devices() {
    for devices in worlds() {
        let run = || {
            let found = parallel::run(workers(&devices), |worker| {
                let x = Tensor::<Wgsl, 2>::ones([8, 8], &worker.device());
                let sum = worker.sum(&[f64::from(x.sum().into_scalar())])?;
                Ok::<_, ParallelError>((worker.device(), sum))
            });
            found.expect("they add")
        };
        let first = run();
        assert!(first.iter().all(|(_, sum)| *sum == [64.0 * devices.len() as f64]));
        assert_eq!(run(), first);
    }
}

/// Workers that share a device draw from streams of their own, in any order of their threads. In a process of its own:
/// other tests draw from the first stream of a device, too.
#[test]
fn seeded_workers_repeat_their_random_numbers() {
    if !is_alone(test_alone!("seeded_workers_repeat_their_random_numbers")) {
        return;
    }
    for devices in worlds() {
        let draw = || {
            let drawn = parallel::run(workers(&devices), |worker| {
                worker.seed::<Wgsl>(5);
                let distribution = Distribution::Default;
                let all = (0..20).map(|_| {
                    let x = Tensor::<Wgsl, 1>::random([100], distribution, &worker.device());
                    x.into_data().to_vec::<f32>().expect("it is f32")
                });
                Ok::<_, ParallelError>(all.collect::<Vec<_>>().concat())
            });
            drawn.expect("they draw")
        };
        let first = draw();
        assert_eq!(draw(), first, "on {devices:?}");
        assert!(first[1..].iter().all(|other| *other != first[0]), "on {devices:?}");
    }
}
