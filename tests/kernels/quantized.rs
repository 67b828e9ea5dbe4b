//! Quantised tensors: results must have the same bytes as burn-flex's, without fallbacks.

use burn::tensor::quantization::{
    QuantLevel, QuantParam, QuantScheme, QuantStore, QuantValue, QuantizationParametersPrimitive,
};
use burn::tensor::{Tensor, TensorPrimitive, Transaction};
use burn_backend::ops::{FloatTensorOps, IntTensorOps, QTensorOps};
use burn_backend::tensor::{FloatTensor, QuantizedTensor};
use burn_backend::{Backend, TensorData, TensorMetadata, get_device_settings};
use burn_flex::{Flex, FlexDevice};
use burn_std::{Bytes, FloatDType, Shape, Slice};
use burn_wgsl::{Wgsl, WgslDevice};

use crate::common::{
    self, Launches, SUMMED, assert_close, devices, gpus, panic_message, runtime_of, serial_guard,
    without_fallbacks,
};

fn scheme(value: QuantValue, level: QuantLevel) -> QuantScheme {
    QuantScheme::default().with_value(value).with_level(level).with_store(QuantStore::Native)
}

/// The values of the schemes that have kernels.
const VALUES: [QuantValue; 6] = [
    QuantValue::Q8S,
    QuantValue::Q8F,
    QuantValue::Q4S,
    QuantValue::Q4F,
    QuantValue::Q2S,
    QuantValue::Q2F,
];

/// Returns the schemes that have kernels. The blocks have 1, 4, 5 and 20 elements.
fn schemes() -> Vec<QuantScheme> {
    let levels = [
        QuantLevel::Tensor,
        QuantLevel::block([4]),
        QuantLevel::block([5]),
        QuantLevel::block([2, 10]),
        QuantLevel::block([1]),
    ];
    VALUES.into_iter().flat_map(|value| levels.map(|level| scheme(value, level))).collect()
}

/// Returns numbers of mixed magnitude, some of them zero.
fn numbers(shape: &[usize]) -> TensorData {
    let len: usize = shape.iter().product();
    let values = (0..len as u32).map(|i| match i % 7 {
        3 => 0.0,
        _ => (i.wrapping_mul(2_654_435_761) as i32 as f32 / 2e9) * (i % 11) as f32,
    });
    TensorData::new(values.collect::<Vec<f32>>(), shape.to_vec())
}

fn read<B: Backend>(tensor: QuantizedTensor<B>) -> TensorData {
    pollster::block_on(B::q_into_data(tensor)).expect("readback succeeds")
}

fn read_float<B: Backend>(tensor: FloatTensor<B>) -> TensorData {
    pollster::block_on(B::float_into_data(tensor)).expect("readback succeeds")
}

fn assert_same_bytes(label: &str, value: &TensorData, expected: &TensorData) {
    assert_eq!(value.shape, expected.shape, "{label}: the shape");
    assert_eq!(value.dtype, expected.dtype, "{label}: the element type");
    if value.as_bytes() != expected.as_bytes() {
        let pairs = value.as_bytes().iter().zip(expected.as_bytes());
        let first = pairs.enumerate().find(|(_, (a, b))| a != b);
        panic!("{label}: the bytes differ, first (index, (found, expected)): {first:?}");
    }
}

fn assert_all_same_bytes(
    label: &str,
    values: &[(&str, TensorData)],
    expected: &[(&str, TensorData)],
) {
    assert_eq!(values.len(), expected.len());
    for ((op, value), (_, expected)) in values.iter().zip(expected) {
        assert_same_bytes(&format!("{op} of {label}"), value, expected);
    }
}

/// Quantises floats with dynamic scales and dequantises the result. Returns both tensors.
fn quantise_and_dequantise<B: Backend>(
    data: &TensorData,
    axes: &[usize],
    scheme: &QuantScheme,
    device: &B::Device,
) -> Vec<(&'static str, TensorData)> {
    let x = B::float_from_data(data.clone(), device);
    let x = if axes.is_empty() { x } else { B::float_permute(x, axes) };
    let q = B::quantize_dynamic(x, scheme);
    let dequantised = B::dequantize(q.clone(), FloatDType::F32);
    vec![("quantize_dynamic", read::<B>(q)), ("dequantize", read_float::<B>(dequantised))]
}

