//! Ops that Burn 0.23 added or changed, beside their definitions.

use burn_backend::ops::{
    AttentionModuleOptions, BoolTensorOps, CausalAlignment, CoordinateTransformMode,
    FloatTensorOps, IntTensorOps, InterpolateMode, InterpolateOptions, ModuleOps,
    attention as composed,
};
use burn_backend::tensor::{BoolTensor, FloatTensor, IndexingUpdateOp, IntTensor};
use burn_backend::{DType, IntDType, Scalar, TensorData, TensorMetadata};

use crate::port::wgsl::{Precision, WgslDevice, autocast};
use crate::port::{Port, PortDevice};

const DEVICES: [PortDevice; 2] = [PortDevice(WgslDevice::Software), PortDevice(WgslDevice::Cpu)];

const UPDATES: [IndexingUpdateOp; 5] = [
    IndexingUpdateOp::Assign,
    IndexingUpdateOp::Add,
    IndexingUpdateOp::Mul,
    IndexingUpdateOp::Min,
    IndexingUpdateOp::Max,
];

/// Returns different numbers from -1 to 1.
fn numbers(seed: usize, len: usize) -> Vec<f32> {
    (0..len).map(|i| ((i * 7919 + seed * 104_729) % 2003) as f32 / 1001.0 - 1.0).collect()
}

fn floats(values: &[f32], shape: &[usize], device: &PortDevice) -> FloatTensor<Port> {
    Port::float_from_data(TensorData::new(values.to_vec(), shape.to_vec()), device)
}

fn booleans(values: &[bool], shape: &[usize], device: &PortDevice) -> BoolTensor<Port> {
    Port::bool_from_data(TensorData::new(values.to_vec(), shape.to_vec()), device)
}

fn ints(values: &[i32], shape: &[usize], device: &PortDevice) -> IntTensor<Port> {
    let tensor = Port::int_from_data(TensorData::new(values.to_vec(), shape.to_vec()), device);
    Port::int_cast(tensor, IntDType::I32)
}

fn read(tensor: FloatTensor<Port>) -> Vec<f32> {
    let data = pollster::block_on(Port::float_into_data(tensor)).expect("readback succeeds");
    data.iter::<f32>().collect()
}

fn read_bool(tensor: BoolTensor<Port>) -> Vec<bool> {
    let data = pollster::block_on(Port::bool_into_data(tensor)).expect("readback succeeds");
    data.iter::<bool>().collect()
}

fn assert_close(label: &str, found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len(), "{label}");
    for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
        let is_close = (found - expected).abs() <= 1e-5 || found.is_nan() && expected.is_nan();
        assert!(is_close, "{label}: {found} at {index}, expected {expected}");
    }
}

/// Computes what an op makes of a volume, or of its gradient.
type Definition<'a> = &'a dyn Fn(&[f32], &[f32]) -> Vec<f32>;

/// Pooling of volumes; that of planes has a depth of 1.
#[derive(Clone, Copy, Debug)]
struct Case {
    size: [usize; 3],
    kernel: [usize; 3],
    stride: [usize; 3],
    padding: [usize; 3],
    dilation: [usize; 3],
    ceil_mode: bool,
    counts_padding: bool,
}

impl Case {
    fn windows(&self, axis: usize) -> usize {
        let size = self.size[axis] + 2 * self.padding[axis];
        let rest = size - self.dilation[axis] * (self.kernel[axis] - 1) - 1;
        let windows = rest / self.stride[axis] + 1;
        // A last window that starts in the input or before it.
        let starts_inside = windows * self.stride[axis] < self.size[axis] + self.padding[axis];
        let is_partial = !rest.is_multiple_of(self.stride[axis]);
        windows + usize::from(self.ceil_mode && is_partial && starts_inside)
    }

