//! What a user may rely on beyond single results: equal random numbers everywhere, flat memory, errors that
//! name the way out, every method of the contract answering, and models that train alike on two devices.

mod common;

use burn::backend::Autodiff;
use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::optim::{AdamConfig, GradientsParams, Optimizer};
use burn::tensor::backend::Backend;
use burn::tensor::{Bool, Distribution, Int, Tensor, TensorData};
use burn_wgsl::{Wgsl, WgslDevice};
use common::{assert_close, devices, gpus};

/// A device has one stream of random numbers, and a process one memory: tests that draw, or look at that, take turns.
static DRAWING: std::sync::Mutex<()> = std::sync::Mutex::new(());

fn take_turns() -> std::sync::MutexGuard<'static, ()> {
    DRAWING.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn message(f: impl FnOnce() + std::panic::UnwindSafe) -> String {
    let panic = std::panic::catch_unwind(f).expect_err("it is refused");
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
    text.unwrap_or_default()
}

#[test]
fn a_seed_gives_the_same_numbers_on_every_device() {
    let _turn = take_turns();
    let draw = |device: &WgslDevice, distribution| {
        Wgsl::seed(device, 42);
        // An odd count first: the next draw must still start where it starts on every device.
        let _ = Tensor::<Wgsl, 1>::random([7], distribution, device);
        Tensor::<Wgsl, 2>::random([33, 5], distribution, device).into_data()
    };
    for device in gpus() {
        for distribution in [
            Distribution::Default,
            Distribution::Uniform(-2.0, 3.0),
            Distribution::Normal(1.0, 2.0),
            Distribution::Bernoulli(0.25),
        ] {
            let (here, cpu) = (draw(&device, distribution), draw(&WgslDevice::Cpu, distribution));
            let what = format!("{distribution:?} on {device}");
            if matches!(distribution, Distribution::Bernoulli(_)) {
                here.assert_eq(&cpu, true);
            }
            assert_close(&what, &here, &cpu, common::Tolerance { relative: 1e-5, absolute: 1e-5 });
        }
        let ints = |device: &WgslDevice| {
            Wgsl::seed(device, 7);
            Tensor::<Wgsl, 1, Int>::random([100], Distribution::Uniform(-5.0, 9.0), device)
                .into_data()
        };
        ints(&device).assert_eq(&ints(&WgslDevice::Cpu), true);
    }
}

#[test]
fn memory_is_flat_after_warm_up() {
    let _turn = take_turns();
    for device in gpus() {
        let step = || {
            let a = Tensor::<Wgsl, 2>::random([600, 700], Distribution::Default, &device);
            let b = Tensor::<Wgsl, 2>::ones([700, 50], &device);
            let c = a.matmul(b).exp().sum_dim(0).reshape([50]);
            let small: Vec<Tensor<Wgsl, 1>> =
                (1..20).map(|n| c.clone().slice(0..n) * 2.0).collect();
            Tensor::cat(small, 0).sum().into_scalar()
        };
        for _ in 0..5 {
            step();
        }
        // Other tests use the device too, so what they hold is allowed for; a leak here would be far larger.
        let reserved =
            || burn_wgsl::memory(&device).expect("it is there").expect("it is a GPU").reserved;
        let before = reserved();
        for _ in 0..200 {
            step();
        }
        let grown = reserved().saturating_sub(before);
        assert!(grown < 64 << 20, "{grown} bytes more after 200 steps on {device}");
        Wgsl::sync(&device).expect("the device is alive");
    }
}

#[test]
fn two_devices_in_one_op_are_refused_by_name() {
    for device in gpus() {
        let text = message(move || {
            let (a, b) = (primitive([2, 3], &device), primitive([2, 3], &WgslDevice::Cpu));
            let _ = <Wgsl as burn_backend::ops::FloatTensorOps<Wgsl>>::float_add(a, b);
        });
        assert!(
            text.contains("float_add")
                && text.contains("cpu")
                && text.contains(&device.to_string()),
            "{text}"
        );
        assert!(text.contains("to_device"), "{text}");
    }
}