#[test]
fn quantise_and_dequantise_match_burn_flex_bytes() {
    let shapes: [&[usize]; 5] = [&[20], &[4, 6, 5], &[40, 30, 7], &[2, 3, 2, 5, 2], &[80_020]];
    for device in gpus() {
        for shape in shapes {
            for scheme in schemes() {
                let data = numbers(shape);
                let reversed_axes: Vec<usize> = (0..shape.len()).rev().collect();
                for axes in [&[], reversed_axes.as_slice()] {
                    let label = format!("{shape:?} permuted by {axes:?} on {device} as {scheme:?}");
                    let expected =
                        quantise_and_dequantise::<Flex>(&data, axes, &scheme, &FlexDevice);
                    without_fallbacks("quantised", || {
                        let values = quantise_and_dequantise::<Wgsl>(&data, axes, &scheme, &device);
                        assert_all_same_bytes(&label, &values, &expected);
                    });
                }
            }
        }
        for len in [1, 2, 3, 5, 255, 256, 257, 1021, 70_001, 0] {
            for value in VALUES {
                let (data, scheme) = (numbers(&[len]), scheme(value, QuantLevel::Tensor));
                let expected = quantise_and_dequantise::<Flex>(&data, &[], &scheme, &FlexDevice);
                without_fallbacks("quantised", || {
                    let values = quantise_and_dequantise::<Wgsl>(&data, &[], &scheme, &device);
                    assert_all_same_bytes(
                        &format!("{len} elements on {device}"),
                        &values,
                        &expected,
                    );
                });
            }
        }
    }
}

/// Returns whether GPUs have the reciprocals of all scales: with 2 bits, those of large ones are
/// subnormal.
fn has_reciprocals(data: &TensorData, scheme: &QuantScheme) -> bool {
    let is_large = |x: f32| x.is_finite() && x.abs() > 8e37;
    scheme.value.size_bits() > 2 || !data.iter::<f32>().any(is_large)
}

#[test]
fn special_numbers_match_burn_flex_bytes() {
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    let blocks = [
        [0.0, 0.0, -0.0, 0.0],
        [nan, 1.0, -2.0, 0.5],
        [nan, nan, nan, nan],
        [inf, 1.0, 0.0, -1.0],
        [-inf, nan, 0.0, 1e-3],
        [3.3e38, -1e38, 1.0, 0.0],
        [1.6e38, -1.6e38, 8e37, 0.0],
        [1.2e-38, -1.2e-38, 0.0, 6e-38],
        [1e-30, -3e-31, 0.0, 1e-32],
        [127.0, -127.0, 0.5, 1.5],
        [126.999_99, 63.5, -63.5, -0.5],
        [128.0, 0.503_937, -64.0, 2.5],
    ];
    let levels = [QuantLevel::Tensor, QuantLevel::block([4])];
    for device in gpus() {
        for value in VALUES {
            for level in levels {
                let scheme = scheme(value, level);
                let all = TensorData::new(blocks.concat(), [blocks.len() * 4]);
                let each = blocks.iter().map(|block| TensorData::new(block.to_vec(), [4]));
                for data in each.chain([all]) {
                    if !has_reciprocals(&data, &scheme) {
                        continue;
                    }
                    let expected =
                        quantise_and_dequantise::<Flex>(&data, &[], &scheme, &FlexDevice);
                    without_fallbacks("quantised", || {
                        let values = quantise_and_dequantise::<Wgsl>(&data, &[], &scheme, &device);
                        assert_all_same_bytes(&format!("{data:?} on {device}"), &values, &expected);
                    });
                }
            }
        }
    }
}

/// Scales and their reciprocals must be rounded as on the CPU, for all exponents and random
/// mantissas.
#[test]
fn scales_of_any_magnitude_match_burn_flex_bytes() {
    let bits = (0..100_000u32).map(|i| {
        let random = i.wrapping_mul(2_654_435_761).rotate_left(15).wrapping_mul(2_246_822_519);
        let exponent = 1 + i % 254;
        f32::from_bits((random & 0x807f_ffff) | (exponent << 23))
    });
    let data = TensorData::new(bits.collect::<Vec<f32>>(), [100_000]);
    for device in gpus() {
        for value in VALUES {
            for block in [1, 2, 50] {
                let scheme = scheme(value, QuantLevel::block([block]));
                let mut data = data.clone();
                if scheme.value.size_bits() == 2 {
                    data = data.convert::<f32>();
                    let values = data.as_mut_slice::<f32>().expect("they are f32");
                    values.iter_mut().for_each(|x| *x = x.clamp(-8e37, 8e37));
                }
                let expected = quantise_and_dequantise::<Flex>(&data, &[], &scheme, &FlexDevice);
                without_fallbacks("quantised", || {
                    let values = quantise_and_dequantise::<Wgsl>(&data, &[], &scheme, &device);
                    assert_all_same_bytes(
                        &format!("blocks of {block} on {device}"),
                        &values,
                        &expected,
                    );
                });
            }
        }
    }
}

