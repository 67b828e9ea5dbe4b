//! Guarantees beyond the results of single ops: the same random numbers on every device, helpful
//! errors, CPU fallbacks, NaN propagation and training.
//!
//! Tests that draw random numbers run one at a time: a device has one random stream.

use burn::backend::Autodiff;
use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::optim::{AdamConfig, GradientsParams, Optimizer};
use burn::tensor::backend::Backend;
use burn::tensor::{Bool, Distribution, ElementConversion, Int, Tensor, TensorData};
use burn_wgsl::backend::fallbacks_on_thread;
use burn_wgsl::device::ResolvedDevice;
use burn_wgsl::runtime::Runtime;
use burn_wgsl::{Wgsl, WgslDevice, tensor};

use crate::common::{self, assert_close, devices, gpus, is_alone, panic_message, test_alone};

#[test]
fn equal_seeds_give_equal_numbers_on_every_device() {
    // Other tests draw from the same stream of a device.
    if !is_alone(test_alone!("equal_seeds_give_equal_numbers_on_every_device")) {
        return;
    }
    let draw = |device: &WgslDevice, distribution| {
        Wgsl::seed(device, 42);
        // An odd count first: the next draw must start at the same stream position on every device.
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
            let values = draw(&device, distribution);
            let expected = draw(&WgslDevice::Cpu, distribution);
            let label = format!("{distribution:?} on {device}");
            if matches!(distribution, Distribution::Bernoulli(_)) {
                values.assert_eq(&expected, true);
            }
            let tolerance = common::Tolerance { relative: 1e-5, absolute: 1e-5 };
            assert_close(&label, &values, &expected, tolerance);
        }
        let ints = |device: &WgslDevice| {
            Wgsl::seed(device, 7);
            Tensor::<Wgsl, 1, Int>::random([100], Distribution::Uniform(-5.0, 9.0), device)
                .into_data()
        };
        ints(&device).assert_eq(&ints(&WgslDevice::Cpu), true);
    }
}

/// The second word of this seed's stream has all bits set: the largest sample of a uniform
/// distribution.
#[test]
fn bernoulli_with_probability_one_is_always_one() {
    // Other tests draw from the same stream of a device.
    if !is_alone(test_alone!("bernoulli_with_probability_one_is_always_one")) {
        return;
    }
    for device in devices() {
        for (probability, expected) in [(1.0, [1.0; 4]), (0.0, [0.0; 4])] {
            Wgsl::seed(&device, 454_088_803);
            let distribution = Distribution::Bernoulli(probability);
            let drawn = Tensor::<Wgsl, 1>::random([4], distribution, &device).into_data();
            drawn.assert_eq(&TensorData::from(expected), false);
        }
    }
}

