//! Resizing of images, and its gradient.
//!
//! Every mode is linear and treats rows and columns apart: along an axis, each output is a weighted sum of
//! a few neighbouring inputs, so resizing the axis is a product with a matrix that has one run of weights
//! in each row. The host makes the two matrices of an image, in f64, and one kernel applies them. The
//! gradient is the same kernel with the matrices transposed: nothing is added twice at once, and what an
//! edge stands for several times is counted as often.

use smallvec::SmallVec;

use super::cases::{Arg, Case, case, normal, permuted};
use super::{Launch, copy, div_up};
use crate::runtime::{Source, Variant};
use crate::tensor::{DType, Error, Result, Tensor};

static RESAMPLE: Source =
    Source { name: "resample", text: include_str!("../../shaders/resample/resample.wgsl") };

/// How values between the elements are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The element whose share of the axis the output starts in.
    Nearest,
    /// On the straight line between two neighbours.
    Bilinear,
    /// By cubic convolution of four neighbours (R. Keys, 1981), with a = -3/4. Edges are repeated.
    Bicubic,
    /// By a sinc under the main lobe of another, over six neighbours. Weights outside are left out, and the
    /// rest is scaled to a sum of one.
    Lanczos3,
}

/// A matrix whose rows have one run of weights each.
#[derive(Debug, Clone, PartialEq)]
pub struct Runs {
    /// For each row, the column of its first weight and where its weights start; then one past the rows.
    rows: Vec<[u32; 2]>,
    weights: Vec<f32>,
    /// Whether each row takes its own column as it is.
    identity: bool,
}

impl Runs {
    /// The matrix that resizes an axis. `align_corners` puts the first and last outputs on the first and last
    /// inputs; otherwise the edges of the axis are aligned, half an element further out.
    pub fn resizing(mode: Mode, align_corners: bool, input: usize, output: usize) -> Self {
        let mut runs = Self {
            rows: Vec::with_capacity(output + 1),
            weights: Vec::with_capacity(output * 2),
            identity: input == output,
        };
        for o in 0..output {
            let (first, taps) = if runs.identity {
                (o as i64, SmallVec::from_slice(&[1.0]))
            } else {
                taps(mode, align_corners, input, output, o)
            };
            runs.push(first, &taps, input as i64 - 1);
        }
        runs.rows.push([0, runs.weights.len() as u32]);
        runs
    }

    /// Adds a row. What falls outside of the columns belongs to the edge.
    fn push(&mut self, first: i64, taps: &[f64], last: i64) {
        let column = |tap: usize| (first + tap as i64).clamp(0, last);
        let low = column(0);
        let mut run: SmallVec<[f64; 6]> =
            SmallVec::from_elem(0.0, (column(taps.len() - 1) - low + 1) as usize);
        for (tap, weight) in taps.iter().enumerate() {
            run[(column(tap) - low) as usize] += weight;
        }
        self.rows.push([low as u32, self.weights.len() as u32]);
        self.weights.extend(run.iter().map(|&weight| weight as f32));
    }

    /// Each row's number, first column and weights.
    pub fn iter(&self) -> impl Iterator<Item = (usize, usize, &[f32])> {
        let runs = self.rows.windows(2).enumerate();
        runs.map(|(row, ends)| {
            let [[first, start], [_, end]] = [ends[0], ends[1]];
            let weights = &self.weights[start as usize..end as usize];
            (row, first as usize, weights)
        })
    }

    /// Rows and columns exchanged. As both ends of the runs only ever move on from row to row, the
    /// weights of a column are one run too.
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
        let mut turned = vec![0.0; self.weights.len()];
        for (row, first, weights) in self.iter() {
            for ([first_row, start], &weight) in rows[first..].iter().zip(weights) {
                turned[*start as usize + row - *first_row as usize] = weight;
            }
        }
        Self { rows, weights: turned, identity: self.identity }
    }

    /// The count of rows.
    pub fn len(&self) -> usize {
        self.rows.len() - 1
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The most weights that a row has.
    fn longest(&self) -> usize {
        let lengths = self.iter().map(|(_, _, weights)| weights.len());
        lengths.max().unwrap_or(0)
    }
}