/// Quantises floats with the given scales.
fn quantise_with_scales<B: Backend>(
    data: &TensorData,
    scales: &TensorData,
    scheme: &QuantScheme,
    device: &B::Device,
) -> TensorData {
    let scales = B::float_from_data(scales.clone(), device);
    let tensor = B::float_from_data(data.clone(), device);
    read::<B>(B::quantize(tensor, scheme, QuantizationParametersPrimitive { scales }))
}

#[test]
fn quantising_with_missing_or_surplus_scales_panics() {
    for device in devices() {
        let schemes = [(QuantLevel::Tensor, [0, 2]), (QuantLevel::block([16]), [3, 5])];
        for (level, counts) in schemes {
            let scheme = scheme(QuantValue::Q8S, level);
            for count in counts {
                let text = panic_message(move || {
                    let data = TensorData::new(vec![0.5f32; 64], [4, 16]);
                    let scales = TensorData::new(vec![0.1f32; count], [count]);
                    quantise_with_scales::<Wgsl>(&data, &scales, &scheme, &device);
                });
                assert!(text.contains("[4, 16]") && text.contains("scale"), "{text} on {device}");
            }
        }
    }
}

/// Views can have more elements than their memory, but not more than 32-bit indices address.
#[test]
fn expanding_beyond_32_bit_indices_panics() {
    for device in gpus() {
        let text = panic_message(move || {
            let data = TensorData::new(vec![0.5f32], [1, 1]);
            let tensor = Wgsl::float_from_data(data, &device);
            let scheme = scheme(QuantValue::Q8S, QuantLevel::Tensor);
            let tensor = Wgsl::quantize_dynamic(tensor, &scheme);
            drop(Wgsl::q_expand(tensor, [1 << 20, 1 << 20].into()));
        });
        assert!(text.contains("q_expand") && text.contains("32-bit index"), "{text}");
    }
}

#[test]
fn given_scales_are_used_unchanged() {
    // Half-integers reveal the rounding direction. The largest ones are outside the 8-bit range.
    let half_integers: Vec<f32> = (-140..140).map(|i| i as f32 + 0.5).collect();
    let data = TensorData::new(half_integers, [280]);
    for device in gpus() {
        for value in VALUES {
            let per_tensor = [1.0, 2.0, 0.3, 1e-3, 1e3, -1.5, 0.0, f32::NAN, f32::INFINITY, 1e-39];
            for scale in per_tensor {
                let scales = TensorData::new(vec![scale], [1]);
                let scheme = scheme(value, QuantLevel::Tensor);
                let expected = quantise_with_scales::<Flex>(&data, &scales, &scheme, &FlexDevice);
                without_fallbacks("quantised", || {
                    let values = quantise_with_scales::<Wgsl>(&data, &scales, &scheme, &device);
                    assert_same_bytes(&format!("scale {scale} on {device}"), &values, &expected);
                });
            }
            let scales: Vec<f32> = (0..40).map(|i| 0.1 + 0.37 * i as f32).collect();
            let scales = TensorData::new(scales, [40]);
            let scheme = scheme(value, QuantLevel::block([7]));
            let expected = quantise_with_scales::<Flex>(&data, &scales, &scheme, &FlexDevice);
            without_fallbacks("quantised", || {
                let values = quantise_with_scales::<Wgsl>(&data, &scales, &scheme, &device);
                assert_same_bytes(&format!("block scales on {device}"), &values, &expected);
            });
        }
    }
}

