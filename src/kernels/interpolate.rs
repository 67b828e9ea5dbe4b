//! Interpolation: resizing of images, and its gradient.
//!
//! Every mode is linear and separable: along an axis, each output is a weighted sum of a few
//! neighbouring inputs. Resizing an axis is a product with a matrix that has one band of weights
//! per row. The host computes the matrices of both axes in f64, and one kernel applies them. The
//! gradient is the same kernel with transposed matrices. It needs no atomics, and the matrices
//! already add the weights of taps outside the input to the edges.

use smallvec::SmallVec;

use crate::kernels::elementwise::accumulate;
use crate::kernels::launch::{Launch, PendingResult, variants_of, workgroups_for};
use crate::kernels::ops::cases::{Arg, Case, cases, normal, permuted};
use crate::kernels::ops::map::ScalarValue;
use crate::kernels::ops::options::InterpolateMode;
use crate::kernels::{create, policy, views};
use crate::params;
use crate::runtime::{Kernel, RuntimeError, Source, Variant, wgsl};
use crate::tensor::{DType, Error, Result, Shape, Tensor};

static INTERPOLATE: Source = Source::new::<InterpolateParams>(
    "interpolate",
    wgsl!("../../shaders/interpolate/interpolate.wgsl"),
);

params! {
    struct InterpolateParams {
        count: u32,
        in_h: u32,
        in_w: u32,
        out_h: u32,
        out_w: u32,
        pad0: u32,
        pad1: u32,
        pad2: u32,
    }
}

/// The kernel, which has a single variant.
#[derive(Debug, Clone, Copy, Hash)]
struct InterpolateKernel;

impl Kernel for InterpolateKernel {
    type Params = InterpolateParams;

    fn variant(&self) -> Variant {
        Variant::new(&INTERPOLATE)
    }
}

/// Returns a list with room for some elements.
fn reserved<T>(len: usize) -> Result<Vec<T>> {
    let mut list = Vec::new();
    let requested = len.saturating_mul(size_of::<T>()) as u64;
    list.try_reserve_exact(len).map_err(|_| RuntimeError::HostOutOfMemory { requested })?;
    Ok(list)
}

/// A matrix with one band of consecutive weights per row.
#[derive(Debug, Clone, PartialEq)]
pub struct BandMatrix {
    /// For each row, the column of its first weight and the index of that weight in `weights`. One
    /// more entry ends the last row.
    rows: Vec<[u32; 2]>,
    weights: Vec<f32>,
    /// Whether this is the identity matrix.
    identity: bool,
}

impl BandMatrix {
    /// Computes the matrix `[output, input]` that resizes an axis.
    ///
    /// With `align_corners`, the centres of the first and last elements coincide; otherwise the
    /// edges of the axis do, half an element further out.
    ///
    /// # Errors
    ///
    /// Returns an error if the host has no memory for it.
    pub fn resize(
        mode: InterpolateMode,
        align_corners: bool,
        input: usize,
        output: usize,
    ) -> Result<Self> {
        let identity = input == output;
        let taps_per_row = match mode {
            _ if identity => 1,
            InterpolateMode::Nearest => 1,
            InterpolateMode::Bilinear => 2,
            InterpolateMode::Bicubic => 4,
            InterpolateMode::Lanczos3 => 6,
        };
        let mut matrix = Self {
            rows: reserved(output.saturating_add(1))?,
            weights: reserved(output.saturating_mul(taps_per_row))?,
            identity,
        };
        for o in 0..output {
            let (first, weights) = if matrix.identity {
                (o as i64, SmallVec::from_slice(&[1.0]))
            } else {
                taps(mode, align_corners, input, output, o)
            };
            matrix.push(first, &weights, input as i64 - 1);
        }
        matrix.rows.push([0, matrix.weights.len() as u32]);
        Ok(matrix)
    }

    /// Appends a row. Taps outside of the columns `0..=last` are added to those at the edge.
    fn push(&mut self, first: i64, taps: &[f64], last: i64) {
        let column = |tap: usize| (first + tap as i64).clamp(0, last);
        let low = column(0);
        let mut band: SmallVec<[f64; 6]> =
            SmallVec::from_elem(0.0, (column(taps.len() - 1) - low + 1) as usize);
        for (tap, weight) in taps.iter().enumerate() {
            band[(column(tap) - low) as usize] += weight;
        }
        self.rows.push([low as u32, self.weights.len() as u32]);
        self.weights.extend(band.iter().map(|&weight| weight as f32));
    }

