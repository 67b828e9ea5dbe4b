//! Every case in every element type on every GPU against burn-flex, and conversions between types.

use burn_backend::{DType, TensorData};
use burn_flex::{Flex, FlexDevice};
use burn_std::{FloatDType, IntDType};
use burn_wgsl::backend::call::{Types, call_as};
use burn_wgsl::kernels::ops::cases::{Arg, Case, Fill, Input};
use burn_wgsl::kernels::ops::table::{self, OperandForm, Reference, Row};
use burn_wgsl::{Wgsl, WgslDevice};

use crate::common::{
    self, WEIGHTED_F16, assert_close, failure, read_values, takes_bool_type, takes_floats,
    tolerance_of, without_fallbacks,
};

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

/// Returns burn-flex's results of a case, or `None` if burn-flex lacks the op or the element types.
///
/// Floats are computed in f32 from the same 16-bit numbers, because burn-flex would round every
/// partial sum to 16 bits.
fn reference_results(case: &Case, types: Types) -> Option<Vec<TensorData>> {
    let types = Types { float: FloatDType::F32, ..types };
    let run = || call_as::<Flex>(case, &FlexDevice, types, &mut |tensor| tensor).map(read_values);
    std::panic::catch_unwind(run).ok().flatten()
}

/// Compares the results of a case with burn-flex's. Returns `false` if burn-flex has none.
fn check(case: &Case, device: &WgslDevice, types: Types) -> bool {
    let Some(expected) = reference_results(case, types) else {
        return false;
    };
    let label = format!("{case:?} in {types:?} on {device}");
    let values = call_as::<Wgsl>(case, device, types, &mut |tensor| tensor);
    let values = read_values(values.unwrap_or_else(|| panic!("no table has the op {}", case.op)));
    assert_eq!(values.len(), expected.len(), "{label}: the number of results");
    for (value, expected) in values.iter().zip(&expected) {
        // burn-flex returns indices as i64.
        let is_index = expected.dtype == DType::I64 && value.dtype == DType::I32;
        let expected_dtype = match expected.dtype {
            DType::F32 => types.float.into(),
            other => other,
        };
        let is_bool = matches!(value.dtype, DType::Bool(_));
        assert!(
            value.dtype == expected_dtype || is_index || is_bool,
            "{label}: the element type is {:?}, expected {expected_dtype:?}",
            value.dtype
        );
        let expected = expected.clone().convert_dtype(expected_dtype);
        let tolerance = match (case.op, expected_dtype) {
            ("attention", DType::F16) => WEIGHTED_F16,
            _ => tolerance_of(expected_dtype),
        };
        assert_close(&label, value, &expected, tolerance);
    }
    true
}

/// Returns the rows of the elementwise table as cases, except boolean rows and extensions.
fn row_cases() -> impl Iterator<Item = Case> {
    let rows = table::ALL.iter().copied().flatten().copied();
    let is_tested = |row: &&Row| {
        !table::is_extension(row)
            && !matches!(row.reference, Reference::Bool1(_) | Reference::Bool2(_))
    };
    rows.filter(is_tested).map(|row| {
        let takes_floats = takes_floats(row.reference);
        let input = |fill| Arg::Tensor(Input { fill, shape: &[3, 70], axes: &[] });
        let first = input(if takes_floats { Fill::Positive } else { Fill::Ints });
        let second = input(if takes_floats { Fill::Positive } else { Fill::Below(7) });
        let (low, high) = if takes_floats {
            (Arg::Float(0.25), Arg::Float(0.75))
        } else {
            (Arg::Int(2), Arg::Int(5))
        };
        let mut args = match row.form {
            OperandForm::Unary => vec![first],
            OperandForm::Binary => vec![first, second],
            OperandForm::Scalar => vec![first, low],
            OperandForm::TwoScalars => vec![first, low, high],
        };
        if takes_bool_type(row.reference) {
            args.push(Arg::BoolType);
        }
        Case { op: row.name, args: args.into() }
    })
}

/// Runs the cases that `applies` selects in all `types` on every GPU, and reports all failures.
fn check_every_case(types: impl Iterator<Item = Types> + Clone, applies: fn(&Case) -> bool) {
    let (mut failed, mut checked) = (Vec::new(), 0);
    for device in common::gpus() {
        let cases = || common::cases().cloned().chain(row_cases()).filter(applies);
        let checks = types.clone().flat_map(|types| cases().map(move |case| (case, types)));
        without_fallbacks(&device.to_string(), || {
            for (case, types) in checks {
                match std::panic::catch_unwind(|| check(&case, &device, types)) {
                    Ok(has_reference) => checked += usize::from(has_reference),
                    Err(panic) => {
                        failed.push(failure(&format!("{case:?} in {types:?} on {device}"), panic));
                    }
                }
            }
        });
    }
    assert!(failed.is_empty(), "{} failed, {checked} passed:\n{}", failed.len(), failed.join("\n"));
    println!("{checked} results agree");
}