/// The first of the inputs that output `o` is made of, and their weights. They may lie outside.
fn taps(
    mode: Mode,
    align_corners: bool,
    input: usize,
    output: usize,
    o: usize,
) -> (i64, SmallVec<[f64; 6]>) {
    let place = if align_corners {
        o as f64 * (input - 1) as f64 / (output - 1).max(1) as f64
    } else {
        (o as f64 + 0.5) * input as f64 / output as f64 - 0.5
    };
    let below = place.floor() as i64;
    let between = place - place.floor();
    // So many neighbours up to `below` and behind it, weighted by their distance.
    let around = |before: i64, behind: i64, weight: fn(f64) -> f64| {
        let distances = (1 - before..=behind).map(|step| (between - step as f64).abs());
        (below + 1 - before, distances.map(weight).collect())
    };
    match mode {
        Mode::Nearest => {
            // In whole numbers: a rounded ratio misses where an output starts exactly with an input.
            let first = o as u64 * input as u64 / output as u64;
            (first as i64, SmallVec::from_slice(&[1.0]))
        }
        Mode::Bilinear => around(1, 1, |distance| 1.0 - distance),
        Mode::Bicubic => around(2, 2, cubic),
        Mode::Lanczos3 => {
            let (first, mut taps): (i64, SmallVec<[f64; 6]>) = around(3, 3, lanczos);
            for (tap, weight) in taps.iter_mut().enumerate() {
                if !(0..input as i64).contains(&(first + tap as i64)) {
                    *weight = 0.0;
                }
            }
            let sum: f64 = taps.iter().sum();
            taps.iter_mut().for_each(|weight| *weight /= sum);
            (first, taps)
        }
    }
}

/// The weight of cubic convolution at a distance of up to two.
pub(crate) fn cubic(distance: f64) -> f64 {
    let (a, d) = (-0.75, distance);
    if d < 1.0 {
        ((a + 2.0) * d - (a + 3.0)) * d * d + 1.0
    } else {
        ((a * d - 5.0 * a) * d + 8.0 * a) * d - 4.0 * a
    }
}

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

/// `x` `[n, c, h, w]` resized to `output`.
///
/// # Errors
///
/// When `x` has another rank, or no pixels to make the output from, and when the memory is not there.
pub fn interpolate(
    x: Tensor,
    output: [usize; 2],
    mode: Mode,
    align_corners: bool,
) -> Result<Tensor> {
    let [height, width] = image(x.shape(), output)?;
    let [rows, columns] = [(height, output[0]), (width, output[1])]
        .map(|(input, output)| Runs::resizing(mode, align_corners, input, output));
    resample(x, &rows, &columns)
}

/// The gradient of [`interpolate`] with respect to `x`, whose shape is given.
///
/// # Errors
///
/// As [`interpolate`], and when `grad` is not of the output's shape.
pub fn interpolate_backward(
    x: &[usize],
    grad: Tensor,
    output: [usize; 2],
    mode: Mode,
    align_corners: bool,
) -> Result<Tensor> {
    let [height, width] = image(x, output)?;
    if grad.shape() != [x[0], x[1], output[0], output[1]] {
        return Err(Error::Shape {
            lhs: x.to_vec(),
            rhs: grad.shape().to_vec(),
            rule: "the second must be the gradient of the first, resized",
        });
    }
    let [rows, columns] = [(height, output[0]), (width, output[1])].map(|(input, output)| {
        Runs::resizing(mode, align_corners, input, output).transposed(input)
    });
    resample(grad, &rows, &columns)
}

/// Height and width of `x` `[n, c, h, w]`.
fn image(x: &[usize], output: [usize; 2]) -> Result<[usize; 2]> {
    match *x {
        [_, _, height, width] if height > 0 && width > 0 => Ok([height, width]),
        _ => Err(Error::Shape {
            lhs: x.to_vec(),
            rhs: output.to_vec(),
            rule: "resizing needs x [n, c, h, w] with at least one pixel",
        }),
    }
}

/// The largest window that is summed at once: beyond it, two passes over a window's height and then its
/// width cost less, although they write and read an image between them.
const WINDOW: usize = 16;

/// Applies a matrix to the columns of each image, and another to its rows.
fn resample(x: Tensor, rows: &Runs, columns: &Runs) -> Result<Tensor> {
    if rows.identity && columns.identity {
        return Ok(x);
    }
    if rows.longest() * columns.longest() <= WINDOW {
        return apply(x, rows, columns);
    }
    let [height, width] = [x.shape()[2], x.shape()[3]];
    let same = |len| Runs::resizing(Mode::Nearest, false, len, len);
    // The pass that leaves the smaller image comes first.
    if rows.len() * width <= height * columns.len() {
        let x = apply(x, rows, &same(width))?;
        apply(x, &same(rows.len()), columns)
    } else {
        let x = apply(x, &same(height), columns)?;
        apply(x, rows, &same(columns.len()))
    }
}

