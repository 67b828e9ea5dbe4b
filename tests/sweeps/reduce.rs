//! Every reduction in every type, over lines of every size class: along, across, and of several
//! axes.

use burn_wgsl::kernels::reduce::{self, Reduction};
use burn_wgsl::kernels::views;
use burn_wgsl::tensor::DType;

use super::{Number, assert_equal, numbers, read, runtimes, types, upload};

const REDUCTIONS: [Reduction; 10] = [
    Reduction::Sum,
    Reduction::Mean,
    Reduction::Prod,
    Reduction::Max,
    Reduction::Min,
    Reduction::MaxAbs,
    Reduction::Any,
    Reduction::All,
    Reduction::ArgMax,
    Reduction::ArgMin,
];

/// Shapes, and the axes that are reduced.
const SHAPES: [(&[usize], &[usize]); 37] = [
    // Contiguous lines, few or many.
    (&[3, 9], &[1]),
    (&[3, 12], &[1]),
    (&[3, 101], &[1]),
    (&[3, 256], &[1]),
    (&[2, 2001], &[1]),
    (&[2, 2048], &[1]),
    (&[3, 16], &[1]),
    (&[3, 20], &[1]),
    (&[300, 9], &[1]),
    (&[300, 17], &[1]),
    (&[300, 20], &[1]),
    (&[40, 101], &[1]),
    (&[40, 100], &[1]),
    (&[2001], &[0]),
    (&[2048], &[0]),
    // Neighbouring lines.
    (&[9, 33], &[0]),
    (&[9, 32], &[0]),
    (&[70, 33], &[0]),
    (&[70, 32], &[0]),
    (&[2, 70, 33], &[1]),
    (&[2, 70, 32], &[1]),
    // Lines of several axes.
    (&[2, 5, 7], &[0, 2]),
    (&[4, 5, 4], &[0, 2]),
    (&[8, 5, 2], &[0, 2]),
    (&[2, 300, 9], &[0, 2]),
    (&[2, 300, 10], &[0, 2]),
    (&[6, 5, 11], &[0, 2]),
    (&[40, 5, 11], &[0, 2]),
    (&[40, 300, 3], &[0, 2]),
    (&[3, 2, 3, 33], &[0, 2]),
    (&[3, 2, 3, 32], &[0, 2]),
    (&[8, 2, 9, 33], &[0, 2]),
    (&[8, 2, 9, 32], &[0, 2]),
    (&[3, 5, 4], &[0, 1, 2]),
    // In splits.
    (&[2, 8500], &[1]),
    (&[1100, 3], &[0]),
    (&[2, 1100, 3], &[1]),
];

/// Returns the reduction of a line.
fn reference(kind: Reduction, line: &[Number], dtype: DType) -> Number {
    let truth = |number: &Number| number.float() != 0.0;
    let best = |better: fn(&Number, &Number) -> bool| {
        let first_best = |best: usize, index: usize| {
            if better(&line[index], &line[best]) { index } else { best }
        };
        (0..line.len()).reduce(first_best).expect("a line has elements")
    };
    let greater = |a: &Number, b: &Number| match (*a, *b) {
        (Number::Float(a), Number::Float(b)) => a > b,
        _ => a.int() > b.int(),
    };
    let less = |a: &Number, b: &Number| match (*a, *b) {
        (Number::Float(a), Number::Float(b)) => a < b,
        _ => a.int() < b.int(),
    };
    let signed = |x: f64| Number::Float(x as f32);
    let floats = || line.iter().map(|number| f64::from(number.float()));
    let ints = || line.iter().map(|number| number.int());
    let wrap = |x: i128| Number::Int(x).wrapped(dtype);
    let float = dtype == DType::F32;
    match kind {
        Reduction::Sum | Reduction::SumOfSums if float => signed(floats().sum()),
        Reduction::Mean if float => signed(floats().sum::<f64>() / line.len() as f64),
        Reduction::Prod if float => signed(floats().product()),
        Reduction::MaxAbs if float => signed(floats().map(f64::abs).fold(0.0, f64::max)),
        Reduction::Sum | Reduction::SumOfSums => wrap(ints().sum()),
        Reduction::Mean => wrap(wrap(ints().sum()).int() / line.len() as i128),
        Reduction::Prod => {
            ints().fold(Number::Int(1), |product, x| wrap(product.int().wrapping_mul(x)))
        }
        Reduction::MaxAbs => {
            let magnitude = |x: i128| wrap(x.abs()).int();
            wrap(ints().map(magnitude).max().expect("a line has elements"))
        }
        Reduction::Max => line[best(greater)],
        Reduction::Min => line[best(less)],
        Reduction::Any => Number::Int(line.iter().any(truth).into()),
        Reduction::All => Number::Int(line.iter().all(truth).into()),
        Reduction::ArgMax => Number::Int(best(greater) as i128),
        Reduction::ArgMin => Number::Int(best(less) as i128),
    }
}