    /// Iterates over the rows: index, first column and weights.
    pub fn iter(&self) -> impl Iterator<Item = (usize, usize, &[f32])> {
        let rows = self.rows.windows(2).enumerate();
        rows.map(|(row, ends)| {
            let [[first, start], [_, end]] = [ends[0], ends[1]];
            let weights = &self.weights[start as usize..end as usize];
            (row, first as usize, weights)
        })
    }

    /// Returns the transposed matrix of this one, which has `columns` columns.
    ///
    /// The first and last columns of the bands never decrease from row to row, so that the weights
    /// of a column are one band too.
    #[must_use]
    pub fn transposed(&self, columns: usize) -> Self {
        let mut rows = vec![[0; 2]; columns + 1];
        for (row, first, weights) in self.iter() {
            for [first_row, count] in &mut rows[first..first + weights.len()] {
                if *count == 0 {
                    *first_row = row as u32;
                }
                *count += 1;
            }
        }
        let mut start = 0;
        for [_, count] in &mut rows {
            start += std::mem::replace(count, start);
        }
        let mut transposed = vec![0.0; self.weights.len()];
        for (row, first, weights) in self.iter() {
            for ([first_row, start], &weight) in rows[first..].iter().zip(weights) {
                transposed[*start as usize + row - *first_row as usize] = weight;
            }
        }
        Self { rows, weights: transposed, identity: self.identity }
    }

    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.rows.len() - 1
    }

    /// Returns whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the columns of this matrix from `start` on, `len` at most.
    fn columns(&self, start: usize, len: usize) -> Result<Self> {
        let (starts, weights) = (reserved(self.rows.len())?, reserved(self.weights.len())?);
        let mut part = Self { rows: starts, weights, identity: false };
        for (_, first, weights) in self.iter() {
            let inside = first.max(start)..(first + weights.len()).min(start + len);
            let count = part.weights.len() as u32;
            part.rows.push([inside.start.saturating_sub(start) as u32, count]);
            if !inside.is_empty() {
                part.weights.extend(&weights[inside.start - first..inside.end - first]);
            }
        }
        part.rows.push([0, part.weights.len() as u32]);
        Ok(part)
    }

    /// Returns the maximum number of weights in a row.
    fn max_weights(&self) -> usize {
        let lengths = self.iter().map(|(_, _, weights)| weights.len());
        lengths.max().unwrap_or(0)
    }
}

/// Returns the index of the first input that contributes to output `o`, and the weights of the
/// inputs from that index on. The indices may be outside the input.
fn taps(
    mode: InterpolateMode,
    align_corners: bool,
    input: usize,
    output: usize,
    o: usize,
) -> (i64, SmallVec<[f64; 6]>) {
    let position = if align_corners {
        o as f64 * (input - 1) as f64 / (output - 1).max(1) as f64
    } else {
        (o as f64 + 0.5) * input as f64 / output as f64 - 0.5
    };
    let below = position.floor() as i64;
    let fraction = position - position.floor();
    // The weights of `before` inputs up to `below` and `after` inputs above it, by their distance.
    let around = |before: i64, after: i64, weight: fn(f64) -> f64| {
        let distances = (1 - before..=after).map(|step| (fraction - step as f64).abs());
        (below + 1 - before, distances.map(weight).collect())
    };
    match mode {
        InterpolateMode::Nearest => {
            // In integers: a rounded ratio misses an input that starts exactly with the output.
            let first = o as u64 * input as u64 / output as u64;
            (first as i64, SmallVec::from_slice(&[1.0]))
        }
        InterpolateMode::Bilinear => around(1, 1, |distance| 1.0 - distance),
        InterpolateMode::Bicubic => around(2, 2, cubic),
        InterpolateMode::Lanczos3 => {
            let (first, mut weights): (i64, SmallVec<[f64; 6]>) = around(3, 3, lanczos);
            for (tap, weight) in weights.iter_mut().enumerate() {
                if !(0..input as i64).contains(&(first + tap as i64)) {
                    *weight = 0.0;
                }
            }
            let sum: f64 = weights.iter().sum();
            weights.iter_mut().for_each(|weight| *weight /= sum);
            (first, weights)
        }
    }
}

/// Returns the weight of cubic convolution (R. Keys, 1981) at a distance of up to two, with
/// a = -3/4.
pub(crate) fn cubic(distance: f64) -> f64 {
    let (a, d) = (-0.75, distance);
    if d < 1.0 {
        ((a + 2.0) * d - (a + 3.0)) * d * d + 1.0
    } else {
        ((a * d - 5.0 * a) * d + 8.0 * a) * d - 4.0 * a
    }
}