fn apply(x: Tensor, rows: &Runs, columns: &Runs) -> Result<Tensor> {
    if rows.identity && columns.identity {
        return Ok(x);
    }
    let x = copy::packed(x)?;
    let matrices = words(rows, columns);
    let bytes = bytemuck::cast_slice(&matrices);
    let matrices = Tensor::upload(x.runtime(), &[matrices.len()], DType::I32, bytes)?;

    let [n, c, h, w] = [x.shape()[0], x.shape()[1], x.shape()[2], x.shape()[3]];
    let shape = [n, c, rows.len(), columns.len()];
    let out = Tensor::empty(x.runtime(), &shape, DType::F32, &[&x, &matrices])?;
    let sizes = [out.len(), h, w, rows.len(), columns.len(), 0, 0, 0];
    Launch {
        variant: &Variant::new(&RESAMPLE),
        inputs: &[&x, &matrices],
        outputs: &[&out],
        params: &sizes.map(|size| size as u32),
        groups: div_up(out.len(), 64),
        work: out.len() as u64 * (rows.longest() * columns.longest()) as u64,
    }
    .run()?;
    Ok(out)
}

/// Both matrices as the kernel reads them: the runs of each, then all weights.
fn words(rows: &Runs, columns: &Runs) -> Vec<u32> {
    let head = 2 * (rows.rows.len() + columns.rows.len());
    let mut words = Vec::with_capacity(head + rows.weights.len() + columns.weights.len());
    let mut skip = head as u32;
    for matrix in [rows, columns] {
        let starts = matrix.rows.iter();
        words.extend(starts.flat_map(|[first, start]| [*first, start + skip]));
        skip += matrix.weights.len() as u32;
    }
    for matrix in [rows, columns] {
        words.extend(matrix.weights.iter().map(|weight| weight.to_bits()));
    }
    words
}

/// Every variant that can be asked for.
pub fn variants() -> Vec<Variant> {
    vec![Variant::new(&RESAMPLE)]
}

