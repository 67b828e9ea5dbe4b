//! Ops that Burn 0.22 changed or added, beside Burn's CPU backend.

use crate::port::wgsl::WgslDevice;
use crate::port::{Port, PortDevice};
use burn_backend::ops::{
    FloatTensorOps, InterpolateMode, InterpolateOptions, ModuleOps, QTensorOps,
    TransactionPrimitive,
};
use burn_backend::quantization::{QuantScheme, QuantStore, QuantValue, ScaleDtype};
use burn_backend::tensor::{FloatTensor, IndexingUpdateOp, IntTensor};
use burn_backend::{
    Backend, BoolDType, DType, DTypeUsage, DTypeUsageSet, Device, FloatDType, IntDType, TensorData,
    TensorMetadata, TensorPrimitive,
};
use burn_flex::{Flex, FlexDevice};

const DEVICES: [PortDevice; 2] = [PortDevice(WgslDevice::Software), PortDevice(WgslDevice::Cpu)];

const UPDATES: [IndexingUpdateOp; 5] = [
    IndexingUpdateOp::Assign,
    IndexingUpdateOp::Add,
    IndexingUpdateOp::Mul,
    IndexingUpdateOp::Min,
    IndexingUpdateOp::Max,
];

/// Returns numbers from -1 to 1.
fn floats<B: Backend>(seed: usize, shape: &[usize], device: &B::Device) -> FloatTensor<B> {
    let element = |i: usize| ((i * 7919 + seed * 104_729) % 2003) as f32 / 1001.0 - 1.0;
    let values: Vec<f32> = (0..shape.iter().product()).map(element).collect();
    B::float_from_data(TensorData::new(values, shape.to_vec()), device)
}

fn ints<B: Backend>(values: &[i32], shape: &[usize], device: &B::Device) -> IntTensor<B> {
    let tensor = B::int_from_data(TensorData::new(values.to_vec(), shape.to_vec()), device);
    B::int_cast(tensor, IntDType::I32)
}

fn read_float<B: Backend>(tensor: FloatTensor<B>) -> TensorData {
    pollster::block_on(B::float_into_data(tensor)).expect("readback succeeds")
}

fn read_int<B: Backend>(tensor: IntTensor<B>) -> TensorData {
    pollster::block_on(B::int_into_data(tensor)).expect("readback succeeds")
}

fn assert_close(label: &str, found: &TensorData, expected: &TensorData) {
    assert_eq!(found.shape(), expected.shape(), "{label}");
    let pairs = found.iter::<f64>().zip(expected.iter::<f64>());
    for (index, (found, expected)) in pairs.enumerate() {
        assert!(
            (found - expected).abs() <= 1e-5,
            "{label}: {found} at {index}, expected {expected}"
        );
    }
}

/// Runs a computation on both backends.
macro_rules! compare {
    (|$backend:ident, $device:ident| $results:expr) => {
        for device in DEVICES {
            fn run<$backend: Backend>($device: &$backend::Device) -> Vec<(String, TensorData)> {
                $results
            }
            let [found, expected] = [run::<Port>(&device), run::<Flex>(&FlexDevice)];
            assert!(!found.is_empty() && found.len() == expected.len());
            for ((label, found), (_, expected)) in found.iter().zip(&expected) {
                assert_close(&format!("{label} on {device:?}"), found, expected);
            }
        }
    };
}