/// Returns the weight of the Lanczos filter over six neighbours at a distance.
fn lanczos(distance: f64) -> f64 {
    if distance == 0.0 {
        return 1.0;
    }
    if distance >= 3.0 {
        return 0.0;
    }
    let angle = std::f64::consts::PI * distance;
    3.0 * angle.sin() * (angle / 3.0).sin() / (angle * angle)
}

/// Resizes `x` `[n, c, h, w]` to `[n, c, output[0], output[1]]`.
///
/// # Errors
///
/// Returns an error if `x` has another rank or no pixels, or if the memory is not available.
pub fn interpolate(
    x: Tensor,
    output: [usize; 2],
    mode: InterpolateMode,
    align_corners: bool,
) -> Result<Tensor> {
    let shape = resized_shape(x.shape(), output)?;
    views::check_addressable(&shape)?;
    // Before the matrices, which are on the host.
    let result = Tensor::empty(x.runtime(), &shape, x.dtype())?;
    if result.is_empty() {
        return Ok(result);
    }
    let matrix =
        |axis: usize| BandMatrix::resize(mode, align_corners, x.shape()[axis], shape[axis]);
    let (rows, columns) = (matrix(2)?, matrix(3)?);
    apply(x, &rows, &columns)
}

/// Computes the gradient of [`interpolate`] with respect to its input, of shape `x`.
///
/// # Errors
///
/// Returns the errors of [`interpolate`], and an error if `grad` does not have the shape of the
/// output.
pub fn interpolate_backward(
    x: &[usize],
    grad: Tensor,
    output: [usize; 2],
    mode: InterpolateMode,
    align_corners: bool,
) -> Result<Tensor> {
    resized_shape(x, output)?;
    if grad.shape() != [x[0], x[1], output[0], output[1]] {
        return Err(Error::Shape {
            lhs: x.to_vec(),
            rhs: grad.shape().to_vec(),
            rule: "the gradient must have the shape of the resized images",
        });
    }
    if grad.is_empty() {
        return create::full(grad.runtime(), x, ScalarValue::Float(0.0), grad.dtype());
    }
    let matrix = |axis: usize| -> Result<BandMatrix> {
        let matrix = BandMatrix::resize(mode, align_corners, x[axis], output[axis - 2])?;
        Ok(matrix.transposed(x[axis]))
    };
    let (rows, columns) = (matrix(2)?, matrix(3)?);
    apply(grad, &rows, &columns)
}

/// Returns the shape of `x` `[n, c, h, w]`, resized.
///
/// # Errors
///
/// Returns an error if `x` has another rank or no pixels, or the result is too large.
pub fn resized_shape(x: &[usize], output: [usize; 2]) -> Result<Shape> {
    let shape = match *x {
        [n, c, h, w] if h > 0 && w > 0 => [n, c, output[0], output[1]],
        _ => {
            return Err(Error::Shape {
                lhs: x.to_vec(),
                rhs: output.to_vec(),
                rule: "resizing needs x [n, c, h, w] with at least one pixel",
            });
        }
    };
    views::check_countable(&shape)
}

/// Maximum number of inputs per output in a single pass. Above it, one pass per axis is faster,
/// although the image between them is written and read.
const MAX_WINDOW: usize = 16;

/// Computes `rows @ x @ columnsᵀ` for each image, in one pass or in one pass per axis.
fn apply(x: Tensor, rows: &BandMatrix, columns: &BandMatrix) -> Result<Tensor> {
    if rows.identity && columns.identity {
        return Ok(x);
    }
    if rows.max_weights() * columns.max_weights() <= MAX_WINDOW {
        return apply_in_one_pass(x, rows, columns);
    }
    let [height, width] = [x.shape()[2], x.shape()[3]];
    let identity = |len| BandMatrix::resize(InterpolateMode::Nearest, false, len, len);
    // The pass with the smaller result runs first.
    if rows.len() * width <= height * columns.len() {
        let x = apply_in_one_pass(x, rows, &identity(width)?)?;
        apply_in_one_pass(x, &identity(rows.len())?, columns)
    } else {
        let x = apply_in_one_pass(x, &identity(height)?, columns)?;
        apply_in_one_pass(x, rows, &identity(columns.len())?)
    }
}

