//! Measures the speed of a worker.

use std::collections::VecDeque;
use std::time::Duration;

use web_time::Instant;

/// The steps that count: the median passes over those that compiled kernels, or came after a test.
const STEPS: usize = 31;

/// The speed of a worker in its last steps.
#[derive(Debug, Default)]
pub(super) struct Speed {
    /// When the last step ended, and the time of all exchanges until then.
    last: Option<(Instant, Duration)>,
    /// Samples per second.
    steps: VecDeque<f64>,
    /// What was measured before, for a worker that has had no samples since.
    known: Option<f64>,
}

impl Speed {
    /// Notes the end of a step, and the time of all exchanges since the run began.
    pub fn end_step(&mut self, now: Instant, samples: usize, exchanges: Duration) {
        if let Some((start, before)) = self.last.replace((now, exchanges)) {
            let busy = (now - start).saturating_sub(exchanges.saturating_sub(before));
            if samples > 0 && !busy.is_zero() {
                self.steps.push_back(samples as f64 / busy.as_secs_f64());
            }
        }
        if self.steps.len() > STEPS {
            self.steps.pop_front();
        }
    }

    /// Returns the samples per second of the time outside of exchanges, and begins to measure anew.
    pub fn take(&mut self) -> Option<f64> {
        let mut steps: Vec<f64> = self.steps.drain(..).collect();
        steps.sort_by(f64::total_cmp);
        self.last = None;
        self.known = steps.get(steps.len() / 2).copied().or(self.known);
        self.known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_speed_is_that_of_the_median_step_without_exchanges() {
        let mut speed = Speed::default();
        let start = Instant::now();
        let at = Duration::from_millis;
        speed.end_step(start, 10, at(500));
        assert_eq!(speed.take(), None);
        // 100 ms each, of which 60 are exchanges; then a test in between, and a step without samples.
        speed.end_step(start, 10, at(500));
        speed.end_step(start + at(100), 10, at(560));
        speed.end_step(start + at(200), 10, at(620));
        speed.end_step(start + at(9000), 10, at(620));
        speed.end_step(start + at(9100), 0, at(620));
        assert_eq!(speed.take(), Some(250.0));
        // What comes before the first step does not count.
        for step in 0..100 {
            speed.end_step(start + at(99_000 + 100 * step), 20, at(620));
        }
        assert_eq!(speed.take(), Some(200.0));
        speed.end_step(start + at(200_000), 0, at(620));
        assert_eq!(speed.take(), Some(200.0), "the last one that is known");
    }
}
