//! Edge cases of attention: masked rows, no keys, NaN and large scores.

use burn::tensor::module::attention;
use burn::tensor::ops::AttentionModuleOptions;
use burn::tensor::{Bool, Tensor, TensorData};
use burn_wgsl::{Wgsl, WgslDevice};

use crate::common::{devices, gpus};

type Tensor4 = Tensor<Wgsl, 4>;

const CAUSAL: AttentionModuleOptions =
    AttentionModuleOptions { scale: None, softcap: None, is_causal: true };

/// Returns queries `[1, 1, queries, 4]`, keys `[1, 1, keys, 4]` and values `[1, 1, keys, 5]`.
fn operands(queries: usize, keys: usize, device: &WgslDevice) -> [Tensor4; 3] {
    [(queries, 4, 0.3f32), (keys, 4, 0.7), (keys, 5, 1.1)].map(|(len, width, step)| {
        let values: Vec<f32> = (0..len * width).map(|i| (i as f32 * step).sin()).collect();
        Tensor::from_data(TensorData::new(values, [1, 1, len, width]), device)
    })
}

/// Splits `[1, 1, queries, width]` into its rows.
fn rows(out: Tensor4) -> Vec<Vec<f32>> {
    let width = out.dims()[3];
    let values: Vec<f32> = out.into_data().iter().collect();
    values.chunks(width).map(<[f32]>::to_vec).collect()
}

#[test]
fn queries_without_visible_keys_get_zeros() {
    for device in devices() {
        // With 12 queries and 10 keys, a causal mask hides all keys from the first two queries.
        let [q, k, v] = operands(12, 10, &device);
        let out = rows(attention(q.clone(), k.clone(), v.clone(), None, None, CAUSAL));
        assert!(out[..2].iter().flatten().all(|&x| x == 0.0), "{device}: {out:?}");
        assert_eq!(out[2], rows(v.clone())[0], "{device}: query 2 sees only key 0");
        // A mask that hides all keys from query 3 only.
        let hidden: Vec<bool> = (0..12).map(|row| row == 3).collect();
        let mask =
            Tensor::<Wgsl, 4, Bool>::from_data(TensorData::new(hidden, [1, 1, 12, 1]), &device);
        let out = rows(attention(q, k, v, Some(mask), None, AttentionModuleOptions::default()));
        for (row, values) in out.iter().enumerate() {
            assert_eq!(
                values.iter().all(|&x| x == 0.0),
                row == 3,
                "{device}: row {row} is {values:?}"
            );
        }
    }
}

/// Queries may be pending, and something else may need them. Values are those of each team, keys are in one part and in
/// several.
#[test]
fn pending_queries_have_the_results_of_computed_ones() {
    let numbers = |shape: [usize; 4], step: f32, device: &WgslDevice| -> Tensor4 {
        let len = shape.iter().product::<usize>();
        let values: Vec<f32> = (0..len).map(|i| (i as f32 * step).sin()).collect();
        Tensor::from_data(TensorData::new(values, shape), device)
    };
    let options = AttentionModuleOptions::default;
    for device in gpus() {
        for (keys, width) in [12, 513].into_iter().flat_map(|keys| [(keys, 8), (keys, 128)]) {
            for value_width in [8, 40, 100, 300] {
                let [q, k] = [(3, 0.3), (keys, 0.7)]
                    .map(|(len, step)| numbers([1, 2, len, width], step, &device));
                let v = numbers([1, 2, keys, value_width], 1.1, &device);
                for is_masked in [false, true] {
                    let mask =
                        is_masked.then(|| numbers([1, 2, 3, keys], 0.9, &device).greater_elem(0.5));
                    let computed = q.clone() * 0.5;
                    computed.clone().into_data();
                    let attended = |q: Tensor4| {
                        attention(q, k.clone(), v.clone(), mask.clone(), None, options())
                    };
                    let expected = rows(attended(computed)).concat();
                    let needed = q.clone() * 0.5;
                    for query in [q.clone() * 0.5, needed.clone()] {
                        let found = rows(attended(query)).concat();
                        for (found, expected) in found.iter().zip(&expected) {
                            assert!(
                                (found - expected).abs() < 1e-5,
                                "{keys} keys, {width}, {value_width}, masked: {is_masked}, on {device}"
                            );
                        }
                    }
                    assert_eq!(rows(needed), rows(q.clone() * 0.5), "{device}");
                }
            }
        }
    }
}

