//! How fast a worker is.

use std::collections::VecDeque;
use std::time::Duration;

use web_time::Instant;

/// The steps that count: the median passes over those that compiled kernels, or came after a test.
const STEPS: usize = 31;

/// The speed of a worker in its last steps.
#[derive(Debug, Default)]
pub(super) struct Speed {
    /// When the last step ended, and how long the worker had waited for others until then.
    last: Option<(Instant, Duration)>,
    /// Samples per second.
    steps: VecDeque<f64>,
}

impl Speed {
    /// Notes the end of a step, and how long the worker has waited for others since the run began.
    pub fn end_step(&mut self, now: Instant, samples: usize, waited: Duration) {
        if let Some((start, before)) = self.last.replace((now, waited)) {
            let busy = (now - start).saturating_sub(waited.saturating_sub(before));
            if samples > 0 && !busy.is_zero() {
                self.steps.push_back(samples as f64 / busy.as_secs_f64());
            }
        }
        if self.steps.len() > STEPS {
            self.steps.pop_front();
        }
    }

    /// Forgets the steps before.
    pub fn clear(&mut self) {
        self.steps.clear();
    }

    /// Returns the samples per second of the time in which the worker did not wait for others.
    pub fn samples_per_second(&self) -> Option<f64> {
        let mut steps: Vec<f64> = self.steps.iter().copied().collect();
        steps.sort_by(f64::total_cmp);
        steps.get(steps.len() / 2).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_speed_is_that_of_the_median_step_without_waits() {
        let mut speed = Speed::default();
        let start = Instant::now();
        let at = Duration::from_millis;
        speed.end_step(start, 10, at(500));
        assert_eq!(speed.samples_per_second(), None);
        // 100 ms each, of which 60 are waits; then a test in between, and a step without samples.
        speed.end_step(start + at(100), 10, at(560));
        speed.end_step(start + at(200), 10, at(620));
        speed.end_step(start + at(9000), 10, at(620));
        speed.end_step(start + at(9100), 0, at(620));
        assert_eq!(speed.samples_per_second(), Some(250.0));
        for step in 0..100 {
            speed.end_step(start + at(9200 + 100 * step), 20, at(620));
        }
        assert_eq!(speed.samples_per_second(), Some(200.0));
        speed.clear();
        assert_eq!(speed.samples_per_second(), None);
    }
}