/// Computes [`apply`] in one pass.
fn apply_in_one_pass(x: Tensor, rows: &BandMatrix, columns: &BandMatrix) -> Result<Tensor> {
    if rows.identity && columns.identity {
        return Ok(x);
    }
    if rounds(rows, columns) > policy::max_rounds(x.runtime()) {
        return apply_in_parts(x, rows, columns);
    }
    let x = views::packed(x)?;
    let matrices = matrix_words(rows, columns);
    let bytes = bytemuck::cast_slice(&matrices);
    let matrices = Tensor::upload(x.runtime(), &[matrices.len()], DType::I32, bytes)?;

    let [n, c, h, w] = [x.shape()[0], x.shape()[1], x.shape()[2], x.shape()[3]];
    let shape = [n, c, rows.len(), columns.len()];
    let len: usize = shape.iter().product();
    Launch {
        kernel: &InterpolateKernel,
        inputs: &[&x, &matrices],
        outputs: &[],
        params: &InterpolateParams {
            count: len as u32,
            in_h: h as u32,
            in_w: w as u32,
            out_h: rows.len() as u32,
            out_w: columns.len() as u32,
            pad0: 0,
            pad1: 0,
            pad2: 0,
        },
        workgroups: workgroups_for(len),
        work: len as u64 * (rows.max_weights() * columns.max_weights()) as u64,
        rounds: Some(rounds(rows, columns) as u64),
    }
    .defer(&PendingResult::scalars(x.runtime(), &shape, DType::F32))
}

/// Returns the rounds of the loops of an invocation.
fn rounds(rows: &BandMatrix, columns: &BandMatrix) -> usize {
    rows.max_weights().saturating_mul(columns.max_weights().saturating_add(2))
}

/// Computes [`apply`] in one pass for matrices of which one has bands that are too long for a loop: the sum over parts
/// of the image along its axis.
fn apply_in_parts(x: Tensor, rows: &BandMatrix, columns: &BandMatrix) -> Result<Tensor> {
    let of_rows = rows.max_weights() > columns.max_weights();
    let axis = if of_rows { 2 } else { 3 };
    let max_len = policy::max_rounds(x.runtime()) / 4;
    let mut sum = None;
    for start in (0..x.shape()[axis]).step_by(max_len) {
        let len = max_len.min(x.shape()[axis] - start);
        let part = views::narrow(x.clone(), axis, start, len)?;
        let out = match of_rows {
            true => apply_in_one_pass(part, &rows.columns(start, len)?, columns)?,
            false => apply_in_one_pass(part, rows, &columns.columns(start, len)?)?,
        };
        accumulate(&mut sum, out)?;
    }
    sum.ok_or(Error::Unsupported("a resized image without pixels"))
}

/// Returns both matrices as the kernel reads them: the bands of each, then all weights.
fn matrix_words(rows: &BandMatrix, columns: &BandMatrix) -> Vec<u32> {
    let header_len = 2 * (rows.rows.len() + columns.rows.len());
    let mut words = Vec::with_capacity(header_len + rows.weights.len() + columns.weights.len());
    let mut offset = header_len as u32;
    for matrix in [rows, columns] {
        let starts = matrix.rows.iter();
        words.extend(starts.flat_map(|[first, start]| [*first, start + offset]));
        offset += matrix.weights.len() as u32;
    }
    for matrix in [rows, columns] {
        words.extend(matrix.weights.iter().map(|weight| weight.to_bits()));
    }
    words
}

/// Returns every variant that the family can dispatch.
pub fn variants() -> Vec<Variant> {
    variants_of([InterpolateKernel])
}