#[test]
fn f16_and_bf16_match_burn_flex() {
    let types = FLOATS.into_iter().map(|float| Types { float, rounded: float, int: IntDType::I32 });
    check_every_case(types, Case::agrees_in_half);
}

#[test]
fn all_integer_types_match_burn_flex() {
    let types = INTEGERS.into_iter().map(|int| Types {
        float: FloatDType::F32,
        rounded: FloatDType::F32,
        int,
    });
    check_every_case(types, |case| {
        let is_integer = |arg: &Arg| match arg {
            Arg::Tensor(input) => input.fill.is_integer(),
            Arg::Tensors(inputs) => inputs.iter().any(|input| input.fill.is_integer()),
            Arg::IntType => true,
            _ => false,
        };
        case.args.iter().any(is_integer)
    });
}

type Ints = burn::tensor::Tensor<Wgsl, 1, burn::tensor::Int>;

/// Returns integers at the ends of a type's range and around zero.
fn extremes(dtype: IntDType) -> Vec<i128> {
    let (min, max): (i128, i128) = match dtype {
        IntDType::I64 => (i64::MIN.into(), i64::MAX.into()),
        IntDType::I32 => (i32::MIN.into(), i32::MAX.into()),
        IntDType::I16 => (i16::MIN.into(), i16::MAX.into()),
        IntDType::I8 => (i8::MIN.into(), i8::MAX.into()),
        IntDType::U64 => (0, u64::MAX.into()),
        IntDType::U32 => (0, u32::MAX.into()),
        IntDType::U16 => (0, u16::MAX.into()),
        IntDType::U8 => (0, u8::MAX.into()),
    };
    let mut out = vec![min, min + 1, max - 1, max, 0, 1, 2, 3, 7, 100, max / 3, max / 2 + 1];
    if min < 0 {
        out.extend([-1, -2, -7, min / 3]);
    }
    out
}

/// Converts a number to `dtype` as Rust's `as` does: integers wrap, floats saturate.
macro_rules! convert {
    ($x:expr, $dtype:expr) => {
        match $dtype {
            IntDType::I64 => i128::from($x as i64),
            IntDType::I32 => i128::from($x as i32),
            IntDType::I16 => i128::from($x as i16),
            IntDType::I8 => i128::from($x as i8),
            IntDType::U64 => i128::from($x as u64),
            IntDType::U32 => i128::from($x as u32),
            IntDType::U16 => i128::from($x as u16),
            IntDType::U8 => i128::from($x as u8),
        }
    };
}

/// Returns `x` wrapped to the range of `dtype`.
fn wrapped(x: i128, dtype: IntDType) -> i128 {
    convert!(x, dtype)
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
fn integer_ops_are_exact_at_the_ends_of_the_range() {
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
            assert_eq!(values(lhs()), a, "upload and readback of {dtype:?}");
            let check = |op: &str, result: Ints, reference: fn(i128, i128) -> i128| {
                for (i, value) in values(result).into_iter().enumerate() {
                    let expected = wrapped(reference(a[i], b[i]), dtype);
                    assert_eq!(value, expected, "{} {op} {} in {dtype:?} on {device}", a[i], b[i]);
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
                let expected: Vec<i128> = a.iter().map(|&x| wrapped(x, to)).collect();
                assert_eq!(cast, expected, "{dtype:?} to {to:?} on {device}");
            }
            let floats: Vec<f32> =
                lhs().float().into_data().to_vec().expect("the elements are f32");
            let expected: Vec<f32> = a.iter().map(|&x| x as f32).collect();
            assert_eq!(floats, expected, "{dtype:?} to f32 on {device}");
            let sum = values(lhs().sum())[0];
            assert_eq!(sum, wrapped(a.iter().sum(), dtype), "the sum in {dtype:?} on {device}");
            let max = values(lhs().max())[0];
            assert_eq!(Some(max), a.iter().copied().max(), "the maximum in {dtype:?} on {device}");
            let min = values(lhs().min())[0];
            assert_eq!(Some(min), a.iter().copied().min(), "the minimum in {dtype:?} on {device}");
        }
    }
}

