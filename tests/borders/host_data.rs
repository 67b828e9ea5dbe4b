//! Data of the program at the border: only what its shape and type say becomes a tensor.

use std::panic::AssertUnwindSafe;

use burn::tensor::quantization::{QuantLevel, QuantScheme, QuantStore, QuantValue};
use burn::tensor::{
    Bool, Bytes, DType, IndexingUpdateOp, Int, Shape, Slice, Tensor, TensorData, TensorPrimitive,
};
use burn_backend::ops::{BoolTensorOps, FloatTensorOps, IntTensorOps, QTensorOps};
use burn_std::{BoolStore, IntDType, quantization::QuantParam};
use burn_wgsl::{Wgsl, WgslDevice};

use crate::common::{devices, panic_message};

fn data(bytes: usize, shape: &[usize], dtype: DType) -> TensorData {
    TensorData {
        bytes: Bytes::from_bytes_vec(vec![1; bytes]),
        shape: Shape::from(shape.to_vec()),
        dtype,
    }
}

/// Returns the message of an upload that must fail, and checks that the device works after it.
fn refused(device: &WgslDevice, upload: impl FnOnce(&WgslDevice)) -> String {
    let message = panic_message(AssertUnwindSafe(|| upload(device)));
    let sum = Tensor::<Wgsl, 1>::from_floats([1.0, 2.0], device).sum().into_scalar();
    assert_eq!(sum, 3.0, "{device} after: {message}");
    message
}

#[test]
fn bytes_that_differ_from_the_shape_are_refused() {
    for device in &devices() {
        for (bytes, shape, dtype) in [
            (4, &[1 << 20][..], DType::F32),
            (0, &[3], DType::F32),
            (7, &[2], DType::F32),
            (9, &[2], DType::F32),
            (8, &[2, 3], DType::F16),
            (8, &[2], DType::F64),
        ] {
            let found = refused(device, |device| {
                Wgsl::float_from_data(data(bytes, shape, dtype), device);
            });
            let needed: usize = shape.iter().product::<usize>() * dtype.size();
            assert!(found.starts_with("float_from_data on "), "{found}");
            assert!(found.contains(&format!("has {bytes} bytes")), "{found}");
            assert!(found.contains(&format!("needs {needed};")), "{found}");
        }
        refused(device, |device| {
            Wgsl::int_from_data(data(7, &[2], DType::I32), device);
        });
        refused(device, |device| {
            Wgsl::bool_from_data(data(1, &[2], DType::Bool(BoolStore::Native)), device);
        });
        let found = refused(device, |device| {
            Wgsl::float_from_data(data(8, &[usize::MAX, 8, 8], DType::F32), device);
        });
        assert!(found.contains("more elements than memory can hold"), "{found}");
    }
}

#[test]
fn elements_of_another_kind_are_refused() {
    for device in &devices() {
        let found = refused(device, |device| {
            Wgsl::bool_from_data(data(8, &[2], DType::F32), device);
        });
        assert!(found.contains("the data is F32, but the tensor has boolean elements"), "{found}");
        refused(device, |device| {
            Wgsl::float_from_data(data(8, &[2], DType::I32), device);
        });
        refused(device, |device| {
            Wgsl::int_from_data(data(2, &[2], DType::Bool(BoolStore::U8)), device);
        });
        let scheme = DType::QFloat(QuantScheme::default());
        refused(device, |device| {
            Wgsl::float_from_data(data(8, &[2], scheme), device);
        });
    }
}

#[test]
fn booleans_of_any_number_are_zero_or_one() {
    for device in &devices() {
        let bytes = Bytes::from_bytes_vec(vec![0, 2, 255, 1]);
        let dtype = DType::Bool(BoolStore::Native);
        let bools = TensorData { bytes, shape: Shape::from([4]), dtype };
        let bools = Tensor::<Wgsl, 1, Bool>::from_primitive(Wgsl::bool_from_data(bools, device));
        assert_eq!(bools.clone().int().sum().into_scalar(), 3, "{device}");
        let found = bools.argwhere().into_data().convert::<i64>().into_vec::<i64>();
        assert_eq!(found.expect("i64"), [1, 2, 3], "{device}");
    }
}

