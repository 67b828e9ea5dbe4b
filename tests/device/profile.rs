//! The profiler: kernel names, counts and times. It must not change results.
//!
//! These tests run one at a time: a profile records everything that runs on the device, and only one can
//! be recorded at a time.

use std::time::{Duration, Instant};

use burn::tensor::backend::Backend;
use burn::tensor::{Tensor, TensorData};
use burn_wgsl::device::ResolvedDevice;
use burn_wgsl::profiler::{self, By, Column, Schedule, Scheduled};
use burn_wgsl::runtime::Runtime;
use burn_wgsl::{Profile, ProfileError, Wgsl, WgslDevice, profile, scope};

use crate::common::{self, assert_success, run_child, serial_guard, test_alone};

/// Returns the GPUs of this machine that support timestamp queries.
fn gpus_with_timestamps() -> impl Iterator<Item = WgslDevice> {
    let has_timestamps = |device: &WgslDevice| match device.resolve() {
        Ok(ResolvedDevice::Adapter(index)) => {
            Runtime::of(index).expect("the device opens").info().features.timestamps
        }
        _ => false,
    };
    common::gpus().into_iter().filter(move |device| {
        let supported = has_timestamps(device);
        if !supported {
            eprintln!("skipped: {device} has no timestamps");
        }
        supported
    })
}

fn numbers(count: usize, device: &WgslDevice) -> Tensor<Wgsl, 1> {
    let values: Vec<f32> = (0..count).map(|i| (i % 97) as f32 / 97.0 - 0.5).collect();
    Tensor::from_data(TensorData::new(values, [count]), device)
}

/// Returns how often kernels with this name were dispatched.
fn calls(profile: &Profile, name: &str) -> u64 {
    profile.kernels.iter().filter(|kernel| kernel.name == name).map(|kernel| kernel.calls).sum()
}

#[test]
fn profile_counts_and_times_kernels_by_name() {
    let _guard = serial_guard();
    for device in gpus_with_timestamps() {
        let a = numbers(256 * 256, &device).reshape([256, 256]);
        let work = || {
            let mut x = a.clone();
            for _ in 0..3 {
                x = x.matmul(a.clone());
            }
            x.sum_dim(1).into_data()
        };
        let unprofiled = work();
        let start = Instant::now();
        let (result, profile) = profile(&device, work).expect("the device supports timestamps");
        let wall = start.elapsed();

        result.assert_eq(&unprofiled, true);
        assert_eq!(calls(&profile, "matmul"), 3, "{profile:?}");
        assert_eq!(calls(&profile, "reduce"), 1, "{profile:?}");
        assert_eq!(profile.calls(), 4, "{profile:?}");
        for kernel in &profile.kernels {
            assert!(
                kernel.time > Duration::ZERO && kernel.variant.starts_with(kernel.name),
                "{kernel:?}"
            );
        }
        // Each matmul depends on the previous one, so the kernels do not overlap.
        assert!(profile.time() < wall, "{profile:?} in {wall:?}");
        assert!(profile.kernels.is_sorted_by(|a, b| a.time >= b.time));
        assert_eq!(profile.kernels[0].name, "matmul", "{profile:?}");
    }
}

#[test]
fn profile_counts_more_dispatches_than_a_query_set_holds() {
    let _guard = serial_guard();
    for device in gpus_with_timestamps() {
        // One launch for each op.
        burn_wgsl::set_fusion(false);
        let add = |times: usize| (0..times).fold(numbers(64, &device), |x, _| x + 1.0);
        let (sum, profile) =
            profile(&device, || add(1000)).expect("the device supports timestamps");
        assert_eq!(profile.calls(), 1000);
        assert!(profile.kernels.iter().all(|kernel| kernel.time > Duration::ZERO), "{profile:?}");
        sum.into_data().assert_eq(&add(1000).into_data(), true);
        burn_wgsl::set_fusion(true);
    }
}

#[test]
fn profile_records_only_the_ops_of_its_closure() {
    let _guard = serial_guard();
    for device in gpus_with_timestamps() {
        let _before = numbers(64, &device) * 2.0;
        let ((), profile) = profile(&device, || ()).expect("the device supports timestamps");
        assert_eq!((profile.calls(), profile.spans.len()), (0, 0), "{profile:?}");
        // A panic in the closure ends the recording, so that the next profile can start.
        let panics = || burn_wgsl::profile(&device, || panic!("on purpose"));
        std::panic::catch_unwind(panics)
            .map(|_: Result<((), Profile), _>| ())
            .expect_err("the panic of the closure propagates");
        let _after = numbers(64, &device) * 2.0;
        let (_, profile) = burn_wgsl::profile(&device, || numbers(64, &device) * 3.0)
            .expect("the last recording has ended");
        assert_eq!(profile.calls(), 1);
    }
}