#[test]
fn elements_and_slices_are_updated_along_each_axis() {
    compare!(|B, device| {
        let mut results = Vec::new();
        for update in UPDATES {
            for (dim, index_shape) in [(0, [2, 4]), (1, [3, 2])] {
                // An index occurs once, so that the order does not matter.
                let indices =
                    if dim == 0 { [2, 0, 1, 2, 0, 2, 0, 1] } else { [3, 0, 1, 2, 0, 3, 0, 0] };
                let indices =
                    ints::<B>(&indices[..index_shape[0] * index_shape[1]], &index_shape, device);
                let [tensor, value] =
                    [floats::<B>(1, &[3, 4], device), floats::<B>(2, &index_shape, device)];
                let scattered = B::float_scatter(dim, tensor.clone(), indices, value, update);
                results.push((format!("scatter {update:?} {dim}"), read_float::<B>(scattered)));
                let mut value_shape = [3, 4];
                value_shape[dim] = 2;
                let indices = ints::<B>(&[2, 0], &[2], device);
                let value = floats::<B>(3, &value_shape, device);
                let assigned = B::float_select_assign(tensor, dim, indices, value, update);
                results.push((format!("select {update:?} {dim}"), read_float::<B>(assigned)));
                let tensor = ints::<B>(&[5, -3, 2, 7, 1, 0, 4, -8, 9, 6, 3, 2], &[3, 4], device);
                let value = ints::<B>(
                    &[1, -2, 3, 4, -5, 6, 7, -8][..2 * value_shape[1 - dim]],
                    &value_shape,
                    device,
                );
                let indices = ints::<B>(&[2, 0], &[2], device);
                let assigned = B::int_select_assign(tensor.clone(), dim, indices, value, update);
                results.push((format!("integers {update:?} {dim}"), read_int::<B>(assigned)));
                let indices =
                    if dim == 0 { [2, 0, 1, 2, 0, 2, 0, 1] } else { [3, 0, 1, 2, 2, 1, 0, 0] };
                let count = index_shape[0] * index_shape[1];
                let indices = ints::<B>(&indices[..count], &index_shape, device);
                let value = ints::<B>(&[3, -4, 6, -9, 2, 5, -7, 1][..count], &index_shape, device);
                let scattered = B::int_scatter(dim, tensor, indices, value, update);
                let label = format!("integers at elements {update:?} {dim}");
                results.push((label, read_int::<B>(scattered)));
            }
        }
        results
    });
}

#[test]
fn no_updates_change_nothing() {
    for device in DEVICES {
        for update in UPDATES {
            for dim in [0, 1] {
                let tensor = floats::<Port>(1, &[3, 4], &device);
                let mut shape = [3, 4];
                shape[dim] = 0;
                let value = floats::<Port>(2, &shape, &device);
                let elements = ints::<Port>(&[], &shape, &device);
                let slices = ints::<Port>(&[], &[0], &device);
                let scatter = Port::float_scatter;
                let assign = Port::float_select_assign;
                let results = [
                    scatter(dim, tensor.clone(), elements, value.clone(), update),
                    assign(tensor.clone(), dim, slices, value, update),
                ];
                let expected = read_float::<Port>(tensor);
                for found in results.map(read_float::<Port>) {
                    assert_close(&format!("{update:?} {dim} {device:?}"), &found, &expected);
                }
            }
        }
    }
}

#[test]
fn the_largest_elements_with_their_indices() {
    compare!(|B, device| {
        let mut results = Vec::new();
        for (dim, k) in [(0, 2), (1, 5), (1, 300)] {
            let x = floats::<B>(1, &[4, 300], device);
            let (largest, at) = B::float_topk_with_indices(x, dim, k, IntDType::I32);
            results.push((format!("{k} of floats along {dim}"), read_float::<B>(largest)));
            results.push((format!("indices of {k} floats along {dim}"), read_int::<B>(at)));
            let x: Vec<i32> = (0..1200).map(|i| i * 7919 % 2003 - 1000).collect();
            let (largest, at) = B::int_topk_with_indices(ints::<B>(&x, &[4, 300], device), dim, k);
            results.push((format!("{k} of integers along {dim}"), read_int::<B>(largest)));
            results.push((format!("indices of {k} integers along {dim}"), read_int::<B>(at)));
        }
        results
    });
}

#[test]
fn a_transaction_reads_every_kind() {
    compare!(|B, device| {
        let scheme =
            QuantScheme::default().with_value(QuantValue::Q8S).with_store(QuantStore::Native);
        let x = floats::<B>(1, &[4, 10], device);
        let is_positive = B::float_greater_elem(x.clone(), 0.0.into(), BoolDType::Native);
        let reads = TransactionPrimitive::<B>::new(
            vec![x.clone(), floats::<B>(2, &[3], device)],
            vec![B::quantize_dynamic(x, &scheme)],
            vec![ints::<B>(&[1, -2, 3], &[3], device)],
            vec![is_positive],
        );
        let read = pollster::block_on(B::tr_execute(reads)).expect("readback succeeds");
        let quantised = read.read_qfloats.into_iter().map(|data| {
            let tensor = B::q_from_data(data, device);
            read_float::<B>(B::dequantize(tensor, FloatDType::F32))
        });
        let booleans = read.read_bools.iter().map(|data| {
            let values: Vec<f32> = data.iter::<bool>().map(f32::from).collect();
            TensorData::new(values, data.shape().clone())
        });
        let all = read.read_floats.iter().cloned().chain(quantised);
        let all = all.chain(read.read_ints.iter().cloned()).chain(booleans);
        all.enumerate().map(|(index, data)| (index.to_string(), data)).collect()
    });
}

