//! The memory of a device as its user sees it: usage, peaks, limits, recordings.
//!
//! These tests run one at a time: they count the memory of a device.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::optim::{AdamConfig, GradientsParams, Optimizer};
use burn::tensor::backend::Backend;
use burn::tensor::{Distribution, Tensor};
use burn_wgsl::memory::{self, Holder, Limit, MemoryError, Snapshot};
use burn_wgsl::profiler::{By, Column};
use burn_wgsl::{Autodiff, Wgsl, WgslDevice, scope};

use crate::common::{devices, gpus, serial_guard};

type B = Autodiff<Wgsl>;

const MIB: u64 = 1 << 20;

#[derive(Module, Debug)]
struct Mlp<B: Backend> {
    hidden: Linear<B>,
    out: Linear<B>,
}

fn sync(device: &WgslDevice) {
    Wgsl::sync(device).expect("the device works");
}

/// A tensor of a size in MiB that has memory.
fn tensor(mebibytes: usize, device: &WgslDevice) -> Tensor<Wgsl, 1> {
    let out = Tensor::<Wgsl, 1>::random([mebibytes << 18], Distribution::Default, device);
    sync(device);
    out
}

/// Returns the bytes in use at the end of a snapshot, from its events.
fn replayed(snapshot: &Snapshot) -> u64 {
    let start: u64 = snapshot.at_start.iter().sum();
    snapshot.events.iter().fold(start, |sum, event| sum.strict_add_signed(event.bytes))
}

#[test]
fn measured_peaks_and_changes_nest() {
    let _guard = serial_guard();
    for device in gpus() {
        let kept = tensor(1, &device);
        let measure = |work: &dyn Fn() -> Vec<Tensor<Wgsl, 1>>| {
            memory::measure(&device, work).expect("the device works")
        };
        let (outer, measured) = measure(&|| {
            let (first, inner) = measure(&|| vec![tensor(4, &device), tensor(2, &device)]);
            assert_eq!((inner.peak, inner.change), (6 * MIB, 6 * MIB as i64), "{device}");
            drop(first);
            let (none, inner) = measure(&|| {
                drop(tensor(3, &device));
                Vec::new()
            });
            assert_eq!((inner.peak, inner.change), (3 * MIB, 0), "{device}");
            drop(none);
            vec![tensor(1, &device)]
        });
        assert_eq!((measured.peak, measured.change), (6 * MIB, MIB as i64), "{device}");
        assert_eq!(measured.to_string(), "peak 6 MiB, net change 1 MiB");
        let (_, measured) = memory::measure(&device, || drop((outer, kept))).expect("it works");
        assert_eq!(measured.to_string(), "peak 0 B, net change -2 MiB");
    }
}

#[test]
fn a_snapshot_lists_what_was_held_at_the_peak() {
    let _guard = serial_guard();
    for device in gpus() {
        let before = tensor(3, &device);
        let recording = memory::record(&device).expect("the device works");
        let small = {
            let _scope = scope("small");
            tensor(2, &device)
        };
        let large = {
            let _scope = scope("large");
            [tensor(4, &device), tensor(4, &device)]
        };
        drop((before, large));
        let last = {
            let _scope = scope("last");
            tensor(5, &device)
        };
        let snapshot = recording.snapshot().expect("the device works");
        let at_peak = snapshot.at_peak();
        let earlier = at_peak.iter().find(|holder| holder.scope.is_empty());
        let earlier = earlier.map(ToString::to_string).unwrap_or_default();
        assert!(earlier.ends_with("iB: before the recording"), "{earlier}");
        let named: Vec<_> = at_peak
            .iter()
            .filter(|holder| !holder.scope.is_empty())
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            named,
            ["8 MiB, 2 tensors: float_random in large", "2 MiB, 1 tensors: float_random in small"],
            "{device}"
        );
        let bytes: u64 = at_peak.iter().map(|holder| holder.bytes).sum();
        assert_eq!(bytes, snapshot.usage.in_use + 3 * MIB + 8 * MIB - 5 * MIB, "{device}");
        drop((small, last));
    }
}

