//! Input that a fuzzer makes, at the borders of the crate: each is refused with a message, or gives the right result.
//!
//! `cargo test` runs the corpora in `tests/borders/__fuzz__` and some random inputs. `cargo xtask test --only fuzz`
//! tries random inputs for a minute per target.

use std::panic::{AssertUnwindSafe, catch_unwind};

use bolero::TypeGenerator;
use burn::tensor::quantization::{QuantLevel, QuantScheme, QuantStore, QuantValue};
use burn::tensor::{Bytes, DType, Shape, Tensor, TensorData};
use burn_backend::ops::{BoolTensorOps, FloatTensorOps, IntTensorOps, QTensorOps};
use burn_std::BoolStore;
use burn_wgsl::custom::Kernel;
use burn_wgsl::{Wgsl, WgslDevice};

use crate::common::{devices, failure, gpus, hide_panics_outside};

/// Returns what a call gives, or the message of its panic, which must begin with the op and name its device.
fn refused_or<R>(op: &str, device: &WgslDevice, call: impl FnOnce() -> R) -> Option<R> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(result) => Some(result),
        Err(panic) => {
            let message = failure("", panic);
            assert!(message.contains(&format!("{op} on {device}:")), "a raw panic: {message}");
            None
        }
    }
}

/// Data with any fields.
#[derive(Debug, TypeGenerator)]
struct AnyData {
    /// Axes, mostly small.
    axes: Vec<u16>,
    /// An axis of any size, behind the others.
    last: Option<u64>,
    dtype: u8,
    /// Added to the number of bytes that the shape needs.
    excess: i8,
    value: u8,
}

const DTYPES: [DType; 13] = [
    DType::F32,
    DType::F16,
    DType::BF16,
    DType::F64,
    DType::I32,
    DType::I64,
    DType::I16,
    DType::I8,
    DType::U32,
    DType::U8,
    DType::Bool(BoolStore::Native),
    DType::Bool(BoolStore::U32),
    DType::Flex32,
];

impl AnyData {
    fn axes(&self) -> Vec<usize> {
        let small = self.axes.iter().take(6).map(|&axis| usize::from(axis % 9));
        small.chain(self.last.map(|axis| axis as usize)).collect()
    }

    fn len(&self) -> Option<usize> {
        let axes = self.axes();
        match axes.contains(&0) {
            true => Some(0),
            false => axes.iter().try_fold(1usize, |len, &axis| len.checked_mul(axis)),
        }
    }

    /// Returns as many bytes as `needed`, or some more or less. A fuzzer cannot have gigabytes.
    fn bytes(&self, needed: Option<usize>) -> Bytes {
        let needed = needed.filter(|&needed| needed < 1 << 20).unwrap_or_default();
        let excess = if self.excess % 4 == 0 { 0 } else { isize::from(self.excess) };
        Bytes::from_bytes_vec(vec![self.value; needed.saturating_add_signed(excess)])
    }
}

#[test]
fn tensor_data_is_refused_or_read_back() {
    let _hidden = hide_panics_outside(file!());
    let devices = devices();
    bolero::check!().with_type::<AnyData>().for_each(|input| {
        let dtype = DTYPES[usize::from(input.dtype) % DTYPES.len()];
        let bytes = input.bytes(input.len().and_then(|len| len.checked_mul(dtype.size())));
        let is_valid =
            input.len().and_then(|len| len.checked_mul(dtype.size())) == Some(bytes.len());
        for device in &devices {
            let data = TensorData { bytes: bytes.clone(), shape: Shape::from(input.axes()), dtype };
            let read = match dtype {
                DType::Bool(_) => refused_or("bool_from_data", device, || {
                    pollster::block_on(Wgsl::bool_into_data(Wgsl::bool_from_data(data, device)))
                }),
                dtype if dtype.is_float() => refused_or("float_from_data", device, || {
                    pollster::block_on(Wgsl::float_into_data(Wgsl::float_from_data(data, device)))
                }),
                _ => refused_or("int_from_data", device, || {
                    pollster::block_on(Wgsl::int_into_data(Wgsl::int_from_data(data, device)))
                }),
            };
            // A tensor of no elements may have axes whose strides cannot be computed.
            let Some(read) = read else {
                let too_large = input.axes().iter().any(|&axis| axis > u32::MAX as usize);
                assert!(!is_valid || too_large, "{input:?} on {device} was refused");
                continue;
            };
            assert!(is_valid, "{input:?} on {device} was accepted");
            let read = read.expect("it is read back");
            assert_eq!(read.shape.to_vec(), input.axes());
            match dtype {
                DType::Bool(_) => {
                    let expected = u8::from(input.value != 0);
                    assert!(read.bytes.iter().all(|&byte| byte == expected), "{input:?}");
                }
                _ => assert_eq!(read.bytes[..], bytes[..], "{input:?} on {device}"),
            }
        }
    });
}

