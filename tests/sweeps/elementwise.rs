//! Every elementwise computation of the list of variants in every access: packed, in place, through
//! strides, and in vec4s of views and broadcasts.

use std::collections::BTreeSet;
use std::sync::Arc;

use burn_wgsl::kernels;
use burn_wgsl::kernels::ops::map::{Map, ScalarValue};
use burn_wgsl::kernels::views;
use burn_wgsl::runtime::{Def, Runtime, Variant};
use burn_wgsl::tensor::{DType, Tensor};

use super::{Number, assert_equal, numbers, read, runtimes, upload};

/// A computation: expression, types of the result and of the inputs, type of the scalars.
type Computation = (&'static str, &'static str, Vec<&'static str>, Option<&'static str>);

/// Returns the computation of a variant.
fn computation(variant: &Variant) -> Option<Computation> {
    if variant.source.name != "elementwise" {
        return None;
    }
    let def = |name: &str| variant.defs.iter().find(|(key, _)| *key == name).map(|(_, def)| def);
    let ty = |name: &str| match def(name)? {
        Def::Type(ty) => Some(*ty),
        other => panic!("{variant}: {name} is {other:?}"),
    };
    let Some(Def::Expr(expr)) = def("EXPR") else { panic!("{variant} has no expression") };
    let inputs = ["A", "B", "C"].into_iter().filter_map(ty).collect();
    Some((expr, ty("O").expect("the result has a type"), inputs, ty("S")))
}

fn dtype(wgsl: &str) -> DType {
    DType::COMPUTE_TYPES.into_iter().find(|dtype| dtype.wgsl() == wgsl).expect("a compute type")
}

/// Returns a view of `[rows, columns]` in a larger tensor: not contiguous.
fn in_larger(runtime: &Arc<Runtime>, shape: [usize; 2], dtype: DType, seed: u64) -> Tensor {
    let padded = [shape[0], shape[1] + 4];
    let tensor = upload(runtime, &padded, dtype, &numbers(padded[0] * padded[1], dtype, seed));
    views::narrow(tensor, 1, 0, shape[1]).expect("the view exists")
}

/// Returns a view of `[rows, columns]` of a column.
fn broadcast(runtime: &Arc<Runtime>, shape: [usize; 2], dtype: DType, seed: u64) -> Tensor {
    let column = upload(runtime, &[shape[0], 1], dtype, &numbers(shape[0], dtype, seed));
    views::expand(column, &shape).expect("the view exists")
}

/// A tensor of this many elements has a buffer of its own.
const OWN_BUFFER_LEN: usize = 1 << 18;

/// Runs the computation and returns the first elements. An input for which `owned` holds has a
/// single owner.
fn run(map: &Map, inputs: &[Tensor], owned: impl Fn(usize) -> bool) -> Vec<Number> {
    let copy = |tensor: &Tensor| {
        let bytes = tensor
            .runtime()
            .read_blocking(&[tensor.readback_range().expect("the memory")])
            .expect("the data");
        Tensor::upload(tensor.runtime(), tensor.shape(), tensor.dtype(), &bytes[0])
            .expect("the memory is available")
    };
    let operand = |index: usize| {
        if owned(index) { copy(&inputs[index]) } else { inputs[index].clone() }
    };
    let result = match inputs.len() {
        1 => map.run([operand(0)]),
        2 => map.run([operand(0), operand(1)]),
        _ => map.run([operand(0), operand(1), operand(2)]),
    };
    let result = result.expect("the kernel runs");
    match result.len() {
        // The elements repeat.
        OWN_BUFFER_LEN => {
            let end = OWN_BUFFER_LEN - 44;
            let [start, end] =
                [0, end].map(|start| views::narrow(result.clone(), 0, start, 44).expect("a view"));
            [read(start), read(end)].concat()
        }
        _ => read(result),
    }
}

#[test]
fn computations_agree_in_every_access() {
    let computations: BTreeSet<Computation> =
        kernels::variants().iter().filter_map(computation).collect();
    assert!(computations.len() > 200, "only {} computations", computations.len());
    for runtime in runtimes() {
        for (expr, out_type, inputs, scalar_type) in &computations {
            let types = [*out_type].into_iter().chain(inputs.iter().copied()).chain(*scalar_type);
            if types.map(dtype).any(|ty| ty.is_64_bit()) && !runtime.info().features.int64 {
                continue;
            }
            let label = format!("{expr} of {inputs:?} as {out_type} on {}", runtime.name());
            let map = Map::new(expr, dtype(out_type));
            let map = match scalar_type.map(dtype) {
                Some(DType::F32) => {
                    map.with(&[ScalarValue::Float(0.25), ScalarValue::Float(0.75)], DType::F32)
                }
                Some(ty) => map.with(&[ScalarValue::Int(2), ScalarValue::Int(5)], ty),
                None => map,
            };
            match inputs.is_empty() {
                true => check_fill(&runtime, &map, &label),
                false => check(&runtime, &map, inputs, &label),
            }
        }
    }
}

/// Compares the accesses of a computation with inputs.
fn check(runtime: &Arc<Runtime>, map: &Map, inputs: &[&str], label: &str) {
    let seeds = (1u64..).zip(inputs.iter().map(|ty| dtype(ty)));
    let tensors = |make: &dyn Fn(DType, u64) -> Tensor| -> Vec<Tensor> {
        seeds.clone().map(|(seed, ty)| make(ty, seed)).collect()
    };
    let packed = |views: &[Tensor]| -> Vec<Tensor> {
        let copy = |view: &Tensor| views::packed(view.clone()).expect("the kernel runs");
        views.iter().map(copy).collect()
    };
    // Rows that are no multiple of four are read element by element.
    for shape in [[6, 8], [5, 7]] {
        for mask in 0..1 << inputs.len() {
            let views = tensors(&|ty, seed| match mask >> (seed - 1) & 1 {
                1 => broadcast(runtime, shape, ty, seed),
                _ => in_larger(runtime, shape, ty, seed),
            });
            let expected = run(map, &packed(&views), |_| false);
            let label = format!("{label}, {shape:?}, broadcast {mask:b}");
            assert_equal(&label, &run(map, &views, |_| false), &expected);
        }
    }
    // Only tensors in different buffers can be read and overwritten at once: of several, none may
    // share a page.
    let whole = tensors(&|ty, seed| {
        let len = if inputs.len() == 1 { 44 } else { OWN_BUFFER_LEN };
        let some: Vec<u8> =
            numbers(44, ty, seed).iter().flat_map(|number| number.bytes(ty)).collect();
        let bytes: Vec<u8> = some.iter().copied().cycle().take(len * ty.size() as usize).collect();
        Tensor::upload(runtime, &[len], ty, &bytes).expect("the memory is available")
    });
    let expected = run(map, &whole, |_| false);
    for overwritten in 0..inputs.len() {
        let label = format!("{label}, input {overwritten} overwritten");
        assert_equal(&label, &run(map, &whole, |index| index == overwritten), &expected);
    }
}

/// Compares the accesses of a computation without inputs.
fn check_fill(runtime: &Arc<Runtime>, map: &Map, label: &str) {
    for shape in [[6, 8], [5, 7]] {
        let expected = read(map.fill(runtime, &shape).expect("the kernel runs"));
        let view = in_larger(runtime, shape, map.out_type, 1);
        map.write_to(&[], &view).expect("the kernel runs");
        assert_equal(&format!("{label}, {shape:?}"), &read(view), &expected);
    }
}