#[test]
fn tensors_move_between_devices() {
    for device in gpus() {
        let data = TensorData::from([[1.0f32, -2.0], [3.5, 0.0]]);
        let there = Tensor::<Wgsl, 2>::from_data(data.clone(), &WgslDevice::Cpu).to_device(&device);
        assert_eq!(there.device(), device);
        there
            .transpose()
            .to_device(&WgslDevice::Cpu)
            .transpose()
            .into_data()
            .assert_eq(&data, true);
        let truths = TensorData::from([true, false, true]);
        let there = Tensor::<Wgsl, 1, Bool>::from_data(truths.clone(), &device);
        there.to_device(&WgslDevice::Cpu).into_data().assert_eq(&truths, false);
    }
}

#[test]
fn what_does_not_fit_is_refused_with_the_limit() {
    for device in gpus() {
        let text = message(move || {
            // 64 GiB: past any binding.
            let _ = Tensor::<Wgsl, 2>::zeros([1 << 17, 1 << 17], &device);
        });
        assert!(text.contains("exceed") || text.contains("32-bit index"), "{text}");
        let text = message(move || {
            // More elements than a view can have, though hardly any memory.
            let _ = Tensor::<Wgsl, 1>::ones([1], &device).expand([1 << 20, 1 << 20]).sum();
        });
        assert!(text.contains("32-bit index"), "{text}");
        // Fewer are summed, and right.
        let sum = Tensor::<Wgsl, 2>::ones([1, 1 << 11], &device).expand([1 << 9, 1 << 11]).sum();
        assert_eq!(sum.into_scalar(), (1u64 << 20) as f32);
        let text = message(move || {
            // One element past the largest binding there is.
            let _ = Tensor::<Wgsl, 1>::zeros([(1 << 29) + 1], &device);
        });
        assert!(text.contains("exceed") || text.contains("32-bit index"), "{text}");
        let text = message(move || {
            let a =
                burn::tensor::TensorPrimitive::Float(<Wgsl as burn_backend::ops::FloatTensorOps<
                    Wgsl,
                >>::float_matmul(
                    primitive([2, 3], &device),
                    primitive([4, 5], &device),
                ));
            let _ = Tensor::<Wgsl, 2>::from_primitive(a);
        });
        assert!(text.contains("[2, 3]") && text.contains("[4, 5]"), "{text}");
    }
}

fn primitive(shape: [usize; 2], device: &WgslDevice) -> burn_wgsl::WgslTensor {
    match Tensor::<Wgsl, 2>::ones(shape, device).into_primitive() {
        burn::tensor::TensorPrimitive::Float(tensor) => tensor,
        burn::tensor::TensorPrimitive::QFloat(_) => unreachable!("ones are not quantised"),
    }
}

#[test]
fn a_device_that_is_not_there_is_refused_with_what_is() {
    let text = message(|| {
        let _ = Tensor::<Wgsl, 1>::zeros([1], &WgslDevice::Gpu(99));
    });
    assert!(text.contains("gpu:99") && text.contains("cpu"), "{text}");
}

/// Types and ops without a kernel run on the CPU twin, are right, and are counted.
/// Burn keeps the types that tensors are created in by a device's id: they must not depend on the word that was used.
#[test]
fn a_device_has_one_id_under_all_of_its_names() {
    use burn::tensor::backend::DeviceOps;
    let named = burn_wgsl::device::automatic().expect("no wrong word is set");
    assert_eq!(WgslDevice::Auto.id(), named.device.id());
    let mut seen = std::collections::HashSet::new();
    let adapters = burn_wgsl::device::adapters();
    for index in 0..adapters.len() {
        let selectors = burn_wgsl::device::selectors(adapters, index);
        let ids: std::collections::HashSet<_> = selectors.iter().map(DeviceOps::id).collect();
        assert!(ids.len() <= 1, "{selectors:?}: {ids:?}");
        assert!(ids.into_iter().all(|id| seen.insert(id)), "{selectors:?}");
    }
    assert!(seen.insert(WgslDevice::Cpu.id()));
}