#[test]
fn a_peak_can_be_reset_and_unused_memory_trimmed_to_a_target() {
    let _guard = serial_guard();
    for device in gpus() {
        let usage = || memory::usage(&device).expect("the device exists");
        memory::trim(&device, 0).expect("the device exists");
        let before = usage();
        memory::reset_peak(&device).expect("the device exists");
        drop((tensor(8, &device), tensor(4, &device)));
        assert!(usage().peak >= before.in_use + 12 * MIB, "{:?}", usage());
        memory::reset_peak(&device).expect("the device exists");
        assert_eq!(usage().peak, usage().in_use);
        assert_eq!(usage().reserved, before.reserved + 12 * MIB);
        // The longest unused first.
        memory::trim(&device, before.reserved + 8 * MIB).expect("the device exists");
        assert_eq!(usage().reserved, before.reserved + 4 * MIB);
        memory::trim(&device, 0).expect("the device exists");
        assert_eq!(usage().reserved, before.reserved);
    }
}

/// The parts of a report add up.
#[test]
fn a_report_lists_sizes_and_free_memory() {
    let _guard = serial_guard();
    for device in gpus() {
        let kept = (tensor(5, &device), tensor(3, &device), Tensor::<Wgsl, 1>::ones([10], &device));
        let _ = kept.2.clone().into_data();
        drop(tensor(7, &device));
        let report = memory::report(&device).expect("the device opens");
        let usage = report.usage;
        assert_eq!(report.sizes.iter().map(|range| range.bytes).sum::<u64>(), usage.in_use);
        let count: u64 = report.sizes.iter().map(|range| range.allocations).sum();
        assert_eq!(count, usage.allocations);
        assert!(usage.requested <= usage.in_use && usage.requested >= 8 * MIB + 40, "{usage:?}");
        assert!(report.largest_free >= 7 * MIB, "{report:?}");
        let text = report.to_string();
        for part in ["in use", "as requested", "largest free block", "4 MiB to 8 MiB"] {
            assert!(text.contains(part), "no {part:?} in:\n{text}");
        }
    }
    let report = memory::report(&WgslDevice::Cpu).expect("the CPU is always there");
    assert!(report.to_string().contains("are not counted"), "{report}");
}

/// What the pool reserves is what wgpu allocates, but for buffers of a few MiB for transfers and
/// parameters.
#[test]
fn the_accounts_agree_with_the_driver() {
    let _guard = serial_guard();
    for device in gpus() {
        let kept: Vec<_> = (0..6).map(|_| tensor(64, &device)).collect();
        let report = memory::report(&device).expect("the device opens");
        let Some(allocated) = report.driver_allocated else { continue };
        let reserved = report.usage.reserved;
        let ratio = allocated as f64 / reserved as f64;
        assert!((0.95..1.05).contains(&ratio), "{allocated} of {reserved} on {device}");
        drop(kept);
    }
}