#[test]
fn the_cpu_device_is_profiled_by_op_in_wall_time() {
    let _guard = serial_guard();
    let device = WgslDevice::Cpu;
    let x = numbers(256 * 256, &device).reshape([256, 256]);
    let work = || {
        let _scope = scope("layer");
        let y = (0..3).fold(x.clone(), |y, _| y.matmul(x.clone()));
        y.sum_dim(1).into_data()
    };
    let unprofiled = work();
    let (result, profile) = profile(&device, work).expect("the CPU can be profiled");
    result.assert_eq(&unprofiled, true);
    assert!(profile.of_host);
    assert_eq!(calls(&profile, "float_matmul"), 3, "{profile:?}");
    assert_eq!(calls(&profile, "float_sum_dim"), 1, "{profile:?}");
    assert!(profile.time() > Duration::ZERO && profile.time() <= profile.wall, "{profile:?}");
    let product = profile.spans.iter().find(|span| span.op == "float_matmul").expect("it ran");
    assert_eq!(product.operands, "f32 [256, 256], f32 [256, 256] -> f32 [256, 256]");
    assert_eq!((product.scope.as_str(), product.bytes), ("layer", 3 * 256 * 256 * 4));
    assert!(profile.host.iter().any(|span| span.name == "layer"), "{:?}", profile.host);
    let memory = profile.memory.iter().find(|memory| memory.op == "float_matmul");
    assert_eq!(memory.map(|memory| (memory.allocations, memory.kept)), Some((3, 0)));
    let table = profile.table(By::Op, Column::Time);
    assert!(table.contains("float_matmul") && !table.contains("GPU"), "{table}");
    for text in [profile.to_html(), profile.to_trace()] {
        assert!(text.contains("float_matmul"), "{text}");
    }
}

#[test]
fn invalid_profile_calls_return_an_error_with_the_reason() {
    let _guard = serial_guard();
    let error = profiler::peaks(&WgslDevice::Cpu).expect_err("the CPU runs no kernels");
    assert!(matches!(error, ProfileError::Cpu), "{error}");
    let error = profile(&WgslDevice::Gpu(99), || ()).expect_err("gpu:99 does not exist");
    assert!(
        matches!(error, ProfileError::Device(_)) && error.to_string().contains("Devices here"),
        "{error}"
    );
    for device in gpus_with_timestamps() {
        let (inner, _) = profile(&device, || profile(&device, || ()))
            .expect("no other profile is being recorded");
        assert!(matches!(inner, Err(ProfileError::Busy { .. })), "{inner:?}");
        Wgsl::sync(&device).expect("the device is alive");
    }
}

/// Every launch names its op, the ops in its kernel, and its scope, and has its place in time.
#[test]
fn spans_name_ops_and_scopes() {
    let _guard = serial_guard();
    for device in gpus_with_timestamps() {
        let a = numbers(256 * 256, &device).reshape([256, 256]);
        let b = numbers(256 * 256, &device).reshape([256, 256]);
        let _ = (a.clone().into_data(), b.clone().into_data());
        let (_, profile) = profile(&device, || {
            let _outer = scope("step");
            let product = {
                let _inner = scope("product");
                a.clone().matmul(b.clone())
            };
            let _inner = scope("chain");
            (product.exp() * 0.5).sum_dim(1).into_data()
        })
        .expect("the device supports timestamps");
        let product = profile.spans.iter().find(|span| span.kernel == "matmul");
        let product = product.expect("there is a product");
        assert_eq!((product.op, &product.scope[..]), ("float_matmul", "step/product"));
        assert!(product.work >= 2 * 256 * 256 * 256, "{product:?}");
        assert_eq!(product.bytes, 3 * 256 * 256 * 4, "{product:?}");
        let shapes = "f32 [256, 256], f32 [256, 256] -> f32 [1, 65536]";
        assert_eq!(product.operands, shapes);
        let sum = profile.spans.iter().find(|span| span.kernel == "reduce");
        let sum = sum.expect("there is a sum");
        assert_eq!(sum.ops, ["float_exp", "float_mul_scalar"], "{sum:?}");
        assert_eq!(sum.scope, "step/chain");
        assert_eq!(sum.operands, "f32 [256, 256] -> f32 [256]");
        assert!(sum.start >= product.start + product.time, "{profile:?}");
        let late = Duration::from_millis(2);
        for span in &profile.spans {
            assert!(span.start + late >= span.recorded, "it ran before it was recorded: {span:?}");
            assert!(span.start + span.time <= profile.wall, "{span:?}");
        }
        let scopes: Vec<&str> = profile.host.iter().map(|span| &span.name[..]).collect();
        assert_eq!(scopes[0], "step/product");
        assert!(scopes.ends_with(&["step/chain", "step"]), "{scopes:?}");
        assert!(scopes.iter().any(|name| name.contains("readback of 1024 bytes")), "{scopes:?}");
    }
}

