//! Every row of the elementwise table, on every device, against the truth that the row itself names:
//! on special values, on views, and with broadcasts.

mod common;

use burn_backend::TensorData;
use burn_wgsl::backend::call::{Value, call};
use burn_wgsl::kernels::cases::{Arg, Case, Fill, Input};
use burn_wgsl::kernels::table::{self, Operands, Reference, Row};
use burn_wgsl::{Wgsl, WgslDevice};
use common::{Tolerance, devices};

const S: f64 = 0.75;
const T: f64 = 2.5;
const IS: i64 = 3;
const IT: i64 = 7;

/// The largest error of an op, where it is not a few roundings: powers multiply the error of a logarithm.
fn tolerance(row: &Row) -> Tolerance {
    let wide = ["float_powf", "float_powf_scalar_impl", "float_powi_scalar_impl"];
    let relative = if wide.contains(&row.name) { 3e-5 } else { 4e-6 };
    Tolerance { relative, absolute: 1e-6 }
}

fn input(truth: Reference, shape: &'static [usize], axes: &'static [usize], fill: Fill) -> Arg {
    let fill = match truth {
        Reference::F1(_)
        | Reference::F2(_)
        | Reference::F3(_)
        | Reference::Fq1(_)
        | Reference::Fq2(_) => fill,
        Reference::I1(_) | Reference::I2(_) | Reference::I3(_) | Reference::Iq2(_) => Fill::Ints,
        Reference::B1(_) | Reference::B2(_) => Fill::Truths,
    };
    Arg::Tensor(Input { fill, shape, axes })
}

/// The scalars of a row, as its case gives them and as its truth takes them.
fn scalars(truth: Reference) -> (Arg, Arg, f64, f64) {
    match truth {
        Reference::I1(_) | Reference::I2(_) | Reference::I3(_) | Reference::Iq2(_) => {
            (Arg::Int(IS), Arg::Int(IT), IS as f64, IT as f64)
        }
        Reference::B1(_) | Reference::B2(_) => (Arg::Switch(true), Arg::Switch(false), 1.0, 0.0),
        _ => (Arg::Float(S), Arg::Float(T), S, T),
    }
}

fn is_question(truth: Reference) -> bool {
    matches!(truth, Reference::Fq1(_) | Reference::Fq2(_) | Reference::Iq2(_))
}

/// The truth of one element; every type fits into f64.
fn expected(truth: Reference, a: f64, b: f64, c: f64) -> f64 {
    let (i, j, k) = (a as i32, b as i32, c as i32);
    match truth {
        Reference::F1(f) => f(a),
        Reference::F2(f) => f(a, b),
        Reference::F3(f) => f(a, b, c),
        Reference::Fq1(f) => f64::from(f(a)),
        Reference::Fq2(f) => f64::from(f(a, b)),
        Reference::I1(f) => f64::from(f(i)),
        Reference::I2(f) => f64::from(f(i, j)),
        Reference::I3(f) => f64::from(f(i, j, k)),
        Reference::Iq2(f) => f64::from(f(i, j)),
        Reference::B1(f) => f64::from(f(a != 0.0)),
        Reference::B2(f) => f64::from(f(a != 0.0, b != 0.0)),
    }
}

fn run(case: &Case, device: &WgslDevice) -> TensorData {
    let values: Vec<Value<Wgsl>> = call(case, device, &mut |tensor| tensor)
        .unwrap_or_else(|| panic!("{} is in no table", case.op));
    pollster::block_on(values.into_iter().next().expect("one result").into_data())
        .expect("read back")
}

/// A row beyond Burn's contract, which no trait can call.
fn extension(row: &'static Row, tensors: &[Arg], device: &WgslDevice) -> TensorData {
    use burn::tensor::{Tensor, TensorPrimitive};
    let tensor = |place: usize| {
        let Arg::Tensor(input) = tensors[place] else { panic!("a tensor") };
        let data = burn_wgsl::backend::call::content(&input, place + 1);
        let tensor = Tensor::<Wgsl, 2>::from_data(data, device);
        match (input.axes, tensor) {
            (&[0, 1] | &[], tensor) => tensor.into_primitive().tensor(),
            (_, tensor) => tensor.transpose().into_primitive().tensor(),
        }
    };
    let value = match row.operands {
        Operands::Unary => burn_wgsl::backend::apply(row, [tensor(0)]),
        Operands::Binary => burn_wgsl::backend::apply(row, [tensor(0), tensor(1)]),
        _ => panic!("{}: a row beyond the contract takes tensors only", row.name),
    };
    Tensor::<Wgsl, 2>::from_primitive(TensorPrimitive::Float(value)).into_data()
}

