//! Attention and its gradients in f64, with which the kernels with matrix units are compared before
//! their first use.

use std::sync::Arc;

use crate::kernels::gemm::units;
use crate::kernels::ops::options::AttentionOptions;
use crate::runtime::Runtime;
use crate::tensor::{DType, Result, Tensor};

/// Odd numbers, so that tiles have edges.
const QUERIES: usize = 69;
const KEYS: usize = 83;

/// The operands of one head, its results and what its gradients consist of. All lists are in row-major
/// order.
pub(crate) struct AttentionDefinition {
    /// Of queries and keys.
    width: usize,
    value_width: usize,
    pub out: Vec<f64>,
    /// The logarithm of the sum of `e^score` of each query, and zero: nothing of it is rounded away.
    pub log_sums: Vec<f64>,
    /// The weight of each query and key.
    weights: Vec<f64>,
    /// `d` of each query and key (`shaders/lib/attention_backward.wgsl`).
    d: Vec<f64>,
}

impl AttentionDefinition {
    /// Computes attention whose queries are narrower than `width`, and whose values are narrower still.
    pub fn new(width: u32, options: AttentionOptions) -> Self {
        let (width, value_width) = (width as usize - 12, width as usize - 28);
        let scale = options.scale.map_or(1.0, f64::from);
        let (mut out, mut log_sums) = (Vec::new(), Vec::new());
        let (mut all_weights, mut d) = (vec![0.0; QUERIES * KEYS], vec![0.0; QUERIES * KEYS]);
        for query in 0..QUERIES {
            let seen = if options.causal { query + 1 + KEYS - QUERIES } else { KEYS };
            // The score of a key, and its slope.
            let scored = |key: usize| {
                let score = scale * sum(width, |e| q(query, e) * k(key, e));
                options.softcap.map(f64::from).map_or((score, scale), |cap| {
                    let bounded = (score / cap).tanh();
                    (cap * bounded, scale * (1.0 - bounded * bounded))
                })
            };
            let scores: Vec<(f64, f64)> = (0..seen).map(scored).collect();
            let log_sum = sum(seen, |key| scores[key].0.exp()).ln();
            let weights: Vec<f64> =
                scores.iter().map(|(score, _)| (score - log_sum).exp()).collect();
            let row: Vec<f64> =
                (0..value_width).map(|col| sum(seen, |key| weights[key] * v(key, col))).collect();
            let mean = sum(value_width, |col| row[col] * g(query, col));
            for key in 0..seen {
                let product = sum(value_width, |col| g(query, col) * v(key, col));
                d[query * KEYS + key] = weights[key] * (product - mean) * scores[key].1;
            }
            all_weights[query * KEYS..][..seen].copy_from_slice(&weights);
            out.extend(row);
            log_sums.extend([log_sum, 0.0]);
        }
        Self { width, value_width, out, log_sums, weights: all_weights, d }
    }

    /// Uploads queries, keys, values and the gradient of the result, in a type of matrix units.
    pub fn upload_operands(&self, runtime: &Arc<Runtime>, dtype: DType) -> Result<[Tensor; 4]> {
        let upload = |rows: usize, cols: usize, of: fn(usize, usize) -> f64| {
            let values = (0..rows * cols).map(|at| of(at / cols, at % cols) as f32);
            units::upload(runtime, &[1, 1, rows, cols], dtype, values)
        };
        Ok([
            upload(QUERIES, self.width, q)?,
            upload(KEYS, self.width, k)?,
            upload(KEYS, self.value_width, v)?,
            upload(QUERIES, self.value_width, g)?,
        ])
    }

    /// Uploads the result and the logarithms of the sums.
    pub fn upload_results(&self, runtime: &Arc<Runtime>) -> Result<[Tensor; 2]> {
        let upload = |shape: &[usize], values: &[f64]| {
            units::upload(runtime, shape, DType::F32, values.iter().map(|x| *x as f32))
        };
        let out = upload(&[1, 1, QUERIES, self.value_width], &self.out)?;
        Ok([out, upload(&[1, 1, QUERIES, 2], &self.log_sums)?])
    }

    /// Returns the gradients of queries, keys and values.
    pub fn gradients(&self) -> [Vec<f64>; 3] {
        let matrix = |rows: usize, cols: usize, of: &dyn Fn(usize, usize) -> f64| {
            (0..rows * cols).map(|at| of(at / cols, at % cols)).collect()
        };
        let Self { width, value_width, weights, d, .. } = self;
        [
            matrix(QUERIES, *width, &|query, col| {
                sum(KEYS, |key| d[query * KEYS + key] * k(key, col))
            }),
            matrix(KEYS, *width, &|key, col| {
                sum(QUERIES, |query| d[query * KEYS + key] * q(query, col))
            }),
            matrix(KEYS, *value_width, &|key, col| {
                sum(QUERIES, |query| weights[query * KEYS + key] * g(query, col))
            }),
        ]
    }
}

fn sum(count: usize, term: impl Fn(usize) -> f64) -> f64 {
    (0..count).map(term).sum()
}

/// Returns a multiple of 1/16 from -1 to 1.
fn element(row: usize, col: usize, seed: usize) -> f64 {
    ((row * 7 + col * 13 + row * col * seed) % 33) as f64 / 16.0 - 1.0
}

fn q(row: usize, col: usize) -> f64 {
    element(row, col, 3)
}

/// Later keys have larger scores, so that running sums are rescaled.
fn k(row: usize, col: usize) -> f64 {
    element(row, col, 5) * if row < 40 { 0.5 } else { 3.0 }
}

fn v(row: usize, col: usize) -> f64 {
    element(row, col, 7)
}

/// The gradient of the result.
fn g(row: usize, col: usize) -> f64 {
    element(row, col, 9)
}
