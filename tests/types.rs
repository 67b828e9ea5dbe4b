//! Every case in every element type, on every GPU, against the CPU twin in the same type.

mod common;

use burn_backend::{DType, TensorData};
use burn_flex::{Flex, FlexDevice};
use burn_std::{FloatDType, IntDType};
use burn_wgsl::backend::call::{Types, Value, call_as};
use burn_wgsl::kernels::cases::{Arg, Case, Fill, Input};
use burn_wgsl::kernels::table::{self, Operands, Reference, Row};
use burn_wgsl::{Wgsl, WgslDevice};
use common::{assert_close, tolerance_of};

const FLOATS: [FloatDType; 2] = [FloatDType::F16, FloatDType::BF16];
const INTEGERS: [IntDType; 7] = [
    IntDType::I64,
    IntDType::U64,
    IntDType::U32,
    IntDType::I16,
    IntDType::U16,
    IntDType::I8,
    IntDType::U8,
];

fn read<T: burn_backend::Backend>(values: Vec<Value<T>>) -> Vec<TensorData> {
    let read = |value: Value<T>| pollster::block_on(value.into_data()).expect("it is read back");
    values.into_iter().map(read).collect()
}

/// What the case gives in these types; `None` where the twin does not know them or the op. Of floats, the twin
/// computes in f32 from the same numbers, since in 16 bits it rounds every partial sum.
fn twin(case: &Case, types: Types) -> Option<Vec<TensorData>> {
    let types = Types { float: FloatDType::F32, ..types };
    let run = || call_as::<Flex>(case, &FlexDevice, types, &mut |tensor| tensor).map(read);
    std::panic::catch_unwind(run).ok().flatten()
}

fn run(case: &Case, device: &WgslDevice, types: Types) -> bool {
    let Some(truth) = twin(case, types) else {
        return false;
    };
    let what = format!("{case:?} in {types:?} on {device}");
    let values = call_as::<Wgsl>(case, device, types, &mut |tensor| tensor);
    let values = read(values.unwrap_or_else(|| panic!("no table has {}", case.op)));
    assert_eq!(values.len(), truth.len(), "{what}: the count of results");
    for (value, truth) in values.iter().zip(&truth) {
        // The twin's indices always have 64 bits.
        let index = truth.dtype == DType::I64 && value.dtype == DType::I32;
        let wanted = match truth.dtype {
            DType::F32 => types.float.into(),
            other => other,
        };
        let alike = value.dtype == wanted || index || matches!(value.dtype, DType::Bool(_));
        assert!(alike, "{what}: {:?} in place of {wanted:?}", value.dtype);
        let truth = truth.clone().convert_dtype(wanted);
        assert_close(&what, value, &truth, tolerance_of(wanted));
    }
    true
}

/// The rows of the elementwise table as cases. Divisors and powers are rows of a test of their own.
fn rows() -> impl Iterator<Item = Case> {
    let rows = table::ALL.iter().copied().flatten().copied();
    let ours = |row: &&Row| {
        !table::is_extension(row) && !matches!(row.reference, Reference::B1(_) | Reference::B2(_))
    };
    rows.filter(ours).map(|row| {
        let floats = matches!(
            row.reference,
            Reference::F1(_)
                | Reference::F2(_)
                | Reference::F3(_)
                | Reference::Fq1(_)
                | Reference::Fq2(_)
        );
        let input = |fill| Arg::Tensor(Input { fill, shape: &[3, 70], axes: &[] });
        let first = input(if floats { Fill::Positive } else { Fill::Ints });
        let second = input(if floats { Fill::Positive } else { Fill::Below(7) });
        let (low, high) =
            if floats { (Arg::Float(0.25), Arg::Float(0.75)) } else { (Arg::Int(2), Arg::Int(5)) };
        let mut args = match row.operands {
            Operands::Unary => vec![first],
            Operands::Binary => vec![first, second],
            Operands::Scalar => vec![first, low],
            Operands::Scalars => vec![first, low, high],
        };
        if matches!(row.reference, Reference::Fq1(_) | Reference::Fq2(_) | Reference::Iq2(_)) {
            args.push(Arg::BoolType);
        }
        Case { op: row.name, args: Vec::leak(args) }
    })
}