/// The kernels of a busy device fill the time from the first to the last.
#[test]
fn kernel_times_add_up_to_the_time_of_the_gpu() {
    let _guard = serial_guard();
    for device in gpus_with_timestamps() {
        // On a GPU, the gaps between the launches are small beside a large product.
        let n = if device == WgslDevice::Software { 512 } else { 4096 };
        let a = numbers(n * n, &device).reshape([n, n]);
        let work = || {
            let y = (0..12).fold(a.clone(), |y, _| y.matmul(a.clone()));
            Wgsl::sync(&device).expect("the device works");
            y
        };
        work();
        let (_, profile) = profile(&device, work).expect("the device supports timestamps");
        let (sum, span) = (profile.time().as_secs_f64(), profile.gpu_span().as_secs_f64());
        assert!(sum > 0.9 * span && sum < 1.1 * span, "{sum} s of {span} s on {device}");
    }
}

/// Checks that events in a lane are one after the other or within each other: viewers drop others.
fn assert_nested(events: &[serde_json::Value]) {
    let number = |event: &serde_json::Value, key: &str| event[key].as_f64().expect("a number");
    let mut lanes: std::collections::BTreeMap<String, Vec<(f64, f64)>> = Default::default();
    for event in events.iter().filter(|event| event["ph"] == "X") {
        let (start, time) = (number(event, "ts"), number(event, "dur"));
        let lane = format!("{} {}", event["pid"], event["tid"]);
        lanes.entry(lane).or_default().push((start, start + time));
    }
    for (lane, mut spans) in lanes {
        spans.sort_by(|a, b| a.0.total_cmp(&b.0).then(b.1.total_cmp(&a.1)));
        let mut open: Vec<f64> = Vec::new();
        for (start, end) in spans {
            // A nanosecond is what the numbers resolve.
            open.retain(|&other| other > start + 1e-3);
            assert!(open.iter().all(|&other| end <= other + 1e-3), "{start} to {end} in {lane}");
            open.push(end);
        }
    }
}

#[test]
fn a_trace_has_every_launch() {
    let _guard = serial_guard();
    for device in gpus_with_timestamps() {
        let (_, profile) = profile(&device, || {
            let _scope = scope("a \"quoted\" scope");
            numbers(4096, &device).exp().sum().into_data()
        })
        .expect("the device supports timestamps");
        let trace: serde_json::Value =
            serde_json::from_str(&profile.to_trace()).expect("a trace is JSON");
        let events = trace["traceEvents"].as_array().expect("there are events");
        let kernels: Vec<_> = events.iter().filter(|event| event["cat"] == "kernel").collect();
        assert_eq!(kernels.len() as u64, profile.calls());
        for (event, span) in kernels.iter().zip(&profile.spans) {
            assert_eq!(event["name"], span.kernel);
            let micros = event["dur"].as_f64().expect("a number");
            assert!((micros * 1e-6 - span.time.as_secs_f64()).abs() < 1e-9, "{event}");
        }
        assert_nested(events);
        let in_scope = events.iter().any(|event| event["name"] == "a \"quoted\" scope");
        assert!(in_scope, "{trace}");
        let error = profile.write_trace("/no/such/folder/trace.json").expect_err("no folder");
        assert!(matches!(error, ProfileError::Write { .. }), "{error}");
        let table = profile.table(By::Op, Column::Time);
        assert!(table.contains("float_sum") && table.contains("Gop/s"), "{table}");
    }
}

#[test]
fn rates_are_shares_of_the_peaks() {
    let _guard = serial_guard();
    for device in gpus_with_timestamps() {
        let peaks = profiler::peaks(&device).expect("the device supports timestamps");
        let a = numbers(512 * 512, &device).reshape([512, 512]);
        let _ = a.clone().matmul(a.clone()).into_data();
        let (_, profile) = profile(&device, || a.clone().matmul(a.clone()).into_data())
            .expect("the device supports timestamps");
        assert!(peaks.operations > 0.0 && peaks.bytes > 0.0, "{peaks:?}");
        let table = profile.with_peaks(peaks).table(By::Kernel, Column::Rate);
        assert!(table.contains("of peak") && table.matches('%').count() >= 3, "{table}");
    }
}

/// Profiles an op whose result is still pending at the end.
fn profiler_of_pending(device: &WgslDevice, x: &Tensor<Wgsl, 1>) -> (Tensor<Wgsl, 1>, Profile) {
    profile(device, || x.clone().log()).expect("the device supports timestamps")
}

