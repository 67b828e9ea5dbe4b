//! The numbers behind the numbers: medians with their spread, and where one device overtakes another.

use serde::Serialize;

/// What a list of samples comes to.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Summary {
    pub median: f64,
    /// A quarter of the samples lie below.
    pub lower_quartile: f64,
    /// A quarter of the samples lie above.
    pub upper_quartile: f64,
    pub min: f64,
    pub max: f64,
}

impl Summary {
    /// `None` where there is no sample.
    pub fn of(samples: &[f64]) -> Option<Self> {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let [lower_quartile, median, upper_quartile] =
            [0.25, 0.5, 0.75].map(|share| quantile(&sorted, share));
        Some(Self { median, lower_quartile, upper_quartile, min, max })
    }
}

/// The value below which a share of the samples lies, interpolated between the two nearest.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let place = share * (sorted.len() - 1) as f64;
    let (below, above) = (place.floor() as usize, place.ceil() as usize);
    sorted[below] + (sorted[above] - sorted[below]) * place.fract()
}

/// From which size on a device is faster than another.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Crossover {
    /// At every size measured.
    Always,
    /// At none.
    Never,
    /// From `size` on, which lies between the two sizes measured.
    At { size: f64, between: (f64, f64) },
    /// At some sizes, but not at the largest.
    NotAtTheEnd,
}

impl Crossover {
    /// From pairs of size and speedup in order of size; `None` with fewer than two.
    ///
    /// Between two sizes the speedup is taken as a straight line on logarithmic axes.
    pub fn of(points: &[(f64, f64)]) -> Option<Self> {
        let wins = |&(_, speedup): &(f64, f64)| speedup >= 1.0;
        let [_, .., last] = points else {
            return None;
        };
        if !wins(last) {
            return Some(if points.iter().any(wins) { Self::NotAtTheEnd } else { Self::Never });
        }
        let Some(loss) = points.iter().rposition(|point| !wins(point)) else {
            return Some(Self::Always);
        };
        let ((x0, y0), (x1, y1)) = (points[loss], points[loss + 1]);
        let share = y0.ln() / (y0.ln() - y1.ln());
        let size = (x0.ln() + share * (x1.ln() - x0.ln())).exp();
        Some(Self::At { size, between: (x0, x1) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_quartiles_are_interpolated() {
        let summary = Summary::of(&[4.0, 1.0, 3.0, 2.0]).unwrap();
        assert_eq!(
            summary,
            Summary { median: 2.5, lower_quartile: 1.75, upper_quartile: 3.25, min: 1.0, max: 4.0 }
        );
        let one = Summary::of(&[7.0]).unwrap();
        assert_eq!((one.median, one.lower_quartile, one.max), (7.0, 7.0, 7.0));
        assert_eq!(Summary::of(&[]), None);
    }

    #[test]
    fn an_outlier_does_not_move_the_median() {
        assert_eq!(Summary::of(&[1.0, 1.0, 1.0, 1.0, 900.0]).unwrap().median, 1.0);
    }

    #[test]
    fn the_crossover_lies_on_the_line_between_two_sizes() {
        // From half as fast to twice as fast: even half way, which on a logarithmic axis is the geometric mean.
        let Some(Crossover::At { size, between }) =
            Crossover::of(&[(64.0, 0.1), (100.0, 0.5), (400.0, 2.0)])
        else {
            panic!("there is one");
        };
        assert!((size - 200.0).abs() < 1e-9, "{size}");
        assert_eq!(between, (100.0, 400.0));
        // Nearer to the size where it is nearly even.
        let Some(Crossover::At { size, .. }) = Crossover::of(&[(100.0, 0.99), (400.0, 8.0)]) else {
            panic!("there is one");
        };
        assert!((100.0..102.0).contains(&size), "{size}");
    }

    #[test]
    fn a_speedup_of_one_wins() {
        let Some(Crossover::At { size, .. }) = Crossover::of(&[(10.0, 0.5), (20.0, 1.0)]) else {
            panic!("there is one");
        };
        assert!((size - 20.0).abs() < 1e-9, "{size}");
    }

    #[test]
    fn the_last_crossing_counts() {
        let points = [(1.0, 0.5), (2.0, 2.0), (4.0, 0.5), (8.0, 2.0)];
        let Some(Crossover::At { between, .. }) = Crossover::of(&points) else {
            panic!("there is one");
        };
        assert_eq!(between, (4.0, 8.0));
        assert_eq!(Crossover::of(&points[..3]), Some(Crossover::NotAtTheEnd));
    }

    #[test]
    fn without_a_crossing_one_always_wins() {
        assert_eq!(Crossover::of(&[(1.0, 3.0), (2.0, 2.0)]), Some(Crossover::Always));
        assert_eq!(Crossover::of(&[(1.0, 0.3), (2.0, 0.2)]), Some(Crossover::Never));
        assert_eq!(Crossover::of(&[(1.0, 3.0)]), None);
        assert_eq!(Crossover::of(&[]), None);
    }
}