#[test]
fn without_a_kernel_the_twin_answers_and_is_counted() {
    for device in devices() {
        let x = Tensor::<Wgsl, 2>::from_floats([[3.0, 1.0, 2.0], [-1.0, 5.0, 0.0]], &device);
        let before = burn_wgsl::fallbacks().values().sum::<u64>();
        let sorted = x.clone().sort(1).into_data();
        sorted.assert_eq(&TensorData::from([[1.0f32, 2.0, 3.0], [-1.0, 0.0, 5.0]]), true);
        let (values, indices) = x.clone().topk_with_indices(1, 1);
        values.into_data().assert_eq(&TensorData::from([[3.0f32], [5.0]]), true);
        indices.into_data().assert_eq(&TensorData::from([[0], [1]]), false);
        x.clone()
            .cumsum(1)
            .into_data()
            .assert_eq(&TensorData::from([[3.0f32, 4.0, 6.0], [-1.0, 4.0, 4.0]]), true);
        let wide = x.clone().cast(burn::tensor::FloatDType::F64).mul_scalar(2.0);
        wide.into_data().assert_eq(&TensorData::from([[6.0, 2.0, 4.0], [-2.0, 10.0, 0.0]]), false);
        let half = x
            .clone()
            .cast(burn::tensor::FloatDType::F16)
            .add_scalar(1.0)
            .cast(burn::tensor::FloatDType::F32);
        half.into_data().assert_eq(&TensorData::from([[4.0f32, 2.0, 3.0], [0.0, 6.0, 1.0]]), true);
        let places = x.clone().greater_elem(1.5).argwhere().into_data();
        places.assert_eq(&TensorData::from([[0, 0], [0, 2], [1, 1]]), false);
        let after = burn_wgsl::fallbacks().values().sum::<u64>();
        assert_eq!(after > before, device != WgslDevice::Cpu, "{device}: {before} and {after}");
    }
}

#[test]
fn quantised_tensors_answer_on_every_device() {
    use burn::tensor::quantization::{Calibration, QuantScheme, compute_q_params, compute_range};
    for device in devices() {
        let x = Tensor::<Wgsl, 2>::from_floats(
            [[-1.0, 0.5, 0.25, 1.0], [0.0, 0.75, -0.5, -0.25]],
            &device,
        );
        let scheme =
            QuantScheme::default().with_store(burn::tensor::quantization::QuantStore::Native);
        let range = compute_range(&scheme, &x, &Calibration::MinMax);
        let quantised = x.clone().quantize(&scheme, compute_q_params(&scheme, range));
        let back = quantised.clone().transpose().transpose().dequantize();
        assert_close(
            &format!("dequantised on {device}"),
            &back.into_data(),
            &x.clone().into_data(),
            common::Tolerance { relative: 0.0, absolute: 0.01 },
        );
        let product = quantised.matmul(x.clone().transpose());
        assert_close(
            &format!("product on {device}"),
            &product.into_data(),
            &x.clone().matmul(x.transpose()).into_data(),
            common::Tolerance { relative: 0.02, absolute: 0.02 },
        );
    }
}