    /// Calls a function with each window and the positions of its elements, `None` in the padding, and with whether
    /// the element counts in an average.
    fn each(&self, mut call: impl FnMut(usize, &[(Option<usize>, bool)])) {
        let [depths, rows, columns] = [0, 1, 2].map(|axis| self.windows(axis));
        for window in 0..depths * rows * columns {
            let at = [window / (rows * columns), window / columns % rows, window % columns];
            let mut elements = Vec::new();
            let [kd, kh, kw] = self.kernel;
            for tap in 0..kd * kh * kw {
                let tap = [tap / (kh * kw), tap / kw % kh, tap % kw];
                let position =
                    [0, 1, 2].map(|i| at[i] * self.stride[i] + tap[i] * self.dilation[i]);
                let inside = (0..3).all(|i| {
                    (self.padding[i]..self.padding[i] + self.size[i]).contains(&position[i])
                });
                let padded = (0..3).all(|i| position[i] < self.size[i] + 2 * self.padding[i]);
                let [d, h, w] = [0, 1, 2].map(|i| position[i].wrapping_sub(self.padding[i]));
                let element = inside.then(|| (d * self.size[1] + h) * self.size[2] + w);
                elements.push((element, if self.counts_padding { padded } else { inside }));
            }
            call(window, &elements);
        }
    }

    fn len(&self) -> usize {
        self.size.iter().product()
    }

    fn outputs(&self) -> usize {
        (0..3).map(|axis| self.windows(axis)).product()
    }

    fn average(&self, x: &[f32]) -> Vec<f32> {
        let mut out = vec![0.0; self.outputs()];
        self.each(|window, elements| {
            let sum: f32 = elements.iter().filter_map(|(element, _)| Some(x[(*element)?])).sum();
            let count = elements.iter().filter(|(_, counts)| *counts).count().max(1);
            out[window] = sum / count as f32;
        });
        out
    }

    fn average_backward(&self, grad: &[f32]) -> Vec<f32> {
        let mut out = vec![0.0; self.len()];
        self.each(|window, elements| {
            let count = elements.iter().filter(|(_, counts)| *counts).count().max(1);
            for element in elements.iter().filter_map(|(element, _)| *element) {
                out[element] += grad[window] / count as f32;
            }
        });
        out
    }

    fn max(&self, x: &[f32]) -> (Vec<f32>, Vec<usize>) {
        let mut out = (vec![0.0; self.outputs()], vec![0; self.outputs()]);
        self.each(|window, elements| {
            let elements = elements.iter().filter_map(|(element, _)| *element);
            let best = elements.reduce(|best, next| if x[next] > x[best] { next } else { best });
            let best = best.expect("a window has an element");
            (out.0[window], out.1[window]) = (x[best], best);
        });
        out
    }
}

fn cases() -> Vec<Case> {
    let first = Case {
        size: [5, 6, 7],
        kernel: [2, 3, 2],
        stride: [2, 1, 3],
        padding: [0, 1, 1],
        dilation: [1; 3],
        ceil_mode: false,
        counts_padding: true,
    };
    let dilated = Case { dilation: [2, 1, 3], ..first };
    let all = [first, dilated].into_iter().flat_map(|case| {
        [false, true].into_iter().flat_map(move |ceil_mode| {
            [false, true].map(|counts_padding| Case { ceil_mode, counts_padding, ..case })
        })
    });
    all.collect()
}

#[test]
fn volumes_are_pooled() {
    for device in DEVICES {
        for case in cases() {
            let Case { kernel, stride, padding, dilation, ceil_mode, counts_padding, .. } = case;
            let label = format!("{case:?} on {device:?}");
            let (volumes, len, outputs) = (4, case.len(), case.outputs());
            let values = numbers(1, volumes * len);
            let [d, h, w] = case.size;
            let x = floats(&values, &[2, 2, d, h, w], &device);
            let [od, oh, ow] = [0, 1, 2].map(|axis| case.windows(axis));
            let grads = numbers(2, volumes * outputs);
            let grad = floats(&grads, &[2, 2, od, oh, ow], &device);
            let each = |of: Definition<'_>| -> Vec<f32> {
                values.chunks(len).zip(grads.chunks(outputs)).flat_map(|(x, g)| of(x, g)).collect()
            };

            let pooled = Port::avg_pool3d(
                x.clone(),
                kernel,
                stride,
                padding,
                dilation,
                counts_padding,
                ceil_mode,
            );
            assert_close(&label, &read(pooled), &each(&|x, _| case.average(x)));
            let x_grad = Port::avg_pool3d_backward(
                x.clone(),
                grad.clone(),
                kernel,
                stride,
                padding,
                dilation,
                counts_padding,
                ceil_mode,
            );
            assert_close(&label, &read(x_grad), &each(&|_, grad| case.average_backward(grad)));

            let expected = each(&|x, _| case.max(x).0);
            let max = Port::max_pool3d(x.clone(), kernel, stride, padding, dilation, ceil_mode);
            assert_close(&label, &read(max), &expected);
            let max = Port::max_pool3d_with_indices(
                x.clone(),
                kernel,
                stride,
                padding,
                dilation,
                ceil_mode,
                IntDType::I32,
            );
            assert_close(&label, &read(max.output), &expected);
            let indices = Port::int_into_float(max.indices.clone(), burn_backend::FloatDType::F32);
            let of_indices = |x: &[f32]| case.max(x).1.into_iter().map(|i| i as f32).collect();
            assert_close(&label, &read(indices), &each(&|x, _| of_indices(x)));
            let x_grad = Port::max_pool3d_with_indices_backward(
                x,
                kernel,
                stride,
                padding,
                dilation,
                ceil_mode,
                grad,
                max.indices,
            );
            let expected = each(&|x, grad| {
                let mut out = vec![0.0; len];
                for (index, grad) in case.max(x).1.into_iter().zip(grad) {
                    out[index] += grad;
                }
                out
            });
            assert_close(&label, &read(x_grad.x_grad), &expected);
        }
    }
}