/// Returns the lines of a packed tensor along `axes`, in the order of the other axes.
fn lines(elements: &[Number], shape: &[usize], axes: &[usize]) -> Vec<Vec<Number>> {
    let len: usize = axes.iter().map(|&axis| shape[axis]).product();
    let mut lines = vec![Vec::with_capacity(len); elements.len() / len];
    for (position, element) in elements.iter().enumerate() {
        let (mut rest, mut line, mut stride) = (position, 0, 1);
        for axis in (0..shape.len()).rev() {
            let index = rest % shape[axis];
            rest /= shape[axis];
            if !axes.contains(&axis) {
                line += index * stride;
                stride *= shape[axis];
            }
        }
        lines[line].push(*element);
    }
    lines
}

/// Returns whether the reduction exists for the type. Booleans have only `any` and `all`.
fn exists(kind: Reduction, dtype: DType) -> bool {
    match dtype {
        DType::Bool => matches!(kind, Reduction::Any | Reduction::All),
        _ => true,
    }
}

#[test]
fn reductions_match_the_host_in_every_type_and_access() {
    for runtime in runtimes() {
        for dtype in types(&runtime) {
            for (shape, axes) in SHAPES {
                let elements = numbers(shape.iter().product(), dtype, shape.len() as u64);
                let tensor = upload(&runtime, shape, dtype, &elements);
                for kind in REDUCTIONS.into_iter().filter(|&kind| exists(kind, dtype)) {
                    let lines = lines(&elements, shape, axes);
                    let expected: Vec<Number> =
                        lines.iter().map(|line| reference(kind, line, dtype)).collect();
                    let result = match kind {
                        Reduction::ArgMax | Reduction::ArgMin if axes.len() > 1 => continue,
                        _ => reduce::axes(kind, tensor.clone(), axes),
                    };
                    let label = format!("{kind:?} of {dtype:?} {shape:?} along {axes:?}");
                    assert_equal(&label, &read(result.expect("the kernel runs")), &expected);
                }
            }
            // A flipped view, and one that does not begin with a whole vec4.
            let elements = numbers(80, dtype, 7);
            let tensor = |len| upload(&runtime, &[len], dtype, &elements[..len]);
            let reshaped = views::reshape(tensor(80), &[5, 16]).expect("the view exists");
            let flipped = views::flip(reshaped, &[0, 1]).expect("the view exists");
            let shifted = views::narrow(tensor(17), 0, 1, 16).expect("the view exists");
            let reversed: Vec<Number> = elements.iter().rev().copied().collect();
            for kind in REDUCTIONS.into_iter().filter(|&kind| exists(kind, dtype)) {
                for (view, axis, elements) in
                    [(&flipped, 1, &reversed[..]), (&shifted, 0, &elements[1..17])]
                {
                    let lines = elements.chunks(16);
                    let expected: Vec<Number> =
                        lines.map(|line| reference(kind, line, dtype)).collect();
                    let result = reduce::dim(kind, view.clone(), axis).expect("the kernel runs");
                    let label = format!("{kind:?} of a view of {dtype:?}");
                    assert_equal(&label, &read(result), &expected);
                }
            }
        }
    }
}

#[test]
fn sums_of_many_splits_are_exact() {
    for runtime in runtimes() {
        // Lines that are neighbours, each of more than 64 splits, and one line.
        let sizes = [(140_000, 12), (140_001, 9), (65_536, 1), (400_000, 1), (600_000, 1)];
        for (rows, columns) in sizes {
            let ones = vec![Number::Float(1.0); rows * columns];
            let tensor = upload(&runtime, &[rows, columns], DType::F32, &ones);
            let sums = reduce::axes(Reduction::Sum, tensor, &[0]).expect("the kernel runs");
            let expected = vec![Number::Float(rows as f32); columns];
            assert_equal(&format!("{rows} x {columns}"), &read(sums), &expected);
        }
    }
}
