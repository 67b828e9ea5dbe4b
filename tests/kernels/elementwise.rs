//! Every row of the elementwise table on every device against the row's reference function: random
//! values, views, broadcasts and special values.

use burn_backend::TensorData;
use burn_wgsl::backend::call::{call, content};
use burn_wgsl::kernels::ops::cases::{Arg, Case, Fill, Input};
use burn_wgsl::kernels::ops::table::{self, OperandForm, Reference, Row};
use burn_wgsl::{Wgsl, WgslDevice};

use crate::common::{
    self, Tolerance, devices, failure, read_values, takes_bool_type, takes_floats,
};

/// The scalars `s` and `t` of float rows.
const FLOAT_SCALARS: [f64; 2] = [0.75, 2.5];
/// The scalars `s` and `t` of integer rows.
const INT_SCALARS: [i64; 2] = [3, 7];

/// Returns the tolerance of a row. Powers have a larger one because they multiply the error of a
/// logarithm.
fn tolerance(row: &Row) -> Tolerance {
    let powers = ["float_powf", "float_powf_scalar_impl", "float_powi_scalar_impl"];
    let relative = if powers.contains(&row.name) { 3e-5 } else { 4e-6 };
    Tolerance { relative, absolute: 1e-6 }
}

/// Returns a tensor argument of the row's element type. `fill` applies to float rows only.
fn input(reference: Reference, shape: &'static [usize], axes: &'static [usize], fill: Fill) -> Arg {
    let fill = match reference {
        Reference::Bool1(_) | Reference::Bool2(_) => Fill::Bools,
        _ if takes_floats(reference) => fill,
        _ => Fill::Ints,
    };
    Arg::Tensor(Input { fill, shape, axes })
}

/// Returns the scalars `s` and `t` as arguments of a row's case and as operands of its reference.
fn scalars(reference: Reference) -> ([Arg; 2], [f64; 2]) {
    match reference {
        Reference::Int1(_)
        | Reference::Int2(_)
        | Reference::Int3(_)
        | Reference::IntComparison(_) => (INT_SCALARS.map(Arg::Int), INT_SCALARS.map(|x| x as f64)),
        Reference::Bool1(_) | Reference::Bool2(_) => ([true, false].map(Arg::Flag), [1.0, 0.0]),
        _ => (FLOAT_SCALARS.map(Arg::Float), FLOAT_SCALARS),
    }
}

/// Computes the expected value of one element. Every element type of the table fits into f64.
fn expected_value(reference: Reference, a: f64, b: f64, c: f64) -> f64 {
    let (i, j, k) = (a as i32, b as i32, c as i32);
    match reference {
        Reference::Float1(f) => f(a),
        Reference::Float2(f) => f(a, b),
        Reference::Float3(f) => f(a, b, c),
        Reference::FloatTest(f) => f64::from(f(a)),
        Reference::FloatComparison(f) => f64::from(f(a, b)),
        Reference::Int1(f) => f64::from(f(i)),
        Reference::Int2(f) => f64::from(f(i, j)),
        Reference::Int3(f) => f64::from(f(i, j, k)),
        Reference::IntComparison(f) => f64::from(f(i, j)),
        Reference::Bool1(f) => f64::from(f(a != 0.0)),
        Reference::Bool2(f) => f64::from(f(a != 0.0, b != 0.0)),
    }
}

fn run(case: &Case, device: &WgslDevice) -> TensorData {
    let values = call::<Wgsl>(case, device, &mut |tensor| tensor)
        .unwrap_or_else(|| panic!("no table has the op {}", case.op));
    read_values(values).into_iter().next().expect("the op has a result")
}

/// Runs a row beyond Burn's contract. No backend trait has a method for it.
fn run_extension(row: &'static Row, tensors: &[Arg], device: &WgslDevice) -> TensorData {
    use burn::tensor::{Tensor, TensorPrimitive};
    let tensor = |index: usize| {
        let Arg::Tensor(input) = tensors[index] else { panic!("argument {index} is not a tensor") };
        let data = content(&input, index + 1);
        let tensor = Tensor::<Wgsl, 2>::from_data(data, device);
        match (input.axes, tensor) {
            (&[0, 1] | &[], tensor) => tensor.into_primitive().tensor(),
            (_, tensor) => tensor.transpose().into_primitive().tensor(),
        }
    };
    let value = match row.form {
        OperandForm::Unary => burn_wgsl::backend::apply(row, [tensor(0)]),
        OperandForm::Binary => burn_wgsl::backend::apply(row, [tensor(0), tensor(1)]),
        _ => panic!("{}: a row beyond the contract has tensor operands only", row.name),
    };
    Tensor::<Wgsl, 2>::from_primitive(TensorPrimitive::Float(value)).into_data()
}