/// Burn's type of tensors does not keep them apart.
#[test]
fn operands_of_another_kind_are_refused() {
    for device in devices() {
        let floats = Tensor::<Wgsl, 1>::from_floats([1.0, 2.0, 3.0], &device);
        let floats = floats.into_primitive().tensor();
        let ints = Tensor::<Wgsl, 1, Int>::from_ints([5, 0, -3], &device).into_primitive();
        let bools = Tensor::<Wgsl, 1>::from_floats([0.0, 1.0, 2.0], &device).greater_elem(0.5);
        let bools = bools.into_primitive();
        type Op<'a> = Box<dyn FnOnce() + 'a>;
        let ops: [(&str, Op<'_>); 5] = [
            (
                "bool_not: an operand has the type F32",
                Box::new(|| drop(Wgsl::bool_not(floats.clone()))),
            ),
            (
                "bool_not: an operand has the type I32",
                Box::new(|| drop(Wgsl::bool_not(ints.clone()))),
            ),
            (
                "bool_argwhere: an operand has the type",
                Box::new(|| {
                    drop(pollster::block_on(Wgsl::bool_argwhere(ints.clone(), IntDType::I32)));
                }),
            ),
            (
                "int_add: an operand has the type Bool",
                Box::new(|| drop(Wgsl::int_add(bools.clone(), bools.clone()))),
            ),
            (
                "float_cat: an operand has the type I32",
                Box::new(|| drop(Wgsl::float_cat(vec![floats.clone(), ints.clone()], 0))),
            ),
        ];
        for (part, op) in ops {
            let message = panic_message(AssertUnwindSafe(op));
            assert!(message.contains(part), "{message} on {device}");
        }
    }
}

/// Elements of 64 bits in the place of 32: kernels would write beyond the result.
#[test]
fn wide_elements_of_another_kind_write_nothing() {
    const LEN: usize = 1024;
    for device in devices() {
        let ones = |len: usize| Tensor::<Wgsl, 1>::ones([len], &device);
        let all: Vec<_> = (0..60).map(|i| ones(LEN) * i).collect();
        let before: Vec<_> = all.iter().map(|x| x.clone().into_data()).collect();
        let wide = Tensor::<Wgsl, 1, Int>::full([LEN / 2], 7, &device).cast(IntDType::I64);
        let value = TensorPrimitive::Float(wide.into_primitive());
        let value = Tensor::<Wgsl, 1>::from_primitive(value);
        let indices = Tensor::<Wgsl, 1, Int>::arange(0..LEN as i64 / 2, &device);
        type Op<'a> = Box<dyn FnOnce() + 'a>;
        let ops: [Op<'_>; 5] = [
            Box::new(|| {
                drop(ones(LEN).slice_assign(Slice::from(LEN / 2..LEN), value.clone()).into_data())
            }),
            Box::new(|| drop(Tensor::cat(vec![ones(4), value.clone()], 0).into_data())),
            Box::new(|| {
                drop(value.clone().mask_fill(ones(LEN / 2).greater_elem(0), 1.0).into_data())
            }),
            Box::new(|| {
                let add = IndexingUpdateOp::Add;
                drop(ones(LEN).scatter(0, indices.clone(), value.clone(), add).into_data());
            }),
            Box::new(|| drop(Wgsl::silu(value.clone().into_primitive().tensor()))),
        ];
        for (number, op) in ops.into_iter().enumerate() {
            let message = panic_message(AssertUnwindSafe(op));
            assert!(message.contains("has the type I64"), "{number}: {message} on {device}");
        }
        for (x, before) in all.into_iter().zip(before) {
            assert_eq!(x.into_data(), before, "{device}");
        }
    }
}

fn scheme(value: QuantValue, store: QuantStore, level: QuantLevel) -> QuantScheme {
    QuantScheme::default()
        .with_value(value)
        .with_store(store)
        .with_level(level)
        .with_param(QuantParam::F32)
}

#[test]
fn quantised_data_of_another_length_is_refused() {
    let native = scheme(QuantValue::Q8S, QuantStore::Native, QuantLevel::Tensor);
    let blocks = scheme(QuantValue::Q8S, QuantStore::Native, QuantLevel::block([4]));
    let packed = scheme(QuantValue::Q4S, QuantStore::PackedU32(0), QuantLevel::Tensor);
    for device in &devices() {
        for (bytes, shape, scheme, part) in [
            (0, &[8][..], native, "8 for integers and 4 for scales"),
            (8, &[8], native, "8 for integers and 4 for scales"),
            (3, &[8], native, "8 for integers and 4 for scales"),
            (13, &[8], native, "8 for integers and 4 for scales"),
            (12, &[8], blocks, "8 for integers and 8 for scales"),
            (14, &[6], blocks, "blocks of 4 elements do not divide the 6 elements"),
            (4, &[8], packed, "4 for integers and 4 for scales"),
            (8, &[usize::MAX, 2], native, "more elements than memory can hold"),
        ] {
            let found = refused(device, |device| {
                Wgsl::q_from_data(data(bytes, shape, DType::QFloat(scheme)), device);
            });
            assert!(found.starts_with("q_from_data on ") && found.contains(part), "{found}");
        }
        let floats = scheme(QuantValue::E4M3, QuantStore::Native, QuantLevel::Tensor);
        let found = refused(device, |device| {
            Wgsl::q_from_data(data(12, &[8], DType::QFloat(floats)), device);
        });
        assert!(found.contains("cannot be read"), "{found}");
        let found = refused(device, |device| {
            Wgsl::q_from_data(data(8, &[2], DType::F32), device);
        });
        assert!(found.contains("the data is F32, not quantised"), "{found}");
    }
}

#[test]
fn packed_integers_are_unpacked() {
    let scheme = scheme(QuantValue::Q4S, QuantStore::PackedU32(0), QuantLevel::Tensor);
    for device in &devices() {
        // Integers 1, -1, 7, -7, 0, 2, -2, 3, the first in the lowest bits, and the scale 0.5.
        let mut bytes = 0x3e20_97f1u32.to_ne_bytes().to_vec();
        bytes.extend_from_slice(&0.5f32.to_ne_bytes());
        let bytes = Bytes::from_bytes_vec(bytes);
        let data = TensorData { bytes, shape: Shape::from([8]), dtype: DType::QFloat(scheme) };
        let tensor = Wgsl::dequantize(Wgsl::q_from_data(data, device), burn_std::FloatDType::F32);
        let read = pollster::block_on(Wgsl::float_into_data(tensor)).expect("it is read");
        let expected = [0.5, -0.5, 3.5, -3.5, 0.0, 1.0, -1.0, 1.5];
        assert_eq!(read.to_vec::<f32>().expect("f32"), expected, "{device}");
    }
}

#[test]
fn records_with_short_data_are_refused() {
    for device in &devices() {
        let whole = TensorData::from([[1.0f32, 2.0], [3.0, 4.0]]);
        let mut record = serde_json::to_value(&whole).expect("it serialises");
        record["shape"] = serde_json::json!([1 << 20, 16]);
        let read: TensorData = serde_json::from_value(record).expect("serde accepts it");
        let found = refused(device, |device| {
            Tensor::<Wgsl, 2>::from_data(read, device);
        });
        assert!(found.contains("has 16 bytes"), "{found}");
    }
    let ints = Tensor::<Wgsl, 1, Int>::from_ints([1, 2], &WgslDevice::Cpu);
    assert_eq!(ints.sum().into_scalar(), 3);
}