#[test]
fn types_are_used_as_burn_wgsl_uses_them() {
    let arithmetic = DTypeUsageSet::from(DTypeUsage::Arithmetic);
    for device in DEVICES {
        for dtype in [DType::F32, DType::F16, DType::BF16, DType::I32, DType::I64, DType::U8] {
            let usage = Port::dtype_usage(&device, dtype);
            assert!(usage.contains(DTypeUsage::Storage), "{dtype:?} on {device:?}");
            assert!(usage.is_superset(arithmetic), "{dtype:?} on {device:?}");
        }
        let lookup = QuantScheme::default().per_block([5], ScaleDtype::F16);
        assert!(Port::dtype_usage(&device, DType::QFloat(lookup)).is_empty());
    }
}

#[test]
fn adaptive_pooling_in_three_dimensions() {
    compare!(|B, device| {
        let mut results = Vec::new();
        for output in [[1, 1, 1], [2, 3, 4], [5, 7, 6], [7, 2, 9]] {
            let x = floats::<B>(1, &[2, 3, 5, 7, 6], device);
            let pooled = B::adaptive_avg_pool3d(x.clone(), output);
            let grad = floats::<B>(2, &[&[2, 3], &output[..]].concat(), device);
            results.push((format!("{output:?}"), read_float::<B>(pooled)));
            let grad = B::adaptive_avg_pool3d_backward(x, grad);
            results.push((format!("gradient of {output:?}"), read_float::<B>(grad)));
        }
        results
    });
}

/// Burn's CPU backend does not have it. Pillow's and PyTorch's sizes 5 to 3 and 3 to 5, by hand.
#[test]
fn nearest_exact_takes_the_pixel_of_the_centre() {
    for device in DEVICES {
        let resized = |input: usize, output: usize| {
            let values: Vec<f32> = (0..input).map(|pixel| pixel as f32).collect();
            let x = Port::float_from_data(TensorData::new(values, [1, 1, 1, input]), &device);
            let options = InterpolateOptions::new(InterpolateMode::NearestExact);
            let y = Port::interpolate(x.clone(), [1, output], options.clone());
            let ones = Port::float_ones(y.shape(), &device, FloatDType::F32);
            let grad = Port::interpolate_backward(x, ones, [1, output], options);
            [y, grad].map(|tensor| read_float::<Port>(tensor).iter::<f32>().collect::<Vec<_>>())
        };
        assert_eq!(
            resized(5, 3),
            [vec![0.0, 2.0, 4.0], vec![1.0, 0.0, 1.0, 0.0, 1.0]],
            "{device:?}"
        );
        assert_eq!(
            resized(3, 5),
            [vec![0.0, 0.0, 1.0, 2.0, 2.0], vec![2.0, 1.0, 2.0]],
            "{device:?}"
        );
        assert_eq!(resized(4, 2), [vec![1.0, 3.0], vec![0.0, 1.0, 0.0, 1.0]], "{device:?}");
    }
}

#[test]
fn batches_are_normalised() {
    compare!(|B, device| {
        let x = floats::<B>(1, &[4, 3, 5, 5], device);
        let [gamma, beta] = [2, 3].map(|seed| floats::<B>(seed, &[3], device));
        let normalised = B::batch_norm_train(x, gamma, beta, 1e-5);
        vec![
            ("output".into(), read_float::<B>(normalised.output)),
            ("mean".into(), read_float::<B>(normalised.mean)),
            ("variance".into(), read_float::<B>(normalised.variance)),
        ]
    });
}

#[test]
fn maxima_have_indices_of_the_requested_type() {
    for device in DEVICES {
        let x = floats::<Port>(1, &[1, 2, 6, 6], &device);
        for dtype in [IntDType::I32, IntDType::U8] {
            let pooled = Port::max_pool2d_with_indices(
                x.clone(),
                [2, 2],
                [2, 2],
                [0, 0],
                [1, 1],
                false,
                dtype,
            );
            assert_eq!(pooled.indices.dtype(), dtype.into(), "{device:?}");
        }
    }
}