/// Returns the elements of the argument at `position`, counted from 1, with its axes permuted and
/// broadcast to `shape`.
fn operand_elements(arg: &Arg, position: usize, shape: &[usize]) -> Vec<f64> {
    let Arg::Tensor(input) = arg else { panic!("argument {position} is not a tensor") };
    let data = content(input, position);
    let tensor = burn::tensor::Tensor::<burn_flex::Flex, 2>::from_data(
        data.convert::<f32>(),
        &Default::default(),
    );
    let tensor = if input.axes.is_empty() {
        tensor
    } else {
        tensor.permute([input.axes[0] as isize, input.axes[1] as isize])
    };
    tensor.expand([shape[0] as i64, shape[1] as i64]).into_data().iter::<f64>().collect()
}

/// Compares a row's result `[rows, columns]` with its reference.
fn check(row: &'static Row, device: &WgslDevice, tensors: &[Arg], shape: &[usize]) {
    let (scalar_args, [s, t]) = scalars(row.reference);
    let mut args = tensors.to_vec();
    match row.form {
        OperandForm::Unary | OperandForm::Binary => {}
        OperandForm::Scalar => args.push(scalar_args[0]),
        OperandForm::TwoScalars => args.extend(scalar_args),
    }
    if takes_bool_type(row.reference) {
        args.push(Arg::BoolType);
    }
    let case = Case { op: row.name, args: args.into() };
    let result = if table::is_extension(row) {
        run_extension(row, tensors, device)
    } else {
        run(&case, device)
    };
    let a = operand_elements(&tensors[0], 1, shape);
    let b = tensors.get(1).map(|arg| operand_elements(arg, 2, shape));
    let tolerance = tolerance(row);
    for (index, value) in result.iter::<f64>().enumerate() {
        let second = b.as_ref().map_or(s, |b| b[index]);
        let expected = expected_value(row.reference, a[index], second, t);
        assert!(
            tolerance.holds(value, expected),
            "{} of {} and {second} on {device} is {value}, expected {expected}",
            row.name,
            a[index],
        );
    }
}

/// Returns whether burn-flex differs from the row's reference. It handles integer division by zero
/// differently.
fn burn_flex_differs(row: &Row) -> bool {
    row.name.starts_with("int_")
        && ["div", "remainder", "powi"].iter().any(|op| row.name.contains(op))
}

/// Returns the second operand of a row. Shifts are only defined below the width of an integer.
fn second_operand(row: &Row, shape: &'static [usize], fill: Fill) -> Arg {
    if row.name.contains("shift") {
        return Arg::Tensor(Input { fill: Fill::Below(31), shape, axes: &[] });
    }
    input(row.reference, shape, &[], fill)
}

fn rows() -> impl Iterator<Item = &'static Row> {
    table::ALL.iter().copied().flatten().copied()
}