/// NaN is no number, is unequal to itself, counts as true, and goes through relu, clamp and extremes.
#[test]
fn nan_is_not_lost() {
    for device in devices() {
        let x = Tensor::<Wgsl, 1>::from_floats([1.0, f32::NAN, -3.0], &device);
        let truths = |expected: [bool; 3], value: Tensor<Wgsl, 1, Bool>| {
            value.into_data().assert_eq(&TensorData::from(expected), false);
        };
        truths([false, true, false], x.clone().not_equal(x.clone()));
        truths([true, false, true], x.clone().equal(x.clone()));
        truths([false, true, false], x.clone().is_nan());
        truths([true, true, true], x.clone().not_equal_elem(0.0));
        let nan = Tensor::<Wgsl, 1>::from_floats([f32::NAN, f32::NAN], &device);
        nan.clone().any().into_data().assert_eq(&TensorData::from([true]), false);
        assert!(x.clone().max().into_scalar().is_nan() && x.clone().min().into_scalar().is_nan());
        assert!(x.clone().max_abs().into_scalar().is_nan());
        let nothing = Tensor::<Wgsl, 1>::empty([0], &device);
        assert!(nothing.mean().into_scalar().is_nan());
        assert_eq!(x.clone().argmax(0).into_scalar(), 1);
        let second = |value: Tensor<Wgsl, 1>| value.slice_dim(0, 1..2).into_scalar();
        assert!(second(burn::tensor::activation::relu(x.clone())).is_nan());
        assert!(second(x.clone().clamp(-1.0, 1.0)).is_nan());
        assert!(second(x.clone().clamp_min(-1.0)).is_nan());
        assert!(second(x.clone().clamp_max(1.0)).is_nan());
        let limited = x.slice_dim(0, 0..1).clamp(0.0, f32::NAN);
        assert!(limited.into_scalar().is_nan());
    }
}

/// The last NaN of a window is its maximum, as in PyTorch. burn-flex skips NaN.
#[test]
fn nan_is_not_lost_in_windows() {
    use burn::tensor::module::max_pool1d_with_indices;
    for device in gpus() {
        let x = [[[1.0, f32::NAN, f32::NAN, 4.0, f32::NAN, 2.0, 5.0, 6.0]]];
        let x = Tensor::<Wgsl, 3>::from_floats(x, &device);
        let (most, indices) = max_pool1d_with_indices(x, 4, 4, 0, 1, false);
        assert!(most.into_data().iter::<f32>().all(f32::is_nan));
        indices.into_data().assert_eq(&TensorData::from([[[2, 4]]]), false);
    }
}

#[test]
fn argtopk_and_large_scalars_answer() {
    for device in devices() {
        let x = Tensor::<Wgsl, 1>::from_floats([1.0, 5.0, 3.0], &device);
        x.argtopk(2, 0).into_data().assert_eq(&TensorData::from([1, 2]), false);
        let x = Tensor::<Wgsl, 1, Int>::from_ints([1, 5, 3], &device);
        x.clone().argtopk(2, 0).into_data().assert_eq(&TensorData::from([1, 2]), false);
        // burn-flex cuts such a scalar to 32 bits; the kernels take the nearest there is.
        if device != WgslDevice::Cpu {
            let below = x.clone().lower_elem(3_000_000_000i64).all();
            below.into_data().assert_eq(&TensorData::from([true]), false);
        }
        assert_eq!(x.argmax(0).dtype(), burn::tensor::DType::I32);
    }
}

#[test]
fn grids_past_the_limit_of_one_dimension_fold() {
    for device in gpus() {
        // More than 65,535 workgroups, with a row for each invocation, and for each team of eight or so.
        for (rows, len) in [(4_200_001, 2), (1_050_001, 16)] {
            let x = Tensor::<Wgsl, 2>::ones([rows, len], &device);
            let sums = x.sum_dim(1);
            sums.clone()
                .equal_elem(len as f32)
                .all()
                .into_data()
                .assert_eq(&TensorData::from([true]), false);
            assert_eq!(sums.sum().into_scalar(), (rows * len) as f32);
        }
    }
}

#[derive(Module, Debug)]
struct Net<B: Backend> {
    first: Linear<B>,
    second: Linear<B>,
}