#[test]
fn quantised_tensors_have_the_same_elements() {
    compare!(|B, device| {
        let mut results = Vec::new();
        for value in [QuantValue::Q8S, QuantValue::Q8F, QuantValue::Q4S, QuantValue::Q2S] {
            let scheme = QuantScheme::default().with_value(value).with_store(QuantStore::Native);
            for scheme in [scheme, scheme.per_block([5], ScaleDtype::F32)] {
                let quantised = B::quantize_dynamic(floats::<B>(1, &[4, 10], device), &scheme);
                let label = format!("{scheme:?}");
                let dequantised = B::dequantize(quantised.clone(), FloatDType::F32);
                results.push((label.clone(), read_float::<B>(dequantised)));
                // The format of the bytes.
                let data =
                    pollster::block_on(B::q_into_data(quantised)).expect("readback succeeds");
                let again = B::dequantize(B::q_from_data(data, device), FloatDType::F32);
                results.push((format!("{label}, from bytes"), read_float::<B>(again)));
            }
        }
        results
    });
}

/// Bytes of Burn's CPU backend, and bytes for it.
#[test]
fn quantised_bytes_are_those_of_burn() {
    for device in DEVICES {
        for levels in [None, Some([5u8])] {
            let mut scheme =
                QuantScheme::default().with_value(QuantValue::Q8S).with_store(QuantStore::Native);
            if let Some(block) = levels {
                scheme = scheme.per_block(block, ScaleDtype::F32);
            }
            let here = Port::quantize_dynamic(floats::<Port>(1, &[4, 10], &device), &scheme);
            let there = Flex::quantize_dynamic(floats::<Flex>(1, &[4, 10], &FlexDevice), &scheme);
            let [here, there] = [
                pollster::block_on(Port::q_into_data(here)).expect("readback succeeds"),
                pollster::block_on(Flex::q_into_data(there)).expect("it is on the CPU"),
            ];
            assert_eq!(here.as_bytes(), there.as_bytes(), "{levels:?} on {device:?}");
            let moved = Port::dequantize(Port::q_from_data(there, &device), FloatDType::F32);
            let back = Flex::dequantize(Flex::q_from_data(here, &FlexDevice), FloatDType::F32);
            assert_close("moved", &read_float::<Port>(moved), &read_float::<Flex>(back));
        }
    }
}

#[test]
fn schemes_that_burn_wgsl_cannot_store_are_rejected() {
    let scheme = QuantScheme::default().with_value(QuantValue::Q8S);
    let device = PortDevice(WgslDevice::Cpu);
    for (scheme, problem) in [
        (scheme.per_tensor(ScaleDtype::F32).per_block([5], ScaleDtype::F32), "use one of them"),
        (scheme.per_block([5], ScaleDtype::F16), "of another type than f32"),
        (scheme.per_block([2, 5], ScaleDtype::F32), "along the last axis"),
    ] {
        assert!(!Port::supports_dtype(&device, DType::QFloat(scheme)));
        assert_rejected(&scheme, problem);
    }
    // The tensor is a whole number of blocks, its lines are not.
    let scheme = scheme.with_store(QuantStore::Native).per_block([4], ScaleDtype::F32);
    assert_rejected(&scheme, "a whole number of blocks");
}

fn assert_rejected(scheme: &QuantScheme, problem: &str) {
    let message = std::panic::catch_unwind(|| {
        Port::quantize_dynamic(floats::<Port>(1, &[4, 10], &PortDevice(WgslDevice::Cpu)), scheme)
    })
    .expect_err("it is not supported");
    let message = message.downcast_ref::<String>().cloned().unwrap_or_default();
    assert!(message.contains(problem), "{message}");
}

#[test]
fn products_of_quantised_tensors_are_those_of_burn() {
    compare!(|B, device| {
        let scheme =
            QuantScheme::default().with_value(QuantValue::Q8S).with_store(QuantStore::Native);
        let quantised = |seed, shape: &[usize]| {
            let tensor = B::quantize_dynamic(floats::<B>(seed, shape, device), &scheme);
            TensorPrimitive::QFloat(tensor)
        };
        let product = B::q_matmul(quantised(1, &[1, 24, 32]), quantised(2, &[1, 32, 40]));
        match product {
            TensorPrimitive::Float(product) => vec![("both".into(), read_float::<B>(product))],
            TensorPrimitive::QFloat(_) => panic!("the settings ask for floats"),
        }
    });
}