/// Runs every layout op on a tensor of shape `[8, 6, 10]` and on views of it.
fn layout_ops<B: Backend>(
    data: &TensorData,
    scheme: &QuantScheme,
    device: &B::Device,
) -> Vec<(&'static str, TensorData)> {
    let q = || B::quantize_dynamic(B::float_from_data(data.clone(), device), scheme);
    let ints = |values: Vec<i32>, shape: &[usize]| {
        B::int_from_data(TensorData::new(values, shape.to_vec()), device)
    };
    let slices = [Slice::new(1, Some(8), 2), Slice::new(0, None, -1), Slice::new(-5, None, 1)];
    let view = || B::q_flip(B::q_permute(q(), &[2, 0, 1]), &[1]);
    let indices = |count: i32, below: i32| (0..count).map(|i| (i * 7 + 3) % below).collect();
    let mut out = vec![
        ("swap_dims", read::<B>(B::q_swap_dims(q(), 0, 2))),
        ("transpose", read::<B>(B::q_transpose(q()))),
        ("permute", read::<B>(B::q_permute(q(), &[1, 2, 0]))),
        ("flip", read::<B>(B::q_flip(q(), &[0, 2]))),
        ("slice", read::<B>(B::q_slice(q(), &slices))),
        ("select", read::<B>(B::q_select(q(), 1, ints(indices(2, 6), &[2])))),
        ("gather", read::<B>(B::q_gather(0, q(), ints(indices(240, 8), &[4, 6, 10])))),
        ("permute, flip", read::<B>(view())),
        ("slice of a view", read::<B>(B::q_slice(view(), &[Slice::new(1, Some(6), 1)]))),
        ("select of a view", read::<B>(B::q_select(view(), 0, ints(indices(5, 10), &[5])))),
        ("dequantize of a view", read_float::<B>(B::dequantize(view(), FloatDType::F32))),
        (
            "expand",
            read::<B>(B::q_expand(
                B::q_slice(q(), &[Slice::new(0, None, 1), Slice::new(2, Some(3), 1)]),
                Shape::new([2, 8, 3, 10]),
            )),
        ),
    ];
    // burn-flex requantises a reshaped tensor that has block scales, which changes its values.
    if scheme.level == QuantLevel::Tensor {
        let shape = || Shape::new([12, 40]);
        let row = TensorData::new(vec![0.5f32, -1.0, 0.25], [1, 3]);
        let row = B::quantize_dynamic(B::float_from_data(row, device), scheme);
        let rows = B::q_expand(row, Shape::new([100, 3]));
        out.push((
            "dequantize of an expanded row",
            read_float::<B>(B::dequantize(rows, FloatDType::F32)),
        ));
        out.extend([
            ("reshape", read::<B>(B::q_reshape(q(), shape()))),
            ("reshape of a view", read::<B>(B::q_reshape(view(), shape()))),
            (
                "slice that starts inside a 32-bit word",
                read::<B>(B::q_slice(
                    B::q_reshape(q(), Shape::new([480])),
                    &[Slice::new(3, Some(210), 1)],
                )),
            ),
            (
                "select from rows of odd length",
                read::<B>(B::q_select(
                    B::q_slice(
                        q(),
                        &[
                            Slice::new(0, Some(3), 1),
                            Slice::new(0, Some(5), 1),
                            Slice::new(0, Some(7), 1),
                        ],
                    ),
                    2,
                    ints(indices(3, 7), &[3]),
                )),
            ),
        ]);
    }
    out
}

#[test]
fn layout_ops_match_burn_flex_bytes() {
    let data = numbers(&[8, 6, 10]);
    for device in gpus() {
        for scheme in schemes() {
            let expected = layout_ops::<Flex>(&data, &scheme, &FlexDevice);
            without_fallbacks("quantised", || {
                let values = layout_ops::<Wgsl>(&data, &scheme, &device);
                assert_all_same_bytes(&format!("{scheme:?} on {device}"), &values, &expected);
            });
        }
    }
}

#[test]
fn reshape_keeps_the_bytes() {
    for device in gpus() {
        for scheme in schemes() {
            without_fallbacks("quantised", || {
                let x = Wgsl::float_from_data(numbers(&[8, 6, 10]), &device);
                let q = Wgsl::quantize_dynamic(x, &scheme);
                let before = read::<Wgsl>(q.clone());
                let after = read::<Wgsl>(Wgsl::q_reshape(q, Shape::new([16, 30])));
                assert_eq!(after.shape, Shape::new([16, 30]));
                assert_eq!(after.as_bytes(), before.as_bytes(), "{scheme:?} on {device}");
            });
        }
    }
}