#[test]
fn attention_without_keys_is_zero() {
    for device in devices() {
        let [q, k, v] = operands(3, 0, &device);
        let out = rows(attention(q, k, v, None, None, AttentionModuleOptions::default()));
        assert_eq!(out, vec![vec![0.0; 5]; 3], "{device}");
    }
}

#[test]
fn nan_in_a_query_affects_only_its_row() {
    // GPUs only: burn-flex returns zeros for a row whose scores are all NaN.
    for device in gpus() {
        let [q, k, v] = operands(12, 10, &device);
        let q =
            q.slice_assign([0..1, 0..1, 4..5, 1..2], Tensor::full([1, 1, 1, 1], f32::NAN, &device));
        let out = rows(attention(q, k, v, None, None, AttentionModuleOptions::default()));
        for (row, values) in out.iter().enumerate() {
            let expect_nan = row == 4;
            assert!(
                values.iter().all(|x| x.is_nan() == expect_nan),
                "{device}: row {row} is {values:?}"
            );
        }
    }
}

#[test]
fn an_infinite_value_of_the_last_key_stays_infinite() {
    for device in devices() {
        for (queries, keys) in [(3, 7), (20, 7), (20, 70)] {
            let [q, k, v] = operands(queries, keys, &device);
            let infinity = Tensor::full([1, 1, 1, 1], f32::INFINITY, &device);
            let v = v.slice_assign([0..1, 0..1, keys - 1..keys, 1..2], infinity);
            let out = rows(attention(q, k, v, None, None, AttentionModuleOptions::default()));
            for (row, values) in out.iter().enumerate() {
                let is_right = |(column, x): (usize, &f32)| match column {
                    1 => *x == f32::INFINITY,
                    _ => x.is_finite(),
                };
                let are_right = values.iter().enumerate().all(is_right);
                assert!(are_right, "{device}, {queries} x {keys}: row {row} is {values:?}");
            }
        }
    }
}

#[test]
fn large_scores_do_not_overflow() {
    for device in devices() {
        let [q, k, v] = operands(9, 30, &device);
        let out =
            rows(attention(q * 1e4, k * 1e4, v, None, None, AttentionModuleOptions::default()));
        assert!(out.iter().flatten().all(|x| x.is_finite() && x.abs() <= 1.0), "{device}: {out:?}");
    }
}

#[test]
fn a_large_bias_on_all_keys_changes_nothing() {
    for device in devices() {
        // Enough keys for a GPU to split them.
        let [q, k, v] = operands(3, 600, &device);
        // Scores are rounded away: every key has the same weight.
        let bias = Tensor::full([1, 1, 3, 600], -1e9, &device);
        let options = AttentionModuleOptions::default();
        let out = rows(attention(q, k, v.clone(), None, Some(bias), options));
        let expected = rows(v.mean_dim(2)).remove(0);
        for (found, expected) in out.iter().flat_map(|row| row.iter().zip(&expected)) {
            assert!((found - expected).abs() < 1e-5, "{device}: {found} instead of {expected}");
        }
    }
}

#[test]
fn an_infinite_bias_of_a_hidden_key_has_no_effect() {
    // GPUs only: burn-flex adds the bias to the scores of hidden keys.
    for device in gpus() {
        let [q, k, v] = operands(20, 30, &device);
        let is_last = |rows: usize| -> Vec<bool> { (0..30 * rows).map(|i| i % 30 == 29).collect() };
        let mask = TensorData::new(is_last(1), [1, 1, 1, 30]);
        let mask = Tensor::<Wgsl, 4, Bool>::from_data(mask, &device);
        let bias = Tensor::zeros([1, 1, 1, 30], &device).mask_fill(mask.clone(), f32::INFINITY);
        let options = AttentionModuleOptions::default();
        let without = attention(q.clone(), k.clone(), v.clone(), Some(mask.clone()), None, options);
        let with = attention(q, k, v, Some(mask), Some(bias), options);
        assert_eq!(rows(with), rows(without), "{device}");
    }
}