fn every_case(types: impl Iterator<Item = Types> + Clone, concerns: fn(&Case) -> bool) {
    let (mut failed, mut checked) = (Vec::new(), 0);
    for device in common::gpus() {
        let before = burn_wgsl::fallbacks();
        for types in types.clone() {
            for case in common::cases().copied().chain(rows()).filter(concerns) {
                match std::panic::catch_unwind(|| run(&case, &device, types)) {
                    Ok(known) => checked += usize::from(known),
                    Err(panic) => failed.push(
                        panic
                            .downcast_ref::<String>()
                            .cloned()
                            .unwrap_or_else(|| format!("{case:?} in {types:?} on {device}")),
                    ),
                }
            }
        }
        assert_eq!(before, burn_wgsl::fallbacks(), "on {device} something ran on the CPU");
    }
    assert!(
        failed.is_empty(),
        "{} failed, {checked} did not:\n{}",
        failed.len(),
        failed.join("\n")
    );
    println!("{checked} results agree");
}

#[test]
fn floats_of_16_bits_agree_with_the_twin() {
    let types = FLOATS.into_iter().map(|float| Types { float, rounded: float, int: IntDType::I32 });
    every_case(types, Case::holds_in_half);
}

#[test]
fn integers_of_other_widths_agree_with_the_twin() {
    let types = INTEGERS.into_iter().map(|int| Types {
        float: FloatDType::F32,
        rounded: FloatDType::F32,
        int,
    });
    every_case(types, |case| {
        let integers = |arg: &Arg| match arg {
            Arg::Tensor(input) => input.fill.is_integer(),
            Arg::Tensors(inputs) => inputs.iter().any(|input| input.fill.is_integer()),
            Arg::IntType => true,
            _ => false,
        };
        case.args.iter().any(integers)
    });
}

type Ints = burn::tensor::Tensor<Wgsl, 1, burn::tensor::Int>;

/// Integers of a type at the ends of its range and around zero, as 128 bits.
fn extremes(dtype: IntDType) -> Vec<i128> {
    let (least, most): (i128, i128) = match dtype {
        IntDType::I64 => (i64::MIN.into(), i64::MAX.into()),
        IntDType::I32 => (i32::MIN.into(), i32::MAX.into()),
        IntDType::I16 => (i16::MIN.into(), i16::MAX.into()),
        IntDType::I8 => (i8::MIN.into(), i8::MAX.into()),
        IntDType::U64 => (0, u64::MAX.into()),
        IntDType::U32 => (0, u32::MAX.into()),
        IntDType::U16 => (0, u16::MAX.into()),
        IntDType::U8 => (0, u8::MAX.into()),
    };
    let mut out =
        vec![least, least + 1, most - 1, most, 0, 1, 2, 3, 7, 100, most / 3, most / 2 + 1];
    if least < 0 {
        out.extend([-1, -2, -7, least / 3]);
    }
    out
}

/// A number as a type holds it, wrapping.
fn wrapped(x: i128, dtype: IntDType) -> i128 {
    match dtype {
        IntDType::I64 => (x as i64).into(),
        IntDType::I32 => (x as i32).into(),
        IntDType::I16 => (x as i16).into(),
        IntDType::I8 => (x as i8).into(),
        IntDType::U64 => (x as u64).into(),
        IntDType::U32 => (x as u32).into(),
        IntDType::U16 => (x as u16).into(),
        IntDType::U8 => (x as u8).into(),
    }
}

fn tensor(values: &[i128], dtype: IntDType, device: &WgslDevice) -> Ints {
    let data = match dtype {
        IntDType::U64 => {
            TensorData::from(values.iter().map(|&x| x as u64).collect::<Vec<_>>().as_slice())
        }
        _ => TensorData::from(values.iter().map(|&x| x as i64).collect::<Vec<_>>().as_slice()),
    };
    let data = data.convert_dtype(dtype.into());
    Ints::from_data(data, (device, DType::from(dtype)))
}

fn values(tensor: Ints) -> Vec<i128> {
    let data = tensor.into_data();
    match data.dtype {
        DType::U64 => data.iter::<u64>().map(i128::from).collect(),
        _ => data.iter::<i64>().map(i128::from).collect(),
    }
}