/// A recording of a training accounts for all memory in use at every step, and says where it was
/// allocated.
#[test]
fn a_recording_accounts_for_all_memory_of_a_training() {
    let _guard = serial_guard();
    for device in gpus() {
        let (batch, width, hidden) = (256, 512, 1024);
        let before = tensor(2, &device);
        let recording = memory::record(&device).expect("the device opens");
        let mut model = {
            let _scope = scope("model");
            Mlp::<B> {
                hidden: LinearConfig::new(width, hidden).with_bias(false).init(&device),
                out: LinearConfig::new(hidden, 4).with_bias(false).init(&device),
            }
        };
        let mut optimizer = AdamConfig::new().init();
        for step in 0..5 {
            let _scope = scope("step");
            let x = Tensor::<B, 2>::random([batch, width], Distribution::Default, &device);
            let loss = {
                let _scope = scope("forward");
                let y = burn::tensor::activation::relu(model.hidden.forward(x));
                model.out.forward(y).powi_scalar(2).mean()
            };
            let grads = {
                let _scope = scope("backward");
                GradientsParams::from_grads(loss.backward(), &model)
            };
            let _update = scope("optimizer");
            model = optimizer.step(0.01, model, grads);
            recording.mark(format!("step {step}")).expect("the device works");
            let snapshot = recording.snapshot().expect("the device works");
            assert_eq!(replayed(&snapshot), snapshot.usage.in_use, "step {step} on {device}");
            let held: u64 = snapshot.holders.iter().map(|holder| holder.bytes).sum();
            assert_eq!(held, snapshot.usage.in_use, "step {step} on {device}");
            assert_eq!(snapshot.before, 2 * MIB, "{device}");
        }
        let snapshot = recording.snapshot().expect("the device works");
        // The parameters and the two moments of the optimizer.
        let weights = ((width + 4) * hidden * 4) as u64;
        let kept: u64 = snapshot.holders[1..].iter().map(|holder| holder.bytes).sum();
        assert_eq!(kept, 3 * weights, "{:#?}", snapshot.holders);
        for (op, scope) in [("linear", "step/forward"), ("linear_weight_backward", "step/backward")]
        {
            let allocated = |holder: &Holder| (holder.op, &holder.scope[..]) == (op, scope);
            assert!(snapshot.holders.iter().any(allocated), "no {op} in {scope}");
        }
        drop(model);
        drop(before);
    }
}

/// What was there before a recording is counted once, also if other threads allocate and release
/// while it begins.
#[test]
fn a_recording_that_begins_amid_work_of_other_threads_is_exact() {
    let _guard = serial_guard();
    for device in gpus() {
        for _ in 0..20 {
            let stop = AtomicBool::new(false);
            let recording = thread::scope(|threads| {
                for _ in 0..3 {
                    threads.spawn(|| {
                        let mut kept = vec![tensor(1, &device)];
                        while !stop.load(Ordering::Relaxed) {
                            kept.push(Tensor::random([64], Distribution::Default, &device));
                            let _ = kept[kept.len() - 1].clone().into_data();
                            kept.truncate(4);
                        }
                    });
                }
                thread::sleep(Duration::from_millis(5));
                let recording = memory::record(&device).expect("the device opens");
                stop.store(true, Ordering::Relaxed);
                recording
            });
            let snapshot = recording.snapshot().expect("the device works");
            assert_eq!(replayed(&snapshot), snapshot.usage.in_use, "{device}");
            let held: u64 = snapshot.holders.iter().map(|holder| holder.bytes).sum();
            assert_eq!(held, snapshot.usage.in_use, "{device}");
        }
    }
}

/// The peak of a model is that of its tensors: in a chain of layers, two activations; in a training
/// step, also the gradients.
#[test]
fn the_peak_of_a_model_is_that_of_its_tensors() {
    let _guard = serial_guard();
    for device in gpus() {
        let (batch, width) = (2000, 1000);
        let activation = (batch * width * 4) as f64;
        let check = |what: &str, peak: u64, expected: f64| {
            let ratio = peak as f64 / expected;
            assert!((0.9..1.1).contains(&ratio), "{what} on {device}: {peak}, not {expected}");
        };
        let x = Tensor::<Wgsl, 2>::random([batch, width], Distribution::Default, &device);
        let weight = Tensor::<Wgsl, 2>::random([width, width], Distribution::Default, &device);
        sync(&device);
        let (_, measured) = memory::measure(&device, || {
            let y = (0..4).fold(x.clone(), |y, _| (y.matmul(weight.clone()) * 0.001).tanh());
            sync(&device);
            y
        })
        .expect("the device works");
        check("four layers", measured.peak, 2.0 * activation);

        let x = Tensor::<B, 2>::from_inner(x).require_grad();
        let (_, measured) = memory::measure(&device, || {
            let y = (x.clone() * 2.0).exp();
            let grads = (y.clone() * y).sum().backward();
            let grad = x.grad(&grads).expect("x has a gradient");
            sync(&device);
            grad
        })
        .expect("the device works");
        // The result of `exp` is kept for its gradient.
        check("a training step", measured.peak, 2.0 * activation);
    }
}