#[test]
fn op_on_two_devices_panics_with_both_devices() {
    for device in gpus() {
        let text = panic_message(move || {
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
        let moved = Tensor::<Wgsl, 2>::from_data(data.clone(), &WgslDevice::Cpu).to_device(&device);
        assert_eq!(moved.device(), device);
        moved
            .transpose()
            .to_device(&WgslDevice::Cpu)
            .transpose()
            .into_data()
            .assert_eq(&data, true);
        let bools = TensorData::from([true, false, true]);
        let tensor = Tensor::<Wgsl, 1, Bool>::from_data(bools.clone(), &device);
        tensor.to_device(&WgslDevice::Cpu).into_data().assert_eq(&bools, false);
    }
}

#[test]
fn oversized_and_mismatched_shapes_panic_with_the_reason() {
    for device in gpus() {
        let text = panic_message(move || {
            // 64 GiB: larger than any binding.
            let _ = Tensor::<Wgsl, 2>::zeros([1 << 17, 1 << 17], &device);
        });
        assert!(text.contains("exceed") || text.contains("32-bit index"), "{text}");
        let text = panic_message(move || {
            // More elements than a view can have, but only four bytes of memory.
            let _ = Tensor::<Wgsl, 1>::ones([1], &device).expand([1 << 20, 1 << 20]).sum();
        });
        assert!(text.contains("32-bit index"), "{text}");
        // Fewer elements are summed correctly.
        let sum = Tensor::<Wgsl, 2>::ones([1, 1 << 11], &device).expand([1 << 9, 1 << 11]).sum();
        assert_eq!(sum.into_scalar(), (1u64 << 20) as f32);
        let text = panic_message(move || {
            // More than the largest buffer.
            let limit = common::runtime_of(&device).info().limits.max_buffer_size;
            let _ = Tensor::<Wgsl, 1>::zeros([(limit / 4) as usize + 1], &device);
        });
        assert!(text.contains("exceed") || text.contains("32-bit index"), "{text}");
        let text = panic_message(move || {
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

#[test]
fn empty_tensors_can_have_huge_axes() {
    use burn_backend::TensorMetadata;
    use burn_backend::ops::FloatTensorOps;
    let huge = 1usize << 40;
    for device in gpus() {
        for shape in [[0, huge, 1], [huge, 0, huge], [huge, huge, 0]] {
            let float = burn::tensor::FloatDType::F32;
            let zeros = Wgsl::float_zeros(shape.into(), &device, float);
            let sum = Wgsl::float_add(zeros.clone(), Wgsl::float_exp(zeros));
            assert_eq!(sum.shape().as_slice(), shape, "on {device}");
            let swapped = Wgsl::float_swap_dims(sum, 0, 2);
            let reshaped = Wgsl::float_reshape(swapped, shape.into());
            assert_eq!(reshaped.shape().as_slice(), shape, "on {device}");
        }
    }
    for device in devices() {
        let x = Tensor::<Wgsl, 2>::zeros([0, huge], &device) + 1.0;
        assert_eq!(x.clone().into_data().shape.as_slice(), [0, huge]);
        assert_eq!(x.sum().into_scalar(), 0.0);
    }
}

/// Returns a float tensor of ones.
fn primitive(shape: [usize; 2], device: &WgslDevice) -> burn_wgsl::WgslTensor {
    match Tensor::<Wgsl, 2>::ones(shape, device).into_primitive() {
        burn::tensor::TensorPrimitive::Float(tensor) => tensor,
        burn::tensor::TensorPrimitive::QFloat(_) => {
            unreachable!("a tensor of ones is not quantised")
        }
    }
}

#[test]
fn uploading_data_of_the_wrong_size_is_an_error() {
    for device in gpus() {
        let Ok(ResolvedDevice::Adapter(index)) = device.resolve() else { continue };
        let runtime = Runtime::of(index).expect("the device opens");
        for (dtype, len) in [(tensor::DType::F32, 24), (tensor::DType::F16, 8)] {
            let upload = |bytes| tensor::Tensor::upload(&runtime, &[5], dtype, bytes);
            let error = upload(&vec![0; len]).expect_err("the data is too long or too short");
            assert!(matches!(error, tensor::Error::DataSize { .. }), "{error}");
        }
        let rounded_up = tensor::Tensor::upload(&runtime, &[5], tensor::DType::F16, &[0; 12]);
        assert!(rounded_up.is_ok());
    }
}

/// `Debug` of a tensor prints no elements and no state of the memory pool.
#[test]
fn debug_prints_shape_type_and_device() {
    use burn::tensor::quantization::{QuantScheme, QuantStore};
    use burn_backend::ops::QTensorOps;
    for device in devices() {
        let tensor = primitive([20, 30], &device);
        let scheme = QuantScheme::default().with_store(QuantStore::Native);
        let quantised = Wgsl::quantize_dynamic(tensor.clone(), &scheme);
        for (text, dtype) in
            [(format!("{tensor:?}"), "F32"), (format!("{quantised:?}"), "QFloat(QuantScheme")]
        {
            let device = format!("device: {device:?}");
            for part in ["shape: [20, 30]", dtype, &device] {
                assert!(text.contains(part), "{part} is missing in: {text}");
            }
            assert!(text.len() < 250, "{text}");
        }
    }
    for device in gpus() {
        let Ok(ResolvedDevice::Adapter(index)) = device.resolve() else { continue };
        let runtime = Runtime::of(index).expect("the device opens");
        let tensor = tensor::Tensor::empty(&runtime, &[20, 30], tensor::DType::F32)
            .expect("the device has memory");
        let text = format!("{tensor:?} {:?}", tensor.buffer());
        assert!(text.contains("[20, 30]") && text.contains("F32"), "{text}");
        assert!(text.len() < 250, "{text}");
    }
}

#[test]
fn missing_device_panics_with_the_available_devices() {
    let text = panic_message(|| {
        let _ = Tensor::<Wgsl, 1>::zeros([1], &WgslDevice::Gpu(99));
    });
    assert!(text.contains("gpu:99") && text.contains("cpu"), "{text}");
}

/// Burn stores default element types by device id, so all selectors of a device must share one id.
#[test]
fn all_selectors_of_a_device_have_one_id() {
    use burn::tensor::backend::DeviceOps;
    let automatic =
        burn_wgsl::device::automatic().expect("BURN_WGSL_DEVICE is unset or a valid selector");
    assert_eq!(WgslDevice::Auto.id(), automatic.device.id());
    let mut earlier_ids = std::collections::HashSet::new();
    let adapters = burn_wgsl::device::adapters();
    for index in 0..adapters.len() {
        let selectors = burn_wgsl::device::selectors(adapters, index);
        let ids: std::collections::HashSet<_> = selectors.iter().map(DeviceOps::id).collect();
        assert!(ids.len() <= 1, "{selectors:?}: {ids:?}");
        assert!(ids.into_iter().all(|id| earlier_ids.insert(id)), "{selectors:?}");
    }
    assert!(earlier_ids.insert(WgslDevice::Cpu.id()));
}

/// Element types and ops without a kernel fall back to the CPU backend, and fallbacks are counted.
#[test]
fn fallbacks_are_correct_and_counted() {
    for device in devices() {
        let x = Tensor::<Wgsl, 2>::from_floats([[3.0, 1.0, 2.0], [-1.0, 5.0, 0.0]], &device);
        let before = fallbacks_on_thread();
        let sorted = x.clone().sort(1).into_data();
        sorted.assert_eq(&TensorData::from([[1.0f32, 2.0, 3.0], [-1.0, 0.0, 5.0]]), true);
        let (values, indices) = x.clone().topk_with_indices(1, 1);
        values.into_data().assert_eq(&TensorData::from([[3.0f32], [5.0]]), true);
        indices.into_data().assert_eq(&TensorData::from([[0], [1]]), false);
        x.clone()
            .cumsum(1)
            .into_data()
            .assert_eq(&TensorData::from([[3.0f32, 4.0, 6.0], [-1.0, 4.0, 4.0]]), true);
        let doubled = x.clone().cast(burn::tensor::FloatDType::F64).mul_scalar(2.0);
        doubled
            .into_data()
            .assert_eq(&TensorData::from([[6.0, 2.0, 4.0], [-2.0, 10.0, 0.0]]), false);
        let incremented = x
            .clone()
            .cast(burn::tensor::FloatDType::F16)
            .add_scalar(1.0)
            .cast(burn::tensor::FloatDType::F32);
        incremented
            .into_data()
            .assert_eq(&TensorData::from([[4.0f32, 2.0, 3.0], [0.0, 6.0, 1.0]]), true);
        let indices = x.clone().greater_elem(1.5).argwhere().into_data();
        indices.assert_eq(&TensorData::from([[0, 0], [0, 2], [1, 1]]), false);
        let after = fallbacks_on_thread();
        assert_eq!(
            after > before,
            device != WgslDevice::Cpu,
            "{device}: {before} fallbacks before, {after} after"
        );
    }
}

#[test]
fn quantised_tensors_work_on_every_device() {
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
        let dequantised = quantised.clone().transpose().transpose().dequantize();
        assert_close(
            &format!("dequantised on {device}"),
            &dequantised.into_data(),
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

/// NaN is unequal to itself, counts as true, and propagates through relu, clamp, min and max.
#[test]
fn nan_propagates() {
    for device in devices() {
        let x = Tensor::<Wgsl, 1>::from_floats([1.0, f32::NAN, -3.0], &device);
        let assert_bools = |expected: [bool; 3], value: Tensor<Wgsl, 1, Bool>| {
            value.into_data().assert_eq(&TensorData::from(expected), false);
        };
        assert_bools([false, true, false], x.clone().not_equal(x.clone()));
        assert_bools([true, false, true], x.clone().equal(x.clone()));
        assert_bools([false, true, false], x.clone().is_nan());
        assert_bools([true, true, true], x.clone().not_equal_elem(0.0));
        let nan = Tensor::<Wgsl, 1>::from_floats([f32::NAN, f32::NAN], &device);
        nan.clone().any().into_data().assert_eq(&TensorData::from([true]), false);
        assert!(x.clone().max().into_scalar().is_nan() && x.clone().min().into_scalar().is_nan());
        assert!(x.clone().max_abs().into_scalar().is_nan());
        let empty = Tensor::<Wgsl, 1>::empty([0], &device);
        assert!(empty.mean().into_scalar().is_nan());
        assert_eq!(x.clone().argmax(0).into_scalar(), 1);
        let second = |value: Tensor<Wgsl, 1>| value.slice_dim(0, 1..2).into_scalar();
        assert!(second(burn::tensor::activation::relu(x.clone())).is_nan());
        assert!(second(x.clone().clamp(-1.0, 1.0)).is_nan());
        assert!(second(x.clone().clamp_min(-1.0)).is_nan());
        assert!(second(x.clone().clamp_max(1.0)).is_nan());
        let clamped = x.slice_dim(0, 0..1).clamp(0.0, f32::NAN);
        assert!(clamped.into_scalar().is_nan());
    }
}

/// As in PyTorch, the maximum of a window is its last NaN. burn-flex skips NaN.
#[test]
fn max_pool_propagates_nan() {
    use burn::tensor::module::max_pool1d_with_indices;
    for device in gpus() {
        let x = [[[1.0, f32::NAN, f32::NAN, 4.0, f32::NAN, 2.0, 5.0, 6.0]]];
        let x = Tensor::<Wgsl, 3>::from_floats(x, &device);
        let (maxima, indices) = max_pool1d_with_indices(x, 4, 4, 0, 1, false);
        assert!(maxima.into_data().iter::<f32>().all(f32::is_nan));
        indices.into_data().assert_eq(&TensorData::from([[[2, 4]]]), false);
    }
}

#[test]
fn argtopk_and_scalars_beyond_32_bits_are_supported() {
    for device in devices() {
        let x = Tensor::<Wgsl, 1>::from_floats([1.0, 5.0, 3.0], &device);
        x.argtopk(2, 0).into_data().assert_eq(&TensorData::from([1, 2]), false);
        let x = Tensor::<Wgsl, 1, Int>::from_ints([1, 5, 3], &device);
        x.clone().argtopk(2, 0).into_data().assert_eq(&TensorData::from([1, 2]), false);
        // burn-flex truncates this scalar to 32 bits. The kernels clamp it to the nearest i32.
        if device != WgslDevice::Cpu {
            let all_lower = x.clone().lower_elem(3_000_000_000i64).all();
            all_lower.into_data().assert_eq(&TensorData::from([true]), false);
        }
        assert_eq!(x.argmax(0).dtype(), burn::tensor::DType::I32);
    }
}

#[test]
fn dispatches_beyond_65535_workgroups_are_correct() {
    for device in gpus() {
        // Both shapes need more than 65,535 workgroups: the first with one invocation per row, the
        // second with one team per row.
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

/// Trains a small network for 30 steps and returns the losses.
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
fn training_matches_the_cpu_and_repeats_bit_for_bit() {
    if !is_alone(test_alone!("training_matches_the_cpu_and_repeats_bit_for_bit")) {
        return;
    }
    let expected = train(&WgslDevice::Cpu);
    assert!(expected[29] < expected[0] * 0.5, "the loss does not halve: {expected:?}");
    for device in gpus() {
        let losses = train(&device);
        for (loss, cpu_loss) in losses.iter().zip(&expected) {
            assert!(
                (loss - cpu_loss).abs() < 1e-2 * cpu_loss.abs(),
                "{losses:?} on {device}, {expected:?} on the CPU"
            );
        }
        assert_eq!(losses, train(&device), "a second run differs on {device}");
    }
}

/// Ties keep their order, NaN sorts after infinity and -0 before 0. GPUs only: burn-flex orders
/// some of these differently.
#[test]
fn sorting_is_stable_and_total() {
    for device in gpus() {
        let keys: Vec<f32> =
            (0..5000).map(|i| [2.0, -0.0, f32::NAN, 0.0, f32::NEG_INFINITY][i % 5]).collect();
        let tensor = Tensor::<Wgsl, 1>::from_floats(keys.as_slice(), &device);
        for descending in [false, true] {
            let mut expected: Vec<i32> = (0..5000).collect();
            expected.sort_by(|&a, &b| {
                let order = keys[a as usize].total_cmp(&keys[b as usize]);
                if descending { order.reverse() } else { order }
            });
            let indices = if descending {
                tensor.clone().argsort_descending(0)
            } else {
                tensor.clone().argsort(0)
            };
            let indices = indices.into_data().to_vec::<i32>().expect("argsort returns i32");
            assert_eq!(indices, expected, "on {device}");
        }
    }
}

#[test]
fn argwhere_returns_the_indices_of_true_elements() {
    for device in devices() {
        for shape in [[0usize, 3], [1, 1], [7, 11], [100, 300]] {
            let len = shape[0] * shape[1];
            let numbers: Vec<i32> = (0..len as i32).map(|i| i * i % 7).collect();
            let data = TensorData::new(numbers.clone(), shape);
            let tensor = Tensor::<Wgsl, 2, Int>::from_data(data, &device);
            let found = tensor.transpose().equal_elem(2).argwhere().into_data();
            let expected: Vec<i32> = (0..shape[1])
                .flat_map(|j| (0..shape[0]).map(move |i| (i, j)))
                .filter(|&(i, j)| numbers[i * shape[1] + j] == 2)
                .flat_map(|(i, j)| [j as i32, i as i32])
                .collect();
            assert_eq!(found.shape.as_slice(), [expected.len() / 2, 2], "{shape:?} on {device}");
            assert_eq!(found.iter::<i32>().collect::<Vec<_>>(), expected, "{shape:?} on {device}");
        }
    }
}

/// Generic code reads tensors back as the element types of the backend.
#[test]
fn tensors_read_back_as_the_element_types_of_the_backend() {
    fn check<B: Backend>(device: &B::Device) {
        let bools = Tensor::<B, 1>::from_data([2.0, 0.0], device).greater_elem(1.0);
        let data = bools.clone().into_data();
        assert_eq!(data.dtype, bools.dtype());
        let elements = data.to_vec::<B::BoolElem>().expect("the elements are `BoolElem`");
        let elements: Vec<bool> = elements.into_iter().map(|element| element.elem()).collect();
        assert_eq!(elements, [true, false]);
        assert!(bools.any().into_scalar().elem::<bool>());
        let ints = Tensor::<B, 1, Int>::from_data([3, 4], device).into_data();
        ints.to_vec::<B::IntElem>().expect("the elements are `IntElem`");
        let floats = Tensor::<B, 1>::from_data([3.0, 4.0], device).into_data();
        floats.to_vec::<B::FloatElem>().expect("the elements are `FloatElem`");
    }
    for device in devices() {
        check::<Wgsl>(&device);
        check::<Autodiff<Wgsl>>(&device);
    }
}

#[test]
fn bool_tensors_from_data_comparisons_and_fills_combine() {
    type Bools = Tensor<Wgsl, 1, Bool>;
    for device in devices() {
        let from_data = Bools::from_data([true, false, true], &device);
        let compared = Tensor::<Wgsl, 1>::from_data([2.0, 1.0, 0.0], &device).greater_elem(0.5);
        let filled = Bools::full([3], true, &device);
        let combined = from_data.bool_and(compared).equal(filled.bool_not());
        assert_eq!(combined.into_data(), TensorData::from([false, true, true]));
    }
}

#[test]
fn arange_with_step_zero_panics() {
    for device in devices() {
        let range = move || Tensor::<Wgsl, 1, Int>::arange_step(0..3, 0, &device);
        assert!(std::panic::catch_unwind(range).is_err(), "on {device}");
    }
}

#[test]
fn integer_division_by_zero_gives_zero_on_every_device() {
    use burn::tensor::IntDType;
    let integers = |values: [i64; 5], dtype, device: &WgslDevice| {
        Tensor::<Wgsl, 1, Int>::from_data(TensorData::from(values), device).cast(dtype)
    };
    for device in devices() {
        for dtype in [
            IntDType::I64,
            IntDType::I32,
            IntDType::I16,
            IntDType::I8,
            IntDType::U64,
            IntDType::U32,
            IntDType::U16,
            IntDType::U8,
        ] {
            let x = integers([7, 100, 0, 9, 120], dtype, &device);
            let y = integers([0, 7, 0, 2, 0], dtype, &device);
            let zeros = TensorData::from([0; 5]);
            for (op, result, expected) in [
                ("div", x.clone() / y.clone(), TensorData::from([0, 14, 0, 4, 0])),
                ("remainder", x.clone() % y, TensorData::from([0, 2, 0, 1, 0])),
                ("div_scalar", x.clone().div_scalar(0), zeros.clone()),
                ("remainder_scalar", x.clone().remainder_scalar(0), zeros),
                ("div_scalar", x.div_scalar(7), TensorData::from([1, 14, 0, 1, 17])),
            ] {
                assert_eq!(result.dtype(), dtype.into(), "{op} on {device}");
                let result: Vec<i32> = result.into_data().iter().collect();
                let expected: Vec<i32> = expected.iter().collect();
                assert_eq!(result, expected, "{op} of {dtype:?} on {device}");
            }
        }
        let x = Tensor::<Wgsl, 2, Int>::from_ints([[6], [8]], &device);
        let quotients = x / Tensor::from_ints([[0, 2, 0]], &device);
        quotients.into_data().assert_eq(&TensorData::from([[0, 3, 0], [0, 4, 0]]), false);
    }
}

/// No elements have no maximum, minimum or integer mean: these ops panic. Sums are zero, products
/// one, and float means NaN.
#[test]
fn reductions_of_no_elements_panic_or_agree_on_every_device() {
    type Reduce = fn(Tensor<Wgsl, 2>) -> Tensor<Wgsl, 2>;
    type ReduceInts = fn(Tensor<Wgsl, 2, Int>) -> Tensor<Wgsl, 2, Int>;
    let defined: [(f32, Reduce); 6] = [
        (0.0, |x| x.sum_dim(0)),
        (0.0, |x| x.sum().expand([1, 3])),
        (1.0, |x| x.prod_dim(0)),
        (f32::NAN, |x| x.mean_dim(0)),
        (f32::NAN, |x| x.mean().expand([1, 3])),
        (0.0, |x| x.int().sum_dim(0).float()),
    ];
    let undefined: [Reduce; 10] = [
        |x| x.max_dim(0),
        |x| x.min_dim(0),
        |x| x.max_abs_dim(0),
        |x| x.max().unsqueeze(),
        |x| x.min().unsqueeze(),
        |x| x.max_abs().unsqueeze(),
        |x| x.argmax(0).float(),
        |x| x.argmin(0).float(),
        |x| x.max_dim_with_indices(0).0,
        |x| x.min_dim_with_indices(0).0,
    ];
    let undefined_ints: [ReduceInts; 9] = [
        |x| x.max_dim(0),
        |x| x.min_dim(0),
        |x| x.max().unsqueeze(),
        |x| x.min().unsqueeze(),
        |x| x.mean_dim(0),
        |x| x.mean().unsqueeze(),
        |x| x.argmax(0),
        |x| x.argmin(0),
        |x| x.max_dim_with_indices(0).1,
    ];
    for device in devices() {
        for (index, (expected, reduce)) in defined.into_iter().enumerate() {
            let result = reduce(Tensor::zeros([0, 3], &device)).into_data();
            let expected = TensorData::from([[expected; 3]]);
            assert_close(&format!("{index} on {device}"), &result, &expected, common::CLOSE);
        }
        let is_clear = |text: String| {
            assert!(text.contains("empty") || text.contains("size 0"), "{text} on {device}");
        };
        for reduce in undefined {
            is_clear(panic_message(move || drop(reduce(Tensor::zeros([0, 3], &device)))));
        }
        for reduce in undefined_ints {
            is_clear(panic_message(move || drop(reduce(Tensor::zeros([0, 3], &device)))));
        }
        // The maximum along another axis is an empty tensor.
        assert_eq!(Tensor::<Wgsl, 2>::zeros([0, 3], &device).max_dim(1).dims(), [0, 1]);
    }
}

#[test]
fn operands_of_two_types_panic_with_both_types() {
    for device in devices() {
        let text = panic_message(move || {
            let a = Tensor::<Wgsl, 1>::ones([3], &device);
            let _ = a.clone() + a.cast(burn::tensor::FloatDType::F16);
        });
        assert!(
            text.contains("F32") && text.contains("F16") && text.contains("float_add"),
            "{text}"
        );
        let text = panic_message(move || {
            let a = Tensor::<Wgsl, 1, Int>::ones([3], &device);
            let _ = a.clone().greater(a.cast(burn::tensor::IntDType::I64));
        });
        assert!(text.contains("I32") && text.contains("I64"), "{text}");
    }
}

#[test]
fn sums_and_means_of_expanded_views_are_correct() {
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
fn axis_out_of_range_panics_with_the_op_name() {
    use burn_backend::ops::FloatTensorOps;
    type Call = (&'static str, fn(burn_wgsl::WgslTensor));
    for device in devices() {
        let calls: [Call; 3] = [
            ("float_sum_dim", |tensor| drop(Wgsl::float_sum_dim(tensor, 2))),
            ("float_cumsum", |tensor| drop(Wgsl::float_cumsum(tensor, 5))),
            ("float_swap_dims", |tensor| drop(Wgsl::float_swap_dims(tensor, 0, 3))),
        ];
        for (op, call) in calls {
            let text = panic_message(move || call(primitive([2, 3], &device)));
            assert!(text.contains(op) && text.contains("has no axis"), "{text}");
        }
    }
}

#[test]
fn invalid_sizes_panic_on_every_device() {
    use burn::nn::pool::{AvgPool2dConfig, MaxPool2dConfig};
    use burn::tensor::module::max_pool2d_with_indices;
    type Pool = fn(Tensor<Wgsl, 4>);
    for device in devices() {
        let image = move || Tensor::<Wgsl, 4>::ones([1, 2, 6, 6], &device);
        let text = panic_message(move || {
            let kernel = Tensor::<Wgsl, 4>::ones([2, 2, 9, 9], &device);
            let options = burn::tensor::ops::ConvOptions::new([1, 1], [0, 0], [1, 1], 1);
            let _ = burn::tensor::module::conv2d(image(), kernel, None, options);
        });
        assert!(text.contains("[2, 2, 9, 9]") && text.contains("padded input"), "{text}");
        let text = panic_message(move || {
            let _ =
                burn::tensor::module::max_pool2d(image(), [2, 2], [0, 0], [0, 0], [1, 1], false);
        });
        assert!(text.contains("stride"), "{text}");
        // Windows larger than the padded input.
        let pools: [(&str, Pool); 3] = [
            ("max_pool2d", |x| drop(MaxPool2dConfig::new([9, 9]).init().forward(x))),
            ("max_pool2d_with_indices", |x| {
                let (kernel, one) = ([9, 9], [1, 1]);
                drop(max_pool2d_with_indices(x, kernel, one, [1, 1], one, false));
            }),
            ("avg_pool2d", |x| drop(AvgPool2dConfig::new([9, 9]).init().forward(x))),
        ];
        for (op, pool) in pools {
            let text = panic_message(move || pool(image()));
            assert!(text.contains(op) && text.contains("padded input"), "{text}");
        }
        let text = panic_message(move || {
            let _: Tensor<Wgsl, 5> = image().unfold(2, 3, 0);
        });
        assert!(text.contains("step"), "{text}");
        let text = panic_message(move || {
            let _ = Tensor::<Wgsl, 3>::zeros([usize::MAX / 2, 4, 5], &device);
        });
        assert!(text.contains("float_zeros"), "{text}");
    }
}

/// Copies a view to a packed tensor in blocks of 4 x 4. A software adapter computes addresses in 32
/// bits, so only a GPU shows a stride that was divided as an unsigned number;
/// `tests/code/variants/lint.rs` finds it in the shader.
#[test]
fn flipped_views_are_transposed() {
    for device in devices() {
        let x = Tensor::<Wgsl, 1, Int>::arange(0..3200, &device).reshape([2, 40, 40]);
        let element = |batch: i64, i: i64, j: i64| (batch * 40 + i) * 40 + j;
        for flips in [vec![1isize], vec![0, 1], vec![0]] {
            let reflected = |axis: isize, index: i64, last: i64| {
                if flips.contains(&axis) { last - index } else { index }
            };
            let expected: Vec<i64> = (0..3200)
                .map(|n| {
                    let (batch, j, i) = (n / 1600, n / 40 % 40, n % 40);
                    element(reflected(0, batch, 1), reflected(1, i, 39), j)
                })
                .collect();
            let flipped = flips.iter().fold(x.clone(), |x, &axis| x.flip([axis]));
            let view = flipped.swap_dims(1, 2);
            let values = view.reshape([3200]).into_data().convert::<i64>();
            assert_eq!(values.to_vec::<i64>().expect("integers"), expected, "{device}");
        }
    }
}

/// Matmul repacks an operand whose row stride aliases in the cache. The stride of 512 aliases,
/// although the rows have only 496 elements. The repacked copy must not alias again.
#[test]
fn matmul_of_narrowed_rows_matches_the_cpu() {
    // Other tests draw from the same stream of a device.
    if !is_alone(test_alone!("matmul_of_narrowed_rows_matches_the_cpu")) {
        return;
    }
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