#[test]
fn planes_are_averaged_with_gaps() {
    for device in DEVICES {
        for case in cases() {
            let case = Case {
                size: [1, 6, 7],
                kernel: [1, 3, 2],
                stride: [1, 1, 3],
                padding: [0, 1, 1],
                dilation: [1, 2, 3],
                ..case
            };
            let last = |values: [usize; 3]| [values[1], values[2]];
            let values = numbers(3, 2 * case.len());
            let x = floats(&values, &[1, 2, 6, 7], &device);
            let pooled = Port::avg_pool2d(
                x,
                last(case.kernel),
                last(case.stride),
                last(case.padding),
                last(case.dilation),
                case.counts_padding,
                case.ceil_mode,
            );
            let expected: Vec<f32> =
                values.chunks(case.len()).flat_map(|x| case.average(x)).collect();
            assert_close(&format!("{case:?} on {device:?}"), &read(pooled), &expected);
        }
    }
}

#[test]
fn remainders_have_the_sign_of_the_dividend() {
    let dividends = [5.5, -5.5, 7.0, -7.0, 1e-8, -1.0e6, 3.0, f32::INFINITY, 0.1, 1e-3, 2e38, -3.0];
    let divisors = [2.0, 2.0, -3.0, -3.0, 1.0, 7.0, f32::INFINITY, 2.0, 1e3, 1e5, 3e38, f32::NAN];
    // Remainders are exact.
    let assert_close = |label: &str, found: &[f32], expected: &[f32]| {
        for (found, expected) in found.iter().zip(expected) {
            let is_same = found == expected || found.is_nan() && expected.is_nan();
            assert!(is_same, "{label}: {found}, expected {expected}");
        }
    };
    for device in DEVICES {
        let [lhs, rhs] = [dividends, divisors].map(|values| floats(&values, &[12], &device));
        let expected: Vec<f32> = dividends.iter().zip(divisors).map(|(a, b)| a % b).collect();
        let label = format!("fmod on {device:?}");
        assert_close(&label, &read(Port::float_fmod(lhs.clone(), rhs)), &expected);
        for divisor in [2.5, -2.5, f64::INFINITY] {
            let expected: Vec<f32> = dividends.iter().map(|a| a % divisor as f32).collect();
            let found = Port::float_fmod_scalar(lhs.clone(), Scalar::Float(divisor));
            assert_close("fmod of a scalar", &read(found), &expected);
        }
    }
}

