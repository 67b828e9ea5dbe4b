//! Attention where rows see nothing, or what they should not.

mod common;

use burn::tensor::module::attention;
use burn::tensor::ops::AttentionModuleOptions;
use burn::tensor::{Bool, Tensor, TensorData};
use burn_wgsl::{Wgsl, WgslDevice};
use common::{devices, gpus};

type Floats = Tensor<Wgsl, 4>;

const CAUSAL: AttentionModuleOptions =
    AttentionModuleOptions { scale: None, softcap: None, is_causal: true };

/// Queries, keys and values whose elements differ.
fn operands(queries: usize, keys: usize, device: &WgslDevice) -> [Floats; 3] {
    [(queries, 4, 0.3f32), (keys, 4, 0.7), (keys, 5, 1.1)].map(|(len, width, step)| {
        let values: Vec<f32> = (0..len * width).map(|i| (i as f32 * step).sin()).collect();
        Tensor::from_data(TensorData::new(values, [1, 1, len, width]), device)
    })
}

fn rows(out: Floats) -> Vec<Vec<f32>> {
    let width = out.dims()[3];
    let values: Vec<f32> = out.into_data().iter().collect();
    values.chunks(width).map(<[f32]>::to_vec).collect()
}

#[test]
fn a_query_that_sees_no_key_gets_zeros() {
    for device in devices() {
        // Of 12 queries the last 10 see one key more each.
        let [q, k, v] = operands(12, 10, &device);
        let out = rows(attention(q.clone(), k.clone(), v.clone(), None, None, CAUSAL));
        assert!(out[..2].iter().flatten().all(|&x| x == 0.0), "{device}: {out:?}");
        assert_eq!(out[2], rows(v.clone())[0], "{device}: one key has all the weight");
        // A mask over the third row, alone.
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

#[test]
fn without_keys_everything_is_zero() {
    for device in devices() {
        let [q, k, v] = operands(3, 0, &device);
        let out = rows(attention(q, k, v, None, None, AttentionModuleOptions::default()));
        assert_eq!(out, vec![vec![0.0; 5]; 3], "{device}");
    }
}

#[test]
fn nan_stays_in_its_row() {
    // Not on the CPU: burn-flex makes zeros of a row whose every score is NaN.
    for device in gpus() {
        let [q, k, v] = operands(12, 10, &device);
        let spoilt = q
            .clone()
            .slice_assign([0..1, 0..1, 4..5, 1..2], Tensor::full([1, 1, 1, 1], f32::NAN, &device));
        let out = rows(attention(spoilt, k, v, None, None, AttentionModuleOptions::default()));
        for (row, values) in out.iter().enumerate() {
            let expected = row == 4;
            assert!(
                values.iter().all(|x| x.is_nan() == expected),
                "{device}: row {row} is {values:?}"
            );
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