#[test]
fn argmax_and_argmin_match_those_of_the_dequantised_floats() {
    let data = numbers(&[8, 6, 10]);
    for device in gpus() {
        let dtype = get_device_settings::<Wgsl>(&device).int_dtype;
        for scheme in schemes() {
            let q =
                Flex::quantize_dynamic(Flex::float_from_data(data.clone(), &FlexDevice), &scheme);
            let floats = Flex::dequantize(q, FloatDType::F32);
            without_fallbacks("quantised", || {
                let q =
                    Wgsl::quantize_dynamic(Wgsl::float_from_data(data.clone(), &device), &scheme);
                for dim in 0..3 {
                    for largest in [true, false] {
                        let (indices, expected) = if largest {
                            (
                                Wgsl::q_argmax(q.clone(), dim, dtype),
                                Flex::float_argmax(floats.clone(), dim, burn_std::IntDType::I32),
                            )
                        } else {
                            (
                                Wgsl::q_argmin(q.clone(), dim, dtype),
                                Flex::float_argmin(floats.clone(), dim, burn_std::IntDType::I32),
                            )
                        };
                        let indices = pollster::block_on(Wgsl::int_into_data(indices))
                            .expect("readback succeeds");
                        indices.assert_eq(&expected.into_data(), false);
                    }
                }
            });
        }
    }
}

/// Multiplies floats with both operands quantised, and with only one of them quantised.
fn products<B: Backend>(
    a: &TensorData,
    b: &TensorData,
    scheme: &QuantScheme,
    device: &B::Device,
) -> Vec<(&'static str, TensorData)> {
    let float = |data: &TensorData| B::float_from_data(data.clone(), device);
    let quantised = |data| TensorPrimitive::QFloat(B::quantize_dynamic(float(data), scheme));
    let floats = |product| match product {
        TensorPrimitive::Float(tensor) => read_float::<B>(tensor),
        TensorPrimitive::QFloat(tensor) => read_float::<B>(B::dequantize(tensor, FloatDType::F32)),
    };
    vec![
        ("both", floats(B::q_matmul(quantised(a), quantised(b)))),
        ("lhs", floats(B::q_matmul(quantised(a), TensorPrimitive::Float(float(b))))),
        ("rhs", floats(B::q_matmul(TensorPrimitive::Float(float(a)), quantised(b)))),
    ]
}

#[test]
fn products_match_burn_flex_without_fallbacks() {
    let (a, b) = (numbers(&[2, 8, 20]), numbers(&[1, 20, 15]));
    for device in gpus() {
        for scheme in schemes() {
            let expected = products::<Flex>(&a, &b, &scheme, &FlexDevice);
            without_fallbacks("quantised", || {
                let values = products::<Wgsl>(&a, &b, &scheme, &device);
                for ((operands, value), (_, expected)) in values.iter().zip(&expected) {
                    let label = format!("{operands} quantised as {scheme:?} on {device}");
                    // The sums have large terms of both signs.
                    let tolerance = common::Tolerance { absolute: 1e-2, ..SUMMED };
                    assert_close(&label, value, expected, tolerance);
                }
            });
        }
    }
}

/// How the rows of a product reach it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rows {
    InMemory,
    /// They begin within lines that are longer.
    Sliced,
    /// They are pending, and the program goes on computing with the result.
    Fused,
}

/// Multiplies a few rows by the transpose of quantised weights, to which a minimum of each block is added if there are
/// any.
fn product_of_rows<B: Backend>(
    (x, rows): (&TensorData, Rows),
    weights: &TensorData,
    scheme: &QuantScheme,
    minima: Option<&TensorData>,
    device: &B::Device,
) -> TensorData {
    let weights = Tensor::<B, 2>::from_data(weights.clone(), device).quantize_dynamic(scheme);
    let [outputs, k] = weights.dims();
    let floats = weights.dequantize();
    let weights = match minima {
        Some(minima) => {
            let minima = Tensor::<B, 3>::from_data(minima.clone(), device);
            let blocks = minima.dims()[1];
            (floats.reshape([outputs, blocks, k / blocks]) + minima).reshape([outputs, k])
        }
        None => floats,
    };
    let x = Tensor::<B, 2>::from_data(x.clone(), device);
    let [height, width] = x.dims();
    match rows {
        Rows::InMemory => x.matmul(weights.transpose()),
        Rows::Sliced => x.slice([0..height, width - k..width]).matmul(weights.transpose()),
        Rows::Fused => (x * 0.5).matmul(weights.transpose()) + 1.0,
    }
    .into_data()
}

