//! Sorts in every type, over lines of each kind: merged, of one tile, and of several.

use burn_wgsl::kernels::sort::{argtopk, topk, with_indices};
use burn_wgsl::tensor::DType;

use super::{Number, numbers, read, runtimes, types, upload};

/// Floats are ordered as in IEEE 754 totalOrder.
fn order(a: Number, b: Number) -> std::cmp::Ordering {
    match (a, b) {
        (Number::Float(a), Number::Float(b)) => a.total_cmp(&b),
        _ => a.int().cmp(&b.int()),
    }
}

/// Integers of 64 bits are merged on every device.
#[test]
fn sorts_are_stable_in_every_type() {
    for runtime in runtimes() {
        for dtype in types(&runtime).filter(|&dtype| dtype != DType::Bool) {
            for len in [9, 100, 1000, 1024, 2500] {
                let mut elements = numbers(2 * len, dtype, 5);
                if dtype == DType::F32 {
                    let special =
                        [f32::NAN, -0.0, f32::INFINITY, 0.0, -f32::NAN, f32::NEG_INFINITY];
                    for (element, value) in elements.iter_mut().skip(1).zip(special) {
                        *element = Number::Float(value);
                    }
                }
                let tensor = upload(&runtime, &[2, len], dtype, &elements);
                for descending in [false, true] {
                    let label = format!(
                        "{dtype:?} [2, {len}], descending: {descending}, on {}",
                        runtime.name()
                    );
                    let (values, indices) =
                        with_indices(tensor.clone(), 1, descending).expect("the kernels run");
                    let (values, indices) = (read(values), read(indices));
                    for line in 0..2 {
                        let range = line * len..(line + 1) * len;
                        let of_line = &elements[range.clone()];
                        let mut expected: Vec<usize> = (0..len).collect();
                        expected.sort_by(|&a, &b| {
                            let order = order(of_line[a], of_line[b]);
                            if descending { order.reverse() } else { order }
                        });
                        let found: Vec<usize> = indices[range.clone()]
                            .iter()
                            .map(|index| index.int() as usize)
                            .collect();
                        assert_eq!(found, expected, "{label}: indices");
                        for (value, &index) in values[range].iter().zip(&expected) {
                            assert!(value.is_close(of_line[index]), "{label}: values");
                        }
                    }
                }
            }
        }
    }
}

/// Lines that are sorted, and lines of which each tile keeps its largest elements. Of equal elements, the
/// first come first.
#[test]
fn the_largest_elements_are_found_in_every_type() {
    for runtime in runtimes() {
        for dtype in types(&runtime).filter(|&dtype| dtype != DType::Bool) {
            for (len, count) in [(9, 4), (200, 200), (1025, 3), (2500, 250), (2500, 257), (9000, 1)]
            {
                let elements = numbers(2 * len, dtype, 7);
                let tensor = upload(&runtime, &[2, len], dtype, &elements);
                let label = format!("{count} of {dtype:?} [2, {len}] on {}", runtime.name());
                let values = read(topk(tensor.clone(), 1, count).expect("the kernels run"));
                let indices = read(argtopk(tensor, 1, count).expect("the kernels run"));
                for line in 0..2 {
                    let of_line = &elements[line * len..(line + 1) * len];
                    let mut expected: Vec<usize> = (0..len).collect();
                    expected.sort_by(|&a, &b| order(of_line[b], of_line[a]));
                    for (rank, &index) in expected[..count].iter().enumerate() {
                        let at = line * count + rank;
                        assert_eq!(indices[at].int(), index as i128, "{label}: index {rank}");
                        assert!(values[at].is_close(of_line[index]), "{label}: element {rank}");
                    }
                }
            }
        }
    }
}