/// Runs `check_row` for every row on every device and reports all failures.
fn for_every_row(check_row: impl Fn(&'static Row, &WgslDevice) + std::panic::RefUnwindSafe) {
    let mut failed = Vec::new();
    for device in devices() {
        for row in rows() {
            if device == WgslDevice::Cpu && burn_flex_differs(row) {
                continue;
            }
            if let Err(panic) = std::panic::catch_unwind(|| check_row(row, &device)) {
                failed.push(failure(&format!("{} on {device}", row.name), panic));
            }
        }
    }
    assert!(failed.is_empty(), "{} failed:\n{}", failed.len(), failed.join("\n"));
}

#[test]
fn rows_match_their_reference_on_random_values() {
    for_every_row(|row, device| {
        // The size is not a multiple of a vec4 or of a workgroup.
        let a = input(row.reference, &[7, 13], &[], Fill::Normal);
        match row.form {
            OperandForm::Binary => {
                check(row, device, &[a, second_operand(row, &[7, 13], Fill::Positive)], &[7, 13])
            }
            _ => check(row, device, &[a], &[7, 13]),
        }
    });
}

#[test]
fn rows_match_their_reference_on_views_and_broadcasts() {
    for_every_row(|row, device| {
        let a = input(row.reference, &[12, 5], &[1, 0], Fill::Positive);
        match row.form {
            OperandForm::Binary => {
                check(row, device, &[a, second_operand(row, &[1, 12], Fill::Normal)], &[5, 12])
            }
            _ => check(row, device, &[a], &[5, 12]),
        }
    });
}

/// NaN, infinities, signed zeros, tiny and huge numbers in every unary float op, on GPUs.
#[test]
fn float_rows_match_their_reference_on_special_values() {
    use burn::tensor::{Tensor, TensorPrimitive};
    let special = [
        f32::NAN,
        f32::INFINITY,
        f32::NEG_INFINITY,
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        -0.5,
        1e-30,
        -1e-30,
        1e30,
        -1e30,
        3.0,
        -3.0,
        100.0,
        -100.0,
        1.5,
        2.5,
        -2.5,
        1e-6,
        0.999_999,
        1.000_001,
        12_345.678,
    ];
    let mut failed = Vec::new();
    for device in common::gpus() {
        for row in rows() {
            let Reference::Float1(reference) = row.reference else {
                continue;
            };
            let tensor = Tensor::<Wgsl, 1>::from_floats(special, &device);
            let TensorPrimitive::Float(primitive) = tensor.into_primitive() else {
                continue;
            };
            let value = burn_wgsl::backend::apply(row, [primitive]);
            let value =
                Tensor::<Wgsl, 1>::from_primitive(TensorPrimitive::Float(value)).into_data();
            for (x, value) in special.iter().zip(value.iter::<f64>()) {
                let expected = f64::from(reference(f64::from(*x)) as f32);
                // Subnormal results may be flushed to zero.
                let flushed = expected.abs() < 1.2e-38 && value == 0.0;
                if !flushed && !tolerance(row).holds(value, expected) {
                    failed.push(format!(
                        "{}({x}) on {device} is {value}, expected {expected}",
                        row.name
                    ));
                }
            }
        }
    }
    assert!(failed.is_empty(), "{} failed:\n{}", failed.len(), failed.join("\n"));
}

/// Floats of every exponent and both signs, with `per_exponent` significands each.
fn floats_of_every_exponent(per_exponent: u32) -> Vec<f32> {
    let floats = (1..255u32).flat_map(|exponent| {
        (0..per_exponent).map(move |k| {
            // The multiplier is odd, so that all bits of the significand vary.
            let bits = (exponent * per_exponent + k).wrapping_mul(0x9e37_79b1);
            f32::from_bits((exponent << 23) | (bits >> 9) | ((bits & 1) << 31))
        })
    });
    floats.collect()
}

/// The largest error of a function on a device, relative to the value or to `least`, whichever is larger, with its
/// argument.
fn worst_error(
    found: &[f64],
    arguments: &[f32],
    expected: impl Fn(f64) -> f64,
    least: f64,
) -> (f64, f32) {
    let errors = arguments.iter().zip(found).map(|(x, found)| {
        let expected = expected(f64::from(*x));
        let error = (found - expected).abs() / expected.abs().max(least);
        (if found.is_nan() { f64::INFINITY } else { error }, *x)
    });
    errors.max_by(|a, b| a.0.total_cmp(&b.0)).expect("there are arguments")
}

/// The exponential and the functions that use it have a bounded error everywhere, also where they change from one
/// formula to another. An exponential overflows and underflows where f32 does; a result that is not a normal number may
/// be zero.
#[test]
fn exponentials_are_accurate() {
    use burn::tensor::{Tensor, activation};
    type T = Tensor<Wgsl, 1>;
    type Function = (&'static str, fn(T) -> T, fn(f64) -> f64, f64, f64);
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    let functions: [Function; 7] = [
        ("exp", |x| x.exp(), f64::exp, 4e-7, 1.2e-38),
        ("log", |x| x.exp().log(), |x| f64::from(x.exp() as f32).ln(), 5e-7, 1.0),
        ("sigmoid", activation::sigmoid, sigmoid, 6e-7, 1.2e-38),
        ("log_sigmoid", activation::log_sigmoid, |x| -((-x).exp().ln_1p()), 6e-7, 1.2e-38),
        ("silu", activation::silu, |x| x / (1.0 + (-x).exp()), 6e-7, 1.2e-38),
        ("tanh", |x| x.tanh(), f64::tanh, 5e-7, 1.2e-38),
        ("gelu", activation::gelu, table::reference::gelu, 3e-6, 1e-6),
    ];
    // Steps that are not even in binary.
    let arguments: Vec<f32> = (-61_000..61_000).map(|n| n as f32 * 0.001_430_511).collect();
    for device in common::gpus() {
        for (name, of, expected, bound, least) in functions {
            let found = of(T::from_floats(arguments.as_slice(), &device)).into_data();
            let found: Vec<f64> = found.iter::<f64>().collect();
            let (error, x) = worst_error(&found, &arguments, expected, least);
            assert!(error <= bound, "{name}({x}) on {device} has an error of {error:e}");
        }
        let edges = [88.72, 88.73, 1e10, f32::INFINITY, -87.0, -104.5, -1e10, f32::NEG_INFINITY];
        let found = T::from_floats(edges, &device).exp().into_data();
        for (x, found) in edges.iter().zip(found.iter::<f64>()) {
            let expected = f64::from(f64::from(*x).exp() as f32);
            let is_close = found == expected || (found / expected - 1.0).abs() < 1e-6;
            assert!(is_close, "exp({x}) on {device} is {found}, expected {expected}");
        }
    }
}

/// The kernels reduce large angles themselves: the sine of a driver has no accuracy guarantee above
/// pi.
#[test]
fn sines_are_accurate_for_every_exponent() {
    use burn::tensor::Tensor;
    let mut angles = floats_of_every_exponent(40);
    // Floats that are close to multiples of pi/2, where bits of the reduced angle cancel.
    angles.extend([1.570_796_4, 16_367_173.0 * 2f32.powi(72), 6_381_956_970_095_103.0]);
    angles.extend((1..4000).map(|n| n as f32 * std::f32::consts::FRAC_PI_2));
    for device in common::gpus() {
        let x = Tensor::<Wgsl, 1>::from_floats(angles.as_slice(), &device);
        let [sin, cos, tan] = [x.clone().sin(), x.clone().cos(), x.tan()]
            .map(|y| y.into_data().iter::<f64>().collect::<Vec<_>>());
        for (i, angle) in angles.iter().enumerate() {
            let (expected_sin, expected_cos) = f64::from(*angle).sin_cos();
            let close = |value: f64, expected: f64| (value - expected).abs() < 2e-7;
            assert!(
                close(sin[i], expected_sin) && close(cos[i], expected_cos),
                "{device}: sin({angle:e}) is {}, expected {expected_sin}; cos is {}, expected \
                 {expected_cos}",
                sin[i],
                cos[i],
            );
            // The tangent has the slope 1 + tan^2 with respect to the reduced angle.
            let expected_tan = expected_sin / expected_cos;
            let bound = 4e-7 * (1.0 + expected_tan * expected_tan);
            assert!(
                (tan[i] - expected_tan).abs() < bound,
                "{device}: tan({angle:e}) is {}, expected {expected_tan}",
                tan[i],
            );
        }
    }
}

/// The remainder is exact however large the quotient is, and has the sign of the divisor.
#[test]
fn remainders_are_exact_for_every_quotient() {
    use burn::tensor::Tensor;
    let expected = |a: f32, b: f32| {
        // The remainder with the sign of `a` is exact.
        let r = a % b;
        if r != 0.0 && (r < 0.0) != (b < 0.0) { r + b } else { r }
    };
    let dividends = floats_of_every_exponent(4);
    let mut pairs = vec![
        (1e9, 3.0),
        (-1e9, 3.0),
        (1e9, -3.0),
        (16_777_216.0, 0.1),
        (f32::MAX, f32::MIN_POSITIVE),
        (f32::MAX, 1e-40),
        (6.0, 3.0),
        (-6.0, 3.0),
        (-1e-20, 3.0),
        (3.0, 3.0),
        (1e-40, 3e-41),
        (f32::INFINITY, 3.0),
        (3.0, f32::NAN),
        (3.0, 0.0),
        (3.0, f32::INFINITY),
        (-3.0, f32::INFINITY),
    ];
    for divisor in [3.0, -0.1, 1e-30, -7.7e33, 1.234_567_8, 1e-42] {
        pairs.extend(dividends.iter().map(|&a| (a, divisor)));
    }
    // Quotients up to the bound of the fast path, and beyond.
    pairs.extend((0..4000).map(|n| (n as f32 * 0.999_999 * 1.234_567_8, 1.234_567_8)));
    for device in common::gpus() {
        let tensor = |values: Vec<f32>| Tensor::<Wgsl, 1>::from_floats(values.as_slice(), &device);
        let a = tensor(pairs.iter().map(|pair| pair.0).collect());
        let b = tensor(pairs.iter().map(|pair| pair.1).collect());
        let values = a.remainder(b).into_data();
        for ((a, b), value) in pairs.iter().zip(values.iter::<f32>()) {
            let expected = expected(*a, *b);
            let same = value == expected || value.is_nan() && expected.is_nan();
            // Subnormal numbers may be flushed to zero.
            let flushed = expected.abs() < f32::MIN_POSITIVE && value == 0.0;
            assert!(same || flushed, "{device}: {a:e} % {b:e} is {value:e}, expected {expected:e}");
        }
    }
}