/// Values, and the elements of a block: of one load, of several, of no power of two; 0 is a single scale.
const BLOCKS: [(QuantValue, u8); 7] = [
    (QuantValue::Q4S, 32),
    (QuantValue::Q4F, 64),
    (QuantValue::Q8S, 16),
    (QuantValue::Q8S, 32),
    (QuantValue::Q8S, 48),
    (QuantValue::Q4S, 0),
    (QuantValue::Q8S, 0),
];

/// Compares a product of `vectors` rows with the transpose of weights `[outputs, k]`, and checks whether its kernel
/// reads the integers.
fn check_product_of_rows(
    device: &WgslDevice,
    (vectors, rows): (usize, Rows),
    [outputs, k]: [usize; 2],
    (value, block): (QuantValue, u8),
    has_minima: bool,
) {
    let level = if block == 0 { QuantLevel::Tensor } else { QuantLevel::block([block]) };
    let scheme = scheme(value, level);
    let minima = has_minima.then(|| numbers(&[outputs, k / usize::from(block), 1]));
    let width = if rows == Rows::Sliced { k + 4 } else { k };
    let (x, weights) = (numbers(&[vectors, width]), numbers(&[outputs, k]));
    let minima = minima.as_ref();
    let expected = product_of_rows::<Flex>((&x, rows), &weights, &scheme, minima, &FlexDevice);
    let launches = Launches::containing("matvec_quantized");
    let observation = runtime_of(device).observe(launches.clone());
    let found = product_of_rows::<Wgsl>((&x, rows), &weights, &scheme, minima, device);
    drop(observation);
    let label = format!(
        "{vectors} {rows:?} by {outputs} x {k} as {scheme:?}, minima: {has_minima}, on {device}"
    );
    let tolerance = common::Tolerance { absolute: 1e-3, ..SUMMED };
    assert_close(&label, &found, &expected, tolerance);
    let bits = value.size_bits();
    let (most, per_load) = match runtime_of(device).is_software() {
        true => (1, 128 / bits),
        false => (8, 8),
    };
    let fits = vectors <= most && outputs % 4 == 0 && k % per_load == 0;
    let has_blocks = block == 0 || block.is_power_of_two();
    assert_eq!(launches.count(), usize::from(fits && has_blocks), "{label}");
}

#[test]
fn products_of_few_rows_read_the_integers() {
    // Teams of each size; rows that are not whole blocks, and whose number is no multiple of four.
    let sizes = [[36, 64], [96, 64], [40, 576], [36, 2048], [36, 8320], [64, 48], [42, 64]];
    for device in gpus() {
        for size in sizes {
            for vectors in [1, 2, 3, 8, 9] {
                let kinds = match vectors {
                    1 | 3 => &[Rows::InMemory, Rows::Sliced, Rows::Fused][..],
                    _ => &[Rows::InMemory],
                };
                for blocks in BLOCKS {
                    for &rows in kinds {
                        check_product_of_rows(&device, (vectors, rows), size, blocks, false);
                        let block = usize::from(blocks.1);
                        if block > 0 && size[1] % block == 0 {
                            check_product_of_rows(&device, (vectors, rows), size, blocks, true);
                        }
                    }
                }
            }
        }
    }
}

/// Multiplies quantised integers through views: `a` `[.., m, k]` or its transpose, and `b` `[.., k, n]` or its
/// transpose.
fn product_of_views<B: Backend>(
    [a, b]: [&TensorData; 2],
    transposed: [bool; 2],
    scheme: &QuantScheme,
    device: &B::Device,
) -> TensorData {
    let [a, b] = [(a, transposed[0]), (b, transposed[1])].map(|(data, transposed)| {
        let q = B::quantize_dynamic(B::float_from_data(data.clone(), device), scheme);
        let rank = data.shape.len();
        TensorPrimitive::QFloat(if transposed { B::q_swap_dims(q, rank - 2, rank - 1) } else { q })
    });
    match B::q_matmul(a, b) {
        TensorPrimitive::Float(product) => read_float::<B>(product),
        TensorPrimitive::QFloat(_) => panic!("the scheme does not propagate"),
    }
}

