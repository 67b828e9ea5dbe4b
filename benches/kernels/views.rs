//! Copies of views: concatenation, slices, repetition, flips and masks.

use burn::tensor::{Tensor, s};
use burn_wgsl::kernels::views::CASES;
use criterion::Criterion;

use crate::measure::{measure, measure_cases, measure_op, random};

const SIDE: usize = 2048;
const LEN: usize = SIDE * SIDE;

pub fn benches(criterion: &mut Criterion) {
    measure_cases(criterion, "views", CASES);
    for dim in [0, 1] {
        let name = format!("views/cat_{dim}/2x2048x2048");
        measure_op(criterion, &name, 2 * LEN, [[SIDE, SIDE]; 2], |parts| {
            Tensor::cat(parts.to_vec(), dim)
        });
    }
    // A slice is a view; the reshape forces a copy.
    measure_op(criterion, "views/slice/2048x1024", LEN / 2, [[SIDE, SIDE]], |[x]| {
        x.slice(s![.., 512..1536]).reshape([LEN / 2])
    });
    measure_op(criterion, "views/slice_step/2048x1024", LEN / 2, [[SIDE, SIDE]], |[x]| {
        x.slice(s![.., ..;2]).reshape([LEN / 2])
    });
    measure(criterion, "views/slice_assign/1024x1024", LEN / 4, |device| {
        let (x, values) = (random([SIDE, SIDE], device), random([SIDE / 2, SIDE / 2], device));
        move || x.clone().slice_assign(s![512..1536, 512..1536], values.clone())
    });
    measure_op(criterion, "views/repeat/4x1024x1024", LEN, [[1, 1024, 1024]], |[x]| {
        x.repeat_dim(0, 4)
    });
    measure_op(criterion, "views/flip/2048x2048", LEN, [[SIDE, SIDE]], |[x]| x.flip([0, 1]));
    measure(criterion, "views/mask_where/2048x2048", LEN, |device| {
        let [x, values, mask] = [0; 3].map(|_| random([SIDE, SIDE], device));
        let mask = mask.greater_elem(0.0);
        move || x.clone().mask_where(mask.clone(), values.clone())
    });
    measure(criterion, "views/mask_fill/2048x2048", LEN, |device| {
        let (x, mask) =
            (random([SIDE, SIDE], device), random([SIDE, SIDE], device).greater_elem(0.0));
        move || x.clone().mask_fill(mask.clone(), 0.0)
    });
}