#[test]
fn integers_are_exact_at_the_ends_of_their_range() {
    for device in common::gpus() {
        for dtype in INTEGERS.into_iter().chain([IntDType::I32]) {
            let (mut a, mut b) = (Vec::new(), Vec::new());
            for x in extremes(dtype) {
                for y in extremes(dtype) {
                    a.push(x);
                    b.push(y);
                }
            }
            let lhs = || tensor(&a, dtype, &device);
            let rhs = || tensor(&b, dtype, &device);
            assert_eq!(values(lhs()), a, "{dtype:?} up and down");
            let check = |what: &str, result: Ints, truth: fn(i128, i128) -> i128| {
                for (i, value) in values(result).into_iter().enumerate() {
                    let truth = wrapped(truth(a[i], b[i]), dtype);
                    assert_eq!(value, truth, "{} {what} {} in {dtype:?} on {device}", a[i], b[i]);
                }
            };
            check("+", lhs() + rhs(), |a, b| a + b);
            check("-", lhs() - rhs(), |a, b| a - b);
            check("*", lhs() * rhs(), i128::wrapping_mul);
            check("/", lhs() / rhs(), |a, b| if b == 0 { 0 } else { a / b });
            check("%", lhs().remainder(rhs()), |a, b| match b {
                0 => 0,
                b if b < 0 && a.rem_euclid(b) != 0 => a.rem_euclid(b) + b,
                b => a.rem_euclid(b),
            });
            check("max", lhs().max_pair(rhs()), i128::max);
            check("min", lhs().min_pair(rhs()), i128::min);
            check("> as 0 and 1", lhs().greater(rhs()).int().cast(dtype), |a, b| i128::from(a > b));
            check("and", lhs().bitwise_and(rhs()), |a, b| a & b);
            check("xor", lhs().bitwise_xor(rhs()), |a, b| a ^ b);
            check("abs", lhs().abs(), |a, _| a.abs());
            check("neg", lhs().neg(), |a, _| -a);
            check("sign", lhs().sign(), |a, _| a.signum());
            for to in INTEGERS.into_iter().chain([IntDType::I32]) {
                let cast = values(lhs().cast(to));
                let truth: Vec<i128> = a.iter().map(|&x| wrapped(x, to)).collect();
                assert_eq!(cast, truth, "{dtype:?} to {to:?} on {device}");
            }
            let floats: Vec<f32> = lhs().float().into_data().to_vec().expect("floats");
            let truth: Vec<f32> = a.iter().map(|&x| x as f32).collect();
            assert_eq!(floats, truth, "{dtype:?} to f32 on {device}");
            let sum = values(lhs().sum())[0];
            assert_eq!(sum, wrapped(a.iter().sum(), dtype), "the sum in {dtype:?} on {device}");
            let most = values(lhs().max())[0];
            assert_eq!(Some(most), a.iter().copied().max(), "the maximum in {dtype:?} on {device}");
            let least = values(lhs().min())[0];
            assert_eq!(
                Some(least),
                a.iter().copied().min(),
                "the minimum in {dtype:?} on {device}"
            );
        }
    }
}

#[test]
fn floats_become_integers_as_rust_converts_them() {
    let floats = [
        0.0f32,
        -0.0,
        0.9,
        -0.9,
        1.5,
        -1.5,
        127.0,
        128.0,
        -129.0,
        255.9,
        256.0,
        40000.0,
        -40000.0,
        70000.0,
        2147483500.0,
        2147483648.0,
        -2147483648.0,
        -2147483904.0,
        4294967040.0,
        4294967296.0,
        1e12,
        -1e12,
        9.223371e18,
        9.223372e18,
        -9.223372e18,
        1.8446743e19,
        1.8446744e19,
        1e30,
        -1e30,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
    ];
    for device in common::gpus() {
        for dtype in INTEGERS.into_iter().chain([IntDType::I32]) {
            // Burn's `int()` goes through the device's own integer, so the backend itself is asked.
            let tensor = burn::tensor::Tensor::<Wgsl, 1>::from_floats(floats, &device)
                .into_primitive()
                .tensor();
            let cast =
                <Wgsl as burn_backend::ops::FloatTensorOps<Wgsl>>::float_into_int(tensor, dtype);
            let cast = values(Ints::from_primitive(cast));
            for (x, value) in floats.into_iter().zip(cast) {
                let truth: i128 = match dtype {
                    IntDType::I64 => (x as i64).into(),
                    IntDType::I32 => (x as i32).into(),
                    IntDType::I16 => (x as i16).into(),
                    IntDType::I8 => (x as i8).into(),
                    IntDType::U64 => (x as u64).into(),
                    IntDType::U32 => (x as u32).into(),
                    IntDType::U16 => (x as u16).into(),
                    IntDType::U8 => (x as u8).into(),
                };
                assert_eq!(value, truth, "{x} to {dtype:?} on {device}");
            }
        }
    }
}