/// The elements of an input as the op sees them, spread over the result's shape.
fn seen(arg: &Arg, place: usize, shape: &[usize]) -> Vec<f64> {
    let Arg::Tensor(input) = arg else { panic!("a tensor") };
    let data = burn_wgsl::backend::call::content(input, place);
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

fn check(row: &'static Row, device: &WgslDevice, tensors: &[Arg], shape: &[usize]) {
    let (first, second, s, t) = scalars(row.reference);
    let mut args = tensors.to_vec();
    match row.operands {
        Operands::Unary | Operands::Binary => {}
        Operands::Scalar => args.push(first),
        Operands::Scalars => args.extend([first, second]),
    }
    if is_question(row.reference) {
        args.push(Arg::BoolType);
    }
    let case = Case { op: row.name, args: Vec::leak(args) };
    let result =
        if table::is_extension(row) { extension(row, tensors, device) } else { run(&case, device) };
    let a = seen(&tensors[0], 1, shape);
    let b = tensors.get(1).map(|arg| seen(arg, 2, shape));
    let tolerance = tolerance(row);
    for (index, value) in result.iter::<f64>().enumerate() {
        let second = b.as_ref().map_or(s, |b| b[index]);
        let truth = expected(row.reference, a[index], second, t);
        assert!(
            tolerance.holds(value, truth),
            "{} on {device}: of {} and {second} came {value}, the truth is {truth}",
            row.name,
            a[index],
        );
    }
}

/// Rows whose twin on the CPU is known to differ from the truth: burn-flex divides by zero its own way.
fn twin_differs(row: &Row) -> bool {
    row.name.starts_with("int_")
        && ["div", "remainder", "powi"].iter().any(|op| row.name.contains(op))
}

/// The second operand of a row: shifts are only defined below the width of an integer.
fn second(row: &Row, shape: &'static [usize], fill: Fill) -> Arg {
    if row.name.contains("shift") {
        return Arg::Tensor(Input { fill: Fill::Below(31), shape, axes: &[] });
    }
    input(row.reference, shape, &[], fill)
}

fn rows() -> impl Iterator<Item = &'static Row> {
    table::ALL.iter().copied().flatten().copied()
}

fn on_every_device(check_row: impl Fn(&'static Row, &WgslDevice) + std::panic::RefUnwindSafe) {
    let mut failed = Vec::new();
    for device in devices() {
        for row in rows() {
            if device == WgslDevice::Cpu && twin_differs(row) {
                continue;
            }
            if let Err(panic) = std::panic::catch_unwind(|| check_row(row, &device)) {
                failed.push(
                    panic
                        .downcast_ref::<String>()
                        .cloned()
                        .unwrap_or_else(|| format!("{} on {device}", row.name)),
                );
            }
        }
    }
    assert!(failed.is_empty(), "{} failed:\n{}", failed.len(), failed.join("\n"));
}

#[test]
fn rows_hold_on_random_values() {
    on_every_device(|row, device| {
        // Sizes that end inside a vec4, and inside a workgroup.
        let a = input(row.reference, &[7, 13], &[], Fill::Normal);
        match row.operands {
            Operands::Binary => {
                check(row, device, &[a, second(row, &[7, 13], Fill::Positive)], &[7, 13])
            }
            _ => check(row, device, &[a], &[7, 13]),
        }
    });
}

#[test]
fn rows_hold_on_views_and_broadcasts() {
    on_every_device(|row, device| {
        let a = input(row.reference, &[12, 5], &[1, 0], Fill::Positive);
        match row.operands {
            Operands::Binary => {
                check(row, device, &[a, second(row, &[1, 12], Fill::Normal)], &[5, 12])
            }
            _ => check(row, device, &[a], &[5, 12]),
        }
    });
}

/// NaN, infinities, signed zeros, tiny and huge numbers through every float op of the GPU.
#[test]
fn float_rows_hold_on_special_values() {
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
            let Reference::F1(truth) = row.reference else {
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
                let truth = f64::from(truth(f64::from(*x)) as f32);
                // Subnormal results may be flushed to zero.
                let flushed = truth.abs() < 1.2e-38 && value == 0.0;
                // Past 65536 the sine is the driver's own, which promises nothing there.
                let far = ["float_sin", "float_cos", "float_tan"].contains(&row.name)
                    && x.abs() > 65_536.0;
                if !flushed && !far && !tolerance(row).holds(value, truth) {
                    failed.push(format!(
                        "{}({x}) on {device} is {value}, the truth {truth}",
                        row.name
                    ));
                }
            }
        }
    }
    assert!(failed.is_empty(), "{} failed:\n{}", failed.len(), failed.join("\n"));
}