#[test]
fn what_grew_is_named() {
    let _guard = serial_guard();
    for device in gpus() {
        let recording = memory::record(&device).expect("the device opens");
        let mut leaked = Vec::new();
        for step in 0..4 {
            let x = tensor(1, &device);
            let _scope = scope("cache");
            leaked.push(x.clone().exp());
            recording.mark(step.to_string()).expect("the device works");
        }
        let growth = recording.growth("1", "3").expect("both marks exist");
        let texts: Vec<String> = growth.iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["+2 MiB, +2 tensors: float_exp in cache"], "{device}");
        assert!(recording.growth("3", "3").expect("it exists").is_empty());
        let error = recording.growth("1", "7").expect_err("there is no mark 7");
        assert!(error.to_string().contains(r#"no mark "7"; it has "0", "1""#), "{error}");
    }
}

/// Beyond its limit a device first returns unused memory, then reports an error that tells what
/// holds the memory. It goes on afterwards.
#[test]
fn a_limit_ends_in_an_error_with_advice() {
    let _guard = serial_guard();
    for device in gpus() {
        memory::trim(&device, 0).expect("the device exists");
        let recording = memory::record(&device).expect("the device opens");
        let reserved = memory::usage(&device).expect("the device exists").reserved;
        let limit = Limit::Bytes(reserved + 24 * MIB);
        memory::set_limit(&device, Some(limit)).expect("the device opens");
        let kept = {
            let _scope = scope("activations");
            tensor(16, &device)
        };
        // What is unused makes room.
        drop(tensor(6, &device));
        drop(tensor(8, &device));
        let over = tensor(4, &device);
        let error = Tensor::<Wgsl, 1>::zeros([6 << 18], &device).try_into_data();
        let error = error.expect_err("there is no room").to_string();
        for part in
            ["6 MiB were requested", "of at most", "float_random in activations (16 MiB in 1"]
        {
            assert!(error.contains(part), "no {part:?} in: {error}");
        }
        drop(over);
        sync(&device);
        drop(tensor(8, &device));
        memory::set_limit(&device, None).expect("the device opens");
        drop(tensor(64, &device));
        drop((kept, recording));
    }
}

#[test]
fn a_limit_can_be_a_part_of_the_memory_of_the_device() {
    let _guard = serial_guard();
    for device in gpus() {
        match memory::set_limit(&device, Some(Limit::Fraction(0.5))) {
            Ok(()) => {
                let report = memory::report(&device).expect("the device opens");
                assert_eq!(report.limit, report.device_memory.map(|size| size / 2), "{report}");
            }
            Err(error) => assert!(matches!(error, MemoryError::UnknownSize { .. }), "{error}"),
        }
        memory::set_limit(&device, None).expect("the device opens");
        let error = memory::set_limit(&device, Some(Limit::Fraction(1.5))).expect_err("above 1");
        assert_eq!(error.to_string(), "a fraction of the memory must be between 0 and 1, not 1.5");
    }
}

#[test]
fn snapshots_are_written_as_json_and_html() {
    let _guard = serial_guard();
    for device in gpus() {
        let recording = memory::record(&device).expect("the device opens");
        let _scope = scope("</script>");
        let kept = tensor(1, &device);
        let snapshot = recording.snapshot().expect("the device works");
        let folder = std::env::temp_dir().join(format!("burn-wgsl-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("the folder is writable");
        let (json, html) = (folder.join("memory.json"), folder.join("memory.html"));
        snapshot.write_json(&json).expect("the folder is writable");
        snapshot.write_html(&html).expect("the folder is writable");
        let text = std::fs::read_to_string(&json).expect("it was written");
        let value: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
        assert_eq!(value["events"][0]["bytes"], MIB, "{value}");
        assert_eq!(value["holders"][1]["op"], "float_random", "{value}");
        let page = std::fs::read_to_string(&html).expect("it was written");
        assert_eq!(page.matches("</script>").count(), 1, "a name ended the script");
        std::fs::remove_dir_all(&folder).expect("the folder is writable");

        // A full disk, and a folder that does not exist.
        if cfg!(target_os = "linux") {
            let error = snapshot.write_html("/dev/full").expect_err("it is full");
            assert!(error.to_string().starts_with("cannot write /dev/full: "), "{error}");
        }
        let error = snapshot.write_json(folder.join("none.json")).expect_err("no such folder");
        assert!(matches!(error, MemoryError::Write { .. }), "{error}");
        drop(kept);
    }
}

#[test]
fn the_memory_of_the_cpu_device_is_recorded_by_op_and_scope() {
    let _guard = serial_guard();
    let device = WgslDevice::Cpu;
    let before = Tensor::<Wgsl, 2>::ones([64, 64], &device);
    let recording = memory::record(&device).expect("the CPU can be recorded");
    let x = {
        let _scope = scope("data");
        Tensor::<Wgsl, 2>::random([64, 64], Distribution::Default, &device)
    };
    recording.mark("data").expect("nothing is pending");
    let views = (x.clone().transpose(), x.clone().slice([0..32, 0..64]));
    let y = {
        let _scope = scope("layer");
        x.clone().matmul(before.clone()).exp() // in place: memory of the product
    };
    recording.mark("layer").expect("nothing is pending");
    let held = |snapshot: &Snapshot, op: &str, in_scope: &str| {
        let holders = snapshot.holders.iter();
        let found = holders.filter(|holder| (holder.op, &*holder.scope) == (op, in_scope));
        found.fold((0, 0), |(count, bytes), holder| {
            (count + holder.allocations, bytes + holder.bytes)
        })
    };
    let snapshot = recording.snapshot().expect("nothing is pending");
    let size = 64 * 64 * 4;
    assert_eq!(held(&snapshot, "float_random", "data"), (1, size), "{:?}", snapshot.holders);
    assert_eq!(held(&snapshot, "float_matmul", "layer"), (1, size), "{:?}", snapshot.holders);
    assert_eq!((snapshot.usage.in_use, snapshot.usage.peak), (2 * size, 2 * size));
    assert_eq!(replayed(&snapshot), 2 * size);
    let growth = recording.growth("data", "layer").expect("both were marked");
    assert_eq!(growth.len(), 1, "{growth:?}");
    assert_eq!(growth[0].to_string(), "+16 KiB, +1 tensors: float_matmul in layer");

    // What is read back and what the views share goes with the last of them.
    let data = y.into_data();
    drop((views.1, x));
    let snapshot = recording.snapshot().expect("nothing is pending");
    assert_eq!(held(&snapshot, "float_random", "data"), (1, size));
    drop((views.0, data));
    let snapshot = recording.snapshot().expect("nothing is pending");
    assert_eq!(snapshot.usage.in_use, 0, "{:?}", snapshot.holders);
    assert_eq!(snapshot.usage.peak, 2 * size);
    drop(recording);
    // A tensor may outlive its recording.
    let recording = memory::record(&device).expect("the CPU can be recorded");
    let kept = Tensor::<Wgsl, 1>::random([16], Distribution::Default, &device);
    drop(recording);
    assert_eq!((kept * 2.0).into_data().num_elements(), 16);
}

/// A recorded tensor computes what any other does.
#[test]
fn a_recording_of_the_cpu_device_changes_no_result() {
    let _guard = serial_guard();
    let device = WgslDevice::Cpu;
    let step = || {
        Wgsl::seed(&device, 3);
        let layer: Linear<B> = LinearConfig::new(16, 8).init(&device);
        let x = Tensor::<B, 2>::random([4, 16], Distribution::Default, &device);
        let loss = (layer.forward(x).tanh().slice([0..4, 2..6]) * 3.0).powi_scalar(2).mean();
        let gradients = loss.backward();
        [loss.into_data(), layer.weight.grad(&gradients).expect("it is used").into_data()]
    };
    let plain = step();
    let recording = memory::record(&device).expect("the CPU can be recorded");
    let recorded = step();
    for (plain, recorded) in plain.iter().zip(&recorded) {
        plain.assert_eq(recorded, true);
        assert_eq!(plain.bytes[..], recorded.bytes[..]);
    }
    drop((recorded, plain));
    let snapshot = recording.snapshot().expect("nothing is pending");
    assert_eq!(snapshot.usage.in_use, 0, "{:?}", snapshot.holders);
}

#[test]
fn recordings_and_profiles_name_the_lines_of_the_program() {
    let _guard = serial_guard();
    for device in devices() {
        burn_wgsl::debug::set_lines(true);
        let recording = memory::record(&device).expect("the device can be recorded");
        let session = burn_wgsl::profiler::start(&device).ok();
        let random = line!() + 1;
        let x = Tensor::<Wgsl, 2>::random([64, 64], Distribution::Default, &device);
        let product = line!() + 1;
        let y = x.clone().matmul(x.clone());
        let exponential = line!() + 1;
        let z = y.clone().exp();
        burn_wgsl::debug::set_lines(false);
        // Computed here, called there.
        let total = (z.clone() * 2.0).sum().into_data();
        let snapshot = recording.snapshot().expect("the device works");
        let line_of = |op: &str| {
            let holder = snapshot.holders.iter().find(|holder| holder.op == op);
            holder.unwrap_or_else(|| panic!("{device}: no {op} in {:?}", snapshot.holders)).line
        };
        let expected = |line: u32| format!("tests/device/recording.rs:{line}:");
        assert!(line_of("float_random").contains(&expected(random)), "{:?}", snapshot.holders);
        assert!(line_of("float_matmul").contains(&expected(product)), "{:?}", snapshot.holders);
        assert!(line_of("float_exp").contains(&expected(exponential)), "{:?}", snapshot.holders);
        if let Some(session) = session {
            let profile = session.finish().expect("the device works");
            let span = profile.spans.iter().find(|span| span.op == "float_matmul");
            let line = span.expect("it ran").line;
            assert!(line.contains(&expected(product)), "{line}");
            let table = profile.table(By::Line, Column::Time);
            assert!(table.contains("recordings_and_profiles_name_the_lines"), "{table}");
            assert!(profile.to_json().contains(&expected(product)));
        }
        drop((x, y, z, total));
        // The lines are part of both pages.
        assert!(snapshot.to_json().contains(&expected(exponential)));
    }
}

#[test]
fn a_report_counts_what_waits_for_a_backward_pass() {
    let _guard = serial_guard();
    for device in devices() {
        let waiting = || memory::report(&device).expect("the device opens").waiting_nodes;
        let layer: Linear<B> = LinearConfig::new(3, 2).init(&device);
        let loss = || layer.forward(Tensor::<B, 2>::ones([4, 3], &device)).sum();
        drop(loss().backward());
        let before = waiting();
        (0..100).for_each(|_| drop(loss()));
        let report = memory::report(&device).expect("the device opens");
        assert!(report.waiting_nodes >= before + 200, "{} after {before}", report.waiting_nodes);
        assert!(report.to_string().contains("nodes wait for a backward pass"), "{report}");
        // A backward pass of the same network frees them.
        drop(loss().backward());
        assert!(waiting() <= before + 10, "{} after {before}", waiting());
    }
}