#[test]
fn quantised_data_is_refused_or_dequantised() {
    let _hidden = hide_panics_outside(file!());
    let devices = devices();
    bolero::check!().with_type::<(AnyData, u8, u8, u8)>().for_each(
        |(input, value, store, block)| {
            use QuantValue::{E4M3, Q2F, Q2S, Q4F, Q4S, Q8F, Q8S};
            let value = [Q8S, Q8F, Q4S, Q4F, Q2S, Q2F, E4M3][usize::from(*value) % 7];
            let stores = [QuantStore::Native, QuantStore::PackedU32(0), QuantStore::PackedU32(1)];
            let level = match block % 4 {
                0 => QuantLevel::Tensor,
                _ => QuantLevel::block([*block]),
            };
            let scheme = QuantScheme::default()
                .with_value(value)
                .with_store(stores[usize::from(*store) % 3])
                .with_level(level);
            let bytes = input.bytes(input.len().and_then(|len| len.checked_add(4)));
            for device in &devices {
                let (shape, dtype) = (Shape::from(input.axes()), DType::QFloat(scheme));
                let data = TensorData { bytes: bytes.clone(), shape, dtype };
                let tensor = refused_or("q_from_data", device, || Wgsl::q_from_data(data, device));
                let Some(tensor) = tensor else { continue };
                let floats = Wgsl::dequantize(tensor, burn_std::FloatDType::F32);
                let read =
                    pollster::block_on(Wgsl::float_into_data(floats)).expect("it is read back");
                assert_eq!(Some(read.num_elements()), input.len(), "{input:?}");
            }
        },
    );
}

/// Records of each kind, which inputs change.
fn records() -> Vec<String> {
    let floats = TensorData::new(vec![1.0f32, -2.0, 3.5, 0.0, 5.0, 6.0], [2, 3]);
    let ints = TensorData::new(vec![1i64, -2, 3], [3]);
    let bools = TensorData::new(vec![true, false], [2, 1]);
    let halves = floats.clone().convert::<burn_std::f16>();
    let scheme = QuantScheme::default().with_store(QuantStore::Native);
    let quantised = TensorData::quantized(vec![1i8, -2, 3, 4], [4], scheme, &[0.5]);
    let all = [floats, ints, bools, halves, quantised];
    all.iter().map(|data| serde_json::to_string(data).expect("it is data")).collect()
}

#[test]
fn records_are_refused_or_loaded() {
    let _hidden = hide_panics_outside(file!());
    let devices = devices();
    let records = records();
    let load = |text: &str| -> bool {
        let Ok(data) = serde_json::from_str::<TensorData>(text) else { return false };
        // A fuzzer cannot have gigabytes.
        let is_small = data.shape.iter().try_fold(1usize, |len, &axis| len.checked_mul(axis));
        if is_small.is_some_and(|len| len > 1 << 24) {
            return true;
        }
        for device in &devices {
            match data.dtype {
                DType::Bool(_) => drop(refused_or("bool_from_data", device, || {
                    pollster::block_on(Wgsl::bool_into_data(Wgsl::bool_from_data(
                        data.clone(),
                        device,
                    )))
                })),
                DType::QFloat(_) => drop(refused_or("q_from_data", device, || {
                    let tensor = Wgsl::q_from_data(data.clone(), device);
                    Wgsl::dequantize(tensor, burn_std::FloatDType::F32)
                })),
                dtype if dtype.is_float() => drop(refused_or("float_from_data", device, || {
                    pollster::block_on(Wgsl::float_into_data(Wgsl::float_from_data(
                        data.clone(),
                        device,
                    )))
                })),
                _ => drop(refused_or("int_from_data", device, || {
                    pollster::block_on(Wgsl::int_into_data(Wgsl::int_from_data(
                        data.clone(),
                        device,
                    )))
                })),
            }
        }
        true
    };
    assert!(records.iter().all(|record| load(record)), "unchanged records are data");
    bolero::check!().with_type::<(u8, Vec<Edit>)>().for_each(|(record, edits)| {
        load(&edited(&records[usize::from(*record) % records.len()], edits));
    });
}