#[test]
fn booleans_are_updated() {
    let combine = |update, old: bool, new: bool| match update {
        IndexingUpdateOp::Assign => new,
        IndexingUpdateOp::Add | IndexingUpdateOp::Max => old || new,
        IndexingUpdateOp::Mul | IndexingUpdateOp::Min => old && new,
    };
    let (old, new) = ([true, true, false, false, true, false], [true, false, true, false]);
    for device in DEVICES {
        let tensor = || booleans(&old, &[2, 3], &device);
        let value = || booleans(&new, &[2, 2], &device);
        for update in UPDATES {
            let mut expected = old;
            let columns = [2, 0, 1, 2];
            for (index, (&column, new)) in columns.iter().zip(new).enumerate() {
                let place = &mut expected[index / 2 * 3 + column as usize];
                *place = combine(update, *place, new);
            }
            let indices = ints(&columns, &[2, 2], &device);
            let found = Port::bool_scatter(1, tensor(), indices, value(), update);
            assert_eq!(read_bool(found), expected, "scatter {update:?} on {device:?}");

            let mut expected = old;
            for (index, new) in new.into_iter().enumerate() {
                let place = &mut expected[index / 2 * 3 + [2, 0][index % 2]];
                *place = combine(update, *place, new);
            }
            let indices = ints(&[2, 0], &[2], &device);
            let found = Port::bool_select_assign(tensor(), 1, indices, value(), update);
            assert_eq!(read_bool(found), expected, "select {update:?} on {device:?}");

            let mut expected = old;
            let coordinates = [[0, 2], [1, 0], [1, 1], [0, 1]];
            for ([row, column], new) in coordinates.into_iter().zip(new) {
                let place = &mut expected[(row * 3 + column) as usize];
                *place = combine(update, *place, new);
            }
            let indices = ints(coordinates.as_flattened(), &[4, 2], &device);
            let values = booleans(&new, &[4], &device);
            let found = Port::bool_scatter_nd(tensor(), indices.clone(), values, update);
            assert_eq!(read_bool(found), expected, "scatter_nd {update:?} on {device:?}");
            let gathered = read_bool(Port::bool_gather_nd(tensor(), indices));
            let expected = coordinates.map(|[row, column]| old[(row * 3 + column) as usize]);
            assert_eq!(gathered, expected);
        }
    }
}

/// Computes attention of one batch by its definition.
fn attention(
    [query, key, value]: [&[f32]; 3],
    [heads, key_heads, rows, columns, width]: [usize; 5],
    is_visible: impl Fn(usize, usize) -> bool,
) -> Vec<f32> {
    let mut out = Vec::new();
    for (head, row) in (0..heads).flat_map(|head| (0..rows).map(move |row| (head, row))) {
        let key_head = head / (heads / key_heads);
        let q = &query[(head * rows + row) * width..][..width];
        let line = |of: &'_ [f32], column: usize| {
            of[(key_head * columns + column) * width..][..width].to_vec()
        };
        let score = |column: usize| {
            let dot: f32 = q.iter().zip(line(key, column)).map(|(q, k)| q * k).sum();
            (dot / (width as f32).sqrt()).exp()
        };
        let weights: Vec<f32> = (0..columns)
            .map(|column| if is_visible(row, column) { score(column) } else { 0.0 })
            .collect();
        let sum: f32 = weights.iter().sum();
        for i in 0..width {
            let terms = weights.iter().enumerate();
            out.push(terms.map(|(column, weight)| weight / sum * line(value, column)[i]).sum());
        }
    }
    out
}

#[test]
fn heads_share_keys_and_the_diagonal_has_two_places() {
    let [heads, key_heads, width] = [4, 2, 8];
    for (device, [rows, columns]) in
        DEVICES.into_iter().flat_map(|device| [[3, 5], [4, 4], [5, 3]].map(|sizes| (device, sizes)))
    {
        let [q, k, v] = [(4, heads * rows), (5, key_heads * columns), (6, key_heads * columns)]
            .map(|(seed, lines)| numbers(seed, lines * width));
        for (is_causal, causal_alignment) in [
            (false, CausalAlignment::TopLeft),
            (true, CausalAlignment::TopLeft),
            (true, CausalAlignment::BottomRight),
        ] {
            let offset = causal_alignment.offset(rows, columns) as isize;
            if offset < 0 {
                // The first queries see nothing.
                continue;
            }
            let options =
                AttentionModuleOptions { is_causal, causal_alignment, ..Default::default() };
            let visible =
                |row: usize, column: usize| !is_causal || column as isize <= row as isize + offset;
            let sizes = [heads, key_heads, rows, columns, width];
            // Masks of all keys, and one for each query that has all keys.
            let hides = |row: usize, column: usize| (row + 2 * column) % 5 == 4;
            let whole: Vec<bool> =
                (0..rows * columns).map(|i| hides(i / columns, i % columns)).collect();
            let none = vec![false; rows];
            for (mask, mask_columns) in [(None, 0), (Some(&none), 1), (Some(&whole), columns)] {
                let query = floats(&q, &[1, heads, rows, width], &device);
                let [key, value] =
                    [&k, &v].map(|of| floats(of, &[1, key_heads, columns, width], &device));
                let is_whole = mask_columns == columns;
                let mask = mask.map(|mask| booleans(mask, &[1, 1, rows, mask_columns], &device));
                let found = read(Port::attention(query, key, value, mask, None, options));
                let is_visible =
                    |row, column| visible(row, column) && !(is_whole && hides(row, column));
                let expected = attention([&q, &k, &v], sizes, is_visible);
                let label = format!("{sizes:?} {is_causal} {causal_alignment:?} on {device:?}");
                assert_close(&label, &found, &expected);
            }
        }
    }
}