/// What the family must pass. burn-flex has no gradient of the Lanczos filter; `tests/definitions.rs` checks that one.
pub const CASES: &[Case] = {
    use Mode::*;
    const UP: Arg = Arg::Sizes(&[11, 8]);
    const DOWN: Arg = Arg::Sizes(&[4, 2]);
    const X: Arg = normal(&[2, 3, 7, 5]);
    const GRAD_UP: Arg = normal(&[2, 3, 11, 8]);
    const GRAD_DOWN: Arg = normal(&[2, 3, 4, 2]);
    &[
        case("interpolate", &[X, UP, Arg::Interpolate(Nearest, true)]),
        case("interpolate", &[X, DOWN, Arg::Interpolate(Nearest, false)]),
        case("interpolate", &[X, UP, Arg::Interpolate(Bilinear, true)]),
        case("interpolate", &[X, UP, Arg::Interpolate(Bilinear, false)]),
        case("interpolate", &[X, DOWN, Arg::Interpolate(Bilinear, true)]),
        case("interpolate", &[X, UP, Arg::Interpolate(Bicubic, true)]),
        case("interpolate", &[X, UP, Arg::Interpolate(Bicubic, false)]),
        case("interpolate", &[X, DOWN, Arg::Interpolate(Bicubic, false)]),
        case("interpolate", &[X, UP, Arg::Interpolate(Lanczos3, true)]),
        case("interpolate", &[X, UP, Arg::Interpolate(Lanczos3, false)]),
        case("interpolate", &[X, DOWN, Arg::Interpolate(Lanczos3, false)]),
        // To one pixel and from one, an axis as it is, many pixels.
        case("interpolate", &[X, Arg::Sizes(&[1, 1]), Arg::Interpolate(Bicubic, true)]),
        case(
            "interpolate",
            &[normal(&[1, 2, 1, 9]), Arg::Sizes(&[1, 21]), Arg::Interpolate(Bilinear, false)],
        ),
        case(
            "interpolate",
            &[normal(&[1, 2, 1, 1]), Arg::Sizes(&[3, 4]), Arg::Interpolate(Lanczos3, false)],
        ),
        case("interpolate", &[X, Arg::Sizes(&[7, 5]), Arg::Interpolate(Bilinear, false)]),
        case(
            "interpolate",
            &[normal(&[1, 3, 60, 70]), Arg::Sizes(&[121, 93]), Arg::Interpolate(Lanczos3, false)],
        ),
        case(
            "interpolate",
            &[permuted(&[2, 7, 5, 3], &[0, 3, 1, 2]), UP, Arg::Interpolate(Bilinear, true)],
        ),
        case("interpolate", &[normal(&[0, 3, 7, 5]), UP, Arg::Interpolate(Bilinear, true)]),
        case("interpolate_backward", &[X, GRAD_UP, UP, Arg::Interpolate(Nearest, true)]),
        case("interpolate_backward", &[X, GRAD_DOWN, DOWN, Arg::Interpolate(Nearest, true)]),
        case("interpolate_backward", &[X, GRAD_UP, UP, Arg::Interpolate(Bilinear, true)]),
        case("interpolate_backward", &[X, GRAD_UP, UP, Arg::Interpolate(Bilinear, false)]),
        case("interpolate_backward", &[X, GRAD_DOWN, DOWN, Arg::Interpolate(Bilinear, true)]),
        case("interpolate_backward", &[X, GRAD_UP, UP, Arg::Interpolate(Bicubic, true)]),
        case("interpolate_backward", &[X, GRAD_UP, UP, Arg::Interpolate(Bicubic, false)]),
        case("interpolate_backward", &[X, GRAD_DOWN, DOWN, Arg::Interpolate(Bicubic, false)]),
        case(
            "interpolate_backward",
            &[
                normal(&[1, 2, 1, 9]),
                normal(&[1, 2, 1, 21]),
                Arg::Sizes(&[1, 21]),
                Arg::Interpolate(Bilinear, false),
            ],
        ),
        case(
            "interpolate_backward",
            &[
                normal(&[1, 1, 5, 6]),
                normal(&[1, 1, 40, 90]),
                Arg::Sizes(&[40, 90]),
                Arg::Interpolate(Bilinear, false),
            ],
        ),
        case(
            "interpolate_backward",
            &[X, permuted(&[2, 8, 11, 3], &[0, 3, 2, 1]), UP, Arg::Interpolate(Bilinear, true)],
        ),
    ]
};

#[cfg(test)]
mod tests {
    use super::*;

    const MODES: [Mode; 4] = [Mode::Nearest, Mode::Bilinear, Mode::Bicubic, Mode::Lanczos3];

    #[test]
    fn weights_of_every_output_sum_to_one() {
        for mode in MODES {
            for (input, output, align_corners) in [(1, 5, true), (7, 3, false), (5, 23, true)] {
                let runs = Runs::resizing(mode, align_corners, input, output);
                assert_eq!(runs.len(), output);
                for (_, first, weights) in runs.iter() {
                    assert!(first + weights.len() <= input);
                    let sum: f32 = weights.iter().sum();
                    assert!((sum - 1.0).abs() < 1e-6, "{mode:?} {input} to {output}: {sum}");
                }
            }
        }
    }

    #[test]
    fn transposing_moves_every_weight_to_its_mirror() {
        for mode in MODES {
            for (input, output, align_corners) in [(1, 5, true), (9, 4, false), (4, 23, false)] {
                let runs = Runs::resizing(mode, align_corners, input, output);
                let turned = runs.transposed(input);
                let entries = |runs: &Runs| {
                    let mut entries = Vec::new();
                    for (row, first, weights) in runs.iter() {
                        entries
                            .extend(weights.iter().enumerate().map(|(k, w)| (row, first + k, *w)));
                    }
                    entries
                };
                let mut back: Vec<_> =
                    entries(&turned).iter().map(|&(r, c, w)| (c, r, w)).collect();
                back.sort_by_key(|&(row, column, _)| (row, column));
                assert_eq!(back, entries(&runs), "{mode:?}");
                assert_eq!(turned.len(), input);
            }
        }
    }

    /// 49 * 2 / 98 is one, but 49 * (2 / 98) is less in floats.
    #[test]
    fn nearest_does_not_round() {
        let runs = Runs::resizing(Mode::Nearest, false, 2, 98);
        let firsts: Vec<usize> = runs.iter().map(|(_, first, _)| first).collect();
        assert_eq!(firsts[48..50], [0, 1]);
    }
}