/// Losses of a small network trained for a few steps.
fn train(device: &WgslDevice) -> Vec<f32> {
    type B = Autodiff<Wgsl>;
    B::seed(device, 3);
    let mut net = Net::<B> {
        first: LinearConfig::new(8, 32).init(device),
        second: LinearConfig::new(32, 1).init(device),
    };
    let x = Tensor::<B, 2>::random([64, 8], Distribution::Normal(0.0, 1.0), device);
    let y = (x.clone() * x.clone()).sum_dim(1);
    let mut adam = AdamConfig::new().init();
    let step = |_| {
        let out = net.second.forward(burn::tensor::activation::gelu(net.first.forward(x.clone())));
        let loss = (out - y.clone()).powi_scalar(2).mean();
        let grads = GradientsParams::from_grads(loss.backward(), &net);
        net = adam.step(1e-2, net.clone(), grads);
        loss.into_scalar()
    };
    (0..30).map(step).collect()
}

#[test]
fn training_is_alike_on_every_device_and_repeats_bit_for_bit() {
    let _turn = take_turns();
    let truth = train(&WgslDevice::Cpu);
    assert!(truth[29] < truth[0] * 0.5, "it learns: {truth:?}");
    for device in gpus() {
        let losses = train(&device);
        for (loss, truth) in losses.iter().zip(&truth) {
            assert!(
                (loss - truth).abs() < 1e-2 * truth.abs(),
                "{losses:?} on {device}, {truth:?} on the CPU"
            );
        }
        assert_eq!(losses, train(&device), "the same bits on {device}");
    }
}

/// Ties keep their order, NaN comes after infinity and -0 before 0, on every device but where burn-flex has its own way.
#[test]
fn sorting_is_stable_and_total() {
    for device in common::gpus() {
        let keys: Vec<f32> =
            (0..5000).map(|i| [2.0, -0.0, f32::NAN, 0.0, f32::NEG_INFINITY][i % 5]).collect();
        let tensor = Tensor::<Wgsl, 1>::from_floats(keys.as_slice(), &device);
        for descending in [false, true] {
            let mut truth: Vec<i32> = (0..5000).collect();
            truth.sort_by(|&a, &b| {
                let order = keys[a as usize].total_cmp(&keys[b as usize]);
                if descending { order.reverse() } else { order }
            });
            let places = if descending {
                tensor.clone().argsort_descending(0)
            } else {
                tensor.clone().argsort(0)
            };
            assert_eq!(places.into_data().to_vec::<i32>().expect("places"), truth, "on {device}");
        }
    }
}

#[test]
fn argwhere_finds_what_is_true() {
    for device in devices() {
        for shape in [[0usize, 3], [1, 1], [7, 11], [100, 300]] {
            let len = shape[0] * shape[1];
            let numbers: Vec<i32> = (0..len as i32).map(|i| i * i % 7).collect();
            let data = burn::tensor::TensorData::new(numbers.clone(), shape);
            let tensor = Tensor::<Wgsl, 2, burn::tensor::Int>::from_data(data, &device);
            let found = tensor.transpose().equal_elem(2).argwhere().into_data();
            let truth: Vec<i32> = (0..shape[1])
                .flat_map(|j| (0..shape[0]).map(move |i| (i, j)))
                .filter(|&(i, j)| numbers[i * shape[1] + j] == 2)
                .flat_map(|(i, j)| [j as i32, i as i32])
                .collect();
            assert_eq!(found.shape.as_slice(), [truth.len() / 2, 2], "{shape:?} on {device}");
            assert_eq!(found.iter::<i32>().collect::<Vec<_>>(), truth, "{shape:?} on {device}");
        }
    }
}

/// Indices past an axis are clamped when reading and skipped when writing, alike on every device.
#[test]
fn truth_values_mix_and_come_back_as_rusts() {
    type Reference<const D: usize> = Tensor<Wgsl, D, Bool>;
    for device in devices() {
        let given = Reference::<1>::from_data([true, false, true], &device);
        let compared = Tensor::<Wgsl, 1>::from_data([2.0, 1.0, 0.0], &device).greater_elem(0.5);
        let made = Reference::<1>::full([3], true, &device);
        let mixed = given.bool_and(compared).equal(made.bool_not());
        assert_eq!(mixed.into_data(), TensorData::from([false, true, true]));
    }
}