#[test]
fn float_to_integer_conversion_matches_rust() {
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
            // Burn's `int()` converts to the device's default integer type first. Call the backend.
            let tensor = burn::tensor::Tensor::<Wgsl, 1>::from_floats(floats, &device)
                .into_primitive()
                .tensor();
            let cast =
                <Wgsl as burn_backend::ops::FloatTensorOps<Wgsl>>::float_into_int(tensor, dtype);
            let cast = values(Ints::from_primitive(cast));
            for (x, value) in floats.into_iter().zip(cast) {
                assert_eq!(value, convert!(x, dtype), "{x} to {dtype:?} on {device}");
            }
        }
    }
}

/// Every 16-bit float converts to f32 and back unchanged. Numbers between two 16-bit floats round
/// to the nearest, ties to even.
#[test]
fn f16_and_bf16_conversions_round_to_even() {
    use half::{bf16, f16};
    for device in common::gpus() {
        let check = |floats: Vec<f32>, dtype: FloatDType, expected: Vec<u16>| {
            let tensor = burn::tensor::Tensor::<Wgsl, 1>::from_floats(floats.as_slice(), &device);
            let rounded = tensor.cast(dtype);
            let bits: Vec<u16> =
                bytemuck::cast_slice(rounded.clone().into_data().as_bytes()).to_vec();
            let is_equal = |(value, expected): (&u16, &u16)| {
                let is_nan = |x: u16| match dtype {
                    FloatDType::F16 => f16::from_bits(x).is_nan(),
                    _ => bf16::from_bits(x).is_nan(),
                };
                value == expected || (is_nan(*value) && is_nan(*expected))
            };
            let wrong = bits.iter().zip(&expected).position(|pair| !is_equal(pair));
            assert_eq!(
                wrong.map(|i| (floats[i], bits[i], expected[i])),
                None,
                "{dtype:?} on {device}"
            );
            let restored = rounded.cast(FloatDType::F32).into_data();
            let restored: Vec<f32> = restored.to_vec().expect("the elements are f32");
            for (value, bits) in restored.into_iter().zip(expected) {
                let expected = match dtype {
                    FloatDType::F16 => f16::from_bits(bits).to_f32(),
                    _ => bf16::from_bits(bits).to_f32(),
                };
                // Drivers may flush f32 subnormals. Of the two types, only bf16 can hold them.
                let flushed = expected.abs() < f32::MIN_POSITIVE && value == 0.0;
                let same =
                    value.to_bits() == expected.to_bits() || (value.is_nan() && expected.is_nan());
                assert!(
                    same || flushed,
                    "{bits:#x} in {dtype:?} converts to {value} on {device}, expected {expected}"
                );
            }
        };
        // Returns `x` and seven more numbers in steps of `unit / 4`. `unit` is the distance
        // between two 16-bit floats, as a difference of f32 bit patterns.
        let steps_from = |x: f32, unit: u32| {
            (0..8).map(move |i| f32::from_bits(x.to_bits().wrapping_add(i * unit / 4)))
        };
        let f16_floats: Vec<f32> =
            (0..=u16::MAX).flat_map(|i| steps_from(f16::from_bits(i).to_f32(), 1 << 13)).collect();
        let expected = f16_floats.iter().map(|&x| f16::from_f32(x).to_bits()).collect();
        check(f16_floats, FloatDType::F16, expected);
        let bf16_floats: Vec<f32> = (0..=u16::MAX)
            .flat_map(|i| steps_from(bf16::from_bits(i).to_f32(), 1 << 16))
            .filter(|x| x.abs() >= f32::MIN_POSITIVE || *x == 0.0 || x.is_nan())
            .collect();
        let expected = bf16_floats.iter().map(|&x| bf16::from_f32(x).to_bits()).collect();
        check(bf16_floats, FloatDType::BF16, expected);
    }
}

/// A comparison rounds its scalar to the tensor's type, so a 16-bit 0.1 equals the scalar 0.1.
#[test]
fn comparisons_round_scalars_to_16_bit_floats() {
    for device in common::devices() {
        for dtype in FLOATS {
            let numbers = [0.1f32, 0.7, -2.3, 1.0e-3];
            for number in numbers {
                let x = burn::tensor::Tensor::<Wgsl, 1>::from_floats([number], &device).cast(dtype);
                let comparisons = [
                    x.clone().equal_elem(number),
                    x.clone().not_equal_elem(number).bool_not(),
                    x.clone().greater_equal_elem(number),
                    x.clone().lower_equal_elem(number),
                    x.clone().greater_elem(number).bool_not(),
                    x.lower_elem(number).bool_not(),
                ];
                let results =
                    comparisons.map(|result| result.into_data().iter::<bool>().all(|x| x));
                assert_eq!(results, [true; 6], "{number} in {dtype:?} on {device}");
            }
        }
    }
}