/// Integers whose largest magnitude is 127: their scale is 1, so that f32 sums are exact.
fn integers(shape: &[usize], seed: u32) -> TensorData {
    let len: usize = shape.iter().product();
    let values = (0..len as u32).map(|i| match i {
        0 => 127.0,
        _ => (i.wrapping_add(seed).wrapping_mul(2_654_435_761) >> 16) as f32 % 255.0 - 127.0,
    });
    TensorData::new(values.collect::<Vec<f32>>(), shape.to_vec())
}

#[test]
fn products_of_integers_are_exact() {
    // Tiles of 64 with rests, several matrices, one matrix for all, few rows, and rows of k and columns that are
    // not whole words.
    let sizes = [
        ([1, 64, 64, 64], 1),
        ([1, 70, 132, 92], 1),
        ([3, 33, 20, 44], 3),
        ([3, 65, 68, 40], 1),
        ([1, 8, 64, 64], 1),
        ([1, 40, 30, 44], 1),
        ([1, 40, 64, 45], 1),
    ];
    for device in gpus() {
        for ([batch, m, k, n], b_batch) in sizes {
            for transposed in [[false, false], [false, true], [true, false], [true, true]] {
                let ordered =
                    |[rows, cols]: [usize; 2], swap| if swap { [cols, rows] } else { [rows, cols] };
                let [a_rows, a_cols] = ordered([m, k], transposed[0]);
                let [b_rows, b_cols] = ordered([k, n], transposed[1]);
                let a = integers(&[batch, a_rows, a_cols], 1);
                let b = integers(&[b_batch, b_rows, b_cols], 77);
                let scheme = scheme(QuantValue::Q8S, QuantLevel::Tensor);
                let expected = product_of_views::<Flex>([&a, &b], transposed, &scheme, &FlexDevice);
                let label = format!("{m} x {k} x {n}, transposed {transposed:?}, on {device}");
                let words = [if transposed[0] { m } else { k }, if transposed[1] { k } else { n }];
                without_fallbacks("quantised", || {
                    let launches = Launches::containing("matmul_int8");
                    let observation = runtime_of(&device).observe(launches.clone());
                    let found = product_of_views::<Wgsl>([&a, &b], transposed, &scheme, &device);
                    drop(observation);
                    assert_same_bytes(&label, &found, &expected);
                    // Whole words of four neighbours along k, or along n for the right operand.
                    let is_whole = words.iter().all(|len| len % 4 == 0) && !transposed[0];
                    let in_integers = m > 8 && is_whole && !runtime_of(&device).is_software();
                    assert_eq!(launches.count() == 1, in_integers, "{label}");
                });
            }
        }
    }
}

/// The largest sums of products of integers, and the first that would not fit 32 bits.
#[test]
fn long_sums_of_integers_do_not_overflow() {
    for device in gpus() {
        for k in [131_068, 131_076] {
            for scale in [1.0, 0.37] {
                let sign = |line: usize| {
                    if line.is_multiple_of(2) { 127.0 * scale } else { -127.0 * scale }
                };
                let a: Vec<f32> = (0..40 * k).map(|i| sign(i / k)).collect();
                let b: Vec<f32> = (0..40 * k).map(|i| sign(i / k)).collect();
                let [a, b] = [a, b].map(|values| TensorData::new(values, [1, 40, k]));
                let scheme = scheme(QuantValue::Q8S, QuantLevel::Tensor);
                let launches = Launches::containing("matmul_int8");
                without_fallbacks("quantised", || {
                    let observation = runtime_of(&device).observe(launches.clone());
                    let found = product_of_views::<Wgsl>([&a, &b], [false, true], &scheme, &device);
                    drop(observation);
                    let largest = (k as f32) * (127.0 * scale).powi(2);
                    for (index, found) in found.iter::<f32>().enumerate() {
                        let sign = if (index / 40 + index % 40) % 2 == 0 { 1.0 } else { -1.0 };
                        let error = (found / largest - sign).abs();
                        assert!(error < 1e-4, "{found} at {index}, k {k}, scale {scale}, {device}");
                    }
                    let in_integers = k == 131_068 && !runtime_of(&device).is_software();
                    assert_eq!(launches.count() == 1, in_integers, "k {k} on {device}");
                });
            }
        }
    }
}