#[test]
fn a_range_without_a_step_is_refused() {
    for device in devices() {
        let range = move || Tensor::<Wgsl, 1, Int>::arange_step(0..3, 0, &device);
        assert!(std::panic::catch_unwind(range).is_err(), "on {device}");
    }
}

#[test]
fn indices_out_of_range_are_alike_on_every_device() {
    let results = |device: &WgslDevice| {
        let x = Tensor::<Wgsl, 2>::from_floats([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], device);
        let wild = Tensor::<Wgsl, 2, Int>::from_ints([[-5, 1, 99], [2, -1, 3]], device);
        let line = Tensor::<Wgsl, 1, Int>::from_ints([7, 0, -3], device);
        let pairs = Tensor::<Wgsl, 2, Int>::from_ints([[0, 1], [2, 0], [-1, 1], [1, 2]], device);
        let values = Tensor::<Wgsl, 1>::from_floats([10.0, 20.0, 30.0, 40.0], device);
        let embedding = burn::tensor::module::embedding(x.clone(), wild.clone());
        let add = burn::tensor::IndexingUpdateOp::Add;
        let (small, big) = (x.clone().lower_elem(2.0), x.clone().greater_elem(4.0));
        [
            x.clone().gather(1, wild.clone()).into_data(),
            x.clone().scatter(1, wild.clone(), x.clone(), add).into_data(),
            x.clone().select(0, line.clone()).into_data(),
            x.clone().select_assign(1, line.clone(), x.clone(), add).into_data(),
            x.clone().gather_nd::<2, 1>(pairs.clone()).into_data(),
            x.clone().scatter_nd::<2, 1>(pairs.clone(), values.clone(), add).into_data(),
            x.clone()
                .scatter_nd::<2, 1>(pairs, values, burn::tensor::IndexingUpdateOp::Assign)
                .into_data(),
            embedding.into_data(),
            small.clone().scatter(1, wild.clone(), big.clone(), add).float().into_data(),
            small.select_assign(1, line, big, add).float().into_data(),
            x.int().gather(0, wild).into_data().convert::<f32>(),
        ]
    };
    let truth = results(&WgslDevice::Cpu);
    assert_eq!(truth[0].to_vec::<f32>().expect("floats"), [1.0, 2.0, 3.0, 6.0, 4.0, 6.0]);
    assert_eq!(truth[1].to_vec::<f32>().expect("floats"), [1.0, 4.0, 3.0, 4.0, 5.0, 10.0]);
    for device in gpus() {
        for (index, (value, truth)) in results(&device).iter().zip(&truth).enumerate() {
            assert_close(&format!("{index} on {device}"), value, truth, common::CLOSE);
        }
    }
}

#[test]
fn operands_of_two_types_are_refused_by_name() {
    for device in devices() {
        let text = message(move || {
            let a = Tensor::<Wgsl, 1>::ones([3], &device);
            let _ = a.clone() + a.cast(burn::tensor::FloatDType::F16);
        });
        assert!(
            text.contains("F32") && text.contains("F16") && text.contains("float_add"),
            "{text}"
        );
        let text = message(move || {
            let a = Tensor::<Wgsl, 1, Int>::ones([3], &device);
            let _ = a.clone().greater(a.cast(burn::tensor::IntDType::I64));
        });
        assert!(text.contains("I32") && text.contains("I64"), "{text}");
    }
}

#[test]
fn expanded_views_are_summed_on_every_device() {
    for device in devices() {
        let x = Tensor::<Wgsl, 3>::ones([1, 1, 5], &device).expand([4, 3, 5]);
        for axis in 0..3 {
            let sum = x.clone().sum_dim(axis).into_data();
            assert!(
                sum.iter::<f32>().all(|sum| sum == [4.0, 3.0, 5.0][axis]),
                "axis {axis} on {device}"
            );
            assert_eq!(
                x.clone().mean_dim(axis).mean().into_scalar(),
                1.0,
                "axis {axis} on {device}"
            );
        }
    }
}