/// Parts of device selectors.
const WORDS: [&str; 16] = [
    "gpu",
    "cpu",
    "auto",
    "software",
    "discrete",
    "integrated",
    "virtual",
    "name",
    "host",
    ":",
    "0",
    "1",
    "99",
    "18446744073709551616",
    "-",
    " ",
];

#[test]
fn device_selectors_are_refused_or_resolved() {
    let check = |text: &str| -> bool {
        let Ok(device) = text.parse::<WgslDevice>() else { return false };
        let again: WgslDevice = device.to_string().parse().expect("it was a selector");
        assert_eq!(again, device);
        let _ = device.resolve().map_err(|error| error.to_string());
        let _ = device.describe();
        true
    };
    for selector in ["gpu:0", "cpu", "auto", "software", "discrete:0", "gpu:99"] {
        assert!(check(selector), "{selector}");
    }
    bolero::check!().with_type::<(Vec<u8>, Vec<u8>)>().for_each(|(words, end)| {
        let words = words.iter().take(6).map(|&word| WORDS[usize::from(word) % WORDS.len()]);
        let text: String = words.collect();
        check(&(text + &String::from_utf8_lossy(&end[..end.len().min(8)])));
    });
}

/// A kernel whose text and signature inputs change.
const SIGNATURE: &str = "x: f32[n], y: i32[n] -> out: f32[n]";
const TEXT: &str = "alias E = f32;
@group(0) @binding(auto) var<storage, read> x: array<E>;
@group(0) @binding(auto) var<storage, read> y: array<i32>;
@group(0) @binding(auto) var<storage, read_write> out: array<E>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x < arrayLength(&out)) { out[id.x] = x[u32(y[id.x])]; }
}
";

/// A replacement of a part of a text.
#[derive(Debug, TypeGenerator)]
struct Edit {
    start: u16,
    len: u8,
    /// Copies from here if it is less than the length of the text, else inserts `bytes`.
    from: u16,
    bytes: Vec<u8>,
}

fn edited(text: &str, edits: &[Edit]) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for edit in edits.iter().take(4) {
        let start = usize::from(edit.start) % (bytes.len() + 1);
        let end = (start + usize::from(edit.len % 16)).min(bytes.len());
        let from = usize::from(edit.from);
        let inserted = match from < text.len() {
            true => text.as_bytes()[from..(from + usize::from(edit.len)).min(text.len())].to_vec(),
            false => edit.bytes.iter().take(32).copied().collect(),
        };
        bytes.splice(start..end, inserted);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[test]
fn kernels_of_any_text_are_refused_or_run() {
    let _hidden = hide_panics_outside(file!());
    let Some(device) = gpus().into_iter().next() else { return };
    let x = Tensor::<Wgsl, 1>::from_floats([1.0, 2.0, 3.0], &device);
    let y = Tensor::<Wgsl, 1, burn::tensor::Int>::from_ints([0, 7, -1], &device);
    let kept = (x.clone() * 2.0).into_data().to_vec::<f32>().expect("f32");
    let operands = AssertUnwindSafe((x, y));
    bolero::check!().with_type::<(Vec<Edit>, Vec<Edit>)>().for_each(|(signature, text)| {
        let operands = &operands;
        let (x, y) = &operands.0;
        // The parameters of a program stay as long as it runs.
        let signature: &str = edited(SIGNATURE, signature).leak();
        let text: &str = edited(TEXT, text).leak();
        let kernel: &Kernel = Box::leak(Box::new(Kernel::new("fuzzed", signature, text)));
        let result = kernel.call((x, y), ()).run::<Tensor<Wgsl, 1>>(1);
        if let Ok(out) = result {
            let _ = out.try_into_data().map_err(|error| error.to_string());
        }
        let again = (x.clone() * 2.0).into_data().to_vec::<f32>().expect("f32");
        assert_eq!(again, kept, "{signature}\n{text}");
    });
}