/// The cases that the family must pass. burn-flex lacks the gradient of the Lanczos filter;
/// `tests/kernels/definitions.rs` tests it.
pub const CASES: &[Case] = {
    use InterpolateMode::*;
    const UP: Arg = Arg::Sizes(&[11, 8]);
    const DOWN: Arg = Arg::Sizes(&[4, 2]);
    const X: Arg = normal(&[2, 3, 7, 5]);
    const GRAD_UP: Arg = normal(&[2, 3, 11, 8]);
    const GRAD_DOWN: Arg = normal(&[2, 3, 4, 2]);
    cases! {
        interpolate(X, UP, Arg::Interpolate(Nearest, true));
        interpolate(X, DOWN, Arg::Interpolate(Nearest, false));
        interpolate(X, UP, Arg::Interpolate(Bilinear, true));
        interpolate(X, UP, Arg::Interpolate(Bilinear, false));
        interpolate(X, DOWN, Arg::Interpolate(Bilinear, true));
        interpolate(X, UP, Arg::Interpolate(Bicubic, true));
        interpolate(X, UP, Arg::Interpolate(Bicubic, false));
        interpolate(X, DOWN, Arg::Interpolate(Bicubic, false));
        interpolate(X, UP, Arg::Interpolate(Lanczos3, true));
        interpolate(X, UP, Arg::Interpolate(Lanczos3, false));
        interpolate(X, DOWN, Arg::Interpolate(Lanczos3, false));
        // To and from one pixel; axes that keep their size; many pixels.
        interpolate(X, Arg::Sizes(&[1, 1]), Arg::Interpolate(Bicubic, true));
        interpolate([1, 2, 1, 9], Arg::Sizes(&[1, 21]), Arg::Interpolate(Bilinear, false));
        interpolate([1, 2, 1, 1], Arg::Sizes(&[3, 4]), Arg::Interpolate(Lanczos3, false));
        interpolate(X, Arg::Sizes(&[7, 5]), Arg::Interpolate(Bilinear, false));
        interpolate([1, 3, 60, 70], Arg::Sizes(&[121, 93]), Arg::Interpolate(Lanczos3, false));
        interpolate(permuted(&[2, 7, 5, 3], &[0, 3, 1, 2]), UP, Arg::Interpolate(Bilinear, true));
        interpolate([0, 3, 7, 5], UP, Arg::Interpolate(Bilinear, true));
        interpolate_backward(X, GRAD_UP, UP, Arg::Interpolate(Nearest, true));
        interpolate_backward(X, GRAD_DOWN, DOWN, Arg::Interpolate(Nearest, true));
        interpolate_backward(X, GRAD_UP, UP, Arg::Interpolate(Bilinear, true));
        interpolate_backward(X, GRAD_UP, UP, Arg::Interpolate(Bilinear, false));
        interpolate_backward(X, GRAD_DOWN, DOWN, Arg::Interpolate(Bilinear, true));
        interpolate_backward(X, GRAD_UP, UP, Arg::Interpolate(Bicubic, true));
        interpolate_backward(X, GRAD_UP, UP, Arg::Interpolate(Bicubic, false));
        interpolate_backward(X, GRAD_DOWN, DOWN, Arg::Interpolate(Bicubic, false));
        interpolate_backward([1, 2, 1, 9], [1, 2, 1, 21], Arg::Sizes(&[1, 21]),
            Arg::Interpolate(Bilinear, false));
        interpolate_backward([1, 1, 5, 6], [1, 1, 40, 90], Arg::Sizes(&[40, 90]),
            Arg::Interpolate(Bilinear, false));
        interpolate_backward(X, permuted(&[2, 8, 11, 3], &[0, 3, 2, 1]), UP,
            Arg::Interpolate(Bilinear, true));
    }
};

#[cfg(test)]
mod tests {
    use super::*;

    const MODES: [InterpolateMode; 4] = [
        InterpolateMode::Nearest,
        InterpolateMode::Bilinear,
        InterpolateMode::Bicubic,
        InterpolateMode::Lanczos3,
    ];

    fn resize(
        mode: InterpolateMode,
        align_corners: bool,
        input: usize,
        output: usize,
    ) -> BandMatrix {
        BandMatrix::resize(mode, align_corners, input, output).expect("it is small")
    }

    #[test]
    fn weights_of_every_output_sum_to_one() {
        for mode in MODES {
            for (input, output, align_corners) in [(1, 5, true), (7, 3, false), (5, 23, true)] {
                let matrix = resize(mode, align_corners, input, output);
                assert_eq!(matrix.len(), output);
                for (_, first, weights) in matrix.iter() {
                    assert!(first + weights.len() <= input);
                    let sum: f32 = weights.iter().sum();
                    assert!((sum - 1.0).abs() < 1e-6, "{mode:?} {input} to {output}: {sum}");
                }
            }
        }
    }

    #[test]
    fn transposing_swaps_row_and_column_of_every_weight() {
        for mode in MODES {
            for (input, output, align_corners) in [(1, 5, true), (9, 4, false), (4, 23, false)] {
                let matrix = resize(mode, align_corners, input, output);
                let transposed = matrix.transposed(input);
                let entries = |matrix: &BandMatrix| {
                    let mut entries = Vec::new();
                    for (row, first, weights) in matrix.iter() {
                        entries
                            .extend(weights.iter().enumerate().map(|(k, w)| (row, first + k, *w)));
                    }
                    entries
                };
                let mut back: Vec<_> =
                    entries(&transposed).iter().map(|&(r, c, w)| (c, r, w)).collect();
                back.sort_by_key(|&(row, column, _)| (row, column));
                assert_eq!(back, entries(&matrix), "{mode:?}");
                assert_eq!(transposed.len(), input);
            }
        }
    }

    /// 49 * 2 / 98 is one, but 49 * (2 / 98) is less in floats.
    #[test]
    fn nearest_computes_indices_without_rounding() {
        let matrix = resize(InterpolateMode::Nearest, false, 2, 98);
        let firsts: Vec<usize> = matrix.iter().map(|(_, first, _)| first).collect();
        assert_eq!(firsts[48..50], [0, 1]);
    }
}