/// Burn 0.22 drops a last window that starts past the input.
#[test]
fn pooling_has_the_windows_of_burn() {
    compare!(|B, device| {
        let mut results = Vec::new();
        // Both axes lose the last window, one does, none does.
        for [height, width] in [[3, 5], [3, 6], [6, 6], [4, 7]] {
            for (kernel, stride, padding) in [([2, 2], [2, 2], [1, 1]), ([3, 2], [2, 3], [1, 0])] {
                let x = floats::<B>(1, &[2, 3, height, width], device);
                let label = format!("{height} x {width}, {kernel:?}, {stride:?}, {padding:?}");
                let dtype = IntDType::I32;
                let pooled = B::max_pool2d_with_indices(
                    x.clone(),
                    kernel,
                    stride,
                    padding,
                    [1; 2],
                    true,
                    dtype,
                );
                let grad = floats::<B>(2, &pooled.output.shape().to_vec(), device);
                results.push((format!("max {label}"), read_float::<B>(pooled.output)));
                let gradient = B::max_pool2d_with_indices_backward(
                    x.clone(),
                    kernel,
                    stride,
                    padding,
                    [1; 2],
                    true,
                    grad,
                    pooled.indices,
                );
                results
                    .push((format!("gradient of max {label}"), read_float::<B>(gradient.x_grad)));
                let plain = B::max_pool2d(x.clone(), kernel, stride, padding, [1; 2], true);
                results.push((format!("plain max {label}"), read_float::<B>(plain)));
                for count_pad in [false, true] {
                    let pooled = B::avg_pool2d(x.clone(), kernel, stride, padding, count_pad, true);
                    let grad = floats::<B>(3, &pooled.shape().to_vec(), device);
                    results.push((format!("mean {label} {count_pad}"), read_float::<B>(pooled)));
                    let gradient = B::avg_pool2d_backward(
                        x.clone(),
                        grad,
                        kernel,
                        stride,
                        padding,
                        count_pad,
                        true,
                    );
                    let label = format!("gradient of mean {label} {count_pad}");
                    results.push((label, read_float::<B>(gradient)));
                }
                let x = floats::<B>(1, &[2, 3, width], device);
                let pooled = B::max_pool1d(x.clone(), kernel[1], stride[1], padding[1], 1, true);
                results.push((format!("max of lines {label}"), read_float::<B>(pooled)));
                let pooled = B::avg_pool1d(x, kernel[1], stride[1], padding[1], true, true);
                results.push((format!("mean of lines {label}"), read_float::<B>(pooled)));
            }
        }
        results
    });
}

#[test]
fn the_sign_of_nan_is_zero() {
    compare!(|B, device| {
        let x = TensorData::from([f32::NAN, -2.0, 0.0, 3.0, f32::NEG_INFINITY]);
        let x = B::float_from_data(x, device);
        vec![("sign".into(), read_float::<B>(B::float_sign(x)))]
    });
}

/// It stays in the windows that it is in.
#[test]
fn an_infinite_element_of_adaptive_pooling() {
    for device in DEVICES {
        let mut values = vec![1.0f32; 64];
        values[0] = f32::INFINITY;
        let x = Port::float_from_data(TensorData::new(values, [1, 1, 4, 4, 4]), &device);
        let pooled = read_float::<Port>(Port::adaptive_avg_pool3d(x, [2, 2, 2]));
        let mut expected = vec![1.0; 8];
        expected[0] = f32::INFINITY;
        assert_eq!(pooled.iter::<f32>().collect::<Vec<_>>(), expected, "{device:?}");
    }
}

/// Burn lists the devices of type 0 as `Cuda`.
#[test]
fn listed_devices_are_gpus() {
    let cuda = PortDevice::Cuda(3);
    assert_eq!(cuda.to_id().type_id, 0);
    assert_eq!(PortDevice::from_id(cuda.to_id()).0, WgslDevice::Gpu(3));
    let gpus = Port::device_count(0);
    for index in 0..gpus {
        assert!(PortDevice::Cuda(index).0.describe().is_ok(), "GPU {index} of {gpus}");
    }
    assert!(PortDevice::Cuda(gpus).0.describe().is_err());
}