#[test]
fn a_mapping_that_no_kernel_has_is_refused() {
    for device in DEVICES {
        let x = floats(&numbers(7, 16), &[1, 1, 4, 4], &device);
        let options = InterpolateOptions::new(InterpolateMode::Bilinear)
            .with_coordinate_transform(CoordinateTransformMode::HalfPixelSymmetric);
        let result = burn_wgsl::attempt(|| Port::interpolate(x, [8, 8], options));
        let message = result.expect_err("there is no such kernel").to_string();
        assert!(message.contains("HalfPixelSymmetric") && message.contains("use"), "{message}");
    }
}

#[test]
fn devices_keep_their_identity() {
    use burn_backend::Device;
    for device in DEVICES.into_iter().chain([burn_flex::FlexDevice]) {
        assert_eq!(PortDevice::from_id(device.to_id()), device);
    }
    assert_ne!(DEVICES[0], DEVICES[1]);
    assert_eq!(burn_flex::FlexDevice, PortDevice(WgslDevice::Auto.canonical()));
}

#[test]
fn packed_words_are_read_as_lines() {
    use burn_backend::FloatDType;
    use burn_backend::ops::QTensorOps;
    use burn_backend::quantization::{QuantScheme, QuantStore, QuantValue};
    for (value, shape, packed) in [
        (QuantValue::Q8F, [2, 3], QuantStore::PackedU32(0)),
        (QuantValue::Q8S, [4, 10], QuantStore::PackedU32(0)),
        (QuantValue::Q4F, [2, 7], QuantStore::PackedU32(0)),
        (QuantValue::Q4S, [3, 8], QuantStore::PackedU32(0)),
        (QuantValue::Q8S, [3, 5], QuantStore::Native),
    ] {
        let scheme = QuantScheme::default().with_value(value).with_store(packed);
        let values: Vec<i8> = (0..shape[0] * shape[1]).map(|i| (i % 13) as i8 - 6).collect();
        let expected: Vec<f32> = values.iter().map(|value| f32::from(*value) * 0.5).collect();
        for device in DEVICES {
            let data = TensorData::quantized(values.clone(), shape, scheme, &[0.5], None);
            let tensor = Port::q_from_data(data, &device);
            let found = read(Port::dequantize(tensor, FloatDType::F32));
            assert_close(&format!("{value:?} {shape:?} on {device:?}"), &found, &expected);
        }
    }
}

#[test]
fn windows_that_have_only_padding_have_no_index_and_no_gradient() {
    for device in DEVICES {
        let x = floats(&[1.0, 2.0], &[1, 1, 1, 1, 2], &device);
        let (kernel, stride, padding, dilation) = ([2, 1, 1], [1; 3], [1, 0, 0], [2, 1, 1]);
        let max = Port::max_pool3d_with_indices(
            x.clone(),
            kernel,
            stride,
            padding,
            dilation,
            false,
            IntDType::I32,
        );
        let data = pollster::block_on(Port::int_into_data(max.indices.clone()));
        let indices: Vec<i64> = data.expect("readback succeeds").iter::<i64>().collect();
        assert_eq!(indices, [-1, -1], "on {device:?}");
        let grad = floats(&[5.0, 7.0], &[1, 1, 1, 1, 2], &device);
        let x_grad = Port::max_pool3d_with_indices_backward(
            x,
            kernel,
            stride,
            padding,
            dilation,
            false,
            grad,
            max.indices,
        );
        assert_close("gradient", &read(x_grad.x_grad), &[0.0, 0.0]);
    }
}

