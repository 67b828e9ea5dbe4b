//! The crossover size between two devices.

use serde::Serialize;

/// The sizes at which a device is faster than the reference device.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Crossover {
    /// Faster at every measured size.
    Always,
    /// Faster at no measured size.
    Never,
    /// Faster above `size`, which is interpolated between two measured sizes.
    At { size: f64, between: (f64, f64) },
    /// Faster at some sizes, but not at the largest.
    NotAtTheEnd,
}

impl Crossover {
    /// Finds the crossover from pairs of size and speedup in ascending order of size. Returns
    /// `None` for fewer than two pairs.
    ///
    /// The speedup is interpolated linearly between two sizes on logarithmic axes.
    pub fn of(points: &[(f64, f64)]) -> Option<Self> {
        let is_faster = |&(_, speedup): &(f64, f64)| speedup >= 1.0;
        let [_, .., last] = points else {
            return None;
        };
        if !is_faster(last) {
            let any = points.iter().any(is_faster);
            return Some(if any { Self::NotAtTheEnd } else { Self::Never });
        }
        let Some(last_slower) = points.iter().rposition(|point| !is_faster(point)) else {
            return Some(Self::Always);
        };
        let ((size0, speedup0), (size1, speedup1)) = (points[last_slower], points[last_slower + 1]);
        let fraction = speedup0.ln() / (speedup0.ln() - speedup1.ln());
        let size = (size0.ln() + fraction * (size1.ln() - size0.ln())).exp();
        Some(Self::At { size, between: (size0, size1) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_crossover_is_interpolated_on_logarithmic_axes() {
        // From 0.5x to 2x: equal in the middle, which is the geometric mean on a logarithmic axis.
        let Some(Crossover::At { size, between }) =
            Crossover::of(&[(64.0, 0.1), (100.0, 0.5), (400.0, 2.0)])
        else {
            panic!("expected a crossover");
        };
        assert!((size - 200.0).abs() < 1e-9, "{size}");
        assert_eq!(between, (100.0, 400.0));
        // At 0.99x the crossover is close to the smaller size.
        let Some(Crossover::At { size, .. }) = Crossover::of(&[(100.0, 0.99), (400.0, 8.0)]) else {
            panic!("expected a crossover");
        };
        assert!((100.0..102.0).contains(&size), "{size}");
    }

    #[test]
    fn a_speedup_of_one_counts_as_faster() {
        let Some(Crossover::At { size, .. }) = Crossover::of(&[(10.0, 0.5), (20.0, 1.0)]) else {
            panic!("expected a crossover");
        };
        assert!((size - 20.0).abs() < 1e-9, "{size}");
    }

    #[test]
    fn the_last_of_several_crossovers_is_used() {
        let points = [(1.0, 0.5), (2.0, 2.0), (4.0, 0.5), (8.0, 2.0)];
        let Some(Crossover::At { between, .. }) = Crossover::of(&points) else {
            panic!("expected a crossover");
        };
        assert_eq!(between, (4.0, 8.0));
        assert_eq!(Crossover::of(&points[..3]), Some(Crossover::NotAtTheEnd));
    }

    #[test]
    fn without_a_crossover_one_device_is_always_faster() {
        assert_eq!(Crossover::of(&[(1.0, 3.0), (2.0, 2.0)]), Some(Crossover::Always));
        assert_eq!(Crossover::of(&[(1.0, 0.3), (2.0, 0.2)]), Some(Crossover::Never));
        assert_eq!(Crossover::of(&[(1.0, 3.0)]), None);
        assert_eq!(Crossover::of(&[]), None);
    }
}