#[test]
fn the_memory_of_each_op_is_counted() {
    let _guard = serial_guard();
    for device in gpus_with_timestamps() {
        let x = numbers(1 << 18, &device);
        let (kept, profile) = profile(&device, || {
            let kept = x.clone().exp();
            let _ = kept.clone().into_data();
            drop((x.clone() * 2.0).into_data());
            // What was allocated before does not count.
            drop(numbers(16, &device));
            kept
        })
        .expect("the device supports timestamps");
        let of = |op: &str| profile.memory.iter().find(|memory| memory.op == op).cloned();
        let exp = of("float_exp").expect("it allocated memory");
        assert_eq!((exp.allocations, exp.bytes, exp.kept), (1, 1 << 20, 1 << 20));
        let product = of("float_mul_scalar").expect("it allocated memory");
        assert_eq!((product.allocations, product.bytes, product.kept), (1, 1 << 20, 0));
        drop(kept);
        let (_pending, late) = profiler_of_pending(&device, &x);
        assert!(late.memory.iter().any(|memory| memory.op == "float_log"), "{:?}", late.memory);
        assert!(late.spans.iter().all(|span| !span.operands.is_empty()), "{:?}", late.spans);
        assert!(profile.memory_table().contains("float_exp"), "{}", profile.memory_table());
    }
}

#[test]
fn a_page_has_every_launch() {
    let _guard = serial_guard();
    for device in gpus_with_timestamps() {
        let (_, profile) = profile(&device, || {
            let _scope = scope("</script>");
            numbers(4096, &device).exp().sum().into_data()
        })
        .expect("the device supports timestamps");
        let page = profile.to_html();
        assert_eq!(page.matches("</script>").count(), 1, "a name ended the script");
        let data = page.split_once("const profile = ").expect("it has data").1;
        let data = data.split_once(";\n").expect("the line ends").0;
        let data: serde_json::Value = serde_json::from_str(data).expect("the data is JSON");
        let launches = data["launches"].as_array().expect("there are launches");
        assert_eq!(launches.len() as u64, profile.calls());
        assert_eq!(launches[0]["scope"], "</script>");
        let error = profile.write_html("/dev/full").expect_err("it is full or not there");
        assert!(error.to_string().starts_with("cannot write /dev/full: "), "{error}");
    }
}

#[test]
fn a_schedule_profiles_some_steps() {
    let _guard = serial_guard();
    for device in gpus_with_timestamps() {
        let schedule = Schedule { skip: 1, wait: 1, warm_up: 1, active: 2, repeat: 2 };
        let mut profiler = Scheduled::new(&device, schedule);
        let mut profiles = Vec::new();
        for _ in 0..12 {
            profiles.extend(profiler.step().expect("the device supports timestamps"));
            let x = numbers(256, &device).reshape([16, 16]);
            let _ = x.clone().matmul(x).into_data();
        }
        let counts: Vec<u64> = profiles.iter().map(|profile| calls(profile, "matmul")).collect();
        assert_eq!(counts, [2, 2], "{device}");
        // A loop can end with an active step.
        let mut profiler = Scheduled::new(&device, Schedule { repeat: 0, ..schedule });
        for _ in 0..5 {
            let profile = profiler.step().expect("the device supports timestamps");
            assert!(profile.is_none());
            let x = numbers(256, &device).reshape([16, 16]);
            let _ = x.clone().matmul(x).into_data();
        }
        let last = profiler.finish().expect("the device works").expect("two steps were active");
        assert_eq!(calls(&last, "matmul"), 2);
        // A session that is dropped does not prevent the next.
        drop(profiler::start(&device).expect("no profile is being taken"));
        drop(profiler::start(&device).expect("the last one was discarded"));
    }
}

/// wgpu refuses a pass whose groups are not balanced, with an error where the result is read.
#[test]
fn debug_groups_are_balanced() {
    let _guard = serial_guard();
    let variables = [("BURN_WGSL_DEBUG", "groups")];
    assert_success(&run_child(test_alone!("computes_in_scopes_with_copies"), &variables));
}

#[test]
#[ignore = "runs in a child process"]
fn computes_in_scopes_with_copies() {
    for device in common::gpus() {
        let x = numbers(256, &device).reshape([16, 16]);
        let work = || {
            let _step = scope("step");
            let y = {
                let _layer = scope("layer/0");
                x.clone().matmul(x.clone())
            };
            // An upload ends the pass, and so does the readback.
            let ones = Tensor::<Wgsl, 1>::from_floats([1.0; 16], &device).reshape([16, 1]);
            let first = y.clone().matmul(ones).into_data();
            let _layer = scope("layer/1");
            (first, y.sum().into_data())
        };
        let expected = work();
        if let Ok((profiled, _)) = profile(&device, work) {
            assert_eq!(profiled, expected, "{device}");
        }
        Wgsl::sync(&device).expect("all passes are valid");
    }
}