/// Returns quantised data with its `len` integers packed into words, followed by the scales.
fn packed(data: &TensorData, bits: usize, len: usize) -> Bytes {
    let (integers, scales) = data.as_bytes().split_at(len);
    let mask = (1u32 << bits) - 1;
    let words = integers.chunks(32 / bits).map(|integers| {
        let places = integers.iter().enumerate();
        places.fold(0, |word, (at, &integer)| word | (u32::from(integer) & mask) << (at * bits))
    });
    let mut bytes: Vec<u8> = words.flat_map(u32::to_le_bytes).collect();
    bytes.extend(scales);
    let words: Vec<u32> = bytemuck::pod_collect_to_vec(&bytes);
    Bytes::from_elems(words)
}

#[test]
fn readback_returns_the_uploaded_bytes() {
    for device in gpus() {
        for scheme in schemes() {
            let x = Flex::float_from_data(numbers(&[4, 5, 6]), &FlexDevice);
            let expected = read::<Flex>(Flex::quantize_dynamic(x, &scheme));
            without_fallbacks("quantised", || {
                for store in [QuantStore::Native, QuantStore::PackedU32(0)] {
                    let mut data = expected.clone();
                    data.dtype = burn_backend::DType::QFloat(scheme.with_store(store));
                    if store != QuantStore::Native {
                        data.bytes = packed(&data, scheme.value.size_bits(), 120);
                    }
                    let q = Wgsl::q_from_data(data, &device);
                    assert_eq!(q.dtype(), expected.dtype);
                    assert_same_bytes("on the GPU", &read::<Wgsl>(q.clone()), &expected);
                    let moved = Wgsl::q_to_device(q, &WgslDevice::Cpu);
                    assert_same_bytes("on the CPU", &read::<Wgsl>(moved.clone()), &expected);
                    let returned = Wgsl::q_to_device(moved, &device);
                    assert_same_bytes("on the GPU again", &read::<Wgsl>(returned), &expected);
                }
            });
        }
    }
}

#[test]
fn transactions_read_quantised_tensors() {
    let _guard = serial_guard();
    for device in gpus() {
        let x = Tensor::<Wgsl, 2>::from_data(numbers(&[5, 8]), &device);
        let ints = Tensor::<Wgsl, 1, burn::tensor::Int>::arange(0..7, &device);
        let q8_blocks = scheme(QuantValue::Q8S, QuantLevel::block([8]));
        let q4_tensor = scheme(QuantValue::Q4S, QuantLevel::Tensor);
        let tensors = [
            x.clone(),
            x.clone().quantize_dynamic(&q8_blocks),
            x.clone().quantize_dynamic(&q4_tensor),
            x.clone().quantize_dynamic(&q8_blocks).transpose(),
        ];
        let expected: Vec<TensorData> = tensors.iter().map(|t| t.clone().into_data()).collect();
        let mut transaction = Transaction::default().register(ints.clone());
        for tensor in tensors {
            transaction = transaction.register(tensor);
        }
        let values = transaction.execute();
        values[0].assert_eq(&ints.into_data(), true);
        for (value, expected) in values[1..].iter().zip(&expected) {
            assert_same_bytes(&format!("on {device}"), value, expected);
        }
    }
}

#[test]
fn schemes_without_kernels_fall_back_to_the_cpu() {
    let _guard = serial_guard();
    for device in gpus() {
        for param in [QuantParam::F16, QuantParam::BF16] {
            let scheme = scheme(QuantValue::Q8S, QuantLevel::Tensor).with_param(param);
            let data = numbers(&[6, 4]);
            let count = || burn_wgsl::fallbacks().get("quantize_dynamic").copied();
            let before = count();
            let values = quantise_and_dequantise::<Wgsl>(&data, &[1, 0], &scheme, &device);
            assert!(count() > before, "{param:?} on {device} did not count as a fallback");
            let expected = quantise_and_dequantise::<Flex>(&data, &[1, 0], &scheme, &FlexDevice);
            assert_all_same_bytes(&format!("{param:?} on {device}"), &values, &expected);
        }
    }
}

#[test]
fn quantising_a_partial_block_panics_with_the_reason() {
    for device in gpus() {
        let text = panic_message(|| {
            let x = Wgsl::float_from_data(numbers(&[10]), &device);
            let _ = Wgsl::quantize_dynamic(x, &scheme(QuantValue::Q8S, QuantLevel::block([4])));
        });
        assert!(text.contains("whole blocks"), "{text}");
    }
}