#[test]
fn an_axis_that_is_not_there_is_refused_by_name() {
    use burn_backend::ops::FloatTensorOps;
    type Call = (&'static str, fn(burn_wgsl::WgslTensor));
    for device in devices() {
        let calls: [Call; 3] = [
            ("float_sum_dim", |tensor| drop(Wgsl::float_sum_dim(tensor, 2))),
            ("float_cumsum", |tensor| drop(Wgsl::float_cumsum(tensor, 5))),
            ("float_swap_dims", |tensor| drop(Wgsl::float_swap_dims(tensor, 0, 3))),
        ];
        for (op, call) in calls {
            let text = message(move || call(primitive([2, 3], &device)));
            assert!(text.contains(op) && text.contains("has no axis"), "{text}");
        }
    }
}

#[test]
fn sizes_that_make_no_sense_are_refused_on_every_device() {
    for device in devices() {
        let image = move || Tensor::<Wgsl, 4>::ones([1, 2, 6, 6], &device);
        let text = message(move || {
            let kernel = Tensor::<Wgsl, 4>::ones([2, 2, 9, 9], &device);
            let options = burn::tensor::ops::ConvOptions::new([1, 1], [0, 0], [1, 1], 1);
            let _ = burn::tensor::module::conv2d(image(), kernel, None, options);
        });
        assert!(text.contains("[2, 2, 9, 9]") && text.contains("padded input"), "{text}");
        let text = message(move || {
            let _ =
                burn::tensor::module::max_pool2d(image(), [2, 2], [0, 0], [0, 0], [1, 1], false);
        });
        assert!(text.contains("stride"), "{text}");
        let text = message(move || {
            let _: Tensor<Wgsl, 5> = image().unfold(2, 3, 0);
        });
        assert!(text.contains("step"), "{text}");
        let text = message(move || {
            let _ = Tensor::<Wgsl, 3>::zeros([usize::MAX / 2, 4, 5], &device);
        });
        assert!(text.contains("float_zeros"), "{text}");
    }
}

/// Large products copy rows that lie apart by a power of two. Those that were cut from such rows are no longer so, nor are copies of them.
#[test]
fn rows_cut_from_wider_ones_are_multiplied() {
    let _turn = take_turns();
    for device in gpus() {
        let product = |device: &WgslDevice| {
            Wgsl::seed(device, 3);
            let a = Tensor::<Wgsl, 2>::random([1024, 512], Distribution::Normal(0.0, 1.0), device);
            let b = Tensor::<Wgsl, 2>::random([496, 2120], Distribution::Normal(0.0, 1.0), device);
            a.narrow(1, 0, 496).matmul(b).into_data()
        };
        let tolerance = common::Tolerance { relative: 1e-4, absolute: 1e-3 };
        assert_close(
            &format!("on {device}"),
            &product(&device),
            &product(&WgslDevice::Cpu),
            tolerance,
        );
    }
}

/// What the pool gives up goes back to the driver also where nothing is ever read. A software adapter's memory is the process's own.
#[cfg(target_os = "linux")]
#[test]
fn memory_is_returned_without_a_read() {
    let _turn = take_turns();
    let resident = || {
        let status = std::fs::read_to_string("/proc/self/status").expect("Linux tells");
        let line =
            status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line of it");
        line.trim().trim_end_matches(" kB").parse::<usize>().expect("a number") << 10
    };
    for device in gpus().into_iter().filter(|device| *device == WgslDevice::Software) {
        let before = resident();
        let mut most = 0;
        // Each of a size class of its own, 16 to 120 MiB and 1.3 GiB a round: more than the pool keeps, so none is used again.
        let mebibytes = (0..24).map(|step| (8 + step % 8) << (1 + step / 8));
        for size in mebibytes.cycle().take(72) {
            drop(Tensor::<Wgsl, 1>::ones([size << 18], &device) * 2.0);
            most = most.max(resident().saturating_sub(before));
        }
        assert!(most < 1 << 30, "{most} bytes more");
    }
}