/// Every number that 16 bits can hold goes to f32 and back unchanged, and numbers between two round to even.
#[test]
fn floats_of_16_bits_round_to_even() {
    use half::{bf16, f16};
    for device in common::gpus() {
        let check = |floats: Vec<f32>, dtype: FloatDType, truth: Vec<u16>| {
            let tensor = burn::tensor::Tensor::<Wgsl, 1>::from_floats(floats.as_slice(), &device);
            let narrow = tensor.cast(dtype);
            let bits: Vec<u16> =
                bytemuck::cast_slice(narrow.clone().into_data().as_bytes()).to_vec();
            let alike = |(value, truth): (&u16, &u16)| {
                let nan = |x: u16| match dtype {
                    FloatDType::F16 => f16::from_bits(x).is_nan(),
                    _ => bf16::from_bits(x).is_nan(),
                };
                value == truth || (nan(*value) && nan(*truth))
            };
            let wrong = bits.iter().zip(&truth).position(|pair| !alike(pair));
            assert_eq!(
                wrong.map(|i| (floats[i], bits[i], truth[i])),
                None,
                "{dtype:?} on {device}"
            );
            let wide: Vec<f32> = narrow.cast(FloatDType::F32).into_data().to_vec().expect("floats");
            for (value, bits) in wide.into_iter().zip(truth) {
                let truth = match dtype {
                    FloatDType::F16 => f16::from_bits(bits).to_f32(),
                    _ => bf16::from_bits(bits).to_f32(),
                };
                // Drivers may flush what is subnormal in f32, which only bf16 can hold.
                let flushed = truth.abs() < f32::MIN_POSITIVE && value == 0.0;
                let same = value.to_bits() == truth.to_bits() || (value.is_nan() && truth.is_nan());
                assert!(same || flushed, "{bits:#x} of {dtype:?} became {value} on {device}");
            }
        };
        // Each number, and steps of a quarter of its last digit around it.
        let around = |x: f32, unit: u32| {
            (0..8).map(move |i| f32::from_bits(x.to_bits().wrapping_add(i * unit / 4)))
        };
        let halves: Vec<f32> =
            (0..=u16::MAX).flat_map(|i| around(f16::from_bits(i).to_f32(), 1 << 13)).collect();
        let truth = halves.iter().map(|&x| f16::from_f32(x).to_bits()).collect();
        check(halves, FloatDType::F16, truth);
        let brains: Vec<f32> = (0..=u16::MAX)
            .flat_map(|i| around(bf16::from_bits(i).to_f32(), 1 << 16))
            .filter(|x| x.abs() >= f32::MIN_POSITIVE || *x == 0.0 || x.is_nan())
            .collect();
        let truth = brains.iter().map(|&x| bf16::from_f32(x).to_bits()).collect();
        check(brains, FloatDType::BF16, truth);
    }
}

/// A scalar is compared as a number of the tensor's type: 0.1 in 16 bits is another number than 0.1, and equals it.
#[test]
fn halves_are_compared_with_rounded_scalars() {
    for device in common::devices() {
        for dtype in FLOATS {
            let numbers = [0.1f32, 0.7, -2.3, 1.0e-3];
            for number in numbers {
                let x = burn::tensor::Tensor::<Wgsl, 1>::from_floats([number], &device).cast(dtype);
                let answers = [
                    x.clone().equal_elem(number),
                    x.clone().not_equal_elem(number).bool_not(),
                    x.clone().greater_equal_elem(number),
                    x.clone().lower_equal_elem(number),
                    x.clone().greater_elem(number).bool_not(),
                    x.lower_elem(number).bool_not(),
                ];
                let answers = answers.map(|answer| answer.into_data().iter::<bool>().all(|x| x));
                assert_eq!(answers, [true; 6], "{number} in {dtype:?} on {device}");
            }
        }
    }
}