#[test]
fn attention_has_gradients() {
    // Queries, keys, heads, heads of keys.
    let sizes = [(5, 5, 2, 2), (3, 7, 4, 2), (6, 4, 2, 1)];
    let alignments = [CausalAlignment::BottomRight, CausalAlignment::TopLeft];
    for (device, (queries, keys, heads, own)) in
        DEVICES.into_iter().flat_map(|device| sizes.map(|size| (device, size)))
    {
        for (is_causal, causal_alignment) in
            [(false, alignments[0]), (true, alignments[0]), (true, alignments[1])]
        {
            // The first queries see no key: the logarithms of their sums are infinite in one way or another.
            let sees_keys = !is_causal || causal_alignment != alignments[0] || queries <= keys;
            let options = AttentionModuleOptions {
                scale: Some(0.5),
                softcap: None,
                is_causal,
                causal_alignment,
            };
            let tensor = |seed, shape: [usize; 4]| {
                floats(&numbers(seed, shape.iter().product()), &shape, &device)
            };
            let query = tensor(1, [2, heads, queries, 8]);
            let key = tensor(2, [2, own, keys, 8]);
            let value = tensor(3, [2, own, keys, 6]);
            let grad = tensor(4, [2, heads, queries, 6]);
            let operands = || (query.clone(), key.clone(), value.clone());
            let label = |part| {
                format!(
                    "{part}, {queries} x {keys}, {heads} to {own} heads, {options:?}, {device:?}"
                )
            };

            let (q, k, v) = operands();
            let (out, log_sums) = Port::attention_with_logsumexp(q, k, v, options);
            let (q, k, v) = operands();
            let (expected_out, expected_sums) =
                composed::attention_with_logsumexp_default::<Port>(q, k, v, options);
            let [found, expected] = [&out, &expected_out].map(|of| read(of.clone()));
            assert_close(&label("result"), &found, &expected);
            let [found, expected] = [&log_sums, &expected_sums].map(|of| read(of.clone()));
            if sees_keys {
                assert_close(&label("sums"), &found, &expected);
            }

            let (q, k, v) = operands();
            let found = Port::attention_backward(q, k, v, out, log_sums, grad.clone(), options);
            let (q, k, v) = operands();
            let expected = composed::attention_backward_default::<Port>(
                q,
                k,
                v,
                expected_out,
                expected_sums,
                grad,
                options,
            );
            for (part, found, expected) in [
                ("query", found.query_grad, expected.query_grad),
                ("key", found.key_grad, expected.key_grad),
                ("value", found.value_grad, expected.value_grad),
            ] {
                assert_close(&label(part), &read(found), &read(expected));
            }
        }
    }
}

#[test]
fn attention_with_gradients_follows_autocast() {
    for device in DEVICES {
        let tensor = |seed| floats(&numbers(seed, 2 * 2 * 4 * 8), &[2, 2, 4, 8], &device);
        let options = AttentionModuleOptions::default();
        let scope = autocast(&device.0, Precision::F16);
        let [q, k, v] = [1, 2, 3].map(tensor);
        let (out, log_sums) = Port::attention_with_logsumexp(q, k, v, options);
        assert_eq!(out.dtype(), DType::F16, "{device:?}");
        let [q, k, v, grad] = [1, 2, 3, 4].map(tensor);
        let found = Port::attention_backward(q, k, v, out, log_sums, grad, options);
        drop(scope);
        let [q, k, v] = [1, 2, 3].map(tensor);
        let (out, log_sums) = Port::attention_with_logsumexp(q, k, v, options);
        let [q, k, v, grad] = [1, 2, 3, 4].map(tensor);
        let expected = Port::attention_backward(q, k, v, out, log_sums, grad, options);
        assert_eq!(found.query_grad.dtype(), DType::F32, "{device:?}");
        for (found, expected) in read(found.query_grad).iter().zip(read(expected.query_grad)) {
            assert!((found - expected).abs() < 5e-3, "{found}, expected {expected}, {device:?}");
        }
    }
}
